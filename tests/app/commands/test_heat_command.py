"""`strata heat`: the numbers of the Python API, a picture that is valid and always the same, and one line for
each mistake.
"""

import re
import xml.etree.ElementTree as tree
from pathlib import Path

import pytest

import strata as st
from strata.app.render.heat import RAMP, draw_temperatures


@pytest.mark.parametrize(
    "words",
    [
        ("--layers", 1),
        ("--layers", 9, "--cooling", "air", "--power", 30),
        ("--layers", 16, "--power", 20, "--map", "uniform"),
    ],
)
def test_a_stack_is_told_and_drawn(answer, tmp_path, words):
    path = tmp_path / "pictures" / "heat.svg"
    said = answer("heat", "stack-ref", *words, "--svg", path)
    for word in (
        "logic",
        "dram0",
        "hottest",
        "limit",
        "way to the coolant",
        "interface",
        "bond",
        "spreading",
        "binds",
    ):
        assert word in said, word
    assert max(map(len, said.splitlines())) <= 140
    root = tree.parse(path).getroot()
    assert root.tag.endswith("svg") and "nan" not in path.read_text().split("base64")[0]
    _, _, wide, high = map(float, root.get("viewBox").split())
    drawn = [node for node in root.iter() if node.tag.endswith("image")]
    assert len(drawn) > 5
    for node in drawn:
        assert 0 <= float(node.get("width")) <= wide and 0 <= float(node.get("height")) <= high


def test_json_has_the_numbers_of_the_python_api(answer):
    data = answer(
        "heat",
        "stack-ref",
        "--layers",
        3,
        "--power",
        "50 W",
        "--dram-power",
        4,
        "--set",
        "bond_thickness=5 um",
        "--transient",
        "100ms",
        "--json",
    )
    found = st.hardware.heat("stack-ref", 50.0, 4.0, layers=3, bond_thickness=5e-6, duration=0.1)
    assert [d["max_K"] for d in data["dies"]] == pytest.approx([d.hottest for d in found.dies])
    assert [d["name"] for d in data["dies"]] == ["dram2", "dram1", "dram0", "logic"]
    assert data["power_W"] == pytest.approx(62.0) == pytest.approx(data["heat_out_W"])
    assert data["fits"] and data["why"] is None and data["binding"] == found.binding.name
    assert data["history"]["max_K"]["logic"] == pytest.approx(found.history.hottest["logic"].tolist())


def test_too_hot_is_an_answer(answer):
    data = answer("heat", "stack-ref", "--layers", 12, "--power", 100, "--json")
    assert not data["fits"] and "levers" in data["why"] and data["highest_power_W"] < data["power_W"]
    assert "too hot: temperature of dram0" in answer("heat", "stack-ref", "--layers", 12, "--power", 100)


def test_the_same_stack_gives_the_same_picture(tmp_path):
    found = [st.hardware.heat("stack-ref", 50.0, 4.0, layers=2, cells=8) for _ in range(2)]
    one, two = (draw_temperatures(f, tmp_path / f"{i}.svg").read_text() for i, f in enumerate(found))
    assert one == two and "binds" in one


def test_colours_go_from_pale_to_dark():
    light = [sum(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for colour in RAMP]
    assert light == sorted(light, reverse=True)


def test_the_picture_of_the_docs_is_up_to_date(tmp_path):
    path = Path(__file__).parents[3] / "docs" / "heat" / "stack-ref.svg"
    fresh = draw_temperatures(st.hardware.heat("stack-ref", layers=4), tmp_path / "stack.svg").read_text(
        encoding="utf-8"
    )
    words = [re.findall(r">([^<>]+)</text>", text) for text in (path.read_text(encoding="utf-8"), fresh)]
    assert words[0] == words[1], f"run: strata heat stack-ref --layers 4 --svg {path}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stack-reff",), "no chip called 'stack-reff'"),
        (("stack-ref", "--cooling", "watr"), "no cooling called 'watr'"),
        (("stack-ref", "--layers", "2.5"), "--layers must be a positive whole number"),
        (("stack-ref", "--power", "warm"), "--power"),
        (("stack-ref", "--power", "1e6"), "temperature that the materials hold"),
        (("stack-ref", "--map", "nowhere.csv"), "no CSV file at nowhere.csv"),
        (("stack-ref", "--set", "bond"), "--set takes PATH=VALUE"),
        (("stack-ref", "--transient", "2"), "--transient"),
        (("stack-ref", "--layers", "120"), "but its package has room for"),
    ],
)
def test_mistakes_get_one_line(strata, words, said):
    got = strata("heat", *words)
    assert got.code == 2 and said in got.err and got.err.count("\n") == 1 and got.out == ""
