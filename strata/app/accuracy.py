"""How far predictions are from measurements: the table, and the interval beside a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.words import plain_table, titled
from strata.errors import BadFile
from strata.hardware.chip import Chip
from strata.result import Result
from strata.units import show

if TYPE_CHECKING:
    from strata.validation.calibrate import Fitted
    from strata.validation.measure import Done


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
    for row in outcome.get("unseen_models", []):
        for name, part in (
            ("models no fit has seen", "never"),
            ("these and held-out lines of the others", "unseen"),
        ):
            table.add_row(f"{row['file']}, {row['metric']}: {name}", *_cells(row[part]))
    for name in outcome["not_yet"]:
        table.add_row(f"{name}: not predicted yet", style="yellow")
    for name in outcome["unknown"]:
        table.add_row(
            f"{name}: unknown file (h200/gemm.csv is a known one; a folder of kernels is named after its chip)",
            style="red",
        )
    below = (
        f"only the held-out third, which no fit has seen, of: {', '.join(outcome['held_out'])}"
        if outcome.get("held_out")
        else ""
    )
    return titled("predicted against measured: error = predicted / measured - 1", table, below)


def _cells(entry: dict[str, Any]) -> list[str]:
    numbers = [
        f"{entry[k]:.1%}" if entry.get(k) is not None else ""
        for k in ("mape", "median", "p90", "worst", "bias", "weighted")
    ]
    return [str(entry["points"]), str(entry["failed"] or ""), *numbers]


def interval_of(result: Result) -> tuple[dict[str, Any] | None, list[str]]:
    """Where like cases would be measured, from the residuals of what was; and a warning outside of what was
    checked.
    """
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


def fitted_dict(made: Chip, outcomes: list[Fitted]) -> dict[str, Any]:
    """What a calibration found, as plain JSON types."""
    families = [
        {
            "family": o.family,
            "files": list(o.files),
            "fitted": o.rows,
            "held_out": o.held_out,
            "before": o.before,
            "after": o.after,
            "values": o.values,
        }
        for o in outcomes
    ]
    return {"chip": made.name, "families": families}


def fitted_table(made: Chip, outcomes: list[Fitted]) -> Any:
    """One block a family: the error on held-out points before and after, and the quantities that moved."""
    table = plain_table()
    for column in ("family", "points", "held out", "error before", "after", "quantity", "value"):
        table.add_column(column, justify="left" if column in ("family", "quantity") else "right")
    for o in outcomes:
        first = [o.family, str(o.rows), str(o.held_out), f"{o.before:.1%}", f"{o.after:.1%}"]
        if not o.values:
            table.add_row(*first, "kept as it was", "")
        for i, (path, value) in enumerate(o.values.items()):
            table.add_row(*(first if i == 0 else [""] * 5), path, show(value, made.sources[path].unit))
    return titled(
        f"{made.name} fitted to its measured kernels; errors are of points that were not fitted", table
    )


def run_measure(out: Path, kinds: list[str], quick: bool, chip: str = "") -> tuple[Path, list[Done]]:
    """Measure the GPU at hand with a bar that says how far it is; the folder of its files, and what became of
    each kernel.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from strata.hardware.chip import chip as read_chip
    from strata.params import names
    from strata.validation.gpu import torch_gpu
    from strata.validation.measure import folder_name, measure

    gpu = torch_gpu()
    known = {name: float(read_chip(name).compute.cores) for name in names("chip")}
    folder = out / (read_chip(chip).name if chip else folder_name(gpu.name, gpu.cores, known))
    done: list[Done] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {kind: bar.add_task(kind, total=None) for kind in kinds}
        for one in measure(gpu, folder, kinds=kinds, quick=quick):
            bar.update(tasks[one.kind], completed=one.place, total=one.total)
            done.append(one)
    return folder, done


def measured_lines(folder: Path, done: list[Done]) -> list[Any]:
    """How many rows of each kind there are now, and why some are missing."""
    table = plain_table()
    for column in ("file", "kernels", "left out", "most often because"):
        table.add_column(column, justify="left" if column in ("file", "most often because") else "right")
    for kind in dict.fromkeys(d.kind for d in done):
        why = [d.why for d in done if d.kind == kind and d.why]
        count = sum(d.kind == kind for d in done)
        table.add_row(
            f"{folder.name}/{kind}.csv",
            str(count - len(why)),
            str(len(why) or ""),
            max(why, key=why.count, default=""),
        )
    hint = (
        ""
        if _shipped(folder.name)
        else f"no shipped chip is called {folder.name}: write a TOML for it (docs/how-to/add-a-chip.md) and calibrate that"
    )
    return [titled("kernels measured", table, hint)]


def _shipped(name: str) -> bool:
    from strata.params import names

    return name in names("chip")
