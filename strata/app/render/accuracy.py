"""What measurements tell: the interval beside a prediction, fits and their worth, logs of collectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.render.tables import cells_of, picked, table
from strata.base.units import show
from strata.hardware.chip import Chip
from strata.hardware.transport import Transport
from strata.params import leaf_paths
from strata.result import Result

if TYPE_CHECKING:
    from strata.measure.collectives import GroupFacts, MeasuredCollective
    from strata.measure.logged import LoggedFit
    from strata.measure.measure import MeasuredKernel
    from strata.validation.accuracy.trust import Trust
    from strata.validation.fit.calibrate import FitOutcome
    from strata.validation.fit.shipped import Calibration
    from strata.validation.fit.worth import QuantityWorth
    from strata.validation.readers.collective_files import LoggedRun

FITTED = "files fitted=rows held_out before after values"
WORTH = "record|fitted together|quantity|)value|)rows|)configurations|judged by|)rows|)with|)without"


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
    low, high = (np.broadcast_to(told[end], (len(rows),)) for end in ("low", "high"))
    ends = ({"low": float(a), "high": float(b)} for a, b in zip(low, high, strict=True))
    return [row | {"interval": told | own} for row, own in zip(rows, ends, strict=True)]


def fitted_dict(
    record: Chip | Transport, outcomes: Sequence[FitOutcome], kind: str = "chip"
) -> dict[str, Any]:
    """What a calibration found, as plain JSON types."""
    units = leaf_paths(record)
    families = [picked(o, f"family {FITTED}") for o in outcomes]
    moved = {path: units[path]["unit"] for o in outcomes for path in o.values}
    return {kind: record.name, "families": families, "units": moved}


def fitted_table(record: Chip | Transport, outcomes: Sequence[FitOutcome], measured: str = "kernels") -> Any:
    """One block a family: the error on held-out points before and after, and the quantities that moved."""
    units, rows = leaf_paths(record), []
    for o in outcomes:
        first = [o.family, *cells_of(o, "rows held_out before:.1% after:.1%")]
        moved = [(path, show(value, units[path]["unit"])) for path, value in o.values.items()]
        for i, cells in enumerate(moved or [("kept as it was", "")]):
            rows.append((*(first if i == 0 else [""] * 5), *cells))
    title = f"{record.name} fitted to its measured {measured}; errors are of points that were not fitted"
    return table(title, "family|)points|)held out|)error before|)after|quantity|)value", rows)


def measured_tables(folder: Path, done: list[MeasuredKernel]) -> list[Any]:
    """How many rows of each kind there are now, and why some are missing."""
    from strata.params import names

    rows = []
    for told in measured_dict(folder, done)["files"]:
        why = [one["why"] for one in told["left_out"]]
        often = max(why, key=why.count, default="")
        rows.append((told["file"], str(told["rows"]), str(len(why) or ""), often))
    hint = f"no shipped chip is called {folder.name}: write a TOML for it (docs/how-to/add-a-chip.md) and "
    hint = "" if folder.name in names("chip") else f"{hint}calibrate that"
    return [table("kernels measured", "file|)kernels|)left out|most often because", rows, hint)]


def measured_dict(folder: Path, done: list[MeasuredKernel]) -> dict[str, Any]:
    """How many rows of each kind there are now, and what was left out and why, as plain JSON types."""
    files = []
    for kind in dict.fromkeys(d.kind for d in done):
        out = [{"kernel": " ".join(d.key), "why": d.why} for d in done if d.kind == kind and d.why]
        rows = sum(d.kind == kind for d in done) - len(out)
        files.append({"file": f"{folder.name}/{kind}.csv", "rows": rows, "left_out": out})
    return {"folder": str(folder), "chip": folder.name, "files": files}


def logged_dict(fit: LoggedFit) -> dict[str, Any]:
    """Runs, rows by file, transports and why rows were not fitted, as plain JSON types."""
    return {
        "runs": [_run(run) for run in fit.runs],
        "files": [{"file": name, "rows": rows} for name, rows in fit.files.items()],
        "transports": [fitted_dict(record, outcomes, "transport") for record, outcomes in fit.fitted],
        "notes": list(fit.notes),
    }


def _run(run: LoggedRun) -> dict[str, Any]:
    sizes, times = [row.bytes for row in run.rows], [row.time_us for row in run.rows]
    ends: dict[str, float] = {"smallest_B": min(sizes), "largest_B": max(sizes)}
    ends |= {"shortest_s": min(times) * 1e-6, "longest_s": max(times) * 1e-6}
    return {
        **picked(run, "log op gpu nodes devices=gpus fabric links library setting"),
        "rows": len(run.rows),
        **ends,
        "empty": run.empty,
        "left_out": [{"row": line, "why": why} for line, why in sorted(run.left_out.items())],
    }


def logged_tables(fit: LoggedFit) -> list[Any]:
    """The runs, a line each; then each transport that was fitted."""
    rows = []
    for run in fit.runs:
        ends = cells_of(_run(run), "smallest_B:B largest_B:B shortest_s:s longest_s:s")
        first = (run.log, run.op, f"{run.gpus} {run.gpu}", str(run.nodes), run.fabric, str(len(run.rows)))
        out = str(run.empty + len(run.left_out) or "")
        rows.append((*first, " to ".join(ends[:2]), " to ".join(ends[2:]), out))
    files = ", ".join(f"{rows} rows of {name}" for name, rows in fit.files.items())
    head = "log|collective|)GPUs|)nodes|over|)rows|)bytes|)times|)left out"
    shown = [table(f"collectives read from logs: {files}", head, rows, "\n".join(fit.notes))]
    return [*shown, *(fitted_table(record, found, "collectives") for record, found in fit.fitted)]


def measured_collectives(
    facts: GroupFacts, done: Sequence[MeasuredCollective]
) -> tuple[dict[str, Any], list[Any]]:
    """What became of collectives that were measured, for machines and for people."""
    rows, told = [], []
    for op in dict.fromkeys(one.op for one in done):
        own = [one for one in done if one.op == op]
        times = [one.time_us * 1e-6 for one in own if not one.why]
        why = [one.why for one in own if one.why]
        ends = [show(end(times), "s") if times else "" for end in (min, max)]
        reason = max(why, key=why.count, default="")
        rows.append((op, str(len(times)), *ends, str(len(why) or ""), reason))
        told += [{**picked(one, "op bytes"), "time_s": one.time_us * 1e-6, "why": one.why} for one in own]
    who = picked(facts, "gpu devices=ranks nodes library")
    where = f"{facts.ranks} ranks of {facts.gpu} on {facts.nodes} node{'s' if facts.nodes > 1 else ''}"
    head = "collective|)sizes|)shortest|)longest|)left out|most often because"
    return {**who, "collectives": told}, [table(f"collectives measured over {where}", head, rows)]


def all_dict(made: Sequence[Calibration]) -> dict[str, Any]:
    """What every fit gave, as plain JSON types."""
    fits = [
        {"record": one.name, **picked(outcome, f"group=family {FITTED}")}
        for one in made
        for outcome in one.outcomes
    ]
    return {"fits": fits, "units": {path: param.unit for one in made for path, param in one.entries.items()}}


def all_table(made: Sequence[Calibration]) -> Any:
    """One row a fit: the error on held-out points before and after, and how many numbers moved."""
    rows = (
        (one.name, *cells_of(o, "family rows held_out before:.1% after:.1%"), str(len(o.values)))
        for one in made
        for o in one.outcomes
    )
    head = "record|fitted together|)points|)held out|)error before|)after|)numbers"
    return table("fitted to measured files; errors are of points that were not fitted", head, rows)


def worth_dict(numbers: Sequence[QuantityWorth]) -> dict[str, Any]:
    """Fitted numbers and what they are worth, as plain JSON types."""
    return {"quantities": [one.to_dict() for one in numbers]}


def worth_tables(numbers: Sequence[QuantityWorth]) -> list[Any]:
    """Fitted numbers that help on families left out, and those that do not."""
    gain = "numbers that families left out gain"
    parts = {True: f"{gain} by", False: f"{gain} nothing by"}
    counted = "rows configurations judged_by judged error_with:.1% error_without:.1%"
    some: dict[bool, list[list[str]]] = {True: [], False: []}
    for one in numbers:
        value = show(one.value, one.unit)
        cells = [*cells_of(one, "record group path"), value, *cells_of(one, counted)]
        some[bool(one.error_without > one.error_with)].append(cells)
    return [table(title, WORTH, some[key]) for key, title in parts.items() if some[key]]
