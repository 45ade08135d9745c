"""A comparison as a picture : throughput, cost and latency, bars side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.compare import (
    COMPARED_UNITS,
    PHASES_OF,
    Trusted,
    compared_metrics,
)
from strata.drawing import COLOURS, STYLE, pyplot_of, save
from strata.search.compare import Comparison

TITLES = {
    "tokens_per_s": "tokens/s",
    "cost_per_mtoken": "USD/Mtoken",
    "energy_per_mtoken": "J/Mtoken",
    "ttft": "TTFT [s]",
    "tpot": "TPOT [s]",
    "train_days": "days for a trillion tokens",
    "train_cost": "USD for a trillion tokens",
}
INTERVALS_OF = ("tokens_per_s", "ttft", "tpot")  # bars with the interval of like cases measured


def draw_compared(found: Comparison, trusted: Trusted, path: Path) -> Path:
    """Bars of each row, with intervals of like cases measured; rows without an answer are named."""
    wanted = [n for n in TITLES if n in {*PHASES_OF[found.phase], "tokens_per_s", "cost_per_mtoken"}]
    rows = [
        {} if row.answer is None else compared_metrics(row, row.answer, found.phase) for row in found.rows
    ]
    panels = [n for n in wanted if any(np.isfinite(row.get(n, np.nan)) for row in rows)]
    labels = [found.label(i) + ("" if row.answer else " (no answer)") for i, row in enumerate(found.rows)]
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        size = (1.2 + 2.7 * max(len(panels), 1), 1.1 + 0.36 * len(rows))
        figure, axes = pyplot.subplots(
            1, max(len(panels), 1), figsize=size, layout="constrained", sharey=True, squeeze=False
        )
        for place, (axis, name) in enumerate(zip(axes[0], panels, strict=False)):
            values = [row.get(name, np.nan) for row in rows]
            drawn = np.where(np.isfinite(values), values, 0.0)
            axis.barh(range(len(rows)), drawn, color=COLOURS[place % len(COLOURS)], height=0.62)
            if name in INTERVALS_OF:
                _whiskers(axis, name, trusted)
            axis.set_title(TITLES[name])
            axis.grid(axis="y", visible=False)
            axis.ticklabel_format(axis="x", style="plain")
            axis.tick_params(axis="x", labelrotation=30 if COMPARED_UNITS[name] != "s" else 0)
        axes[0][0].set_yticks(range(len(rows)), labels)
        axes[0][0].invert_yaxis()
        return save(pyplot, figure, path)


def _whiskers(axis: Any, name: str, trusted: Trusted) -> None:
    """Where like cases measured would lie, over the bars."""
    for at, told in enumerate(trusted):
        one = None if told is None else told.every.get(name)
        if one is not None and one.bounds is not None:
            axis.plot([float(end) for end in one.bounds], [at, at], "|-", color="#333", linewidth=1.2)
