"""Pipeline schedules: their closed forms where those hold, and the cases where they do not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from strata.base.arrays import lead, rank_of
from strata.base.errors import BadValue, UnknownName
from strata.pricing.pipeline import decode_cycle, pipeline_time
from strata.pricing.pipeline_schedules import (
    SCHEDULE,
    SCHEDULES,
    StagePasses,
    bubble_share,
    dualpipe_time,
    interleaved_time,
    scheduled_time,
)
from strata.simulate.orders import device_orders
from strata.simulate.pipelines import StageTimes, forward_tasks, pipeline_tasks

TIME = some.floats(0.1, 10.0)


def alike(stages, forward, inputs, weights, virtual=1):
    chunks = stages * virtual
    parts = [(t / virtual,) * chunks for t in (forward, inputs, weights)]
    return StageTimes(forward=parts[0], inputs=parts[1], weights=parts[2])


def equal_stages(forward, inputs, weights, stages):
    """Passes of stages that all take the same time; numbers or arrays."""
    ends = lead([0.0, 1.0], rank_of(forward, inputs, weights, stages))
    before, whole = ends * (stages - 1.0), forward + inputs + weights
    return StagePasses(
        forward=forward + 0.0 * before,
        inputs=inputs + 0.0 * before,
        weights=weights + 0.0 * before,
        before=before * whole,
        behind=stages - 1.0 - before,
        every=(forward * stages, inputs * stages, weights * stages),
        mirrored=whole + 0.0 * before,
    )


def schedule_time(name, forward, inputs, weights, stages, pieces, virtual=1.0):
    """The closed form of a schedule by its name."""
    passes = equal_stages(forward, inputs, weights, stages)
    if name == "interleaved":
        return interleaved_time(passes, pieces, virtual)
    return scheduled_time(passes, float(SCHEDULE.index(name)), stages, pieces, 1.0)


def simulated(name, times, stages, pieces):
    return pipeline_tasks(name, times, stages, pieces).run().time


@settings(max_examples=50, deadline=None)
@given(some.sampled_from(["gpipe", "1f1b"]), some.integers(1, 7), some.integers(1, 12), TIME, TIME, TIME)
def test_gpipe_and_1f1b_take_the_pipelines_time(name, stages, pieces, f, b, w):
    found = simulated(name, alike(stages, f, b, w), stages, pieces)
    assert found == pytest.approx(pipeline_time(f + b + w, stages, pieces), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(some.integers(1, 5), some.integers(1, 4), some.integers(1, 4), TIME, TIME, TIME)
def test_interleaved_stages_divide_the_bubble(stages, groups, virtual, f, b, w):
    pieces = stages * groups
    found = simulated("interleaved", alike(stages, f, b, w, virtual), stages, pieces)
    assert found == pytest.approx(pipeline_time(f + b + w, stages, pieces, virtual), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(some.integers(1, 6), some.integers(0, 6), TIME, TIME, some.floats(0.01, 1.0))
def test_zero_bubble_is_its_papers_formula(stages, more, f, b, share):
    pieces, w = 2 * stages + more, share * min(f, b)
    found = simulated("zero-bubble", alike(stages, f, b, w), stages, pieces)
    assert found == pytest.approx(schedule_time("zero-bubble", f, b, w, stages, pieces), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(some.integers(1, 4), some.integers(0, 5), TIME, some.floats(0.01, 1.0))
def test_dualpipe_is_its_papers_formula(pairs, more, f, share):
    stages, pieces = 2 * pairs, 4 * pairs + 2 * more
    found = simulated("dualpipe", alike(stages, f, f, share * f), stages, pieces)
    assert found == pytest.approx(schedule_time("dualpipe", f, f, share * f, stages, pieces), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(some.sampled_from(SCHEDULES), some.data())
def test_no_schedule_beats_its_busiest_stage_or_the_way_through(name, data):
    stages, pieces = 4, 8
    times = [tuple(data.draw(some.lists(TIME, min_size=4, max_size=4))) for _ in range(3)]
    given = StageTimes(
        forward=times[0], inputs=times[1], weights=times[2], send=data.draw(TIME), send_back=0.1
    )
    run = pipeline_tasks(name, given, stages, pieces).run()
    assert run.time >= max(run.busy.values()) * (1 - 1e-12)
    through = sum(times[0]) + sum(times[1]) + 3 * (given.send + 0.1)
    assert run.time >= through * (1 - 1e-12)
    whole = pieces * sum(sum(t) for t in times)
    assert sum(v for k, v in run.busy.items() if k.startswith("stage")) == pytest.approx(whole)


def test_stages_that_differ_are_quicker_than_the_closed_form():
    """1F1B with one stage twice as long: what the closed form counts for every stage, the others do not."""
    times = StageTimes(forward=(1.0, 1.0, 2.0, 1.0), inputs=(1.0, 1.0, 2.0, 1.0), weights=(0.0,) * 4)
    found, closed = simulated("1f1b", times, 4, 8), pipeline_time(4.0, 4, 8)
    # eight times forward and back on the slow stage, the way to it and the way back from it
    assert (found, closed) == (8 * 4.0 + 2 * 1.0 + 2 * 1.0, 44.0)


def test_links_slower_than_a_stage_set_the_pace():
    """GPipe whose hand-over takes three times a stage's pass: links, not stages, fill and drain."""
    times = StageTimes(forward=(1.0,) * 3, inputs=(1.0,) * 3, weights=(0.0,) * 3, send=3.0, send_back=3.0)
    run = pipeline_tasks("gpipe", times, 3, 10).run()
    # each direction: three passes, two links, and nine more micro-batches at the pace of a link
    assert run.time == 2 * (3 * 1.0 + 2 * 3.0 + 9 * 3.0)
    assert run.time > pipeline_time(2.0, 3, 10) + 2 * 2 * 3.0
    assert run.utilisation()["link 0>1"] > run.utilisation()["stage 0"]


