"""Single kernels that compute and communicate at once, by their sizes."""

from __future__ import annotations

from typing import Any

from strata.arrays import Number, namespace
from strata.mapping.place import spread
from strata.precision import bytes_of
from strata.pricing.kernel_request import KernelRequest, Sizes
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.experts import price_experts, price_gather
from strata.pricing.kernels.graph_product import price_matmul
from strata.pricing.network.collectives import price_collective
from strata.pricing.network.expert_exchange import price_exchange
from strata.pricing.overlap.fused import fuse, tile_link
from strata.pricing.overlap.tiles import hidden_bound
from strata.pricing.price import Price, total_price
from strata.pricing.pricers import PricedOp, tile_pieces
from strata.pricing.served_kernels import alone, expert_gemm, row_work
from strata.workload.graph import Collective, Exchange, Extent
from strata.workload.ops import Gather, MatMul


def gathered_product(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """All rows gathered from the ranks, for a product with the rank's own columns."""
    whole = bytes_of(run.activation) * sizes["m"] * sizes["k"]
    op = _collective("all_gather", _sent(sizes, whole / sizes["ranks"]) * sizes["ranks"])
    return _fused(op, sizes, dev, run, [_product(sizes, dev, run)], feeds=False)


def scattered_product(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """A product over the rank's own depth, its sums scattered over the ranks."""
    whole = bytes_of(run.activation) * sizes["m"] * sizes["n"]
    op = _collective("reduce_scatter", _sent(sizes, whole / sizes["ranks"]) * sizes["ranks"])
    return _fused(op, sizes, dev, run, [_product(sizes, dev, run)], feeds=True)


def exchanged_product(sizes: Sizes, dev: Device, run: KernelRequest) -> Price:
    """Attention's results from ranks of heads to ranks of tokens, for the output projection of a rank's own
    tokens (Ulysses).
    """
    op = _collective("all_to_all", _sent(sizes, bytes_of(run.activation) * sizes["m"] * sizes["k"]))
    return _fused(op, sizes, dev, run, [_product(sizes, dev, run)], feeds=False)


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
