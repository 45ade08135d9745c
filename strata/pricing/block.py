"""The price of a block of ops: each op once, communication that may hide beside them, two halves of a batch
beside each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strata.arrays import Number, namespace
from strata.hardware.fabric import Fabric
from strata.hardware.system import System
from strata.mapping.place import Placement
from strata.mapping.plan import Plan
from strata.pricing.footprint import Footprint, footprint_of
from strata.pricing.kernels.attention import price_attention
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.experts import price_experts, price_gather
from strata.pricing.kernels.matmul import price_matmul
from strata.pricing.kernels.vector import price_vector
from strata.pricing.network.collectives import price_collective
from strata.pricing.network.expert_exchange import price_exchange, routed
from strata.pricing.overlap.equations import beside, share_links
from strata.pricing.overlap.hiding import Halves, dual_batch_overlap, overlap_by_tile
from strata.pricing.overlap.shared_experts import overlap_shared_experts
from strata.pricing.pipeline import ring_exposed
from strata.pricing.price import ZERO, Price, total_price
from strata.workload.graph import Attention, Block, Collective, ExpertMatMul, MatMul, Op, Vector


@dataclass(frozen=True, eq=False)
class PricedBlock:
    """A block with the price of each op, their sum, their time by kind of op, and what the block holds."""

    block: Block
    ops: tuple[tuple[Op, Price], ...]
    price: Price
    kinds: dict[str, Number]
    held: Footprint
    again: Price = ZERO  # what runs a second time before the backward pass
    # training: time in which its collectives, hidden or not, use links of the data parallel group
    busy: Number = 0.0


def price_op(op: Op, dev: Device, placement: Placement, system: System, plan: Plan) -> Price:
    """The price of any op of a rank's graph."""
    dev = dev.launching(op)
    if isinstance(op, MatMul):
        return price_matmul(op, dev)
    if isinstance(op, Vector):
        return price_gather(op, dev) if op.gathered else price_vector(op, dev)
    if isinstance(op, Attention):
        return price_attention(op, dev)
    if isinstance(op, ExpertMatMul):
        return price_experts(op, dev, plan.ep)
    assert isinstance(op, Collective)
    price = price_collective if op.exchange is None else price_exchange
    once = price(op, placement.groups[op.group], system.fabric)
    # A batch holds steps that some of its points do not take.
    return (
        once.times(namespace(op.payload, op.steps).where(op.payload > 0, op.steps, 0.0))
        if op.overlaps
        else once
    )


def price_block(
    block: Block,
    dev: Device,
    placement: Placement,
    system: System,
    plan: Plan,
    training: bool,
    page: Number = 1.0,
    overlap: str = "none",
) -> PricedBlock:
    """Price every op of a block once; communication that may hide costs only what the block's own work does
    not cover.

    What hides runs beside the block's kernels and beside collectives on other links; on links it shares it
    waits its turn.
    """
    priced = [(op, price_op(op, dev, placement, system, plan)) for op in routed(block.ops, dev, plan)]
    if any(isinstance(op, Collective) and op.overlaps for op, _ in priced):
        priced = _passed_round(priced)
    if dev.served:
        priced = overlap_shared_experts(priced, dev)
    # links are taken as long, whatever hides it
    visible = [(op, p) for op, p in priced if not (isinstance(op, Collective) and op.prefetch)]
    if overlap == "tiles" and not training:
        priced = overlap_by_tile(priced, dev, placement, system.fabric)
    shown = total_price([(1.0, p) for op, p in priced if not (isinstance(op, Collective) and op.prefetch)])
    final = []
    for op, price in priced:
        if isinstance(op, Collective) and op.prefetch:
            left = beside(price.time, shown.time, _busy(op.group, visible, placement, system))
            visible = [*visible, (op, price)]  # the next one that hides finds its links taken
            price = Price(
                time=left, network=left, upper=price.time, link_energy=price.energy, energy=price.energy
            )
            shown = shown + price
        final.append((op, price))
    kinds = _by_kind(final)
    again = ZERO
    if training and block.passes == "forward":
        again, repeated = _recomputed(final, shown, kinds, plan)
        kinds = {kind: time + repeated[kind] for kind, time in kinds.items()}
    busy = _busy("dp", priced, placement, system) if training and "dp" in placement.groups else 0.0
    return PricedBlock(
        block, tuple(final), shown, kinds, footprint_of(block, training, plan, page), again, busy
    )


def _passed_round(priced: list[tuple[Op, Price]]) -> list[tuple[Op, Price]]:
    """Ops with what is passed round in steps shown only as far as the parts of the op behind it do not cover
    them.
    """
    times = {op.name: price.time for op, price in priced}
    found = []
    for op, price in priced:
        if isinstance(op, Collective) and op.overlaps:
            left = ring_exposed(price.time, times[op.overlaps], op.steps)
            price = Price(
                time=left, network=left, upper=price.time, link_energy=price.energy, energy=price.energy
            )
        found.append((op, price))
    return found


def _busy(group: str, ops: list[tuple[Op, Price]], placement: Placement, system: System) -> Number:
    """Time in which collectives keep links busy that a group's own collective needs."""
    busy: Number = 0.0
    shared: dict[str, Number] = {}
    for op, price in ops:
        if isinstance(op, Collective):
            if op.group not in shared:
                shared[op.group] = share_links(
                    placement.groups[group], placement.groups[op.group], system.fabric
                )
            busy = busy + price.time * shared[op.group]
    return busy


def _recomputed(
    ops: list[tuple[Op, Price]], whole: Price, kinds: dict[str, Number], plan: Plan
) -> tuple[Price, dict[str, Number]]:
    """What a forward block repeats before its backward pass: all of it, its attention kernels, or nothing."""
    xp = namespace(plan.recompute)
    full, part = (
        xp.where(test, 1.0, 0.0)
        for test in (plan.recompute > 1, (plan.recompute > 0) & (plan.recompute <= 1))
    )
    attention = total_price([(1.0, price) for op, price in ops if op.kind == "attention"])
    repeated = {kind: time * (full + part if kind == "attention" else full) for kind, time in kinds.items()}
    return whole.times(full) + attention.times(part), repeated


def _by_kind(ops: list[tuple[Op, Price]]) -> dict[str, Number]:
    """Time by kind of op."""
    kinds: dict[str, Number] = {}
    for op, price in ops:
        kinds[op.kind] = kinds.get(op.kind, 0.0) + price.time
    return kinds


def dual(
    blocks: tuple[PricedBlock, ...],
    halves: tuple[PricedBlock, ...],
    dev: Device,
    placement: Placement,
    fabric: Fabric,
) -> tuple[PricedBlock, ...]:
    """Blocks whose layers run as two half batches beside each other where that is quicker; the ends of the
    model run whole.
    """
    layers = [Halves(b.block, b.ops, h.ops) for b, h in zip(blocks, halves, strict=True) if b.block.part >= 0]
    found = iter(dual_batch_overlap(layers, dev, placement, fabric))
    made = []
    for b in blocks:
        ops = next(found) if b.block.part >= 0 else None
        made.append(
            b
            if ops is None
            else replace(
                b, ops=tuple(ops), price=total_price([(1.0, p) for _, p in ops]), kinds=_by_kind(ops)
            )
        )
    return tuple(made)
