"""Element-wise and row-wise kernels: bytes against bandwidth, with arithmetic and special functions beside."""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.precision import bytes_of
from strata.pricing.device import Device, on_chip
from strata.pricing.price import Price, roofline
from strata.workload.graph import Vector


def vector(bytes_read: Number, bytes_written: Number, flop: Number, special: Number, device: Device, resident: bool = False) -> Price:
    r"""Price of a streaming kernel.

    .. math:: T = \max\left(\frac{r + w}{B}, \frac{f}{V}, \frac{e}{X}\right) + T_0

    bytes read r and written w; f operations at vector rate V; e special functions at rate X; B is the DRAM bandwidth, or
    the cache's where `resident` and the data fits half of it; floor T_0.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.device import device
    >>> d = device(chip("h200"))
    >>> bool(vector(1e6, 1e6, 0.0, 0.0, d, resident=True).time < vector(1e6, 1e6, 0.0, 0.0, d).time)
    True
    """
    chip = device.chip
    moved = bytes_read + bytes_written
    xp = namespace(moved, flop, device.bandwidth, device.cache_bandwidth)
    dram = xp.where(moved > 0.5 * device.cache_capacity, moved, 0.0) if resident else moved
    memory, cache = dram / device.bandwidth, moved / device.cache_bandwidth
    compute = xp.maximum(flop / chip.compute.vector_rate, special / chip.compute.special_rate)
    energy = (flop + special) * chip.energy.vector + moved * on_chip(chip) + dram * chip.energy.memory
    lower = xp.maximum(flop / chip.compute.vector_rate, dram / chip.memory.bandwidth)
    return Price(
        **roofline(chip.overhead.stream, device.launch, compute, cache, memory), lower=lower, memory_bytes=dram, cache_bytes=moved, energy=energy
    )


def price_vector(op: Vector, device: Device) -> Price:
    """Price of a vector op of a graph."""
    elements = op.elements()
    size = bytes_of(op.precision)
    return vector(
        elements * op.reads * size, elements * op.writes * size, elements * op.flop_per_element, elements * op.special_per_element, device, device.resident
    )  # fmt: skip
