"""area(): what fits a chip's logic die, part by part, and why no core does where none fits. cost(): what a
chip costs to make: dies and their yield, DRAM, bonding, package and test.

Made cost is without margin, masks and design. `package.price` stays what a chip is bought for. system_cost():
what a system costs, its chips made and bought and its fabric as priced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from strata.base.arrays import Number, namespace
from strata.base.records import Infeasible
from strata.hardware.chip import Chip, as_chip
from strata.hardware.money import HOUR, Economics, fabric_price, plug_power
from strata.hardware.silicon.floorplan import Area, Silicon, area_of, made_of
from strata.hardware.system import System, as_system, economics_of
from strata.hardware.technology import Bonding, Packaging, Process, bonding, packaging, process_node
from strata.hardware.topology import topology
from strata.params import record

LEVERS = (
    "a larger die",
    "fewer connected layers",
    "a finer via pitch",
    "a smaller cache",
    "less local memory",
)


def area(chip: str | Chip, /, *, cores: Number | None = None, **changes: Any) -> Area:
    """The parts of a chip's logic die and the cores that fit; keywords change the chip and how it is made.

    `cores` fixes their number: `unused` is then what is left, negative where they do not fit.

    >>> float(area("stack-ref").cores), [float(area("stack-ref", layers=n).cores) for n in (2, 6, 12)]
    (8.0, [9.0, 7.0, 3.0])
    """
    known = as_chip(chip, **changes)
    return area_of(known, made_of(known), cores)


def area_as_stated(chip: Chip, silicon: Silicon) -> Area:
    """The parts of a logic die with the cores it states and spare ones; `unused` < 0 where they do not fit.

    >>> from strata.hardware.chip import chip
    >>> many = chip("stack-ref", compute__cores=16)
    >>> stated = area_as_stated(many, many.silicon)
    >>> float(stated.cores), float(stated.parts["unused"]) < 0
    (16.0, True)
    """
    return area_of(chip, silicon, chip.compute.cores / silicon.dies + silicon.spare_cores)


def why_not_built(fit: Area, stated: Area) -> Infeasible | None:
    """Why a die cannot be built as stated: not one core fits, or fewer than it states."""
    if none := why_no_core(fit):
        return none
    if float(stated.cores) <= float(fit.cores):
        return None
    room = float(stated.die - stated.parts["gaps"])
    return Infeasible(
        f"a logic die of {float(stated.cores):g} cores, of which {float(fit.cores):g} fit",
        room - float(stated.parts["unused"]),
        room,
        "m2",
        LEVERS,
    )


def why_no_core(area: Area) -> Infeasible | None:
    """Why not one core fits a die, with what would help; None where one does, or for several answers."""
    if getattr(area.cores, "size", 1) != 1 or float(area.cores) >= 1.0:
        return None
    if float(area.edge_used) > float(area.edge):
        return Infeasible(
            "interfaces on the edge of the die",
            float(area.edge_used),
            float(area.edge),
            "m",
            ("a larger die", "fewer interfaces"),
        )
    fixed = sum(float(area.parts[p]) for p in ("cache", "vertical", "interfaces", "fixed"))
    room = float(area.die - area.parts["gaps"])
    return Infeasible("parts of the logic die and one core", fixed + float(area.core), room, "m2", LEVERS)


WAFER = 0.3  # diameter [m]


def die_yield(area: Number, defects: Number, clustering: Number, repairable: Number = 0.0) -> Number:
    r"""Share of dies that work, in (0, 1].

    .. math:: Y = \left(1 + \frac{(1 - r) A D}{\alpha}\right)^{-\alpha}

    die area A [m2]; defects that kill D [1/m2]; they cluster the more the smaller α; in the share r of the
    die a defect is repaired or switched off (spare cores, rows of SRAM). Negative binomial; α to infinity is
    Poisson's exp(-A D).

    Stapper, Defect density distribution for LSI yield calculations, IEEE Trans. Electron Devices 20 (1973).

    >>> round(float(die_yield(814e-6, 1000.0, 3.0)), 4), round(float(die_yield(814e-6, 1000.0, 3.0, 0.7)), 4)
    (0.4867, 0.7908)
    """
    return (1.0 + (1.0 - repairable) * area * defects / clustering) ** -clustering


def gross_dies(area: Number, diameter: Number = WAFER) -> Number:
    r"""Whole dies on a wafer: 0 where a die is larger than the wafer, else at least 1.

    .. math:: N = \max\left(1, \frac{\pi d^2}{4 A} - \frac{\pi d}{\sqrt{2 A}}\right)

    die area A, wafer diameter d; the second term is what the round edge cuts off. Not rounded: it is the mean
    over placements.

    de Vries, Investigation of gross die per wafer formulas, IEEE Trans. Semicond. Manuf. 18 (2005).

    >>> [round(float(gross_dies(a * 1e-6)), 1) for a in (100.0, 814.0, 46225.0, 80000.0)]
    [640.2, 63.5, 1.0, 0.0]
    """
    xp = namespace(area, diameter)
    disc = math.pi * diameter**2 / 4.0
    whole = disc / area - math.pi * diameter / (2.0 * area) ** 0.5
    return xp.where(area <= disc, xp.maximum(whole, 1.0), 0.0)


def die_cost(process: Process, area: Number, repairable: Number = 0.0) -> Number:
    r"""Cost of one working die [USD]; infinite where it is larger than a wafer, 0 where there is none.

    .. math:: c = \frac{W}{N \, Y}

    wafer price W, dies on it N (`gross_dies`), of which Y work (`die_yield`).

    >>> from strata.hardware.technology import process_node
    >>> n5 = process_node("n5")
    >>> round(float(die_cost(n5, 814e-6))), round(float(die_cost(n5, 100e-6)), 1)
    (550, 29.3)
    """
    xp = namespace(area, process.wafer_price)
    sized = xp.where(area > 0.0, area, 1.0)
    good = gross_dies(sized) * die_yield(sized, process.defect_density, process.clustering, repairable)
    each = xp.where(good > 0.0, process.wafer_price / xp.where(good > 0.0, good, 1.0), xp.inf)
    return xp.where(area > 0.0, each, 0.0)


def stacking_yield(bonding: Bonding, layers: Number, known_good: Number) -> Number:
    r"""Share of stacks that work after all layers are bonded, in (0, 1].

    .. math:: Y = (y_b \, y_k)^m

    m layers, each bonded with yield y_b; of the layers tested good before, the share y_k is.

    Reda, Smith & Smith, Maximizing the functional yield of wafer-to-wafer 3-D integration, IEEE Trans. VLSI
    17 (2009).

    >>> from strata.hardware.technology import bonding
    >>> [round(float(stacking_yield(bonding("hybrid-bond"), m, 0.998)), 3) for m in (0.0, 4.0, 12.0)]
    [1.0, 0.953, 0.865]
    """
    return (bonding.step_yield * known_good) ** layers


@record
class Cost:
    """What one packaged chip costs to make [USD]: parts add up to `made`; `scrap` is lost on the way."""

    made: Number
    parts: dict[str, Number]
    die_yield: Number
    stacking_yield: Number
    package_yield: Number


def chip_cost(
    process: Process,
    bonding: Bonding,
    packaging: Packaging,
    *,
    die_area: Number,
    dies: Number,
    memory: Number,
    memory_price: Number,
    layers: Number,
    beside: Number,
    beside_area: Number,
    known_good: Number,
    repairable: Number,
) -> Cost:
    r"""Cost of making one packaged chip from good dies [USD], by part.

    .. math::
        C = \left(\frac{n_d c_d + C_{mem} + m \, c_b}{Y_s} + a (r_i p_i + r_s p_s)
        + (n_d + n_b) \, c_p\right) \frac{1}{Y_p} + c_t

    n_d logic dies of c_d (`die_cost` of die_area over dies); DRAM C_mem = bytes x price; m layers bonded on
    each die at c_b with yield Y_s (`stacking_yield`); area a of dies and of n_b stacks of DRAM beside them;
    interposer and substrate by their ratios r and prices p an area; placing at c_p a piece, each surviving
    with y_p: Y_p = y_p^(n_d + n_b); test c_t. DRAM beside the die is bought as whole stacks. `scrap` is what
    Y_s and Y_p lose.

    After Feng & Ma, Chiplet Actuary, DAC 2022 (arXiv 2203.12268): the same terms for known good dies.

    >>> from strata.hardware import technology as t
    >>> made = chip_cost(
    ...     t.process_node("n5"), t.bonding("hybrid-bond"), t.packaging("organic"),
    ...     die_area=1e-4, dies=1.0, memory=6e9, memory_price=6e-9, layers=4.0, beside=0.0, beside_area=0.0,
    ...     known_good=0.998, repairable=0.0)
    >>> round(float(made.made), 1), round(float(sum(made.parts.values()) - made.made), 9)
    (162.9, 0.0)
    """
    pieces = dies + beside
    logic = dies * die_cost(process, die_area / dies, repairable)
    parts = {"logic": logic, "memory": memory * memory_price, "bonding": dies * layers * bonding.step_price}
    stacked = logic + parts["memory"] + parts["bonding"]
    stack_yield = stacking_yield(bonding, layers, known_good)
    area = die_area + beside * beside_area
    parts["interposer"] = area * packaging.interposer_ratio * packaging.interposer_price
    parts["substrate"] = area * packaging.substrate_ratio * packaging.substrate_price
    parts["placement"] = pieces * packaging.placement_price
    parts["test"] = packaging.test_price + 0.0 * area
    package_yield = packaging.placement_yield**pieces
    assembled = stacked / stack_yield + parts["interposer"] + parts["substrate"] + parts["placement"]
    made = assembled / package_yield + parts["test"]
    xp = namespace(made)
    known = sum(parts.values(), 0.0)
    finite = made < xp.inf
    parts["scrap"] = xp.where(finite, xp.where(finite, made, 0.0) - xp.where(finite, known, 0.0), 0.0)
    works = die_yield(die_area / dies, process.defect_density, process.clustering, repairable)
    return Cost(
        made=made, parts=parts, die_yield=works, stacking_yield=stack_yield, package_yield=package_yield
    )


def cost(chip: str | Chip, /, **changes: Any) -> Cost:
    """What one packaged chip costs to make, without margin, masks and design.

    >>> found = cost("stack-ref")
    >>> round(float(sum(found.parts.values()) / found.made), 12)
    1.0
    """
    known = as_chip(chip, **changes)
    return cost_of(known, made_of(known))


def cost_of(chip: Chip, silicon: Silicon) -> Cost:
    """What one packaged chip costs to make as its silicon says.

    >>> from strata.hardware.chip import chip
    >>> 100 < float(cost_of(chip("stack-ref"), chip("stack-ref").silicon).made) < 300
    True
    """
    return chip_cost(
        process_node(silicon.technology),
        bonding(silicon.bonding),
        packaging(silicon.packaging),
        die_area=chip.package.die_area,
        dies=silicon.dies,
        memory=chip.memory.capacity,
        memory_price=silicon.memory_price,
        layers=0.0 if chip.stack is None else chip.stack.layers,
        beside=silicon.beside,
        beside_area=silicon.beside_area,
        known_good=silicon.known_good,
        repairable=silicon.repairable,
    )


def price_of(chip: Chip, markup: Number) -> Number | None:
    """What a chip is bought for [USD]: as stated, else what it costs to make times the usual markup; None
    where nothing says how it is made.
    """
    if chip.package.price is not None or chip.silicon is None:
        return chip.package.price
    return markup * cost_of(chip, chip.silicon).made


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemCost:
    """What a system costs [USD]: chips made and bought, fabric as priced; None: no price is known."""

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
