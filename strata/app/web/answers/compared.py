"""Compare: systems side by side under limits on latency, each with its best plan and load."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from strata.app.commands.options import with_price
from strata.app.render.compare import compared_dict, question_text, reason_lines, remark_text
from strata.app.render.prediction import finite
from strata.app.web.questions import Count, Name, NameOrNone, Tell, Text, WebQuestion, answers
from strata.mapping.engine import USUAL_SERVER
from strata.search.compare import compare
from strata.search.compared_rows import ComparedRow
from strata.search.inputs import named_inputs
from strata.serving.requests import Requests
from strata.validation.accuracy.compared import trust_compared

Seconds = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Length = Annotated[Count, Field(le=2_000_000)]


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


@answers("compare", "Systems side by side under limits on latency", ComparedSystems, job=True)
def systems_compared(asked: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """What `strata compare` finds, row by row as it comes, and at the end with reasons and trust."""
    prices = {name: with_price([], text.strip(), "price") for name, text in asked["prices"].items()}

    def inputs(system: str, model: str, engine: str) -> Any:
        return named_inputs(model, system, engine, asked["weights"], asked["kv"], prices.get(system, []))

    def heard(row: ComparedRow) -> None:
        cost = None if row.answer is None else finite(row.answer.value(asked["goal"]))
        tell({"system": row.system.name, "value": cost, "why_none": row.why_none})

    endless = float("inf")
    limits: dict[str, Any] = {key: endless if asked[key] is None else asked[key] for key in ("ttft", "tpot")}
    found = compare(
        asked["systems"],
        asked["model"],
        Requests(asked["input"], asked["output"]),
        asked["engine"],
        **limits,
        goal=asked["goal"],
        inputs=inputs,
        heard=heard,
    )
    trusted = trust_compared(found)
    return compared_dict(found, trusted) | {
        "question": question_text(found),
        "remark": remark_text(found, trusted),
        "reasons": reason_lines(found, trusted),
        "means": found.means,
    }
