"""`strata speculate`: the numbers of the Python API, a picture that is valid, and one line for each mistake."""

import xml.etree.ElementTree as tree

import pytest

import strata as st

ASKED = ("speculate", "--target", "llama-3-70b", "--draft", "llama-3.2-1b,llama-3-8b", "--system", "8xh200")


def test_tables_tell_rates_and_the_best(answer):
    said = answer(*ASKED, "--window", "1:4", "--acceptance", "0.6,0.8")
    for word in ("without guesses", "llama-3.2-1b guesses", "a = 0.8", "verifying", "*", "best", "speed-up"):
        assert word in said, word
    assert max(map(len, said.splitlines())) <= 140


def test_json_has_the_numbers_of_the_python_api(answer):
    data = answer(*ASKED, "--window", "2,4", "--acceptance", "0.7", "--tree", "--plan", "tp=8", "--json")
    found = st.serving.compare_drafts(
        "llama-3-70b",
        ["llama-3.2-1b", "llama-3-8b"],
        "8xh200",
        window=[2, 4],
        acceptance=[0.7],
        branches=2,
        plan="tp=8",
    )
    assert data["window"] == [2, 4] and data["question"]["branches"] == 2
    for one in data["drafts"]:
        assert [r for row in one["tokens_per_s"] for r in row] == pytest.approx(
            found.tokens_per_s(one["draft"]).ravel().tolist()
        )
        assert one["verified"] == [7, 31] and one["same_vocabulary"]
    assert data["best_draft"] == found.best_drafts()


def test_changes_reach_both_models(answer):
    slow = answer(*ASKED, "--window", "4", "--set", "chip.memory.bandwidth=1 TB/s", "--json")
    fast = answer(*ASKED, "--window", "4", "--json")
    assert slow["tokens_per_s_without"] < fast["tokens_per_s_without"]
    assert slow["drafts"][0]["guess"][0] > fast["drafts"][0]["guess"][0]


def test_another_vocabulary_is_told(answer):
    said = answer("speculate", "--target", "llama-3.1-405b", "--draft", "llama-68m", "-s", "16xsn40l")
    assert "llama-68m has another vocabulary" in said


def test_the_picture_is_valid(strata, tmp_path):
    got = strata(*ASKED, "--window", "1:3", "--svg", tmp_path / "map.svg")
    assert got.code == 0 and "picture" in got.err
    text = (tmp_path / "map.svg").read_text()
    tree.fromstring(text)
    for word in ("llama-3-8b guesses", "tokens/s", "acceptance"):
        assert word in text, word


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--acceptance", "1.2"), "--acceptance must lie between 0 and 1"),
        (("--acceptance", "high"), "--acceptance must be a number"),
        (("--window", "0"), "--window must be a positive whole number"),
        (("--window", "8:1"), "--window is a range like 1:8"),
        (("--draft", "llama-3.1-405b"), "is larger than its target"),
        (("--draft", ","), "--draft names at least one model"),
        (("--draft", "llama-4b"), "no model called"),
        (("--target", "gemm-8192"), "--target is a language model"),
        (("--tree", "--branches", "3"), "give one of them"),
        (("--tree", "--window", "12"), "at most 4096 tokens"),
        (("--counting", "linear"), "no way to count tokens"),
        (("--svg", "map.html"), "ends in .svg"),
    ],
)
def test_mistakes_are_one_line(strata, words, said):
    got = strata(*ASKED, *words)
    assert got.code != 0 and said in got.err and got.err.count("\n") == 1
