"""A fabric for machines and for people."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from strata.app.terminal import plain_table, titled
from strata.hardware.topology import Topology
from strata.units import show

UNITS = {
    "bandwidth": "B_per_s",
    "bisection": "B_per_s",
    "latency": "s",
    "energy": "J_per_B",
    "price": "USD",
    "all_reduce": "B_per_s",
    "all_to_all": "B_per_s",
}


def topology_dict(topology: Topology) -> dict[str, Any]:
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

    fabric = topology.fabric
    each = [{**measured(of), **stated(d)} for of, d in zip(topology.dimension, fabric.dimension, strict=True)]
    return {
        "fabric": fabric.name,
        "title": fabric.title,
        "note": fabric.note,
        "open": list(topology.opened),
        "dimensions": each,
        "whole": measured(topology.whole),
    }


def topology_tables(topology: Topology) -> list[Any]:
    """A topology for people: what each dimension is, and what it and the whole offer."""
    fabric = topology.fabric
    wired = plain_table()
    for name in ("dimension", "kind"):
        wired.add_column(name, no_wrap=True)
    for name in ("size", "port", "when all send", "step", "energy/step", "networks", "links"):
        wired.add_column(name, justify="right", no_wrap=True)
    for d, of in zip(fabric.dimension, topology.dimension, strict=True):
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
    for of in (*topology.dimension, topology.whole):
        bounds = ["-" if v == float("inf") else show(v, "B/s") for v in (of.all_reduce, of.all_to_all)]
        label = "whole fabric" if of is topology.whole else of.name
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
            style="bold" if of is topology.whole else "",
        )
    below = "bandwidth of a device, one direction; farthest: latency of the steps; energy of a byte to a device at random; bounds: no algorithm is faster"
    title = f"{fabric.name}: {shape_text(topology)}, {topology.whole.size:,.0f} devices\n{fabric.title}"
    opened = (
        [f"the size of {', '.join(topology.opened)} is open; shown with 4: give --sizes"]
        if topology.opened
        else []
    )
    return [titled(title, wired), titled("", offered, below), *opened]


def shape_text(topology: Topology) -> str:
    """Sizes and kinds in words.

    >>> import strata as st
    >>> shape_text(st.topology("hgx-h200", (8, 4)))
    'switch of 8 × switch of 4'
    """
    return (
        " × ".join(f"{d.kind} of {d.size:g}" for d in topology.fabric.dimension if d.size > 1) or "one device"
    )
