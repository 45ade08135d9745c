"""One iteration of reinforcement learning, put together: phases on pools of devices, what they take, hold and
cost, and new weights on their way from the layout that trains to the layout that samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strata.adapters.post_training.phases import Learning, Rollouts
from strata.adapters.post_training.recipe import PostTrainingRecipe
from strata.base.arrays import Number, namespace
from strata.base.records import readable
from strata.hardware.money import Economics
from strata.hardware.system import System
from strata.mapping.plan import Plan
from strata.mapping.rules import divisors
from strata.pricing.network.collective_cost import collective
from strata.serving.steps import dollars_per_s
from strata.software.engine import Engine
from strata.workload.expert_ops import is_expert_product
from strata.workload.model import Model
from strata.workload.tasks import train

KWH = 3.6e6
SAMPLING, TRAINING, ALL = "rollout pool", "training pool", "all devices"
LEVERS = (
    "more devices",
    "state moved out between phases (keep=False)",
    "another plan (tp, pp, zero=3)",
    "recompute=full",
    "shorter responses or fewer samples at once",
)


def iteration_time(sampling: Number, learning: Number, transfer: Number, asynchronous: Number) -> Number:
    r"""Time of an iteration [s].

    .. math:: T = r + l + t \quad \text{or, one step off policy,} \quad T = \max(r, l) + t

    rollouts r, scoring and training l, new weights on their way t; asynchronous where samples are made with
    the weights of the iteration before, on devices of their own.

    >>> float(iteration_time(40.0, 30.0, 1.0, 0.0)), float(iteration_time(40.0, 30.0, 1.0, 1.0))
    (71.0, 41.0)
    """
    xp = namespace(sampling, learning, transfer, asynchronous)
    return xp.where(asynchronous > 0, xp.maximum(sampling, learning), sampling + learning) + transfer


@dataclass(frozen=True, kw_only=True)
class PostTrainingPhase:
    """One phase of an iteration on a pool of devices."""

    name: str
    pool: str
    start: float  # in the iteration [s]
    time: float
    bound_by: str = ""


@readable("question", "time", "samples_per_s", "fits", "bound_by")
@dataclass(frozen=True, eq=False, kw_only=True)
class Iteration:
    """One way to run an iteration: pools, plans, phases, and what it takes, holds and costs."""

    system: System
    recipe: PostTrainingRecipe
    colocated: bool
    asynchronous: bool
    keep: bool  # whether what a phase does not need stays on its devices, or moves to the hosts' memory
    rollout_devices: int
    training_devices: int
    rollout_plan: Plan
    training_plan: Plan
    slots: float  # responses at once
    phases: tuple[PostTrainingPhase, ...]
    time: float  # of an iteration [s]; inf where it does not fit
    energy: float  # [J]
    usd: float  # nan where the chip has no price
    memory: dict[str, dict[str, float]]  # phase -> bytes of a device by purpose
    limits: dict[str, float]  # phase -> bytes that a device may fill
    why_not: str = ""  # what does not fit, by how much, and levers

    @property
    def fits(self) -> bool:
        return not self.why_not

    @property
    def excess(self) -> float:
        """Bytes that devices lack, over the phases."""
        over = (sum(held.values()) - self.limits[phase] for phase, held in self.memory.items())
        return sum(max(0.0, lacks) for lacks in over)

    @property
    def question(self) -> str:
        how = "one pool" if self.colocated else f"{self.rollout_devices} + {self.training_devices} devices"
        how += ", one step off policy" if self.asynchronous else ""
        return f"{self.recipe.name} on {self.system.name}, {how}"

    @property
    def samples_per_s(self) -> float:
        return float(self.recipe.samples) / self.time

    @property
    def tokens_per_s(self) -> float:
        """Tokens of samples, prompts included, that an iteration learns from, a second."""
        return self.samples_per_s * float(self.recipe.length)

    @property
    def tokens_per_s_per_device(self) -> float:
        return self.tokens_per_s / float(self.system.devices)

    @property
    def kwh(self) -> float:
        return self.energy / KWH

    def phase(self, name: str) -> float:
        """Time of the phases of a name [s]."""
        return sum(p.time for p in self.phases if p.name == name)

    @property
    def bound_by(self) -> str:
        """The phase that takes most of the time, and what binds it; asynchronous: of the longer pool."""
        pools: dict[str, float] = {}
        for p in self.phases:
            pools[p.pool] = pools.get(p.pool, 0.0) + p.time
        slowest = max((SAMPLING, TRAINING), key=lambda name: pools.get(name, 0.0))
        counted = [p for p in self.phases if not self.asynchronous or p.pool in (slowest, ALL)]
        most = max(counted, key=lambda p: p.time)
        return f"{most.name} ({most.bound_by})" if most.bound_by else most.name

    def idle_share(self, pool: str) -> float:
        """Share of an iteration in which a pool waits for the other."""
        busy = sum(p.time for p in self.phases if p.pool in (pool, ALL))
        return max(0.0, 1.0 - busy / self.time) if np.isfinite(self.time) else 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class PooledPhases:
    """What an iteration is put together from: one plan of each side, on its pool."""

    sampling_pool: System
    training_pool: System
    sampled: Rollouts
    learnt: Learning
    transfer: float
    moved: float = 0.0
    refit: float = 0.0
    controller: float = 0.0

    @property
    def between(self) -> float:
        """What is neither sampling nor learning [s]."""
        return self.transfer + self.moved + self.refit + self.controller

    @property
    def times(self) -> tuple[float, float]:
        return self.sampled.time, self.learnt.time


def phases_of(parts: PooledPhases, *, colocated: bool, asynchronous: bool) -> tuple[PostTrainingPhase, ...]:
    """Phases in order, each with its start; on two pools that do not wait for each other both begin at 0."""
    r, learnt = parts.sampled, parts.learnt
    clock = {SAMPLING: 0.0, TRAINING: 0.0}
    phases: list[PostTrainingPhase] = []
    for name, time, bound, pool in (
        ("read prompts", r.reading, "compute", SAMPLING),
        ("rollouts", r.full, r.bound, SAMPLING),
        ("rollout tail", r.tail, r.bound, SAMPLING),
        ("scoring", learnt.scoring, "compute", TRAINING),
        ("training", learnt.training, learnt.bound, TRAINING),
        ("controller", parts.controller, "host", ALL),
        ("moving state", parts.moved, "host link", ALL),
        ("weight transfer", parts.transfer, "network", ALL),
        ("loading weights", parts.refit, "host", ALL),
    ):
        start = clock[pool] if asynchronous and pool != ALL else max(clock.values())
        clock |= dict.fromkeys(clock if pool == ALL else (pool,), start + time)
        where = ALL if colocated else pool
        phases.append(PostTrainingPhase(name=name, pool=where, start=start, time=time, bound_by=bound))
    return tuple(p for p in phases if p.time > 0)


def spent(
    parts: PooledPhases, time: float, *, colocated: bool, economics: Economics | None
) -> tuple[float, float]:
    """Energy [J] and cost [USD] of an iteration; pools that wait draw what they draw idle."""
    if not np.isfinite(time):
        return float("inf"), float("inf")
    sampling, learning = parts.times
    drawn, learnt = parts.sampled.energy, parts.learnt.energy
    if colocated:
        drawn += learnt + max(time - sampling - learning, 0.0) * parts.learnt.idle
        pools = [(parts.training_pool, drawn)]
    else:
        drawn += max(time - sampling, 0.0) * parts.sampled.idle
        learnt += max(time - learning, 0.0) * parts.learnt.idle
        pools = [(parts.sampling_pool, drawn), (parts.training_pool, learnt)]
    cost = sum(float(dollars_per_s(on, np.asarray(e / time), economics)) * time for on, e in pools)
    return sum(e for _, e in pools), cost


def memory_of(
    parts: PooledPhases, beside: float, capacity: float
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Bytes of a device by purpose in each phase, and what it may fill there."""
    sampling = dict(parts.sampled.memory)
    if beside > 0:
        sampling["kept by training"] = beside
    training = {k: v for k, v in parts.learnt.memory.items() if v > 0}
    limits = {"rollouts": min(parts.sampled.limit + beside, capacity), "training": parts.learnt.limit}
    return {"rollouts": sampling, "training": training}, limits


