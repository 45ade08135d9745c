"""What fits a chip's die, what the chip and a system of them cost, by name: `area`, `cost` and `system_cost`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strata.arrays import Number
from strata.errors import MissingQuantity, require
from strata.hardware.chip import Chip, chip
from strata.hardware.silicon.area import Area
from strata.hardware.silicon.cost import Cost, LinearCost, linear_cost, linear_system_cost
from strata.hardware.silicon.silicon import Silicon, area_of, cost_of, price_of
from strata.hardware.system import System, economics, system
from strata.hardware.topology import links_of, topology
from strata.params import names


def area(what: str | Chip, *, cores: Number | None = None, **changes: Any) -> Area:
    """The parts of a chip's logic die, and the cores that fit it; keywords replace quantities of the chip and
    of how it is made.

    `cores` fixes their number: `unused` is then what is left, negative where they do not fit.

    >>> float(area("stack-ref").cores), [float(area("stack-ref", layers=n).cores) for n in (2, 6, 12)]
    (8.0, [9.0, 7.0, 3.0])
    """
    owner = _owner(what, changes)
    return area_of(owner, made_of(owner), cores)


def cost(what: str | Chip, **changes: Any) -> Cost:
    """What one packaged chip costs to make, without margin, masks and design.

    >>> found = cost("stack-ref")
    >>> round(float(sum(found.parts.values()) / found.made), 12)
    1.0
    """
    owner = _owner(what, changes)
    return cost_of(owner, made_of(owner))


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemCost:
    """What a system costs [USD]: its chips made and bought, its fabric as priced, and DFModel's linear cost
    of all; None: no price is known.
    """

    devices: Number
    made: Number | None
    bought: Number | None
    fabric: Number | None
    linear: Number | None
    parts: dict[str, Number]  # of the linear cost


RING_PORTS = 2.0  # switch ports that DFModel counts for each ring of a torus


def system_cost(what: str | System, prices: LinearCost | None = None) -> SystemCost:
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
    owner = system(what) if isinstance(what, str) else what
    prices, joined = prices or linear_cost(), topology(owner.fabric)
    devices, price = joined.whole.size, price_of(owner.chip, economics().markup)
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
    bandwidth = owner.chip.memory.bandwidth
    parts: dict[str, Number] = {
        "memory": devices * prices.memory * bandwidth,
        "links": prices.link * links,
        "ports": prices.port * ports,
    }
    silicon = owner.chip.silicon
    return SystemCost(
        devices=devices, made=None if silicon is None else devices * cost_of(owner.chip, silicon).made,
        bought=None if price is None else devices * price, fabric=joined.whole.price,
        linear=None if price is None else linear_system_cost(prices, devices, price, bandwidth, links, ports),
        parts=parts if price is None else {"chips": devices * price, **parts},
    )  # fmt: skip


def made_of(owner: Chip) -> Silicon:
    """How a chip is made, or one line where nothing says so."""
    if owner.silicon is None:
        raise MissingQuantity(
            f"nothing says how chip '{owner.name}' is made; name a floorplan with floorplan_file: {', '.join(names('floorplans'))}"
        )
    return owner.silicon


def _owner(what: str | Chip, changes: dict[str, Any]) -> Chip:
    if isinstance(what, Chip):
        require(not changes, "change a chip's numbers where it is made: chip(name, field=value)")
        return what
    return chip(what, **changes)
