"""Single kernels by their sizes: of a model's step, of other programs, and those that communicate too; and
streaming ops as PyTorch runs them one by one: how its kernels cut the work, which fused kernels of an engine
do differently.

Shapes of kernels are from PyTorch's sources (aten/src/ATen/native/cuda: vectorized_elementwise_kernel,
layer_norm_kernel.cu, PersistentSoftmax.cuh and SoftMax.cu), as seen by its profiler in version 2.11.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, namespace
from strata.base.errors import UnknownName
from strata.base.precision import bytes_of
from strata.mapping.place import spread
from strata.pricing.kernel_request import KernelRequest, Sizes
from strata.pricing.kernels.attention import attention_kernel
from strata.pricing.kernels.device import Device, device, quantized_format
from strata.pricing.kernels.experts import price_experts, price_gather
from strata.pricing.kernels.graph_product import price_matmul, quantize_activations
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.numerical import column_major, price_fft, price_lu, price_scan, price_sort
from strata.pricing.kernels.recurrent import (
    RecurrentLayer,
    RecurrentLibrary,
    recurrent_call,
)
from strata.pricing.kernels.traffic import RequestStream, read_fraction, row_is_whole
from strata.pricing.kernels.vector import (
    EXPOSED,
    SLOT_FLOP,
    RowSchedule,
    cache_miss_share,
    scattered_rows,
    vector_kernel,
)
from strata.pricing.network.collectives import price_collective
from strata.pricing.network.expert_exchange import price_exchange
from strata.pricing.optimiser import adam_kernel
from strata.pricing.overlap.tiles import fuse, hidden_bound, tile_link
from strata.pricing.price import ZERO, Price, total_price
from strata.pricing.pricers import PricedOp, tile_pieces
from strata.pricing.served_kernels import alone, expert_gemm, grouped_heads, row_work, served_attention
from strata.workload.attention_parts import attended
from strata.workload.fft import FftLines
from strata.workload.graph import Collective, Exchange, Extent
from strata.workload.moe import NORM_FLOP, SILU_FLOP, SILU_SPECIAL
from strata.workload.ops import OPERATIONS, Gather, MatMul
from strata.workload.scan_ops import LuFactor, Scan, Sort

# Elements read and written for each element of the result, arithmetic and special functions.
STREAMS = {
    "copy": (1.0, 1.0, 0.0, 0.0),
    "add": (2.0, 1.0, 1.0, 0.0),
    "rms_norm": (1.0, 1.0, NORM_FLOP, 0.0),
    "softmax": (1.0, 1.0, *OPERATIONS["row"]["Softmax"]),
    "gelu": (1.0, 1.0, *OPERATIONS["element"]["Gelu"]),
    "silu": (2.0, 1.0, SILU_FLOP, SILU_SPECIAL),
}
COPIES = 5.0  # of the weights, which take turns at most in benchmarks: small ones stay in the cache
# A recurrent library's numbers, and what they are where none is known.
LIBRARY_DEFAULTS: Sizes = {"call": 0.0, "launches": 1.0, "gap": 0.0, "trips": 0.0}


# ------------------------------------------------------------------------------------ products


def product_bytes(sizes: Sizes, run: KernelRequest) -> tuple[Number, Number]:
    """Bytes of a product's operands and result, and of the result alone."""
    m, n, k, batch = (sizes[name] for name in ("m", "n", "k", "batch"))
    wide = bytes_of(run.activation)
    return batch * (wide * (m * k + m * n) + bytes_of(run.weight) * k * n), batch * wide * m * n


def gemm_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """A product; `served`: weights from DRAM unless copies in turn fit the cache, activations warm."""
    m, n, k, batch = (sizes[name] for name in ("m", "n", "k", "batch"))
    warm: Number = 2.0 - sizes["operands"]  # of a tensor and itself the weights come with the activations
    unaligned: Number = 0.0
    if run.served:
        kept = COPIES * batch * k * n * bytes_of(run.weight) < dev.chip.cache.capacity
        warm = np.where(kept, 1.0, 0.0)
    elif run.unaligned:
        unaligned = 1.0 - row_is_whole(n, bytes_of(run.weight))
    if run.kept and not run.served:
        warm = np.maximum(1.0 - cache_miss_share(product_bytes(sizes, run)[0], dev.cache_capacity), warm)
    resident = run.served or dev.software.resident
    formats = run.weight, run.activation
    price = matmul(m, n, k, dev, *formats, batch=batch, resident=resident, warm=warm, unaligned=unaligned)
    rounded = quantized_format(dev, *formats) if run.served else ""
    return price + quantize_activations(batch * m * k, rounded, dev, True) if rounded else price


