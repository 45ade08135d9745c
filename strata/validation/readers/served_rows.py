"""Rows of served models as commands: what a row and the conditions of its file say are options of `strata
simulate`, and a prediction is the number that the command prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadFile, BadValue, StrataError
from strata.mapping.engine import Engine
from strata.params import by_name, part, quantity, text
from strata.serving.served_options import command_line, served_answer
from strata.units import finite_number
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.like_cases import case_keys
from strata.validation.readers.tables import BadRows, Table

FEW = 100  # rows of a file below which all are read


@dataclass(frozen=True, eq=False, kw_only=True)
class StatedOption:
    """An option that rows have and their file does not say."""

    flag: str = text("the option of strata simulate and its text, with {words} of the row in braces")
    source: str = text("where it is told, or why it is taken so")
    rows: str = text(
        "words that rows must have (engine, chip, model, kind), a|b: either; left out: all", default=""
    )
    least: str = text("a value that rows must have, and the least of it, like clients 16", default="")


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedConditions:
    """How the runs of a file were made, where the file does not say."""

    title: str = text("what was run")
    rounds: Number | None = quantity("1", "requests of each client", positive=True, optional=True)
    whole_worker: Number | None = quantity(
        "1", "devices up to which a worker of unrecorded layout is tensor parallel", optional=True
    )
    prompt: dict[str, Number] | None = by_name(
        "1", "mean tokens of a prompt, by model or task", optional=True
    )
    answer: dict[str, Number] | None = by_name("1", "mean tokens of an answer, by model", optional=True)
    beams: dict[str, Number] | None = by_name("1", "sequences of one sample, by model", optional=True)
    option: tuple[StatedOption, ...] = part(StatedOption, "options, later ones over earlier", many=True)

    def options(self, words: set[str], values: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a row with such words and values; a whole load is in place of its parts."""
        stated: dict[str, Any] = {}
        sets: dict[str, str] = {}
        for one in self.option:
            alternatives = [set(word.split("|")) for word in one.rows.split()]
            if not all(words & either for either in alternatives):
                continue
            what, _, least = one.least.partition(" ")
            if what and float(values[what]) < float(least):
                continue
            option, _, argument = one.flag.removeprefix("--").format(**values).partition(" ")
            if option == "set":
                sets[argument.partition("=")[0]] = argument
            else:
                stated[option.replace("-", "_")] = argument or True
        if "load" in stated:
            stated = {n: v for n, v in stated.items() if n not in ("clients", "input", "output", "count")}
        return stated | ({"set": tuple(sets.values())} if sets else {})


class Cells:
    """One row of a table: its cells as text and numbers."""

    def __init__(self, table: Table, place: int) -> None:
        self.table, self.place, self.line = table, place, int(table.lines[place])

    def text(self, column: str) -> str:
        """A cell; a file without the column is refused."""
        return str(self.table.text(column)[self.place]).strip()

    def number(self, column: str, empty: float = np.nan) -> float:
        cell = self.text(column)
        try:
            return finite_number(cell, f"column '{column}'") if cell else empty
        except BadValue as error:
            raise BadRows(self.table.name, {self.line: str(error)}) from None

    def needed(self, column: str) -> float:
        """A number that a prediction cannot do without."""
        value = self.number(column)
        if np.isnan(value):
            raise BadValue(f"column '{column}' is empty")
        return value

    def degree(self, column: str) -> int:
        """A parallel degree; empty and 0 mean 1."""
        return max(int(self.number(column, empty=1.0)), 1)


@dataclass(frozen=True, kw_only=True)
class ServedMetric:
    """One measured number of a row, and where the command's JSON has the predicted one."""

    at: str
    measured: float  # as the command says it, in SI
    group: str
    case: tuple[str, str, str, str] = ("", "", "", "")  # phase, chip, model, engine, for intervals
    headline: bool = True
    rate: bool = False


