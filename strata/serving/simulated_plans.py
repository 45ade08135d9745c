"""Plans of the closed form's shortlist, served request by request: answers of `strata plan`, `serving` and
`compare`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf, log, sqrt
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.hardware.system import System, as_system
from strata.mapping.engine import USUAL_SERVER, Engine, as_engine
from strata.mapping.plan import Plan, plan_text
from strata.serving.curve import Curve
from strata.serving.deployment import Deployment
from strata.serving.goals import ServingLimits
from strata.serving.load import FULL, closed_load, open_load
from strata.serving.load_metrics import LoadMetrics
from strata.serving.pools import Disaggregation
from strata.serving.requests import Requests
from strata.serving.served_plans import (
    ServedPlan,
    ServedPlans,
    best_value,
    limited_by,
    plan_value,
    served_parts,
)
from strata.serving.simulated import simulate_services
from strata.simulate.server.load import ClosedLoad, Lengths, OpenLoad
from strata.workload.model import Model

FEW, MOST = 3, 6  # plans of a shortlist that are simulated: at least, and at most
MANY, MOST_CLIENTS = 4096, 20_000  # clients with which the fewest plans are simulated, and none
REFUSED = 0.6  # of the clients in closed form that are tried first where it refuses
ROUNDS = ((512, 6), (4096, 4), (inf, 3))  # requests of a client, of fewer than so many
ROUND, RANDOM = (1.2, 0.5), (0.3, 0.15)  # before and after the steady state: of the clients, of all requests
RUNS = 7  # in which the most clients, or the largest rate, is looked for
NEAR = ((512, 0.02), (4096, 0.04), (inf, 0.08))  # to a limit, or to what breaks one: of fewer clients
REQUESTS, SEED = 800, 1  # of a run with arrivals at random, where few are in flight
IN_FLIGHT = 5  # times the requests in flight that such a run has at least
LONGEST_RUN = 8000  # requests of one at most: larger systems keep the rate of the closed form
CONFIRMED, LOWER = 2, 0.95  # times as many requests that must not deny a rate; what is tried where they do
FAR = 0.1  # by which closed form and simulation differ before an answer says so

Heard = Callable[[str], None]  # told what is simulated now


@dataclass(frozen=True, eq=False)
class SimulatedFirstTokens:
    """Times to the first token of the requests of a run [s], in order; in closed form a `FirstToken`."""

    times: Array

    @property
    def mean(self) -> Array:
        return np.asarray(np.mean(self.times))

    def within_share(self, share: float) -> Array:
        return np.asarray(np.quantile(self.times, share))

    def keeps(self, limit: float, share: float) -> Array:
        return np.asarray(np.mean(self.times <= limit) >= share)

    def at(self, *_: Any) -> SimulatedFirstTokens:
        return self


def answered_plans(
    system: System | str,
    model: Model,
    requests: Requests,
    plan: Plan | None = None,
    engine: Engine | str = USUAL_SERVER,
    *,
    top: int = 8,
    quick: bool = False,
    heard: Heard | None = None,
    **how: Any,
) -> ServedPlans:
    """The best plans: a shortlist by the closed form, the first of which are served request by request, each
    with the most clients that keep the limits there; `quick`: by the closed form alone. `how`: as of
    `served_plans`.

    The shortlist is simulated in its order, until no other plan promises more than the best has shown.

    >>> from strata.workload.model import model
    >>> asked = ("8xh200", model("llama-3-70b"), Requests(2048, 512))
    >>> best = answered_plans(*asked, limits=ServingLimits(tpot=0.03)).choices[0]
    >>> best.simulated, bool(best.load.tpot <= 0.03)
    (True, True)
    """
    parts = served_parts(system, model, requests, plan, engine, top=max(top, MOST), **how)
    if quick:
        return replace(parts[0], choices=parts[0].choices[:top])
    best: ServedPlans | None = None
    for shortlist in parts:  # numbers of devices
        if best is not None and best.choices and best_value(shortlist) <= best_value(best):
            continue
        found = plan_runs(shortlist, system, engine, **how).answer(top, heard)
        best = found if best is None or best_value(found) > best_value(best) else best
    assert best is not None
    return best


def plan_runs(shortlist: ServedPlans, system: System | str, engine: Engine | str, **how: Any) -> PlanRuns:
    """Plans of a shortlist, ready to be simulated; `how`: as they were priced."""
    return PlanRuns(
        system=as_system(system),
        engine=as_engine(engine),
        chunk=how.get("chunk"),
        sequences=how.get("sequences"),
        drafting=how.get("drafting"),
        largest=how.get("clients") is None and not shortlist.goal.fewest,
        shortlist=shortlist,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanRuns:
    """Plans of a shortlist as deployments that are simulated."""

    system: System
    engine: Engine
    chunk: float | None
    sequences: float | None
    drafting: Any
    largest: bool  # whether the most clients are asked for
    shortlist: ServedPlans

    @property
    def curve(self) -> Curve:
        return self.shortlist.curve

    @property
    def limits(self) -> ServingLimits:
        return self.shortlist.limits

    def answer(self, top: int, heard: Heard | None = None) -> ServedPlans:
        """The shortlist with its first plans simulated, these first."""
        waiting, best = list(self.shortlist.choices), -inf
        kept = REFUSED if waiting and str(waiting[0].load.refusal) else 1.0  # of the clients promised
        tried: list[ServedPlan | None] = []
        while waiting and len(tried) < MOST and waiting[0].clients <= MOST_CLIENTS:
            promised = plan_value(self.shortlist, waiting[0].load)
            enough = len([one for one in tried if one is not None]) >= FEW
            if enough and (promised <= best or waiting[0].clients >= MANY):
                break
            if heard is not None:
                heard(f"simulating requests with plan {plan_text(waiting[0].plan)}")
            promise = waiting.pop(0)
            one = self.simulated(promise, kept)
            tried.append(one)
            if one is not None:
                best = max(best, plan_value(self.shortlist, one.load))
                kept = one.clients / promise.clients
        shown = [one for one in tried if one is not None]
        shown.sort(key=lambda one: -plan_value(self.shortlist, one.load))
        if not tried:
            return self._ordered(waiting[:top])
        # plans that promise more than was shown are not listed below it: there was no time to look
        rest = [one for one in waiting if plan_value(self.shortlist, one.load) <= best] if shown else []
        return self._ordered((shown + rest)[:top])

    def _ordered(self, choices: list[ServedPlan]) -> ServedPlans:
        """With these choices, rows of the curve in their order."""
        first = list(dict.fromkeys(one.row for one in choices))
        rows = first + [i for i in range(len(self.curve.slots)) if i not in first]
        placed = [replace(one, row=rows.index(one.row)) for one in choices]
        return replace(self.shortlist, choices=placed, curve=self.curve.only(rows))

    def deployment(self, plan: Plan, split: Disaggregation | None = None) -> Deployment:
        """A plan as it is served; of a split, its two."""
        c = self.curve
        plans: dict[str, Any] = {"plan": plan}
        if split is not None:
            plans = {"prefill": split.prefill_plan, "decode": split.decode_plan}
        return Deployment(
            self.system,
            c.model,
            engine=self.engine,
            max_num_batched_tokens=None if self.chunk is None else int(self.chunk),
            max_num_seqs=None if self.sequences is None else max(ceil(self.sequences / float(plan.dp)), 1),
            routed=c.requests.routed,
            drafting=self.drafting,
            economics=c.economics,
            **plans,
        )

    def simulated(self, one: ServedPlan, kept: float = 1.0) -> ServedPlan | None:
        """A plan with the clients told, or the most that keep the limits where they are simulated, looked for
        from a share `kept` of those in closed form; none where limits are not kept.
        """
        deployment = self.deployment(one.plan)
        runs: dict[float, LoadMetrics] = {}

        def excess(clients: float) -> float:
            if clients not in runs:
                runs[clients] = self.with_clients(deployment, clients, one.slots)
            return self.limits.excess(runs[clients])

        near = _of_size(NEAR, one.clients)
        start = max(float(round(kept * one.clients)), 1.0)
        clients = most_kept(excess, start, one.slots, near) if self.largest else one.clients
        if clients < 1 or excess(clients) > 1.0:
            return None
        limit, full = one.limited_by, clients == one.slots
        if self.largest and full and one.slots < float(self.curve.allowed[one.row]):
            fewer = max(float(int(FULL * clients)), 1.0)  # whose caches make no room for each other
            excess(fewer)
            clients = max((clients, fewer), key=lambda n: plan_value(self.shortlist, runs[n]))
        if self.largest and not full:
            used = self.limits.used(runs[min((n for n in runs if n > clients), default=clients)])
            limit = max(used, key=lambda name: used[name])
        elif self.largest:
            limit = limited_by(self.curve.at(one.row), one.slots, self.limits)
        closed = closed_load(self.curve.at(one.row), clients).at(0, 0)
        return replace(one, clients=clients, load=runs[clients], closed=closed, limited_by=limit)

    def with_clients(self, deployment: Deployment, clients: float, slots: float) -> LoadMetrics:
        """What so many clients see who each wait for their answer."""
        many = int(clients)
        load = ClosedLoad(clients=many, count=many * int(_of_size(ROUNDS, many)), seed=SEED, **self._lengths)
        return self._seen(deployment, load, slots)

    def at_random(
        self, deployment: Deployment, closed: LoadMetrics, slots: float, rate: float = 0.0, times: int = 1
    ) -> LoadMetrics:
        """What requests see that arrive at random, at the rate of a closed form or another one [1/s]; `times`
        as many of them as need be.
        """
        rate = rate or float(closed.rate)
        active = float(closed.active) * rate / float(closed.rate) if np.isfinite(closed.ttft) else slots
        count = times * int(max(REQUESTS, IN_FLIGHT * active))
        load = OpenLoad(rate=rate, count=count, seed=SEED + times, **self._lengths)
        return self._seen(deployment, load, slots)

    def largest_rate(
        self, deployment: Deployment, closed: LoadMetrics, slots: float
    ) -> tuple[float, LoadMetrics | None]:
        """The most requests a second that arrive at random and keep the limits on average, in a run several
        times as long, too [1/s]; and what they see there. `closed`: at the rate that the closed form has.
        """
        promised = float(closed.rate)
        if not 0.0 < promised < inf:
            return 0.0, None
        if IN_FLIGHT * float(closed.active) > LONGEST_RUN:
            return promised, None

        def seen(rate: float, times: int = 1) -> LoadMetrics:
            return self.at_random(deployment, closed, slots, rate, times)

        near = _of_size(NEAR, inf)
        rate = most_kept(lambda r: self.limits.excess(seen(r)), promised, inf, near, whole=False)
        for _ in range(RUNS):
            if rate <= 0.0:
                break
            confirmed = seen(rate, CONFIRMED)
            if self.limits.excess(confirmed) <= 1.0:
                return rate, confirmed
            rate *= LOWER
        return 0.0, None

    def plan_rate(self, one: ServedPlan, promised: float) -> tuple[float, LoadMetrics | None]:
        """The largest rate of a plan."""
        closed = open_load(self.curve.at(one.row), promised or 0.5 * float(one.load.rate)).at(0)
        return self.largest_rate(self.deployment(one.plan), closed, one.slots)

    def split(self, one: Disaggregation) -> Disaggregation:
        """Devices apart, at the largest rate that is simulated."""
        deployment = self.deployment(one.decode_plan, one)
        rate, seen = self.largest_rate(deployment, one.load(one.rate), float(one.curve.slots[0]))
        return replace(one, rate=rate, simulated=seen)

    @property
    def _lengths(self) -> dict[str, Any]:
        asked = self.curve.requests
        spread = sqrt(log(1.0 + asked.variation))
        shape: dict[str, Any] = {"shape": "lognormal", "spread": spread} if spread else {}
        return {"input": Lengths(mean=asked.input, **shape), "output": Lengths(mean=asked.output)}

    def _seen(self, deployment: Deployment, load: ClosedLoad | OpenLoad, slots: float) -> LoadMetrics:
        """Means of the steady part of a run."""
        later, output = self.curve.requests.later, self.curve.requests.output
        run = simulate_services(deployment.priced(load), load, keep=True)
        records = sorted(run.records, key=lambda r: r.arrival)
        each = load.clients if isinstance(load, ClosedLoad) else len(records)
        warm, tail = (int(share * each) for share in (ROUND if each < len(records) else RANDOM))
        steady = records[warm : len(records) - tail]
        first = np.sort([inf if r.state == "refused" else r.ttft for r in steady])
        ttft, tpot = float(np.mean(first)), float(np.mean([r.tpot for r in steady]))
        waits = float(np.mean([r.queued for r in steady]))
        closed = isinstance(load, ClosedLoad)
        rate = load.rate if isinstance(load, OpenLoad) else load.clients / (ttft + later * tpot)
        late = inf if (run.saturated and not closed) or not np.isfinite(ttft) else 0.0
        active = rate * later * tpot
        numbers: dict[str, float] = {
            "rate": rate,
            "ttft": ttft + late,
            "tpot": tpot + late,
            "waits": waits + late,
            "reads": ttft - waits + late,
            "active": active,
            "utilisation": min(active / max(slots, 1.0), 1.0 - 1e-12) + late,
            "tokens_per_s": 0.0 if late else rate * output,
            "queued": waits + late,
            "power": run.power,
            "dollars": run.dollars,
            "devices": run.devices,
        }
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in numbers.items()}
        return LoadMetrics(**arrays, first_token=SimulatedFirstTokens(first), refusal=np.asarray(""))


def _of_size(table: tuple[tuple[float, float], ...], size: float) -> float:
    return next((value for most, value in table if size < most), table[-1][1])


def most_kept(
    excess: Callable[[float], float], start: float, most: float, near: float = 0.02, whole: bool = True
) -> float:
    """The largest number up to `most` whose `excess`, as a share of a limit, is not above 1, near one that
    should be, in a few tries along lines of logarithms; 0 where none is found. `whole`: as whole numbers.

    >>> most_kept(lambda n: n / 37, start=30, most=64), most_kept(lambda n: n**2 / 37**2, start=64, most=64)
    (37.0, 37.0)
    """
    low, high, tried = (0.0, 0.0), (inf, inf), min(start, most)  # numbers with their excess
    for run in range(RUNS):
        over = excess(tried)
        low, high = ((tried, over), high) if over <= 1.0 else (low, (tried, over))
        near_enough = 1.0 - near <= low[1] <= 1.0 or high[0] - low[0] <= max(near * low[0], float(whole))
        if low[0] >= most or (low[0] and near_enough) or (whole and high[0] <= 1):
            break
        if low[0] and high[0] < inf:
            place = log(1.0 / low[1]) / log(high[1] / low[1]) if 0 < low[1] < high[1] < inf else 0.5
            tried = low[0] * (high[0] / low[0]) ** min(max(place - 0.05, 0.1), 0.9)
        elif low[0]:
            tried = low[0] * min((1.0 - 0.5 * near) / max(low[1], 0.1), 1.5 + run)
        else:
            tried = high[0] / max(min(high[1], 4.0), 1.0 + near) * (1.0 - 0.1 * run)
        tried = min(max(float(round(tried)), low[0] + 1.0), high[0] - 1.0) if whole else tried
        tried = min(tried, most)
    return low[0]


def closed_form_errors(one: ServedPlan) -> dict[str, float]:
    """By how much the closed form differs from the simulation of the same clients, where by more than a
    tenth: relative, by metric.
    """
    if one.closed is None:
        return {}
    pairs = {
        n: (float(getattr(one.closed, n)), float(getattr(one.load, n))) for n in ("ttft", "tpot", "rate")
    }
    off = {n: ours / theirs - 1.0 for n, (ours, theirs) in pairs.items() if theirs > 0 and np.isfinite(ours)}
    return {n: v for n, v in off.items() if abs(v) > FAR}
