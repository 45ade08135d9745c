"""What a token takes of a generated system: seconds, dollars and joules under the best of a few plans, at a
batch that is told or at the quickest in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number
from strata.base.errors import BadValue, require
from strata.evaluate import evaluate
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.result import Result
from strata.search.inputs import make_workload
from strata.search.plans import best_plans
from strata.workload.model import Model, model
from upgrades.recipes import MadeSystem

PLANS = 2  # the quickest of each recipe that samples may choose from
# sequences of a rank over its cores, of the batches that are tried
WAVES = (0.0625, 0.125, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)


@dataclass(frozen=True, kw_only=True)
class UpgradeWork:
    """A workload that recipes are compared on: a batch as told, or the quickest within a time per output
    token.
    """

    name: str
    model: Model
    phase: str
    packages: float
    input: float
    output: float = 0.0
    batch: float = 0.0
    tpot: float = 0.0  # [s]; 0: the batch is told
    where: str = ""  # what plans may be
    plans: tuple[str, ...] = ()  # those that samples choose from, as far as they fit a recipe's packages


def upgrade_work(**told: Any) -> UpgradeWork:
    """A workload from the words of a file."""
    stored = {key: told.pop(key) for key in ("weights", "kv") if key in told}
    listed = tuple(told.pop("plans", ()))
    try:
        work = UpgradeWork(model=model(told.pop("model"), **stored), plans=listed, **told)
    except (TypeError, KeyError) as error:
        raise BadValue(f"a workload has name, model, phase, packages and input, but: {error}") from None
    require((work.tpot > 0) != (work.batch > 0), "a workload has a batch or a limit tpot", name=work.name)
    return work


def plans_of(made: MadeSystem, work: UpgradeWork) -> list[Plan]:
    """The quickest plans of a recipe at its stated numbers, and of those near them the one that needs least
    memory.
    """
    octaves = np.arange(3.0, 10.0, 0.5)
    batches = np.array([work.batch]) if work.batch else work.packages * np.round(2.0**octaves)
    found = best_plans(
        made.system(work.packages),
        work.model,
        replace(make_workload(work.phase, 1.0, work.input, work.output), batch=batches),
        tpot=work.tpot or float("inf"),
        where=work.where,
        top=8 * PLANS,
    )
    require(bool(found), f"{work.name} does not fit, or is never in time", recipe=made.recipe.title)
    several = {plan_text(one.result.plan): one.result for one in reversed(found)}
    thrifty = min(several.values(), key=lambda result: float(result.metrics.memory_used))
    return [*(result.plan for result in list(several.values())[::-1][:PLANS]), thrifty.plan]


def plans_by_size(work: UpgradeWork, recipes: Sequence[MadeSystem]) -> dict[float, Plan]:
    """The plans that samples choose from, by packages of a recipe over those of the base: those told, else
    the best of every recipe; a plan that is good for one is open to all of its size.
    """
    found: dict[float, Plan] = {}
    for size in {made.recipe.packages for made in recipes}:
        if work.plans:
            ranks, told = size * work.packages, [make_plan(text) for text in work.plans]
            open_to = [p for p in told if float(p.tp * p.cp * p.dp * p.pp) == ranks]
            require(bool(open_to), f"{work.name}: no plan is of so many packages", packages=ranks)
        else:
            open_to = [p for made in recipes if made.recipe.packages == size for p in plans_of(made, work)]
        kept = list({plan_text(one): one for one in open_to}.values())
        found[size] = Plan(
            **{f.name: np.array([float(getattr(p, f.name)) for p in kept]) for f in fields(Plan)}
        )
    return found


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenSpending:
    """What a token takes of a system, by sample and plan: seconds, dollars, joules; infinite where it does
    not fit or comes too late.
    """

    speed: Array
    dollar: Array
    watt: Array
    batch: Array

    def where(self, chosen: Array, other: TokenSpending) -> TokenSpending:
        """These where chosen, else others."""
        named = [f.name for f in fields(self)]
        return TokenSpending(**{n: np.where(chosen, getattr(self, n), getattr(other, n)) for n in named})

    def best(self) -> TokenSpending:
        """Of the quickest plan of each sample."""
        at = np.argmin(self.speed, axis=1)[:, None]
        named = [f.name for f in fields(self)]
        return TokenSpending(**{n: np.take_along_axis(getattr(self, n), at, axis=1)[:, 0] for n in named})


def spent_by(made: MadeSystem, work: UpgradeWork, plans: Plan, samples: int = 1) -> TokenSpending:
    """What a token takes under each plan: at the batch that is told, or at the quickest that fits the memory
    and whose tokens come in time.
    """
    system, shape = made.system(work.packages), (samples, np.size(plans.dp))

    def at(batch: Number) -> tuple[TokenSpending, Any]:
        asked = make_workload(work.phase, batch, work.input, work.output)
        result = evaluate(system, work.model, asked, plans, economics=made.economics)
        return _spent(result, np.broadcast_to(np.asarray(batch, float), shape)), result.metrics

    if work.batch:
        return at(work.batch)[0]
    ranks = np.broadcast_to(np.asarray(plans.dp, float), shape)
    return _quickest_in_time(at, ranks, system.chip.compute.cores, work.tpot)


def _spent(result: Result, batch: Array) -> TokenSpending:
    metrics, fits = result.metrics, np.broadcast_to(result.fits, batch.shape)
    rate = np.broadcast_to(np.asarray(metrics.tokens_per_s, float), batch.shape)
    return TokenSpending(
        speed=np.where(fits, 1.0 / np.where(fits, rate, 1.0), np.inf),
        dollar=np.where(fits, metrics.cost_per_mtoken, np.inf),
        watt=np.where(fits, metrics.energy_per_token, np.inf),
        batch=batch,
    )


def _quickest_in_time(
    at: Callable[[Any], tuple[TokenSpending, Any]], ranks: Array, cores: Number, limit: float
) -> TokenSpending:
    """What a token takes at the quickest batch in time, of whole and broken waves of sequences over the cores
    of each rank, and of the largest that fits: memory grows linearly with the batch.

    More is not always quicker: where a kernel gives each core a sequence, one more sequence than cores takes
    another wave.
    """
    best = TokenSpending(**{f.name: np.full(ranks.shape, np.inf) for f in fields(TokenSpending)})
    seen: list[tuple[Array, Array, Array]] = []  # batch, memory it uses, memory there is
    for wave in (*WAVES, 0.0):
        batch = np.maximum(np.floor(wave * cores), 1.0) * ranks
        if not wave:
            (few, used, room), (many, more, _) = seen[:2]
            most = few + (0.999 * room - used) * (many - few) / (more - used)
            batch = np.maximum(np.floor(most / ranks), 1.0) * ranks
        found, metrics = at(batch)
        seen.append((batch, np.asarray(metrics.memory_used), np.asarray(metrics.memory_limit)))
        in_time = np.broadcast_to(np.asarray(metrics.tpot, float) <= limit, ranks.shape)
        best = found.where(in_time & (found.speed < best.speed), best)
    return best
