"""What requests see of an engine under load and what it costs; goals, limits, the most that keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import exp, inf, isfinite, log, log1p
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import UnknownName, require
from strata.base.records import readable
from strata.base.units import show
from strata.serving.queueing import wait_within_share
from strata.serving.requests import Requests

HALVINGS_OF_TIME = 50  # of an interval that holds a quantile
SHORTEST = 1e-15  # stands for times of nothing where they divide [s]


@dataclass(frozen=True, eq=False, kw_only=True)
class FirstToken:
    r"""From a request's arrival to its first token.

    .. math:: T = A + V + W + U + R

    A until the engine takes the request in; V until it has a slot for a sequence; W until the prompts before
    are read; U the rest of the step under way; R reading its own prompt, beside sequences in flight. An
    arrival finds the engine in one of some states (last axis): none in flight, 1, 2, ..., with a `chance`;
    A + R is then certain (`base`), U uniform over a step (`step`). W is nothing, or with the chance `waiting`
    exponential (Kingman 1965), V likewise. A share q of requests has its first token within the quantile of
    W + U + base plus that of V: waits for slots fall on those that wait anyway.
    """

    chance: Array  # of each state [..., states]
    base: Array  # taking in and reading [s]
    step: Array  # under way at an arrival [s]
    queued: Array  # mean of W over all requests [s]
    waiting: Array  # chance that W is not nothing
    slot: Array  # mean of V over all requests [s]
    full: Array  # chance that V is not nothing

    @classmethod
    def certain(cls, base: Array, **more: Array) -> FirstToken:
        """Of one state, where nothing waits but what is told."""
        nothing = np.zeros_like(base)
        parts = {"step": nothing, "queued": nothing, "waiting": nothing, "slot": nothing, "full": nothing}
        parts |= more
        return cls(
            chance=np.ones((*base.shape, 1)), base=base[..., None], step=parts.pop("step")[..., None], **parts
        )

    @property
    def under_way(self) -> Array:
        """Mean of U [s]."""
        with np.errstate(invalid="ignore"):  # a plan that is out has no times
            return np.asarray(0.5 * np.sum(self.chance * self.step, axis=-1))

    @property
    def mean(self) -> Array:
        """Mean time to first token [s]."""
        with np.errstate(invalid="ignore"):  # a plan that is out has no times
            read = np.sum(self.chance * self.base, axis=-1)
        return np.asarray(read + self.under_way + self.queued + self.slot)

    def at(self, *index: Any) -> FirstToken:
        return FirstToken(**{f.name: np.asarray(getattr(self, f.name))[index] for f in fields(self)})

    def _share_within(self, time: Array) -> Array:
        r"""Share of requests for which W + U + base is not above a time.

        .. math:: F(y) = (1 - P) \frac{a}{s} + P \left(\frac{a}{s}
            - \frac{w}{s} e^{-(y-a)/w} (1 - e^{-a/w})\right), \quad a = \min(\max(y, 0), s)

        y the time after `base`, step s, chance P to wait and then w on average; summed over states.
        """
        y = time[..., None] - self.base
        step = np.maximum(self.step, SHORTEST)
        waiting = np.asarray(self.waiting)[..., None]
        each = np.maximum(np.asarray(self.queued)[..., None] / np.maximum(waiting, 1e-12), SHORTEST)
        at = np.clip(y, 0.0, step)
        at = np.where(y >= step, step, at)
        late = each / step * np.exp(-np.maximum(y - at, 0.0) / each) * -np.expm1(-at / each)
        return np.sum(self.chance * np.where(y >= 0.0, at / step - waiting * late, 0.0), axis=-1)

    def _slot_within(self, share: float) -> Array:
        return np.maximum(wait_within_share(self.slot, self.full, share), self.slot)

    @property
    def _least(self) -> Array:
        """Percentiles are not below this: fewer than their share of requests wait at light load, so that the
        plain quantile lies under the mean. Those who wait deviate by at least their mean."""
        return self.mean + self.queued

    def within_share(self, share: float) -> Array:
        """The time to first token that a share of requests does not exceed [s], for a share of at least half;
        never below the mean.

        >>> one = np.ones(1)
        >>> busy = FirstToken(chance=one, base=one, step=0 * one, queued=np.array(1.0), waiting=np.array(0.5),
        ...     slot=np.array(0.0), full=np.array(0.0))  # M/M/1 at half load, after 1 s
        >>> round(float(busy.within_share(0.95)), 3), float(busy.mean)
        (5.605, 2.0)
        """
        _check_share(share)
        with np.errstate(invalid="ignore", over="ignore"):
            known = np.isfinite(self.mean)
            each = np.where(known, self.queued / np.maximum(self.waiting, 1e-12), 0.0)
            low = np.where(known, np.min(self.base, axis=-1), 0.0)
            high = np.where(known, np.max(self.base + self.step, axis=-1) - each * np.log(1.0 - share), 0.0)
            for _ in range(HALVINGS_OF_TIME):
                middle = 0.5 * (low + high)
                enough = self._share_within(middle) >= share
                low, high = np.where(enough, low, middle), np.where(enough, middle, high)
            late = np.maximum(high + self._slot_within(share), self._least)
            return np.where(known, late, np.inf)

    def keeps(self, limit: float, share: float) -> Array:
        """Whether a share of requests has its first token within a limit [s]; the time is not looked for."""
        _check_share(share)
        if not np.isfinite(limit):
            return np.isfinite(self.mean)
        with np.errstate(invalid="ignore", over="ignore"):
            left = limit - self._slot_within(share)
            return (self._share_within(np.asarray(left)) >= share) & (self._least <= limit)


def _check_share(share: float) -> None:
    require(0.5 <= share < 1.0, "a share of requests lies between 0.5 and 1", share=share)


@readable("rate", "ttft", "ttft_p95", "tpot", "tokens_per_s", "power")
@dataclass(frozen=True, eq=False, kw_only=True)
class LoadMetrics:
    """What requests see, and what the engine delivers and spends. Where it cannot keep up, times are
    infinite.

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
    first_token: Any  # the distribution behind ttft: a `FirstToken`, or the times of a simulation
    refusal: Array  # why the closed form does not answer for this load; empty where it does

    def ttft_at(self, share: float) -> Array:
        """The time to first token that a share of requests, at least half, does not exceed [s]."""
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
        first = parts.pop("first_token")
        cut = {name: np.asarray(value)[index] for name, value in parts.items()}
        return LoadMetrics(**cut, first_token=first.at(*index))

    def within(self, ttft: float, tpot: float, share: float | None = None) -> Array:
        """Where both limits are kept: on average, or of time to first token by a share of all requests."""
        with np.errstate(invalid="ignore"):
            early = self.ttft <= ttft if share is None else self.first_token.keeps(ttft, share)
            return self.fits & early & (self.tpot <= tpot)


