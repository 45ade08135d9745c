"""Fusion inside a chip: Table VI of DFModel, proofs, given and next best mappings, what does not fit."""

import time
from dataclasses import replace

import numpy as np
import pytest
from fuse_random import mappings, random_problem
from gpt_layer import gpt_layer, table

from strata.base.errors import BadValue, UnknownName
from strata.optimise.fuse import fuse_kernels, kernel_by_kernel, next_best, price_mapping, too_large
from strata.optimise.fusion.fusion_graph import mapping_space
from strata.optimise.fusion.fusion_problem import FusionChip, FusionKernel, FusionProblem, FusionTensor
from strata.pricing.fusion_rules import fusion_rules

LOGGED = {name: ns * 1e-9 for name, ns in table()["logged_ns_per_layer"].items()}
PINNED = {name: tuple(map(tuple, groups)) for name, groups in table()["pinned"].items()}


def test_dfmodel_reference_kernel_by_kernel():
    found = kernel_by_kernel(gpt_layer(8))
    assert found.time == pytest.approx(LOGGED["kernel by kernel 8x1"], rel=1e-9)
    assert len(found.partitions) == 18
    # its logs: sums over partitions of memory and network time, and the most bytes alive at a time
    assert sum(p.memory for p in found.partitions) == pytest.approx(19629340e-9, rel=1e-6)
    assert sum(p.network for p in found.partitions) == pytest.approx(3523215.25e-9, rel=1e-6)
    weights = 96 * sum(k.weight_bytes for k in gpt_layer(8).kernels)
    live = max(p.dram for p in found.partitions) - weights
    assert live == pytest.approx(table()["logged_live_bytes"]["kernel by kernel 8x1"], rel=1e-9)
    assert weights == pytest.approx(43486543872.0, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "dram", "speedup"),
    [
        ("vendor", 100e9, 4.09),
        ("dfmodel", 100e9, 4.77),
        ("", 100e9, 5.59),
        ("vendor", 200e9, 2.47),
        ("dfmodel", 200e9, 2.96),
        ("", 200e9, 3.37),
    ],
)
def test_dfmodel_reference_table_6_on_8x1(name, dram, speedup):
    """Mappings pinned by their products, other kernels free; and the free optimum."""
    problem = gpt_layer(8, dram=dram, pinned=PINNED.get(name, ()))
    base, found = kernel_by_kernel(gpt_layer(8, dram=dram)), fuse_kernels(problem)
    assert base.time / found.time == pytest.approx(speedup, abs=0.006)
    assert found.optimal and found.proof.startswith("optimal by shortest path over")
    if name == "dfmodel" and dram == 100e9:
        assert found.time == pytest.approx(LOGGED["dfmodel 8x1"], rel=1e-9)
        assert [p.binds for p in found.partitions] == ["compute", "memory", "network", "network"]
    if name == "vendor" and dram == 100e9:  # its own run stopped at 180 s: ours is 2.8 % shorter
        assert LOGGED["vendor 8x1"] * 0.97 < found.time < LOGGED["vendor 8x1"]


@pytest.mark.parametrize(("dram", "speedup"), [(100e9, 6.17), (200e9, 3.81)])
def test_dfmodel_reference_table_6_on_4x2(dram, speedup):
    """Four chips a copy and two copies: half the layer's time counts."""
    found = fuse_kernels(gpt_layer(4, dram=dram))
    base = kernel_by_kernel(gpt_layer(8, dram=dram))
    assert base.time / (found.time / 2.0) == pytest.approx(speedup, abs=0.006)
    if dram == 100e9:
        assert found.time == pytest.approx(LOGGED["dfmodel 4x2"], rel=1e-9)


