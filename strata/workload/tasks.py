"""Workloads: what a system is asked to do. Every number may be an array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strata.arrays import Number, register_pytree
from strata.errors import require

PHASES = ("prefill", "decode", "serve", "train")


@register_pytree
@dataclass(frozen=True, eq=False)
class Workload:
    """One kind of work. `sequence` is what one sequence brings into the step, `context` what its attention then spans."""

    phase: str
    batch: Number  # sequences at once over the whole system
    sequence: Number  # new tokens of each sequence in a step
    context: Number  # tokens of each sequence the last new token attends to, itself included
    output: Number = 0.0  # serve: tokens generated for each sequence
    skew: Number = 0.0  # routing: share of the i-th most popular expert ~ i**-skew; 0 is uniform

    def __post_init__(self) -> None:
        require(self.phase in PHASES, "workload.phase must be one of " + ", ".join(PHASES), phase=self.phase)


def _positive(**values: Any) -> None:
    for name, value in values.items():
        low = value.min() if hasattr(value, "min") else value
        require(low > 0, f"workload.{name} must be positive", **{name: value})


def prefill(batch: Number, length: Number, *, cached: Number = 0.0, skew: Number = 0.0) -> Workload:
    """Reading `length` new tokens of each of `batch` sequences, after `cached` tokens that are in the cache already."""
    _positive(batch=batch, length=length)
    return Workload("prefill", batch, length, length + cached, skew=skew)


def decode(batch: Number, context: Number, *, tokens: Number = 1.0, skew: Number = 0.0) -> Workload:
    """One step that adds `tokens` tokens (1 without speculation) to each of `batch` sequences of `context` tokens."""
    _positive(batch=batch, context=context, tokens=tokens)
    return Workload("decode", batch, tokens, context, skew=skew)


def serve(batch: Number, input: Number, output: Number, *, skew: Number = 0.0) -> Workload:
    """`batch` requests at once, each `input` tokens read and `output` tokens generated, averaged over the generation."""
    _positive(batch=batch, input=input, output=output)
    return Workload("serve", batch, input, input, output, skew=skew)


def train(batch: Number, length: Number) -> Workload:
    """One optimiser step over `batch` sequences of `length` tokens: forward, backward, optimiser."""
    _positive(batch=batch, length=length)
    return Workload("train", batch, length, length)
