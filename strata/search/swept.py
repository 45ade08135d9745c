"""What a sweep found: results over its axes, group by group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from strata.base.errors import require
from strata.base.records import Tabular
from strata.base.rich_html import display_html, rich_cards, scatter_svg
from strata.base.units import show
from strata.mapping.plan import plan_text
from strata.mapping.plans import plan_at
from strata.pricing.metrics import METRIC_UNITS, METRICS
from strata.result import Result
from strata.search.sweep_axes import SweepAxis

BEST = "best"  # a plan for each point of a box: the one that is best by the metric shown


@dataclass(frozen=True, kw_only=True)
class SweepGroup:
    """The points of a sweep that share their words: a box of results; where the plan is the best for each
    point, plans are the box's last axis.
    """

    words: Mapping[str, str]
    result: Result
    metric: str
    plan: str

    def of(self, values: Any) -> np.ndarray:
        """A quantity of the box over the axes that are numbers, at the plan that counts."""
        whole = np.broadcast_to(np.asarray(values), self.result.shape)
        if self.picked is None:
            return whole
        return np.take_along_axis(whole, self.picked[..., None], axis=-1)[..., 0]

    @cached_property
    def picked(self) -> np.ndarray | None:
        """Which plan is the best at each point, where there is a choice; one that is out where all are."""
        if self.plan != BEST:
            return None
        values = np.asarray(getattr(self.result.metrics, self.metric), float)
        values = values if METRICS[self.metric].higher_is_better else -values
        known = self.result.fits & ~np.isnan(values)
        return np.argmax(np.where(known, values, -np.inf), axis=-1)

    def plan_of(self, index: tuple[int, ...]) -> str:
        """The plan of one point, as it is typed."""
        if self.picked is None:
            return self.plan
        return plan_text(plan_at(self.result.plan, int(self.picked[index])))


@dataclass(frozen=True, kw_only=True)
class Sweep(Tabular):
    """Results over axes, in the order they were told: a group for each combination of words."""

    axes: list[SweepAxis]
    groups: list[SweepGroup]
    metric: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(a.values) for a in self.axes)

    @property
    def result(self) -> Result:
        """The box of results, where there is one: where nothing but numbers varies."""
        require(len(self.groups) == 1, "a sweep over words has a result for each group: sweep.groups")
        return self.groups[0].result

    @property
    def plan(self) -> str:
        """The plan as it was told, or "" where groups have plans of their own."""
        plans = {g.plan for g in self.groups}
        return plans.pop() if len(plans) == 1 else ""

    @property
    def picked(self) -> bool:
        """Whether some points have chosen their plans."""
        return any(g.picked is not None for g in self.groups)

    def of(self, values: Any) -> np.ndarray:
        """A quantity over the axes: read from each group's result by a function, or given for the one box."""
        read: Callable[[Result], Any] = values if callable(values) else lambda result: values
        require(callable(values) or len(self.groups) == 1, "give a function of a group's result")
        parts = np.stack([np.asarray(g.of(read(g.result))) for g in self.groups])
        order = sorted(range(len(self.axes)), key=lambda i: not self.axes[i].grouped)  # as parts have them
        return np.moveaxis(parts.reshape([self.shape[i] for i in order]), range(len(order)), order)

    def metric_values(self, name: str) -> np.ndarray:
        """A metric over the axes; nan where a program has no such metric."""
        return self.of(lambda r: np.asarray(getattr(r.metrics, name, np.nan), float))

    @cached_property
    def values(self) -> np.ndarray:
        return self.metric_values(self.metric)

    @cached_property
    def fits(self) -> np.ndarray:
        return self.of(lambda r: r.fits) & np.isfinite(self.values)

    def place(self, index: tuple[int, ...]) -> tuple[SweepGroup, tuple[int, ...]]:
        """The group of a point, and where it stands in the group's box."""
        grouped = [(len(a.values), i) for a, i in zip(self.axes, index, strict=True) if a.grouped]
        number = int(np.ravel_multi_index([i for _, i in grouped], [n for n, _ in grouped])) if grouped else 0
        rest = tuple(i for a, i in zip(self.axes, index, strict=True) if not a.grouped)
        return self.groups[number], rest

    def plan_of(self, index: tuple[int, ...]) -> str:
        """The plan of one point, as it is typed."""
        group, inside = self.place(index)
        return group.plan_of(inside)

    @property
    def best_index(self) -> tuple[int, ...] | None:
        """Where the best point stands; None where none fits."""
        if not np.any(self.fits):
            return None
        signed = self.values if METRICS[self.metric].higher_is_better else -self.values
        return tuple(
            int(i) for i in np.unravel_index(np.argmax(np.where(self.fits, signed, -np.inf)), self.shape)
        )

    def best(self) -> Result:
        """The full answer of the best point."""
        index = self.best_index
        if index is None:  # which says why
            return self.groups[0].result.best(self.metric)
        group, inside = self.place(index)
        chosen = () if group.picked is None else (int(group.picked[inside]),)
        return group.result.at(*inside, *chosen) if group.result.shape else group.result

    @property
    def question(self) -> str:
        """What is asked, in words, without what varies."""
        r = self.groups[0].result
        varied = {a.name for a in self.axes}
        work = r.workload
        size = {"batch": work.batch, "input": work.sequence, "output": work.output}
        size = {"batch": work.batch, "context": work.context} if work.phase == "decode" else size
        if work.phase in ("prefill", "train"):
            size.pop("output")
        moved = varied | ({"context"} if varied & {"input", "output"} else set())
        moved |= set(size) if "phase" in varied else set()
        sizes = "".join(f", {k} {float(np.asarray(v)):g}" for k, v in size.items() if k not in moved)
        plan = "the best plan for each point" if self.plan == BEST else f"plan {self.plan}"
        plan = plan if self.plan else "a plan for each"
        model = "models" if "model" in varied else r.model.name
        system = "systems" if "system" in varied else r.system.name
        said = [f"{model} on {system}", *([] if "plan" in varied else [plan])]
        said += [] if "phase" in varied else [f"{work.phase}{sizes}"]
        return ", ".join([*said, *([] if "engine" in varied else [f"engine {r.engine.name}"])])

    def __repr__(self) -> str:
        size = " x ".join(str(n) for n in self.shape)
        return f"Sweep({self.question}: {size} over {', '.join(a.name for a in self.axes)})"

    def columns(self) -> dict[str, Any]:
        """Every point: its place on the axes, its plan, whether it fits, what binds it, and every metric."""
        sides = np.meshgrid(*(a.values for a in self.axes), indexing="ij")
        found = {a.name: side.ravel() for a, side in zip(self.axes, sides, strict=True)}
        if "plan" not in found:
            found["plan"] = np.array([self.plan_of(i) for i in np.ndindex(*self.shape)])
        found |= {
            "fits": self.of(lambda r: r.fits).ravel(),
            "bound_by": self.of(lambda r: r.bound_by).ravel(),
        }
        names = dict.fromkeys(name for g in self.groups for name in vars(g.result.metrics))
        return found | {name: self.metric_values(name).ravel() for name in names}

    def _repr_html_(self) -> str:
        """For notebooks: the metric over the first axis that is a number, and the best point."""
        at, numeric = self.best_index, next((i for i, a in enumerate(self.axes) if a.numeric), None)
        label, unit = METRICS[self.metric].label, METRICS[self.metric].unit
        drawn = ""
        if numeric is not None:
            axis = self.axes[numeric]
            rest = tuple(i for place, i in enumerate(at or (0,) * len(self.shape)) if place != numeric)
            line = np.moveaxis(np.where(self.fits, self.values, np.nan), numeric, -1)[rest]
            points = [
                (float(x), float(y), f"{axis.name} {name}: {show(y, unit)}")
                for x, y, name in zip(axis.values, line, axis.labels, strict=True)
            ]
            drawn = scatter_svg(points, axis.name, f"{label} [{unit}]" if unit != "1" else label)
        size = " x ".join(str(n) for n in self.shape)
        cards = [("points", size, f"{int(np.sum(self.fits)):,} fit")]
        if at is not None:
            place = ", ".join(f"{a.name} {a.labels[i]}" for a, i in zip(self.axes, at, strict=True))
            cards.append((f"best {label}", show(self.values[at], unit), place))
        return display_html(self.question, rich_cards(cards), drawn)

    def as_dict(self) -> dict[str, Any]:
        """Every metric over the axes; lists are flat, the last axis fastest."""
        r = self.groups[0].result
        varied = {a.name for a in self.axes}
        question = {
            "model": r.model.name,
            "system": r.system.name,
            "phase": r.workload.phase,
            "plan": self.plan,
            "engine": r.engine.name,
        }
        told = {
            "question": {k: v for k, v in question.items() if k not in varied},
            "axes": [
                {"name": a.name, "unit": a.unit if a.numeric else None, "shown": a.labels}
                | {"values": a.values.tolist()}
                for a in self.axes
            ],
            "metrics": {k: self.metric_values(k).ravel().tolist() for k in METRIC_UNITS},
            "units": dict(METRIC_UNITS),
            "bound_by": self.of(lambda r: r.bound_by).ravel().tolist(),
            "reason": self.of(lambda r: r.reason).ravel().tolist(),
            "best": self.best_point(),
        }
        if not self.picked and self.plan:
            return told
        return told | {"plans": [self.plan_of(i) for i in np.ndindex(*self.shape)]}

    def best_point(self) -> dict[str, Any] | None:
        """The best point by its place on the axes, with its plan; None where none fits."""
        index = self.best_index
        if index is None:
            return None
        at = {a.name: a.labels[i] for a, i in zip(self.axes, index, strict=True)}
        return {"at": at, "plan": self.plan_of(index), self.metric: float(self.values[index])}
