"""What-if: one design's answer with all that the page draws of it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from strata.app.render.accuracy import interval_of
from strata.app.render.explanation import busy_text, op_rows
from strata.app.render.metrics import metric_label, metric_text, shown_metrics
from strata.app.render.prediction import finite, prediction_title, step_bound
from strata.app.render.ranking import choice_text
from strata.app.web.questions import Count, FieldPath, FieldValue, Name, NameOrNone, Route, Text, WebQuestion
from strata.mapping.plan import division_text
from strata.params import MARKS, stated
from strata.pricing.metrics import METRICS
from strata.result import Result
from strata.roofline import roofline_of
from strata.search.inputs import make_workload, phase_of
from strata.search.what_if import Question
from strata.units import show
from strata.validation.accuracy.trust import trusts


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
    set: dict[FieldPath, FieldValue] = Field(default_factory=dict)


START = Design().model_dump()
ROUTES = [
    Route(path="predict", call="what_if.predicted", says="One design's answer", question=Design),
    Route(
        path="numbers",
        call="what_if.numbers",
        says="Every number behind a design, with its source",
        question=Design,
    ),
    Route(
        path="gains", call="what_if.gains", says="What 10 % more of each resource would buy", question=Design
    ),
]


def answer_of(design: dict[str, Any]) -> tuple[Result, Any]:
    """The result of a design, and the ranking of plans where none is told."""
    sizes = [float(design[key]) for key in ("batch", "input", "output")]
    asked = Question(
        system=design["system"],
        model=design["model"],
        engine=design["engine"],
        weights=design["weights"],
        kv=design["kv"],
        fabric=design["fabric"],
        plan=design["plan"],
        work=lambda program: make_workload(phase_of(program, design["phase"]), *sizes),
    )
    return asked.answer([f"{path}={value}" for path, value in design["set"].items()])


def predicted(design: dict[str, Any]) -> dict[str, Any]:
    """Headline numbers with their trust, where time, energy and memory go, ops, roofline, and what binds."""
    design = START | design
    result, ranking = answer_of(design)
    chosen = None if ranking is None or ranking.why_none else ranking.choices[0]
    told = {
        "title": prediction_title(result),
        "fits": bool(result.fits),
        "plan": division_text(result.plan),
        "plan_text": "" if chosen is None else choice_text(chosen),
        "why_none": "" if ranking is None else ranking.why_none,
        "devices": finite(result.system.devices),
        "memory": memory_parts(result),
        "infeasible": [
            {
                "what": i.what,
                "demand": show(i.demand, i.unit),
                "limit": show(i.limit, i.unit),
                "levers": i.levers,
            }
            for i in result.infeasible
        ],
        "notes": result.notes,
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
        "roofline": roofline_told(result),
    }


def cards(result: Result) -> list[dict[str, Any]]:
    """Headline numbers: value in SI, text, which way is better, and where like cases were measured."""
    told = {name: trust.to_dict() for name, trust in trusts(result).items()}
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
                    "trust": told.get(name),
                }
            )
    return found


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


def numbers(design: dict[str, Any]) -> dict[str, Any]:
    """Every number of chip, fabric and engine: value, unit, source, and whether it is own, inherited, fitted
    or assumed.
    """
    design = START | design
    result, _ = answer_of({**design, "plan": design["plan"] or "", "batch": 1, "input": 1, "output": 1})
    told = {}
    for owner, record in (
        ("chip", result.system.chip),
        ("fabric", result.system.fabric),
        ("engine", result.engine),
    ):
        told[owner] = {
            "name": record.name,
            "numbers": [
                {
                    "path": f"{owner}.{path}",
                    "value": finite(p.value),
                    "text": show(float(p.value), p.unit),
                    "unit": p.unit,
                    "mark": p.mark,
                    "source": p.source,
                }
                for path, p in stated(record).items()
            ],
        }
    return told | {"marks": MARKS}


def gains(design: dict[str, Any]) -> dict[str, Any]:
    """What 10 % more of each resource would buy."""
    from strata.app.render.explanation import gain_rows

    result, _ = answer_of(START | design)
    return {"gains": gain_rows(result) if result.fits else []}
