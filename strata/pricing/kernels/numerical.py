"""Kernels of numerical libraries: LU in blocks, Fourier transforms, prefix sums, token states, sorts."""

from __future__ import annotations

import math

from strata.base.arrays import Number, ceil_div, is_traced, namespace
from strata.base.precision import bytes_of
from strata.pricing.kernels.device import Device, kernel_price
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.traffic import PORT_TRIPS, dram_time, product_bound, sequential_stream
from strata.pricing.kernels.vector import ROWS_HELD, RowSchedule, vector_kernel
from strata.pricing.price import Price, total_price
from strata.workload.fft import FftLines
from strata.workload.graph import Extent
from strata.workload.mixer import CHANNEL
from strata.workload.scan_ops import LuFactor, Scan, Sort, StateScan

# Bytes of a column that the threads of one block hold, a word of 4 B each: 512 threads, as the panel kernels
# of cuSOLVER have. What is longer takes more words a thread, then more cores.
GROUP = 2048.0
SECTOR = 32.0  # bytes of the least access of a GPU's DRAM (CUDA C++ Best Practices Guide, coalesced access)
SWAP_TRIPS = 4.0  # a swap reads and writes an element of two rows, which lie a column apart
NODES = 24  # blocks priced one by one; of more blocks, so many evenly spread ones stand for all


def column_steps(order: Number, element: Number, device: Device) -> Number:
    r"""Time of all columns of the panels, one after the other [s].

    .. math:: T_p = n t_c + t_x \int_0^n \left[\log_2 \frac{m b}{g}\right]_+ dm
        = n t_c + t_x \frac{g}{b} \left(X \log_2 X - \frac{X - 1}{\ln 2}\right), \quad
        X = \max\left(\frac{n b}{g}, 1\right)

    n columns of m = n ... 1 elements of b bytes. A column is a search for its largest element, a swap of two
    rows, a division and an update of the panel by one row and one column, in time t_c while a group of
    threads holds it (g bytes); every doubling beyond adds a level to the tree in which they agree, t_x.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h200", **{"overhead.column": "1.6 us", "overhead.pivot": "0.4 us"}))
    >>> [round(float(column_steps(n, 4.0, d)) * 1e6) for n in (512.0, 1024.0)]  # 1024 (1.6 + 0.4 x 0.279)
    [819, 1753]
    """
    overhead = device.chip.overhead
    xp = namespace(order, element)
    groups = xp.maximum(order * element / GROUP, 1.0)
    levels = GROUP / element * (groups * xp.log(groups) - (groups - 1.0)) / math.log(2.0)
    return order * overhead.column + levels * overhead.pivot


def _block_prices(
    op: LuFactor, rows: Number, element: Number, device: Device
) -> tuple[Price, Price, Price, Number]:
    """A block of columns with so many rows left, without its columns: the product for one panel of it, the
    product for what lies right of it, the solves of both with the swaps of rows; and how many panels follow
    another.
    """
    order, name, floor = op.order.size, op.precision, device.chip.overhead.kernel
    xp = namespace(rows, op.block, op.panel, device.cores)
    width = xp.minimum(op.block, rows)
    rest = rows - width
    panels = xp.maximum(width / op.panel - 1.0, 0.0)
    inside = matmul(rows, xp.maximum(0.5 * width, 1.0), op.panel, device, name, name, resident=True)
    right = xp.maximum(rest, 1.0)
    update = matmul(right, right, op.block, device, name, name, resident=True)
    there = 1.0 * (rest > 0.0)
    swapped = width * order * SWAP_TRIPS * xp.maximum(element, SECTOR)
    swaps = vector_kernel(0.5 * swapped, 0.5 * swapped, 0.0, 0.0, device)
    flop = width * width * rest
    # every multiply-add of a triangle's solve brings an element through the core's port, in and out
    port = device.cores * device.chip.compute.sram_bandwidth
    solves = kernel_price(
        device,
        compute=0.5 * PORT_TRIPS * element * width * width * rest / port,
        moved=width * rest * element,
        flop=flop,
        joule=flop * device.matrix(name, name).energy,
        floor=(panels + there) * floor,
    )
    return inside, update.times(there), solves + swaps, panels


