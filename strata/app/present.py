"""Results as dictionaries for machines and as tables for people."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np

from strata import __version__
from strata.app.words import plain_table, titled
from strata.mapping.plan import Plan, plan_text
from strata.params import stated
from strata.pricing.metrics import METRIC_UNITS
from strata.pricing.price import RESOURCES
from strata.result import Result
from strata.units import show
from strata.workload.model import Model

SHOWN = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "step_time": "time of a step",
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_user": "tokens/s/user",
    "tokens_per_s_per_device": "tokens/s/device",
    "mfu": "MFU",
    "mbu": "MBU",
    "energy_per_token": "energy/token",
    "power": "power",
    "temperature": "temperature",
    "cost_per_mtoken": "cost/Mtoken",
}
METRIC_NAMES = SHOWN | {
    "device_power": "power of a device",
    "clock": "clock of the cores",
    "memory_used": "memory used a device",
    "memory_limit": "memory of a device",
    "lower": "lower bound of a step",
    "upper": "upper bound of a step",
}
PHASE_SKIPS = {
    "decode": ("ttft", "step_time"),
    "prefill": ("tpot", "step_time", "tokens_per_s_per_user"),
    "serve": ("step_time",),
    "train": ("ttft", "tpot", "tokens_per_s_per_user"),
}


def number(value: Any) -> float | None:
    """A finite float, or None where there is no number."""
    out = float(np.asarray(value))
    return out if np.isfinite(out) else None


def resolved(record: Any) -> dict[str, Any]:
    """The quantities behind a record, with unit and source, by path."""
    return {
        path: {"value": p.value, "unit": p.unit, "source": p.source} for path, p in stated(record).items()
    }


def digest(record: Any) -> str:
    """A short hash of the numbers behind a record: equal hashes mean equal numbers."""
    import hashlib

    text = json.dumps({path: float(p.value) for path, p in sorted(stated(record).items())})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def as_dict(result: Result) -> dict[str, Any]:
    """A single result with its inputs, their hashes and citations, as plain JSON types."""
    system, model = result.system, result.model
    work = result.workload
    metrics = {k: number(getattr(result.metrics, k)) for k in METRIC_UNITS}
    decoding = work.phase == "decode"
    return {
        "strata": __version__,
        "question": {
            "system": system.name,
            "devices": number(system.devices),
            "model": model.name,
            "phase": work.phase,
            "batch": work.batch,
            "input": None if decoding else work.sequence,
            "output": work.output if work.phase == "serve" else None,
            "context": work.context if decoding else None,
            "plan": plan_text(result.plan),
            "degrees": {
                f.name: number(getattr(result.plan, f.name)) for f in fields(Plan) if f.name != "order"
            },
            "engine": result.engine.name,
            "precision": {
                k: getattr(model, k)
                for k in ("weights", "expert_weights", "activations", "kv", "embedding_dtype")
            },
        },
        "fits": bool(result.fits),
        "infeasible": [
            {"what": i.what, "demand": i.demand, "limit": i.limit, "unit": i.unit, "levers": list(i.levers)}
            for i in result.infeasible
        ],
        "metrics": metrics,
        "units": METRIC_UNITS,
        "bound_by": result.bound_by,
        "resources_s": {k: number(v) for k, v in result.summary.resources.items()},
        "kinds_s": {k: number(v) for k, v in result.summary.kinds.items()},
        "energy_J": {k: number(v) for k, v in result.summary.energy.items()},
        "memory_B": {k: number(v) for k, v in result.summary.memory.items()},
        "notes": result.notes,
        "inputs": {
            "chip": {"name": system.chip.name, "hash": digest(system.chip), "numbers": resolved(system.chip)},
            "fabric": {
                "name": system.fabric.name,
                "hash": digest(system.fabric),
                "numbers": resolved(system.fabric),
            },
            "engine": {
                "name": result.engine.name,
                "hash": digest(result.engine),
                "numbers": resolved(result.engine),
            },
            "model": {"name": model.name, "sizes": _sizes(model)},
        },
    }


def _sizes(model: Model) -> dict[str, Any]:
    return {
        f.name: getattr(model, f.name)
        for f in fields(Model)
        if f.name not in ("name", "pattern", "published")
    } | {"layers": model.layers}


def listed(result: Result) -> list[tuple[str, str, str]]:
    """The numbers of a prediction that its phase has: what, how much, and what to know about it."""
    rows = []
    for key, label in SHOWN.items():
        value = number(getattr(result.metrics, key))
        if key not in PHASE_SKIPS[result.workload.phase] and value is not None:
            rows.append(
                (
                    label,
                    f"{value:.1%}" if key in ("mfu", "mbu") else show(value, METRIC_UNITS[key]),
                    _beside(result, key),
                )
            )
    used, limit = float(result.metrics.memory_used), float(result.metrics.memory_limit)
    parts = ", ".join(f"{k} {show(float(v), 'B')}" for k, v in result.summary.memory.items() if v > 0)
    return [*rows, ("memory/device", show(used, "B"), f"of {show(limit, 'B')}: {parts}")]


def headline(result: Result) -> Any:
    """The numbers of a prediction as a table."""
    table = plain_table(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(style="dim")
    for row in listed(result):
        table.add_row(*row)
    return titled(title(result), table)


def notes(lines: list[str]) -> list[Any]:
    """What should be said beside a prediction, dimmed."""
    from rich.text import Text

    return [Text(line, style="dim") for line in lines]


def _dies(result: Result) -> str:
    """Temperatures of logic and DRAM beside their limits, in the step that is hottest."""
    heat = result.system.chip.heat
    if heat is None or not result.steps:
        return ""
    step = max(result.steps, key=lambda s: max(float(s.logic), float(s.dram)))
    dies = (("logic", step.logic, heat.logic_limit), ("DRAM", step.dram, heat.dram_limit))
    return ", ".join(f"{name} {show(float(t), 'K')} of {show(float(limit), 'K')}" for name, t, limit in dies)


def _beside(result: Result, key: str) -> str:
    m, phase = result.metrics, result.workload.phase
    if key in ("tpot", "step_time") or (key == "ttft" and phase == "prefill"):
        return f"bounds {show(float(m.lower), 's')} to {show(float(m.upper), 's')}; bound by {step_bound(result)}"
    if key == "ttft":
        return "reading all prompts of the batch at once"
    if key == "tokens_per_s":
        return "output tokens, time to read the prompts included" if phase == "serve" else ""
    if key == "mfu":
        return "useful FLOP of the matrix peak" + (", prompts included" if phase == "serve" else "")
    if key == "mbu":
        return "DRAM traffic of the DRAM peak"
    if key == "temperature":
        return _dies(result)
    if key == "energy_per_token":
        parts = sorted(result.summary.energy.items(), key=lambda item: -float(item[1]))
        whole = sum(float(v) for _, v in parts)
        return ", ".join(f"{name} {float(v) / whole:.0%}" for name, v in parts if float(v) / whole >= 0.005)
    if key == "power":
        return f"{show(float(m.device_power), 'W')} a device x {show(float(result.system.devices))}" + (
            ", and their hosts" if result.system.fabric.host else ""
        )
    if key == "cost_per_mtoken":
        return "buying and powering chips, links and hosts"
    return ""


def asked_text(result: Result, batch: bool = True) -> str:
    """The workload in words."""
    work = result.workload
    size = {
        "decode": f"context {work.context:g}",
        "prefill": f"{work.sequence:g} tokens",
        "serve": f"{work.sequence:g} in, {work.output:g} out",
        "train": f"{work.sequence:g} tokens a sequence",
    }[work.phase]
    return f"{work.phase}" + (f" batch {work.batch:g}, " if batch else " ") + size


def step_bound(result: Result) -> str:
    """The resource the quoted step spends most of its time on: of a served batch, the decode step."""
    price = result.steps[-1].price
    return max(RESOURCES, key=lambda r: float(getattr(price, r)))


def title(result: Result) -> str:
    return f"{result.model.name} on {result.system.name}, plan {plan_text(result.plan)}, {asked_text(result)}, engine {result.engine.name}"


def explanation(result: Result) -> Any:
    """Why: what is busy, where a step's time goes op by op, and what more of each resource would buy."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(busy(result)), Text(""), _ops_table(result), Text(""), _gains_table(result))


