"""Training: one optimiser step under a plan with its stages, memory and timeline; the run it makes of so many
tokens; and the best plan.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from strata.app.render.accuracy import interval_of
from strata.app.render.tables import cells_of, floats
from strata.app.render.training import STEP_WORDS, days_text, energy_text, plan_words, step_parts, train_dict
from strata.app.web.answers import FieldPath, FieldValue, Name, NameOrNone, Tell, Text, WebQuestion, answers
from strata.app.web.answers.what_if import changes, shown_infeasible
from strata.base.errors import BadValue
from strata.base.units import show
from strata.mapping.plan import order_text, plan_text
from strata.mapping.training_plan import OFFLOAD, RECOMPUTE, SCHEDULE
from strata.one_step import stage_memory
from strata.result import Result
from strata.search.inputs import named_inputs
from strata.simulate.gantt import MEANING
from strata.simulate.step import simulate_step
from strata.training.run import (
    TrainRun,
    count_text,
    run_of_step,
    step_under_plan,
    token_count,
    train_run,
    usual_batch,
)
from strata.workload.model import Model
from strata.workload.tasks import train

MOST_PASSES = 8000  # of a timeline: more are not told apart on a screen, and take seconds


class TrainDesign(WebQuestion):
    """A run of training: what is trained on what, under which plan."""

    model: Name = "llama-3-70b"
    system: Name = "512xh100"
    tokens: Annotated[str, StringConstraints(min_length=1, max_length=20)] = "2T"
    batch: Annotated[int, Field(ge=0, le=10**6)] = 0  # sequences of a step; 0: about four million tokens
    length: Annotated[int, Field(ge=1, le=10**7)] = 4096
    plan: Text = "tp=4,pp=8,dp=16,sp=1,zero=1,microbatches=64,recompute=selective"
    engine: Name = "megatron"
    fabric: NameOrNone = ""
    weights: NameOrNone = ""
    set: dict[FieldPath, FieldValue] = Field(default_factory=dict, max_length=40)


class BestPlan(TrainDesign):
    """The same, with what the best plan is."""

    goal: Literal["throughput", "cheapest", "efficient"] = "throughput"


def _inputs(design: dict[str, Any]) -> tuple[Any, Model, Any, float]:
    """System, model, engine, and sequences of a step."""
    names = (design["model"], design["system"], design["engine"], design["weights"])
    hardware, model, engine = named_inputs(*names, "", changes(design), design["fabric"])
    if not isinstance(model, Model):
        raise BadValue(f"runs of training are of language models, but {design['model']} is none")
    batch = float(design["batch"] or usual_batch(float(hardware.devices), float(design["length"])))
    return hardware, model, engine, batch


def _step(design: dict[str, Any]) -> Result:
    """One step under the plan that is told."""
    if not design["plan"]:
        raise BadValue("give a plan, like tp=8,dp=64, or let the best one be found")
    hardware, model, engine, batch = _inputs(design)
    return step_under_plan(hardware, model, train(batch, float(design["length"])), design["plan"], engine)


@answers("training", TrainDesign)
def trained(design: dict[str, Any]) -> dict[str, Any]:
    """A training run under a plan: step, stages, memory, timeline, days and money."""
    tokens, result = token_count(design["tokens"]), _step(design)
    batch, hardware, model = float(result.workload.batch), result.system, result.program
    if tokens < batch * design["length"]:
        raise BadValue(f"a run has at least one step, of {count_text(batch * design['length'])} tokens")
    told: dict[str, Any] = {
        "title": f"{model.name} on {hardware.name}",
        "fits": bool(result.fits),
        "plan": plan_text(result.plan),
        "batch": batch,
        "step_tokens": batch * design["length"],
        "devices": float(hardware.devices),
        "memory": stages_told(result),
        "words": {"recompute": RECOMPUTE, "schedule": SCHEDULE, "offload": OFFLOAD},
        "degrees": floats(result.plan, "tp cp dp pp ep"),
        "infeasible": [shown_infeasible(i, "what need=demand have=limit") for i in result.infeasible],
    }
    return told | train_run_told(run_of_step(result, tokens)) if result.fits else told


def train_run_told(run: TrainRun) -> dict[str, Any]:
    """The run's own numbers: headline cards, where a step goes, what a month loses."""
    metrics, kept = run.result.metrics, run.goodput
    order = order_text(run.plan)
    placed = f"; {order} on the fabric, innermost first" if order else ""
    return {
        "cards": _cards(run),
        "plan_words": plan_words(run.plan, run.micro_batch) + placed,
        "run": run.to_dict(),
        "step": float(metrics.step_time),
        "parts": [
            {"name": name, "label": STEP_WORDS.get(name, name), "time": time, "wait": name in run.waits}
            for name, time in step_parts(run).items()
        ],
        "lost": {name: float(share) for name, share in kept.lost.items()},
        "goodput": float(kept.share),
        "trust": interval_of(run.result)[1],
    }


