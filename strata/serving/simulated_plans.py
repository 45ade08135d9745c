"""The closed form's best plans, served request by request: answers of `strata plan`, `serving`, `compare`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf, log, sqrt
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.hardware.system import System, as_system
from strata.mapping.plan import Plan, plan_text
from strata.serving.curve import Curve
from strata.serving.deployment import Deployment
from strata.serving.load import FULL, closed_load, largest_concurrency, open_load
from strata.serving.load_metrics import LoadMetrics, ServingLimits, largest_kept
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
from strata.serving.simulated_answers import find_rate
from strata.serving.simulated_result import Served
from strata.serving.simulator.arrivals import Lengths
from strata.serving.simulator.load import ENDLESS, ClosedLoad, OpenLoad
from strata.serving.simulator.saturation import MOST_REQUESTS, TURNOVERS, SteadyShare
from strata.serving.simulator.statistics import LatencyStatistics
from strata.software.engine import USUAL_SERVER, Engine, as_engine
from strata.workload.model import Model

FEW, MOST = 3, 6  # plans of a shortlist that are simulated: at least, and at most
MANY, MOST_CLIENTS = 4096, 20_000  # clients with which the fewest plans are simulated, and none
REFUSED = 0.6  # of the clients in closed form that are tried first where it refuses
ROUNDS = ((512, 6), (4096, 4), (inf, 3))  # requests of a client, of fewer than so many
NEAR = ((512, 0.02), (4096, 0.04), (inf, 0.1))  # to a limit, or to what breaks one: of fewer clients
REQUESTS, SEED = 2000, 1  # of a run at a rate that is told, at least
SPLITS = 2  # ways to share devices out that are simulated
FAR = 0.1  # by which closed form and simulation differ before an answer says so

Heard = Callable[[str], None]  # told what is simulated now


@dataclass(frozen=True, eq=False)
class SimulatedFirstTokens:
    """Times to the first token of the requests of a run; in closed form a `FirstToken`."""

    times: LatencyStatistics

    def within_share(self, share: float) -> Array:
        return np.asarray(self.times.percentile(share))

    def keeps(self, limit: float, share: float) -> Array:
        return np.asarray(self.within_share(share) <= limit)

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
    best, *others = (plan_runs(part, system, engine, heard=heard, **how) for part in parts)
    answer = best.answer(top)
    for runs in others:  # other numbers of devices; of many clients the closed form says how many
        one = next(iter(answer.choices), None)
        if one is None or (one.clients < MANY and best_value(runs.shortlist) > best_value(answer)):
            answer = max(answer, runs.answer(top), key=best_value)
    return answer


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
        heard=how.get("heard") or (lambda _: None),
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
    heard: Heard

    @property
    def curve(self) -> Curve:
        return self.shortlist.curve

    @property
    def limits(self) -> ServingLimits:
        return self.shortlist.limits

    def answer(self, top: int) -> ServedPlans:
        """The shortlist with its first plans simulated, these first."""
        waiting, best, limits = list(self.shortlist.choices), -inf, self.limits
        tried: list[ServedPlan | None] = []
        while waiting and len(tried) < MOST and waiting[0].clients <= MOST_CLIENTS:
            promised = plan_value(self.shortlist, waiting[0].load)
            enough = len([one for one in tried if one is not None]) >= FEW
            if enough and (promised <= best or waiting[0].clients >= MANY):
                break
            self.heard(f"simulating requests with plan {plan_text(waiting[0].plan)}")
            one = self.simulated(waiting.pop(0), limits)
            tried.append(one)
            if one is not None:
                best = max(best, plan_value(self.shortlist, one.load))
                limits = self.limits.corrected(one.load, one.closed) if one.closed is not None else limits
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

    def simulated(self, one: ServedPlan, limits: ServingLimits) -> ServedPlan | None:
        """A plan with the clients told, or the most that keep the limits where they are simulated; none where
        limits are not kept. `limits`: as they are for the closed form, from which those are looked for.
        """
        deployment = self.deployment(one.plan)
        runs: dict[float, LoadMetrics] = {}

        def excess(clients: float) -> float:
            if clients not in runs:
                runs[clients] = self.with_clients(deployment, clients, one.slots)
            return self.limits.excess(runs[clients])

        clients, near = one.clients, _of_size(NEAR, one.clients)
        if self.largest:
            start = self._promised(one, limits)
            # as many for each rank: one more or less, and requests go from rank to rank and bunch up
            each = float(self.curve.lanes[one.row]) if start >= MANY else 1.0
            how: dict[str, Any] = {"width": near, "near": near, "whole": True}
            ends = max(start // each, 1.0), 1.0, one.slots // each
            clients = each * largest_kept(lambda n: excess(each * n), *ends, **how)[0]
        if clients < 1 or excess(clients) > 0.0:
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
        answer: dict[str, Any] = {"load": runs[clients], "closed": closed, "deployment": deployment}
        return replace(one, clients=clients, limited_by=limit, **answer)

    def _promised(self, one: ServedPlan, limits: ServingLimits) -> float:
        """The most clients in closed form; fewer where it refuses, and nothing is known of its error."""
        if limits is self.limits:
            return float(round(one.clients * (REFUSED if str(one.load.refusal) else 1.0))) or 1.0
        return max(float(largest_concurrency(self.curve.at(one.row), **limits.told)[0][0]), 1.0)

    def with_clients(self, deployment: Deployment, clients: float, slots: float) -> LoadMetrics:
        """What so many clients see who each wait for their answer."""
        many = int(clients)
        load = ClosedLoad(clients=many, count=ENDLESS, seed=SEED, **self._lengths)
        steady = SteadyShare(1.0, most=many * _of_size(ROUNDS, many), clients=many)
        run = simulate_services(deployment.priced(load), load, steady=steady)
        times = run.times["ttft"].mean + self.curve.requests.later * run.times["tpot"].mean
        return self._seen(run, many / times if times else 0.0, slots)

    def at_random(self, deployment: Deployment, rate: float, slots: float) -> LoadMetrics:
        """What requests see that arrive at random at a rate [1/s]."""
        load = OpenLoad(rate=rate, count=ENDLESS, seed=SEED, **self._lengths)
        steady = SteadyShare(1.0, least=REQUESTS)
        return self._seen(simulate_services(deployment.priced(load), load, steady=steady), rate, slots)

    def largest_rate(
        self, deployment: Deployment, closed: LoadMetrics, slots: float
    ) -> tuple[float, LoadMetrics | None]:
        """The most requests a second that arrive at random and keep the limits (`find_rate`) [1/s]; and what
        they see there. `closed`: at the rate that the closed form has, which larger systems keep.
        """
        promised = float(closed.rate)
        if not 0.0 < promised < inf:
            return 0.0, None
        if TURNOVERS * float(closed.active) > MOST_REQUESTS:
            return promised, None
        load = OpenLoad(rate=promised, count=ENDLESS, seed=SEED, **self._lengths)
        slo, means = self.limits.kinds
        asked: dict[str, Any] = {"means": means, "share": self.limits.share or 0.95}
        best = find_rate(deployment.priced(load), load, slo, **asked, told=self._tell_rate)
        return best.rate, None if best.confirmed is None else self._seen(best.confirmed, best.rate, slots)

    def plan_rate(self, one: ServedPlan, promised: float) -> tuple[float, LoadMetrics | None]:
        """The largest rate of a plan."""
        closed = open_load(self.curve.at(one.row), promised or 0.5 * float(one.load.rate)).at(0)
        return self.largest_rate(one.deployment or self.deployment(one.plan), closed, one.slots)

    def splits(self, every: list[Disaggregation]) -> list[Disaggregation]:
        """Devices apart, the first ways at the largest rate that is simulated, best first."""
        few = []
        for one in every[:SPLITS]:
            deployment = self.deployment(one.decode_plan, one)
            rate, seen = self.largest_rate(deployment, one.load(one.rate), float(one.curve.slots[0]))
            few.append(replace(one, rate=rate, simulated=seen))
        return [*sorted(few, key=lambda one: -one.rate), *every[SPLITS:]]

    def _tell_rate(self, rate: float, run: Served) -> None:
        self.heard(f"simulated {rate:.3g} requests/s on {run.fleet_text}")

    @property
    def _lengths(self) -> dict[str, Any]:
        asked = self.curve.requests
        spread = sqrt(log(1.0 + asked.variation))
        shape: dict[str, Any] = {"shape": "lognormal", "spread": spread} if spread else {}
        return {"input": Lengths(mean=asked.input, **shape), "output": Lengths(mean=asked.output)}

    def _seen(self, run: Served, rate: float, slots: float) -> LoadMetrics:
        """Means of the steady part of a run."""
        ttft, tpot, waits = (run.times[name].mean for name in ("ttft", "tpot", "queued"))
        late = inf if run.refused or run.saturated or not run.completed else 0.0
        active = rate * self.curve.requests.later * tpot
        numbers: dict[str, float] = {
            "rate": rate,
            "ttft": ttft + late,
            "tpot": tpot + late,
            "waits": waits + late,
            "reads": ttft - waits + late,
            "active": active,
            "utilisation": min(active / max(slots, 1.0), 1.0 - 1e-12) + late,
            "tokens_per_s": 0.0 if late else rate * self.curve.requests.output,
            "queued": waits + late,
            "power": run.power,
            "dollars": run.dollars,
            "devices": run.devices,
        }
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in numbers.items()}
        first = SimulatedFirstTokens(run.times["ttft"])
        return LoadMetrics(**arrays, first_token=first, refusal=np.asarray(""))


def _of_size(table: tuple[tuple[float, float], ...], size: float) -> float:
    return next((value for most, value in table if size < most), table[-1][1])


def closed_form_errors(one: ServedPlan) -> dict[str, float]:
    """By how much the closed form differs from the simulation, where by more than a tenth: relative."""
    if one.closed is None:
        return {}
    pairs = {
        n: (float(getattr(one.closed, n)), float(getattr(one.load, n))) for n in ("ttft", "tpot", "rate")
    }
    off = {n: ours / theirs - 1.0 for n, (ours, theirs) in pairs.items() if theirs > 0 and np.isfinite(ours)}
    return {n: v for n, v in off.items() if abs(v) > FAR}
