"""Steps of an engine that serves requests, as they are priced, and what they spend."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from strata.base.arrays import Array, Number
from strata.evaluate import evaluate
from strata.hardware.making import cost_rate
from strata.hardware.money import Economics
from strata.hardware.system import System, economics_of
from strata.mapping.plan import Plan
from strata.result import Result
from strata.serving.requests import Requests
from strata.serving.simulator.step_pricer import ROOM, StepPricer, engines_apart, idle_power
from strata.serving.speculation import Drafting, draft_engine, draft_time, quickest_plan
from strata.software.engine import Engine
from strata.workload.model import Model
from strata.workload.tasks import Workload, decode

USUAL_CONTEXT = 2048.0  # tokens of a sequence at which memory is looked at


def drafted_pricer(pricer: StepPricer, drafting: Drafting) -> StepPricer:
    """An engine whose decode steps verify guesses of a draft, which has weights and a cache of its own."""
    engine, system, draft = pricer.engine, pricer.system, drafting.draft
    plan = drafting.plan or (
        pricer.plan  # a module of the model lies as the model does
        if draft.name == pricer.model.name
        else quickest_plan(system, draft, float(np.max(pricer.lanes)), USUAL_CONTEXT, draft_engine(engine))
    )

    def guessing(batch: Number, context: Number) -> Array:
        rows = np.maximum(batch, plan.dp)
        told = {"window": drafting.window, "branches": drafting.branches}
        return np.asarray(draft_time(system, draft, plan, engine, batch=rows, context=context, **told))

    def held(batch: Number, context: Number) -> Array:
        rows = np.maximum(batch, plan.dp)
        used = evaluate(system, draft, decode(rows, context), plan, engine).metrics.memory_used
        return np.maximum(np.asarray(used, float) - float(np.asarray(engine.reserve)), 0.0)

    return replace(pricer, draft_tokens=drafting.size, guessing=guessing, draft_bytes=held)


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedSteps:
    """An engine to be priced, by the simulator's own prices, at the mean context of its requests."""

    system: System
    model: Model
    requests: Requests
    plan: Plan  # degrees may be arrays
    engine: Engine
    pieces: Number  # in which a prompt is read; 0 where it is read elsewhere
    drafting: Drafting | None

    @cached_property
    def pricer(self) -> StepPricer:
        plain = StepPricer(
            system=self.system,
            model=self.model,
            plan=self.plan,
            engine=self.engine,
            routed=self.requests.routed,
        )
        return plain if self.drafting is None else drafted_pricer(plain, self.drafting)

    @property
    def lanes(self) -> Array:
        return np.asarray(self.plan.dp * self.plan.pp)

    @property
    def replicas(self) -> Array:
        """Engines that step by themselves."""
        return engines_apart(self.plan, self.model)

    def each(self, batch: Number) -> Array:
        """Sequences of a lane, each with as many as the fullest, for which a step waits; whole ones."""
        return np.ceil(np.maximum(batch, 1.0) / self.lanes)

    def generating(self, batch: Number) -> Workload:
        return self.pricer.generating(self.each(batch), self.requests.context)

    def prompts(self, count: Number = 1.0) -> tuple[Number, Number]:
        """Tokens of so many pieces of prompts, and what each attends to: as in the middle of a prompt, since
        attention grows evenly from piece to piece.
        """
        return count * self.requests.input / np.maximum(self.pieces, 1.0), 0.5 * self.requests.input

    def reading(self, batch: Number, count: Number = 1.0) -> Workload:
        """A step that generates and, where the engine reads prompts, has pieces of some in every lane."""
        if not np.any(self.pieces):
            return self.generating(batch)
        return self.pricer.reading(self.each(batch), self.requests.context, *self.prompts(count))

    def reading_alone(self, count: Number = 1.0) -> Workload:
        """A step that reads pieces in the middle of prompts where nothing is generated."""
        return self.pricer.reading_alone(*self.prompts(count))

    def priced(self, work: Workload) -> Result:
        return self.pricer.evaluated(work)

    def memory(self, batch: Number, count: Number = 1.0) -> tuple[Array, Array]:
        """Of the fullest device in a step that reads, and what it may fill [B]; infinite if not legal."""
        result = self.priced(self.reading(batch, count))
        used, context = np.asarray(result.metrics.memory_used, float), self.requests.context
        if self.pricer.draft_bytes is not None:
            used = used + self.pricer.draft_bytes(self.lanes * self.each(batch), context)
        limit = np.asarray(result.metrics.memory_limit, float) / ROOM
        return np.where(result.fits, used, np.inf), limit


def dollars_per_s(system: System, power: Array, economics: Economics | None = None) -> Array:
    """What a system costs while it draws so much power [USD/s]; nan where the chip has no price."""
    return np.asarray(cost_rate(system, economics or economics_of(system), power), float)


def node_before(nodes: Array, x: Array) -> tuple[Array, Array]:
    """The node before each x [plans, ...] of its plan's nodes [plans, nodes], and the share of the way to the
    next; 0 before the first, more than 1 beyond the last.
    """
    table = nodes.reshape(len(nodes), *(1,) * (x.ndim - 1), -1)
    low = np.clip(np.sum(table <= x[..., None], axis=-1) - 1, 0, max(nodes.shape[-1] - 2, 0))
    rows = np.arange(len(nodes)).reshape((-1,) + (1,) * (x.ndim - 1))
    first, second = nodes[rows, low], nodes[rows, np.minimum(low + 1, nodes.shape[-1] - 1)]
    width = second - first
    return low, np.where(width > 0, np.maximum(x - first, 0.0) / np.where(width > 0, width, 1.0), 0.0)


def lines_between(nodes: Array, values: Array, x: Array) -> Array:
    """Values [plans, nodes], or [plans, ..., nodes], at x [plans, ...], in lines between nodes."""
    low, share = node_before(nodes, x)
    high = np.minimum(low + 1, nodes.shape[-1] - 1)
    each = values.reshape(len(values), *(1,) * (x.ndim + 1 - values.ndim), *values.shape[1:])
    first, second = (np.take_along_axis(each, i[..., None], axis=-1)[..., 0] for i in (low, high))
    return first + share * (second - first)


@dataclass(frozen=True, eq=False, kw_only=True)
class Spending:
    """Power of a whole system [W] in steps that generate, in steps that read, and without any; by plan, and
    by sequences in flight at `nodes` [plans, nodes].
    """

    nodes: Array
    generating: Array
    reading: Array
    idle: Array  # [plans]

    def only(self, chosen: Array) -> Spending:
        return Spending(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    def mean(self, active: Array, reading: Array, empty: Array) -> Array:
        r"""Mean power of an engine [W].

        .. math:: P = \phi P_r + (1 - \phi) \left((1 - \pi) P_g + \pi P_0\right)

        share φ of the time in steps that read; of the rest, π without a sequence in flight.
        """
        idle = self.idle.reshape((-1,) + (1,) * (active.ndim - 1))
        generates, reads = (lines_between(self.nodes, v, active) for v in (self.generating, self.reading))
        return reading * reads + (1.0 - reading) * ((1.0 - empty) * generates + empty * idle)


def spending_of(nodes: Array, generating: Result, reading: Result) -> Spending:
    """What steps at some numbers of sequences draw, generating and reading."""
    plain, read = (
        np.broadcast_to(np.asarray(r.metrics.power, float), nodes.shape) for r in (generating, reading)
    )
    idle = np.broadcast_to(idle_power(generating), nodes.shape)[:, 0]
    return Spending(nodes=nodes, generating=plain, reading=read, idle=idle)