def price_lu(op: LuFactor, device: Device) -> Price:
    r"""Price of a factorisation, right-looking: columns of panels, then solves, swaps and products block by
    block.

    .. math::
        T = b \left( T_p + \sum_{i=0}^{\lceil n/w \rceil - 1} \left( \left(\tfrac{w}{p} - 1\right)
        T_g(m_i, \tfrac{w}{2}, p) + T_s + \frac{4 \max(b_e, 32) n w}{B}
        + T_g(m_i - w, m_i - w, w) \right) \right), \quad m_i = n - i w

    `column_steps` T_p; blocks of w columns in panels of p; products T_g (`matmul`); triangular solves T_s:
    w^2 (m_i - w) / 2 multiply-adds, each with an element of b_e bytes through the port of local memory in and
    out; rows swapped over all n columns, each element an access of at least 32 B at DRAM's bandwidth B of
    streams. Blocks are added up one by one; of more than `NODES` of them, as many midpoints.

    Golub & Van Loan, Matrix Computations (2013), sec. 3.2.11 (blocks) and 3.4 (pivots). Shapes of the kernels
    from a profile of cuSOLVER on an H200 at orders 1536 to 20480.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> d, no = device(chip("h200")), {"name": "lu", "module": "lu", "inputs": ("a",), "output": "f"}
    >>> lu = {n: price_lu(LuFactor(order=Extent(n), precision="fp64", **no), d) for n in (1024.0, 2048.0)}
    >>> assert 2 * lu[1024.0].time < lu[2048.0].time < 3 * lu[1024.0].time  # columns, not arithmetic
    """
    order, element = op.order.size, bytes_of(op.precision)
    xp = namespace(order, op.block)
    blocks = ceil_div(order, op.block)
    nodes = xp.minimum(blocks, float(NODES))
    apart = blocks / nodes
    columns = column_steps(order, element, device)
    parts: list[tuple[Number, Price]] = [(1.0, kernel_price(device, compute=columns))]
    whole = NODES if is_traced(blocks) else int(min(float(xp.max(blocks)), NODES))
    for i in range(whole):
        count = apart * (i < nodes)
        rows = xp.maximum(order - op.block * ((i + 0.5) * apart - 0.5), 1.0)
        inside, update, solves, panels = _block_prices(op, rows, element, device)
        parts += [(count * panels, inside), (count, update), (count, solves)]
    flop = op.flop() / op.batch.size
    lower = flop / device.matrix(op.precision, op.precision).peak
    return total_price(parts).replaced(flop=flop, lower=lower).times(op.batch.size)


def column_major(order: Number, precision: str, device: Device) -> Price:
    """Price of a matrix copied, columns for rows: neighbours in a row are accesses of their own."""
    element = bytes_of(precision)
    size = namespace(element).maximum(element, SECTOR)
    return vector_kernel(order * order * element, order * order * size, 0.0, 0.0, device)


# of a long line's length that one pass over the grid transforms at most: 2048 points, as cuFFT's kernels on
# an H200 (two passes for 2^21 points, three for 2^25)
PASS_BITS = 11.0
WORD = 4.0  # bytes that a lane works on at full rate


def price_fft(op: FftLines, device: Device) -> Price:
    r"""Price of transforming all lines of one axis: a stream of the grid, its operations on the vector units.

    .. math:: T = p \left(T_0 + \max\left(\frac{5 N \log_2 n}{p \, \eta R_v} \frac{w}{4},
        \frac{2 b N}{B}\right)\right), \quad
        p = \begin{cases} 1 & b n \le S / 2 \\ \lceil \log_2 n / 11 \rceil & \text{else} \end{cases}

    N points of b bytes (two parts of w) in lines of n; vector rate R_v of words of 4 B, sustained bandwidth
    B, floor T_0 of a stream. A line that fits half of a core's local memory S, beside the next one, is read
    and written once (n = 16384 in complex fp32 is 128 KiB); a longer one in passes over the grid. η is 1 for
    lines of a power of two in one pass, which are bound by memory; else `fft_efficiency` of the chip: passes
    with twiddle factors between them, and factors of 3 and 5, keep lanes waiting, which binds.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> grid = {"points": Extent(512.0), "lines": (Extent(512.0**2),), "precision": "fp32"}
    >>> lines = FftLines(name="x", module="x", inputs=("a",), output="b", **grid)
    >>> h200 = price_fft(lines, device(chip("h200")))
    >>> bool(h200.memory > h200.compute), round(float(h200.time) * 1e6)  # 2 x 1.07 GB
    (True, 499)
    """
    moved, points, chip = op.output_bytes(), op.points.size, device.chip
    width = bytes_of(op.precision)
    xp = namespace(points, chip.compute.sram_capacity, chip.compute.fft_efficiency)
    bits = xp.log(points) / math.log(2.0)
    fits = 2.0 * points * width <= 0.5 * chip.compute.sram_capacity
    whole = xp.abs(bits - xp.floor(bits + 0.5)) < 1e-9
    passes = xp.where(fits, 1.0, ceil_div(bits, PASS_BITS))
    efficiency = xp.where(fits & whole, 1.0, chip.compute.fft_efficiency)
    flop = op.flop() * max(width / WORD, 1.0) / passes
    resident = device.software.resident
    once = vector_kernel(moved, moved, flop, 0.0, device, resident=resident, efficiency=efficiency)
    return once.times(passes)


