"""`strata power-cap`: the numbers of the Python API, a picture that is valid, and one line for each mistake."""

import xml.etree.ElementTree as tree

import pytest

import strata as st

ASKED = ("power-cap", "-m", "llama-3-70b", "-s", "8xh200", "-b", "64", "-i", "512", "-o", "128", "-p", "tp=8")


def test_a_table_tells_speed_power_and_energy_and_the_best_cap(answer):
    said = answer(*ASKED, "--caps", "300:700:5")
    for word in (
        "cap",
        "tokens/s",
        "tpot",
        "clock",
        "at the plug",
        "J/token, plug",
        "* least energy",
        "at rest",
    ):
        assert word in said, word
    assert max(map(len, said.splitlines())) <= 140


def test_prompts_as_an_interval_are_ranges(answer):
    said = answer(*ASKED[:7], "-i", "200:800", "-o", "128", "-p", "tp=8", "--caps", "400,700")
    assert " kW" in said and "-" in said.splitlines()[2]
    assert max(map(len, said.splitlines())) <= 140


def test_json_has_the_numbers_of_the_python_api(answer):
    data = answer(*ASKED, "--caps", "0.4,0.7 kW", "--json")
    found = st.search.power_caps("8xh200", "llama-3-70b", st.serve(64, 512, 128), "tp=8", caps=[400.0, 700.0])
    assert [row["cap_W"] for row in data["rows"]] == [400.0, 700.0]
    assert [row["energy_per_token"] for row in data["rows"]] == pytest.approx(
        found.middle("energy_per_token").tolist()
    )
    assert data["best_cap_W"] == found.caps[found.best] and data["idle_power_W"] == found.idle_power
    assert data["units"]["cap_W"] == "W" and data["units"]["tokens_per_s"] == "1/s"


def test_a_changed_limit_bounds_the_caps(answer):
    data = answer(*ASKED, "--set", "chip.energy.power_limit=500 W", "--json")
    assert data["rows"][-1]["cap_W"] == 500.0


def test_the_picture_is_valid_and_the_same_twice(strata, tmp_path):
    for name in ("one.svg", "two.svg"):
        got = strata(*ASKED, "--caps", "300:700:5", "--svg", tmp_path / name)
        assert got.code == 0 and "picture" in got.err
    one, two = ((tmp_path / name).read_bytes() for name in ("one.svg", "two.svg"))
    assert one == two and tree.fromstring(one).tag.endswith("svg")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--caps", "100"), "above what a h200 draws at rest"),
        (("--caps", "900"), "at most the limit of a h200"),
        (("--caps", "300:400"), "like 400,500,600 or 300:700:9"),
        (("--caps", "many"), "like 400,500,600 or 300:700:9"),
        (("--caps", "400 V"), "W"),
        (("--input", "800:200"), "interval like 200:800"),
        (("--svg", "caps.html"), "ends in .svg"),
    ],
)
def test_mistakes_are_one_line(strata, more, why):
    got = strata(*ASKED, *more)
    assert got.code != 0 and why in got.err and got.err.count("\n") == 1
