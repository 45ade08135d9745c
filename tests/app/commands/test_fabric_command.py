"""`strata fabric`: the numbers of the Python API, a picture that is valid and always the same, and one line
for each mistake.
"""

import re
import xml.etree.ElementTree as tree
from pathlib import Path

import pytest

import strata as st
from strata.app.render.fabric import draw_fabric, shown_of
from strata.params import names


@pytest.mark.parametrize("name", names("fabric"))
def test_every_fabric_is_told_and_drawn(answer, tmp_path, name):
    path = tmp_path / "pictures" / f"{name}.svg"
    said = answer("fabric", name, "--svg", path)
    for word in (
        name,
        "bisection",
        "diameter",
        "mean hops",
        "energy",
        "all-reduce",
        "all-to-all",
        "price",
        "whole fabric",
    ):
        assert word in said, word
    assert max(map(len, said.splitlines())) <= 140
    root = tree.parse(path).getroot()
    assert (
        root.tag.endswith("svg")
        and "nan" not in path.read_text()
        and "inf" not in path.read_text().replace("infini", "")
    )
    _, _, wide, high = map(float, root.get("viewBox").split())
    placed = re.findall(r"translate\(([\d.e-]+) ([\d.e-]+)\)|[ML] ([\d.e-]+) ([\d.e-]+)", path.read_text())
    assert len(placed) > 10
    for a, b, c, d in placed:
        assert -1 <= float(a or c) <= wide + 1 and -1 <= float(b or d) <= high + 1


def test_json_has_the_numbers_of_the_python_api(answer):
    data = answer("fabric", "fat-tree-ndr", "--sizes", "8,16,3", "--json")
    found = st.hardware.topology("fat-tree-ndr", (8, 16, 3))
    assert data["whole"]["size"] == 384 and data["whole"]["bisection_B_per_s"] == pytest.approx(
        float(found.whole.bisection)
    )
    assert [d["name"] for d in data["dimensions"]] == ["nvlink", "leaf", "spine"] and data["open"] == []
    spine = data["dimensions"][2]
    assert (spine["oversubscription"], spine["port_B_per_s"], spine["bandwidth_B_per_s"]) == (
        3,
        50e9,
        pytest.approx(50e9 / 3),
    )
    assert spine["all_to_all_B_per_s"] == pytest.approx(float(found.dimension[2].all_to_all))


def test_an_open_dimension_is_shown_with_four_members_and_said(answer):
    assert "the size of infiniband is open; shown with 4" in answer("fabric", "hgx-h200")
    assert answer("fabric", "hgx-h200", "--json")["whole"]["size"] == 32
    assert "is open" not in answer("fabric", "hgx-h200", "--sizes", "8,2")


def test_one_device_has_no_bounds(answer):
    data = answer("fabric", "hgx-h200", "--sizes", "1", "--json")["whole"]
    assert (data["size"], data["bisection_B_per_s"], data["all_reduce_B_per_s"], data["links"]) == (
        1,
        0,
        None,
        0,
    )
    assert "one device" in answer("fabric", "hgx-h200", "--sizes", "1")


def test_numbers_can_be_set(answer):
    plain = answer("fabric", "hgx-h200", "--sizes", "8,4", "--json")["whole"]["bisection_B_per_s"]
    tapered = answer(
        "fabric", "hgx-h200", "--sizes", "8,4", "--set", "infiniband.oversubscription=2", "--json"
    )["whole"]["bisection_B_per_s"]
    assert tapered == plain / 2
    assert (
        answer("fabric", "hgx-h200", "--set", "bandwidth=900 GB/s", "--json")["dimensions"][0]["port_B_per_s"]
        == 900e9
    )


def drawn(folder, name, sizes=None):
    return draw_fabric(st.hardware.topology(name, sizes), folder / f"{name}.svg").read_text(encoding="utf-8")


def test_the_same_fabric_gives_the_same_picture(tmp_path):
    once, again = (drawn(tmp_path, "torus-256") for _ in range(2))
    assert once == again
    assert "torus of 4 × 4" in once and "mesh of 2 × 2" in once and "256 devices" in once


def test_pictures_leave_members_out_where_they_are_many(tmp_path):
    assert drawn(tmp_path, "hgx-h200", (8, 4000)).count('id="patch_') < 100
    assert shown_of(3, 8) == [0, 1, 2] and None in shown_of(100, 8) and len(shown_of(100, 8)) == 8


BAD = {
    "unknown": (
        ("fabric", "hgx-h20"),
        ["no fabric called 'hgx-h20'", "nearest: hgx-h200", "strata list fabrics"],
    ),
    "size 0": (
        ("fabric", "hgx-h200", "--sizes", "8,0"),
        ["--sizes must be a positive whole number, but got '0'"],
    ),
    "not a number": (
        ("fabric", "hgx-h200", "--sizes", "8,x"),
        ["--sizes must be a positive whole number, but got 'x'"],
    ),
    "too many": (
        ("fabric", "hgx-h200", "--sizes", "8,4,2"),
        ["--sizes has 3 numbers", "has 2 dimensions: nvlink, infiniband"],
    ),
    "no value": (("fabric", "hgx-h200", "--set", "bandwidth"), ["--set takes PATH=VALUE"]),
    "unknown quantity": (("fabric", "hgx-h200", "--set", "bandwith=1 GB/s"), ["'bandwith'"]),
    "below 1": (
        ("fabric", "hgx-h200", "--set", "infiniband.oversubscription=0.5"),
        ["oversubscription must be at least 1"],
    ),
    "a ring": (
        ("fabric", "sn-node", "--set", "oversubscription=2"),
        ["needs kind switch or dragonfly", "rdu-connect is a ring"],
    ),
    "no name": (("fabric",), ["fabric needs"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line(strata, case):
    words, said = BAD[case]
    got = strata(*words)
    assert got.code == 2 and got.out == "" and got.err.count("\n") == 1
    assert all(s in got.err for s in said), got.err


@pytest.mark.parametrize(
    ("name", "sizes"), [("fat-tree-ndr", (8, 48, 4)), ("slingshot-dragonfly", (4, 128, 74))]
)
def test_the_pictures_of_the_docs_are_up_to_date(tmp_path, name, sizes):
    path = Path(__file__).parents[3] / "docs" / "fabrics" / f"{name}.svg"
    assert path.read_text(encoding="utf-8") == drawn(tmp_path, name, sizes), (
        f"run: strata fabric {name} --svg {path}"
    )
