"""`strata area` and `strata cost`: the numbers of the Python API, a picture, one line for each mistake."""

import xml.etree.ElementTree as tree

import pytest

import strata as st


def test_area_is_told(answer):
    said = answer("area", "stack-ref")
    for word in (
        "8 cores",
        "local memory",
        "vertical",
        "interfaces",
        "unused",
        "edge: 36 of 40 mm",
        "crossbar in the logic die",
    ):
        assert word in said, word
    assert max(map(len, said.splitlines())) <= 140


def test_json_has_the_numbers_of_the_python_api(answer):
    data, found = answer("area", "stack-ref", "--json"), st.hardware.area("stack-ref")
    assert data["cores"] == float(found.cores) == 8 and data["infeasible"] is None
    assert data["parts_m2"] == pytest.approx({k: float(v) for k, v in found.parts.items()})
    assert sum(data["parts_m2"].values()) == pytest.approx(data["die_m2"])
    money = answer("cost", "stack-ref", "--json")
    assert money["made_USD"] == pytest.approx(float(st.hardware.cost("stack-ref").made)) and sum(
        money["parts_USD"].values()
    ) == pytest.approx(money["made_USD"])
    assert money["price_USD"] is None and 0 < money["stacking_yield"] < 1


def test_energies_of_geometry_stand_beside_those_stated(answer):
    found = answer("area", "stack-ref", "--json")["energies"]
    assert set(found) == {"local_memory", "across_the_die", "up_the_stack", "leakage"}
    assert found["up_the_stack"] == pytest.approx({"geometry_J_per_B": 1e-12, "stated_J_per_B": 16e-12})
    assert found["leakage"]["geometry_W"] == pytest.approx(6) and found["leakage"][
        "stated_W"
    ] == pytest.approx(12.5)
    said = answer("area", "stack-ref")
    for word in ("by geometry", "stated", "up the stack", "an operand for all 8 cores"):
        assert word in " ".join(said.split()), word


def test_routers_that_copy_save_links(answer):
    mesh = answer("area", "stack-ref", "--set", "noc.topology=ring", "--json")["network"]
    assert mesh["shared_hops"] < mesh["shared_unicast_hops"] and mesh["shared_hops"] >= 8


def test_a_system_costs_its_chips_and_what_joins_them(answer):
    found = answer("cost", "--system", "8xh200", "--json")
    assert found["devices"] == 8 and found["made_USD"] == pytest.approx(
        8 * float(st.hardware.cost("h200").made)
    )
    assert (
        found["bought_USD"] == pytest.approx(8 * float(st.chip("h200").package.price))
        and found["made_USD"] < found["bought_USD"]
    )
    assert "chips, to buy" in answer("cost", "--system", "256xstack-ref")
    deeper = answer("cost", "--system", "256xstack-ref", "--set", "stack.layers=8", "--json")
    assert deeper["made_USD"] > answer("cost", "--system", "256xstack-ref", "--json")["made_USD"]
    assert answer("cost", "--system", "8xp4", "--json")["made_USD"] is None


def test_a_systems_cost_and_power_by_dfmodels_counts(answer):
    name = "1024xdfmodel-h100"  # 8 x 128 torus, DDR, PCIe: 34,630,400 USD and 823,946 W published
    found = answer("cost", "--system", name, "--dfmodel", "--json")
    assert found["cost_USD"] == pytest.approx(34630400) and found["power_W"] == pytest.approx(
        823945.855, rel=1e-7
    )
    assert sum(found["power_parts_W"].values()) == found["power_W"]
    assert "34,630,400" in answer("cost", "--system", name, "--dfmodel")
    dearer = answer("cost", "--system", f"{name}+dfmodel-hbm3+dfmodel-nvlink4", "--dfmodel", "--json")
    assert dearer["cost_parts_USD"]["memory"] == pytest.approx(1024 * 3072)
    assert dearer["cost_parts_USD"]["links"] == pytest.approx(9 * found["cost_parts_USD"]["links"])


def test_layers_are_compared(answer):
    stacks = answer("area", "stack-ref", "--layers", "1:12", "--json")["stacks"]
    assert [s["layers"] for s in stacks] == list(range(1, 13))
    cores = [s["cores"] for s in stacks]
    assert cores == sorted(cores, reverse=True) and cores[3] == 8 and cores[11] < 4
    assert "layers" in answer("area", "stack-ref", "--layers", "2,4")
    costs = [s["made_USD"] for s in answer("cost", "stack-ref", "--layers", "2,4,8", "--json")["stacks"]]
    assert costs == sorted(costs)


