"""A prediction as a dictionary for machines and as a table for people."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np

from strata import __version__
from strata.app.render.metrics import metric_label, metric_text, metrics_of, shown_metrics
from strata.app.terminal import plain_table, titled
from strata.mapping.layout import Layout
from strata.mapping.plan import Plan, division_text
from strata.params import stated
from strata.pricing.metrics import METRICS
from strata.result import Result
from strata.units import show
from strata.workload.model import Model

PRECISIONS = ("weights", "expert_weights", "activations", "kv", "embedding_dtype", "precision")


def finite(value: Any) -> float | None:
    """A finite float, or None where there is no number."""
    out = float(np.asarray(value))
    return out if np.isfinite(out) else None


def sourced_numbers(record: Any) -> dict[str, Any]:
    """The quantities behind a record, with unit and source, by path."""
    return {
        path: {"value": p.value, "unit": p.unit, "source": p.source} for path, p in stated(record).items()
    }


def inputs_digest(record: Any) -> str:
    """A short hash of the numbers behind a record: equal hashes mean equal numbers."""
    import hashlib

    text = json.dumps({path: float(p.value) for path, p in sorted(stated(record).items())})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def prediction_dict(result: Result) -> dict[str, Any]:
    """A single result with its inputs, their hashes and citations, as plain JSON types."""
    system, model = result.system, result.model
    work = result.workload
    metrics = {k: finite(getattr(result.metrics, k)) for k in metrics_of(result.metrics)}
    decoding = work.phase == "decode"
    return {
        "strata": __version__,
        "question": {
            "system": system.name,
            "devices": finite(system.devices),
            "model": model.name,
            "phase": work.phase,
            "batch": work.batch,
            "input": None if decoding else work.sequence,
            "output": work.output if work.phase == "serve" else None,
            "context": work.context if decoding else None,
            "plan": division_text(result.plan),
            "degrees": _degrees(result.plan),
            "engine": result.engine.name,
            "precision": {k: getattr(model, k) for k in PRECISIONS if hasattr(model, k)},
        },
        "fits": bool(result.fits),
        "infeasible": [
            {"what": i.what, "demand": i.demand, "limit": i.limit, "unit": i.unit, "levers": list(i.levers)}
            for i in result.infeasible
        ],
        "metrics": metrics,
        "units": {k: METRICS[k].unit for k in metrics},
        "bound_by": result.bound_by,
        "resources_s": {k: finite(v) for k, v in result.summary.resources.items()},
        "kinds_s": {k: finite(v) for k, v in result.summary.time_by_kind.items()},
        "energy_J": {k: finite(v) for k, v in result.summary.energy.items()},
        "memory_B": {k: finite(v) for k, v in result.summary.memory.items()},
        "notes": result.notes,
        "inputs": {
            "chip": {
                "name": system.chip.name,
                "hash": inputs_digest(system.chip),
                "numbers": sourced_numbers(system.chip),
            },
            "fabric": {
                "name": system.fabric.name,
                "hash": inputs_digest(system.fabric),
                "numbers": sourced_numbers(system.fabric),
            },
            "engine": {
                "name": result.engine.name,
                "hash": inputs_digest(result.engine),
                "numbers": sourced_numbers(result.engine),
            },
            "model": {"name": model.name, "sizes": _sizes(model)},
        },
    }


def _sizes(program: Any) -> dict[str, Any]:
    """Sizes of a program; of a language model also how many layers its pattern makes."""
    hidden = ("name", "pattern", "published")
    sizes = {f.name: getattr(program, f.name) for f in fields(program) if f.name not in hidden}
    return sizes | ({"layers": program.layers} if hasattr(program, "layers") else {})


def _degrees(plan: Plan | Layout) -> dict[str, Any]:
    if isinstance(plan, Layout):
        return {name: finite(ranks) for name, ranks in plan.mesh.items()}
    return {f.name: finite(getattr(plan, f.name)) for f in fields(Plan) if f.name != "order"}


def headline_rows(result: Result) -> list[tuple[str, str, str]]:
    """The numbers of a prediction that its phase has: what, how much, and what to know about it."""
    values = {
        key: finite(getattr(result.metrics, key))
        for key in shown_metrics(result.workload.phase, result.metrics)
    }
    rows = [
        (metric_label(key), metric_text(value, key), _beside(result, key))
        for key, value in values.items()
        if value is not None
    ]
    used, limit = float(result.metrics.memory_used), float(result.metrics.memory_limit)
    parts = ", ".join(f"{k} {show(float(v), 'B')}" for k, v in result.summary.memory.items() if v > 0)
    return [*rows, ("memory/device", show(used, "B"), f"of {show(limit, 'B')}: {parts}")]


def headline_table(result: Result) -> Any:
    """The numbers of a prediction as a table."""
    table = plain_table(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(style="dim")
    for row in headline_rows(result):
        table.add_row(*row)
    return titled(prediction_title(result), table)


def dimmed(lines: list[str]) -> list[Any]:
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
        bounds = f"bounds {show(float(m.lower), 's')} to {show(float(m.upper), 's')}"
        return f"{bounds}; bound by {step_bound(result)}"
    if key == "ttft":
        return "reading all prompts of the batch at once; what clients see under load: strata serving"
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
            ", with hosts, cooling and supply" if result.system.fabric.host else ""
        )
    if key == "cost_per_mtoken":
        return _paid_for(result)
    if key == "cost_per_device_hour":
        return "rented" if result.economics.rent is not None else "implied by prices, lifetime and power"
    return ""


def _paid_for(result: Result) -> str:
    """What a cost pays for."""
    if result.economics.rent is not None:
        return "devices as rented"
    return "buying and powering chips, links and hosts"


def workload_text(result: Result, batch: bool = True) -> str:
    """The workload in words."""
    work = result.workload
    if not isinstance(result.program, Model):
        return f"{work.phase} batch {work.batch:g}" if batch else work.phase
    size = {
        "decode": f"context {work.context:g}",
        "prefill": f"{work.sequence:g} tokens",
        "serve": f"{work.sequence:g} in, {work.output:g} out",
        "train": f"{work.sequence:g} tokens a sequence",
    }[work.phase]
    size += f", {work.adapters.title}" if work.adapters is not None else ""
    size += f", {', '.join(work.frozen)} frozen" if work.frozen else ""
    return f"{work.phase}" + (f" batch {work.batch:g}, " if batch else " ") + size


def step_bound(result: Result) -> str:
    """What the quoted step spends most of its time on: of a served batch, the decode step."""
    times = result.steps[-1].time_by_bound
    return max(times, key=lambda name: float(times[name]))


def prediction_title(result: Result) -> str:
    """What was asked, in a line."""
    asked = f"{result.model.name} on {result.system.name}, plan {division_text(result.plan)}"
    return f"{asked}, {workload_text(result)}, engine {result.engine.name}"
