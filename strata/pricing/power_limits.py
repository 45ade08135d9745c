"""What bounds a chip's power: its limit, and the temperatures of its dies, as weights of two powers and the
room for their sum.

Leakage follows temperature, and temperature leakage. Between the coolant and the highest temperature that
logic can have while a limit holds, leakage is taken by its chord, which lies above it and meets it there:
then all limits are linear in the powers of a load, hold where they bind, and err on the safe side elsewhere.

`READINGS`: what follows from a chip alone, the power that its heat allows among it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from strata.base.arrays import Number, namespace
from strata.base.records import Infeasible
from strata.hardware.chip import Chip
from strata.hardware.dram.channel import Stream, sustained_channel
from strata.hardware.dram.stack import (
    channel_in_stack,
    dram_of,
    stack_bandwidth,
    stack_banks,
    stack_channels,
)
from strata.hardware.making import cost_of
from strata.hardware.thermal.compact import ThermalModel, hottest, junction, leakage, settled_temperature
from strata.mapping.rules import LIMITS
from strata.pricing.kernels.device import device
from strata.pricing.kernels.traffic import dram_bandwidth, sequential_stream, stream_ceilings

if TYPE_CHECKING:
    from strata.pricing.step import Step


@dataclass(frozen=True, eq=False, slots=True)
class PowerLimit:
    r"""A bound on the powers of a load.

    .. math:: w_c P_c + w_m P_m \le r

    power of cores, caches and links P_c and of DRAM P_m [W], both without what flows at rest.
    """

    core: Number
    memory: Number
    room: Number


@dataclass(frozen=True, eq=False, slots=True)
class StaticPower:
    """Powers that flow whatever the load [W]."""

    logic: Number  # without leakage
    leaking: Number
    connected: Number  # DRAM that is connected, and layers that are not
    idle: Number

    @property
    def dram(self) -> Number:
        return self.connected + self.idle


def static_power_of(chip: Chip) -> StaticPower:
    """Where static power flows: what leaks follows temperature; every DRAM layer has its own."""
    share = 0.0 if chip.heat is None else chip.heat.leakage_share
    static = chip.energy.static_power
    each, stack = chip.energy.layer_power, chip.stack
    logic, leaking = static * (1.0 - share), static * share
    if each is None or stack is None:
        return StaticPower(logic, leaking, 0.0, 0.0)
    connected = stack.layers
    if stack.connected_layers is not None:
        connected = namespace(connected).minimum(connected, stack.connected_layers)
    return StaticPower(logic, leaking, connected * each, (stack.layers - connected) * each)


def power_limits(chip: Chip, briefly: bool = False) -> tuple[PowerLimit, ...]:
    """Every limit, at the power that is held; `briefly` more (`energy.burst`), and no heat builds up."""
    allowed = chip.energy.power_limit * (chip.energy.burst if briefly else chip.energy.held)
    rest = static_power_of(chip)
    if chip.heat is None or briefly:
        return (PowerLimit(1.0, 1.0, allowed - rest.logic - rest.leaking - rest.dram),)
    return tuple(_with_heat(chip.heat, rest, allowed))


def leakage_chord(heat: ThermalModel, leaking: Number, end: Number) -> tuple[Number, Number]:
    r"""Leakage at the coolant's temperature [W], and how much the chord to a higher temperature rises [W/K].

    .. math:: L(T) \le L(T_0) + \frac{L(T_e) - L(T_0)}{T_e - T_0} (T - T_0)

    Leakage is convex in temperature, so its chord lies above it between the coolant T_0 and its end T_e.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> of = {"ambient": 308.0, "leakage_temperature": 358.0, "leakage_doubling": 25.0}
    >>> heat = replace(chip("stack-ref").heat, **of)
    >>> [round(v, 4) for v in leakage_chord(heat, 10.0, 378.0)]
    [2.5, 0.213]
    """
    low, high = (
        leakage(leaking, t, heat.leakage_temperature, heat.leakage_doubling) for t in (heat.ambient, end)
    )
    return low, (high - low) / (end - heat.ambient)


def _with_heat(heat: ThermalModel, rest: StaticPower, allowed: Number) -> list[PowerLimit]:
    """Power, the temperature of logic and that of DRAM, for each cell of logic that can be hottest.

    A cell's rise t over the coolant makes logic leak c t more: of t = r (P + c t) + ... follows t = g (r P +
    ...), g = 1 / (1 - r c). Where r c reaches 1 heat runs away at any power, and nothing holds.
    """
    ends = (heat.logic_limit, _at_power(heat, allowed), _beside_dram(heat))
    every = []
    for row in heat.logic:
        for end, bounds in zip(ends, (_of_logic, _of_power, _of_dram), strict=True):
            low, slope = leakage_chord(heat, rest.leaking, end)
            xp = namespace(row[0], row[1], slope, allowed)
            runs_away = row[0] * slope >= 1.0
            gain = 1.0 / xp.where(runs_away, 1.0, 1.0 - row[0] * slope)
            base = rest.logic + low
            offset = gain * (row[0] * base + row[1] * rest.connected + row[2] * rest.idle)
            cell = _Cell(gain * row[0], gain * row[1], offset, slope, base)
            for bound in bounds(heat, rest, allowed, cell):
                room = namespace(bound.room, runs_away).where(runs_away, -1.0, bound.room)
                every.append(PowerLimit(bound.core, bound.memory, room))
    return every


@dataclass(frozen=True, eq=False, slots=True)
class _Cell:
    """A cell of logic."""

    core: Number  # rise for a watt of cores, and of DRAM [K/W]
    memory: Number
    offset: Number  # rise at rest, without a load [K]
    slope: Number  # leakage a kelvin [W/K]
    base: Number  # power of logic at the coolant's temperature [W]


def _of_logic(heat: ThermalModel, rest: StaticPower, allowed: Number, cell: _Cell) -> list[PowerLimit]:
    return [PowerLimit(cell.core, cell.memory, heat.logic_limit - heat.ambient - cell.offset)]


def _of_power(heat: ThermalModel, rest: StaticPower, allowed: Number, cell: _Cell) -> list[PowerLimit]:
    room = allowed - cell.base - rest.dram - cell.slope * cell.offset
    return [PowerLimit(1.0 + cell.slope * cell.core, 1.0 + cell.slope * cell.memory, room)]


def _of_dram(heat: ThermalModel, rest: StaticPower, allowed: Number, cell: _Cell) -> list[PowerLimit]:
    bounds = []
    for own, joined, other in heat.dram:
        fixed = own * (cell.base + cell.slope * cell.offset) + joined * rest.connected + other * rest.idle
        more = own * cell.slope
        room = heat.dram_limit - heat.ambient - fixed
        bounds.append(PowerLimit(own + more * cell.core, joined + more * cell.memory, room))
    return bounds


def _at_power(heat: ThermalModel, allowed: Number) -> Number:
    """The highest temperature of logic within its limits, all power in the worst place [K]."""
    every = [r for row in heat.logic for r in row]
    xp = namespace(heat.ambient, allowed, heat.logic_limit, *every)
    worst = reduce(xp.maximum, every)
    return xp.minimum(heat.logic_limit, heat.ambient + worst * allowed)


def _beside_dram(heat: ThermalModel) -> Number:
    """The highest temperature logic can have while DRAM keeps its limit [K].

    Whatever the powers, logic's rise is at most the largest ratio of their resistances times DRAM's.
    """
    xp = namespace(heat.dram_limit, heat.logic_limit, *(r for row in (*heat.logic, *heat.dram) for r in row))
    ratio: Number = 1.0
    for row in heat.logic:
        for below in heat.dram:
            for r, q in zip(row, below, strict=True):
                ratio = xp.maximum(ratio, r / xp.where(q > 0.0, q, 1.0))
    return xp.minimum(heat.logic_limit, heat.ambient + ratio * (heat.dram_limit - heat.ambient))


def settled_power(chip: Chip, core: Number, memory: Number) -> tuple[Number, Number, Number]:
    """What flows at rest beside a load's powers [W], and the temperatures of logic and of DRAM [K]; inf where
    nothing holds them.

    Chips without a description of their cooling have no temperatures: nan.
    """
    rest = static_power_of(chip)
    heat = chip.heat
    if heat is None:
        return rest.logic + rest.leaking + rest.dram, float("nan"), float("nan")
    logic, leaks = settled_temperature(
        heat, rest.logic + core, rest.leaking, rest.connected + memory, rest.idle
    )
    dram = hottest(heat.ambient, heat.dram, (rest.logic + core + leaks, rest.connected + memory, rest.idle))
    dram = namespace(logic, dram).where(logic < float("inf"), dram, float("inf"))
    return rest.logic + leaks + rest.dram, logic, dram


def dissipated(chip: Chip, step: Step) -> tuple[Number, Number, Number]:
    """Power of a step's device by where it arises [W]: logic with its leakage, connected DRAM, idle DRAM.

    >>> import strata as st
    >>> found = st.evaluate("8xstack-ref", "llama-3-8b", st.decode(8, 1024), "tp=8")
    >>> device = found.metrics.device_power
    >>> bool(abs(sum(dissipated(found.system.chip, found.steps[0])) / device - 1.0) < 1e-9)
    True
    """
    rest = static_power_of(chip)
    memory = step.price.memory_bytes * chip.energy.memory / step.time
    core = step.price.energy / step.time - memory
    return core + step.static - rest.dram, rest.connected + memory, rest.idle


def over_limits(chip: Chip, steps: Sequence[Step]) -> Infeasible:
    """Which limit a single point passes at its lowest clock, and how far: a die's, or the power's."""
    rest, heat = static_power_of(chip), chip.heat
    worst = max(steps, key=lambda s: float(s.price.energy) / float(s.time))
    memory = float(worst.price.memory_bytes * chip.energy.memory / worst.time)
    core = float(worst.price.energy / worst.time) - memory
    if heat is None:
        drawn, limit = float(worst.static) + core + memory, float(chip.energy.power_limit)
        return Infeasible(LIMITS.relation, drawn, limit, "W", LIMITS.levers)
    leaks = leakage(rest.leaking, heat.logic_limit, heat.leakage_temperature, heat.leakage_doubling)
    logic, dram = junction(heat, rest.logic + leaks + core, rest.connected + memory, rest.idle)
    over = {"logic": (float(logic), float(heat.logic_limit)), "DRAM": (float(dram), float(heat.dram_limit))}
    name = max(over, key=lambda die: over[die][0] - over[die][1])
    return Infeasible(
        f"temperature of {name} at the lowest clock must keep its limit", *over[name], "K", LIMITS.levers
    )


def sustained_bandwidth(chip: Chip) -> Number:
    """DRAM bandwidth that cores reading long runs get [B/s], local memories and their ports counted."""
    whole = device(chip)
    return dram_bandwidth(whole, chip.memory.efficiency, lambda: sequential_stream(whole, 1.0))


def bandwidth_bounds(chip: Chip, run: Number | None = None, read_share: Number = 1.0) -> dict[str, Number]:
    """Every bound on what a stream of `run` bytes (whole rows when left out) gets of a stack [B/s]: the peak
    of its bonds, what banks leave of it for this stream, what cores can take. {} where no banks are
    described.

    >>> from strata.hardware.chip import chip
    >>> bounds = bandwidth_bounds(chip("stack-ref"))
    >>> min(bounds, key=bounds.get), min(bounds.values()) >= sustained_bandwidth(chip("stack-ref"))
    ('interface', True)
    """
    dram = None if chip.stack is None else dram_of(chip.stack)
    if chip.stack is None or dram is None:
        return {}
    channel = channel_in_stack(chip.stack, dram)
    stream = Stream(
        run=channel.row if run is None else run, read_share=read_share, banks=stack_banks(chip.stack, dram)
    )
    each = sustained_channel(channel, stream).bounds
    count = stack_channels(chip.stack)
    return {
        "peak": stack_bandwidth(chip.stack),
        **{name: bound * count for name, bound in each.items()},
        **stream_ceilings(chip, channel),
    }


def memory_power(chip: Chip) -> Number:
    """Power of DRAM at that bandwidth [W], without what flows at rest."""
    return sustained_bandwidth(chip) * chip.energy.memory


def allowed_power(chip: Chip) -> Number | None:
    """The most a device may draw by its temperatures, DRAM read at full speed [W]; None without a cooling."""
    if chip.heat is None:
        return None
    reads, rest = memory_power(chip), static_power_of(chip)
    least = None
    free = replace(chip, energy=replace(chip.energy, power_limit=1e9 + 0.0 * chip.energy.power_limit))
    for bound in power_limits(free):
        xp = namespace(bound.core, bound.room, reads)
        core = xp.maximum(bound.room - bound.memory * reads, 0.0) / bound.core
        least = core if least is None else xp.minimum(least, core)
    assert least is not None
    return least + reads + rest.logic + rest.leaking + rest.dram


def temperature_at_limit(chip: Chip) -> Number | None:
    """Hottest DRAM at the whole power limit, DRAM read at full speed [K]; None without a cooling."""
    if chip.heat is None:
        return None
    reads, rest = memory_power(chip), static_power_of(chip)
    xp = namespace(reads, chip.energy.power_limit)
    logic = xp.maximum(chip.energy.power_limit - reads - rest.dram, 0.0)
    return junction(chip.heat, logic, rest.connected + reads, rest.idle)[1]


def made_cost(chip: Chip) -> Number | None:
    """What a packaged chip costs to make [USD]; None where nothing says how it is made."""
    return None if chip.silicon is None else cost_of(chip, chip.silicon).made


READINGS: dict[str, Callable[[Chip], Number | None]] = {
    "sustained_bandwidth": sustained_bandwidth,
    "memory_power": memory_power,
    "allowed_power": allowed_power,
    "temperature_at_limit": temperature_at_limit,
    "made_cost": made_cost,
}
