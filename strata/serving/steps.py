"""Steps of an engine that serves requests, as they are priced: generating, reading beside, reading alone; and
what they spend.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.evaluate import evaluate
from strata.hardware.money import Economics
from strata.hardware.silicon.system_cost import cost_rate
from strata.hardware.system import System, economics_of
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.serving.requests import Requests
from strata.serving.speculation import Drafting, draft_time
from strata.simulate.server.step_pricer import idle_power
from strata.workload.model import Model
from strata.workload.tasks import Workload, decode, mixed, prefill


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedSteps:
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

    @property
    def replicas(self) -> Array:
        """Engines that step by themselves: data parallel ranks, less those that share experts, or weights."""
        dp, groups = np.asarray(self.plan.dp, float), np.asarray(self.plan.moe_groups, float)
        apart = np.where(groups >= dp, dp, np.where(dp % np.maximum(groups, 1.0) == 0, groups, 1.0))
        every = apart if self.model.has_experts else dp
        return np.where(np.asarray(self.plan.zero) >= 3, 1.0, every)

    def rows(self, batch: Array) -> Array:
        """Sequences as lanes hold them, each as many as the fullest: a step waits for it, and a part of a
        sequence is none.
        """
        return self.lanes * np.ceil(np.maximum(batch, 1.0) / self.lanes)

    def generating(self, batch: Array) -> Workload:
        return decode(self.rows(batch), self.requests.context, **self.requests.routed)

    def reading(self, batch: Array) -> Workload:
        """A step that generates and, where the engine reads prompts, has a piece of one in every lane."""
        if not self.pieces:
            return self.generating(batch)
        return mixed(
            self.rows(batch),
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
        rows, context = self.rows(batch), self.requests.context
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


def dollars_per_s(system: System, power: Array, economics: Economics | None = None) -> Array:
    """What a system costs while it draws so much power [USD/s]; nan where the chip has no price."""
    return np.asarray(cost_rate(system, economics or economics_of(system), power), float)


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

    def _at(self, values: Array, active: Array) -> Array:
        """Values for a mean number of sequences [plans, ...], in lines between nodes."""
        flat = active.reshape(len(active), -1)
        lines = [np.interp(n, at, v) for n, at, v in zip(flat, self.nodes, values, strict=True)]
        return np.reshape(np.array(lines), active.shape)

    def mean(self, active: Array, reading: Array, empty: Array) -> Array:
        r"""Mean power of an engine [W].

        .. math:: P = \phi P_r + (1 - \phi) \left((1 - \pi) P_g + \pi P_0\right)

        share φ of the time in steps that read; of the rest, π without a sequence in flight.
        """
        idle = self.idle.reshape((-1,) + (1,) * (active.ndim - 1))
        rest = (1.0 - empty) * self._at(self.generating, active) + empty * idle
        return reading * self._at(self.reading, active) + (1.0 - reading) * rest


def spending_of(served: ServedSteps, nodes: Array, generating: Any, reading: Any) -> Spending:
    """What steps at some numbers of sequences draw, generating and reading."""
    powers = (np.broadcast_to(np.asarray(r.metrics.power, float), nodes.shape) for r in (generating, reading))
    one = served.priced(served.generating(nodes[:, :1]))
    idle = np.broadcast_to(idle_power(one), nodes[:, :1].shape)[:, 0]
    plain, read = powers
    return Spending(nodes=nodes, generating=plain, reading=read, idle=idle)