WIDTH = 0.05  # relative: the most that keeps limits is known within it
MOST_RUNS = 40  # in which it is looked for
UP = 2.0  # times a number, or its part, that is tried next at most
NOT_KEPT = 1e-9  # excess of what may keep limits, but is not known to


@dataclass(frozen=True, kw_only=True)
class ServingGoal:
    """What is best: a number of a load, larger is better, and how its loss is told."""

    name: str
    means: str
    value: Callable[[LoadMetrics, Requests], Array]
    fewest: bool = False  # with one request at once; else with as many as keep the limits


def _latency(load: LoadMetrics, requests: Requests) -> Array:
    return -(load.ttft + requests.later * load.tpot)


GOALS = {
    goal.name: goal
    for goal in (
        ServingGoal(name="throughput", means="tokens/s", value=lambda load, _: load.tokens_per_s),
        ServingGoal(name="cheapest", means="USD/Mtoken", value=lambda load, _: -load.cost_per_mtoken),
        ServingGoal(name="fastest", means="time of a request", value=_latency, fewest=True),
        ServingGoal(name="efficient", means="J/Mtoken", value=lambda load, _: -load.energy_per_mtoken),
    )
}


def serving_goal(name: str) -> ServingGoal:
    """A goal by its name.

    >>> serving_goal("cheapest").means
    'USD/Mtoken'
    """
    if name not in GOALS:
        raise UnknownName("goal", name, tuple(GOALS), ", ".join(GOALS))
    return GOALS[name]


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """Limits on mean times to the first token and between later ones [s]; the first for a `share` of all."""

    ttft: float = float("inf")
    tpot: float = float("inf")
    share: float | None = None

    def __post_init__(self) -> None:
        positive = self.ttft > 0 and self.tpot > 0
        require(positive, "limits on latency must be positive", ttft=self.ttft, tpot=self.tpot)
        if self.share is not None:
            _check_share(self.share)

    def nearest(self, seen: LoadMetrics) -> int:
        """Of some plans the one that misses the limits by least."""
        with np.errstate(invalid="ignore"):
            over = np.maximum(seen.ttft / self.ttft, seen.tpot / self.tpot)
        return int(np.argmin(np.where(np.isfinite(seen.ttft) & ~np.isnan(over), over, np.inf)))

    def used(self, seen: LoadMetrics) -> dict[str, float]:
        """What one load has of each limit, as a share of it."""
        first = float(seen.ttft if self.share is None else seen.ttft_at(self.share))
        return {"TTFT": first / self.ttft, "TPOT": float(seen.tpot) / self.tpot}

    def excess(self, seen: LoadMetrics) -> float:
        """Logarithm of what one load has of the limits at most: above 0 where one is not kept."""
        share = max(self.used(seen).values())
        over = log(share) if 0.0 < share < inf else share or -inf
        return over if bool(seen.within(**self.told)) else max(over, NOT_KEPT)

    @property
    def kinds(self) -> tuple[dict[str, float], dict[str, float]]:
        """Limits that a share of the requests keeps, and those on means, as far as there are any [s]."""
        limits = {n: v for n, v in (("ttft", self.ttft), ("tpot", self.tpot)) if v < inf}
        slo = {n: limits.pop(n) for n in ("ttft",) if self.share is not None and n in limits}
        return slo, limits

    def corrected(self, simulated: LoadMetrics, closed: LoadMetrics) -> ServingLimits:
        """Limits on the closed form that keep these of simulations, as it is off for one load."""
        off = float(closed.tpot) / max(float(simulated.tpot), 1e-12)
        ttft = inf if str(closed.refusal) else self.ttft
        return replace(self, ttft=ttft, tpot=self.tpot * off) if 0.0 < off < inf else self

    @property
    def told(self) -> dict[str, Any]:
        return {"ttft": self.ttft, "tpot": self.tpot, "share": self.share}

    @property
    def text(self) -> str:
        return limits_text(self.ttft, self.tpot, self.share)


