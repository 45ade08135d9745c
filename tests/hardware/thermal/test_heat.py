"""heat(): how warm a chip becomes, what binds, and bad input."""

import numpy as np
import pytest

from strata.base.errors import BadFile, BadValue, UnknownName
from strata.hardware.temperatures import heat


def test_deep_stacks_are_bound_by_heat_not_by_power():
    """DeepStack: 85 degC binds deep stacks, 100 W shallow ones; T = 35 degC + (0.56 + 0.01 layers) P."""
    allowed = [heat("stack-ref", layers=n, cells=16).highest_power for n in (2, 4, 9, 12)]
    assert np.all(np.diff(allowed) < 0) and allowed[0] > 100.0 > allowed[2]
    for layers, power in zip((2, 4, 9, 12), allowed, strict=True):
        assert power == pytest.approx(50.0 / (0.56 + 0.01 * layers), rel=0.25)


def test_the_way_of_heat_adds_up():
    found = heat("stack-ref", cooled="air", cells=16)
    assert sum(p.rise for p in found.path) == pytest.approx(
        max(d.hottest for d in found.dies) - found.cooling.ambient, rel=1e-9
    )
    assert found.field.heat_out == pytest.approx(found.power, rel=1e-9) and found.power == pytest.approx(
        100.0
    )
    again = heat(
        "stack-ref",
        cooled="air",
        cells=16,
        power=found.dies[-1].power * found.highest_power / 100,
        dram_power=found.dies[0].power * found.highest_power / 100,
    )
    assert again.binding.hottest == pytest.approx(again.binding.limit, abs=1e-6)


def test_a_map_from_a_file_moves_the_hot_spot(tmp_path):
    (tmp_path / "map.csv").write_text("9,0\n0,0\n")
    found = heat("stack-ref", 40.0, 1.0, map=str(tmp_path / "map.csv"), cells=8)
    row, column = np.unravel_index(np.argmax(found.field.of("logic")[0]), (8, 8))
    assert row < 4 and column < 4
    even = heat("stack-ref", 40.0, 1.0, map="uniform", cells=8)
    assert found.binding.hottest > even.binding.hottest and found.power == pytest.approx(even.power)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: heat("stack-ref", power=1e6), "temperature that the materials hold"),
        (lambda: heat("stack-ref", power=-5.0), "power must be finite and not negative"),
        (lambda: heat("stack-ref", layers=120), "but its package has room for"),
        (lambda: heat("stack-ref", map=[[1.0, 2.0]]), "square of numbers"),
        (lambda: heat("stack-ref", map="nowhere.csv"), "no CSV file at nowhere.csv"),
        (
            lambda: heat("stack-ref", bond_thicknes="5 um"),
            "no cooling quantity called 'bond_thicknes'; nearest: bond_thickness",
        ),
    ],
)
def test_a_bad_question_gets_one_line(make, words):
    with pytest.raises((BadValue, BadFile, UnknownName)) as stop:
        make()
    said = str(stop.value)
    assert words in said and "\n" not in said and "nan" not in said.replace("nan)", "")
