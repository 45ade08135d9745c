"""Steps of an engine as `evaluate` prices them: time, energy, and what ranks do for each other's tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.result import Result
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
