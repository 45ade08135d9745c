"""What a search is after: one metric or several, and limits that every answer must keep."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.base.errors import BadValue, UnknownName, require
from strata.base.pareto import non_dominated
from strata.base.units import parse, show
from strata.pricing.metrics import HIGHER, LOWER, METRICS, ItemMetrics, Metric, TokenMetrics, declared
from strata.result import reasons
from strata.workload.model import Model

if TYPE_CHECKING:
    from strata.search.points import Evaluated

Columns = Mapping[str, np.ndarray]  # a metric of many points by its name
MM2 = 1e-6  # [m2]
TRILLION_PER_DAY = 1e12 / 86400.0  # tokens a second that make a trillion in a day


@dataclass(frozen=True, kw_only=True)
class DerivedMetric(Metric):
    """A metric of columns that gets better with each of its `inputs`, so that their bounds bound it."""

    inputs: tuple[str, ...]
    compute: Callable[[Columns], np.ndarray]


def _train_days(columns: Columns) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return TRILLION_PER_DAY / np.asarray(columns["tokens_per_s"], float)


def _tokens_per_joule(columns: Columns) -> np.ndarray:
    return 1.0 / np.asarray(columns["energy_per_token"], float)


def _tokens_per_mm2(columns: Columns) -> np.ndarray:
    area = np.asarray(columns["die_area"], float) / MM2
    return np.asarray(columns["tokens_per_s_per_device"], float) / area


# the one column besides metrics: points are evaluated with it
DIE_AREA = Metric(name="die_area", unit="m2", better=LOWER, label="compute silicon of a device")
_PER_MM2 = ("tokens_per_s_per_device", "die_area")
DERIVED_METRICS = {
    name: DerivedMetric(name=name, unit="1", better=better, label=label, inputs=inputs, compute=compute)
    for name, better, label, inputs, compute in (
        ("tokens_per_joule", HIGHER, "tokens/J", ("energy_per_token",), _tokens_per_joule),
        ("tokens_per_s_per_mm2", HIGHER, "tokens/s/mm2 of compute silicon", _PER_MM2, _tokens_per_mm2),
        ("train_days", LOWER, "days to train on a trillion tokens", ("tokens_per_s",), _train_days),
    )
}
POINT_METRICS: dict[str, Metric] = {**METRICS, DIE_AREA.name: DIE_AREA}  # what a point is evaluated for
GOAL_METRICS: dict[str, Metric] = {**POINT_METRICS, **DERIVED_METRICS}  # what a goal may name


def reported_metrics(program: Any) -> dict[str, Metric]:
    """Metrics of a point that are told: of a language model in tokens, of another program in its items."""
    record = TokenMetrics if isinstance(program, Model) else ItemMetrics
    return {**declared(record), DIE_AREA.name: DIE_AREA}


def metric_column(columns: Columns, name: str) -> np.ndarray:
    """A metric of many points, derived where it is one of searches only.

    >>> metric_column({"energy_per_token": np.array([0.5, np.inf])}, "tokens_per_joule").tolist()
    [2.0, 0.0]
    """
    derived = DERIVED_METRICS.get(name)
    return np.asarray(columns[name], float) if derived is None else derived.compute(columns)


_LIMIT = re.compile(r"\s*([A-Za-z_0-9]+)\s*(<=|>=)\s*(.+?)\s*$")


@dataclass(frozen=True)
class Goal:
    """Metrics to make as good as they can be, and limits as (lowest, highest) in SI for some metrics."""

    metrics: tuple[str, ...]
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def higher_is_better(self) -> tuple[bool, ...]:
        """Of each metric, whether more of it is better."""
        return tuple(GOAL_METRICS[m].higher_is_better for m in self.metrics)

    def score(self, columns: Mapping[str, np.ndarray], metric: str) -> np.ndarray:
        """A metric of many points, larger is better: negated where less of it is."""
        return metric_column(columns, metric) * (1.0 if GOAL_METRICS[metric].higher_is_better else -1.0)

    def feasible(self, evaluated: Evaluated) -> np.ndarray:
        """Where a point fits and keeps every limit; a metric that is not known (nan) keeps none."""
        ok = np.asarray(evaluated.reason) == 0
        for name, (low, high) in self.limits.items():
            values = metric_column(evaluated.columns, name)
            ok = ok & (values >= low) & (values <= high)
        return ok

    def scores(self, evaluated: Evaluated) -> np.ndarray:
        """Float array [N, M], larger is better: negated where less is better; -inf where a point is out."""
        stacked = np.stack([self.score(evaluated.columns, m) for m in self.metrics], axis=1)
        ok = self.feasible(evaluated) & ~np.isnan(stacked).any(axis=1)
        return np.where(ok[:, None], stacked, -np.inf)

    def value(self, score: float, place: int = 0) -> float:
        """The metric behind a score."""
        return score if self.higher_is_better[place] else -score

    def violation(self, evaluated: Evaluated) -> np.ndarray:
        """How far each point is out: shares by which limits are passed, added up, and 1 for each rule it
        breaks; 0 is in.

        A guide for samplers that learn from infeasible points; a metric that is not known, or of a point that
        breaks a rule, counts 1.
        """
        mask = np.asarray(evaluated.reason).astype(np.int64)
        total = np.zeros(len(mask))
        for bit in range(63):
            total += (mask >> bit) & 1
        for name, (low, high) in self.limits.items():
            values = metric_column(evaluated.columns, name)
            passed = np.zeros(len(mask))
            with np.errstate(invalid="ignore", over="ignore"):
                for limit, beyond in ((high, values - high), (low, low - values)):
                    if np.isfinite(limit):
                        passed = passed + np.maximum(beyond, 0.0) / max(abs(limit), 1e-300)
            total += np.where(np.isfinite(passed), passed, 1.0)
        unknown = sum(np.isnan(metric_column(evaluated.columns, m)) for m in self.metrics)
        return np.where((total == 0.0) & (unknown > 0), 1.0, total)

    def reasons(self, evaluated: Evaluated) -> np.ndarray:
        """Words why each point is out, "" where it is in: broken rules first, then limits of this goal."""
        mask = np.asarray(evaluated.reason).astype(np.int64)
        masks, place = np.unique(mask, return_inverse=True)
        words = np.array(["; ".join(reasons(int(m))) for m in masks], dtype=object)[place]
        legal = mask == 0
        for name, (low, high) in self.limits.items():
            values, unit = metric_column(evaluated.columns, name), GOAL_METRICS[name].unit
            _append(words, legal & (values > high), f"{name} above {show(high, unit)}")
            _append(words, legal & (values < low), f"{name} below {show(low, unit)}")
            _append(words, legal & np.isnan(values), f"{name} is not known")
        for name in self.metrics:
            if name not in self.limits:
                unknown = np.isnan(metric_column(evaluated.columns, name))
                _append(words, legal & unknown, f"{name} is not known")
        return words

    def best(self, evaluated: Evaluated) -> int | None:
        """The place of the best point of one metric, the first of equals; None where every point is out."""
        require(
            len(self.metrics) == 1,
            "the best point is that of one metric; several give a frontier",
            metrics=", ".join(self.metrics),
        )
        scores = self.scores(evaluated)[:, 0]
        return int(np.argmax(scores)) if np.any(scores > -np.inf) else None

    def frontier(self, evaluated: Evaluated) -> np.ndarray:
        """Points that no other matches in every metric and beats in one; of equal points the first."""
        return non_dominated(self.scores(evaluated))

    def _sides(self) -> list[tuple[str, str, float]]:
        """Metric, sign and value of every limit."""
        return [
            (name, sign, value)
            for name, both in self.limits.items()
            for sign, value in zip((">=", "<="), both, strict=True)
            if np.isfinite(value)
        ]

    def spec(self) -> dict[str, Any]:
        """Plain JSON that `goal` makes this goal of again.

        >>> cool = goal("tpot", limits=["temperature <= 85 degC"])
        >>> goal(**cool.spec()) == cool
        True
        """
        limits = [
            f"{n} {sign} {v!r} {GOAL_METRICS[n].unit}".removesuffix(" 1") for n, sign, v in self._sides()
        ]
        return {"metrics": list(self.metrics), "limits": limits}

    def words(self) -> str:
        """The goal as a reader says it.

        >>> goal("tokens_per_s", limits={"tpot": "<= 40 ms"}).words()
        'most tokens_per_s with tpot <= 40 ms'
        """
        wanted = " and ".join(
            f"{'most' if up else 'least'} {m}"
            for m, up in zip(self.metrics, self.higher_is_better, strict=True)
        )
        kept = ", ".join(f"{n} {sign} {show(v, GOAL_METRICS[n].unit)}" for n, sign, v in self._sides())
        return f"{wanted} with {kept}" if kept else wanted


def _append(words: np.ndarray, where: np.ndarray, text: str) -> None:
    words[where] = [f"{before}; {text}" if before else text for before in words[where]]


def goal(
    metrics: str | Iterable[str] = "tokens_per_s", limits: Mapping[str, str] | Iterable[str] = ()
) -> Goal:
    """A goal from text: metrics by name (several with commas), limits like "tpot <= 40 ms" or {"tpot": "<= 40
    ms"}.

    >>> goal("tokens_per_s", limits={"tpot": "<= 40 ms"})
    Goal(metrics=('tokens_per_s',), limits={'tpot': (-inf, 0.04)})
    >>> goal("tokens_per_s", limits=["tpot <= 40"])
    Traceback (most recent call last):
    ...
    strata.base.errors.BadUnit: limit 'tpot <= 40': tpot is measured in s, but got '40' without a unit
    """
    listed = metrics.split(",") if isinstance(metrics, str) else list(metrics)
    named = tuple(m.strip() for m in listed if m.strip())
    require(bool(named), f"a goal needs a metric, one of {', '.join(GOAL_METRICS)}")
    for name in named:
        _known(name, "metric to search for")
        require(named.count(name) == 1, "a goal names each metric once", metric=name)
    texts = (
        [f"{name} {text}" for name, text in limits.items()] if isinstance(limits, Mapping) else list(limits)
    )
    kept: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, op, value = _limit(text)
        low, high = kept.get(name, (-np.inf, np.inf))
        if np.isfinite(low if op == ">=" else high):
            first = show(low if op == ">=" else high, GOAL_METRICS[name].unit)
            raise BadValue(f"{name} {op} is limited twice: {first} and '{text}'; keep one")
        low, high = (value, high) if op == ">=" else (low, value)
        if low > high:
            unit = GOAL_METRICS[name].unit
            raise BadValue(
                f"no point can keep both {name} >= {show(low, unit)} and {name} <= {show(high, unit)}"
            )
        kept[name] = (low, high)
    return Goal(named, kept)


def _known(name: str, what: str) -> None:
    if name not in GOAL_METRICS:
        raise UnknownName(what, name, GOAL_METRICS, ", ".join(GOAL_METRICS))


def _limit(text: str) -> tuple[str, str, float]:
    """Metric, side and SI value of a limit."""
    match = _LIMIT.match(text)
    if not match:
        raise BadValue(
            f"a limit is METRIC <= VALUE or METRIC >= VALUE, like 'tpot <= 40 ms', but got '{text}'"
        )
    name, op, value = match.groups()
    _known(name, "metric to limit")
    number = parse(value, GOAL_METRICS[name].unit, f"limit '{text}': {name}")
    require(np.isfinite(number), f"limit '{text}' must be a finite number")
    return name, op, number
