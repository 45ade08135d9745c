"""What tells the points of a search apart: traits, what they are worth, and how much each of them matters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from strata.mapping.plan import ORDERS, WORDS
from strata.search.fields import PLAN_FIELDS

if TYPE_CHECKING:
    from strata.search.goal import Goal
    from strata.search.points import Evaluated
    from strata.search.space import Space


@dataclass(frozen=True, eq=False)
class Trait:
    """One thing that tells points apart: the choice of an axis, or a degree of the plan."""

    name: str
    labels: tuple[str, ...]
    of: np.ndarray  # which label each point has


def relative_worths(goal: Goal, seen: Evaluated) -> np.ndarray:
    """The first metric of each point relative to the best, 1 at the best and less below it; 0 where a point
    is out.
    """
    scores = goal.scores(seen)
    inside = np.isfinite(scores).all(axis=1)
    if not inside.any():
        return np.zeros(len(seen))
    values = np.where(inside, np.abs(scores[:, 0]), np.nan)
    best = float(np.abs(scores[inside, 0].max()))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = values / best if goal.higher_is_better[0] else best / values
    return np.where(inside & np.isfinite(share), share, 0.0)


def traits_of(space: Space, digits: np.ndarray) -> list[Trait]:
    """What tells these points apart: axes, and of plans each degree; not what only repeats another."""
    listed = []
    for i, axis in enumerate(space.axes):
        at = digits[:, i]
        if axis.kind != "plan":
            listed.append(
                _trait(axis.name, at, [f"x {text}" if axis.kind == "times" else text for text in axis.labels])
            )
            continue
        for name, column_of in zip(PLAN_FIELDS, np.array(axis.values, float).T, strict=True):
            values, codes = np.unique(column_of, return_inverse=True)
            words = ["-".join(o) for o in ORDERS] if name == "order" else WORDS.get(name)
            listed.append(
                _trait(
                    f"{axis.name}.{name}", codes[at], [words[int(v)] if words else f"{v:g}" for v in values]
                )
            )
    apart: dict[bytes, Trait] = {}
    for trait in listed:
        if len(trait.labels) > 1:
            apart.setdefault(trait.of.tobytes(), trait)
    return list(apart.values())


def _trait(name: str, codes: np.ndarray, labels: list[str]) -> Trait:
    """Only the choices that occur."""
    used, of = np.unique(codes, return_inverse=True)
    return Trait(name, tuple(labels[int(u)] for u in used), of)


def importance(trait: Trait, worth: np.ndarray) -> float:
    """Share of the variance of log worth that the choice alone explains (omega squared: what chance would
    explain is taken off).

    >>> importance(Trait("a", ("1", "2"), np.array([0, 0, 1, 1])), np.array([1.0, 1.0, 0.5, 0.5]))
    1.0
    """
    inside = worth > 0
    values, of = np.log(worth[inside]), trait.of[inside]
    counts = np.bincount(of, minlength=len(trait.labels))
    used = int(np.sum(counts > 0))
    total = float(np.sum((values - values.sum() / max(len(values), 1)) ** 2))
    if len(values) <= used or used < 2 or total <= 1e-12 * len(values):
        return 0.0
    means = np.bincount(of, weights=values, minlength=len(trait.labels)) / np.maximum(counts, 1)
    between = float(np.sum(counts * (means - values.mean()) ** 2))
    noise = (total - between) / (len(values) - used)
    return max(between - (used - 1) * noise, 0.0) / (total + noise)


def trade_metrics(goal: Goal) -> tuple[str, str]:
    """The two metrics of the cloud: the goal's own, or the goal and what it is most often paid with."""
    if len(goal.metrics) > 1:
        return goal.metrics[0], goal.metrics[1]
    paid = {"energy_per_token": "tokens_per_s", "tokens_per_joule": "tokens_per_s"}
    return goal.metrics[0], paid.get(goal.metrics[0], "energy_per_token")
