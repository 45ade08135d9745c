"""From budgets to counts, voltages, clocks and bandwidths: every component of a chip in turn."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, namespace
from strata.base.errors import MissingQuantity, require
from strata.hardware.components import LinkPhy, Logic, MemoryDevice, OnChipMemory
from strata.hardware.generate import offchip, onchip
from strata.hardware.generate.budget import (
    Budget,
    check_inputs,
    die_edge,
    peak_power,
    power_split,
    shared_out,
)
from strata.hardware.generate.template import CORE, MEMORY, Template, or_zero
from strata.hardware.generate.voltage import KNOWN, clock_ratio, voltage_at_clock
from strata.hardware.making import chip_cost
from strata.hardware.technology import Bonding, Packaging, Technology, bonding, packaging
from strata.params import record


@record
class Built:
    """What is built of each component."""

    core: onchip.BuiltCore
    levels: tuple[onchip.BuiltLevel, ...]
    memory: offchip.BuiltMemory
    networks: tuple[offchip.BuiltLanes, ...]


@record
class Running:
    """How each component runs."""

    core: onchip.RunningCore  # at the peak that is quoted: multiply-adds on operands in registers
    product: onchip.RunningCore  # in a large product, with the traffic of all memories
    levels: tuple[onchip.RunningLevel, ...]
    memory: offchip.RunningMemory
    networks: tuple[offchip.RunningLanes, ...]


@record
class Made:
    """Everything a budget was turned into: what is built, and how it runs."""

    technology: Technology
    budget: Budget
    template: Template
    device: MemoryDevice
    links: tuple[LinkPhy, ...]
    logic: Logic  # the technology's, at most at the voltage of the template's highest clock
    components: tuple[OnChipMemory, ...]  # of the template's levels
    # what follows, in the order in which `make` works it out
    room: Number = 0.0  # memory devices there is room for
    area: dict[str, Number] = field(default_factory=dict)  # allotted to each component [m2]
    edge: dict[str, Number] = field(default_factory=dict)  # [m]
    built: Built = None  # type: ignore[assignment]
    rest_leakage: Number = 0.0  # of the die around units and memories [W]
    power: dict[str, Number] = field(default_factory=dict)  # in a product; others in turn, at full rate [W]
    peak_power: Number = 0.0  # of the units at the peak that is quoted [W]
    turn_power: dict[str, Number] = field(default_factory=dict)  # of each level while it is streamed from [W]
    running: Running = None  # type: ignore[assignment]
    static_power: Number = 0.0  # of the chip with its memory [W]
    cost: Number | None = None  # to make it [USD]; None where its process or its memory has no price


def make(
    technology: Technology,
    budget: Budget,
    template: Template,
    device: MemoryDevice,
    links: tuple[LinkPhy, ...],
    *,
    refuse: bool = True,
) -> Made:
    """Every count, voltage, clock and bandwidth of a chip; pure, and an array of chips where a quantity is
    one. Single budgets that share out more than there is are refused, unless somebody asks what is wrong.

    >>> from strata.hardware.components import link_phy, memory_device
    >>> from strata.hardware.generate.budget import budget
    >>> from strata.hardware.generate.template import template
    >>> from strata.hardware.technology import technology
    >>> build = template("deepflow-2021")
    >>> made = make(technology("deepflow-v100"), budget("deepflow-v100"), build,
    ...             memory_device(build.device), tuple(link_phy(net.link) for net in build.networks))
    >>> made.built.core.units, round(float(made.running.core.clock) / 1e9, 3)
    (643.0, 1.519)
    """
    logic = _timed(technology, template)
    template = onchip.on_node(template, logic)
    if refuse:
        check_inputs(logic, budget, template, device, links, names=component_names(template))
    design = Made(
        technology=technology,
        budget=budget,
        template=template,
        device=device,
        links=links,
        logic=logic,
        components=tuple(onchip.component_of(technology, level) for level in template.levels),
    )
    design = replace(design, **_places(design))
    design = replace(design, built=_built(design))
    design = replace(design, rest_leakage=_rest_leakage(design))
    design = replace(design, **_powers(design))
    design = replace(design, running=_run(design), cost=generated_cost(design))
    return replace(design, static_power=_static(design))


def _built(made: Made) -> Built:
    """What fits the places of all components."""
    area, edge, template, device = made.area, made.edge, made.template, made.device
    core = onchip.built_core(area[CORE], made.logic, template)
    levels = tuple(
        onchip.built_level(area[level.name], component, level, core, template, made.budget.dies)
        for level, component in zip(template.levels, made.components, strict=True)
    )
    return Built(
        core=core,
        levels=levels,
        memory=offchip.memory_of_level(levels[-1])
        if device.mount == "on die"
        else offchip.built_memory(made.room, area[MEMORY], edge[MEMORY], device, template),
        networks=tuple(
            offchip.built_lanes(area[net.name], edge[net.name], link)
            for net, link in zip(template.networks or (), made.links, strict=True)
        ),
    )


def _timed(technology: Technology, template: Template) -> Logic:
    """A technology's logic at no more than the voltage of the template's highest clock."""
    logic = technology.logic
    if logic is None:
        raise MissingQuantity(
            f"technology {technology.name} has no [logic]: area and energy of a multiply-add"
        )
    if template.max_clock is None:
        return logic
    top = voltage_at_clock(template.max_clock, logic)
    low = logic.min_voltage
    if all(isinstance(v, KNOWN) for v in (top, low)):
        require(
            bool(np.all(np.asarray(top) >= np.asarray(low)) or np.any(np.asarray(low) > logic.max_voltage)),
            "a template's max_clock is at least the clock at the lowest voltage",
            max_clock=template.max_clock,
            lowest=float(np.max(np.asarray(clock_ratio(low, logic)))),
        )
    return replace(logic, max_voltage=namespace(top, logic.max_voltage).minimum(top, logic.max_voltage))


def delivered(template: Template) -> Number:
    """Share of a power budget that reaches die and memory."""
    return 1.0 if template.delivery is None else template.delivery


def component_names(template: Template) -> tuple[str, ...]:
    """What shares of a budget may be of: units, levels, memory, networks."""
    levels, nets = template.levels, template.networks or ()
    return (CORE, *(level.name for level in levels), MEMORY, *(net.name for net in nets))


def _places(made: Made) -> dict[str, Any]:
    """Area [m2] and edge [m] of each component, and memory devices there is room for."""
    budget, template, device = made.budget, made.template, made.device
    names = component_names(template)
    auto = budget.split == "auto"
    edge_share = shared_out(budget.perimeter_share, template.perimeter if auto else None, names)
    whole = die_edge(budget)
    edge = {name: share * whole for name, share in edge_share.items()}
    room = offchip.device_room(budget, device)
    if budget.devices is not None:
        room = namespace(room, budget.devices).minimum(room, budget.devices)
    stated = dict(budget.area_share or {})
    if device.mount == "on die":
        stated[MEMORY] = 0.0  # its banks are a level's
    elif auto and MEMORY not in stated:
        # controllers of all devices that room and edge allow
        wanted = offchip.built_memory(room, budget.die_area, edge[MEMORY], device, template).controller_area
        stated[MEMORY] = wanted / budget.die_area
    area_share = shared_out(stated, _usual_area(made) if auto else None, names)
    area = {name: share * budget.die_area for name, share in area_share.items()}
    return {"area": area, "edge": edge, "room": room}


def _usual_area(made: Made) -> dict[str, Number]:
    """The template's shares of the die, with those of levels that go by the lanes of the units."""
    budget, template = made.budget, made.template
    usual = dict(template.area or {})
    core = (budget.area_share or {}).get(CORE, usual.get(CORE, 0.0))
    built = onchip.built_core(core * budget.die_area, made.logic, template)
    for level, component in zip(template.levels, made.components, strict=True):
        if level.bytes_per_lane is not None:
            wanted = built.units * template.vector_lanes * level.bytes_per_lane
            ports = onchip.level_ports(level, built, template, budget.dies)
            usual[level.name] = onchip.bank_area(wanted, component, ports) / budget.die_area
    return usual


