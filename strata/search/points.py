"""Points of a space, evaluated: those that share their words in one batched call."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from strata.evaluate import evaluate
from strata.mapping.plan import Plan
from strata.params import value_at
from strata.pricing.metrics import METRIC_UNITS
from strata.search.expression import calculate
from strata.search.fields import PLAN_FIELDS, assembled
from strata.search.space import Space


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Points and what they deliver: digits [N, axes], each metric [N], and why a point is out (a bitmask, 0
    is in).
    """

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


def joined(parts: list[Evaluated]) -> Evaluated:
    """Evaluated points of several batches, in their order."""
    columns = {k: np.concatenate([p.columns[k] for p in parts]) for k in parts[0].columns}
    return Evaluated(
        np.concatenate([p.digits for p in parts]), columns, np.concatenate([p.reason for p in parts])
    )


def evaluate_points(space: Space, digits: Any, backend: str = "numpy") -> Evaluated:
    """Evaluate points of a space; each answer depends on its own digits only."""
    rows = np.atleast_2d(np.asarray(digits, np.int64))
    columns = {name: np.empty(len(rows)) for name in (*METRIC_UNITS, "die_area")}
    reason = np.zeros(len(rows), np.int64)
    for which in alike(space, rows):
        # JAX compiles anew for each length: there it is rounded up, with repeats that nobody reads.
        padded = np.resize(which, max(256, 1 << (len(which) - 1).bit_length())) if backend == "jax" else which
        inputs = point_inputs(space, rows[padded])
        result = evaluate(*inputs, backend=backend)
        found = {name: getattr(result.metrics, name) for name in METRIC_UNITS} | {
            "die_area": inputs[0].chip.package.die_area
        }
        for name, values in found.items():
            columns[name][which] = np.broadcast_to(np.asarray(values, float), len(padded))[: len(which)]
        reason[which] = np.broadcast_to(np.asarray(result.reason), len(padded))[: len(which)]
    return Evaluated(rows, columns, reason)


def alike(space: Space, rows: np.ndarray, of: str = "") -> list[np.ndarray]:
    """Points in groups that share every word, so that one call serves a group; `of` looks at fields that
    start so only.
    """
    worded = [
        i
        for i, a in enumerate(space.axes)
        if structural(space, i) and any(f.startswith(of) for f in a.fields)
    ]
    if not worded:
        return [np.arange(len(rows))]
    _, group = np.unique(rows[:, worded], axis=0, return_inverse=True)
    return [np.flatnonzero(group == g) for g in range(int(group.max()) + 1)] if len(rows) else []


def structural(space: Space, i: int) -> bool:
    """Whether an axis holds words: what they choose is structure, the same for a whole batch."""
    axis = space.axes[i]
    if axis.kind == "word":
        return True
    return axis.kind == "variant" and any(isinstance(v, str) for own in axis.values for v in own.values())


@dataclass(eq=False)
class Fields:
    """What axes make of fields: words that all points share, numbers over the points, and multiples of what
    fields are.
    """

    words: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    times: dict[str, Any] = field(default_factory=dict)

    def put(self, space: Space, i: int, at: np.ndarray) -> None:
        """Take over what an axis chooses at each point; plans are no fields."""
        axis = space.axes[i]
        if axis.kind == "word":
            self.words |= dict.fromkeys(axis.fields, str(axis.values[int(at[0])]))
        elif axis.kind == "variant":
            for name, choices in field_choices(space, i).items():
                if any(isinstance(c, str) for c in choices):
                    self.words[name] = str(choices[int(at[0])])
                else:
                    self.numbers[name] = np.array(choices, float)[at]
        elif axis.ordered:
            (self.times if axis.kind == "times" else self.numbers).update(
                dict.fromkeys(axis.fields, np.array(axis.values, float)[at])
            )


def point_inputs(space: Space, rows: np.ndarray) -> tuple[Any, ...]:
    """System, model, workload, plan and engine of points that share every word, as arrays over the points."""
    made, plan = Fields(), Plan()
    for i, axis in enumerate(space.axes):
        made.put(space, i, rows[:, i])
        if axis.kind == "plan":
            plan = plans_at(space, i, rows[:, i])
    made.numbers |= tied(
        space, {a.name: np.array(a.values, float)[rows[:, i]] for i, a in enumerate(space.axes) if a.ordered}
    )
    return assembled(space.question, made.words, made.numbers, made.times, plan)


def tied(space: Space, values: dict[str, Any]) -> dict[str, Any]:
    """Fields that follow from axes, by their expressions over the values of ordered ones."""
    return {t.field: np.asarray(calculate(t.value, values, f"tie of {t.field}"), float) for t in space.ties}


@lru_cache(maxsize=16)
def plan_table(space: Space, i: int) -> np.ndarray:
    """The plans of an axis, a row of fields each."""
    return np.array(space.axes[i].values, float)


def plans_at(space: Space, i: int, at: np.ndarray) -> Plan:
    """Some plans of an axis, as one Plan of arrays."""
    return Plan(**dict(zip(PLAN_FIELDS, plan_table(space, i)[at].T, strict=True)))


def field_choices(space: Space, i: int) -> dict[str, list[Any]]:
    """What each choice of an axis makes of its fields; fields that a variant does not name are as they were."""
    axis = space.axes[i]
    if axis.kind != "variant":
        return {name: list(axis.values) for name in axis.fields}
    found = {}
    for name in axis.fields:
        owner, _, path = name.partition(".")
        usual = value_at(space.question.base.chip if owner == "chip" else space.question.software, path)
        found[name] = [own.get(name, usual) for own in axis.values]
    return found