def busy(result: Result) -> str:
    """Two sentences: which kinds of op take the time, and which resources bind them."""
    span = sum(float(v) for v in result.summary.kinds.values()) or 1.0
    resources, kinds = (
        ", ".join(
            f"{k} {float(v) / span:.0%}"
            for k, v in sorted(group.items(), key=lambda i: -float(i[1]))
            if float(v) / span >= 0.005
        )
        for group in (result.summary.resources, result.summary.kinds)
    )
    return f"Time by kind of op: {kinds}.\nTime by what binds it: {resources}.{_hidden(result, span)}"


def _hidden(result: Result, span: float) -> str:
    """A sentence on what runs beside computation, where the engine has it: what it saves, and with which
    collectives.
    """
    how = result.engine.overlap
    if how == "none":
        return ""
    saved = float(result.summary.overlap)
    if saved <= 0.0:
        return f"\nOverlap ({how}) saves nothing here: no collective is quicker beside other ops."
    gains: dict[str, float] = {}
    for e in result.timeline.events:
        if e.kind == "collective" and e.saved > 0.0:
            gains[f"{e.block}.{e.name}"] = gains.get(f"{e.block}.{e.name}", 0.0) + e.saved
    most = ", ".join(name for name, _ in sorted(gains.items(), key=lambda i: -i[1]))
    return f"\nOverlap ({how}) saves {show(saved, 's')} of {show(span + saved, 's')}" + (
        f": {most} run beside other ops." if most else "."
    )


