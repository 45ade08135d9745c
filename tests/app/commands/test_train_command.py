"""`strata train`: a page, its JSON with units, files, and bad input in one line."""

import json

import pytest

SMALL = ("train", "--model", "llama-3-8b", "--system", "8xh100", "--tokens", "10B", "--batch", "64")
PLAN = ("--plan", "tp=2,pp=2,dp=2,zero=1,sp=1,recompute=full")


def test_the_page_says_what_people_ask(answer):
    text = answer(*SMALL)
    for word in (
        "days",
        "USD",
        "MWh",
        "tokens/s/GPU",
        "MFU",
        "goodput",
        "memory of a device",
        "levers",
        "plans are out",
    ):
        assert word in text, word
    assert "the best of" in text and "HFU" in text and "█" in text


def test_json_has_units_and_the_same_numbers(answer):
    got = answer(*SMALL, "--json", "--scale", "4,8")
    assert got["days"] == pytest.approx(got["time_s"] / 86400)
    assert got["mwh"] == pytest.approx(got["energy_J"] / 3.6e9)
    assert (
        got["units"]["days"] == "day" and got["units"]["mwh"] == "MWh" and got["units"]["cost_USD"] == "USD"
    )
    assert got["search"]["plans"][0]["plan"] == got["plan"]
    assert [p["devices"] for p in got["scaling"]["strong"]] == [4, 8]
    again = answer(*SMALL, "--json", "--plan", got["plan"])
    assert again["days"] == pytest.approx(got["days"])


def test_files_are_written(answer, tmp_path):
    for name in ("step.html", "step.json", "step.svg"):
        answer(*SMALL, *PLAN, "--timeline", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert json.loads((tmp_path / "step.json").read_text())
    answer(*SMALL, *PLAN, "--svg", tmp_path / "run.svg", "--scale", "4,8", "--table", tmp_path / "plans.csv")
    assert "<svg" in (tmp_path / "run.svg").read_text() and "plan" in (tmp_path / "plans.csv").read_text()


def test_what_is_stated_may_be_changed(answer):
    usual = answer(*SMALL, *PLAN, "--json")
    worse = answer(
        *SMALL, *PLAN, "--json", "--set", "reliability.device_mtbf=500 h", "--checkpoint-every", "7200s"
    )
    rented = answer(*SMALL, *PLAN, "--json", "--price", "2 USD/h")
    assert worse["goodput_share"] < usual["goodput_share"] and worse["days"] > usual["days"]
    assert worse["checkpoint_interval_s"] == 7200
    assert rented["cost_USD"] == pytest.approx(8 * 2 * rented["time_s"] / 3600)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--plan", "tp=2,dp=4", "--batch", "66"), "dp=4 must divide the batch of 66"),
        (("--plan", "pp=64,dp=1"), "more stages than the 32 layers"),
        (("--tokens", "1k"), "at least one step"),
        (("--tokens", "lots"), "tokens are a number like 2T"),
        (("--timeline", "x.png"), ".html page"),
        (("--svg", "x.gif"), ".svg"),
        (("--where", "tp == 3"), "no legal plan is left"),
        (("--goal", "fastest"), "goal"),
        (("--scale", "0"), "--scale"),
        (("--model", "fft-1024"), "language models"),
        (("--set", "reliability.nothing=1"), "nothing"),
    ],
)
def test_bad_input_is_one_line(strata, words, said):
    got = strata(*SMALL, *words)
    assert got.code == 2 and said in got.err and got.err.count("\n") == 1


def test_plan_for_training_tries_the_same_levers(answer):
    got = answer(
        "plan", "-m", "llama-3-8b", "-s", "8xh100", "--phase", "train", "--batch", "64", "--input", "4096",
        "--engine", "megatron", "--json",
    )  # fmt: skip
    run = answer(*SMALL, "--json")
    assert got["plans"][0]["question"]["plan"] == run["plan"]
    assert got["considered"] == run["search"]["considered"]
