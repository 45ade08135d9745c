"""Results as dictionaries for machines and as tables for people."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from strata.evaluate import Result
from strata.mapping.plan import Plan, usual_moe_tp
from strata.params import stated
from strata.pricing.metrics import METRIC_UNITS
from strata.search.sensitivity import sensitivity
from strata.units import show
from strata.workload.model import Model

SHOWN = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "step_time": "step",
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_user": "tokens/s/user",
    "tokens_per_s_per_device": "tokens/s/device",
    "mfu": "MFU",
    "mbu": "MBU",
    "energy_per_token": "energy/token",
    "power": "power",
    "cost_per_mtoken": "cost/Mtoken",
}
PHASE_SKIPS = {
    "decode": ("ttft", "step_time"),
    "prefill": ("tpot", "step_time"),
    "serve": ("step_time",),
    "train": ("ttft", "tpot", "tokens_per_s_per_user"),
}


def plan_text(plan: Plan) -> str:
    """A plan as it is typed: only what differs from one device.

    >>> from strata.mapping.plan import plan
    >>> plan_text(plan(tp=8, ep=8))
    'tp=8,ep=8'
    """
    base = Plan()
    parts = []
    for f in fields(Plan):
        value = getattr(plan, f.name)
        implied = f.name == "moe_tp" and value == usual_moe_tp(plan.tp, plan.cp, plan.dp, plan.ep)
        if f.name != "order" and value != getattr(base, f.name) and not implied:
            parts.append(f"{f.name}={value:g}")
    return ",".join(parts) or "tp=1"


def number(value: Any) -> float | None:
    """A finite float, or None where there is no number."""
    out = float(np.asarray(value))
    return out if np.isfinite(out) else None


def resolved(record: Any) -> dict[str, Any]:
    """The quantities behind a record, with unit and source, by path."""
    return {path: {"value": p.value, "unit": p.unit, "source": p.source} for path, p in stated(record).items()}


def digest(record: Any) -> str:
    """A short hash of the numbers behind a record: equal hashes mean equal numbers."""
    text = json.dumps({path: float(p.value) for path, p in sorted(stated(record).items())})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def as_dict(result: Result) -> dict[str, Any]:
    """A single result with its inputs, their hashes and citations, as plain JSON types."""
    system, model = result.system, result.model
    work = result.workload
    metrics = {k: number(getattr(result.metrics, k)) for k in METRIC_UNITS}
    return {
        "question": {
            "system": system.name,
            "model": model.name,
            "phase": work.phase,
            "batch": work.batch,
            "input": work.sequence if work.phase != "decode" else work.context,
            "output": work.output,
            "plan": plan_text(result.plan),
            "engine": result.engine.name,
            "precision": {k: getattr(model, k) for k in ("weights", "expert_weights", "activations", "kv", "ends")},
        },
        "fits": bool(result.fits),
        "infeasible": [{"what": i.what, "demand": i.demand, "limit": i.limit, "unit": i.unit, "levers": list(i.levers)} for i in result.infeasible],
        "metrics": metrics,
        "units": METRIC_UNITS,
        "bound_by": result.bound_by,
        "resources_s": {k: number(v) for k, v in result.summary.resources.items()},
        "kinds_s": {k: number(v) for k, v in result.summary.kinds.items()},
        "memory_B": {k: number(v) for k, v in result.summary.memory.items()},
        "notes": result.notes,
        "inputs": {
            "chip": {"name": system.chip.name, "hash": digest(system.chip), "numbers": resolved(system.chip)},
            "fabric": {"name": system.fabric.name, "hash": digest(system.fabric), "numbers": resolved(system.fabric)},
            "engine": {"name": result.engine.name, "hash": digest(result.engine), "numbers": resolved(result.engine)},
            "model": {"name": model.name, "sizes": _sizes(model)},
        },
    }


def _sizes(model: Model) -> dict[str, Any]:
    return {f.name: getattr(model, f.name) for f in fields(Model) if f.name not in ("name", "pattern", "published")} | {"layers": model.layers}


def headline(result: Result) -> Table:
    """The numbers of a prediction."""
    table = Table(show_header=False, box=None, padding=(0, 2), title=title(result), title_justify="left", title_style="bold")
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    skipped = PHASE_SKIPS[result.workload.phase]
    for key, label in SHOWN.items():
        value = number(getattr(result.metrics, key))
        if key in skipped or value is None:
            continue
        text = f"{value:.1%}" if key in ("mfu", "mbu") else show(value, METRIC_UNITS[key])
        table.add_row(label, text, _beside(result, key))
    used, limit = float(result.metrics.memory_used), float(result.metrics.memory_limit)
    table.add_row(
        "memory/device",
        show(used, "B"),
        f"of {show(limit, 'B')}: " + ", ".join(f"{k} {show(float(v), 'B')}" for k, v in result.summary.memory.items() if v > 0),
    )
    return table


def _beside(result: Result, key: str) -> str:
    m = result.metrics
    if key in ("tpot", "step_time") or (key == "ttft" and result.workload.phase == "prefill"):
        return f"bounds {show(float(m.lower), 's')} to {show(float(m.upper), 's')}; bound by {result.bound_by}"
    if key == "power":
        return f"{show(float(m.device_power), 'W')} a device, {show(float(result.system.devices), '1')} devices, hosts included"
    return ""


def title(result: Result) -> str:
    work = result.workload
    size = {
        "decode": f"batch {work.batch:g}, context {work.context:g}",
        "prefill": f"batch {work.batch:g}, {work.sequence:g} tokens",
        "serve": f"batch {work.batch:g}, {work.sequence:g} in, {work.output:g} out",
        "train": f"batch {work.batch:g} x {work.sequence:g} tokens",
    }[work.phase]
    return f"{result.model.name} on {result.system.name}, {plan_text(result.plan)}, {work.phase} {size}, engine {result.engine.name}"


def explanation(result: Result) -> Group:
    """Why: where a step's time goes op by op, what memory holds, and what more of each resource would buy."""
    return Group(_ops_table(result), Text(""), _gains_table(result))


