"""The rows behind intervals: measured, sound, and seen by no fit; and whether intervals hold what they
should.

Every file is predicted as it is; whole models also with the ideal engine in place of their own, and all files
with chips whose fitted quantities are those of another chip, which is how a chip known only from its data
sheet is priced. Of files that were fitted, only the held-out third and models no fit has seen count; rows
that readers call noisy or eager have no case and do not count at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.hardware.chip import Chip, chip
from strata.mapping.engine import engine
from strata.params import names, with_value
from strata.validation.accuracy.intervals import ALIKE, RATES, REPRICED, UNIT, Interval, LikeCase, interval
from strata.validation.accuracy.run import compared_files
from strata.validation.accuracy.trust import chip_fitted, like_chip
from strata.validation.fit.files import is_fitted
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import HELD_OUT, ComparedPoints, configurations
from strata.validation.readers.registry import matches
from strata.validation.readers.tables import Table

# Files of kernels and collectives: metric, what ran them, and which part of a group names the chip (none: the
# folder does).
KERNEL_FILES: dict[str, tuple[str, str, int | None]] = {
    "v100/deepbench_gemm.csv": ("kernel gemm", "bare", None),
    "ops/gemm.csv": ("kernel gemm", "served", 0),
    "ops/context_attention.csv": ("kernel attention", "served", 0),
    "ops/generation_attention.csv": ("kernel attention", "served", 0),
    "ops/context_mla.csv": ("kernel latent attention", "served", 0),
    "ops/generation_mla.csv": ("kernel latent attention", "served", 0),
    "ops/moe.csv": ("kernel experts", "served", 0),
    "ops/nccl.csv": ("collective", "nccl", 0),
    "network/multinode.csv": ("between nodes", "nccl", 1),
    "ops/custom_allreduce.csv": ("collective all_reduce", "custom", 0),
    "ops/deepep_low_latency.csv": ("expert exchange", "deepep", 0),
    "*/gemm.csv": ("kernel gemm", "bare", None),
    "*/attention.csv": ("kernel attention", "bare", None),
    "*/grouped_gemm.csv": ("kernel grouped", "bare", None),
    "*/stream.csv": ("kernel stream", "bare", None),
    "*/overlap.csv": ("fused kernel", "bare", None),
}
OTHER_KERNELS = {
    "bmm": "gemm",
    "gemm": "gemm",
    "cumsum": "scan",
    "fft1d": "fft",
    "fft3d": "fft",
    "lu": "lu",
    "embedding_bag": "embedding_bag",
}
SERVING = "serving/*"
OF_CHIPS = ("training/*", *KERNEL_FILES, "*/other.csv", "*/decoder.csv", "*/step_power.csv")
WHOLE_MODELS = ("prefill", "decode", "request", "throughput", "train")
SERVED_METRICS = ("decode", "request")  # told apart for dense models and mixtures of experts, too
MOST = 60  # residuals kept of a category; more are kept as so many quantiles
LEAST_FITTED = 20  # quantities that make a chip one whose fit another may borrow


@dataclass(frozen=True, kw_only=True)
class LikeRow:
    """A row: what it is like, and ln(measured / predicted)."""

    case: LikeCase
    residual: float


def like_rows(folder: Path | str, one_in: int = 1) -> list[LikeRow]:
    """Every row of the files below a folder that an interval may rest on; of long files of served runs one in
    so many. What was served on other chips is what a chip is like that was never measured.
    """
    plain = Catalogue(one_in=one_in)
    served = list(_rows(folder, plain, SERVING))
    rows = [*served, *_rows(folder, plain, *OF_CHIPS)]
    rows += [replace(row, case=replace(row.case, fitted=False)) for row in served]
    ideal = engine("ideal")
    bare = plain
    for name in dict.fromkeys(row.case.engine for row in rows if row.case.metric in WHOLE_MODELS):
        bare = bare.with_engine(replace(ideal, name=name))
    rows += [
        replace(row, case=replace(row.case, engine=REPRICED))
        for row in _rows(folder, bare, "serving/*.csv", "training/*.csv")
        if row.case.metric in WHOLE_MODELS
    ]
    for donor in _donors():
        lent = plain
        for name in dict.fromkeys(row.case.chip for row in rows if row.case.fitted):
            if not _siblings(chip(name), donor):
                lent = lent.with_chip(with_fit_of(chip(name), donor))
        rows += [
            replace(row, case=replace(row.case, fitted=False))
            for row in _rows(folder, lent, *OF_CHIPS)
            if row.case.chip in lent.chips
        ]
    return rows


def _donors() -> list[Chip]:
    """Chips with a fit of their own."""
    shipped = [chip(name) for name in names("chip")]
    return [one for one in shipped if chip_fitted(one) and len(_fitted_paths(one, "fitted:")) >= LEAST_FITTED]


def _fitted_paths(one: Chip, *starts: str) -> list[str]:
    return [path for path, param in one.sources.items() if param.source.startswith(starts)]


def _siblings(one: Chip, other: Chip) -> bool:
    """Whether a chip has the other's fit already."""
    borrowed = (f"assumed: as fitted on {other.name},", f"assumed: as fitted on {other.name} ")
    return one.name == other.name or bool(_fitted_paths(one, *borrowed))


