"""What an engine does with any number of sequences in flight: times of its steps, of reading prompts, and the
slots memory leaves.

One batched evaluation over plans and numbers of sequences; every load is then answered from these times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, has_axes, map_leaves
from strata.batch import take
from strata.errors import require
from strata.evaluate import evaluate
from strata.hardware.system import System, as_system
from strata.mapping.engine import Engine, as_engine
from strata.mapping.plan import Plan
from strata.mapping.plan import plan as make_plan
from strata.mapping.plans import plans
from strata.serving.speculation import Drafting, draft_time, fastest_plan
from strata.workload.model import Model
from strata.workload.model import model as make_model
from strata.workload.routing import Routing
from strata.workload.tasks import Workload, decode, mixed, prefill

# numbers of sequences that are priced, in geometric steps up to the slots; times between them are drawn as
# lines
NODES = 20
# sequences at once that are looked at unless told: in all, or of each device where that is more
SEQUENCES, EACH = 2048.0, 16.0


@dataclass(frozen=True)
class Requests:
    """What each request brings. `variation` is the squared coefficient of variation of the time to read a
    prompt (0: all alike).
    """

    input: float
    output: float
    variation: float = 0.0
    skew: float = 0.0  # routing: share of the i-th most popular expert ~ i**-skew
    routing: Routing | None = None  # popularity of experts from a trace, in place of the skew

    def __post_init__(self) -> None:
        require(self.input >= 1, "a request has a prompt of at least 1 token", input=self.input)
        require(
            self.output >= 2, "time per output token needs an output of at least 2 tokens", output=self.output
        )
        require(
            self.variation >= 0, "variation of the prompts must not be negative", variation=self.variation
        )
        require(self.skew >= 0, "skew of the experts must not be negative", skew=self.skew)

    @property
    def routed(self) -> dict[str, Any]:
        """How tokens pick their experts, as workloads take it."""
        return {"skew": self.skew, "routing": self.routing}

    @property
    def later(self) -> float:
        """Tokens after the first, which comes out of reading the prompt."""
        return self.output - 1.0

    @property
    def context(self) -> float:
        """Tokens of a sequence in the middle of its generation."""
        return self.input + self.output / 2.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """Times of an engine under each of some plans (first axis), for 1, 2, ... sequences in flight (last
    axis).
    """

    system: System
    model: Model
    engine: Engine
    plan: Plan  # degrees are arrays [plans]
    requests: Requests
    step: Array  # a step that only generates [s]; inf beyond the slots
    extra: Array  # what a piece of each lane's prompt adds to it [s]; 0 where prompts are read elsewhere
    alone: Array  # reading one such piece where nothing is generated [s]
    pieces: float  # pieces a prompt is read in; 0 where it is read elsewhere
    lanes: Array  # prompts that are read at once
    slots: Array  # sequences there is room for; 0 where the plan is out
    gain: float = 1.0  # tokens a step adds to a sequence on average; more than 1 with speculation
    # bytes of the fullest device with one sequence a rank, to say why there are no slots
    memory: Array | None = None

    @property
    def devices(self) -> float:
        return float(np.max(np.asarray(self.system.devices, float)))

    def at(self, index: int) -> Curve:
        """The curve of one plan, which keeps its axis."""
        return self.only([index])

    def only(self, indices: Any) -> Curve:
        """The curves of some plans, in that order."""
        chosen = np.asarray(indices, int)
        plan: Plan = map_leaves(lambda v: v[chosen] if has_axes(v) else v, self.plan)
        cut = {name: getattr(self, name)[chosen] for name in ("step", "extra", "alone", "lanes", "slots")}
        return replace(self, plan=plan, memory=None if self.memory is None else self.memory[chosen], **cut)

    def plan_at(self, index: int) -> Plan:
        one: Plan = take(self.plan, (index,), 1)
        return map_leaves(float, one)

    def between(self, values: Array, active: Array) -> Array:
        """Times for a mean number of sequences [plans, ...], between whole ones; as with 1 below that."""
        count = values.shape[-1]
        n = np.clip(active, 1.0, np.maximum(self.slots, 1.0).reshape((-1,) + (1,) * (active.ndim - 1)))
        low = np.clip(np.floor(n), 1, count).astype(int)
        high = np.minimum(low + 1, count)
        rows = np.arange(len(values)).reshape((-1,) + (1,) * (active.ndim - 1))
        first, second = values[rows, low - 1], values[rows, high - 1]
        with np.errstate(invalid="ignore"):  # a plan without slots has no times
            return np.where(
                n > low, first + (n - low) * (np.where(np.isfinite(second), second, first) - first), first
            )


def as_many(plan: Plan) -> Plan:
    """A plan whose degrees all are arrays with one axis."""
    shape = np.broadcast_shapes(*(np.shape(v) for v in vars(plan).values() if not isinstance(v, tuple)), (1,))
    require(len(shape) == 1, "plans lie on one axis", shape=shape)
    return map_leaves(lambda v: np.broadcast_to(np.asarray(v, float), shape), plan)


def _column(plan: Plan) -> Plan:
    column: Plan = map_leaves(lambda v: np.asarray(v)[:, None], plan)
    return column


@dataclass(frozen=True, eq=False, kw_only=True)
class _Served:
    """An engine to be priced: what it serves, and the piece of a prompt that each lane reads in a step."""

    system: System
    model: Model
    requests: Requests
    plan: Plan  # arrays [plans, 1]
    engine: Engine
    pieces: float
    drafting: Drafting | None

    @property
    def length(self) -> float:
        return self.requests.input / max(self.pieces, 1.0)

    @property
    def cached(self) -> float:
        """Tokens before the piece in the middle: attention grows evenly from piece to piece."""
        return (self.requests.input - self.length) / 2.0

    @property
    def lanes(self) -> Array:
        return np.asarray(self.plan.dp * self.plan.pp)

    def generating(self, batch: Array) -> Workload:
        return decode(np.maximum(batch, self.plan.dp), self.requests.context, **self.requests.routed)

    def reading(self, batch: Array) -> Workload:
        """A step that generates and, where the engine reads prompts, has a piece of one in every lane."""
        rows = np.maximum(batch, self.lanes)
        if not self.pieces:
            return self.generating(batch)
        return mixed(
            rows,
            self.requests.context,
            prompts=self.lanes,
            chunk=self.length,
            cached=self.cached,
            **self.requests.routed,
        )

    def reading_alone(self) -> Workload:
        """A step that reads a piece in the middle of a prompt where nothing is generated."""
        return prefill(self.plan.dp, self.length, cached=self.cached, **self.requests.routed)

    def priced(self, work: Workload) -> Any:
        return evaluate(self.system, self.model, work, self.plan, self.engine)

    def guessed(self, batch: Array) -> tuple[Array, Array]:
        """A round of guessing and verifying [s], and what a device then holds, draft and all [B]."""
        g = self.drafting
        assert g is not None and g.plan is not None
        rows, context = np.maximum(batch, self.plan.dp), self.requests.context
        verify = self.priced(
            decode(rows, context + g.size, tokens=g.size + 1.0, **self.requests.routed)
        ).metrics
        rows = np.maximum(rows, g.plan.dp)
        guessing = draft_time(
            self.system,
            g.draft,
            g.plan,
            self.engine,
            batch=rows,
            context=context,
            window=g.window,
            branches=g.branches,
        )
        drafted = evaluate(self.system, g.draft, decode(rows, context), g.plan, self.engine)
        return (
            verify.step_time + guessing,
            verify.memory_used + drafted.metrics.memory_used - self.engine.reserve,
        )


def curve(
    system: System | str,
    model: Model | str,
    requests: Requests,
    plan: Plan | str | None = None,
    engine: Engine | str = "ideal",
    *,
    chunk: float | None = None,
    sequences: float | None = None,
    reads: bool = True,
    drafting: Drafting | None = None,
) -> Curve:
    """Price an engine that generates for up to `sequences` requests at once and reads prompts in pieces of at
    most `chunk` tokens.

    Left out, these are the engine's own (`tokens` of a step, `sequences` of a rank), of the latter not more
    than 2048, or 16 a device. `plan`: one, several on an axis, or every legal one when left out. `reads`:
    whether it reads prompts itself. `drafting`: speculative decoding. Steps are priced at whole numbers of
    sequences up to the slots that memory leaves at the mean context; a rank that has no sequence computes as
    if it had one.

    >>> one = curve("8xh200", "llama-3-70b", Requests(2048, 512), "tp=8", sequences=64)
    >>> one.slots.tolist(), one.step.shape, bool(one.extra[0, 0] > one.step[0, 0])
    ([64.0], (1, 64), True)
    """
    for name, value in (("chunk", chunk), ("sequences", sequences)):
        require(value is None or value >= 1, f"{name} must be at least 1", **{name: value})
    system = as_system(system)
    model = make_model(model) if isinstance(model, str) else model
    engine = as_engine(engine)
    plan = make_plan(plan) if isinstance(plan, str) else plan
    plan = as_many(plan or plans(int(float(system.devices)), model, freely=False))
    if drafting is not None and drafting.plan is None:
        quick = fastest_plan(system, drafting.draft, 1.0, requests.context, engine)
        drafting = replace(drafting, plan=quick)
    chunk = float(np.min(np.asarray(engine.tokens, float))) if chunk is None else chunk
    served = _Served(
        system=system,
        model=model,
        requests=requests,
        plan=_column(plan),
        engine=engine,
        pieces=float(np.ceil(requests.input / chunk)) if reads else 0.0,
        drafting=drafting,
    )
    most = np.maximum(SEQUENCES, EACH * system.devices)
    allowed = (
        np.minimum(engine.sequences * plan.dp, most)
        if sequences is None
        else np.full(np.shape(plan.dp), sequences)
    )
    return _priced_curve(served, plan, *_slots(served, allowed))


def _priced_curve(served: _Served, plan: Plan, slots: Array, needed: Array) -> Curve:
    """Times at some numbers of sequences up to the slots, and between them in lines."""
    nodes = np.round(np.maximum(slots, 1.0)[:, None] ** (np.arange(NODES) / (NODES - 1.0)))
    plain = _times(served.priced(served.generating(nodes)), nodes.shape)
    added, alone = np.zeros_like(plain), np.zeros(len(slots))
    if served.pieces:
        with np.errstate(invalid="ignore"):  # a plan that is out has no times
            added = np.maximum(_times(served.priced(served.reading(nodes)), nodes.shape) - plain, 0.0)
        alone = _times(served.priced(served.reading_alone()), (len(slots), 1))[:, 0]
        added = np.where(served.engine.mixed > 0, added, alone[:, None])
    steps = plain if served.drafting is None else np.broadcast_to(served.guessed(nodes)[0], nodes.shape)
    good = np.isfinite(steps) & np.isfinite(added)
    slots = np.where(
        np.any(good, axis=1) & np.isfinite(alone),
        np.minimum(slots, np.max(np.where(good, nodes, 0.0), axis=1)),
        0.0,
    )
    whole = np.arange(1.0, max(float(np.max(slots)), 1.0) + 1.0)
    return Curve(
        system=served.system,
        model=served.model,
        engine=served.engine,
        plan=plan,
        requests=served.requests,
        step=_lines(whole, nodes, steps, good, slots, np.inf),
        extra=_lines(whole, nodes, added, good, slots, 0.0),
        alone=alone,
        pieces=served.pieces,
        lanes=served.lanes[:, 0],
        slots=slots,
        gain=1.0 if served.drafting is None else served.drafting.tokens,
        memory=needed,
    )


def _times(result: Any, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.asarray(result.metrics.step_time, float), shape).copy()


def _slots(served: _Served, sequences: Array) -> tuple[Array, Array]:
    """Sequences that memory leaves room for, and the memory of a device with one sequence a rank.

    Use never grows slower with more sequences, so that a chord between one that fits and one that does not
    crosses the limit where it still fits; a second chord takes up what the first overlooked. The fullest rank
    counts: all have as many.
    """
    few = served.lanes

    def held(batch: Array) -> Array:
        memory = served.priced(served.reading(batch)).metrics.memory_used
        memory = memory if served.drafting is None else np.maximum(memory, served.guessed(batch)[1])
        return np.broadcast_to(np.asarray(memory, float), few.shape)

    first = served.priced(served.reading(few))
    limit, used = np.broadcast_to(np.asarray(first.metrics.memory_limit, float), few.shape), held(few)
    room = 65.0 * few
    for _ in range(2):
        each = np.maximum((held(room) - used) / (room - few), 1.0)
        room = np.maximum(few * np.floor(1.0 + (limit - used) / each / few), 2.0 * few)
    legal = np.broadcast_to(first.fits, few.shape) & (used <= limit)
    room = np.where((held(room) <= limit) | (room > 2.0 * few), room, few)
    return np.where(legal, np.minimum(room, sequences[:, None]), 0.0)[:, 0], used[:, 0]


def _lines(at: Array, nodes: Array, values: Array, good: Array, slots: Array, beyond: float) -> Array:
    """Values at whole numbers from those at the nodes, plan by plan; `beyond` the slots something else."""
    lines = np.full((len(nodes), len(at)), beyond)
    for i, slot in enumerate(slots):
        if slot >= 1:
            seen = good[i]
            lines[i] = np.where(at <= slot, np.interp(at, nodes[i, seen], values[i, seen]), beyond)
    return lines
