"""Phases of an iteration under plans of a pool: rollouts by continuous batching, scoring and learning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from strata.adapters.post_training.recipe import (
    NODES,
    PostTrainingRecipe,
    ResponseLengths,
    any_running,
    response_lengths,
)
from strata.base.arrays import Array, Number, map_leaves
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.plan import Plan
from strata.mapping.plans import candidate_plans, plan_at, taken
from strata.pricing.training_memory import STATE
from strata.result import Result
from strata.serving.curve import as_many
from strata.serving.simulator.step_pricer import idle_power
from strata.software.engine import Engine
from strata.workload.model import Model
from strata.workload.tasks import Workload, decode, prefill, train

RECOMPUTED = (0.0, 1.0, 2.0)  # what plans that are searched may recompute: nothing, attention, layers
MOST_READ = 16384.0  # prompt tokens that one step reads where the engine has no limit of its own


@dataclass(frozen=True, eq=False, kw_only=True)
class Filling:
    """How a replica's slots are filled: steps with all taken, then until the last response ends."""

    steps: Array  # with all slots taken, before the queue of prompts is empty
    share: Array  # of slots that still run, at each place
    chance: Array  # that any replica still runs, at each place
    running: Array  # sequences of a replica that still runs, at each place
    age: Array  # tokens that they have written


