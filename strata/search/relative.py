"""Changes of fields relative to what they are: "x2", "+10%" become numbers, from what a design states."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from strata.errors import BadValue, UnknownName
from strata.hardware.derive import DERIVED, derivation_of, is_derived, restated
from strata.hardware.money import economics
from strata.hardware.system import System
from strata.hardware.system import system as make_system
from strata.mapping.engine import engine as make_engine
from strata.params import called, leaf_paths, value_at
from strata.search.fields import ECONOMICS, RECIPE, FieldOwners, fabric_path, parse_changes, path_in_recipe
from strata.workload.program import program as make_program

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_TIMES = re.compile(rf"[x×]\s*([-+]?{_NUMBER})")
_PERCENT = re.compile(rf"([-+]\s*{_NUMBER})\s*%")


def relative_factor(text: Any, what: str = "a relative change") -> float | None:
    """What a relative change multiplies by; None where the text is an absolute value.

    >>> [relative_factor(t) for t in ("x2", "x 0.5", "-20%", "6 TB/s", "20%")]
    [2.0, 0.5, 0.8, None, None]
    >>> relative_factor("-100%", "chip.memory.bandwidth")
    Traceback (most recent call last):
    ...
    strata.errors.BadValue: chip.memory.bandwidth: a factor must be positive and finite, but got '-100%'
    """
    if not isinstance(text, str):
        return None
    times, percent = _TIMES.fullmatch(text.strip()), _PERCENT.fullmatch(text.strip())
    if times is None and percent is None:
        return None
    if times is not None:
        factor = float(times[1])
    else:
        factor = 1.0 + float(percent[1].replace(" ", "")) / 100.0  # type: ignore[index]
    if not (factor > 0.0 and math.isfinite(factor)):
        raise BadValue(f"{what}: a factor must be positive and finite, but got '{text}'")
    return factor


def absolute_changes(
    tables: Mapping[str, Mapping[str, Any]], owners: FieldOwners, system: System
) -> dict[str, dict[str, Any]]:
    """Changes by owner with the relative ones worked out: so many times what the design states now.

    A quantity that follows from others cannot be moved by itself: the error says which one to set instead.
    """
    found: dict[str, dict[str, Any]] = {}
    for owner, table in tables.items():
        found[owner] = {}
        for path, value in table.items():
            factor = relative_factor(value, f"{owner}.{path}")
            if factor is not None:
                value = _number_at(owner, path, str(value), owners, system) * factor
            found[owner][path] = value
    return found


def _number_at(owner: str, path: str, text: str, owners: FieldOwners, system: System) -> float:
    """The number that a relative change starts from."""
    name = f"{owner}.{path}"
    if owner == "model":
        held = getattr(owners.model, path, None)
        known = [f.name for f in fields(owners.model)] + (
            ["layers"] if hasattr(owners.model, "pattern") else []
        )
        if path not in known:
            raise UnknownName("model field", path, known, ", ".join(known))
        if isinstance(held, bool | str) or not isinstance(held, int | float):
            raise BadValue(f"{name} is no number ({held!r}), so that it cannot be changed by '{text}'")
        return float(held)
    record: Any = system.economics or economics() if owner == ECONOMICS else getattr(owners, owner)
    whole = _whole(owner, path, record)
    if owner == "chip":
        if is_derived(record, whole):
            raise BadValue(_follows(whole, text, owners, system))
        record = restated(record)
    value = value_at(record, whole)
    if value is None:
        raise BadValue(f"{name} is not stated of {record.name}, so that it cannot be changed by '{text}'")
    return float(np.asarray(value))


def _whole(owner: str, path: str, record: Any) -> str:
    """The whole path of a quantity from what a user calls it."""
    known = leaf_paths(record)
    if owner == "fabric":
        path = fabric_path(record, path) or path
    if owner == "chip":
        path = path_in_recipe(record, path) or path
    hits = called(path, known)
    if not hits:
        raise UnknownName(f"{owner} quantity", path, known, f"strata schema {owner}")
    if len(hits) > 1:
        raise BadValue(f"'{path}' names several {owner} quantities: {', '.join(hits)}; write the whole path")
    return hits[0]


def _follows(path: str, text: str, owners: FieldOwners, system: System) -> str:
    """Why a derived quantity cannot be set, and what to set instead."""
    from strata.search.levers import LEVERS, quantities_behind

    chip = owners.chip
    row = derivation_of(chip, path)
    instead = [f"chip.{row.instead}"] if row is not None and row.instead else []
    for lever in LEVERS:
        if not instead and FieldOwners.covers((way[0] for way in lever.ways), f"chip.{path}"):
            behind = quantities_behind(lever, owners, system)
            instead = [name.replace(RECIPE, "") for held in behind.values() for name in held][:1]
            instead += ["chip.budget.power"] if chip.recipe is not None else []
    told = f"; set {' or '.join(f'{name}={text}' for name in instead)} instead" if instead else ""
    source = chip.sources[path].source.removeprefix(DERIVED)
    return f"chip.{path} of {chip.name} follows from its other numbers ({source}){told}"


def set_tables(
    model: str, system: str, engine: str, changes: Iterable[str], fabric: str = ""
) -> dict[str, dict[str, Any]]:
    """What `--set` changes by owner, relative changes worked out.

    >>> set_tables("llama-3-8b", "8xh200", "ideal", ["chip.memory.bandwidth=x2"])["chip"]
    {'memory.bandwidth': 9600000000000.0}
    """
    tables: dict[str, dict[str, Any]] = {owner: dict(t) for owner, t in parse_changes(changes).items()}
    every = ((f"{owner}.{path}", value) for owner, table in tables.items() for path, value in table.items())
    if all(relative_factor(value, name) is None for name, value in every):
        return tables
    base = make_system(system, fabric or None)
    owners = FieldOwners(
        chip=base.chip, fabric=base.fabric, engine=make_engine(engine), model=make_program(model)
    )
    return absolute_changes(tables, owners, base)
