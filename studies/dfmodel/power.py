"""Links, switch ports, cost and power of a system as DFModel counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from strata.base.arrays import Number, namespace, register_pytree
from strata.hardware.making import price_of
from strata.hardware.system import System, as_system, economics_of
from strata.hardware.topology import links_of
from strata.params import Sources, quantity, sourced_record, text

RING_ENDS = 2.0  # ports for each ring
FEWEST_SWITCHED = 4.0  # so many devices need no switch


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class LinearCost:
    """Prices by bandwidth, as DFModel has them."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    memory: Number = quantity("USD*s/B", "DRAM, for its bandwidth")
    link: Number = quantity("USD*s/B", "link, for its bandwidth")
    port: Number = quantity("USD*s/B", "switch port, for its bandwidth")
    port_energy: Number = quantity("J/B", "power of a switch port, for its bandwidth")
    sources: Sources = field(default_factory=Sources)


def linear_cost(name: str = "dfmodel") -> LinearCost:
    """Prices by bandwidth, by name or TOML path."""
    return sourced_record(LinearCost, "linear-cost", name)


def linear_system_cost(
    prices: LinearCost,
    devices: Number,
    chip_price: Number,
    memory_bandwidth: Number,
    links: Number,
    ports: Number,
) -> Number:
    r"""Price of a system, linear in its chips and bandwidths [USD].

    .. math:: C = P (K + k_m b_m) + k_l \sum_l b_l + k_s \sum_s b_s

    P devices at K with DRAM of b_m [B/s]; links and switch ports by the sum of their bandwidths [B/s]. One
    device has no links.

    Ko et al., DFModel (2024), cost model; our study, sec. 6: it reproduces all but one of 320 published
    costs.

    >>> ports = (2 * 128 + 2 * 8) * 50e9  # 2D torus, DDR, PCIe
    >>> round(float(linear_system_cost(linear_cost(), 1024.0, 33000.0, 300e9, 1024 * 100e9, ports)))
    34630400
    """
    several = namespace(devices).where(devices > 1.0, 1.0, 0.0)
    return devices * (chip_price + prices.memory * memory_bandwidth) + several * (
        prices.link * links + prices.port * ports
    )


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class LinearCounts:
    """Bandwidths of all links and of all switch ports of a system [B/s], and what its links draw [W]."""

    links: Number
    ports: Number
    link_power: Number


def linear_counts(
    kinds: Sequence[str],
    sizes: Sequence[Number],
    bandwidth: Sequence[Number],
    energy: Sequence[Number],
    copies: Number = 1.0,
) -> LinearCounts:
    r"""Links and switch ports of a fabric as DFModel counts them, dimension by dimension.

    .. math::
        L = P \;\text{(ring)}, \quad L = o \;\text{(switch)}, \quad L = (s - 1)\, o \;\text{(full)}; \qquad
        S = 2 P / s \;\text{(ring)}, \quad S = o \;\text{(switch)}, \quad
        S = s^2 \;\text{(full, between groups)}

    P devices in all; size s of the dimension; o = s times the sizes of all outer dimensions: a group has one
    link to an outer switch. Fully connected devices of the innermost dimension have no ports. Each counts
    with the bandwidth b [B/s] and the energy [J/B] of one link of its dimension. A system of one device (of
    `copies` systems side by side) has no links, one of up to four no switches. Innermost dimension first.

    Ko et al., DFModel (2024), sec. VI-C: const_topologies.csv of our study; with its prices all 320 costs and
    powers of its exploration to 4e-8.

    >>> torus = linear_counts(["ring", "ring"], [8.0, 128.0], [50e9, 50e9], [52e-12, 52e-12])
    >>> torus.links / 50e9, torus.ports / 50e9, round(torus.link_power, 1)
    (2048.0, 272.0, 5324.8)
    """
    devices: Number = 1.0
    for size in sizes:
        devices = devices * size
    outward: Number = devices
    links: Number = 0.0
    ports: Number = 0.0
    power: Number = 0.0
    for place, (kind, size, rate, joule) in enumerate(zip(kinds, sizes, bandwidth, energy, strict=True)):
        if kind == "ring":
            counted, ends = devices, RING_ENDS * devices / size
        elif kind == "switch":
            counted, ends = outward, outward
        else:
            counted, ends = (size - 1.0) * outward, size * size * (1.0 if place else 0.0)
        links, ports, power = links + counted * rate, ports + ends * rate, power + counted * rate * joule
        outward = outward / size
    xp = namespace(devices, copies, links)
    joined = xp.where(devices / copies > 1.0, 1.0, 0.0)
    switched = xp.where(devices / copies > FEWEST_SWITCHED, 1.0, 0.0)
    return LinearCounts(links=links * joined, ports=ports * switched, link_power=power * joined)


