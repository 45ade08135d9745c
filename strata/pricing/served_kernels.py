"""Kernels as frameworks call them: attention and its rotation, experts behind a router, grouped products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from strata.base.arrays import Array, Number, has_axes, map_leaves
from strata.base.precision import bytes_of, supports
from strata.hardware.chip import Chip
from strata.pricing.kernel_request import KernelRequest, Sizes
from strata.pricing.kernels.attention import attention_kernel
from strata.pricing.kernels.attention_shape import AttentionShape
from strata.pricing.kernels.device import Device, device
from strata.pricing.kernels.expert_load import (
    ExpertLoad,
    busiest_rank_counts,
    load_of_counts,
    multinomial_counts,
    routing_skew,
    tile_heights,
)
from strata.pricing.kernels.experts import GroupedKernels, grouped_product, price_experts, price_gather
from strata.pricing.kernels.traffic import Product
from strata.pricing.kernels.vector import cache_miss_share, price_vector, vector_kernel
from strata.pricing.price import ZERO, Price
from strata.workload.attention_parts import attended
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.graph import Extent
from strata.workload.moe import ROPE_FLOP, SILU_FLOP, SILU_SPECIAL
from strata.workload.ops import Gather, Vector

V = TypeVar("V", bound=Vector)
FEW = 2.0  # tokens: kernels for prompts take a prompt of one token as they take one of a few
# PyTorch's grouped product has two output tiles: the small one where an expert has at most so many rows on
# average; tiles go in pairs, one above the other (aten/src/ATen/native/cuda/GroupMM.cu as read at commit
# 06c0cf0; that the measured 2.11 does the same is assumed).
SMALL, LARGE, SWITCH, PAIR = (64.0, 128.0), (128.0, 256.0), 128.0, 2.0


# ----------------------------------------------------------------------------------- attention


def served_attention(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """Grouped heads as frameworks call them: rotation and cache write first; calls share one cache."""
    width, heads, kv_heads = (sizes[name] for name in ("head_dim", "heads", "kv_heads"))
    prompt, products = run.is_prefill(sizes["queries"]), _products(dev.chip, run)
    queries = np.maximum(sizes["queries"], FEW) if prompt else sizes["queries"]
    span = attended(sizes["context"], sizes["queries"], sizes["context"])
    shape = grouped_heads(sizes, run, queries, products, span=span)
    warm = 0.0 if prompt else _kept_share(shape, dev)
    tokens, narrow = sizes["sequences"] * queries, products if prompt else run.activation
    turned = tokens * (heads + 2.0 * kv_heads) * width
    written = tokens * width * (heads * bytes_of(narrow) + 2.0 * kv_heads * bytes_of(run.kv))
    rotation = _rotation(turned, turned * bytes_of(run.activation), written, dev)
    return attention_kernel(shape, dev, served=dev.chip.paged, warm=warm) + rotation


def grouped_heads(
    sizes: Sizes, run: KernelRequest, queries: Number, products: str, *, span: Number
) -> AttentionShape:
    """Attention of heads that share keys and values, multiplied in a format; a query attends to a span."""
    width = sizes["head_dim"]
    known: dict[str, Any] = {name: sizes[name] for name in ("sequences", "heads", "kv_heads")}
    known |= {"queries": queries, "span": span, "cached": sizes["context"]}
    known |= {"key_dim": width, "value_dim": width, "kv_width": 2.0 * width}
    return AttentionShape(**known, activation=run.activation, kv=run.kv, products=products)


def latent_attention(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """Latent attention as frameworks call it: full heads over a prompt, one shared latent in decode."""
    queries, products = sizes["queries"], _products(dev.chip, run)
    latent = sizes["kv_rank"] + sizes["rope_dim"]
    common: dict[str, Any] = {
        "sequences": sizes["sequences"],
        "span": attended(sizes["context"], queries, sizes["context"]),
        "cached": sizes["context"],
        "heads": sizes["heads"],
        "activation": run.activation,
        "products": products,
    }
    rows, wide = sizes["sequences"] * queries * sizes["heads"], bytes_of(run.activation)
    if run.is_prefill(queries):
        key, value = sizes["head_dim"], sizes["v_head_dim"]
        widths: dict[str, Any] = {"key_dim": key, "value_dim": value, "kv_width": key + value}
        common |= widths | {"queries": np.maximum(queries, FEW), "kv_heads": sizes["heads"], "kv": products}
        # queries are rotated in place; with a narrow cache three kernels round queries, keys and values
        around = _rotation(rows * key, rows * key * wide, rows * key * wide, dev)
        for width in (key, key, value) if bytes_of(products) < wide else ():
            out = rows * width
            narrow = out * bytes_of(products)
            around = around + vector_kernel(out * wide, narrow, out, 0.0, dev, resident=True)
        return attention_kernel(AttentionShape(**common), dev, served=dev.chip.latent) + around
    common |= {"key_dim": latent, "value_dim": sizes["kv_rank"], "kv_width": latent}
    shape = AttentionShape(**common, queries=queries, kv_heads=1.0, kv=run.kv)
    turned = rows * latent
    rotation = _rotation(turned, turned * wide, turned * bytes_of(products), dev)
    return attention_kernel(shape, dev, served=dev.chip.latent, warm=_kept_share(shape, dev)) + rotation


def _rotation(elements: Number, read: Number, written: Number, dev: Device) -> Price:
    """The kernel that rotates queries and keys and writes the cache."""
    return vector_kernel(read, written, elements * ROPE_FLOP, 0.0, dev, resident=True)


def _products(chip: Chip, run: KernelRequest) -> str:
    """The format frameworks multiply in: the cache's where that is narrower and the chip computes in it."""
    narrow = bytes_of(run.kv) < bytes_of(run.weight) and supports(chip.compute.matrix_rate, run.kv)
    return run.kv if narrow else run.weight


