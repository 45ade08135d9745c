"""The highest load that keeps limits of latencies, found by serving request by request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.simulate.server.fleet import Fleet, Router
from strata.simulate.server.kv_pool import KvPool
from strata.simulate.server.load import Lengths, OpenLoad
from strata.simulate.server.rank import Scheduling
from strata.simulate.server.replica import Replica
from strata.simulate.server.request import Request
from strata.simulate.server.step_table import KvRoom, StepPricer, StepTable, kv_room

SHARE = 0.99  # of requests that must keep the limits (MLPerf inference rules)
LEAST, MOST = 1000, 4000  # requests of a run
ROUNDS = 3  # requests of a run for each that fits at once
BEGINNING = 3  # one part in so many, while the engine fills, is not looked at
HALVINGS = 6  # of the logarithm of the rate, down to LOWEST of the most there is
LOWEST = 0.05
LONGEST = 4.0  # times a mean request that steps are priced for, up to its data set's longest


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedCopy:
    """A copy of a model that can be asked: prices of its steps, room of its caches, and the requests."""

    table: StepTable
    room: KvRoom
    input: Lengths
    output: Lengths
    evenness: float = 1.0  # copies among which arrivals at random are dealt out in turn

    @property
    def at_once(self) -> float:
        """Requests whose caches fit."""
        page = float(self.room.page)
        held = self.room.fixed + np.ceil((self.input.mean + self.output.mean) / page)
        fits = self.room.blocks / held * self.table.pricer.lanes
        return float(min(fits, float(self.table.pricer.engine.sequences) * self.table.pricer.lanes))

    def latencies(self, rate: float, seed: int = 0) -> np.ndarray:
        """TTFT and TPOT [s] of requests in order of arrival, at so many a second; the same requests at every
        rate, of a copy among several one in turn.
        """
        engine = self.table.pricer.engine
        rules = Scheduling(
            tokens=int(engine.tokens), sequences=int(engine.sequences), mixed=bool(engine.mixed > 0)
        )
        room, ranks = self.room, max(int(self.table.pricer.lanes), 1)
        pools = [KvPool(room.blocks, room.page, room.fixed, False) for _ in range(ranks)]
        replica = Replica(0, self.table, pools, rules)
        count = int(np.clip(ROUNDS * self.at_once, LEAST, MOST))
        load = OpenLoad(
            rate=rate,
            input=self.input,
            output=self.output,
            count=count,
            burstiness=1.0 / self.evenness,
            seed=seed,
        )
        served: list[tuple[int, float, float]] = []

        def record(r: Request) -> None:
            served.append((r.key, r.ttft, r.tpot))

        def refuse(r: Request) -> None:
            served.append((r.key, np.inf, np.inf))

        Fleet(replicas=[replica], router=Router([replica]), load=load, record=record, refuse=refuse).run()
        return np.array(sorted(served))[:, 1:]

    def keeps(self, rate: float, limits: Mapping[str, float]) -> bool:
        """Whether nearly all requests keep the limits on `ttft` and `tpot` at so many a second."""
        times = self.latencies(rate)
        settled = times[len(times) // BEGINNING :]
        seen = dict(zip(("ttft", "tpot"), np.quantile(settled, SHARE, axis=0), strict=True))
        return all(bool(seen[name] <= limit) for name, limit in limits.items())

    def highest_rate(self, limits: Mapping[str, float], most: float) -> float:
        """The most requests a second, up to `most`, whose latencies keep limits [1/s]; LOWEST of `most` where
        none do.
        """
        if self.keeps(most, limits):
            return most
        low, high = np.log(LOWEST * most), np.log(most)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.keeps(float(np.exp(middle)), limits) else (low, middle)
        return float(np.exp(low))


def served_copy(pricer: StepPricer, input: Lengths, output: Lengths, evenness: float = 1.0) -> ServedCopy:
    """A copy ready to be asked, its steps priced once for all rates."""
    engine: Any = pricer.engine
    mean = input.mean + output.mean
    room = kv_room(pricer, context=mean)
    most = min(int(engine.sequences), max(room.blocks * room.page // max(int(input.mean), 1), 1))
    longest = min(LONGEST * mean, float(input.most + output.most))
    table = StepTable(pricer, sequences=most, context=longest, tokens=float(engine.tokens))
    return ServedCopy(table=table, room=room, input=input, output=output, evenness=evenness)
