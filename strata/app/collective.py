"""`strata collective`: one collective on a fabric, or a table of them where bytes or ranks are a list."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import numpy as np
import typer

from strata.app.words import names_of, plain_table, print_json, systems, titled, whole
from strata.errors import BadValue

MOST = 1000  # rows of a table of collectives


def patterns(incomplete: str) -> list[str]:
    """A completer that offers collectives."""
    from strata.pricing.collectives import PATTERNS

    return [p for p in PATTERNS if p.startswith(incomplete)]


def add_to(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(short_help="One collective on a fabric.", epilog="Example: strata collective all_reduce --system 8xh200 --bytes 8kB,1MB,1GB")(
        collective
    )


def collective(
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send", autocompletion=patterns)
    ],
    bytes: Annotated[str, typer.Option(metavar="SIZE,...", help="whole buffer of one rank, like 64kB,1MiB,1e9; a list makes a table")],
    system: Annotated[
        str, typer.Option("--system", "-s", metavar="NAME", help="system, like 8xh200, 4x8xh100, or a TOML path", autocompletion=systems)
    ] = "",
    fabric: Annotated[
        str, typer.Option(metavar="NAME", help="in place of a system: fabric name, or a TOML path", autocompletion=names_of("fabric"))
    ] = "",
    sizes: Annotated[
        str, typer.Option(metavar="N,N,...", help="of --fabric: members of each dimension, innermost first  [default: its own; 1 where it is open]")
    ] = "",
    ranks: Annotated[str, typer.Option(metavar="N,...", help="members of the group; a list makes a table  [default: every device]")] = "",
    stride: Annotated[str, typer.Option(metavar="N", help="distance between members, in devices, innermost first")] = "1",
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="whose ways of sending it may use: strata list engines", autocompletion=names_of("engine"))
    ] = "ideal",
    json: Annotated[bool, typer.Option("--json", help="print JSON for machines")] = False,
) -> None:
    """One collective on a fabric: its time and lower bound, algorithm and bus bandwidth, the way it takes in each dimension, energy."""
    from strata.app.cli import say
    from strata.pricing.communication import collective as price

    on = joined(system, fabric, sizes)
    buffers = [buffer(item) for item in bytes.split(",")]
    groups = [whole(item, "--ranks") for item in ranks.split(",")] if ranks else [None]
    rows = list(itertools.product(groups, buffers))
    if len(rows) > MOST:
        raise BadValue(f"a table of collectives has at most {MOST} rows, but the lists make {len(rows)}")
    members = np.array([r for r, _ in rows]) if ranks else None
    found = price(on, pattern.replace("-", "_"), bytes=np.array([b for _, b in rows]), ranks=members, stride=whole(stride, "--stride"), engine=engine)
    told = as_dicts(found, len(rows))
    if json:
        print_json(told[0] if len(told) == 1 else told)
    else:
        say(table(told))


def joined(system: str, fabric: str, sizes: str) -> Any:
    """The system or the sized fabric that was named; one of them, not both."""
    from strata.hardware.fabric import fabric as make_fabric
    from strata.hardware.fabric import sized

    if bool(system) == bool(fabric):
        raise BadValue("collective needs --system or --fabric, and not both; see strata collective --help")
    if system:
        if sizes:
            raise BadValue(f"--sizes belongs to --fabric; the system's name gives its sizes, but got (system='{system}')")
        return system
    made = make_fabric(fabric)
    if not sizes:
        return made
    given = tuple(whole(item, "--sizes") for item in sizes.split(","))
    if len(given) > len(made.dimension):
        known = ", ".join(d.name for d in made.dimension)
        raise BadValue(f"--sizes has {len(given)} numbers, but fabric {made.name} has {len(made.dimension)} dimensions: {known}")
    return sized(made, given)


def buffer(text: str) -> float:
    """A number of bytes as typed, with or without a unit.

    >>> buffer("64kB"), buffer("1 MiB"), buffer("4096")
    (64000.0, 1048576.0, 4096.0)
    """
    from strata.units import parse

    try:
        value = float(text)
    except ValueError:
        value = parse(text, "B", "--bytes")
    if not 0 < value < float("inf"):
        raise BadValue(f"--bytes must be a positive number of bytes, but got '{text}'")
    return value


def as_dicts(found: Any, count: int) -> list[dict[str, Any]]:
    """Collectives for machines: what was asked and what each costs, in SI units."""
    made = found.fabric
    numbers = {
        "bytes": found.bytes, "ranks": found.ranks, "stride": found.stride, "time_s": found.time, "lower_s": found.lower,
        "algorithm_B_per_s": found.algorithm_bandwidth, "bus_B_per_s": found.bus_bandwidth, "energy_J": found.energy,
    }  # fmt: skip
    spread = {name: np.broadcast_to(np.asarray(value, float), (count,)) for name, value in numbers.items()}
    inside = [np.broadcast_to(np.asarray(s.size, float), (count,)) for s in found.spreads]
    ways = found.algorithms
    asked = {"collective": found.pattern, "fabric": made.name, "sizes": [float(d.size) for d in made.dimension], "engine": found.engine}
    return [
        {
            **asked,
            **{name: float(value[i]) for name, value in spread.items()},
            "dimensions": [
                {"name": d.name, "ranks": float(inside[j][i]), "algorithm": str(ways[j][i]) or None} for j, d in enumerate(made.dimension)
            ],
        }
        for i in range(count)
    ]


def table(rows: list[dict[str, Any]]) -> Any:
    """Collectives for people, one a line."""
    from strata.units import show

    first = rows[0]
    shown = plain_table()
    for name in ("ranks", "bytes", "time", "lower", "algorithm bw", "bus bw", "energy/rank"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("way in each dimension")
    for row in rows:
        shown.add_row(
            f"{row['ranks']:g}", show(row["bytes"], "B"), show(row["time_s"], "s"), show(row["lower_s"], "s"),
            show(row["algorithm_B_per_s"], "B/s"), show(row["bus_B_per_s"], "B/s"), show(row["energy_J"], "J"),
            "; ".join(f"{d['name']} {d['ranks']:g}: {d['algorithm']}" for d in row["dimensions"] if d["algorithm"]),
        )  # fmt: skip
    shape = " x ".join(f"{size:g} {d['name']}" for size, d in zip(first["sizes"], first["dimensions"], strict=True))
    apart = f", stride {first['stride']:g}" if first["stride"] > 1 else ""
    below = "bytes: the whole buffer of one rank; lower: its bytes at the links' peak; bus bw: as nccl-tests counts it, to compare with a link"
    return titled(f"{first['collective']} on {first['fabric']} ({shape}){apart}, engine {first['engine']}", shown, below)
