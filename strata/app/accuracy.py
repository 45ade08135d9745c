"""How far predictions are from measurements: the table, and the interval beside a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.app.words import plain_table, titled
from strata.errors import BadFile
from strata.evaluate import Result


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
        table.add_row(name, "not predicted yet", style="yellow")
    for name in outcome["unknown"]:
        table.add_row(name, "unknown file", style="red")
    return titled("predicted against measured: error = predicted / measured - 1", table)


def _cells(entry: dict[str, Any]) -> list[str]:
    numbers = [f"{entry[k]:.1%}" if entry.get(k) is not None else "" for k in ("mape", "median", "p90", "worst", "bias", "weighted")]
    return [str(entry["points"]), str(entry["failed"] or ""), *numbers]


def interval_of(result: Result) -> tuple[dict[str, Any] | None, list[str]]:
    """The interval of like cases that were measured, and a warning where there are none."""
    return None, []
