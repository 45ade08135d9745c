"""Reinforcement-learning post-training on one pool of devices or two, by the quickest plans and split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.adapters.post_training.iteration import (
    LEVERS,
    Iteration,
    PooledPhases,
    colocated_transfer,
    iteration_time,
    memory_of,
    phases_of,
    spent,
    weight_tensors,
)
from strata.adapters.post_training.phases import Learning, PricedPool, Rollouts, training_plans
from strata.adapters.post_training.recipe import PostTrainingRecipe, post_training_recipe
from strata.base.errors import BadValue, require
from strata.base.records import readable
from strata.base.units import show
from strata.evaluate import evaluate
from strata.hardware.money import Economics
from strata.hardware.system import System, as_system
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.mapping.plans import plans, taken
from strata.result import why_infeasible
from strata.serving.curve import as_many
from strata.serving.pools import pool, pool_sizes, send_time
from strata.software.engine import USUAL_SERVER, Engine, as_engine, has_host_time
from strata.training.checks import check_trainable
from strata.workload.model import Model
from strata.workload.model import model as make_model
from strata.workload.tasks import decode, train

POOLS = ("one", "two")
TRIED = 4  # training plans, best first, whose kept state is tried beside rollouts
FINE, ROUGH = 12, 12  # rollout plans that are priced at all places, after few places chose them
MOST_SPLITS = 12  # that are looked at, evenly over all there are


@readable("question", "ways")
@dataclass(frozen=True, eq=False, kw_only=True)
class PostTraining:
    """What was asked of post-training, and every way that was looked at, best first."""

    system: System
    model: Model
    recipe: PostTrainingRecipe
    rollout_engine: Engine
    training_engine: Engine
    ways: list[Iteration]

    @property
    def best(self) -> Iteration:
        return self.ways[0]

    @property
    def question(self) -> str:
        r = self.recipe
        size = f"{float(r.batch):g} prompts x {float(r.group):g}, {float(r.prompt):g} + {float(r.response):g}"
        engines = f"{self.rollout_engine.name} and {self.training_engine.name}"
        return f"{self.model.name} on {self.system.name}, {r.name}: {size} tokens, {engines}"

    @property
    def why_none(self) -> str:
        """Why no way fits, in one line with levers; empty where one does."""
        return "" if self.best.fits else self.best.why_not


@dataclass(frozen=True, eq=False, kw_only=True)
class _Asked:
    system: System
    model: Model
    recipe: PostTrainingRecipe
    rollout_plan: Plan | None
    training_plan: Plan | None
    rollout_engine: Engine
    training_engine: Engine
    partial: bool
    economics: Economics | None

    @property
    def judges(self) -> float:
        """Models that only score."""
        return float(self.recipe.reference + self.recipe.reward_model)

    def sampled(self, on: System, beside: float = 0.0) -> Rollouts:
        some = self.rollout_plan or as_many(plans(int(float(on.devices)), self.model, freely=False))
        on_pool = PricedPool(on, self.model, self.recipe, some, self.rollout_engine)
        how: dict[str, Any] = {"beside": beside, "partial": self.partial}
        if np.size(some.dp) > FINE:  # the quickest at few places are priced at all
            rough = on_pool.rollouts(nodes=ROUGH, **how)
            order = np.lexsort((rough.lacks, rough.time))
            on_pool = replace(on_pool, plan=taken(some, order[:FINE]))
        return on_pool.rollouts(**how)

    def refit_time(self, plan: Plan) -> float:
        """Host time to load all weights into the engine on the same devices [s]."""
        return float(self.recipe.refit) * weight_tensors(self.model, float(plan.ep))

    def learnt(self, on: System, **how: Any) -> Learning:
        some = training_plans(on, self.model, self.recipe, self.training_engine, self.training_plan)
        return PricedPool(on, self.model, self.recipe, some, self.training_engine).learning(**how)


def post_training(
    system: System | str,
    model: Model | str,
    recipe: PostTrainingRecipe | str = "grpo",
    rollout_plan: Plan | str | None = None,
    training_plan: Plan | str | None = None,
    rollout_engine: Engine | str = USUAL_SERVER,
    training_engine: Engine | str = "megatron",
    *,
    pools: str = "",
    asynchronous: bool = False,
    rollout_devices: int | None = None,
    keep: bool | None = None,
    partial: bool = False,
    economics: Economics | None = None,
) -> PostTraining:
    """An iteration of reinforcement learning on a system: every way to run it that was asked for, best first.

    `pools`: "one", where phases share all devices one after the other, or "two", with `rollout_devices` of
    their own (every split when left out); both when left out. `asynchronous`: two pools, samples are made
    with the weights of the iteration before. `keep`: whether the state of training stays on devices while
    they sample, and models that score while others train, or moves to the hosts' memory; the quicker way when
    left out. `partial`: responses
    not done when enough are go on in the next iteration. Plans left out are the quickest legal ones.

    >>> found = post_training("8xh200", "qwen3-8b", "grpo", "dp=8", "dp=8,zero=1,recompute=full", pools="one")
    >>> found.best.fits, found.best.bound_by, round(found.best.phase("training") / found.best.time, 1)
    (True, 'training (compute)', 0.3)
    """
    asked = _Asked(
        system=as_system(system),
        model=make_model(model) if isinstance(model, str) else model,
        recipe=post_training_recipe(recipe) if isinstance(recipe, str) else recipe,
        rollout_plan=_told(rollout_plan),
        training_plan=_told(training_plan),
        rollout_engine=as_engine(rollout_engine),
        training_engine=as_engine(training_engine),
        partial=partial,
        economics=economics,
    )
    require(pools in ("", *POOLS), "pools are one or two", pools=pools)
    require(not (asynchronous and pools == "one"), "asynchronous rollouts need two pools", pools=pools)
    require(rollout_devices is None or pools != "one", "one pool has no rollout_devices", pools=pools)
    require(isinstance(asked.model, Model), "post-training is of a language model")
    _check_engines(asked)
    two = asynchronous or rollout_devices is not None or pools == "two"
    ways: list[Iteration] = []
    if not two:
        ways += [_one_pool(asked, k) for k in ((True, False) if keep is None else (keep,))]
    if two or (not pools and _splittable(asked)):
        ways += [_two_pools(asked, n, asynchronous, keep) for n in _splits(asked, rollout_devices)]
    return PostTraining(
        system=asked.system,
        model=asked.model,
        recipe=asked.recipe,
        rollout_engine=asked.rollout_engine,
        training_engine=asked.training_engine,
        ways=sorted(ways, key=lambda w: (w.time, w.excess)),
    )


def _check_engines(asked: _Asked) -> None:
    check_trainable(asked.training_engine, asked.model, train(1.0, 1.0))
    sampler = asked.rollout_engine
    if sampler.training is not None and has_host_time(sampler):
        raise BadValue(f"engine {sampler.name} trains and does not sample; nearest: vllm, sglang or trtllm")


def _told(plan: Plan | str | None) -> Plan | None:
    if plan is None or plan == "":
        return None
    return as_many(make_plan(plan) if isinstance(plan, str) else plan)


def _splittable(asked: _Asked) -> bool:
    """Whether two pools may be looked at beside one: not where a plan told is one of all devices."""
    told = [p for p in (asked.rollout_plan, asked.training_plan) if p is not None]
    return bool(pool_sizes(asked.system)) and all(np.all(p.devices < asked.system.devices) for p in told)


def _splits(asked: _Asked, rollout_devices: int | None) -> list[int]:
    """Devices that sample, in the splits that are looked at: those that the plans told leave open."""
    total = int(float(asked.system.devices))
    sizes = pool_sizes(asked.system)
    if rollout_devices is not None:
        if rollout_devices not in sizes:
            legal = ", ".join(map(str, sizes)) or "none"
            raise BadValue(
                f"rollout_devices of {asked.system.name} must leave two pools that fill its nodes evenly "
                f"({legal}), but got {rollout_devices}"
            )
        return [rollout_devices]
    require(bool(sizes), "two pools need a system of two nodes, or of two devices in one", devices=total)
    for plan, size in ((asked.rollout_plan, lambda n: n), (asked.training_plan, lambda n: total - n)):
        if plan is not None:
            fixed = {int(d) for d in np.atleast_1d(np.asarray(plan.devices))}
            kept = [n for n in sizes if size(n) in fixed]
            require(
                bool(kept),
                "a plan of one pool needs as many devices as a split leaves it",
                plan=int(min(fixed)),
                splits=", ".join(map(str, sizes)),
            )
            sizes = kept
    if len(sizes) > MOST_SPLITS:
        at = np.unique(np.round(np.linspace(0, len(sizes) - 1, MOST_SPLITS)).astype(int))
        sizes = [sizes[i] for i in at]
    return sizes


def _quickest(phases: Rollouts | Learning) -> int:
    """The quickest plan that fits, else that which lacks least."""
    order = phases.time if np.isfinite(phases.time).any() else phases.lacks
    return int(np.argmin(order))


def _one_pool(asked: _Asked, keep: bool) -> Iteration:
    """Phases one after the other on all devices."""
    on, best = asked.system, None
    learnt = asked.learnt(on, parked=not keep)
    order = [_quickest(learnt)]
    if keep and np.isfinite(learnt.time).any():
        order = np.argsort(learnt.time, kind="stable")[:TRIED].tolist()
    for j in order:
        trained = learnt.at(int(j))
        judges = asked.judges * trained.weights
        beside = trained.state + judges if keep else 0.0
        sampled = asked.sampled(on, beside)
        sampled = sampled.at(_quickest(sampled))
        weights = sampled.memory["weights"]
        moved = 0.0 if keep else 2.0 * trained.state + judges
        parts = PooledPhases(
            sampling_pool=on,
            training_pool=on,
            sampled=sampled,
            # kept: beside the engine's weights, too
            learnt=asked.learnt(on, beside=weights).at(int(j)) if keep else trained,
            transfer=colocated_transfer(on, weights, trained.weights, asked.training_engine),
            moved=moved / float(asked.recipe.host_bandwidth) + float(asked.recipe.wake),
            refit=asked.refit_time(trained.plan),
            controller=float(asked.recipe.controller * asked.recipe.samples),
        )
        way = _iteration(asked, parts, beside, colocated=True, asynchronous=False, keep=keep)
        best = way if best is None or way.time < best.time else best
    assert best is not None
    return best


def _two_pools(asked: _Asked, count: int, asynchronous: bool, keep: bool | None) -> Iteration:
    """So many devices sample, the others train; what only scores lies there too, or in the hosts' memory."""
    total = int(float(asked.system.devices))
    first, second = pool(asked.system, count), pool(asked.system, total - count)
    sampled, learnt = asked.sampled(first), asked.learnt(second, parked=keep is False)
    parked = keep is False
    if keep is None and not np.isfinite(learnt.time).any():
        learnt, parked = asked.learnt(second, parked=True), True
    sampled, learnt = sampled.at(_quickest(sampled)), learnt.at(_quickest(learnt))
    moved = asked.judges * learnt.weights if parked else 0.0
    parts = PooledPhases(
        sampling_pool=first,
        training_pool=second,
        sampled=sampled,
        learnt=learnt,
        # every device that samples receives its share, the first replica from the trainers, the others from
        # each other as it arrives
        transfer=send_time(asked.system, sampled.memory["weights"], 1.0, asked.training_engine),
        moved=moved / float(asked.recipe.host_bandwidth),
        controller=float(asked.recipe.controller * asked.recipe.samples),
    )
    return _iteration(asked, parts, 0.0, colocated=False, asynchronous=asynchronous, keep=not parked)


