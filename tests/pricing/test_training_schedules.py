"""Closed forms of schedules against simulated orders, for stages that differ; stages as trainers split them."""

import numpy as np
import pytest
from cases import roomy
from hypothesis import example, given, settings
from hypothesis import strategies as some

import strata as st
from strata.mapping.training_plan import SCHEDULE
from strata.pricing.pipeline import EXACTLY, interleaved_layers, stage_bounds
from strata.pricing.pipeline_schedules import filled_time, listed_passes, waits_for_hand_overs
from strata.simulate.pipelines import StageTimes, pipeline_tasks
from strata.software.engine import engine

SHARE = some.floats(0.6, 1.5)


def closed(name, times, stages, pieces, one_way=0.0, waits=1.0):
    code = float(SCHEDULE.index(name)) if name in SCHEDULE else 0.0
    passes = listed_passes(times.forward, times.inputs, times.weights, stages)
    virtual = float(times.chunks // stages)
    return float(filled_time(passes, code, float(stages), float(pieces), virtual, one_way, waits))


def drawn(data, chunks, forward=1.0):
    """Chunks of unlike length, with gradients to inputs and weights in a ratio of their own."""
    length = np.array(data.draw(some.lists(SHARE, min_size=chunks, max_size=chunks)))
    inputs, weights = data.draw(some.floats(0.7, 2.0)), data.draw(some.floats(0.2, 0.7))
    parts = (length * forward, length * inputs, length * weights)
    return StageTimes(**dict(zip(("forward", "inputs", "weights"), map(tuple, parts), strict=True)))


@pytest.mark.parametrize(
    ("name", "worst"), [("gpipe", 1e-9), ("1f1b", 0.10), ("zero-bubble", 0.12), ("dualpipe", 0.12)]
)
@settings(max_examples=40, deadline=None)
@given(some.data())
def test_unlike_stages_take_what_their_order_takes(name, worst, data):
    stages = 2 * data.draw(some.integers(1, 4))
    least = 2 * stages if name in ("dualpipe", "zero-bubble") else 1
    pieces = 2 * data.draw(some.integers((least + 1) // 2, 2 * stages))
    times = drawn(data, stages)
    found = pipeline_tasks(name, times, stages, pieces).run().time
    assert closed(name, times, stages, pieces) == pytest.approx(found, rel=worst)


@settings(max_examples=40, deadline=None)
@given(some.integers(2, 6), some.integers(2, 3), some.integers(2, 5), SHARE, SHARE)
def test_interleaved_chunks_with_longer_ends(stages, virtual, groups, first, last):
    """An embedding before the first chunk, a head behind the last."""
    lengths = np.ones(stages * virtual)
    lengths[0], lengths[-1] = max(first, 1.0), max(last, 1.0)
    times = StageTimes(forward=tuple(lengths), inputs=tuple(lengths), weights=tuple(lengths))
    found = pipeline_tasks("interleaved", times, stages, stages * groups).run().time
    assert closed("interleaved", times, stages, stages * groups) == pytest.approx(found, rel=0.12)


def test_mean_errors_over_random_cases():
    """What the docstrings state: 1 % for 1F1B, 3 % for zero-bubble and DualPipe, in the mean."""
    draw, errors = np.random.default_rng(7), {}
    for name, stated in (("1f1b", 0.01), ("zero-bubble", 0.03), ("dualpipe", 0.04)):
        for _ in range(40):
            stages = 2 * int(draw.integers(1, 5))
            pieces = 2 * stages + 2 * int(draw.integers(0, stages))
            length = draw.uniform(0.7, 1.3, stages)
            f, b, w = (length * draw.uniform(low, 1.2) for low in (0.9, 0.8, 0.4))
            times = StageTimes(forward=tuple(f), inputs=tuple(b), weights=tuple(np.minimum(w, b)))
            found = pipeline_tasks(name, times, stages, pieces).run().time
            errors.setdefault(name, []).append(abs(closed(name, times, stages, pieces) / found - 1.0))
        assert np.mean(errors[name]) < stated, (name, np.mean(errors[name]))


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "interleaved", "dualpipe"])
def test_hand_overs_are_waited_for_or_hide(name):
    """Orders with links in line (1F1B) or beside the cores (all others), small against a pass."""
    stages, pieces, virtual, send = 4, 16, 2 if name == "interleaved" else 1, 0.05
    chunks = stages * virtual
    code = float(SCHEDULE.index(name)) if name in SCHEDULE else 0.0
    waits = float(waits_for_hand_overs(code, float(virtual), 1.0))
    assert waits == (name == "1f1b")
    inline = [send * waits * (i < chunks - 1) for i in range(chunks)]
    times = StageTimes(
        forward=tuple(1.0 + s for s in inline), inputs=tuple(1.0 + s for s in inline[::-1]),
        weights=(0.5,) * chunks, send=send * (1 - waits), send_back=send * (1 - waits),
    )  # fmt: skip
    plain = StageTimes(forward=(1.0,) * chunks, inputs=(1.0,) * chunks, weights=(0.5,) * chunks)
    found = pipeline_tasks(name, times, stages, pieces).run().time
    assert closed(name, plain, stages, pieces, virtual * send, waits) == pytest.approx(found, rel=0.02)


def test_chunks_that_wait_do_so_for_every_chunk():
    assert float(waits_for_hand_overs(0.0, 2.0, 0.0)) == 1.0
    plain = StageTimes(forward=(1.0,) * 8, inputs=(1.0,) * 8, weights=(1.0,) * 8)
    more = closed("interleaved", plain, 4, 16, 0.2, 1.0) - closed("interleaved", plain, 4, 16)
    assert more >= 16 * 2 * 0.2


# -------------------------------------------------------------------------------------------------- stages


def test_published_splits():
    """GPT-3's 96 layers in 8 stages of 12 chunks: one each. Llama 3 405B: 126 layers and both ends in 8
    stages of 8 chunks, two each (Llama 3 report, sec. 3.3.2: a layer fewer on the first and last stage).
    nanotron's split of Llama 3 8B over 8 stages begins 5, 4, 4 (its documentation).
    """
    every = np.arange(8.0)
    assert interleaved_layers(96.0, 8.0, every, 12.0).tolist() == [12.0] * 8
    assert interleaved_layers(126.0, 8.0, every, 8.0, 1.0).tolist() == [15.0, *[16.0] * 6, 15.0]
    assert stage_bounds(126.0, 16.0, np.arange(16.0), 1.0)[1].tolist() == [7.0, *[8.0] * 14, 7.0]
    assert stage_bounds(32.0, 8.0, every, head=2.16)[1].tolist()[:3] == [5.0, 4.0, 4.0]


@given(some.integers(1, 130), some.integers(1, 16), some.integers(1, 8), some.sampled_from([0.0, 1.0]))
@example(27, 1, 2, 0.0)
@example(31, 2, 4, 0.0)
def test_every_layer_stands_on_one_stage(layers, stages, virtual, ends):
    virtual = max(min(virtual, int(layers + 2 * ends) // (2 * stages)), 1)
    stages = min(stages, layers)
    every = np.arange(float(stages))
    start, size = stage_bounds(float(layers), float(stages), every, ends)
    assert size.sum() == layers and np.array_equal(start, np.cumsum(size) - size)
    if layers >= stages * virtual + 2:
        assert interleaved_layers(float(layers), float(stages), every, float(virtual), ends).sum() == layers
    start, size = stage_bounds(float(layers), float(stages), every, head=2.5)
    assert size.sum() == layers and np.all(size >= 0.0)


def nanotron_split(layers, head, stages):
    """nanotron's rule, block by block."""
    costs = [1.0] * layers + [head]
    sums, at, found = np.cumsum(costs), 0, [0] * stages
    for i in range(layers):
        found[at] += 1
        at += sums[i] > sums[-1] * (at + 1) / stages
    return found


@given(some.integers(1, 100), some.floats(0.1, 6.0), some.integers(1, 32))
def test_balanced_stages_are_found_block_by_block(layers, head, stages):
    stages = min(stages, layers)
    found = stage_bounds(float(layers), float(stages), np.arange(float(stages)), head=head)[1]
    assert found.tolist() == nanotron_split(layers, head, stages)


def test_a_share_that_ends_with_a_layer_is_reached_or_passed():
    """16 layers and a head of four: 10 of the first of two stages, or 11 until they pass it; 3 of eight."""
    heads = (4.0 * (1.0 - EXACTLY), 4.0)
    found = [[stage_bounds(16.0, p, 0.0, head=h)[1] for p in (2.0, 4.0, 8.0)] for h in heads]
    assert found == [[10.0, 5.0, 3.0], [11.0, 6.0, 3.0]]


# ------------------------------------------------------------------------------------------------- the step

WORK = st.train(batch=64, length=4096)


def step_of(plan, model="llama-3-70b", **trainer):
    made = engine("megatron")
    if trainer:
        from dataclasses import replace

        made = replace(made, training=replace(made.training, **trainer))
    return st.evaluate(roomy("8x8xh200"), model, WORK, plan, made).steps[0]


def test_schedules_of_plans_are_priced():
    base = "tp=8,pp=4,dp=2,microbatches=32"
    times = {name: step_of(f"{base},schedule={name}").exposed["bubble"] for name in SCHEDULE}
    assert times["dualpipe"] < times["zero-bubble"] < times["1f1b"]
    chunks = step_of(f"{base},virtual_stages=4").exposed
    assert chunks["bubble"] < times["zero-bubble"]
    assert chunks["p2p"] < 0.2 * step_of(f"{base},virtual_stages=4", overlap_p2p=0.0).exposed["p2p"]


def test_chunks_divide_the_bubble():
    """By four, but for what stages wait for the one with the head: little of it beside layers this wide."""
    plain, chunks = (
        step_of(f"tp=8,pp=4,dp=2,microbatches=32,virtual_stages={v}", "gpt3-175b") for v in (1, 4)
    )
    assert 0.25 < chunks.exposed["bubble"] / plain.exposed["bubble"] < 0.4


def test_a_batch_of_schedules_is_its_singles():
    codes, chunks = np.arange(4.0), np.array([[1.0], [2.0]])
    box = st.evaluate(
        roomy("8x8xh200"), "llama-3-70b", WORK,
        st.plan(tp=8, pp=4, dp=2, microbatches=32, schedule=codes * (chunks == 1), virtual_stages=chunks,
                recompute=2.0, recompute_layers=np.array([0.0, 3.0, 3.0, 5.0]), split_ends=chunks - 1.0),
    )  # fmt: skip
    for i, j in np.ndindex(box.metrics.step_time.shape):
        plan = st.plan(
            tp=8, pp=4, dp=2, microbatches=32, schedule=codes[j] * (i == 0), virtual_stages=chunks[i, 0],
            recompute=2.0, recompute_layers=(0.0, 3.0, 3.0, 5.0)[j], split_ends=float(i),
        )  # fmt: skip
        one = st.evaluate(roomy("8x8xh200"), "llama-3-70b", WORK, plan)
        assert box.metrics.step_time[i, j] == pytest.approx(float(one.metrics.step_time), rel=1e-12)


def test_counting_the_ends_takes_layers_off_the_first_and_last_stage():
    """40 layers over 8 stages are 5 each; with both ends counted 42: 4 and 5 layers stand at the ends."""
    plain, counted = (step_of(f"tp=1,pp=8,dp=8,microbatches=8,split_ends={e}", "llama-2-13b") for e in (0, 1))
    order = st.model("llama-2-13b").trace(WORK).sequence
    assert float(order.layers) == 40.0
    assert stage_bounds(40.0, 8.0, np.arange(8.0), 1.0)[1].tolist() == [
        4.0,
        5.0,
        5.0,
        5.0,
        5.0,
        6.0,
        6.0,
        4.0,
    ]
    assert counted.stage != plain.stage


def test_a_balanced_trainer_moves_layers_off_the_heads_stage():
    plan = "tp=1,pp=8,dp=8,microbatches=8"
    even, balanced = (step_of(plan, "llama-3-8b", split=s) for s in ("even", "balanced"))
    assert balanced.stage < even.stage and balanced.time < even.time
