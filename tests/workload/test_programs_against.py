"""Programs that are no transformers against somebody else's numbers, and against sums worked by hand."""

import math
from dataclasses import replace

import pytest

import strata as st
from strata.mapping.shard import shard
from strata.pricing.network.algorithms import ring_scatter
from strata.workload.graph import is_collective
from strata.workload.program import program


def collectives(program, work, layout):
    graph = program.trace(work)
    local = shard(graph, layout.sharding(graph, work, layout.active()))
    return [
        (op.pattern, op.group, float(op.payload)) for b in local.blocks for op in b.ops if is_collective(op)
    ]


def divided(program, text):
    return st.evaluate("8xh200", program, st.forward(8192.0), text).plan


def test_row_column_and_column_row_send_what_deepflow_sends():
    """DeepFlow (paper_2021): RC gathers (m/KP1 x n) over KP2, CR adds up (m x n) over KP1; 16-bit elements."""
    mlp = st.program("mlp-8192", layers=1.0)
    work = st.forward(8192.0)
    assert collectives(mlp, work, divided(mlp, "kp1=4,kp2=2")) == [
        ("all_gather", "kp2", 8192 / 4 * 8192 * 2.0)
    ]
    assert collectives(mlp, work, divided(mlp, "depth=8")) == [("all_reduce", "depth", 8192 * 8192 * 2.0)]


def test_the_sum_of_a_column_row_product_takes_as_long_as_deepflows():
    """Its getR of 8192 x 8192 16-bit elements over two V100 at 51.6 GB/s and 5 us is 2.6244 ms (reference run of its code);
    it also prices the addition of the parts."""
    ours = 2.0 * ring_scatter(8192 * 8192 * 2.0, 2.0, 51605429900.0, 5e-6)
    assert ours == pytest.approx(2.62440494e-3, rel=0.01)


def test_pencils_turn_by_exchanges_of_a_ranks_own_part():
    fft = st.program("fft-1024")
    part = 1024.0**3 * 8.0 / 8.0  # complex fp32, eight ranks
    layout = divided(fft, "p=2,q=4")
    assert collectives(fft, st.forward(1.0), layout) == [("all_to_all", "p", part), ("all_to_all", "q", part)]
    slabs = divided(fft, "p=8")
    assert [(p, g) for p, g, _ in collectives(fft, st.forward(1.0), slabs)] == [("all_to_all", "p")]


def test_an_fft_counts_five_n_log_n():
    work = st.forward(1.0)
    assert float(st.program("fft-1024").trace(work).flop()) == pytest.approx(
        5.0 * 1024.0**3 * math.log2(1024.0**3)
    )


def test_dlrm_has_the_parameters_of_its_tables_and_networks():
    """187,767,399 rows of 128 in 26 tables (the mean is rounded), and dense layers with biases."""
    networks = [
        (13, 512),
        (512, 256),
        (256, 128),
        (479, 1024),
        (1024, 1024),
        (1024, 512),
        (512, 256),
        (256, 1),
    ]
    dense = sum(a * b + b for a, b in networks)
    found = float(st.program("dlrm-mlperf").trace(st.forward(1.0)).parameters())
    assert found == pytest.approx(187_767_399 * 128 + dense, rel=1e-8)


def test_dlrm_exchanges_embeddings_of_its_tables_for_its_samples():
    dlrm = st.program("dlrm-mlperf")
    layout = st.evaluate("8xh200", dlrm, st.forward(65536.0), "all=8").plan
    tables = math.ceil(26 / 8)
    wanted = [("all_to_all", "all", 65536.0 * tables * 128.0 * 4.0)]
    assert collectives(dlrm, st.forward(65536.0), layout) == wanted


# chip, ranks of a side of the grid, order, block, GB/s of a link, seconds that DFModel's logs have
HPL_RUNS = {
    "Circe": ("v100-fp64", 24, 65536.0, 1024.0, 12.5, 61519575e-9),
    "Tethys": ("a100-fp64", 16, 131072.0, 2048.0, 25.0, 704055937e-9),
    "Selene": ("a100-fp64", 90, 262144.0, 4096.0, 25.0, 188265927e-9),
    "Eos": ("h100-fp64", 86, 262144.0, 4096.0, 50.0, 77826080e-9),
}


@pytest.mark.parametrize("name", HPL_RUNS)
def test_dfmodel_reference_hpl_of_four_machines(name):
    """DFModel (2024), results logged at 62db2278, read for this project: HPL of its Fig 6, within 5 %."""
    chip, side, order, block, link, logged = HPL_RUNS[name]
    made = st.system(f"{side * side}xdfmodel-{chip}+dfmodel-dgx-2+{side}x{side}")
    wires = tuple(replace(d, bandwidth=link * 1e9) for d in made.fabric.dimension)
    made = replace(made, fabric=replace(made.fabric, dimension=wires))
    run = program("hpl-65536", order=order, block=block)
    found = st.evaluate(made, run, st.forward(1.0), f"p={side},q={side}")
    assert float(found.steps[0].time) == pytest.approx(logged, rel=0.05)
    alone = st.evaluate(made, replace(run, lookahead=False), st.forward(1.0), f"p={side},q={side}")
    assert alone.steps[0].time > found.steps[0].time
