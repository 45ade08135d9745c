"""What follows from a chip alone: what its DRAM delivers, how much power its heat allows, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from strata.arrays import Number, namespace
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
from strata.hardware.thermal.compact import junction
from strata.pricing.kernels.device import device
from strata.pricing.kernels.traffic import dram_bandwidth, sequential_stream, stream_ceilings
from strata.pricing.power_limits import power_limits, static_power_of


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
