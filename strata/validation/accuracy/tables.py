"""What is committed of the project's accuracy: accuracy.json, limits.json, the points behind them, the page
with its pictures, and the residuals behind intervals.

``python -m strata.validation.accuracy.tables`` writes all of them from the project's own data; run it when
predictions move, and say in the changelog how they moved.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from strata.validation.accuracy.like_rows import coverage, like_rows, write_residuals
from strata.validation.accuracy.page import PICTURED, accuracy_page
from strata.validation.accuracy.pictures import draw_accuracy
from strata.validation.accuracy.points import write_points
from strata.validation.accuracy.run import validate
from strata.validation.accuracy.served_errors import served_errors
from strata.validation.accuracy.training_errors import mislabelled_runs, training_errors
from strata.validation.readers.registry import matches

ONE_IN = 16  # rows of long served files that the table and `make test` predict: a simulation each
ROOM = 1.02  # a limit lies 2 % above today's error, so that only a real loss of accuracy crosses it
PROJECT = Path(__file__).resolve().parents[3]


def rounded(tree: Any, digits: int = 4) -> Any:
    """The same JSON with its floats rounded, so that a table does not change in its last digits."""
    if isinstance(tree, float):
        return round(tree, digits)
    if isinstance(tree, dict):
        return {k: rounded(v, digits) for k, v in tree.items()}
    return [rounded(v, digits) for v in tree] if isinstance(tree, list) else tree


def error_limits(outcome: dict[str, Any]) -> dict[str, float]:
    """The largest mape a file may have: today's, and 2 % of it, rounded up.

    >>> error_limits({"files": [{"file": "a.csv", "mape": 0.1}]})
    {'a.csv': 0.102}
    """
    return {
        f["file"]: math.ceil(f["mape"] * ROOM * 1e4 - 1e-6) / 1e4
        for f in outcome["files"]
        if f["mape"] is not None
    }


def write_tables(
    folder: Path = PROJECT / "validation",
    residuals: Path = PROJECT / "strata" / "validation" / "accuracy" / "residuals.json",
) -> Any:
    """Predict the project's own data and write what is committed of it; the points behind it."""
    outcome = validate(folder, keep_points=True, unseen=True, one_in=ONE_IN)
    rows = like_rows(folder, ONE_IN)
    points = outcome.pop("points")
    write_points(points, folder)
    outcome["intervals"] = coverage(rows)
    outcome["served"] = served_errors(folder)
    outcome["training"] = training_errors(folder)
    outcome["mislabelled"] = mislabelled_runs(folder)
    (folder / "accuracy.json").write_text(json.dumps(rounded(outcome), indent=1) + "\n", encoding="utf-8")
    (folder / "limits.json").write_text(json.dumps(error_limits(outcome), indent=1) + "\n", encoding="utf-8")
    write_residuals(rows, residuals)
    return points


def write_page(points: Any, folder: Path = PROJECT / "validation", docs: Path = PROJECT / "docs") -> None:
    """The page docs/accuracy.md from the committed table, and its pictures from the points behind it."""
    outcome = json.loads((folder / "accuracy.json").read_text(encoding="utf-8"))
    (docs / "accuracy.md").write_text(accuracy_page(outcome), encoding="utf-8")
    for old in (docs / "accuracy").glob("*.svg"):
        old.unlink()
    draw_accuracy(points, docs / "accuracy", lambda file: matches(file, *PICTURED))


if __name__ == "__main__":
    write_page(write_tables())
