"""First tokens of closed loops of clients, simulated; rows of one engine share the prices of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.simulate.server.fleet import Fleet, Router
from strata.simulate.server.kv_pool import KvPool
from strata.simulate.server.replica import Replica
from strata.simulate.server.request import Request
from strata.simulate.server.scheduling import Scheduling
from strata.simulate.server.step_table import KvRoom, StepPricer, StepTable, kv_room
from strata.workload.model import Model

REQUESTS = 200  # simulated in a loop, in three rounds at least: later ones are like those before
LEAST_ROUNDS = 3
UNBOUNDED = 2**40  # blocks, where the memory as we count it has no room for two requests: a run existed
USUAL = 2048.0  # tokens of a sequence at which blocks are counted


@dataclass(frozen=True, kw_only=True)
class ClosedRun:
    """One run of a load generator, and what its engine was told."""

    clients: int
    input: tuple[float, float]  # tokens of a prompt: least and most, all alike
    output: tuple[float, float]
    rounds: float  # requests of each client
    tokens: int  # of a step
    guesses: float = 0.0  # tokens guessed in a step
    tokens_per_step: float = 1.0  # that a sequence gains
    looks: int = 1
    wait_steps: int = 0
    wait_tokens: int = 0


class _Clients:
    """Clients that each ask, wait for the answer, and ask again, until so many have asked."""

    def __init__(self, run: ClosedRun, count: int) -> None:
        self.run, self.left, self.random = run, count, np.random.default_rng(0)

    def _next(self, time: float) -> Request:
        read, written = (round(self.random.uniform(*ends)) for ends in (self.run.input, self.run.output))
        self.left -= 1
        return Request(self.left, time, max(read, 1), max(written, 1))

    def arrivals(self) -> Iterator[Request]:
        for _ in range(self.run.clients):
            yield self._next(0.0)

    def after(self, request: Request, now: float) -> Iterable[Request]:
        return (self._next(now),) if self.left > 0 else ()


def simulated_first_tokens(
    system: System, model: Model, plan: Plan, engine: Engine, runs: Sequence[ClosedRun], *, skew: float
) -> list[float]:
    """Mean time to the first token that clients of each run see [s], all of whom begin at once."""
    pricer = StepPricer(
        system=system,
        model=model,
        plan=plan,
        engine=engine,
        routed={"skew": skew},
        draft_tokens=max(r.guesses for r in runs),
    )
    ranks = max(int(pricer.lanes), 1)
    limit = int(np.asarray(engine.sequences))
    table = StepTable(
        pricer,
        sequences=min(-(-max(r.clients for r in runs) // ranks), limit),
        context=max(r.input[1] + r.output[1] for r in runs),
        tokens=max(r.tokens for r in runs),
    )
    room = kv_room(pricer, context=USUAL)
    return [_first_token(run, table, room, ranks, limit, engine) for run in runs]


def _first_token(
    run: ClosedRun, table: StepTable, room: KvRoom, ranks: int, limit: int, engine: Engine
) -> float:
    rules = Scheduling(
        tokens=run.tokens,
        sequences=limit,
        mixed=bool(np.asarray(engine.mixed) > 0),
        request_time=float(np.asarray(engine.request)),
        token_time=float(np.asarray(engine.tokenize or 0.0)),
        tokens_per_step=run.tokens_per_step,
        looks=run.looks,
        wait_steps=int(np.asarray(engine.balance)) if ranks > 1 else run.wait_steps,
        wait_tokens=run.wait_tokens,
        ahead=bool(np.asarray(engine.asynchronous or 0.0) > 0),
    )
    two = 2 * (int(run.input[1] + run.output[1]) // room.page + 1 + room.fixed)
    blocks = room.blocks if room.blocks >= two else UNBOUNDED
    replica = Replica(0, table, [KvPool(blocks, room.page, room.fixed) for _ in range(ranks)], rules)
    rounds = min(run.rounds, max(-(-REQUESTS // run.clients), LEAST_ROUNDS))
    count = round(rounds * run.clients)
    began: list[float] = []
    later: list[float] = []

    def record(request: Request) -> None:
        (began if request.key >= count - run.clients else later).append(request.ttft)

    load = _Clients(run, count)
    Fleet(replicas=[replica], router=Router([replica]), load=load, record=record, refuse=lambda r: None).run()
    if not later:
        return float(np.mean(began))
    share = 1.0 / run.rounds
    return float(share * np.mean(began) + (1.0 - share) * np.mean(later))