def with_fit_of(one: Chip, donor: Chip) -> Chip:
    """A chip as if it had never been measured: what was fitted on it is taken from another chip where that
    has it.

    >>> lent = with_fit_of(chip("b200"), chip("h200"))
    >>> lent.memory.efficiency == chip("h200").memory.efficiency, lent.name
    (True, 'b200')
    """
    for path in _fitted_paths(one, "fitted:", "assumed: as fitted"):
        if path in donor.sources and not path.startswith("energy."):
            one = with_value(one, path, donor.sources[path].value)
    return one


def _rows(folder: Path | str, catalogue: Catalogue, *only: str) -> Iterator[LikeRow]:
    for table, points in compared_files(folder, catalogue, *only):
        points = configurations(points)
        cases, unfitted = _cases(table, points, catalogue), not is_fitted(table.name)
        kept = (points.predicted > 0) & (unfitted | (points.line % HELD_OUT == 0))
        for i in np.flatnonzero(kept):
            if (case := cases[i]) is not None:
                upside = bool(points.rate[i]) and case.metric not in RATES
                ratio = float(np.log(points.measured[i] / points.predicted[i]))
                yield LikeRow(case=case, residual=-ratio if upside else ratio)


def _cases(table: Table, points: ComparedPoints, catalogue: Catalogue) -> list[LikeCase | None]:
    """What each point is like, None where it is like nothing that is asked for."""
    if any(points.case):
        known = {key: _whole_case(key, catalogue) if key else None for key in set(points.case)}
        return [known[key] for key in points.case]
    named = {group: _kernel_case(table, str(group), catalogue) for group in set(points.group)}
    return [named[group] for group in points.group]


def _whole_case(key: str, catalogue: Catalogue) -> LikeCase:
    metric, name, kind, family, software = key.split("|")
    return like_chip(catalogue.chip(name), metric, software, kind, family)


def _kernel_case(table: Table, group: str, catalogue: Catalogue) -> LikeCase | None:
    parts = group.split("/")
    if "eager" in group or parts[0] in ("regenerated", "clock", "energy"):
        return None
    if matches(table.name, "*/step_power.csv"):
        return (
            like_chip(catalogue.chip(table.chip), "power", "ideal", "dense") if parts[0] == "power" else None
        )
    if matches(table.name, "*/other.csv") and parts[0] in OTHER_KERNELS:
        return like_chip(catalogue.chip(table.chip), f"kernel {OTHER_KERNELS[parts[0]]}", "bare")
    for name, (metric, software, place) in KERNEL_FILES.items():
        if matches(table.name, name):
            used = table.chip if place is None else parts[place]
            if metric == "collective":
                metric = f"collective {parts[1].replace('alltoall', 'all_to_all')}"
            elif metric == "between nodes":
                metric = f"collective {parts[0].replace('alltoall', 'all_to_all')} between nodes"
            return like_chip(catalogue.chip(used), metric, software)
    return None


# -------------------------------------------------------------------------------- the file of residuals


