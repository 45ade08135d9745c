"""The solver: laws of heat, closed forms, order in time, and other solvers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy
from scipy.sparse.linalg import spsolve

import strata
from strata.base.errors import BadFile, BadValue, UnknownName
from strata.hardware.thermal.cooling import assembly, cooling, power_map
from strata.hardware.thermal.grid import Assembly, Layer, convection_resistance, slab_resistance
from strata.hardware.thermal.solve import LARGEST_RISE, Problem, steady, transient
from strata.validation.measured.compared import compared
from strata.validation.measured.spec import spec_of
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

DATA = Path(strata.__file__).resolve().parents[1] / "validation"


# Any stack: two dies, an interface, a lid that may be larger, and a sink that may be larger still.
sizes = hy.floats(2e-3, 2e-2)


thicknesses = hy.floats(2e-6, 2e-3)


conductivities = hy.floats(0.3, 500.0)


maps = (
    hy.lists(hy.floats(0.0, 20.0), min_size=9, max_size=9)
    .filter(lambda m: sum(m) > 1e-3)
    .map(lambda m: np.array(m).reshape(3, 3))
)


@hy.composite
def stacks(draw):
    side = draw(sizes)
    lid, sink = side * draw(hy.sampled_from((1.0, 1.7))), side * draw(hy.sampled_from((1.7, 3.0)))

    def layer(name, of, slices=1):
        return Layer(name, of, draw(thicknesses), draw(conductivities), draw(conductivities), slices=slices)

    layers = [
        layer("low", side),
        layer("bond", side),
        layer("high", side),
        layer("tim", side),
        layer("lid", lid, 2),
    ]
    if draw(hy.booleans()):
        layers.append(layer("sink", sink, 2))
    return Assembly(
        tuple(layers),
        draw(hy.floats(1e3, 1e5)),
        draw(hy.floats(280.0, 330.0)),
        cells=draw(hy.sampled_from((4, 6, 9))),
    )


@settings(max_examples=40, deadline=None)
@given(stacks(), maps, hy.floats(0.0, 50.0))
def test_all_heat_that_enters_leaves(made, map, power):
    found = steady(made, {"low": map, "high": power})
    assert found.heat_out == pytest.approx(map.sum() + power, rel=1e-9)
    assert found.power == pytest.approx(map.sum() + power, rel=1e-12)
    assert np.min(found.rise) >= -1e-9 * np.max(found.rise)


@settings(max_examples=25, deadline=None)
@given(stacks(), maps, hy.floats(0.1, 50.0))
def test_the_fast_solver_solves_the_sparse_equations(made, map, power):
    problem = Problem(made)
    heat_in = problem.heat_in({"low": map, "high": power})
    direct = spsolve(problem.matrix.tocsc(), heat_in)
    assert problem.solve(heat_in[None])[0] == pytest.approx(direct, rel=1e-8, abs=1e-9 * np.max(direct))
    assert abs(problem.matrix - problem.matrix.T).max() <= 1e-12 * abs(problem.matrix).max()


@settings(max_examples=25, deadline=None)
@given(stacks(), maps, maps, hy.floats(0.1, 5.0))
def test_temperatures_add_up_and_rise_with_power(made, map, other, factor):
    one, two = steady(made, {"low": map}), steady(made, {"high": other})
    both = steady(made, {"low": map, "high": factor * other})
    assert both.rise == pytest.approx(one.rise + factor * two.rise, rel=1e-8, abs=1e-9 * np.max(both.rise))
    assert np.all(both.rise >= one.rise - 1e-9 * np.max(both.rise))


@settings(max_examples=25, deadline=None)
@given(stacks(), hy.integers(0, 4), hy.floats(1.1, 10.0))
def test_a_better_conductor_cools_where_power_is_even(made, which, factor):
    powers = {"low": 10.0, "high": 10.0}
    better = [
        replace(x, conductivity=x.conductivity * factor, lateral=x.lateral * factor) if i == which else x
        for i, x in enumerate(made.layers)
    ]
    before, after = steady(made, powers), steady(replace(made, layers=tuple(better)), powers)
    # Heat put in times rise is what conduction dissipates: by Rayleigh it falls with every conductance.
    heat_in = before.problem.heat_in(powers)
    assert heat_in @ after.rise <= heat_in @ before.rise * (1 + 1e-9)
    assert steady(replace(made, transfer=made.transfer * factor), powers).hottest("low") < before.hottest(
        "low"
    )


def test_even_power_is_resistances_in_series():
    side, powers = 0.01, {"low": 30.0, "high": 12.0}
    layers = (
        Layer("low", side, 1e-4, 120.0),
        Layer("bond", side, 5e-6, 1.5),
        Layer("high", side, 5e-5, 120.0),
        Layer("lid", side, 2e-3, 400.0, slices=3),
    )
    found = steady(Assembly(layers, 2e4, 300.0, cells=7), powers)
    area = side * side
    out = 42.0 * (
        convection_resistance(2e4, area)
        + slab_resistance(2e-3, 400.0, area)
        + slab_resistance(2.5e-5, 120.0, area)
    )
    below = 30.0 * (
        slab_resistance(2.5e-5, 120.0, area)
        + slab_resistance(5e-6, 1.5, area)
        + slab_resistance(5e-5, 120.0, area)
    )
    for name, rise in (("high", out), ("low", out + below)):
        assert found.hottest(name) - 300.0 == pytest.approx(rise, rel=1e-9)
        assert found.coolest(name) - 300.0 == pytest.approx(rise, rel=1e-9)
        assert found.mean(name) - 300.0 == pytest.approx(rise, rel=1e-9)


def test_a_spot_on_a_thick_block_has_the_spreading_resistance_of_a_half_space():
    # A square source of side 2a on a half space has at its centre R = asinh(1) / (pi k a) (Carslaw and
    # Jaeger, sec. 10.5).
    half, block, k = 0.5e-3, 0.012, 100.0
    made = Assembly(
        (Layer("spot", 2 * half, 1e-7, k), Layer("block", block, block / 2, k, slices=240)),
        1e9,
        300.0,
        cells=16,
    )
    found = steady(made, {"spot": 1.0})
    assert found.hottest("spot") - 300.0 == pytest.approx(np.arcsinh(1.0) / (np.pi * k * half), rel=0.06)


def test_the_solver_converges_with_the_grid():
    made, powers = cooling("air"), {"logic": power_map(0.5) * 80.0, "dram0": 5.0, "dram1": 5.0}
    found = [steady(assembly(made, 2, 1e-4, cells), powers).hottest("logic") for cells in (8, 16, 32, 64)]
    steps = np.abs(np.diff(found))
    assert steps[1] < 0.6 * steps[0] and steps[2] < 0.6 * steps[1]
    assert steps[2] < 0.002 * (found[-1] - made.ambient)


@pytest.mark.parametrize(("implicit", "order"), [(1.0, 1.0), (0.5, 2.0)])
def test_time_steps_have_their_order_and_end_in_the_steady_state(implicit, order):
    side = 0.01
    made = Assembly(
        (Layer("low", side, 1e-4, 120.0), Layer("lid", 1.5 * side, 2e-3, 400.0, capacity=3.4e6, slices=2)),
        2e4,
        300.0,
        cells=4,
    )
    powers = {"low": np.array([[4.0, 1.0], [1.0, 0.0]])}

    def after(steps):
        return transient(made, powers, 0.4, steps, implicit=implicit).last.rise

    exact = after(2048)
    errors = [np.max(np.abs(after(steps) - exact)) for steps in (64, 128)]
    assert errors[0] / errors[1] == pytest.approx(2.0**order, rel=0.25)
    settled = transient(made, powers, 60.0, 60)
    assert settled.last.rise == pytest.approx(steady(made, powers).rise, rel=1e-6)
    assert np.all(np.diff(settled.hottest["low"]) >= -1e-9)


def test_one_lump_warms_up_by_its_time_constant():
    made = Assembly((Layer("lump", 0.01, 1e-3, 1e6, capacity=2e6),), 1e4, 300.0, cells=2)
    constant = 2e6 * 1e-3 / 1e4
    history = transient(made, {"lump": 10.0}, constant, 400, implicit=0.5)
    assert history.hottest["lump"][-1] - 300.0 == pytest.approx(10.0 * (1 - np.exp(-1.0)), rel=1e-3)
    off = transient(made, lambda t: {"lump": 0.0}, 20 * constant, 50, start=history.last)
    assert off.hottest["lump"][0] == pytest.approx(history.hottest["lump"][-1]) and off.hottest["lump"][
        -1
    ] == pytest.approx(300.0, abs=1e-6)


def stacks(name, folder=DATA):
    return compared(read_table(folder, name), Catalogue(), spec_of(None, name))


def test_stacks_of_3d_ice():
    found = stacks("thermal/stacks_3dice.json")
    assert len(found) == 210
    assert np.max(np.abs(found.predicted / found.measured - 1)) < 0.0005


def test_packages_of_hotspot():
    found = stacks("thermal/stacks_hotspot.json")
    error = found.predicted / found.measured - 1
    # Layers as HotSpot has them; what is left is its lumped periphery, which spreads heat a little too well.
    assert found.headline.sum() == 126 and np.max(np.abs(error[found.headline])) < 0.05
    assert np.all(error[found.headline] > -0.001)
    # A sink that is resolved is warmer: heat has to rise before it can spread.
    assert 0.05 < np.mean(error[~found.headline]) < 0.1


def test_means_and_minima_of_3d_ice_agree_too():
    name = "thermal/stacks_3dice.json"
    table, spec = read_table(DATA, name), spec_of(None, name)
    table = table.keep(np.arange(0, len(table), 6))
    highest = compared(table, Catalogue(), spec).measured
    for answer, column in (("mean_rise", "mean_k"), ("least_rise", "min_k")):
        changes = {"answer": answer, "measured": f"{column} - ambient_k"}
        metric = [spec.metric[0].model_copy(update=changes)]
        found = compared(table, Catalogue(), spec.model_copy(update={"metric": metric}))
        assert np.all(np.abs(found.predicted - found.measured) < 5e-4 * highest)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("{}", "must be a list of records"),
        ("[]", "must be a list of records"),
        ('[{"a": 1}, {"b": 1}]', "record 2 has other keys"),
    ],
)
def test_a_file_of_records_that_is_wrong_gets_one_line(tmp_path, text, words):
    (tmp_path / "stacks.json").write_text(text)
    with pytest.raises(BadFile) as stop:
        read_table(tmp_path, "stacks.json")
    assert words in str(stop.value) and "\n" not in str(stop.value)


def test_a_stack_that_cannot_be_built_is_a_failed_point_with_its_reason(tmp_path):
    cases = json.loads((DATA / "thermal" / "stacks_3dice.json").read_text())[-2:]
    cases[0]["bond_k"] = 0.0
    (tmp_path / "thermal").mkdir()
    (tmp_path / "thermal" / "stacks_3dice.json").write_text(json.dumps(cases))
    found = stacks("thermal/stacks_3dice.json", tmp_path)
    failed = found.predicted == 0
    assert failed.sum() == len(cases[0]["temperatures"]) < len(found)
    assert set(found.why) == {1} and "bond_conductivity must be positive" in found.why[1]


def die(**changes):
    return Layer(**{"name": "die", "side": 0.01, "thickness": 1e-4, "conductivity": 100.0} | changes)


def test_a_solution_outside_its_range_says_so():
    found = steady(Assembly((die(),), 1e4, 300.0, cells=2), {"die": 1e3})
    assert np.max(found.rise) > LARGEST_RISE and np.all(np.isfinite(found.rise))
    assert "levers" in str(found.infeasible)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: steady(Assembly((die(),), 1e4, 300.0), {"die": -1.0}), "finite and not negative"),
        (lambda: steady(Assembly((die(),), 1e4, 300.0), {"die": float("inf")}), "finite and not negative"),
        (lambda: steady(Assembly((die(),), 1e4, 300.0), {"die": np.ones((2, 3))}), "square of numbers"),
        (lambda: steady(Assembly((die(),), 1e4, 300.0), {"dye": 1.0}), "no layer called 'dye'; nearest: die"),
        (lambda: transient(Assembly((die(),), 1e4, 300.0), {"die": 1.0}, 0.0, 5), "needs a duration"),
        (
            lambda: transient(Assembly((die(),), 1e4, 300.0), {"die": 1.0}, 1.0, 5, implicit=0.2),
            "between 0.5",
        ),
    ],
)
def test_a_bad_power_or_time_gets_one_line(make, words):
    with pytest.raises((BadValue, BadFile, UnknownName)) as stop:
        make()
    said = str(stop.value)
    assert words in said and "\n" not in said and "nan" not in said.replace("nan)", "")
