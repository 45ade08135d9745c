"""Time gives power, power temperature, temperature leakage and refresh, and limits the clock: laws of the
loop, and what a user sees of it.
"""

import math
from dataclasses import fields, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import strata as st
from strata.app.cli import run_command
from strata.hardware.dram.channel import refresh_left
from strata.hardware.thermal.compact import leakage
from strata.mapping.rules import LIMITS
from strata.pricing.power_cap import LEAST, power_capped
from strata.pricing.power_limits import leakage_chord, power_limits, settled_power, static_power_of
from strata.pricing.price import Price

H200 = st.chip("h200")
TOO_WEAK = "chip.cooling.transfer=2 kW/m2/K"


@cache
def stack(layers=4.0, **changed):
    """The stacked reference with numbers of its cooling changed."""
    return st.chip(
        "stack-ref",
        **{"stack.layers": layers, **{f"cooling.{name}": value for name, value in changed.items()}},
    )


@some.composite
def loads(draw):
    """A load of up to 300 W in cores and caches, and of DRAM read at up to twice its peak."""
    compute, stored, memory, network, overhead = (draw(some.floats(0.0, 1e-3)) for _ in range(5))
    time = compute + stored + memory + network + overhead + 1e-6
    moved = draw(some.floats(0.0, 3.3e12)) * time
    links = draw(some.floats(0.0, 5.0)) * time
    energy = draw(some.floats(0.0, 300.0)) * time + moved * stack().energy.memory + links
    return Price(
        time=time,
        compute=compute,
        cache=stored,
        memory=memory,
        network=network,
        overhead=overhead + 1e-6,
        upper=time,
        core_time_under_dram=memory * draw(some.floats(0.0, 1.0)),
        memory_bytes=moved,
        link_energy=links,
        energy=energy,
    )


LAYERS = some.sampled_from([1.0, 4.0, 9.0, 12.0])


@given(loads(), LAYERS)
@settings(max_examples=200, deadline=None)
def test_no_load_is_hotter_than_its_limits_unless_nothing_holds_it(load, layers):
    chip = stack(layers)
    held = power_capped(load, chip)
    if held.holds:
        assert held.logic <= chip.heat.logic_limit + 1e-6 and held.dram <= chip.heat.dram_limit + 1e-6
        assert held.power <= chip.energy.power_limit * (1 + 1e-9)
    else:
        assert held.share == pytest.approx(LEAST)
    assert not any(
        math.isnan(float(v)) for v in (held.power, held.static, held.logic, held.dram, held.price.time)
    )


@given(loads(), LAYERS)
@settings(max_examples=200, deadline=None)
def test_a_load_that_slows_down_is_near_a_limit(load, layers):
    """Leakage by its chord errs on the safe side: not by more than the chord lies above the curve."""
    chip = stack(layers)
    held = power_capped(load, chip)
    if held.holds and LEAST + 0.01 < held.share < 1.0:
        heat = chip.heat
        rises = [
            (held.logic - heat.ambient) / (heat.logic_limit - heat.ambient),
            (held.dram - heat.ambient) / (heat.dram_limit - heat.ambient),
        ]
        assert max(*rises, held.power / chip.energy.power_limit) > 0.92


@given(loads(), LAYERS, some.floats(330.0, 380.0), some.floats(330.0, 380.0))
@settings(max_examples=100, deadline=None)
def test_a_lower_limit_is_never_faster(load, layers, one, other):
    chip = stack(layers)

    def at(**limit):
        return power_capped(load, replace(chip, heat=replace(chip.heat, **{"refresh_limit": 400.0, **limit})))

    cool, warm = (at(dram_limit=limit) for limit in sorted((one, other)))
    assert cool.price.time >= warm.price.time * (1 - 1e-12) and cool.holds <= warm.holds
    # The chord of leakage ends at the limit of logic, so that a higher limit costs a little where DRAM or
    # power bind.
    cool, warm = (at(logic_limit=limit) for limit in sorted((one, other)))
    if cool.holds and warm.holds:
        assert cool.price.time >= warm.price.time * (1 - 0.1)
    watts = [
        replace(chip, energy=replace(chip.energy, power_limit=w)) for w in sorted((one / 4.0, other / 4.0))
    ]
    low, high = (power_capped(load, c) for c in watts)
    assert low.price.time >= high.price.time * (1 - 1e-12) and low.holds <= high.holds


@given(loads(), LAYERS)
@settings(max_examples=100, deadline=None)
def test_a_better_cooling_is_never_slower_and_never_hotter_at_one_clock(load, layers):
    found = [power_capped(load, stack(layers, transfer=f"{h} kW/m2/K")) for h in (8, 30, 90)]
    for weak, strong in pairwise(found):
        assert strong.price.time <= weak.price.time * (1 + 1e-12) and strong.holds >= weak.holds
        if strong.share == weak.share:
            assert strong.logic <= weak.logic and strong.power <= weak.power * (1 + 1e-12)


