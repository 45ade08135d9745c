"""Prefix sums: one pass over memory, and the chain of sums that each element waits for."""

from __future__ import annotations

from strata.arrays import ceil_div, namespace
from strata.precision import bytes_of
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.vector import ROWS_HELD, RowSchedule, vector_kernel
from strata.pricing.price import Price
from strata.workload.scan_ops import Scan

THREADS_HELD = 2048.0  # of one core of a GPU, each of which walks a line of its own
# bytes that a block scans in its registers and local memory: 128 threads with 16 words each, as in CUB
TILE_BYTES = 8192.0
WINDOW = 32.0  # tiles before its own whose sums a group of threads reads in one trip


def price_scan(op: Scan, device: Device) -> Price:
    r"""Price of prefix sums along one axis.

    .. math:: T = T_0 + \max(T_b, \lambda) + \epsilon \min(T_b, \lambda), \quad
        \lambda = \begin{cases}
        \left\lceil \dfrac{o \, i}{2048 \, c} \right\rceil n L & i > 1 \\
        \dfrac{t}{32 \max(1, t_f / t_l)} L_c & i = 1 \end{cases}

    n elements along the axis, o lines of lines and i neighbours of each element that are no part of its line;
    read and written once in T_b. Where i > 1 a thread walks each line, and waits L for every element, DRAM's
    latency or the cache's by the share that is still there; c cores hold 2048 threads each. Where i = 1 tiles
    of 8 KiB add up their own elements at once and look back at the sums of the 32 tiles before them, in one
    trip to the cache (L_c): t tiles in all, t_l of a line, t_f in flight, so that lines are walked side by
    side. ε as in `vector_kernel`.

    Merrill & Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back, NVIDIA NVR-2016-002. PyTorch
    (aten/src/ATen/native/cuda/ScanUtils.cuh) walks outer axes as above; along the last axis of many lines its
    own kernel takes two to three times as long as this (not part of any file; read once on an H200).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> d, no = device(chip("h200")), {"name": "s", "module": "s", "inputs": ("a",), "output": "b"}
    >>> sizes = {"length": Extent(8192.0), "precision": "fp32", **no}
    >>> few, many = (price_scan(Scan(inner=Extent(i), **sizes), d).time for i in (8192.0, 16384.0))
    >>> assert few > 8192 * d.chip.memory.latency and many < 1.1 * few  # a chain of loads
    """
    length, outer, inner = op.length.size, op.outer.size, op.inner.size
    xp = namespace(length, outer, inner, device.cores)
    moved = op.output_bytes()
    strided = inner > 1.0
    held = xp.where(strided, THREADS_HELD, ROWS_HELD)
    tiles = ceil_div(length * bytes_of(op.precision), TILE_BYTES)
    in_flight = device.cores * ROWS_HELD
    looks = outer * tiles / (WINDOW * xp.maximum(in_flight / tiles, 1.0))
    turns = xp.maximum(outer * tiles / in_flight, 1.0)
    # Threads that do not fit the cores start when the first have ended: whole turns.
    lanes = ceil_div(outer * inner, device.cores * held) * device.cores * held
    walked = RowSchedule(
        xp.where(strided, lanes, outer * tiles),
        xp.where(strided, length, xp.maximum(looks / turns, 1.0)),
        xp.where(strided, length, 1.0),
        held,
    )
    return vector_kernel(
        moved, moved, op.vector_flop(), 0.0, device, resident=device.software.resident, rows=walked
    )
