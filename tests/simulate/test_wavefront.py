"""The wavefront of an LSTM: DeepFlow's recorded cases, and a closed form that equals the events."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from strata.errors import BadValue
from strata.simulate.wavefront import (
    LstmStages,
    WavefrontTimes,
    best_wavefront,
    deepflow_stages,
    shared_stages,
    simulate_wavefront,
    wavefront_backward_time,
    wavefront_time,
)

DATA = Path(__file__).parents[1] / "data" / "deepflow" / "event_simulation.json"
CASES = json.loads(DATA.read_text())["cases"]
TIME = some.one_of(some.just(0.0), some.floats(0.0, 9.0))


def forward_of(c):
    return WavefrontTimes(embedding=c["Ef"], cell=c["Cf"], softmax=c["Sf"], send=c["Tf"])


def backward_of(c):
    return WavefrontTimes(
        embedding=c["Eb"],
        cell=c["Cb"],
        softmax=c["Sb"],
        send=c["Tb"],
        reduce_embedding=c["Re"],
        reduce_cell=c["Rc"],
        reduce_softmax=c["Rs"],
    )


@pytest.mark.parametrize("c", CASES, ids=lambda c: f"lp{c['lp']}")
def test_deepflow_reference_event_simulation(c):
    stages = deepflow_stages(c["layers"], c["lp"])
    forward = simulate_wavefront(forward_of(c), c["steps"], stages)
    backward = simulate_wavefront(backward_of(c), c["steps"], stages, backward=True)
    assert (forward.time, backward.time) == (c["fwd"], c["bwd"])


@pytest.mark.parametrize("c", CASES, ids=lambda c: f"lp{c['lp']}")
def test_deepflow_reference_event_closed_form(c):
    stages = deepflow_stages(c["layers"], c["lp"])
    assert wavefront_time(forward_of(c), float(c["steps"]), stages) == c["fwd"]
    assert wavefront_backward_time(backward_of(c), float(c["steps"]), stages) == c["bwd"]


@settings(max_examples=80, deadline=None)
@given(some.data())
def test_the_closed_form_is_the_simulation(data):
    steps, layers, count = (data.draw(some.integers(1, top)) for top in (6, 6, 6))
    names = ("embedding", "cell", "softmax", "send", "reduce_embedding", "reduce_cell", "reduce_softmax")
    times = WavefrontTimes(**{name: data.draw(TIME) for name in names})
    stages = data.draw(some.sampled_from([deepflow_stages(layers, count), *shared_stages(layers, count)]))
    forward = simulate_wavefront(times, steps, stages).time
    backward = simulate_wavefront(times, steps, stages, backward=True).time
    assert wavefront_time(times, float(steps), stages) == pytest.approx(forward, rel=1e-9, abs=1e-12)
    found = wavefront_backward_time(times, float(steps), stages)
    assert found == pytest.approx(backward, rel=1e-9, abs=1e-12)


def test_a_box_is_its_points_on_numpy_and_jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    cells, sends, steps = np.array([1.0, 2.0, 5.0])[:, None], np.array([0.0, 3.0]), 7.0
    box = WavefrontTimes(embedding=1.5, cell=cells, softmax=2.5, send=sends, reduce_cell=4.0)
    for function in (wavefront_time, wavefront_backward_time):
        for stages in (deepflow_stages(4, 4), shared_stages(4, 3)[1]):
            found = function(box, steps, stages)
            single = [
                [function(replace(box, cell=float(c), send=float(h)), steps, stages) for h in sends]
                for c in cells[:, 0]
            ]
            assert found == pytest.approx(np.array(single))
            compiled = jax.jit(lambda c, h, f=function, s=stages: f(replace(box, cell=c, send=h), steps, s))
            assert np.asarray(compiled(cells, sends)) == pytest.approx(found)


def test_sharing_the_first_and_last_stage_is_never_slower_than_stages_of_their_own():
    """Corrected default: the same devices, the embedding and softmax beside layers where that balances; with
    the all-reduces of a stage on its one link.
    """
    c = CASES[0]
    forward, backward = forward_of(c), backward_of(c)
    own = LstmStages(layers=(0, 6, 0))
    alone = wavefront_time(forward, 4.0, own) + wavefront_backward_time(backward, 4.0, own)
    best = best_wavefront(forward, backward, 4.0, 6, 3)
    assert best < alone and best < c["fwd"] + c["bwd"]
    each = [
        wavefront_time(forward, 4.0, s) + wavefront_backward_time(backward, 4.0, s)
        for s in shared_stages(6, 3)
    ]
    assert best == min(each)


@given(some.integers(1, 9), some.integers(1, 6))
def test_every_layer_lies_on_one_stage(layers, stages):
    for one in (deepflow_stages(layers, stages), *shared_stages(layers, stages)):
        assert sum(one.layers) == layers and one.count <= max(stages, 1)


def test_bad_shapes_are_said_in_a_line():
    with pytest.raises(BadValue, match="layers and stages"):
        deepflow_stages(0, 3)
    with pytest.raises(BadValue, match="at least one time step"):
        simulate_wavefront(forward_of(CASES[0]), 0, deepflow_stages(2, 1))
