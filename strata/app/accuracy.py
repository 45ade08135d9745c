"""How far predictions are from measurements: the table, and the interval beside a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.app.words import plain_table, titled
from strata.errors import BadFile
from strata.evaluate import Result
from strata.units import show


def default_folder() -> Path:
    """The project's own validation folder, found from here or from the current directory."""
    for base in (Path(__file__).resolve().parents[2], Path.cwd()):
        if (base / "validation" / "NOTICE.md").exists():
            return base / "validation"
    raise BadFile("no validation folder here: run in the project's checkout, or give --data DIR")


def accuracy_table(outcome: dict[str, Any]) -> Any:
    """One line a file, with its groups below it."""
    table = plain_table()
    for column in ("file", "points", "failed", "MAPE", "median", "P90", "worst", "bias", "weighted"):
        table.add_column(column, justify="left" if column == "file" else "right")
    for entry in outcome["files"]:
        table.add_row(entry["file"], *_cells(entry), style="bold")
        for name, group in entry["groups"].items():
            table.add_row(f"  {name}", *_cells(group), style="dim")
    for name in outcome["not_yet"]:
        table.add_row(f"{name}: not predicted yet", style="yellow")
    for name in outcome["unknown"]:
        table.add_row(f"{name}: unknown file", style="red")
    return titled("predicted against measured: error = predicted / measured - 1", table)


def _cells(entry: dict[str, Any]) -> list[str]:
    numbers = [f"{entry[k]:.1%}" if entry.get(k) is not None else "" for k in ("mape", "median", "p90", "worst", "bias", "weighted")]
    return [str(entry["points"]), str(entry["failed"] or ""), *numbers]


def interval_of(result: Result) -> tuple[dict[str, Any] | None, list[str]]:
    """Where like cases would be measured, from the residuals of what was; and a warning outside of what was checked."""
    from strata.validation.intervals import intervals_of

    data: dict[str, Any] = {}
    said: list[str] = []
    missing: list[str] = []
    for metric, interval in intervals_of(result).items():
        low, high = interval.bounds(float(getattr(result.metrics, metric)))
        data[metric] = {
            "low": low,
            "high": high,
            "points": interval.points,
            "like": interval.like,
            "inside": interval.inside,
            "missing": list(interval.missing),
        }
        said.append(
            f"{metric} of like cases measured: {show(low, 's')} to {show(high, 's')} (middle 80 % of {interval.points} points: {interval.like})"
        )
        missing += interval.missing
    if not data:
        missing = [f"nothing like {result.workload.phase} was ever checked"]
    return data or None, said + [f"outside what was checked: {text}" for text in dict.fromkeys(missing)]
