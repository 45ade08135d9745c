"""The page docs/accuracy.md, its pictures, and the headline in the README, from the committed table and the
points behind it: `python docs/scripts/accuracy_page.py`, after `python -m strata.validation.accuracy.tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strata.app.render.accuracy_pictures import draw_accuracy, picture_name
from strata.base.units import show
from strata.validation.accuracy.headline import (
    FAMILIES,
    HEADLINE,
    family_cells,
    headline_cells,
    percent,
    rival_cells,
    stored_table,
)
from strata.validation.accuracy.points import stored_points, unpacked_points
from strata.validation.readers.tables import matches

ROOT = Path(__file__).resolve().parents[2]
# Kernels and steps of one device, and collectives, have a picture of their own; everything is in the
# overview.
PICTURED = (
    "*/gemm*.csv",
    "*/stream.csv",
    "*/attention.csv",
    "*/grouped_gemm.csv",
    "*/other.csv",
    "*/deepbench_*.csv",
    "*/decoder.csv",
    "*/power.csv",
    "ops/*_attention.csv",
    "ops/*_mla.csv",
    "ops/moe.csv",
    "ops/nccl.csv",
    "ops/custom_allreduce.csv",
    "ops/deepep_low_latency.csv",
    "network/*.csv",
    "ns3/*.csv",
)
KEYS = ("mape", "median", "p90", "within_15", "within_30", "bias")
COLUMNS = ["points", "MAPE", "median", "p90", "within 15 %", "within 30 %", "bias"]
COVERAGE = ["metric", "distance", "rows", "cells", "held"]
QUANTITIES = ["group", "of", "quantity", "value", "configurations", "judged by", "with it", "without"]
FEW = 8  # groups that are shown at once
BEGIN, END = "<!-- headline -->", "<!-- /headline -->"  # around what is written into the README
HEAD = (
    "# Accuracy\n\n"
    "Written by `python docs/scripts/accuracy_page.py`, with the pictures; "
    "`strata validate --pictures DIR` draws them for any folder of measurements.\n\n"
    "error = predicted / measured - 1, every configuration equal. MAPE is the mean of its absolute value. "
    "[Validation](validation.md) defines the figures, the [data](../validation/README.md)\n"
    "says how each file was measured.\n"
)
NEW = (
    "## On something new\n\n"
    "Each family (a chip, a model, an engine, a network) is left out in turn and predicted with every fitted "
    "number refitted to the others: how wrong Strata is on something new. *As shipped*: the\nsame rows by the "
    "numbers that are shipped, which saw them. *Held out*: MAPE of the third of fitted files' configurations "
    "that no fit has seen, of families that it has seen. *Nobody looked*: of files by\nwhich no number was "
    "fitted or chosen. Files are found below, one by one.\n\n"
)
FAMILIES_OF_FILES = (
    "## Families left out, file by file\n\n"
    "*Nothing fitted*: no fitted number belongs to the file's families, which stand as they are shipped. "
    "*Worst family*: the one with the largest MAPE, and its rows.\n\n"
)
OVERVIEW = (
    "## All files\n\n"
    "*Held out*: fitted; only the third that no fit has seen counts here and in the pictures. *Chosen*: "
    "numbers were chosen with all of its rows in sight, so that only families left out\njudge it. The others "
    "nobody looked at. The dot is the median error, the bar holds the middle 80 % of points; bands are ±10 and "
    "±25 %.\n\n"
    "![Errors of all files](accuracy/overview.svg)\n"
)
WORTH = (
    "## What was fitted, and what it is worth\n\n"
    "`strata calibrate` moves these quantities and no others: each has a meaning and a range, none belongs to a "
    "shape. Errors are with the number and with what was stated before any fit: of chips and transports\nthat "
    "take it over (others it is carried to), of its own held-out third where no other has such rows, or of "
    "families left out. Every other number is a datasheet's, a paper's or stated as assumed:\n"
    "`strata show chip NAME`.\n\n"
)
INTERVALS = (
    "## Do intervals hold what they should?\n\n"
    "Beside an answer stands where [like cases](validation.md#like-cases) were measured: an interval that "
    "should hold 80 % of them. *Same chip and family*: a tenth of the rows, drawn at random,\nin intervals "
    "from the others. *Same chip*: a family left out on its chip. *Other chips*: a chip left out, every chip "
    "priced with the fitted quantities of another, as one known only from its\ndata sheet. Families and chips "
    "count once each. Few rows scatter: with 30 of them 66 to 94 % is chance.\n\n"
)
PER_FILE = (
    "## File by file\n\n"
    "The error over the measured size, with the median of points of like size. A colour is a group.\n"
)


def accuracy_page(outcome: dict[str, Any]) -> str:
    """The page for what `validate(..., unseen=True)` found, with what families left out showed."""
    parts = [HEAD, NEW + _table(HEADLINE, headline_cells(outcome))]
    if families := outcome.get("families"):
        parts.append(FAMILIES_OF_FILES + _table(FAMILIES, family_cells(families)))
    every = [_cells(_name(entry), entry) for entry in outcome["files"]]
    parts.append(OVERVIEW + "\n" + _table(["file", *COLUMNS], every))
    if outcome.get("arena"):
        parts.append(_arena(outcome["arena"]))
    if outcome.get("intervals"):
        parts.append(INTERVALS + _table(COVERAGE, _held(outcome["intervals"])))
    if outcome.get("quantities"):
        parts.append(WORTH + _table(QUANTITIES, _worth(outcome["quantities"])))
    parts.append(PER_FILE)
    for entry in outcome["files"]:
        if entry["points"] and matches(entry["file"], *PICTURED):
            picture = f"accuracy/{picture_name(entry['file'])}.svg"
            parts.append(f"### {entry['file']}\n\n![{entry['file']}]({picture})\n")
            parts.append(_groups(entry))
    return "\n".join(parts).rstrip("\n") + "\n"


def readme_with_headline(text: str, outcome: dict[str, Any]) -> str:
    """The README with the headline between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{_table(HEADLINE, headline_cells(outcome))}\n{END}{after}"


