"""Scoring and learning: forward passes of models that judge samples, updates, and memory they need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.mapping.plans import taken
from strata.pricing.training_memory import STATE
from strata.search.plans import candidate_plans
from strata.serving.curve import as_many
from strata.simulate.server.step_pricer import idle_power
from strata.training.post_training_recipe import PostTrainingRecipe, over_plans, response_lengths
from strata.workload.model import Model
from strata.workload.tasks import decode, prefill, train

RECOMPUTED = (0.0, 1.0, 2.0)  # what plans that are searched may recompute: nothing, attention, layers


@dataclass(frozen=True, eq=False, kw_only=True)
class Learning:
    """Scoring and learning under each of some plans."""

    plan: Plan
    scoring: Array  # forward passes over all samples [s]; inf where the plan does not fit
    training: Array  # all updates [s]
    scoring_energy: Array  # of all devices of the pool [J]
    training_energy: Array
    idle: Array  # power of the pool while it waits [W]
    memory: dict[str, Array]  # bytes of a device by purpose while it trains
    state: Array  # of these, what lies there between updates: weights, gradients, optimiser
    weights: Array  # weights of one model on a device, as the plan stores them for forward passes
    limit: Array  # bytes that a device may fill
    legal: Array  # whether the plan breaks no rule but that of memory
    bound: Array  # what binds a training step

    @property
    def time(self) -> Array:
        return self.scoring + self.training

    @property
    def used(self) -> Array:
        total: Array = np.sum(list(self.memory.values()), axis=0)
        return total


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
    packed = _packs(recipe)
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


def learning(
    system: System,
    model: Model,
    recipe: PostTrainingRecipe,
    plan: Plan,
    engine: Engine,
    *,
    beside: Any = 0.0,
    parked: bool = False,
) -> Learning:
    """Price scoring and updates under plans on one axis, with `beside` bytes of each device held by others.
    `parked`: models that only score lie in the host's memory while the policy is trained. Samples have their
    mean length; passes for probabilities have logits of all tokens, for a value of the last.
    """
    plan = as_many(plan)
    shape = np.shape(plan.dp)
    wide = partial(over_plans, shape=shape)
    work = replace(train(recipe.minibatch, recipe.length), packed=float(_packs(recipe) > 0))
    step = evaluate(system, model, work, plan, engine)
    scored, score_power, weights = _scored(system, model, recipe, plan, engine)
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
    power = wide(step.metrics.power)
    return Learning(
        plan=plan,
        scoring=scored + out,
        training=training + out,
        scoring_energy=np.where(np.isfinite(scored), scored, 0.0) * score_power,
        training_energy=np.where(np.isfinite(training), training, 0.0) * power,
        idle=wide(idle_power(step)),
        memory=memory,
        state=state,
        weights=weights,
        limit=limit,
        legal=np.broadcast_to((step.reason & ~1) == 0, shape),
        bound=np.broadcast_to(step.bound_by, shape),
    )


def padded_packs(recipe: PostTrainingRecipe) -> float:
    r"""Tokens that run over tokens of samples, where all packs are as long as the longest.

    .. math:: f = \max\left(1, \; P(n > C/2) \frac{C}{L}\right)

    samples of n tokens, L on average, packs of C: two that are longer than half a pack share none, so that
    there are as many packs as such samples, at least (Martello & Toth, Knapsack Problems, 1990, sec. 8.3).
    Stages of a pipeline have buffers of one size, to which packs are filled up (NVIDIA-NeMo/RL, Megatron
    policy worker: sequence packing with pipeline_model_parallel_size above 1).

    >>> from strata.training.post_training_recipe import post_training_recipe
    >>> some = {"longest": 3992.0, "prompt": 104.0, "packed": 4096.0, "spread": 0.6}
    >>> [round(padded_packs(post_training_recipe("grpo", response=n, **some)), 2) for n in (500.0, 3251.0)]
    [1.0, 1.06]
    """
    packed, prompt = _packs(recipe), float(recipe.prompt)
    if packed <= 0:
        return 1.0
    lengths = response_lengths(recipe.response, recipe.spread, recipe.longest)
    half = packed / 2.0 - prompt
    end = lengths.places[..., -1] + 0.5 * lengths.width  # of the longest response
    over = np.interp(half, lengths.places, lengths.running) if half < float(np.max(end)) else 0.0
    return max(1.0, float(over) * packed / float(recipe.length))


def _packs(recipe: PostTrainingRecipe) -> float:
    """Tokens of a pack of samples; 0 where a micro-batch has whole samples."""
    return 0.0 if recipe.packed is None else float(recipe.packed)


def _scored(
    system: System, model: Model, recipe: PostTrainingRecipe, plan: Plan, engine: Engine
) -> tuple[Array, Array, Array]:
    """Time of all forward passes over the samples [s], their power [W], and the weights of one model on a
    device [B]. The host's share of a step is paid in updates; forward passes follow one another.
    """
    quick = replace(engine, host_step=0.0 * engine.host_step)
    plan = replace(plan, microbatches=0.0 * plan.microbatches)
    packed = _packs(recipe)
    lanes = np.asarray(plan.dp * plan.pp, float)
    each = np.maximum(np.floor(packed / recipe.length), 1.0)
    each = np.minimum(each, np.maximum(np.ceil(recipe.samples / lanes), 1.0))
    rounds = np.maximum(recipe.samples / (lanes * each), 1.0)
    whole, last = recipe.forwards
    every = evaluate(system, model, decode(lanes * each, recipe.length, tokens=recipe.length), plan, quick)
    ends = evaluate(system, model, prefill(lanes * each, recipe.length), plan, quick)
    shape = np.shape(plan.dp)
    wide = partial(over_plans, shape=shape)
    times = [
        float(often) * rounds * wide(one.metrics.step_time) if float(often) > 0 else np.zeros(shape)
        for often, one in ((whole, every), (last, ends))
    ]
    return times[0] + times[1], wide(every.metrics.power), wide(every.summary.memory["weights"])
