"""What is on the die: units and bundles that fit an area and how fast a power lets them run; memories by the
bank, with their crossbar, and what they carry.
"""

from __future__ import annotations

from dataclasses import replace

from strata.base.arrays import Number, ceil_div, floor_div, namespace
from strata.base.errors import UnknownName
from strata.base.precision import bytes_of
from strata.hardware.components import Logic, OnChipMemory
from strata.hardware.generate.template import LANES, THROTTLE, Template, TemplateLevel, or_zero
from strata.hardware.generate.voltage import OperatingPoint, run_fewer, run_slower
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

    >>> from strata.hardware.generate.onchip import built_core
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


LANE_BYTES = 4.0  # a vector lane is 32 bits wide
LANE_FORMATS = ("fp32", "fp16", "int8")  # what lanes without matrix units do, narrow formats packed


@record
class BuiltCore:
    """The units of a chip."""

    unit_area: Number  # [m2]
    unit_power: Number  # switching power of a unit at the nominal voltage [W]
    unit_leakage: Number  # power a unit leaks at the nominal voltage [W]
    units_fit: Number  # by area
    bundles_fit: Number
    units: Number  # built and not spare
    bundles: Number
    area: Number  # of all that is built, spares too [m2]


@record
class RunningCore:
    """The units of a chip at work."""

    point: OperatingPoint
    units: Number  # that run
    bundles: Number
    clock: Number  # [Hz]
    rate: Number  # of the format units are sized for [FLOP/s]


def on_node(template: Template, logic: Logic) -> Template:
    r"""A template with the units its node gives: of a fixed silicon area, where it states one.

    .. math:: n \, a_{mac} + \lambda \sqrt{n} \, a_{lane} = A_u, \quad
        \lambda = \frac{n_{lane}}{\sqrt{n_{mac}}}

    n multiply-adds in a square array take operands for its sides a clock, so that lanes and their register
    ports grow with its side, λ lanes for each of it, and an operation takes fewer bytes of registers; the
    area A_u of a unit stays, since wires do not get faster from node to node and one sequencer reaches no
    farther.

    Ours; λ is 1 in V100 (64 multiply-adds, 8 lanes), A100 (256, 16) and B200 (1024, 32), 1.4 in H100
    (512, 32), and their units take 0.66, 0.78, 1.26 and 0.76 mm2 by technology/n12, n7 and n5.

    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> [round(float(on_node(template("gpu"), technology(node).logic).macs)) for node in ("n12", "n7", "n5")]
    [76, 246, 571]
    """
    if template.unit_area is None:
        return template
    _check_format(logic, template)
    lane = template.vector_lanes / template.macs**0.5 * logic.vector_area
    mac = logic.mac_area[template.format]
    side = 2.0 * template.unit_area / (lane + (lane * lane + 4.0 * mac * template.unit_area) ** 0.5)
    grown = side / template.macs**0.5
    return replace(
        template,
        macs=side * side,
        unit_area=None,
        vector_lanes=template.vector_lanes * grown,
        special_lanes=template.special_lanes * grown,
        array_rows=template.array_rows * grown,
        array_columns=template.array_columns * grown,
        levels=tuple(
            replace(level, bytes_per_flop=level.bytes_per_flop / grown)
            if level.scope == "unit" and level.bytes_per_flop is not None
            else level
            for level in template.levels
        ),
    )


def unit_area(logic: Logic, template: Template) -> Number:
    r"""Area of a matrix unit with the vector lanes beside it [m2].

    .. math:: a = n_{mac} \, a_{mac} + n_{lane} \, a_{lane}

    Where multiply-adds run on the lanes, the lanes are all there is.

    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> round(float(unit_area(technology("deepflow-v100").logic, template("deepflow-2021"))) * 1e6, 9)  # mm2
    0.38
    """
    lanes = template.vector_lanes * logic.vector_area
    if template.arithmetic == LANES:
        return lanes
    _check_format(logic, template)
    return template.macs * logic.mac_area[template.format] + lanes


def operation_energies(logic: Logic, template: Template) -> dict[str, Number]:
    r"""Energy of an operation by format at the nominal voltage [J/FLOP].

    .. math:: e_k = \frac{1}{2} \left(e_{mac,k} + \frac{\alpha \, n_{lane} e_{lane}}{n_{mac,k}}\right), \quad
        n_{mac,k} = n_{mac} \frac{a_{mac}}{a_{mac,k}}

    half a multiply-add of a matrix unit, and what its lanes spend on instructions and addresses meanwhile
    (α of their multiply-add a clock). On vector lanes, a lane's, shared by as many as its 32 bits hold.

    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> found = operation_energies(technology("n16").logic, template("gpu-simt"))
    >>> round(float(found["fp32"] / found["int8"]), 9)
    4.0
    """
    if template.arithmetic == LANES:
        each = 0.5 * logic.vector_energy
        return {name: each * (bytes_of(name) / LANE_BYTES) for name in LANE_FORMATS}
    _check_format(logic, template)
    beside = template.vector_lanes * or_zero(template.lane_activity) * logic.vector_energy
    own = template.macs * logic.mac_area[template.format]
    found = {
        name: 0.5 * (energy + beside * (logic.mac_area.get(name, own / template.macs) / own))
        for name, energy in logic.mac_energy.items()
    }
    return found | ({"fp32": 0.5 * logic.vector_energy} if template.rules.fp32 == "lanes" else {})


