"""Single kernels by their sizes: of a model's step, of other programs, and those that communicate too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Number, namespace
from strata.mapping.place import spread
from strata.precision import bytes_of
from strata.pricing.kernel_request import KernelRequest, Sizes
from strata.pricing.kernels.attention import attention_kernel
from strata.pricing.kernels.device import Device, device, quantized_format
from strata.pricing.kernels.eager import bag_kernel, eager_kernel, touched_between_uses
from strata.pricing.kernels.experts import price_experts, price_gather
from strata.pricing.kernels.graph_product import price_matmul, quantize_activations
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.numerical import column_major, price_fft, price_lu, price_scan, price_sort
from strata.pricing.kernels.recurrent import (
    RecurrentLayer,
    RecurrentLibrary,
    recurrent_call,
)
from strata.pricing.kernels.traffic import read_fraction, row_is_whole
from strata.pricing.kernels.vector import cache_miss_share, vector_kernel
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
