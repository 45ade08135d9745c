"""Error statistics. error = predicted / measured - 1, every point equal; a failed point counts as an error of
1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.validation.datasets import Array, Points

SHOWN_FAILURES = 20  # reasons listed for a file; all of them are counted


def statistics(measured: Array, predicted: Array) -> dict[str, Any]:
    """The figures of one file or group; a prediction of 0 is a failed one.

    >>> s = statistics(np.array([1.0, 2.0, 4.0]), np.array([1.1, 1.8, 0.0]))
    >>> s["points"], s["failed"], round(s["mape"], 6), round(s["bias"], 6), round(s["weighted"], 6), s["worst"]
    (3, 1, 0.4, -0.333333, 0.614286, 1.0)
    """
    count = len(measured)
    found: dict[str, Any] = {"points": int(count), "failed": int(np.count_nonzero(predicted == 0))}
    if not count:
        return found | dict.fromkeys(("mape", "median", "p90", "worst", "bias", "weighted"))
    error = predicted / measured - 1.0
    size = np.abs(error)
    return found | {
        "mape": float(np.mean(size)),
        "median": float(np.median(size)),
        "p90": float(np.quantile(size, 0.9)),
        "worst": float(np.max(size)),
        "bias": float(np.mean(error)),
        "weighted": float(np.sum(np.abs(predicted - measured)) / np.sum(measured)),
    }


def ranks(values: Array) -> Array:
    """Ranks from 0, ties sharing their mean.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [1.5, 0.0, 1.5]
    """
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    mean: Array = (last - count + last - 1) / 2.0
    return mean[place]


def spearman(a: Array, b: Array) -> float | None:
    """Rank correlation; None where there are fewer than three points or all are tied.

    >>> round(spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])), 3)
    0.8
    """
    if len(a) < 3:
        return None
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt(np.sum(x**2) * np.sum(y**2)))
    return float(np.sum(x * y)) / scale if scale > 0 else None


def entry(name: str, found: Points) -> dict[str, Any]:
    """What `strata validate` says about one file: its headline figures, its groups, and the rows that failed."""
    head = found.headline
    made: dict[str, Any] = {
        "file": name,
        **statistics(found.measured[head], found.predicted[head]),
        "groups": {},
    }
    for group in sorted(set(found.group)):
        rows = found.group == group
        made["groups"][group] = statistics(found.measured[rows], found.predicted[rows])
    if found.ranks:
        correlated = {k: spearman(found.measured[i], found.predicted[i]) for k, i in found.ranks.items()}
        made["spearman"] = {k: v for k, v in correlated.items() if v is not None}
    if found.why:
        made["failures"] = [
            {"row": line, "why": why} for line, why in sorted(found.why.items())[:SHOWN_FAILURES]
        ]
    return made
