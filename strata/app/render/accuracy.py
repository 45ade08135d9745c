"""What measurements tell, for people and machines: the interval beside a prediction, fits and their worth,
logs of collectives, predictions against measurements, and seals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.render.tables import cells_of, picked, table
from strata.hardware.chip import Chip
from strata.hardware.transport import Transport
from strata.params import leaf_paths
from strata.result import Result
from strata.units import show
from strata.validation.accuracy import headline

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
MOST_FAMILIES = 12  # lines of files with families left out; of more the headline is shown


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


def validated_tables(outcome: dict[str, Any]) -> list[Any]:
    """Families left out, the files, other predictors on the same rows, then where the error is."""
    tables = [_families_table(outcome)] if outcome.get("families") else []
    tables.append(_files_table(outcome))
    tables += [_arena_table(outcome["arena"])] if outcome.get("arena") else []
    return tables + (_worst_tables(outcome["worst"]) if outcome.get("worst") else [])


def _families_table(outcome: dict[str, Any]) -> Any:
    """Each family predicted by numbers refitted to the others, as the project's last full run found."""
    few = len(outcome["families"]) <= MOST_FAMILIES
    columns = headline.FAMILIES if few else headline.HEADLINE
    rows = headline.family_cells(outcome["families"]) if few else headline.headline_cells(outcome)
    text = 3 if few else 2
    head = [f"<{name}" if i < text else f">{name}" for i, name in enumerate(columns)]
    return table("families left out in turn, numbers refitted without each (the last full run)", head, rows)


def _files_table(outcome: dict[str, Any]) -> Any:
    """One line a file, with its groups below it."""
    rows: list[list[str]] = []
    styles = []
    for entry in outcome["files"]:
        rows.append([entry["file"], *_file_cells(entry)])
        rows += [[f"  {name}", *_file_cells(group)] for name, group in entry["groups"].items()]
        styles += ["bold", *["dim"] * len(entry["groups"])]
    rows += [[f"{name}: not predicted yet"] for name in outcome["not_yet"]]
    styles += ["yellow"] * len(outcome["not_yet"])
    said = "unknown file (h200/gemm.csv is a known one; a folder of kernels is named after its chip)"
    rows += [[f"{name}: {said}"] for name in outcome["unknown"]]
    styles += ["red"] * len(outcome["unknown"])
    below = [
        f"{row['file']}{' line ' + str(row['row']) if row['row'] else ''}: cannot be read: {row['why']}"
        for row in outcome.get("unread", [])
    ]
    if held_out := [entry["file"] for entry in outcome["files"] if entry.get("seen") == headline.HELD_OUT]:
        below.append(f"only the held-out third, which no fit has seen, of: {', '.join(held_out)}")
    head = "<file|>points|>failed|>MAPE|>median|>P90|>in 15 %|>in 30 %|>worst|>bias|>weighted"
    title = "predicted against measured: error = predicted / measured - 1"
    return table(title, head, rows, "\n".join(below), styles)


def _arena_table(entries: list[dict[str, Any]]) -> Any:
    """Other predictors beside ours."""
    rows = []
    for one in entries:
        more = f"; {one['left_out']:,} more are not compared here" if one.get("left_out") else ""
        where = f"as published: {one['as_published']}" if "as_published" in one else f"the same points{more}"
        rows.append([*headline.rival_cells(one), where])
    return table("other predictors", "<predictor|<file|>points|>MAPE|>Strata|<on", rows)


