"""`strata mapping`: a logical mesh laid over devices in every order, and how its edges share the links."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from strata.app.commands.options import FORM, AnswerForm, argument, command, drawing, flag, option
from strata.app.terminal import names_of, typed_bytes, wrote
from strata.base.errors import BadValue
from strata.base.units import typed_quantity, whole

if TYPE_CHECKING:
    from deepflow.device_mapping import LogicalDimension
    from deepflow.link_sharing import DeviceGrid


@command(
    "mapping",
    "Devices of a mesh on links: every order, link sharing, the best.",
    "strata mapping RC-4-2-d8-p2 --package 8x8 --packages 2 --svg mapping.svg. "
    "(`strata map` is about kernels of a program on chips.)",
)
def mapping_command(
    strategy: str = argument("", "STRATEGY", "kernel parallelism, like RC-4-2-d8-p2, or --mesh"),
    mesh: str = option("", "NAME=N,...", "degrees of the mesh, each a ring, or NAME=N:chain, NAME=N:full"),
    fabric: str = option("", "NAME", "fabric to lay it on", names_of("fabric")),
    sizes: str = option("", "N,N,...", "members of the fabric's dimensions, innermost first"),
    package: str = option("", "WxW", "instead of a fabric: packages that are meshes of this size"),
    packages: str = option("1", "N", "of them, in a chain"),
    intra: str = option("1 TB/s", "B/s", "bandwidth of a link inside a package, one direction"),
    inter: str = option("100 GB/s", "B/s", "and of one between packages"),
    volumes: str = option(
        "", "NAME=BYTES,...", "what a step sends over one edge of each dimension  [default: 1 MB each]"
    ),
    together: bool = flag("--together", "rank by the time when all dimensions send at once"),
    svg: Path | None = drawing("write a picture of the best"),
    form: AnswerForm = FORM,
) -> None:
    """Lay a mesh of shards over devices in every order of its dimensions, route its edges X then Y, and count
    how many share each link.
    """
    from deepflow.link_sharing import device_mappings
    from deepflow.mapping_report import mapping_dict, mapping_tables

    if bool(strategy) == bool(mesh):
        raise BadValue("mapping needs a strategy like RC-4-2-d8-p2 or --mesh NAME=N,..., one of them")
    dimensions = typed_mesh(mesh) if mesh else strategy_mesh(strategy)
    grid = _typed_grid(fabric, sizes, package, packages, (intra, inter))
    sent = _typed_volumes(volumes, dimensions)
    if svg is not None:  # a picture of too much is refused before the work
        from deepflow.device_mapping import shard_count
        from deepflow.mapping_picture import check_drawn

        check_drawn(grid, shard_count(dimensions))
    found = device_mappings(dimensions, grid, sent, together=together)
    told = lambda: {"grid": grid.name, "mappings": [mapping_dict(m, sent) for m in found]}  # noqa: E731
    form.answer(told, lambda: mapping_tables(found, sent), "mappings")
    if svg:
        from deepflow.mapping_picture import draw_mapping

        wrote("picture", draw_mapping(found[0], svg))


def typed_mesh(text: str) -> tuple[LogicalDimension, ...]:
    """Dimensions of a mesh, as typed.

    >>> [(d.name, d.degree, d.topology) for d in typed_mesh("tp=8,pp=4:chain")]
    [('tp', 8, 'ring'), ('pp', 4, 'chain')]
    """
    from deepflow.device_mapping import LogicalDimension

    found = []
    for item in text.split(","):
        name, equals, rest = item.strip().partition("=")
        degree, _, topology = rest.partition(":")
        if not equals or not name:
            raise BadValue(f"--mesh needs NAME=N or NAME=N:chain, as in tp=8,pp=4:chain, but got '{item}'")
        found.append(LogicalDimension(name, int(whole(degree, f"--mesh {name}")), topology or "ring"))
    return tuple(found)


def strategy_mesh(text: str) -> tuple[LogicalDimension, ...]:
    """Dimensions of a strategy of kernel parallelism: rings of shards and replicas, a chain of stages.

    >>> [(d.name, d.degree, d.topology) for d in strategy_mesh("RC-4-2-d8-p2")]
    [('kp1', 4, 'ring'), ('kp2', 2, 'ring'), ('dp', 8, 'ring'), ('lp', 2, 'chain')]
    """
    from deepflow.device_mapping import LogicalDimension
    from strata.mapping.kernel_parallel import parse_strategy

    given = parse_strategy(text)
    rings = (("kp1", given.kp1), ("kp2", given.kp2), ("dp", given.dp))
    return (
        *(LogicalDimension(name, int(degree)) for name, degree in rings),
        LogicalDimension("lp", int(given.lp), "chain"),
    )


def _typed_grid(fabric: str, sizes: str, package: str, packages: str, links: tuple[str, str]) -> DeviceGrid:
    """The devices: a fabric's, or those of packages."""
    from deepflow.link_sharing import fabric_grid, package_grid
    from strata.app.commands.network import typed_dimensions
    from strata.hardware.fabric import fabric as make_fabric
    from strata.hardware.fabric import sized

    if bool(fabric) == bool(package):
        raise BadValue("mapping needs --fabric NAME or --package WxW, one of them")
    if fabric:
        joined = make_fabric(fabric)
        given = typed_dimensions(joined, sizes)
        return fabric_grid(joined if given is None else sized(joined, given))
    sides = package.lower().split("x")
    if len(sides) != 2 or sides[0] != sides[1]:
        raise BadValue(f"--package must be a square like 8x8, but got '{package}'")
    intra, inter = (
        typed_quantity(text, "B/s", option)
        for text, option in zip(links, ("--intra", "--inter"), strict=True)
    )
    return package_grid(
        int(whole(sides[0], "--package")), int(whole(packages, "--packages")), float(intra), float(inter)
    )


def _typed_volumes(text: str, mesh: tuple[LogicalDimension, ...]) -> dict[str, float]:
    """Bytes over an edge of each dimension, as typed; those not named send nothing."""
    if not text:
        return {d.name: 1e6 for d in mesh}
    known = {d.name for d in mesh}
    found = {d.name: 0.0 for d in mesh}
    for item in text.split(","):
        name, equals, value = item.strip().partition("=")
        if not equals or name not in known:
            raise BadValue(f"--volumes needs NAME=BYTES of {', '.join(sorted(known))}, but got '{item}'")
        found[name] = typed_bytes(value, f"--volumes {name}")
    return found
