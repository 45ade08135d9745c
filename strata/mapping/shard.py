"""shard(): the graph of one rank. Extents are divided by their axis; collectives appear where a contraction
was divided.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strata.arrays import Number, ceil_div, field_names, namespace
from strata.mapping.place import ORDERED, exchange_ranks, joined_ranks
from strata.mapping.plan import DIMENSIONS, Plan, sharing
from strata.precision import bytes_of
from strata.workload.graph import (
    Attention,
    Block,
    Collective,
    Exchange,
    ExpertMatMul,
    Extent,
    Graph,
    MatMul,
    Op,
    Vector,
    total,
)
from strata.workload.tasks import Workload

# axes whose contraction leaves partial sums on the tensor group
SUMMED = ("heads", "ffn", "shared_ffn", "vocab")


def active_groups(plan: Plan) -> frozenset[str]:
    """Plan dimensions with more than one rank anywhere: which collectives exist is structure."""

    def any_above(value: Number, limit: float) -> bool:
        return bool((value > limit).any()) if hasattr(value, "any") else value > limit

    found = {name for name in DIMENSIONS if any_above(getattr(plan, name), 1)}
    if any_above(exchange_ranks(plan), 1):
        found.add("ep")
        if any_above(plan.moe_tp, 1):
            found.add("cut")
    if any_above(joined_ranks(plan), 1):
        found.add("joined")
    if any_above(plan.zero, 2) and "dp" in found:
        found |= {"fsdp", "copies"} if any_above(plan.moe_groups, 1) else {"fsdp"}
    for name, value in (("ring", plan.cp_mode == 1), ("ulysses", plan.cp_mode > 1)):
        if "cp" in found and any_above(value * 1.0, 0):
            found.add(name)
    if any_above(plan.redundant_experts, 0):
        found.add("redundant_experts")
    if any_above(plan.order, 0):
        found.add(ORDERED)
    return frozenset(found)


def microbatches(plan: Plan, work: Workload) -> Number:
    """Pieces a rank's batch is cut into: as told, else enough to keep each pipeline stage busy, never more
    than sequences.

    Decode keeps pp pieces in flight; training goes sequence by sequence, and so does prefill where there is a
    pipeline.
    """
    xp = namespace(plan.pp, plan.dp, plan.microbatches, work.batch)
    sequences = xp.maximum(work.batch / plan.dp, 1.0)
    wanted = {"decode": plan.pp, "train": sequences}.get(work.phase, xp.where(plan.pp > 1, sequences, 1.0))
    return xp.where(plan.microbatches > 0, plan.microbatches, xp.minimum(wanted, xp.floor(sequences)))


def shard(graph: Graph, plan: Plan, work: Workload, active: frozenset[str]) -> Graph:
    """The graph of the busiest rank under a plan, for one micro-batch. The identity plan leaves the graph as
    it is.
    """
    whole = work.phase != "train" and isinstance(plan.microbatches, float) and plan.microbatches in (0.0, 1.0)
    if not active and whole:
        return graph
    divider = _Divider(_splits(plan, work))
    blocks = []
    gathered: dict[tuple[int, str], list[Op]] = {}  # weights a block needs whole, forward and again backward
    for block in graph.blocks:
        ops = [_divide(op, divider) for op in block.ops]
        if "ulysses" in active:
            ops = [swap_heads(op, plan, work) if isinstance(op, Attention) else op for op in ops]
        if "redundant_experts" in active:
            ops = [_with_copies(op, plan) if isinstance(op, ExpertMatMul) else op for op in ops]
        made = _with_collectives(block, ops, plan, work, active)
        if "fsdp" in active:
            place = (block.part, block.layer)
            if block.passes == "forward":
                gathered[place] = _gather_weights(ops, plan, active)
            made = gathered[place] + made
        blocks.append(replace(block, ops=tuple(made)))
    return replace(graph, blocks=tuple(blocks))


def _with_copies(op: ExpertMatMul, plan: Plan) -> ExpertMatMul:
    """Experts of a rank where popular ones are held more than once."""
    held = ceil_div(op.all_experts + plan.redundant_experts, plan.ep)
    return replace(op, experts=replace(op.experts, count=held), redundant_experts=plan.redundant_experts)


def _gather_weights(ops: list[Op], plan: Plan, active: frozenset[str]) -> list[Op]:
    """Sharded weights of a block brought together before it runs, beside the work of the block before.

    Data parallel ranks shard what they all hold; experts are held by fewer ranks, and sharded over those.
    """

    def gather(name: str, group: str, held: Number) -> Collective:
        share = namespace(plan.zero, plan.dp, held).where((plan.zero > 2) & (plan.dp > 1), held, 0.0)
        return Collective(name, "", (), name, "all_gather", group, share, prefetch=True)

    made: list[Op] = [
        gather(
            "gather_weights",
            "dp",
            sum((op.weight_bytes() for op in ops if not isinstance(op, ExpertMatMul)), 0.0),
        )
    ]
    experts = [op.weight_bytes() for op in ops if isinstance(op, ExpertMatMul)]
    if experts and "copies" in active:
        made.append(gather("gather_experts", "copies", sum(experts, 0.0)))
    return made


def _splits(plan: Plan, work: Workload) -> dict[str, tuple[Number, Number]]:
    """Axis to (parts of its units, parts inside a unit)."""
    rows = plan.dp * microbatches(plan, work)
    inside = 1.0 if work.phase == "decode" else plan.cp
    # Tensor groups that share one set of experts: context ranks first. In decode those hold the same tokens,
    # which count once.
    groups = plan.ep * plan.moe_tp / plan.tp
    xp = namespace(groups, plan.cp, plan.sp)
    batches, within = sharing(plan), xp.minimum(groups, inside)
    normed = xp.where(plan.sp > 0, plan.tp, 1.0)
    return {
        "tokens": (rows, inside),
        "sequences": (rows, 1.0),
        "queries": (1.0, inside),
        "normed": (rows, inside * normed),
        "grouped": (rows / batches, inside / within),
        "routed": (rows / batches, inside * plan.ep / within),
        "span": (1.0, plan.cp if work.phase == "decode" else 1.0),
        "held": (1.0, plan.cp),
        "heads": (plan.tp, 1.0),
        "kv_heads": (plan.tp, 1.0),
        "ffn": (plan.tp, 1.0),
        "shared_ffn": (plan.tp, 1.0),
        "vocab": (plan.tp, 1.0),
        "experts": (plan.ep, 1.0),
        "expert_ffn": (plan.moe_tp, 1.0),
    }


class _Divider:
    """Local extents by the identity of the whole ones, so that an extent many ops share is divided once."""

    def __init__(self, splits: dict[str, tuple[Number, Number]]):
        self.splits = splits
        self.made: dict[int, Extent] = {}

    def local(self, extent: Extent) -> Extent:
        if not extent.axis:
            return extent
        made = self.made.get(id(extent))
        if made is None:
            parts, inner = self.splits[extent.axis]
            made = self.made[id(extent)] = Extent(
                ceil_div(extent.count, parts), extent.unit / inner, extent.axis
            )
        return made


def _divide(op: Op, divider: _Divider) -> Op:
    kind: type[Any] = type(op)
    values: list[Any] = []
    for name in field_names(kind):
        value = getattr(op, name)
        if isinstance(value, Extent):
            value = divider.local(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Extent):
            value = tuple([divider.local(e) for e in value])
        values.append(value)
    made: Op = kind(*values)
    return made


def _after(op: Op, suffix: str, pattern: str, group: str, payload: Number) -> Collective:
    """Communication of what an op made."""
    return Collective(f"{op.name}_{suffix}", op.module, (op.output,), op.output, pattern, group, payload)


def _before(op: Op, suffix: str, pattern: str, group: str, payload: Number) -> Collective:
    """Communication of what an op is about to read."""
    return Collective(f"{op.name}_{suffix}", op.module, op.inputs[:1], op.inputs[0], pattern, group, payload)


def _with_collectives(
    block: Block, ops: list[Op], plan: Plan, work: Workload, active: frozenset[str]
) -> list[Op]:
    """The ops with the communication a plan needs: sums where a contraction was cut, tokens to experts, keys
    to queries.
    """
    made: list[Op] = []
    moe = any(isinstance(op, ExpertMatMul) for op in ops)
    for op in ops:
        before, after = _around_experts(op, ops, plan, work, active) if moe else ([], [])
        if "cp" in active and isinstance(op, Attention):
            before, after = around_attention(op, plan, work, active)
        made += [*before, op, *after]
        if "tp" in active and not moe and isinstance(op, MatMul) and op.k.axis in SUMMED:
            made.append(
                _after(op, "sum", "all_reduce", "tp", op.m.size * total(op.n) * bytes_of(op.activation))
            )
        if "tp" in active and op.name == "embed" and isinstance(op, Vector):
            made.append(_after(op, "sum", "all_reduce", "tp", op.elements() * bytes_of(op.precision)))
        if "tp" in active and op.name == "head" and isinstance(op, MatMul) and work.phase != "train":
            made.append(
                _after(
                    op,
                    "gather",
                    "all_gather",
                    "tp",
                    op.m.size * total(op.n) * plan.tp * bytes_of(op.activation),
                )
            )
    if moe and "tp" in active:
        made.append(_moe_sum(made, block))
    return made


def _around_experts(
    op: Op, ops: list[Op], plan: Plan, work: Workload, active: frozenset[str]
) -> tuple[list[Op], list[Op]]:
    """What brings tokens to experts and their results back: an exchange between ranks of experts, and among
    the ranks that hold parts of the same expert one gather of its tokens and one sum of its results.

    Where experts are cut over several data parallel ranks, these gather the tokens of all of them.
    """
    sends, returns = op.name in ("dispatch", "combine_backward"), op.name in ("combine", "dispatch_backward")
    if not (sends or returns):
        return [], []
    assert isinstance(op, Vector)
    make, suffix, pattern = (
        (_after, "gather", "all_gather") if sends else (_before, "scatter", "reduce_scatter")
    )
    found: list[Op] = []
    xp = namespace(plan.ep, plan.moe_tp, plan.tp)
    apart = exchange_ranks(plan) > 1
    if "ep" in active:
        payload = exchange_bytes(op, plan, work)
        found.append(_exchange(make(op, "exchange", "all_to_all", "ep", payload), op, ops, plan, work))
        if "cut" in active:
            found.append(make(op, suffix, pattern, "cut", xp.where(apart, payload * plan.moe_tp, 0.0)))
    if "joined" in active:
        experts = next(o for o in ops if isinstance(o, ExpertMatMul))
        width = op.reads if op.name.startswith("dispatch") else total(op.n)
        every = experts.tokens.size * width * bytes_of(op.precision)
        found.append(make(op, f"{suffix}_all", pattern, "joined", xp.where(apart, 0.0, every)))
    return ([], found) if sends else (found[::-1], [])


def _moe_sum(made: list[Op], block: Block) -> Collective:
    """One sum over the tensor group closes a mixture layer: routed and shared experts are added before it."""
    norm = next(op for op in made if isinstance(op, MatMul) and op.name.startswith("router"))
    hidden = norm.k.size if block.passes == "forward" else total(norm.n)
    return _after(made[-1], "sum", "all_reduce", "tp", norm.m.size * hidden * bytes_of(norm.activation))


def _exchange(made: Collective, op: Op, ops: list[Op], plan: Plan, work: Workload) -> Collective:
    """The all-to-all with what it carries token by token; kernels made for it run in inference only."""
    assert isinstance(op, Vector)
    routed = next(o for o in ops if isinstance(o, ExpertMatMul))
    way = op.name if work.phase != "train" else ""
    width = op.reads if op.name.startswith("dispatch") else total(op.n)
    return replace(
        made,
        exchange=Exchange(
            way, _rank_tokens(plan, work), routed.top_k, routed.all_experts, width, bytes_of(op.precision)
        ),
    )


def _rank_tokens(plan: Plan, work: Workload) -> Number:
    """Tokens one rank sends: the ranks of a tensor group share out what they all hold."""
    # of a rank that has any, where dp exceeds the batch
    sequences = ceil_div(work.batch, plan.dp * microbatches(plan, work))
    return sequences * work.sequence / plan.tp / (1.0 if work.phase == "decode" else plan.cp)


def exchange_bytes(op: Op, plan: Plan, work: Workload) -> Number:
    r"""Bytes one rank sends to bring tokens to their experts, or their results back: one copy to each
    distinct rank.

    .. math:: n = \frac{T}{d\,t} R \left(1 - (1 - 1/R)^k\right) h b

    tokens T over d data and context parallel ranks, the t ranks of a tensor group sharing what they all hold;
    R ranks of which k uniform picks hit :math:`R (1 - (1 - 1/R)^k)` distinct ones; width h of b bytes.
    """
    assert isinstance(op, Vector)
    sends = op.name.startswith("dispatch")
    ranks = exchange_ranks(plan)
    top_k, width = (total(op.n), op.reads) if sends else (op.reads, total(op.n))
    copies = ranks * (1.0 - (1.0 - 1.0 / ranks) ** top_k)
    return _rank_tokens(plan, work) * copies * width * bytes_of(op.precision)


def around_attention(
    op: Attention, plan: Plan, work: Workload, active: frozenset[str]
) -> tuple[list[Op], list[Op]]:
    """Communication of context ranks before and after attention, by what the plan says of them (`cp_mode`).

    Decode splits the cache and adds up partial outputs. Longer phases gather keys and values first, pass them
    round a ring beside attention, or swap tokens for heads and back (Ulysses).

    Ring: Liu et al., arXiv 2310.01889. Swap: Jacobs et al., DeepSpeed-Ulysses, arXiv 2309.14509.
    """
    xp = namespace(plan.cp_mode, plan.cp)
    ring, swap = plan.cp_mode == 1, plan.cp_mode > 1
    # else all heads share one latent: it is gathered, or its cache stays split
    split = op.kv_heads.axis != ""
    wide = bytes_of(op.activation)
    rows = op.sequences.size * op.queries.size * op.heads.size * wide
    if work.phase == "decode":
        merged = context_bytes(op, work)
        merge = _after(
            op,
            "merge",
            "all_reduce",
            "cp",
            xp.where(swap, 0.0, merged) if "ulysses" in active and split else merged,
        )
        if not ("ulysses" in active and split):
            return [], [merge]
        return [], [
            merge,
            _after(op, "heads", "all_gather", "cp", xp.where(swap, rows * plan.cp * op.value_dim, 0.0)),
        ]
    stored = context_bytes(op, work)
    gathered = (
        xp.where(ring | (swap if split else False), 0.0, stored) if active & {"ring", "ulysses"} else stored
    )
    before: list[Op] = [_before(op, "ring", "all_gather", "cp", gathered)]
    after: list[Op] = []
    if "ring" in active:
        passed = _before(op, "pass", "send", "cp", xp.where(ring, stored / plan.cp, 0.0))
        before.append(replace(passed, steps=xp.maximum(plan.cp - 1.0, 1.0), overlaps=op.name))
    if "ulysses" in active:
        moved = op.sequences.size * op.queries.size * op.kv_heads.size * op.kv_width * wide if split else 0.0
        before.append(_before(op, "swap", "all_to_all", "cp", xp.where(swap, rows * op.key_dim + moved, 0.0)))
        after.append(_after(op, "swap_back", "all_to_all", "cp", xp.where(swap, rows * op.value_dim, 0.0)))
    return before, after


def swap_heads(op: Attention, plan: Plan, work: Workload) -> Attention:
    """Attention of a rank whose context group shares out heads: all tokens of its sequences, fewer heads, the
    cache of those.

    Where all heads share one latent a step keeps its cache split by tokens. The scorer of sparse attention
    stays as it is.
    """
    split = op.kv_heads.axis != ""
    if op.heads.axis == "" or (work.phase == "decode" and not split):
        return op
    parts = namespace(plan.cp_mode, plan.cp).where(plan.cp_mode > 1, plan.cp, 1.0)

    def longer(extent: Extent) -> Extent:
        return replace(extent, unit=extent.unit * parts)

    fewer: dict[str, Any] = {"heads": replace(op.heads, count=ceil_div(op.heads.count, parts))}
    if split:
        fewer |= {
            "kv_heads": replace(op.kv_heads, count=ceil_div(op.kv_heads.count, parts)),
            "held": longer(op.held),
        }
    if work.phase == "decode":
        return replace(op, **fewer, span=longer(op.span), cached=longer(op.cached))
    return replace(op, **fewer, queries=longer(op.queries))


def context_bytes(op: Op, work: Workload) -> Number:
    """Context parallel traffic: decode adds up partial outputs; longer phases pass keys and values round,
    twice in backward.
    """
    assert isinstance(op, Attention)
    if work.phase == "decode":
        return (
            op.sequences.size
            * op.queries.size
            * op.heads.size
            * (op.value_dim + 1.0)
            * bytes_of(op.activation)
        )
    stored = op.sequences.size * op.cached.size * op.kv_heads.size * op.kv_width * bytes_of(op.activation)
    return stored * (2.0 if op.backward else 1.0)
