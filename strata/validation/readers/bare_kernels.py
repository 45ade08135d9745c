"""Single kernels and collectives, priced by the functions a model's step is made of.

Readers build no ops of their own: what a graph would hold is made here, so that a change of ops is a change
of this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from strata.arrays import Array, Number
from strata.hardware.chip import Chip
from strata.hardware.fabric import Fabric
from strata.mapping.place import spread
from strata.precision import bytes_of
from strata.pricing.kernels.device import Device, device, quantized_format
from strata.pricing.kernels.expert_load import ExpertLoad
from strata.pricing.kernels.experts import price_experts, price_gather
from strata.pricing.kernels.fft import price_fft
from strata.pricing.kernels.lu import SECTOR, price_lu
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.quantize import quantize_activations
from strata.pricing.kernels.scan import price_scan
from strata.pricing.kernels.vector import cache_miss_share, price_vector, vector_kernel
from strata.pricing.network.collectives import price_collective
from strata.pricing.overlap.fused import fuse, tile_link
from strata.pricing.power_cap import power_capped
from strata.pricing.price import Price
from strata.pricing.pricers import PricedOp, tile_pieces
from strata.validation.readers.labels import kernel_format
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.fft import FftLines
from strata.workload.graph import Collective, Exchange, Extent
from strata.workload.moe import SILU_FLOP, SILU_SPECIAL
from strata.workload.ops import Gather, MatMul, Vector
from strata.workload.scan_ops import LuFactor, Scan

V = TypeVar("V", bound=Vector)
COPIES = 5.0  # of the weights, which take turns at most in ops/gemm.csv: small ones stay in the cache


def cold_device(chip: Chip) -> Device:
    """A chip whose kernels find nothing in its cache."""
    return device(chip, resident=False)


def benchmark_time(price: Price, chip: Chip) -> Any:
    """Time of a kernel in a benchmark that repeats it for some ten milliseconds [s]."""
    return power_capped(price, chip, briefly=True).price.time


def served_gemm_price(chip: Chip, dtype: str, m: Array, n: Array, k: Array) -> Price:
    """A product as a serving framework calls it: weights from DRAM, activations warm, quantised first where
    the format asks for it.
    """
    used = kernel_format(dtype)
    dev = device(chip, weight_only=used.weight_only)
    rounded = quantized_format(dev, used.weight, used.activation)
    # Up to five copies of the weights take turns (validation/README.md).
    warm = np.where(COPIES * k * n * bytes_of(used.weight) < chip.cache.capacity, 1.0, 0.0)
    price = matmul(m, n, k, dev, used.weight, used.activation, resident=True, warm=warm)
    return price + quantize_activations(m * k, rounded, dev, True) if rounded else price


def repeated_gemm(m: Array, n: Array, k: Array, dev: Device, precision: str) -> Price:
    """A product over the same buffers call after call: what the cache keeps of them comes from it."""
    footprint = bytes_of(precision) * (m * k + k * n + m * n)
    gone = cache_miss_share(footprint, dev.cache_capacity)
    return matmul(m, n, k, dev, precision, precision, resident=True, warm=1.0 - gone)


def fft_price(points: Array, lines: Array, precision: str, dev: Device) -> Price:
    """Complex transforms of all lines of one axis."""
    op = FftLines(
        name="fft",
        module="fft",
        inputs=(),
        output="fft",
        points=Extent(points),
        lines=(Extent(lines),),
        precision=precision,
    )
    return price_fft(op, dev)


def lu_price(order: Array, precision: str, dev: Device) -> Price:
    """One matrix copied, columns for rows, as the library wants it, and factorised."""
    element = bytes_of(precision)
    op = LuFactor(name="lu", module="lu", inputs=(), output="lu", order=Extent(order), precision=precision)
    # Neighbours in a row lie a column apart in the copy: each is an access of its own.
    turned = vector_kernel(order * order * element, order * order * max(element, SECTOR), 0.0, 0.0, dev)
    return turned + price_lu(op, dev)


def cumsum_price(steps: Array, channels: Array, precision: str, dev: Device) -> Price:
    """Sums over the steps before, for each channel; channels lie side by side."""
    op = Scan(
        name="cumsum",
        module="cumsum",
        inputs=(),
        output="cumsum",
        length=Extent(steps),
        inner=Extent(channels),
        precision=precision,
    )
    return price_scan(op, dev)


# ------------------------------------------------------------------------------------- experts


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpertLayer:
    """A layer of experts behind the router, on one of `ranks` ranks; an entry for each row."""

    tokens: Array  # of the whole expert group
    top_k: Array
    experts: Array
    ranks: Array
    hidden: Array
    inner: Array  # width of an expert on this rank
    weight: str
    activation: str


def expert_layer_time(layer: ExpertLayer, load: ExpertLoad, dev: Device) -> Any:
    """Time of one layer with so many tokens for each expert: the ops of a model's layer behind its router
    [s].
    """
    routed, hidden = np.asarray(load.tokens), layer.hidden
    # every token gets a sum, whether this rank has a part in it or not
    summed = layer.tokens / np.maximum(routed, 1.0)
    sent = 0.5 * dev.matrix(layer.weight, layer.activation).activation
    activation: dict[str, Any] = {"reads": 2.0, "writes": 1.0, "flop": SILU_FLOP, "special": SILU_SPECIAL}
    choice: dict[str, Any] = {"reads": 1.0, "writes": 0.0, "flop": 2.0, "special": 1.0}
    streams = (
        _row_work(Vector, "top_k", layer.tokens, layer.experts, precision="fp32", **choice),
        _row_work(Vector, "activation", routed, layer.inner, **activation),
    )
    moves = (
        _row_work(Gather, "dispatch", routed, hidden, reads=1.0, writes=sent, flop=0.0),
        _row_work(Gather, "combine", routed, hidden, reads=1.0, writes=summed, flop=2.0),
    )
    products = (
        _expert_gemm("up", layer, n=2.0 * layer.inner, k=layer.hidden),
        _expert_gemm("down", layer, n=layer.hidden, k=layer.inner),
    )
    time = sum(price_experts(op, dev, layer.ranks, load).time for op in products)
    time = (
        time
        + sum(price_vector(op, dev).time for op in streams)
        + sum(price_gather(op, dev).time for op in moves)
    )
    return np.mean(time, 0)


def fused_experts_time(layer: ExpertLayer, dev: Device, up: Array) -> Any:
    """Time of the products of a layer of experts under random routing, the second of which adds up the
    results of each token [s]; `up` matrices of the inner width are side by side in the first.
    """
    routed = layer.tokens * layer.top_k
    products = (
        _expert_gemm("up", layer, n=up * layer.inner, k=layer.hidden),
        _expert_gemm("down", layer, n=layer.hidden, k=layer.inner),
    )
    time = sum(benchmark_time(price_experts(op, dev), dev.chip) for op in products)
    kept: dict[str, Any] = {"reads": 1.0, "writes": 1.0 / layer.top_k, "flop": 2.0}
    return time + price_gather(_row_work(Gather, "combine", routed, layer.hidden, **kept), dev).time


def _expert_gemm(name: str, layer: ExpertLayer, n: Array, k: Array) -> ExpertMatMul:
    return ExpertMatMul(
        name=name,
        module="moe",
        inputs=(),
        output=name,
        tokens=Extent(layer.tokens),
        top_k=layer.top_k,
        experts=Extent(layer.experts / layer.ranks),
        all_experts=layer.experts,
        n=(Extent(n),),
        k=Extent(k),
        skew=0.0 * layer.tokens,
        weight=layer.weight,
        activation=layer.activation,
    )


def _row_work(
    kind: type[V],
    name: str,
    rows: Array,
    columns: Array,
    *,
    reads: Number,
    writes: Number,
    flop: Number,
    special: Number = 0.0,
    precision: str = "bf16",
) -> V:
    """Element-wise work on rows, or rows gathered from addresses of their own."""
    return kind(
        name=name,
        module="moe",
        inputs=(),
        output=name,
        m=Extent(rows),
        n=(Extent(columns),),
        reads=reads,
        writes=writes,
        flop_per_element=flop,
        special_per_element=special,
        precision=precision,
    )


# --------------------------------------------------------------------------------- collectives


def collective_op(pattern: str, payload: Array, exchange: Exchange | None = None) -> Collective:
    """A collective of a group; payload is the whole buffer of one rank."""
    return Collective(name=pattern, pattern=pattern, group="tp", payload=payload, exchange=exchange)


def token_exchange(direction: str, element: Number, **sizes: Any) -> Exchange:
    """Tokens on their way to experts (dispatch) or back (combine), so many bytes an element."""
    return Exchange(direction=direction, element=element, **sizes)


def dispatch_op(v: dict[str, Array], element: float) -> Collective:
    """Tokens to the ranks of their experts, a message of so many bytes an element for each pick: rows of m
    tokens, n wide.
    """
    sizes = {"tokens": v["m"], "top_k": v["topk"], "experts": v["experts"], "width": v["n"]}
    sent = token_exchange("dispatch", element, **sizes)
    return collective_op("all_to_all", element * v["m"] * v["n"] * v["topk"], sent)


def node_collective_time(fabric: Fabric, pattern: str, payload: Array, ranks: Array) -> Any:
    """Time of a collective of the first `ranks` devices of a node [s]; payload is the whole buffer of one
    rank.
    """
    return price_collective(collective_op(pattern, payload), spread(1.0, ranks, fabric), fabric).time


def cold_gemm(m: Array, n: Array, k: Array, dev: Device) -> PricedOp:
    """A bf16 product on cold data."""
    op = MatMul(
        name="product",
        module="",
        inputs=(),
        output="",
        m=Extent(m),
        n=(Extent(n),),
        k=Extent(k),
        weight="bf16",
        activation="bf16",
    )
    return op, matmul(m, n, k, dev, "bf16", "bf16")


def second_expert_gemm(v: dict[str, Array], experts: Array, picks: Array, dev: Device) -> list[PricedOp]:
    """The experts' second product of m tokens, n wide and k deep, and a token's picks added up."""
    down = ExpertMatMul(
        name="down",
        module="moe",
        inputs=(),
        output="down",
        tokens=Extent(v["m"]),
        top_k=picks,
        experts=Extent(experts),
        all_experts=experts,
        n=(Extent(v["n"]),),
        k=Extent(v["k"]),
        skew=0.0,
        weight="bf16",
        activation="bf16",
    )
    add = _row_work(Gather, "combine", v["m"], v["n"], reads=picks, writes=1.0, flop=2.0 * picks)
    return [(down, price_experts(down, dev)), (add, price_gather(add, dev))]


def fused_time(
    op: Collective, fabric: Fabric, gpus: Array, work: list[PricedOp], feeds: bool, dev: Device
) -> Any:
    """Time of a collective fused with kernels, the first of which sets the pieces; `feeds`: they make what is
    sent [s].
    """
    link = tile_link(op, spread(1.0, gpus, fabric), fabric)
    pieces = tile_pieces(work[0][0], dev, link.ranks) if work else 1.0
    slower, added = fuse(op, link, [price for _, price in work], pieces, feeds, dev)
    return sum((price.time for price in slower), 0.0) + added
