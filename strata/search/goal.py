"""What a search is after: one metric or several, and limits that every answer must keep."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.errors import BadValue, UnknownName, require
from strata.pricing.metrics import METRIC_UNITS
from strata.result import reasons
from strata.units import parse, show

if TYPE_CHECKING:
    from strata.search.points import Evaluated

LARGER = (
    "tokens_per_s",
    "tokens_per_s_per_user",
    "tokens_per_s_per_device",
    "tokens_per_joule",
    "tokens_per_s_per_mm2",
    "mfu",
    "mbu",
    "clock",
)
SMALLER = (
    "step_time",
    "ttft",
    "tpot",
    "train_days",
    "energy_per_token",
    "cost_per_mtoken",
    "power",
    "device_power",
    "temperature",
    "memory_used",
    "die_area",
)
# What goals know besides the metrics of a point: silicon is that of one device, rates say their unit in their
# name.
GOAL_UNITS = {n: METRIC_UNITS.get(n, "1") for n in (*LARGER, *SMALLER)} | {"die_area": "m2"}
MM2 = 1e-6  # [m2]
TRILLION_PER_DAY = 1e12 / 86400.0  # tokens a second that make a trillion in a day
_LIMIT = re.compile(r"\s*([A-Za-z_0-9]+)\s*(<=|>=)\s*(.+?)\s*$")


@dataclass(frozen=True)
class Goal:
    """Metrics to make as good as they can be, and limits as (lowest, highest) in SI for each limited metric."""

    metrics: tuple[str, ...]
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def larger(self) -> tuple[bool, ...]:
        """Of each metric, whether more of it is better."""
        return tuple(m in LARGER for m in self.metrics)

    def kept(self, evaluated: Evaluated) -> np.ndarray:
        """Where a point fits and keeps every limit; a metric that is not known (nan) keeps none."""
        ok = np.asarray(evaluated.reason) == 0
        for name, (low, high) in self.limits.items():
            values = column(evaluated.columns, name)
            ok = ok & (values >= low) & (values <= high)
        return ok

    def scores(self, evaluated: Evaluated) -> np.ndarray:
        """Float array [N, M], larger is better: metrics, negated where less is better; -inf where a point is
        out.
        """
        stacked = np.stack(
            [
                column(evaluated.columns, m) * (1.0 if up else -1.0)
                for m, up in zip(self.metrics, self.larger, strict=True)
            ],
            axis=1,
        )
        ok = self.kept(evaluated) & ~np.isnan(stacked).any(axis=1)
        return np.where(ok[:, None], stacked, -np.inf)

    def value(self, score: float, place: int = 0) -> float:
        """The metric behind a score."""
        return score if self.larger[place] else -score

    def excess(self, evaluated: Evaluated) -> np.ndarray:
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
            values = column(evaluated.columns, name)
            with np.errstate(invalid="ignore", over="ignore"):
                above = (
                    np.maximum(values - high, 0.0) / max(abs(high), 1e-300)
                    if np.isfinite(high)
                    else np.zeros(len(mask))
                )
                below = (
                    np.maximum(low - values, 0.0) / max(abs(low), 1e-300)
                    if np.isfinite(low)
                    else np.zeros(len(mask))
                )
            passed = above + below
            total += np.where(np.isfinite(passed), passed, 1.0)
        unknown = sum(np.isnan(column(evaluated.columns, m)) for m in self.metrics)
        return np.where((total == 0.0) & (unknown > 0), 1.0, total)

    def reasons(self, evaluated: Evaluated) -> np.ndarray:
        """Words why each point is out, "" where it is in: broken rules of the design first, then limits of
        this goal.
        """
        mask = np.asarray(evaluated.reason).astype(np.int64)
        found, place = np.unique(mask, return_inverse=True)
        said = np.array(["; ".join(reasons(int(m))) for m in found], dtype=object)[place]
        for name, (low, high) in self.limits.items():
            values, unit = column(evaluated.columns, name), GOAL_UNITS[name]
            checks = (
                (values > high, f"{name} above {show(high, unit)}"),
                (values < low, f"{name} below {show(low, unit)}"),
            )
            for broken, words in (*checks, (np.isnan(values), f"{name} is not known")):
                said = _joined(said, broken & (mask == 0), words)
        for name in self.metrics:
            if name not in self.limits:
                said = _joined(
                    said, np.isnan(column(evaluated.columns, name)) & (mask == 0), f"{name} is not known"
                )
        return said

    def best(self, evaluated: Evaluated) -> int | None:
        """The place of the best point of one metric, the first of equals; None where every point is out."""
        require(
            len(self.metrics) == 1,
            "the best point is that of one metric; several give a frontier",
            metrics=", ".join(self.metrics),
        )
        scores = self.scores(evaluated)[:, 0]
        return int(np.argmax(scores)) if np.any(scores > -np.inf) else None

    def frontier(self, scores: np.ndarray) -> np.ndarray:
        """Where no other point is at least as good in every metric and better in one; of equal points the
        first.

        >>> goal("tokens_per_s, tpot").frontier(np.array([[1.0, -5.0], [2.0, -6.0], [2.0, -7.0], [-np.inf, -np.inf]])).tolist()
        [True, True, False, False]
        """
        return frontier(scores)

    def spec(self) -> dict[str, Any]:
        """Plain JSON that `goal` makes this goal of again.

        >>> goal(**goal("tpot", limits=["temperature <= 85 degC"]).spec()) == goal("tpot", limits=["temperature <= 85 degC"])
        True
        """
        sides = (
            (n, op, v)
            for n, both in self.limits.items()
            for op, v in zip((">=", "<="), both, strict=True)
            if np.isfinite(v)
        )
        return {
            "metrics": list(self.metrics),
            "limits": [f"{n} {op} {v!r} {GOAL_UNITS[n]}".removesuffix(" 1") for n, op, v in sides],
        }

    def words(self) -> str:
        """The goal as a reader says it.

        >>> goal("tokens_per_s", limits={"tpot": "<= 40 ms"}).words()
        'most tokens_per_s with tpot <= 40 ms'
        """
        wanted = " and ".join(
            f"{'most' if up else 'least'} {m}" for m, up in zip(self.metrics, self.larger, strict=True)
        )
        sides = (
            (n, op, v)
            for n, both in self.limits.items()
            for op, v in zip((">=", "<="), both, strict=True)
            if np.isfinite(v)
        )
        kept = ", ".join(f"{n} {op} {show(v, GOAL_UNITS[n])}" for n, op, v in sides)
        return f"{wanted} with {kept}" if kept else wanted


def _joined(said: np.ndarray, where: np.ndarray, words: str) -> np.ndarray:
    made = said.copy()
    made[where] = [f"{text}; {words}" if text else words for text in said[where]]
    return made


def column(columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """A metric of many points, derived where it is one of goals only.

    Tokens a joule are 1 / energy_per_token; tokens/s/mm2 are those of one device over its compute silicon;
    days of training are those of a trillion tokens.

    >>> column({"energy_per_token": np.array([0.5, np.inf])}, "tokens_per_joule").tolist()
    [2.0, 0.0]
    """
    if name == "tokens_per_joule":
        return 1.0 / np.asarray(columns["energy_per_token"], float)
    if name == "train_days":
        with np.errstate(divide="ignore"):
            return TRILLION_PER_DAY / np.asarray(columns["tokens_per_s"], float)
    if name == "tokens_per_s_per_mm2":
        return np.asarray(columns["tokens_per_s_per_device"], float) / (
            np.asarray(columns["die_area"], float) / MM2
        )
    return np.asarray(columns[name], float)


def frontier(scores: np.ndarray) -> np.ndarray:
    """Mask of the non-dominated rows of [N, M] scores, larger is better; rows of -inf are never in; of equal
    rows the first is.
    """
    kept = np.zeros(len(scores), bool)
    # From the greatest row down, each row that is still there is on the frontier and removes all that it
    # dominates.
    left = np.flatnonzero((scores > -np.inf).all(axis=1))
    left = left[np.lexsort((left, *(-scores[left, m] for m in reversed(range(scores.shape[1])))))]
    while len(left):
        kept[left[0]] = True
        left = left[(scores[left] > scores[left[0]]).any(axis=1)]
    return kept


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
    strata.errors.BadUnit: limit 'tpot <= 40': tpot is measured in s, but got '40' without a unit
    """
    listed = metrics.split(",") if isinstance(metrics, str) else list(metrics)
    named = tuple(m.strip() for m in listed if m.strip())
    require(bool(named), f"a goal needs a metric, one of {', '.join(GOAL_UNITS)}")
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
            raise BadValue(
                f"{name} {op} is limited twice: {show(low if op == '>=' else high, GOAL_UNITS[name])} and '{text}'; keep one"
            )
        low, high = (value, high) if op == ">=" else (low, value)
        if low > high:
            unit = GOAL_UNITS[name]
            raise BadValue(
                f"no point can keep both {name} >= {show(low, unit)} and {name} <= {show(high, unit)}"
            )
        kept[name] = (low, high)
    return Goal(named, kept)


def _known(name: str, what: str) -> None:
    if name not in GOAL_UNITS:
        raise UnknownName(what, name, GOAL_UNITS, ", ".join(GOAL_UNITS))


def _limit(text: str) -> tuple[str, str, float]:
    """Metric, side and SI value of a limit."""
    match = _LIMIT.match(text)
    if not match:
        raise BadValue(
            f"a limit is METRIC <= VALUE or METRIC >= VALUE, like 'tpot <= 40 ms', but got '{text}'"
        )
    name, op, value = match.groups()
    _known(name, "metric to limit")
    number = parse(value, GOAL_UNITS[name], f"limit '{text}': {name}")
    require(np.isfinite(number), f"limit '{text}' must be a finite number")
    return name, op, number
