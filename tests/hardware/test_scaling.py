"""Nodes by constant factors: whole and broken generations, arrays, both ways of memory, and JAX."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from strata.base.arrays import enable_jax, leaves
from strata.hardware.technology import scaled_node, technology
from strata.params import stated, value_at

N5 = technology("n5")
AS_LOGIC = {"sram_area": 1.8, "sram_power": 1.3}


def numbers(node):
    return {path: float(p.value) for path, p in stated(node).items()}


def test_no_generations_is_the_node_itself():
    assert numbers(scaled_node(N5, 0.0)) == pytest.approx(numbers(N5), rel=1e-15)


@given(some.floats(-3, 6), some.floats(-3, 6))
def test_generations_add_up(a, b):
    twice = scaled_node(scaled_node(N5, a, **AS_LOGIC), b, **AS_LOGIC)
    assert numbers(twice) == pytest.approx(numbers(scaled_node(N5, a + b, **AS_LOGIC)), rel=1e-9)


@given(some.floats(0.1, 6))
def test_a_chip_of_given_area_has_more_units_and_draws_more(g):
    """At equal area 1.8^g as many units draw (1.8/1.3)^g the power: why later nodes run into power."""
    later = scaled_node(N5, g)
    units = N5.logic.mac_area["bf16"] / later.logic.mac_area["bf16"]
    power = units * later.logic.mac_energy["bf16"] / N5.logic.mac_energy["bf16"]
    assert units == pytest.approx(1.8**g) and power == pytest.approx((1.8 / 1.3) ** g)
    assert later.logic.leakage / N5.logic.leakage == pytest.approx((1.8 / 1.3) ** g)
    # what leaks is what is there, and a unit of the later node leaks 1.3 times less
    per_unit = later.logic.leakage * later.logic.mac_area["bf16"]
    assert per_unit == pytest.approx(N5.logic.leakage * N5.logic.mac_area["bf16"] / 1.3**g)


def test_memory_stays_or_follows_logic_and_crossbars_follow_always():
    for how, cells in (({}, 1.0), (AS_LOGIC, 1.8**2)):
        later = scaled_node(N5, 2.0, **how)
        for a, b in zip(N5.on_chip, later.on_chip, strict=True):
            assert a.area / b.area == pytest.approx(cells)
            assert a.port_area == pytest.approx(b.port_area * 1.8**2)
            assert b.latency == a.latency and b.overhead == a.overhead
        assert N5.process.sram_cell / later.process.sram_cell == pytest.approx(cells)
        assert later.process.wire_energy == N5.process.wire_energy


def test_generations_may_be_an_axis():
    many = np.array([0.0, 1.0, 2.5])
    box = scaled_node(N5, many, logic_area=np.array([1.8, 1.7, 1.5]))
    for i, g in enumerate(many):
        one = scaled_node(N5, float(g), logic_area=(1.8, 1.7, 1.5)[i])
        for path, value in numbers(one).items():
            assert np.broadcast_to(value_at(box, path), 3)[i] == pytest.approx(value, rel=1e-15)


def test_it_can_be_derived():
    jax = pytest.importorskip("jax")
    enable_jax()

    def area(g):
        return scaled_node(N5, g).logic.mac_area["bf16"]

    slope = jax.grad(area)(1.0)
    assert float(slope) == pytest.approx(-np.log(1.8) * float(area(1.0)), rel=1e-9)
    assert len(leaves(scaled_node(N5, 1.0))) == len(leaves(N5))


def test_sources_say_that_numbers_were_scaled():
    later = scaled_node(N5, 1.0)
    said = later.sources["logic.mac_energy.bf16"].source
    assert said == f"{N5.sources['logic.mac_energy.bf16'].source}; scaled by a factor a node"
    assert later.sources["logic.clock"] is N5.sources["logic.clock"]
    assert stated(later)["logic.mac_energy.bf16"].value == later.logic.mac_energy["bf16"]
