"""Bounds on power, heat and clock of any design of a box, and what limits on them leave of its speed.

Power is energy over time. A design whose power is limited is no quicker than its least energy allows: the
chip that bounds its box is held to the same limit (`held_to`). Power itself is least where a design takes
longest: the least energy of any design of the box, over the time of its poorest one at the highest clock. A
design that runs slower than that is held by its own limits, and close to them (`least_when_slowed`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, has_axes, map_leaves, register_pytree
from strata.base.errors import BadValue
from strata.case import Case
from strata.hardware.chip import Chip
from strata.hardware.dram.channel import refresh_left
from strata.hardware.dram.stack import connected_layers
from strata.hardware.fabric import Fabric
from strata.hardware.making import cost_rate
from strata.hardware.money import HOUR, Economics, host_power
from strata.hardware.system import System
from strata.hardware.thermal.compact import ThermalModel, heat_of, leakage
from strata.pricing.power_cap import LEAST, power_capped, voltage_energy
from strata.pricing.power_limits import power_limits, settled_power, static_power_of
from strata.pricing.price import Price
from strata.pricing.step import Step
from strata.search.relax import Boxes, least_idle_power, relaxed_axes
from strata.search.space import Space
from strata.software.engine import has_host_time

# metrics that follow from power and heat: the fourth is as high as possible, the others are as low
POWER_METRICS = ("device_power", "power", "temperature", "clock", "cost_per_device_hour")
# A design that slows down holds its limit to a step of the clock: 0.04 % of the highest, 0.6 % of the power
# at the lowest.
NEAR_LIMIT = 1.0 - 1e-2
LAYERS, CONNECTED = "chip.stack.layers", "chip.stack.connected_layers"
SHAPING_FIELDS = ("chip.stack.", "chip.cooling.", "chip.package.die_area")


@dataclass(frozen=True, kw_only=True)
class PowerCeiling:
    """What a goal limits: power of a device [W], and temperature of its dies [K]."""

    power: float = np.inf
    temperature: float = np.inf


def ceiling_of(limits: Mapping[str, tuple[float, float]], case: Case, links: Fabric) -> PowerCeiling:
    r"""What the limits of a goal let a device of a case draw, and how hot they let it be.

    .. math:: P_d \le \frac{P / N - h(0)}{1 + h(1) - h(0)}

    power P of N devices with h beside each, linear in theirs (`host_power`). Power is a mean over steps and
    over the host's time; only where a run is one step without any does a limit of it hold for the kernels.
    """
    none = (-np.inf, np.inf)
    hottest, engine = limits.get("temperature", none)[1], case.engine
    if has_host_time(engine) or case.workload.phase == "serve":
        return PowerCeiling(temperature=hottest)
    rest, one = (float(np.max(sum(host_power(links, case.economics, watts)))) for watts in (0.0, 1.0))
    device = (limits.get("power", none)[1] / float(case.system.devices) - rest) / (1.0 + one - rest)
    return PowerCeiling(power=min(device, limits.get("device_power", none)[1]), temperature=hottest)


def held_to(ceiling: PowerCeiling, chip: Chip, cheap: Chip, heat: ThermalModel | None, warm: bool) -> Chip:
    """The chip that bounds a box, at limits of a goal beside its own.

    `warm`, and with power free, the limit of logic is met exactly (`power_limits`). Else a chip may leak no
    more than at the coolant's temperature, which no design undercuts, and heat leaves it as in `heat`.
    """
    if not np.isfinite(min(ceiling.power, ceiling.temperature)):
        return chip
    if warm and not np.isfinite(ceiling.power):
        own = chip.heat
        if own is None:
            return chip
        limit = _lower(own.logic_limit, ceiling.temperature, own.ambient)
        return replace(chip, heat=replace(own, logic_limit=limit))
    watts = np.minimum(chip.energy.power_limit, max(ceiling.power, 1e-3) / chip.energy.held)
    static, layer = _static_of(chip, cheap)
    energy = replace(chip.energy, static_power=static, layer_power=layer, power_limit=watts)
    if heat is not None:
        heat = replace(
            heat,
            leakage_share=0.0,
            refresh_limit=1e9,
            logic_limit=_lower(heat.logic_limit, ceiling.temperature, heat.ambient),
            dram_limit=_lower(heat.dram_limit, ceiling.temperature, heat.ambient),
        )
    return replace(chip, energy=energy, heat=heat)


def _lower(limit: Number, ceiling: float, ambient: Number) -> Number:
    """The lower of two limits of temperature, above the coolant."""
    return np.maximum(np.minimum(limit, ceiling), ambient + 1e-3)


def _static_of(chip: Chip, cheap: Chip) -> tuple[Number, Number | None]:
    """Power at rest of logic as cold as its coolant, and of a layer so that all layers of a chip take what
    those of the cheapest do [W].
    """
    each = cheap.energy.layer_power
    if each is None or cheap.stack is None or chip.stack is None:
        return least_idle_power(cheap), each
    layers = cheap.stack.layers * each
    return least_idle_power(cheap) - layers, layers / chip.stack.layers


def box_heat(space: Space, boxes: Boxes, which: np.ndarray, chip: Chip) -> ThermalModel | None:
    r"""Resistances no stack of a box undercuts; None where its stacks differ in more than layers.

    .. math:: \max_i \sum_k R_{ik} P_k \ge \sum_k \min_g R_{i_g k} P_k

    of every stack g one of its cells i_g, that which logic warms most; all DRAM as the best of its layers.
    """
    heat, stack, cooling = chip.heat, chip.stack, chip.cooling
    shaping = [
        (k, f)
        for k, i in enumerate(relaxed_axes(space))
        for f in space.axes[i].fields
        if f.startswith(SHAPING_FIELDS)
    ]
    kinds = {space.axes[relaxed_axes(space)[k]].kind for k, _ in shaping}
    if heat is None or stack is None or cooling is None or tied_geometry(space):
        return None
    if not kinds <= {"number"} or not {f for _, f in shaping} <= {LAYERS, CONNECTED}:
        return None
    places = sorted({k for k, _ in shaping})
    axes = [space.axes[relaxed_axes(space)[k]] for k in places]
    every = np.array(list(itertools.product(*(range(len(a)) for a in axes))), np.int64)
    low, high = boxes.low[which][:, None, places], boxes.high[which][:, None, places]
    inside = np.all((every[None] >= low) & (every[None] <= high), axis=2)
    chosen = {f: np.array(axes[places.index(k)].values, float)[every[:, places.index(k)]] for k, f in shaping}

    def spread(tree: Any) -> Any:
        return map_leaves(lambda v: v[:, None] if has_axes(v) else v, tree)

    wide = spread(stack)
    wide = replace(wide, layers=chosen.get(LAYERS, wide.layers))
    wide = replace(wide, connected_layers=chosen.get(CONNECTED, wide.connected_layers))
    wide = replace(wide, connected_layers=np.minimum(connected_layers(wide), wide.layers))
    try:
        found = heat_of(wide, spread(cooling), spread(chip.package.die_area))
    except BadValue:  # none has room, or there are too many
        return None
    idle = np.broadcast_to(wide.connected_layers < wide.layers, inside.shape)
    logic, dram = (_least_row(rows, inside, idle) for rows in (found.logic, found.dram))
    return replace(heat, logic=(logic,), dram=(dram,))


def tied_geometry(space: Space) -> bool:
    """Whether a tie of a space makes the shape of a stack follow its axes."""
    return any(t.field.startswith(SHAPING_FIELDS) for t in space.ties)


def _least_row(rows: Any, inside: np.ndarray, idle: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of many stacks [boxes, stacks] a row of resistances that none inside its box undercuts."""
    table = np.stack([np.stack([np.broadcast_to(r, inside.shape) for r in row]) for row in rows])
    hottest = np.take_along_axis(table, table[:, :1].argmax(axis=0)[None], axis=0)[0]
    joined = np.where(idle, np.minimum(hottest[1], hottest[2]), hottest[1])
    own, other = (np.where(inside, r, np.inf).min(axis=1) for r in (hottest[0], joined))
    return own, other, other


