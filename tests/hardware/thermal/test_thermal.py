"""Heat in stacks: laws of the solver, closed forms, other solvers, and the reduction that a search uses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy
from scipy.sparse.linalg import spsolve

import strata
from strata.arrays import enable_jax
from strata.errors import BadFile, BadValue, UnknownName
from strata.hardware.dram.stack import Stack
from strata.hardware.thermal.compact import (
    Heat,
    heat_of,
    hottest,
    hull,
    junction,
    leakage,
    reduce,
    settled_temperature,
    tabulate,
)
from strata.hardware.thermal.cooling import assembly, cooling, dram, power_map
from strata.hardware.thermal.grid import Problem
from strata.hardware.thermal.report import heat
from strata.hardware.thermal.solve import (
    LARGEST_RISE,
    Assembly,
    Layer,
    convection_resistance,
    slab_resistance,
    steady,
    transient,
)
from strata.validation import thermal
from strata.validation.datasets import read_table

DATA = Path(strata.__file__).resolve().parents[1] / "validation"


def stack(layers, connected=None):
    return Stack(layers, 16.0, 32.0, 1e9, 1e9, connected)


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


# ---------------------------------------------------------------------------------------------------- the
# solver


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


# ------------------------------------------------------------------------------------------------- other
# solvers


def test_stacks_of_3d_ice():
    found = thermal.stacks_3dice(read_table(DATA, "thermal/stacks_3dice.json"))
    assert len(found) == 210
    assert np.max(np.abs(found.predicted / found.measured - 1)) < 0.0005


def test_packages_of_hotspot():
    found = thermal.stacks_hotspot(read_table(DATA, "thermal/stacks_hotspot.json"))
    error = found.predicted / found.measured - 1
    # Layers as HotSpot has them; what is left is its lumped periphery, which spreads heat a little too well.
    assert found.headline.sum() == 126 and np.max(np.abs(error[found.headline])) < 0.05
    assert np.all(error[found.headline] > -0.001)
    # A sink that is resolved is warmer: heat has to rise before it can spread.
    assert 0.05 < np.mean(error[~found.headline]) < 0.1


def test_means_and_minima_of_3d_ice_agree_too():
    for case in json.loads((DATA / "thermal" / "stacks_3dice.json").read_text())[::6]:
        powers = {"logic": np.reshape(case["logic_power_w"], (4, 4))} | {
            dram(i): case["dram_power_w_per_layer"] for i in range(case["dram_layers"])
        }
        found = steady(thermal.lidded(case), powers)
        for layer in case["temperatures"]:
            rise = layer["max_k"] - case["ambient_k"]
            assert found.mean(layer["layer"]) == pytest.approx(layer["mean_k"], abs=5e-4 * rise)
            assert found.coolest(layer["layer"]) == pytest.approx(layer["min_k"], abs=5e-4 * rise)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "cannot be read as JSON"), ("{}", "must be a list of records"), ("[]", "must be a list of records"), ('[{"a": 1}, {"b": 1}]', "record 2 has other keys")],
)  # fmt: skip
def test_a_file_of_records_that_is_wrong_gets_one_line(tmp_path, text, words):
    (tmp_path / "stacks.json").write_text(text)
    with pytest.raises(BadFile) as stop:
        read_table(tmp_path, "stacks.json")
    assert words in str(stop.value) and "\n" not in str(stop.value)


def test_a_stack_that_cannot_be_built_is_a_failed_point_with_its_reason(tmp_path):
    cases = json.loads((DATA / "thermal" / "stacks_3dice.json").read_text())[-2:]
    cases[0]["bond_k"] = 0.0
    (tmp_path / "stacks.json").write_text(json.dumps(cases))
    found = thermal.stacks_3dice(read_table(tmp_path, "stacks.json"))
    failed = found.predicted == 0
    assert failed.sum() == len(cases[0]["temperatures"]) < len(found)
    assert set(found.why) == {1} and "conductivity of layer bond1 must be positive" in found.why[1]


# ------------------------------------------------------------------------------------------------- the
# reduction


@pytest.mark.parametrize("name", ["liquid", "air"])
@pytest.mark.parametrize("arrangement", ["logic_bottom", "logic_top"])
@settings(max_examples=12, deadline=None)
@given(hy.data())
def test_the_reduction_is_the_solver(name, arrangement, data):
    made = replace(cooling(name), arrangement=arrangement, hot_share=data.draw(hy.sampled_from((0.25, 0.6))))
    layers = data.draw(hy.integers(1, 6))
    connected = data.draw(hy.integers(1, layers))
    watts = data.draw(hy.tuples(hy.floats(0, 100), hy.floats(0, 40), hy.floats(0, 40)))
    found = junction(heat_of(stack(float(layers), float(connected)), made, 1e-4), *watts)
    powers = {"logic": power_map(made.hot_share) * watts[0]}
    powers |= {
        dram(i): watts[1] / connected if i < connected else watts[2] / (layers - connected)
        for i in range(layers)
    }
    full = steady(assembly(made, layers, 1e-4), powers)
    drams = [full.hottest(dram(i)) for i in range(layers)]
    real = watts if layers > connected else (watts[0], watts[1], 0.0)
    assert found[0] == pytest.approx(full.hottest("logic"), rel=1e-6)
    assert found[1] == pytest.approx(max(drams), rel=1e-6)
    for i, one in enumerate(drams):
        assert hottest(
            made.ambient, reduce(made, layers, 1e-4, connected).rows[dram(i)].tolist(), real
        ) == pytest.approx(one, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(hy.integers(1, 60), hy.integers(0, 2**31), hy.booleans())
def test_the_hull_keeps_every_maximum(count, seed, flat):
    rng = np.random.default_rng(seed)
    points = rng.random((count, 3)) * (np.array([1.0, 1.0, 0.0]) if flat else 1.0)
    kept = hull(points)
    assert len(kept) <= count
    weights = rng.random((100, 3)) * (rng.random((100, 3)) < 0.7)
    assert np.max(kept @ weights.T, axis=0) == pytest.approx(
        np.max(points @ weights.T, axis=0), rel=1e-9, abs=1e-12
    )


def test_a_batch_equals_its_singles():
    rng = np.random.default_rng(3)
    layers, connected = rng.integers(1, 6, 20) * 1.0, rng.integers(1, 6, 20) * 1.0
    area, thickness = rng.choice([0.8e-4, 1.2e-4], 20), rng.choice([3e-6, 8e-6], 20)
    watts = rng.uniform(0, 60, (3, 20))
    made = cooling("liquid", bond_thickness=thickness)
    concurrent_collectives = junction(heat_of(stack(layers, connected), made, area), *watts)
    for i in range(20):
        alone = heat_of(
            stack(layers[i], connected[i]), cooling("liquid", bond_thickness=thickness[i]), area[i]
        )
        assert [type(v) for row in alone.logic for v in row] == [float] * 3 * len(alone.logic)
        for one, many in zip(junction(alone, *watts[:, i]), concurrent_collectives, strict=True):
            assert one == pytest.approx(many[i], rel=1e-12)


def test_axes_of_a_box_stay_apart():
    found = heat_of(
        stack(np.arange(1.0, 4.0)[:, None]), cooling("liquid", bond_thickness=np.array([3e-6, 6e-6])), 1e-4
    )
    logic, memory = junction(found, np.linspace(20, 60, 5)[:, None, None], 10.0, 0.0)
    assert logic.shape == memory.shape == (5, 3, 2)
    assert (
        np.all(np.diff(logic, axis=0) > 0)
        and np.all(np.diff(logic, axis=1) > 0)
        and np.all(np.diff(logic, axis=2) > 0)
    )


def test_stacks_without_room_in_their_package_are_too_hot_and_their_neighbours_are_not():
    found = heat_of(stack(np.array([4.0, 90.0, 4.0])), cooling("liquid"), 1e-4)
    logic, memory = junction(found, 40.0, 10.0, 0.0)
    assert (
        logic[0]
        == logic[2]
        == pytest.approx(junction(heat_of(stack(4.0), cooling("liquid"), 1e-4), 40.0, 10.0, 0.0)[0])
    )
    assert np.all(np.isfinite(logic)) and logic[1] > 1e6 and memory[1] > 1e6
    assert settled_temperature(found, 40.0, 10.0, 10.0, 0.0)[0].tolist()[1] == np.inf


def test_jax_gives_the_same():
    jax = enable_jax()
    found = heat_of(stack(np.array([1.0, 4.0, 8.0])), cooling("liquid"), 1e-4)
    watts = np.array([40.0, 50.0, 60.0])
    assert np.allclose(
        jax.jit(junction)(found, watts, 10.0, 0.0), junction(found, watts, 10.0, 0.0), rtol=1e-12
    )
    assert np.allclose(
        jax.jit(settled_temperature)(found, watts, 9.0, 10.0, 0.0),
        settled_temperature(found, watts, 9.0, 10.0, 0.0),
        rtol=1e-9,
    )


def test_tables_repeat_a_row_where_a_geometry_has_fewer():
    made = cooling("liquid")
    logic, memory = tabulate([(made, 1, 1e-4, 1), (made, 8, 1e-4, 3)])
    assert logic.shape[1:] == memory.shape[1:] == (3, 2)
    few = reduce(made, 1, 1e-4).dram
    assert len(few) < memory.shape[0] and memory[len(few) :, :, 0] == pytest.approx(
        np.repeat(few[:1], memory.shape[0] - len(few), axis=0)
    )


# ---------------------------------------------------------------------------------------------------------
# feedback


@settings(max_examples=100, deadline=None)
@given(hy.floats(5, 120), hy.floats(0, 40), hy.floats(0, 30))
def test_leakage_settles_or_the_point_is_infeasible(logic, leaking, memory):
    found = heat_of(stack(4.0), cooling("liquid"), 1e-4)
    temperature, own = settled_temperature(found, logic, leaking, memory, 0.0)
    at_limit = junction(
        found,
        logic + leakage(leaking, found.logic_limit, found.leakage_temperature, found.leakage_doubling),
        memory,
        0.0,
    )[0]
    assert np.isfinite(temperature) == (at_limit <= found.logic_limit)
    assert np.isfinite(own)
    if np.isfinite(temperature):
        assert temperature <= found.logic_limit
        assert junction(found, logic + own, memory, 0.0)[0] == pytest.approx(temperature, abs=2e-3)
        # The lowest solution: a plain iteration from below ends there, too.
        plain = found.ambient
        for _ in range(3000):
            plain = junction(
                found,
                logic + leakage(leaking, plain, found.leakage_temperature, found.leakage_doubling),
                memory,
                0.0,
            )[0]
        assert temperature == pytest.approx(plain, abs=0.05)


def test_leakage_doubles():
    assert leakage(10.0, 358.15 + 50.0, 358.15, 25.0) == pytest.approx(40.0)


# ------------------------------------------------------------------------------------------------------- one
# chip


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


def die(**changes):
    return Layer(**{"name": "die", "side": 0.01, "thickness": 1e-4, "conductivity": 100.0} | changes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Assembly((), 1e4, 300.0), "at least one layer"),
        (lambda: Assembly((die(conductivity=0.0),), 1e4, 300.0), "conductivity of layer die must be positive"),
        (lambda: Assembly((die(lateral=-1.0),), 1e4, 300.0), "lateral of layer die must be positive"),
        (lambda: Assembly((die(thickness=-1e-6),), 1e4, 300.0), "thickness of layer die must be positive"),
        (lambda: Assembly((die(thickness=float("nan")),), 1e4, 300.0), "thickness of layer die must be positive"),
        (lambda: Assembly((die(), die(name="lid", side=0.005)), 1e4, 300.0), "lid must be at least as large as die"),
        (lambda: Assembly((die(), die()), 1e4, 300.0), "names of their own"),
        (lambda: Assembly((die(),), 0.0, 300.0), "coefficient must be positive"),
        (lambda: Assembly((die(),), 1e4, 300.0, height=5e-5), "but its package has room for"),
        (lambda: steady(Assembly((die(),), 1e4, 300.0), {"die": -1.0}), "finite and not negative"),
        (lambda: steady(Assembly((die(),), 1e4, 300.0), {"die": float("inf")}), "finite and not negative"),
        (lambda: steady(Assembly((die(),), 1e4, 300.0), {"die": np.ones((2, 3))}), "square of numbers"),
        (lambda: steady(Assembly((die(),), 1e4, 300.0), {"dye": 1.0}), "no layer called 'dye'; nearest: die"),
        (lambda: transient(Assembly((die(),), 1e4, 300.0), {"die": 1.0}, 0.0, 5), "needs a duration"),
        (lambda: transient(Assembly((die(),), 1e4, 300.0), {"die": 1.0}, 1.0, 5, implicit=0.2), "between 0.5"),
        (lambda: cooling("liqid"), "no cooling called 'liqid'; nearest: liquid"),
        (lambda: cooling("liquid", bond_conductivity="0 W/m/K"), "bond_conductivity must be positive"),
        (lambda: cooling("liquid", sink_resistance="0.1 K/W"), "either transfer or sink_resistance"),
        (lambda: cooling("liquid", sink_side="20 mm"), "a thickness and a side"),
        (lambda: cooling("liquid", source_depth="40 um"), "less than a die is thick"),
        (lambda: cooling("liquid", hot_share=1.5), "at most 1"),
        (lambda: cooling("liquid", ambient="90 degC"), "cooler than logic and DRAM"),
        (lambda: heat_of(stack(2.5), cooling("liquid"), 1e-4), "whole numbers"),
        (lambda: heat_of(stack(100.0), cooling("liquid"), 1e-4), "but its package has room for"),
        (lambda: heat_of(stack(2.0), cooling("liquid"), np.linspace(1e-5, 1e-4, 3000)), "at most 2000 distinct stacks"),
        (lambda: heat_of(stack(2.0), cooling("liquid"), 9e-4), "lid_side must be at least the side of the dies"),
        (lambda: heat("stack-ref", power=1e6), "temperature that the materials hold"),
        (lambda: heat("stack-ref", power=-5.0), "power must be finite and not negative"),
        (lambda: heat("stack-ref", layers=200), "but its package has room for"),
        (lambda: heat("stack-ref", map=[[1.0, 2.0]]), "square of numbers"),
        (lambda: heat("stack-ref", map="nowhere.csv"), "no power map at nowhere.csv"),
        (lambda: heat("stack-ref", bond_thicknes="5 um"), "no cooling quantity called 'bond_thicknes'; nearest: bond_thickness"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_line(make, words):
    with pytest.raises((BadValue, BadFile, UnknownName)) as stop:
        make()
    assert (
        words in str(stop.value)
        and "\n" not in str(stop.value)
        and "nan" not in str(stop.value).replace("nan)", "")
    )


def test_a_solution_outside_its_range_says_so():
    found = steady(Assembly((die(),), 1e4, 300.0, cells=2), {"die": 1e3})
    assert np.max(found.rise) > LARGEST_RISE and np.all(np.isfinite(found.rise))
    assert "levers" in str(found.infeasible)


def test_heat_is_a_record_of_plain_quantities():
    found = heat_of(stack(2.0), cooling("liquid"), 1e-4)
    assert isinstance(found, Heat) and isinstance(found.ambient, float)
