"""An engine under load: requests that arrive at a rate, or clients that each wait for their answer; and the
most it can take.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import require
from strata.serving.curve import Curve
from strata.serving.queueing import (
    chance_to_wait,
    closed_rate,
    mean_wait,
    sequences_in_flight,
    shared_step,
    wait_within_share,
)

# of an interval that holds the answer: a fixed number, so that a point never depends on its neighbours
HALVINGS = 32
LEVERS = ("a lower rate", "more devices", "narrower weights or kv", "larger chunks", "a plan with more slots")


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadMetrics:
    """What requests see, and what the engine delivers. Where it cannot keep up, times are infinite."""

    rate: Array  # requests completed [1/s]
    ttft: Array  # mean time to the first token, waiting included [s]
    tpot: Array  # mean time between a request's later tokens [s]
    # the part of ttft before its prompt is read: taken in, in queues, until the step under way ends [s]
    waits: Array
    reads: Array  # the part in which it is [s]
    active: Array  # mean sequences being generated
    utilisation: Array  # of whatever is nearest its limit; at 1 queues grow without end
    tokens_per_s: Array  # generated, of the whole system
    queued: Array  # the part of waits for prompts read before: the part that varies most [s]
    chance: Array  # that there are any

    def ttft_at(self, share: float) -> Array:
        """The time to first token that a share of requests does not exceed [s], for a share of at least half.

        The queue's part at that share, but not below its mean; the rest at its mean.
        """
        require(0.5 <= share < 1.0, "a share of requests lies between 0.5 and 1", share=share)
        with np.errstate(invalid="ignore"):
            late = np.maximum(wait_within_share(self.queued, self.chance, share), self.queued)
            return np.where(np.isfinite(self.ttft), self.ttft - self.queued + late, np.inf)

    @property
    def fits(self) -> Array:
        return self.utilisation < 1.0

    def at(self, *index: int) -> LoadMetrics:
        return LoadMetrics(**{f.name: np.asarray(getattr(self, f.name))[index] for f in fields(self)})

    def within(self, ttft: float, tpot: float, share: float | None = None) -> Array:
        """Where both limits are kept: on average, or of time to first token by a share of all requests."""
        with np.errstate(invalid="ignore"):
            return (
                self.fits
                & ((self.ttft if share is None else self.ttft_at(share)) <= ttft)
                & (self.tpot <= tpot)
            )


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
    (Wolff, Oper. Res. 30 (1982) 223).
    """
    r = curve.requests
    rate = np.broadcast_to(np.asarray(rate, float), curve.slots.shape)
    require(bool(np.all(rate >= 0)), "a rate of requests must not be negative", rate=float(np.min(rate)))
    pieces = rate * curve.pieces / curve.lanes
    token = np.asarray(shared_step(curve.step, curve.extra, pieces[:, None])) / curve.gain
    flight = sequences_in_flight(rate, token, r.later, curve.slots)
    idle, steps = flight.chance[..., 0], np.where(np.isfinite(curve.step), curve.step, 0.0)
    if remote is None:
        each = np.concatenate(
            [curve.alone[:, None], steps + np.where(np.isfinite(curve.extra), curve.extra, 0.0)], axis=1
        )
        reads = curve.pieces * np.sum(flight.chance * each, axis=-1)
        under_way = 0.5 * np.sum(flight.chance[..., 1:] * steps, axis=-1)
        queue = mean_wait(rate, reads, curve.lanes, r.variation)
        load = rate * reads / curve.lanes
    else:
        reads = remote.time + remote.after
        under_way = 0.5 * np.sum(flight.chance[..., 1:] * steps, axis=-1)
        queue = mean_wait(rate, remote.time, remote.lanes, r.variation) + mean_wait(
            rate, remote.after, remote.links, r.variation
        )
        load = np.maximum(rate * remote.time / remote.lanes, rate * remote.after / remote.links)
    lanes = curve.lanes if remote is None else remote.lanes
    out = curve.slots < 1
    use = np.where(out, np.inf, np.maximum(flight.load, load))
    use = np.where(np.isfinite(reads), use, np.inf)
    bad = use >= 1.0
    waits = curve.engine.request + queue + flight.wait + under_way
    busy = np.where(idle < 1.0, flight.mean / np.maximum(rate * r.later, 1e-300), token[:, 0])
    tpot = np.where(rate > 0, busy, token[:, 0])
    return LoadMetrics(
        rate=rate,
        ttft=np.where(bad, np.inf, waits + reads),
        tpot=np.where(bad, np.inf, tpot),
        waits=np.where(bad, np.inf, waits),
        reads=np.where(bad, np.inf, reads),
        active=flight.mean,
        utilisation=use,
        tokens_per_s=np.where(bad, 0.0, rate * r.output),
        queued=np.where(bad, np.inf, queue),
        chance=np.asarray(chance_to_wait(load, lanes)),
    )


