"""Stages of a pipeline: contiguous and even, every layer once, at the pace of the slowest."""

from dataclasses import replace

import numpy as np
import pytest
from cases import FAMILIES, MODELS, model, roomy, same, system, uncapped
from hypothesis import given
from hypothesis import strategies as hy

import strata as st
from strata.pricing.pipeline import stage_bounds, stage_counts


@given(hy.integers(1, 130), hy.integers(1, 130))
def test_stages_are_contiguous_even_and_hold_every_layer(layers, stages):
    stages = min(stages, layers)
    start, size = stage_bounds(float(layers), float(stages), np.arange(float(stages)))
    assert size.sum() == layers
    assert size.max() == -(-layers // stages) and size.max() - size.min() <= 1
    assert np.array_equal(start, np.concatenate([[0.0], np.cumsum(size)[:-1]]))


def stages_of(order, block, stages):
    return stage_counts(order, block, float(stages), np.arange(float(stages)))


@pytest.mark.parametrize("name", MODELS)
def test_kinds_of_layers_add_up_over_stages(name):
    graph = model(name).trace(st.decode(1.0, 8.0))
    order, blocks = graph.sequence, {b.name: b for b in graph.blocks}
    for stages in range(1, int(order.layers) + 1):
        _, size = stage_bounds(order.layers, float(stages), np.arange(float(stages)))
        whole = 0.0
        for role in ("attention", "ffn"):
            counts = {n: stages_of(order, n, stages) for n, b in blocks.items() if b.role == role}
            assert all(np.all(c >= 0) and c.sum() == blocks[n].count for n, c in counts.items())
            whole = whole + sum(counts.values())
            # a layer has one block of each, or is one block of its own
            assert np.all(sum(counts.values()) <= size)
        halves = sum(b.count for b in blocks.values() if b.role in ("attention", "ffn")) / order.layers
        assert halves in (1.0, 2.0) and np.array_equal(whole, halves * size)
        for ends, at in ((order.first, 0), (order.last, -1)):
            for block in ends:
                counts = stages_of(order, block, stages)
                assert counts[at] == counts.sum() == 1.0


@pytest.mark.parametrize("name", FAMILIES)
def test_a_pipeline_goes_at_the_pace_of_its_slowest_stage(name):
    """Only a few stages are priced: they must contain the slowest of all, for any number of stages."""
    made = model(name)
    order = made.trace(st.decode(1.0, 8.0)).sequence
    links = replace(
        system("8xh200").fabric,
        dimension=tuple(
            replace(d, bandwidth=1e30, latency=0.0, transport_model=None)
            for d in system("8xh200").fabric.dimension
        ),
    )
    # too small for most of these plans: they are priced, and called illegal
    where = uncapped(replace(roomy("8xh200"), fabric=links))
    missed = {}
    for stages in range(2, int(order.layers) + 1):
        for work in (st.decode(256, 64), st.decode(256, 32768)):
            (step,) = st.evaluate(where, made, work, st.plan(pp=stages)).steps
            time = sum(b.price.time * stages_of(order, b.block.name, stages) for b in step.blocks)
            if not same(step.stage, time.max(), 1e-9):
                missed[stages] = round(float(step.stage / time.max()), 3)
    assert missed == {}
