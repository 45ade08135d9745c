"""Durations, bytes and joules of any point: never negative, between their bounds, and adding up."""

from dataclasses import fields

import pytest
from cases import points
from hypothesis import given, settings

import strata as st
from strata.base.arrays import leaves
from strata.hardware.money import host_power
from strata.workload.graph import is_collective


@given(points())
@settings(max_examples=120)
def test_durations_bytes_and_joules_are_never_negative_nor_nan(point):
    r = st.evaluate(*point)
    quantities = [
        *leaves(r.summary),
        *(
            v
            for s in r.steps
            for b in s.blocks
            for _, p in b.ops
            for v in leaves(tuple(getattr(p, f.name) for f in fields(p)))
        ),
    ]
    assert r.fits
    # waiting is a difference of sums
    assert len(quantities) > 100 and min(float(q) for q in quantities) >= -1e-12 * r.metrics.step_time


@given(points())
@settings(max_examples=120)
def test_a_time_lies_between_its_bounds(point):
    r = st.evaluate(*point)
    assert r.metrics.lower <= r.metrics.step_time * (1 + 1e-12) and r.metrics.step_time <= r.metrics.upper * (
        1 + 1e-12
    )
    for step in r.steps:
        # The bound of a mean device is not clipped to the time: it must hold by itself.
        assert step.price.lower <= step.time * (1 + 1e-12) and step.price.time <= step.price.upper * (
            1 + 1e-9
        )
        for block in step.blocks:
            for op, price in block.ops:
                hidden = is_collective(op) and op.prefetch
                assert hidden or price.lower <= price.time * (1 + 1e-12), op.name
                assert price.time <= price.upper * (1 + 1e-12), op.name


@given(points())
@settings(max_examples=120)
def test_no_device_does_more_than_its_peaks(point):
    r = st.evaluate(*point)
    assert 0 < r.metrics.mfu <= 1
    assert 0 < r.metrics.mbu <= 1


@given(points())
@settings(max_examples=120)
def test_energy_parts_add_up(point):
    """Power is energy over time: static and dynamic, devices and hosts, tokens and steps."""
    where, _, work, plan = point
    r = st.evaluate(*point)
    m, beside = r.metrics, sum(host_power(where.fabric, r.economics, r.metrics.device_power))
    assert m.power == pytest.approx(float(where.devices) * (m.device_power + beside), rel=1e-12)
    assert m.energy_per_token * m.tokens_per_s == pytest.approx(m.power, rel=1e-12)
    if work.phase != "serve":
        (step,) = r.steps
        dynamic = (m.device_power - step.static) * step.time
        assert dynamic == pytest.approx(step.price.energy, rel=1e-9)
        if plan.pp == 1 and work.phase != "train" and step.clock == 1.0:
            ops = sum(b.block.count * price.energy for b in step.blocks for _, price in b.ops)
            assert dynamic == pytest.approx(ops * step.microbatches, rel=1e-9)


@given(points())
@settings(max_examples=120)
def test_energy_by_level_adds_up_and_no_level_gives_energy_back(point):
    r = st.evaluate(*point)
    parts = r.summary.energy
    assert min(parts.values()) >= -1e-12 * max(parts.values())
    if r.fits:
        assert sum(parts.values()) == pytest.approx(r.metrics.energy_per_token, rel=1e-9)


@given(points())
@settings(max_examples=120)
def test_time_by_kind_of_op_adds_up_to_the_mean_device(point):
    r = st.evaluate(*point)
    for step in r.steps:
        assert sum(step.time_by_kind.values()) == pytest.approx(step.price.time, rel=1e-9)
        assert step.price.time <= step.time * (1 + 1e-12)


@given(points(sizes=(1, 2, 8)))
@settings(max_examples=120)
def test_without_a_pipeline_the_mean_device_is_busy_all_the_time(point):
    """Nothing waits for another stage, so the times by kind of op are the whole step: recomputed layers and
    the optimiser included.
    """
    if point[3].pp == 1:
        for step in st.evaluate(*point).steps:
            assert sum(step.time_by_kind.values()) == pytest.approx(step.time, rel=1e-9)


@given(points())
@settings(max_examples=120)
def test_memory_money_and_what_binds_add_up(point):
    """Parts of the memory, of the time by what binds it, and what a token costs by the hour."""
    where, _, work, _ = point
    r = st.evaluate(*point)
    m, prefill = r.metrics, r.metrics.ttft if work.phase == "serve" else 0.0
    assert sum(r.summary.memory.values()) == pytest.approx(m.memory_used, rel=1e-12)
    assert r.fits == (m.memory_used <= m.memory_limit)
    bought = m.cost_per_mtoken * 1e-6 * m.tokens_per_s * 3600.0
    assert bought == pytest.approx(m.cost_per_device_hour * float(where.devices), rel=1e-12)
    assert m.tokens_per_s_per_device * float(where.devices) == pytest.approx(m.tokens_per_s, rel=1e-12)
    steps = work.output if work.phase == "serve" else 1.0
    whole = sum(r.summary.resources.values())
    assert whole == pytest.approx(prefill + steps * m.step_time, rel=1e-9)
