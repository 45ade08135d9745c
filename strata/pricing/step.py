"""price(): a rank's graph becomes one step: blocks, stages and micro-batches, what shows, the clock held."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from strata.base.arrays import Mask, Number, namespace
from strata.base.errors import BadValue
from strata.mapping.layout import Sharding
from strata.mapping.plan_layout import HOST_ACTIVATIONS
from strata.pricing.block import PricedBlocks, one_by_one, overlapped, price_block, two_halves
from strata.pricing.fused_block import tensor_sizes
from strata.pricing.launching import launch_bound, launch_time, with_host
from strata.pricing.pipeline import mean_device, stage_counts_of, stage_send
from strata.pricing.power_cap import optimistic_price, step_capped
from strata.pricing.price import Price, bound_times, exposed, kinds_at_clock, price_where
from strata.pricing.pricers import KernelPrices, Pricing, Rank, rank_in_step
from strata.pricing.stage_costs import memory_beside, pass_times, step_memory
from strata.pricing.training_memory import held_blocks, layer_activations
from strata.pricing.update import update_price
from strata.software.engine import trainer_of
from strata.workload.graph import Collective, Graph, is_collective


def activations_away(
    given: Pricing, blocks: PricedBlocks, counts: list[Number], forward: Number, backward: Number
) -> tuple[Number, Number]:
    """What a micro-batch's passes wait for activations in the host's memory, on the stage that keeps most."""
    if HOST_ACTIVATIONS not in given.structure.active:
        return 0.0, 0.0
    fabric, sharding = given.system.fabric, given.sharding
    if fabric.host is None or fabric.host.link is None:
        raise BadValue(f"offload needs host.link, which fabric '{fabric.name}' does not state")
    held = held_blocks([(b.block, b.held) for b in blocks], counts, given.graph.sequence)
    kept, _ = layer_activations(held, sharding, trainer_of(given.engine))
    if given.structure.pipelined:
        kept = namespace(kept).max(kept, axis=0)
    away = namespace(kept).where(sharding.training.offload > 1, kept, 0.0)
    sent = away / fabric.host.link
    return exposed(sent, forward), exposed(sent, backward)


# what collectives of a group are for; others go by their group's own name
PURPOSES = {"expert_tp": "ep", "expert_tp_dp": "ep"}
SHARDED = {"all_gather": "parameters", "reduce_scatter": "gradients"}  # of weights that ranks share out


def purpose_of(op: Collective) -> str:
    """What a collective is for: the dimension of the plan that asks for it, or weights that are sharded.

    >>> purpose_of(Collective(pattern="all_gather", group="dp_shard", payload=1.0, prefetch=True))
    'parameters'
    """
    if op.prefetch and op.pattern in SHARDED:
        return SHARDED[op.pattern]
    return PURPOSES.get(op.group, op.group)


def add_times(one: dict[str, Number], other: dict[str, Number]) -> dict[str, Number]:
    """Times by name, added up.

    >>> add_times({"tp": 1.0}, {"tp": 2.0, "gradients": 0.5})
    {'tp': 3.0, 'gradients': 0.5}
    """
    return one | {name: one.get(name, 0.0) + time for name, time in other.items()}


def exposed_in_blocks(blocks: PricedBlocks, sharding: Sharding, training: bool) -> dict[str, Number]:
    """Time of collectives that kernels of their blocks do not hide, on a mean device over all micro-batches
    [s]; layers that are recomputed have theirs again, but for weights, which are there already.
    """
    level = sharding.training.recompute
    again = namespace(level).where(level > 1, 2.0, 1.0) if training else 1.0
    share = sharding.microbatches / sharding.stages
    found: dict[str, Number] = {}
    for b in blocks:
        for op, price in b.ops:
            if is_collective(op):
                often = again if b.block.direction == "forward" and not op.prefetch else 1.0
                time = (b.block.times * share * often) * price.time
                name = purpose_of(op)
                found[name] = found.get(name, 0.0) + time
    return found


OP_KINDS = ("matmul", "experts", "attention", "vector", "collective")


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One step: its time, its parts for one device, and what it holds in memory."""

    time: Number  # until every sequence has its result
    stage: Number  # the slowest pipeline stage, one micro-batch
    passes: Number  # of all micro-batches through all stages: without update and host
    stretch: Number  # by the clock that is held, over the highest
    microbatches: Number
    price: Price  # mean device: work of all micro-batches
    time_by_kind: dict[str, Number]  # mean device, by category of op
    time_by_bound: dict[str, Number]  # by what binds a mean device and what it waits for: adds up to the time
    lower: Number
    upper: Number
    memory: dict[str, Number]  # largest device, bytes by purpose
    flop: Number  # useful operations of the whole system
    items: Number  # what the step yields
    item: str  # what one is called
    formats: tuple[tuple[str, str], ...]  # of its products
    clock: Number  # what limits of power and heat leave of the highest clock
    static: Number  # power of a device that flows whatever the load, at its temperature [W]
    logic: Number  # hottest place of logic and of DRAM [K]; nan where the chip's cooling is not described
    dram: Number
    within_limits: Number  # 1 where a device keeps its limits of power and heat at that clock
    # what no kernel covers on a mean device, by what it is for: gradients, parameters, tp, cp, ep, p2p, and a
    # pipeline's bubble
    exposed: dict[str, Number] = field(default_factory=dict)
    blocks: PricedBlocks = field(default=())

    @property
    def power(self) -> Number:
        """Mean power of a device over the step [W]."""
        return self.static + self.price.energy / self.time


