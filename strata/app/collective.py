"""`strata collective`: one collective on a fabric, or a table of them where bytes or ranks are a list."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from strata.app.words import names_of, plain_table, print_json, systems, titled, whole
from strata.errors import BadValue

MOST = 1000  # rows of a table of collectives


def patterns(incomplete: str) -> list[str]:
    """A completer that offers collectives."""
    from strata.pricing.network.collectives import PATTERNS

    return [p for p in PATTERNS if p.startswith(incomplete)]


def add_to(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        short_help="One collective on a fabric.",
        epilog="Example: strata collective all_reduce --system 8xh200 --bytes 8kB,1MB,1GB",
    )(collective)


def collective(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send",
            autocompletion=patterns,
        ),
    ],
    bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE,...", help="whole buffer of one rank, like 64kB,1MiB,1e9; a list makes a table"
        ),
    ],
    system: Annotated[
        str,
        typer.Option(
            "--system",
            "-s",
            metavar="NAME",
            help="system, like 8xh200, 4x8xh100, or a TOML path",
            autocompletion=systems,
        ),
    ] = "",
    fabric: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="in place of a system: fabric name, or a TOML path",
            autocompletion=names_of("fabric"),
        ),
    ] = "",
    sizes: Annotated[
        str,
        typer.Option(
            metavar="N,N,...",
            help="of --fabric: members of each dimension, innermost first  [default: its own; 1 where it is open]",
        ),
    ] = "",
    ranks: Annotated[
        str,
        typer.Option(
            metavar="N,...", help="members of the group; a list makes a table  [default: every device]"
        ),
    ] = "",
    stride: Annotated[
        str, typer.Option(metavar="N", help="distance between members, in devices, innermost first")
    ] = "1",
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="whose ways of sending it may use: strata list engines",
            autocompletion=names_of("engine"),
        ),
    ] = "ideal",
    algorithm: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="ring, halving_doubling, …: of every dimension, or one each, innermost first  [default: the cheapest]",
        ),
    ] = "",
    algorithms: Annotated[
        bool, typer.Option("--algorithms", help="every legal algorithm of each dimension side by side")
    ] = False,
    links: Annotated[
        bool, typer.Option("--links", help="on the links alone, whatever software sends there")
    ] = False,
    packets: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="packet by packet on the links alone, like ns3",
            autocompletion=names_of("packets"),
        ),
    ] = "",
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate", help="with --packets ns3: run it in ns-3, too (make ns3 builds the program)"
        ),
    ] = False,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="PATTERN:SIZE[:RANKS[:STRIDE]]",
            help="another collective of the same devices that runs at once",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON for machines")] = False,
) -> None:
    """One collective on a fabric: its time and lower bound, algorithm and bus bandwidth, the way it takes in
    each dimension, energy.
    """
    from strata.app.cli import say

    if ((algorithms or packets) and beside) or (algorithms and (packets or algorithm)):
        raise BadValue("--algorithms stands alone, and --with does not go with --packets")
    if simulate and not packets:
        raise BadValue("--simulate runs packets: say which with --packets ns3")
    on = joined(system, fabric, sizes)
    asked, count = _asked(pattern, bytes, ranks, stride, algorithm)
    if beside:
        told, shown = _at_once(on, [asked, *(other(text) for text in beside)], engine, links, count)
    else:
        told, shown = _alone(
            on, asked, count, algorithms, {"engine": engine, "packets": packets, "links": links}, simulate
        )
    if json:
        print_json(told[0] if len(told) == 1 else told)
    else:
        say(shown)


def _asked(pattern: str, bytes: str, ranks: str, stride: str, algorithm: str) -> tuple[dict[str, Any], int]:
    """What was typed as `st.collective` takes it, a point for each line of the table, and how many there are."""
    buffers = [buffer(item) for item in bytes.split(",")]
    groups = [whole(item, "--ranks") for item in ranks.split(",")] if ranks else [None]
    rows = list(itertools.product(groups, buffers))
    if len(rows) > MOST:
        raise BadValue(f"a table of collectives has at most {MOST} rows, but the lists make {len(rows)}")
    by = tuple(algorithm.split(",")) if "," in algorithm else algorithm
    members = np.array([r for r, _ in rows]) if ranks else None
    asked = {
        "pattern": pattern.replace("-", "_"),
        "bytes": np.array([b for _, b in rows]),
        "ranks": members,
        "stride": whole(stride, "--stride"),
    }
    return asked | {"algorithm": by}, len(rows)


def _alone(
    on: Any, asked: dict[str, Any], count: int, algorithms: bool, by: dict[str, Any], simulate: bool
) -> tuple[list[dict[str, Any]], Any]:
    """Collectives that run by themselves: for machines and for people."""
    from strata.pricing.network.collective_cost import collective as price

    found = price(on, **asked, **by)
    told = as_dicts(found, count)
    if simulate:
        _simulate(found, told)
    return _side_by_side(found, told) if algorithms else (told, table(told))


def _simulate(found: Any, told: list[dict[str, Any]]) -> None:
    """The same collectives in ns-3, beside ours."""
    from strata.arrays import map_leaves
    from strata.hardware.transport import packets
    from strata.pricing.network.packet_collectives import schedule_of, spelt_out
    from strata.validation.simulate import simulated

    jobs = []
    for i, row in enumerate(told):
        spreads = map_leaves(partial(_number, i=i), found.spreads)
        name = schedule_of([d["algorithm"] or "" for d in row["dimensions"]], spreads, found.fabric)
        steps, levels = spelt_out(found.pattern, row["bytes"], spreads, found.fabric, name)
        jobs.append(((steps,), levels))
    for row, times in zip(told, simulated(jobs, packets(found.packets)), strict=True):
        row["ns3_s"] = times[0]


def other(text: str) -> dict[str, Any]:
    """A collective as `--with` has it.

    >>> other("all_gather:1MB:8")
    {'pattern': 'all_gather', 'bytes': 1000000.0, 'ranks': 8.0}
    """
    pattern, *rest = text.split(":")
    if not 1 <= len(rest) <= 3:
        raise BadValue(f"--with is PATTERN:SIZE[:RANKS[:STRIDE]], like all_gather:1MB:8, but got '{text}'")
    more = {
        name: whole(item, f"--with {name}") for name, item in zip(("ranks", "stride"), rest[1:], strict=False)
    }
    return {"pattern": pattern.replace("-", "_"), "bytes": buffer(rest[0], "--with"), **more}


def _at_once(
    on: Any, asked: list[dict[str, Any]], engine: str, links: bool, count: int
) -> tuple[list[dict[str, Any]], Any]:
    """Collectives that start together: for machines and for people."""
    from strata.pricing.network.concurrent import concurrent_collectives
    from strata.units import show

    found = concurrent_collectives(on, asked, engine, links)
    finish = [np.broadcast_to(time, (count,)) for time in found.finish]
    alone = [np.broadcast_to(c.time, (count,)) for c in found.alone]
    whole_time, in_turn = (
        np.broadcast_to(found.time, (count,)),
        np.broadcast_to(found.one_after_the_other, (count,)),
    )
    told: list[dict[str, Any]] = []
    shown = plain_table()
    for name in ("collective", "ranks", "bytes", "alone", "at once", "slower"):
        shown.add_column(name, justify="left" if name == "collective" else "right", no_wrap=True)
    for i in range(count):
        each: list[dict[str, Any]] = [
            {
                "collective": c.pattern,
                "bytes": _number(c.bytes, i),
                "ranks": _number(c.ranks, i),
                "stride": _number(c.stride, i),
                "alone_s": float(alone[j][i]),
                "time_s": float(finish[j][i]),
            }
            for j, c in enumerate(found.alone)
        ]
        told.append(
            {"time_s": float(whole_time[i]), "one_after_the_other_s": float(in_turn[i]), "collectives": each}
        )
        for one in each:
            shown.add_row(
                one["collective"],
                f"{one['ranks']:g}",
                show(one["bytes"], "B"),
                show(one["alone_s"], "s"),
                show(one["time_s"], "s"),
                f"{one['time_s'] / one['alone_s']:.2f}x",
            )
    below = (
        f"all done after {show(told[-1]['time_s'], 's')}; one after the other: {show(told[-1]['one_after_the_other_s'], 's')}"
        if count == 1
        else ""
    )
    return told, titled(
        f"{len(asked)} collectives at once on {found.alone[0].fabric.name}, {_software(found.alone[0].engine)}",
        shown,
        below,
    )


def _number(value: Any, i: int) -> float:
    seen = np.asarray(value, float)
    return float(seen if not seen.ndim else np.broadcast_to(seen, (max(i + 1, seen.size),))[i])


def _side_by_side(found: Any, told: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Any]:
    """Every legal way in each dimension: for machines and for people."""
    from strata.units import show

    shown = plain_table()
    for name in ("ranks", "bytes", "dimension", "algorithm", "time", ""):
        shown.add_column(
            name, justify="right" if name in ("ranks", "bytes", "time") else "left", no_wrap=True
        )
    for i, row in enumerate(told):
        for d, ways in zip(row["dimensions"], found.ways, strict=True):
            times = {way: _number(time, i) for way, time in ways.items()} if d["algorithm"] else {}
            d["algorithms"] = {
                way: time
                for way, time in sorted(times.items(), key=lambda item: item[1])
                if np.isfinite(time)
            }
            for way, time in d["algorithms"].items():
                mark = (
                    "cheapest" if way == d["algorithm"] else f"{time / d['algorithms'][d['algorithm']]:.2f}x"
                )
                shown.add_row(
                    f"{row['ranks']:g}",
                    show(row["bytes"], "B"),
                    f"{d['name']} {d['ranks']:g}",
                    way,
                    show(time, "s"),
                    mark,
                )
    return told, titled(
        _heading(told[0]),
        shown,
        "each dimension with its share of the buffer; a collective takes the sum of what it goes by",
    )


def joined(system: str, fabric: str, sizes: str) -> Any:
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
    made = make_fabric(fabric)
    if not sizes:
        return made
    given = tuple(whole(item, "--sizes") for item in sizes.split(","))
    if len(given) > len(made.dimension):
        known = ", ".join(d.name for d in made.dimension)
        raise BadValue(
            f"--sizes has {len(given)} numbers, but fabric {made.name} has {len(made.dimension)} dimensions: {known}"
        )
    return sized(made, given)


def buffer(text: str, option: str = "--bytes") -> float:
    """A number of bytes as typed, with or without a unit.

    >>> buffer("64kB"), buffer("1 MiB"), buffer("4096")
    (64000.0, 1048576.0, 4096.0)
    """
    from strata.units import parse

    try:
        value = float(text)
    except ValueError:
        value = parse(text, "B", option)
    if not 0 < value < float("inf"):
        raise BadValue(f"{option} must be a positive number of bytes, but got '{text}'")
    return value


def as_dicts(found: Any, count: int) -> list[dict[str, Any]]:
    """Collectives for machines: what was asked and what each costs, in SI units."""
    made = found.fabric
    numbers = {
        "bytes": found.bytes,
        "ranks": found.ranks,
        "stride": found.stride,
        "time_s": found.time,
        "lower_s": found.lower,
        "algorithm_B_per_s": found.algorithm_bandwidth,
        "bus_B_per_s": found.bus_bandwidth,
        "energy_J": found.energy,
    }
    spread = {name: np.broadcast_to(np.asarray(value, float), (count,)) for name, value in numbers.items()}
    inside = [np.broadcast_to(np.asarray(s.size, float), (count,)) for s in found.spreads]
    ways = found.algorithms
    asked = {
        "collective": found.pattern,
        "fabric": made.name,
        "sizes": [float(d.size) for d in made.dimension],
        "engine": found.engine or None,
    }
    if found.packets:
        asked["packets"] = found.packets
    return [
        {
            **asked,
            **{name: float(value[i]) for name, value in spread.items()},
            "dimensions": [
                {"name": d.name, "ranks": float(inside[j][i]), "algorithm": str(ways[j][i]) or None}
                for j, d in enumerate(made.dimension)
            ],
        }
        for i in range(count)
    ]


def table(rows: list[dict[str, Any]]) -> Any:
    """Collectives for people, one a line."""
    from strata.units import show

    shown = plain_table()
    for name in ("ranks", "bytes", "time", "lower", "algorithm bw", "bus bw", "energy/rank"):
        shown.add_column(name, justify="right", no_wrap=True)
    if "ns3_s" in rows[0]:
        shown.add_column("in ns-3", justify="right", no_wrap=True)
        shown.add_column("ours", justify="right", no_wrap=True)
    shown.add_column("way in each dimension")
    for row in rows:
        simulated = (
            [show(row["ns3_s"], "s"), f"{row['time_s'] / row['ns3_s'] - 1:+.2%}"] if "ns3_s" in row else []
        )
        shown.add_row(
            f"{row['ranks']:g}",
            show(row["bytes"], "B"),
            show(row["time_s"], "s"),
            show(row["lower_s"], "s"),
            show(row["algorithm_B_per_s"], "B/s"),
            show(row["bus_B_per_s"], "B/s"),
            show(row["energy_J"], "J"),
            *simulated,
            "; ".join(
                f"{d['name']} {d['ranks']:g}: {d['algorithm']}" for d in row["dimensions"] if d["algorithm"]
            ),
        )
    below = "bytes: the whole buffer of one rank; lower: its bytes at the links' peak; bus bw: as nccl-tests counts it, to compare with a link"
    return titled(_heading(rows[0]), shown, below)


def _heading(first: dict[str, Any]) -> str:
    shape = " x ".join(
        f"{size:g} {d['name']}" for size, d in zip(first["sizes"], first["dimensions"], strict=True)
    )
    apart = f", stride {first['stride']:g}" if first["stride"] > 1 else ""
    by = f"packets {first['packets']}" if "packets" in first else _software(first["engine"])
    return f"{first['collective']} on {first['fabric']} ({shape}){apart}, {by}"


def _software(engine: str) -> str:
    return f"engine {engine}" if engine else "links alone"
