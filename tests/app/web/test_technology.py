"""The Technology page's answers: what `strata generate` makes, beside a named chip."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

import strata as st
from strata.app.terminal import plain_json
from strata.app.web.answers import technology
from strata.base.errors import StrataError
from strata.hardware.generate.recipe import generation
from strata.hardware.system import System


def test_a_generated_chip_has_the_generators_numbers():
    told = technology.generated({"power_W": 500, "die_mm2": 700, "against": "h200"})
    found = generation("n5", "h100", "gpu", power="500 W", die_area="700 mm2")
    assert told["this"]["peak"] == float(found.chip.compute.matrix_rate["bf16"])
    assert told["memory"]["bandwidth_B_per_s"] == float(found.chip.memory.bandwidth)
    assert told["binds"] == found.binds and told["use"]["area_m2"]["total"] == pytest.approx(700e-6)
    assert told["budget"]["power_W"] == 500 and told["this"]["cost"] == float(found.made.cost)
    assert told["that"]["name"] == "h200" and told["that"]["bandwidth"] == 4.8e12
    assert plain_json(told)["fits"] is True


def test_parts_lie_on_the_die():
    area = technology.generated({})["use"]["area_m2"]
    spent = sum(value for name, value in area.items() if name != "total")
    assert 0 < spent <= area["total"]


def test_a_chip_that_cannot_be_built_says_why():
    told = technology.generated({"power_W": 5})
    assert not told["fits"] and told["infeasible"]
    assert technology.at_work({"power_W": 5})["why"].startswith("cannot be built")


def test_a_model_on_it_is_what_evaluate_says():
    told = technology.at_work({"technology": "n3", "count": 8})
    theirs = st.system("8xh100")
    ours = System("mine", st.generate("n3", "h100", "gpu"), theirs.fabric, theirs.economics)
    work = st.decode(64, 1536)
    for side, system in (("this", ours), ("that", theirs)):
        result = st.evaluate(system, "llama-3-70b", work, told[side]["plan"])
        assert told[side]["tokens_per_s"] == pytest.approx(float(result.metrics.tokens_per_s))
    assert told["this"]["power"] < told["that"]["power"]


@pytest.mark.parametrize(
    "wrong",
    [{"technology": "n99"}, {"template": "cpu"}, {"die_mm2": 1600}, {"against": "x"}, {"device": "tape"}],
)
def test_mistakes_are_one_line(wrong):
    with pytest.raises(StrataError) as error:
        technology.generated(wrong)
    assert "\n" not in str(error.value)


def test_budgets_have_ends():
    for wrong in ({"power_W": 0}, {"die_mm2": 1e9}, {"devices": 0}, {"count": 10**6}):
        with pytest.raises(ValidationError):
            technology.ChipAtWork(**wrong)
