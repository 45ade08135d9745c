"""What training's fitted quantities are worth on families of runs they have not seen: a model, a number of
nodes, a chip, a release left out in turn.

Quantities of trainers were fitted by hand (their files say to what). Here they are fitted anew without each
family, from where they stand: logarithms of errors are nearly straight lines in logarithms of quantities over
so small a way, so that slopes are taken once and every family is left out of the same lines; what they give
is priced in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.params import override, value_at
from strata.validation.fit.solver import log_errors
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import HELD_OUT, ComparedPoints
from strata.validation.readers.registry import matches, reader_of
from strata.validation.readers.tables import Table
from strata.validation.readers.training_bridge import BridgeConditions
from strata.validation.readers.training_nanotron import NanotronConditions

STEP = 0.05  # of a logarithm, with which slopes are taken
FURTHEST = 1.0  # of a logarithm: lines are not followed further than that
ROBUST = 0.05  # errors above this count as their size, not as its square


@dataclass(frozen=True)
class TrainerFit:
    """Quantities of an engine and of a file's conditions that some rows were fitted by."""

    file: str
    engine: str
    quantities: tuple[str, ...]
    conditions: tuple[type, str, tuple[str, ...]] | None = None  # their record, their file, their quantities


TRAINER_FITS = (
    TrainerFit(
        "training/h100_nanotron.csv",
        "nanotron",
        (
            "host_step",
            "training.param_gather_rate",
            "training.host_collective",
            "training.host_stall",
            "training.collective_skew",
        ),
        (NanotronConditions, "training/h100_nanotron.toml", ("before_fix.message_hold",)),
    ),
    TrainerFit("training/a100_singlenode.csv", "megatron-deepspeed", ("training.host_kernel",)),
    TrainerFit(
        "training/megatron_bridge.csv",
        "megatron",
        ("training.host_expert",),
        (BridgeConditions, "training/megatron_bridge.toml", ("host_kernel",)),
    ),
)
# What families of runs are called, and the columns that may tell them: the first that a file has.
FAMILY_COLUMNS = {
    "model": ("model", "params_b", "hidden"),
    "nodes": ("nodes", "gpus", "devices"),
    "chip": ("chip", "system", "device"),
    "release": ("release", "round", "after_pp_fix"),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class FamiliesLeftOut:
    """Rows of a file, each predicted by quantities fitted without its own family."""

    kind: str  # model, nodes, chip or release
    names: tuple[str, ...]
    family: Array  # of each point
    points: ComparedPoints
    refitted: bool  # whether there was anything to fit


def trainer_fit(file: str) -> TrainerFit | None:
    """The quantities that a file's rows were fitted by, None where by none.

    >>> trainer_fit("training/a100_singlenode.csv").quantities, trainer_fit("training/mlperf.csv")
    (('training.host_kernel',), None)
    """
    return next((fit for fit in TRAINER_FITS if matches(file, fit.file)), None)


def leave_families_out(
    table: Table, kinds: Sequence[str] = tuple(FAMILY_COLUMNS), catalogue: Catalogue | None = None
) -> list[FamiliesLeftOut]:
    """Families of a file's runs left out in turn, by each kind of family that the file tells two of: all
    points of a family predicted with quantities fitted to two thirds of the other lines.
    """
    version = _Version(table, trainer_fit(table.name), catalogue or Catalogue())
    now = version.points(np.zeros(len(version)))
    lines = None if not len(version) else _lines(version, now)
    found = []
    for kind in kinds:
        column = next((c for c in FAMILY_COLUMNS[kind] if c in table.columns), None)
        told = {} if column is None else dict(zip(table.lines.tolist(), table.text(column), strict=True))
        family = np.array([str(told.get(int(line), "")) for line in now.line], dtype=object)
        names = tuple(sorted(set(family)))
        if len(names) < 2:
            continue
        predicted = now.predicted.copy()
        for name in names:
            if lines is None:  # nothing of this file was fitted
                break
            inside = family == name
            moved = version.points(moved_along(lines, ~inside & (now.line % HELD_OUT != 0)))
            predicted[inside] = moved.predicted[inside]
        judged = replace(now, predicted=predicted)
        found.append(
            FamiliesLeftOut(kind=kind, names=names, family=family, points=judged, refitted=lines is not None)
        )
    return found


class _Version:
    """A file's headline points, with its quantities moved by so much of a logarithm."""

    def __init__(self, table: Table, fit: TrainerFit | None, catalogue: Catalogue) -> None:
        self.table, self.fit, self.catalogue = table, fit, catalogue
        self.engine = None if fit is None else catalogue.engine(fit.engine)
        self.own = () if fit is None else fit.quantities
        self.told: tuple[str, ...] = ()
        start = [float(value_at(self.engine, path)) for path in self.own]
        if fit is not None and fit.conditions is not None:
            kind, name, self.told = fit.conditions
            known: Any = read_conditions(kind, table, name)
            start += [float(value_at(known, path)) for path in self.told]
        self.start = np.array(start)

    def __len__(self) -> int:
        return len(self.start)

    def points(self, moved: Array) -> ComparedPoints:
        """The headline points."""
        values = self.start * np.exp(moved)
        own, told = values[: len(self.own)], values[len(self.own) :]
        names, table = self.catalogue, self.table
        if self.engine is not None:
            changes: dict[str, Any] = dict(zip(self.own, own.tolist(), strict=True))
            names = names.with_engine(override(self.engine, changes, "engine")[0])
            said = dict(zip(self.told, told.tolist(), strict=True))
            table = replace(table, changes={**table.changes, **said})
        reader = reader_of(table.name, names)
        assert reader is not None  # files of training have one
        points = reader(table, names)
        return points.keep(points.headline.astype(bool))


def _lines(version: _Version, now: ComparedPoints) -> tuple[Array, Array]:
    """Errors of all points, and their slopes over each quantity, all in logarithms."""
    every = np.arange(len(now))
    here = log_errors(now, every)
    slopes = [(log_errors(version.points(STEP * one), every) - here) / STEP for one in np.eye(len(version))]
    return here, np.stack(slopes, axis=1)


def moved_along(lines: tuple[Array, Array], rows: Array, loose: float = inf) -> Array:
    """How far quantities move for the least errors of some rows, in logarithms; `loose`: how far one moves as
    lightly as a row errs by `ROBUST`.
    """
    from scipy.optimize import least_squares

    here, slopes = lines[0][rows], lines[1][rows]
    if loose < inf:
        count = slopes.shape[1]
        here = np.concatenate([here, np.zeros(count)])
        slopes = np.concatenate([slopes, np.eye(count) * (ROBUST / loose)])
    solved = least_squares(
        lambda x: here + slopes @ x,
        np.zeros(slopes.shape[1]),
        jac=lambda x: slopes,
        bounds=(-FURTHEST, FURTHEST),
        loss="soft_l1",
        f_scale=ROBUST,
    )
    return np.asarray(solved.x)
