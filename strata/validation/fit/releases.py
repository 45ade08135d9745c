"""Releases of engines (data/conditions) fitted to runs of their time, and what they are worth on chips they
have not seen.

Rows are priced once as the engine's file says; what a release takes more follows from these prices, so that
fits and families left out need no further ones. Only workers that read prompts and generate are fitted; pools
follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from strata.arrays import Array
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.closed_loop import EngineTimes, shared_reading
from strata.validation.readers.comparison import HELD_OUT, rows_by_key
from strata.validation.readers.engine_releases import USUAL, EngineRelease, ReleaseTimes, release_times
from strata.validation.readers.labels import dashed_all, server_of
from strata.validation.readers.served_models import served_model
from strata.validation.readers.serving_inferencex import (
    FILE,
    InferencexConditions,
    aggregated_runs,
    released,
)
from strata.validation.readers.tables import Table

SHARED = ("kernels", "prompts", "guessing")  # what entries of a family have in common
SCALE = {"step": 5e-3, "kernels": 0.5, "prompts": 1.0, "guessing": 5e-3}  # how far each may well be off
STIFFNESS = 0.002  # what being off by its scale costs, as a mean error: what rows do not tell stays as usual


@dataclass(frozen=True, eq=False, kw_only=True)
class ReleasedRows:
    """Rows as the engine's file prices them [s]."""

    line: Array
    chip: Array
    engine: Array
    kind: Array
    place: Array  # of their release
    step: Array
    token: Array
    reading: Array  # of `EngineTimes`, as these and the next two
    own: Array
    launching: Array
    guesses: Array
    running: Array
    ranks: Array
    output: Array
    measured: Array

    def tpot(self, release: ReleaseTimes) -> Any:
        """Time between tokens that clients see [s]."""
        named = {n: getattr(self, n) for n in ("step", "token", "reading", "own", "launching")}
        times = release.of(EngineTimes(**named), self.guesses)
        others = np.maximum(self.running - self.ranks, 0.0)
        reading = shared_reading(times, self.running, self.ranks, self.output)
        return times.token + others * reading / self.ranks / self.output

    def error(self, releases: Sequence[EngineRelease], which: Array) -> float:
        """Mean error of some rows, relative."""
        found = self.tpot(release_times(releases, self.place)) / self.measured - 1.0
        return float(np.mean(np.abs(found[which])))


def released_rows(table: Table, catalogue: Catalogue) -> tuple[ReleasedRows, tuple[EngineRelease, ...]]:
    """The aggregated rows of a table with a measurement, and the releases that its conditions know."""
    known = read_conditions(InferencexConditions, table, FILE)
    mean, median = table.number("mean_tpot_s"), table.number("median_tpot_s")
    measured = np.where(np.isnan(mean), median, mean)
    table, measured = (
        table.keep((table.text("disaggregated") != "1") & (measured > 0)),
        measured[(table.text("disaggregated") != "1") & (measured > 0)],
    )
    columns = [np.array(dashed_all(table.text(c)), dtype=object) for c in ("chip", "engine")]
    columns += [table.text(c) for c in ("model", "precision", "speculative")]
    parts: list[dict[str, Any]] = []
    for (chip, label, model, precision, kind), rows in rows_by_key(columns, len(table)):
        few, engine = table.keep(rows), catalogue.engine(server_of(label))
        served = served_model(catalogue, model, precision, precision)
        runs = aggregated_runs(few, catalogue, chip, served, engine, known)
        part = {
            "line": few.lines,
            "chip": chip,
            "engine": label,
            "kind": kind,
            "place": released(few, catalogue.chip(chip), runs.experts, known),
            **{n: getattr(runs.times, n) for n in ("step", "token", "reading", "own", "launching")},
            "guesses": runs.run.guesses,
            "running": runs.running,
            "ranks": runs.ranks,
            "output": runs.run.output,
            "measured": measured[rows],
        }
        parts.append({name: np.broadcast_to(value, len(rows)) for name, value in part.items()})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return ReleasedRows(**joined), known.release


def fit_releases(
    rows: ReleasedRows, releases: Sequence[EngineRelease], which: Array
) -> tuple[EngineRelease, ...]:
    """Releases with the quantities that they call fitted fitted to some rows, the others left as they are;
    one that none of these rows has takes what its sources tell, or else what an engine's file says.
    """
    found = list(releases)
    families: dict[str, list[int]] = {}
    for place, release in enumerate(releases):
        families.setdefault(release.family or str(place), []).append(place)
    for places in families.values():
        inside = which & np.isin(rows.place, places)
        for place, changes in _fitted(rows, releases, places, inside).items():
            found[place] = replace(found[place], **changes)
    return tuple(found)


def _fitted(
    rows: ReleasedRows, releases: Sequence[EngineRelease], places: list[int], inside: Array
) -> dict[int, dict[str, Any]]:
    """Quantities of a family's entries by their place."""
    lead = releases[places[0]]
    common = [name for name in SHARED if name in lead.fitted.split()]
    given = {name: float(getattr(lead, name)) for name in USUAL}
    own = [p for p in places if "step" in releases[p].fitted.split()]
    seen = [p for p in own if np.any(inside & (rows.place == p))]
    names = [*common, *("step" for _ in seen)]
    if not common and not own:
        return {}
    if not np.any(inside) or not names:
        return {p: releases[p].usual for p in places}
    few = ReleasedRows(**{name: values[inside] for name, values in vars(rows).items()})
    scale = np.array([SCALE[name] for name in names])
    usual = np.array([*(lead.usual[n] for n in common), *(releases[p].usual["step"] for p in seen)])
    least = np.array([0.1 if USUAL[name] > 0 else 0.0 for name in names])

    def changes(moves: Array) -> dict[int, dict[str, Any]]:
        values = np.maximum(usual + scale * moves, least)
        shared = {**given, **dict(zip(common, values[: len(common)], strict=True))}
        steps = dict(zip(seen, values[len(common) :], strict=True))
        return {p: {**shared, "step": float(steps.get(p, releases[p].usual["step"]))} for p in places}

    def cost(moves: Array) -> float:
        made = list(releases)
        for place, change in changes(moves).items():
            made[place] = replace(made[place], **change)
        errors = np.log(few.tpot(release_times(made, few.place)) / few.measured)
        return float(np.mean(np.abs(errors)) + STIFFNESS * np.sum(moves**2))

    starts = (np.full(len(names), 0.1), np.full(len(names), 1.0))
    options = {"maxiter": 1500, "xatol": 1e-3, "fatol": 1e-6}
    tried = [minimize(cost, start, method="Nelder-Mead", options=options) for start in starts]
    return changes(min(tried, key=lambda solution: float(solution.fun)).x)


def leave_releases_out(
    rows: ReleasedRows, releases: Sequence[EngineRelease]
) -> dict[str, tuple[int, float, float]]:
    """Rows, mean error with releases fitted to the others, and without any release, of every chip, engine and
    kind of guessing left out in turn; and of the held-out third.
    """
    groups = {"held-out third": rows.line % HELD_OUT == 0}
    groups |= {f"chip {name}": rows.chip == name for name in np.unique(rows.chip.astype(str))}
    groups |= {f"engine {name}": rows.engine == name for name in np.unique(rows.engine.astype(str))}
    groups |= {f"guessing {name}": rows.kind == name for name in np.unique(rows.kind.astype(str))}
    nothing = [replace(r, **USUAL) for r in releases]
    return {
        name: (int(out.sum()), rows.error(fit_releases(rows, releases, ~out), out), rows.error(nothing, out))
        for name, out in groups.items()
    }
