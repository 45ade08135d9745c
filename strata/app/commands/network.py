"""`strata fabric`, `strata collective`: how a fabric is wired, and collectives on it."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.commands import options
from strata.app.commands.options import argument, command, drawing, flag, option
from strata.app.terminal import listed_in, names_of, set_items, typed_bytes
from strata.base.errors import BadValue
from strata.base.units import whole

if TYPE_CHECKING:
    from strata.hardware.chip import Chip
    from strata.hardware.fabric import Fabric
    from strata.pricing.network.collective_cost import CollectiveCost

PATTERNS = listed_in("strata.pricing.network.collectives", "PATTERNS")
MOST = 1000  # rows of a table of collectives
EVERY_SIZE = (8.0, 8e9)  # bytes of a picture where one size was asked for
DRAWN = 121  # sizes of a picture
ALGORITHM = option(
    "",
    "NAME,...",
    "ring, halving_doubling, …: of every dimension, or one each, innermost first  [default: the cheapest]",
)
BESIDE = option(
    None, "--with PATTERN:SIZE[:RANKS[:STRIDE]]", "another collective of the same devices that runs at once"
)
SIZES = option(
    "",
    "N,N,...",
    "of --fabric: members of each dimension, innermost first  [default: its own; 1 where it is open]",
)
SVG = drawing(
    "draw bus bandwidth against bytes, from the least to the most asked for (8 B to 8 GB where it is "
    "one size)"
)


@command(
    "fabric",
    "How a fabric is wired, and what that offers.",
    "strata fabric hgx-h200 --sizes 8,4 --svg h200.svg",
)
def fabric_command(
    name: str = argument(..., "NAME", "fabric name, or a TOML path", names_of("fabric")),
    sizes: str = option(
        "", "N,N,...", "members of each dimension, innermost first  [default: its own; 4 where it is open]"
    ),
    set: list[str] | None = option(
        None, "PATH=VALUE", "change a number, as often as needed: infiniband.oversubscription=2"
    ),
    svg: Path | None = drawing("write a picture of its topology"),
    form: options.AnswerForm = options.FORM,
) -> None:
    """How a fabric is wired: bisection, diameter, hops, links, cost, energy and bounds of collectives, for
    each dimension and in all.
    """
    from strata.app.render.fabric import draw_fabric, topology_dict, topology_tables
    from strata.hardware.fabric import fabric as make_fabric
    from strata.hardware.topology import topology

    fabric = make_fabric(name, **set_items(set, "fabric", "infiniband.oversubscription=2"))
    wired = topology(fabric, typed_dimensions(fabric, sizes))
    rows = lambda told: [*told["dimensions"], told["whole"]]  # noqa: E731
    form.answer(topology_dict, topology_tables, rows, of=[wired])
    options.write("picture", svg, draw_fabric, wired)


def typed_dimensions(fabric: Fabric, sizes: str) -> tuple[float, ...] | None:
    """Members of each dimension of a fabric, as typed; None where nothing is."""
    if not sizes:
        return None
    given = tuple(whole(item, "--sizes") for item in sizes.split(","))
    if len(given) > len(fabric.dimension):
        known = ", ".join(d.name for d in fabric.dimension)
        raise BadValue(
            f"--sizes has {len(given)} numbers, but fabric {fabric.name} has {len(fabric.dimension)} "
            f"dimensions: {known}"
        )
    return given


@command(
    "collective",
    "One collective on a fabric.",
    "strata collective all_reduce --system 8xh200 --bytes 8kB,1MB,1GB",
)
def collective_command(
    pattern: str = argument(
        ..., "PATTERN", "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send", PATTERNS
    ),
    bytes: str = option(
        ..., "SIZE,...", "whole buffer of one rank, like 64kB,1MiB,1e9; a list makes a table"
    ),
    system: options.SystemName = "",
    fabric: str = option("", "NAME", "in place of a system: fabric name, or a TOML path", names_of("fabric")),
    sizes: str = SIZES,
    ranks: str = option("", "N,...", "members of the group; a list makes a table  [default: every device]"),
    stride: str = option("1", "N", "distance between members, in devices, innermost first"),
    engine: str = option(
        "ideal", "NAME", "whose ways of sending it may use: strata list engines", names_of("engine")
    ),
    algorithm: str = ALGORITHM,
    algorithms: bool = flag("--algorithms", "every legal algorithm of each dimension side by side"),
    links: bool = flag("--links", "on the links alone, whatever software sends there"),
    packets: str = option("", "NAME", "packet by packet on the links alone, like ns3", names_of("packets")),
    simulate: bool = flag(
        "--simulate", "with --packets ns3: run it in ns-3, too (make ns3 builds the program)"
    ),
    beside: list[str] | None = BESIDE,
    svg: Path | None = SVG,
    form: options.AnswerForm = options.FORM,
) -> None:
    """One collective on a fabric: its time and lower bound, algorithm and bus bandwidth, the way it takes in
    each dimension, energy.
    """
    if ((algorithms or packets) and beside) or (algorithms and (packets or algorithm)):
        raise BadValue("--algorithms stands alone, and --with does not go with --packets")
    if simulate and not packets:
        raise BadValue("--simulate runs packets: say which with --packets ns3")
    if svg is not None and (beside or packets):
        raise BadValue("--svg draws collectives that run alone: without --with and --packets")
    network = _network(system, fabric, sizes)
    asked, count = _asked(pattern, bytes, ranks, stride, algorithm)
    sent = {"engine": engine, "links": links}
    if beside:
        others = [typed_collective(text) for text in beside]
        told, shown = _at_once(network, [asked, *others], sent, count)
    else:
        told, shown = _alone(network, asked | sent | {"packets": packets}, count, algorithms, simulate)
    form.answer(told[0] if len(told) == 1 else told, [shown], "collectives" if beside else "")
    options.write("picture", svg, partial(_draw, network, asked | sent))


def _draw(network: Any, asked: dict[str, Any], path: Path) -> Path:
    """The picture of what was asked, at many sizes."""
    import numpy as np

    from strata.app.render.operations import draw_collectives
    from strata.pricing.network.collective_cost import collective

    least, most = float(np.min(asked["bytes"])), float(np.max(asked["bytes"]))
    sizes = np.geomspace(*((least, most) if least < most else EVERY_SIZE), DRAWN)
    groups = [None] if asked["ranks"] is None else list(dict.fromkeys(asked["ranks"].tolist()))
    costs = [collective(network, **(asked | {"bytes": sizes, "ranks": ranks})) for ranks in groups]
    return draw_collectives(costs, path)


def _asked(pattern: str, bytes: str, ranks: str, stride: str, algorithm: str) -> tuple[dict[str, Any], int]:
    """What was typed as `st.network.collective` takes it, a point for each line of the table, how many."""
    import numpy as np

    buffers = [typed_bytes(item, "--bytes") for item in bytes.split(",")]
    groups = [whole(item, "--ranks") for item in ranks.split(",")] if ranks else [None]
    rows = list(itertools.product(groups, buffers))
    if len(rows) > MOST:
        raise BadValue(f"a table of collectives has at most {MOST} rows, but the lists make {len(rows)}")
    asked = {
        "pattern": pattern.replace("-", "_"),
        "bytes": np.array([size for _, size in rows]),
        "ranks": np.array([members for members, _ in rows]) if ranks else None,
        "stride": whole(stride, "--stride"),
        "algorithm": tuple(algorithm.split(",")) if "," in algorithm else algorithm,
    }
    return asked, len(rows)


def _alone(
    network: Any, asked: dict[str, Any], count: int, algorithms: bool, simulate: bool
) -> tuple[list[dict[str, Any]], Any]:
    """Collectives that run by themselves: for machines and for people."""
    import numpy as np
    from rich.console import Group

    from strata.app.render.accuracy import with_interval
    from strata.app.render.operations import by_algorithm, collective_dicts, collectives_table
    from strata.app.render.prediction import dimmed
    from strata.hardware.system import system as make_system
    from strata.pricing.network.collective_cost import collective
    from strata.validation.accuracy.trust import trust_collective

    cost = collective(network, **asked)
    told = collective_dicts(cost, count)
    if simulate:
        _simulate(cost, told)
    if algorithms:
        return by_algorithm(cost, told)
    chip = make_system(network).chip if isinstance(network, str) else _chip_like(network)
    library = bool(cost.engine) and not cost.packets
    crossed = [bool(np.any(np.asarray(layout.size) > 1)) for layout in cost.layouts]
    trusted = trust_collective(chip, cost.pattern, cost.time, inside=not any(crossed[1:]), software=library)
    return with_interval(told, trusted), Group(collectives_table(told), *dimmed([trusted.text]))


def _chip_like(network: Fabric) -> Chip | None:
    """A chip whose usual fabric has the same links inside a node; None where there is none."""
    import numpy as np

    from strata.hardware.chip import chip
    from strata.hardware.fabric import fabric
    from strata.params import find, names, read_toml

    node = network.dimension[0]
    if not node.transport:
        return None
    usual = {name: str(read_toml(find("chip", name)).get("fabric", "")) for name in names("chip")}
    inner = {made: fabric(made).dimension[0] for made in dict.fromkeys(usual.values()) if made}

    def far(name: str) -> tuple[Any, ...]:
        own = inner[usual[name]]
        apart = (float(own.bandwidth) != float(node.bandwidth), own.kind != node.kind)
        sizes = [1.0 if d.size is None else float(np.max(d.size)) for d in (own, node)]
        return (usual[name] != network.name, *apart, abs(np.log(sizes[0] / sizes[1])), name)

    like = [n for n, made in usual.items() if made and inner[made].transport == node.transport]
    return chip(min(like, key=far)) if like else None


def _at_once(
    network: Any, asked: list[dict[str, Any]], options: dict[str, Any], count: int
) -> tuple[list[dict[str, Any]], Any]:
    """Collectives that start together: for machines and for people."""
    from strata.app.render.operations import concurrent_dicts, concurrent_table
    from strata.pricing.network.concurrent import concurrent_collectives

    costs = concurrent_collectives(network, asked, **options)
    told = concurrent_dicts(costs, count)
    return told, concurrent_table(costs, told)


def _simulate(cost: CollectiveCost, told: list[dict[str, Any]]) -> None:
    """The same collectives in ns-3, beside ours."""
    from strata.app.render.operations import point_number
    from strata.base.arrays import map_leaves
    from strata.hardware.transport import packets
    from strata.measure.ns3 import simulated
    from strata.pricing.network.packet_collectives import group_schedule, schedule_for_simulator

    jobs = []
    for i, row in enumerate(told):
        layouts = map_leaves(partial(point_number, i=i), cost.layouts)
        name = schedule_for_simulator([d["algorithm"] or "" for d in row["dimensions"]], layouts, cost.fabric)
        steps, levels = group_schedule(cost.pattern, row["bytes"], layouts, cost.fabric, name)
        jobs.append(((steps,), levels))
    for row, times in zip(told, simulated(jobs, packets(cost.packets)), strict=True):
        row["ns3_s"] = times[0]


def typed_collective(text: str) -> dict[str, Any]:
    """A collective as `--with` has it.

    >>> typed_collective("all_gather:1MB:8")
    {'pattern': 'all_gather', 'bytes': 1000000.0, 'ranks': 8.0}
    """
    pattern, *rest = text.split(":")
    if not 1 <= len(rest) <= 3:
        raise BadValue(f"--with is PATTERN:SIZE[:RANKS[:STRIDE]], like all_gather:1MB:8, but got '{text}'")
    more = {
        name: whole(item, f"--with {name}") for name, item in zip(("ranks", "stride"), rest[1:], strict=False)
    }
    return {"pattern": pattern.replace("-", "_"), "bytes": typed_bytes(rest[0], "--with"), **more}


def _network(system: str, fabric: str, sizes: str) -> Any:
    """The system or the sized fabric that was named; one of them, not both."""
    from strata.hardware.fabric import fabric as make_fabric
    from strata.hardware.fabric import sized

    if bool(system) == bool(fabric):
        raise BadValue("collective needs --system or --fabric, and not both; see strata collective --help")
    if system:
        if sizes:
            raise BadValue(
                f"--sizes belongs to --fabric; the system's name gives its sizes, but got (system='{system}')"
            )
        return system
    known = make_fabric(fabric)
    given = typed_dimensions(known, sizes)
    return sized(known, given) if given else known
