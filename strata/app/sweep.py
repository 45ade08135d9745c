"""Sweeps: up to three things varied at once, each on its own axis of one box."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.app.ask import build_system, changes_of, dimension_path, make_workload, question
from strata.app.present import METRIC_NAMES, plan_text
from strata.app.words import plain_table, titled
from strata.errors import BadValue, UnknownName, require
from strata.evaluate import Result, evaluate, reasons
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.engine import engine as make_engine
from strata.mapping.plan import plan as make_plan
from strata.params import leaf_paths
from strata.pricing.metrics import METRIC_UNITS
from strata.search.plans import best_plans, closest
from strata.units import parse, show

WORK = ("batch", "input", "output")
DEGREES = ("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero", "microbatches", "virtual")
EXAMPLE = "batch=1,8,64 or chip.memory.bandwidth='2:8:7 TB/s' (from:to:count)"


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

    @property
    def fits(self) -> np.ndarray:
        return np.broadcast_to(self.result.fits, self.result.shape) & np.isfinite(self.values)

    @property
    def question(self) -> str:
        """What is asked, in words, without what varies."""
        r = self.result
        varied = {a.name for a in self.axes}
        work = r.workload
        size = {"batch": work.batch, "input": work.sequence, "output": work.output}
        size = {"batch": work.batch, "context": work.context} if work.phase == "decode" else size
        if work.phase in ("prefill", "train"):
            size.pop("output")
        moved = varied | ({"context"} if varied & {"input", "output"} else set())
        sizes = "".join(f", {k} {float(np.asarray(v)):g}" for k, v in size.items() if k not in moved)
        return f"{r.model.name} on {r.system.name}, plan {self.plan}, {work.phase}{sizes}, engine {r.engine.name}"

    def as_dict(self) -> dict[str, Any]:
        """Every metric over the box; lists are flat, the last axis fastest."""
        r, shape = self.result, self.result.shape
        return {
            "question": {"model": r.model.name, "system": r.system.name, "phase": r.workload.phase, "plan": self.plan, "engine": r.engine.name},
            "axes": [{"name": a.name, "values": a.values.tolist(), "shown": a.labels} for a in self.axes],
            "metrics": {k: np.broadcast_to(np.asarray(getattr(r.metrics, k), float), shape).ravel().tolist() for k in METRIC_UNITS},
            "units": METRIC_UNITS,
            "bound_by": np.broadcast_to(r.bound_by, shape).ravel().tolist(),
            "reason": np.broadcast_to(r.reason, shape).ravel().tolist(),
        }

    def table(self) -> Any:
        """The metric over the last two axes, further axes above; one axis alone with what binds and fills it."""
        last = self.axes[-1]
        heading = f"{METRIC_NAMES[self.metric]} of {self.question}"
        if len(self.axes) > 1:
            heading += f"\nacross: {last.name}"
        table = plain_table()
        if len(self.axes) == 1:
            return titled(heading, self._one_axis(table))
        for axis in self.axes[:-1]:
            table.add_column(axis.name, style="dim", justify="right")
        for label in last.labels:
            table.add_column(label, justify="right")
        for index in np.ndindex(*self.values.shape[:-1]):
            cells = [self._cell((*index, i)) for i in range(len(last.values))]
            table.add_row(*(a.labels[i] for a, i in zip(self.axes[:-1], index, strict=True)), *cells)
        return titled(heading, table)

    def _one_axis(self, table: Any) -> Any:
        for column in (self.axes[0].name, METRIC_NAMES[self.metric], "memory/device"):
            table.add_column(column, justify="right")
        table.add_column("bound by")
        used = np.broadcast_to(np.asarray(self.result.metrics.memory_used, float), self.result.shape)
        binds = np.broadcast_to(self.result.bound_by, self.result.shape)
        for i, label in enumerate(self.axes[0].labels):
            table.add_row(label, self._cell((i,)), show(float(used[i]), "B"), str(binds[i]) if self.fits[i] else "")
        return table

    def _cell(self, index: tuple[int, ...]) -> str:
        if not self.fits[index]:
            return "-"
        value = float(self.values[index])
        return f"{value:.1%}" if self.metric in ("mfu", "mbu") else show(value, METRIC_UNITS[self.metric])

    def remarks(self) -> list[str]:
        """Why points are empty, where some are."""
        broken = np.broadcast_to(self.result.reason, self.result.shape)[~self.fits]
        if not broken.size:
            return []
        rules = list(dict.fromkeys(rule for mask in np.unique(broken) for rule in reasons(int(mask))))
        return [f"- : {len(broken)} of {self.values.size} points are out: {'; '.join(rules) or 'this phase has no such metric'}"]


def parse_axis(text: str, units: dict[str, str], full: dict[str, str]) -> Axis:
    """`batch=1,8,64`, `chip.memory.bandwidth='2:8:7 TB/s'` (from, to, how many) or a list with one unit at its end."""
    name, equals, values = text.partition("=")
    require(bool(equals and values.strip()), f"an axis is written like {EXAMPLE}", vary=text)
    name = full.get(name.strip(), name.strip())
    if name not in units:
        raise UnknownName("quantity to vary", name, units, f"{', '.join(WORK)}, plan.tp ..., strata schema chip, strata schema fabric")
    match = re.match(r"\s*([-+0-9.eE:,\s]+?)\s*([A-Za-zµ%$/].*)?$", values)
    try:
        assert match is not None
        numbers = match.group(1)
        if ":" in numbers:
            start, stop, count = (float(x) for x in numbers.split(":"))
            assert count >= 1 and count == count // 1
            listed = np.linspace(start, stop, int(count)).tolist()
        else:
            listed = [float(x) for x in numbers.split(",")]
    except (ValueError, AssertionError):
        raise BadValue(f"an axis lists numbers, like {EXAMPLE}, but got '{text}'") from None
    unit, si = (match.group(2) or "").strip(), units[name]
    if not unit and si != "1":
        raise BadValue(f"{name} is measured in {si}, but got '{values}' without a unit")
    made = np.array([parse(f"{x!r} {unit}" if unit else x, si, name) for x in listed])
    if name in WORK and not np.all((made >= 1) & (made == np.floor(made))):
        raise BadValue(f"{name} must be positive whole numbers, but got '{text}'")
    return Axis(name, made, [show(v, si) for v in made])


def _known(where: System, by: Engine) -> tuple[dict[str, str], dict[str, str]]:
    """Units of everything that can vary, and the whole name of each short one."""
    units = {k: "1" for k in WORK} | {f"plan.{k}": "1" for k in DEGREES}
    for owner, record in (("chip", where.chip), ("fabric", where.fabric), ("engine", by)):
        units |= {f"{owner}.{path}": meta["unit"] for path, meta in leaf_paths(record).items()}
    full: dict[str, str] = {}
    for name in units:
        owner, _, path = name.partition(".")
        if owner == "fabric":
            _, i, *rest = [*path.split("."), "", ""]
            if i.isdigit():
                short = [f"fabric.{where.fabric.dimension[int(i)].name}.{rest[0]}", f"fabric.{i}.{rest[0]}"]
                short += [f"fabric.{rest[0]}"] if i == "0" else []
                full |= {s: f"fabric.{dimension_path(where, s.partition('.')[2])}" for s in short}
        elif owner == "chip":
            last = path.rsplit(".", 1)[-1]
            if sum(n.startswith("chip.") and n.endswith(f".{last}") for n in units) == 1:
                full[f"chip.{last}"] = name
    return units, full


def run_sweep(
    model: str, system: str, vary: list[str], *, batch: float, input: float, output: float, phase: str, plan: str, engine: str,
    weights: str, kv: str, changes: list[str], metric: str = "tokens_per_s",
) -> Sweep:  # fmt: skip
    """Evaluate a box: each varied thing on its own axis."""
    if metric not in METRIC_UNITS:
        raise UnknownName("metric", metric, METRIC_UNITS, ", ".join(METRIC_UNITS))
    require(1 <= len(vary) <= 3, "vary one to three things at once", vary=len(vary))
    where, what, by = question(model, system, engine, weights, kv, changes)
    axes = [parse_axis(text, *_known(where, by)) for text in vary]
    names = [a.name for a in axes]
    twice = next((n for n in names if names.count(n) > 1), "")
    require(not twice, "each axis varies something else", vary=twice)
    shaped = {a.name: a.values.reshape([-1 if i == j else 1 for j in range(len(axes))]) for i, a in enumerate(axes)}

    def of(owner: str) -> dict[str, Any]:
        return {k.partition(".")[2]: v for k, v in shaped.items() if k.startswith(f"{owner}.")}

    given = changes_of(changes)
    box = build_system(system, given["chip"] | of("chip"), given["fabric"] | of("fabric"))
    size: dict[str, Any] = {"batch": batch, "input": input, "output": output} | {k: v for k, v in shaped.items() if k in WORK}
    degrees = of("plan")
    if not plan and not degrees:
        middle = make_workload(phase, *(float(np.median(size[k])) for k in WORK))
        found = best_plans(where, what, middle, by, top=1)
        plan = plan_text(found[0].result.plan if found else closest(where, what, middle, by).plan)
    typed = dict(item.split("=") for item in plan.split(",") if item.count("=") == 1)
    how = make_plan(plan, **degrees)
    said = ",".join([*([plan] if plan else []), *(f"{k}=..." for k in degrees)])
    if degrees and "dp" not in degrees and "dp" not in typed:  # what the degrees leave of the system is data parallel
        rest = where.devices / (how.tp * how.cp * how.pp)
        filled = np.where(rest == np.floor(rest), rest, 1.0)
        how, said = make_plan(plan, **degrees, dp=np.maximum(filled, 1.0)), f"{said},dp=the rest"
    work = make_workload(phase, size["batch"], size["input"], size["output"])
    work = replace(work, skew=np.zeros(tuple(len(a.values) for a in axes)))
    result = evaluate(box, what, work, how, make_engine(engine, **(given["engine"] | of("engine"))))
    return Sweep(axes, result, metric, said)
