"""What a search found, and where it stands: the best, the frontier, what is proven, choices at an
edge, and why points are out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.errors import StrataError, require
from strata.base.records import Tabular, row_columns
from strata.base.rich_html import display_html, rich_cards, scatter_svg, table_html
from strata.base.units import show
from strata.hardware.making import cost_rate
from strata.result import Result
from strata.search.goal import GOAL_METRICS, Goal, metric_column, reported_metrics
from strata.search.points import Evaluated, case_of_points, concatenate_points, evaluate_point
from strata.search.sensitivity import Gain, axis_gains, sensitivity
from strata.search.space import Space
from strata.search.store import Store

Gains = tuple[list[Gain], list[Gain]]  # of axes, and of resources
FELT = 1e-3  # of a metric: a smaller gain is no reason to widen an axis


def on_the_edge(space: Space, best: Evaluated, gains: list[Gain]) -> list[str]:
    """Numeric axes whose end the best point has, and along which the metric would get better past it."""
    found = []
    gain_of = {g.resource.split(", now ")[0]: g for g in gains}
    for axis, digit in zip(space.axes, best.digits[0], strict=True):
        gain = gain_of.get(axis.name)
        if not axis.ordered or len(axis) < 2 or gain is None or not np.isfinite(gain.speedup):
            continue
        values = np.array(axis.values, float)
        here = values[int(digit)]
        if here == values.max() and gain.speedup > FELT:
            found.append(f"{axis.name} ends at {axis.labels[int(digit)]}, and more would be better")
        elif here == values.min() and gain.speedup < -FELT:
            found.append(f"{axis.name} begins at {axis.labels[int(digit)]}, and less would be better")
    return found


def costs_nothing(space: Space, best: Evaluated) -> list[str]:
    """Numeric axes over chips and fabrics whose ends cost the same to buy, all else as in the best point."""
    found = []
    for i, axis in enumerate(space.axes):
        bought = any(f.startswith(("chip.", "fabric.")) for f in axis.fields)
        if not (axis.ordered and bought and len(axis) > 1):
            continue
        values = np.array(axis.values, float)
        ends = np.repeat(best.digits[:1], 2, axis=0)
        ends[:, i] = values.argmin(), values.argmax()
        try:
            case = case_of_points(space, ends)
            rates = np.broadcast_to(np.asarray(cost_rate(case.system, case.economics, 0.0), float), 2)
        except StrataError:  # an end that cannot be built with the rest of the best point has no price
            continue
        if rates[0] == rates[1]:
            found.append(axis.name)
    return found


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a search stands; `best` and `bound` are of the first metric, nan where there is none."""

    rounds: int
    rows: int
    best: float
    bound: float
    gap: float
    open: int
    seconds: float
    rate: float  # rows and bounds a second of this run
    # seconds until the budget is spent or, by the trend of it, the gap is closed; nan where nothing says
    left: float
    bounded: int = 0  # bounds of regions priced so far


