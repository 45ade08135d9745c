"""What-if: one design's answer with all that the page draws of it."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Any, Literal

from pydantic import Field

from strata.app.commands.options import with_price
from strata.app.render.accuracy import interval_of
from strata.app.render.explanation import busy_text, op_rows
from strata.app.render.prediction import (
    finite,
    headline_rows,
    metric_label,
    metric_text,
    prediction_title,
    shown_metrics,
    step_bound,
)
from strata.app.render.ranking import choice_text
from strata.app.web.questions import (
    Count,
    FieldPath,
    FieldValue,
    Name,
    NameOrNone,
    Text,
    WebQuestion,
    answers,
)
from strata.mapping.plan import division_text
from strata.pricing.metrics import METRICS
from strata.records import Infeasible
from strata.result import Result
from strata.roofline import roofline_of
from strata.search.inputs import make_workload, phase_of
from strata.search.plan_for import plan_for
from strata.search.what_if import Question
from strata.units import show
from strata.validation.accuracy.trust import trusts
from strata.workload.tasks import Workload


class Design(WebQuestion):
    """A design as the page states it: names, sizes, and fields that are set, as `--set` has them."""

    model: Name = "llama-3-70b"
    system: Name = "8xh200"
    phase: Literal["serve", "prefill", "decode", "train"] = "serve"
    batch: Count = 64
    input: Count = 1024
    output: Count = 1024
    plan: Text = ""
    engine: Name = "ideal"
    fabric: NameOrNone = ""
    weights: NameOrNone = ""
    kv: NameOrNone = ""
    price: Text = ""  # rent of a device-hour
    set: dict[FieldPath, FieldValue] = Field(default_factory=dict, max_length=40)


START = Design().model_dump()


def work_asked(design: dict[str, Any]) -> Callable[[Any], Workload]:
    """The workload of a program, of the sizes that a design states."""
    sizes = [float(design[key]) for key in ("batch", "input", "output")]
    return lambda program: make_workload(phase_of(program, design["phase"]), *sizes)


def question_of(design: dict[str, Any]) -> Question:
    """A design as the library asks it."""
    names = {key: design[key] for key in ("system", "model", "engine", "weights", "kv", "fabric", "plan")}
    return Question(**names, work=work_asked(design), always=tuple(rent(design)))


def rent(design: dict[str, Any]) -> list[str]:
    """The price of a device-hour as a field that is set, where one is told."""
    return with_price([], design["price"].strip(), "price")


def changes(design: dict[str, Any]) -> list[str]:
    """Fields that a design sets, as `--set` has them."""
    return [f"{path}={value}" for path, value in design["set"].items()]


def answer_of(design: dict[str, Any]) -> tuple[Result, Any]:
    """The result of a design, and the ranking of plans where none is told."""
    return question_of(design).answer(changes(design))


@answers("predict", "One design's answer", Design)
def predicted(design: dict[str, Any]) -> dict[str, Any]:
    """Headline numbers with their trust, where time, energy and memory go, ops, roofline, and what binds."""
    result, ranking = answer_of(design)
    chosen = None if ranking is None or ranking.why_none else ranking.choices[0]
    told = {
        "title": prediction_title(result),
        "fits": bool(result.fits),
        "plan": division_text(result.plan),
        "plan_text": "" if chosen is None else choice_text(chosen).partition("; choose")[0],
        "why_none": "" if ranking is None else ranking.why_none,
        "devices": finite(result.system.devices),
        "memory": memory_parts(result),
        "infeasible": [_why(i) for i in result.infeasible],
        "notes": result.notes,
        "phase": result.workload.phase,
        "command": command_of(design),
    }
    if not result.fits:
        return told | {"cards": [], "binds": "does not fit"}
    return told | {
        "cards": cards(result),
        "binds": step_bound(result),
        "sentence": busy_text(result).splitlines(),
        "trust": interval_of(result)[1],
        "resources": {k: finite(v) for k, v in result.summary.resources.items()},
        "kinds": {k: finite(v) for k, v in result.summary.time_by_kind.items()},
        "energy": {k: finite(v) for k, v in result.summary.energy.items()},
        "ops": op_rows(result)[:24],
        "step": result.timeline.time,
        "timeline": layers_told(result),
        "roofline": roofline_told(result),
    }


def _why(why: Infeasible) -> dict[str, Any]:
    """Why a design does not fit."""
    demand, limit = show(why.demand, why.unit), show(why.limit, why.unit)
    return {"what": why.what, "demand": demand, "limit": limit, "levers": why.levers}


def command_of(design: dict[str, Any]) -> str:
    """The command that asks the same.

    >>> command_of(START | {"set": {"chip.memory.bandwidth": "6 TB/s"}})
    "strata predict -m llama-3-70b -s 8xh200 --batch 64 --input 1024 --output 1024 --set \
'chip.memory.bandwidth=6 TB/s'"
    """
    words = ["strata", "predict", "-m", design["model"], "-s", design["system"]]
    words += [f"--{key} {design[key]}" for key in ("batch", "input", "output")]
    usual = {"phase": "serve", "engine": "ideal"}
    for key in ("phase", "plan", "engine", "fabric", "weights", "kv", "price"):
        if design[key] and design[key] != usual.get(key):
            words += [f"--{key}", quote(design[key])]
    words += [word for item in changes(design) for word in ("--set", quote(item))]
    return " ".join(words)


def cards(result: Result) -> list[dict[str, Any]]:
    """Headline numbers: value in SI, text, which way is better, and where like cases were measured."""
    told = {name: trust.to_dict() for name, trust in trusts(result).items()}
    beside = {label: said for label, _, said in headline_rows(result)}
    found = []
    for name in shown_metrics(result.workload.phase, result.metrics):
        value = finite(getattr(result.metrics, name))
        if value is not None:
            found.append(
                {
                    "name": name,
                    "label": metric_label(name),
                    "value": value,
                    "text": metric_text(value, name),
                    "unit": METRICS[name].unit,
                    "better": METRICS[name].better,
                    "formula": METRICS[name].formula,
                    "says": beside.get(metric_label(name), ""),
                    "trust": _trusted(told.get(name), name),
                }
            )
    return found


def _trusted(told: dict[str, Any] | None, name: str) -> dict[str, Any] | None:
    """Where like cases were measured, with its ends as people read them."""
    return told and told | {f"{end}_text": metric_text(told[end], name) for end in ("low", "high")}


def layers_told(result: Result) -> dict[str, Any]:
    """The step on one rank: when each layer begins and ends, and the ops of each kind of layer."""
    layers: list[dict[str, Any]] = []
    kinds: dict[str, list[dict[str, Any]]] = {}
    for event in result.timeline.events:
        if not layers or layers[-1]["layer"] != event.layer:
            layers.append({"layer": event.layer, "start": event.start, "blocks": [], "ops": []})
        at = layers[-1]
        at["blocks"] += [event.block] if event.block not in at["blocks"] else []
        op = {"op": event.name, "block": event.block, "kind": event.kind, "bound_by": event.bound_by}
        at["ops"].append(op | {"start": event.start - at["start"], "time": event.duration})
    for at in layers:
        at["kind"] = " + ".join(at.pop("blocks"))
        at["time"] = at["ops"][-1]["start"] + at["ops"][-1]["time"]
        ops = at.pop("ops")
        kinds.setdefault(at["kind"], ops)
    return {"layers": layers[:400], "kinds": kinds}


def memory_parts(result: Result) -> dict[str, Any]:
    """What a device holds, beside what it can."""
    return {
        "used": finite(result.metrics.memory_used),
        "limit": finite(result.metrics.memory_limit),
        "parts": {k: finite(v) for k, v in result.summary.memory.items() if float(v) > 0},
    }


def roofline_told(result: Result) -> dict[str, Any]:
    """Roofs, ceilings and the ops under them."""
    found = roofline_of(result)
    return {
        "roofs": [vars(roof) for roof in found.roofs],
        "ceilings": [vars(ceiling) for ceiling in found.ceilings],
        "points": [
            {
                "op": f"{p.block}.{p.op}",
                "bound_by": p.bound_by,
                "intensity": p.intensity,
                "rate": p.rate,
                "share": p.share,
            }
            for p in found.points[:40]
        ],
        "hidden": found.hidden,
    }


@answers("plans", "The best plans of a design, ranked", Design)
def ranked_plans(design: dict[str, Any]) -> dict[str, Any]:
    """The best plans of a design, best first, and what a step of each takes."""
    asked = question_of(design)
    hardware, program, software = asked.inputs(changes(design))
    ranking = plan_for(hardware, program, asked.work(program), software, top=8, at_once=True)
    rows = [
        {
            "plan": division_text(choice.result.plan),
            "metrics": {
                name: metric_text(float(value), name)
                for name in shown_metrics(choice.result.workload.phase, choice.result.metrics)[:4]
                if (value := finite(getattr(choice.result.metrics, name))) is not None
            },
            "memory": show(float(choice.result.metrics.memory_used), "B"),
        }
        for choice in ranking.choices
    ]
    labels = {name: metric_label(name) for row in rows for name in row["metrics"]}
    counts = {"considered": ranking.considered, "feasible": ranking.feasible}
    return {"plans": rows, "labels": labels, "why_none": ranking.why_none, **counts}


@answers("gains", "What 10 % more of each resource would buy", Design)
def gains(design: dict[str, Any]) -> dict[str, Any]:
    """What 10 % more of each resource would buy."""
    from strata.app.render.explanation import gain_rows

    result, _ = answer_of(design)
    return {"gains": gain_rows(result) if result.fits else []}