def residual_table(rows: Iterable[LikeRow]) -> dict[str, Any]:
    """Residuals by category, and how chips are built: what `interval` reads."""
    cells: dict[str, list[float]] = {}
    chips: dict[str, str] = {}
    for row in rows:
        cells.setdefault(_key(row.case), []).append(row.residual)
        chips[row.case.chip] = row.case.form
    return {
        "chips": dict(sorted(chips.items())),
        "cells": {k: _stored(v) for k, v in sorted(cells.items())},
    }


def _key(case: LikeCase) -> str:
    fit = "fitted" if case.fitted else "left out"
    return "|".join((case.metric, case.engine, case.chip, case.kind, case.family, fit))


def _stored(residuals: Sequence[float]) -> list[int]:
    """How many, then they in order, or quantiles of them where they are many."""
    ordered: Array = np.sort(residuals)
    if len(ordered) > MOST:
        ordered = np.quantile(ordered, np.linspace(0.0, 1.0, MOST))
    return [len(residuals), *(round(float(r) / UNIT) for r in ordered)]


def write_residuals(rows: Iterable[LikeRow], path: Path | str) -> None:
    """Write the file that ships with the package, one category a line."""
    made = residual_table(rows)
    lines = [f"    {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in made["cells"].items()]
    text = (
        f'{{\n  "chips": {json.dumps(made["chips"])},\n' + '  "cells": {\n' + ",\n".join(lines) + "\n  }\n}\n"
    )
    Path(path).write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------------------------- the check


def coverage(rows: Sequence[LikeRow], folds: int = 10) -> list[dict[str, Any]]:
    """For each metric, and in all: the share of what is left out in turn that intervals from the rest hold.

    `rows` leaves out a tenth of the rows, drawn at random; `groups` whole categories (a family of models on a
    chip by an engine), each of which counts once: what is asked about what was never measured.
    """
    turn = np.random.default_rng(16).permutation(len(rows)) % folds
    by_row = np.full(len(rows), np.nan)
    for t in range(folds):
        table = residual_table(row for row, other in zip(rows, turn, strict=True) if other != t)
        _fill(by_row, rows, turn == t, table)
    keys = np.array([_key(row.case) for row in rows])
    whole = residual_table(rows)
    by_group = np.full(len(rows), np.nan)
    for key in whole["cells"]:
        rest = {k: v for k, v in whole["cells"].items() if k != key}
        _fill(by_group, rows, keys == key, whole | {"cells": rest})
    found: list[dict[str, Any]] = []
    cuts = [(m, "") for m in (*sorted({row.case.metric for row in rows}), "")]
    cuts += [(m, kind) for m in SERVED_METRICS for kind in ALIKE]
    for fitted in (True, False):
        for metric, kind in cuts:
            cases = [(row.case.fitted, metric and row.case.metric, kind and row.case.kind) for row in rows]
            mine = np.array([case == (fitted, metric, kind) for case in cases])
            if mine.any():
                shares = [_share(by_group[keys == key]) for key in np.unique(keys[mine])]
                told = [s for s in shares if s is not None]
                found.append(
                    {
                        "metric": f"{metric}, {kind}" if kind else metric or "all",
                        "chips": "fitted" if fitted else "not fitted",
                        "rows": int(mine.sum()),
                        "held_rows": _share(by_row[mine]),
                        "groups": len(shares),
                        "held_groups": float(np.mean(told)) if told else None,
                    }
                )
    return found


def _share(inside: Array) -> float | None:
    told = inside[~np.isnan(inside)]
    return float(np.mean(told)) if len(told) else None


def _fill(inside: Array, rows: Sequence[LikeRow], which: Array, table: Mapping[str, Any]) -> None:
    """For some rows 1 where they lie in their interval of a table, 0 where not, nan where there is none."""
    known: dict[LikeCase, Any] = {}
    for i in np.flatnonzero(which).tolist():
        case = rows[i].case
        found = known.setdefault(case, None) or interval(case, table)
        known[case] = found
        if isinstance(found, Interval):
            inside[i] = float(found.low <= rows[i].residual <= found.high)
