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
from strata.hardware.money import Economics
from strata.hardware.system import System, as_system
from strata.mapping.engine import Engine, as_engine
from strata.mapping.plan import Plan
from strata.mapping.plan import plan as make_plan
from strata.mapping.plans import plans
from strata.records import readable
from strata.serving.requests import Requests
from strata.serving.speculation import Drafting, fastest_plan
from strata.serving.steps import ServedSteps, Spending, spending_of
from strata.workload.model import Model
from strata.workload.model import model as make_model

# numbers of sequences that are priced, in geometric steps up to the slots; times between them are drawn as
# lines
NODES = 20
MOST_NODES = 1000  # steps that are priced of one plan
MOST_TIMES = 24_000_000  # of all plans together: a load works with a dozen numbers beside each
# sequences at once that are looked at unless told: in all, or of each device where that is more
SEQUENCES, EACH = 2048.0, 16.0


@readable("system", "model", "engine", "requests", "slots")
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
    launching: Array  # of that, what only the host's launching of kernels adds [s]
    alone: Array  # reading one such piece where nothing is generated [s]
    pieces: float  # pieces a prompt is read in; 0 where it is read elsewhere
    lanes: Array  # prompts that are read at once
    slots: Array  # sequences there is room for; 0 where the plan is out
    allowed: Array  # sequences the engine, or whoever asks, has at once at most
    replicas: Array  # engines that step by themselves: data parallel ranks that share no weights
    spent: Spending
    gain: float = 1.0  # tokens a step adds to a sequence on average; more than 1 with speculation
    # bytes of the fullest device with one sequence a rank, to say why there are no slots
    memory: Array | None = None
    economics: Economics | None = None  # None: the usual

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
        names = ("step", "extra", "launching", "alone", "lanes", "slots", "allowed", "replicas")
        cut = {name: getattr(self, name)[chosen] for name in names}
        memory = None if self.memory is None else self.memory[chosen]
        return replace(self, plan=plan, memory=memory, spent=self.spent.only(chosen), **cut)

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
    economics: Economics | None = None,
    nodes: int = NODES,
) -> Curve:
    """Price an engine that generates for up to `sequences` requests at once and reads prompts in pieces of at
    most `chunk` tokens.

    Left out, these are the engine's own (`tokens` of a step, `sequences` of a rank), of the latter not more
    than 2048, or 16 a device. `plan`: one, several on an axis, or every legal one when left out. `reads`:
    whether it reads prompts itself. `drafting`: speculative decoding. Steps are priced at whole numbers of
    sequences up to the slots that memory leaves at the mean context. Ranks hold whole sequences, each as many
    as the fullest; one that has none computes as if it had one. No step is quicker than one with fewer
    sequences.

    >>> one = curve("8xh200", "llama-3-70b", Requests(2048, 512), "tp=8", sequences=64)
    >>> one.slots.tolist(), one.step.shape, bool(one.extra[0, 0] > one.step[0, 0])
    ([64.0], (1, 64), True)
    """
    require(2 <= nodes <= MOST_NODES, f"nodes of a curve are 2 to {MOST_NODES}", nodes=nodes)
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
    served = ServedSteps(
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
    return replace(_priced_curve(served, plan, allowed, nodes), economics=economics)


def _priced_curve(served: ServedSteps, plan: Plan, allowed: Array, count: int) -> Curve:
    """Times at some numbers of sequences up to the slots, and between them in lines."""
    slots, needed = _slots(served, allowed)
    each = np.maximum(np.ceil(slots[:, None] / served.lanes), 1.0)
    nodes = served.lanes * np.round(each ** (np.arange(count) / (count - 1.0)))
    generating = served.priced(served.generating(nodes))
    plain, reading = _times(generating, nodes.shape), generating
    added, alone, launching = np.zeros_like(plain), np.zeros(len(slots)), np.zeros_like(plain)
    if served.pieces:
        reading = served.priced(served.reading(nodes))
        alone = _times(served.priced(served.reading_alone()), (len(slots), 1))[:, 0]
        with np.errstate(invalid="ignore"):  # a plan that is out has no times
            both = np.maximum.accumulate(np.maximum(_times(reading, nodes.shape), alone[:, None]), axis=1)
            added = np.maximum(both - np.maximum.accumulate(plain, axis=1), 0.0)
        added = np.where(served.engine.mixed > 0, added, alone[:, None])
        launching = _launching(served, nodes, _times(reading, nodes.shape), alone)
    steps = plain if served.drafting is None else np.broadcast_to(served.guessed(nodes)[0], nodes.shape)
    good = np.isfinite(steps) & np.isfinite(added)
    steps = np.maximum.accumulate(np.where(good, steps, 0.0), axis=1)
    slots = np.where(
        np.any(good, axis=1) & np.isfinite(alone),
        np.minimum(slots, np.max(np.where(good, nodes, 0.0), axis=1)),
        0.0,
    )
    most = max(float(np.max(slots)), 1.0)
    require(
        len(slots) * most <= MOST_TIMES,
        f"plans times sequences of their curves are at most {MOST_TIMES:,}; say one --plan, or --sequences",
        plans=len(slots),
        sequences=most,
    )
    whole = np.arange(1.0, most + 1.0)
    return Curve(
        system=served.system,
        model=served.model,
        engine=served.engine,
        plan=plan,
        requests=served.requests,
        step=_lines(whole, nodes, steps, good, slots, np.inf),
        extra=_lines(whole, nodes, added, good, slots, 0.0),
        launching=_lines(whole, nodes, np.minimum(launching, added), good, slots, 0.0),
        alone=alone,
        pieces=served.pieces,
        lanes=served.lanes[:, 0],
        slots=slots,
        allowed=allowed,
        replicas=np.minimum(served.replicas[:, 0], np.maximum(slots, 1.0)),
        spent=spending_of(served, nodes, generating, reading),
        gain=1.0 if served.drafting is None else served.drafting.tokens,
        memory=needed,
    )


def _launching(served: ServedSteps, nodes: Array, reading: Array, alone: Array) -> Array:
    """What steps that read take longer only because the host launches their kernels [s]."""
    held = replace(served, engine=replace(served.engine, prompt_block=None, expert_layer=None))
    if served.engine.prompt_block is None and served.engine.expert_layer is None:
        return np.zeros_like(reading)
    with np.errstate(invalid="ignore"):  # a plan that is out has no times
        beside = reading - _times(held.priced(held.reading(nodes)), nodes.shape)
        single = alone - _times(held.priced(held.reading_alone()), (len(alone), 1))[:, 0]
    found = np.where(served.engine.mixed > 0, beside, single[:, None])
    return np.where(np.isfinite(found), np.maximum(found, 0.0), 0.0)


def _times(result: Any, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.asarray(result.metrics.step_time, float), shape).copy()


def _slots(served: ServedSteps, sequences: Array) -> tuple[Array, Array]:
    """The most sequences that memory has room for, and the memory of a device with one sequence a lane.

    The fullest lane counts: all have as many. Their number is found between one that fits and one that does
    not: where the chord crosses the limit, which is the answer at once for memory that grows evenly, else by
    halving.
    """
    lanes = served.lanes

    def held(each: Array) -> Array:
        memory = served.priced(served.reading(each * lanes)).metrics.memory_used
        memory = memory if served.drafting is None else np.maximum(memory, served.guessed(each * lanes)[1])
        return np.broadcast_to(np.asarray(memory, float), lanes.shape)

    first = served.priced(served.reading(lanes))
    limit, used = (
        np.broadcast_to(np.asarray(first.metrics.memory_limit, float), lanes.shape),
        held(lanes / lanes),
    )
    legal = np.broadcast_to(first.fits, lanes.shape) & (used <= limit)
    low, most = np.ones_like(lanes), np.maximum(np.ceil(sequences[:, None] / lanes), 1.0)
    at_low, at_high = used, held(most)
    high = np.where(legal & (at_high > limit), most, low + 1.0)  # the rest has its answer
    low = np.where(legal & (at_high <= limit), most, low)
    high = np.maximum(high, low + 1.0)
    for turn in range(64):
        open_ = high - low > 1.0
        if not open_.any():
            break
        with np.errstate(invalid="ignore", divide="ignore"):
            chord = np.floor(low + (high - low) * (limit - at_low) / (at_high - at_low))
        half = np.floor(0.5 * (low + high))
        middle = np.clip(half if turn % 3 == 2 else np.nan_to_num(chord, nan=1.0), low + 1.0, high - 1.0)
        middle = np.where(open_, middle, low)
        at = held(middle)
        fits = at <= limit
        low, at_low = (np.where(open_ & fits, new, old) for new, old in ((middle, low), (at, at_low)))
        high, at_high = (np.where(open_ & ~fits, new, old) for new, old in ((middle, high), (at, at_high)))
    return np.where(legal, np.minimum(low * lanes, sequences[:, None]), 0.0)[:, 0], used[:, 0]


def _lines(at: Array, nodes: Array, values: Array, good: Array, slots: Array, beyond: float) -> Array:
    """Values at whole numbers from those at the nodes, plan by plan; `beyond` the slots something else."""
    lines = np.full((len(nodes), len(at)), beyond)
    for i, slot in enumerate(slots):
        if slot >= 1:
            seen = good[i]
            lines[i] = np.where(at <= slot, np.interp(at, nodes[i, seen], values[i, seen]), beyond)
    return lines
