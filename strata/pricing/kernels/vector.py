"""Element-wise and row-wise kernels: bytes, arithmetic, rows that wait; ops that state their own work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strata.base.arrays import Number, namespace
from strata.base.precision import bytes_of
from strata.base.shipped import paper_model
from strata.pricing.kernels.device import Device, kernel_price
from strata.pricing.kernels.traffic import RequestStream, dram_time, read_fraction, sequential_stream
from strata.pricing.price import ZERO, Price
from strata.workload.custom_ops import CustomOp
from strata.workload.ops import CrossEntropy, EagerKernels, Vector

# Data that is used again is still in the cache while it fills less than KEPT of it, and gone when it fills
# all of it. Measured by reading one tensor of 1 to 75 MB over and over on an H200: 10 TB/s up to 31 MB, the
# rate of DRAM from 50 MB on.
KEPT = 0.6
# share of the shorter of waiting and streaming that the longer does not hide: rows start and end together
EXPOSED = 0.4
# rows a core works on at once in fused kernels: 512 threads each, of the 2048 a core of a GPU holds
ROWS_HELD = 4.0
ROWS_EAGER = 2.0  # of a softmax in kernels of PyTorch: 1024 threads each
SLOT_FLOP = 2.0  # an issue slot could have been a multiply-add, which peaks count as two
# Issue slots of a vector lane for an element that a kernel addresses by itself: index work with divisions,
# one element a load. PyTorch 2.11 on an H200, profiled: 3.4e11 elements/s of products with strides and of
# logits widened to fp32, where streams of that size are three times as fast.
SINGLE_SLOTS = 98.0


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
    if chip.kernel_model and (priced := paper_model("stream models", chip.kernel_model)):
        return priced(moved, flop, device)
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
        joule=(flop + special) * chip.energy.vector,
        lower=lower,
        floor=chip.overhead.stream + cold * chip.overhead.cold,
    )


def scattered_rows(
    device: Device,
    moved: Number,
    flop: Number,
    efficiency: Number,
    requests: Callable[[], RequestStream],
    *,
    floor: Number,
    exposed: Number = 0.0,
) -> Price:
    """Price of rows at addresses of their own, each a short stream of DRAM, with vector work beside them."""
    chip = device.chip
    return kernel_price(
        device,
        compute=flop / chip.compute.vector_rate,
        memory=dram_time(device, moved, efficiency, requests),
        moved=moved,
        dram=moved,
        joule=flop * chip.energy.vector,
        lower=moved / chip.memory.bandwidth,
        floor=floor,
        exposed=exposed,
    )


def _walked(
    rows: RowSchedule, cold: Number, busy: Number, row_bytes: Number, device: Device
) -> tuple[Number, Number, Number]:
    """Time that rows wait, that of the cores with their work behind it [s], bytes read from DRAM again."""
    wait, turns = row_wait(rows, cold, device)
    share = 1.0 / rows.count
    xp = namespace(row_bytes, busy, wait, share, device.cores)
    in_flight = xp.minimum(1.0, device.cores * rows.per_core * share) * row_bytes
    again = cold * rows.reread * cache_miss_share(in_flight, device.cache_capacity)
    return wait, xp.maximum(busy, wait + turns * share * device.cores * busy), again


def price_vector(op: Vector, device: Device) -> Price:
    """Price of a vector op: one fused kernel, or its pieces, each of which reads and writes every element."""
    elements, resident, fused = op.elements(), device.software.resident, device.software.fused
    size = elements * bytes_of(op.precision)
    rows = None if op.trips is None else RowSchedule(op.m.size, op.trips)
    flop, special = elements * op.flop_per_element, elements * op.special_per_element
    share = read_fraction(op.reads, op.writes)
    read, written = size * op.reads, size * op.writes
    whole = vector_kernel(
        read, written, flop, special, device, resident=resident, rows=rows, read_share=share
    )
    if device.software.trains and op.eager is not None:
        if fused.__class__ is float and fused == 1.0:
            return whole
        return whole.times(fused) + eager_price(op, op.eager, device).times(1.0 - fused)
    if op.pieces == 1.0 or (fused.__class__ is float and fused == 1.0):
        return whole
    pieces = op.pieces
    piece = vector_kernel(
        size, size, flop / pieces, special / pieces, device, resident=resident, read_share=0.5
    )
    return whole.times(fused) + piece.times(pieces * (1.0 - fused))


def vector_kernels(op: Vector, fused: Number) -> Number:
    """Kernels of a vector op of a training step: one where it is fused."""
    apart = op.pieces if op.eager is None else op.eager.count
    return fused + apart * (1.0 - fused)


def eager_price(op: Vector, kernels: EagerKernels, device: Device) -> Price:
    r"""Price of an element-wise op of a training step whose parts are kernels of their own.

    .. math:: T = n_s T_{stream}\left(\frac{b e m}{n_s}\right)
        + n_1 \max\left(T_{stream}\left(\frac{2 b e p}{n_1}\right), \frac{2 \sigma e p}{n_1 R_v}\right)

    e elements of b bytes; n_s kernels that move m elements together for each, as streams; n_1 kernels that
    make p passes over elements addressed one by one, with σ issue slots each for their index work, at two
    operations a slot of the vector rate R_v.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> of = {"name": "v", "module": "", "inputs": (), "output": "", "precision": "bf16"}
    >>> of |= {"reads": 1.0, "writes": 1.0, "flop_per_element": 1.0, "special_per_element": 0.0}
    >>> v, d = Vector(m=Extent(4096.0), n=(Extent(4096.0),), **of), device(chip("h200"))
    >>> stream, single = EagerKernels(streams=1.0, moved=2.0), EagerKernels(singles=1.0, passes=1.0)
    >>> 2.0 < eager_price(v, single, d).time / eager_price(v, stream, d).time < 4.0  # as profiled
    True
    """
    elements, resident = op.elements(), device.software.resident
    size = elements * bytes_of(op.precision)
    price = ZERO
    if kernels.streams:
        moved = size * kernels.moved / kernels.streams
        again = size * kernels.reread / kernels.streams
        rows = RowSchedule(op.m.size, 0.0, 0.0, ROWS_EAGER, reread=again) if kernels.reread else None
        flop = elements * op.flop_per_element / kernels.streams
        each = vector_kernel(
            0.5 * moved, 0.5 * moved, flop, 0.0, device, resident=resident, rows=rows, read_share=0.5
        )
        price = price + each.times(kernels.streams)
    if kernels.singles:
        passed = kernels.passes / kernels.singles
        flop = elements * passed * SINGLE_SLOTS * SLOT_FLOP
        single = vector_kernel(
            size * passed, size * passed, flop, 0.0, device, resident=resident, read_share=0.5
        )
        price = price + single.times(kernels.singles)
    return price


def price_loss(op: CrossEntropy, device: Device) -> Price:
    """Price of the loss over logits, or of its gradient: one kernel that reads (and writes) them as they are,
    bound by its instructions or its bytes; or kernels of their own, in fp32.
    """
    software, elements = device.software, op.elements()
    size = elements * bytes_of(op.logits)
    slots = software.loss_slots
    flop = elements * (op.flop_per_element if slots is None else SLOT_FLOP * slots)
    special = elements * op.special_per_element
    written = size if op.backward else 0.0 * size
    share = 0.5 if op.backward else 1.0
    whole = vector_kernel(size, written, flop, special, device, resident=software.resident, read_share=share)
    fused = software.fused_loss
    if op.eager is None or (fused.__class__ is float and fused == 1.0):
        return whole
    return whole.times(fused) + eager_price(op, op.eager, device).times(1.0 - fused)


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
