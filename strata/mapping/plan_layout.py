"""A plan as a layout: groups of ranks, axes on them, context ranks in attention, and what makes it legal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from strata.base.arrays import Number, namespace
from strata.mapping import rules
from strata.mapping.layout import PLAIN, Alternative, AxisLayout, Sharding
from strata.mapping.training_plan import SCHEDULE, TrainingPlan, shard_ranks, training_violations
from strata.workload.lora import COLUMN_AXIS, RANK_AXIS
from strata.workload.tasks import Workload

if TYPE_CHECKING:
    from strata.mapping.plan import Plan

# among the active groups: ways that plans of a batch go, by their number from 1
RING, ULYSSES, HYBRID = "ring", "ulysses", "hybrid"
CONTEXT_WAYS = (RING, ULYSSES, HYBRID)
# groups of plans that go both ways: neighbours that swap tokens for heads, and those that pass keys round
CONTEXT_GROUPS = ("cp_a2a", "cp_p2p")


def swapping_ranks(plan: Plan, phase: str = "train") -> Number:
    """Context ranks that swap tokens for heads: all with Ulysses, as many as told where rings go between
    them, else one. In a decode step nothing goes round, and parts of the cache stay where they are.

    >>> from strata.mapping.plan import plan
    >>> modes = ("ring", "ulysses", "a2a+p2p")
    >>> [float(swapping_ranks(plan(cp=8, cp_a2a=4, cp_mode=mode))) for mode in modes]
    [1.0, 8.0, 4.0]
    """
    xp = namespace(plan.cp_mode, plan.cp, plan.cp_a2a)
    inner = 1.0 if phase == "decode" else xp.minimum(xp.maximum(plan.cp_a2a, 1.0), plan.cp)
    return xp.where(plan.cp_mode > 2, inner, xp.where(plan.cp_mode > 1, plan.cp, 1.0))


def attention_axes(
    plan: Plan, work: Workload, by_heads: Number, both: bool = False
) -> dict[str, dict[str, AxisLayout]]:
    """Attention where context ranks share out heads (Ulysses): all tokens of its sequences, fewer heads, the
    cache of those; with rings between such ranks (`both`) the tokens of one of the rings' parts.

    Where all heads share one latent, its cache stays divided by tokens, and a decode step with it; the scorer
    of sparse attention stays as it is. `by_heads`: context ranks that divide heads, 1 where they divide
    tokens.
    """
    heads, by_tokens = plan.tp * by_heads, plan.cp / by_heads
    swapping, ringing = CONTEXT_GROUPS if both else ("cp", "")
    full = {axis: AxisLayout(heads, 1.0, ((axis, "tp"), (axis, swapping))) for axis in ("heads", "kv_heads")}
    positions, cached = (((along, ringing),) if both else () for along in ("positions", "kv_positions"))
    full["kv_cache_tokens"] = AxisLayout(1.0, by_tokens, cached)
    if work.phase == "decode":
        return {"softmax_attention": full | {"kv_tokens": AxisLayout(1.0, by_tokens)}}
    queries = {"queries": AxisLayout(1.0, by_tokens, positions)}
    return {"softmax_attention": full | queries, "latent_attention": {"heads": full["heads"], **queries}}


def context_alternatives(
    plan: Plan, work: Workload, active: frozenset[str], axes: dict[str, AxisLayout]
) -> tuple[Alternative, ...]:
    """The ways context ranks meet in attention, where plans of a batch differ in it.

    Ring: Liu et al., arXiv 2310.01889. Swap of tokens for heads: Jacobs et al., DeepSpeed-Ulysses, arXiv
    2309.14509. Both: Fang & Zhao, USP, arXiv 2405.07719; Megatron-LM, cp_comm_type a2a+p2p. In a decode step
    parts of the cache stay where they are, and nothing goes round.
    """
    rings = work.phase != "decode"
    swapping, ringing, both = ULYSSES in active, RING in active and rings, HYBRID in active and rings
    if not (swapping or ringing or both):
        return (PLAIN,)
    moved = swapping or both
    swapped = attention_axes(plan, work, swapping_ranks(plan, work.phase), both) if moved else {}
    usual = {module: {axis: axes[axis] for axis in own} for module, own in swapped.items()}
    mode = plan.cp_mode
    round_ring = (mode == 1) & (plan.cp > 1) if ringing else False
    plain = (mode < 2) & (round_ring == 0) | (mode > 2) if not both else (mode < 2) & (round_ring == 0)
    found = [Alternative(mask=plain, axes=usual)]
    if ringing:
        found.append(Alternative(name=RING, mask=round_ring, axes=usual, ring=True))
    if swapping:
        found.append(Alternative(name=ULYSSES, mask=(mode > 1) & (mode < 3), axes=swapped))
    if both:
        found.append(Alternative(name=HYBRID, mask=(mode > 2) & (plan.cp > 1), axes=swapped, ring=True))
    return tuple(found)


ORDERED = "orders"  # among the active groups: plans lie in other orders than the usual one
TENSOR_GROUP, STAGES = "tp", "pp"
# Groups that training alone has: all ranks that hold the same weights, those among them that ZeRO shards
# over, copies of these; the same three of experts; and the two stages that hold a tied embedding.
SUMS_OF_WEIGHTS = ("dp_cp", "dp_shard", "dp_copies")
SUMS_OF_EXPERTS = ("expert_dp", "expert_shard", "expert_copies")
ENDS = "ends"
# among the active groups: plans keep state of the optimiser, or activations, in the host's memory
HOST_STATE, HOST_ACTIVATIONS = "host_state", "host_activations"
TRAINING_GROUPS = frozenset((*SUMS_OF_WEIGHTS, *SUMS_OF_EXPERTS, ENDS))
# some plans hold the residual stream in parts over their tensor group; and others of the batch do not
SEQUENCE, WHOLE_SEQUENCE = "sequence", "whole_sequence"
DIVIDED_HEADS = ("heads", "kv_heads", "state_heads", "state_groups")  # units that tensor groups share
RESIDUAL_AXES = (("tokens", "sp_tokens"),)


def active_groups(plan: Plan) -> frozenset[str]:
    """Groups with more than one rank anywhere, and choices of any plan: which collectives exist."""

    def any_above(value: Number, limit: float) -> bool:
        above = value > limit
        return above if isinstance(above, bool) else bool(above.any())

    found = {name for name in ("tp", "cp", "dp", "pp") if any_above(getattr(plan, name), 1)}
    if any_above(exchange_ranks(plan), 1):
        found.add("ep")
        if any_above(plan.moe_tp, 1):
            found.add("expert_tp")
    if any_above(expert_tp_dp_ranks(plan), 1):
        found.add("expert_tp_dp")
    if any_above(plan.zero, 2) and not found.isdisjoint(("dp", "cp")):
        found |= {"fsdp", "expert_dp"} if any_above(plan.moe_groups, 1) else {"fsdp"}
    found |= _weight_groups(plan, any_above)
    if "cp" in found:
        for number, name in enumerate(CONTEXT_WAYS, 1):
            if any_above((plan.cp_mode == number) * 1.0, 0):
                found |= {name, *CONTEXT_GROUPS} if name == HYBRID else {name}
    for name, value in ((SEQUENCE, plan.sp), (WHOLE_SEQUENCE, 1.0 - plan.sp)):
        if "tp" in found and any_above(value * (plan.tp - 1.0), 0):
            found.add(name)
    if any_above(plan.redundant_experts, 0):
        found.add("redundant_experts")
    if any_above(plan.offload % 2, 0):  # of OFFLOAD: the optimiser, or both
        found.add(HOST_STATE)
    if any_above(plan.offload, 1):
        found.add(HOST_ACTIVATIONS)
    if any_above(plan.order, 0):
        found.add(ORDERED)
    if "pp" in found:
        found |= {name for i, name in enumerate(SCHEDULE) if i and any_above((plan.schedule == i) * 1.0, 0)}
    return frozenset(found)


def _weight_groups(plan: Plan, any_above: Callable[[Number, float], bool]) -> set[str]:
    """Groups that sum gradients and shard weights; experts' own where other ranks hold these."""
    found = {ENDS} if any_above(plan.pp, 1) else set()
    copies, sharded = plan.dp * plan.cp, any_above(plan.zero, 0)
    apart = any_above((plan.ep * plan.moe_tp != plan.tp) * 1.0, 0)
    several = any_above(copies, 1)
    kinds = [SUMS_OF_WEIGHTS] if several else []
    if apart and (several or any_above(plan.moe_groups, 1)):
        kinds.append(SUMS_OF_EXPERTS)
    for names in kinds:
        found |= {names[0], names[1]} if sharded else {names[0]}
        if sharded and any_above(copies / shard_ranks(plan), 1):
            found.add(names[2])
    return found


