"""`strata codesign`: what changed and what binds, for people and machines, a picture, and mistakes."""

import xml.etree.ElementTree as tree

import pytest

V100 = (
    "codesign", "--technology", "deepflow-v100", "--template", "deepflow-2021-capped", "--budget",
    "deepflow-v100", "--program", "lstm-lm-v100", "--batch", "256", "--system", "4", "--strategy", "d4",
    "--evaluations", "300",
)  # fmt: skip


def test_what_changed_and_what_binds_is_told(answer):
    said = answer(*V100)
    for word in ("time of a step of lstm-lm-v100", "as stated", "30.0 ->", "die area", "devices", "bound by"):
        assert word in said, word
    assert max(map(len, said.splitlines())) <= 140


def test_methods_side_by_side_as_json_and_as_a_picture(answer, tmp_path):
    data = answer(*V100, "--compare", "--svg", str(tmp_path / "v100.svg"), "--json")
    assert data["best"] < data["stated"] and data["methods"]["gradient"]["gap"] >= 0.0
    assert data["trace"][-1][1] == data["best"] and data["evaluations"] == 300
    assert set(data["worth_of_one_percent"]) == {"die_area", "node_area", "power"}
    texts = " ".join(t.text or "" for t in tree.parse(tmp_path / "v100.svg").iter() if t.tag.endswith("text"))
    assert "as stated" in texts and "search-nsga2" in texts


def test_choices_alone_are_proven(answer):
    said = answer(*V100, "--strategy", "RC-1-4", "--free", "strategy")
    assert "all evaluated, proven" in said and "RC-1-4" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--method", "gradeint"), "nearest: gradient"),
        (("--free", "aera"), "nearest: area"),
        (("--system", "four"), "PACKAGESxDEVICES"),
        (("--spend", "some"), "spend is all or stated"),
        (("--evaluations", "0"), "positive whole number"),
    ],
)
def test_mistakes_get_one_line(strata, more, said):
    got = strata(*V100, *more)
    assert got.code != 0 and said in got.err and "\n" not in got.err.strip()
