"""Points of a space, evaluated: those that share their words in one batched call; and each as a
design by names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from strata.base.batch import take
from strata.base.errors import BadValue
from strata.base.expression import calculate
from strata.case import Case
from strata.evaluate import evaluate_case
from strata.mapping.plan import Plan, division, division_text, plan_text
from strata.mapping.rules import PARTS
from strata.params import value_at
from strata.pricing.metrics import METRICS, RATE, TIME
from strata.result import Result
from strata.search.fields import PLAN, PLAN_FIELDS, SIZES, split_field
from strata.search.goal import POINT_METRICS
from strata.search.scenario import FieldValues, assemble_case
from strata.search.space import Space

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Points: digits [N, axes], each metric [N], and why a point is out (a bitmask, 0 is in)."""

    digits: np.ndarray
    columns: dict[str, np.ndarray]
    reason: np.ndarray

    def __len__(self) -> int:
        return len(self.digits)

    def take(self, which: Any) -> Evaluated:
        """Some of the points, by a mask or by indices."""
        return Evaluated(
            self.digits[which], {k: v[which] for k, v in self.columns.items()}, self.reason[which]
        )


def concatenate_points(parts: list[Evaluated]) -> Evaluated:
    """Evaluated points of several batches, in their order."""
    columns = {k: np.concatenate([p.columns[k] for p in parts]) for k in parts[0].columns}
    return Evaluated(
        np.concatenate([p.digits for p in parts]), columns, np.concatenate([p.reason for p in parts])
    )


def evaluate_points(space: Space, digits: Any, backend: str = "numpy") -> Evaluated:
    """Evaluate points of a space; each answer depends on its own digits only."""
    rows = np.atleast_2d(np.asarray(digits, np.int64))
    # what a point has that cannot be built: no rate, and no end of time
    columns = {
        name: np.full(len(rows), 0.0 if m.kind == RATE else np.inf if m.kind == TIME else np.nan)
        for name, m in POINT_METRICS.items()
    }
    reason = np.zeros(len(rows), np.int64)
    for which in groups_by_words(space, rows):
        # JAX compiles anew for each length: there it is rounded up, with repeats that nobody reads.
        which = _buildable(space, rows, which, reason)
        if not len(which):
            continue
        padded = np.resize(which, max(256, 1 << (len(which) - 1).bit_length())) if backend == "jax" else which
        case = case_of_points(space, rows[padded])
        result = evaluate_case(case, backend)
        values = {name: getattr(result.metrics, name, np.nan) for name in METRICS}
        values |= {"die_area": case.system.chip.package.die_area}
        for name, value in values.items():
            columns[name][which] = np.broadcast_to(np.asarray(value, float), len(padded))[: len(which)]
        reason[which] = np.broadcast_to(np.asarray(result.reason), len(padded))[: len(which)]
    return Evaluated(rows, columns, reason)


def _buildable(space: Space, rows: np.ndarray, which: np.ndarray, reason: np.ndarray) -> np.ndarray:
    """Those of some points whose chips can be built; `reason` says so of the others.

    Relations between parts are checked for a batch as a whole, and depend on axes of the chip alone: where
    they fail, halves of the different chips, and halves of these, find which.
    """
    try:
        case_of_points(space, rows[which])
        return which
    except BadValue:
        chips = [i for i, a in enumerate(space.axes) if any(f.startswith("chip.") for f in a.fields)]
        tied = [i for i, a in enumerate(space.axes) if a.ordered] if space.ties else []
        _, first, chip = np.unique(
            rows[which][:, sorted({*chips, *tied})], axis=0, return_index=True, return_inverse=True
        )
    sound, chips_rows = np.zeros(len(first), bool), rows[which[first]]
    for some, _ in built_parts(lambda part: case_of_points(space, chips_rows[part]), np.arange(len(first))):
        sound[some] = True
    built = sound[chip.ravel()]
    reason[which[~built]] = PARTS.bit
    return which[built]


def built_parts(make: Callable[[np.ndarray], Made], which: np.ndarray) -> Iterator[tuple[np.ndarray, Made]]:
    """Parts of a batch of which something can be made, with it; what cannot be made is left out.

    That is little, and a batch is refused as a whole: halves of it, and halves of these, find it.
    """
    try:
        made = make(which)
    except BadValue:
        half = len(which) // 2
        for part in (which[:half], which[half:]) if half else ():
            yield from built_parts(make, part)
        return
    yield which, made