def group_ranks(plan: Plan, active: frozenset[str]) -> dict[str, Any]:
    """Each group's distance between members and their number; where plans lie in orders of their own, also
    the levels (stride, degree) of tp, cp and dp through which the groups of a mixture are counted.
    """
    degrees = {name: getattr(plan, name) for name in ("tp", "cp", "dp", "pp")}
    apart = strides(plan) if ORDERED in active else _usual_strides(degrees)
    levels = tuple((apart[name], degrees[name]) for name in ("tp", "cp", "dp")) if ORDERED in active else None
    found: dict[str, Any] = {name: (apart[name], degrees[name], None) for name in degrees}
    # Groups of a mixture over the tp x cp x dp ranks, tp innermost.
    found["expert_tp"] = (1.0, plan.moe_tp, levels)  # the parts of one expert
    found["expert_tp_dp"] = (plan.tp, expert_tp_dp_ranks(plan), levels)
    found["ep"] = (expert_stride(plan), exchange_ranks(plan), levels)
    found["expert_dp"] = (plan.ep * plan.moe_tp, plan.moe_groups, levels)  # the same part of the same experts
    swapping, ringing = CONTEXT_GROUPS
    swapped = swapping_ranks(plan)
    found[swapping] = (apart["cp"], swapped, None)
    found[ringing] = (apart["cp"] * swapped, plan.cp / swapped, None)
    return found | _sum_ranks(plan, apart["pp"], levels)


