"""What a plan says of training alone: what is recomputed, in which order a pipeline's passes run, what lies
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, register_pytree
from strata.errors import UnknownName

RECOMPUTE = ("none", "selective", "full")
SCHEDULE = ("1f1b", "gpipe", "zero-bubble", "dualpipe")
# parts of a layer by Megatron-LM's names (--recompute-modules): place i is worth 2^i in a plan's code
RECOMPUTE_MODULES = ("core_attn", "layernorm", "mla_up_proj", "moe_act", "shared_experts", "mlp", "moe")
OFFLOAD = ("none", "optimizer", "activations", "both")


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
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
