"""What engines' fitted quantities are worth on families of served runs they have not seen: a model, a chip or
an engine left out in turn.

As in `trainers`: quantities are fitted anew without each family, from where they stand, along slopes of
logarithms that are taken once; what they give is priced in full. An engine that is left out takes what the
others have in common: the geometric means of their quantities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.mapping.engine import Engine
from strata.params import override, value_at
from strata.validation.fit.solver import log_errors
from strata.validation.fit.trainers import STEP, FamiliesLeftOut, moved_along
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import HELD_OUT, ComparedPoints
from strata.validation.readers.registry import reader_of
from strata.validation.readers.tables import Table

# Families of served runs, and the columns that tell them.
SERVED_FAMILIES = {"model": "model", "chip": "system", "engine": "backend"}


@dataclass(frozen=True)
class ServedFit:
    """What was fitted of each engine to one metric of served runs; an engine that is not named is priced as
    it stands.
    """

    metric: str  # how its groups begin
    quantities: dict[str, tuple[str, ...]]
    common: tuple[
        str, ...
    ]  # what an engine that is left out takes from the others, or has not where none has


TOKEN_TIMES = ServedFit(
    "tpot",
    {
        "vllm": ("step", "stream", "gap", "pdl_overlap", "weight_only_rate"),
        "trtllm": ("step", "sequence", "stream", "pdl_overlap", "weight_only_rate"),
        "sglang": ("step", "stream", "pdl_overlap"),
    },
    ("step", "sequence", "stream", "pdl_overlap"),
)
FIRST_TOKENS = ServedFit(
    "ttft",
    {
        "vllm": ("request", "tokenize", "weight_only_work", "prompt_block"),
        "trtllm": ("request", "tokenize", "weight_only_work", "expert_layer"),
        "sglang": ("request",),
    },
    ("request", "tokenize", "weight_only_work", "prompt_block", "expert_layer"),
)


def leave_served_families_out(
    table: Table,
    kinds: Sequence[str] = tuple(SERVED_FAMILIES),
    catalogue: Catalogue | None = None,
    fit: ServedFit = TOKEN_TIMES,
) -> list[FamiliesLeftOut]:
    """Families of a file's served runs left out in turn, by each kind of which it has two: token times (or
    first tokens) of a family predicted with quantities fitted to two thirds of the lines of the others.
    """
    names = catalogue or Catalogue()
    lines = table.lines.tolist()
    columns = {k: dict(zip(lines, table.text(c), strict=True)) for k, c in SERVED_FAMILIES.items()}
    engines = {n: names.engine(n) for n in fit.quantities if n in set(columns["engine"].values())}
    now = _points(table, names, fit)
    of = {
        k: np.array([str(told[int(line)]) for line in now.line], dtype=object) for k, told in columns.items()
    }
    slopes = _slopes(table, names, engines, now, of["engine"], fit)
    found = []
    for kind in kinds:
        families = tuple(sorted(set(of[kind])))
        if len(families) < 2:
            continue
        predicted = now.predicted.copy()
        for family in families:
            inside = of[kind] == family
            seen = ~inside & (now.line % HELD_OUT != 0)
            fitted = {n: _refitted(e, slopes[n], of["engine"] == n, seen, fit) for n, e in engines.items()}
            if kind == "engine" and family in engines:
                fitted[family] = _like_others(family, fitted, fit)
            rows = table.keep(table.text(SERVED_FAMILIES[kind]) == family)
            moved = _points(rows, _with(names, fitted), fit)
            predicted[inside] = moved.predicted
        judged = replace(now, predicted=predicted)
        found.append(
            FamiliesLeftOut(kind=kind, names=families, family=of[kind], points=judged, refitted=True)
        )
    return found


def _points(table: Table, catalogue: Catalogue, fit: ServedFit) -> ComparedPoints:
    """Points of a file's metric; first tokens take long to simulate, and are where they are the metric."""
    other = {"silicon_ttft_ms"} & set(table.columns) if fit.metric != FIRST_TOKENS.metric else ()
    none = {column: np.full(len(table), "", object) for column in other}
    table = replace(table, columns={**table.columns, **none})
    reader = reader_of(table.name, catalogue)
    assert reader is not None  # files of served runs have one
    points = reader(table, catalogue)
    return points.keep(np.array([str(g).startswith(f"{fit.metric}/") for g in points.group], bool))


def _with(names: Catalogue, engines: dict[str, Engine]) -> Catalogue:
    for version in engines.values():
        names = names.with_engine(version)
    return names


def _changed(given: Engine, factors: dict[str, float]) -> Engine:
    changes: dict[str, Any] = {path: float(value_at(given, path)) * f for path, f in factors.items()}
    return override(given, changes, "engine")[0]


def _slopes(
    table: Table,
    names: Catalogue,
    engines: dict[str, Engine],
    now: ComparedPoints,
    engine: Array,
    fit: ServedFit,
) -> dict[str, tuple[Array, Array]]:
    """Errors of all points and their slopes over the quantities of each engine, in logarithms. Rows are of
    one engine each, so that the i-th quantities of all engines are moved at once.
    """
    every = np.arange(len(now))
    here = log_errors(now, every)
    paths = {n: fit.quantities[n] for n in engines}
    slopes = {n: np.zeros((len(now), len(paths[n]))) for n in engines}
    for i in range(max((len(p) for p in paths.values()), default=0)):
        moving = {n: p[i] for n, p in paths.items() if i < len(p)}
        moved = {n: _changed(engines[n], {path: float(np.exp(STEP))}) for n, path in moving.items()}
        slope = (log_errors(_points(table, _with(names, moved), fit), every) - here) / STEP
        for n in moving:
            slopes[n][:, i] = np.where(engine == n, slope, 0.0)
    return {n: (here, slope) for n, slope in slopes.items()}


def _refitted(given: Engine, lines: tuple[Array, Array], own: Array, seen: Array, fit: ServedFit) -> Engine:
    """An engine fitted to those of its rows that are seen; as it stands where there are none."""
    rows = own & seen
    if not rows.any():
        return given
    moved = np.exp(moved_along(lines, rows))
    return _changed(given, dict(zip(fit.quantities[given.name], moved.tolist(), strict=True)))


def _like_others(name: str, engines: dict[str, Engine], fit: ServedFit) -> Engine:
    """An engine with the geometric means of what the others have."""
    others = [e for n, e in engines.items() if n != name]
    means: dict[str, Any] = {}
    for path in fit.common:
        known = [np.log(float(v)) for e in others if (v := value_at(e, path)) is not None]
        means[path] = float(np.exp(np.mean(known))) if known else None
    return replace(engines[name], **means)
