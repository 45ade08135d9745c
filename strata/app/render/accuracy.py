"""What measurements tell, for people and machines: the interval beside a prediction, fits, logs of
collectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.terminal import plain_table, titled
from strata.hardware.chip import Chip
from strata.hardware.transport import Transport
from strata.params import leaf_paths
from strata.result import Result
from strata.units import show

if TYPE_CHECKING:
    from strata.measure.collectives import GroupFacts, MeasuredCollective
    from strata.measure.logged import LoggedFit
    from strata.measure.measure import MeasuredKernel
    from strata.validation.accuracy.trust import Trust
    from strata.validation.fit.calibrate import FitOutcome
    from strata.validation.readers.collective_files import LoggedRun


def interval_of(result: Result) -> tuple[dict[str, Any] | None, list[str]]:
    """Where like cases were measured, for machines and for people, for each time that a result quotes."""
    from strata.validation.accuracy.trust import trusts

    return intervals_told(trusts(result).values())


def swept_interval(result: Result, metric: str) -> tuple[dict[str, Any] | None, list[str]]:
    """The same of one metric of many points, as factors; nothing of other metrics than times and tokens/s."""
    from strata.validation.accuracy.trust import trust, trusts

    if metric not in (*trusts(result), "tokens_per_s"):
        return None, []
    return intervals_told([replace(trust(result, metric), value=None)])


def intervals_told(found: Iterable[Trust]) -> tuple[dict[str, Any] | None, list[str]]:
    """Intervals by metric for machines (none where nothing like any was measured), and lines for people."""
    every = list(found)
    data = {one.metric: told for one in every if (told := one.to_dict()) is not None}
    missing = [text for told in data.values() for text in told["missing"]]
    said = [f"outside what was measured: {text}" for text in dict.fromkeys(missing)]
    return data or None, [one.text for one in every] + said


def with_interval(rows: list[dict[str, Any]], found: Trust) -> list[dict[str, Any]]:
    """Rows for machines, each with its own interval."""
    told = found.to_dict()
    if told is None:
        return [row | {"interval": None} for row in rows]
    ends = zip(*(np.broadcast_to(told[end], (len(rows),)) for end in ("low", "high")), strict=True)
    return [
        row | {"interval": told | {"low": float(low), "high": float(high)}}
        for row, (low, high) in zip(rows, ends, strict=True)
    ]


def fitted_dict(
    record: Chip | Transport, outcomes: Sequence[FitOutcome], kind: str = "chip"
) -> dict[str, Any]:
    """What a calibration found, as plain JSON types."""
    units = leaf_paths(record)
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
    moved = {path: units[path]["unit"] for o in outcomes for path in o.values}
    return {kind: record.name, "families": families, "units": moved}


def fitted_table(record: Chip | Transport, outcomes: Sequence[FitOutcome], measured: str = "kernels") -> Any:
    """One block a family: the error on held-out points before and after, and the quantities that moved."""
    table = plain_table()
    units = leaf_paths(record)
    for column in ("family", "points", "held out", "error before", "after", "quantity", "value"):
        table.add_column(column, justify="left" if column in ("family", "quantity") else "right")
    for o in outcomes:
        first = [o.family, str(o.rows), str(o.held_out), f"{o.before:.1%}", f"{o.after:.1%}"]
        if not o.values:
            table.add_row(*first, "kept as it was", "")
        for i, (path, value) in enumerate(o.values.items()):
            table.add_row(*(first if i == 0 else [""] * 5), path, show(value, units[path]["unit"]))
    return titled(
        f"{record.name} fitted to its measured {measured}; errors are of points that were not fitted", table
    )


def measured_tables(folder: Path, done: list[MeasuredKernel]) -> list[Any]:
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
        else f"no shipped chip is called {folder.name}: write a TOML for it (docs/how-to/add-a-chip.md) and "
        "calibrate that"
    )
    return [titled("kernels measured", table, hint)]


def measured_dict(folder: Path, done: list[MeasuredKernel]) -> dict[str, Any]:
    """How many rows of each kind there are now, and what was left out and why, as plain JSON types."""
    files = []
    for kind in dict.fromkeys(d.kind for d in done):
        out = [{"kernel": " ".join(d.key), "why": d.why} for d in done if d.kind == kind and d.why]
        rows = sum(d.kind == kind for d in done) - len(out)
        files.append({"file": f"{folder.name}/{kind}.csv", "rows": rows, "left_out": out})
    return {"folder": str(folder), "chip": folder.name, "files": files}


def _shipped(name: str) -> bool:
    from strata.params import names

    return name in names("chip")


def logged_dict(fit: LoggedFit) -> dict[str, Any]:
    """Runs, rows by file, transports and why rows were not fitted, as plain JSON types."""
    return {
        "runs": [_run(run) for run in fit.runs],
        "files": [{"file": name, "rows": rows} for name, rows in fit.files.items()],
        "transports": [fitted_dict(record, outcomes, "transport") for record, outcomes in fit.fitted],
        "notes": list(fit.notes),
    }


def _run(run: LoggedRun) -> dict[str, Any]:
    sizes = [row.bytes for row in run.rows]
    return {
        "log": run.log,
        "op": run.op,
        "gpu": run.gpu,
        "nodes": run.nodes,
        "devices": run.gpus,
        "fabric": run.fabric,
        "links": run.links,
        "library": run.library,
        "setting": run.setting,
        "rows": len(run.rows),
        "smallest_B": min(sizes),
        "largest_B": max(sizes),
        "shortest_s": min(row.time_us for row in run.rows) * 1e-6,
        "longest_s": max(row.time_us for row in run.rows) * 1e-6,
        "empty": run.empty,
        "left_out": [{"row": line, "why": why} for line, why in sorted(run.left_out.items())],
    }


def logged_tables(fit: LoggedFit) -> list[Any]:
    """The runs, a line each; then each transport that was fitted."""
    table = plain_table()
    for column in ("log", "collective", "GPUs", "nodes", "over", "rows", "bytes", "times", "left out"):
        table.add_column(column, justify="left" if column in ("log", "collective", "over") else "right")
    for run in fit.runs:
        told = _run(run)
        ends = [show(told[f"{end}_{unit}"], unit) for unit, names in _ENDS for end in names]
        first = (run.log, run.op, f"{run.gpus} {run.gpu}", str(run.nodes), run.fabric, str(len(run.rows)))
        out = str(run.empty + len(run.left_out) or "")
        table.add_row(*first, " to ".join(ends[:2]), " to ".join(ends[2:]), out)
    files = ", ".join(f"{rows} rows of {name}" for name, rows in fit.files.items())
    shown = [titled(f"collectives read from logs: {files}", table, "\n".join(fit.notes))]
    return [*shown, *(fitted_table(record, found, "collectives") for record, found in fit.fitted)]


_ENDS = (("B", ("smallest", "largest")), ("s", ("shortest", "longest")))


def measured_collectives(
    facts: GroupFacts, done: Sequence[MeasuredCollective]
) -> tuple[dict[str, Any], list[Any]]:
    """What became of collectives that were measured, for machines and for people."""
    table = plain_table()
    for column in ("collective", "sizes", "shortest", "longest", "left out", "most often because"):
        table.add_column(
            column, justify="left" if column in ("collective", "most often because") else "right"
        )
    told = []
    for op in dict.fromkeys(one.op for one in done):
        times = [one.time_us * 1e-6 for one in done if one.op == op and not one.why]
        why = [one.why for one in done if one.op == op and one.why]
        ends = [show(end(times), "s") if times else "" for end in (min, max)]
        reason = max(why, key=why.count, default="")
        table.add_row(op, str(len(times)), *ends, str(len(why) or ""), reason)
        told += [
            {"op": one.op, "bytes": one.bytes, "time_s": one.time_us * 1e-6, "why": one.why}
            for one in done
            if one.op == op
        ]
    who = {"gpu": facts.gpu, "devices": facts.ranks, "nodes": facts.nodes, "library": facts.library}
    where = f"{facts.ranks} ranks of {facts.gpu} on {facts.nodes} node{'s' if facts.nodes > 1 else ''}"
    return {**who, "collectives": told}, [titled(f"collectives measured over {where}", table)]
