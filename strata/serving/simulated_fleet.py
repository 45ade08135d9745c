"""The smallest and the cheapest fleet that serves a load within limits, of one kind of system or of more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf, isfinite

import numpy as np

from strata.base.errors import require
from strata.hardware.system import as_system
from strata.serving.deployment import Deployment
from strata.serving.pools import capped_system
from strata.serving.priced_service import PricedService
from strata.serving.simulated import checked_limits, simulate_services
from strata.serving.simulated_answers import holds
from strata.serving.simulated_result import Served
from strata.serving.simulator.fleet import Load
from strata.serving.simulator.load import RecordedLoad

MOST_COPIES = 1024  # of one system
FEW, APART = 64, 1e5  # requests that are served alone, so far apart [s]


@dataclass(frozen=True, eq=False, kw_only=True)
class FleetChoice:
    """A fleet that was tried."""

    copies: tuple[int, ...]  # of each deployment
    run: Served
    holds: bool  # a share of the requests keeps the limits

    @property
    def dollars(self) -> float:
        """Price of the fleet [USD/s]; nan where a chip has none."""
        return self.run.dollars

    @property
    def devices(self) -> float:
        return self.run.devices


@dataclass(frozen=True, eq=False, kw_only=True)
class FleetAnswer:
    """Fleets that serve a load within limits, best first, and all that were tried."""

    goal: str  # cheapest or smallest
    share: float
    choices: list[FleetChoice]
    tried: list[FleetChoice] = field(default_factory=list)
    stopped: bool = False  # before all were tried

    @property
    def best(self) -> FleetChoice | None:
        return self.choices[0] if self.choices else None


def fleet_for(
    services: Sequence[PricedService],
    load: Load,
    slo: dict[str, float],
    *,
    share: float = 0.95,
    goal: str = "cheapest",
    mixed: bool = True,
    most: int = MOST_COPIES,
    router: str = "least-loaded",
    told: Callable[[FleetChoice], None] | None = None,
) -> FleetAnswer:
    """How many of each deployment serve a load such that a share of its requests keeps the limits: the fewest
    devices (`smallest`) or the lowest price (`cheapest`).

    Of each deployment alone the fewest copies are found by doubling and halving; with `mixed`, fleets of two
    deployments are tried beside: of fewer copies of one, with the fewest of the other that then suffice.
    """
    checked_limits(slo)
    require(bool(slo), "a fleet needs a limit to keep, like slo={'ttft': 1.0}", slo=slo)
    require(goal in ("cheapest", "smallest"), "the goal is cheapest or smallest", goal=goal)
    require(0 < share <= 1, "the share of requests that keep the limits lies between 0 and 1", share=share)
    search = _FleetSearch(list(services), load, slo, share, router, told)
    stopped = False
    try:
        search.all(most, mixed)
    except KeyboardInterrupt:
        stopped = True
    good = [c for c in search.tried.values() if c.holds]

    def price(c: FleetChoice) -> float:
        return c.dollars if isfinite(c.dollars) else inf

    good.sort(
        key=(lambda c: (price(c), c.devices)) if goal == "cheapest" else lambda c: (c.devices, price(c))
    )
    tried = list(search.tried.values())
    return FleetAnswer(goal=goal, share=share, choices=good, tried=tried, stopped=stopped)


@dataclass(eq=False)
class _FleetSearch:
    services: list[PricedService]
    load: Load
    slo: dict[str, float]
    share: float
    router: str
    told: Callable[[FleetChoice], None] | None
    tried: dict[tuple[int, ...], FleetChoice] = field(default_factory=dict)
    alone: dict[int, bool] = field(default_factory=dict)

    def all(self, most: int, mixed: bool) -> None:
        """Every deployment alone, and pairs of them."""
        count = len(self.services)
        alone = [self.fewest(i, (0,) * count, most) for i in range(count)]
        for i in range(count):
            for j in range(count):
                if mixed and i != j and alone[i] and alone[j]:
                    self.mix(i, j, alone[i], most)

    def at(self, copies: tuple[int, ...]) -> bool:
        """Whether a fleet keeps the limits."""
        if copies not in self.tried:
            fleet = [s.copied(n) for s, n in zip(self.services, copies, strict=True) if n]
            run = simulate_services(fleet, self.load, router=self.router, slo=self.slo)
            if run.stopped:
                raise KeyboardInterrupt
            self.tried[copies] = FleetChoice(copies=copies, run=run, holds=holds(run, self.share))
            if self.told is not None:
                self.told(self.tried[copies])
        return self.tried[copies].holds

    def fewest(self, which: int, beside: tuple[int, ...], most: int) -> int:
        """The fewest copies of a deployment that suffice beside others; 0 where no number up to `most`."""

        def fleet(count: int) -> tuple[int, ...]:
            return (*beside[:which], count, *beside[which + 1 :])

        low, high = 0, 1
        while not self.at(fleet(high)):
            if high >= most or not self._alone(which):
                return 0
            low, high = high, min(high * 2, most)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.at(fleet(middle)) else (middle, high)
        return high

    def _alone(self, which: int) -> bool:
        """Whether requests that meet no other keep the limits: else no number of copies does."""
        if which not in self.alone:
            apart = [(APART * i, r) for i, r in enumerate(islice(self.load.arrivals(), FEW))]
            rows = [(time, r.input, r.output) for time, r in apart]
            run = simulate_services([self.services[which]], RecordedLoad(rows=rows), slo=self.slo)
            self.alone[which] = run.kept >= self.share
        return self.alone[which]

    def mix(self, i: int, j: int, alone: int, most: int) -> None:
        """Fleets of fewer copies of one deployment, half as many each time, with what the other must add."""
        count = alone - 1
        while count > 0:
            beside = [0] * len(self.services)
            beside[i] = count
            if not self.fewest(j, tuple(beside), most):
                return
            count //= 2


def services_capped(
    deployment: Deployment, caps: Sequence[float], load: Load, slo: dict[str, float] | None = None
) -> list[tuple[str, list[PricedService]]]:
    """A deployment as it is, at each power cap [W], and with clocks that nothing lowers, under one plan."""
    first = deployment.priced(load, slo)
    fixed = deployment if deployment.prefill else replace(deployment, plan=first[0].plan)
    capped = [(f"{cap:g} W", replace(fixed, power_cap=cap)) for cap in sorted(caps, reverse=True)]
    free = replace(fixed, system=capped_system(as_system(fixed.system), np.inf))
    rest = [*capped, ("fixed clock", free)]
    return [("own limit", first), *((name, one.priced(load, slo)) for name, one in rest)]
