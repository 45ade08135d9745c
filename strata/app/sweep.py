"""Sweeps: up to three things varied at once, each on its own axis of one box."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.table import Table

from strata.app.ask import make_workload, question
from strata.app.present import plan_text
from strata.errors import BadValue, UnknownName, require
from strata.evaluate import Result, evaluate
from strata.hardware.chip import chip as make_chip
from strata.mapping.plan import plan as make_plan
from strata.params import leaf_paths, override
from strata.pricing.metrics import METRIC_UNITS
from strata.search.plans import best_plans, closest
from strata.units import parse, show

WORK = ("batch", "input", "output")


@dataclass(frozen=True)
class Axis:
    """One thing that varies: its name, its values in SI and as they are shown."""

    name: str
    values: np.ndarray
    labels: list[str]


@dataclass(frozen=True)
class Sweep:
    """A box of results with its axes."""

    axes: list[Axis]
    result: Result
    metric: str
    plan: str

    @property
    def values(self) -> np.ndarray:
        return np.broadcast_to(np.asarray(getattr(self.result.metrics, self.metric), float), self.result.shape)

    def as_dict(self) -> dict[str, Any]:
        m = self.result.metrics
        shape = self.result.shape
        finite = {k: np.broadcast_to(np.asarray(getattr(m, k), float), shape) for k in METRIC_UNITS}
        numbers = {k: [x if np.isfinite(x) else None for x in v.ravel().tolist()] for k, v in finite.items()}
        axes = [{"name": a.name, "values": a.values.tolist()} for a in self.axes]
        # Lists are flat, the last axis fastest.
        return {
            "axes": axes,
            "plan": self.plan,
            "metrics": numbers,
            "units": METRIC_UNITS,
            "reason": np.broadcast_to(self.result.reason, shape).ravel().tolist(),
        }

    def table(self) -> Table:
        """The metric over the last two axes; further axes above."""
        last = self.axes[-1]
        table = Table(title=f"{self.metric} ({self.plan})", title_justify="left", title_style="bold", box=None, padding=(0, 2))
        for axis in self.axes[:-1]:
            table.add_column(axis.name, style="dim")
        for label in last.labels:
            table.add_column(f"{last.name} {label}" if label == last.labels[0] else label, justify="right")
        values = self.values
        fits = np.broadcast_to(self.result.fits, values.shape)
        for index in np.ndindex(*values.shape[:-1]):
            cells = [show(v, METRIC_UNITS[self.metric]) if ok else "does not fit" for v, ok in zip(values[index], fits[index], strict=True)]
            table.add_row(*(a.labels[i] for a, i in zip(self.axes[:-1], index, strict=True)), *cells)
        return table


def parse_axis(text: str, units: dict[str, str]) -> Axis:
    """`batch=1,8,64`, `chip.memory.bandwidth='2:8:7 TB/s'` (from, to, how many) or a list with one unit at its end."""
    name, equals, values = text.partition("=")
    require(bool(equals and values), "an axis is written like batch=1,8,64 or chip.memory.bandwidth='2:8:7 TB/s'", vary=text)
    if name not in units:
        raise UnknownName("quantity to vary", name, units, "strata schema chip, strata schema fabric")
    match = re.match(r"\s*([-+0-9.eE:,\s]+?)\s*([A-Za-zµ%$/].*)?$", values)
    require(match is not None, "an axis lists numbers, like 1,8,64 or 2:8:7 TB/s", vary=text)
    assert match is not None
    numbers, unit = match.group(1), (match.group(2) or "").strip()
    try:
        if ":" in numbers:
            start, stop, count = (float(x) for x in numbers.split(":"))
            listed = np.linspace(start, stop, int(count)).tolist()
        else:
            listed = [float(x) for x in numbers.split(",") if x.strip()]
    except ValueError:
        raise BadValue(f"an axis lists numbers, like 1,8,64 or 2:8:7 TB/s, but got '{text}'") from None
    si = units[name]
    made = np.array([parse(f"{x!r} {unit}" if unit else (x if si == "1" else f"{x!r}"), si, name) for x in listed])
    return Axis(name, made, [show(v, si) for v in made])


def run_sweep(
    model: str, system: str, vary: list[str], *, batch: float, input: float, output: float, phase: str, plan: str, engine: str,
    weights: str, kv: str, changes: list[str], metric: str = "tokens_per_s",
) -> Sweep:  # fmt: skip
    """Evaluate a box: each varied thing on its own axis."""
    if metric not in METRIC_UNITS:
        raise UnknownName("metric", metric, METRIC_UNITS, ", ".join(METRIC_UNITS))
    require(1 <= len(vary) <= 3, "vary one to three things at once", vary=len(vary))
    where, what, by = question(model, system, engine, weights, kv, changes)
    units = {k: "1" for k in WORK} | {f"plan.{k}": "1" for k in ("tp", "cp", "dp", "pp", "ep", "microbatches")}
    units |= {f"chip.{p}": m["unit"] for p, m in leaf_paths(where.chip).items()}
    units |= {f"fabric.{p}": m["unit"] for p, m in leaf_paths(where.fabric).items()}
    axes = [parse_axis(text, units) for text in vary]
    shaped = {a.name: a.values.reshape([-1 if i == j else 1 for j in range(len(axes))]) for i, a in enumerate(axes)}
    chip_changes = {k[5:]: v for k, v in shaped.items() if k.startswith("chip.")}
    if chip_changes:
        base = {k[5:]: v for k, _, v in (c.partition("=") for c in changes) if k.startswith("chip.")}
        where = replace(where, chip=make_chip(where.chip.name, **base, **chip_changes))
    fabric_changes = {k[7:]: v for k, v in shaped.items() if k.startswith("fabric.")}
    if fabric_changes:
        where = replace(where, fabric=override(where.fabric, fabric_changes, "fabric")[0])
    size: dict[str, Any] = {"batch": batch, "input": input, "output": output} | {k: v for k, v in shaped.items() if k in WORK}
    degrees = {k[5:]: v for k, v in shaped.items() if k.startswith("plan.")}
    if not plan and not degrees:
        plan = _default_plan(model, system, size, phase, engine, weights, kv, changes)
    how = make_plan(plan, **degrees)
    work = make_workload(phase, size["batch"], size["input"], size["output"])
    shape = tuple(len(a.values) for a in axes)
    result = evaluate(where, what, replace(work, skew=np.zeros(shape)), how, by)
    return Sweep(axes, result, metric, plan or plan_text(make_plan()))


def _default_plan(model: str, system: str, size: dict[str, Any], phase: str, engine: str, weights: str, kv: str, changes: list[str]) -> str:
    """The best plan at the middle of the sweep's workloads."""
    where, what, by = question(model, system, engine, weights, kv, changes)
    middle = {k: float(np.median(v)) for k, v in size.items()}
    work = make_workload(phase, middle["batch"], middle["input"], middle["output"])
    found = best_plans(where, what, work, by, top=1)
    return plan_text(found[0].result.plan if found else closest(where, what, work, by).plan)
