"""Prefill and decode on devices of their own: two pools, caches sent between them, the best split.

Also the same devices under a cap of power, and what caps they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number
from strata.base.errors import BadValue, require
from strata.evaluate import evaluate
from strata.hardware.chip import Chip
from strata.hardware.fabric import sized
from strata.hardware.part_of_domain import even_counts
from strata.hardware.system import System
from strata.mapping.plan import Plan
from strata.mapping.plans import plans
from strata.pricing.network.collective_cost import collective
from strata.pricing.power_limits import static_power_of
from strata.serving.curve import Curve, as_many, curve
from strata.serving.load import RemotePrefill, goodput, most_rate, open_load
from strata.serving.load_metrics import LoadMetrics
from strata.serving.queueing import mean_wait
from strata.serving.requests import Requests
from strata.software.engine import USUAL_SERVER, Engine, as_engine
from strata.workload.model import Model
from strata.workload.tasks import decode, prefill

TRIED = 4  # plans of each pool that are tried with each other, best first
CAP_SHARES = np.linspace(0.4, 1.0, 13)  # of the chip's own limit, where no caps are told
MOST_CAPS = 1000


def cache_bytes(model: Model, tokens: Number) -> Number:
    r"""Keys and values of a sequence in all layers, and states of those that keep one [B].

    .. math:: K = \sum_\ell h_\ell \, n_\ell \, w_\ell \, b + s_\ell

    tokens h that layer ℓ keeps (all, or its window), its kv heads n, elements w of one, b bytes each; its
    state s, whatever the tokens.

    >>> from strata.workload.model import model
    >>> # 32 layers x 8 heads x 2 x 128 elements x 2 bytes = 131 kB a token
    >>> float(cache_bytes(model("llama-3-8b"), 1000.0)) / 1e6
    131.072
    """
    graph = model.trace(decode(1.0, tokens))
    held = ((b, op.cache_bytes(1.0), op.state_bytes()) for b, op in graph.ops())
    return sum((b.count * (cached if state is None else cached + state) for b, cached, state in held), 0.0)


def pool_sizes(system: System) -> list[int]:
    """Devices a pool may have such that it and the rest fill the fabric's inner dimensions evenly."""
    total = int(float(system.devices))
    return [n for n in range(1, total) if _shape(system, n) and _shape(system, total - n)]


def used_counts(system: System) -> list[int]:
    """Numbers of devices worth using, where the others stay idle: all, and those that experts and heads
    divide into better.

    >>> from strata.hardware.system import system
    >>> [used_counts(system(name)) for name in ("gb200-nvl72", "2x72xgb200", "7xh200", "8xh200")]
    [[72, 64], [144, 128], [7, 6, 4], [8]]
    """
    total, *fewer = even_counts(int(float(system.devices)))
    return [total, *(n for n in fewer if _part_shape(system, n))]


def plan_part(system: System, plan: Plan) -> System:
    """The devices that a plan takes: a system, or as many of it; with more than it has, itself."""
    devices = int(float(np.max(np.asarray(plan.devices))))
    return system if devices >= float(system.devices) else pool(system, devices)


def _part_shape(system: System, devices: int) -> tuple[float, ...]:
    """As `_shape`; else of an equal part of every inner dimension."""
    inner, *outer = (float(d.size or 1) for d in system.fabric.dimension)
    each = devices / float(np.prod(outer))
    return _shape(system, devices) or ((each, *outer) if each % 1 == 0 and 1 <= each <= inner else ())


def _shape(system: System, devices: int) -> tuple[float, ...]:
    """Sizes of the fabric's dimensions that hold so many devices, innermost first; () where none do."""
    sizes, rest = [], devices
    for dimension in system.fabric.dimension:
        size = int(float(dimension.size or 1))
        taken = min(size, rest)
        if rest % taken:
            return ()
        sizes.append(float(taken))
        rest //= taken
    return tuple(sizes) if rest == 1 else ()


def pool(system: System, devices: int) -> System:
    """A part of a system, on the same fabric."""
    shape = _part_shape(system, devices)
    if not shape:
        sizes = ", ".join(map(str, pool_sizes(system)))
        raise BadValue(f"a pool of {system.name} has one of {sizes} devices, but got {devices}")
    return replace(system, name=f"{devices} of {system.name}", fabric=sized(system.fabric, shape))


