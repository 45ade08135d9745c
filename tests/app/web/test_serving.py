"""Serving for the page: the numbers of `strata serving` and of the simulator."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from strata.app.terminal import plain_json
from strata.app.web.answers import serving
from strata.app.web.answers.serving import Rivals, Service, closed_forms, load_asked
from strata.base.errors import StrataError
from strata.serving.deployment import Deployment
from strata.serving.requests import Requests
from strata.serving.simulated import simulate_services
from strata.serving.under_load import serve_under_load

SMALL: dict[str, Any] = {"model": "llama-3-8b", "system": "1xh200", "plan": "tp=1", "rate": 2.0}


def test_closed_forms_are_those_of_serving() -> None:
    told = closed_forms({**SMALL, "input_shape": "fixed"})
    asked = Requests(1024, 256)
    found = serve_under_load(
        "1xh200", "llama-3-8b", asked, "tp=1", "vllm", rate=2.0, ttft=1.0, tpot=0.04, share=0.95, quick=True
    )
    assert told["load"]["ttft"] == pytest.approx(float(found.load.ttft))
    assert told["goodput"] == pytest.approx(float(found.rates[0]))
    assert [row["rate"] for row in told["curve"]] == sorted(row["rate"] for row in told["curve"])
    assert told["curve"][-1]["ttft"] > told["curve"][0]["ttft"]
    assert told["launch"][0]["engine"] == "vllm" and "vllm serve" in told["launch"][0]["text"]
    json.dumps(plain_json(told), allow_nan=False)


def test_more_than_is_served_is_an_answer() -> None:
    told = closed_forms({**SMALL, "rate": 9000.0})
    assert "completes at most" in told["saturated"] and told["load"] is None and told["curve"]


def test_limits_that_no_plan_keeps_are_told_with_the_rest() -> None:
    told = closed_forms({**SMALL, "tpot": 0.0001})
    assert told["missed"].startswith("no plan keeps the limits") and told["goodput"] == 0.0 and told["curve"]


def test_a_closed_loop_has_a_curve_over_clients() -> None:
    told = closed_forms({**SMALL, "load": "closed", "clients": 8})
    assert told["load"]["clients"] == 8 and told["curve"][0]["clients"] == 1.0


def test_a_run_is_that_of_the_simulator() -> None:
    news: list[dict[str, Any]] = []
    told = serving.simulated_service(SMALL, news.append)
    service = Service(**SMALL).model_dump()
    load, slo = load_asked(service), {"ttft": 1.0, "tpot": 0.04}
    run = simulate_services(
        [Deployment("1xh200", "llama-3-8b", "tp=1", "vllm").priced(load, slo=slo)[0]], load, slo=slo
    )
    assert told["run"]["ttft"]["mean"] == pytest.approx(run.times["ttft"].mean)
    assert told["run"]["kept"] == run.kept and told["run"]["saturated_from"] is None
    assert len(told["points"]) == 7 and told["largest"]["rate"] > 2.0
    kinds = [next(iter(one)) for one in news]
    assert kinds[:2] == ["priced", "run"] and kinds.count("point") == 7
    minute = told["run"]["minute"]
    for lane, arrival, scheduled, first, last, *_ in minute["requests"]:
        assert lane >= 0 and arrival <= scheduled <= first <= last
    assert minute["end"] <= 60.0
    shares = told["run"]["distributions"]["ttft"]["share"]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0)


def test_a_saturated_run_says_from_when() -> None:
    told = serving.simulated_service({**SMALL, "rate": 500.0, "ttft": None, "tpot": None}, lambda _: None)
    assert told["run"]["saturated_from"] >= 0.0 and "largest" not in told


@pytest.mark.parametrize("kind", ["even", "gamma", "bursty", "closed", "sessions", "agents"])
def test_every_load_has_requests(kind: str) -> None:
    load = load_asked(Service(**SMALL, load=kind).model_dump())
    assert next(iter(load.arrivals())).input >= 1


def test_the_cheapest_system_keeps_the_limits() -> None:
    told = serving.cheapest_system({**SMALL, "systems": ["1xh100", "1xh200", "1xnonesuch"]}, lambda _: None)
    costs = [p["cost"] for p in told["cheapest"]]
    assert costs == sorted(costs) and len(costs) == 2
    assert told["left_out"][0]["system"] == "1xnonesuch"


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "nonesuch"},
        {"system": "1xl4", "model": "llama-3-70b"},
        {"plan": "tp=7"},
        {"model": "fft-1024"},
        {"set": {"chip.zzz": "1"}},
    ],
)
def test_mistakes_are_one_line(asked: dict[str, Any]) -> None:
    with pytest.raises(StrataError) as error:
        closed_forms({**SMALL, "plan": "", **asked})
    assert str(error.value) and "\n" not in str(error.value)


def test_questions_are_bounded() -> None:
    for bad in ({"rate": 0.0}, {"clients": 10**9}, {"share": 1.0}, {"ttft": -1}, {"model": "../x"}):
        with pytest.raises(ValidationError):
            Service(**bad)
    with pytest.raises(ValidationError):
        Rivals(systems=["1xh200"] * 7)