def price(given: Pricing, known: KernelPrices | None = None) -> Step:
    """Price one step. Pure and array-safe: the same code for one point and for a batch.

    Kernels are fused, and communication runs beside computation as the engine has it, where a step is quicker
    that way: more work at once draws more power, so that a step at its power limit can be slower. Tiles or
    halves hide beside kernels one by one; fused kernels pass their tiles on to the links already. `known`:
    prices of kernels that are taken over where the device is the same, and left there.
    """
    engine, training, sharding = given.engine, given.training, given.sharding
    rank, slowest = rank_in_step(given), given.structure.slowest
    known = known if known is not None and known.same(rank.device) else None

    def priced(graph: Graph, page: Number) -> PricedBlocks:
        sizes = tensor_sizes(graph) if rank.device.fuses else None
        made = tuple(
            price_block(b, rank, sharding, training=training, page=page, sizes=sizes, known=known)
            for b in graph.blocks
        )
        return launch_bound(given, rank, made)

    def apart(blocks: PricedBlocks) -> PricedBlocks:
        if not rank.device.fuses:
            return blocks
        made = tuple(one_by_one(b, rank, sharding, training=training) for b in blocks)
        return launch_bound(given, rank, made)

    blocks = priced(given.graph, engine.kv_block_size)
    # a trainer has no other way to run: bounds take it so too
    hiding = training and (engine.overlap != "none" or bool({"tp", "ep"} & given.structure.active))
    plain = _step(given, rank, blocks, hiding=hiding)
    blocks = apart(blocks)
    if rank.device.fuses and not given.structure.for_bounds:
        plain = _quicker(_step(given, rank, blocks, hiding=hiding), plain, slowest)
    if engine.overlap == "none" or training or not given.structure.active:
        return plain
    if engine.overlap == "dual_batch" and given.halves is not None:
        halves = apart(priced(given.halves, 1.0))
        overlapping = two_halves(blocks, halves, given.graph.sequence, rank)
    else:
        overlapping = tuple(overlapped(b, rank, sharding) for b in blocks)
    overlapping = launch_bound(given, rank, overlapping)
    found = _quicker(_step(given, rank, overlapping, hiding=True), plain, slowest)
    return replace(found, price=replace(found.price, saved=plain.price.time - found.price.time))


