"""An engine under load: requests that arrive at a rate, or clients that each wait for their answer; and the
most it can take.

Both are mean values over the engine's steps (`cycle`): a rate is that of so many sequences in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import require
from strata.serving.curve import Curve
from strata.serving.cycle import EngineSteps, engine_number, engine_steps, held_steps, outside_steps
from strata.serving.load_metrics import FirstToken, LoadMetrics
from strata.serving.queueing import chance_to_wait, in_turn, mean_wait
from strata.serving.steps import dollars_per_s

# of an interval that holds the answer: a fixed number, so that a point never depends on its neighbours
HALVINGS = 32
LOOKS = 48  # numbers at which limits are looked at before that
# of the slots in flight; of waves of prompts, from where both ways of reading meet; of prompts in a step
FULL, EVEN, OFTEN = 0.9, 0.25, 0.75
TOGETHER = (16.0, 4.0)  # ranks: that read by themselves, or beside those that generate
NO_SLOTS = "closed form refuses: more than 90 % of the slots in flight"
TOKENIZED = "closed form refuses: clients' prompts are tokenised later than they are read"
MANY_RANKS = "closed form refuses: clients of many attention ranks that step together"
GATHERED = "closed form refuses: attention ranks wait for prompts that come in most steps"
FEW_WAVES = "closed form refuses: clients' prompts are read about as fast as their requests end"
LEVERS = ("a lower rate", "more devices", "narrower weights or kv", "larger chunks", "a plan with more slots")


@dataclass(frozen=True, eq=False, kw_only=True)
class RemotePrefill:
    """Prompts read elsewhere: time of one [s], how many at once, what follows before its tokens go on [s]."""

    time: Array
    lanes: Array
    after: Array
    links: Array  # how many may be on their way at once

    def load(self, rate: Array) -> Array:
        """Of the fuller of both."""
        return np.maximum(rate * self.time / self.lanes, rate * self.after / self.links)


def _first_token(s: EngineSteps, rate: Array, present: Array) -> tuple[FirstToken, Array]:
    """What a request that arrives at random sees, and the part in which its prompt is read [s]. `present`:
    requests of a replica, on average.

    It finds no other; or a step under way that generates or reads, as time goes to them, and after it one
    that was chosen before it came, as often as there are such steps.
    """
    c, ranks, nothing = s.curve, s.ranks, np.zeros_like(rate)
    pieces, room, replicas = c.between(c.pieces, s.active), s.room, c.replicas[:, None]
    least = np.where(s.together > 1.0 + s.pieces, s.together, 1.0)  # read together where they wait for it
    empty, waits, prompts = np.exp(-present), held_steps(c), s.pieces / pieces
    with np.errstate(divide="ignore", invalid="ignore"):
        gathered = ranks / (2.0 * prompts)
        expired = (waits + 0.5 * prompts * waits**2) / (1.0 + prompts * waits)
    held = np.where(waits > 0, np.fmin(gathered, expired), 0.0)
    held = (held + 0.5 * (engine_number(c.engine.recv_interval) - 1.0)) * s.mean
    each = rate / replicas
    tokenised = mean_wait(each, outside_steps(c) - engine_number(c.engine.frontend_latency), 1.0)
    outside, ahead = outside_steps(c) + np.asarray(tokenised), float(np.any(c.engine.async_scheduling))
    states = [(empty, outside + c.unloaded, nothing)]  # chance, time but the step under way, and that step
    reads = empty * c.unloaded
    for share, length in ((1.0 - s.share, s.generating), (s.share, s.reading)):
        chance = (1.0 - empty) * share * length / s.mean
        length = np.where(share > 0, s.biased if length is s.reading else length, 0.0)
        came = np.maximum(1.0 + np.asarray(in_turn(s.pieces * length / s.mean, replicas)), least)
        own = s.read_time(np.minimum(came, room)) + (pieces - 1.0) * s.reading
        reads = reads + chance * own
        for often, after in ((1.0 - s.share, s.generating), (s.share, s.reading)):
            states.append((chance * often, outside + held + own + ahead * after, length))
    queue = (1.0 - empty) * mean_wait(each, pieces * s.full, room, c.requests.variation)
    first = FirstToken(
        chance=np.stack([chance + nothing for chance, _, _ in states], axis=-1),
        base=np.stack([base + nothing for _, base, _ in states], axis=-1),
        step=np.stack([step + nothing for _, _, step in states], axis=-1),
        queued=np.asarray(queue),
        waiting=np.asarray(chance_to_wait(each * pieces * s.full / room, room)),
        slot=nothing,
        full=nothing,
    )
    return first, reads


def _open_at(curve: Curve, active: Array, remote: RemotePrefill | None = None) -> LoadMetrics:
    """Requests arriving at random with so many sequences in flight, [plans, loads]."""
    c, r = curve, curve.requests
    s = _open_steps(c, active)
    rate = active / (r.later * s.tpot)
    each = rate / c.replicas[:, None]
    if remote is None:
        first, reads = _first_token(s, rate, active / c.replicas[:, None])
    else:
        first, reads = _sent_token(c, rate, remote)
    slots = np.maximum(c.slots / c.replicas, 1.0)[:, None]
    held, gathers = r.later * s.tpot, (held_steps(c) > 0) & (s.pieces > OFTEN)
    first = replace(
        first,
        slot=np.asarray(mean_wait(each, held, slots)),
        full=np.asarray(chance_to_wait(each * held / slots, slots)),
    )
    return _metrics(
        c,
        rate,
        active,
        first,
        tpot=s.tpot,
        reads=reads,
        share=s.share * s.reading / s.mean,
        empty=np.exp(-active / c.replicas[:, None]),
        refusal=np.where(active > FULL * c.slots[:, None], NO_SLOTS, np.where(gathers, GATHERED, "")),
    )


def _sent_token(c: Curve, rate: Array, remote: RemotePrefill) -> tuple[FirstToken, Array]:
    """Of prompts that are read elsewhere and sent."""
    time, lanes, after, links = (v[:, None] for v in (remote.time, remote.lanes, remote.after, remote.links))
    variation = c.requests.variation
    queue = mean_wait(rate, time, lanes, variation) + mean_wait(rate, after, links, variation)
    use = np.maximum(rate * time / lanes, rate * after / links)
    together = np.minimum(rate * time / lanes, 1.0)  # others that came while it waited end with it
    reads = time * (1.0 + 0.5 * together**2) + after + np.zeros_like(rate)
    outside = outside_steps(c) + engine_number(c.engine.frontend_latency)  # of both pools
    chance = np.asarray(chance_to_wait(use, lanes))
    return FirstToken.certain(outside + reads, queued=np.asarray(queue), waiting=chance), reads


def _metrics(
    c: Curve,
    rate: Array,
    active: Array,
    first: FirstToken,
    *,
    tpot: Array,
    reads: Array,
    share: Array,
    empty: Array,
    refusal: Array,
) -> LoadMetrics:
    """`share`: of the time in steps that read; `empty`: of it without a request."""
    out = (c.slots < 1)[:, None] | (active > c.slots[:, None] * (1.0 + 1e-9))
    infinite = np.where(out, np.inf, 0.0)
    power = c.spent.mean(active, np.clip(share, 0.0, 1.0), empty) + c.idle_power[:, None]
    power = power if c.reads else np.nan * power
    rate = np.where((c.slots < 1)[:, None], 0.0, rate)
    return LoadMetrics(
        rate=rate,
        ttft=first.mean + infinite,
        tpot=tpot + infinite,
        waits=first.mean - reads + infinite,
        reads=reads + infinite,
        active=active,
        utilisation=np.where(
            out, np.inf, np.minimum(active / np.maximum(c.slots[:, None], 1.0), 1.0 - 1e-12)
        ),
        tokens_per_s=np.where(out, 0.0, rate * c.requests.output),
        queued=first.queued + infinite,
        power=power,
        dollars=dollars_per_s(c.within or c.system, power, c.economics),
        devices=np.full(rate.shape, c.devices),
        first_token=first,
        refusal=np.broadcast_to(np.where(out, "", refusal), rate.shape),
    )


def open_load(curve: Curve, rate: Any, remote: RemotePrefill | None = None) -> LoadMetrics:
    """Requests arriving at random (Poisson) at a rate [1/s], one for all plans or one for each.

    A request waits for the step under way, for one that was chosen before it came, for prompts before it that
    fill steps, and is then read together with those that came meanwhile; the engine's steps are those of so
    many sequences in flight as complete the rate. Replicas that step by themselves have an even share of
    arrivals each.

    It is compared with a simulation of every request in `tests/serving/test_closed_form.py`. It cannot hold
    for bursts, lengths that vary widely, preemption and shared prefixes; where nearly all slots are in flight
    it says so (`refusal`).
    """
    rate = np.broadcast_to(np.asarray(rate, float), curve.slots.shape)
    require(bool(np.all(rate >= 0)), "a rate of requests must not be negative", rate=float(np.min(rate)))
    most, highest = _most(curve)
    low, high = np.zeros_like(most), most + 0.0
    for _ in range(HALVINGS + 8):
        middle = 0.5 * (low + high)
        less = _rate(curve, middle[:, None])[:, 0] < rate
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    seen = _open_at(curve, high[:, None], remote).at(slice(None), 0)
    use = np.maximum(rate / np.maximum(highest, 1e-300), remote.load(rate) if remote else 0.0)
    use = np.where((use < 1.0 + 1e-9) & np.isfinite(seen.ttft), np.minimum(use, 1.0 - 1e-12), np.inf)
    late: dict[str, Any] = {
        name: np.where(use < 1.0, getattr(seen, name), np.inf) for name in ("ttft", "tpot", "waits", "reads")
    }
    return replace(
        seen,
        rate=rate,
        utilisation=use,
        tokens_per_s=np.where(use < 1.0, rate * curve.requests.output, 0.0),
        **late,
    )


def _rate(c: Curve, active: Array) -> Array:
    """Requests that so many sequences in flight complete [1/s]."""
    return active / (c.requests.later * _open_steps(c, active).tpot)


def _open_steps(c: Curve, active: Array) -> EngineSteps:
    """Steps where a request finds so many others in flight, and is one more."""
    present = np.minimum(active + c.replicas[:, None], np.maximum(c.slots, 1.0)[:, None])
    return engine_steps(c, present, active * c.gain / c.requests.later)


def _most(curve: Curve) -> tuple[Array, Array]:
    """Sequences in flight at which most requests are completed and their prompts read; how many [1/s]."""
    shares = np.geomspace(1e-2, 1.0, LOOKS // 2)
    active = np.maximum(curve.slots, 1.0)[:, None] * shares
    s = _open_steps(curve, active)
    rate = active / (curve.requests.later * s.tpot)
    pieces = rate * curve.between(curve.pieces, s.active) / curve.replicas[:, None]
    rate = np.where(pieces * s.full <= s.room, rate, 0.0)
    best = np.argmax(rate, axis=1)
    rows = np.arange(len(best))
    return active[rows, best], np.where(curve.slots >= 1, rate[rows, best], 0.0)


def most_rate(curve: Curve) -> Array:
    """Requests a second beyond which queues never empty [1/s]."""
    return _most(curve)[1]


def closed_load(curve: Curve, clients: Any) -> LoadMetrics:
    """A fixed number of clients, each of which sends its next request when the last is answered; [plans,
    clients].

    Clients that all ask for the same lengths come together: those that are read in one step end in one step.
    Where the engine reads prompts first, or reads all before the next come, it reads them one step after the
    other and then generates for all. Else steps that read follow each other while requests end one step after
    the other: a client waits for those that ended while its own request was on its way.
    """
    clients = np.atleast_1d(np.asarray(clients, float))
    require(bool(np.all(clients >= 1)), "there must be at least one client", clients=float(np.min(clients)))
    c, r = curve, curve.requests
    replicas, inside = c.replicas[:, None], np.minimum(clients, np.maximum(c.slots, 1.0)[:, None])
    each = np.maximum(inside / replicas, 1.0)  # clients of a replica that has any
    s = engine_steps(c, each * replicas, 0.0 * each)
    pieces, room = c.between(c.pieces, s.active), s.room
    rest = (each - 1.0) / each  # of the clients, all but the one that comes first
    together = np.clip(each - 1.0, 1.0, room)
    waves = (each - 1.0) * pieces / together
    reading, outside = s.read_time(together, evenly=True), outside_steps(c)
    ahead = 1.0 if engine_number(c.engine.async_scheduling) > 0 else 0.0
    # steps until a request that ends is followed by a prompt: whole ones, of which some are under way
    meanwhile = outside / s.generating + ahead + 0.25
    before = 0.5 * np.maximum(waves - 1.0, 0.0)
    apart = c.mixed & (before > meanwhile)
    before = np.where(apart, meanwhile + pieces - 1.0, before)
    alone = c.unloaded + 0.0 * each
    held = np.where((each > 1.0) & (each <= s.ranks), held_steps(c), 0.0) * c.step[:, :1]
    first = np.where(apart, 0.0, outside + alone) + rest * held
    first = np.where(pieces > 0, first + rest * reading, 0.0)
    later = np.maximum(waves - 1.0 - before, 0.0) * (reading - s.generating if c.mixed else reading)
    tpot = s.generating / c.gain + later / r.later
    ttft = first + rest * before * reading
    rate = inside / (ttft + r.later * tpot)
    slot = (clients - inside) / rate
    share = np.clip(rate / replicas * pieces / together * reading, 0.0, 1.0)
    first_token = FirstToken.certain(first + slot, step=2.0 * rest * before * reading)
    active = rate * r.later * tpot
    reads = np.where(pieces > 0, np.where(apart, reading, alone), 0.0) * np.ones_like(rate)
    told = {"tpot": tpot, "reads": reads, "share": share, "empty": np.maximum(1.0 - inside / replicas, 0.0)}
    refusal = _closed_refusal(c, each, waves, reading, meanwhile)
    return _metrics(c, rate, active, first_token, refusal=refusal, **told)


def _closed_refusal(c: Curve, each: Array, waves: Array, reading: Array, meanwhile: Array) -> Array:
    """Why clients in step are not answered for: `waves` of prompts, `meanwhile` steps that they miss."""
    before = 0.5 * (waves - 1.0)
    waits = each * c.requests.input * engine_number(c.engine.tokenize) > 0.5 * waves * reading
    waits = waits & (each > 1.0) & ~(c.mixed & (before > meanwhile))
    even = c.mixed & (np.abs(before / meanwhile - 1.0) < EVEN)
    refusal = np.where(even, FEW_WAVES, np.where(waits, TOKENIZED, ""))
    ranks = (c.lanes / c.replicas)[:, None]
    refusal = np.where((ranks > TOGETHER[c.mixed]) & (each > 1.0), MANY_RANKS, refusal)
    room = (c.slots < c.allowed)[:, None] & (each * c.replicas[:, None] > FULL * c.slots[:, None])
    return np.where(room, NO_SLOTS, refusal)


def goodput(
    curve: Curve,
    ttft: float = np.inf,
    tpot: float = np.inf,
    remote: RemotePrefill | None = None,
    share: float | None = None,
) -> Array:
    """The largest rate of requests whose mean latencies keep the limits, for each plan [1/s]; 0 where none
    does.

    `share`: of the requests that keep the limit on time to first token, like 0.95, instead of its mean.

    Looked for among some numbers of sequences in flight, then by halving between the last that keeps them and
    the next: prompts that wait for others make the first tokens of a light load late, too.
    """
    require(ttft > 0 and tpot > 0, "limits on latency must be positive", ttft=ttft, tpot=tpot)

    def kept(active: Array) -> Array:
        return _open_at(curve, active, remote).within(ttft, tpot, share)

    low, _ = _largest(kept, _most(curve)[0][:, None] * np.geomspace(1e-4, 1.0, LOOKS), HALVINGS)
    return np.where(low > 0, _open_at(curve, np.maximum(low, 1e-9)[:, None], remote).rate[:, 0], 0.0)


def _largest(kept: Callable[[Array], Array], tried: Array, halvings: int) -> tuple[Array, Array]:
    """The largest of growing numbers [plans, numbers] that is kept, by halving, and the least that is not."""
    good = kept(tried)
    last = tried.shape[1] - 1 - np.argmax(good[:, ::-1], axis=1)
    rows, none = np.arange(len(tried)), ~good.any(axis=1)
    low = np.where(none, 0.0, tried[rows, last])
    high = np.where(none, tried[:, 0], tried[rows, np.minimum(last + 1, tried.shape[1] - 1)])
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        good = kept(np.maximum(middle, 1e-12)[:, None])[:, 0] & (high > low)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low, high


def largest_concurrency(
    curve: Curve, ttft: float = np.inf, tpot: float = np.inf, share: float | None = None
) -> tuple[Array, LoadMetrics]:
    """The most clients at once whose latencies keep the limits and that have a slot, for each plan, and what
    they see [plans]; 0 where not even one, and what that one sees.
    """
    require(ttft > 0 and tpot > 0, "limits on latency must be positive", ttft=ttft, tpot=tpot)
    slots = np.floor(curve.slots)[:, None]

    def kept(clients: Array) -> Array:
        return closed_load(curve, np.maximum(np.floor(clients), 1.0)).within(ttft, tpot, share) & (slots >= 1)

    tried = np.floor(np.maximum(slots, 1.0) ** np.linspace(0.0, 1.0, LOOKS) + 1e-9)
    most, _ = _largest(kept, tried, HALVINGS)
    most = np.floor(most)
    return most, closed_load(curve, np.maximum(most, 1.0)[:, None]).at(slice(None), 0)
