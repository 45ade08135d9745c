"""Error statistics. error = predicted / measured - 1, every point equal; a failed point counts as an error of
1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.validation.readers.comparison import ComparedPoints, configurations

SHOWN_FAILURES = 20  # reasons listed for a file; all of them are counted
FIGURES = ("mape", "median", "p90", "worst", "bias", "weighted", "within_15", "within_30")


def statistics(measured: Array, predicted: Array) -> dict[str, Any]:
    """The figures of one file or group; a prediction of 0 is a failed one.

    >>> s = statistics(np.array([1.0, 2.0, 4.0]), np.array([1.1, 1.8, 0.0]))
    >>> s["points"], s["failed"], s["worst"]
    (3, 1, 1.0)
    >>> [round(s[figure], 6) for figure in ("mape", "bias", "weighted")]
    [0.4, -0.333333, 0.614286]
    >>> round(s["within_15"], 3), round(s["within_30"], 3)
    (0.667, 0.667)
    """
    counts = {"points": len(measured), "failed": int(np.count_nonzero(predicted == 0))}
    if not len(measured):
        return counts | dict.fromkeys(FIGURES)
    error = predicted / measured - 1.0
    size = np.abs(error)
    return counts | {
        "mape": float(np.mean(size)),
        "median": float(np.median(size)),
        "p90": float(np.quantile(size, 0.9)),
        "worst": float(np.max(size)),
        "bias": float(np.mean(error)),
        "weighted": float(np.sum(np.abs(predicted - measured)) / np.sum(measured)),
        "within_15": float(np.mean(size <= 0.15)),
        "within_30": float(np.mean(size <= 0.3)),
    }


def rank_correlation(a: Array, b: Array) -> float | None:
    """Spearman's rank correlation; None where there are fewer than three points or all are tied.

    >>> round(rank_correlation(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])), 3)
    0.8
    """
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    from scipy.stats import spearmanr  # slow to import

    return float(spearmanr(a, b).statistic)


def file_entry(name: str, points: ComparedPoints) -> dict[str, Any]:
    """What `strata validate` says about one file: headline figures, groups, and the rows that failed. Rows
    that are the same configuration count once.
    """
    ranks, points = points.ranks, configurations(points)
    head = points.headline
    entry: dict[str, Any] = {
        "file": name,
        **statistics(points.measured[head], points.predicted[head]),
        "groups": {},
    }
    for group in sorted(set(points.group)):
        rows = points.group == group
        entry["groups"][group] = statistics(points.measured[rows], points.predicted[rows])
    if ranks:
        correlated = {
            nodes: rank_correlation(points.measured[rows], points.predicted[rows])
            for nodes, rows in ranks.items()
        }
        entry["spearman"] = {nodes: value for nodes, value in correlated.items() if value is not None}
    if points.why:
        entry["failures"] = [
            {"row": line, "why": why} for line, why in sorted(points.why.items())[:SHOWN_FAILURES]
        ]
    return entry