def _iteration(
    asked: _Asked, parts: PooledPhases, beside: float, *, colocated: bool, asynchronous: bool, keep: bool
) -> Iteration:
    sampling, learnt = parts.times
    time = float(iteration_time(sampling, learnt, parts.between, float(asynchronous)))
    energy, usd = spent(parts, time, colocated=colocated, economics=asked.economics)
    capacity = float(np.min(np.asarray(asked.system.chip.memory.capacity, float)))
    memory, limits = memory_of(parts, beside, capacity)
    return Iteration(
        system=asked.system,
        recipe=asked.recipe,
        colocated=colocated,
        asynchronous=asynchronous,
        keep=keep,
        rollout_devices=int(float(parts.sampling_pool.devices)),
        training_devices=int(float(parts.training_pool.devices)),
        rollout_plan=parts.sampled.plan,
        training_plan=parts.learnt.plan,
        slots=parts.sampled.slots,
        phases=phases_of(parts, colocated=colocated, asynchronous=asynchronous),
        time=time,
        energy=energy,
        usd=usd,
        memory=memory,
        limits=limits,
        why_not="" if np.isfinite(time) else _why_not(asked, parts),
    )


def _why_not(asked: _Asked, parts: PooledPhases) -> str:
    """What does not fit, by how much, in one line with levers."""
    sampled, learnt, r, said = parts.sampled, parts.learnt, asked.recipe, []
    if not np.isfinite(sampled.time):
        if not np.isfinite(sampled.lacks):
            work = decode(float(sampled.plan.dp * sampled.plan.pp), float(r.length))
            one = evaluate(parts.sampling_pool, asked.model, work, sampled.plan, asked.rollout_engine)
            return f"rollouts: {why_infeasible(one)}"
        said.append(
            f"rollouts with plan {plan_text(sampled.plan)} lack {show(sampled.lacks, 'B')} a device for one "
            f"sequence each, of {show(max(sampled.limit, 0.0), 'B')}"
        )
    if not np.isfinite(learnt.time):
        if not learnt.legal:
            work = train(float(r.minibatch), float(r.length))
            one = evaluate(parts.training_pool, asked.model, work, learnt.plan, asked.training_engine)
            return f"training: {why_infeasible(one)}"
        needs = f"needs {show(float(learnt.used), 'B')} a device and has {show(learnt.limit, 'B')}"
        said.append(f"training with plan {plan_text(learnt.plan)} {needs}")
    return f"{'; '.join(said)}; levers: {', '.join(LEVERS)}"
