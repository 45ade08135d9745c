"""Kernels of stated work: operations on one kind of unit against stated bytes."""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.pricing.kernels.device import Device, kernel_price
from strata.pricing.kernels.vector import cache_miss_share, vector_kernel
from strata.pricing.price import Price
from strata.workload.custom_ops import CustomOp


def price_custom(op: CustomOp, device: Device) -> Price:
    r"""Price of a kernel that states its operations and bytes.

    .. math:: T = T_0 + \max\left(\frac{F}{R}, \frac{r + w}{B}\right)

    operations F at the sustained rate R of the matrix or vector units; bytes read r and written w at the
    sustained bandwidth B of what holds them, cache or DRAM; floor T_0 of a kernel. Williams et al., Roofline
    (2009).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> told = {"name": "f", "module": "f", "inputs": ("x",), "output": "f", "precision": "bf16"}
    >>> told |= {"extents": (Extent(1e8),), "bytes_read": 2.0, "bytes_written": 2.0}
    >>> d = device(chip("h200"))
    >>> few, many = (price_custom(CustomOp(flop_per_element=f, **told), d) for f in (1.0, 1e4))
    >>> many.compute > many.memory and few.memory > few.compute
    True
    """
    elements = op.elements()
    read, written, flop = elements * op.bytes_read, elements * op.bytes_written, op.work()
    if op.unit == "vector":
        resident = device.software.resident and not op.streamed
        return vector_kernel(read, written, flop, 0.0, device, resident=resident)
    return _matrix_kernel(op, read + written, flop, device)


def _matrix_kernel(op: CustomOp, moved: Number, flop: Number, device: Device) -> Price:
    """The same on the matrix units; weights of its own come from DRAM whatever the cache holds."""
    unit, chip = device.matrix(op.precision, op.precision), device.chip
    resident = device.software.resident and not op.streamed
    cold = cache_miss_share(moved, device.cache_capacity) if resident else 1.0
    weights = op.weight_bytes()
    xp = namespace(moved, flop, unit.peak, weights)
    dram = xp.maximum(cold * moved, xp.minimum(weights, moved))
    return kernel_price(
        device,
        compute=flop / unit.sustained,
        cache=moved / device.stream_bandwidth,
        memory=dram / device.bandwidth,
        moved=moved,
        dram=dram,
        flop=flop,
        joule=flop * unit.energy,
        lower=xp.maximum(flop / unit.peak, dram / chip.memory.bandwidth),
        floor=device.floor,
    )
