"""What the fitted numbers of serving engines are worth on families that they have not seen: a model, a chip
or an engine left out in turn, numbers refitted to the other runs.

As in `trainers`: numbers move along slopes of logarithms. All configurations are predicted; slopes are taken
once, on some with few clients, and another configuration has those of the nearest like it. No engine has a
fitted number of its own. A number of which the other families say little stays near where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf, log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import numpy as np

from strata.arrays import Array
from strata.mapping.engine import Engine, engine
from strata.mapping.kernel_library import kernel_library
from strata.params import override, value_at
from strata.validation.fit.solver import log_errors
from strata.validation.fit.trainers import STEP, FamiliesLeftOut, moved_along
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, configurations, join_metrics
from strata.validation.readers.served_files import SERVED
from strata.validation.readers.served_rows import compared_served
from strata.validation.readers.tables import Table, read_table

SHARED = "server"  # the engine whose numbers all others start from
ENGINES = ("vllm", "sglang", "trtllm")
FAMILIES = {"chip": 1, "engine": 2, "model": 3}  # parts of a group's name: tpot/CHIP/ENGINE/MODEL
CLIENTS, ONE_OF = 64, 6  # most clients of a configuration that slopes are taken at, and one in so many
FILES = (("serving/silicon.csv", "serving/silicon2.csv"), ("serving/inferencex.csv",))
METRICS = ("tpot", "ttft")
LOOSE = 0.7  # logarithm by which a number moves as lightly as one configuration errs by `trainers.ROBUST`


@dataclass(frozen=True)
class ServedNumber:
    """A fitted number: of the engines named, or of the kernel library that all call."""

    name: str
    engines: tuple[str, ...] = ()  # none: of the library

    @property
    def furthest(self) -> float:
        """How far up it may move, as a logarithm: kernels of a library are no faster than tuned ones."""
        if self.engines:
            return inf
        now = float(value_at(kernel_library(engine(SHARED).kernels), self.name))
        return -log(now) if now <= 1.0 else inf


NUMBERS = (
    ServedNumber("step_gap", ENGINES),
    ServedNumber("sequence_gap", ENGINES),
    ServedNumber("frontend_latency", ENGINES),
    ServedNumber("tokenize", ENGINES),
    ServedNumber("routed_launches"),
    ServedNumber("expert_block_rate"),
    ServedNumber("weight_only_rate"),
    ServedNumber("pdl_overlap"),
)


@dataclass(frozen=True, eq=False)
class ServedPoints:
    """Configurations of served files, measured and predicted, and the file of each."""

    points: ComparedPoints
    file: Array

    def slope_rows(self) -> Array:
        """Configurations with few clients at which slopes are taken: one in so many of each group by what
        they are, or the one with the fewest.
        """
        clients = np.array([_clients(c) for c in self.points.command])
        drawn = np.array([crc32(str(c).encode()) % ONE_OF == 0 for c in self.points.command], bool)
        chosen = drawn & (clients <= CLIENTS)
        for group in set(self.points.group):
            own = np.flatnonzero(self.points.group == group)
            if not chosen[own].any():
                chosen[own[np.argmin(clients[own])]] = True
        return np.flatnonzero(chosen)

    def nearest(self, rows: Array) -> Array:
        """For each configuration the one of some rows, of its own group, that is most like it."""
        sizes = np.log(np.array([_sizes(c) for c in self.points.command]))
        of = np.zeros(len(self.points), int)
        for group in set(self.points.group):
            own, there = (w[self.points.group[w] == group] for w in (np.arange(len(of)), rows))
            apart = np.sum(np.abs(sizes[own, None, :] - sizes[None, there, :]), axis=2)
            of[own] = np.searchsorted(rows, there)[np.argmin(apart, axis=1)]
        return of


def _clients(command: str) -> float:
    return _sizes(command)[0]


def _sizes(command: str) -> tuple[float, float, float]:
    """Clients and lengths of a command.

    >>> _sizes("strata simulate --clients 8 --input uniform:1024 --output 512")
    (8.0, 1024.0, 512.0)
    """
    found = (re.search(rf"\b{name}[ =](?:\w+:)?(\d+)", command) for name in ("clients", "input", "output"))
    clients, read, written = (float(match.group(1)) if match else 1.0 for match in found)
    return clients, read, written


def _of_lines(lines: Array, table: Table) -> Array:
    return np.isin(table.lines, lines)


def served_points(
    folder: Path | str,
    files: Sequence[str],
    engines: Mapping[str, Engine] | None = None,
    lines: Mapping[str, Array] | None = None,
) -> ServedPoints:
    """Configurations of served files, measured and predicted, with engines replaced; `lines`: those alone, by
    file.
    """
    catalogue, parts, names = Catalogue(), [], []
    for name in files:
        table = read_table(Path(folder), name)
        kind = SERVED[name]
        if lines is not None:
            kind = replace(kind, keep=partial(_of_lines, lines[name]))
        parts.append(configurations(compared_served(table, catalogue, kind=kind, engines=engines)))
        names.append(np.full(len(parts[-1]), name, dtype=object))
    joined, file = join_metrics(parts), np.concatenate(names)
    return ServedPoints(joined.keep(joined.predicted > 0), file[joined.predicted > 0])


def leave_served_families_out(folder: Path | str, files: Sequence[str]) -> dict[str, list[FamiliesLeftOut]]:
    """By metric: configurations of served files, each predicted without its own model, chip or engine."""
    every = served_points(folder, files)
    now, rows = every.points, every.slope_rows()
    slopes = _slopes(folder, every, rows)[every.nearest(rows)]
    errors = log_errors(now, np.arange(len(now)))
    parts = [str(group).split("/") for group in now.group]
    metric = np.array([p[0] for p in parts], dtype=object)
    left_out: dict[str, list[FamiliesLeftOut]] = {m: [] for m in METRICS}
    for kind, place in FAMILIES.items():
        family = np.array([p[place] for p in parts], dtype=object)
        names = tuple(sorted(set(family)))
        if len(names) < 2:
            continue
        predicted = now.predicted.copy()
        for name in names:
            inside = family == name
            numbers = moved_along((errors, slopes), ~inside, loose=LOOSE)
            predicted[inside] *= np.exp(slopes[inside] @ np.minimum(numbers, [n.furthest for n in NUMBERS]))
        judged = replace(now, predicted=predicted)
        for m in METRICS:
            own = metric == m
            left_out[m].append(
                FamiliesLeftOut(
                    kind=kind, names=names, family=family[own], points=judged.keep(own), refitted=True
                )
            )
    return left_out


def _slopes(folder: Path | str, every: ServedPoints, rows: Array) -> Array:
    """At some configurations: slopes of the logarithms of predictions over those of the fitted numbers."""
    files = sorted(set(every.file))
    lines = {name: every.points.line[rows][every.file[rows] == name] for name in files}
    there = {
        (f, int(n), str(g)): i
        for i, (f, n, g) in enumerate(
            zip(every.file[rows], every.points.line[rows], every.points.group[rows], strict=True)
        )
    }

    def moved(engines: Mapping[str, Engine]) -> Array:
        other = served_points(folder, files, engines, lines)
        logs = np.zeros(len(rows))
        keys = zip(other.file, other.points.line, other.points.group, other.points.predicted, strict=True)
        for f, n, g, predicted in keys:
            if (at := there.get((f, int(n), str(g)))) is not None:
                logs[at] = np.log(predicted / every.points.predicted[rows[at]])
        return logs

    columns = []
    for number in NUMBERS:
        with _changed(number, float(np.exp(STEP))) as engines:
            columns.append(moved(engines) / STEP)
    return np.stack(columns, axis=1)


@contextmanager
def _changed(number: ServedNumber, factor: float) -> Iterator[dict[str, Engine]]:
    """Engines with one number so many times as large."""
    if number.engines:
        yield {name: _with(engine(name), number.name, factor) for name in number.engines}
        return
    with TemporaryDirectory() as folder:
        paths = {}
        for platform in ("", "rocm"):
            library = kernel_library(engine(SHARED).kernels, platform)
            value = float(value_at(library, number.name)) * factor
            path = Path(folder) / (f"changed-{platform}.toml" if platform else "changed.toml")
            path.write_text(
                f'base = "{library.name}"\nname = "changed"\n'
                f'{number.name} = {{ value = {value!r}, source = "changed to take a slope" }}\n',
                encoding="utf-8",
            )
            paths[platform] = path
        yield {name: replace(engine(name), kernels=str(paths[""])) for name in ENGINES}


def _with(given: Engine, name: str, factor: float) -> Engine:
    changes: dict[str, Any] = {name: float(value_at(given, name)) * factor}
    return override(given, changes, "engine")[0]