def test_corrected_rules_cost_more_than_the_papers():
    """Weights read from DRAM (453 MB a layer and chip), keys and values whole, the pipeline filled."""
    paper = fuse_kernels(gpt_layer(8)).time
    corrections = ({"weight_traffic": "read"}, {"whole_operands": "yes"}, {"fill": "yes"})
    alone = [fuse_kernels(gpt_layer(8, rules=fusion_rules("dfmodel-2024", **c))).time for c in corrections]
    every = fusion_rules("dfmodel-2024", **{k: v for c in corrections for k, v in c.items()})
    once, often = (fuse_kernels(gpt_layer(8, rules=every, micro_batches=m)) for m in (1.0, 24.0))
    assert min(alone) >= paper and alone[0] > 1.02 * paper
    assert once.time >= max(alone) and paper <= often.time < once.time
    weights = sum(k.weight_bytes for k in gpt_layer(8).kernels)
    assert weights == pytest.approx(452984832.0) and weights > gpt_layer(8).chip.sram


@pytest.mark.parametrize(("backward", "limit"), [(False, 1.0), (True, 5.0)])
@pytest.mark.parametrize("tiles", ["one", "each"])
def test_gpt_layers_are_proved_in_seconds(backward, limit, tiles):
    """18 kernels under 1 s, 41 under 5 s, tiles free, in time of this process alone."""
    problem = gpt_layer(8, backward=backward, rules=fusion_rules("dfmodel-2024", tiles=tiles))
    began = time.process_time()
    found = fuse_kernels(problem)
    assert time.process_time() - began < limit
    assert found.optimal and found.method == "ideals"
    assert sorted(k for p in found.partitions for k in p.kernels) == sorted(k.name for k in problem.kernels)
    mixed = [{k.backward for k in problem.kernels if k.name in p.kernels} for p in found.partitions]
    assert all(len(m) == 1 for m in mixed) and mixed == sorted(mixed, key=max)


def test_a_limit_of_partitions_holds_in_each_direction():
    free = fuse_kernels(gpt_layer(4, backward=True, tiles=(32,)))
    few = fuse_kernels(gpt_layer(4, backward=True, tiles=(32,), max_partitions=6))
    assert not few.feasible or (len(few.partitions) <= 6 and few.time >= free.time)
    eight = fuse_kernels(gpt_layer(4, backward=True, tiles=(32,), max_partitions=40))
    assert eight.time == pytest.approx(free.time, rel=1e-12)


@pytest.mark.parametrize("seed", range(50))
def test_brute_force_finds_nothing_better(seed):
    """All switches at random; every mapping priced one by one, at every number of tiles."""
    problem = random_problem(seed)
    best = min((price_mapping(problem, m).time for m in mappings(problem)), default=np.inf)
    found = fuse_kernels(problem)
    assert found.time == pytest.approx(best, rel=1e-12)
    assert found.feasible == bool(np.isfinite(best)) and (found.feasible or found.reason)


@pytest.mark.parametrize("seed", range(20))
def test_more_room_bandwidth_or_cores_never_hurt(seed):
    problem = random_problem(seed)
    base = fuse_kernels(problem).time
    for name, factor in (("sram", 2), ("dram_bandwidth", 2), ("dram_capacity", 2), ("cores", 2)):
        more = replace(problem.chip, **{name: getattr(problem.chip, name) * factor})
        assert fuse_kernels(replace(problem, chip=more)).time <= base * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_next_best_mappings_are_the_next_ones(seed):
    problem = random_problem(seed, rules=fusion_rules("dfmodel-2024"))
    every = sorted(
        time
        for m in mappings(problem)
        for n in problem.tiles
        if np.isfinite(time := price_mapping(problem, m, n).time)
    )
    found = next_best(problem, 4)
    assert [f.time for f in found] == pytest.approx(every[:4], rel=1e-12)
    said = {(tuple(p.kernels for p in f.partitions), f.partitions[0].tiles) for f in found}
    assert len(said) == len(found)


