"""Searches as runs of a study: a space with some choices kept, a goal, and what was found, or what was found
before evaluated anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.base.errors import UnknownName, require
from strata.search.goal import goal as make_goal
from strata.search.goal import metric_column
from strata.search.points import Evaluated, evaluate_points
from strata.search.run import search
from strata.search.space import Space
from strata.search.space import space as make_space

SPACE_KEYS = ("space", "keep", "like", "axes", "goal", "limits", "sampler", "gap", "budget", "seed")


def run_search(
    entry: dict[str, Any], where: str, earlier: dict[str, dict[str, Any]], stored: dict[str, Any] | None
) -> dict[str, Any]:
    """Search a space and tell the best design: `best`, `bound`, the choice of each axis, and its metrics.

    `keep` has choices of axes; `like` names an earlier run whose choices of the `axes` listed are taken over
    (all but plan and overlap, where none is). With what was `stored` of an earlier search its design is
    evaluated anew instead, and its bound is believed.
    """
    for key in entry:
        if key not in ("name", *SPACE_KEYS):
            raise UnknownName(f"key of {where}", key, SPACE_KEYS, ", ".join(SPACE_KEYS))
    kept = {
        axis: list(values) if isinstance(values, list) else [values]
        for axis, values in entry.get("keep", {}).items()
    }
    if "like" in entry:
        require(entry["like"] in earlier, f"{where}: like names an earlier search", like=entry["like"])
        before = earlier[entry["like"]]["design"]
        taken = entry.get("axes") or [a for a in before if a not in ("plan", "overlap")]
        kept = {axis: [before[axis]] for axis in taken if axis not in kept} | kept
    space = make_space(entry["space"], **kept)
    goal = make_goal(entry.get("goal", "tokens_per_s"), entry.get("limits", []))
    if stored is not None:
        best = evaluate_points(space, digits_of(space, stored["design"]))
        bound = float(stored["bound"] if stored["bound"] is not None else "nan")
    else:
        options = {k: entry[k] for k in ("budget", "seed") if k in entry}
        outcome = search(
            space,
            goal,
            sampler=entry.get("sampler", "exact"),
            gap=float(entry.get("gap", 0.01)),
            executor="cores",
            **options,
        )
        require(outcome.found, f"{where}: no design fits", out=str(outcome.counts)[:80])
        best, bound = outcome.frontier.take(slice(0, 1)), float(outcome.bound)
    return _told(space, best, goal.metrics[0], bound)


def digits_of(space: Space, design: dict[str, str]) -> np.ndarray:
    """The point of a space that labels of its axes name."""
    return np.array([[axis.labels.index(design[axis.name]) for axis in space.axes]])


def _told(space: Space, best: Evaluated, metric: str, bound: float) -> dict[str, Any]:
    value = float(metric_column(best.columns, metric)[0])
    chosen = [(axis, int(d)) for axis, d in zip(space.axes, best.digits[0], strict=True)]
    design = {axis.name: axis.labels[d] for axis, d in chosen}
    numbers = {axis.name: axis.values[d] for axis, d in chosen if axis.ordered}
    told = {
        "best": value,
        "bound": bound,
        "gap": abs(bound - value) / abs(value),
        "size": float(space.size),
        "design": design,
        "axes": [],
    }
    return {name: float(values[0]) for name, values in best.columns.items()} | design | numbers | told
