"""A layer on a rank in DFModel's setting: the same problem as its logs' graph gives, and its roofline."""

from dataclasses import fields

import numpy as np
import pytest
from gpt_layer import gpt_layer

from dfmodel.layer import (
    array_peak,
    forward_layer,
    layer_rank,
    mapping_intensity,
    tile_counts,
    whole_operands,
)
from strata.optimise.fuse import fuse_kernels, kernel_by_kernel
from strata.workload.program import program

EIGHT = {"degrees": (8.0, 1.0, 1.0), "layers": 96.0, "batch": 2304.0}


@pytest.mark.parametrize("tp", [4, 8])
def test_dfmodel_reference_layer_from_the_program_is_the_logged_graph(tp):
    """The program as data against a table of kernels read from the logs, kernel by kernel."""
    logged = gpt_layer(tp)
    made = layer_rank(
        "dfmodel-gpt-forward", "dfmodel-sn10", degrees=(float(tp), 1.0, 1.0), layers=96.0
    ).problem
    for one, other in zip(made.kernels, logged.kernels, strict=True):
        same = ("rows", "columns", "depth", "flop", "weight_bytes")
        assert [getattr(one, n) for n in ("name", *same)] == [getattr(other, n) for n in ("name", *same)]
        assert sum(one.network) == pytest.approx(sum(other.network), rel=1e-12)
    assert {(t.source, t.target, t.bytes, t.whole) for t in made.tensors} == {
        (t.source, t.target, t.bytes, t.whole) for t in logged.tensors
    }
    for part in fields(made.chip):
        if part.name != "dram_capacity":
            assert getattr(made.chip, part.name) == getattr(logged.chip, part.name), part.name


def test_dfmodel_reference_utilisation_and_batch_time():
    """Logged: 4896.585 s a batch of 2304 sequences and 14.022 % kernel by kernel, 86.562 % of 4x2."""
    rank = layer_rank("dfmodel-gpt-forward", "dfmodel-sn10", **EIGHT, tiles=(4,))
    found = kernel_by_kernel(rank.problem)
    assert rank.batch_time(found) == pytest.approx(4896.584839987134, rel=1e-9)
    assert rank.utilisation(found) == pytest.approx(0.14022119227353652, rel=2e-4)
    torus = layer_rank(
        "dfmodel-gpt-forward", "dfmodel-sn10", **EIGHT | {"degrees": (4.0, 1.0, 2.0)}, tiles=(32,)
    )
    best = fuse_kernels(torus.problem)
    assert torus.batch_time(best) == pytest.approx(793.1945602252472, rel=1e-9)
    assert torus.utilisation(best) == pytest.approx(0.8656198601974042, rel=2e-4)


def test_intensities_lie_under_their_roofs_at_one_rate():
    rank = layer_rank("dfmodel-gpt-forward", "dfmodel-sn10", **EIGHT, tiles=(16,))
    flop = float(rank.layer.useful) / 8.0
    for fusion in (kernel_by_kernel(rank.problem), fuse_kernels(rank.problem)):
        point = mapping_intensity("", flop, fusion, 25e9)
        assert point.rate <= min(point.memory * 100e9, point.network * 25e9, rank.peak)
        # by hand: two all-reduces of a sequence's activations, 7/8 of them on a ring of eight
        assert point.network == pytest.approx(flop / (2 * 2048 * 12288 * 2 * 7 / 8), rel=1e-12)
    alone = layer_rank("dfmodel-gpt-forward", "dfmodel-sn10", tiles=(16,))
    assert mapping_intensity("", 1.0, kernel_by_kernel(alone.problem), 25e9).network == np.inf


def test_parts_of_a_layer():
    both = layer_rank(
        "dfmodel-gpt-training", "dfmodel-sn10", part="both", degrees=(8.0, 2.0, 1.0), layers=96.0
    )
    assert len(both.problem.kernels) == 41 and both.problem.layers == 48.0
    whole = forward_layer(program("dfmodel-gpt-forward"), 1.0)
    assert (
        float(whole.flop.sum()) == whole.useful == forward_layer(program("dfmodel-gpt-forward"), 8.0).useful
    )
    assert ("K", "MHA_GEMM_1") in whole_operands(program("dfmodel-gpt-forward"))
    changed = layer_rank("dfmodel-gpt-forward", "dfmodel-sn10", chip_changes={"cores": 320}).problem.chip
    assert changed.peak == array_peak(changed) == 153.6e12


def test_tile_counts_have_every_length():
    counts = tile_counts(2048)
    lengths = {-(-2048 // n) for n in range(1, 2049)}
    assert {-(-2048 // n) for n in counts} == lengths and len(counts) == len(lengths) == 90
