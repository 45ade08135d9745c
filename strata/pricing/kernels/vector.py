"""Element-wise and row-wise kernels: bytes against bandwidth, arithmetic beside, and rows that wait for their
own loads.
"""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, namespace
from strata.precision import bytes_of
from strata.pricing.kernels.deepflow_2021 import register_stream
from strata.pricing.kernels.device import Device, kernel_price
from strata.pricing.kernels.dram_access import dram_time, read_fraction, sequential_stream
from strata.pricing.price import Price
from strata.workload.ops import Vector

# Data that is used again is still in the cache while it fills less than KEPT of it, and gone when it fills
# all of it. Measured by reading one tensor of 1 to 75 MB over and over on an H200: 10 TB/s up to 31 MB, the
# rate of DRAM from 50 MB on.
KEPT = 0.6
# share of the shorter of waiting and streaming that the longer does not hide: rows start and end together
EXPOSED = 0.4
# rows a core works on at once in fused kernels: 512 threads each, of the 2048 a core of a GPU holds
ROWS_HELD = 4.0


@dataclass(frozen=True, eq=False, slots=True)
class RowSchedule:
    """How a kernel walks rows, each on one core: what a row waits for, one after the other.

    `trips` to the cache and back in turn, of which `first_trips` fetch the row itself (from DRAM where it
    lies there); `per_core` rows share a core; `reread` bytes are read again by later passes over the rows.
    """

    count: Number
    trips: Number
    first_trips: Number = 1.0
    per_core: Number = ROWS_HELD
    reread: Number = 0.0


def cache_miss_share(footprint: Number, capacity: Number) -> Number:
    r"""Share of data that has left the cache before its next use.

    .. math:: u = \min\left(\max\left(\frac{x / C - \kappa}{1 - \kappa}, 0\right), 1\right)

    bytes touched between two uses x; capacity C; share κ of it that is safe. Caches replace what was used
    longest ago, so that a loop a little larger than they are misses everywhere.

    >>> [round(float(cache_miss_share(x, 50e6)), 2) for x in (25e6, 40e6, 60e6)]
    [0.0, 0.5, 1.0]
    """
    xp = namespace(footprint, capacity)
    return xp.minimum(xp.maximum((footprint / xp.maximum(capacity, 1.0) - KEPT) / (1.0 - KEPT), 0.0), 1.0)


def row_wait(rows: RowSchedule, cold: Number, device: Device) -> tuple[Number, Number]:
    r"""Time that rows wait for their own loads [s], and how many rows a core takes in turn.

    .. math:: \lambda = \nu ((t - f u) L_c + f u L_m), \quad \nu = \max\left(1, \frac{R}{c \, h}\right)

    rows R on c cores that hold h each; t dependent trips a row at cache latency L_c, f of them at DRAM
    latency L_m for the share u that is not in the cache.

    Little, Oper. Res. 9 (1961): throughput is what is in flight over the time it takes.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h200", **{"cache.latency": "200 ns", "memory.latency": "400 ns"}))
    >>> [round(float(row_wait(RowSchedule(r, 3.0), 1.0, d)[0]) * 1e9) for r in (1.0, 528.0, 1056.0)]
    [800, 800, 1600]
    """
    chip = device.chip
    xp = namespace(rows.count, rows.per_core, device.cores)
    turns = xp.maximum(rows.count / (device.cores * rows.per_core), 1.0)
    far = rows.first_trips * cold
    return turns * ((rows.trips - far) * chip.cache.latency + far * chip.memory.latency), turns


