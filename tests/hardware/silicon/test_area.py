"""What fits a die: the published points, parts that add up, laws, and dies that are too small."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import strata as st
from strata.base.arrays import enable_jax
from strata.base.errors import BadValue, MissingQuantity
from strata.hardware.making import why_no_core
from strata.hardware.silicon.floorplan import area_parts, connections_that_fit, usable_cores
from strata.validation.measured.reader import reader_of
from strata.validation.readers.comparison import held_out
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

DATA = Path(st.__file__).resolve().parents[1] / "validation"
PLAN = st.chip("stack-ref").silicon.floorplan


def split(capacity=2.0**18, width=256.0, layers=4.0, connected=None, die=1e-4, plan=PLAN, **more):
    connected = layers if connected is None else connected
    return area_parts(
        plan,
        die,
        capacity=capacity,
        width=width,
        cache=6.0 * 2**20,
        layers=layers,
        connected=connected,
        channels=16.0,
        channel_width=32.0,
        **more,
    )


def test_published_core_counts_are_met_and_so_are_those_no_fit_has_seen():
    name = "area/deepstack_cores.csv"
    found = reader_of(name, Catalogue())(read_table(DATA, name), Catalogue())
    off = np.abs(found.predicted - found.measured)
    assert len(found) == 33 and np.count_nonzero(off <= 1) >= 30
    assert np.count_nonzero(off == 0) >= 31
    unseen = held_out(found)
    assert len(unseen) == 11 and np.array_equal(unseen.predicted, unseen.measured)


def test_constants_fitted_to_the_points_are_physically_possible():
    cell = float(st.hardware.area("stack-ref").parts["local memory"] / (8 * 2**18 * 8)) * 1e12  # um2 a bit
    assert 0.021 < cell < 0.021 * 12  # a bare cell, and ten times that for banks and crossbars
    assert 5e-6 < PLAN.via_pitch < 40e-6 and 1e-6 < PLAN.core_area < 6e-6


def test_an_unconnected_layer_costs_less_than_a_connected_one():
    vertical = [float(split(layers=8.0, connected=n).parts["vertical"]) for n in (2.0, 6.0, 8.0)]
    assert 0 < vertical[0] < vertical[1] < vertical[2]
    # more than there are connect no more
    assert float(split(layers=8.0, connected=12.0).parts["vertical"]) == vertical[2]


positive = some.floats(0.2, 5.0)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(positive, positive, some.integers(1, 16), some.floats(0.1, 8.0))
def test_parts_add_up_to_the_die(memory, port, layers, die):
    found = split(2.0**18 * memory, 256.0 * port, float(layers), die=1e-4 * die)
    assert sum(map(float, found.parts.values())) == pytest.approx(1e-4 * die, rel=1e-12)
    assert float(found.cores) >= 0 and float(found.cores) == float(found.cores) // 1
    if float(found.cores) > 0:
        assert -1e-15 <= float(found.parts["unused"]) < float(found.core)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(positive, positive, some.integers(1, 15), some.floats(1.01, 3.0))
def test_more_memory_wider_ports_and_more_layers_never_make_room_for_cores(memory, port, layers, more):
    capacity, width = 2.0**18 * memory, 256.0 * port
    base = float(split(capacity, width, float(layers)).cores)
    assert float(split(capacity * more, width, float(layers)).cores) <= base
    assert float(split(capacity, width * more, float(layers)).cores) <= base
    assert float(split(capacity, width, layers + 1.0).cores) <= base
    assert float(split(capacity, width, layers + 1.0, connected=float(layers)).cores) <= base
    assert float(split(capacity, width, float(layers), die=1e-4 * more).cores) >= base


@settings(deadline=None, derandomize=True, max_examples=40)
@given(some.floats(0.5, 3.0))
def test_scaling_every_length_keeps_the_cores(scale):
    areas = ("core_area", "sram_area", "port_area", "cache_area", "fixed_area", "controller_area")
    lengths = ("link_edge", "memory_edge", "phy_depth", "via_pitch")
    grown = replace(
        PLAN,
        **{n: getattr(PLAN, n) * scale**2 for n in areas},
        **{n: getattr(PLAN, n) * scale for n in lengths},
    )
    assert float(split(die=1e-4 * scale**2, plan=grown).cores) == float(split().cores)


def test_a_batch_equals_singles():
    layers, memory = np.arange(1.0, 13.0)[:, None], np.array([128.0, 256.0, 512.0]) * 1024
    both = split(memory, 256.0, layers)
    for i, n in enumerate(layers[:, 0]):
        for j, c in enumerate(memory):
            one = split(float(c), 256.0, float(n))
            assert float(both.cores[i, j]) == float(one.cores)
            for part in one.parts:
                assert np.broadcast_to(both.parts[part], both.cores.shape)[i, j] == pytest.approx(
                    float(one.parts[part]), rel=1e-12, abs=1e-18
                )


def test_jax_gives_the_same():
    jax = enable_jax()
    layers = np.arange(1.0, 13.0)
    found = jax.jit(lambda n: split(layers=n).cores)(layers)
    assert np.array_equal(np.asarray(found), split(layers=layers).cores)


def test_a_die_smaller_than_its_fixed_parts_has_no_core_and_says_why():
    found = st.hardware.area(
        "stack-ref", **{"package.die_area": "70 mm2", "link_edge": "20 mm", "layers": 12}
    )
    assert float(found.cores) == 0 and float(found.parts["unused"]) < 0
    assert "levers: a larger die, fewer connected layers" in str(why_no_core(found))
    narrow = st.hardware.area("stack-ref", link_edge="60 mm")
    assert float(narrow.cores) == 0 and "interfaces on the edge of the die: needs 60 mm, has 40 mm" in str(
        why_no_core(narrow)
    )
    assert why_no_core(st.hardware.area("stack-ref")) is None
    small = st.chip("stack-ref", **{"package.die_area": "40 mm2"})
    assert float(small.compute.cores) == 1 and float(small.cores_fit) == 0


def test_cores_may_be_given_and_what_is_left_is_told():
    found = st.hardware.area("stack-ref", cores=10.0)
    assert float(found.cores) == 10 and float(found.parts["unused"]) < 0
    assert sum(map(float, found.parts.values())) == pytest.approx(float(found.die))


def test_the_same_core_fits_a_gh100_as_often_as_it_has_sms():
    found, made = st.hardware.area("h100"), st.chip("h100").silicon
    assert float(found.cores) == 144 and float(usable_cores(found, made)) == float(
        st.chip("h100").compute.cores
    )


def test_a_network_in_the_stack_gives_its_area_to_cores():
    wide = {"noc.width": "512 B"}
    inside, above = (st.hardware.area("stack-ref", **wide, placement=p) for p in ("logic", "dram"))
    assert float(inside.cores) < float(above.cores) <= 8
    assert float(above.parts["network"]) < float(inside.parts["network"])


def test_a_chip_scales_its_peaks_with_the_cores_that_fit():
    base = st.chip("stack-ref")
    deep = st.chip("stack-ref", layers=np.array([4.0, 8.0, 12.0]))
    assert list(deep.compute.cores) == [8, 5, 3]
    for name, rate in base.compute.matrix_rate.items():
        assert deep.compute.matrix_rate[name] == pytest.approx(rate * np.array([8, 5, 3]) / 8)
    assert deep.compute.sram_capacity == base.compute.sram_capacity


def test_vias_are_far_fewer_than_bonds_that_fit_but_not_than_bumps():
    found = st.hardware.area("stack-ref", layers=12)
    assert float(found.vias) == 12 * (3000 + 16 * (256 + 64))
    assert float(found.vias) < float(connections_that_fit(found.die, 9e-6)) / 10
    assert float(found.vias) > float(connections_that_fit(found.die, 40e-6))


def test_changes_reach_every_part_of_how_a_chip_is_made():
    made = st.chip(
        "stack-ref",
        **{
            "layers": 3,
            "floorplan.via_pitch": "9 um",
            "noc__width": 64.0,
            "technology": "n3",
            "placement": "dram",
        },
    )
    assert (
        float(made.stack.layers) == 3
        and made.silicon.floorplan.via_pitch == pytest.approx(9e-6)
        and float(made.silicon.noc.width) == 64
    )
    assert made.silicon.technology == "n3" and made.silicon.noc.placement == "dram"
    assert st.chip("stack-ref", floorplan_file="h100").silicon.packaging == st.chip("h100").silicon.packaging


def test_a_chip_whose_cores_do_not_fit_is_out_with_levers():
    found = st.evaluate(
        st.system("256xstack-ref", cores=12.0),
        "deepseek-v3",
        st.decode(batch=64, context=1024),
        "tp=16,dp=16,ep=256",
    )
    assert not found.fits and float(found.metrics.tokens_per_s) == 0
    assert any(i.demand == 12 and i.limit == 8 and "a larger die" in i.levers for i in found.infeasible)


def test_bad_input_is_one_line():
    with pytest.raises(
        MissingQuantity,
        match=r"nothing says how chip 'a100-80' is made; name a floorplan with floorplan_file: .*stack-ref",
    ):
        st.hardware.area("a100-80")
    with pytest.raises(MissingQuantity, match=r"b200 has no \[floorplan\]"):
        st.hardware.area("b200")
    with pytest.raises(BadValue, match="a share is at most 1"):
        st.chip("stack-ref", utilisation=1.2)
    with pytest.raises(BadValue, match=r"noc\.placement must be one of logic, dram"):
        st.chip("stack-ref", placement="cloud")
    with pytest.raises(st.StrataError, match=r"no technology called 'n6'; .*all: .*n16, n2, n3, n5, n7"):
        st.chip("stack-ref", technology="n6")
    with pytest.raises(BadValue, match="core_area must be positive"):
        st.hardware.area("stack-ref", core_area=0.0)
    with pytest.raises(BadValue, match="change a chip's numbers where it is made"):
        st.hardware.area(st.chip("stack-ref"), layers=3)


def test_a_floorplan_without_vias_lands_nothing():
    flat = replace(PLAN, via_pitch=None)
    assert float(split(plan=flat).parts["vertical"]) == 0


def test_a_short_name_is_that_of_the_chip_before_that_of_how_it_is_made():
    assert float(st.chip("stack-ref", clock="1 GHz").compute.clock) == 1e9
    # a wider port
    assert float(st.hardware.area("stack-ref", clock=0.9 * st.chip("stack-ref").compute.clock).core) > float(
        st.hardware.area("stack-ref").core
    )
