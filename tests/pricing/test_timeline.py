"""Timelines: events in the order of the program, with the time of the step."""

import pytest
from cases import FAMILIES, model, roomy

import strata as st


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_events_follow_one_another_layer_by_layer(name, phase):
    work = st.decode(8.0, 256.0) if phase == "decode" else st.prefill(2.0, 256.0)
    r = st.evaluate(roomy("8xh200"), model(name), work, "tp=8")
    found = r.timeline
    assert found.time == pytest.approx(r.metrics.step_time, rel=1e-9)
    ends = [e.start + e.duration for e in found.events]
    assert [e.start for e in found.events] == [0.0, *ends[:-1]]
    layers = int(model(name).layers)
    assert [layer for layer, _ in _runs(found)] == list(range(-1, layers + 1))
    order = model(name).trace(work).sequence
    for layer, blocks in _runs(found)[1:-1]:
        assert blocks == list(order.layer_blocks(layer))


def test_a_backward_pass_goes_through_the_layers_last_first():
    r = st.evaluate(roomy("8xh200"), "gpt-oss-20b", st.train(8.0, 256.0), "tp=2,dp=4")
    runs = _runs(r.timeline)
    half = len(runs) // 2
    forward, back = runs[: half + 1], runs[half:]
    # the head's two passes follow each other
    layers = int(model("gpt-oss-20b").layers)
    assert [layer for layer, _ in forward] == list(range(-1, layers + 1))
    assert [layer for layer, _ in back] == list(range(layers, -2, -1))
    for layer, blocks in back[1:]:
        mirrored = [f"{b}.backward" for b in reversed(dict(forward)[layer])]
        assert blocks == mirrored


def _runs(timeline):
    """Layers as they follow one another, each with its blocks in order."""
    found = []
    for event in timeline.events:
        if not found or found[-1][0] != event.layer:
            found.append((event.layer, []))
        if event.block not in found[-1][1]:
            found[-1][1].append(event.block)
    return found