def _kept_share(shape: AttentionShape, dev: Device) -> Number:
    """Share of the keys and values that one call leaves in the shared cache for the next."""
    return 1.0 - cache_miss_share(shape.kv_bytes, dev.chip.cache.capacity)


# ------------------------------------------------------------------------------------- experts


def expert_layer(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """A layer of experts on its busiest rank, as a framework runs it behind the router: tokens sorted and
    sent to experts, two products with the activation between them, and a token's results added up. Draws of a
    random routing lie on the leading axis.
    """
    flat = dict(zip(sizes, map(np.ravel, np.broadcast_arrays(*sizes.values())), strict=True))
    tokens, hidden, inner, ranks = (flat[name] for name in ("tokens", "hidden", "inner", "ranks"))
    drawn = zip(*(flat[name] for name in ("tokens", "experts", "top_k", "ranks")), strict=True)
    power = routing_skew(run.routing)
    counts = [busiest_rank_counts(int(t), int(e), int(k), int(r), power) for t, e, k, r in drawn]
    load = load_of_counts(counts, tile_heights(dev.chip.experts.tile_rows))
    routed = np.asarray(load.tokens)
    # every token gets a sum, whether this rank has a part in it or not
    summed = tokens / np.maximum(routed, 1.0)
    sent = 0.5 * dev.matrix(run.weight, run.activation).activation
    products = (
        expert_gemm("up", flat, run, n=2.0 * inner, k=hidden, ranks=ranks),
        expert_gemm("down", flat, run, n=hidden, k=inner, ranks=ranks),
    )
    chosen = row_work(Vector, tokens, flat["experts"], moved=(1.0, 0.0), work=(2.0, 1.0), precision="fp32")
    streams = (chosen, row_work(Vector, routed, inner, moved=(2.0, 1.0), work=(SILU_FLOP, SILU_SPECIAL)))
    moves = (
        row_work(Gather, routed, hidden, moved=(1.0, sent), work=(0.0, 0.0)),
        row_work(Gather, routed, hidden, moved=(1.0, summed), work=(2.0, 0.0)),
    )
    price = sum((price_experts(op, dev, ranks, load) for op in products), ZERO)
    price = sum((price_vector(op, dev) for op in streams), price)
    return sum((price_gather(op, dev) for op in moves), price)


def sorted_experts(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """Both products of a layer of experts whose tokens are sorted already; the second adds results up."""
    chip, picks, inner = dev.chip, sizes["top_k"], sizes["inner"]
    experts, overhead = replace(chip.experts, sort=0.0), replace(chip.overhead, stream=0.0)
    bare = device(replace(chip, experts=experts, overhead=overhead), dev.software)
    up = expert_gemm("up", sizes, run, n=(1.0 + sizes["gated"]) * inner, k=sizes["hidden"])
    down = expert_gemm("down", sizes, run, n=sizes["hidden"], k=inner)
    rows = sizes["tokens"] * picks
    combine = row_work(Gather, rows, sizes["hidden"], moved=(1.0, 1.0 / picks), work=(2.0, 0.0))
    return price_experts(up, bare) + price_experts(down, bare) + price_gather(combine, bare)


def alone(name: str) -> dict[str, Any]:
    """The fields of an op that stands by itself."""
    return {"name": name, "module": "", "inputs": ("in",), "output": name}


def expert_gemm(
    name: str, sizes: Mapping[str, Number], run: KernelRequest, n: Number, k: Number, *, ranks: Number = 1.0
) -> ExpertMatMul:
    """One product of a layer of experts, on one of `ranks` ranks."""
    return ExpertMatMul(
        **alone(name),
        tokens=Extent(sizes["tokens"]),
        top_k=sizes["top_k"],
        experts=Extent(sizes["experts"] / ranks),
        all_experts=sizes["experts"],
        n=(Extent(n),),
        k=Extent(k),
        skew=sizes.get("skew", 0.0) + 0.0 * sizes["tokens"],
        weight=run.weight,
        activation=run.activation,
    )


def row_work(
    kind: type[V],
    rows: Number,
    columns: Number,
    *,
    moved: tuple[Number, Number],
    work: tuple[Number, Number],
    precision: str = "bf16",
) -> V:
    """Element-wise work on rows, or rows gathered from addresses of their own: `moved` elements read and
    written, and `work` in arithmetic and special functions, for each of the result.
    """
    return kind(
        **alone("rows"),
        m=Extent(rows),
        n=(Extent(columns),),
        reads=moved[0],
        writes=moved[1],
        flop_per_element=work[0],
        special_per_element=work[1],
        precision=precision,
    )


def torch_grouped_product(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """PyTorch's grouped product, a token to one expert; draws of a routing lie on the leading axis."""
    flat = dict(zip(sizes, map(np.ravel, np.broadcast_arrays(*sizes.values())), strict=True))
    experts, tokens, n, k = (flat[name] for name in ("experts", "tokens", "n", "k"))
    skew, chip, unit = routing_skew(run.routing), dev.chip, dev.matrix(run.weight, run.activation)
    counts = [multinomial_counts(int(t), int(e), skew) for t, e in zip(tokens, experts, strict=True)]
    load = load_of_counts(counts, PAIR * np.array([SMALL[0], LARGE[0]]))
    assert has_axes(load.tiles)
    small = tokens / experts <= SWITCH
    tiles: Array = PAIR * np.where(small, load.tiles[0], load.tiles[1])
    kernels = GroupedKernels(
        rate=unit.sustained * chip.compute.grouped_efficiency,
        bandwidth=chip.memory.bandwidth * chip.memory.grouped_efficiency,
        tile=dev.tile,
        floor=chip.overhead.grouped,
        rows=np.where(small, SMALL[0], LARGE[0])[None, None],
        columns=np.where(small, SMALL[1], LARGE[1])[None, None],
    )
    drawn = ExpertLoad(tokens=load.tokens, experts=load.experts, tiles=tiles[None])
    product = Product.of(load.tokens, n, k, unit, run.weight, run.activation)
    return grouped_product(drawn, product, dev, unit, kernels, 2.0 * tokens * n * k)


def mean_of_draws(values: Any, draws: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Means over the draws of a routing, in the shape that was asked for.

    >>> each = mean_of_draws((np.array([[1.0, 2.0], [3.0, 4.0]]), 5.0), (2, 2), (2,))
    >>> [mean.tolist() for mean in each]
    [[2.0, 3.0], [5.0, 5.0]]
    """

    def mean(value: Any) -> Any:
        of_points = np.broadcast_to(np.asarray(value, float), draws).mean(0).reshape(shape)
        return of_points if shape else float(of_points)

    return map_leaves(mean, values)
