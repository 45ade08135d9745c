"""Partitions under given layouts: against the search that has them among its own, and by hand."""

import numpy as np
import pytest

import strata as st
from strata.optimise.fuse import fuse_kernels
from strata.optimise.fusion.fusion_problem import (
    OUTSIDE,
    FusionChip,
    FusionKernel,
    FusionProblem,
    FusionTensor,
)
from strata.optimise.joint import map_program
from strata.optimise.layout import best_layout, layout_setting
from strata.optimise.mappings.planned_mapping import map_planned, routes_tokens
from strata.workload.program import program

READ = st.decode(batch=1, context=1024)


def test_a_search_finds_no_slower_layouts_than_those_of_the_plan():
    given = map_planned("llama-3-8b", "4xsn40l", READ, plan="tp=4")
    free = map_program("llama-3-8b", "4xsn40l", READ, plan="tp=4")
    assert given.optimal and given.best.step == pytest.approx(given.bound)
    assert free.optimal and free.best.step <= given.best.step * (1 + 1e-9)


def test_stages_of_a_plan_fill_and_drain():
    """Two stages of one sequence: each layer runs once, and one hand-over stands between."""
    one = map_planned("mixtral-8x7b", "1xsn10", READ, plan="tp=1").best
    two = map_planned("mixtral-8x7b", "2xsn10", READ, plan="pp=2").best
    blocks = {b.block: b.times * b.fusion.time for b in two.layer.blocks}
    assert two.stage == pytest.approx(sum(blocks.values()) / 2)
    assert two.step == pytest.approx(2 * (two.stage + two.send)) and two.send > 0
    assert one.step == pytest.approx(2 * two.stage) and one.send == 0


def test_experts_are_what_routes_tokens():
    assert routes_tokens(program("mixtral-8x7b"), READ) and not routes_tokens(program("llama-3-8b"), READ)


def test_grouped_heads_divide_weights_of_queries_and_keys():
    """Eight ranks hold an eighth of queries, keys, values and what projects them back."""
    found = best_layout(layout_setting("8xh200", "llama-3-8b", READ, {"tp": 8.0}))
    assert found.options["attention"] == ("heads+kv_heads",)


@pytest.mark.parametrize("pieces, fits", [(1.0, False), (4.0, True), (64.0, True)])
def test_a_kernel_alone_is_taken_in_pieces(pieces, fits):
    """80 B in and out, twice each for the next piece while one is worked on: 320 B whole, 80 B in quarters."""
    kernels = (
        FusionKernel(name="a", time=1.0, pieces=pieces),
        FusionKernel(name="b", time=1.0, pieces=pieces),
    )
    tensors = tuple(
        FusionTensor(name=n, source=s, target=t, bytes=80.0)
        for n, s, t in (("x", OUTSIDE, "a"), ("y", "a", "b"), ("z", "b", OUTSIDE))
    )
    chip = FusionChip(sram=100.0, dram_bandwidth=1e3)
    found = fuse_kernels(FusionProblem(kernels=kernels, tensors=tensors, chip=chip))
    assert found.feasible == fits
    if fits:
        assert [p.kernels for p in found.partitions] == [("a",), ("b",)]  # together they would stream nothing
        assert np.allclose([p.sram for p in found.partitions], 320.0 / pieces)