@dataclass(frozen=True, kw_only=True)
class SearchOutcome(Tabular):
    """What a search found; `frontier` has the points no other beats, best of the first metric first."""

    space: Space
    goal: Goal
    frontier: Evaluated
    rows: int
    bound: float
    gap: float
    counts: dict[str, int]  # points that are out, by all that they break
    rounds: int
    seconds: float
    ended: str  # finished, within the gap, or stopped before that
    out: Path | None = None
    kept: tuple[Evaluated, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()  # of how the study was taken up
    # what was worked out for readers, once: results by place, gains by how much more
    _results: dict[int, Result] = field(default_factory=dict, init=False, repr=False, compare=False)
    _gains: dict[float, Gains] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def found(self) -> bool:
        return len(self.frontier) > 0

    @property
    def reasons(self) -> dict[str, tuple[int, int]]:
        """For each rule and limit how many points break it, and how many nothing else; most first."""
        rules: dict[str, tuple[int, int]] = {}
        for words, count in self.counts.items():
            broken = words.split("; ")
            for rule in broken:
                points, alone = rules.get(rule, (0, 0))
                rules[rule] = (points + count, alone + (count if len(broken) == 1 else 0))
        return dict(sorted(rules.items(), key=lambda item: -item[1][0]))

    @property
    def best(self) -> dict[str, Any]:
        """The best point: labels of its choices, what it delivers, its number; {} where none is legal."""
        return self.point(0) if self.found else {}

    def point(self, place: int) -> dict[str, Any]:
        """One point of the frontier."""
        digits = self.frontier.digits[place]
        chosen = {a.name: a.labels[int(d)] for a, d in zip(self.space.axes, digits, strict=True)}
        told = reported_metrics(self.space.scenario.base_model)
        columns = {name: values for name, values in self.frontier.columns.items() if name in told}
        metrics = {name: float(values[place]) for name, values in columns.items()}
        named = (*self.goal.metrics, *self.goal.limits)
        metrics |= {m: float(metric_column(self.frontier.columns, m)[place]) for m in named}
        return {"index": int(self.space.index(digits)[0]), "design": chosen, "metrics": metrics}

    def result(self, place: int = 0) -> Result:
        """The full answer of a point of the frontier: bounds, timeline, notes; evaluated once."""
        require(self.found, "no point was found that fits and keeps the limits; outcome.counts says why")
        if place not in self._results:
            self._results[place] = evaluate_point(self.space, self.frontier.digits[place])
        return self._results[place]

    def gains(self, more: float = 0.1) -> Gains:
        """What so much more of each numeric axis buys, and of each resource in speed, at the best point."""
        if more not in self._gains:
            first = replace(self.goal, metrics=self.goal.metrics[:1])
            axes = axis_gains(self.space, first, self.frontier.take(slice(0, 1)), more)
            self._gains[more] = axes, sensitivity(self.result(), more)
        return self._gains[more]

    @cached_property
    def remarks(self) -> list[str]:
        """What a reader of the best point should know: axes it ends, and axes that are free."""
        best = self.frontier.take(slice(0, 1))
        told = [f"widen the axis: {text}" for text in on_the_edge(self.space, best, self.gains()[0])]
        free = ", ".join(costs_nothing(self.space, best))
        return told + ([f"more of it costs nothing here, no price follows: {free}"] if free else [])

    def evaluated(self) -> Evaluated:
        """Every row of the study, from disk where it has a folder."""
        parts = list(self.kept)
        if self.out is not None:
            store = Store(self.out)
            parts = [store.read(number, self.space) for number in store.rounds()]
        return concatenate_points(parts) if parts else self.frontier

    def __repr__(self) -> str:
        front = f"{len(self.frontier):,} on the frontier" if self.found else "no point is in"
        return f"SearchOutcome({self.space.name}: {self.rows:,} of {self.space.size:,} points, {front})"

    def columns(self) -> dict[str, Any]:
        """The frontier: each point's number in the space, what its axes chose, and what it delivers."""
        points = (self.point(i) for i in range(len(self.frontier)))
        return row_columns({"index": p["index"], **p["design"], **p["metrics"]} for p in points)

    def _repr_html_(self) -> str:
        """For notebooks: the frontier drawn by its first two metrics, with its points below."""
        told = [(m, GOAL_METRICS[m]) for m in self.goal.metrics]
        best = self.best.get("metrics", {})
        cards = [(m.label, show(best[name], m.unit), "the best") for name, m in told[:1] if best]
        cards += [
            ("points looked at", f"{self.rows:,}", f"of {self.space.size:,}"),
            ("gap to the bound", f"{self.gap:.2%}" if self.gap == self.gap else "not known", self.ended),
            ("on the frontier", f"{len(self.frontier):,}", ""),
        ]
        points = [self.point(i) for i in range(len(self.frontier))]
        rows = [
            [*map(str, p["design"].values()), *(show(p["metrics"][name], m.unit) for name, m in told)]
            for p in points
        ]
        drawn = ""
        if len(told) > 1:
            named = [", ".join(f"{k} {v}" for k, v in p["design"].items()) for p in points]
            both = [[p["metrics"][name] for p in points] for name, _ in told[:2]]
            sides = [m.label if m.unit == "1" else f"{m.label} [{m.unit}]" for _, m in told[:2]]
            drawn = scatter_svg(list(zip(*both, named, strict=True)), *sides)
        heads = [*(a.name for a in self.space.axes), *(m.label for _, m in told)]
        return display_html(f"Search of {self.space.name}", rich_cards(cards), drawn, table_html(heads, rows))

    def as_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {
            "space": self.space.name,
            "size": self.space.size,
            "goal": self.goal.spec(),
            "best": self.best,
            "frontier": [self.point(i) for i in range(len(self.frontier))],
            "rows": self.rows,
            "bound": self.bound,
            "gap": self.gap,
            "out": sum(self.counts.values()),
            "out_by_reason": {
                rule: {"points": points, "alone": alone} for rule, (points, alone) in self.reasons.items()
            },
            "rounds": self.rounds,
            "seconds": self.seconds,
            "ended": self.ended,
            "notes": list(self.notes),
            "folder": None if self.out is None else str(self.out),
            "units": {m: GOAL_METRICS[m].unit for m in self.goal.metrics}
            | {"bound": GOAL_METRICS[self.goal.metrics[0]].unit},
        }
