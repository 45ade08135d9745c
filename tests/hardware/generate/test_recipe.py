"""Chips whose files say what they are generated from: every number of that may be changed, and the chip follows."""

import numpy as np
import pytest

import strata as st
from strata.base.errors import BadFile, BadValue, UnknownName
from strata.hardware.generate.recipe import changed_recipe, generation, recipe
from strata.params import leaf_paths, stated, value_at

NAME = "deepflow-v100"
FILES = ("deepflow-v100", "deepflow-v100", "deepflow-2021-capped")


def assert_same_chip(one, other):
    """Every quantity that both have outside of what they are generated from."""
    for path in leaf_paths(one):
        if not path.startswith("recipe."):
            assert np.array_equal(value_at(one, path), value_at(other, path)), path


def test_a_chip_by_name_is_what_its_files_generate():
    assert_same_chip(generation(*FILES).chip, st.chip(NAME))


@pytest.mark.parametrize(
    "changes",
    [
        {"budget.power": 250.0},
        {"budget.power": "0.25 kW", "budget.area_share.l2": 0.1},
        {"technology.logic.clock": 1.2e9},
        {"technology.on_chip.2.read_energy": "2 pJ/B"},
        {"device.pin_rate": "0.2 GB/s"},
        {"template.units_per_bundle": 4.0},
        {"template.rules.count": "bundles"},
        {"links.inter.lane_rate": "60 MB/s"},
        {"budget.die_area": np.array([500e-6, 815e-6])},
    ],
)
def test_a_change_of_the_recipe_is_a_change_of_what_generates(changes):
    changed, made = st.chip(NAME, **changes), generation(*FILES, **changes)
    assert_same_chip(made.chip, changed)
    for path, value in changes.items():
        if not isinstance(value, str):
            assert np.array_equal(value_at(changed.recipe, path), value)
    assert np.array_equal(changed.networks.dimension[0].bandwidth, made.fabric.dimension[-1].bandwidth)


def test_short_and_whole_paths_mean_the_same():
    power = [st.chip(NAME, **{name: 250.0}) for name in ("power", "budget.power", "recipe.budget.power")]
    rates = {float(chip.compute.matrix_rate["fp16"]) for chip in power}
    assert len(rates) == 1 and rates != {float(st.chip(NAME).compute.matrix_rate["fp16"])}


def test_a_quantity_of_the_chip_replaces_the_generated_one():
    both = st.chip(NAME, **{"memory.bandwidth": "2 TB/s", "budget.power": 250.0})
    assert both.memory.bandwidth == 2e12
    assert both.sources["memory.bandwidth"].source == "given by the caller"
    assert both.compute.clock == st.chip(NAME, **{"budget.power": 250.0}).compute.clock
    assert both.sources["recipe.budget.power"].source == "given by the caller"
    assert both.sources["compute.clock"].source.startswith("derived: ")
    assert "v100.yaml" in both.sources["recipe.budget.die_area"].source


def test_every_number_of_a_generated_chip_says_where_it_comes_from():
    told = stated(st.chip("gpu-n3"))
    assert told["recipe.technology.logic.clock"].source and told["recipe.links.inter.lane_rate"].source
    bare = [path for path, p in told.items() if p.source.startswith("derived from the other numbers")]
    assert bare == []


def test_words_name_other_files():
    chip = st.chip(NAME, **{"generated.technology": "deepflow-n7", "generated.device": "deepflow-hbm3"})
    made = generation("deepflow-n7", FILES[1], FILES[2], device="deepflow-hbm3")
    assert_same_chip(made.chip, chip)
    assert (chip.generated.technology, chip.generated.device) == ("deepflow-n7", "deepflow-hbm3")
    fast = st.chip("gpu-n3", **{"generated.links.inter": "nvlink6"})
    assert fast.recipe.links["inter"].name == "nvlink6"
    assert st.chip("gpu-n3").generated.links == {"inter": "nvlink5"}


def test_memory_on_the_die_follows_the_technology():
    usual = recipe("n7", "wse-2", "wafer")
    assert usual.device.mount == "on die"
    at = [memory.name for memory in usual.technology.on_chip].index(usual.device.name)
    changed, _ = changed_recipe(usual, {f"technology.on_chip.{at}.bank_capacity": "8 KiB"})
    assert changed.device.capacity == 8192.0 != usual.device.capacity


