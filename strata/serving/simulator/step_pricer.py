"""Steps of an engine as `evaluate` prices them, attention and feed-forwards together or apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number, ceil_div
from strata.base.errors import BadValue, require
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.plan import Plan, plan_text
from strata.pricing.network.collective_cost import collective
from strata.result import Result
from strata.software.engine import Engine
from strata.workload.model import Model
from strata.workload.tasks import Workload, decode, mixed, prefill

ROOM = 1e6  # times the memory of a device: the block pool says what fits, prices are wanted beyond it
SLACK = 0.01  # of a prompt: rounding is not to make two of one


@dataclass(frozen=True, eq=False, kw_only=True)
class StepPricer:
    """An engine whose steps are priced: all its ranks (lanes) with the same in each."""

    system: System
    model: Model
    plan: Plan
    engine: Engine
    routed: dict[str, Any]  # how tokens pick their experts, as workloads take it
    draft_tokens: float = 0.0  # guessed in a decode step beside the one that is sure
    # time of the guesses of a step [s], by the sequences of all lanes and the tokens of each
    guessing: Callable[[Number, Number], Array] | None = None
    # what the draft takes of a device, weights and caches [B], by the same
    draft_bytes: Callable[[Number, Number], Array] | None = None

    @property
    def lanes(self) -> Number:
        return self.plan.dp * self.plan.pp

    def generating(self, sequences: Number, context: Number) -> Workload:
        """`context`: tokens of each sequence."""
        return decode(self.lanes * sequences, context + self.draft_tokens, **self._verified, **self.routed)

    @property
    def _verified(self) -> dict[str, Any]:
        """Tokens of a sequence that a step has, where some are guessed."""
        return {"tokens": self.draft_tokens + 1.0} if self.draft_tokens else {}

    def reading(self, sequences: Number, context: Number, tokens: Number, attended: Number) -> Workload:
        chunk, cached, prompts = prompt_of(tokens, attended)
        return mixed(
            self.lanes * sequences,
            context + self.draft_tokens,
            prompts=self.lanes * prompts,
            chunk=chunk,
            cached=cached,
            **self._verified,
            **self.routed,
        )

    def reading_alone(self, tokens: Number, attended: Number) -> Workload:
        chunk, cached, prompts = prompt_of(tokens, attended)
        return prefill(self.plan.dp * prompts, chunk, cached=cached, **self.routed)

    def launched(self, times: float) -> StepPricer | None:
        """The same with so many times the host time to launch prompts; none where it takes none."""
        if np.all(np.asarray(self.engine.cuda_graphs) > 1) or not np.any(np.asarray(self.engine.launches)):
            return None
        return replace(self, engine=replace(self.engine, launches=times * self.engine.launches))

    @property
    def shares_experts(self) -> bool:
        """Whether ranks have experts of which each holds a part."""
        return bool(self.model.has_experts) and float(self.plan.dp) > float(self.plan.moe_groups)

    def evaluated(self, work: Workload) -> Result:
        """Steps whether or not their caches fit: the pool says what does."""
        roomy = replace(self.engine, gpu_memory_utilization=self.engine.gpu_memory_utilization * ROOM)
        return evaluate(self.system, self.model, work, self.plan, roomy)

    def priced(self, work: Workload) -> tuple[Array, Array]:
        """Time [s] and energy of the whole system [J] of steps."""
        metrics = self.evaluated(work).metrics
        time = np.asarray(metrics.step_time, float)
        with np.errstate(invalid="ignore"):  # a plan that is out has no times
            return time, time * np.asarray(metrics.power, float)

    @property
    def sharers(self) -> int:
        """Ranks that share one set of experts."""
        return max(round(float(self.plan.dp) / max(float(self.plan.moe_groups), 1.0)), 1)

    def saved(self, tokens: Number, share: Number, reads: bool) -> Array:
        """Time by which a step in which only a `share` of the ranks has `tokens`, the others none, is shorter
        than one in which each has as many [s]: experts that see fewer. What a rank does for itself, and
        exchanges that wait for the fullest, take as long.

        One sequence of so many tokens in each of the ranks, so that `evaluate` has the fullest as it is.
        """
        some, every = self.lanes * share, self.lanes + 0.0 * share
        if reads:
            ranks = [prefill(b / self.plan.pp, tokens, **self.routed) for b in (some, every)]
        else:
            ranks = [decode(b, tokens + 1.0, tokens=tokens, **self.routed) for b in (some, every)]
        few, full = (self._spread_time(work) for work in ranks)
        return np.maximum(full - few, 0.0)

    def _spread_time(self, work: Workload) -> Array:
        """Of a step with fewer sequences than ranks [s]."""
        if work.phase == "prefill" or np.all(np.asarray(self.plan.pp) == 1.0):
            return np.asarray(self.evaluated(work).metrics.step_time, float)
        # lanes without a sequence are no plan: the sum of what kernels take, one micro-batch a lane
        lanes = replace(self, plan=replace(self.plan, microbatches=self.plan.pp))
        kinds = lanes.evaluated(work).summary.time_by_kind
        return sum((np.asarray(v, float) for v in kinds.values()), np.zeros(()))

    def generated(self, sequences: Number, context: Number) -> tuple[Array, Array]:
        """Time and energy of steps that generate, guesses and all."""
        return self._with_guesses(self.generating(sequences, context), sequences, context)

    def read_beside(
        self, sequences: Number, context: Number, tokens: Number, attended: Number
    ) -> tuple[Array, Array]:
        """Time and energy of steps that generate and read, guesses and all."""
        return self._with_guesses(self.reading(sequences, context, tokens, attended), sequences, context)

    def _with_guesses(self, work: Workload, sequences: Number, context: Number) -> tuple[Array, Array]:
        time, energy = self.priced(work)
        if self.guessing is None:
            return time, energy
        guess = self.guessing(self.lanes * sequences, context)
        return time + guess, energy * (1.0 + guess / time)

    def idle(self) -> float:
        """Power of the whole system while it waits for requests [W]."""
        return float(idle_power(self.evaluated(self.generating(1.0, 1.0))))


def engines_apart(plan: Plan, model: Model) -> Array:
    """Engines that step by themselves: data parallel ranks, less those that share experts, or weights."""
    dp, groups = np.asarray(plan.dp, float), np.asarray(plan.moe_groups, float)
    apart = np.where(groups >= dp, dp, np.where(dp % np.maximum(groups, 1.0) == 0, groups, 1.0))
    every = apart if model.has_experts else dp
    return np.where(np.asarray(plan.zero) >= 3, 1.0, every)


def idle_power(result: Result) -> Array:
    """What a system draws while it waits for requests [W]: of a result's energy, what idles and the hosts."""
    energy = result.summary.energy
    return np.asarray((energy["static"] + energy["hosts"]) * result.metrics.tokens_per_s, float)


