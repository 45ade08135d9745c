"""Points behind the table of accuracy, as they are committed: measured and predicted of every compared row,
in one small file, so that a page opens at once.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from strata.errors import BadFile, UnknownName
from strata.validation.readers.tables import read_table

POINTS = "points.json.gz"  # in the folder of measurements, beside accuracy.json
DIGITS = 5  # of a committed number
# Kinds of measured files, by the beginnings of their names; the first that fits.
KINDS_OF_FILES = {
    "network": ("network/", "ns3/", "ops/nccl", "ops/custom_allreduce", "ops/deepep", "h100/overlap"),
    "serving": ("serving/",),
    "training": ("training/", "h200/train_step", "h200/optimiser"),
    "hardware": ("area/", "dram/", "thermal/"),
    "kernels": ("",),
}


def kind_of_file(name: str) -> str:
    """What a file of measurements is of.

    >>> [kind_of_file(name) for name in ("ops/nccl.csv", "ops/gemm.csv", "training/mlperf.csv")]
    ['network', 'kernels', 'training']
    """
    return next(kind for kind, starts in KINDS_OF_FILES.items() if name.startswith(starts))


def packed_points(points: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Points of `validate(..., keep_points=True)` by file, as columns; what is no number is left out.

    >>> one = {"file": "a.csv", "row": 2, "group": "g", "measured": 1.0, "predicted": 1.23456789}
    >>> packed_points([one | {"headline": True}])["a.csv"]["predicted"]
    [1.2346]
    """
    files: dict[str, Any] = {}
    for point in points:
        sizes = point["measured"], point["predicted"]
        if not all(math.isfinite(size) for size in sizes):
            continue
        held = files.setdefault(
            point["file"],
            {"groups": [], "row": [], "group": [], "measured": [], "predicted": [], "headline": []},
        )
        if point["group"] not in held["groups"]:
            held["groups"].append(point["group"])
        held["row"].append(int(point["row"]))
        held["group"].append(held["groups"].index(point["group"]))
        held["headline"].append(int(point["headline"]))
        for key, size in zip(("measured", "predicted"), sizes, strict=True):
            held[key].append(float(f"{size:.{DIGITS}g}"))
    return files


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
