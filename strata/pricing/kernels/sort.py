"""Sorting by the digits of keys: passes over memory, each of which scatters what it reads."""

from __future__ import annotations

from strata.arrays import namespace
from strata.precision import bytes_of
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.lu import SECTOR
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import Price
from strata.workload.scan_ops import Sort

DIGITS = 256.0  # values of the 8 bits of a key that one pass sorts by
TILE_KEYS = 4096.0  # keys a block brings into order before it writes them: 256 threads of 16


def price_sort(op: Sort, device: Device) -> Price:
    r"""Price of a least-significant-digit radix sort of keys with values.

    .. math:: T = p \left(T_0 + \frac{N (2 k + v + w)}{B}\right), \quad
        w = (k + v) + \frac{2 \cdot 32}{4096 / 256}, \quad p = k

    N keys of k bytes with values of v bytes; a pass for each 8 bits of a key (so many as it has bytes) counts
    its digits, then reads keys and values and writes them in runs of 4096 / 256, keys and values apart, each
    of which touches one access of 32 B more than it fills. Lines that fit half of a core's local memory are
    read and written once.

    Merrill & Grimshaw, High Performance and Scalable Radix Sorting, Parallel Process. Lett. 21 (2011). No
    measured rows: of two readings on an H200 (3e7 keys of fp32 and fp64 with 8 B indices, PyTorch 2.11: 1.38
    and 3.12 ms) this is 35 % and 21 % below.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> no = {"name": "s", "module": "s", "inputs": ("a",), "output": "b"}
    >>> op = Sort(length=Extent(3e7), precision="fp32", **no)
    >>> round(float(price_sort(op, device(chip("h200"))).memory_bytes) / 1e9, 2)  # 4 x 3e7 x (16 + 16)
    3.84
    """
    key, value = bytes_of(op.precision), op.value_bytes
    number, capacity = op.elements(), device.chip.compute.sram_capacity
    xp = namespace(number, op.length.size, capacity, value)
    inside = op.length.size * (key + value) <= 0.5 * capacity
    run = TILE_KEYS / DIGITS
    carried = 1.0 * (value > 0.0)
    read = xp.where(inside, key + value, 2.0 * key + value)
    written = key + value + xp.where(inside, 0.0, (1.0 + carried) * SECTOR / run)
    passes = xp.where(inside, 1.0, key)
    once = vector_kernel(number * read, number * written, 0.0, 0.0, device, resident=device.software.resident)
    return once.times(passes)
