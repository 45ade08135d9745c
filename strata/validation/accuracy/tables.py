"""What is committed of the project's accuracy: accuracy.json, limits.json, the points behind them, and the
residuals behind intervals.

``python -m strata.validation.accuracy.tables`` writes all of them from the project's own data; run it when
predictions move, then ``python docs/scripts/accuracy_page.py`` for the page, and say in the changelog how
they moved.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from strata.validation.accuracy.headline import ACCURACY
from strata.validation.accuracy.like_rows import coverage, like_rows, write_residuals
from strata.validation.accuracy.points import write_points
from strata.validation.accuracy.run import validate
from strata.validation.fit.left_out import LeavingOut, family_entries, left_out_points
from strata.validation.fit.table import fit_table
from strata.validation.fit.worth import quantities_worth
from strata.validation.readers.catalogue import Catalogue

ONE_IN = 32  # rows of long served files that the table and `make test` predict: a simulation each
ROOM = 1.02  # a limit lies 2 % above today's error, so that only a real loss of accuracy crosses it
LIMITS = "limits.json"
PROJECT = Path(__file__).resolve().parents[3]


def rounded(tree: Any, digits: int = 4) -> Any:
    """The same JSON with its floats rounded, fitted values to so many figures: last digits stay."""
    if isinstance(tree, float):
        return round(tree, digits)
    if isinstance(tree, dict):
        sized = {k: float(f"{tree[k]:.{digits}g}") for k in ("value",) if tree.get(k)}
        return {k: rounded(v, digits) for k, v in tree.items()} | sized
    return [rounded(v, digits) for v in tree] if isinstance(tree, list) else tree


def error_limits(outcome: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The largest mape that a file may have, and one with its families left out: today's, and 2 % of it,
    rounded up.

    >>> error_limits({"files": [{"file": "a.csv", "mape": 0.1}]})
    {'families': {}, 'files': {'a.csv': 0.102}}
    """
    families = {family_name(one): one["mape"] for one in outcome.get("families", [])}
    files = {one["file"]: one["mape"] for one in outcome["files"] if one["mape"] is not None}
    every = {"families": families, "files": files}
    return {
        kind: {name: math.ceil(mape * ROOM * 1e4 - 1e-6) / 1e4 for name, mape in some.items()}
        for kind, some in every.items()
    }


def family_name(entry: dict[str, Any]) -> str:
    """What a limit is of: a metric of a file, each family of a kind predicted without it."""
    return " ".join(filter(None, (entry["file"], entry["metric"], "by", entry["kind"])))


def write_tables(
    folder: Path = PROJECT / "validation",
    residuals: Path = PROJECT / "strata" / "validation" / "accuracy" / "residuals.json",
) -> None:
    """Predict the project's own data and write what is committed of it."""
    leaving = LeavingOut(folder, Catalogue(one_in=max(group.search.one_in for group in fit_table().groups)))
    left_out = list(left_out_points(folder, leaving=leaving))
    outcome: dict[str, Any] = {"families": family_entries(folder, left_out)}
    outcome["quantities"] = [one.to_dict() for one in quantities_worth(folder, leaving=leaving)]
    outcome |= validate(folder, keep_points=True, unseen=True, one_in=ONE_IN)
    rows = like_rows(folder, left_out, ONE_IN)
    write_points(outcome.pop("points"), folder)
    outcome["intervals"] = coverage(rows)
    for name, content in ((ACCURACY, rounded(outcome)), (LIMITS, error_limits(outcome))):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_residuals(rows, residuals)


if __name__ == "__main__":
    write_tables()
