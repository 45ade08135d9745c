"""Routing as it was seen: popularity of experts from a file, in the few numbers that prices need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from strata.arrays import Number, register_pytree
from strata.errors import BadFile, require
from strata.reading import csv_file, json_file
from strata.units import finite_array, finite_number

GROUPS = 8  # equal groups of experts, from the least popular to the most


@register_pytree
@dataclass(frozen=True, eq=False)
class Routing:
    """How unevenly experts are asked for, averaged over the layers of a trace.

    `shares`: popularity of each of eight equal groups of experts, least popular first, 1 on average. `ranks`
    and `busiest`: for so many ranks that hold neighbouring experts, the picks of the busiest one over the
    mean.
    """

    shares: tuple[Number, ...]
    ranks: tuple[Number, ...]
    busiest: tuple[Number, ...]


def routing(counts: np.ndarray | list[list[float]]) -> Routing:
    """Routing from picks (or popularity) of each expert, one row for each layer; layers count alike.

    >>> seen = routing([[1.0] * 8 + [3.0] * 8])
    >>> seen.shares[0], seen.shares[-1], dict(zip(seen.ranks, seen.busiest, strict=True))[2.0]
    (0.5, 1.5, 1.5)
    """
    table = np.atleast_2d(finite_array(counts, "picks of experts"))
    require(
        table.ndim == 2 and table.shape[1] > 1,
        "routing has one row for each layer and one column for each expert",
        shape=table.shape,
    )
    require(
        bool(np.all(np.isfinite(table)) and np.all(table >= 0)),
        "picks of experts must be numbers that are not negative",
    )
    sums = table.sum(axis=1)
    require(bool(np.all(sums > 0)), "every layer of a routing needs picks", layer=int(np.argmin(sums)))
    popular = table / sums[:, None] * table.shape[1]
    experts = table.shape[1]
    # Group edges fall between experts or inside one: the sum up to an edge is linear between experts.
    ordered = np.concatenate([np.zeros((len(table), 1)), np.cumsum(np.sort(popular, axis=1), axis=1)], axis=1)
    edges = np.linspace(0.0, experts, GROUPS + 1)
    reached = np.array([np.interp(edges, np.arange(experts + 1.0), row) for row in ordered])
    shares = np.diff(reached, axis=1).mean(axis=0) / (experts / GROUPS)
    ranks = [d for d in range(1, experts + 1) if experts % d == 0]
    most = [popular.reshape(len(table), d, -1).mean(axis=2).max(axis=1).mean() for d in ranks]
    return Routing(tuple(map(float, shares)), tuple(map(float, ranks)), tuple(map(float, most)))


def read_routing(path: str | Path, experts: Number | None = None) -> Routing:
    """Routing from a file: CSV with one line of picks a layer (a heading is skipped), or JSON with a list of
    such lists.

    A JSON object may hold them as `counts`; a flat list is one layer.
    """
    where = Path(path)
    if not where.is_file():
        raise BadFile(
            f"no routing file {path}: CSV with one line of picks for each layer, or JSON with a list of lists"
        )
    try:
        rows = _json_rows(where) if where.suffix == ".json" else _csv_rows(where)
    except BadFile:
        raise
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise BadFile(f"{path}: a routing has one row of numbers for each layer ({error})") from None
    require(
        len(rows) > 0 and len({len(r) for r in rows}) == 1,
        f"{path}: every layer names the same experts",
        columns=sorted({len(r) for r in rows}),
    )
    if experts is not None:
        require(
            len(rows[0]) == int(float(experts)),
            f"{path}: one number for each of the model's experts",
            experts=int(float(experts)),
            got=len(rows[0]),
        )
    return routing(np.array(rows))


def _json_rows(where: Path) -> list[list[float]]:
    found = json_file(where)
    listed = found["counts"] if isinstance(found, dict) else found
    if not (isinstance(listed, list) and listed):
        raise ValueError("it has no rows")
    listed = listed if isinstance(listed[0], list) else [listed]
    return [[float(x) for x in row] for row in listed]


def _csv_rows(where: Path) -> list[list[float]]:
    lines = [row for _, row in csv_file(where)]
    if lines and not _numeric(lines[0][0]):
        lines = lines[1:]
    return [[finite_number(x) for x in line] for line in lines]


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