def _sum_ranks(plan: Plan, stage: Number, levels: Any) -> dict[str, Any]:
    """Groups of ranks that hold the same weights, shards innermost. Experts have as many copies as the rest,
    shards over what is left (Megatron-LM, --num-distributed-optimizer-instances).
    """
    xp = namespace(plan.tp, plan.ep, plan.moe_tp, plan.pp)
    ranks, shards = plan.dp * plan.cp, shard_ranks(plan)
    own = plan.ep * plan.moe_tp
    expert_shards = xp.maximum(plan.moe_groups * shards / ranks, 1.0)
    return {
        "dp_cp": (plan.tp, ranks, levels),
        "dp_shard": (plan.tp, shards, levels),
        "dp_copies": (plan.tp * shards, ranks / shards, levels),
        "expert_shard": (own, expert_shards, levels),
        "expert_copies": (own * expert_shards, plan.moe_groups / expert_shards, levels),
        # the first stage and one half of the pipeline away: as far out on the fabric as the last
        ENDS: (stage * xp.maximum(plan.pp / 2.0, 1.0), xp.minimum(plan.pp, 2.0), None),
    }


def _usual_strides(degrees: dict[str, Number]) -> dict[str, Number]:
    found: dict[str, Number] = {}
    stride: Number = 1.0
    for name, degree in degrees.items():
        found[name] = stride
        stride = stride * degree
    return found


def strides(plan: Plan) -> dict[str, Number]:
    """How far apart the ranks of each dimension lie: the product of the degrees inside it, in any order.

    >>> from strata.mapping.plan import plan
    >>> strides(plan(tp=4, dp=8, pp=2, order="dp-tp-cp-pp"))["tp"]
    8.0
    """
    from strata.mapping.plan import DIMENSIONS, ORDERS  # the table of degrees, which uses this module

    found = {}
    for name in DIMENSIONS:
        stride: Number = 1.0
        for other in DIMENSIONS:
            if other != name:
                before = [float(one.index(other) < one.index(name)) for one in ORDERS]
                order: Any = plan.order
                single = isinstance(order, float | int)
                inside = before[int(order)] if single else namespace(order).asarray(before)[order.astype(int)]
                degree = getattr(plan, other)
                stride = stride * namespace(inside, degree).where(inside > 0.0, degree, 1.0)
        found[name] = stride
    return found


def expert_tp_dp_ranks(plan: Plan) -> Number:
    """Tensor groups whose tokens are brought together because each expert is cut over all of them."""
    return namespace(plan.tp, plan.moe_tp).maximum(plan.moe_tp / plan.tp, 1.0)


def expert_stride(plan: Plan) -> Number:
    """Distance between ranks that exchange tokens: those of a tensor group hold the same tokens already."""
    return namespace(plan.tp, plan.moe_tp).maximum(plan.tp, plan.moe_tp)


def exchange_ranks(plan: Plan) -> Number:
    """Ranks a token may have to be sent to: the expert group counted in whole tensor groups."""
    return namespace(plan.ep, plan.moe_tp, plan.tp).maximum(plan.ep * plan.moe_tp / expert_stride(plan), 1.0)


def ranks_sharing_experts(plan: Plan) -> Number:
    """Data parallel ranks that share one set of experts, as these are dealt to tensor ranks first, then
    context ranks, then data parallel ones.

    >>> from strata.mapping.plan import plan
    >>> two = plan(tp=16, dp=16, ep=16, moe_tp=16), plan(tp=4, cp=4, dp=2, ep=8)
    >>> [float(ranks_sharing_experts(p)) for p in two]
    [16.0, 2.0]
    """
    xp = namespace(plan.ep, plan.moe_tp, plan.tp, plan.cp)
    return xp.maximum(plan.ep * plan.moe_tp / (plan.tp * plan.cp), 1.0)


