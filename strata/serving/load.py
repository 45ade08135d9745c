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
from strata.serving.first_token import FirstToken
from strata.serving.queueing import (
    SequencesInFlight,
    chance_to_wait,
    closed_rate,
    mean_wait,
    sequences_in_flight,
    shared_step,
)
from strata.serving.steps import dollars_per_s

# of an interval that holds the answer: a fixed number, so that a point never depends on its neighbours
HALVINGS = 32
LEVERS = ("a lower rate", "more devices", "narrower weights or kv", "larger chunks", "a plan with more slots")


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadMetrics:
    """What requests see, and what the engine delivers and spends. Where it cannot keep up, times are infinite.

    The numbers of `strata plan` and of `strata serving`.
    """

    rate: Array  # requests completed [1/s]
    ttft: Array  # mean time to the first token, waiting included [s]
    tpot: Array  # mean time between a request's later tokens [s]
    # the part of ttft before its prompt is read: taken in, in queues, until the step under way ends [s]
    waits: Array
    reads: Array  # the part in which it is [s]
    active: Array  # mean sequences being generated
    utilisation: Array  # of whatever is nearest its limit; at 1 queues grow without end
    tokens_per_s: Array  # generated, of the whole system
    queued: Array  # the part of waits for prompts read before [s]
    power: Array  # of the whole system, hosts included [W]; nan where prompts are read elsewhere
    dollars: Array  # what that costs [USD/s]; nan where the chip has no price
    devices: Array
    first_token: FirstToken  # the distribution behind ttft

    def ttft_at(self, share: float) -> Array:
        """The time to first token that a share of requests does not exceed [s], for a share of at least
        half.
        """
        return np.where(np.isfinite(self.ttft), self.first_token.within_share(share), np.inf)

    @property
    def ttft_p95(self) -> Array:
        """The 95th percentile of the time to first token [s]."""
        return self.ttft_at(0.95)

    @property
    def energy_per_mtoken(self) -> Array:
        """Energy of a million generated tokens [J]."""
        return self._per_mtoken(self.power)

    @property
    def cost_per_mtoken(self) -> Array:
        """Cost of a million generated tokens [USD]."""
        return self._per_mtoken(self.dollars)

    @property
    def cost_per_device_hour(self) -> Array:
        """What a device costs for an hour, with its share of links and hosts, and its electricity [USD]."""
        return self.dollars * 3600.0 / self.devices

    def _per_mtoken(self, spent: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.tokens_per_s > 0, spent / self.tokens_per_s * 1e6, np.inf)

    @property
    def fits(self) -> Array:
        return self.utilisation < 1.0

    def at(self, *index: Any) -> LoadMetrics:
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        first: FirstToken = parts.pop("first_token")
        cut = {name: np.asarray(value)[index] for name, value in parts.items()}
        return LoadMetrics(**cut, first_token=first.at(*index))

    def within(self, ttft: float, tpot: float, share: float | None = None) -> Array:
        """Where both limits are kept: on average, or of time to first token by a share of all requests."""
        with np.errstate(invalid="ignore"):
            early = self.ttft <= ttft if share is None else self.first_token.keeps(ttft, share)
            return self.fits & early & (self.tpot <= tpot)


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
    """
    r = curve.requests
    rate = np.broadcast_to(np.asarray(rate, float), curve.slots.shape)
    require(bool(np.all(rate >= 0)), "a rate of requests must not be negative", rate=float(np.min(rate)))
    flight, steps, busy, token = _in_flight(curve, rate)
    none = np.zeros_like(steps[:, :1])
    under_way = np.concatenate([none, steps], axis=1)
    if remote is None:
        alone = np.where(np.isfinite(curve.alone), curve.alone, 0.0)
        each = np.concatenate([alone[:, None], busy], axis=1)
        reading = curve.pieces * np.maximum.accumulate(each, axis=1)
        reads = np.sum(flight.chance * reading, axis=-1)
        lanes = curve.lanes
        queue = mean_wait(rate, reads, lanes, r.variation)
        load = rate * reads / lanes
    else:
        reads, lanes = remote.time + remote.after, remote.lanes
        reading = np.broadcast_to(reads[:, None], under_way.shape)
        queue = mean_wait(rate, remote.time, lanes, r.variation) + mean_wait(
            rate, remote.after, remote.links, r.variation
        )
        load = np.maximum(rate * remote.time / lanes, rate * remote.after / remote.links)
    use = np.where(curve.slots < 1, np.inf, np.maximum(flight.load, load))
    use = np.where(np.isfinite(reads) & np.isfinite(curve.alone), use, np.inf)
    bad = use >= 1.0
    request = float(np.max(np.asarray(curve.engine.request, float)))
    first = FirstToken(
        chance=flight.chance,
        base=request + reading,
        step=under_way,
        queued=np.asarray(queue),
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


def _in_flight(curve: Curve, rate: Array) -> tuple[SequencesInFlight, Array, Array, Array]:
    """Sequences in flight of one replica, and by their number 1, 2, ... (last axis) its steps, those that
    also read, and the time between tokens [s]; 0, 0 and infinite beyond its slots.
    """
    room = np.where(curve.slots >= 1, np.maximum(np.floor(curve.slots / curve.replicas), 1.0), 0.0)
    number = np.arange(1.0, max(float(np.max(room)), 1.0) + 1.0)
    column = np.minimum(number * curve.replicas[:, None], curve.step.shape[-1]).astype(int) - 1
    inside = number <= room[:, None]
    step, extra = (np.take_along_axis(v, column, axis=1) for v in (curve.step, curve.extra))
    step = np.where(inside, step, np.inf)
    pieces = (rate * curve.pieces / curve.lanes)[:, None]
    token = np.asarray(shared_step(step, extra, pieces)) / curve.gain
    token = np.maximum.accumulate(token, axis=1)
    flight = sequences_in_flight(rate / curve.replicas, token, curve.requests.later, room)
    known = np.where(np.isfinite(step), step, 0.0)
    return flight, known, np.where(np.isfinite(step), step + extra, 0.0), token


def closed_load(curve: Curve, clients: Any, rounds: float = np.inf) -> LoadMetrics:
    """A fixed number of clients, each of which sends its next request when the last is answered; [plans,
    clients].

    `rounds`: requests of each client where all of them start together, as benchmarks do: the first prompts
    wait for half of the others. Without it the start is forgotten.

    The number generating is found by halving, such that it and those being read are all clients. A client
    never waits for itself: it meets the others' share of the load (mean value analysis after Schweitzer:
    Bard, in Performance of Computer Systems (1979)). Replicas that step by themselves have an even share of
    the clients each.
    """
    r = curve.requests
    clients = np.atleast_1d(np.asarray(clients, float))
    require(bool(np.all(clients >= 1)), "there must be at least one client", clients=float(np.min(clients)))
    require(rounds >= 1, "clients send at least one request each", rounds=rounds)
    slots, replicas = curve.slots[:, None], curve.replicas[:, None]
    inside = np.minimum(clients, np.maximum(slots, 1.0))
    others = np.maximum(inside - replicas, 0.0) / inside
    lanes, alone = curve.lanes[:, None], curve.alone[:, None]
    request = float(np.max(np.asarray(curve.engine.request, float)))

    def with_active(active: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
        """Rate, step, the chance to meet others, time to read beside them, mean time to read, in queues."""
        met = active * others
        step, extra = (curve.between(v, active) for v in (curve.step, curve.extra))
        busy = np.maximum(curve.between(curve.step, met) + curve.between(curve.extra, met), alone)
        meets = np.minimum(met / replicas, 1.0)
        reads = curve.pieces * (alone + meets * (busy - alone))
        pieces = others * curve.pieces / lanes
        rate = np.asarray(closed_rate(active, step / curve.gain, extra, r.later, pieces))
        queued = np.asarray(mean_wait(rate * others, reads, lanes, r.variation))
        return rate, step, meets, curve.pieces * busy, reads, queued

    low, high = np.zeros(np.broadcast_shapes(slots.shape, clients.shape)), inside + 0.0 * slots
    with np.errstate(invalid="ignore", divide="ignore"):
        for _ in range(HALVINGS):
            active = 0.5 * (low + high)
            rate, step, meets, _, reads, queued = with_active(active)
            over = active + rate * (request + queued + 0.5 * step * meets + reads) > inside
            low, high = np.where(over, low, active), np.where(over, active, high)
        rate, step, meets, beside, reads, queued = with_active(low)
        start = 0.5 * np.maximum(inside - lanes, 0.0) / lanes * curve.pieces * alone
        before = request + (clients - inside) / rate + start / rounds
        tpot = low / (rate * r.later)
    out = np.broadcast_to(slots < 1, low.shape)
    infinite = np.where(out, np.inf, 0.0)
    busiest = np.maximum(clients / np.maximum(slots, 1.0), rate * reads / lanes)
    use = np.where(out, np.inf, np.minimum(busiest, 1.0 - 1e-12))
    queued, before, step, reads, tpot, rate, meets = (
        np.where(out, 0.0, v) + 0.0 * low for v in (queued, before, step, reads, tpot, rate, meets)
    )
    beside, plain = np.where(out, 0.0, beside), np.where(out, 0.0, curve.pieces * alone)
    first = FirstToken(
        chance=np.stack([1.0 - meets, meets], axis=-1),
        base=np.stack([before + plain, before + beside], axis=-1) + infinite[..., None],
        step=np.stack([np.zeros_like(step), step], axis=-1),
        queued=queued,
        waiting=np.asarray(chance_to_wait(rate * others * reads / lanes, lanes)) + 0.0 * low,
        slot=np.zeros_like(low),
        full=np.zeros_like(low),
    )
    waits = queued + before + 0.5 * step * meets + infinite
    reading = np.clip(rate * reads / lanes, 0.0, 1.0)
    unused = np.maximum(1.0 - inside / replicas, 0.0) + 0.0 * low  # replicas without a client
    power = curve.spent.mean(low, reading, unused)
    return LoadMetrics(
        rate=rate,
        ttft=waits + reads,
        tpot=tpot + infinite,
        waits=waits,
        reads=reads + infinite,
        active=low,
        utilisation=use,
        tokens_per_s=rate * r.output,
        queued=queued + infinite,
        power=power,
        dollars=dollars_per_s(curve.system, power, curve.economics),
        devices=np.full(low.shape, curve.devices),
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