def _arena(entries: list[dict[str, Any]]) -> str:
    """Other predictors on the same points."""
    rows = [[*rival_cells(one), one.get("as_published", "")] for one in entries]
    columns = ["predictor", "file", "points", "MAPE", "Strata", "as published"]
    return "## Other predictors on the same points\n\n" + _table(columns, rows)


def _held(rows: list[dict[str, Any]]) -> list[list[str]]:
    """What intervals hold."""
    return [
        [one["metric"], one["distance"], f"{one['rows']:,}", str(one["groups"]), f"{one['held']:.0%}"]
        for one in rows
    ]


def _worth(quantities: list[dict[str, Any]]) -> list[list[str]]:
    """A line for each fitted number."""
    return [
        [
            one["group"],
            one["record"],
            f"`{one['path']}`",
            show(float(one["value"]), one["unit"], 3),
            f"{one['configurations']:,}",
            one.get("judged_by", one["kind"]),
            percent(one["with"]),
            percent(one["without"]),
        ]
        for one in quantities
    ]


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['file']} ({entry['seen']})" if entry.get("seen") else str(entry["file"])


def _groups(entry: dict[str, Any]) -> str:
    """The groups of a file; many of them behind a line that opens."""
    rows = [_cells(name, figures) for name, figures in entry["groups"].items()]
    table = _table(["group", *COLUMNS], rows)
    if len(rows) < FEW:
        return table
    return f"<details><summary>{len(rows)} groups</summary>\n\n{table}\n</details>\n"


def _cells(name: str, figures: dict[str, Any]) -> list[str]:
    return [name, str(figures["points"]), *(percent(figures.get(key)) for key in KEYS)]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, rule, *rows))


def accuracy_pages() -> dict[Path, str]:
    """The page and the README, as the committed table makes them."""
    outcome = stored_table(ROOT / "validation")
    readme = ROOT / "README.md"
    return {
        ROOT / "docs" / "accuracy.md": accuracy_page(outcome),
        readme: readme_with_headline(readme.read_text(encoding="utf-8"), outcome),
    }


if __name__ == "__main__":
    for path, text in accuracy_pages().items():
        path.write_text(text, encoding="utf-8")
    pictures = ROOT / "docs" / "accuracy"
    for old in pictures.glob("*.svg"):
        old.unlink()
    points = unpacked_points(stored_points(ROOT / "validation"))
    draw_accuracy(points, pictures, lambda file: matches(file, *PICTURED))
