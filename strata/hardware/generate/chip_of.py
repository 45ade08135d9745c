"""The chip that was made, as a record every other part of Strata takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.base.arrays import Number, is_leaf, namespace
from strata.hardware.chip import Chip
from strata.hardware.chip_parts import MemoryLevel
from strata.hardware.fabric import Dimension, Fabric
from strata.hardware.generate.made import Made
from strata.hardware.generate.onchip import format_rates, operation_energies
from strata.hardware.generate.voltage import KNOWN, clock_ratio
from strata.hardware.money import economics
from strata.params import Param, Sources, leaf_paths, value_at


def _some(value: Number) -> Number:
    """A quantity, and 1 where it is 0: `cores_fit` says that a chip cannot be built, not a division."""
    xp = namespace(value)
    return xp.where(value > 0.0, value, 1.0)


def chip_of(made: Made, fits: Number) -> Chip:
    """The chip of what was made; where it does not fit its budgets, no core does."""
    template, budget = made.template, made.budget
    base = template.chip
    assert base is not None
    xp = namespace(fits, made.running.core.bundles)
    cores = xp.maximum(made.running.core.bundles, 1.0)
    chip = replace(
        base,
        name=f"{template.name}-{made.technology.name}",
        title=f"{template.title}, {made.technology.title}, {made.device.title}",
        compute=replace(base.compute, **_compute(made, cores)),
        cache=replace(base.cache, **_cache(made, cores)),
        memory=replace(
            base.memory,
            kind=made.device.title,
            bandwidth=_some(made.running.memory.bandwidth),
            capacity=_some(made.built.memory.capacity),
            efficiency=template.memory_efficiency,
            latency=made.device.latency,
        ),
        levels=_levels(made) or None,
        energy=replace(base.energy, **_energy(made)),
        package=replace(
            base.package,
            process=made.technology.title,
            die_area=budget.die_area,
            price=None if made.cost is None else made.cost * economics().markup,
        ),
        cores_fit=xp.where(fits > 0.0, cores, 0.0),
    )
    return replace(chip, sources=_sources(chip, base.sources))


def _compute(made: Made, cores: Number) -> dict[str, Any]:
    template, core, logic = made.template, made.running.core, made.logic
    local = next(i for i, level in enumerate(template.levels) if level.scope == "bundle")
    bundles = _some(made.built.core.bundles)
    faster = _quoted_over_running(made)
    clock = _some(core.clock) * faster
    rates = format_rates(_some(core.rate) * faster, logic, template)
    return {
        "cores": cores,
        "units": template.units_per_bundle,
        "clock": clock,
        "max_clock": _highest_clock(made),
        "matrix_rate": rates,
        "matrix_efficiency": dict.fromkeys(rates, template.matrix_efficiency),
        "vector_rate": _some(2.0 * core.units * template.vector_lanes * core.clock) * faster,
        "special_rate": _some(core.units * template.special_lanes * core.clock) * faster,
        "sram_capacity": _some(made.built.levels[local].capacity) / bundles,
        "sram_bandwidth": _some(made.running.levels[local].bandwidth) * faster / cores,
        "array_rows": template.array_rows,
        "array_columns": template.array_columns,
        "dataflow": template.dataflow,
    }


def _outermost(made: Made) -> int:
    """The outermost level on the die: what all cores share, or the pool of their own memories."""
    scopes = [level.scope for level in made.template.levels]
    return max((i for i, scope in enumerate(scopes) if scope == "global"), default=len(scopes) - 1)


def _cache(made: Made, cores: Number) -> dict[str, Any]:
    index = _outermost(made)
    bandwidth = _some(made.running.levels[index].bandwidth)
    return {
        "capacity": _some(made.built.levels[index].capacity),
        "bandwidth": bandwidth * _quoted_over_running(made),
        "efficiency": made.template.levels[index].efficiency,
        "core_bandwidth": bandwidth / cores,
        "latency": made.components[index].latency,
    }


def _levels(made: Made) -> tuple[MemoryLevel, ...]:
    """Levels beside a bundle's own memory and the cache: those of units, and further ones."""
    scopes = [level.scope for level in made.template.levels]
    held = {scopes.index("bundle"), _outermost(made)}
    part_on = made.running.core.bundles / _some(made.built.core.bundles)
    faster = _quoted_over_running(made)
    return tuple(
        MemoryLevel(
            name=level.name,
            scope=level.scope,
            capacity=_some(built.capacity * (1.0 if level.scope == "global" else part_on)),
            bandwidth=_some(running.bandwidth) * faster,
            efficiency=level.efficiency,
            latency=component.latency,
            energy=component.read_energy,
        )
        for i, (level, built, running, component) in enumerate(
            zip(made.template.levels, made.built.levels, made.running.levels, made.components, strict=True)
        )
        if i not in held
    )


def _highest_clock(made: Made) -> Number:
    """The highest clock of the units [Hz]: at their highest voltage, or as their share of power allows."""
    if _by_share(made):
        return _some(made.running.core.clock)
    return _some(clock_ratio(_top_voltage(made), made.logic) * made.logic.clock)


def _quoted_over_running(made: Made) -> Number:
    """The clock that peaks are quoted at over the one that the units' own share of the power allows: where
    shares are stated and units may use what others leave, the highest, so that no product passes its peak.
    """
    if _by_share(made) or made.budget.split != "stated":
        return 1.0
    return _highest_clock(made) / _some(made.running.core.clock)


def _by_share(made: Made) -> bool:
    return made.template.rules.power == "by share"