def test_numbers_of_chip_and_floorplan_can_be_set(answer):
    finer = answer(
        "area", "stack-ref", "--set", "stack.layers=8", "--set", "floorplan.via_pitch=8 um", "--json"
    )
    assert finer["cores"] > answer("area", "stack-ref", "--set", "stack.layers=8", "--json")["cores"]
    partly = answer("area", "stack-ref", "--set", "stack.connected_layers=2", "--layers", "8", "--json")[
        "stacks"
    ][0]
    assert partly["cores"] > answer("area", "stack-ref", "--layers", "8", "--json")["stacks"][0]["cores"]
    above = answer("area", "stack-ref", "--set", "noc.placement=dram", "--json")["network"]
    assert (
        above["placement"] == "dram"
        and above["spread_s"] > answer("area", "stack-ref", "--json")["network"]["spread_s"]
    )
    assert answer("cost", "stack-ref", "--set", "technology=n3", "--json")["technology"] == "n3"


def test_no_core_is_an_answer_with_levers(answer):
    data = answer("area", "stack-ref", "--set", "package.die_area=45 mm2", "--json")
    assert data["cores"] == 0 and "levers" in data["infeasible"] and data["network"] is None
    assert "cannot be built" in answer("area", "stack-ref", "--set", "package.die_area=45 mm2")


def test_a_floorplan_serves_another_chip(answer, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "stack-ref"\nname = "mine"\n')
    assert answer("area", path, "--floorplan", "stack-ref", "--json")["cores"] == 8
    assert (
        answer("cost", path, "--floorplan", "stack-ref", "--layers", "3", "--json")["stacks"][0]["layers"]
        == 3
    )


def test_the_picture_is_valid_and_always_the_same(answer, tmp_path):
    pytest.importorskip("matplotlib")
    paths = [tmp_path / "a" / "one.svg", tmp_path / "two.svg"]
    for path in paths:
        answer("area", "stack-ref", "--layers", "1,2", "--svg", path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert tree.parse(paths[0]).getroot().tag.endswith("svg") and "vertical" in paths[0].read_text()
    answer("area", "h100", "--svg", tmp_path / "flat.svg")
    assert (tmp_path / "flat.svg").exists()


BAD = {
    "unknown chip": (("area", "stack-rev"), ["no chip called 'stack-rev'", "stack-ref"]),
    "no floorplan": (("cost", "tpu-v4"), ["nothing says how chip 'tpu-v4' is made", "stack-ref"]),
    "no areas": (("area", "b200"), ["b200 has no [floorplan]"]),
    "layers of a flat chip": (
        ("area", "h200", "--layers", "2"),
        ["--layers needs a chip with stacked DRAM", "HBM3e"],
    ),
    "neither chip nor system": (("cost",), ["cost needs a chip, or --system"]),
    "chip and system": (("cost", "h200", "--system", "8xh200"), ["cost needs a chip, or --system"]),
    "unknown system": (("cost", "--system", "8xh300"), ["h300"]),
    "layers of a system": (("cost", "--system", "8xh200", "--layers", "2"), ["--layers compares chips"]),
    "layers 0": (
        ("area", "stack-ref", "--layers", "0"),
        ["--layers must be a positive whole number, but got '0'"],
    ),
    "layers down": (("cost", "stack-ref", "--layers", "4:2"), ["FROM:TO goes up"]),
    "no value": (("area", "stack-ref", "--set", "layers"), ["--set takes PATH=VALUE"]),
    "unknown quantity": (("area", "stack-ref", "--set", "floorplan.via_pich=3 um"), ["via_pich"]),
    "wrong unit": (("area", "stack-ref", "--set", "floorplan.via_pitch=3"), ["floorplan.via_pitch", "m"]),
    "unknown word": (
        ("area", "stack-ref", "--set", "noc.topology=torus"),
        ["noc.topology must be one of crossbar, mesh, ring"],
    ),
    "unknown technology": (
        ("cost", "stack-ref", "--set", "technology=n6"),
        ["no technology called 'n6'", "n5"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_line(strata, case):
    words, said = BAD[case]
    got = strata(*words)
    assert got.code == 2 and len(got.err.strip().splitlines()) == 1 and not got.out
    for part in said:
        assert part in got.err, got.err


def test_stated_cores_are_drawn_and_held_against_what_fits(answer):
    for stated, says in ((16, "a logic die of 16 cores, of which 8 fit"), (4, "4 are stated and drawn")):
        assert says in " ".join(answer("area", "stack-ref", "--set", f"compute.cores={stated}").split())
    assert "cannot be built" not in answer("area", "stack-ref", "--set", "compute.cores=4")