def test_what_a_file_states_itself_stays(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "deepflow-v100"\nname = "mine"\ntitle = "mine"\n'
        '[memory]\nbandwidth = { value = "3 TB/s", source = "assumed: of this test" }\n'
        '[overhead]\nkernel = { value = "1 us", source = "assumed: of this test" }\n'
    )
    mine = st.chip(str(path), **{"budget.power": 200.0})
    assert (mine.memory.bandwidth, mine.overhead.kernel, mine.name) == (3e12, 1e-6, "mine")
    assert mine.sources["memory.bandwidth"].source == "assumed: of this test"
    assert mine.compute.clock == st.chip(NAME, **{"budget.power": 200.0}).compute.clock
    assert st.system(f"8x{path}").fabric.dimension[0].name == "inter"


def test_its_own_networks_join_its_systems_where_the_file_says_so():
    own = st.system("8xdeepflow-v100", **{"budget.power": np.array([150.0, 300.0])})
    assert [d.name for d in own.fabric.dimension] == ["inter"] and float(own.devices) == 8
    slow, fast = own.fabric.dimension[0].bandwidth
    assert slow < fast
    other = st.system("8xgpu-n3")
    assert other.chip.networks is None and other.fabric.name == other.chip.fabric


def test_sizes_of_several_networks_are_told_by_the_name(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(
        'name = "two"\ntitle = "two networks"\n[generated]\ntechnology = "deepflow-v100"\n'
        'budget = "deepflow-v100"\ntemplate = "deepflow-2021"\nnetworks = "intra inter"\n'
    )
    shares = {f"budget.{kind}_share.intra": 0.05 for kind in ("area", "power", "perimeter")}
    system = st.system(f"4x2x{path}", **shares)
    assert [(d.name, d.size) for d in system.fabric.dimension] == [("intra", 2.0), ("inter", 4.0)]
    assert system.chip.cores_fit > 0
    # as the file is, the network inside a package has no lanes
    assert st.system(f"4x2x{path}").chip.cores_fit == 0


def test_what_cannot_be_built_is_an_answer_with_its_reason():
    work = st.train(64, 1)
    box = st.evaluate(
        st.system("8xgpu-n3", **{"budget.power": np.array([20.0, 700.0])}), "lstm-lm-v100", work, "RC-1-8"
    )
    assert box.fits.tolist() == [False, True]
    assert "power of one bundle at the lowest voltage" in str(box.at(0).infeasible[0])
    one = st.system("8xdeepflow-v100", **{"budget.power_share.inter": 0.0})
    why = st.evaluate(one, "lstm-lm-v100", work, "RC-1-8").infeasible
    assert [lacks.what for lacks in why] == ["lanes of inter between chips"]
    over = {"budget.area_share.core": np.array([0.3, 0.9]), "budget.area_share.l2": 0.2}
    shared = st.evaluate(st.system("8xgpu-n3", **over), "lstm-lm-v100", work, "RC-1-8")
    assert shared.fits.tolist() == [True, False]
    assert shared.at(1).infeasible[0].what == "area share of all components"


@pytest.mark.parametrize(
    ("name", "changes", "error", "said"),
    [
        ("h200", {"budget.power": 300.0}, UnknownName, "budget.power"),
        ("h200", {"generated.technology": "n5"}, BadValue, "is not generated"),
        (NAME, {"budget.powr": 300.0}, UnknownName, "budget.power"),
        (NAME, {"generated.technologie": "n5"}, BadFile, "technologie"),
        (NAME, {"generated.technology": "n4"}, UnknownName, "n4"),
        (NAME, {"generated.links.outer": "nvlink5"}, UnknownName, "outer"),
        (NAME, {"generated.networks": "outer"}, UnknownName, "outer"),
        (NAME, {"template.device": "hbm4"}, BadValue, "generated.device"),
        (NAME, {"budget.area_share.core": 1.5}, BadValue, "at most 1"),
        (NAME, {"budget.power": -1.0}, BadValue, "at least 0"),
    ],
)  # fmt: skip
def test_bad_changes_are_one_line(name, changes, error, said):
    with pytest.raises(error, match=said) as caught:
        st.chip(name, **changes)
    assert "\n" not in str(caught.value)