THREADS_HELD = 2048.0  # of one core of a GPU, each of which walks a line of its own
# bytes that a block scans in its registers and local memory: 128 threads with 16 words each, as in CUB
TILE_BYTES = 8192.0
WINDOW = 32.0  # tiles before its own whose sums a group of threads reads in one trip
# Kernels of a chunked scan beside the one that passes states on: sums of decays, states of chunks, scores,
# results (mamba_ssm/ops/triton/ssd_combined.py of github state-spaces/mamba). The delta rule has one more,
# for its triangular inverse (fla/ops/gated_delta_rule/chunk.py of github fla-org/flash-linear-attention).
CHUNK_KERNELS = 4.0


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


def price_state_scan(op: StateScan, device: Device) -> Price:
    r"""Price of tokens that pass a state.

    .. math:: T_{step} = T_v(2 S + m), \qquad
        T_{chunks} = T_0 + \frac{F}{e P} \frac{c \lceil w / c \rceil}{w} + \frac{m + S_c + S_a}{B} + T_p

    A step reads and writes the states S of all sequences and the m bytes of their tokens, as a streaming
    kernel (`vector_kernel`); one that verifies guesses writes a state after each. A prompt goes in chunks:
    products F inside them at the share e of the matrix peak P (the chip's `scan_efficiency`), as w blocks (a
    chunk and a head each) on c cores, with what they load and store after one another; states S_c of all
    chunks are written, passed on (T_p: `price_scan` over the chunks of a sequence, which waits for one after
    the other) and read as S_a in the activations' format. Channels that decay by themselves (Mamba-1) have no
    products: one kernel over all elements on the vector units.

    Dao & Gu, arXiv 2405.21060, sec. 6; Yang et al., arXiv 2412.06464, sec. 3.3; Gu & Dao, arXiv 2312.00752,
    sec. 3.3.2 (one fused kernel, states in registers).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> heads = {"heads": Extent(32.0), "key_heads": Extent(16.0), "key_dim": 128.0, "value_dim": 128.0}
    >>> named = {"name": "s", "module": "s", "inputs": ("a", "state"), "output": "b", "rule": "delta"}
    >>> sizes = {"queries": Extent(1.0), "share": Extent(1.0), "chunk": 64.0, "activation": "bf16", **heads}
    >>> step = StateScan(sequences=Extent(256.0), state="fp32", stepwise=True, **sizes, **named)
    >>> h200 = device(chip("h200"))
    >>> price = price_state_scan(step, h200)  # 2 x 256 x 2 MiB at 4.8 TB/s
    >>> 224e-6 < price.time < 300e-6
    True
    """
    tokens, states = op.token_bytes(), op.held_bytes()
    if op.stepwise or op.rule == CHANNEL:
        grown = 2.0 if op.backward else 1.0
        written = op.output_bytes() * grown
        read = tokens - written
        work, special = op.vector_flop(), op.special_flop()
        kept = written + grown * states * op.kept_states()
        price = vector_kernel(read + grown * states, kept, work, special, device)
        return price.replaced(flop=op.flop())
    return _chunk_products(op, device) + price_scan(_passed_states(op), device)


def _passed_states(op: StateScan) -> Scan:
    """States of the chunks of each sequence, passed on from one to the next."""
    return Scan(
        name=op.name,
        module=op.module,
        inputs=op.inputs,
        output=op.output,
        outer=op.sequences,
        length=Extent(op.queries.size / op.chunk_length()),
        inner=Extent(op.state_elements()),
        precision=op.state,
    )


def _chunk_products(op: StateScan, device: Device) -> Price:
    """Products inside chunks, whose states are written before and read after they are passed on."""
    chip, unit, flop = device.chip, device.matrix(op.activation, op.activation), op.flop()
    compute, cores = chip.compute, device.cores
    written = op.chunks() * op.state_elements() * (2.0 if op.backward else 1.0)
    moved = op.token_bytes() + written * (bytes_of(op.state) + bytes_of(op.activation))
    blocks = op.chunks() * op.heads.size
    products = flop / (unit.peak * compute.scan_efficiency) * (ceil_div(blocks, cores) * cores / blocks)
    other = op.vector_flop() / compute.vector_rate + op.special_flop() / compute.special_rate
    stream = chip.memory.stream_efficiency
    return kernel_price(
        device,
        compute=namespace(products, other).maximum(products, other),
        cache=moved / device.stream_bandwidth,
        memory=dram_time(device, moved, stream, lambda: sequential_stream(device, 0.5)),
        moved=moved,
        dram=moved,
        flop=flop,
        joule=flop * unit.energy + (op.vector_flop() + op.special_flop()) * chip.energy.vector,
        lower=product_bound(flop, 0.0 * moved, unit, device),
        floor=CHUNK_KERNELS * chip.overhead.stream,
        exposed=1.0,
    )


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
