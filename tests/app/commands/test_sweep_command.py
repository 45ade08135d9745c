"""`strata sweep`: a box of single predictions."""

import pytest

import strata as st
from strata.pricing.metrics import METRIC_UNITS

LLAMA = ("--model", "llama-3-70b", "--system", "8xh200", "--batch", "64")


def test_sweep_is_a_box_of_single_predictions(answer):
    got = answer(
        "sweep",
        *LLAMA[:4],
        "--plan",
        "tp=8",
        "--vary",
        "batch=8,64",
        "--vary",
        "chip.memory.bandwidth=2:8:3 TB/s",
        "--json",
    )
    assert [a["name"] for a in got["axes"]] == ["batch", "chip.memory.bandwidth"]
    assert got["axes"][1]["values"] == [2e12, 5e12, 8e12]
    rates = iter(got["metrics"]["tokens_per_s"])
    for batch in (8.0, 64.0):
        for bandwidth in ("2 TB/s", "5 TB/s", "8 TB/s"):
            r = st.evaluate(
                st.system("8xh200", **{"memory.bandwidth": bandwidth}),
                "llama-3-70b",
                st.serve(batch, 1024.0, 1024.0),
                "tp=8",
            )
            assert next(rates) == pytest.approx(float(r.metrics.tokens_per_s), rel=1e-12)


def test_sweep_of_a_degree_fills_the_system_and_says_what_is_out(answer):
    text = answer("sweep", *LLAMA, "--vary", "plan.tp=2,3,8")
    lines = text.splitlines()
    assert "dp=the rest" in lines[0]
    assert [line.split()[:2] for line in lines if line.startswith("       3")] == [["3", "-"]]
    assert "1 of 3 points are out" in text


@pytest.mark.parametrize(
    "name",
    ["fabric.bandwidth", "fabric.nvlink.bandwidth", "fabric.0.bandwidth", "fabric.dimension.0.bandwidth"],
)
def test_sweep_takes_short_names(answer, name):
    got = answer("sweep", *LLAMA, "--plan", "tp=8", "--vary", f"{name}=100,400 GB/s", "--json")
    assert got["axes"][0]["name"] == "fabric.dimension.0.bandwidth"
    assert got["metrics"]["tokens_per_s"][0] < got["metrics"]["tokens_per_s"][1]


@pytest.mark.parametrize("metric", sorted(METRIC_UNITS))
def test_sweep_shows_every_metric(answer, metric):
    assert answer("sweep", *LLAMA, "--plan", "tp=8", "--vary", "batch=8,64", "--metric", metric)


def test_sweep_varies_engine_and_three_axes(answer):
    got = answer(
        "sweep",
        *LLAMA,
        "--plan",
        "tp=8",
        "--vary",
        "engine.host_step=0,1 ms",
        "--vary",
        "input=128,1024",
        "--vary",
        "output=64,128,256",
        "--json",
    )
    assert len(got["metrics"]["tpot"]) == 12
    assert got["metrics"]["tpot"][6] > got["metrics"]["tpot"][0]


def test_words_make_groups_of_single_predictions(answer):
    got = answer(
        *("sweep", "-m", "llama-3-70b", "--phase", "decode", "--plan", "tp=8", "--json"),
        *("--vary", "batch=log:1:64:3", "--vary", "system=8xh200,8xb200", "--vary", "engine=vllm,sglang"),
        *("--vary", "weights=bf16,fp8"),
    )
    assert [a["name"] for a in got["axes"]] == ["batch", "system", "engine", "weights"]
    assert got["axes"][0]["values"] == [1.0, 8.0, 64.0]
    values = iter(got["metrics"]["tpot"])
    for batch in (1.0, 8.0, 64.0):
        for system in ("8xh200", "8xb200"):
            for engine in ("vllm", "sglang"):
                for weights in ("bf16", "fp8"):
                    model = st.model("llama-3-70b", weights=weights)
                    work = st.decode(batch, 1024 + 512)
                    one = st.evaluate(st.system(system), model, work, "tp=8", st.engine(engine))
                    assert next(values) == pytest.approx(float(one.metrics.tpot), rel=1e-12)
    best = got["best"]
    assert best["tokens_per_s"] == max(got["metrics"]["tokens_per_s"])
    assert best["at"]["batch"] == "64"


@pytest.mark.parametrize(
    ("vary", "option"),
    [
        ("fabric=hgx-h200,nvl72", "--fabric"),
        ("kv=bf16,fp8", "--kv"),
        ("plan=tp=8;tp=4,dp=2", "--plan"),
        ("phase=decode,prefill", "--phase"),
        ("engine=ideal,vllm", "--engine"),
        ("model.layers=40,80", "--set model.layers="),
        ("model.hidden=4096,8192", "--set model.hidden="),
        ("engine.overlap=none,tiles", "--set engine.overlap="),
    ],
)
def test_a_word_is_the_option_of_predict(answer, vary, option):
    _, values = vary.split("=", 1)
    fixed = {"--plan": "tp=8", "--phase": "decode"}
    words = ["-m", "llama-3-70b", "-s", "8xh200", "--batch", "64"]
    words += [w for k, v in fixed.items() if k != option for w in (k, v)]
    got = answer("sweep", *words, "--vary", vary, "--json")
    for i, value in enumerate(values.split(";" if ";" in values else ",")):
        told = option.split(" ", 1)
        asked = [told[0], f"{told[1]}{value}"] if len(told) > 1 else [option, value]
        one = answer("predict", *words, *asked, "--json")["metrics"]["step_time"]
        assert got["metrics"]["step_time"][i] == pytest.approx(one, rel=1e-12)


def test_each_word_may_have_its_own_plan_and_what_is_out_is_said(answer):
    text = answer("sweep", "--vary", "model=llama-3-8b,llama-3.1-405b", "--vary", "system=1xh200,8xh200")
    assert "points are out: what a device holds must fit its memory" in text
    assert "best: " in text and "model llama-3-8b" in text
    got = answer(
        "sweep", "--vary", "model=llama-3-8b,llama-3-70b", "-s", "8xh200", "--plan", "best", "--json"
    )
    assert len(got["plans"]) == 2 and "question" in got and "model" not in got["question"]


def test_a_sweep_needs_a_model_and_a_system(strata):
    got = strata("sweep", "-m", "llama-3-8b", "--vary", "batch=1,2")
    assert got.code == 2 and "needs a system" in got.err


def test_a_report_of_words_alone(answer, tmp_path):
    pytest.importorskip("plotly")
    words = ("-m", "llama-3-8b", "--vary", "system=1xh100,1xh200", "--vary", "kv=bf16,fp8")
    answer("sweep", *words, "--report", tmp_path / "words.html")
    assert "The best point: system" in (tmp_path / "words.html").read_text()
