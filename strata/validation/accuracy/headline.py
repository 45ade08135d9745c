"""The headline: by kind of question how far predictions are from a family that was left out, beside rows that
were held out of families shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from strata.base.reading import file_text
from strata.params import data_folder, data_folders
from strata.validation.accuracy.points import KINDS_OF_FILES, kind_of_file
from strata.validation.fit.table import fit_table, is_fitted
from strata.validation.measured.spec import read_spec
from strata.validation.readers.tables import matches

ACCURACY = "accuracy.json"  # in the folder of measurements
HELD_OUT, CHOSEN, UNSEEN = "held out", "chosen", ""
HEADLINE = (
    "question",
    "left out",
    "configurations",
    "MAPE",
    "median",
    "as shipped",
    HELD_OUT,
    "nobody looked",
)
FAMILIES = ("file", "metric", "left out", "configurations", "MAPE", "median", "as shipped", "worst family")
_SOURCE = re.compile(r'source\s*=\s*"((?:fitted|[^"]*(?:in sight|chosen))[^"]*)"')
_FILE = re.compile(r"[\w*./-]+\.(?:csv|json)")


def how_seen(file: str) -> str:
    """What of a file was seen: some rows by a fit, of which the others are held out; any of them when a
    number was chosen, by the sources of all numbers; nothing, where nobody looked.

    >>> [how_seen(name) for name in ("h200/gemm.csv", "peers/neusight_runs.csv", "h200/decoder.csv")]
    ['held out', 'chosen', '']
    """
    if is_fitted(file):
        return HELD_OUT
    last = file.rsplit("/", 1)[-1]
    chosen = any(matches(file, p) or matches(last, p.rsplit("/", 1)[-1]) for p in _files_in_sight())
    return CHOSEN if chosen else UNSEEN


@lru_cache(maxsize=1)
def _files_in_sight() -> tuple[str, ...]:
    """Patterns of files that numbers were fitted or chosen by, as their sources say; of a measured file's own
    TOML, the files that it describes.
    """
    patterns = [*fit_table().seen]
    for path in (path for folder in data_folders("") for path in sorted(folder.rglob("*.toml"))):
        sources = _SOURCE.findall(path.read_text(encoding="utf-8"))
        patterns += [name for source in sources for name in _FILE.findall(source)]
        if sources and data_folder("measured") in path.parents:
            patterns += read_spec(path).files
    return tuple(dict.fromkeys(patterns))


def question_rows(outcome: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Figures by kind of question: each kind of family left out in turn, beside the first rows held out of
    families that were shown, and files that nobody looked at. Means are over configurations, medians of the
    files'.
    """
    rows = []
    for question in KINDS_OF_FILES:
        files = [one for one in outcome["files"] if kind_of_file(one["file"]) == question and one["points"]]
        beside = {
            name: _pooled([one for one in files if one.get("seen", UNSEEN) == seen], "points")
            for name, seen in (("held_out", HELD_OUT), ("unseen", UNSEEN))
        }
        refitted = [
            one
            for one in outcome.get("families", [])
            if kind_of_file(one["file"]) == question and one["refitted"]
        ]
        for kind in dict.fromkeys(one["kind"] for one in refitted) or ("",):
            left_out = _pooled([one for one in refitted if one["kind"] == kind], "configurations")
            row = {"question": question, "kind": kind, "left_out": left_out, **beside}
            rows += [row] if left_out or any(beside.values()) else []
            beside = dict.fromkeys(beside)
    return rows


def _pooled(some: list[dict[str, Any]], count: str) -> dict[str, Any] | None:
    every = sum(one[count] for one in some)
    if not every:
        return None
    means = {
        key: sum(one[key] * one[count] for one in some) / every
        for key in ("mape", "shown")
        if all(key in one for one in some)
    }
    return {"files": len(some), "points": every, **means, "median": median(one["median"] for one in some)}


def percent(share: float | None) -> str:
    """A share as a table has it, nothing where there is none."""
    return "" if share is None else f"{share:.1%}"


def headline_cells(outcome: Mapping[str, Any]) -> list[list[str]]:
    """The headline as cells below `HEADLINE`."""
    rows = []
    for one in question_rows(outcome):
        left = one["left_out"] or {}
        count = f"{left['points']:,}" if left else ""
        cells = [
            one["question"],
            one["kind"],
            count,
            *(percent(left.get(k)) for k in ("mape", "median", "shown")),
        ]
        beside = [percent(one[key]["mape"]) if one[key] else "" for key in ("held_out", "unseen")]
        rows.append([*cells, *beside])
    return rows


def family_cells(families: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Files with their families left out, as cells below `FAMILIES`."""
    rows = []
    for one in families:
        worst, figures = max(one["families"].items(), key=lambda pair: pair[1]["mape"])
        kind = one["kind"] if one["refitted"] else f"{one['kind']}, nothing fitted"
        rows.append(
            [one["file"], one["metric"], f"{len(one['families'])} by {kind}", f"{one['configurations']:,}"]
            + [percent(one[key]) for key in ("mape", "median", "shown")]
            + [f"{worst} ({figures['rows']:,}): {percent(figures['mape'])}"]
        )
    return rows


def rival_cells(entry: Mapping[str, Any]) -> list[str]:
    """Another predictor's figures beside ours, as cells."""
    ours, theirs = percent(entry["ours"]), percent(entry["mape"])
    return [entry["rival"], entry["file"], str(entry["points"] or ""), theirs, ours]


def stored_table(folder: Path) -> dict[str, Any]:
    """The table of the last run as it is kept beside measurements; none where there is none."""
    path = folder / ACCURACY
    table: dict[str, Any] = json.loads(file_text(path)) if path.is_file() else {"files": []}
    return table


def stored_families(folder: Path, files: Iterable[str]) -> list[dict[str, Any]]:
    """Families left out of some files, as the last full run found them."""
    wanted = set(files)
    return [one for one in stored_table(folder).get("families", []) if one["file"] in wanted]
