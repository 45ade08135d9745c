"""Served models that no fit has seen: how far predictions are from them, metric by metric."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.validation.compare import statistics
from strata.validation.datasets import HELD_OUT, Points, Table
from strata.validation.engines import FITS, fitted_points

METRICS = ("tpot", "ttft", "decode", "prefill", "eager")  # parts of a group's name that say what was measured
FILES = tuple(dict.fromkeys(rows.file for fit in FITS for rows in fit.rows))  # that engines are fitted to


def metric_of(group: str) -> str:
    """What a group's points measure.

    >>> metric_of("tpot/b200_sxm/trtllm/deepseek-v3"), metric_of("8xB200/deepseek-v3/prefill/eager"), metric_of("H200/Qwen3-30B-A3B")
    ('tpot', 'prefill/eager', 'tokens/s')
    """
    return "/".join(part for part in group.split("/") if part in METRICS) or "tokens/s"


def unseen_models(table: Table, found: Points) -> list[dict[str, Any]]:
    """For each metric of a file: points of models no fit of the metric has seen, and these with the held-out
    lines of those it has.
    """
    metrics = np.array([metric_of(g) for g in found.group], dtype=object)
    never = ~fitted_points(table.name, table, found)
    either = never | (found.line % HELD_OUT == 0)
    made = []
    for metric in sorted(set(metrics)):
        parts = {
            name: statistics(found.measured[k], found.predicted[k])
            for name, k in (("never", never & (metrics == metric)), ("unseen", either & (metrics == metric)))
        }
        made.append({"file": table.name, "metric": metric, **parts})
    return made