def microbatches(plan: Plan, work: Workload) -> Number:
    """Micro-batches of a rank: as told, else pp of them in decode, and a sequence each in training and in a
    prefill with a pipeline; never more than sequences.
    """
    xp = namespace(plan.pp, plan.dp, plan.microbatches, work.batch)
    sequences = xp.maximum(work.batch / plan.dp, 1.0)
    wanted = {"decode": plan.pp, "train": sequences}.get(work.phase, xp.where(plan.pp > 1, sequences, 1.0))
    return xp.where(plan.microbatches > 0, plan.microbatches, xp.minimum(wanted, xp.floor(sequences)))


def plan_sharding(plan: Plan, work: Workload, active: frozenset[str]) -> Sharding:
    """The layout a plan names, for a workload."""
    xp = namespace(plan.tp, plan.cp, plan.sp, plan.cp_mode)
    pieces, both = microbatches(plan, work), HYBRID in active and work.phase != "decode"
    told = isinstance(plan.microbatches, float) and plan.microbatches in (0.0, 1.0)
    degrees = {
        name: ranks for name, (_, ranks, _) in group_ranks(plan, frozenset()).items() if name in active
    }
    axes = plan_axes(plan, work, pieces, CONTEXT_GROUPS[::-1] if both else ("cp",))
    made = Sharding(
        active=active,
        degrees=degrees,
        axes=axes,
        modules=attention_axes(plan, work, swapping_ranks(plan, work.phase), both)
        if both or ULYSSES in active
        else {},
        alternatives=context_alternatives(plan, work, active, axes),
        microbatches=pieces,
        stages=plan.pp,
        virtual_stages=plan.virtual_stages,
        training=TrainingPlan(**{f.name: getattr(plan, f.name) for f in fields(TrainingPlan)}),
        zero=plan.zero,
        replicas=plan.dp,
        state_replicas=plan.dp * plan.cp,
        expert_replicas=plan.moe_groups,
        sequence_parts=xp.where(plan.sp > 0, plan.tp, 1.0),
        redundant_experts=plan.redundant_experts,
        exchange_ranks=exchange_ranks(plan),
        whole=not active and told and work.phase != "train",
    )
    return _with_sequence(made, plan) if SEQUENCE in active and work.phase == "train" else made


def _with_sequence(made: Sharding, plan: Plan) -> Sharding:
    """A training layout in which tensor groups hold parts of sequences between products, for all plans of a
    batch or for some (sequence parallel; Korthikanti et al., arXiv 2205.05198, sec. 4.2.2).
    """
    made = replace(made, residual_axes=RESIDUAL_AXES)
    axis = dict(RESIDUAL_AXES)["tokens"]
    spec = (*made.axes[axis].spec, ("positions", "tp"))
    axes = made.axes | {axis: replace(made.axes[axis], spec=spec)}
    parts = replace(made, sequence_group="tp", axes=axes, where=plan.sp > 0, known={})
    if WHOLE_SEQUENCE not in made.active:
        return replace(parts, where=True)
    return replace(parts, variants=(replace(made, where=plan.sp < 1, known={}), parts))


