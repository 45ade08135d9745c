"""Predictions against measurements, for people and machines: families left out, files and groups, other
predictors, where the error is, single rows, and seals.
"""

from __future__ import annotations

from typing import Any

from strata.app.render.tables import cells_of, table
from strata.validation.accuracy import headline

MOST_FAMILIES = 12  # lines of files with families left out; of more the headline is shown


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