@dataclass(frozen=True, eq=False, kw_only=True)
class Disaggregation:
    """One way to share devices out: pools, plans, what is sent, and the load both carry."""

    prefill_devices: int  # devices that read prompts
    decode_devices: int  # devices that generate
    prefill_plan: Plan
    decode_plan: Plan
    read_time: float  # of one prompt [s]
    sent: float  # bytes of cache a request sends
    send_time: float  # [s]
    prefill_rate: float  # requests a second each pool could take under the limits by itself
    decode_rate: float
    rate: float  # and both together
    curve: Curve  # of the pool that generates
    remote_prefill: RemotePrefill
    simulated: LoadMetrics | None = None  # at `rate`, where it was

    def load(self, rate: float) -> LoadMetrics:
        """What requests see at a rate, in closed form."""
        return open_load(self.curve, rate, self.remote_prefill).at(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Reading:
    """The pool that reads under each of its plans."""

    plan: Plan
    time: Array  # of one prompt a lane; inf where the plan is out
    lanes: Array

    def rate(self, limit: float, variation: float) -> Array:
        """The most requests a second whose mean time to the first token keeps a limit."""
        low, high = np.zeros_like(self.time), np.where(np.isfinite(self.time), self.lanes / self.time, 0.0)
        with np.errstate(invalid="ignore"):
            for _ in range(48):
                middle = 0.5 * (low + high)
                good = mean_wait(middle, self.time, self.lanes, variation) + self.time <= limit
                low, high = np.where(good, middle, low), np.where(good, high, middle)
        return low


def _reading(system: System, model: Model, requests: Requests, plan: Plan, engine: Engine) -> _Reading:
    plan = as_many(plan)
    box = evaluate(system, model, prefill(plan.dp, requests.input, **requests.routed), plan, engine)
    time = np.broadcast_to(np.asarray(box.metrics.step_time, float), np.shape(plan.dp))
    return _Reading(plan=plan, time=time, lanes=np.asarray(plan.dp * plan.pp))


def send_time(system: System, sent: float, ranks: float, engine: Engine | str = "ideal") -> float:
    """Time to bring a cache to the other pool [s]: each of `ranks` sends its share half a system away."""
    devices = int(float(system.devices))
    apart = next(s for s in range(devices // 2, 0, -1) if _shape(system, 2 * s) and _shape(system, s))
    return float(collective(system, "send", bytes=sent / ranks, ranks=2, stride=apart, engine=engine).time)


def disaggregate(
    system: System,
    model: Model,
    requests: Requests,
    engine: Engine | str = USUAL_SERVER,
    *,
    prefill_devices: int | None = None,
    prefill_plan: Plan | None = None,
    decode_plan: Plan | None = None,
    ttft: float = np.inf,
    tpot: float = np.inf,
    share: float | None = None,
    sequences: float | None = None,
) -> list[Disaggregation]:
    """Every way to share a system's devices between reading prompts and generating, best first by the rate
    both carry under the limits.

    `prefill_devices`: only this many devices that read. Each pool takes the plan told, or the best of its
    best with the other's. The first token waits until the cache has been sent. `share`: as of `goodput`.
    """
    require(ttft > 0 and tpot > 0, "limits on latency must be positive", ttft=ttft, tpot=tpot)
    engine = as_engine(engine)
    sizes = pool_sizes(system)
    if prefill_devices is not None and sizes:
        known = ", ".join(map(str, sizes))
        require(
            prefill_devices in sizes, f"pools of {system.name} have {known} devices", devices=prefill_devices
        )
        sizes = [prefill_devices]
    require(bool(sizes), "two pools need a system of at least 2 devices", devices=int(float(system.devices)))
    sent, splits = float(cache_bytes(model, requests.input)), []
    for count in sizes:
        rest = int(float(system.devices)) - count
        first, second = pool(system, count), pool(system, rest)
        reading_plans = prefill_plan or plans(count, model, phase="prefill", freely=False)
        reading = _reading(first, model, requests, reading_plans, engine)
        writing = curve(
            second,
            model,
            requests,
            decode_plan or plans(rest, model, freely=False),
            engine,
            sequences=sequences,
            reads=False,
        )
        splits += _Split(system, reading, writing, sent, engine, (ttft, tpot, share)).best()
    return sorted(splits, key=lambda s: -s.rate)


@dataclass(frozen=True, eq=False)
class _Split:
    """A pool that reads and one that generates, each under any of its plans."""

    system: System
    reading: _Reading
    writing: Curve
    sent: float
    engine: Engine
    limits: tuple[float, float, float | None]

    def best(self) -> list[Disaggregation]:
        """The best plans of one pool with the best of the other; none where none carries any load."""
        ttft, tpot, _ = self.limits
        reads = self.reading.rate(ttft, self.writing.requests.variation)
        nothing, one_each = np.zeros_like(self.writing.slots), np.ones_like(self.writing.slots)
        at_once = RemotePrefill(time=nothing, lanes=one_each, after=nothing, links=one_each)
        writes = goodput(self.writing, np.inf, tpot, at_once)
        best: Disaggregation | None = None
        for i in np.argsort(-reads, kind="stable")[:TRIED]:
            for j in np.argsort(-writes, kind="stable")[:TRIED]:
                if min(reads[i], writes[j]) <= (best.rate if best else 0.0):
                    continue
                one = self.pair(int(i), int(j))
                one = replace(one, prefill_rate=float(reads[i]), decode_rate=float(writes[j]))
                if best is None or one.rate > best.rate:
                    best = one
        return [best] if best else []

    def pair(self, i: int, j: int) -> Disaggregation:
        """One plan of the pool that reads with one of the other, and the rate that both carry."""
        (ttft, tpot, share), decoding = self.limits, self.writing.at(j)
        time, lanes = float(self.reading.time[i]), float(self.reading.lanes[i])
        degrees = vars(self.reading.plan).items()
        fields: dict[str, Any] = {k: v if isinstance(v, tuple) else float(v[i]) for k, v in degrees}
        plan = Plan(**fields)
        ranks = (
            float(plan.tp * plan.cp * plan.pp),
            float(np.prod([getattr(decoding.plan, d)[0] for d in ("tp", "cp", "pp")])),
        )
        took = send_time(self.system, self.sent, min(ranks), self.engine)
        parts = {"time": time, "lanes": lanes, "after": took, "links": float(plan.dp)}
        prefilling = RemotePrefill(**{name: np.array([value]) for name, value in parts.items()})
        return Disaggregation(
            prefill_devices=int(plan.tp * plan.cp * plan.dp * plan.pp),
            decode_devices=int(decoding.devices),
            prefill_plan=plan,
            decode_plan=decoding.plan_at(0),
            read_time=time,
            sent=self.sent,
            send_time=took,
            prefill_rate=0.0,
            decode_rate=0.0,
            rate=float(goodput(decoding, ttft, tpot, prefilling, share)[0]),
            curve=decoding,
            remote_prefill=prefilling,
        )


def pools_limit(split: Disaggregation) -> float:
    """Requests a second beyond which one of the pools never catches up [1/s]."""
    remote = split.remote_prefill
    reads, sends = remote.lanes[0] / remote.time[0], remote.links[0] / max(remote.after[0], 1e-300)
    return float(min(most_rate(split.curve)[0], reads, sends))


def capped_system(system: System, cap: Number) -> System:
    """A system whose devices are limited to this power each [W]."""
    energy = replace(system.chip.energy, power_limit=cap)
    return replace(system, chip=replace(system.chip, energy=energy))


def resting_power(chip: Chip) -> float:
    """What a device draws without a load, clocks up [W].

    >>> from strata.hardware.chip import chip
    >>> resting_power(chip("h200")) < 0.3 * float(chip("h200").energy.power_limit)
    True
    """
    rest = static_power_of(chip)
    return float(np.max(rest.logic + rest.leaking + rest.dram))


def checked_caps(caps: Sequence[float] | Array | None, chip: Chip) -> Array:
    """Caps of a device [W], rising; each above what it draws at rest and at most the chip's own limit.

    >>> from strata.hardware.chip import chip
    >>> checked_caps([700.0, 400.0], chip("h200")).tolist()
    [400.0, 700.0]
    >>> checked_caps([50.0], chip("h200"))
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: a power cap must lie above what a h200 draws at rest (128 W), but got 50 W
    """
    highest, rest = float(np.min(chip.energy.power_limit)), resting_power(chip)
    if caps is None:
        every = CAP_SHARES * highest
        return every[every > rest]
    try:
        asked = np.unique(np.asarray(caps, float))
    except (TypeError, ValueError):
        raise BadValue(f"power caps are numbers of watts, like [400, 500, 600], but got {caps!r}") from None
    require(0 < asked.size <= MOST_CAPS, f"one to {MOST_CAPS} power caps are told", caps=asked.size)
    require(bool(np.isfinite(asked).all()), "power caps must be finite numbers of watts", caps=caps)
    if asked[0] <= rest:
        raise BadValue(
            f"a power cap must lie above what a {chip.name} draws at rest ({rest:.0f} W), "
            f"but got {asked[0]:g} W"
        )
    if asked[-1] > highest * (1.0 + 1e-9):
        raise BadValue(
            f"a power cap must be at most the limit of a {chip.name} ({highest:g} W), but got {asked[-1]:g} W"
        )
    return asked
