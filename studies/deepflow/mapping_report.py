"""A device mapping for machines and for people."""

from __future__ import annotations

from typing import Any

from deepflow.link_sharing import DeviceMapping
from strata.app.terminal import plain_table, titled
from strata.base.units import show


def mapping_dict(mapping: DeviceMapping, volumes: dict[str, float]) -> dict[str, Any]:
    """One mapping for machines, in SI units; None where a dimension uses no link."""
    return {
        "order": list(mapping.order),
        "laying": mapping.laying,
        "sharing": mapping.sharing,
        "networks_used": {name: list(used) for name, used in mapping.networks_used.items()},
        "bandwidth_B_per_s": mapping.bandwidth,
        "alone_bandwidth_B_per_s": mapping.alone_bandwidth,
        "time_s": float(mapping.time(volumes)),
        "together_time_s": float(mapping.time(volumes, together=True)),
        "devices": [{"shard": list(s), "device": list(d)} for s, d in mapping.places.items()],
    }


def mapping_tables(
    mappings: tuple[DeviceMapping, ...], volumes: dict[str, float], shown: int = 12
) -> list[Any]:
    """Orders with their sharing, best first, and what the best leaves to each dimension."""
    best = mappings[0]
    networks = [n for n in best.grid.networks if any(m.sharing[n] for m in mappings)]
    orders = plain_table(
        "<",
        "<order",
        "<laid by",
        *(f">{name}" for name in (*networks, "one by one", "all at once")),
        "<over several networks",
    )
    for mapping in mappings[:shown]:
        orders.add_row(
            "*" if mapping is best else "",
            " > ".join(mapping.order),
            mapping.laying,
            *(str(mapping.sharing[n]) for n in networks),
            show(float(mapping.time(volumes)), "s"),
            show(float(mapping.time(volumes, together=True)), "s"),
            ", ".join(n for n, used in mapping.networks_used.items() if len(used) > 1) or "-",
            style="bold" if mapping is best else "",
        )
    mesh = " x ".join(f"{d.name} {d.degree} ({d.topology})" for d in best.mesh if d.degree > 1)
    more = len(mappings) - shown
    below = "of each network: most edges on a link, one direction; then the time of the traffic on the links"
    rest = f"{below}; {more} more orders with --json" if more > 0 else below
    title = f"{mesh} on {best.grid.name}: {len(mappings)} mappings, best first"
    return [titled(title, orders, rest), "", titled("the best leaves to an edge of", _left(best))]


def _left(best: DeviceMapping) -> Any:
    """What a mapping leaves to each dimension."""
    left = plain_table("<dimension", "<networks", ">alone", ">all at once")
    for dimension in best.mesh:
        if dimension.degree > 1:
            name = dimension.name
            left.add_row(
                name,
                ", ".join(best.networks_used[name]),
                show(best.alone_bandwidth[name], "B/s"),
                show(best.bandwidth[name], "B/s"),
            )
    return left