def closed_load(curve: Curve, clients: Any, rounds: float = np.inf) -> LoadMetrics:
    """A fixed number of clients, each of which sends its next request when the last is answered; [plans,
    clients].

    `rounds`: requests of each client where all of them start together, as benchmarks do: the first prompts
    wait for half of the others. Without it the start is forgotten.

    The number generating is found by halving, such that it and those being read are all clients. A client
    never waits for itself: it meets the others' share of the load (mean value analysis after Schweitzer:
    Bard, in Performance of Computer Systems (1979)).
    """
    r = curve.requests
    clients = np.atleast_1d(np.asarray(clients, float))
    require(bool(np.all(clients >= 1)), "there must be at least one client", clients=float(np.min(clients)))
    require(rounds >= 1, "clients send at least one request each", rounds=rounds)
    slots = curve.slots[:, None]
    inside = np.minimum(clients, np.maximum(slots, 1.0))
    others = (inside - 1.0) / inside
    lanes, alone = curve.lanes[:, None], curve.alone[:, None]

    def with_active(active: Array) -> tuple[Array, Array, Array, Array]:
        met = active * others
        step, extra = (curve.between(v, active) for v in (curve.step, curve.extra))
        busy = curve.between(curve.step, met) + curve.between(curve.extra, met)
        reads = curve.pieces * (alone + np.minimum(met, 1.0) * (busy - alone))
        pieces = others * curve.pieces / lanes
        rate = np.asarray(closed_rate(active, step / curve.gain, extra, r.later, pieces))
        queued = np.asarray(mean_wait(rate * others, reads, lanes, r.variation))
        return rate, queued, curve.engine.request + queued + 0.5 * step * np.minimum(met, 1.0), reads

    low, high = np.zeros(np.broadcast_shapes(slots.shape, clients.shape)), inside + 0.0 * slots
    with np.errstate(invalid="ignore", divide="ignore"):
        for _ in range(HALVINGS):
            active = 0.5 * (low + high)
            rate, _, waits, reads = with_active(active)
            over = active + rate * (waits + reads) > inside
            low, high = np.where(over, low, active), np.where(over, active, high)
        rate, queued, waits, reads = with_active(low)
        start = 0.5 * np.maximum(inside - lanes, 0.0) / lanes * curve.pieces * alone
        waits = waits + (clients - inside) / rate + start / rounds
        chance = np.asarray(chance_to_wait(rate * others * reads / lanes, lanes))
        tpot = low / (rate * r.later)
    out = np.broadcast_to(slots < 1, low.shape)
    infinite = np.where(out, np.inf, 0.0)
    busiest = np.maximum(clients / np.maximum(slots, 1.0), rate * reads / lanes)
    use = np.where(out, np.inf, np.minimum(busiest, 1.0 - 1e-12))
    waits, reads, tpot, queued = (np.where(out, 0.0, v) + infinite for v in (waits, reads, tpot, queued))
    rate = np.where(out, 0.0, rate)
    return LoadMetrics(
        rate=rate,
        ttft=waits + reads,
        tpot=tpot,
        waits=waits,
        reads=reads,
        active=low,
        utilisation=use,
        tokens_per_s=rate * r.output,
        queued=queued,
        chance=chance,
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
    step, extra = (curve.between(v, active) for v in (curve.step, curve.extra))
    with np.errstate(invalid="ignore"):
        rate = closed_rate(active, step, extra, steps, curve.pieces / curve.lanes)
    return np.where((curve.slots >= 1) & np.isfinite(step), rate, 0.0)


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
    """The most clients at once whose latencies keep the limits, for each plan, and what they see; 0 where not
    even one.
    """
    clients = np.arange(1.0, max(float(np.max(curve.slots)), 1.0) + 1.0)
    seen = closed_load(curve, clients)
    good = seen.within(ttft, tpot, share) & (clients <= curve.slots[:, None])
    return np.max(np.where(good, clients, 0.0), axis=1), seen