@pytest.mark.parametrize("seed", range(8))
def test_the_space_counts_every_mapping(seed):
    problem = random_problem(seed, rules=fusion_rules("dfmodel-2024", compute="priced"))
    chains = list(mappings(problem))
    assert mapping_space(problem)[0] == 2 * len(chains)
    each, _ = mapping_space(
        replace(problem, rules=fusion_rules("dfmodel-2024", tiles="each", compute="priced"))
    )
    assert each == sum(2 ** len(c) for c in chains)


def test_the_space_of_a_gpt_layer():
    mappings_of, counts = mapping_space(gpt_layer(8))
    assert 1e60 < mappings_of < 1e63 and "lanes and stages of 640 cores" in counts


def chain(**more):
    """Two kernels and a tensor of 100 B between them."""
    kernels = (
        FusionKernel(name="a", time=1.0, weight_bytes=50.0),
        FusionKernel(name="b", time=2.0, weight_bytes=more.pop("weight", 50.0), network=(0.5,)),
    )
    chip = FusionChip(**{"sram": 400.0, "dram_bandwidth": 50.0} | more.pop("chip", {}))
    tensors = (FusionTensor(name="t", source="a", target="b", bytes=100.0),)
    rules = fusion_rules("strata", **{"fill": "no"} | more.pop("rules", {}))
    return FusionProblem(kernels=kernels, tensors=tensors, chip=chip, rules=rules, **more)


def test_hand_sums_of_two_kernels():
    fused = price_mapping(chain(), [("a", "b")])
    apart = price_mapping(chain(), [("a",), ("b",)])
    # together: 3 s of work, 100 B of weights; apart: the tensor is written and read, weights besides
    assert (fused.time, fused.partitions[0].sram) == (3.0, 300.0)
    assert [p.memory for p in apart.partitions] == [3.0, 3.0] and apart.time == 6.0
    assert [p.binds for p in apart.partitions] == ["memory", "memory"]
    amortised = price_mapping(chain(micro_batches=5.0), [("a",), ("b",)])
    assert [p.memory for p in amortised.partitions] == [2.2, 2.2]
    filled = price_mapping(chain(rules={"fill": "yes"}, tiles=(4,)), [("a", "b")])
    assert filled.time == 3.0 * (4 + 1) / 4


def test_weights_beyond_the_sram_are_taken_in_passes_or_do_not_fit():
    """400 B of SRAM less 200 B of a crossing tensor's two tiles leave 200 B for 500 B of weights."""
    found = fuse_kernels(chain(weight=500.0))
    assert [p.passes for p in found.partitions] == [1.0, 3.0]
    assert found.partitions[1].traffic == 3 * 100.0 + 500.0
    none = fuse_kernels(chain(weight=500.0, rules={"weight_tiling": "none"}))
    assert not none.feasible and none.reason == "b: needs 700 B of SRAM, has 400 B (1.75 times)"
    assert (
        fuse_kernels(chain(weight=500.0, rules={"weight_tiling": "none"}), method="cp-sat").reason
        == none.reason
    )
    tiny = chain(chip={"sram": 150.0})
    assert too_large(tiny).startswith("a: needs") and "SRAM" in too_large(tiny)
    assert fuse_kernels(tiny).reason == too_large(tiny)


def test_bad_input_is_told_in_one_line():
    with pytest.raises(UnknownName, match="no kernel called 'c'"):
        price_mapping(chain(), [("a",), ("c",)])
    with pytest.raises(BadValue, match="kernel b must be in one partition"):
        price_mapping(chain(), [("a",)])
    with pytest.raises(BadValue, match="a must not come after b"):
        price_mapping(chain(), [("b",), ("a",)])
    with pytest.raises(BadValue, match="in a circle, among them a, b"):
        back = FusionTensor(name="u", source="b", target="a", bytes=1.0)
        replace(chain(), tensors=(*chain().tensors, back))
    with pytest.raises(UnknownName, match="no kernel of tensor t called 'd'"):
        replace(chain(), tensors=(FusionTensor(name="t", source="d", target="a", bytes=1.0),))