@given(loads())
@settings(max_examples=50, deadline=None)
def test_leakage_follows_temperature_and_is_what_was_stated_at_its_temperature(load):
    warm, cool = stack(4.0, ambient="45 degC"), stack(4.0, ambient="20 degC")
    memory = load.memory_bytes * warm.energy.memory
    core = (load.energy - memory) * 0.2
    (hot_rest, hot, _), (cool_rest, low, _) = (
        settled_power(c, core / load.time, 0.2 * memory / load.time) for c in (warm, cool)
    )
    assert hot > low and hot_rest > cool_rest
    if hot < math.inf:
        rest = static_power_of(warm)
        leaks = leakage(rest.leaking, hot, warm.heat.leakage_temperature, warm.heat.leakage_doubling)
        assert hot_rest == pytest.approx(rest.logic + rest.dram + leaks, rel=1e-9)
    rest = static_power_of(warm)
    assert rest.logic + rest.leaking == pytest.approx(warm.energy.static_power)


@given(some.floats(0.0, 1.0), some.floats(0.1, 80.0), some.floats(8.0, 60.0))
def test_the_chord_lies_above_leakage_and_meets_it_at_both_ends(where, leaking, doubling):
    heat = replace(stack().heat, leakage_doubling=doubling)
    low, slope = leakage_chord(heat, leaking, heat.logic_limit)

    def above(t):
        return low + slope * (t - heat.ambient) - leakage(leaking, t, heat.leakage_temperature, doubling)

    assert above(heat.ambient + where * (heat.logic_limit - heat.ambient)) >= -1e-9 * leaking
    assert above(heat.ambient) == pytest.approx(0.0, abs=1e-9) and above(heat.logic_limit) == pytest.approx(
        0.0, abs=1e-9 * 2.0 ** (100 / doubling)
    )


def test_a_batch_of_loads_and_stacks_equals_single_ones():
    rng = np.random.default_rng(2)
    count = 40
    layers = rng.choice([1.0, 4.0, 9.0, 12.0], count)
    columns = {f: rng.uniform(0, 1e-3, count) for f in ("compute", "cache", "memory", "overhead")}
    time = sum(columns.values())
    moved = rng.uniform(0, 2e12, count) * time
    energy = rng.uniform(0, 250, count) * time + moved * stack().energy.memory
    batch = Price(
        time=time, core_time_under_dram=0.5 * columns["memory"], memory_bytes=moved, energy=energy, **columns
    )
    held = power_capped(batch, st.chip("stack-ref", layers=layers))
    assert 0 < np.sum(held.share < 1) < count
    for i in range(count):
        one = power_capped(
            Price(**{f: float(np.broadcast_to(v, count)[i]) for f, v in vars(batch).items()}),
            stack(layers[i]),
        )
        assert one.share == held.share[i] and one.holds == np.broadcast_to(held.holds, count)[i]
        for name in ("power", "static", "logic", "dram"):
            assert getattr(one, name) == pytest.approx(getattr(held, name)[i], rel=1e-12), name


def hot_stacks(layers, **changed):
    """Stacks with a weak cooling and costly operations, which throttle, and room for a model on eight of
    them.
    """
    changed = {
        "cooling.transfer": "9 kW/m2/K",
        "energy.matrix.bf16": "1.4 pJ/FLOP",
        "stack.capacity_per_layer": "40 GB",
        **changed,
    }
    return st.system(
        st.chip("stack-ref", layers=layers, **changed),
        st.hardware.sized(st.fabric("torus-256"), (4, 2, 1, 1, 1)),
    )


def test_numpy_and_jax_agree_over_stacks_that_throttle():
    pytest.importorskip("jax")
    layers = np.array([1.0, 3.0, 6.0, 9.0, 12.0])
    asked = (
        hot_stacks(layers, **{"cooling.dram_limit": "95 degC"}),
        "llama-3-8b",
        st.prefill(16, 2048),
        "tp=8",
    )
    ours, theirs = st.evaluate(*asked), st.evaluate(*asked, backend="jax")
    assert np.all(ours.metrics.clock < 0.9 * stack().compute.max_clock) and np.ptp(ours.metrics.clock) > 0
    np.testing.assert_array_equal(ours.reason, theirs.reason)
    for name in (f.name for f in fields(ours.metrics)):
        np.testing.assert_allclose(
            getattr(theirs.metrics, name), getattr(ours.metrics, name), rtol=1e-9, err_msg=name
        )
    for i in range(len(layers)):
        assert ours.at(i).metrics.clock == pytest.approx(ours.metrics.clock[i], rel=1e-12)


def test_numpy_and_jax_agree_where_dram_would_pass_its_refresh_limit():
    pytest.importorskip("jax")
    asked = (hot_stacks(np.array([1.0, 4.0])), "llama-3-8b", st.prefill(16, 2048), "tp=8")
    ours, theirs = st.evaluate(*asked), st.evaluate(*asked, backend="jax")
    np.testing.assert_allclose(theirs.metrics.step_time, ours.metrics.step_time, rtol=1e-9)
    np.testing.assert_allclose(theirs.metrics.upper, ours.metrics.upper, rtol=1e-9)