def linear_system_power(
    prices: LinearCost,
    devices: Number,
    chip_power: Number,
    memory_bandwidth: Number,
    memory_energy: Number,
    counts: LinearCounts,
) -> Number:
    r"""Power of a system, all its bandwidth in use [W].

    .. math:: W = P (W_c + u_m b_m) + \sum_l u_l b_l + u_s \sum_s b_s

    P devices of W_c [W] with DRAM of b_m [B/s] that draws u_m [J/B]; links and switch ports by their
    bandwidths. Ko et al., DFModel (2024), sec. VI-C; our study, sec. 6.

    >>> torus = linear_counts(["ring", "ring"], [8.0, 128.0], [50e9, 50e9], [52e-12, 52e-12])
    >>> round(float(linear_system_power(linear_cost(), 1024.0, 750.0, 300e9, 162.48e-12, torus)))
    823946
    """
    own = devices * (chip_power + memory_energy * memory_bandwidth)
    return own + counts.link_power + prices.port_energy * counts.ports


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearTotals:
    """Cost [USD] and power [W] of a system by part, as DFModel counts them."""

    devices: Number
    cost: dict[str, Number]
    power: dict[str, Number]


def linear_totals(system: str | System, prices: LinearCost | None = None) -> LinearTotals:
    """A system's cost and power in DFModel's parts, with its own counts of links and ports: a chip draws its
    static power, whatever it does.

    >>> found = linear_totals("1024xdfmodel-h100")
    >>> round(sum(found.cost.values())), round(sum(found.power.values()))
    (34630400, 823946)
    """
    known, prices = as_system(system), prices or linear_cost()
    devices, chip, nets = known.devices, known.chip, known.fabric.dimension
    links = [d.bandwidth / links_of(d) for d in nets]  # a link has its share of a device's bandwidth
    counts = linear_counts([d.kind for d in nets], [d.size for d in nets], links, [d.energy for d in nets])
    price = price_of(chip, economics_of(known).markup)
    cost: dict[str, Number] = {} if price is None else {"chips": devices * price}
    cost |= {
        "memory": devices * prices.memory * chip.memory.bandwidth,
        "links": prices.link * counts.links,
        "ports": prices.port * counts.ports,
    }
    power: dict[str, Number] = {
        "chips": devices * chip.energy.static_power,
        "memory": devices * chip.energy.memory * chip.memory.bandwidth,
        "links": counts.link_power,
        "ports": prices.port_energy * counts.ports,
    }
    return LinearTotals(devices=devices, cost=cost, power=power)


def shown_totals(system: System) -> tuple[dict[str, Any], Any]:
    """What DFModel counts of a system, for `strata cost --dfmodel`: as a dictionary, and as a table."""
    from strata.app.terminal import plain_table, titled

    totals = linear_totals(system)
    cost, power = ({k: float(v) for k, v in part.items()} for part in (totals.cost, totals.power))
    devices, watts = float(totals.devices), sum(power.values())
    dollars = sum(cost.values()) if "chips" in cost else None
    table = plain_table("<part", ">USD", ">W")
    for name, drawn in power.items():
        table.add_row(name, f"{cost[name]:,.0f}" if name in cost else "unknown", f"{drawn:,.0f}")
    table.add_row("all", "unknown" if dollars is None else f"{dollars:,.0f}", f"{watts:,.0f}", style="bold")
    title = f"{system.name}: cost and power of its {devices:g} devices by DFModel's counts"
    below = "chips draw their static power; memory, links and ports count at full bandwidth"
    told = {"system": system.name, "devices": devices, "cost_USD": dollars, "power_W": watts}
    return told | {"cost_parts_USD": cost, "power_parts_W": power}, titled(title, table, below)
