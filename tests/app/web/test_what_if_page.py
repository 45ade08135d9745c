"""What-if, numbers, sweeps and comparisons of the page give what the library gives."""

import shlex

import pytest

import strata as st
from strata.app.terminal import plain_json
from strata.app.web.answers import all_routes, what_if
from strata.app.web.answers.numbers import SweptDesign, numbers, swept
from strata.app.web.answers.what_if import START, Design, command_of, gains, predicted
from strata.base.errors import StrataError
from strata.pricing.metrics import METRICS
from strata.search.sweep import sweep

DECODE = {"model": "llama-3-8b", "system": "8xstack-ref", "phase": "decode", "batch": 4, "plan": "tp=8"}


def test_cards_are_the_librarys_metrics_each_with_a_formula():
    told = plain_json(predicted({"phase": "decode", "plan": "tp=8"}))
    result = st.evaluate("8xh200", "llama-3-70b", st.decode(64, 1536), "tp=8")
    for card in told["cards"]:
        assert card["value"] == pytest.approx(float(getattr(result.metrics, card["name"])))
        assert card["formula"]
    trusted = {card["name"]: card["trust"] for card in told["cards"]}["tpot"]
    assert trusted["low"] <= trusted["high"] and trusted["low_text"].endswith("ms")


def test_every_metric_says_how_it_is_worked_out():
    assert all(one.formula for one in METRICS.values())


def test_layers_of_the_step_fill_its_time():
    told = plain_json(predicted({"phase": "decode", "plan": "tp=8"}))
    layers, kinds = told["timeline"]["layers"], told["timeline"]["kinds"]
    assert sum(layer["time"] for layer in layers) == pytest.approx(told["step"])
    assert sum(layer["layer"] in range(80) for layer in layers) == 80
    assert {layer["kind"] for layer in layers} == set(kinds)


def test_what_does_not_fit_is_an_answer_with_levers():
    told = predicted({"model": "deepseek-v3", "system": "8xh100", "batch": 64})
    assert not told["fits"] and not told["cards"]
    assert "use more devices" in told["infeasible"][0]["levers"]


def test_rent_is_what_devices_cost():
    cards = {card["name"]: card["value"] for card in predicted({"price": "2.5"})["cards"]}
    assert cards["cost_per_device_hour"] == pytest.approx(2.5)


def test_numbers_now_and_as_shipped():
    told = numbers({**DECODE, "set": {"chip.stack.layers": "8"}})
    chip = {n["path"]: n for n in told["owners"]["chip"]["numbers"]}
    layers, bandwidth = chip["chip.stack.layers"], chip["chip.memory.bandwidth"]
    assert (layers["shipped"], layers["value"], layers["whole"]) == (4.0, 8.0, True)
    assert bandwidth["follows"] and bandwidth["value"] == pytest.approx(2 * bandwidth["shipped"])
    assert layers["source"] and layers["says"] and layers["mark"] in told["marks"]
    assert {"chip", "fabric", "engine", "economics"} == set(told["owners"])


def test_a_number_that_cannot_be_set_is_told_beside_the_others():
    told = numbers({**DECODE, "set": {"chip.memory.bandwidth": "2 TB/s"}})
    assert "stack.transfer_rate" in told["refused"]


def test_a_sweep_marks_the_best_layers():
    values = [2, 4, 6, 8, 12, 16]
    told = plain_json(swept({**DECODE, "plan": "", "path": "chip.stack.layers", "values": values}))
    asked = ["chip.stack.layers=2,4,6,8,12,16"]
    sizes = {"batch": 4.0, "phase": "decode", "plan": "best"}
    found = sweep("8xstack-ref", "llama-3-8b", asked, **sizes)
    assert told["best"] == found.best_index[0]
    assert told["results"][told["best"]] == pytest.approx(float(found.values[found.best_index]))
    assert len(told["plans"]) == len(told["binds"]) == len(values)


def test_a_sweep_has_units_and_keeps_other_changes():
    asked = {"path": "chip.memory.bandwidth", "values": [2e12, 4e12], "set": {"chip.memory.latency": "1 us"}}
    told = swept({"phase": "decode", "plan": "tp=8", "metric": "tpot", **asked})
    assert told["unit"] == "B/s" and told["labels"] == ["2 TB/s", "4 TB/s"]
    assert told["results"][0] > told["results"][1] and told["best"] == 1


def test_a_program_that_has_no_plans_is_swept_as_it_divides_itself():
    told = swept({"model": "gemm-8192", "system": "1xh200", "path": "batch", "values": [1, 2]})
    assert all(told["results"])


@pytest.mark.parametrize("path", ["nonesuch", "chip.nonesuch", "economics.lifetime", "plan.tp"])
def test_what_cannot_be_swept_is_one_line(path):
    with pytest.raises(StrataError) as said:
        swept({"path": path, "values": [1.5, 2.5]})
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"system": "nonesuch"},
        {"price": "abc"},
        {"set": {"chip.stack.layers": "x"}},
        {"model": "fft-1024", "phase": "decode"},
        {"plan": "tp=3.5"},
        {"set": {"model.layers": "x2"}, "model": "gemm-8192"},
    ],
)
def test_mistakes_are_one_line(wrong):
    with pytest.raises(StrataError) as said:
        predicted(wrong)
    assert "\n" not in str(said.value)


def test_plans_are_ranked():
    told = what_if.ranked_plans({"phase": "decode"})
    assert told["plans"][0]["plan"] == predicted({"phase": "decode"})["plan"]
    assert 1 < len(told["plans"]) <= told["feasible"] <= told["considered"]


def test_gains_of_what_fits():
    found = {gain["resource"]: gain["gain"] for gain in gains({"phase": "decode", "plan": "tp=8"})["gains"]}
    assert found["DRAM bandwidth"] > 0.01


def test_the_command_asks_the_same(answer):
    told = predicted(
        {"phase": "decode", "batch": 8, "plan": "tp=8", "set": {"chip.memory.bandwidth": "6 TB/s"}}
    )
    assert told["command"].endswith("--phase decode --plan tp=8 --set 'chip.memory.bandwidth=6 TB/s'")
    assert next(c for c in told["cards"] if c["name"] == "tpot")["text"] in answer(
        *shlex.split(told["command"])[1:]
    )


def test_commands_quote_what_a_shell_would_read():
    assert "'; rm -r'" in command_of(START | {"plan": "; rm -r"})


def test_systems_are_compared_row_by_row():
    heard = []
    asked = {"model": "llama-3-8b", "systems": ["1xh100", "1xh200", "1xl40s"]}
    told = what_if.systems_compared(asked, heard.append)
    assert [row["system"] for row in heard] == ["1xh100", "1xh200", "1xl40s"]
    costs = {row["system"]: row["metrics"]["cost_per_mtoken"] for row in told["rows"] if row["fits"]}
    assert told["ranking"][0] == min(costs, key=costs.get)


def test_questions_are_bounded():
    assert {route.path for route in all_routes()} >= {
        "predict",
        "numbers",
        "sweep",
        "plans",
        "gains",
        "compare",
    }
    for wrong in ({"set": {f"chip.a{i}": "1" for i in range(41)}}, {"model": "a.toml"}, {"batch": 0}):
        with pytest.raises(ValueError):
            Design(**wrong)
    with pytest.raises(ValueError):
        SweptDesign(values=[1.0] * 34)
