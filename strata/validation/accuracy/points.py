"""Points behind the table of accuracy, as they are committed: measured and predicted of every compared row,
in one small file, so that a page opens at once.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from strata.base.errors import BadFile, UnknownName
from strata.validation.readers.tables import read_table

POINTS = "points.json.gz"  # in the folder of measurements, beside accuracy.json
DIGITS = 5  # of a committed number
# Kinds of measured files, by patterns of their names; the first that fits.
KINDS_OF_FILES = {
    "serving": ("serving/*",),
    "training": ("training/*", "*/train_step.csv", "*/optimiser.csv"),
    "steps": ("*/decoder.csv", "*/step_power.csv", "graphs/*", "peers/neusight_runs.csv"),
    "network": ("network/*", "ns3/*", "*/overlap.csv", "*/nccl.csv", "*/custom_allreduce.csv", "*/deepep*"),
    "hardware": ("area/*", "dram/*", "thermal/*"),
    "kernels": ("*",),
}


def kind_of_file(name: str) -> str:
    """What a file of measurements is of.

    >>> [kind_of_file(name) for name in ("ops/nccl.csv", "ops/gemm.csv", "training/mlperf.csv")]
    ['network', 'kernels', 'training']
    """
    return next(kind for kind, some in KINDS_OF_FILES.items() if any(fnmatchcase(name, p) for p in some))


def packed_points(points: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Points of `validate(..., keep_points=True)` by file, as columns; what is no number is left out. Groups
    and families are places in lists of names.

    >>> one = {"file": "a.csv", "row": 2, "group": "g", "measured": 1.0, "predicted": 1.23456789}
    >>> packed = packed_points([one | {"headline": True, "families": {"chip": "h200"}}])["a.csv"]
    >>> packed["predicted"], packed["families"]["chip"]
    ([1.2346], {'names': ['h200'], 'of': [0]})
    """
    files: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        if math.isfinite(point["measured"]) and math.isfinite(point["predicted"]):
            files.setdefault(point["file"], []).append(point)
    return {name: _packed(some) for name, some in files.items()}


def _packed(points: list[dict[str, Any]]) -> dict[str, Any]:
    groups, of_group = _places([point["group"] for point in points])
    columns: dict[str, Any] = {"groups": groups, "group": of_group, "families": {}}
    for kind in sorted({kind for point in points for kind in point.get("families", ())}):
        labels, of = _places([point.get("families", {}).get(kind, "") for point in points])
        columns["families"][kind] = {"names": labels, "of": of}
    columns |= {key: [int(point[key]) for point in points] for key in ("row", "headline")}
    return columns | {
        key: [float(f"{point[key]:.{DIGITS}g}") for point in points] for key in ("measured", "predicted")
    }


def _places(labels: list[str]) -> tuple[list[str], list[int]]:
    """Different labels, and which of them each is."""
    every = list(dict.fromkeys(labels))
    places = {label: i for i, label in enumerate(every)}
    return every, [places[label] for label in labels]


def unpacked_points(files: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Points as they were before they were packed, without commands."""
    return [
        {
            "file": name,
            "row": columns["row"][i],
            "group": columns["groups"][columns["group"][i]],
            "measured": columns["measured"][i],
            "predicted": columns["predicted"][i],
            "headline": bool(columns["headline"][i]),
            "command": "",
            "families": {
                kind: held["names"][held["of"][i]] for kind, held in columns.get("families", {}).items()
            },
        }
        for name, columns in files.items()
        for i in range(len(columns["row"]))
    ]


def write_points(points: Iterable[dict[str, Any]], folder: Path) -> Path:
    """Write the points; the same ones give the same bytes."""
    path = folder / POINTS
    text = json.dumps(packed_points(points), separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return path


@lru_cache(maxsize=1)
def stored_points(folder: Path) -> dict[str, Any]:
    """The committed points by file; none where a folder has none."""
    path = folder / POINTS
    if not path.is_file():
        return {}
    try:
        found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError) as error:
        raise BadFile(f"{path.name} is not what strata writes: {error}") from None
    return found


def measured_row(folder: Path, name: str, row: int, known: Iterable[str]) -> dict[str, str]:
    """The cells of one row of a measured file, by column; `known` are the files that may be asked for."""
    every = list(known)
    if name not in every:
        raise UnknownName("file of measurements", name, every, "strata validate")
    table = read_table(folder, name)
    places = [i for i, line in enumerate(table.lines.tolist()) if line == row]
    if not places:
        raise UnknownName(f"line of {name}", str(row), [str(line) for line in table.lines[:3].tolist()])
    return {column: str(cells[places[0]]) for column, cells in table.columns.items()}
