"""The page docs/accuracy.md: how far predictions are from measurements, with pictures, and what was fitted on
what.
"""

from __future__ import annotations

from typing import Any

from strata.hardware.chip import Chip, chip
from strata.params import names
from strata.units import show
from strata.validation.accuracy.pictures import picture_name
from strata.validation.fit.files import is_fitted
from strata.validation.readers.registry import matches

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
HEADINGS = {"mape": "MAPE", "within_15": "within 15 %", "within_30": "within 30 %"}
COVERAGE = ["metric", "chips", "rows", "held of rows", "groups", "held of groups"]
FEW = 8  # groups that are shown at once
HEAD = (
    "# Accuracy\n\n"
    "Written by `python -m strata.validation.accuracy.tables`, with the pictures; "
    "`strata validate --pictures DIR` draws them for any folder of measurements.\n\n"
    "error = predicted / measured - 1, every point equal. MAPE is the mean of its absolute value. "
    "Files marked *held out* were fitted: only the third of their lines that no fit has\n"
    "seen counts here and in the pictures. [Validation](validation.md) defines the figures, the "
    "[data](../validation/README.md) says how each file was measured.\n"
)
OVERVIEW = (
    "## All files\n\n"
    "The dot is the median error, the bar holds the middle 80 % of points; bands are ±10 and ±25 %.\n\n"
    "![Errors of all files](accuracy/overview.svg)\n"
)
FITS = (
    "## What was fitted on what\n\n"
    "`strata calibrate` moves the quantities below and no others: each is a property of the chip with "
    "a meaning and a range, none belongs to a shape. Two thirds of the lines of the named\n"
    "files were fitted; the error is of the third that was not. Every other number of a chip is "
    "a datasheet's, a paper's or stated as assumed: `strata show chip NAME`.\n\n"
    "| chip | quantities | what they rest on |\n| --- | --- | --- |\n"
)
SERVED = (
    "## Served models that no fit has seen\n\n"
    "Every point of a served file is a number that `strata simulate` prints, and `strata validate FILE "
    "--row N` says with which command; rows of one command are one configuration.\nToken times and first "
    "tokens predicted without their family: the fitted numbers of engines refitted to the configurations of "
    "all other models, chips or engines\n(`strata.validation.fit.served`), all of them, dense models alone and "
    "mixtures of experts alone.\n\n"
)
TRAINED = (
    "## Training\n\n"
    "Every row of each file; the third of its lines that no fit has seen, where others were fitted; and rows "
    "predicted without their family: quantities fitted\n"
    "to two thirds of the lines of all other models, numbers of nodes, chips or releases "
    "(`strata.validation.fit.trainers`). Of files by which nothing was\n"
    "fitted, families are shown as they stand. *Worst*: the family with the largest median, and its points. "
    "A mean tells little of a file with runs that\n"
    "went wrong: read the median and the shares beside it.\n\n"
)
MISLABELLED = (
    "`training/h100_nanotron.csv`: of the runs with stages that say they were made after the pipeline fix, "
    "{slow} are more than twice as slow as that build,\n"
    "and {other} of these lie within 30 % of what the build before the fix takes. Where the builds differ in "
    "memory too (stages of model A), three of four\n"
    "such runs have the memory of the build before it. They count as they are labelled; without "
    "these {other} rows the mean "
    "error of the file is {rest}. Not explained: half\n"
    "of the runs on 64 nodes without stages (1.4 to 5 times slower than predicted, as if their hosts "
    "stalled), tensor groups over nodes with residual streams\n"
    "of 1 GiB and more (1.3 to 6 times), and three runs 2.5 to 5 times faster, as if theirs did not.\n"
)
INTERVALS = (
    "## Do intervals hold what they should?\n\n"
    "Beside an answer stands where [like cases](validation.md#like-cases) were measured: an interval that "
    "should hold 80 % of them. Rows behind it are those no fit has seen, without those\n"
    "known to be noisy. *Rows*: a tenth of the rows left out at random, each asked about as its own chip, "
    "engine and family, in an interval from the others. *Groups*: a family of\n"
    "models on a chip by an engine left out as a whole, as if it had never been measured; each group counts "
    "once. *Not fitted*: every chip priced with the fitted quantities of other\n"
    "chips, which is how a chip known only from its data sheet fares; there only groups are asked about. "
    "Few rows scatter: with 30 of them 66 to 94 % is chance.\n\n"
)
PER_FILE = (
    "## File by file\n\n"
    "Left: predicted over measured. Right: the error over the measured size, with the median of points "
    "of like size. A colour is a group.\n"
)