def evaluate_point(space: Space, digits: np.ndarray) -> Result:
    """The full answer of one point: bounds, timeline, notes."""
    case: Case = take(case_of_points(space, digits[None]), (0,), 1)
    return evaluate_case(case)


def groups_by_words(space: Space, rows: np.ndarray, of: str = "") -> list[np.ndarray]:
    """Points in groups that share every word, of fields that start with `of`: one call serves each."""
    worded = [
        i
        for i, a in enumerate(space.axes)
        if chooses_words(space, i) and any(f.startswith(of) for f in a.fields)
    ]
    if not worded:
        return [np.arange(len(rows))]
    _, group = np.unique(rows[:, worded], axis=0, return_inverse=True)
    return [np.flatnonzero(group == g) for g in range(int(group.max()) + 1)] if len(rows) else []


def chooses_words(space: Space, i: int) -> bool:
    """Whether an axis holds words: what they choose is structure, the same for a whole batch."""
    axis = space.axes[i]
    if axis.kind == "word":
        return True
    return axis.kind == "variant" and any(isinstance(v, str) for own in axis.values for v in own.values())


def set_choices(values: FieldValues, space: Space, i: int, at: np.ndarray) -> None:
    """Take over what an axis chooses at each point; plans are no fields."""
    axis = space.axes[i]
    if axis.kind == "word":
        values.words |= dict.fromkeys(axis.fields, str(axis.values[int(at[0])]))
    elif axis.kind == "variant":
        for name, choices in field_choices(space, i).items():
            if any(isinstance(c, str) for c in choices):
                values.words[name] = str(choices[int(at[0])])
            else:
                values.numbers[name] = np.array(choices, float)[at]
    elif axis.ordered:
        table = values.times if axis.kind == "times" else values.numbers
        table.update(dict.fromkeys(axis.fields, np.array(axis.values, float)[at]))


def case_of_points(space: Space, rows: np.ndarray) -> Case:
    """The case of points that share every word, as arrays over the points."""
    values, plan = _chosen(space, rows)
    return assemble_case(space.scenario, values, plan)


def _chosen(space: Space, rows: np.ndarray) -> tuple[FieldValues, Plan | None]:
    """What points that share every word choose, with ties; their plans, where an axis has them."""
    values, plan = FieldValues(), None
    for i, axis in enumerate(space.axes):
        set_choices(values, space, i, rows[:, i])
        if axis.kind == "plan":
            plan = plans_at(space, i, rows[:, i])
    numbers = {a.name: np.array(a.values, float)[rows[:, i]] for i, a in enumerate(space.axes) if a.ordered}
    values.numbers |= tied_values(space, numbers)
    return values, plan


def tied_values(space: Space, numbers: dict[str, Any]) -> dict[str, Any]:
    """Fields that follow from axes, by their expressions over the values of ordered ones."""
    return {t.field: np.asarray(calculate(t.value, numbers, f"tie of {t.field}"), float) for t in space.ties}


@lru_cache(maxsize=16)
def plan_table(space: Space, i: int) -> np.ndarray:
    """The plans of an axis, a row of fields each."""
    return np.array(space.axes[i].values, float)


def plans_at(space: Space, i: int, at: np.ndarray) -> Plan:
    """Some plans of an axis, as one Plan of arrays."""
    return Plan(**dict(zip(PLAN_FIELDS, plan_table(space, i)[at].T, strict=True)))


def field_choices(space: Space, i: int) -> dict[str, list[Any]]:
    """What each choice of an axis makes of its fields; those a variant does not name are as they were."""
    axis = space.axes[i]
    if axis.kind != "variant":
        return {name: list(axis.values) for name in axis.fields}
    usual = {name: space.scenario.base_value(name) for name in axis.fields}
    return {name: [own.get(name, usual[name]) for own in axis.values] for name in axis.fields}


def point_design(space: Space, digits: Any) -> dict[str, Any]:
    """Names, sizes, plan and the fields that are set, as text with units, of one point.

    >>> from strata.search.space import space
    >>> small = space("next-node", bandwidth=["2"], capacity=["288 GB"], batch=[64])
    >>> found = point_design(small, small.digits(0)[0])
    >>> found["system"], found["batch"], found["set"]["chip.memory.capacity"]
    ('8xh200', 64, '288000000000 B')
    """
    row = np.asarray(digits, np.int64).reshape(1, -1)
    scenario, (values, plan) = space.scenario, _chosen(space, row)
    told = scenario.plan if plan is None else plan_text(take(plan, (0,), 1))
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
