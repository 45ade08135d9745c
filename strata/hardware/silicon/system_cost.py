"""What a system costs: its chips made and bought, its fabric as priced, and DFModel's linear cost of all."""

from __future__ import annotations

from dataclasses import dataclass, field

from strata.arrays import Number, namespace, register_pytree
from strata.hardware.money import HOUR, Economics, fabric_price, plug_power
from strata.hardware.silicon.cost import cost_of, price_of
from strata.hardware.system import System, as_system, economics_of
from strata.hardware.topology import links_of, topology
from strata.params import Sources, quantity, sourced_record, text


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


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemCost:
    """What a system costs [USD]: its chips made and bought, its fabric as priced, and DFModel's linear cost
    of all; None: no price is known.
    """

    devices: Number
    made: Number | None
    bought: Number | None
    fabric: Number | None
    hosts: Number | None
    device_hour: tuple[
        Number, Number
    ]  # of one device, at rest and at its power limit; nan: no price is known
    linear: Number | None
    parts: dict[str, Number]  # of the linear cost


RING_PORTS = 2.0  # switch ports that DFModel counts for each ring of a torus


def system_cost(system: str | System, prices: LinearCost | None = None) -> SystemCost:
    r"""What the chips of a system cost to make and to buy, and the whole by DFModel's prices
    (`linear_system_cost`).

    Links are those of the fabric's topology, each with its share of a device's bandwidth. Ports are what
    links end at: one of each link to a switch, both of those between groups of a dragonfly, and two of a
    ring, as DFModel counts them. A chip without a price has that of its making times the usual markup
    (economics).

    >>> found = system_cost("8xh200")
    >>> bool(found.made < found.bought < found.linear), round(sum(found.parts.values()) / found.linear, 9)
    (True, 1.0)
    """
    known = as_system(system)
    money = economics_of(known)
    prices, joined = prices or linear_cost(), topology(known.fabric, money=money)
    devices, price = joined.whole.size, price_of(known.chip, money.markup)
    links: Number = 0.0
    ports: Number = 0.0
    for dimension, of in zip(joined.fabric.dimension, joined.dimension, strict=True):
        each = dimension.bandwidth / links_of(dimension)
        ends = {
            "switch": of.links,
            "dragonfly": 2.0 * of.links,
            "ring": RING_PORTS * of.networks * (of.links > 0.0),
        }
        links, ports = links + of.links * each, ports + ends.get(dimension.kind, 0.0) * each
    bandwidth = known.chip.memory.bandwidth
    parts: dict[str, Number] = {
        "memory": devices * prices.memory * bandwidth,
        "links": prices.link * links,
        "ports": prices.port * ports,
    }
    silicon, host = known.chip.silicon, known.fabric.host
    return SystemCost(
        devices=devices, made=None if silicon is None else devices * cost_of(known.chip, silicon).made,
        bought=None if price is None else devices * price, fabric=joined.whole.price,
        hosts=None if host is None or host.price is None else devices * host.price,
        device_hour=_device_hour(known, money),
        linear=None if price is None else linear_system_cost(prices, devices, price, bandwidth, links, ports),
        parts=parts if price is None else {"chips": devices * price, **parts},
    )  # fmt: skip


def cost_rate(system: System, money: Economics, power: Number) -> Number:
    r"""Cost of running a system [USD/s].

    .. math:: C = \frac{K}{L u} + P \, e \, \eta \quad \text{or} \quad C = N r

    price K of chips, links and hosts, written off over lifetime L at utilisation u; power P, electricity
    price e, facility overhead η. A chip without a price has that of its making times the usual markup; NaN
    where nothing says how it is made. Of N rented devices the rent r, which pays for all of it.

    >>> from strata.hardware.money import economics
    >>> from strata.hardware.system import system
    >>> round(float(cost_rate(system("8xh200"), economics(), 1e4)) * 3600, 1)  # USD an hour
    14.8
    >>> round(float(cost_rate(system("8xh200"), economics(rent="2.5 USD/h"), 1e4)) * 3600, 1)
    20.0
    """
    if money.rent is not None:
        return system.devices * money.rent + 0.0 * power
    price = price_of(system.chip, money.markup)
    if price is None:
        return float("nan") * power
    price = price + fabric_price(system.fabric, money)
    return (
        system.devices * price / (money.lifetime * money.utilisation)
        + power * money.electricity * money.overhead
    )


def _device_hour(known: System, money: Economics) -> tuple[Number, Number]:
    """What one device and all around it cost an hour, at rest and at the power limit [USD]."""
    energy, devices = known.chip.energy, known.devices
    found = []
    for load, each in enumerate((energy.static_power, energy.power_limit * energy.held)):
        power = devices * plug_power(known.fabric, money, each, float(load))
        found.append(cost_rate(known, money, power) / devices * HOUR)
    return found[0], found[1]
