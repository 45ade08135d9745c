"""Transports between nodes fitted to measured collectives: what belongs to the library is one for all
networks; what belongs to a network (latency, the share of its adapters that long messages reach) is stated.

`leave_fabrics_out` says what the fit is worth on fabrics that it has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from strata.errors import UnknownName
from strata.hardware.transport import Transport, transport
from strata.params import leaf_paths, override, value_at
from strata.validation.fit.families import MICRO, Quantity
from strata.validation.fit.solver import (
    FitOutcome,
    FitProblem,
    FitSearch,
    FitSolution,
    outcome_of,
    solve_fit,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.multinode import multinode
from strata.validation.readers.network_names import network_of
from strata.validation.readers.tables import Table

FILE = "network/multinode.csv"
NETWORKS = ("infiniband", "roce", "efa", "slingshot", "sockets")
# networks of some rows were set up badly, or used for the first time: what is far off tells nothing
SEARCH = FitSearch(tries=((0.02,), (0.1, 0.02)), robust=0.15, evaluations=40, loss="cauchy")
OF_LIBRARY = (
    Quantity("rings.post.ll128", 0.5 * MICRO, 40 * MICRO),
    Quantity("rings.post.simple", 2 * MICRO, 200 * MICRO),
    Quantity("rings.share.ll", 0.005, 0.5),
    Quantity("rings.share.ll128", 0.05, 0.95),
)


def calibrate_networks(
    table: Table, *, date: str = ""
) -> tuple[dict[str, Transport], dict[str, list[FitOutcome]]]:
    """Fit transports between nodes: the library's quantities, to the rows of all networks together."""
    fitted = {name: transport(name) for name in NETWORKS}
    rows = list(zip(table.text("fabric"), table.text("setting"), table.text("links"), strict=True))
    named = {row: _network(*row) for row in dict.fromkeys(rows)}
    kinds = np.array([named[row] for row in rows])
    first = next(iter(fitted))

    # where the host moves the data, its copies hide what the library does
    moved = [name for name, one in fitted.items() if one.rings.ceiling is not None]
    told = table.keep(~np.isin(kinds, moved))

    def all_networks(version: Transport) -> list[ComparedPoints]:
        return [_headline(told, {name: _as_library(version, one) for name, one in fitted.items()})]

    found: FitSolution[Transport] = solve_fit(
        FitProblem(
            record=fitted[first], kind="transport", quantities=OF_LIBRARY, predict=all_networks, search=SEARCH
        )
    )
    fitted = {name: _as_library(found.record, one) for name, one in fitted.items()}
    library = outcome_of(found, "library between nodes", [FILE], date, rows_of="all networks")
    outcomes = {name: [_known(library, one)] for name, one in fitted.items() if name not in moved}
    return fitted, outcomes


def _network(fabric: str, setting: str, links: str) -> str:
    """The transport between nodes that a row names, "" where it names none that is known."""
    try:
        return network_of(fabric, setting, links)
    except UnknownName:
        return ""


def _headline(table: Table, versions: Mapping[str, Transport]) -> ComparedPoints:
    known = Catalogue(transports=versions)
    points = multinode(table, known)
    return points.keep(points.headline.astype(bool))


def _as_library(version: Transport, other: Transport) -> Transport:
    """A transport with the library's quantities of another, those that it has."""
    if other.rings.ceiling is not None:
        return other
    values = {q.path: float(value_at(version, q.path)) for q in OF_LIBRARY if q.path in leaf_paths(other)}
    moved: Transport = override(other, values, "transport")[0]
    return moved


def _known(outcome: FitOutcome, one: Transport) -> FitOutcome:
    paths = leaf_paths(one)
    return replace(outcome, values={path: v for path, v in outcome.values.items() if path in paths})