def _rest_leakage(made: Made) -> Number:
    """What wires, controllers, PHYs, spare bundles and empty die leak at the nominal voltage [W]."""
    built = made.built
    if made.template.rules.leakage == "ignored":
        return 0.0
    running = built.core.units * built.core.unit_area
    around = made.budget.die_area - running - sum((level.area for level in built.levels), 0.0)
    return made.logic.leakage * namespace(around).maximum(around, 0.0)


def _powers(made: Made) -> dict[str, Any]:
    """Power of each component [W], of the units at the peak that is quoted, and of each level in its turn."""
    budget, template, device, built = made.budget, made.template, made.device, made.built
    total = budget.power * delivered(template)
    stated = budget.power_share or {}
    names = component_names(template)
    if budget.split == "stated":
        given = {name: stated.get(name, 0.0) * total for name in names}
        return {"power": given, "peak_power": given[CORE], "turn_power": given}
    nets = template.networks or ()
    wanted = {
        MEMORY: built.memory.static_power + built.memory.pins * device.pin_rate * device.access_energy
    } | {
        net.name: lanes.lanes * link.lane_rate * link.lane_energy
        for net, link, lanes in zip(nets, made.links, built.networks, strict=True)
    }
    at_rest = {CORE: built.core.units * built.core.unit_leakage, MEMORY: built.memory.static_power}
    weights: dict[str, Number] = {
        CORE: onchip.operation_energies(made.logic, template)[template.format],
        MEMORY: device.access_energy * or_zero(template.memory_bytes_per_flop),
    }
    for level, component, banks in zip(template.levels, made.components, built.levels, strict=True):
        at_rest[level.name] = banks.static_power
        weights[level.name] = component.read_energy * or_zero(level.bytes_per_flop)
    split = power_split(
        total,
        stated,
        rest=made.rest_leakage,
        wanted=wanted,
        most=template.power or {},
        at_rest=at_rest,
        weights=weights,
    )
    power = {name: split[name] for name in names}
    others: Any = {"rest": made.rest_leakage, "at_rest": at_rest}
    peak = power[CORE]
    if CORE not in stated:
        busy = (CORE, *(level.name for level in template.levels if level.scope == "unit"))
        peak = peak_power(total, busy=busy, of=CORE, weights=weights, **others)
    # a byte that comes from a level passes all levels inside it
    through = {
        level.name: part.read_energy for level, part in zip(template.levels, made.components, strict=True)
    }
    turns = {
        name: power[name]
        if name in stated
        else peak_power(total, busy=inner, of=name, weights=through, **others)
        for name, inner in ((name, tuple(through)[: i + 1]) for i, name in enumerate(through))
    }
    return {"power": power, "peak_power": peak, "turn_power": turns}


