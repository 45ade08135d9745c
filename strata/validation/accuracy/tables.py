"""What is committed of the project's accuracy: accuracy.json, limits.json, the points behind them, and the
residuals behind intervals.

``python -m strata.validation.accuracy.tables`` writes all of them from the project's own data; run it when
predictions move, then ``python docs/scripts/accuracy_page.py`` for the page, and say in the changelog how
they moved.

Of the rows behind intervals (measured, sound, and seen by no fit) near are rows as shipped predictions have
them, of files that were fitted the held-out ones. Rows on the same chip are those predicted without their
model, rows on other chips those predicted without their chip; where nothing was fitted to either, or what is
simulated hardly moves, as shipped. Whole models count also with the ideal engine in place of their own. Rows
that their file's TOML leaves out of `like_rows` do not count at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.software.engine import engine
from strata.validation.accuracy.headline import ACCURACY
from strata.validation.accuracy.intervals import (
    DISTANCES,
    FAR,
    NEAR,
    ON_CHIP,
    RATES,
    REPRICED,
    UNIT,
    Interval,
    LikeCase,
    interval,
)
from strata.validation.accuracy.points import write_points
from strata.validation.accuracy.run import compared_files, validate
from strata.validation.accuracy.trust import chip_form
from strata.validation.fit.left_out import FamiliesLeftOut, LeavingOut, family_entries, left_out_points
from strata.validation.fit.table import fit_table, is_fitted
from strata.validation.fit.worth import quantities_worth
from strata.validation.measured.reader import data_files
from strata.validation.measured.spec import spec_of
from strata.validation.readers.comparison import ComparedPoints, configurations, held_out
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import matches

WHOLE_MODELS = ("prefill", "decode", "request", "throughput", "train")
MOST = 40  # residuals kept of a cell; more are kept as so many quantiles
WITHOUT = {"model": ON_CHIP, "chip": FAR}  # how far a row is that is predicted without its own


@dataclass(frozen=True, kw_only=True)
class LikeRow:
    """A row: what it is like, ln(measured / predicted), and what of it the prediction had not seen."""

    case: LikeCase
    residual: float
    distance: str = NEAR


def like_rows(
    folder: Path | str, left_out: Iterable[FamiliesLeftOut], one_in: int = 1, *only: str
) -> list[LikeRow]:
    """Every row of the files below a folder that an interval may rest on, beside the same with their families
    left out; of long files of served runs one in so many.
    """
    plain = Catalogue(one_in=one_in)
    files = [name for name in _liked(Path(folder)) if not only or matches(name, *only)]
    rows = dict(_near(folder, plain, files))
    without: dict[tuple[str, str, str], list[LikeRow]] = {}
    for one in left_out:
        if one.kind in WITHOUT and one.file in rows:
            for row in _rows(one.points, one.predicted, plain, WITHOUT[one.kind]):
                without.setdefault((one.file, row.case.metric, row.distance), []).append(row)
    near = [row for some in rows.values() for row in some]
    repriced = [row for _, some in _near(folder, _repriced(plain, near), files) for row in some]
    repriced = [
        replace(row, case=replace(row.case, engine=REPRICED))
        for row in repriced
        if row.case.metric in WHOLE_MODELS and row.case.engine != "ideal"
    ]
    far = [
        replace(row, distance=distance)
        for distance in WITHOUT.values()
        for name, some in {**rows, "": repriced}.items()
        for row in some
        if (name, row.case.metric, distance) not in without and (distance == FAR or row.case.family)
    ]
    return [*near, *repriced, *far, *(row for some in without.values() for row in some)]


def _liked(folder: Path) -> list[str]:
    """The files some of whose metrics intervals rest on."""
    specs = {name: spec_of(folder, name, Catalogue().has_chip) for name in data_files(folder)}
    return [name for name, spec in specs.items() if spec and any(metric.like for metric in spec.metric)]


def _repriced(catalogue: Catalogue, rows: Iterable[LikeRow]) -> Catalogue:
    """The same with the ideal engine in place of those that ran whole models."""
    whole = {row.case.engine for row in rows if row.case.metric in WHOLE_MODELS}
    ideal = {name: replace(engine("ideal"), name=name) for name in whole}
    return replace(catalogue, engines={**catalogue.engines, **ideal})


def _near(
    folder: Path | str, catalogue: Catalogue, files: Sequence[str]
) -> Iterator[tuple[str, list[LikeRow]]]:
    for table, points in compared_files(folder, catalogue, *files) if files else ():
        unseen = held_out(points) if is_fitted(table.name) else points
        yield table.name, list(_rows(configurations(unseen), None, catalogue))


def _rows(
    points: ComparedPoints, predicted: Array | None, catalogue: Catalogue, distance: str = NEAR
) -> Iterator[LikeRow]:
    """Points that are like something, as shipped unless they are predicted otherwise."""
    values = points.predicted if predicted is None else predicted
    known = {key: _case(key, catalogue) for key in set(points.case) - {""}}
    for i in np.flatnonzero((values > 0) & (points.case != "")):
        case = known[points.case[i]]
        upside = bool(points.rate[i]) and case.metric not in RATES
        ratio = float(np.log(points.measured[i] / values[i]))
        yield LikeRow(case=case, residual=-ratio if upside else ratio, distance=distance)


def _case(key: str, catalogue: Catalogue) -> LikeCase:
    metric, name, kind, family, software = key.split("|")
    form = chip_form(catalogue.chip(name))
    return LikeCase(metric=metric, engine=software, chip=name, form=form, kind=kind, family=family)


# -------------------------------------------------------------------------------- the file of residuals


def residual_table(rows: Iterable[LikeRow]) -> dict[str, Any]:
    """Residuals by cell at each distance, and how chips are built: what `interval` reads."""
    cells: dict[str, dict[str, list[float]]] = {distance: {} for distance in DISTANCES}
    chips: dict[str, str] = {}
    for row in rows:
        cells[row.distance].setdefault(_key(row.case), []).append(row.residual)
        chips[row.case.chip] = row.case.form
    stored = {where: {k: _stored(v) for k, v in sorted(some.items())} for where, some in cells.items()}
    return {"chips": dict(sorted(chips.items())), **stored}


def _key(case: LikeCase) -> str:
    return "|".join((case.metric, case.engine, case.chip, case.kind, case.family))


def _stored(residuals: Sequence[float]) -> list[int]:
    """How many, then they in order, or quantiles of them where they are many."""
    ordered: Array = np.sort(residuals)
    if len(ordered) > MOST:
        ordered = np.quantile(ordered, np.linspace(0.0, 1.0, MOST))
    return [len(residuals), *(round(float(r) / UNIT) for r in ordered)]


def write_residuals(rows: Iterable[LikeRow], path: Path | str) -> None:
    """Write the file that ships with the package, one cell a line."""
    text = json.dumps(residual_table(rows), separators=(",", ":"))
    Path(path).write_text(text.replace('],"', '],\n"').replace('{"', '{\n"') + "\n", encoding="utf-8")


# ------------------------------------------------------------------------------------------- the check

# What is left out to see whether an interval holds at a distance: rows at random, families, chips.
_LEFT_OUT: dict[str, Callable[[LikeRow], tuple[str, ...]]] = {
    ON_CHIP: lambda row: (row.case.chip, row.case.family),
    FAR: lambda row: (row.case.chip,),
}


def coverage(rows: Sequence[LikeRow], folds: int = 10) -> list[dict[str, Any]]:
    """For each distance, in all and by metric: the share of what is left out in turn that intervals from the
    rest hold. A tenth of the rows, drawn at random, shows rows of a cell that was measured; a family left out
    on its chip, and a chip left out, each counting once, show what was never measured.
    """
    turn = np.random.default_rng(16).permutation(len(rows)) % folds
    turns: dict[str, list[Any]] = {NEAR: turn.tolist()}
    turns |= {distance: [key(row) for row in rows] for distance, key in _LEFT_OUT.items()}
    results: list[dict[str, Any]] = []
    for distance in DISTANCES:
        inside = _inside(rows, turns[distance], distance)
        for metric in ("", *sorted({row.case.metric for row in rows})):
            mine = [i for i in inside if metric in ("", rows[i].case.metric)]
            if not mine:
                continue
            cells: dict[str, list[float]] = {}
            for i in mine:
                cells.setdefault(_key(rows[i].case), []).append(inside[i])
            by_cell = [float(np.mean(some)) for some in cells.values()]
            share = np.mean([inside[i] for i in mine]) if distance == NEAR else np.mean(by_cell)
            results.append(
                {
                    "metric": metric or "all",
                    "distance": distance,
                    "rows": len(mine),
                    "groups": len(cells),
                    "held": float(share),
                }
            )
    return results


def _inside(rows: Sequence[LikeRow], turns: Sequence[Any], distance: str) -> dict[int, float]:
    """Rows that are asked about at a distance, each with the others of its turn left out: 1 where it lies in
    its interval, 0 where not.
    """
    members: dict[Any, list[int]] = {}
    for i, row in enumerate(rows):
        members.setdefault((row.case.metric, turns[i]), []).append(i)
    by_metric = {
        metric: [i for i, row in enumerate(rows) if row.case.metric == metric] for metric, _ in members
    }
    inside: dict[int, float] = {}
    for (metric, turn), mine in members.items():
        table = residual_table(rows[i] for i in by_metric[metric] if turns[i] != turn)
        asked = [i for i in mine if rows[i].distance == distance]
        known = {case: interval(case, table) for case in {rows[i].case for i in asked}}
        for i in asked:
            like = known[rows[i].case]
            if isinstance(like, Interval) and like.distance == distance:
                inside[i] = float(like.low <= rows[i].residual <= like.high)
    return inside


ONE_IN = 32  # rows of long served files that the table and `make test` predict: a simulation each
ROOM = 1.02  # a limit lies 2 % above today's error, so that only a real loss of accuracy crosses it
LIMITS = "limits.json"
PROJECT = Path(__file__).resolve().parents[3]


def rounded(tree: Any, digits: int = 4) -> Any:
    """The same JSON with its floats rounded, fitted values to so many figures: last digits stay."""
    if isinstance(tree, float):
        return round(tree, digits)
    if isinstance(tree, dict):
        sized = {k: float(f"{tree[k]:.{digits}g}") for k in ("value",) if tree.get(k)}
        return {k: rounded(v, digits) for k, v in tree.items()} | sized
    return [rounded(v, digits) for v in tree] if isinstance(tree, list) else tree


def error_limits(outcome: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The largest mape that a file may have, and one with its families left out: today's, and 2 % of it,
    rounded up.

    >>> error_limits({"files": [{"file": "a.csv", "mape": 0.1}]})
    {'families': {}, 'files': {'a.csv': 0.102}}
    """
    families = {family_name(one): one["mape"] for one in outcome.get("families", [])}
    files = {one["file"]: one["mape"] for one in outcome["files"] if one["mape"] is not None}
    every = {"families": families, "files": files}
    return {
        kind: {name: math.ceil(mape * ROOM * 1e4 - 1e-6) / 1e4 for name, mape in some.items()}
        for kind, some in every.items()
    }


def family_name(entry: dict[str, Any]) -> str:
    """What a limit is of: a metric of a file, each family of a kind predicted without it."""
    return " ".join(filter(None, (entry["file"], entry["metric"], "by", entry["kind"])))


def write_tables(
    folder: Path = PROJECT / "validation",
    residuals: Path = PROJECT / "strata" / "validation" / "accuracy" / "residuals.json",
) -> None:
    """Predict the project's own data and write what is committed of it."""
    leaving = LeavingOut(folder, Catalogue(one_in=max(group.search.one_in for group in fit_table().groups)))
    left_out = list(left_out_points(folder, leaving=leaving))
    outcome: dict[str, Any] = {"families": family_entries(folder, left_out)}
    outcome["quantities"] = [one.to_dict() for one in quantities_worth(folder, leaving=leaving)]
    outcome |= validate(folder, keep_points=True, unseen=True, one_in=ONE_IN)
    rows = like_rows(folder, left_out, ONE_IN)
    write_points(outcome.pop("points"), folder)
    outcome["intervals"] = coverage(rows)
    for name, content in ((ACCURACY, rounded(outcome)), (LIMITS, error_limits(outcome))):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_residuals(rows, residuals)


if __name__ == "__main__":
    write_tables()
