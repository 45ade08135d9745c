"""Workloads: what a system is asked to do. Every number may be an array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strata.base.arrays import Number, lowest, register_pytree
from strata.base.errors import require
from strata.base.records import readable
from strata.base.units import box_shape
from strata.workload.expert_ops import Routing
from strata.workload.lora import Lora

PHASES = ("prefill", "decode", "serve", "train")
FORWARD = "forward"  # one pass of a program that is no language model
# of the experts' popularity in requests: as in the power_law_1.01 rows of validation/ops/moe.csv, which their
# publisher takes for serving
USUAL_SKEW = 1.0
# Simpson's rule over a generation: first, middle and last step. Exact where a step's time is cubic in its
# context.
GENERATION = ((0.0, 1 / 6), (0.5, 4 / 6), (1.0, 1 / 6))


@register_pytree
@readable("phase", "batch", "sequence", "context", "output")
@dataclass(frozen=True, eq=False)
class Workload:
    """One kind of work. `sequence` is what one sequence brings into the step, `context` what its attention
    then spans.
    """

    phase: str
    batch: Number  # sequences at once over the whole system
    sequence: Number  # new tokens of each sequence in a step
    context: Number  # tokens of each sequence the last new token attends to, itself included
    output: Number = 0.0  # serve: tokens generated for each sequence
    skew: Number = 0.0  # routing: share of the i-th most popular expert ~ i**-skew; 0 is uniform
    routing: Routing | None = None  # popularity of experts from a trace, in place of the skew
    # A decode step may read prompts beside (chunked prefill); `sequence` then counts their tokens too, a
    # share for each sequence.
    # prompts read in the step, over the whole system; None is structure: a plain step
    prompts: Number | None = None
    chunk: Number = 0.0  # new tokens of each of these prompts
    reached: Number = 0.0  # tokens of such a prompt that its last new token attends to, itself included
    adapters: Lora | None = None  # train: only these are trained; None is structure: every weight is
    frozen: tuple[str, ...] = ()  # train: modules whose weights are not trained
    packed: Number = 0.0  # train: 1 where micro-batches are packs of tokens, not whole numbers of sequences
    guesses: Number = 0.0  # where prompts are read beside: tokens of a sequence verified with the sure one

    def __post_init__(self) -> None:
        known = (*PHASES, FORWARD)
        require(self.phase in known, "workload.phase must be one of " + ", ".join(known), phase=self.phase)

    def steps(self) -> tuple[Workload | None, tuple[tuple[Number, Workload], ...]]:
        """The step that reads prompts first, where a whole generation is asked for, and the others with their
        weights.
        """
        if self.phase != "serve":
            return None, ((1.0, self),)
        seen: dict[str, Any] = {"skew": self.skew, "routing": self.routing}
        reading = Workload("prefill", self.batch, self.sequence, self.context, **seen)
        contexts = [(w, self.sequence + 1.0 + place * (self.output - 1.0)) for place, w in GENERATION]
        return reading, tuple(
            (w, Workload("decode", self.batch, 1.0, context, **seen)) for w, context in contexts
        )

    @property
    def generated(self) -> Number:
        """Tokens that a step adds to each of its `batch` sequences; what it reads of other prompts is not one
        of them.
        """
        return self.sequence if self.prompts is None else 1.0 + self.guesses

    @property
    def attending(self) -> tuple[Workload, ...]:
        """The kinds of tokens whose attention differs: all as one, or those generated and those of the
        prompts read beside.
        """
        if self.prompts is None:
            return (self,)
        seen: dict[str, Any] = {"skew": self.skew, "routing": self.routing}
        generating = Workload("decode", self.batch, self.generated, self.context, **seen)
        return generating, Workload("prefill", self.prompts, self.chunk, self.reached, **seen)


def _positive(*others: Any, **values: Any) -> None:
    """Refuse sizes that are none, and arrays that do not broadcast, with those of `others` too."""
    for name, value in values.items():
        require(
            not isinstance(value, str) and value is not None, f"workload.{name} is a number", **{name: value}
        )
        require(getattr(value, "size", 1) != 0, f"workload.{name} has at least one value")
        require(lowest(value) > 0, f"workload.{name} must be positive", **{name: value})
    box_shape([tuple(value.shape) for value in (*values.values(), *others) if hasattr(value, "shape")])


def prefill(
    batch: Number, length: Number, *, cached: Number = 0.0, skew: Number = 0.0, routing: Routing | None = None
) -> Workload:
    """Reading `length` new tokens of each of `batch` sequences, after `cached` tokens that are in the cache
    already.
    """
    _positive(cached, skew, batch=batch, length=length)
    return Workload("prefill", batch, length, length + cached, skew=skew, routing=routing)


def decode(
    batch: Number,
    context: Number,
    *,
    tokens: Number = 1.0,
    skew: Number = 0.0,
    routing: Routing | None = None,
) -> Workload:
    """One step that adds `tokens` tokens (1 without speculation) to each of `batch` sequences of `context`
    tokens.
    """
    _positive(skew, batch=batch, context=context, tokens=tokens)
    return Workload("decode", batch, tokens, context, skew=skew, routing=routing)


def mixed(
    batch: Number,
    context: Number,
    *,
    prompts: Number,
    chunk: Number,
    cached: Number = 0.0,
    tokens: Number = 1.0,
    skew: Number = 0.0,
    routing: Routing | None = None,
) -> Workload:
    """A decode step of `batch` sequences that also reads `chunk` new tokens of each of `prompts` prompts,
    after `cached` ones of each; `tokens` of each sequence (1 without speculation).

    All tokens go through the same products, so that weights are read once and operations add up; attention is
    priced for either kind of token by itself; only generated tokens, and one of each prompt, reach the head.
    """
    _positive(cached, skew, batch=batch, context=context, prompts=prompts, chunk=chunk, tokens=tokens)
    return Workload(
        "decode",
        batch,
        tokens + prompts * chunk / batch,
        context,
        skew=skew,
        routing=routing,
        prompts=prompts,
        chunk=chunk,
        reached=chunk + cached,
        guesses=tokens - 1.0,
    )


def serve(
    batch: Number, input: Number, output: Number, *, skew: Number = USUAL_SKEW, routing: Routing | None = None
) -> Workload:
    """`batch` requests at once, each `input` tokens read and `output` tokens generated, averaged over the
    generation.
    """
    _positive(skew, batch=batch, input=input, output=output)
    return Workload("serve", batch, input, input, output, skew=skew, routing=routing)


def train(
    batch: Number, length: Number, *, adapters: Lora | None = None, frozen: tuple[str, ...] = ()
) -> Workload:
    """One optimiser step over `batch` sequences of `length` tokens: forward, backward, optimiser.

    With `adapters` only these are trained, beside a frozen base; else all but the `frozen` modules.
    """
    _positive(batch=batch, length=length)
    require(not isinstance(frozen, str), "workload.frozen is a tuple of modules", frozen=frozen)
    return Workload("train", batch, length, length, adapters=adapters, frozen=tuple(frozen))


def forward(batch: Number) -> Workload:
    """One forward pass of `batch` items through a program that is no language model."""
    _positive(batch=batch)
    return Workload(FORWARD, batch, 1.0, 1.0)