def prompt_of(tokens: Number, attended: Number) -> tuple[Number, Number, Number]:
    r"""Alike prompts that have so many tokens together, each attending to so many on average: the chunk that
    is read of each, what is cached before it, and how many there are.

    .. math:: m = \max\left(1, \left\lceil \frac{P}{2 A} \right\rceil\right), \quad p = \frac{P}{m},
        \quad c = A - \frac{p}{2}

    One prompt where its own half chunk explains what is attended, several short ones where not; a whole
    number of them, as a rank has no part of one.

    >>> [float(v) for v in prompt_of(1024.0, 4096.0)], [float(v) for v in prompt_of(1024.0, 128.0)]
    ([1024.0, 3584.0, 1.0], [256.0, 0.0, 4.0])
    """
    prompts = np.maximum(np.ceil(tokens / (2.0 * np.maximum(attended, 0.5)) - SLACK), 1.0)
    chunk = tokens / prompts
    return chunk, np.maximum(attended - 0.5 * chunk, 0.0), prompts


UNBOUNDED = 2**40  # blocks, or tokens of one, where nothing grows


@dataclass(frozen=True, kw_only=True)
class KvRoom:
    """What the memory of a rank has room for; `fixed`: blocks of a sequence of any length (states)."""

    blocks: int
    page: int
    fixed: int