def test_1f1b_waits_for_hand_overs_both_ways_and_gpipe_does_not():
    times = StageTimes(forward=(1.0,) * 4, inputs=(1.0,) * 4, weights=(1.0,) * 4, send=0.2, send_back=0.2)
    assert simulated("1f1b", times, 4, 16) > simulated("gpipe", times, 4, 16)


def test_dualpipe_where_gradients_to_inputs_take_longer_than_forward_passes():
    """The bubble is the paper's with the shorter of both where it has one of two equal ones."""
    found = simulated("dualpipe", alike(4, 1.0, 2.0, 0.5), 4, 8)
    assert found == pytest.approx(8 * 3.5 + 3.5) and schedule_time("dualpipe", 1.0, 2.0, 0.5, 4, 8) == 31.5


def test_passes_beside_each_other_save_time_under_dualpipe():
    base = alike(4, 1.0, 1.0, 0.5)
    assert simulated("dualpipe", replace(base, saved=0.5), 4, 16) < simulated("dualpipe", base, 4, 16)


@pytest.mark.parametrize(("stages", "pieces"), [(4, 8), (4, 32), (8, 20), (16, 64)])
def test_all_passes_but_those_that_fill_and_drain_are_paired(stages, pieces):
    """Of m passes, m - P/2 - 2 on the longest path have another beside them; the closed form says so, too."""
    base = alike(stages, 1.0, 1.0, 0.5)
    plain, paired = (simulated("dualpipe", replace(base, saved=s), stages, pieces) for s in (0.0, 0.25))
    assert plain - paired == pytest.approx(0.25 * (pieces - stages / 2 - 2))
    made = replace(equal_stages(1.0, 1.0, 0.5, float(stages)), saved=0.25)
    assert float(dualpipe_time(made, float(pieces), float(stages))) == pytest.approx(paired)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_device_does_every_pass_once(name):
    stages, pieces, virtual = 4, 8, 2 if name == "interleaved" else 1
    done = {}
    for order in device_orders(name, stages, pieces, virtual):
        for p in order:
            for one in (p, *([p.beside] if p.beside else [])):
                what = "F" if one.what == "O" else one.what
                for part in {"D": "BW"}.get(what, what):
                    key = (part, one.microbatch, one.chunk)
                    assert key not in done
                    done[key] = True
    assert len(done) == 3 * pieces * stages * virtual


def test_forward_passes_are_the_closed_forms_of_prefill_and_decode():
    times = StageTimes(forward=(2.0,) * 3, inputs=(0.0,) * 3, weights=(0.0,) * 3)
    assert forward_tasks(times, 3, 5).run().time == pipeline_time(2.0, 3, 5)
    for pieces in (2, 3, 5):
        ends = [forward_tasks(times, 3, pieces, rounds=n).run().time for n in (3, 4)]
        assert ends[1] - ends[0] == decode_cycle(2.0, 3, pieces)


def test_equations_take_arrays():
    stages = np.array([2.0, 4.0, 8.0])
    for name in SCHEDULES:
        each = [float(schedule_time(name, 1.0, 1.0, 0.5, p, 32.0, 2.0)) for p in (2.0, 4.0, 8.0)]
        assert schedule_time(name, 1.0, 1.0, 0.5, stages, 32.0, 2.0) == pytest.approx(each)
    assert bubble_share(np.array([10.0, 20.0]), 10.0) == pytest.approx([0.0, 0.5])


@pytest.mark.parametrize(
    ("name", "stages", "pieces", "said"),
    [
        ("dualpipe", 3, 12, "even number of stages"),
        ("dualpipe", 4, 6, "at least two a stage"),
        ("interleaved", 4, 6, "multiples of the stages"),
        ("1f1b", 3, 0, "micro-batches"),
    ],
)
def test_what_a_schedule_cannot_do_is_said_in_a_line(name, stages, pieces, said):
    with pytest.raises(BadValue, match=said):
        pipeline_tasks(name, alike(stages, 1.0, 1.0, 1.0), stages, pieces)


def test_chunks_and_names_are_checked():
    with pytest.raises(BadValue, match="one chunk of the model a stage"):
        pipeline_tasks("1f1b", alike(4, 1.0, 1.0, 1.0, 2), 4, 8)
    with pytest.raises(UnknownName, match="nearest: gpipe"):
        pipeline_tasks("gpip", alike(4, 1.0, 1.0, 1.0), 4, 8)
    with pytest.raises(BadValue, match="same chunks"):
        StageTimes(forward=(1.0,), inputs=(1.0, 2.0), weights=(1.0,))
