"""Errors against a file of measurements as a run of a study, by the chip that was measured or by a generated
one in its place.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.errors import BadValue, UnknownName, require
from strata.hardware.chip import Chip
from strata.hardware.generate.recipe import generate
from strata.validation.accuracy.compare import statistics
from strata.validation.measured.reader import reader_of
from strata.validation.measured.spec import spec_of
from strata.validation.readers.comparison import held_out
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

FILE_KEYS = ("file", "held_out", "conditions", "generate", "device", "set")


def run_measured(entry: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """Errors against a file of measurements, all of it or the third that no fit has seen: of all points, and
    of each group by its name. With `generate` a generated chip stands for the one of the file's folder, and
    headline points alone count; `conditions` tells some of the file's conditions otherwise.
    """
    for key in entry:
        if key not in ("name", *FILE_KEYS):
            raise UnknownName(f"key of {where}", key, FILE_KEYS, ", ".join(FILE_KEYS))
    catalogue = Catalogue()
    reader, spec = reader_of(entry["file"], catalogue), spec_of(folder, entry["file"], catalogue.has_chip)
    if reader is None or spec is None:
        raise BadValue(f"{where}: no reader fits the file {entry['file']}")
    changes = dict(entry.get("conditions", {}))
    for name in changes:
        if name not in spec.given:
            raise UnknownName(f"condition of {entry['file']}", name, spec.given, ", ".join(spec.given))
    table = replace(read_table(folder, entry["file"]), changes=changes)
    if "generate" in entry:
        named = catalogue.chip(table.chip).name
        catalogue = catalogue.with_chip(replace(generated_chip(entry, where), name=named))
    points = reader(table, catalogue)
    points = points.keep(points.headline.astype(bool)) if "generate" in entry else points
    points = held_out(points) if entry.get("held_out", False) else points
    errors: dict[str, Any] = statistics(points.measured, points.predicted)
    errors["correlation"] = float(np.corrcoef(points.measured, points.predicted)[0, 1])
    groups = sorted(set(points.group))
    for group in groups:
        of = points.group == group
        own = statistics(points.measured[of], points.predicted[of])
        errors |= {f"{group_name(group)}_{k}": v for k, v in own.items()}
    kinds = np.array([errors[f"{group_name(group)}_mape"] for group in groups])
    rows = {
        "line": points.line,
        "measured": points.measured,
        "predicted": points.predicted,
        "error": points.predicted / points.measured - 1.0,
    }
    return errors | rows | {"groups": groups, "kinds": kinds, "axes": ["line"]}


def group_name(group: str) -> str:
    """A group's name as an expression can say it.

    >>> group_name("8xB200/deepseek-v3/decode"), group_name("ag_gemm")
    ('on_8xB200_deepseek_v3_decode', 'ag_gemm')
    """
    word = re.sub(r"\W", "_", group)
    return f"on_{word}" if word[0].isdecimal() else word


def recipe_of(entry: dict[str, Any], where: str) -> tuple[Any, Any, Any]:
    """Technology, budget and template of an entry's `generate`."""
    recipe = entry["generate"]
    for key in ("technology", "budget", "template"):
        require(key in recipe, f"{where}: generate has technology, budget and template", missing=key)
    return recipe["technology"], recipe["budget"], recipe["template"]


def generated_chip(entry: dict[str, Any], where: str) -> Chip:
    """The chip of an entry's `generate` (technology, budget and template) and `device`, with numbers `set` as
    by `strata generate --set`.
    """
    changes = dict(item.split("=", 1) for item in entry.get("set", []))
    return generate(*recipe_of(entry, where), device=entry.get("device"), **changes)
