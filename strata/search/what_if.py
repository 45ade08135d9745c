"""What-ifs: a design with some fields changed, absolutely ("6 TB/s") or relative to what they are ("x2",
"+10%"), beside the unchanged one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.base.errors import StrataError
from strata.evaluate import evaluate
from strata.hardware.derive import is_derived
from strata.hardware.part_of_domain import even_part
from strata.mapping.plan import Plan, divides_itself, usual_division
from strata.params import leaf_paths, value_at
from strata.pricing.metrics import METRICS
from strata.result import Result
from strata.search.fields import split_field
from strata.search.inputs import called_quantity, named_inputs, set_tables
from strata.serving.requests import check_work
from strata.workload.tasks import Workload

if TYPE_CHECKING:
    from strata.hardware.system import System
    from strata.search.plan_for import PlanRanking
    from strata.software.engine import Engine


@dataclass(frozen=True, kw_only=True)
class Change:
    """A metric or a field before and after; the ratio is of after to before."""

    name: str
    unit: str
    before: Any
    after: Any

    @property
    def ratio(self) -> float | None:
        numbers = all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in (self.before, self.after)
        )
        if not numbers or not self.before or self.unit == "K":  # no ratio of temperatures
            return None
        return float(self.after / self.before)


@dataclass(frozen=True, eq=False, kw_only=True)
class WhatIf:
    """A design and the same with some fields changed."""

    before: Result
    after: Result
    fields: tuple[Change, ...]

    @property
    def metrics(self) -> list[Change]:
        """Every metric that both have a number for."""
        found = []
        for name, one in METRICS.items():
            values = [getattr(r.metrics, name, None) for r in (self.before, self.after)]
            old, new = (float("nan") if v is None else float(np.asarray(v)) for v in values)
            if math.isfinite(old) and math.isfinite(new):
                found.append(Change(name=name, unit=one.unit, before=old, after=new))
        return found

    @property
    def notes(self) -> list[str]:
        """What a reader of the difference should know."""
        chip, said = self.after.system.chip, []
        if chip.recipe is not None:
            before = self.before.system.chip
            said = [
                f"{c.name} is generated: it was set by hand, and nothing that made it moved"
                for c in self.fields
                for owner, path in (split_field(c.name),)
                if owner == "chip" and is_derived(before, path)
            ]
        return said


def field_changes(
    before: Result, after: Result, tables: Mapping[str, Mapping[str, Any]]
) -> tuple[Change, ...]:
    """The fields that were set, with what they were and are."""
    found = []
    for owner, table in tables.items():
        for path in table:
            old, new = _record(before, owner), _record(after, owner)
            known = {} if owner == "model" else leaf_paths(new)
            whole = path
            if owner != "model":
                whole, hits = called_quantity(owner, path, new)
                whole = hits[0] if hits else whole
            if owner == "model" or whole not in known:  # a word
                first, second, unit = getattr(old, path, None), getattr(new, path, None), "1"
            else:
                sides = (value_at(record, whole) for record in (old, new))
                first, second = (None if v is None else float(np.asarray(v)) for v in sides)
                unit = known[whole]["unit"]
            found.append(Change(name=f"{owner}.{whole}", before=first, after=second, unit=unit))
    return tuple(found)


def _record(result: Result, owner: str) -> Any:
    """The record that a field belongs to."""
    return getattr(result.system if owner in ("chip", "fabric") else result, owner)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A prediction as it is asked for, by names: with other fields set it is asked again."""

    system: str
    model: str
    work: Callable[[Any], Workload]  # of the program that the model's name means
    plan: Any = None  # the best one where none is told
    engine: str = "ideal"
    weights: str = ""
    kv: str = ""
    fabric: str = ""
    always: tuple[str, ...] = ()  # fields that are set before all changes

    def inputs(self, changes: Sequence[str] = ()) -> tuple[System, Any, Engine]:
        """System, program and engine with some fields set."""
        items = [*self.always, *changes]
        return named_inputs(self.model, self.system, self.engine, self.weights, self.kv, items, self.fabric)

    def answer(self, changes: Sequence[str] = ()) -> tuple[Result, PlanRanking | None]:
        """The result with some fields set; and the ranking of plans, where none is told."""
        from strata.search.plan_for import plan_for

        hardware, program, software = self.inputs(changes)
        work = self.work(program)
        check_work(program, work)
        plan = self.plan or usual_division(program, hardware.devices)
        if plan or divides_itself(program):
            return evaluate(hardware, program, work, plan, software), None
        ranking = plan_for(hardware, program, work, software, top=1, at_once=True)
        return ranking.nearest, ranking

    def part_that_does_more(self, whole: Result, changes: Sequence[str] = ()) -> Result | None:
        """The best result of a part of the devices that divides more evenly, where it does more."""
        part = even_part(self.system)
        if not part:
            return None
        try:
            found, ranking = replace(self, system=part).answer(changes)
        except StrataError:
            return None
        if ranking is None or ranking.why_none or not found.fits:
            return None
        return found if found.metrics.tokens_per_s > whole.metrics.tokens_per_s else None

    def beside(self, after: Result, changes: Sequence[str]) -> WhatIf:
        """The result with fields set beside the one without them."""
        tables = set_tables(self.model, self.system, self.engine, changes, self.fabric)
        before, _ = self.answer()
        return WhatIf(before=before, after=after, fields=field_changes(before, after, tables))


def what_if(
    system: str,
    model: str,
    workload: Workload,
    changes: Sequence[str],
    plan: Plan | str | None = None,
    engine: str = "ideal",
    *,
    fabric: str = "",
) -> WhatIf:
    """A design with fields changed as `--set` has it, beside the unchanged one: under one plan, or each under
    its own best.

    >>> import strata as st
    >>> found = what_if("8xh200", "llama-3-70b", st.decode(8, 2048), ["chip.memory.bandwidth=x2"], "tp=8")
    >>> [c.ratio for c in found.fields], 0.5 < found.after.metrics.tpot / found.before.metrics.tpot < 0.8
    ([2.0], True)
    """
    asked = Question(
        system=system, model=model, work=lambda _: workload, plan=plan, engine=engine, fabric=fabric
    )
    return asked.beside(asked.answer(changes)[0], changes)
