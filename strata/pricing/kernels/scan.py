"""Prefix sums: one pass over memory, and the chain of sums that each element waits for; states that
pass from token to token; sorts.
"""

from __future__ import annotations

from strata.arrays import ceil_div, namespace
from strata.precision import bytes_of
from strata.pricing.kernels.device import Device, kernel_price
from strata.pricing.kernels.dram_access import dram_time, sequential_stream
from strata.pricing.kernels.lu import SECTOR
from strata.pricing.kernels.product import product_bound
from strata.pricing.kernels.vector import ROWS_HELD, RowSchedule, vector_kernel
from strata.pricing.price import Price
from strata.workload.graph import Extent
from strata.workload.mixer import CHANNEL
from strata.workload.scan_ops import Scan, Sort, StateScan

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
    the other) and read as S_a in the activations' format. Channels that decay by
    themselves (Mamba-1) have no products: one kernel over all elements on the vector units.

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
