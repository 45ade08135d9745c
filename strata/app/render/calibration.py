"""Fits of all that is shipped, and what each fitted number is worth, as tables and plain JSON types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strata.app.terminal import plain_table, titled
from strata.units import show

if TYPE_CHECKING:
    from strata.validation.fit.shipped import Calibration
    from strata.validation.fit.worth import QuantityWorth

WORTH = (
    "record",
    "fitted together",
    "quantity",
    "value",
    "rows",
    "configurations",
    "judged by",
    "rows",
    "with",
    "without",
)


def all_dict(made: Sequence[Calibration]) -> dict[str, Any]:
    """What every fit gave, as plain JSON types."""
    fits = [
        {
            "record": one.name,
            "group": outcome.family,
            "files": list(outcome.files),
            "fitted": outcome.rows,
            "held_out": outcome.held_out,
            "before": outcome.before,
            "after": outcome.after,
            "values": outcome.values,
        }
        for one in made
        for outcome in one.outcomes
    ]
    return {"fits": fits, "units": {path: param.unit for one in made for path, param in one.entries.items()}}


def all_table(made: Sequence[Calibration]) -> Any:
    """One row a fit: the error on held-out points before and after, and how many numbers moved."""
    table = plain_table()
    for column in ("record", "fitted together", "points", "held out", "error before", "after", "numbers"):
        table.add_column(column, justify="left" if column in ("record", "fitted together") else "right")
    for one in made:
        for o in one.outcomes:
            counts = (str(o.rows), str(o.held_out), f"{o.before:.1%}", f"{o.after:.1%}", str(len(o.values)))
            table.add_row(one.name, o.family, *counts)
    return titled("fitted to measured files; errors are of points that were not fitted", table)


def worth_dict(numbers: Sequence[QuantityWorth]) -> dict[str, Any]:
    """Fitted numbers and what they are worth, as plain JSON types."""
    return {"quantities": [one.to_dict() for one in numbers]}


def worth_tables(numbers: Sequence[QuantityWorth]) -> list[Any]:
    """Fitted numbers that help on families left out, and those that do not."""
    parts = {
        True: "numbers that families left out gain by",
        False: "numbers that families left out gain nothing by",
    }
    some = {key: [n for n in numbers if (n.error_without > n.error_with) == key] for key in parts}
    return [titled(title, _worth_table(some[gains])) for gains, title in parts.items() if some[gains]]


def _worth_table(numbers: Sequence[QuantityWorth]) -> Any:
    table = plain_table()
    for column in WORTH:
        table.add_column(column, justify="left" if column in (*WORTH[:3], "judged by") else "right")
    for one in numbers:
        counts = (str(one.rows), str(one.configurations), one.judged_by, str(one.judged))
        errors = (f"{one.error_with:.1%}", f"{one.error_without:.1%}")
        table.add_row(one.record, one.group, one.path, show(one.value, one.unit), *counts, *errors)
    return table