def batched_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """A batch of products by kernels made for many small ones."""
    compute = dev.chip.compute
    rates = {name: compute.grouped_efficiency * value for name, value in compute.matrix_efficiency.items()}
    many = replace(dev.chip, compute=replace(compute, matrix_efficiency=rates))
    return gemm_price(sizes | {"operands": 2.0}, device(many, dev.software), run)


def grouped_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    return price_experts(expert_gemm("grouped", sizes, run, sizes["n"], sizes["k"]), dev)


def attention_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    if run.served:
        return served_attention(sizes, dev, run)
    context, queries = sizes["context"], sizes["queries"]
    span = attended(context, queries, context) if run.causal else context
    return attention_kernel(grouped_heads(sizes, run, queries, run.weight, span=span), dev)


# ------------------------------------------------------------------------------- other programs


def stream_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    elements = sizes["rows"] * sizes["columns"]
    size, (reads, writes, flop, special) = elements * bytes_of(run.weight), STREAMS[run.op]
    moved = size * reads, size * writes
    if run.eager:
        touched = touched_between_uses(run.op, *moved, sizes["turns"])
        return eager_kernel(run.op, sizes["rows"], sizes["columns"], moved, dev, footprint=touched)
    how: dict[str, Any] = {"resident": dev.software.resident, "read_share": read_fraction(reads, writes)}
    return vector_kernel(*moved, elements * flop, elements * special, dev, **how)


def lu_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    order, batch, precision = sizes["order"], sizes["batch"], run.weight
    op = LuFactor(**alone("lu"), order=Extent(order), batch=Extent(batch), precision=precision)
    return column_major(order, precision, dev).times(batch * sizes["turned"]) + price_lu(op, dev)


def scan_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    lines: Any = {name: Extent(sizes[name]) for name in ("length", "outer", "inner")}
    return price_scan(Scan(**alone("scan"), **lines, precision=run.weight), dev)


def sort_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    keys: Any = {name: Extent(sizes[name]) for name in ("length", "lines")}
    return price_sort(Sort(**alone("sort"), **keys, precision=run.weight), dev)


def fft_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    points, lines = Extent(sizes["points"]), (Extent(sizes["lines"]),)
    op = FftLines(**alone("fft"), points=points, lines=lines, precision=run.weight)
    return price_fft(op, dev).times(sizes["axes"])


def bags_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    return bag_kernel(sizes["bags"], sizes["per_bag"], sizes["width"], run.weight, dev)


def adam_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    of_each = sizes["gradient"], sizes["state"], sizes["copy"]
    return adam_kernel(sizes["parameters"], *of_each, dev, sizes["rate"])