def plan_axes(
    plan: Plan, work: Workload, pieces: Number, context: tuple[str, ...] = ("cp",)
) -> dict[str, AxisLayout]:
    """What divides each logical axis under a plan: one row an axis. `context`: groups of context ranks."""
    rows = plan.dp * pieces
    # In decode context ranks hold the same new tokens, and parts of the cache.
    decoding = work.phase == "decode"
    inside: Number = 1.0 if decoding else plan.cp
    groups = plan.ep * plan.moe_tp / plan.tp
    xp = namespace(groups, plan.cp, plan.sp)
    # Tensor groups that share one set of experts: context ranks first. In decode those hold the same tokens,
    # which count once.
    batches, within = ranks_sharing_experts(plan), xp.minimum(groups, inside)
    sequences = (("sequences", "dp"),)
    positions = () if decoding else tuple(("positions", group) for group in context)
    cached = tuple(("kv_positions", group) for group in context)
    return {
        "tokens": AxisLayout(rows, inside, sequences + positions),
        "sequences": AxisLayout(rows, 1.0, sequences),
        "queries": AxisLayout(1.0, inside, positions),
        # Rows of norms: the scatter and the gather around them are the two halves of the tensor group's
        # all-reduce.
        "sp_tokens": AxisLayout(rows, inside * xp.where(plan.sp > 0, plan.tp, 1.0), sequences + positions),
        "ep_tokens": AxisLayout(rows / batches, inside / within),
        "routed_tokens": AxisLayout(rows / batches, inside * plan.ep / within),
        "kv_tokens": AxisLayout(1.0, plan.cp if decoding else 1.0, cached if decoding else ()),
        "kv_cache_tokens": AxisLayout(1.0, plan.cp, cached),
        "heads": AxisLayout(plan.tp, 1.0, (("heads", "tp"),)),
        "kv_heads": AxisLayout(plan.tp, 1.0, (("kv_heads", "tp"),)),
        # heads of a state and the keys that several of them share go together: one coordinate
        "state_heads": AxisLayout(plan.tp, 1.0, (("state_heads", "tp"),)),
        "state_groups": AxisLayout(plan.tp, 1.0, (("state_heads", "tp"),)),
        "ffn": AxisLayout(plan.tp, 1.0, (("ffn", "tp"),)),
        "shared_ffn": AxisLayout(plan.tp, 1.0, (("shared_ffn", "tp"),)),
        "vocab": AxisLayout(plan.tp, 1.0, (("vocab", "tp"),)),
        "experts": AxisLayout(plan.ep, 1.0),
        # of adapters beside products whose columns, or whose depth, a tensor group divides
        RANK_AXIS: AxisLayout(plan.tp, 1.0, ((RANK_AXIS, "tp"),)),
        COLUMN_AXIS: AxisLayout(plan.tp, 1.0, ((COLUMN_AXIS, "tp"),)),
        "expert_ffn": AxisLayout(plan.moe_tp, 1.0, (("expert_ffn", "expert_tp"),)),
    }


def plan_violations(
    plan: Plan, units: dict[str, Number], work: Workload, devices: Number
) -> list[rules.Violation]:
    """For each rule of legality: the rule, where it is broken, what is asked for and what there is."""
    group = plan.tp * plan.cp * plan.dp
    experts = units.get("experts", 1.0)
    swapped = swapping_ranks(plan, work.phase) * plan.tp
    # Ranks without a sequence still serve their experts; in training they would have no gradients to add.
    alone = plan.dp if work.phase == "train" else plan.dp / ranks_sharing_experts(plan)
    slots, copies = experts + plan.redundant_experts, units.get("experts", 0.0)
    # context ranks go both ways, and their number is no multiple of those that swap
    swapped_inside = namespace(plan.cp_a2a).maximum(plan.cp_a2a, 1.0)
    uneven = (rules.remainder(plan.cp, swapped_inside) > 0) | (plan.cp_a2a < 1)
    rings = (plan.cp_mode > 2) & (plan.cp > 1) & uneven
    found = [
        rules.Violation(rules.DEVICES, plan.devices != devices, plan.devices, devices),
        rules.Violation(rules.EXPERTS, rules.remainder(slots, plan.ep) > 0, plan.ep, slots),
        rules.Violation(
            rules.MOE_GRID, rules.remainder(group, plan.ep * plan.moe_tp) > 0, plan.ep * plan.moe_tp, group
        ),
        rules.Violation(rules.BATCH, alone > work.batch, alone, work.batch),
        rules.Violation(
            rules.MICRO, plan.microbatches * plan.dp > work.batch, plan.microbatches * plan.dp, work.batch
        ),
        rules.Violation(rules.COPIES, plan.redundant_experts > copies, plan.redundant_experts, copies),
        rules.Violation(rules.RINGS, rings, plan.cp_a2a, plan.cp),
    ]
    for rule, axis in zip(
        (rules.HEADS, rules.KV_HEADS, rules.STATE_HEADS, rules.STATE_GROUPS), DIVIDED_HEADS, strict=True
    ):
        if axis in units:
            found.append(rules.Violation(rule, rules.unequal(plan.tp, units[axis]), plan.tp, units[axis]))
    if "heads" in units:
        broken = (plan.cp_mode > 1) & (rules.remainder(units["heads"], swapped) > 0)
        found.append(rules.Violation(rules.SWAP, broken, swapped, units["heads"]))
    chunks, layers = plan.pp * plan.virtual_stages, units.get("layers", 1.0)  # what has none is one stage
    if work.phase == "train":
        layers = layers + 2.0 * plan.split_ends
        found += training_violations(plan, work, microbatches(plan, work))
    found.append(rules.Violation(rules.LAYERS, chunks > layers, chunks, layers))
    return sorted(found, key=lambda v: v.rule.bit)