def filling(lengths: ResponseLengths, slots: Number, samples: Number, replicas: Number) -> Filling:
    r"""Slots of replicas under continuous batching, each with its share of the samples.

    .. math:: K = \frac{n L}{S} - (1 - w) L - w \rho, \quad w = 1 - S / n, \quad
              q(x) = 1 - (1 - s(x))^{S R}, \quad a(x) = \frac{S s(x)}{1 - (1 - s(x))^S}

    n samples of a replica, S of its slots that they fill, mean length L and residual length ρ. All slots are
    taken for K steps; after x more a replica that runs has a(x) sequences, and any of R runs by chance q(x).
    Tokens are conserved: S K + S ∫ s = n L. Exact in the mean where n ≤ S; beyond it slots are taken for
    renewal processes at a random moment, of which w have been refilled (Cox, Renewal Theory, 1962, sec. 5).

    >>> lengths = response_lengths(1000.0, 0.7, 8192.0)
    >>> once, twice = (filling(lengths, np.array(256.0), np.array(n), 4.0) for n in (256.0, 512.0))
    >>> float(once.steps), round(float(twice.steps)), round(float(lengths.integral(once.chance)))
    (0.0, 1095, 7190)
    """
    slots, samples = np.asarray(slots, float), np.asarray(samples, float)
    taken = np.minimum(slots, samples)
    refilled = 1.0 - taken / samples
    share, age = lengths.still_running(refilled)
    left = (1.0 - refilled) * lengths.mean + refilled * lengths.residual
    steps = np.maximum(samples * lengths.mean / taken - left, 0.0)
    wide = taken[..., None]
    alive = any_running(share, wide)
    return Filling(
        steps=steps,
        share=share,
        chance=any_running(share, wide * np.asarray(replicas, float)[..., None]),
        running=wide * share / np.maximum(alive, 1e-300),
        age=age + lengths.places,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class PhasePrices:
    """What phases of a pool take and hold, under each of some plans."""

    plan: Plan
    idle: Any  # power of the pool while it waits [W]
    memory: dict[str, Any]  # bytes of a device by purpose
    limit: Any  # bytes that a device may fill
    bound: Any  # what binds a step: with all slots taken, or of training

    def at(self, place: int) -> Self:
        """The same under one of the plans, as numbers."""
        values = dict(vars(self))
        plan, memory = plan_at(values.pop("plan"), place), values.pop("memory")
        one = {name: value[place].item() for name, value in values.items()}
        return replace(self, plan=plan, memory={k: v[place].item() for k, v in memory.items()}, **one)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rollouts(PhasePrices):
    """Rollouts under each of some plans; memory with all slots taken."""

    reading: Any  # prompts [s]
    full: Any  # while at least half of the slots that were taken run [s]
    tail: Any  # from then until the longest response ends [s]; 0 where partial rollouts go on later
    slots: Any  # sequences there is room for, over all devices; 0 where the plan does not fit
    energy: Any  # of all devices of the pool [J]
    lacks: Any  # bytes of a device beyond its limit with one sequence a lane; 0 where that fits

    @property
    def time(self) -> Any:
        return self.reading + self.full + self.tail


@dataclass(frozen=True, eq=False, kw_only=True)
class Learning(PhasePrices):
    """Scoring and learning under each of some plans; memory while it trains."""

    scoring: Any  # forward passes over all samples [s]; inf where the plan does not fit
    training: Any  # all updates [s]
    energy: Any  # of all devices of the pool [J]
    state: Any  # of the memory, what lies there between updates: weights, gradients, optimiser
    weights: Any  # weights of one model on a device, as the plan stores them for forward passes
    legal: Any  # whether the plan breaks no rule but that of memory

    @property
    def time(self) -> Any:
        return self.scoring + self.training

    @property
    def used(self) -> Any:
        return np.sum(list(self.memory.values()), axis=0)

    @property
    def lacks(self) -> Any:
        """Bytes that a plan lacks; inf where it is not legal."""
        return np.where(self.legal, np.maximum(self.used - self.limit, 0.0), np.inf)


def training_plans(
    system: System, model: Model, recipe: PostTrainingRecipe, engine: Engine, plan: Plan | None = None
) -> Plan:
    """The plan told, else every legal one with each recomputation; micro-batches as samples are packed."""
    if plan is None:
        work = train(float(recipe.minibatch), float(recipe.length))
        every = as_many(candidate_plans(system, model, work, engine))
        count = len(np.asarray(every.dp))
        every = taken(every, np.tile(np.arange(count), len(RECOMPUTED)))
        plan = replace(every, recompute=np.repeat(RECOMPUTED, count))
    plan = as_many(plan)
    packed = recipe.pack
    if packed <= 0:
        return plan
    each = np.maximum(np.floor(recipe.minibatch / plan.dp), 1.0)
    pieces = next_divisor(each, np.clip(np.ceil(each * recipe.length / packed), 1.0, each))
    return replace(plan, microbatches=np.where(plan.microbatches > 0, plan.microbatches, pieces))


def next_divisor(whole: Array, least: Array) -> Array:
    """The smallest divisor of a number that is no less than another: micro-batches of equal size.

    >>> next_divisor(np.array([8.0, 512.0, 7.0]), np.array([3.0, 144.0, 2.0])).tolist()
    [4.0, 256.0, 7.0]
    """
    most = int(np.max(whole, initial=1.0))
    every = np.arange(1.0, most + 1.0).reshape((-1,) + (1,) * np.ndim(whole))
    fits = (np.mod(whole, every) == 0) & (every >= least)
    found: Array = np.min(np.where(fits, every, whole), axis=0)
    return found


def padded_packs(recipe: PostTrainingRecipe) -> float:
    r"""Tokens that run over tokens of samples, where all packs are as long as the longest.

    .. math:: f = \max\left(1, \; P(n > C/2) \frac{C}{L}\right)

    samples of n tokens, L on average, packs of C: two that are longer than half a pack share none, so that
    there are as many packs as such samples, at least (Martello & Toth, Knapsack Problems, 1990, sec. 8.3).
    Stages of a pipeline have buffers of one size, to which packs are filled up (NVIDIA-NeMo/RL, Megatron
    policy worker: sequence packing with pipeline_model_parallel_size above 1).

    >>> from strata.adapters.post_training.recipe import post_training_recipe
    >>> some = {"longest": 3992.0, "prompt": 104.0, "packed": 4096.0, "spread": 0.6}
    >>> [round(padded_packs(post_training_recipe("grpo", response=n, **some)), 2) for n in (500.0, 3251.0)]
    [1.0, 1.06]
    """
    packed, prompt = recipe.pack, float(recipe.prompt)
    if packed <= 0:
        return 1.0
    lengths = response_lengths(recipe.response, recipe.spread, recipe.longest)
    half = packed / 2.0 - prompt
    end = lengths.places[..., -1] + 0.5 * lengths.width  # of the longest response
    over = np.interp(half, lengths.places, lengths.running) if half < float(np.max(end)) else 0.0
    return max(1.0, float(over) * packed / float(recipe.length))


def _finite(times: Array) -> Array:
    return np.where(np.isfinite(times), times, 0.0)


@dataclass(frozen=True, eq=False)
class PricedPool:
    """A pool of devices that samples or trains, under plans on one axis."""

    system: System
    model: Model
    recipe: PostTrainingRecipe
    plan: Plan
    engine: Engine

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.plan.dp)

    def wide(self, value: Any) -> Array:
        """A quantity as numbers of every plan."""
        return np.broadcast_to(np.asarray(value, float), self.shape)

    def step(self, work: Workload) -> Result:
        """A step of a workload under the plans."""
        return evaluate(self.system, self.model, work, self.plan, self.engine)

    def rollouts(self, *, beside: Any = 0.0, partial: bool = False, nodes: int = NODES) -> Rollouts:
        """Price rollouts, `beside` bytes of each device held by others. `partial`: responses not done go on
        in the next iteration. `nodes`: places of the longest that are priced.
        """
        recipe, plan = self.recipe, self.plan
        lengths = response_lengths(recipe.response, recipe.spread, recipe.longest, nodes)
        slots, memory, lacks, limit = self._room(lengths, beside)
        samples = float(recipe.samples)
        replicas = np.minimum(plan.dp, samples)
        each = np.maximum(np.minimum(slots, samples) / replicas, 1.0)
        filled = filling(lengths, each, np.maximum(samples / replicas, 1.0), replicas)
        whole = np.concatenate([each[:, None], filled.running], axis=1)
        first = np.broadcast_to(lengths.residual, (len(each), 1))
        context = recipe.prompt + np.concatenate([first, filled.age], axis=1)
        weight = np.concatenate([filled.steps[:, None], filled.chance * lengths.width], axis=1)
        if partial:
            often = samples * lengths.mean / (each * replicas)
            weight = np.concatenate([often[:, None], 0.0 * filled.chance], axis=1)
        batch = np.maximum(whole * replicas[:, None], np.asarray(plan.dp)[:, None])
        column: Plan = map_leaves(lambda v: np.asarray(v, float)[:, None], plan)
        steps = replace(self, plan=column).step(decode(batch, context))
        with np.errstate(invalid="ignore"):  # a plan that is out has no times
            times = weight * np.broadcast_to(np.asarray(steps.metrics.step_time, float), batch.shape)
        times = np.where(weight > 0, times, 0.0)
        reading, reading_power = self._reading()
        power = np.broadcast_to(np.asarray(steps.metrics.power, float), batch.shape)
        out = np.where(slots >= 1, 0.0, np.inf)
        most = filled.share >= 0.5
        return Rollouts(
            plan=plan,
            reading=reading + out,
            full=times[:, 0] + np.sum(np.where(most, times[:, 1:], 0.0), axis=1) + out,
            tail=np.sum(np.where(most, 0.0, times[:, 1:]), axis=1) + out,
            slots=slots,
            energy=np.sum(_finite(times) * power, axis=1) + _finite(reading) * reading_power,
            idle=np.broadcast_to(idle_power(steps), batch.shape)[:, 0],
            memory=memory,
            lacks=lacks,
            limit=limit,
            bound=np.broadcast_to(steps.bound_by, batch.shape)[:, 0],
        )

    def _room(self, lengths: ResponseLengths, beside: Any) -> tuple[Array, dict[str, Array], Array, Array]:
        """Sequences that memory has room for, what a device then holds, what it lacks for any, and its limit.
        Memory grows evenly with sequences; they hold the context of a random moment, or the fullest one.
        """
        recipe, plan, engine, wide = self.recipe, self.plan, self.engine, self.wide
        fullest = np.max(lengths.running * (recipe.prompt + lengths.places))
        context = np.maximum(recipe.prompt + lengths.residual, fullest)
        lanes = np.asarray(plan.dp * plan.pp, float)
        capacity = self.system.chip.memory.capacity
        limit = np.minimum(capacity * engine.gpu_memory_utilization, capacity - np.asarray(beside, float))
        limit = wide(limit)
        first, second = (self.step(decode(wide(count) * lanes, context)) for count in (1.0, 2.0))
        used, more = (wide(r.metrics.memory_used) for r in (first, second))
        legal = np.broadcast_to((first.reason & ~1) == 0, self.shape)
        most = np.floor(1.0 + (limit - used) / np.maximum(more - used, 1e-9))
        allowed = np.minimum(engine.max_num_seqs * plan.dp, np.maximum(float(recipe.samples), lanes))
        slots = np.where(legal & (most >= 1), np.minimum(most * lanes, allowed), 0.0)
        each = np.maximum(slots / lanes, 1.0)
        memory = {k: wide(v) for k, v in first.summary.memory.items()}
        grown = {k: wide(v) - memory[k] for k, v in second.summary.memory.items()}
        memory = {k: memory[k] + (each - 1.0) * grown[k] for k in memory}
        return slots, memory, np.where(legal, np.maximum(used - limit, 0.0), np.inf), limit

    def _reading(self) -> tuple[Array, Array]:
        """Time to read an iteration's prompts [s], its power [W]: once for a group that shares prefixes."""
        recipe, dp = self.recipe, self.plan.dp
        prompt = float(recipe.prompt)
        tokens = min(float(self.engine.max_num_batched_tokens), MOST_READ)
        prompts = np.where(recipe.prefix_caching > 0, recipe.batch, recipe.samples)
        each = np.maximum(prompts / dp, 1.0)
        pieces = np.ceil(prompt / tokens)
        together = np.minimum(np.maximum(np.floor(tokens / prompt), 1.0), np.ceil(each))
        length = prompt / pieces
        read = self.step(prefill(dp * together, length, cached=0.5 * (prompt - length)))
        time = self.wide(read.metrics.step_time) * pieces * each / together
        return time, self.wide(read.metrics.power)

    def learning(self, *, beside: Any = 0.0, parked: bool = False) -> Learning:
        """Price scoring and updates, with `beside` bytes of each device held by others. `parked`: models that
        only score lie in the host's memory while the policy is trained. Samples have their mean length;
        passes for probabilities have logits of all tokens, for a value of the last.
        """
        recipe, plan, wide = self.recipe, self.plan, self.wide
        step = self.step(replace(train(recipe.minibatch, recipe.length), packed=float(recipe.pack > 0)))
        scored, score_power, weights = self._scored()
        judges = recipe.reference + recipe.reward_model
        memory = {name: wide(held) for name, held in step.summary.memory.items()}
        memory |= {name: memory[name] * (1.0 + recipe.critic) for name in STATE}  # a critic has as much
        state = np.sum([memory[name] for name in STATE], axis=0)
        if not parked and float(judges) > 0:
            memory["models that score"] = judges * weights
        memory["rollout weights"] = wide(beside)
        limit = wide(step.metrics.memory_limit)
        used = np.sum(list(memory.values()), axis=0)
        # while models score, one of them lies beside the state
        scoring_used = state + weights + memory["reserve"] + memory["rollout weights"]
        out = np.where(np.maximum(used, scoring_used) <= limit, 0.0, np.inf)
        often = recipe.updates * (1.0 + recipe.critic)
        padded = np.where(plan.pp > 1, padded_packs(recipe), 1.0)
        scored, training = scored * padded, often * wide(step.metrics.step_time) * padded
        return Learning(
            plan=plan,
            scoring=scored + out,
            training=training + out,
            energy=_finite(scored) * score_power + _finite(training) * wide(step.metrics.power),
            idle=wide(idle_power(step)),
            memory=memory,
            state=state,
            weights=weights,
            limit=limit,
            legal=np.broadcast_to((step.reason & ~1) == 0, self.shape),
            bound=np.broadcast_to(step.bound_by, self.shape),
        )

    def _scored(self) -> tuple[Array, Array, Array]:
        """Time of all forward passes over the samples [s], their power [W], and the weights of one model on a
        device [B]. The host's share of a step is paid in updates; forward passes follow one another.
        """
        recipe, plan = self.recipe, self.plan
        quick = replace(
            self,
            plan=replace(plan, microbatches=0.0 * plan.microbatches),
            engine=replace(self.engine, host_step=0.0 * self.engine.host_step),
        )
        lanes = np.asarray(plan.dp * plan.pp, float)
        each = np.maximum(np.floor(recipe.pack / recipe.length), 1.0)
        each = np.minimum(each, np.maximum(np.ceil(recipe.samples / lanes), 1.0))
        rounds = np.maximum(recipe.samples / (lanes * each), 1.0)
        every = quick.step(decode(lanes * each, recipe.length, tokens=recipe.length))
        ends = quick.step(prefill(lanes * each, recipe.length))
        times = [
            float(often) * rounds * self.wide(one.metrics.step_time) if float(often) > 0 else self.wide(0.0)
            for often, one in zip(recipe.forwards, (every, ends), strict=True)
        ]
        power, weights = every.metrics.power, every.summary.memory["weights"]
        return times[0] + times[1], self.wide(power), self.wide(weights)
