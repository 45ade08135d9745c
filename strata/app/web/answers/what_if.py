"""What-if: one design's answer with all that the page draws of it; systems side by side; what there is."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Annotated, Any, Literal

from pydantic import Field

from strata.app.commands.options import with_price
from strata.app.render import prediction
from strata.app.render.accuracy import interval_of
from strata.app.render.catalogue import catalogue
from strata.app.render.compare import compared_dict, question_text, reason_lines, remark_text
from strata.app.render.explanation import busy_text, gain_rows, op_rows
from strata.app.render.ranking import choice_text
from strata.app.render.tables import floats, picked
from strata.app.web.answers import (
    Count,
    FieldPath,
    FieldValue,
    Name,
    NameOrNone,
    Tell,
    Text,
    WebQuestion,
    answers,
)
from strata.base.records import Infeasible
from strata.base.units import show
from strata.mapping.plan import division_text
from strata.pricing.metrics import METRICS
from strata.result import Result
from strata.roofline import roofline_of
from strata.search.compare import compare
from strata.search.compared_rows import ComparedRow
from strata.search.inputs import make_workload, named_inputs, phase_of
from strata.search.plan_for import plan_for
from strata.search.what_if import Question
from strata.serving.requests import Requests
from strata.software.engine import USUAL_SERVER
from strata.validation.accuracy.compared import trust_compared
from strata.validation.accuracy.trust import trusts
from strata.workload.tasks import Workload

CHOSEN = "models programs chips systems fabrics engines technologies templates budgets precisions"
Seconds = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Length = Annotated[Count, Field(le=2_000_000)]


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
    return Question(
        **names, work=work_asked(design), always=tuple(with_price([], design["price"].strip(), "price"))
    )


def changes(design: dict[str, Any]) -> list[str]:
    """Fields that a design sets, as `--set` has them."""
    return [f"{path}={value}" for path, value in design["set"].items()]


@answers("predict", Design)
def predicted(design: dict[str, Any]) -> dict[str, Any]:
    """One design's answer."""
    result, ranking = question_of(design).answer(changes(design))
    chosen = None if ranking is None or ranking.why_none else ranking.choices[0]
    memory = {name: float(size) for name, size in result.summary.memory.items() if float(size) > 0}
    told = {
        "title": prediction.prediction_title(result),
        "fits": bool(result.fits),
        "plan": division_text(result.plan),
        "plan_text": "" if chosen is None else choice_text(chosen).partition("; choose")[0],
        "why_none": "" if ranking is None else ranking.why_none,
        "devices": prediction.finite(result.system.devices),
        "memory": floats(result.metrics, "used=memory_used limit=memory_limit") | {"parts": memory},
        "infeasible": [shown_infeasible(i, "what demand limit") for i in result.infeasible],
        "notes": result.notes,
        "phase": result.workload.phase,
        "command": command_of(design),
    }
    if not result.fits:
        return told | {"cards": [], "binds": "does not fit"}
    return told | {
        "cards": cards(result),
        "binds": prediction.step_bound(result),
        "sentence": busy_text(result).splitlines(),
        "trust": interval_of(result)[1],
        **picked(result.summary, "resources kinds=time_by_kind energy", prediction.finite_parts),
        "ops": op_rows(result)[:24],
        "step": result.timeline.time,
        "timeline": layers_told(result),
        "roofline": roofline_told(result),
    }


def shown_infeasible(why: Infeasible, fields: str) -> dict[str, Any]:
    """Why a design does not fit: fields of it as people read them, and what would help."""
    shown = picked(why, fields, lambda value: value if isinstance(value, str) else show(value, why.unit))
    return shown | {"levers": why.levers}


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
    beside = {label: said for label, _, said in prediction.headline_rows(result)}
    found = []
    for name in prediction.shown_metrics(result.workload.phase, result.metrics):
        value, label = prediction.finite(getattr(result.metrics, name)), prediction.metric_label(name)
        if value is None:
            continue
        card = {"name": name, "label": label, "value": value, "text": prediction.metric_text(value, name)}
        card |= picked(METRICS[name], "unit better formula") | {"says": beside.get(label, "")}
        trust = told.get(name) or {}
        ends = {end: trust[end] for end in ("low", "high") if end in trust}
        shown = {f"{end}_text": prediction.metric_text(at, name) for end, at in ends.items()}
        found.append(card | {"trust": {**trust, **shown} or None})
    return found


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