def limits_text(ttft: float, tpot: float, share: float | None = None) -> str:
    """Limits on latency as they follow a question; empty where there are none.

    >>> limits_text(2.0, 0.04, share=0.95)
    ', TTFT at most 2 s for 95 % of requests, TPOT at most 40 ms'
    """
    of = "" if share is None else f" for {share * 100:.4g} % of requests"
    limits = (("TTFT", ttft, of), ("TPOT", tpot, ""))
    return "".join(f", {k} at most {show(v, 's')}{of}" for k, v, of in limits if np.isfinite(v))


def largest_kept(
    excess: Callable[[float], float],
    start: float,
    least: float,
    most: float,
    *,
    width: float = WIDTH,
    near: float = 0.0,
    whole: bool = False,
    confirmed: Callable[[float], bool] = lambda _: True,
) -> tuple[float, float]:
    """The largest number with an `excess`, the logarithm of a share of limits, of at most 0, and the least
    above it with more: within a `width`, unless the excess is within `near` of 0, and `confirmed`. `whole`:
    as whole numbers.

    From `start` outwards, then along lines of logarithms, or by halving where the same end moves twice.

    >>> from math import log
    >>> largest_kept(lambda n: log(n / 37), 64.0, 1.0, 64.0, width=0.01, whole=True)
    (37.0, 38.0)
    """
    runs: dict[float, float] = {}
    low, high, tried = 0.0, inf, min(start, most)
    while len(runs) < MOST_RUNS and tried not in runs and least <= tried <= most:
        runs[tried] = excess(tried)
        while True:
            high = min([n for n, over in runs.items() if over > 0.0], default=inf)
            low = max([n for n, over in runs.items() if over <= 0.0 and n < high], default=0.0)
            close = high <= (1.0 + width) * low or high - low <= whole or runs.get(low, -inf) > -near
            if not low or not (close or low >= most) or confirmed(low):
                break
            runs[low] = NOT_KEPT
        if low and (close or low >= most):
            break
        tried = min(_next_tried(runs, low, high, width), most)
        tried = min(max(float(round(tried)), low + 1.0), high - 1.0) if whole else tried
    return low, high


def _next_tried(runs: dict[float, float], low: float, high: float, width: float) -> float:
    """A number between those that keep limits and those that do not, or ever farther beyond the last."""
    aim, times = -0.5 * width, 2.0 ** (len(runs) - 1)
    if not isfinite(high):
        return low * exp(min(times * max(aim - runs[low], log1p(width)), log(UP)))
    if not low:
        return high / exp(min(times * max(runs[high] - aim, log1p(width)), log(UP)))
    *_, before, last = [over > 0.0 for over in runs.values()]
    halves = (len(runs) > 2 and before == last) or not isfinite(runs[high] - runs[low])
    place = 0.5 if halves else (aim - runs[low]) / (runs[high] - runs[low])
    return float(low * (high / low) ** min(max(place, 0.1), 0.9))
