"""Context ranks in attention: keys gathered or passed round, tokens swapped for heads, or both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.arrays import Number, namespace
from strata.mapping.layout import PLAIN, Alternative, AxisLayout
from strata.mapping.rules import RINGS, Violation, remainder
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


def unequal_rings(plan: Plan) -> Violation:
    """Where context ranks go both ways and their number is no multiple of those that swap."""
    told = namespace(plan.cp_a2a).maximum(plan.cp_a2a, 1.0)
    broken = (plan.cp_mode > 2) & (plan.cp > 1) & ((remainder(plan.cp, told) > 0) | (plan.cp_a2a < 1))
    return Violation(RINGS, broken, plan.cp_a2a, plan.cp)


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
