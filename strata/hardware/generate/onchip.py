"""Memories on the die, by the bank: how many fit an area with their crossbar, and what they carry."""

from __future__ import annotations

from strata.arrays import Number, ceil_div, floor_div, namespace
from strata.errors import UnknownName
from strata.hardware.components import OnChipMemory
from strata.hardware.generate.core import BuiltCore
from strata.hardware.generate.template import Template, TemplateLevel
from strata.hardware.technology import Technology
from strata.params import record


@record
class BuiltLevel:
    """The banks of a level of memory."""

    banks: Number
    bank_area: Number  # cells of a bank [m2]
    ports: Number  # units or bundles that a bank is joined to
    capacity: Number  # [B]
    static_power: Number  # [W]
    area: Number  # with overhead and crossbar [m2]


@record
class RunningLevel:
    """What a level of memory carries."""

    bandwidth: Number  # peak [B/s]
    by_power: Number  # bound by power [B/s]
    by_ports: Number | None  # bound by its banks' ports [B/s]; None where nothing is known of them
    power: Number  # that it draws at that bandwidth [W]


def component_of(technology: Technology, level: TemplateLevel) -> OnChipMemory:
    """The technology's memory that a level is made of."""
    for component in technology.on_chip or ():
        if component.name == level.component:
            return component
    known = [component.name for component in technology.on_chip or ()]
    raise UnknownName(
        f"memory of technology {technology.name}", level.component, known, ", ".join(known) or "none"
    )


def bank_count(area: Number, component: OnChipMemory, ports: Number) -> Number:
    r"""Whole banks with their crossbar that fit an area.

    .. math:: N = \left\lfloor \frac{(1 - o) A}{a_b + (1 - o) \, p \, a_x} \right\rfloor

    cells of a bank a_b, share o of its area that is not cells; p crosspoints of area a_x a bank, beside it.

    DeepFlow (2023), eq. 2.

    >>> from strata.hardware.technology import technology
    >>> l2 = technology("deepflow-v100").on_chip[2]
    >>> float(bank_count(65.7053e-6, l2, 80.0))
    192.0
    """
    cells = 1.0 - component.overhead
    bank = component.bank_capacity * component.area
    return floor_div(cells * area, bank + cells * ports * component.port_area)


def bank_area(capacity: Number, component: OnChipMemory, ports: Number) -> Number:
    r"""Area of the whole banks that hold a capacity, with their crossbar [m2]; inverse of `bank_count`.

    .. math:: A = \left\lceil \frac{C}{c_b} \right\rceil \left(\frac{a_b}{1 - o} + p \, a_x\right)

    >>> from strata.hardware.technology import technology
    >>> l2 = technology("deepflow-v100").on_chip[2]
    >>> float(bank_count(bank_area(6 * 2**20, l2, 80.0), l2, 80.0))
    192.0
    """
    bank = component.bank_capacity * component.area / (1.0 - component.overhead)
    return ceil_div(capacity, component.bank_capacity) * (bank + ports * component.port_area)


def level_ports(
    level: TemplateLevel, core: BuiltCore, template: Template, dies: Number | None = None
) -> Number:
    """Who a bank of a level is joined to: its unit, the units of its bundle, or the bundles of its die."""
    assert template.rules is not None
    if template.rules.crossbar == "all bundles":
        return core.bundles
    if level.scope != "global":
        return 1.0 if level.scope == "unit" else template.units_per_bundle
    own = core.bundles if dies is None else core.bundles / dies
    return namespace(own).maximum(own, 1.0)


def built_level(
    area: Number,
    component: OnChipMemory,
    level: TemplateLevel,
    core: BuiltCore,
    template: Template,
    dies: Number | None = None,
) -> BuiltLevel:
    r"""Banks of a level that fit an area, and the power they take at rest.

    .. math:: C = N c_b, \quad P_s = \sigma C + N p \, \pi

    capacity of a bank c_b; power at rest σ of a byte and π of a crosspoint. A bank is joined to those that
    share it: one unit, the units of its bundle, or all bundles of its die (bytes of another die come over
    the link between them); in the 2021 program always to all bundles.

    DeepFlow (2023), eq. 2.

    >>> from strata.hardware.generate.core import built_core
    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> v100, build = technology("deepflow-v100"), template("deepflow-2021")
    >>> core = built_core(244.5e-6, v100.logic, build)
    >>> float(built_level(65.7053e-6, v100.on_chip[2], build.levels[2], core, build).capacity) / 2**20  # MiB
    6.0
    """
    ports = level_ports(level, core, template, dies)
    banks = bank_count(area, component, ports)
    bank = component.bank_capacity * component.area
    capacity = banks * component.bank_capacity
    idle = 0.0 if component.port_power is None else component.port_power
    return BuiltLevel(
        banks=banks,
        bank_area=bank,
        ports=ports,
        capacity=capacity,
        static_power=component.static_power * capacity + idle * banks * ports,
        area=banks * (bank / (1.0 - component.overhead) + ports * component.port_area),
    )


def running_level(
    power: Number, built: BuiltLevel, component: OnChipMemory, port_clock: Number, template: Template
) -> RunningLevel:
    r"""Bandwidth of a level under a power budget [B/s]; 0 where its banks at rest take all of it.

    .. math:: \beta = \min\left(\frac{\max(P - P_s, 0)}{e}, N w f\right)

    energy of a byte e; N banks with ports of w bytes at the clock f of the units, less where some of those
    they belong to do not run.

    DeepFlow (2023), eq. 3, has power alone; the ports are ours.

    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> v100, build = technology("deepflow-v100"), template("deepflow-2021")
    >>> banks = {"banks": 192.0, "bank_area": 1.0, "ports": 80.0, "capacity": 0.0, "area": 1.0}
    >>> l2 = BuiltLevel(static_power=0.000422786, **banks)
    >>> round(float(running_level(2.4, l2, v100.on_chip[2], 1.5e9, build).bandwidth) / 1e12, 4)
    2.3073
    """
    assert template.rules is not None
    energy = component.read_energy
    xp = namespace(power, built.static_power, energy, port_clock)
    some = built.banks > 0.0
    by_power = xp.where(some, xp.maximum(power - built.static_power, 0.0) / energy, 0.0)
    by_ports = None
    bandwidth = by_power
    if component.port_width is not None:
        by_ports = built.banks * component.port_width * port_clock
        if template.rules.ports == "bound":
            bandwidth = xp.minimum(by_power, by_ports)
    drawn = xp.where(some, built.static_power + bandwidth * energy, 0.0)
    return RunningLevel(bandwidth=bandwidth, by_power=by_power, by_ports=by_ports, power=drawn)