def vector_kernel(
    bytes_read: Number,
    bytes_written: Number,
    flop: Number,
    special: Number,
    device: Device,
    *,
    resident: bool = False,
    rows: RowSchedule | None = None,
    footprint: Number | None = None,
    read_share: Number | None = None,
    efficiency: Number = 1.0,
) -> Price:
    r"""Price of a streaming kernel.

    .. math:: T = T_0 + u T_u + \max\left(T_c, \lambda + \nu o,
        \max(T_b, \lambda) + \epsilon \min(T_b, \lambda)\right), \quad
        T_b = \max\left(\frac{r + w + a}{B_c}, \frac{u (r + w + m a)}{B}\right)

    floor T_0, and T_u more where the share u of the data comes from DRAM (`cache_miss_share` of the footprint
    where `resident`, else all of it); arithmetic T_c of the whole chip; rows that wait λ in ν turns
    (`row_wait`), each with its own work o on one core; bytes read r, written w, and a read again, of which
    the rows in flight have pushed the share m out of the cache, at the cache's bandwidth B_c and DRAM's of
    streams B; ε of the shorter of the two shows. `read_share`: r / (r + w); `efficiency`: of the vector peak.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d, rows = device(chip("h200")), {r: RowSchedule(r, 17.0, 8.0) for r in (1.0, 528.0)}
    >>> few, many = (vector_kernel(r * 8192, r * 8192, 0.0, 0.0, d, rows=w).time for r, w in rows.items())
    >>> assert few < many < 2 * few  # a row alone waits as long as 528 side by side
    """
    chip, moved, stream = device.chip, bytes_read + bytes_written, device.chip.memory.stream_efficiency
    if chip.kernel_model == "deepflow-2021":
        return register_stream(moved, flop, device)
    xp = namespace(moved, flop, device.bandwidth, device.stream_bandwidth, stream, efficiency)
    touched = moved if footprint is None else footprint
    cold = cache_miss_share(touched, device.cache_capacity) if resident else 1.0
    dram, arithmetic = cold * moved, flop / chip.compute.vector_rate
    lower = xp.maximum(arithmetic, dram / chip.memory.bandwidth)
    busy = xp.maximum(arithmetic / efficiency, special / chip.compute.special_rate)
    if rows is not None:
        wait, busy, again = _walked(rows, cold, busy, bytes_read + 0.5 * bytes_written, device)
        dram, moved = dram + again, moved + rows.reread
    reads = read_fraction(bytes_read, bytes_written) if read_share is None else read_share
    memory = dram_time(device, dram, stream, lambda: sequential_stream(device, reads))
    cache = moved / device.stream_bandwidth
    if rows is not None:
        memory, cache = (xp.maximum(t, wait) + EXPOSED * xp.minimum(t, wait) for t in (memory, cache))
    return kernel_price(
        device,
        compute=busy,
        cache=cache,
        memory=memory,
        moved=moved,
        dram=dram,
        flop=0.0,
        joule=(flop + special) * chip.energy.vector,
        lower=lower,
        floor=chip.overhead.stream + cold * chip.overhead.cold,
    )


def _walked(
    rows: RowSchedule, cold: Number, busy: Number, row_bytes: Number, device: Device
) -> tuple[Number, Number, Number]:
    """Time that rows wait, time of the cores with their own work behind it [s], and bytes read from DRAM
    again.
    """
    wait, turns = row_wait(rows, cold, device)
    share = 1.0 / rows.count
    xp = namespace(row_bytes, busy, wait, share, device.cores)
    in_flight = xp.minimum(1.0, device.cores * rows.per_core * share) * row_bytes
    again = cold * rows.reread * cache_miss_share(in_flight, device.cache_capacity)
    return wait, xp.maximum(busy, wait + turns * share * device.cores * busy), again


def price_vector(op: Vector, device: Device) -> Price:
    """Price of a vector op of a graph: one fused kernel, or its pieces, each of which reads and writes every
    element.
    """
    elements, resident, fused = op.elements(), device.software.resident, device.software.fused
    size = elements * bytes_of(op.precision)
    rows = None if op.trips is None else RowSchedule(op.m.size, op.trips)
    flop, special = elements * op.flop_per_element, elements * op.special_per_element
    share = read_fraction(op.reads, op.writes)
    whole = vector_kernel(
        size * op.reads,
        size * op.writes,
        flop,
        special,
        device,
        resident=resident,
        rows=rows,
        read_share=share,
    )
    if op.pieces == 1.0 or (fused.__class__ is float and fused == 1.0):
        return whole
    pieces = op.pieces
    piece = vector_kernel(
        size, size, flop / pieces, special / pieces, device, resident=resident, read_share=0.5
    )
    return whole.times(fused) + piece.times(pieces * (1.0 - fused))
