"""The reduction that a search uses: it is the solver, a batch is its singles, and leakage settles."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

from strata.base.arrays import enable_jax
from strata.base.errors import BadFile, BadValue, UnknownName
from strata.hardware.chip import chip
from strata.hardware.thermal.compact import (
    ThermalModel,
    heat_of,
    hottest,
    junction,
    leakage,
    reduce,
    settled_temperature,
    tabulate,
    upper_hull,
)
from strata.hardware.thermal.cooling import assembly, cooling, dram_die, power_map
from strata.hardware.thermal.solve import (
    steady,
)

STACK = chip("stack-ref").stack


def stack(layers, connected=None):
    return replace(STACK, layers=layers, connected_layers=connected)


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
        dram_die(i): watts[1] / connected if i < connected else watts[2] / (layers - connected)
        for i in range(layers)
    }
    full = steady(assembly(made, layers, 1e-4), powers)
    drams = [full.hottest(dram_die(i)) for i in range(layers)]
    real = watts if layers > connected else (watts[0], watts[1], 0.0)
    assert found[0] == pytest.approx(full.hottest("logic"), rel=1e-6)
    assert found[1] == pytest.approx(max(drams), rel=1e-6)
    for i, one in enumerate(drams):
        assert hottest(
            made.ambient, reduce(made, layers, 1e-4, connected).rows[dram_die(i)].tolist(), real
        ) == pytest.approx(one, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(hy.integers(1, 60), hy.integers(0, 2**31), hy.booleans())
def test_the_hull_keeps_every_maximum(count, seed, flat):
    rng = np.random.default_rng(seed)
    points = rng.random((count, 3)) * (np.array([1.0, 1.0, 0.0]) if flat else 1.0)
    kept = upper_hull(points)
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
    together = junction(heat_of(stack(layers, connected), made, area), *watts)
    for i in range(20):
        alone = heat_of(
            stack(layers[i], connected[i]), cooling("liquid", bond_thickness=thickness[i]), area[i]
        )
        assert [type(v) for row in alone.logic for v in row] == [float] * 3 * len(alone.logic)
        for one, many in zip(junction(alone, *watts[:, i]), together, strict=True):
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


def test_heat_is_a_record_of_plain_quantities():
    found = heat_of(stack(2.0), cooling("liquid"), 1e-4)
    assert isinstance(found, ThermalModel) and isinstance(found.ambient, float)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: heat_of(stack(2.5), cooling("liquid"), 1e-4), "whole numbers"),
        (lambda: heat_of(stack(100.0), cooling("liquid"), 1e-4), "but its package has room for"),
        (
            lambda: heat_of(stack(2.0), cooling("liquid"), np.linspace(1e-5, 1e-4, 3000)),
            "at most 2000 distinct stacks",
        ),
        (
            lambda: heat_of(stack(2.0), cooling("liquid"), 9e-4),
            "lid_side must be at least the side of the dies",
        ),
    ],
)
def test_a_stack_that_cannot_be_solved_gets_one_line(make, words):
    with pytest.raises((BadValue, BadFile, UnknownName)) as stop:
        make()
    said = str(stop.value)
    assert words in said and "\n" not in said and "nan" not in said.replace("nan)", "")
