"""The levels of memory of a chip, from those beside the arithmetic out to DRAM."""

from __future__ import annotations

from strata.base.arrays import Number
from strata.hardware.chip import Chip
from strata.hardware.chip_parts import MemoryLevel

LOCAL, CACHE = "local", "cache"  # names of the levels every chip has, beside DRAM, which has its own


def memory_levels(chip: Chip) -> tuple[MemoryLevel, ...]:
    """Every level of memory, innermost first: those of a matrix unit, a core's local memory, further ones of
    a core, the shared cache, further shared ones, DRAM.

    >>> from strata.hardware.chip import chip
    >>> [(level.name, level.scope) for level in memory_levels(chip("a100-80"))]
    [('registers', 'unit'), ('local', 'bundle'), ('cache', 'global'), ('HBM2e', 'global')]
    """
    compute, cache, memory, energy = chip.compute, chip.cache, chip.memory, chip.energy
    local = MemoryLevel(
        name=LOCAL,
        scope="bundle",
        capacity=compute.cores * compute.sram_capacity,
        bandwidth=compute.cores * compute.sram_bandwidth,
        efficiency=1.0,
        latency=0.0,
        energy=energy.sram,
    )
    shared = MemoryLevel(
        name=CACHE,
        scope="global",
        capacity=cache.capacity,
        bandwidth=cache.bandwidth,
        efficiency=cache.efficiency,
        latency=cache.latency,
        energy=energy.cache,
    )
    dram = MemoryLevel(
        name=memory.kind,
        scope="global",
        capacity=memory.capacity,
        bandwidth=memory.bandwidth,
        efficiency=memory.efficiency,
        latency=memory.latency,
        energy=energy.memory,
    )
    more = chip.levels or ()
    unit, bundle, whole = (
        tuple(level for level in more if level.scope == scope) for scope in ("unit", "bundle", "global")
    )
    return (*unit, local, *bundle, shared, *whole, dram)


def matrix_units(chip: Chip) -> Number:
    """Matrix units of the whole chip: a core is one where its file does not say otherwise.

    >>> from strata.hardware.chip import chip
    >>> matrix_units(chip("a100-80")), matrix_units(chip("tpu-v4")) == chip("tpu-v4").compute.cores
    (432.0, True)
    """
    compute = chip.compute
    return compute.cores * (1.0 if compute.units is None else compute.units)


def scope_capacity(chip: Chip, level: MemoryLevel) -> Number:
    r"""Bytes of a level that one of those who share it has to itself [B].

    .. math:: c = \frac{C}{N}, \quad N = \begin{cases} p \, u & \text{unit} \\ p & \text{bundle} \\
        1 & \text{global} \end{cases}

    capacity C of the whole chip; p cores of u matrix units each.

    DeepFlow (2023), section 4: the scope of a memory level.

    >>> from strata.hardware.chip import chip
    >>> a100 = chip("a100-80")
    >>> [round(float(scope_capacity(a100, level)) / 1024) for level in memory_levels(a100)[:3]]  # KiB
    [64, 192, 40960]
    """
    instances = {"unit": matrix_units(chip), "bundle": chip.compute.cores, "global": 1.0}
    return level.capacity / instances[level.scope]
