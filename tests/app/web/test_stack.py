"""The Stack page's answers: the same numbers as the library's, and mistakes in one line."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

import strata as st
from strata.app.terminal import plain_json
from strata.app.web.answers import stack
from strata.base.errors import StrataError
from strata.hardware.making import area
from strata.pricing.power_limits import bandwidth_bounds, sustained_bandwidth

PLAN = "tp=64,pp=4,moe_tp=16"


def test_a_stack_as_built_has_the_librarys_numbers():
    told = stack.built({"layers": 6})
    chip = st.chip("stack-ref", layers=6)
    assert told["capacity"] == chip.memory.capacity and told["peak"] == chip.memory.bandwidth
    assert told["sustained"] == sustained_bandwidth(chip)
    assert told["cores"] == area(chip).cores == 7.0
    bounds = {b["name"]: b["value"] for b in told["bounds"]}
    assert bounds == {k: pytest.approx(float(v)) for k, v in bandwidth_bounds(chip).items()}
    assert min(bounds.values()) == pytest.approx(told["sustained"])  # long runs: the least bound binds
    assert min(bounds, key=bounds.get) == "sram"


def test_sheets_are_as_thick_as_the_cooling_says():
    told = stack.built({"layers": 3, "bond_um": 10})
    thick = {sheet["name"]: sheet["thickness"] for sheet in told["sheets"]}
    assert thick["logic"] == pytest.approx(100e-6) and thick["dram2"] == pytest.approx(30e-6)
    assert thick["bond0"] == pytest.approx(10e-6)
    assert [sheet["name"] for sheet in told["sheets"]][:3] == ["logic", "bond0", "dram0"]
    top = stack.built({"layers": 3, "arrangement": "logic_top"})["sheets"]
    assert top[0]["name"] == "dram2" and "logic" in [sheet["name"] for sheet in top][-3:]


def test_finer_vias_leave_room_for_cores():
    wide, fine = (stack.built({"layers": 8, "via_um": um}) for um in (20.0, 6.0))
    assert fine["cores"] > wide["cores"]
    assert fine["area"]["parts_m2"]["vertical"] < wide["area"]["parts_m2"]["vertical"]


def test_a_load_has_the_predictions_time_and_temperatures():
    told = stack.loaded({"layers": 8, "plan": PLAN, "ambient_C": 30})
    system = st.system("256xstack-ref", **{"stack.layers": 8, "cooling.ambient": "30 degC"})
    result = st.evaluate(system, "deepseek-v3", st.decode(4, 1536), PLAN)
    assert told["fits"] and told["time"] == pytest.approx(float(result.metrics.tpot))
    dies = {die["name"]: die for die in told["heat"]["dies"]}
    assert dies["logic"]["max_K"] == pytest.approx(float(result.steps[0].logic), abs=1e-6)
    assert dies["dram0"]["max_K"] == pytest.approx(float(result.steps[0].dram), abs=1e-6)
    assert told["heat"]["power_W"] == pytest.approx(told["power"])
    cells = dies["dram0"]["cells_K"]
    assert len(cells) == len(cells[0]) == 16
    assert max(map(max, cells)) == pytest.approx(dies["dram0"]["max_K"], abs=1e-3)
    assert plain_json(told)["heat"]["margin_K"] > 0


def test_what_does_not_fit_says_why():
    told = stack.loaded({"layers": 1, "plan": PLAN})
    assert not told["fits"] and "needs" in told["why"] and "heat" not in told


def test_chips_with_dram_beside_show_their_package():
    told = stack.built({"chip": "h200"})
    assert not told["stacked"] and told["beside"] == 6 and told["bounds"] == [] and "sheets" not in told
    assert next(c["name"] for c in stack.stacked_names({})["chips"]) == "stack-ref"


@pytest.mark.parametrize(
    "wrong", [{"chip": "nonesuch"}, {"chip": "a100-80"}, {"chip": "h200", "layers": 4}, {"cooling": "ice"}]
)
def test_mistakes_are_one_line(wrong):
    with pytest.raises(StrataError) as error:
        stack.built(wrong)
    assert "\n" not in str(error.value)


def test_sliders_have_ends():
    for wrong in ({"layers": 17}, {"via_um": 0.1}, {"bond_um": 1e9}, {"chip": "../x"}, {"file": "a"}):
        with pytest.raises(ValidationError):
            stack.StackLoad(**wrong)