def _check_format(logic: Logic, template: Template) -> None:
    for table in (logic.mac_area, logic.mac_energy):
        if template.format not in table:
            raise UnknownName("format of logic", template.format, table, ", ".join(table))


def built_core(area: Number, logic: Logic, template: Template) -> BuiltCore:
    r"""Units that fit an area: whole bundles, less spare ones.

    .. math:: N = u \left\lfloor (1 - s) \left\lfloor \frac{A}{u \, a} \right\rfloor \right\rfloor

    units of a bundle u; area of a unit a; share of spare bundles s.

    DeepFlow (2023), eq. 1; there, units beside whole bundles count too (`rules.count = "units"`).

    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> built = built_core(244.5e-6, technology("deepflow-v100").logic, template("deepflow-2021"))
    >>> built.units, built.bundles
    (643.0, 80.0)
    """
    each = unit_area(logic, template)
    fit = floor_div(area, each)
    bundles_fit = floor_div(fit, template.units_per_bundle)
    bundles = floor_div(bundles_fit * (1.0 - template.spare), 1.0)
    whole = template.rules.count == "bundles"
    leaks = template.rules.leakage == "counted"
    return BuiltCore(
        unit_area=each,
        unit_power=2.0 * template.macs * operation_energies(logic, template)[template.format] * logic.clock,
        unit_leakage=each * (logic.leakage if leaks else 0.0),
        units_fit=fit,
        bundles_fit=bundles_fit,
        units=bundles * template.units_per_bundle if whole else fit,
        bundles=bundles,
        area=(bundles_fit * template.units_per_bundle if whole else fit) * each,
    )


def running_core(power: Number, built: BuiltCore, logic: Logic, template: Template) -> RunningCore:
    r"""The units of a chip under a power budget.

    .. math:: F = 2 \, N \, n_{mac} f

    N units of n_mac multiply-adds a clock f, by the law of voltage and power (`run_fewer`).

    DeepFlow (2023), eq. 1.

    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> logic, build = technology("deepflow-v100").logic, template("deepflow-2021")
    >>> at = running_core(112.35, built_core(244.5e-6, logic, build), logic, build)
    >>> round(float(at.point.voltage), 6), round(float(at.rate) / 1e12, 3)
    (0.867855, 125.019)
    """
    rules = template.rules
    if rules.at_min_voltage == THROTTLE:
        point = run_slower(power, built.units, built.unit_power, logic, capped=rules.voltage_caps == "all")
        units = point.count
        bundles = floor_div(units, template.units_per_bundle)
    else:
        per = template.units_per_bundle if rules.count == "bundles" else 1.0
        point = run_fewer(
            power, built.units / per, per * built.unit_power, logic, built.unit_leakage / built.unit_power
        )
        units = point.count * per
        bundles = floor_div(units, template.units_per_bundle)
    clock = point.speed * logic.clock
    return RunningCore(
        point=point, units=units, bundles=bundles, clock=clock, rate=2.0 * units * template.macs * clock
    )


def format_rates(rate: Number, logic: Logic, template: Template) -> dict[str, Number]:
    r"""Matrix peak for each format [FLOP/s]: as many multiply-adds as fit the same area; of fp32 one for each
    vector lane where it runs on these (`rules.fp32 = "lanes"`); on lanes alone, as many as fit the same bits.

    .. math:: F_k = F \frac{a_{mac}}{a_{mac,k}}, \quad F_{fp32} = F \frac{n_{lane}}{n_{mac}}

    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> format_rates(1.0, technology("deepflow-v100").logic, template("deepflow-2021"))
    {'fp16': 1.0}
    >>> format_rates(1.0, technology("deepflow-v100").logic, template("deepflow-v100"))  # 64 of 512 a clock
    {'fp16': 1.0, 'fp32': 0.125}
    """
    if template.arithmetic == LANES:
        bits = bytes_of(template.format)
        return {name: rate * (bits / bytes_of(name)) for name in LANE_FORMATS}
    own = logic.mac_area[template.format]
    rates = {name: rate * (own / area) for name, area in logic.mac_area.items()}
    if template.rules.fp32 == "lanes":  # products run on the vector lanes beside the matrix units
        rates |= {"fp32": rate * (template.vector_lanes / template.macs)}
    return rates
