"""A fabric for machines and for people."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from strata.app.terminal import plain_table, titled
from strata.hardware.fabric_parts import Dimension
from strata.hardware.topology import Measures, Topology
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


WIRED = ("size", "port", "when all send", "step", "energy/step", "networks", "links")
OFFERED = (
    "bandwidth",
    "bisection",
    "diameter",
    "mean hops",
    "farthest",
    "energy",
    "all-reduce",
    "all-to-all",
    "price",
)


def topology_tables(topology: Topology) -> list[Any]:
    """A topology for people: what each dimension is, and what it and the whole offer."""
    fabric = topology.fabric
    wired, offered = plain_table(), plain_table()
    for name in ("dimension", "kind"):
        wired.add_column(name, no_wrap=True)
    offered.add_column("", no_wrap=True)
    for table, columns in ((wired, WIRED), (offered, OFFERED)):
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
    for d, measures in zip(fabric.dimension, topology.dimension, strict=True):
        wired.add_row(*_wired(d, measures))
    for measures in (*topology.dimension, topology.whole):
        whole = measures is topology.whole
        label = "whole fabric" if whole else measures.name
        offered.add_row(label, *_offered(measures), style="bold" if whole else "")
    below = (
        "bandwidth of a device, one direction; farthest: latency of the steps; energy of a byte to a "
        "device at random; bounds: no algorithm is faster"
    )
    title = f"{fabric.name}: {shape_text(topology)}, {topology.whole.size:,.0f} devices\n{fabric.title}"
    opened = f"the size of {', '.join(topology.opened)} is open; shown with 4: give --sizes"
    return [titled(title, wired), titled("", offered, below), *([opened] if topology.opened else [])]


def _wired(dimension: Dimension, measures: Measures) -> list[str]:
    """How a dimension is wired."""
    kind, tapered = dimension.kind, dimension.oversubscription
    kind += ", reduces" if dimension.reduction is not None and dimension.reduction > 0 else ""
    kind += f", {tapered:.4g}:1" if tapered is not None and tapered > 1 else ""
    return [
        dimension.name,
        kind,
        f"{measures.size:g}",
        show(dimension.bandwidth, "B/s"),
        show(measures.bandwidth, "B/s"),
        show(dimension.latency, "s"),
        show(dimension.energy, "J/B"),
        f"{measures.networks:,.0f}",
        f"{measures.links:,.0f}",
    ]


def _offered(measures: Measures) -> list[str]:
    """What a dimension, or all of them, offer."""
    bounds = (measures.all_reduce, measures.all_to_all)
    return [
        show(measures.bandwidth, "B/s"),
        show(measures.bisection, "B/s"),
        f"{measures.diameter:g}",
        f"{measures.mean_hops:.3g}",
        show(measures.latency, "s"),
        show(measures.energy, "J/B"),
        *("-" if bound == float("inf") else show(bound, "B/s") for bound in bounds),
        "-" if measures.price is None else show(measures.price, "USD"),
    ]


def shape_text(topology: Topology) -> str:
    """Sizes and kinds in words.

    >>> import strata as st
    >>> shape_text(st.hardware.topology("hgx-h200", (8, 4)))
    'switch of 8 × switch of 4'
    """
    return (
        " × ".join(f"{d.kind} of {d.size:g}" for d in topology.fabric.dimension if d.size > 1) or "one device"
    )
