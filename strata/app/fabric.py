"""`strata fabric`: how a fabric is wired and what that offers: bisection, diameter, hops, links, cost,
energy, bounds; and its picture.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from strata.app.words import names_of, plain_table, print_json, set_items, titled, whole
from strata.drawing import keep
from strata.errors import BadValue

UNITS = {
    "bandwidth": "B_per_s",
    "bisection": "B_per_s",
    "latency": "s",
    "energy": "J_per_B",
    "price": "USD",
    "all_reduce": "B_per_s",
    "all_to_all": "B_per_s",
}


def add_to(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        short_help="How a fabric is wired, and what that offers.",
        epilog="Example: strata fabric hgx-h200 --sizes 8,4 --svg h200.svg",
    )(fabric)


def fabric(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="fabric name, or a TOML path", autocompletion=names_of("fabric")),
    ],
    sizes: Annotated[
        str,
        typer.Option(
            metavar="N,N,...",
            help="members of each dimension, innermost first  [default: its own; 4 where it is open]",
        ),
    ] = "",
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="change a number, as often as needed: infiniband.oversubscription=2",
        ),
    ] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="write a picture of its topology")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON for machines")] = False,
) -> None:
    """How a fabric is wired: bisection, diameter, hops, links, cost, energy and bounds of collectives, for
    each dimension and in all.
    """
    from strata.app.cli import say, wrote
    from strata.app.fabric_picture import picture
    from strata.hardware.fabric import fabric as make_fabric
    from strata.hardware.topology import topology

    made = make_fabric(name, **set_items(set, "fabric", "infiniband.oversubscription=2"))
    given = tuple(whole(item, "--sizes") for item in sizes.split(",")) if sizes else None
    if given and len(given) > len(made.dimension):
        known = ", ".join(d.name for d in made.dimension)
        raise BadValue(
            f"--sizes has {len(given)} numbers, but fabric {made.name} has {len(made.dimension)} dimensions: {known}"
        )
    found = topology(made, given)
    if json:
        print_json(as_dict(found))
    else:
        say(*tables(found))
    if svg:
        wrote("picture", keep(svg, picture(found)))


def as_dict(found: Any) -> dict[str, Any]:
    """A topology for machines, in SI units; None where a bound does not exist."""

    def measured(of: Any) -> dict[str, Any]:
        values = {f.name: getattr(of, f.name) for f in fields(of)}
        return {
            f"{k}_{UNITS[k]}" if k in UNITS else k: v if isinstance(v, str) or v is None else float(v)
            for k, v in values.items()
        }

    def stated(d: Any) -> dict[str, Any]:
        return {
            "port_B_per_s": float(d.bandwidth), "step_s": float(d.latency), "step_J_per_B": float(d.energy),
            "oversubscription": 1.0 if d.oversubscription is None else float(d.oversubscription),
            "reduction": 0.0 if d.reduction is None else float(d.reduction),
        }  # fmt: skip

    made = found.fabric
    each = [{**measured(of), **stated(d)} for of, d in zip(found.dimension, made.dimension, strict=True)]
    return {
        "fabric": made.name,
        "title": made.title,
        "note": made.note,
        "open": list(found.opened),
        "dimensions": each,
        "whole": measured(found.whole),
    }


def tables(found: Any) -> list[Any]:
    """A topology for people: what each dimension is, and what it and the whole offer."""
    from strata.app.fabric_picture import shape
    from strata.units import show

    made = found.fabric
    wired = plain_table()
    for name in ("dimension", "kind"):
        wired.add_column(name, no_wrap=True)
    for name in ("size", "port", "when all send", "step", "energy/step", "networks", "links"):
        wired.add_column(name, justify="right", no_wrap=True)
    for d, of in zip(made.dimension, found.dimension, strict=True):
        kind = d.kind + (", reduces" if d.reduction is not None and d.reduction > 0 else "")
        kind += (
            f", {d.oversubscription:.4g}:1"
            if d.oversubscription is not None and d.oversubscription > 1
            else ""
        )
        wired.add_row(
            d.name,
            kind,
            f"{of.size:g}",
            show(d.bandwidth, "B/s"),
            show(of.bandwidth, "B/s"),
            show(d.latency, "s"),
            show(d.energy, "J/B"),
            f"{of.networks:,.0f}",
            f"{of.links:,.0f}",
        )
    offered = plain_table()
    offered.add_column("", no_wrap=True)
    for name in (
        "bandwidth",
        "bisection",
        "diameter",
        "mean hops",
        "farthest",
        "energy",
        "all-reduce",
        "all-to-all",
        "price",
    ):
        offered.add_column(name, justify="right", no_wrap=True)
    for of in (*found.dimension, found.whole):
        bounds = ["-" if v == float("inf") else show(v, "B/s") for v in (of.all_reduce, of.all_to_all)]
        label = "whole fabric" if of is found.whole else of.name
        offered.add_row(
            label,
            show(of.bandwidth, "B/s"),
            show(of.bisection, "B/s"),
            f"{of.diameter:g}",
            f"{of.mean_hops:.3g}",
            show(of.latency, "s"),
            show(of.energy, "J/B"),
            *bounds,
            "-" if of.price is None else show(of.price, "USD"),
            style="bold" if of is found.whole else "",
        )
    below = "bandwidth of a device, one direction; farthest: latency of the steps; energy of a byte to a device at random; bounds: no algorithm is faster"
    title = f"{made.name}: {shape(found)}, {found.whole.size:,.0f} devices\n{made.title}"
    opened = (
        [f"the size of {', '.join(found.opened)} is open; shown with 4: give --sizes"] if found.opened else []
    )
    return [titled(title, wired), titled("", offered, below), *opened]
