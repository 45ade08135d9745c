"""What systems cost to own and what stands beside their devices, on one basis for all of them: a price list
of links, powers of hosts, and the price of a device-hour.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from strata.base.arrays import Number, namespace
from strata.base.errors import BadValue
from strata.base.records import readable
from strata.base.units import parse
from strata.hardware.fabric import Dimension, Fabric, Host, peak_link
from strata.params import (
    Sources,
    by_name,
    changed_record,
    part,
    positive,
    quantity,
    record,
    remembered,
    sourced_record,
    text,
)

HOUR = 3600.0


@record
class IdleHostPower:
    """Powers of what stands beside devices while nothing runs."""

    processor: Number = quantity("W", "a processor with its memory and its share of board and storage")
    adapter: Number = quantity("W", "a network adapter with its transceiver, its link up")
    switch_chip: Number = quantity("W", "a switch chip inside the node or rack, its links up")


@record
class HostPower:
    """Powers of what stands beside devices, the same for everybody: while devices work, and idle."""

    processor: Number = quantity(
        "W", "a processor with its memory and its share of board and storage, while devices work"
    )
    adapter: Number = quantity("W", "a network adapter with its transceiver, while devices work")
    switch_chip: Number = quantity("W", "a switch chip inside the node or rack, while devices work")
    idle: IdleHostPower = part(IdleHostPower, "the same while nothing runs")
    cooling: dict[str, Number] = by_name(
        "1", "power of fans or pumps over the power they cool, by the way of cooling"
    )
    loss: Number = quantity("1", "what power supplies lose over what they deliver")


@readable()
@record
class Economics:
    """What it costs to own and run a device for an hour."""

    name: str = text("short name")
    lifetime: Number = positive("s", "years over which the price is written off")
    electricity: Number = quantity("USD/J", "price of electricity")
    overhead: Number = quantity("1", "facility power over IT power (PUE)", minimum=1)
    markup: Number = positive(
        "1", "price of a chip over what it costs to make, where it has no price of its own"
    )
    utilisation: Number = positive("1", "fraction of its lifetime a device is used")
    rent: Number | None = quantity(
        "USD/s",
        "price of a device for as long as it is used, all around it and its power included: in place of "
        "buying and powering it",
    )
    link: dict[str, Number] = by_name(
        "USD*s/B", "link of a device, for its bandwidth, by the medium it lies on"
    )
    port: dict[str, Number] = by_name(
        "USD*s/B", "port of a switch that a link ends at, for its bandwidth, by the link's medium"
    )
    host: HostPower = part(HostPower, "powers of what stands beside devices")
    sources: Sources = field(default_factory=Sources)


def economics(name: str = "default", /, **changes: Any) -> Economics:
    """The assumptions behind money: lifetime, electricity, overhead, utilisation, links; with changes.

    >>> round(float(economics(rent="2.5 USD/h").rent) * HOUR, 6)
    2.5
    """
    return changed_record(_stated(str(name)), changes, "economics")


@remembered
def _stated(name: str) -> Economics:
    return sourced_record(Economics, "economics", name)


def device_hour_price(text: str, option: str = "--price") -> float:
    """The price of a device-hour as typed [USD/s]: '2.5 USD/h', or 2.5 alone.

    >>> round(device_hour_price("2.5 USD/h") * HOUR, 6), round(device_hour_price("2.5") * HOUR, 6)
    (2.5, 2.5)
    """
    try:
        value = float(text) / HOUR
    except ValueError:
        value = parse(text, "USD/h", option)
    if not 0.0 <= value < float("inf"):
        raise BadValue(f"{option} is a price of a device-hour, like '2.5 USD/h', but got '{text}'")
    return value


# ---------------------------------------------------------------------------------------- links


def switch_ports(dimension: Dimension) -> float:
    """Ports of switches that a device's link into a dimension ends at: one of a link to a switch, both of one
    between switches, none of one to another device, nor of the processor's own ports.
    """
    between = bool(dimension.shares_links_of) or dimension.kind == "dragonfly"
    if dimension.medium == "host" or dimension.kind not in ("switch", "dragonfly"):
        return 0.0
    return 2.0 if between else 1.0


def dimension_price(dimension: Dimension, money: Economics) -> Number | None:
    r"""What links, switches and adapters of a dimension cost for one device [USD]: what its file states, else
    by the price list; None where neither says.

    .. math:: K = (k_l + n k_p) \, \beta

    link k_l and port k_p of the medium [USD s/B], n ports (`switch_ports`), bandwidth β of a device into the
    dimension [B/s], of links above a taper their share. Whoever sells it, the same bandwidth over the same
    kind of links costs the same.

    >>> from strata.hardware.fabric import fabric
    >>> for name in ("hgx-h200", "mi325x-node"):
    ...     print([round(float(dimension_price(d, economics()))) for d in fabric(name).dimension])
    [1238, 1300]
    [896, 1300]
    """
    if dimension.price is not None or not dimension.medium:
        return dimension.price
    ports = switch_ports(dimension)
    each = money.link[dimension.medium] + (ports * money.port[dimension.medium] if ports else 0.0)
    return each * peak_link(dimension)


def fabric_price(joined: Fabric, money: Economics) -> Number:
    """What links and hosts cost for one device [USD]: nothing for dimensions of one member or no price."""
    price: Number = 0.0
    for dimension in joined.dimension:
        each = dimension_price(dimension, money)
        if each is not None:
            price = price + namespace(dimension.size, each).where(dimension.size > 1, each, 0.0)
    if joined.host is not None and joined.host.price is not None:
        price = price + joined.host.price
    return price


# ---------------------------------------------------------------------------------------- hosts


def always_on(host: Host, rates: HostPower, load: Number = 1.0) -> Number:
    r"""Power beside a device whatever it draws itself, before cooling and supply [W]: as stated, else by what
    stands there.

    .. math:: P_0 = \sum_i n_i (p_i + u (q_i - p_i))

    processors, adapters and switch chips n_i for one device, p_i each idle and q_i while devices work [W];
    they do so the share `load` u of the time.

    >>> from strata.hardware.fabric import fabric
    >>> [round(float(8 * always_on(fabric("hgx-h100").host, economics().host, u))) for u in (0.0, 1.0)]
    [900, 1150]
    """
    if host.power is not None:
        return host.power
    idle = rates.idle
    counted = (
        (host.processors, idle.processor, rates.processor),
        (host.adapters, idle.adapter, rates.adapter),
        (host.switch_chips, idle.switch_chip, rates.switch_chip),
    )
    return sum((n * (rest + load * (busy - rest)) for n, rest, busy in counted if n is not None), 0.0)


def host_power(
    joined: Fabric, money: Economics, device_power: Number, load: Number = 1.0
) -> tuple[Number, Number]:
    r"""Power beside one device [W]: what is always on, and what cooling and supply add to it and to the
    device.

    .. math:: P_h = P_0 + (P_0 + P_d) \left((1 + c)(1 + l) - 1\right)

    processors, adapters and switch chips P_0, whose devices work the share `load` of the time (`always_on`);
    the device P_d; fans or pumps c of what they cool; power supplies lose l of what they deliver. Where no
    way of cooling is stated, P_0 has it all.

    Latif et al., Single-node power demand during AI training, IEEE Access 13 (2025) (arXiv 2412.08602): eight
    H100 at their limit draw 8.48 kW at the plug, of 10.2 kW on the data sheet.

    >>> from strata.hardware.fabric import fabric
    >>> on, added = host_power(fabric("hgx-h100"), economics(), 690.0)
    >>> round(float(8 * (690.0 + on + added)), -1), round(float(on))
    (8480.0, 144)
    """
    if joined.host is None:
        return 0.0, 0.0
    on = always_on(joined.host, money.host, load)
    if not joined.host.cooling:
        return on, 0.0
    added = (1.0 + money.host.cooling[joined.host.cooling]) * (1.0 + money.host.loss) - 1.0
    return on, (on + device_power) * added


def plug_power(joined: Fabric, money: Economics, device_power: Number, load: Number = 1.0) -> Number:
    r"""Power at the plug for one device [W]: its own, and all that stands beside it.

    .. math:: P = P_d + P_h

    the device P_d, all beside it P_h (`host_power`).

    >>> from strata.hardware.fabric import fabric
    >>> round(float(8 * plug_power(fabric("hgx-h100"), economics(), 690.0)), -1)
    8480.0
    """
    on, added = host_power(joined, money, device_power, load)
    return device_power + on + added


def device_share(joined: Fabric, money: Economics, power: Number) -> Number:
    r"""Power of a device of which so much is drawn at the plug [W]: `plug_power` the other way round.

    .. math:: P_d = (P - P_h(0)) / (1 + a)

    power P at the plug for one device; all that stands beside one that draws nothing P_h(0); a what cooling
    and supply add to what it draws.

    >>> from strata.hardware.fabric import fabric
    >>> round(float(device_share(fabric("hgx-h100"), economics(), 1060.0)))
    690
    """
    nothing, one = (sum(host_power(joined, money, each)) for each in (0.0, 1.0))
    return (power - nothing) / (1.0 + one - nothing)
