"""Ways of cooling: the layers they make, their thickness, and records that contradict themselves."""

from dataclasses import replace

import numpy as np
import pytest

from strata.base.errors import BadFile, BadValue, UnknownName
from strata.hardware.thermal.cooling import (
    OUTSIDE,
    SHAPING,
    assembly,
    check_sides,
    cooling,
    dram_die,
    power_map,
    stack_thickness,
)
from strata.params import leaf_paths, names


@pytest.mark.parametrize("name", names("cooling"))
@pytest.mark.parametrize("layers", [0, 1, 5])
@pytest.mark.parametrize("arrangement", ["logic_bottom", "logic_top"])
def test_a_stack_has_every_die_once_and_is_as_thick_as_its_layers(name, layers, arrangement):
    made = cooling(name, arrangement=arrangement)
    built = assembly(made, layers, 1e-4)
    dies = [layer.name for layer in built.layers if f"{layer.name} bulk" in {b.name for b in built.layers}]
    order = ["logic", *(dram_die(i) for i in range(layers))]
    assert dies == (order if arrangement == "logic_bottom" else order[::-1])
    assert sum(layer.name.startswith("bond") for layer in built.layers) == layers
    assert built.thickness == pytest.approx(stack_thickness(made, layers))
    assert built.layers[0].side == pytest.approx(0.01)


@pytest.mark.parametrize("name", names("cooling"))
def test_heat_leaves_by_a_coefficient_or_by_a_resistance_of_the_topmost_face(name):
    given = cooling(name)
    built = assembly(given, 2, 1e-4)
    assert built.transfer == given.transfer
    top = built.layers[-1].side ** 2
    resistance = replace(given, transfer=None, sink_resistance=1.0 / (given.transfer * top))
    assert assembly(resistance, 2, 1e-4).transfer == pytest.approx(given.transfer)


def test_every_quantity_shapes_the_resistances_or_stands_outside_of_them():
    assert set(SHAPING) | set(OUTSIDE) == set(leaf_paths(cooling("liquid")))
    assert not set(SHAPING) & set(OUTSIDE)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.6, 1.0])
def test_a_map_of_power_has_its_share_in_the_middle_quarter(share):
    shares = power_map(share)
    assert shares.sum() == pytest.approx(1.0) and shares[1:3, 1:3].sum() == pytest.approx(share)
    assert np.all(power_map(0.25) == pytest.approx(1 / 16))


def test_of_many_sides_the_first_that_does_not_fit_is_named():
    made = cooling("liquid")
    check_sides(made, np.array([1e-3, 5e-3]))
    with pytest.raises(BadValue, match=r"lid_side must be at least the side of the dies .*die_side='0\.5'"):
        check_sides(made, np.array([1e-3, 0.5, 0.9]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cooling("liqid"), "no cooling called 'liqid'; nearest: liquid"),
        (lambda: cooling("liquid", bond_conductivity="0 W/m/K"), "bond_conductivity must be positive"),
        (lambda: cooling("liquid", sink_resistance="0.1 K/W"), "either transfer or sink_resistance"),
        (lambda: cooling("liquid", sink_side="20 mm"), "a thickness and a side"),
        (lambda: cooling("liquid", source_depth="40 um"), "less than a die is thick"),
        (lambda: cooling("liquid", hot_share=1.5), "at most 1"),
        (lambda: cooling("liquid", ambient="90 degC"), "cooler than logic and DRAM"),
    ],
)
def test_a_bad_cooling_gets_one_line(make, words):
    with pytest.raises((BadValue, BadFile, UnknownName)) as stop:
        make()
    said = str(stop.value)
    assert words in said and "\n" not in said and "nan" not in said.replace("nan)", "")
