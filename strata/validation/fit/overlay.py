"""Fitted quantities as TOML, each with what it rests on: a file of their own, or lines of the record's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tomlkit

from strata.params import leaf_paths
from strata.units import show
from strata.validation.fit.solver import FitOutcome


def overlay_toml(record: Any, outcomes: Iterable[FitOutcome]) -> str:
    """Fitted quantities as a file to lay over the record's own: `base = "..."` in front makes one of it."""
    return written_into("", record, outcomes)


def written_into(text: str, record: Any, outcomes: Iterable[FitOutcome]) -> str:
    """A record's file with fitted quantities in place of what stood there."""
    document = tomlkit.parse(text)
    units = leaf_paths(record)
    for outcome in outcomes:
        for path, value in outcome.values.items():
            *tables, key = path.split(".")
            table: Any = document
            for name in tables:
                table = table.setdefault(name, tomlkit.table())
            unit = units[path]["unit"]
            entry = tomlkit.inline_table()
            entry["value"] = float(f"{value:.3g}") if unit == "1" else show(value, unit, 3)
            entry["source"] = outcome.source
            table[key] = entry
    return tomlkit.dumps(document)