def _run(made: Made) -> Running:
    """How what is built runs on its power."""
    template, power, built = made.template, made.power, made.built
    core = onchip.running_core(made.peak_power, built.core, made.logic, template)
    active = core.bundles / namespace(built.core.bundles).maximum(built.core.bundles, 1.0)
    levels = tuple(
        onchip.running_level(
            made.turn_power[level.name],
            banks,
            component,
            core.clock * (1.0 if level.scope == "global" else active),
            template,
        )
        for level, banks, component in zip(template.levels, built.levels, made.components, strict=True)
    )
    return Running(
        core=core,
        product=onchip.running_core(power[CORE], built.core, made.logic, template),
        levels=levels,
        memory=offchip.running_memory_of_level(built.levels[-1], levels[-1], made.device)
        if made.device.mount == "on die"
        else offchip.running_memory(power[MEMORY], built.memory, made.device),
        networks=tuple(
            offchip.running_lanes(power[net.name], lanes, link, net, template)
            for net, lanes, link in zip(template.networks or (), built.networks, made.links, strict=True)
        ),
    )


def _static(made: Made) -> Number:
    """Power of a chip with its memory at rest [W]."""
    core, built = made.running.core, made.built
    leaking = core.units * built.core.unit_leakage * (core.point.voltage / made.logic.voltage)
    banks = sum((level.static_power for level in built.levels), 0.0)
    return made.rest_leakage + leaking + banks + built.memory.static_power


def generated_cost(
    made: Made, joint: Bonding | None = None, package: Packaging | None = None
) -> Number | None:
    """What a chip costs to make [USD], by the template's bonds and package or others; None where its process
    or the price of its memory is not known. Devices on top are bonded, and all bonds of a die must hold.
    """
    process, device, template = made.technology.process, made.device, made.template
    if process is None or device.price is None:
        return None
    memory, dies = made.built.memory, 1.0 if made.budget.dies is None else made.budget.dies
    return chip_cost(
        process,
        joint or bonding(template.bonding),
        package or packaging(template.packaging),
        die_area=made.budget.die_area,
        dies=dies,
        memory=memory.capacity,
        memory_price=device.price,
        layers=memory.devices / dies if device.mount == "on top" else 0.0,
        beside=memory.devices if device.mount == "beside" else 0.0,
        beside_area=device.area,
        known_good=1.0,
        repairable=template.repairable,
    ).made