def _worst_tables(worst: dict[str, Any]) -> list[Any]:
    """Families left out with the most error, families of the rows, and the rows that are off the most."""
    by = worst["by"]

    def cells(one: dict[str, Any], fields: str, shares: str) -> list[str]:
        return [*cells_of(one, fields), *(headline.percent(one[key]) for key in shares.split())]

    left_out = [cells(one, "family kind file metric rows", "mape shown") for one in worst["left_out"]]
    named = f"{' '.join(by)} points"
    families = [cells(one, named, "mape median bias share") for one in worst["families"]]
    rows = []
    for one in worst["rows"]:
        numbers = cells_of(one, "group measured:.6g predicted:.6g error:+.1%")
        rows.append([f"{one['file']} line {one['row']}", *numbers])
    commands = "\n".join(one["command"] for one in worst["rows"])
    head = [*(f"<{name}" for name in by), ">points", ">MAPE", ">median", ">bias", ">share"]
    tables = [table(f"where the error is, by {', '.join(by)}", head, families)]
    if left_out:
        columns = "<left out|<by|<file|<metric|>rows|>MAPE|>as shipped"
        tables.insert(0, table("families left out with the most error", columns, left_out))
    columns = "<row|<group|>measured|>predicted|>error"
    return [*tables, table("rows off by the largest factors, in SI units", columns, rows, commands)]


def sealed_table(scored: dict[str, Any]) -> Any:
    """Sealed predictions beside results that came later."""
    inside = {True: "inside", False: "outside", None: ""}
    rows = []
    for one in scored["entries"]:
        numbers = cells_of(one, "metric predicted:.6g measured:.6g error:+.1%")
        rows.append([f"{one['seal']} {one['entry']}", *numbers, inside[one["inside"]]])
    count = len(scored["seals"])
    seals = f"{count} seal{'s' if count != 1 else ''}"
    below = f"{scored['predictions']} predictions in {seals}, {scored['open']} without a result yet"
    head = "<sealed|<metric|>predicted|>measured|>error|<interval"
    return table("sealed predictions, in SI units", head, rows, below)


def seal_table(content: dict[str, Any]) -> Any:
    """The predictions of a seal with their intervals."""
    rows = []
    for one in content["entries"]:
        low, high = (one["interval"] or {}).get("low"), (one["interval"] or {}).get("high")
        ends = "" if low is None else f"{low:.4g} to {high:.4g}"
        rows.append([*cells_of(one, "name metric predicted:.4g unit"), ends])
    below = f"{content['sealed']}, strata {content['version']}, sha256 {content['sha256']}"
    return table(content["title"], "<entry|<metric|>predicted|<unit|<interval", rows, below)


def row_table(rows: list[dict[str, Any]]) -> Any:
    """One measured row: the command that predicts it, and each number beside the predicted one."""
    cells = []
    for row in rows:
        predicted, error = row.get("why", ""), ""
        if row["predicted"] is not None:
            predicted, error = f"{row['predicted']:.6g}", f"{row['predicted'] / row['measured'] - 1.0:+.1%}"
        cells.append([row["group"], row["at"], predicted, f"{row['measured']:.6g}", error])
    commands = "\n".join(dict.fromkeys(row["command"] for row in rows if row["command"]))
    head = "<group|<at|>predicted|>measured|>error"
    return table("predicted against measured, in SI units", head, cells, commands)


def validated_rows(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    """The table as rows: a file with no group, then its groups."""
    rows = []
    for entry in outcome["files"]:
        plain = {k: v for k, v in entry.items() if not isinstance(v, dict | list)}
        rows.append({"file": entry["file"], "group": "", **plain})
        rows += [{"file": entry["file"], "group": name, **group} for name, group in entry["groups"].items()]
    return rows


def unread_line(outcome: dict[str, Any]) -> str:
    """Files and rows that could not be read, in one line; nothing where all were."""
    unread = outcome.get("unread", [])
    if not unread:
        return ""
    whole = [row["file"] for row in unread if not row["row"]]
    lines = [f"{row['file']} line {row['row']}" for row in unread if row["row"]]
    kinds = ((whole, "file"), (lines, "row"))
    counts = [f"{len(of)} {what}{'s' if len(of) > 1 else ''}" for of, what in kinds if of]
    named = ", ".join((whole + lines)[:8]) + (" ..." if len(unread) > 8 else "")
    return f"{' and '.join(counts)} could not be read: {named}; the first: {unread[0]['why']}"


def _file_cells(entry: dict[str, Any]) -> list[str]:
    order = ("mape", "median", "p90", "within_15", "within_30", "worst", "bias", "weighted")
    return [
        str(entry["points"]),
        str(entry["failed"] or ""),
        *(headline.percent(entry.get(key)) for key in order),
    ]
