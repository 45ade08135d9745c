"""`strata compare`: several values of an option, prices by chip, files, and one line for each mistake."""

import csv
import math
import xml.etree.ElementTree as tree

import pytest

import strata as st
from strata.app.commands.plan import SEVERAL, repeated_options, typed_prices

ASKED = ("compare", "-m", "llama-3.1-8b", "-s", "1xh200", "1xb200", "1xstack-ref", "--engine", "vllm")
SMALL = ("-i", "512", "-o", "128", "--tpot", "15ms")


def test_the_table_has_a_row_each_and_says_why(answer):
    said = answer(*ASKED, *SMALL)
    for word in ("1xh200", "1xb200", "1xstack-ref", "USD/Mtok", "J/Mtok", "USD/dev-h", "95 %", "ratio"):
        assert word in said, word
    assert "TPOT at most 15 ms" in said and "x tokens/s:" in said and "levers:" in said
    assert max(map(len, said.splitlines())) <= 140


def test_rows_with_several_names_stay_within_the_screen(answer):
    said = answer(
        "compare", "-m", "llama-3.1-8b,qwen3-8b", "-s", "2xh200", "--engine", "vllm,trtllm", *SMALL,
        "--plan", "best", "tp=2", "--goal", "cheapest",
    )  # fmt: skip
    assert max(map(len, said.splitlines())) <= 140 and "…" not in said
    assert said.count("trtllm") >= 4


def test_json_has_the_numbers_of_the_python_api(answer):
    data = answer(*ASKED, *SMALL, "--json")
    found = st.search.compare(
        ["1xh200", "1xb200", "1xstack-ref"], "llama-3.1-8b", st.serving.Requests(512, 128), "vllm", tpot=0.015
    )
    assert [row["fits"] for row in data["rows"]] == [True, True, False]
    assert data["against"] == "1xh200" and data["ranking"][0] == found.label(found.ranking[0])
    row, own = data["rows"][1], found.rows[1]
    assert row["metrics"]["tokens_per_s"] == pytest.approx(own.answer.tokens_per_s)
    assert row["ratio"] == pytest.approx(own.difference.ratio)
    assert math.fsum(r["log_share"] for r in row["reasons"]) == pytest.approx(math.log(row["ratio"]))
    assert row["confidence"] in ("distinguishable", "not distinguishable")
    assert row["intervals"]["tokens_per_s"]["points"] >= 10
    assert "does not fit" in data["rows"][2]["why_none"] or "levers" in data["rows"][2]["why_none"]


def test_files_hold_the_rows(answer, tmp_path):
    table, picture, page = (tmp_path / name for name in ("a.csv", "a.svg", "a.html"))
    answer(*ASKED, *SMALL, "--table", str(table), "--svg", str(picture), "--report", str(page))
    rows = list(csv.DictReader(table.open()))
    assert [row["system"] for row in rows] == ["1xh200", "1xb200", "1xstack-ref"]
    assert float(rows[1]["tokens_per_s [1/s]"]) > 0 and rows[2]["tokens_per_s [1/s]"] == ""
    assert float(rows[1]["ratio"]) == pytest.approx(
        float(rows[1]["tokens_per_s [1/s]"]) / float(rows[0]["tokens_per_s [1/s]"])
    )
    assert tree.parse(picture).getroot().tag.endswith("svg")
    drawn = picture.read_text()
    assert "1xstack-ref (no answer)" in drawn and "USD/Mtoken" in drawn and "TTFT" in drawn
    text = page.read_text()
    assert "Why they differ" in text and "class='bars'" in text and "http-equiv" not in text


def test_prices_by_chip_and_by_system(answer):
    data = answer(*ASKED, *SMALL, "--price", "h200=2.5,1xb200=5 USD/h", "--json")
    assert [row["metrics"]["cost_per_device_hour"] for row in data["rows"][:2]] == pytest.approx([2.5, 5.0])
    data = answer(*ASKED, *SMALL, "--price", "3", "--goal", "cheapest", "--json")
    assert [row["metrics"]["cost_per_device_hour"] for row in data["rows"][:2]] == pytest.approx([3.0, 3.0])
    assert not [r for r in data["rows"][1]["reasons"] if r["what"] == "price" and abs(r["log_share"]) > 1e-9]


def test_training_has_days_and_cost(answer):
    data = answer(
        "compare",
        "-m",
        "llama-3.1-8b",
        "-s",
        "8xh200",
        "8xb200",
        "--phase",
        "train",
        "--batch",
        "64",
        "--json",
    )
    metrics = data["rows"][0]["metrics"]
    assert metrics["train_days"] == pytest.approx(1e12 / 86400 / metrics["tokens_per_s"])
    assert metrics["train_cost"] == pytest.approx(1e6 * metrics["cost_per_mtoken"])
    assert "ttft" not in metrics


def test_several_values_follow_one_option():
    words = ["-m", "a", "b", "--system", "c", "d", "--json", "--engine=e", "f", "--plan", "tp=8", "tp=4,dp=2"]
    assert repeated_options(words, SEVERAL) == [
        "-m", "a", "-m", "b", "--system", "c", "--system", "d", "--json",
        "--engine=e", "--engine", "f", "--plan", "tp=8", "--plan", "tp=4,dp=2",
    ]  # fmt: skip
    assert repeated_options(["--ttft", "2s", "x"], SEVERAL) == ["--ttft", "2s", "x"]
    assert typed_prices(None, ["1xh200"]) == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-s", "1xh20o"), "no chip called 'h20o'"),
        (("-s", "1xh200", "--engine", "vlm"), "no engine called 'vlm'"),
        (("-s", "1xh200", "--plan", "tp"), "a plan is written like"),
        (("-s", "1xh200", "--price", "b200=3"), "no chip or system of this comparison called 'b200'"),
        (("-s", "1xh200", "--price", "h200="), "--price is written like"),
        (("-s", "1xh200", "--price", "nan"), "--price is a price of a device-hour"),
        (("-s", "1xh200", "--against", "1xa100"), "no row of this comparison"),
        (("-s", "1xh200", "--goal", "x"), "no goal called 'x'"),
        (("-s", "1xh200", "--phase", "forward"), "phase must be one of"),
        (("-s", "1xh200", "--phase", "decode", "--ttft", "1s"), "no limit on ttft"),
        (("-s", "1xh200", "--batch", "0"), "--batch must be a positive whole number"),
        (("-s", "1xh200", "--svg", "a.gif"), "ends in .svg"),
        (("-s", ","), "--system needs a name"),
        ((), "compare needs --system"),
    ],
)
def test_one_line_for_each_mistake(strata, words, said):
    got = strata("compare", "-m", "llama-3.1-8b", *words)
    assert got.code == 2 and got.out == ""
    assert said in got.err and got.err.count("\n") == 1


def test_where_nothing_fits_the_rows_are_told_and_the_exit_code_says_so(strata):
    got = strata("compare", "-m", "llama-3.1-70b", "-s", "1xh100", "1xstack-ref")
    assert got.code == 2 and got.err.count("\n") == 1
    assert "1xh100" in got.out and "and 1 more row without an answer" in got.err
