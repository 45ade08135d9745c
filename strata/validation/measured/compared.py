"""Rows of a measured file as answers to its question: measured against predicted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadFile
from strata.validation.measured.formulas import (
    Columns,
    checked_numbers,
    condition,
    derived_columns,
    formula_value,
    template_value,
)
from strata.validation.measured.spec import Elsewhere, MeasuredMetric, MeasuredSpec, Stated
from strata.validation.questions.question import QuestionKind, question
from strata.validation.readers.comparison import (
    NOT_POSITIVE,
    ComparedPoints,
    Forecast,
    fastest_rows,
    forecast,
    join_metrics,
    no_points,
)
from strata.validation.readers.labels import Catalogue, case_key_of
from strata.validation.readers.tables import Table, read_table

LATER = "later"  # the question of files that nobody prices yet
FEW = 100  # rows of a file of simulations below which all are predicted


def compared(
    table: Table, catalogue: Catalogue, spec: MeasuredSpec, lines: Array | None = None
) -> ComparedPoints:
    """Measured and predicted of every row of a file, or of some lines of it."""
    table = counted_rows(table, spec)
    table = table if lines is None else table.keep(np.isin(table.lines, lines))
    later: tuple[str, ...] = ()
    if spec.later or spec.question == LATER:
        aside = condition(spec.later, Columns(table, spec), "later")
        groups = template_value(spec.metric[0].group, Columns(table.keep(aside), spec), "group")
        later = tuple(f"{group} ({rows} rows)" for group, rows in sorted(Counter(groups).items()))
        table = table.keep(~aside)
        if not len(table):
            return no_points(later)
    if spec.fastest:
        measured = _in_unit(spec.metric[0].measured, spec.metric[0], Columns(table, spec))
        table = table.keep(fastest_rows(table, spec.fastest, measured))
    asked = question(spec.question)
    if asked.slow and len(table) >= FEW:
        table = table.keep(np.arange(len(table)) % catalogue.one_in == 0)
    columns = Columns(table, spec)
    parts: list[ComparedPoints | None] = [None] * len(spec.metric)
    for places in _asked_alike(spec):
        metrics = [spec.metric[i] for i in places]
        arguments = row_arguments(asked, asked_for(spec, metrics[0]), columns)
        paths = list(dict.fromkeys(metric.answer for metric in metrics))
        predicted, commands = row_answers(asked, arguments, table, paths, catalogue)
        first = _first_alike(table, arguments)
        for i, metric in zip(places, metrics, strict=True):
            answer = paths.index(metric.answer)
            parts[i] = _metric_points(metric, columns, predicted, answer, commands, first, catalogue)
    joined = join_metrics([part for part in parts if part is not None])
    if spec.rank:
        joined = replace(joined, ranks=_ranks(joined, spec.rank, columns))
    return replace(joined, later=later)


def _asked_alike(spec: MeasuredSpec) -> list[list[int]]:
    """Places of the metrics that share what is asked."""
    places: dict[Any, list[int]] = {}
    for i, metric in enumerate(spec.metric):
        places.setdefault(frozenset(metric.ask.items()), []).append(i)
    return list(places.values())


def asked_for(spec: MeasuredSpec, metric: MeasuredMetric) -> MeasuredSpec:
    """The spec with what one of its metrics is asked with."""
    if not metric.ask:
        return spec
    own = Stated(ask=metric.ask, source=spec.title)
    return spec.model_copy(update={"stated": [*spec.stated, own]})


def counted_rows(table: Table, spec: MeasuredSpec) -> Table:
    """The rows of a file that count, with its derived columns."""
    table = derived_columns(unfolded(table, spec.unfold) if spec.unfold else table, spec)
    table = table.keep(condition(spec.keep, Columns(table, spec), "keep"))
    return table if spec.elsewhere is None else table.keep(~_in_other(table, spec, spec.elsewhere))


def _in_other(table: Table, spec: MeasuredSpec, other: Elsewhere) -> Array:
    """Which rows another file of the folder has too."""
    if (other.of and table.name not in other.of) or not (table.folder / other.file).exists():
        return np.zeros(len(table), bool)
    there, columns = read_table(table.folder, other.file), Columns(table, spec)
    same = np.ones((len(table), len(there)), bool)
    for formula, column in other.same.items():
        here = checked_numbers(formula_value(formula, columns, "elsewhere"), len(table), formula)
        same &= np.isclose(there.number(column)[None, :], here[:, None], rtol=other.within, atol=0.0)
    return np.any(same, axis=1)


def row_arguments(asked: QuestionKind, spec: MeasuredSpec, columns: Columns) -> dict[str, Array]:
    """Every argument that the spec or its stated conditions give: a text or a number for each row."""
    values: dict[str, Array] = {}
    for name, formula in spec.ask.items():
        values[name] = _argument(asked, name, formula, columns)
    for entry in spec.stated:
        rows = condition(entry.rows, columns, "rows")
        for name, formula in entry.ask.items():
            given = _argument(asked, name, formula, columns)
            default = asked.argument(name, columns.table.name).default
            absent = "" if asked.argument(name, "").is_text else np.nan
            before = values.get(
                name, np.full(len(rows), default if default is not None else absent, dtype=object)
            )
            chosen = np.where(rows, given, before)
            values[name] = chosen if asked.argument(name, "").is_text else chosen.astype(float)
    return values


def _argument(asked: QuestionKind, name: str, formula: str, columns: Columns) -> Array:
    if asked.argument(name, columns.table.name).is_text:
        return template_value(formula, columns, name)
    return checked_numbers(formula_value(formula, columns, name), len(columns.table), name)


def row_answers(
    asked: QuestionKind, arguments: Mapping[str, Array], table: Table, paths: list[str], catalogue: Catalogue
) -> tuple[Forecast, Array]:
    """The answers of all rows, one call for rows that share their texts and tell the same of what need not be
    told, and the command of each row.
    """
    lacking = [n for n, one in asked.arguments.items() if one.needed and n not in arguments]
    if lacking:
        raise BadFile(f"{table.name}: {asked.name} needs {', '.join(lacking)}, which no column gives")
    kinds = {n: asked.argument(n, table.name) for n in arguments}
    apart = [n for n in arguments if kinds[n].is_text or kinds[n].alike]
    commands = np.full(len(table), "", dtype=object)

    untold = {
        n: np.isnan(values)
        for n, values in arguments.items()
        if n not in apart and kinds[n].default is None and np.isnan(values).any()
    }

    def given(rows: Array) -> dict[str, Any]:
        first = asked.defaults | {n: arguments[n][rows[0]] for n in apart}
        some = [n for n in arguments if n not in apart and not (n in untold and untold[n][rows[0]])]
        return first | {n: arguments[n][rows] for n in some}

    def price(key: tuple[Any, ...], rows: Array) -> Any:
        if asked.slow and asked.command is not None:  # rows of one command are one configuration
            commands[rows] = [asked.command(one_row(asked, arguments, int(i))) for i in rows]
        answer = asked.ask(given(rows), catalogue)
        return [np.broadcast_to(np.asarray(asked.answer(answer, p), float), (len(rows),)) for p in paths]

    why: dict[int, str] = {}
    for name, values in arguments.items():
        if kinds[name].needed and not kinds[name].is_text:
            why |= {int(i): f"'{name}' is empty" for i in np.flatnonzero(np.isnan(values.astype(float)))}
    keys = [*(arguments[n] for n in apart), *untold.values()]
    return forecast(table, keys, price, metrics=len(paths), refused=why), commands


def one_row(asked: QuestionKind, arguments: Mapping[str, Array], row: int) -> dict[str, Any]:
    """The arguments of one row, defaults among them and where the row tells no number."""
    given = {name: values[row] for name, values in arguments.items()}
    return asked.defaults | {name: value for name, value in given.items() if value == value}


def row_command(table: Table, spec: MeasuredSpec, row: int = 0) -> str:
    """The line that a user types for one row of a table; "" where its question has none."""
    asked = question(spec.question)
    if asked.command is None:
        return ""
    return asked.command(one_row(asked, row_arguments(asked, spec, Columns(table, spec)), row))


def _in_unit(formula: str, metric: MeasuredMetric, columns: Columns) -> Array:
    """A formula in the unit of a metric: a number for each row, in SI."""
    written = f"{formula} [{metric.unit}]" if metric.unit != "1" else formula
    return checked_numbers(formula_value(written, columns, "measured"), len(columns.table), formula)


def _cases(metric: MeasuredMetric, columns: Columns, catalogue: Catalogue) -> Array:
    """What each row is like, for intervals: the kind of quantity, chip, model and engine."""
    count, family = len(columns.table), columns.spec.family
    like, chips, models, engines = (
        template_value(part, columns, "family")
        for part in (metric.like, family.chip, family.model, family.engine)
    )
    told = condition(metric.like_rows, columns, "like_rows") if metric.like else np.zeros(count, bool)
    rows = [
        tuple(row) if kept else None for kept, *row in zip(told, like, chips, models, engines, strict=True)
    ]
    known = {row: "" if row is None else case_key_of(catalogue, *row) for row in dict.fromkeys(rows)}
    return np.array([known[row] for row in rows], dtype=object)


def _first_alike(table: Table, arguments: Mapping[str, Array]) -> Array:
    """For each row the line of the first one that asks the same in every argument."""
    code = np.zeros(len(table), int)
    for values in arguments.values():
        if values.dtype == object:
            numbered: dict[Any, int] = {}
            values = np.array([numbered.setdefault(value, len(numbered)) for value in values], int)
        code += np.unique(values, return_inverse=True)[1] * (code.max(initial=0) + 1)
        code = np.unique(code, return_inverse=True)[1]
    _, index = np.unique(code, return_index=True)
    lines: Array = table.lines[index[code]]
    return lines


def _metric_points(
    metric: MeasuredMetric,
    columns: Columns,
    predicted: Forecast,
    place: int,
    commands: Array,
    first: Array,
    catalogue: Catalogue,
) -> ComparedPoints:
    """The points of one metric: rows with a measurement; where there is no prediction, a failed point. What
    was measured as zero or less cannot be compared, and is told with the failures.
    """
    table, head = columns.table, metric.headline
    own = _in_unit(metric.measured, metric, columns)
    measured = np.where(condition(metric.rows, columns, "rows"), own, np.nan)
    headline = condition(head, columns, "headline") if isinstance(head, str) else np.full(len(table), head)
    kept = np.flatnonzero(np.isfinite(measured) & (measured > 0))
    values, lines = predicted[place][kept], table.lines[kept]
    failed = ~(np.isfinite(values) & (values > 0))
    reasons = [predicted.why.get(int(i), NOT_POSITIVE) for i in kept[failed]]
    unread = np.flatnonzero(np.isfinite(measured) & (measured <= 0))
    why = dict(zip(lines[failed].tolist(), reasons, strict=True)) | {
        int(table.lines[i]): f"what was measured must be positive, but got {measured[i]:g}" for i in unread
    }
    families = {name: template for name, template in columns.spec.family if template}
    return ComparedPoints(
        measured=measured[kept],
        predicted=np.where(failed, 0.0, values),
        group=template_value(metric.group, columns, "group")[kept],
        line=lines,
        headline=headline[kept],
        rate=np.full(len(kept), metric.rate),
        case=_cases(metric, columns, catalogue)[kept],
        why=why,
        command=commands[kept],
        first=first[kept],
        families={n: template_value(t, columns, f"family.{n}")[kept] for n, t in families.items()},
        rivals={name: _in_unit(f, metric, columns)[kept] for name, f in metric.rivals.items()},
    )


def _ranks(points: ComparedPoints, template: str, columns: Columns) -> dict[str, Array]:
    names = dict(zip(columns.table.lines.tolist(), template_value(template, columns, "rank"), strict=True))
    head = np.flatnonzero(points.headline)
    own = np.array([names[int(points.line[i])] for i in head], dtype=object)
    ranks = {name: head[own == name] for name in sorted({*own} - {""}, key=_by_size)}
    if not columns.spec.rank_once:
        return ranks
    return {name: _one_of_each(points, rows) for name, rows in ranks.items()}


def _one_of_each(points: ComparedPoints, rows: Array) -> Array:
    """Of rows with one prediction the one in the middle of those measured."""
    by_prediction: dict[float, list[int]] = {}
    for row in sorted(rows, key=lambda row: points.measured[row]):
        by_prediction.setdefault(float(points.predicted[row]), []).append(int(row))
    return np.array([like[len(like) // 2] for like in by_prediction.values()])


def _by_size(name: str) -> tuple[float, str]:
    try:
        return float(name), name
    except ValueError:
        return np.inf, name


def unfolded(table: Table, column: str) -> Table:
    """A row for each item of a column of lists of records, with the keys of the item as columns."""
    try:
        lists = [json.loads(cell) for cell in table.text(column)]
        keys = list(lists[0][0])
        cells = {
            key: np.array([str(item[key]) for some in lists for item in some], dtype=object) for key in keys
        }
    except (ValueError, LookupError, TypeError):
        raise BadFile(
            f"{table.name}: column '{column}' must hold lists of records with the same keys"
        ) from None
    rows = np.repeat(np.arange(len(table)), [len(some) for some in lists])
    repeated = table.keep(rows)
    return replace(repeated, columns={**repeated.columns, **cells})