def recurrent_price(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    layer = RecurrentLayer(
        **{name: sizes[name] for name in ("hidden", "batch", "steps")}, cell=run.op, precision=run.weight
    )
    price = ZERO
    for other, prefix, backward in (("backward", "", False), ("forward", "back_", True)):
        if run.phase != other:
            library = RecurrentLibrary(**{name: sizes[prefix + name] for name in LIBRARY_DEFAULTS})
            called = sizes["layers"], sizes["inputs"]
            price = price + recurrent_call(layer, dev, library, *called, backward=backward)
    return price


def product_beside(pattern: str, sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """A product beside a collective: of rows gathered from the ranks, of heads exchanged for its own tokens
    (Ulysses), or over a rank's own depth, its sums scattered over the ranks.
    """
    feeds = pattern == "reduce_scatter"
    parts = 1.0 if pattern == "all_to_all" else sizes["ranks"]
    whole = bytes_of(run.activation) * sizes["m"] * sizes["n" if feeds else "k"]
    op = _collective(pattern, _sent(sizes, whole / parts) * parts)
    return _fused(op, sizes, dev, run, [_product(sizes, dev, run)], feeds=feeds)


def dispatched_tokens(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """Tokens to the ranks of their experts, a message for each pick."""
    element = bytes_of(run.activation)
    moved: Any = {name: sizes[name] for name in ("tokens", "top_k", "experts")}
    sent = element * sizes["tokens"] * sizes["hidden"] * sizes["top_k"]
    exchange = Exchange(direction="dispatch", element=element, width=sizes["hidden"], **moved)
    return _fused(_collective("all_to_all", sent, exchange), sizes, dev, run, [], feeds=False)


def summed_experts(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """The experts' second product, a token's picks added up, and the sum over ranks that cut the experts."""
    tokens, picks, width = sizes["tokens"], sizes["top_k"], sizes["n"]
    down = expert_gemm("down", sizes, run, n=width, k=sizes["k"])
    combine = row_work(Gather, tokens, width, moved=(picks, 1.0), work=(2.0 * picks, 0.0))
    work: list[PricedOp] = [(down, price_experts(down, dev)), (combine, price_gather(combine, dev))]
    op = _collective("all_reduce", _sent(sizes, bytes_of(run.activation) * tokens * width))
    return _fused(op, sizes, dev, run, work, feeds=True)


def _collective(pattern: str, payload: Number, exchange: Exchange | None = None) -> Collective:
    return Collective(name=pattern, pattern=pattern, group="tp", payload=payload, exchange=exchange)


def _sent(sizes: Sizes, otherwise: Number) -> Number:
    """Bytes that a rank sends: as told, else as its sizes say."""
    return namespace(sizes["sent"], otherwise).where(sizes["sent"] > 0.0, sizes["sent"], otherwise)


def _product(sizes: Sizes, dev: Device, run: KernelRequest) -> PricedOp:
    extents: dict[str, Any] = {"m": Extent(sizes["m"]), "n": (Extent(sizes["n"]),), "k": Extent(sizes["k"])}
    op = MatMul(**alone("product"), weight=run.weight, activation=run.activation, **extents)
    return op, price_matmul(op, dev)


def _fused(
    op: Collective, sizes: Sizes, dev: Device, run: KernelRequest, work: list[PricedOp], feeds: bool
) -> Price:
    """A collective beside kernels, the first of which sets the pieces; `feeds`: they make what is sent."""
    assert run.fabric is not None
    layouts = spread(1.0, sizes["ranks"], run.fabric)
    price = price_collective if op.exchange is None else price_exchange
    alone, link = price(op, layouts, run.fabric), tile_link(op, layouts, run.fabric)
    pieces = tile_pieces(work[0][0], dev, link.ranks) if work else 1.0
    slower, added = fuse(op, link, [one for _, one in work], pieces, feeds, dev)
    before = total_price([(1.0, one) for _, one in work])
    lower = hidden_bound(alone.lower, before.lower, added)
    together = total_price([(1.0, one) for one in slower])
    upper = namespace(alone.upper, added).maximum(alone.upper, added)
    return together + alone.replaced(time=added, network=added, lower=lower, upper=upper)


# Issue slots of a vector lane for one element: conversions, address work and checks counted in, of which the
# definitions know nothing. Rates of long runs on an H200 (132 x 128 lanes at 1.98 GHz) outside the validation
# files: gelu 8.0e11 elements/s (both branches of erf run where neighbours differ), softmax 3.3e11 while a row
# stays in registers (element by element, each with a check), 5.6e11 for longer rows (eight at a time). An add
# or a norm is far from this bound.
SLOTS = {"copy": 2.0, "add": 3.0, "gelu": 42.0, "rms_norm": 20.0, "softmax": 61.0}
SOFTMAX_IN_REGISTERS = 101.0
# Rows of a table added up by bag: a thread for each element of a result, with its own index work (divisions
# of 64 bits), and that of each row it adds. Fitted to 138 kernels on an H200 outside the validation files
# (widths 96 to 512, 2 to 60 rows a bag, fp32 and bf16): mean error 6 %; 5 to 11 % of a precision, a width, a
# number of bags or of rows a bag that is left out.
BAG_SLOTS, BAG_ROW_SLOTS = 335.0, 51.0
BLOCK = 1024.0  # elements of a block of an element-wise kernel: 128 threads of eight, 16 blocks on a core
NORM_LOAD = 512.0  # elements of a row that a norm's block loads at once: 128 threads of four
ROW_THREADS = 1024.0  # of a softmax block, one row each; two blocks fit on a core
OWN_RESULTS = ("copy", "add")  # whose results are written to buffers that are given
ENDLESS = 1e18  # bytes: no cache keeps so many
IN_REGISTERS = 9.0  # elements a softmax thread keeps in registers at most
CROWDED = 6.0  # elements above which their registers leave room for one block on a core instead of two


def eager_rows(op: str, rows: Number, columns: Number) -> tuple[Number, RowSchedule]:
    """Issue slots for each element, and how the kernel of an op walks its rows.

    >>> slots, walked = eager_rows("softmax", 64.0, 8192.0)
    >>> float(slots), float(walked.per_core)
    (101.0, 1.0)
    """
    if op not in SLOTS:
        raise UnknownName("streaming op", op, SLOTS, ", ".join(SLOTS))
    xp = namespace(rows, columns)
    if op == "rms_norm":  # one pass for the sum of squares, one to scale; each load waits for the one before
        loads = xp.ceil(columns / NORM_LOAD)
        return SLOTS[op], RowSchedule(rows, 2.0 * loads + 1.0, loads, 16.0, reread=rows * columns * 2.0)
    if op == "softmax":  # loads fly together; the maximum and the sum of a row meet in shared memory
        each = columns / ROW_THREADS
        blocks = xp.where((each > CROWDED) & (each <= IN_REGISTERS), 1.0, 2.0)
        slots = xp.where(each <= IN_REGISTERS, SOFTMAX_IN_REGISTERS, SLOTS[op])
        return slots, RowSchedule(rows, 2.0, 1.0, blocks)
    return SLOTS[op], RowSchedule(xp.ceil(rows * columns / BLOCK), 0.0, 0.0, 16.0)


def eager_kernel(
    op: str, rows: Number, columns: Number, moved: tuple[Number, Number], device: Device, *, footprint: Number
) -> Price:
    """Price of a streaming op over 16-bit rows as PyTorch runs it, with `moved` bytes read and written;
    `footprint`: bytes touched between two uses.
    """
    slots, walked = eager_rows(op, rows, columns)
    flop = rows * columns * slots * SLOT_FLOP
    return vector_kernel(*moved, flop, 0.0, device, resident=True, rows=walked, footprint=footprint)


def touched_between_uses(op: str, read: Number, written: Number, turns: Number) -> Number:
    """Bytes touched between two uses of an op's operands [B] where so many sets of buffers take turns, no end
    of them where 0. Results of ops but copies and sums fall into the memory that the last one left.

    >>> float(touched_between_uses("add", 2e6, 1e6, 32.0)), float(touched_between_uses("gelu", 2e6, 2e6, 1.0))
    (96000000.0, 4000000.0)
    """
    both = read + written
    xp = namespace(both, turns)
    turned = turns * (both if op in OWN_RESULTS else read)
    return xp.where(turns > 0.0, xp.maximum(turned, both), ENDLESS)


def bag_kernel(bags: Number, per_bag: Number, width: Number, precision: str, device: Device) -> Price:
    r"""Price of an embedding bag: rows of a table at random addresses, added up bag by bag.

    .. math:: T = T_0 + \max(T_c + \epsilon \min(T_c, T_m), T_m), \quad
        T_c = \frac{2 g w (335 + 51 d)}{R_v}, \quad T_m = \frac{b g w (d + 1)}{B}

    g bags of d rows of w elements of b bytes; issue slots of a thread for an element of a result and for each
    row, at two operations a slot of the vector rate R_v; bandwidth B of streams, of which the share ε shows
    beside the slots; floor T_0 of a stream from DRAM.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h200"))
    >>> narrow, wide = (bag_kernel(65536.0, 100.0, 128.0, p, d).time for p in ("bf16", "fp32"))
    >>> assert narrow < wide < 1.3 * narrow  # twice the bytes, the same instructions
    """
    chip, size = device.chip, bags * width * bytes_of(precision)
    moved, flop = size * (per_bag + 1.0), bags * width * SLOT_FLOP * (BAG_SLOTS + BAG_ROW_SLOTS * per_bag)
    rate, floor = chip.memory.stream_efficiency, chip.overhead.stream + chip.overhead.cold

    def requests() -> RequestStream:
        return RequestStream(width * bytes_of(precision), read_fraction(per_bag, 1.0), even=True)

    return scattered_rows(device, moved, flop, rate, requests, floor=floor, exposed=EXPOSED)