def resharded_bytes(model_bytes: Number, sampling_shards: Number, training_shards: Number) -> Number:
    r"""Bytes of weights that a device receives where training and sampling share devices.

    .. math:: V = M \max\left(\frac{1}{s_g} - \frac{1}{s_t}, 0\right)

    model M [B] in s_g shards where it samples and s_t where it trains; what a device holds already is not
    sent. Sheng et al., HybridFlow, arXiv 2409.19256, table 2 (the 3D-HybridEngine's row).

    >>> float(resharded_bytes(16e9, 2.0, 8.0)) / 1e9
    6.0
    """
    xp = namespace(model_bytes, sampling_shards, training_shards)
    return model_bytes * xp.maximum(1.0 / sampling_shards - 1.0 / training_shards, 0.0)


def colocated_transfer(system: System, sampling: float, training: float, engine: Engine) -> float:
    """Time to bring the weights of a device (`sampling` bytes) together from shards of `training` bytes on
    devices beside it [s]: an all-gather of what it lacks, and a copy in its own memory.
    """
    copied = 2.0 * sampling / float(np.min(np.asarray(system.chip.memory.bandwidth, float)))
    devices = int(float(system.devices))
    wanted = sampling / max(training, 1.0)
    ranks = next((d for d in divisors(devices) if d >= wanted * (1.0 - 1e-9)), devices)
    if ranks <= 1:
        return copied
    lacks = float(resharded_bytes(sampling, 1.0, max(wanted, 1.0)))
    payload = lacks * ranks / (ranks - 1.0)  # of which a rank holds one part already
    gathered = collective(system, "all_gather", bytes=payload, ranks=ranks, engine=engine).time
    return copied + float(gathered)


def weight_tensors(model: Model, expert_ranks: float) -> float:
    """Weight tensors that a trainer gathers one by one: those of experts as often as a rank holds experts.

    >>> from strata.workload.model import model
    >>> weight_tensors(model("llama-3.1-8b"), 1.0), weight_tensors(model("qwen3-30b-a3b"), 8.0)
    (195.0, 1827.0)
    """
    graph = model.trace(train(1.0, 8.0))
    found = 0.0
    for block, op in graph.ops():
        if block.direction == "forward" and float(op.trained_elements()) > 0:
            each = float(op.experts.size) / expert_ranks if is_expert_product(op) else 1.0
            found += float(block.count) * max(each, 1.0)
    return found
