"""Collectives of a block hidden behind its kernels: tile by tile, or beside kernels that neither feed nor
await them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strata.arrays import Number, namespace
from strata.pricing.kernels.device import Device
from strata.pricing.overlap.equations import exposed, slowed, while_sending
from strata.pricing.overlap.fused import fuse, tile_link
from strata.pricing.price import Price, price_where, total_price
from strata.pricing.pricers import PricedOp, Rank, takes_tiles, tile_pieces
from strata.workload.expert_ops import SHARED_EXPERT
from strata.workload.graph import Collective, Op, is_collective

PRODUCTS = ("matmul", "experts")  # categories of ops that make what a collective sends tile by tile


@dataclass(frozen=True)
class Pair:
    """A collective and the ops that may run beside it, by their places in a block."""

    collective: int
    beside: tuple[int, ...]
    # feeds: the ops make what is sent; fed: they read what comes; apart: neither waits for the other
    role: str
    between: tuple[int, ...] = ()  # collectives that part them wherever they carry anything


def pairs(ops: tuple[Op, ...]) -> list[Pair]:
    """Which collectives of a block may overlap with which of its ops, first come first served: an op hides
    one at most.

    Sums with the product before them, gathers and exchanges with the product or attention that reads them,
    tokens on their way to experts with the experts all tokens share.
    """
    found = [
        _neighbours(i, op, ops)
        for i, op in enumerate(ops)
        if is_collective(op) and not (op.prefetch or op.overlaps)
    ]
    return [pair for pair in found if pair.beside]


def _neighbours(i: int, op: Collective, ops: tuple[Op, ...]) -> Pair:
    shared = tuple(j for j, kernel in enumerate(ops) if kernel.role == SHARED_EXPERT)
    if op.exchange is not None and op.exchange.direction == "dispatch" and shared:
        return Pair(i, shared, "apart")
    made = _maker(op.inputs[0], ops[:i]) if op.inputs else -1
    # routed and shared results are added: what comes last of them can feed the sum
    if shared and made in shared:
        made = next((j for j, kernel in enumerate(ops) if kernel.route == "combine"), made)
    if made >= 0 and ops[made].category in PRODUCTS:
        return Pair(i, (made,), "feeds")
    if made >= 0 and ops[made].route == "combine":
        product = _maker(ops[made].inputs[0], ops[:made])
        if product >= 0:
            return Pair(
                i,
                (product, made),
                "feeds",
                tuple(j for j in range(product + 1, made) if is_collective(ops[j])),
            )
    if op.pattern in ("all_gather", "all_to_all"):
        for j in range(i + 1, len(ops)):
            if op.output in ops[j].inputs and takes_tiles(ops[j]):
                return Pair(i, (j,), "fed")
    return Pair(i, (), "")


def _maker(tensor: str, ops: tuple[Op, ...]) -> int:
    """The place of the kernel that made a tensor, or -1."""
    return next(
        (j for j in range(len(ops) - 1, -1, -1) if ops[j].output == tensor and not is_collective(ops[j])),
        -1,
    )


def overlap_by_tile(
    priced: list[PricedOp], rank: Rank, chosen: list[tuple[Pair, Number]] | None = None
) -> list[PricedOp]:
    """The ops of a block with each collective beside its neighbours wherever that is quicker than one after
    the other; `chosen`: pairs with 1 where the software runs them so, else all there are.

    Some of a batch's plans lack some of its collectives: those carry nothing there, part nothing and take no
    op.
    """
    device, made = rank.device, list(priced)
    free: list[Number] = [1.0] * len(priced)  # 0 where an op hides a collective already, point by point
    if chosen is None:
        chosen = [(pair, 1.0) for pair in pairs(tuple(op for op, _ in priced))]
    for pair, on in chosen:
        op, alone = priced[pair.collective]
        assert is_collective(op)
        link = tile_link(op, rank.placement.groups[op.group], rank.fabric)
        work = [priced[j][1] for j in pair.beside]
        if pair.role == "apart":
            slower, added = kernels_apart(alone.time, link.cores, link.moved, work, device)
        else:
            slower, added = fuse(
                op,
                link,
                work,
                tile_pieces(priced[pair.beside[0]][0], device, link.ranks),
                pair.role == "feeds",
                device,
            )
        before = total_price([(1.0, p) for p in work])
        after = total_price([(1.0, p) for p in slower])
        gain = before.time + alone.time - after.time - added
        better = (gain > 0.0) & (on > 0.0) & (alone.time > 0.0)
        for j in (pair.collective, *pair.beside):
            better = better & (free[j] > 0.0)
        for j in pair.between:
            better = better & (priced[j][1].time <= 0.0)
        for j, new in zip(pair.beside, slower, strict=True):
            made[j] = (priced[j][0], price_where(better, new, made[j][1]))
            # a bound may not depend on which of two collectives came first
            if not device.software.for_bounds:
                free[j] = namespace(free[j], gain).where(better, 0.0, free[j])
        free[pair.collective] = namespace(free[pair.collective], gain).where(
            better, 0.0, free[pair.collective]
        )
        lower = hidden_bound(alone.lower, before.lower, added)
        hidden = replace(alone, time=added, network=added, lower=lower, saved=gain)
        made[pair.collective] = (op, price_where(better, hidden, made[pair.collective][1]))
    return made


def hidden_bound(communication: Number, work: Number, added: Number) -> Number:
    r"""Lower bound of what a collective adds to kernels beside which it runs [s].

    .. math:: \min(\max(0, c - h), a)

    bounds c of the collective and h of the kernels: both at once are bound by the slower of them, not by
    their sum; never more than it is predicted to add, a, which kernels slower than their bound may cover.

    >>> [float(hidden_bound(3.0, work, 1.5)) for work in (1.0, 2.0, 4.0)]
    [1.5, 1.0, 0.0]
    """
    left = exposed(communication, work)
    return namespace(left, added).minimum(left, added)


def kernels_apart(
    sending: Number, cores: Number, moved: Number, work: list[Price], device: Device
) -> tuple[list[Price], Number]:
    """Kernels that no tile of a collective waits for, slowed while it lasts, and what of it is left when they
    are done [s].
    """
    every = total_price([(1.0, p) for p in work])
    share = while_sending(cores, every.time, sending)
    parts = [p.time / namespace(every.time).where(every.time > 0.0, every.time, 1.0) for p in work]
    slower = [slowed(p, share, moved * part, device.bandwidth) for p, part in zip(work, parts, strict=True)]
    return slower, exposed(sending, sum((p.time for p in slower), 0.0))
