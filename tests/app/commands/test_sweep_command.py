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
        "engine.step=0,1 ms",
        "--vary",
        "input=128,1024",
        "--vary",
        "output=64,128,256",
        "--json",
    )
    assert len(got["metrics"]["tpot"]) == 12
    assert got["metrics"]["tpot"][6] > got["metrics"]["tpot"][0]
