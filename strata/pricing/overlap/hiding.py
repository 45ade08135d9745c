"""Communication of a model's blocks hidden behind its kernels: tile by tile, beside independent kernels, or
behind another half batch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from strata.arrays import Number, namespace
from strata.hardware.fabric import Fabric
from strata.mapping.place import Placement
from strata.pricing.kernels.device import Device
from strata.pricing.overlap.equations import exposed, price_where, slowed
from strata.pricing.overlap.fused import Link, fuse, pieces_of, tile_link
from strata.pricing.price import Price, total_price
from strata.workload.graph import (
    Attention,
    Block,
    Collective,
    ExpertMatMul,
    MatMul,
    Op,
    Vector,
    of_shared_experts,
)

Priced = tuple[Op, Price]
PRODUCTS = (MatMul, ExpertMatMul)


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
        if isinstance(op, Collective) and not (op.prefetch or op.overlaps)
    ]
    return [pair for pair in found if pair.beside]


def _neighbours(i: int, op: Collective, ops: tuple[Op, ...]) -> Pair:
    shared = tuple(j for j, kernel in enumerate(ops) if of_shared_experts(kernel))
    if op.exchange is not None and op.name.startswith("dispatch") and shared:
        return Pair(i, shared, "apart")
    made = _maker(op.inputs[0], ops[:i]) if op.inputs else -1
    # routed and shared results are added: what comes last of them can feed the sum
    if shared and made in shared:
        made = next((j for j, kernel in enumerate(ops) if _adds_picks(kernel)), made)
    if made >= 0 and isinstance(ops[made], PRODUCTS):
        return Pair(i, (made,), "feeds")
    if made >= 0 and _adds_picks(ops[made]):
        product = _maker(ops[made].inputs[0], ops[:made])
        if product >= 0:
            return Pair(
                i,
                (product, made),
                "feeds",
                tuple(j for j in range(product + 1, made) if isinstance(ops[j], Collective)),
            )
    if op.pattern in ("all_gather", "all_to_all"):
        for j in range(i + 1, len(ops)):
            if op.output in ops[j].inputs and isinstance(ops[j], (*PRODUCTS, Attention)):
                return Pair(i, (j,), "fed")
    return Pair(i, (), "")


def _adds_picks(op: Op) -> bool:
    """Whether it adds up the results of a token's experts."""
    return isinstance(op, Vector) and op.name == "combine"


def _maker(tensor: str, ops: tuple[Op, ...]) -> int:
    """The place of the kernel that made a tensor, or -1."""
    return next(
        (
            j
            for j in range(len(ops) - 1, -1, -1)
            if ops[j].output == tensor and not isinstance(ops[j], Collective)
        ),
        -1,
    )


def overlap_by_tile(
    priced: list[Priced], device: Device, placement: Placement, fabric: Fabric
) -> list[Priced]:
    """The ops of a block with each collective beside its neighbours wherever that is quicker than one after
    the other.

    Some of a batch's plans lack some of its collectives: those carry nothing there, part nothing and take no
    op.
    """
    made = list(priced)
    free: list[Number] = [1.0] * len(priced)  # 0 where an op hides a collective already, point by point
    for pair in pairs(tuple(op for op, _ in priced)):
        op, alone = priced[pair.collective]
        assert isinstance(op, Collective)
        link = tile_link(op, placement.groups[op.group], fabric)
        work = [priced[j][1] for j in pair.beside]
        if pair.role == "apart":
            slower, added = _apart(alone.time, link, work, device)
        else:
            slower, added = fuse(
                op,
                link,
                work,
                pieces_of(priced[pair.beside[0]][0], device, link.ranks),
                pair.role == "feeds",
                device,
            )
        before = total_price([(1.0, p) for p in work])
        after = total_price([(1.0, p) for p in slower])
        gain = before.time + alone.time - after.time - added
        better = gain > 0.0
        for j in pair.beside:
            better = better & (free[j] > 0.0)
        for j in pair.between:
            better = better & (priced[j][1].time <= 0.0)
        for j, new in zip(pair.beside, slower, strict=True):
            made[j] = (priced[j][0], price_where(better, new, made[j][1]))
            if not device.for_bounds:  # a bound may not depend on which of two collectives came first
                free[j] = namespace(free[j], gain).where(better, 0.0, free[j])
        # Both at once are bound by the slower of them, not by their sum.
        hidden = replace(
            alone, time=added, network=added, lower=exposed(alone.lower, before.lower), saved=gain
        )
        made[pair.collective] = (op, price_where(better, hidden, alone))
    return made


