"""What a plan says of training alone, what makes it legal, and what a step computes again before its backward
passes and does not keep: which ops, how often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from strata.base.arrays import Number, floor_div, namespace
from strata.base.errors import UnknownName
from strata.mapping import rules
from strata.params import record
from strata.workload.attention_parts import LATENT_UP
from strata.workload.expert_ops import EXPERT_ROWS, SHARED_EXPERT
from strata.workload.graph import Block, Op, is_collective
from strata.workload.moe import NORM
from strata.workload.tasks import Workload

if TYPE_CHECKING:
    from strata.mapping.plan import Plan
if TYPE_CHECKING:
    from strata.mapping.plan import Plan


RECOMPUTE = ("none", "selective", "full")
SCHEDULE = ("1f1b", "gpipe", "zero-bubble", "dualpipe")
DUALPIPE_CODE = float(SCHEDULE.index("dualpipe"))
# parts of a layer by Megatron-LM's names (--recompute-modules): place i is worth 2^i in a plan's code
RECOMPUTE_MODULES = ("core_attn", "layernorm", "mla_up_proj", "moe_act", "shared_experts", "mlp", "moe")
OFFLOAD = ("none", "optimizer", "activations", "both")


@record
class TrainingPlan:
    """Choices of a training step; every number may be an array, words are places in their tables."""

    recompute: Number = 0.0  # which of RECOMPUTE
    recompute_layers: Number = 0.0  # of each chunk; 0: all
    recompute_modules: Number = 0.0  # sum of 2^place of RECOMPUTE_MODULES; 0: attention itself
    schedule: Number = 0.0  # which of SCHEDULE
    split_ends: Number = 0.0  # 1 where embedding and head count as layers of the split
    dp_shard: Number = 0.0  # ranks that ZeRO shards over; 0: all that hold the same weights
    offload: Number = 0.0  # which of OFFLOAD


def flags_code(text: str, known: tuple[str, ...], what: str) -> float:
    """Words joined by + as a number: each is worth 2^place.

    >>> flags_code("core_attn+mlp", RECOMPUTE_MODULES, "part"), flags_text(33.0, RECOMPUTE_MODULES)
    (33.0, 'core_attn+mlp')
    """
    said = text.split("+")
    for word in said:
        if word not in known:
            raise UnknownName(what, word, known, ", ".join(known))
    return float(sum(2**place for place, word in enumerate(known) if word in said))


def flags_text(code: Number, known: tuple[str, ...]) -> str:
    """The words that a number stands for, joined by +."""
    return "+".join(word for place, word in enumerate(known) if int(code) >> place & 1)


def training_violations(plan: Plan, work: Workload, pieces: Number) -> list[rules.Violation]:
    """Rules that a training step adds, with the nearest legal degrees; `pieces`: its micro-batches.

    >>> from strata.mapping.plan import plan
    >>> from strata.workload.tasks import train
    >>> odd = plan(pp=4, virtual_stages=2, microbatches=6)
    >>> [v.neighbours() for v in training_violations(odd, train(12.0, 8.0), 6.0) if v.broken]
    [('microbatches=4 or 8',)]
    """
    xp = namespace(plan.dp, plan.pp, pieces, work.batch, plan.schedule)
    told = xp.maximum(plan.microbatches, 1.0)
    rows, dual = plan.dp * told, plan.schedule == DUALPIPE_CODE
    several = plan.virtual_stages > 1.0
    few = xp.minimum(pieces, 2.0 * plan.pp)
    # of a full pipeline: those of a single stage have nothing to interleave
    uneven = several & (plan.pp > 1.0) & (rules.remainder(pieces, plan.pp) > 0)
    short = dual & (plan.pp > 1.0) & ((pieces < 2.0 * plan.pp) | (rules.remainder(pieces, 2.0) > 0))
    lone = (plan.recompute_layers > 0) & (plan.recompute < 2)
    parts = (plan.recompute_modules > 0) & (plan.recompute != 1)
    copies = plan.dp * plan.cp
    apart = rules.remainder(copies, xp.maximum(plan.dp_shard, 1.0))
    broken = (rules.remainder(work.batch, rows) > 0) & (work.packed < 1)
    return [
        rules.Violation(rules.WHOLE_BATCH, broken, work.batch, rows, "dp x microbatches"),
        rules.Violation(
            rules.INTERLEAVED, uneven, pieces, plan.pp, "microbatches", *_multiples(pieces, plan.pp)
        ),
        rules.Violation(rules.ONE_CHUNK, several & (plan.schedule > 0), plan.virtual_stages, 1.0),
        rules.Violation(
            rules.EVEN_STAGES,
            dual & (plan.pp > 1.0) & (rules.remainder(plan.pp, 2.0) > 0),
            plan.pp,
            2.0 * floor_div(plan.pp, 2.0),
            "pp",
            *_multiples(plan.pp, 2.0),
        ),
        rules.Violation(
            rules.DUAL_PIECES, short, few, 2.0 * plan.pp, "microbatches", *_pairs(pieces, plan.pp)
        ),
        rules.Violation(rules.SHARDS, (plan.dp_shard > 0) & (apart > 0), copies, plan.dp_shard, "dp_shard"),
        rules.Violation(
            rules.RECOMPUTED, lone | parts, xp.maximum(plan.recompute_layers, plan.recompute_modules), 0.0
        ),
    ]


def _multiples(value: Number, unit: Number) -> tuple[Number, Number]:
    """The multiples of a unit next to a value."""
    below = unit * floor_div(value, unit)
    return below, below + unit


def _pairs(pieces: Number, stages: Number) -> tuple[Number, Number]:
    """Even numbers next to a value, two a stage at least."""
    xp, (below, above) = namespace(pieces, stages), _multiples(pieces, 2.0)
    return xp.where(below >= 2.0 * stages, below, 0.0), xp.maximum(above, 2.0 * stages)


# The parts of a layer that Megatron-LM's --recompute-modules names, by what their ops are.
_PARTS: dict[str, Callable[[Op], bool]] = {
    "core_attn": lambda op: op.category == "attention",
    "layernorm": lambda op: op.role == NORM,
    "mla_up_proj": lambda op: op.role == LATENT_UP,
    "moe_act": lambda op: op.role == EXPERT_ROWS,
    "shared_experts": lambda op: op.role == SHARED_EXPERT,
    "mlp": lambda op: op.module == "ffn" and op.role != NORM,
    "moe": lambda op: op.module == "moe" and op.role != NORM,
}


def recompute_parts(op: Op) -> tuple[str, ...]:
    """The modules of RECOMPUTE_MODULES that an op belongs to.

    >>> from strata.workload.program import program
    >>> from strata.workload.tasks import train
    >>> ops = [op for _, op in program("llama-3-8b").trace(train(1.0, 8.0)).ops() if not op.backward]
    >>> sorted({part for op in ops for part in recompute_parts(op)})
    ['core_attn', 'layernorm', 'mlp']
    """
    return tuple(name for name in RECOMPUTE_MODULES if _PARTS[name](op))


def recomputes_whole(block: Block) -> bool:
    """Whether full recomputation repeats a block: layers, not embedding and head."""
    return block.entry is not None and block.output is not None


def recompute_share(block: Block, op: Op, training: TrainingPlan) -> Number:
    """1 where an op of a forward block runs again before its backward pass, 0 where its result is kept.

    All ops of a layer with their collectives under `full`; under `selective` those of the modules that the
    plan names (attention itself where it names none), and collectives where all of their block but its norm
    is repeated. How many layers of a stage do so is `recomputed_layers`.

    >>> from strata.workload.program import program
    >>> from strata.workload.tasks import train
    >>> block = program("llama-3-8b").trace(train(1.0, 8.0)).blocks[1]
    >>> both = TrainingPlan(recompute=__import__("numpy").array([1.0, 2.0]))
    >>> [(op.name, (recompute_share(block, op, both) + [0.0, 0.0]).tolist()) for op in block.ops][:3]
    [('attention_norm', [0.0, 1.0]), ('qkv', [0.0, 1.0]), ('rope_and_cache', [0.0, 1.0])]
    """
    level = training.recompute
    xp = namespace(level, training.recompute_modules)
    full = xp.where(level > 1, 1.0, 0.0) if recomputes_whole(block) else 0.0
    if is_collective(op):
        others = [o for o in block.ops if not is_collective(o) and o.role != NORM]
        parts = set(RECOMPUTE_MODULES).intersection(*(recompute_parts(o) for o in others)) if others else ()
        part = _any_named(tuple(sorted(parts)), training)
    else:
        part = _any_named(recompute_parts(op), training)
    if isinstance(part, float) and part == 0.0:
        return full
    return full + xp.where((level > 0) & (level <= 1), part, 0.0)


def _any_named(parts: tuple[str, ...], training: TrainingPlan) -> Number:
    """1 where a plan names any of some modules; it names attention where it names none."""
    code = training.recompute_modules
    if not parts:
        return 0.0
    if isinstance(code, float) and code == 0.0:
        return 1.0 if "core_attn" in parts else 0.0
    xp = namespace(code)
    code = xp.where(code == 0.0, 1.0, code)
    found: Number = 0.0
    for name in parts:
        above = floor_div(code, 2.0 ** RECOMPUTE_MODULES.index(name))
        found = xp.maximum(found, above - 2.0 * floor_div(above, 2.0))
    return found


def recomputed_layers(held: Number, chunks: Number, training: TrainingPlan) -> Number:
    r"""Share of a stage's layers that full recomputation repeats.

    .. math:: \rho = \min(1, R v / n)

    R layers of each of v chunks (Megatron-LM's --recompute-method block), n layers of the stage; all where
    R = 0.

    >>> float(recomputed_layers(48.0, 2.0, TrainingPlan(recompute=2.0, recompute_layers=21.0)))
    0.875
    """
    layers = training.recompute_layers
    if isinstance(layers, float) and layers == 0.0:
        return 1.0
    xp = namespace(held, chunks, layers, training.recompute)
    some = xp.minimum(layers * chunks / xp.maximum(held, 1.0), 1.0)
    return xp.where((layers > 0.0) & (training.recompute > 1.0), some, 1.0)


def shard_ranks(plan: Plan) -> Number:
    """Ranks that ZeRO shards over: all that hold the same weights, or as many as told (HSDP).

    >>> from strata.mapping.plan import plan
    >>> [float(shard_ranks(p)) for p in (plan(dp=8, cp=2, zero=3), plan(dp=8, cp=2, zero=3, dp_shard=4))]
    [16.0, 4.0]
    """
    copies = plan.dp * plan.cp
    xp = namespace(plan.dp_shard, copies)
    return xp.where(plan.dp_shard > 0, xp.minimum(plan.dp_shard, copies), copies)
