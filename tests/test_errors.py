"""Errors are one clear line with the nearest right name; not fitting is an answer with levers."""

import json

import numpy as np
import pytest

import strata as st
from strata.base.errors import BadFile, BadValue, StrataError, UnknownName, nearest, require
from strata.base.records import Infeasible


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: st.chip("h20o"), "no chip called 'h20o'; nearest: h200"),
        (lambda: st.model("lama-3-70b"), "nearest: llama-3-70b"),
        (lambda: st.fabric("hgx-h20"), "no fabric called 'hgx-h20'; nearest: hgx-h200"),
        (lambda: st.engine("vlm"), "nearest: vllm"),
        (lambda: st.system("8xh20o"), "no chip called 'h20o'"),
        (lambda: st.system("eight h200"), "no system called 'eight h200'"),
        (lambda: st.plan("tq=8"), "no degree of a plan called 'tq'; nearest: tp"),
        (lambda: st.model("llama-3-8b", hiden=3), "nearest: hidden"),
        (lambda: st.model("llama-3-8b", weights="fp9"), "no precision called 'fp9'"),
    ],
)
def test_an_unknown_name_gets_the_nearest_right_ones(make, said):
    with pytest.raises(UnknownName) as error:
        make()
    assert said in str(error.value) and "all: " in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: st.plan("tp"), "a plan is written like tp=8,ep=8"),
        (lambda: st.plan("tp=eight"), "plan.tp must be a whole number"),
        (lambda: st.plan(tp=1.5), "plan.tp must be a whole number, but got (tp=1.5)"),
        (lambda: st.plan(tp=0), "plan.tp must be at least 1, but got (tp=0.0)"),
        (lambda: st.plan(dp=2, order=("tp", "pp")), "plan.order must name tp, cp, dp and pp once each"),
        (lambda: st.decode(0, 100), "workload.batch must be positive"),
        (lambda: st.prefill(1, -5), "workload.length must be positive"),
        (lambda: st.decode(np.array([1.0, 0.0]), 100), "workload.batch must be positive"),
        (
            lambda: st.Workload("sing", 1.0, 1.0, 1.0),
            "workload.phase must be one of prefill, decode, serve, train",
        ),
        (lambda: st.model("llama-3-8b", hidden=-1), "model.hidden must be positive"),
        (lambda: st.plans(0, st.model("llama-3-8b")), "devices must be at least 1"),
        (lambda: st.system("0xh200"), "at least one device"),
        (lambda: st.system("9xh200"), "whole nodes of 8"),
        (lambda: st.system("3x9xh200"), "at most 8 devices"),
        (lambda: st.system("512xstack-ref"), "no scale-out dimension"),
        (lambda: st.system(st.chip("h200"), st.fabric("hgx-h200")), "needs sizes"),
        (lambda: st.system(st.chip("h200"), cores=3), "change a chip's numbers where it is made"),
        (lambda: st.hardware.sized(st.fabric("hgx-h200"), (8.0, 2.0, 2.0)), "has 2 dimensions"),
        (
            lambda: st.evaluate("h200", "llama-3-8b", st.decode(1, 1), backend="torch"),
            "backend must be numpy or jax",
        ),
        (
            lambda: st.evaluate("h200", "llama-3-8b", st.decode(np.ones(2), np.ones(3))),
            "must broadcast together, but got shapes (2,), (3,)",
        ),
        (
            lambda: st.evaluate("h200", "llama-3-8b", st.decode(np.ones(2), 8.0)).timeline,
            "belongs to a single point",
        ),
        (
            lambda: st.evaluate("h200", "llama-3-8b", st.decode(np.ones(2), 8.0)).at(0, 0),
            "one index for each axis",
        ),
    ],
)
def test_a_broken_relation_is_said_with_its_values(make, said):
    with pytest.raises(BadValue) as error:
        make()
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("[1]", "must hold an object"),
        ("{}", "has no 'model_type'"),
        (json.dumps({"model_type": "llama"}), "has no 'num_attention_heads'"),
        (json.dumps({"model_type": "gpt2", "n_embd": 64, "n_head": 4}), "has no 'num_hidden_layers'"),
        (
            json.dumps({"model_type": "llama", "num_attention_heads": 0}),
            "'num_attention_heads' must be a whole",
        ),
    ],
)
def test_a_wrong_model_file_is_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(StrataError) as error:
        st.model(path)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_missing_model_file_is_named(tmp_path):
    with pytest.raises(BadFile, match="no model file at"):
        st.model(tmp_path / "absent.json")
    with pytest.raises(BadFile, match="no model file at"):
        st.model(tmp_path)


def test_every_error_of_a_user_is_a_value_error():
    assert issubclass(StrataError, ValueError)
    with pytest.raises(BadValue, match=r"^a must be b, but got \(a=1, b='x'\)$"):
        require(False, "a must be b", a=1, b="x")
    require(True, "never said")


def test_nearest_ignores_case_and_gives_nothing_for_nonsense():
    assert nearest("H200", ["h200", "b200"])[0] == "h200"
    assert nearest("zzzzzz", ["h200", "b200"]) == []


def test_infeasible_says_demand_limit_and_levers():
    said = str(
        Infeasible("what a device holds must fit its memory", 200e9, 141e9, "B", ("raise tp", "lower batch"))
    )
    assert (
        said
        == "what a device holds must fit its memory: needs 200 GB, has 141 GB; levers: raise tp, lower batch"
    )


def test_a_model_that_does_not_fit_is_an_answer_not_an_exception():
    r = st.evaluate("8xh200", "llama-3.1-405b", st.decode(512, 32768), "tp=8")
    (why,) = r.infeasible
    assert not r.fits and st.reasons(r.reason) == [why.what]
    assert why.demand > why.limit and why.unit == "B" and any("tp" in lever for lever in why.levers)
    assert np.isinf(r.metrics.step_time) and r.metrics.tokens_per_s == 0


def test_every_broken_rule_of_a_plan_is_listed():
    r = st.evaluate("8xh200", "llama-3-8b", st.decode(2, 128), "tp=3,dp=4")
    assert {w.what.split(" must")[0] for w in r.infeasible} == {
        "plan.tp x cp x dp x pp",
        "plan.tp",
        "plan.dp",
    }
    assert len(st.reasons(r.reason)) == len(r.infeasible) == 4  # heads and kv_heads both


def test_every_message_is_a_short_line():
    long = ["9" * 5000, "not " * 5000, "a\nb" * 5000, "x y " * 10_000]
    for said in long:
        line = str(BadValue(f"--batch must be a whole number, but got '{said}'; see strata predict --help"))
        assert len(line) <= 400 and line.isprintable() and line.endswith("strata predict --help")


def test_a_relation_broken_by_an_array_shows_a_few_values():
    with pytest.raises(BadValue) as error:
        require(False, "connected layers must not exceed layers", layers=np.arange(5000.0), connected=7)
    assert str(error.value).endswith("(layers=0.0, 1.0, 2.0, ... (5000 values), connected=7)")
