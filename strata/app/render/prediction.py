"""A prediction as a dictionary for machines and as a table for people; metrics as people read them."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np

from strata import __version__
from strata.app.render.tables import card, picked
from strata.app.terminal import words
from strata.base.units import show
from strata.mapping.layout import Layout
from strata.mapping.plan import Plan, division_text
from strata.params import stated
from strata.pricing.metrics import METRICS, TokenMetrics, declared
from strata.result import Result
from strata.search.goal import GOAL_METRICS
from strata.workload.model import Model

PRECISIONS = ("weights", "expert_weights", "activations", "kv", "embedding_dtype", "precision")
# The numbers of a prediction worth a line, in the order of reading.
HEADLINE = (
    "ttft tpot step_time tokens_per_s tokens_per_s_per_user tokens_per_s_per_device items_per_s mfu mbu "
    "energy_per_token energy_per_item power temperature cost_per_mtoken cost_per_mitem cost_per_device_hour"
)
# What any program has and a language model says in tokens.
SAID_IN_TOKENS = {
    "items_per_s": "tokens_per_s",
    "energy_per_item": "energy_per_token",
    "cost_per_mitem": "cost_per_mtoken",
}
SHARES = ("mfu", "mbu")  # written in per cent


def finite(value: Any) -> float | None:
    """A finite float, or None where there is no number."""
    out = float(np.asarray(value))
    return out if np.isfinite(out) else None


def sourced_numbers(record: Any) -> dict[str, Any]:
    """The quantities behind a record, with unit and source, by path."""
    return {path: picked(p, "value unit source") for path, p in stated(record).items()}


def inputs_digest(record: Any) -> str:
    """A short hash of the numbers behind a record: equal hashes mean equal numbers."""
    import hashlib

    text = json.dumps({path: float(p.value) for path, p in sorted(stated(record).items())})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def prediction_dict(result: Result) -> dict[str, Any]:
    """A single result with its inputs, their hashes and citations, as plain JSON types."""
    system, model, work, summary = result.system, result.model, result.workload, result.summary
    metrics = {k: finite(getattr(result.metrics, k)) for k in metrics_of(result.metrics)}
    decoding = work.phase == "decode"
    question = {"system": system.name, "devices": finite(system.devices), "model": model.name}
    question |= picked(work, "phase batch") | {"input": None if decoding else work.sequence}
    question |= {"output": work.output if work.phase == "serve" else None}
    question |= {"context": work.context if decoding else None, "plan": division_text(result.plan)}
    question |= {"degrees": _degrees(result.plan), "engine": result.engine.name}
    inputs: dict[str, Any] = {}
    for kind, record in (("chip", system.chip), ("fabric", system.fabric), ("engine", result.engine)):
        stated_by = {"hash": inputs_digest(record), "numbers": sourced_numbers(record)}
        inputs[kind] = {"name": record.name, **stated_by}
    return {
        "strata": __version__,
        "question": question | {"precision": {k: getattr(model, k) for k in PRECISIONS if hasattr(model, k)}},
        "fits": bool(result.fits),
        "infeasible": [picked(i, "what demand limit unit levers") for i in result.infeasible],
        "metrics": metrics,
        "units": {k: METRICS[k].unit for k in metrics},
        "bound_by": result.bound_by,
        **picked(summary, "resources_s=resources kinds_s=time_by_kind", finite_parts),
        **picked(summary, "energy_J=energy memory_B=memory", finite_parts),
        "notes": result.notes,
        "inputs": inputs | {"model": {"name": model.name, "sizes": _sizes(model)}},
    }


def finite_parts(parts: Any) -> dict[str, Any]:
    """Parts of a sum by name, as plain numbers."""
    return {name: finite(value) for name, value in parts.items()}


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
    m = result.metrics
    shown = {key: finite(getattr(m, key)) for key in shown_metrics(result.workload.phase, m)}
    rows = [
        (metric_label(key), metric_text(value, key), _beside(result, key))
        for key, value in shown.items()
        if value is not None
    ]
    used, limit = show(float(m.memory_used), "B"), show(float(m.memory_limit), "B")
    parts = ", ".join(f"{k} {show(float(v), 'B')}" for k, v in result.summary.memory.items() if v > 0)
    return [*rows, ("memory/device", used, f"of {limit}: {parts}")]


def headline_table(result: Result) -> Any:
    """The numbers of a prediction as a table."""
    return card(prediction_title(result), headline_rows(result))


def dimmed(lines: list[str]) -> list[Any]:
    """What should be said beside a prediction, dimmed."""
    return [words(line, "dim") for line in lines]


def _dies(result: Result) -> str:
    """Temperatures of logic and DRAM beside their limits, in the step that is hottest."""
    heat = result.system.chip.heat
    if heat is None or not result.steps:
        return ""
    step = max(result.steps, key=lambda s: max(float(s.logic), float(s.dram)))
    dies = (("logic", step.logic, heat.logic_limit), ("DRAM", step.dram, heat.dram_limit))
    return ", ".join(f"{name} {show(float(t), 'K')} of {show(float(limit), 'K')}" for name, t, limit in dies)


def _beside(result: Result, key: str) -> str:
    """What to know about a number."""
    m, phase, rented = result.metrics, result.workload.phase, result.economics.rent is not None
    if key in ("tpot", "step_time") or (key == "ttft" and phase == "prefill"):
        bounds = f"bounds {show(float(m.lower), 's')} to {show(float(m.upper), 's')}"
        return f"{bounds}; bound by {step_bound(result)}"
    if key == "temperature":
        return _dies(result)
    if key == "energy_per_token":
        parts = sorted(result.summary.energy.items(), key=lambda item: -float(item[1]))
        whole = sum(float(v) for _, v in parts)
        return ", ".join(f"{name} {float(v) / whole:.0%}" for name, v in parts if float(v) / whole >= 0.005)
    if key == "power":
        hosts = ", with hosts, cooling and supply" if result.system.fabric.host else ""
        return f"{show(float(m.device_power), 'W')} a device x {show(float(result.system.devices))}{hosts}"
    served = phase == "serve"
    return {
        "ttft": "reading all prompts of the batch at once; what clients see under load: strata serving",
        "tokens_per_s": "output tokens, time to read the prompts included" if served else "",
        "mfu": "useful FLOP of the matrix peak" + (", prompts included" if served else ""),
        "mbu": "DRAM traffic of the DRAM peak",
        "cost_per_mtoken": "devices as rented" if rented else "buying and powering chips, links and hosts",
        "cost_per_device_hour": "rented" if rented else "implied by prices, lifetime and power",
    }.get(key, "")


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


def metrics_of(record: Any) -> list[str]:
    """The metrics that a record of them has, without those it repeats in tokens.

    >>> from strata.pricing.metrics import ItemMetrics, TokenMetrics
    >>> "items_per_s" in metrics_of(ItemMetrics), "items_per_s" in metrics_of(TokenMetrics)
    (True, False)
    """
    names = declared(record if isinstance(record, type) else type(record))
    return [name for name in names if SAID_IN_TOKENS.get(name) not in names]


def shown_metrics(phase: str, record: Any = TokenMetrics) -> list[str]:
    """What is listed of a phase; its first or next token says what a step takes, where it has one.

    >>> [shown_metrics(phase)[0] for phase in ("prefill", "decode", "train")]
    ['ttft', 'tpot', 'step_time']
    """
    own = metrics_of(record)
    had = [name for name in HEADLINE.split() if name in own and phase in METRICS[name].phases]
    return [name for name in had if name != "step_time" or not {"ttft", "tpot"} & set(had)]


def metric_label(name: str) -> str:
    """What people call a metric, or a goal that is no metric of a point.

    >>> metric_label("tpot"), metric_label("tokens_per_joule")
    ('time per output token', 'tokens per joule')
    """
    return METRICS[name].label if name in METRICS else name.replace("_", " ")


def metric_text(value: float, name: str) -> str:
    """A metric's value as people read it.

    >>> metric_text(0.25, "mfu"), metric_text(0.02, "tpot")
    ('25.0%', '20 ms')
    """
    unit = METRICS[name].unit if name in METRICS else GOAL_METRICS[name].unit
    return f"{value:.1%}" if name in SHARES else show(value, unit)
