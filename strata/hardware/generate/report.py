"""What a generated chip uses of its budgets, what binds it, why it cannot be built, what more would buy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, namespace
from strata.base.records import Infeasible
from strata.hardware.generate.budget import die_edge, keeps_whole
from strata.hardware.generate.made import Made, make
from strata.hardware.generate.template import CORE, MEMORY, or_zero
from strata.hardware.generate.voltage import least_voltage, power_ratio
from strata.hardware.technology import edge_lanes

ON_DIE = ("on top", "on die")  # mounts that need no die edge
LOSS = "regulators"
REST = "rest"  # what is left of a budget, and the leakage of the die around the components


def used(made: Made) -> dict[str, dict[str, Number]]:
    """What each component uses of area [m2], power [W] and edge [m]; `total` is the budget's.

    Power comes in turns where a budget does not state its split: `power` is of a large product, `streaming`
    of memory and networks at full rate with all else at rest.
    """
    built, running, template = made.built, made.running, made.template
    stated = made.budget.split == "stated"
    area: dict[str, Number] = {CORE: built.core.area, MEMORY: built.memory.controller_area}
    power: dict[str, Number] = {
        CORE: running.product.point.power,
        MEMORY: _memory_draw(made),
        REST: made.rest_leakage,
    }
    pins = built.memory.pins
    edge: dict[str, Number] = {
        MEMORY: 0.0 * pins if made.device.mount in ON_DIE else pins / made.device.pins_per_edge
    }
    rate = product_rate(made)
    parts = zip(template.levels, made.components, built.levels, running.levels, strict=True)
    for level, component, banks, run in parts:
        area[level.name] = banks.area
        moved = rate * or_zero(level.bytes_per_flop) * component.read_energy
        power[level.name] = run.power if stated else banks.static_power + moved
    nets = template.networks or ()
    for net, lanes, runs, link in zip(nets, built.networks, running.networks, made.links, strict=True):
        area[net.name] = lanes.area
        power[net.name] = runs.point.power if stated else 0.0 * runs.point.power
        edge[net.name] = lanes.lanes / edge_lanes(link)
    found = {
        "area": area | {"total": made.budget.die_area},
        "power": _with_loss(power, made) | {"total": made.budget.power},
        "edge": edge | {"total": die_edge(made.budget)},
    }
    return found if stated else found | {"streaming": _streaming(made)}


def _streaming(made: Made) -> dict[str, Number]:
    """Power of each component when memory and networks run at full rate and all else rests [W]."""
    built, running = made.built, made.running
    power: dict[str, Number] = {
        CORE: built.core.units * built.core.unit_leakage,
        MEMORY: running.memory.power,
        REST: made.rest_leakage,
    }
    for level, banks in zip(made.template.levels, built.levels, strict=True):
        power[level.name] = banks.static_power
    if made.device.mount == "on die":
        power[made.template.levels[-1].name] = running.levels[-1].power
    for net, lanes in zip(made.template.networks or (), running.networks, strict=True):
        power[net.name] = lanes.point.power
    return _with_loss(power, made) | {"total": made.budget.power}


def _with_loss(power: dict[str, Number], made: Made) -> dict[str, Number]:
    """Powers of components with what regulators lose on the way to them [W]."""
    if made.template.delivery is None:
        return power
    return power | {LOSS: sum(power.values(), 0.0) * (1.0 / made.template.delivery - 1.0)}


def _memory_draw(made: Made) -> Number:
    """Power of memory beside all others [W]: at its peak where shares are stated, else in a large product."""
    memory = made.running.memory
    if made.budget.split == "stated":
        return memory.power
    moved = product_rate(made) * or_zero(made.template.memory_bytes_per_flop)
    moved = namespace(moved, memory.bandwidth).minimum(moved, memory.bandwidth)
    energy = made.device.access_energy * (memory.point.voltage / made.device.voltage) ** 2
    return made.built.memory.static_power + moved * energy


def product_rate(made: Made) -> Number:
    r"""What a large product gets of the peak [FLOP/s]: what its units do on the power it leaves them, at most
    what each level's bandwidth and its part of the power feed.

    .. math:: F = \min\left(F_{units}, \frac{\beta_i}{b_i}, \frac{P_i - p_i}{b_i e_i}\right)

    bytes b_i of energy e_i that an operation moves through level i, of power P_i in a product and p_i at
    rest.

    >>> from strata.hardware.generate.recipe import generation
    >>> made = generation("n5", "b200", "gpu").made
    >>> round(float(product_rate(made) / made.running.core.rate), 2)
    0.77
    """
    rate = made.running.product.rate
    levels, running = made.template.levels, made.running.levels
    for level, run, banks, part in zip(levels, running, made.built.levels, made.components, strict=True):
        if level.bytes_per_flop is not None:
            paid = (made.power[level.name] - banks.static_power) / part.read_energy
            xp = namespace(rate, run.bandwidth, paid)
            fed = xp.minimum(run.bandwidth, xp.maximum(paid, 0.0)) / level.bytes_per_flop
            rate = xp.minimum(rate, fed)
    return rate


def fits_budgets(made: Made) -> Number:
    """1 where everything a chip needs is there and every budget that counts is kept, else 0."""
    built, running = made.built, made.running
    ok: Any = (running.product.bundles > 0.0) & (running.memory.bandwidth > 0.0)
    for banks, run in zip(built.levels, running.levels, strict=True):
        ok = ok & (banks.banks > 0.0) & (run.bandwidth > 0.0)
    rules = made.template.rules
    ok = ok & keeps_whole(made.budget, sums=rules.sums == "at most 1")
    if rules.sums == "at most 1":
        for parts in used(made).values():
            total = parts["total"]
            spent = sum((value for name, value in parts.items() if name != "total"), 0.0)
            ok = ok & (spent <= total * (1.0 + 1e-9))
    if made.budget.money is not None and made.cost is not None:
        ok = ok & (made.cost <= made.budget.money)
    return 1.0 * ok


def not_fitting(made: Made) -> tuple[Infeasible, ...]:
    """Why a single chip cannot be built: each thing that lacks, with what would help; () where it can."""
    lacking = [*_no_core(made), *_no_level(made), *_no_memory(made), *_no_lanes(made), *_over(made)]
    return (*_outside(made), *lacking)


def _lack(what: str, need: Number, have: Number, unit: str, *levers: str) -> Infeasible:
    """Something that a chip needs more of than it has, with what would help."""
    return Infeasible(what, float(need), float(have), unit, levers)


def _no_core(made: Made) -> list[Infeasible]:
    core, template = made.built.core, made.template
    if float(made.running.product.bundles) >= 1.0:
        return []
    if float(core.bundles) < 1.0:
        need = template.units_per_bundle * core.unit_area / max(1.0 - float(template.spare), 1e-9)
        levers = ("a larger die", "a larger area share of core", "a smaller unit", "a denser node")
        return [_lack("area of one bundle of units", need, made.area[CORE], "m2", *levers)]
    leak = core.unit_leakage / core.unit_power
    each = core.unit_power * template.units_per_bundle
    need = each * power_ratio(least_voltage(made.logic, leak), made.logic, leak)
    what = "power of one bundle at the lowest voltage"
    more = ("more power", "a larger power share of core", "a node of lower energy")
    return [_lack(what, need, made.power[CORE], "W", *more)]


def _no_level(made: Made) -> list[Infeasible]:
    found = []
    both = zip(made.template.levels, made.components, made.built.levels, made.running.levels, strict=True)
    for level, component, built, running in both:
        name = level.name
        if float(built.banks) < 1.0:
            need = built.bank_area / (1.0 - component.overhead) + built.ports * component.port_area
            levers = (f"a larger area share of {name}", "a larger die", "a denser memory")
            what = f"area of one bank of {name} with its crossbar"
            found.append(_lack(what, need, made.area[name], "m2", *levers))
        elif float(running.by_power) <= 0.0:
            levers = (f"a larger power share of {name}", "less of it", "a memory that leaks less")
            found.append(
                _lack(f"power of {name} at rest", built.static_power, made.power[name], "W", *levers)
            )
    return found


def _no_memory(made: Made) -> list[Infeasible]:
    memory, device, budget = made.built.memory, made.device, made.budget
    share = f"a larger {{}} share of {MEMORY}"
    if float(memory.devices) >= 1.0:
        if float(made.running.memory.bandwidth) > 0.0:
            return []
        need, have = memory.static_power, made.power[MEMORY]
        return [_lack("power of memory at rest", need, have, "W", share.format("power"), "fewer devices")]
    if budget.devices is not None and float(budget.devices) < 1.0:
        return [_lack("memory devices allowed", 1.0, budget.devices, "1", "more devices allowed")]
    if _too_low(made):
        assert budget.height is not None and device.height is not None
        what = "height of one memory device on the die"
        levers = ("more height over the die", "a lower memory device", "memory beside the die")
        return [_lack(what, device.height, budget.height, "m", *levers)]
    if float(memory.by_area) < 1.0:
        room = budget.die_area if device.mount == "on top" else budget.node_area - budget.die_area
        levers = ("a larger package", "a smaller die", "a smaller memory device")
        return [_lack("area of one memory device", device.area, room, "m2", *levers)]
    if float(memory.by_controller) < 1.0:
        what, have = "area of one memory controller", made.area[MEMORY]
        return [_lack(what, device.controller_area, have, "m2", share.format("area"), "a larger die")]
    what, need = "die edge of one memory device", device.pins / device.pins_per_edge
    levers = (share.format("perimeter"), "a larger die", "finer bumps")
    return [_lack(what, need, made.edge[MEMORY], "m", *levers)]


def _too_low(made: Made) -> bool:
    """Whether no device fits the height over a die that memory stands on."""
    height, device = made.budget.height, made.device
    known = device.mount == "on top" and height is not None and device.height is not None
    return known and float(height) < float(device.height) * (1.0 - 1e-9)  # type: ignore[arg-type]


def _no_lanes(made: Made) -> list[Infeasible]:
    """Networks that were given something, and still have no lane that runs."""
    found = []
    need: Number
    nets = made.template.networks or ()
    both = zip(nets, made.links, made.built.networks, made.running.networks, strict=True)
    for net, link, built, running in both:
        name = net.name
        given = [float(part.get(name, 0.0)) for part in (made.area, made.power, made.edge)]
        if float(running.bandwidth) > 0.0 or not all(given):
            continue
        if float(built.by_area) < 1.0:
            need, have, unit, what = link.lane_area, made.area[name], "m2", "area"
        elif float(built.by_edge) < 1.0:
            need, have, unit, what = 1.0 / edge_lanes(link), made.edge[name], "m", "perimeter"
        else:
            low = power_ratio(least_voltage(link), link)
            need, have, unit, what = link.lane_energy * link.lane_rate * low, made.power[name], "W", "power"
        levers = (f"a larger {what} share of {name}", "none at all, where it is not needed")
        found.append(_lack(f"{what} of one lane of {name}", need, have, unit, *levers))
    return found


def _outside(made: Made) -> list[Infeasible]:
    """A split that is none: shares of more than there is, a die larger than its package."""
    found = []
    rules = made.template.rules
    budget = made.budget
    if budget.die_area > budget.node_area:
        levers = ("a smaller die", "a larger package")
        found.append(_lack("die in its package", budget.die_area, budget.node_area, "m2", *levers))
    for name in ("area", "power", "perimeter"):
        shares = getattr(budget, f"{name}_share") or {}
        over = {what: float(share) for what, share in shares.items() if not 0.0 <= share <= 1.0}
        if rules.sums == "at most 1" and sum(shares.values(), 0.0) > 1.0 + 1e-9:
            over = {"all components": float(sum(shares.values(), 0.0))}
        for what, share in over.items():
            found.append(_lack(f"{name} share of {what}", share, 1.0, "1", f"smaller {name} shares"))
    return found


def _over(made: Made) -> list[Infeasible]:
    found = []
    rules = made.template.rules
    if rules.sums == "at most 1":
        words = {"area": "area of all components", "edge": "edge of all components"}
        words |= {
            "power": "power of all components",
            "streaming": "power at full rate of memory and networks",
        }
        for name, parts in used(made).items():
            unit = {"area": "m2", "edge": "m"}.get(name, "W")
            total = float(parts["total"])
            spent = sum(float(value) for key, value in parts.items() if key != "total")
            if spent > total * (1.0 + 1e-9):
                of = "power" if name == "streaming" else name
                levers = (f"smaller {of} shares", f"a larger budget of {of}")
                found.append(_lack(words[name], spent, total, unit, *levers))
    if made.budget.money is not None and made.cost is not None and made.cost > made.budget.money:
        fewer = ("a smaller die", "fewer memory devices", "an older node", "more money")
        found.append(_lack("what it costs to make", made.cost, made.budget.money, "USD", *fewer))
    return found


def binding(made: Made) -> dict[str, str]:
    """What keeps each component of a single chip from more, in a few words."""
    built, running = made.built, made.running
    rules = made.template.rules
    capped = rules.voltage_caps == "all"
    core = running.core
    fewer = float(core.units) < float(built.core.units)
    found = {
        CORE: f"{'power' if fewer else 'area'} for units; {_clock(core.point, made.logic, capped)} for clock"
    }
    for level, run in zip(made.template.levels, running.levels, strict=True):
        ports = run.by_ports is not None and float(run.bandwidth) < float(run.by_power)
        found[level.name] = f"area for capacity; {'ports' if ports else 'power'} for bandwidth"
    memory = built.memory
    room = "area and height over the die" if made.device.mount == "on top" else "room in the package"
    limits = {room: memory.by_area, "area of controllers": memory.by_controller}
    if rules.edge == "devices":
        limits["die edge"] = memory.by_edge
    if made.budget.devices is not None and float(made.budget.devices) <= float(memory.by_area):
        limits = {"devices allowed": made.budget.devices} | limits
    count = min(limits, key=lambda name: float(limits[name]))
    found[MEMORY] = f"{count} for devices; {_clock(running.memory.point, made.device, True)} for rate"
    if made.device.mount == "on die":
        found[MEMORY] = f"the banks of {made.template.levels[-1].name}"
    nets = made.template.networks or ()
    for net, link, lanes, on in zip(nets, made.links, built.networks, running.networks, strict=True):
        where = "area" if float(lanes.by_area) <= float(lanes.by_edge) else "die edge"
        where = "power" if float(on.lanes) < float(lanes.lanes) else where
        found[net.name] = f"{where} for lanes; {_clock(on.point, link, capped)} for rate"
    return found


def _clock(point: Any, part: Any, capped: bool) -> str:
    at_top = capped and float(point.asked) >= float(part.max_voltage) * (1.0 - 1e-9)
    return "highest voltage" if at_top else "power"


BUDGETS = ("die_area", "node_area", "power", "perimeter", "height")


def results(made: Made) -> dict[str, Number]:
    """What a chip offers: peak, rate of a large product, memories and networks."""
    found: dict[str, Number] = {"FLOP/s": made.running.core.rate, "product FLOP/s": product_rate(made)}
    for level, built, run in zip(made.template.levels, made.built.levels, made.running.levels, strict=True):
        found[f"{level.name} B"] = built.capacity
        found[f"{level.name} B/s"] = run.bandwidth
    found["memory B"] = made.built.memory.capacity
    found["memory B/s"] = made.running.memory.bandwidth
    for net, lanes in zip(made.template.networks or (), made.running.networks, strict=True):
        found[f"{net.name} B/s"] = lanes.bandwidth
    return found


def worth_of_more(made: Made, by: float = 0.01) -> dict[str, dict[str, float]]:
    """What a little more of each budget buys of each result: its relative gain, by the same equations.

    Die area alone takes room from memory beside it; `perimeter` is more edge at equal area.
    """
    base = {name: np.asarray(value, dtype=float) for name, value in results(made).items()}
    found: dict[str, dict[str, float]] = {}
    for name in BUDGETS:
        held = getattr(made.budget, name)
        if held is None and name != "perimeter":
            continue
        held = die_edge(made.budget) if held is None else held
        change: dict[str, Any] = {name: held * (1.0 + by)}
        more = replace(made.budget, **change)
        if name == "die_area":
            more = replace(
                more, node_area=namespace(held, more.node_area).maximum(more.node_area, more.die_area)
            )
        there = results(make(made.technology, more, made.template, made.device, made.links))
        found[name] = {
            key: float(np.asarray(there[key]) / value - 1.0)
            if value > 0
            else float(np.asarray(there[key]) > 0)
            for key, value in base.items()
        }
    return found