@dataclass(frozen=True, kw_only=True)
class ServedFile:
    """A kind of file of served runs: how its cells are options, and what was measured."""

    conditions: str
    options: Callable[[Cells, ServedConditions, Catalogue], dict[str, Any]]
    metrics: Callable[[Cells, ServedConditions], list[ServedMetric]]
    keep: Callable[[Table], Array] | None = None  # rows that are read

    def rows(self, table: Table) -> Iterator[Cells]:
        kept = np.ones(len(table), bool) if self.keep is None else self.keep(table)
        return (Cells(table, int(i)) for i in np.flatnonzero(kept))


@dataclass(frozen=True, kw_only=True)
class RowPoint:
    """A metric of a row beside what is predicted of it."""

    metric: ServedMetric
    command: str
    predicted: float  # 0 where there is none
    why: str = ""


def row_points(
    kind: ServedFile,
    cells: Cells,
    known: ServedConditions,
    catalogue: Catalogue,
    engines: Mapping[str, Engine] | None = None,
) -> list[RowPoint]:
    """The metrics of a row with what its command prints of each."""
    metrics = [m for m in kind.metrics(cells, known) if np.isfinite(m.measured)]
    command = ""
    try:
        options = kind.options(cells, known, catalogue)
        command = command_line(options)
        answer = served_answer(options, engines)
    except BadFile:
        raise
    except StrataError as error:
        return [RowPoint(metric=m, command=command, predicted=0.0, why=str(error)) for m in metrics]
    points = []
    for metric in metrics:
        value = number_at(answer, metric.at)
        good = value is not None and np.isfinite(value) and value > 0
        refused = "; ".join(answer.get("refusals", {}))
        why = "" if good else refused or "the prediction is not a positive number"
        points.append(
            RowPoint(metric=metric, command=command, predicted=float(value or 0.0) if good else 0.0, why=why)
        )
    return points


def number_at(answer: Any, path: str) -> float | None:
    """The number at a dotted path of an answer.

    >>> number_at({"ttft": {"mean": 0.2}}, "ttft.mean")
    0.2
    """
    for key in path.split("."):
        answer = answer[int(key)] if isinstance(answer, list) else answer[key]
    return None if answer is None else float(answer)


def compared_served(
    table: Table, catalogue: Catalogue, *, kind: ServedFile, engines: Mapping[str, Engine] | None = None
) -> ComparedPoints:
    """Measured and predicted of every row of a file of served runs."""
    known, engines = read_conditions(ServedConditions, table, kind.conditions), engines or catalogue.engines
    points: list[tuple[int, RowPoint]] = []
    bad: dict[int, str] = {}
    rows = list(kind.rows(table))
    for cells in rows if len(rows) < FEW else rows[:: catalogue.one_in]:
        try:
            points += [(cells.line, p) for p in row_points(kind, cells, known, catalogue, engines)]
        except BadRows as error:
            bad |= error.why
    if bad:
        raise BadRows(table.name, bad)
    good = [(line, p) for line, p in points if p.metric.measured > 0]
    why = {line: p.why for line, p in points if p.why} | {
        line: f"what was measured must be positive, but got {p.metric.measured:g}"
        for line, p in points
        if p.metric.measured <= 0
    }
    metrics = [p.metric for _, p in good]
    cases = [
        case_keys(catalogue, m.case[0], [m.case[1]], [m.case[2]], m.case[3], not m.case[0]) for m in metrics
    ]
    return ComparedPoints(
        measured=np.array([m.measured for m in metrics], float),
        predicted=np.array([p.predicted for _, p in good], float),
        group=np.array([m.group for m in metrics], dtype=object),
        line=np.array([line for line, _ in good], int),
        headline=np.array([m.headline for m in metrics], bool),
        rate=np.array([m.rate for m in metrics], bool),
        case=np.array([c[0] for c in cases], dtype=object),
        command=np.array([p.command for _, p in good], dtype=object),
        why=why,
    )


def served_reader(kind: ServedFile) -> Callable[[Table, Catalogue], ComparedPoints]:
    """The reader of a kind of file."""
    return partial(compared_served, kind=kind)