def ops_of(result: Result) -> list[dict[str, Any]]:
    """Ops of the last step added up over layers, longest first."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for e in result.timeline.events:
        row = rows.setdefault(
            (e.block, e.name), {"block": e.block, "op": e.name, "kind": e.kind, "count": 0, "time": 0.0, "lower": 0.0, "bound_by": e.bound_by}
        )
        row["count"] += 1
        row["time"] += e.duration
        row["lower"] += e.lower
    return sorted(rows.values(), key=lambda r: -r["time"])


def _ops_table(result: Result) -> Table:
    rows = ops_of(result)
    whole = result.timeline.time
    name = {"serve": "decode step"}.get(result.workload.phase, result.workload.phase + " step")
    table = Table(
        title=f"Where the {name} goes: {show(whole, 's')} for one micro-batch through all layers",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2),
    )
    for column, justify in (
        ("op", "left"),
        ("times", "right"),
        ("each", "right"),
        ("in all", "right"),
        ("share", "right"),
        ("bound by", "left"),
        ("of peak", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    shown = 0.0
    for row in rows[:14]:
        shown += row["time"]
        peak = row["lower"] / row["time"] if row["time"] else 0.0
        table.add_row(
            f"{row['block']}.{row['op']}",
            str(row["count"]),
            show(row["time"] / row["count"], "s"),
            show(row["time"], "s"),
            f"{row['time'] / whole:.1%}",
            row["bound_by"],
            f"{peak:.0%}",
        )
    if len(rows) > 14:
        table.add_row(f"{len(rows) - 14} more", "", "", show(whole - shown, "s"), f"{1 - shown / whole:.1%}", "", "", style="dim")
    return table


def _gains_table(result: Result) -> Table:
    table = Table(title="What 10 % more would buy", title_justify="left", title_style="bold", box=None, padding=(0, 2))
    table.add_column("resource")
    table.add_column("faster by", justify="right")
    for gain in sensitivity(result):
        table.add_row(gain.resource, f"{gain.speedup:+.1%}", style="dim" if gain.speedup < 0.005 else "")
    return table


def print_json(console: Console, data: Any) -> None:
    console.file.write(json.dumps(data, indent=2, default=float) + "\n")