def accuracy_page(outcome: dict[str, Any]) -> str:
    """The page for what `validate(..., unseen=True)` found."""
    parts = [HEAD]
    if outcome.get("served"):
        parts.append(
            SERVED + _table([["file", "rows", "points", *KEYS, "worst"], *_left_out(outcome["served"])])
        )
    every = [_cells(_name(e["file"]), e) for e in outcome["files"]]
    parts.append(OVERVIEW + "\n" + _table([["file", "points", *KEYS], *every]))
    if outcome.get("training"):
        parts.append(
            TRAINED + _table([["file", "rows", "points", *KEYS, "worst"], *_trained(outcome["training"])])
        )
    if outcome.get("mislabelled"):
        told = outcome["mislabelled"]
        parts.append(MISLABELLED.format(**told | {"rest": f"{told['rest']:.1%}"}))
    if outcome.get("intervals"):
        parts.append(INTERVALS + _table([COVERAGE, *_held(outcome["intervals"])]))
    parts += [FITS + _fits(), PER_FILE]
    for entry in outcome["files"]:
        if entry["points"] and matches(entry["file"], *PICTURED):
            parts.append(
                f"### {entry['file']}\n\n![{entry['file']}](accuracy/{picture_name(entry['file'])}.svg)\n"
            )
            parts.append(_groups(entry))
    return "\n".join(parts).rstrip("\n") + "\n"


def _held(rows: list[dict[str, Any]]) -> list[list[str]]:
    """What intervals hold, metrics with too few rows to leave some out aside."""
    return [
        [
            row["metric"],
            row["chips"],
            str(row["rows"]),
            _percent(row["held_rows"]) if row["chips"] == "fitted" else "",
            str(row["groups"]),
            _percent(row["held_groups"]),
        ]
        for row in rows
        if row["held_rows"] is not None or row["held_groups"] is not None
    ]


def _trained(files: list[dict[str, Any]]) -> list[list[str]]:
    """Three kinds of lines of each file: all of it, its held-out third, and its families left out."""
    rows = []
    for entry in files:
        rows.append([entry["file"], *_cells("all", entry["all"]), ""])
        if entry["held_out"] is not None:
            rows.append([entry["file"], *_cells("held-out third", entry["held_out"]), ""])
        rows += _left_out([entry])
    return rows


def _left_out(files: list[dict[str, Any]]) -> list[list[str]]:
    """Lines of each file's families left out."""
    rows = []
    for entry in files:
        for found in entry["left_out"]:
            name = f"{found['families']} by {found['kind']}" + (
                "" if found["refitted"] else ", nothing fitted"
            )
            worst = f"{found['worst_family']} ({found['worst_points']}): {found['worst_median']:.1%}"
            if found["refitted"]:
                metric = f"{entry['metric']}, " if entry.get("metric") else ""
                rows.append([entry["file"], *_cells(f"{metric}without its own of {name}", found), worst])
                alone = {"dense": "dense models", "experts": "mixtures of experts"}
                split = {f"{metric}{text} of these": found[k] for k, text in alone.items() if found.get(k)}
                rows += [[entry["file"], *_cells(text, figures), ""] for text, figures in split.items()]
            else:
                blank = [""] * len(KEYS)
                rows.append([entry["file"], name, str(found["points"]), *blank, worst])
    return rows


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _name(file: str) -> str:
    return f"{file} (held out)" if is_fitted(file) else file


def _groups(entry: dict[str, Any]) -> str:
    """The groups of a file; many of them behind a line that opens."""
    rows = [["group", "points", *KEYS]] + [_cells(name, figures) for name, figures in entry["groups"].items()]
    table = _table(rows)
    return (
        table
        if len(rows) <= FEW
        else f"<details><summary>{len(rows) - 1} groups</summary>\n\n{table}\n</details>\n"
    )


def _cells(name: str, figures: dict[str, Any]) -> list[str]:
    return [
        name,
        str(figures["points"]),
        *("" if figures.get(k) is None else f"{figures[k]:.1%}" for k in KEYS),
    ]


def _table(rows: list[list[str]]) -> str:
    head, *body = rows
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in ([HEADINGS.get(c, c) for c in head], rule, *body))


def _fits() -> str:
    """One line for each fit of a chip, and for each chip that takes over another's."""
    lines = []
    for name in names("chip"):
        owner = chip(name)
        for source, paths in _by_source(owner).items():
            told = (
                ", ".join(_quantity(owner, p) for p in paths)
                if source.startswith("fitted")
                else f"{len(paths)} of them"
            )
            lines.append(f"| {name} | {told} | {source} |\n")
    return "".join(lines)


def _by_source(owner: Chip) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for path, param in owner.sources.items():
        # what a generated chip's template was fitted to is told where templates are
        own = not path.startswith("recipe.")
        if own and param.source.startswith(("fitted:", "assumed: as fitted")):
            paths.setdefault(param.source, []).append(path)
    return paths


def _quantity(owner: Chip, path: str) -> str:
    param = owner.sources[path]
    return f"`{path}` {show(float(param.value), param.unit, 3)}"