def _apart(sending: Number, link: Link, work: list[Price], device: Device) -> tuple[list[Price], Number]:
    """Kernels that no tile of a collective waits for, slowed while it lasts, and what of it is left when they
    are done [s].
    """
    every = total_price([(1.0, p) for p in work])
    share = while_sending(link.cores, every.time, sending)
    parts = [p.time / namespace(every.time).where(every.time > 0.0, every.time, 1.0) for p in work]
    slower = [
        slowed(p, share, link.moved * part, device.bandwidth) for p, part in zip(work, parts, strict=True)
    ]
    return slower, exposed(sending, sum((p.time for p in slower), 0.0))


def while_sending(cores: Number, work: Number, sending: Number) -> Number:
    r"""Mean share of the cores that communication takes from work which may last longer [1].

    .. math:: \bar s = \min\left(s, \frac{s \, n}{c + s \, n}\right)

    share s while it sends, for n; work c on all cores: what it loses meanwhile is done later by all of them.

    >>> round(float(while_sending(0.2, 1.0, 0.5)), 4), float(while_sending(0.2, 1.0, 9.0))
    (0.0909, 0.2)
    """
    xp = namespace(cores, work, sending)
    lost = cores * sending
    whole = work + lost
    return xp.minimum(cores, lost / xp.where(whole > 0.0, whole, 1.0))


@dataclass(frozen=True, eq=False, slots=True)
class Halves:
    """A block at the full batch, and its ops at half of it."""

    block: Block
    full: tuple[Priced, ...]
    half: tuple[Priced, ...]


def dual_batch_overlap(
    layers: list[Halves], device: Device, placement: Placement, fabric: Fabric
) -> list[list[Priced]]:
    """The ops of layers whose batch is cut in two: collectives of one half run beside kernels of the other,
    where that is quicker.

    A layer is attention and what follows it (`seen_of_halves`). Small kernels are not half as long at half
    the batch: halves are priced as they are, and taken for all layers of a step or for none. Layers of
    several kinds of attention are paired with the mean of them.
    """
    loads = [_load(h, placement, fabric) for h in layers]
    mixing = [(h.block.count, load) for h, load in zip(layers, loads, strict=True) if h.block.part == 0]
    attention = _mean(mixing)
    made: list[list[Priced]] = [[] for _ in layers]
    seen: list[tuple[Number, Shown]] = []
    for place, (h, load) in enumerate(zip(layers, loads, strict=True)):
        if h.block.part != 0:
            found = _shown(_sum(load, attention), h.block.count, device)
            made[place] = [_doubled(op, price, found, device) for op, price in h.half]
            seen.append((h.block.count, found))
    count = sum((c for c, _ in seen), 0.0)
    usual = Shown(*(sum((c * getattr(s, f.name) for c, s in seen), 0.0) / count for f in fields(Shown)))
    for place, h in enumerate(layers):
        if h.block.part == 0:
            made[place] = [_doubled(op, price, usual, device) for op, price in h.half]
    return _quicker(layers, made, device.for_bounds)


@dataclass(frozen=True, eq=False, slots=True)
class Load:
    """One half of a layer, or of a part of it: time of its collectives, their bytes through memory and cores,
    and its kernels.
    """

    sending: Number
    moved: Number
    cores: Number
    work: Price


@dataclass(frozen=True, eq=False, slots=True)
class Shown:
    """What two halves leave to see: the share of communication that nothing covers, cores it takes, its bytes
    for a second of work.
    """

    left: Number
    cores: Number
    rate: Number