def ops_of(result: Result) -> list[dict[str, Any]]:
    """Ops of the last step added up over layers, longest first."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for e in result.timeline.events:
        row = rows.setdefault(
            (e.block, e.name),
            {
                "block": e.block,
                "op": e.name,
                "kind": e.kind,
                "count": 0,
                "time": 0.0,
                "lower": 0.0,
                "bound_by": e.bound_by,
            },
        )
        row["count"] += 1
        row["time"] += e.duration
        row["lower"] += e.lower
    return sorted(rows.values(), key=lambda r: -r["time"])


def step_text(result: Result) -> str:
    """Which step the op table is about."""
    work = result.workload
    name = {
        "serve": f"last decode step (context {work.sequence + work.output:g})",
        "train": "training step",
    }.get(work.phase, f"{work.phase} step")
    return f"Where the {name} goes: {show(result.timeline.time, 's')} for one micro-batch through all layers"


def _ops_table(result: Result) -> Any:
    rows = ops_of(result)
    whole = result.timeline.time
    table = plain_table()
    for column, justify in (
        ("op", "left"),
        ("times", "right"),
        ("each", "right"),
        ("in all", "right"),
        ("share", "right"),
        ("bound by", "left"),
        ("of peak", "right"),
    ):
        table.add_column(column, justify=justify)
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
        table.add_row(
            f"{len(rows) - 14} more",
            "",
            "",
            show(whole - shown, "s"),
            f"{1 - shown / whole:.1%}",
            "",
            "",
            style="dim",
        )
    return titled(step_text(result), table, "of peak: the time at datasheet peaks over the predicted time")


def _gains_table(result: Result) -> Any:
    from strata.search.sensitivity import sensitivity

    table = plain_table()
    table.add_column("resource")
    table.add_column("faster by", justify="right")
    for gain in sensitivity(result):
        table.add_row(gain.resource, f"{gain.speedup:+.1%}", style="dim" if gain.speedup < 0.005 else "")
    return titled("What 10 % more would buy, one at a time", table)