def longest_refresh(chip: Chip) -> Number:
    """How much longer a step takes at most because hot DRAM is refreshed twice as often."""
    heat, stack = chip.heat, chip.stack
    if heat is None or stack is None or stack.dram is None:
        return 1.0
    longer = refresh_left(stack.dram.timing, 0.0) / refresh_left(stack.dram.timing, 1.0)
    return np.where(heat.dram_limit > heat.refresh_limit, np.maximum(longer, 1.0), 1.0)


def uncapped_chip(chip: Chip) -> Chip:
    """A chip without limits of power and heat, whose cores are counted already."""
    return replace(chip, energy=replace(chip.energy, power_limit=np.inf), heat=None, cores_fit=None)


def least_when_slowed(cheap: Chip, dear: Chip) -> Number:
    r"""The least power, beside that at rest, of a design of one geometry that its own limits slow down [W].

    .. math:: P \ge \min_b \frac{r_b}{\max(w_{c,b}, w_{m,b})}

    Limits of the cheapest chip with the most power at rest: a design that slows down meets one of them.
    """
    energy = replace(cheap.energy, static_power=dear.energy.static_power, layer_power=dear.energy.layer_power)
    least: Number = np.inf
    for limit in power_limits(replace(cheap, energy=energy, stack=dear.stack)):
        least = np.minimum(least, limit.room / np.maximum(limit.core, limit.memory))
    return NEAR_LIMIT * np.maximum(least, 0.0)


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class BoxChips:
    """Chips of boxes: the one that bounds them, the cheapest system, and how heat leaves at best."""

    best: Chip
    cheap: System
    heat: ThermalModel | None
    slowed: Number  # `least_when_slowed`; 0: not known

    @property
    def calm(self) -> Chip:
        """A chip with the least power at rest and the best way for heat to leave."""
        static, layer = _static_of(self.best, self.cheap.chip)
        if self.heat is not None:
            static = self.cheap.chip.energy.static_power  # of it, what leaks follows temperature
        energy = replace(self.best.energy, static_power=static, layer_power=layer)
        return replace(self.best, energy=energy, heat=self.heat)


