"""What a system costs: its chips made and bought, and its fabric as priced."""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number
from strata.hardware.money import HOUR, Economics, fabric_price, plug_power
from strata.hardware.silicon.cost import cost_of, price_of
from strata.hardware.system import System, as_system, economics_of
from strata.hardware.topology import topology


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemCost:
    """What a system costs [USD]: its chips made and bought, and its fabric as priced; None: no price is
    known.
    """

    devices: Number
    made: Number | None
    bought: Number | None
    fabric: Number | None
    hosts: Number | None
    device_hour: tuple[
        Number, Number
    ]  # of one device, at rest and at its power limit; nan: no price is known


def system_cost(system: str | System) -> SystemCost:
    """What the chips of a system cost to make and to buy, and what joins them. A chip without a price has
    that of its making times the usual markup (economics).

    >>> found = system_cost("8xh200")
    >>> bool(found.made < found.bought)
    True
    """
    known = as_system(system)
    money = economics_of(known)
    joined = topology(known.fabric, money=money)
    devices, price = joined.whole.size, price_of(known.chip, money.markup)
    silicon, host = known.chip.silicon, known.fabric.host
    return SystemCost(
        devices=devices, made=None if silicon is None else devices * cost_of(known.chip, silicon).made,
        bought=None if price is None else devices * price, fabric=joined.whole.price,
        hosts=None if host is None or host.price is None else devices * host.price,
        device_hour=_device_hour(known, money),
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