def kv_room(pricer: StepPricer, *, context: float) -> KvRoom:
    r"""Blocks of the cache of one rank, from what devices hold with one sequence, two, and a longer one.

    .. math:: M(n, c) = M_0 + n (a + b c), \qquad B = \lfloor (M_{max} - M_0) / (b\,page) \rfloor

    Prompts of a whole step are in M_0: their activations must fit beside the caches. `context`: a length
    that is usual. Windows make a cache grow less the longer it is, so that a line which touches it there is
    right there and no less than it anywhere else.
    """
    engine = pricer.engine
    page = int(np.asarray(engine.kv_block_size))
    chunk = float(np.asarray(engine.max_num_batched_tokens))
    near = page * float(ceil_div(max(context, 2.0 * page), page))
    far = near + page * float(ceil_div(near / 8.0, page))
    sequences, lengths = np.array([1.0, 2.0, 2.0]), np.array([near, near, far])
    work = pricer.reading(sequences, lengths, np.full(3, chunk), chunk / 2)
    metrics = evaluate(pricer.system, pricer.model, work, pricer.plan, engine).metrics
    used = np.broadcast_to(np.asarray(metrics.memory_used, float), (3,))
    if pricer.draft_bytes is not None:  # which has a cache of its own
        used = used + pricer.draft_bytes(pricer.lanes * sequences, lengths)
    limit = float(np.max(np.asarray(metrics.memory_limit, float)))
    each, token = used[1] - used[0], (used[2] - used[1]) / (2.0 * (far - near))
    room = limit - (used[0] - each)
    if not token > 1e-9 * each / near:  # nothing grows with a sequence: a block is its whole state
        blocks = int(room // each) if each > 0 else UNBOUNDED
        fixed, page = 0, UNBOUNDED
    else:
        size = float(token * page)
        blocks, fixed = int(room // size), int(max(round((each - token * near) / size), 0))
    return KvRoom(blocks=max(blocks, 0), page=page, fixed=fixed)


SIDES = ("attention", "ffn")


def model_side(model: Model, side: str) -> Model:
    """The part of a model that one side runs: attention with embedding and head, or feed-forwards alone.

    >>> from strata.workload.model import model
    >>> whole, parts = model("deepseek-v3"), [model_side(model("deepseek-v3"), side) for side in SIDES]
    >>> [part.pattern.kinds(0) for part in parts], [part.has_experts for part in parts]
    ([('full',), ()], [False, True])
    """
    part = SIDES.index(side)

    def kept(pair: tuple[str, ...]) -> tuple[str, str]:
        return (pair[0], "none") if part == 0 else ("none", pair[1])

    pattern = model.pattern
    for pair in pattern.pairs():
        if "none" in pair or model.parallel_residual:
            raise BadValue(
                f"{model.name} has layers without attention or feed-forward, or both side by side: its sides "
                "do not take turns"
            )
    prefix = kept(pattern.prefix) if pattern.prefix else ()
    period = tuple(kept(pair) for pair in pattern.period)
    changed: dict[str, Any] = {} if part == 0 else {"vocab": 1.0, "tower_parameters": 0.0}
    return replace(
        model,
        name=f"{model.name} ({side})",
        pattern=replace(pattern, prefix=prefix, period=period),
        **changed,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ApartPricer(StepPricer):
    r"""An engine whose attention and feed-forwards run on devices of their own.

    `system`, `plan` and `engine` are those of the attention side, which has the caches; `model` is its part.
    With a micro-batch that takes A on one side, F on the other and X on the way there or back, over all L
    layers, and m micro-batches that take turns,

    .. math:: T = \max\left(A + F + 2X,\; m\,\max(A, F, X) + \frac{A + F + 2X - \max(A, F, X)}{L}\right)

    the slower side without a pause, and the first and last layer of the others; or one micro-batch after the
    other where there are too few to fill the pauses (Zhu et al., MegaScale-Infer, 2025, arXiv:2504.02263,
    section 4.1). A and F are steps of `evaluate` on the two parts of the graph, so that each side has its own
    host time; feed-forwards whose plan spreads experts pay their exchange among themselves beside X.
    """

    whole: Model
    ffn_system: System
    ffn_plan: Plan
    across: System  # in which both sides lie, attention first
    pieces: int = 2  # micro-batches

    def __post_init__(self) -> None:
        require(self.pieces >= 1, "a step has at least one micro-batch", pieces=self.pieces)
        devices = [int(float(s.devices)) for s in (self.system, self.ffn_system, self.across)]
        require(
            devices[0] + devices[1] <= devices[2],
            "both sides lie within the system around them",
            attention=devices[0],
            ffn=devices[1],
            around=devices[2],
        )

    @property
    def ffn_model(self) -> Model:
        return model_side(self.whole, "ffn")

    def exchange(self, tokens: Array) -> Array:
        """Time to bring what so many tokens hand on from one side to the other in all layers, the slower way
        [s]: each device takes the tokens of its lane.
        """
        lanes = min(float(self.plan.dp), float(self.ffn_plan.dp))
        graph = self.whole.trace(self.generating(np.asarray(1.0), np.asarray(1.0)))
        handed = next(
            b.entry for b in graph.blocks if b.entry is not None and graph.sequence.in_layers(b.name)
        )
        sent = tokens * float(np.asarray(handed.bytes())) / (self.lanes * lanes)
        apart = int(float(self.system.devices))
        cost = collective(self.across, "send", bytes=sent, ranks=2, stride=apart, engine=self.engine)
        return np.asarray(cost.time, float) * float(np.asarray(self.whole.layers))

    def micro_batches(self, work: Workload) -> Array:
        """Micro-batches of a step: as many as told, where each lane has a sequence for each of them."""
        return np.clip(np.asarray(work.batch, float) / self.lanes, 1.0, float(self.pieces))

    def sides(self, work: Workload) -> tuple[Array, Array, Array, Array]:
        """Times of a micro-batch: on each side, and on the way from one to the other [s]; power of both [W].

        Of prompts that are read beside, each has a part of the chunk.
        """
        pieces = self.micro_batches(work)
        part = replace(work, batch=work.batch / pieces)
        if work.prompts is not None:
            chunk = work.chunk / pieces
            part = replace(part, chunk=chunk, reached=work.reached - 0.5 * (work.chunk - chunk))
        here = self.evaluated(part).metrics
        roomy = replace(self.engine, gpu_memory_utilization=self.engine.gpu_memory_utilization * ROOM)
        there = evaluate(self.ffn_system, self.ffn_model, part, self.ffn_plan, roomy).metrics
        times = [np.asarray(m.step_time, float) for m in (here, there)]
        power = np.asarray(here.power, float) + np.asarray(there.power, float)
        return times[0], times[1], self.exchange(np.asarray(part.batch * part.sequence, float)), power

    def priced(self, work: Workload) -> tuple[Array, Array]:
        here, there, way, power = self.sides(work)
        time = taken_in_turn(here, there, way, self.micro_batches(work), np.asarray(self.whole.layers, float))
        return time, time * power

    def check_room(self) -> None:
        """Raise where feed-forwards do not fit on their devices."""
        work = self.generating(np.asarray(1.0), np.asarray(1.0))
        found = evaluate(self.ffn_system, self.ffn_model, work, self.ffn_plan, self.engine)
        if not bool(np.all(found.fits)):
            where = f"{self.ffn_system.name} with {plan_text(self.ffn_plan)}"
            raise BadValue(f"feed-forwards of {self.whole.name} do not fit on {where}")


def taken_in_turn(here: Array, there: Array, way: Array, pieces: Array, layers: Array) -> Array:
    """A step of micro-batches that two sides take in turn, by the times of one over all layers.

    >>> [float(taken_in_turn(1.0, 1.0, 0.0, m, np.array(10.0))) for m in (1.0, 2.0, 3.0)]
    [2.0, 2.1, 3.1]
    """
    alone = here + there + 2.0 * way
    slowest = np.maximum(np.maximum(here, there), way)
    return np.maximum(alone, pieces * slowest + (alone - slowest) / layers)
