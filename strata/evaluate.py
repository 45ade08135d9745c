"""The one screen: a system, a model, a workload and a plan give a Result, for one point or for a box of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from strata.arrays import cores, enable_jax, map_leaves
from strata.batch import as_float64_box, is_list, run_box, take, unlabelled
from strata.errors import BadValue, Infeasible, require
from strata.hardware.system import Economics, System, economics
from strata.hardware.system import system as make_system
from strata.mapping.engine import Engine
from strata.mapping.engine import engine as make_engine
from strata.mapping.plan import CORES, LIMITS, MEMORY, RULES, Plan, violations
from strata.mapping.plan import plan as make_plan
from strata.mapping.shard import active_groups
from strata.pricing.kernels.device import arithmetic
from strata.pricing.metrics import TokenMetrics
from strata.pricing.power_limits import over_limits
from strata.pricing.step import Step, Structure, price_step
from strata.pricing.summary import Summary, summarise
from strata.pricing.timeline import Timeline, timeline
from strata.stages import staged
from strata.workload.model import Model
from strata.workload.model import model as make_model
from strata.workload.tasks import Workload

# Simpson's rule over a generation: first, middle and last step. Exact where a step's time is cubic in its
# context.
GENERATION = ((0.0, 1 / 6), (0.5, 4 / 6), (1.0, 1 / 6))
# Points that compiled code prices at once: of a list on a CPU, at least and at most of a box.
LIST_AT_ONCE, BOX_AT_LEAST, AT_MOST = 1 << 15, 1 << 16, 1 << 22


def summary(
    structure: Structure,
    system: System,
    model: Model,
    work: Workload,
    plan: Plan,
    engine: Engine,
    money: Economics,
) -> tuple[Summary, list[Step]]:
    """Trace, shard, place, price and summarise: pure and array-safe, the batched core."""
    share = engine.memory_share
    if work.phase != "serve":
        step = price_step(system, model, work, plan, engine, structure)
        return summarise(system, model, work, plan, money, [(1.0, step)], share, None), [step]
    reading = Workload(
        "prefill", work.batch, work.sequence, work.context, skew=work.skew, routing=work.routing
    )
    first = price_step(system, model, reading, plan, engine, structure)
    steps = []
    for place, weight in GENERATION:
        context = work.sequence + 1.0 + place * (work.output - 1.0)
        at = Workload("decode", work.batch, 1.0, context, skew=work.skew, routing=work.routing)
        steps.append((weight, price_step(system, model, at, plan, engine, structure)))
    return summarise(system, model, work, plan, money, steps, share, first), [first, *(s for _, s in steps)]


@lru_cache(maxsize=64)
def _compiled(active: frozenset[str], rank: int) -> Any:
    structure = Structure(active, rank)
    return staged(lambda *inputs: summary(structure, *inputs)[0])


@dataclass(frozen=True, eq=False)
class Result:
    """The answer for one point or a box. `reason` is 0 where a point fits and is legal, else a bitmask of
    broken rules.
    """

    system: System
    model: Model
    workload: Workload
    plan: Plan
    engine: Engine
    economics: Economics
    shape: tuple[int, ...]
    summary: Summary
    steps: tuple[Step, ...] = field(default=(), repr=False)

    @property
    def metrics(self) -> TokenMetrics:
        return self.summary.metrics

    @property
    def reason(self) -> Any:
        return self.summary.reason.astype(int) if self.shape else int(self.summary.reason)

    @property
    def fits(self) -> Any:
        return self.reason == 0

    @property
    def bound_by(self) -> Any:
        """The resource most of the time is credited to; an array of names for a box."""
        names = list(self.summary.resources)
        stacked = np.stack(
            [np.broadcast_to(np.asarray(self.summary.resources[n], float), self.shape) for n in names]
        )
        most = np.argmax(stacked, axis=0)
        return np.array(names)[most] if self.shape else names[int(most)]

    def at(self, *index: int) -> Result:
        """The full single answer at one point of a box."""
        require(
            len(index) == len(self.shape),
            "at() takes one index for each axis of the box",
            index=index,
            shape=self.shape,
        )
        parts = (
            take(t, index, len(self.shape))
            for t in (self.system, self.model, self.workload, self.plan, self.engine)
        )
        return evaluate(*parts, money=self.economics)

    def best(self, metric: str = "tokens_per_s") -> Result:
        """The full answer of the best feasible point of a box: the largest rate, or the smallest time, energy
        or cost.
        """
        values = np.asarray(getattr(self.metrics, metric), float)
        if not self.shape:
            return self
        smallest = metric in (
            "step_time",
            "ttft",
            "tpot",
            "energy_per_token",
            "cost_per_mtoken",
            "power",
            "memory_used",
        )
        require(bool(np.any(self.fits)), "no point of this box fits; result.reason says why")
        values = np.where(self.fits, values, np.inf if smallest else -np.inf)
        place = np.unravel_index(np.nanargmin(values) if smallest else np.nanargmax(values), self.shape)
        return self.at(*(int(i) for i in place))

    @property
    def infeasible(self) -> list[Infeasible]:
        """Why a single point is out: each broken rule with demand, limit and levers."""
        self._single("infeasible")
        found = []
        if self.reason & MEMORY.bit:
            used, limit = float(self.metrics.memory_used), float(self.metrics.memory_limit)
            found.append(Infeasible(MEMORY.relation, used, limit, "B", MEMORY.levers))
        if self.reason & LIMITS.bit:
            found.append(over_limits(self.system.chip, self.steps))
        if self.reason & CORES.bit:
            chip = self.system.chip
            assert chip.cores_fit is not None
            found.append(
                Infeasible(
                    CORES.relation, float(chip.compute.cores), float(chip.cores_fit), "1", CORES.levers
                )
            )
        for rule, broken, demand, limit in violations(
            self.plan, self.model, self.workload, self.system.devices
        ):
            if broken:
                found.append(Infeasible(rule.relation, float(demand), float(limit), "1", rule.levers))
        return found

    @cached_property
    def timeline(self) -> Timeline:
        """Events of one micro-batch of the last step (the decode step of a served batch)."""
        self._single("timeline")
        return timeline(self.steps[-1], self.model, self.system.chip)

    @property
    def notes(self) -> list[str]:
        """What a reader should know about how this point was priced."""
        chip, said = self.system.chip, []
        for what, weight in {"weights": self.model.weights, "experts": self.model.expert_weights}.items():
            used = arithmetic(chip, weight, self.model.activations)
            if used == self.model.activations and weight != used:
                said.append(
                    f"{chip.name} has no {weight} arithmetic: {what} are stored in {weight} and computed in {used}"
                )
        if self.model.activations == "bf16" and "bf16" not in chip.compute.matrix_rate:
            said.append(f"{chip.name} has no bf16 arithmetic: products are computed in fp16")
        clock, highest = float(np.min(self.metrics.clock)), float(np.max(chip.compute.max_clock))
        if clock < highest:
            said.append(
                f"at {self._at_limit()} the clock falls to {clock / 1e9:.2f} of {highest / 1e9:.2f} GHz"
            )
        return list(dict.fromkeys(said))

    def _at_limit(self) -> str:
        """The limit that holds the clock down, in words: the one that is nearest."""
        chip, heat = self.system.chip, self.system.chip.heat
        watts = float(np.min(np.asarray(chip.energy.power_limit, float)))
        said = f"the limit of {watts:.0f} W"
        if heat is None or not self.steps:
            return said
        step = self.steps[-1]
        room = {said: 1.0 - float(self.metrics.device_power) / watts}
        for name, at, limit in (
            ("logic", step.logic, heat.logic_limit),
            ("DRAM", step.dram, heat.dram_limit),
        ):
            room[f"the limit of {float(limit) - 273.15:.0f} °C for {name}"] = float(
                (limit - at) / (limit - heat.ambient)
            )
        return min(room, key=lambda k: room[k])

    def _single(self, what: str) -> None:
        if self.shape:
            raise BadValue(
                f"result.{what} belongs to a single point, but this result is a box of shape {self.shape}; use result.at(i, ...)"
            )


def evaluate(
    system: System | str,
    model: Model | str,
    workload: Workload,
    plan: Plan | str | None = None,
    engine: Engine | str = "ideal",
    *,
    money: Economics | None = None,
    backend: str = "numpy",
) -> Result:
    """Predict a workload of a model on a system under a plan. Any number may be an array; the result then is
    a box.

    >>> r = evaluate("8xh200", "llama-3-70b", __import__("strata").decode(batch=64, context=2048), "tp=8")
    >>> r.fits, r.bound_by, 5e3 < r.metrics.tokens_per_s < 2e4
    (True, 'memory', True)
    """
    require(backend in ("numpy", "jax"), "backend must be numpy or jax", backend=backend)
    where = make_system(system) if isinstance(system, str) else system
    what = make_model(model) if isinstance(model, str) else model
    how = make_plan(plan) if isinstance(plan, str) else plan or Plan()
    by = make_engine(engine) if isinstance(engine, str) else engine
    money = money or economics()
    given = (where, what, workload, how, by, money)
    trees, shape = as_float64_box(given)
    active = active_groups(trees[3])
    if backend == "jax":
        compiled = _compiled(active, len(shape))
        trees = tuple(unlabelled(t) for t in trees)
        limit, workers = _at_once(shape)
        made = run_box(lambda *t: _to_numpy(compiled(*t)), trees, shape, limit, even=True, workers=workers)
        return Result(*given, shape, made)
    structure = Structure(active, len(shape))
    if not shape:
        made, steps = summary(structure, *trees)
        return Result(*given, shape, map_leaves(float, made), tuple(steps))
    made = run_box(lambda *t: summary(structure, *t)[0], trees, shape)
    return Result(*given, shape, made)


def _at_once(shape: tuple[int, ...]) -> tuple[int, int]:
    """Points that compiled code prices at once, and how many such chunks side by side.

    On a CPU every core has its own: of a list what stays in its caches, of a box its share, so that small
    axes stay whole.
    """
    if enable_jax().default_backend() != "cpu":
        return AT_MOST, 1
    workers = cores()
    share = -(-math.prod(shape) // workers)
    return (LIST_AT_ONCE if is_list(shape) else min(max(share, BOX_AT_LEAST), AT_MOST)), workers


def _to_numpy(tree: Any) -> Any:
    jax = enable_jax()
    return jax.tree_util.tree_map(np.asarray, tree)


def reasons(mask: int) -> list[str]:
    """The rules behind a bitmask of `Result.reason`.

    >>> reasons(3)
    ['what a device holds must fit its memory', "plan.tp x cp x dp x pp must be the system's devices"]
    """
    return [rule.relation for rule in RULES if mask & rule.bit]