def _load(h: Halves, placement: Placement, fabric: Fabric) -> Load:
    sending: Number = 0.0
    moved: Number = 0.0
    cores: Number = 0.0
    for op, price in h.half:
        if isinstance(op, Collective):
            link = tile_link(op, placement.groups[op.group], fabric)
            sending, moved = sending + _raw(op, price), moved + link.moved
            cores = namespace(cores, link.cores).maximum(cores, link.cores)
    return Load(
        sending, moved, cores, total_price([(1.0, p) for op, p in h.half if not isinstance(op, Collective)])
    )


def _raw(op: Collective, price: Price) -> Number:
    """Time of a half's collective; weights that are gathered serve both halves."""
    return 0.5 * price.upper if op.prefetch else price.time


def _mean(parts: list[tuple[Number, Load]]) -> Load:
    """The mean of so many of each."""
    count = sum((c for c, _ in parts), 0.0)
    sending, moved, cores = (
        sum((c * getattr(load, name) for c, load in parts), 0.0) / count
        for name in ("sending", "moved", "cores")
    )
    return Load(sending, moved, cores, total_price([(c / count, load.work) for c, load in parts]))


def _sum(one: Load, other: Load) -> Load:
    cores = namespace(one.cores, other.cores).maximum(one.cores, other.cores)
    return Load(one.sending + other.sending, one.moved + other.moved, cores, one.work + other.work)


def seen_of_halves(busy: Number, sending: Number, layers: Number) -> Number:
    r"""Communication of one of two half batches that nothing covers, in a layer whose halves run beside each
    other [s].

    .. math:: s = \max(0, n - c) + \frac{\min(c, n)}{2 L}, \quad T = 2 (c + s) = 2 \max(c, n) + \frac{\min(c, n)}{L}

    kernels c of a layer at half the batch, as slow as communication beside them leaves them; its collectives
    n, at half the batch too. Once in L layers the first half has nothing to run beside.

    >>> float(seen_of_halves(2.0, 1.0, 50.0)), float(seen_of_halves(1.0, 2.0, 50.0))
    (0.01, 1.01)
    """
    return exposed(sending, busy) + namespace(busy, sending).minimum(busy, sending) / (2.0 * layers)


def _shown(layer: Load, count: Number, device: Device) -> Shown:
    cores = while_sending(layer.cores, layer.work.time, layer.sending)
    busy = slowed(layer.work, cores, layer.moved, device.bandwidth).time
    xp = namespace(busy, layer.sending, count)
    left = seen_of_halves(busy, layer.sending, count)
    rate = layer.moved / xp.where(layer.work.time > 0.0, layer.work.time, 1.0)
    return Shown(left / xp.where(layer.sending > 0.0, layer.sending, 1.0), cores, rate)


def _doubled(op: Op, price: Price, seen: Shown, device: Device) -> Priced:
    """An op of both halves."""
    if isinstance(op, Collective):
        time = 2.0 * seen.left * _raw(op, price)
        return op, replace(price.times(1.0 if op.prefetch else 2.0), time=time, network=time, lower=0.0)
    return op, slowed(price, seen.cores, seen.rate * price.time, device.bandwidth).times(2.0)


def _quicker(layers: list[Halves], halved: list[list[Priced]], each: bool) -> list[list[Priced]]:
    """The halves where all layers together are quicker that way, else the whole batch; `each` layer for
    itself where bounds are asked for.
    """
    gains = [
        h.block.count * sum((p.time - q.time for (_, p), (_, q) in zip(h.full, new, strict=True)), 0.0)
        for h, new in zip(layers, halved, strict=True)
    ]
    return [
        [
            (
                op,
                price_where(
                    (gain if each else sum(gains, 0.0)) > 0.0, replace(new, saved=old.time - new.time), old
                ),
            )
            for (op, old), (_, new) in zip(h.full, found, strict=True)
        ]
        for h, found, gain in zip(layers, halved, gains, strict=True)
    ]
