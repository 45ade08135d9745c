"""Results: the answer for one point or a box, with why a point is out, its best point, its timeline, and its
rank among plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.base.arrays import namespace
from strata.base.batch import take
from strata.base.errors import BadValue, UnknownName, require
from strata.base.records import Infeasible, Tabular, box_columns, to_dict
from strata.base.rich_html import bar_html, display_html, rich_cards, table_html
from strata.base.units import show
from strata.case import Case
from strata.hardware.money import Economics
from strata.hardware.system import System
from strata.mapping.plan import Plan, division_text
from strata.mapping.rules import CORES, LIMITS, MEMORY, RULES
from strata.pricing.kernels.device import arithmetic_format
from strata.pricing.metrics import METRICS, Summary
from strata.pricing.power_limits import over_limits
from strata.pricing.stage_costs import training_levers
from strata.pricing.step import Step
from strata.pricing.timeline import Timeline, timeline
from strata.software.engine import Engine
from strata.workload.protocol import Program
from strata.workload.tasks import Workload

if TYPE_CHECKING:
    from strata.serving.served_plans import ServedPlan

CARDS = ("ttft", "mfu", "power", "energy_per_token", "cost_per_mtoken", "temperature")  # in notebooks
SHARES = ("mfu", "mbu")


@dataclass(frozen=True, eq=False, repr=False)
class Result(Tabular):
    """The answer for one point or a box; `reason` is 0 where it fits, else a bitmask of broken rules."""

    case: Case
    shape: tuple[int, ...]
    summary: Summary
    _again: Callable[[Case], Result] = field(repr=False)
    steps: tuple[Step, ...] = field(default=(), repr=False)

    @property
    def system(self) -> System:
        return self.case.system

    @property
    def program(self) -> Program:
        return self.case.program

    @property
    def model(self) -> Any:
        """The program, where it is a language model."""
        return self.case.program

    @property
    def workload(self) -> Workload:
        return self.case.workload

    @property
    def plan(self) -> Any:
        return self.case.plan

    @property
    def engine(self) -> Engine:
        return self.case.engine

    @property
    def economics(self) -> Economics:
        return self.case.economics

    def __repr__(self) -> str:
        what = f"{self.program.name} on {self.system.name}, {self.workload.phase}, {self.plan!r}"
        if self.shape:
            size = " x ".join(str(n) for n in self.shape)
            return f"Result({what}: box of {size}, {int(np.sum(self.fits)):,} points fit)"
        if not self.fits:
            return f"Result({what}: {'; '.join(reasons(self.reason))})"
        m = self.metrics
        return f"Result({what}: {show(m.step_time, 's')} a step, {show(m.items_per_s)} {self._item()}/s)"

    def _item(self) -> str:
        return f"{self.steps[-1].item}s" if self.steps else "items"

    def _repr_html_(self) -> str:
        """For notebooks: headline numbers as cards, where time and memory go, every metric in a fold; of a
        box what varies and its best point.
        """
        if self.shape:
            return display_html(repr(self), *self._box_parts())
        title = f"{self.program.name} on {self.system.name}, {self.workload.phase}, {self.plan!r}"
        if not self.fits:
            return display_html(title, table_html(("it is out",), [[str(one)] for one in self.infeasible]))
        m = self.metrics
        values = [(METRICS[f.name], float(getattr(m, f.name))) for f in fields(m)]
        known = {
            one.name: (one.label, f"{value:.1%}" if one.name in SHARES else show(value, one.unit), "")
            for one, value in values
            if np.isfinite(value) and self.workload.phase in one.phases
        }
        headline = next(name for name in ("tpot", "ttft", "step_time") if name in known)
        bounds = f"{show(m.lower, 's')} to {show(m.upper, 's')}"
        first = known.pop(headline)
        used = f"of {show(m.memory_limit, 'B')}"
        cards = [(*first[:2], f"bounds {bounds}"), (f"{self._item()}/s", show(m.items_per_s), "")]
        cards += [known[name] for name in CARDS if name in known]
        cards.append(("memory a device", show(m.memory_used, "B"), used))
        time = {name: float(value) for name, value in self.summary.resources.items()}
        held = {name: float(value) for name, value in self.summary.memory.items()}
        rows = [(label, text) for label, text, _ in (first, *known.values())]
        return display_html(
            title,
            rich_cards(cards),
            bar_html("time by what binds it", time, "s"),
            bar_html("memory of a device", held, "B"),
            table_html(("metric", "value"), rows, said="all metrics"),
        )

    def _box_parts(self) -> list[str]:
        """What is told of a box: how many points are out, and its best one."""
        out = int(np.size(self.fits) - np.sum(self.fits))
        told = [rich_cards([("points", f"{np.size(self.fits):,}", f"{out:,} of them out")])]
        if out < np.size(self.fits):
            told += ["<div>its best point by items/s:</div>", self.best()._repr_html_()]
        return told

    def to_dict(self) -> dict[str, Any]:
        """Inputs and answers as plain dictionaries, lists and numbers."""
        return {"case": to_dict(self.case), "summary": to_dict(self.summary), "shape": list(self.shape)}

    def columns(self) -> dict[str, Any]:
        """Metrics of every point, with its place in the box and why it is out."""
        columns = {f.name: getattr(self.metrics, f.name) for f in fields(self.metrics)}
        return box_columns(columns | {"reason": self.reason}, self.shape)

    @property
    def metrics(self) -> Any:
        """TokenMetrics of a language model, ItemMetrics of any other program."""
        return self.summary.metrics

    @property
    def reason(self) -> Any:
        reason = self.summary.reason
        return namespace(reason).asarray(reason, dtype=int) if self.shape else int(reason)

    @property
    def fits(self) -> Any:
        return self.reason == 0

    @property
    def bound_by(self) -> Any:
        """The resource most of the time is credited to; an array of names for a box."""
        names = list(self.summary.resources)
        stacked = np.stack(
            [np.broadcast_to(np.asarray(self.summary.resources[n], float), self.shape) for n in names]
        )
        most = np.argmax(stacked, axis=0)
        return np.array(names)[most] if self.shape else names[int(most)]

    def at(self, *index: int) -> Result:
        """The full single answer at one point of a box."""
        require(
            len(index) == len(self.shape),
            "at() takes one index for each axis of the box",
            index=index,
            shape=self.shape,
        )
        return self._again(take(self.case, index, len(self.shape)))

    def best(self, metric: str = "items_per_s") -> Result:
        """The full answer of the best feasible point of a box, by what its metric calls better."""
        known = {name: one for name, one in METRICS.items() if hasattr(self.metrics, name)}
        if metric not in known:
            raise UnknownName("metric", metric, known, ", ".join(known))
        if not self.shape:
            return self
        require(bool(np.any(self.fits)), "no point of this box fits; result.reason says why")
        higher = known[metric].higher_is_better
        values = np.broadcast_to(np.asarray(getattr(self.metrics, metric), float), self.shape)
        values = np.where(self.fits & ~np.isnan(values), values if higher else -values, -np.inf)
        require(bool(np.any(values > -np.inf)), f"no point of this box that fits has a known {metric}")
        place = np.unravel_index(np.argmax(values), self.shape)
        return self.at(*(int(i) for i in place))

    @property
    def infeasible(self) -> list[Infeasible]:
        """Why a single point is out: each broken rule with demand, limit and levers."""
        self._single("infeasible")
        found = []
        if self.reason & MEMORY.bit:
            used, limit = float(self.metrics.memory_used), float(self.metrics.memory_limit)
            found.append(Infeasible(MEMORY.relation, used, limit, "B", self._memory_levers()))
        if self.reason & LIMITS.bit:
            found.append(over_limits(self.system.chip, self.steps))
        if self.reason & CORES.bit:
            chip = self.system.chip
            assert chip.cores_fit is not None
            cores, fit = float(chip.compute.cores), float(chip.cores_fit)
            if chip.recipe is not None and fit == 0.0:
                from strata.hardware.generate.recipe import why_not

                if lacks := why_not(chip.recipe):
                    return list(lacks)  # there is no such chip: what it would break is nothing to know
            found.append(Infeasible(CORES.relation, cores, fit, "1", CORES.levers))
        for v in self.plan.violations(self.program.units, self.workload, self.system.devices):
            if v.broken:
                levers = (*v.neighbours(), *v.rule.levers)
                found.append(Infeasible(v.rule.relation, float(v.demand), float(v.limit), "1", levers))
        return found

    def _memory_levers(self) -> tuple[str, ...]:
        """What would make one point fit: in training the largest purpose, and levers with what they leave."""
        plan = self.plan
        if self.workload.phase != "train" or not isinstance(plan, Plan):
            return MEMORY.levers

        def needed(other: Plan) -> float:
            try:
                there = self._again(replace(self.case, plan=other))
            except BadValue:  # the system states nothing of what this lever needs, as a host's link
                return float("inf")
            return float("inf") if int(there.reason) & ~MEMORY.bit else float(there.metrics.memory_used)

        memory = {purpose: float(size) for purpose, size in self.summary.memory.items()}
        pieces = float(self.steps[-1].microbatches)
        sequences = float(self.workload.batch / plan.dp)
        return training_levers(plan, memory, float(self.metrics.memory_limit), needed, pieces, sequences)

    @cached_property
    def timeline(self) -> Timeline:
        """Events of one micro-batch of the last step (the decode step of a served batch)."""
        self._single("timeline")
        order = self.program.trace(self.workload.steps()[1][-1][1]).sequence
        return timeline(self.steps[-1], order, self.system.chip)

    @property
    def notes(self) -> list[str]:
        """What a reader should know about how this point was priced."""
        chip, said = self.system.chip, []
        activations = getattr(self.program, "activations", "")
        for what, part in (("weights", "weights"), ("experts", "expert_weights")):
            weight = getattr(self.program, part, activations)
            if weight != activations and arithmetic_format(chip, weight, activations) == activations:
                said.append(
                    f"{chip.name} has no {weight} arithmetic: {what} are stored in {weight} "
                    f"and computed in {activations}"
                )
        if activations == "bf16" and "bf16" not in chip.compute.matrix_rate:
            said.append(f"{chip.name} has no bf16 arithmetic: products are computed in fp16")
        clock, highest = float(np.min(self.metrics.clock)), float(np.max(chip.compute.max_clock))
        if clock < highest:
            said.append(
                f"at {self._at_limit()} the clock falls to {clock / 1e9:.2f} of {highest / 1e9:.2f} GHz"
            )
        return list(dict.fromkeys(said))

    def _at_limit(self) -> str:
        """The limit that holds the clock down, in words: the one that is nearest."""
        chip, heat = self.system.chip, self.system.chip.heat
        watts = float(np.min(np.asarray(chip.energy.power_limit, float)))
        said = f"the limit of {watts:.0f} W"
        if heat is None or not self.steps:
            return said
        step = self.steps[-1]
        room = {said: 1.0 - float(self.metrics.device_power) / watts}
        for name, at, limit in (
            ("logic", step.logic, heat.logic_limit),
            ("DRAM", step.dram, heat.dram_limit),
        ):
            room[f"the limit of {float(limit) - 273.15:.0f} °C for {name}"] = float(
                (limit - at) / (limit - heat.ambient)
            )
        return min(room, key=lambda k: room[k])

    def _single(self, what: str) -> None:
        if self.shape:
            raise BadValue(
                f"result.{what} belongs to a single point, but this result is a box of shape {self.shape}; "
                "use result.at(i, ...)"
            )


def reasons(mask: int) -> list[str]:
    """The rules behind a bitmask of `Result.reason`.

    >>> reasons(3)
    ['what a device holds must fit its memory', "plan.tp x cp x dp x pp must be the system's devices"]
    """
    return [rule.relation for rule in RULES if mask & rule.bit]


@dataclass(frozen=True, kw_only=True)
class RankedPlan:
    """One plan (and batch) with what it delivers, in order of merit."""

    result: Result
    rank: int
    considered: int
    feasible: int
    # plans x batches priced in other orders than the usual one; the rest could not have won by theirs
    placed: int = 0
    served: ServedPlan | None = None  # where requests are served: what clients see, and what it costs


def why_infeasible(result: Result) -> str:
    """Why a single result is out, in one line with levers; a plan that is not legal comes before a device
    that is too small or too hot.

    >>> import strata as st
    >>> result = st.evaluate("1xh100", "llama-3-8b", st.decode(batch=256, context=8192))
    >>> why_infeasible(result).partition(";")[0]
    'llama-3-8b does not fit on 1xh100 with plan tp=1: a device needs 291 GB and has 85.9 GB'
    """
    broken = sorted(result.infeasible, key=lambda i: i.unit != "1")
    first, more = broken[0], f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    need, have = show(first.demand, first.unit), show(first.limit, first.unit)
    levers = f"levers: {', '.join(first.levers)}"
    rule = f"{first.what}, but got {need} against {have}"
    chip, system, model = result.system.chip.name, result.system.name, result.model.name
    plan = f"plan {division_text(result.plan)}"
    if first.what == CORES.relation:
        return f"{chip} cannot be built: {rule}{more}; {levers}"
    if first.unit == "1":
        return f"{plan} is not legal: {rule}{more}; {levers}"
    if first.unit == "B":
        needs = f"a device needs {need} and has {have}"
        return f"{model} does not fit on {system} with {plan}: {needs}; {levers}"
    return f"{model} cannot run on {system} with {plan}: {rule}; {levers}"