def power_bounds(
    chips: BoxChips, steps: Sequence[Step], longest: Sequence[Number] | None, money: Economics
) -> dict[str, Number]:
    r"""The least power and temperature, and the highest clock, of any design of a box.

    .. math:: P \ge P_0 + \min\left(\frac{E_c + E_f}{T}, \max\left(\frac{\phi (E_c v(\phi)^2 + E_f)}{T},
        P_s\right)\right)

    least energies E of relaxed steps, at the highest clock or at the lowest φ; `longest` times T of the
    poorest design at the highest clock, none: no end is known; P_s of designs that slow down (`slowed`).
    """
    calm, best = chips.calm, chips.best
    device: Number = np.inf
    hottest: Number = -np.inf
    share: Number = 1.0
    for k, step in enumerate(steps):
        time = np.inf if longest is None else longest[k]
        memory, link = step.price.memory_bytes * best.energy.memory, step.price.link_energy
        core = (step.price.energy - memory - link) / voltage_energy(step.clock, best.energy.voltage_slope)
        slow = core * voltage_energy(LEAST, best.energy.voltage_slope)
        full, least = (
            ((core + link) / time, memory / time),
            ((slow + link) * LEAST / time, memory * LEAST / time),
        )
        rest, *warm = settled_power(calm, *full)  # and the temperatures of logic and DRAM
        rest_slow, *cool = settled_power(calm, *least)
        slowed = np.maximum(sum(least), chips.slowed)
        device = np.minimum(device, np.minimum(rest + sum(full), rest_slow + slowed))
        held = np.maximum(np.maximum(cool[0], cool[1]), _at_rest_and(calm, chips.slowed))
        hottest = np.maximum(hottest, np.minimum(np.maximum(warm[0], warm[1]), held))
        if longest is not None:
            load = Price(
                time=time,
                compute=time,
                energy=core + memory + link,
                memory_bytes=step.price.memory_bytes,
                link_energy=link,
            )
            share = power_capped(load, best).share
    system = chips.cheap
    power = system.devices * (device + sum(host_power(system.fabric, money, device)))
    return {
        "device_power": device,
        "power": power,
        "temperature": hottest if chips.heat is not None or system.chip.heat is None else 0.0,
        "clock": share * best.compute.max_clock,
        "cost_per_device_hour": cost_rate(system, money, power) / system.devices * HOUR,
    }


def _at_rest_and(chip: Chip, power: Number) -> Number:
    """Temperature of a chip at rest with some power more, wherever that warms it least [K]."""
    heat, rest = chip.heat, static_power_of(chip)
    if heat is None:
        return np.nan
    leaks = leakage(rest.leaking, heat.ambient, heat.leakage_temperature, heat.leakage_doubling)
    found: Number = heat.ambient
    for logic, joined, idle in (*heat.logic, *heat.dram):
        rise = logic * (rest.logic + leaks) + joined * rest.connected + idle * rest.idle
        found = np.maximum(found, heat.ambient + rise + np.minimum(logic, joined) * power)
    return found
