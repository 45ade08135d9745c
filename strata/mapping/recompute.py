"""What a training step computes again before its backward passes, and does not keep: which ops, how often."""

from __future__ import annotations

from collections.abc import Callable

from strata.arrays import Number, floor_div, namespace
from strata.mapping.training_plan import RECOMPUTE_MODULES, TrainingPlan
from strata.workload.attention_parts import LATENT_UP
from strata.workload.expert_ops import EXPERT_ROWS, SHARED_EXPERT
from strata.workload.graph import Block, Op, is_collective
from strata.workload.moe import NORM

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
