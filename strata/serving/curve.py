"""What an engine does with any number of sequences in flight: times of its steps, of reading prompts, and the
slots memory leaves.

One batched evaluation over plans, numbers of sequences and of prompts; every load is then answered from these
times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number, has_axes, map_leaves
from strata.base.errors import require
from strata.base.records import readable
from strata.hardware.money import Economics
from strata.hardware.system import System, as_system
from strata.mapping.plan import Plan
from strata.mapping.plan import plan as make_plan
from strata.mapping.plans import plan_at, plans
from strata.serving.requests import Requests, check_context
from strata.serving.speculation import Drafting, draft_engine, quickest_plan
from strata.serving.steps import ServedSteps, Spending, lines_between, spending_of
from strata.software.engine import USUAL_SERVER, Engine, as_engine
from strata.workload.model import Model
from strata.workload.model import model as make_model

# numbers of sequences that are priced, in geometric steps up to the slots; times between them are drawn as
# lines
NODES = 20
MOST_NODES = 1000  # steps that are priced of one plan
# numbers of prompts of a step that are priced, in geometric steps; beyond the last as its line goes on
PROMPTS, MOST_PROMPTS = 4, 16.0
SHARES = 3  # of ranks that read in a step, from one of them to all


@readable("system", "model", "engine", "requests", "slots")
@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """Times of an engine's steps under each of some plans (first axis), at some numbers of sequences in
    flight (`nodes`) and pieces of prompts that each rank reads in a step (`prompts`).
    """

    system: System
    model: Model
    engine: Engine
    plan: Plan  # degrees are arrays [plans]
    requests: Requests
    nodes: Array  # sequences of all ranks [plans, nodes]
    step: Array  # a step that only generates [s], likewise
    pieces: Array  # a prompt is read in, likewise; 0 where it is read elsewhere
    prompts: Array  # pieces of prompts that a rank reads in a step [plans, prompts]
    reading: Array  # a step that reads them in every rank [s], [plans, nodes, prompts]
    alone: Array  # a whole prompt, with as many others, where nothing is generated [s], [plans, prompts]
    shares: Array  # of the ranks of an engine [plans, shares]
    saved: Array  # time by which a step with a piece in this share of the ranks is shorter [s], likewise
    lanes: Array  # ranks: sequences are dealt out to them whole
    slots: Array  # sequences there is room for; 0 where the plan is out
    allowed: Array  # sequences the engine, or whoever asks, has at once at most
    replicas: Array  # engines that step by themselves: data parallel ranks that share no weights
    chunk: float  # tokens of a rank's step at most
    spent: Spending
    drafted: float = 0.0  # tokens that a step verifies of a sequence, beside the one that is sure
    gain: float = 1.0  # tokens a step adds to a sequence on average; more than 1 with speculation
    # bytes of the fullest device with one sequence a rank, to say why there are no slots
    memory: Array | None = None
    economics: Economics | None = None  # None: the usual
    within: System | None = None  # of which the system is the part that is used

    @property
    def devices(self) -> float:
        """All of them, idle ones too: they are paid for."""
        return float(np.max(np.asarray((self.within or self.system).devices, float)))

    @property
    def idle_power(self) -> Array:
        """Of the devices that are not used [W], [plans]."""
        return self.spent.idle * (self.devices / float(np.max(np.asarray(self.system.devices, float))) - 1.0)

    @property
    def reads(self) -> bool:
        """Whether it reads prompts itself."""
        return bool(np.any(self.pieces > 0))

    @property
    def mixed(self) -> bool:
        """Whether prompts are read in the steps that generate."""
        return bool(np.any(np.asarray(self.engine.chunked_prefill) > 0))

    def at(self, index: int) -> Curve:
        """The curve of one plan, which keeps its axis."""
        return self.only([index])

    def only(self, indices: Any) -> Curve:
        """The curves of some plans, in that order."""
        chosen = np.asarray(indices, int)
        plan: Plan = map_leaves(lambda v: v[chosen] if has_axes(v) else v, self.plan)
        names = "nodes step pieces prompts reading alone shares saved lanes slots allowed replicas"
        cut = {name: getattr(self, name)[chosen] for name in names.split()}
        memory = None if self.memory is None else self.memory[chosen]
        return replace(self, plan=plan, memory=memory, spent=self.spent.only(chosen), **cut)

    def plan_at(self, index: int) -> Plan:
        return plan_at(self.plan, index)

    def between(self, values: Array, active: Array) -> Array:
        """Values at `nodes` for a mean number of sequences [plans, ...]; as with the first below it."""
        return lines_between(self.nodes, values, active)

    def read_times(self, active: Array) -> Array:
        """Steps with so many sequences that read, by the pieces of each rank [plans, ..., prompts]."""
        return np.stack(
            [lines_between(self.nodes, v, active) for v in np.moveaxis(self.reading, -1, 0)], axis=-1
        )

    def saved_time(self, share: Array) -> Array:
        """Time by which a step with a piece in a share of the ranks is shorter than one with a piece in each
        [s]: ranks that read none leave more of the experts to the others.
        """
        return lines_between(self.shares, self.saved, share)

    @property
    def unloaded(self) -> Array:
        """Reading a prompt where there is no other request [s], [plans, 1]."""
        return self.alone[:, :1] - self.requests.input / self.longest * self.saved[:, :1]

    @property
    def longest(self) -> float:
        """Tokens of a piece of a prompt where nothing is generated."""
        return self.requests.input / float(np.ceil(self.requests.input / self.chunk))


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
    engine: Engine | str = USUAL_SERVER,
    *,
    chunk: float | None = None,
    sequences: float | None = None,
    reads: bool = True,
    drafting: Drafting | None = None,
    economics: Economics | None = None,
    within: System | None = None,
    nodes: int = NODES,
) -> Curve:
    """Price an engine that generates for up to `sequences` requests at once and reads at most `chunk` tokens
    in a step of each rank.

    Left out, these are the engine's own (`max_num_batched_tokens` of a step, `max_num_seqs` of a rank).
    `plan`: one, several on an axis, or every legal one when left out. `reads`: whether it reads prompts
    itself. `drafting`: speculative decoding. `within`: the system of which this is the part that is used.
    Steps are priced at whole numbers of sequences up to the slots
    that memory leaves at the mean context. Ranks hold whole sequences, each as many as the fullest; one that
    has none computes as if it had one. No step is quicker than one with fewer sequences.

    >>> one = curve("8xh200", "llama-3-70b", Requests(2048, 512), "tp=8", sequences=64)
    >>> one.slots.tolist(), one.step.shape, bool(one.reading[0, 0, 0] > one.step[0, 0])
    ([64.0], (1, 22), True)
    """
    require(2 <= nodes <= MOST_NODES, f"nodes of a curve are 2 to {MOST_NODES}", nodes=nodes)
    for name, value in (("chunk", chunk), ("sequences", sequences)):
        require(value is None or value >= 1, f"{name} must be at least 1", **{name: value})
    system = as_system(system)
    model = make_model(model) if isinstance(model, str) else model
    check_context(model, requests.input, requests.output)
    engine = as_engine(engine)
    plan = make_plan(plan) if isinstance(plan, str) else plan
    plan = as_many(plan or plans(int(float(system.devices)), model, freely=False))
    if drafting is not None and drafting.plan is None and drafting.draft.name != model.name:
        quick = quickest_plan(system, drafting.draft, 1.0, requests.context, draft_engine(engine))
        drafting = replace(drafting, plan=quick)
    chunk = float(np.min(np.asarray(engine.max_num_batched_tokens, float))) if chunk is None else chunk
    steps = ServedSteps(
        system=system,
        model=model,
        requests=requests,
        plan=_column(plan),
        engine=engine,
        pieces=float(np.ceil(requests.input / chunk)) if reads else 0.0,
        drafting=drafting,
    )
    allowed = np.asarray(engine.max_num_seqs * plan.dp * plan.pp)
    allowed = allowed if sequences is None else np.full(allowed.shape, sequences)
    with np.errstate(invalid="ignore"):  # a plan that is out has no times
        priced = _priced_curve(steps, plan, allowed, chunk, nodes)
    return replace(priced, economics=economics, within=within)


def _priced_curve(steps: ServedSteps, plan: Plan, allowed: Array, chunk: float, count: int) -> Curve:
    """Times at some numbers of sequences up to the slots, and of prompts up to what a step takes."""
    slots, needed = _slots(steps, allowed, chunk)
    each = np.maximum(np.ceil(slots[:, None] / steps.lanes), 1.0)
    ranks = np.maximum(steps.lanes / steps.replicas, 1.0)
    shares = ranks ** (np.arange(SHARES) / (SHARES - 1.0) - 1.0)  # of the ranks that have any
    whole = np.round(each ** (np.arange(count) / (count - 1.0)))
    nodes = steps.lanes * np.concatenate([shares[:, :-1], whole], axis=1)
    drafted = 0.0 if steps.drafting is None else steps.drafting.size
    generating = steps.priced(steps.generating(nodes))
    plain = np.broadcast_to(steps.pricer.generated(steps.each(nodes), steps.requests.context)[0], nodes.shape)
    plain = plain - np.pad(_saved(steps, 1.0 + drafted, shares, reads=False)[:, :-1], ((0, 0), (0, count)))
    pieces, read, budget = _prompts(steps, nodes, chunk, drafted)
    out: dict[str, Any] = {"reading": np.zeros((*nodes.shape, 1)), "alone": np.zeros((len(slots), 1))}
    out["saved"] = np.zeros_like(shares)
    reading = generating
    if steps.pieces:
        out = _reading_times(steps, nodes, pieces, read, budget)
        out["saved"] = _saved(steps, steps.prompts()[0], shares, reads=True)
        reading = steps.priced(steps.reading(nodes))
    good = np.isfinite(plain).all(axis=1) & np.isfinite(out["reading"]).all(axis=(1, 2))
    out = {k: np.where(good.reshape((-1,) + (1,) * (v.ndim - 1)), v, 0.0) for k, v in out.items()}
    slots = np.where(good, slots, 0.0)
    return Curve(
        system=steps.system,
        model=steps.model,
        engine=steps.engine,
        plan=plan,
        requests=steps.requests,
        nodes=nodes,
        step=np.where(good[:, None], np.maximum.accumulate(plain, axis=1), 1.0),
        pieces=pieces,
        prompts=read,
        shares=shares,
        **out,
        lanes=steps.lanes[:, 0],
        slots=slots,
        allowed=allowed,
        replicas=np.minimum(steps.replicas[:, 0], np.maximum(slots, 1.0)),
        chunk=chunk,
        spent=spending_of(nodes, generating, reading),
        drafted=drafted,
        gain=1.0 if steps.drafting is None else steps.drafting.tokens,
        memory=needed,
    )


def _prompts(steps: ServedSteps, nodes: Array, chunk: float, drafted: float) -> tuple[Array, Array, Array]:
    """Pieces of a prompt by sequences in flight, how many a rank's step may read, and its tokens for them."""
    mixed = np.any(np.asarray(steps.engine.chunked_prefill) > 0)
    beside = (1.0 + drafted) * nodes / steps.lanes if mixed else 0.0 * nodes
    budget = np.maximum(chunk - beside, 1.0)
    if not steps.pieces:
        return np.zeros(nodes.shape), np.ones((len(nodes), 1)), budget
    pieces = np.ceil(steps.requests.input / budget)
    most = np.clip(chunk * np.max(pieces, axis=1) / steps.requests.input, 1.0, MOST_PROMPTS)
    count = int(np.clip(nodes.shape[1] // 4, 2, PROMPTS))
    read = np.ceil(most[:, None] ** (np.arange(count) / (count - 1.0)) - 1e-9)
    return pieces, read, budget


def _long_prompt(steps: ServedSteps, nodes: Array, pieces: Array, budget: Array) -> Array:
    """A step that reads a piece of a long prompt, on average [s]: as many tokens as it may, last the rest."""
    pricer, length, each = steps.pricer, steps.requests.input, steps.each(nodes)
    rest = np.maximum(length - (pieces - 1.0) * budget, 1.0)
    whole, last = (
        pricer.read_beside(each, steps.requests.context, tokens, attended)[0]
        for tokens, attended in (
            (np.minimum(budget, length), 0.5 * (length - rest)),
            (rest, length - 0.5 * rest),
        )
    )
    return ((pieces - 1.0) * whole + last) / pieces


def _reading_times(
    steps: ServedSteps, nodes: Array, pieces: Array, read: Array, budget: Array
) -> dict[str, Array]:
    """Times of steps that read, by sequences in flight and pieces of prompts, alone, and with fewer ranks."""
    pricer, context = steps.pricer, steps.requests.context
    wide = replace(steps, plan=map_leaves(lambda v: v[..., None] if has_axes(v) else v, steps.plan))
    mixed = np.any(np.asarray(steps.engine.chunked_prefill) > 0)
    tokens, attended = steps.prompts(read)
    alone = np.broadcast_to(pricer.priced(pricer.reading_alone(tokens, attended))[0], read.shape)
    both = np.broadcast_to(alone[:, None, :], (*nodes.shape, read.shape[1]))
    if mixed:
        several, attended = replace(wide, pieces=pieces[..., None]).prompts(read[:, None, :])
        each = wide.each(nodes[..., None])
        both = wide.pricer.read_beside(each, context, several, attended)[0]
        both = np.array(np.broadcast_to(both, (*nodes.shape, read.shape[1])))
        both[..., 0] = np.where(pieces > 1, _long_prompt(steps, nodes, pieces, budget), both[..., 0])
        both = np.maximum.accumulate(both, axis=1)
    return {"reading": both, "alone": steps.pieces * alone}


def _saved(steps: ServedSteps, tokens: Number, shares: Array, *, reads: bool) -> Array:
    """Time by which steps with so many tokens in a share of the ranks are shorter than with as many in each
    [s], by shares: experts that ranks have together.
    """
    together = np.asarray(steps.plan.dp, float) > np.asarray(steps.plan.moe_groups, float)
    if not steps.model.has_experts or not np.any(together):
        return np.zeros_like(shares)
    saved = np.broadcast_to(steps.pricer.saved(tokens, shares, reads), shares.shape)
    return np.where(together & np.isfinite(saved), saved, 0.0)


def _slots(steps: ServedSteps, sequences: Array, chunk: float) -> tuple[Array, Array]:
    """The most sequences that memory has room for, and the memory of a device with one sequence a lane.

    The fullest lane counts: all have as many. Memory grows evenly with them, so that where the chord between
    one and the most crosses the limit is the answer; a second chord, from there, takes rounding off.
    """
    lanes, one = steps.lanes, np.ones_like(steps.lanes)
    # a step that reads as many prompts as it may has to fit, too
    full = float(np.clip(chunk / (steps.requests.input / max(steps.pieces, 1.0)), 1.0, MOST_PROMPTS))
    full = 1.0 if chunk >= 1e9 else full
    most = np.maximum(np.ceil(sequences[:, None] / lanes), 1.0)
    used, limit = (np.broadcast_to(v, lanes.shape) for v in steps.memory(lanes, full))
    each = most
    for _ in range(2):
        high = np.maximum(each, one + 1.0)
        more = (steps.memory(high * lanes, full)[0] - used) / (high - one)
        crossing = np.floor(one + (limit - used) / more + 1e-9)
        each = np.clip(np.nan_to_num(crossing, nan=1.0), 1.0, most)  # a plan that is out has none
    return np.where(used <= limit, np.minimum(each * lanes, sequences[:, None]), 0.0)[:, 0], used[:, 0]
