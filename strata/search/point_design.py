"""A point of a space as a design by names: what `strata predict` would be told to ask for it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.mapping.plan import division, division_text, plan_text
from strata.params import value_at
from strata.search.fields import PLAN, SIZES, split_field
from strata.search.points import plans_at, set_choices, tied_values
from strata.search.scenario import FieldValues
from strata.search.space import Space


def point_design(space: Space, digits: Any) -> dict[str, Any]:
    """Names, sizes, plan and the fields that are set, as text with units, of one point.

    >>> from strata.search.space import space
    >>> small = space("next-node", bandwidth=["2"], capacity=["288 GB"], batch=[64])
    >>> found = point_design(small, small.digits(0)[0])
    >>> found["system"], found["batch"], found["set"]["chip.memory.capacity"]
    ('8xh200', 64, '288000000000 B')
    """
    row = np.asarray(digits, np.int64).reshape(1, -1)
    scenario, values = space.scenario, FieldValues()
    told = scenario.plan
    for i, axis in enumerate(space.axes):
        set_choices(values, space, i, row[:, i])
        if axis.kind == "plan":
            told = plan_text(plans_at(space, i, row[0, i]))
    ordered = {a.name: float(a.values[row[0, i]]) for i, a in enumerate(space.axes) if a.ordered}
    values.numbers |= tied_values(space, ordered)
    numbers = {name: float(np.ravel(value)[0]) for name, value in values.numbers.items()}
    numbers |= _multiplied(space, values)
    degrees = {split_field(n)[1]: v for n, v in numbers.items() if split_field(n)[0] == PLAN}
    if degrees:
        told = division_text(division(scenario.base_model, told, **degrees))
    sizes = {name: round(numbers.get(name, getattr(scenario, name))) for name in SIZES}
    words = {name: text for name, text in values.words.items() if name != "fabric"}
    changed = {
        name: f"{value:.15g} {scenario.unit(name) or ''}".removesuffix(" 1").strip()
        for name, value in numbers.items()
        if name not in SIZES and split_field(name)[0] != PLAN
    }
    return {
        "model": scenario.model,
        "system": scenario.system,
        "phase": scenario.phase,
        **sizes,
        "plan": told,
        "engine": scenario.engine,
        "fabric": values.words.get("fabric", ""),
        "weights": words.pop("model.weights", scenario.weights),
        "kv": words.pop("model.kv", scenario.kv),
        "set": words | changed,
    }


def _multiplied(space: Space, values: FieldValues) -> dict[str, float]:
    """Multiples of what fields are, as numbers; those the chosen fabric does not have are left out."""
    scenario, found = space.scenario, {}
    owners = replace(scenario.owners[0], fabric=scenario.fabric_named(values.words.get("fabric", "")))
    for name, times in values.times.items():
        record, path = owners.resolve(name)
        if path is not None:
            found[name] = float(np.ravel(times)[0]) * float(np.asarray(value_at(record, path)))
    return found
