"""Units and bundles that fit an area, and how fast a power lets them run."""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, floor_div, register_pytree
from strata.errors import UnknownName
from strata.hardware.components import Logic
from strata.hardware.generate.template import THROTTLE, Template
from strata.hardware.generate.voltage import OperatingPoint, run_fewer, run_slower


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
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


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class RunningCore:
    """The units of a chip at work."""

    point: OperatingPoint
    units: Number  # that run
    bundles: Number
    clock: Number  # [Hz]
    rate: Number  # of the format units are sized for [FLOP/s]


def unit_area(logic: Logic, template: Template) -> Number:
    r"""Area of a matrix unit with the vector lanes beside it [m2].

    .. math:: a = n_{mac} \, a_{mac} + n_{lane} \, a_{lane}

    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> round(float(unit_area(technology("deepflow-v100").logic, template("deepflow-2021"))) * 1e6, 9)  # mm2
    0.38
    """
    _check_format(logic, template)
    return template.macs * logic.mac_area[template.format] + template.vector_lanes * logic.vector_area


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
    assert template.rules is not None
    whole = template.rules.count == "bundles"
    leaks = template.rules.leakage == "counted"
    return BuiltCore(
        unit_area=each,
        unit_power=template.macs * logic.mac_energy[template.format] * logic.clock,
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
    assert rules is not None
    if rules.at_min_voltage == THROTTLE:
        point = run_slower(power, built.units, built.unit_power, logic, capped=rules.voltage_caps == "all")
        units = point.count
        bundles = floor_div(units, template.units_per_bundle)
    else:
        per = template.units_per_bundle if rules.count == "bundles" else 1.0
        point = run_fewer(
            power,
            built.units / per,
            per * built.unit_power,
            logic,
            built.unit_leakage / built.unit_power,
        )
        units = point.count * per
        bundles = floor_div(units, template.units_per_bundle)
    clock = point.speed * logic.clock
    return RunningCore(
        point=point,
        units=units,
        bundles=bundles,
        clock=clock,
        rate=2.0 * units * template.macs * clock,
    )


def format_rates(rate: Number, logic: Logic, template: Template) -> dict[str, Number]:
    r"""Matrix peak for each format [FLOP/s]: as many multiply-adds as fit the same area; of fp32 one for each
    vector lane where it runs on these (`rules.fp32 = "lanes"`).

    .. math:: F_k = F \frac{a_{mac}}{a_{mac,k}}, \quad F_{fp32} = F \frac{n_{lane}}{n_{mac}}

    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> format_rates(1.0, technology("deepflow-v100").logic, template("deepflow-2021"))
    {'fp16': 1.0}
    >>> format_rates(1.0, technology("deepflow-v100").logic, template("deepflow-v100"))  # 64 of 512 a clock
    {'fp16': 1.0, 'fp32': 0.125}
    """
    own, rules = logic.mac_area[template.format], template.rules
    rates = {name: rate * (own / area) for name, area in logic.mac_area.items()}
    if rules is not None and rules.fp32 == "lanes":
        rates |= {"fp32": rate * (template.vector_lanes / template.macs)}
    return rates