def test_stacks_with_and_without_room_above_85_degrees_in_one_box_equal_single_ones():
    load = Price(time=1e-3, memory=1e-3, upper=1e-3, memory_bytes=1.2e9, energy=0.12)
    mixed = power_capped(
        load, st.chip("stack-ref", **{"stack.layers": 9.0, "cooling.dram_limit": np.array([358.15, 368.15])})
    )
    for i, limit in enumerate(("85 degC", "95 degC")):
        assert power_capped(load, stack(9.0, dram_limit=limit)).price.memory == pytest.approx(
            mixed.price.memory[i], rel=1e-12
        )


def test_dram_above_85_degrees_is_refreshed_twice_as_often():
    """Where the limit of DRAM is 95 degC a hot load may pass 85 degC, and its memory time grows as refresh
    leaves less; a cool one keeps its time.
    """
    chip = stack(9.0, dram_limit="95 degC")
    timing = chip.stack.dram.timing
    ratio = float(refresh_left(timing, 0.0) / refresh_left(timing, 1.0))
    assert 1.0 < ratio < 1.2
    watts = np.linspace(0.0, 80.0, 41)
    load = Price(
        time=1e-3,
        memory=1e-3,
        upper=1e-3,
        memory_bytes=1.2e9,
        energy=1e-3 * (watts + 1.2e12 * chip.energy.memory),
    )
    held = power_capped(load, chip)
    assert not np.any(np.isnan([held.price.time, held.power, held.logic, held.dram]))
    grown = held.price.memory / 1e-3
    assert set(np.round(grown, 12)) == {1.0, round(ratio, 12)} and np.all(np.diff(grown) >= 0)
    assert np.all(held.dram[grown == 1.0] <= chip.heat.refresh_limit) and np.all(
        held.dram <= chip.heat.dram_limit + 1e-6
    )
    assert np.max(held.dram) > chip.heat.refresh_limit
    # With the usual limit of 85 degC clocks fall before that, and refresh never doubles.
    assert np.all(power_capped(load, stack(9.0)).price.memory == 1e-3)


def test_a_stack_that_cannot_be_cooled_is_an_answer_with_levers():
    chip = st.chip("stack-ref", **{"cooling.transfer": "2 kW/m2/K", "stack.capacity_per_layer": "40 GB"})
    found = st.evaluate(
        st.system(chip, st.hardware.sized(st.fabric("torus-256"), (4, 2, 1, 1, 1))),
        "llama-3-8b",
        st.prefill(16, 2048),
        "tp=8",
    )
    assert found.reason == LIMITS.bit and not found.fits
    assert (
        found.metrics.step_time == math.inf
        and found.metrics.tokens_per_s == 0.0
        and found.metrics.power == 0.0
    )
    (why,) = found.infeasible
    assert (
        "temperature of DRAM" in why.what
        and why.unit == "K"
        and why.demand > why.limit == pytest.approx(273.15 + 85)
    )
    assert any("cooling" in lever for lever in why.levers)
    assert "degC" in str(why) and "\n" not in str(why)


def test_predict_says_in_one_line_that_a_stack_is_too_hot(capsys):
    asked = [
        "predict",
        "--model",
        "llama-3-8b",
        "--system",
        "8xstack-ref",
        "--phase",
        "decode",
        "--batch",
        "8",
        "--plan",
        "tp=8",
    ]
    assert run_command([*asked, "--set", TOO_WEAK]) == 2
    said = capsys.readouterr()
    assert (
        "temperature of DRAM" in said.err and "levers" in said.err and len(said.err.strip().splitlines()) == 1
    )
    assert run_command(asked) == 0
    said = capsys.readouterr().out
    line = next(line for line in said.splitlines() if line.strip().startswith("temperature"))
    assert "degC" in line and "of 105 degC" in line and "of 85 degC" in line


def test_a_chip_without_a_cooling_has_its_power_limit_and_no_temperature(capsys):
    """GPUs are held by power alone, as before there was heat."""
    (only,) = power_limits(H200)
    assert (only.core, only.memory) == (1.0, 1.0)
    held = H200.energy.power_limit * H200.energy.held  # what its controller keeps
    assert only.room == pytest.approx(held - H200.energy.static_power, rel=1e-12)
    held = power_capped(Price(time=1e-3, compute=1e-3, energy=1.2), H200)
    assert held.static == H200.energy.static_power and math.isnan(held.logic) and math.isnan(held.dram)
    assert (
        run_command(
            ["predict", "--model", "llama-3-8b", "--system", "1xh200", "--phase", "decode", "--plan", "tp=1"]
        )
        == 0
    )
    assert "temperature" not in capsys.readouterr().out