def _cards(run: TrainRun) -> list[dict[str, Any]]:
    """Headline numbers with what they are made of."""
    m, kept = run.result.metrics, run.goodput
    hours = float(run.result.system.devices) * run.time / 3600.0
    recomputed = "operations of the model over the matrix peak; HFU counts recomputed ones, too"
    tokens = f"{count_text(run.tokens)} tokens, goodput {float(kept.share):.1%}"
    cost = f"{count_text(run.cost)} USD" if run.cost == run.cost else "no price"
    hourly = f"{float(m.cost_per_device_hour):.3g} USD a device-hour"
    power = f"{show(float(m.power), 'W')} while it trains"
    supply = f"hosts and cooling included; PUE {float(run.result.economics.overhead):g}"
    rate, each = count_text(float(m.tokens_per_s)), f"{show(run.tokens_per_s_per_device)} a device"
    used, limit = cells_of(m, "memory_used:B memory_limit:B")
    rows = (
        ("Step", show(m.step_time, "s"), f"{run.steps:,.0f} steps", "passes of all stages, sums, update"),
        ("MFU", f"{run.mfu:.1%}", f"HFU {run.hfu:.1%}", recomputed),
        ("Tokens/s", rate, each, "tokens of a step over its time"),
        ("Time", days_text(run.days), tokens, "steps x step time / goodput"),
        ("Cost", cost, f"{hours:,.0f} device-hours", hourly),
        ("Energy", energy_text(run), power, supply),
        ("Memory", used, f"of {limit} a device", "the fullest stage"),
    )
    return [dict(zip(("label", "text", "under", "formula"), row, strict=True)) for row in rows]


def stages_told(result: Result) -> dict[str, Any]:
    """Memory of a device in every stage, by purpose [B]."""
    sizes = {name: list(map(float, each)) for name, each in stage_memory(result).items()}
    purposes = {name: each for name, each in sizes.items() if max(each) > 0}
    return {**floats(result.metrics, "limit=memory_limit used=memory_used"), "purposes": purposes}


@answers("training/timeline", TrainDesign)
def step_timeline(design: dict[str, Any]) -> dict[str, Any]:
    """Passes of all micro-batches through the stages of a step, as events."""
    result = _step(design)
    if not result.fits:
        return {"why": "a step that does not fit has no timeline", "tasks": []}
    step = result.steps[-1]
    stages, pieces = float(result.plan.pp), float(step.microbatches)
    virtual = max(float(result.plan.virtual_stages), 1.0)
    if 3 * stages * pieces * virtual > MOST_PASSES:
        why = f"{stages:g} stages x {pieces:g} micro-batches are more passes than can be told apart"
        return {"why": why, "tasks": []}
    made = simulate_step(result, detail="stage")
    why_differs = [{"what": what, "seconds": seconds} for what, seconds in made.why]
    passes = [t for t in made.events.tasks if t.end > t.start]
    tasks = [[t.track, t.start, t.end, t.task.kind, t.task.name] for t in passes]
    return made.to_dict() | {"why_differs": why_differs, "meaning": MEANING, "tasks": tasks}


@answers("training/plans", BestPlan, job=True)
def best_training_plans(design: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The best plans of a training run, and what each lever is worth."""
    hardware, model, engine, batch = _inputs(design)
    tell({"said": f"every legal plan of {float(hardware.devices):g} devices is priced"})
    sizes: dict[str, Any] = {"batch": batch, "length": float(design["length"])}
    run = train_run(hardware, model, design["tokens"], engine=engine, goal=design["goal"], top=8, **sizes)
    return {"plan": plan_text(run.plan)} | train_dict(run, [])["search"]
