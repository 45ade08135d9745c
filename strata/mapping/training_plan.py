"""What a plan says of training alone: what is recomputed, in which order a pipeline's passes run, what lies
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, register_pytree

RECOMPUTE = ("none", "selective", "full")
SCHEDULE = ("1f1b", "gpipe", "zero-bubble", "dualpipe")
OFFLOAD = ("none", "optimizer", "activations", "both")


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingPlan:
    """Choices of a training step; every number may be an array, words are places in their tables."""

    recompute: Number = 0.0  # which of RECOMPUTE
    recompute_layers: Number = 0.0  # of each chunk; 0: all
    schedule: Number = 0.0  # which of SCHEDULE
    split_ends: Number = 0.0  # 1 where embedding and head count as layers of the split
    dp_shard: Number = 0.0  # ranks that ZeRO shards over; 0: all that hold the same weights
    offload: Number = 0.0  # which of OFFLOAD
