"""`strata mapping`: a logical mesh laid over devices in every order, and how its edges share the links."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strata.app.commands.options import JsonFlag, TableFile, picture_file
from strata.app.rows_out import answer
from strata.app.terminal import names_of, typed_bytes, typed_quantity, whole, wrote
from strata.errors import BadValue

if TYPE_CHECKING:
    from strata.mapping.device_mapping import LogicalDimension
    from strata.pricing.network.link_sharing import DeviceGrid


MeshPicture = Annotated[
    Path | None,
    typer.Option(
        "--svg", "--picture", metavar="FILE", help="write a picture of the best", callback=picture_file
    ),
]


def register_mapping(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        "mapping",
        short_help="Devices of a mesh on links: every order, link sharing, the best.",
        epilog="Example: strata mapping RC-4-2-d8-p2 --package 8x8 --packages 2 --svg mapping.svg. "
        "(`strata map` is about kernels of a program on chips.)",
    )(mapping_command)


def mapping_command(
    strategy: Annotated[
        str, typer.Argument(metavar="STRATEGY", help="kernel parallelism, like RC-4-2-d8-p2, or --mesh")
    ] = "",
    mesh: Annotated[
        str,
        typer.Option(
            metavar="NAME=N,...",
            help="degrees of the mesh, each a ring, or NAME=N:chain, NAME=N:full",
        ),
    ] = "",
    fabric: Annotated[
        str, typer.Option(metavar="NAME", help="fabric to lay it on", autocompletion=names_of("fabric"))
    ] = "",
    sizes: Annotated[
        str, typer.Option(metavar="N,N,...", help="members of the fabric's dimensions, innermost first")
    ] = "",
    package: Annotated[
        str, typer.Option(metavar="WxW", help="instead of a fabric: packages that are meshes of this size")
    ] = "",
    packages: Annotated[str, typer.Option(metavar="N", help="of them, in a chain")] = "1",
    intra: Annotated[
        str, typer.Option(metavar="B/s", help="bandwidth of a link inside a package, one direction")
    ] = "1 TB/s",
    inter: Annotated[str, typer.Option(metavar="B/s", help="and of one between packages")] = "100 GB/s",
    volumes: Annotated[
        str,
        typer.Option(
            metavar="NAME=BYTES,...",
            help="what a step sends over one edge of each dimension  [default: 1 MB each]",
        ),
    ] = "",
    together: Annotated[
        bool, typer.Option("--together", help="rank by the time when all dimensions send at once")
    ] = False,
    svg: MeshPicture = None,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Lay a mesh of shards over devices in every order of its dimensions, route its edges X then Y, and count
    how many share each link.
    """
    from strata.app.render.mapping import mapping_dict, mapping_tables
    from strata.pricing.network.link_sharing import device_mappings

    if bool(strategy) == bool(mesh):
        raise BadValue("mapping needs a strategy like RC-4-2-d8-p2 or --mesh NAME=N,..., one of them")
    dimensions = typed_mesh(mesh) if mesh else strategy_mesh(strategy)
    grid = _typed_grid(fabric, sizes, package, packages, (intra, inter))
    sent = _typed_volumes(volumes, dimensions)
    _check_picture(svg, grid, dimensions)
    found = device_mappings(dimensions, grid, sent, together=together)
    told = lambda: {"grid": grid.name, "mappings": [mapping_dict(m, sent) for m in found]}  # noqa: E731
    answer(told, lambda: mapping_tables(found, sent), json, table, "mappings")
    if svg:
        from strata.app.render.mapping_picture import draw_mapping

        wrote("picture", draw_mapping(found[0], svg))


def _check_picture(svg: Path | None, grid: DeviceGrid, mesh: tuple[LogicalDimension, ...]) -> None:
    """Refuse a picture of too much before the work."""
    if svg is not None:
        from strata.app.render.mapping_picture import check_drawn
        from strata.mapping.device_mapping import shard_count

        check_drawn(grid, shard_count(mesh))


def typed_mesh(text: str) -> tuple[LogicalDimension, ...]:
    """Dimensions of a mesh, as typed.

    >>> [(d.name, d.degree, d.topology) for d in typed_mesh("tp=8,pp=4:chain")]
    [('tp', 8, 'ring'), ('pp', 4, 'chain')]
    """
    from strata.mapping.device_mapping import LogicalDimension

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
    from strata.mapping.device_mapping import LogicalDimension
    from strata.mapping.kernel_parallel import parse_strategy

    given = parse_strategy(text)
    rings = (("kp1", given.kp1), ("kp2", given.kp2), ("dp", given.dp))
    return (
        *(LogicalDimension(name, int(degree)) for name, degree in rings),
        LogicalDimension("lp", int(given.lp), "chain"),
    )


def _typed_grid(fabric: str, sizes: str, package: str, packages: str, links: tuple[str, str]) -> DeviceGrid:
    """The devices: a fabric's, or those of packages."""
    from strata.app.commands.fabric import typed_dimensions
    from strata.hardware.fabric import fabric as make_fabric
    from strata.hardware.fabric import sized
    from strata.pricing.network.link_sharing import fabric_grid, package_grid

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
