"""What no fit has seen: the held-out third of fitted files, and served models that no fit looks at, metric by
metric.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.validation.accuracy.compare import statistics
from strata.validation.fit.engines import seen_by_fits
from strata.validation.fit.files import FITTED_FILES
from strata.validation.readers.comparison import HELD_OUT, ComparedPoints
from strata.validation.readers.registry import matches
from strata.validation.readers.tables import Table

METRICS = ("tpot", "ttft", "decode", "prefill", "eager")  # parts of a group's name that say what was measured


def is_fitted(file: str) -> bool:
    """Whether some fit has looked at two thirds of a file.

    >>> is_fitted("h200/gemm.csv"), is_fitted("h200/decoder.csv")
    (True, False)
    """
    return matches(file, *FITTED_FILES)


def metric_of(group: str) -> str:
    """What a group's points measure.

    >>> metric_of("tpot/b200_sxm/trtllm/deepseek-v3"), metric_of("8xB200/deepseek-v3/prefill/eager")
    ('tpot', 'prefill/eager')
    >>> metric_of("H200/Qwen3-30B-A3B")
    'tokens/s'
    """
    return "/".join(part for part in group.split("/") if part in METRICS) or "tokens/s"


def unseen_models(table: Table, points: ComparedPoints) -> list[dict[str, Any]]:
    """For each metric of a file: points of models no fit of the metric has seen, and these with the held-out
    lines of those it has.
    """
    metrics = np.array([metric_of(g) for g in points.group], dtype=object)
    never = ~seen_by_fits(table.name, table, points)
    unseen = never | (points.line % HELD_OUT == 0)
    rows = []
    for metric in sorted(set(metrics)):
        parts = {
            name: statistics(points.measured[keep], points.predicted[keep])
            for name, keep in (
                ("never", never & (metrics == metric)),
                ("unseen", unseen & (metrics == metric)),
            )
        }
        rows.append({"file": table.name, "metric": metric, **parts})
    return rows
