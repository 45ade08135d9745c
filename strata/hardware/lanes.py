"""Lanes of a link that a length of die edge, or an area of die, can have: by bumps, wires and layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from strata.arrays import Number, namespace
from strata.errors import MissingQuantity
from strata.hardware.components import LinkPhy, MemoryDevice
from strata.hardware.technology import Bonding, Packaging, bonding, packaging

Joined = TypeVar("Joined", Bonding, Packaging)


def edge_lanes(link: LinkPhy, bond: Bonding | None = None, package: Packaging | None = None) -> Number:
    r"""Lanes of one direction that leave a length of die edge, as many of the other beside them [1/m].

    .. math::
       n = \frac{1}{2 w} \min\left( \frac{L}{p_{wire}}, \; \frac{r \, s}{p_{bump}} \right)

    wires of a lane w; routing layers L of wires at pitch :math:`p_{wire}`; rows r of bumps at pitch
    :math:`p_{bump}`, of which a share s carries data. A link that states its own number keeps it; bumps
    and wires are those the link names where none are given.

    After the model of Pal & Gupta (2020), which DeepFlow cites for its links; the share and the rows are
    those of the bonding.

    >>> from strata.hardware.components import link_phy
    >>> from strata.hardware.technology import bonding
    >>> plain = link_phy("interposer")
    >>> round(float(edge_lanes(plain)) / 1e3), round(float(edge_lanes(plain, bonding("organic"))) / 1e3)
    (160, 32)
    """
    if link.lanes_per_edge is not None:
        return link.lanes_per_edge
    bond, package = bond or _named(link, "bonding", bonding), package or _named(link, "packaging", packaging)
    layers, wire = _known(package, "routing_layers"), _known(package, "wire_pitch")
    rows, share = _known(bond, "rows"), _known(bond, "signal_share")
    xp = namespace(layers, wire, rows, share, bond.pitch, link.wires_per_lane)
    return 0.5 / link.wires_per_lane * xp.minimum(layers / wire, rows * share / bond.pitch)


def area_lanes(link: LinkPhy, bond: Bonding | None = None) -> Number:
    r"""Lanes of one direction an area of die, with their partners: by their bumps or by their circuits
    [1/m2].

    .. math:: n = \min\left( \frac{1}{a_{lane}}, \; \frac{s}{2 \, w \, p_{bump}^2} \right)

    >>> from strata.hardware.components import link_phy
    >>> round(float(area_lanes(link_phy("interposer"))) / 1e6)
    155
    """
    if bond is None and not link.bonding:  # nothing says that bumps bind
        return 1.0 / link.lane_area
    bond = bond or bonding(link.bonding)
    bumps = 2.0 * link.wires_per_lane * bond.pitch**2 / _known(bond, "signal_share")
    xp = namespace(link.lane_area, bumps)
    return 1.0 / xp.maximum(link.lane_area, bumps)


def edge_bandwidth(link: LinkPhy) -> Number:
    r"""What a length of die edge sends at the nominal voltage [B/s/m]: lanes times their rate.

    >>> from strata.hardware.components import link_phy
    >>> round(float(edge_bandwidth(link_phy("ucie-advanced"))) / 1e12, 1)  # GB/s a mm, one direction
    658.4
    """
    return edge_lanes(link) * link.lane_rate


def device_bandwidth(device: MemoryDevice) -> Number:
    r"""What a memory device delivers at the nominal voltage [B/s].

    .. math:: B = n_{pin} \, r_{pin}

    >>> from strata.hardware.components import memory_device
    >>> [round(float(device_bandwidth(memory_device(name))) / 1e9) for name in ("hbm2", "hbm4")]
    [256, 2048]
    """
    return device.pins * device.pin_rate


def device_edge_bandwidth(device: MemoryDevice) -> Number:
    r"""What memory brings over a length of die edge at the nominal voltage [B/s/m]: pins times their rate.

    >>> from strata.hardware.components import memory_device
    >>> round(float(device_edge_bandwidth(memory_device("hbm4"))) / 1e12, 1)  # GB/s a mm
    256.0
    """
    return device.pins_per_edge * device.pin_rate


def _named(link: LinkPhy, kind: str, read: Callable[[str], Joined]) -> Joined:
    name = getattr(link, kind)
    if not name:
        raise MissingQuantity(
            f"link {link.name} states neither lanes_per_edge nor its {kind}: how many lanes leave an edge is "
            "not known"
        )
    return read(name)


def _known(record: Bonding | Packaging, name: str) -> Number:
    value: Number | None = getattr(record, name)
    if value is None:
        kind = "bonding" if isinstance(record, Bonding) else "package"
        raise MissingQuantity(f"{kind} {record.name} states no {name}, which lanes of a link follow from")
    return value