def _quicker(one: Step, other: Step, slowest: bool = False) -> Step:
    """The quicker of two steps at each point, or that within limits of power and heat; or the slower one."""
    kept, before = one.within_limits, other.within_limits
    quicker = (kept > before) | ((kept == before) & (one.time < other.time))
    better = one.time > other.time if slowest else quicker
    xp = namespace(one.time, other.time)

    def pick(a: Any, b: Any) -> Any:
        if isinstance(a, dict):
            return {key: pick(a[key], b[key]) for key in a}
        if isinstance(a, str):
            return a
        if isinstance(a, tuple):  # blocks are looked at for single points only
            return a if isinstance(better, bool | np.bool_) and better else b
        return price_where(better, a, b) if isinstance(a, Price) else xp.where(better, a, b)

    return Step(**{f.name: pick(getattr(one, f.name), getattr(other, f.name)) for f in fields(Step)})


def _step(given: Pricing, rank: Rank, blocks: PricedBlocks, *, hiding: bool) -> Step:
    """A step of priced blocks: stages of a pipeline, micro-batches, the update, and the clock that all of it
    leaves. `hiding`: collectives run beside kernels, by tiles or by halves.
    """
    sharding, structure, training = given.sharding, given.structure, given.training
    pieces = sharding.microbatches
    send = stage_send(given, rank)
    counts = stage_counts_of(given, blocks)
    passes = pass_times(given, blocks, counts, send)
    mean, kinds = mean_device(given, blocks, send, passes.waits)
    slowest, time = passes.slowest, passes.time
    seen = add_times(exposed_in_blocks(blocks, sharding, training), passes.exposed)
    after: Price | None = None
    if training:
        both = passes.slowest - passes.backward, passes.backward
        waits = activations_away(given, blocks, counts, *both)
        longer = both[0] + waits[0], both[1] + waits[1]  # beside which gradients and weights cross
        update, late = update_price(given, rank, blocks, counts, longer), pieces * (waits[0] + waits[1])
        extra = update.price + Price(time=late, overhead=late, upper=late)
        seen = add_times(seen, update.exposed | {"offload": late})
        after, time = extra, time + extra.time
        kinds["collective"] = kinds.get("collective", 0.0) + extra.network
        kinds["vector"] = kinds.get("vector", 0.0) + extra.time - extra.network
    launching = 0.0 if structure.for_bounds else launch_time(given, rank)
    host = (launching, given.engine, given.work, sharding)
    if structure.for_bounds:
        mean, after = mean if after is None else mean + after, None
        mean = optimistic_price(mean, time, _apart(given, hiding))
    held = step_capped(mean, rank.device.chip, time, with_host(time, *host) - time, after)
    mean = mean if after is None else mean + after
    stretch, kinds = held.price.time / mean.time, kinds_at_clock(kinds, mean, held.price)
    full, mean, time = mean, held.price, time * stretch
    hosted = with_host(time, *host)
    xp, held_of = namespace(mean.lower, mean.upper, time), [(b.block, b.held) for b in blocks]
    return Step(
        time=hosted,
        stage=slowest * stretch,
        passes=passes.time * stretch,
        stretch=stretch,
        microbatches=pieces,
        price=mean,
        time_by_kind=kinds,
        time_by_bound=bound_times(full, mean, time, hosted),
        lower=xp.minimum(mean.lower, time),
        upper=xp.maximum(mean.upper + (time - mean.time), time) + (hosted - time),
        memory={} if structure.time_alone else step_memory(given, held_of, counts) | memory_beside(given),
        flop=given.unsharded_graph.flop(),
        items=given.unsharded_graph.items,
        item=given.unsharded_graph.item,
        formats=given.unsharded_graph.formats,
        clock=held.share,
        static=held.static,
        logic=held.logic,
        dram=held.dram,
        exposed={name: each * stretch for name, each in seen.items()},
        within_limits=1.0 if structure.for_bounds else held.holds,
        blocks=blocks,
    )


def _apart(given: Pricing, hiding: bool) -> Mask:
    """Whether nothing is sent beside a step's kernels: no tiles, halves, gathered weights or ring."""
    zero = given.sharding.zero
    if hiding:
        return zero < 0
    apart = zero < 3
    for alternative in given.sharding.alternatives:
        if alternative.ring and alternative.mask is not None:
            apart = apart & (
                not alternative.mask if isinstance(alternative.mask, bool) else ~alternative.mask
            )
    return apart
