"""An engine under load: requests that arrive at a rate, or clients that each wait for their answer; and the
most it can take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import require
from strata.mapping.engine import request_time
from strata.serving.curve import Curve
from strata.serving.first_token import FirstToken
from strata.serving.load_metrics import LoadMetrics
from strata.serving.queueing import (
    SequencesInFlight,
    chance_to_wait,
    closed_rate,
    mean_wait,
    sequences_in_flight,
    shared_launching,
    shared_step,
)
from strata.serving.steps import dollars_per_s

# of an interval that holds the answer: a fixed number, so that a point never depends on its neighbours
HALVINGS = 32
SHARINGS = 4  # of launching among prompts, until the rate they come at no longer moves
LEVERS = ("a lower rate", "more devices", "narrower weights or kv", "larger chunks", "a plan with more slots")


@dataclass(frozen=True, eq=False, kw_only=True)
class RemotePrefill:
    """Prompts read outside the engine that generates: time of one [s], how many at once, and what follows
    before its tokens go on [s].
    """

    time: Array
    lanes: Array
    after: Array
    links: Array  # how many may be on their way at once


def open_load(curve: Curve, rate: Any, remote: RemotePrefill | None = None) -> LoadMetrics:
    """Requests arriving at random (Poisson) at a rate [1/s], one for all plans or one for each.

    A request waits for a slot, then for a lane that reads, then for the step under way; the reader of the
    engine is slowed by the sequences in flight, and they by it. Arrivals see the engine as it is on average
    (Wolff, Oper. Res. 30 (1982) 223). Replicas that step by themselves have their own sequences, an even
    share of arrivals each; a prompt is read by the first lane of any of them that is free.

    Against a simulation of every request (`simulate`) it holds to some 4 % up to 40 % of the highest rate
    that is served. It cannot hold for bursts, lengths that vary widely, preemption and shared prefixes, nor
    near saturation, where prompts that wait are read several in a step.
    """
    r = curve.requests
    rate = np.broadcast_to(np.asarray(rate, float), curve.slots.shape)
    require(bool(np.all(rate >= 0)), "a rate of requests must not be negative", rate=float(np.min(rate)))
    flight, steps, extra, token = _in_flight(curve, rate)
    reading, queue, load, lanes = _reading(curve, rate, flight, (steps, *extra), remote)
    reads = np.sum(flight.chance * reading, axis=-1)
    use = np.where(curve.slots < 1, np.inf, np.maximum(flight.load, load))
    use = np.where(np.isfinite(reads) & np.isfinite(curve.alone), use, np.inf)
    bad = use >= 1.0
    request = float(np.max(np.asarray(request_time(curve.engine, r.input), float)))
    under_way = np.concatenate([np.zeros_like(steps[:, :1]), steps], axis=1)
    first = FirstToken(
        chance=flight.chance,
        base=request + reading + _chosen_ahead(curve) * under_way,
        step=under_way,
        queued=queue,
        waiting=np.asarray(chance_to_wait(load, lanes)),
        slot=flight.wait,
        full=flight.full,
    )
    active = flight.mean * curve.replicas
    seen = np.where(rate > 0, active / np.maximum(rate * r.later, 1e-300), token[:, 0])
    tpot = np.where(flight.chance[..., 0] < 1.0, seen, token[:, 0])
    empty = flight.chance[..., 0]
    power = curve.spent.mean(active, np.clip(load, 0.0, 1.0), empty) if remote is None else np.nan * rate
    with np.errstate(invalid="ignore"):
        waits = first.mean - reads
    return LoadMetrics(
        rate=rate,
        ttft=np.where(bad, np.inf, waits + reads),
        tpot=np.where(bad, np.inf, tpot),
        waits=np.where(bad, np.inf, waits),
        reads=np.where(bad, np.inf, reads),
        active=active,
        utilisation=use,
        tokens_per_s=np.where(bad, 0.0, rate * r.output),
        queued=np.where(bad, np.inf, queue),
        power=power,
        dollars=dollars_per_s(curve.system, power, curve.economics),
        devices=np.full(rate.shape, curve.devices),
        first_token=first,
    )


def _chosen_ahead(curve: Curve) -> float:
    """1 where a step is chosen while the one before it runs: a request also waits for one that was chosen
    before it came.
    """
    return 1.0 if np.max(np.asarray(curve.engine.asynchronous or 0.0, float)) > 0 else 0.0


def _reading(
    curve: Curve,
    rate: Array,
    flight: SequencesInFlight,
    times: tuple[Array, Array, Array],
    remote: RemotePrefill | None,
) -> tuple[Array, Array, Array, Array]:
    """Time to read a prompt by sequences in flight 0, 1, ... (last axis) and mean wait before it [s], the
    load of the lanes that read, and how many there are. `times`: steps, and what a prompt adds to one for
    whom it is, and for all others.
    """
    variation = curve.requests.variation
    if remote is None:
        alone = np.where(np.isfinite(curve.alone), curve.alone, 0.0)
        step, own, others = times
        came = rate * curve.pieces / curve.lanes * alone
        less = np.asarray(shared_launching(alone, np.minimum(curve.launching[:, 0], alone), came))
        reading, shared = (
            curve.pieces
            * np.maximum.accumulate(np.concatenate([first[:, None], step + added], axis=1), axis=1)
            for first, added in ((alone, own), (less, others))
        )
        reads = np.sum(flight.chance * shared, axis=-1)
        waits = np.asarray(mean_wait(rate, reads, curve.lanes, variation))
        return reading, waits, rate * reads / curve.lanes, curve.lanes
    reading = np.broadcast_to((remote.time + remote.after)[:, None], flight.chance.shape)
    queue = mean_wait(rate, remote.time, remote.lanes, variation) + mean_wait(
        rate, remote.after, remote.links, variation
    )
    load = np.maximum(rate * remote.time / remote.lanes, rate * remote.after / remote.links)
    return reading, np.asarray(queue), load, remote.lanes


def _in_flight(curve: Curve, rate: Array) -> tuple[SequencesInFlight, Array, tuple[Array, Array], Array]:
    """Sequences in flight of one replica, and by their number 1, 2, ... (last axis) its steps, what a piece
    of a prompt adds to one (for its own request, and shared by those that come meanwhile), and the time
    between tokens [s]; 0, 0 and infinite beyond its slots.
    """
    room = np.where(curve.slots >= 1, np.maximum(np.floor(curve.slots / curve.replicas), 1.0), 0.0)
    number = np.arange(1.0, max(float(np.max(room)), 1.0) + 1.0)
    column = np.minimum(number * curve.replicas[:, None], curve.step.shape[-1]).astype(int) - 1
    inside = number <= room[:, None]
    step, extra, launching = (
        np.take_along_axis(v, column, axis=1) for v in (curve.step, curve.extra, curve.launching)
    )
    step = np.where(inside, step, np.inf)
    pieces = (rate * curve.pieces / curve.lanes)[:, None]
    known = np.where(np.isfinite(step), step, 0.0)
    shared = shared_launching(extra, launching, pieces * (known + extra))
    token = np.asarray(shared_step(step, shared, pieces)) / curve.gain
    token = np.maximum.accumulate(token, axis=1)
    flight = sequences_in_flight(rate / curve.replicas, token, curve.requests.later, room)
    added = tuple(np.where(np.isfinite(step), v, 0.0) for v in (extra, shared))
    return flight, known, (added[0], added[1]), token


@dataclass(frozen=True, eq=False, kw_only=True)
class _ClosedLoop:
    """Clients that each wait for their answer, [plans, clients]."""

    curve: Curve
    clients: Array

    @property
    def inside(self) -> Array:
        """Clients that have a slot."""
        return np.minimum(self.clients, np.maximum(self.curve.slots[:, None], 1.0))

    @property
    def others(self) -> Array:
        """Share of the load that a client meets: that of the others on its replica."""
        return np.maximum(self.inside - self.curve.replicas[:, None], 0.0) / self.inside

    @property
    def request(self) -> float:
        curve = self.curve
        return float(np.max(np.asarray(request_time(curve.engine, curve.requests.input), float)))

    def rate_of(self, active: Array) -> tuple[Array, Array]:
        """Requests completed with so many sequences in flight [1/s], and the step that generates [s]."""
        c = self.curve
        step = c.between(c.step, active)
        pieces = self.others * c.pieces / c.lanes[:, None]
        return _closed_rate(c, active, c.requests.later, pieces, c.gain), step

    def first_token(self, active: Array, rate: Array, step: Array, before: Any) -> FirstToken:
        """What such a client sees, after some time in which it waits for certain."""
        c, met = self.curve, active * self.others
        lanes, alone = c.lanes[:, None], c.alone[:, None]
        meets = np.minimum(met / c.replicas[:, None], 1.0)
        beside = c.pieces * np.maximum(c.between(c.step, met) + c.between(c.extra, met), alone)
        reads = (1.0 - meets) * c.pieces * alone + meets * beside
        nothing = np.zeros_like(reads)
        late = before + beside + _chosen_ahead(c) * step
        return FirstToken(
            chance=np.stack([1.0 - meets, meets], axis=-1),
            base=np.stack([before + c.pieces * alone + nothing, late], axis=-1),
            step=np.stack([nothing, step], axis=-1),
            queued=np.asarray(mean_wait(rate * self.others, reads, lanes, c.requests.variation)),
            waiting=np.asarray(chance_to_wait(rate * self.others * reads / lanes, lanes)),
            slot=nothing,
            full=nothing,
        )

    def active(self) -> Array:
        """Sequences in flight, such that they and those being read are all clients that have a slot."""
        inside = self.inside
        low, high = np.zeros_like(inside), inside + 0.0
        for _ in range(HALVINGS):
            active = 0.5 * (low + high)
            rate, step = self.rate_of(active)
            over = active + rate * self.first_token(active, rate, step, self.request).mean > inside
            low, high = np.where(over, low, active), np.where(over, active, high)
        return low


def closed_load(curve: Curve, clients: Any, rounds: float = np.inf) -> LoadMetrics:
    """A fixed number of clients, each of which sends its next request when the last is answered; [plans,
    clients].

    `rounds`: requests of each client where all of them start together, as benchmarks do: the first prompts
    wait for half of the others. Without it the start is forgotten.

    The number generating is found by halving, such that it and those being read are all clients. A client
    never waits for itself: it meets the others' share of the load (mean value analysis after Schweitzer:
    Bard, in Performance of Computer Systems (1979)). Replicas that step by themselves have an even share of
    the clients each.

    Clients are taken to be out of step. Those that all ask for the same lengths are not: they come together
    and wait for each other's prompts, which a simulation (`simulate`) shows.
    """
    clients = np.atleast_1d(np.asarray(clients, float))
    require(bool(np.all(clients >= 1)), "there must be at least one client", clients=float(np.min(clients)))
    require(rounds >= 1, "clients send at least one request each", rounds=rounds)
    out = curve.slots < 1
    # a plan that is out has no times; it is answered for as one whose times are nothing
    known = replace(
        curve, alone=np.where(out, 0.0, curve.alone), step=np.where(out[:, None], 1.0, curve.step)
    )
    loop = _ClosedLoop(curve=known, clients=clients)
    lanes, inside = curve.lanes[:, None], loop.inside
    active = loop.active()
    rate, step = loop.rate_of(active)
    start = 0.5 * np.maximum(inside - lanes, 0.0) / lanes * curve.pieces * known.alone[:, None]
    before = loop.request + (clients - inside) / rate + start / rounds
    first = loop.first_token(active, rate, step, before)
    reads = np.sum(first.chance * first.base, axis=-1) - before
    tpot = active / (rate * curve.requests.later)
    infinite = np.where(out, np.inf, 0.0)[:, None] + np.zeros_like(active)
    first = replace(first, slot=first.slot + infinite)
    busiest = np.maximum(clients / np.maximum(curve.slots, 1.0)[:, None], rate * reads / lanes)
    unused = np.maximum(1.0 - inside / curve.replicas[:, None], 0.0)  # replicas without a client
    power = curve.spent.mean(active, np.clip(rate * reads / lanes, 0.0, 1.0), unused)
    rate = np.where(out[:, None], 0.0, rate)
    return LoadMetrics(
        rate=rate,
        ttft=first.mean,
        tpot=tpot + infinite,
        waits=first.mean - reads,
        reads=reads + infinite,
        active=active,
        utilisation=np.where(out[:, None], np.inf, np.minimum(busiest, 1.0 - 1e-12)),
        tokens_per_s=rate * curve.requests.output,
        queued=first.queued + infinite,
        power=power,
        dollars=dollars_per_s(curve.system, power, curve.economics),
        devices=np.full(rate.shape, curve.devices),
        first_token=first,
    )


def most_rate(curve: Curve) -> Array:
    r"""Requests a second beyond which queues never empty [1/s].

    .. math:: X = \frac{n}{G T_n + n p \Delta_n}, \quad n = \min\left(N, \frac{G}{p}\right)

    `closed_rate` with all N slots taken; or, where it comes first, with every step reading a piece: p pieces
    of a prompt as steps of the whole engine, for G steps that generate.
    """
    steps = curve.requests.later / curve.gain
    each = np.maximum(curve.pieces / curve.lanes, 1e-12)
    active = np.minimum(np.maximum(curve.slots, 1.0), steps / each)
    with np.errstate(invalid="ignore"):
        rate = _closed_rate(curve, active, steps, curve.pieces / curve.lanes)
    return np.where((curve.slots >= 1) & np.isfinite(curve.between(curve.step, active)), rate, 0.0)


def _closed_rate(curve: Curve, active: Array, steps: Any, pieces: Array, gain: float = 1.0) -> Array:
    """`closed_rate` where prompts that come during a step share what launching them takes: the rate makes
    them come, so that it is found again with what it made.
    """
    step, extra, launching = (curve.between(v, active) for v in (curve.step, curve.extra, curve.launching))
    rate = np.asarray(closed_rate(active, step / gain, extra, steps, pieces))
    if not np.any(curve.launching > 0):
        return rate
    for _ in range(SHARINGS):
        shared = shared_launching(extra, launching, rate * pieces * (step + extra))
        rate = np.asarray(closed_rate(active, step / gain, shared, steps, pieces))
    return rate


def goodput(
    curve: Curve,
    ttft: float = np.inf,
    tpot: float = np.inf,
    remote: RemotePrefill | None = None,
    share: float | None = None,
) -> Array:
    """The largest rate of requests whose mean latencies keep the limits, for each plan [1/s]; 0 where even a
    single request does not.

    `share`: of the requests that keep the limit on time to first token, like 0.95, instead of its mean.

    Latencies grow with the rate, so that halving finds it.
    """
    require(ttft > 0 and tpot > 0, "limits on latency must be positive", ttft=ttft, tpot=tpot)
    low, high = np.zeros_like(curve.slots), most_rate(curve)
    with np.errstate(invalid="ignore", over="ignore"):
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            good = open_load(curve, middle, remote).within(ttft, tpot, share)
            low, high = np.where(good, middle, low), np.where(good, high, middle)
    return np.where(low > 1e-9 * most_rate(curve), low, 0.0)


def shortlist(curve: Curve, ttft: float = np.inf, tpot: float = np.inf, keep: int = 48) -> Curve:
    """The plans most likely to carry the highest rate under limits, best first: those whose clients complete
    most within them.

    A fixed number of clients is far quicker to answer for than arrivals at random; thousands of plans are cut
    down by it.
    """
    if len(curve.slots) <= keep:
        return curve
    most = np.maximum(curve.slots, 1.0)[:, None]
    seen = [closed_load(curve, n) for n in np.round(float(np.max(most)) ** np.linspace(0.0, 1.0, 16))]
    good = np.stack([np.where(s.within(ttft, tpot) & (s.active <= most), s.rate, 0.0)[:, 0] for s in seen])
    order = np.argsort(-(np.max(good, axis=0) + 1e-9 * most_rate(curve)), kind="stable")
    return curve.only(order[:keep])


def largest_concurrency(
    curve: Curve, ttft: float = np.inf, tpot: float = np.inf, share: float | None = None
) -> tuple[Array, LoadMetrics]:
    """The most clients at once whose latencies keep the limits and that have a slot, for each plan, and what
    they see [plans]; 0 where not even one, and what that one sees.

    Found by halving: so many keep the limits, one more does not, or has no slot.
    """
    require(ttft > 0 and tpot > 0, "limits on latency must be positive", ttft=ttft, tpot=tpot)

    def kept(clients: Array) -> Array:
        return closed_load(curve, np.maximum(clients, 1.0)[:, None]).within(ttft, tpot, share)[:, 0]

    slots = np.floor(curve.slots)
    low = np.where((slots >= 1) & kept(np.ones_like(slots)), 1.0, 0.0)
    all_ = (low > 0) & kept(slots)
    low, high = np.where(all_, slots, low), np.where(all_ | (low < 1), low + 1.0, slots)
    high = np.where(all_, slots + 1.0, high)
    while np.any(high - low > 1.0):
        middle = np.floor(0.5 * (low + high))
        good = kept(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low, closed_load(curve, np.maximum(low, 1.0)[:, None]).at(slice(None), 0)