def _top_voltage(made: Made) -> Number:
    """Voltage of the highest clock: the cap, or the one it runs at where there is none."""
    if made.template.rules.voltage_caps == "all" and not _by_share(made):
        return made.logic.max_voltage
    point = made.running.core.point
    return namespace(point.voltage).maximum(point.voltage, made.logic.min_voltage)


def _energy(made: Made) -> dict[str, Any]:
    r"""Energies at the highest clock, from where they fall with the voltage.

    The voltage's slope over the clock is that of the line between the lowest and the highest voltage.
    """
    logic, template = made.logic, made.template
    top = _top_voltage(made)
    xp = namespace(top, logic.voltage, logic.min_voltage)
    scale = (top / logic.voltage) ** 2
    low = logic.min_voltage
    faster = top > low
    span = 1.0 - clock_ratio(low, logic) / clock_ratio(top, logic)
    local = next(i for i, level in enumerate(template.levels) if level.scope == "bundle")
    last = _outermost(made)
    memory = made.running.memory.point
    return {
        "matrix": {name: energy * scale for name, energy in operation_energies(logic, template).items()},
        "vector": 0.5 * logic.vector_energy * scale,
        "sram": made.components[local].read_energy,
        # a pool of the cores' own memories is charged once
        "cache": 0.0 if last == local else made.components[last].read_energy,
        "memory": made.device.access_energy * (memory.voltage / made.device.voltage) ** 2,
        "static_power": made.static_power,
        "power_limit": made.budget.power,
        "voltage_slope": xp.where(faster, (1.0 - low / top) / xp.where(faster, span, 1.0), 0.0),
    }


# Where generated numbers come from; the rest is the template's or its kind's.
_SAID = {
    "compute.cores": "bundles that fit the area and run at the power",
    "compute.units": "units of a bundle, by the template",
    "compute.clock": "clock at the voltage that the power allows, at most the highest",
    "compute.max_clock": "clock at the highest voltage",
    "compute.matrix_rate": "2 x units x multiply-adds x clock, by the area of a multiply-add or on the lanes",
    "compute.matrix_efficiency": "the template's",
    "compute.vector_rate": "2 x units x lanes x clock",
    "compute.special_rate": "units x special lanes x clock",
    "compute.sram_capacity": "banks that fit the level's area, over the bundles",
    "compute.sram_bandwidth": "power over the energy of a byte, at most the banks' ports; over the bundles",
    "compute.array_rows": "the template's",
    "compute.array_columns": "the template's",
    "cache.capacity": "banks that fit the level's area with their crossbar",
    "cache.bandwidth": "power over the energy of a byte, at most the banks' ports",
    "cache.efficiency": "the template's",
    "cache.core_bandwidth": "an equal share for each bundle",
    "cache.latency": "the technology's",
    "memory.bandwidth": "pins x rate at the voltage that the power allows",
    "memory.capacity": "devices that fit x capacity of one",
    "memory.efficiency": "the template's",
    "memory.latency": "the device's",
    "levels": "banks that fit the level's area; power over the energy of a byte, at most the banks' ports",
    "energy.matrix": "half a multiply-add, and its lanes meanwhile, at the highest voltage",
    "energy.vector": "half a multiply-add of a vector lane at the highest voltage",
    "energy.sram": "the technology's",
    "energy.cache": "the technology's",
    "energy.memory": "the device's at the voltage it runs at",
    "energy.static_power": "leakage of the die, banks and devices at rest",
    "energy.power_limit": "the budget's",
    "energy.voltage_slope": "the line between the lowest and the highest voltage",
    "package.die_area": "the budget's",
    "package.price": "what it costs to make x the usual markup",
}


@lru_cache(maxsize=1024)
def _said(path: str) -> str:
    """Where the number at a path comes from; "" where it is not generated."""
    return next((text for start, text in _SAID.items() if (path + ".").startswith(start + ".")), "")


def _sources(chip: Chip, known: Mapping[str, Param]) -> Sources:
    """Where each number comes from; of numbers still being traced nothing is noted."""
    noted = dict(known)
    for path, meta in leaf_paths(chip).items():
        said = _said(path)
        value: Any = value_at(chip, path)
        counted = isinstance(value, KNOWN)
        if said and is_leaf(value) and counted:
            noted[path] = Param(value, meta["unit"], f"derived: {said}")
    return Sources(noted)


def fabric_of(made: Made, names: Sequence[str] | None = None) -> Fabric | None:
    """The fabric of the named networks, or of all with bandwidth, sizes open; None where it has none."""
    dimensions = tuple(
        Dimension(
            name=network.name,
            kind=network.topology,
            bandwidth=_some(running.bandwidth),
            efficiency=network.efficiency,
            latency=link.latency,
            energy=link.lane_energy * (running.point.voltage / link.voltage) ** 2,
            collectives=network.collectives,
            crossing=network.crossing,
            divisors=network.divisors,
        )
        for network, running, link in zip(
            made.template.networks or (), made.running.networks, made.links, strict=True
        )
        if (_any(running.bandwidth) if names is None else network.name in names)
    )
    if not dimensions:
        return None
    return Fabric(
        name=f"{made.template.name}-{made.technology.name}-fabric",
        title=f"networks of {made.template.title}",
        dimension=dimensions,
    )


def _any(value: Number) -> bool:
    """Whether a bandwidth is there at any point; one still being traced is."""
    return bool(np.any(np.asarray(value) > 0.0)) if isinstance(value, KNOWN) else True