def roofline_told(result: Result) -> dict[str, Any]:
    """Roofs, ceilings and the ops under them."""
    found = roofline_of(result)
    return {
        "roofs": [vars(roof) for roof in found.roofs],
        "ceilings": [vars(ceiling) for ceiling in found.ceilings],
        "points": [
            {"op": f"{p.block}.{p.op}", **picked(p, "bound_by intensity rate share")}
            for p in found.points[:40]
        ],
        "hidden": found.hidden,
    }


@answers("plans", Design)
def ranked_plans(design: dict[str, Any]) -> dict[str, Any]:
    """The best plans of a design, ranked."""
    asked = question_of(design)
    hardware, program, software = asked.inputs(changes(design))
    ranking = plan_for(hardware, program, asked.work(program), software, top=8, at_once=True)
    rows = []
    for result in (choice.result for choice in ranking.choices):
        shown = prediction.shown_metrics(result.workload.phase, result.metrics)[:4]
        values = {name: prediction.finite(getattr(result.metrics, name)) for name in shown}
        texts = {name: prediction.metric_text(v, name) for name, v in values.items() if v is not None}
        memory = show(float(result.metrics.memory_used), "B")
        rows.append({"plan": division_text(result.plan), "metrics": texts, "memory": memory})
    labels = {name: prediction.metric_label(name) for row in rows for name in row["metrics"]}
    return {"plans": rows, "labels": labels, **picked(ranking, "why_none considered feasible")}


@answers("gains", Design)
def gains(design: dict[str, Any]) -> dict[str, Any]:
    """What 10 % more of each resource would buy."""
    result, _ = question_of(design).answer(changes(design))
    return {"gains": gain_rows(result) if result.fits else []}


class ComparedSystems(WebQuestion):
    """Systems that are to serve one model, and what clients must see."""

    model: Name = "llama-3-70b"
    systems: list[Name] = Field(default=["8xh200", "8xb200"], min_length=1, max_length=16)
    engine: Name = USUAL_SERVER
    input: Length = 1024
    output: Length = 1024
    ttft: Seconds | None = 2.0
    tpot: Seconds | None = 0.05
    goal: Literal["cheapest", "throughput", "efficient", "fastest"] = "cheapest"
    weights: NameOrNone = ""
    kv: NameOrNone = ""
    prices: dict[Name, Text] = Field(default_factory=dict, max_length=16)


@answers("compare", ComparedSystems, job=True)
def systems_compared(asked: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Systems side by side under limits on latency."""
    prices = {name: with_price([], text.strip(), "price") for name, text in asked["prices"].items()}

    def inputs(system: str, model: str, engine: str) -> Any:
        return named_inputs(model, system, engine, asked["weights"], asked["kv"], prices.get(system, []))

    def heard(row: ComparedRow) -> None:
        cost = None if row.answer is None else prediction.finite(row.answer.value(asked["goal"]))
        tell({"system": row.system.name, "value": cost, "why_none": row.why_none})

    endless = float("inf")
    limits: dict[str, Any] = {key: endless if asked[key] is None else asked[key] for key in ("ttft", "tpot")}
    limits |= {"goal": asked["goal"], "inputs": inputs, "heard": heard}
    work = Requests(asked["input"], asked["output"])
    found = compare(asked["systems"], asked["model"], work, asked["engine"], **limits)
    trusted = trust_compared(found)
    told = compared_dict(found, trusted) | {"question": question_text(found)}
    told |= {"remark": remark_text(found, trusted), "reasons": reason_lines(found, trusted)}
    return told | {"means": found.means}


@answers("catalogue")
def shipped_names(_: dict[str, Any]) -> dict[str, Any]:
    """Names and titles of what is shipped."""
    return {kind: catalogue(kind)[kind] for kind in CHOSEN.split()}


def warm(_: dict[str, Any]) -> dict[str, Any]:
    """Ask what the start page asks, so that a worker has read its modules and data before anybody waits."""
    predicted({})
    return {}
