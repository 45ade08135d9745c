"""What training software hides of collectives, and what it sends to experts: laws on whole steps."""

from dataclasses import replace

import numpy as np
import pytest
from cases import collectives, model, rank_graph, roomy

import strata as st
from strata.mapping.plan import plan
from strata.pricing.overlap.halves import _beside_gradients
from strata.pricing.overlap.tiles import Pair
from strata.software.engine import engine, trainer_of

DENSE, MIXTURE = "llama-3-8b", "qwen3-30b-a3b"
WORK = st.train(16.0, 2048.0)


def trainer(**settings):
    """Megatron on a host that keeps up with its devices."""
    megatron = engine("megatron")
    return replace(
        megatron, training=replace(trainer_of(megatron), host_kernel=0.0, host_expert=0.0, **settings)
    )


def timed(name, division, system="8xh100", work=WORK, **settings):
    return st.evaluate(
        roomy(system) if isinstance(system, str) else system, name, work, division, engine=trainer(**settings)
    )


def step_of(*args, **settings):
    (step,) = timed(*args, **settings).steps
    return step


@pytest.mark.parametrize("division", ["tp=8", "tp=8,sp=1", "tp=4,dp=2,sp=1", "tp=2,cp=4,sp=1,cp_mode=ring"])
def test_what_runs_beside_gradients_is_never_slower(division):
    times = [step_of(DENSE, division, async_tp=on).time for on in (0.0, 1.0)]
    assert times[1] < times[0]


def test_sums_of_inputs_hide_behind_weights_and_saved_inputs_behind_inputs():
    """Of a column-parallel product with sequence parallelism: the gather of its saved input beside the product
    for its input, the scatter of that beside the product for its weight (Megatron's order of kernels)."""
    graph = rank_graph(model(DENSE), WORK, plan("tp=8,sp=1"))
    block = next(b for b in graph.blocks if b.name == "ffn.dense.backward")
    names = [op.name for op in block.ops]
    found = {names[p.collective]: names[p.beside[0]] for p in _beside_gradients(block.ops)}
    assert found == {"up_wgrad_gather": "up_dgrad", "up_dgrad_scatter": "up_wgrad"}
    assert all(isinstance(p, Pair) and p.role == "apart" for p in _beside_gradients(block.ops))
    forward = next(b for b in graph.blocks if b.name == "ffn.dense")
    assert _beside_gradients(forward.ops) == []


def test_tiles_hide_what_feeds_and_is_fed():
    """With userbuffers the gathers and scatters of forward products shrink; switched by an array as by one
    number."""
    case = ("llama-3-70b", "tp=8,sp=1", "8xh100", st.train(4.0, 8192.0))
    off, on = (step_of(*case, tp_comm_overlap=x) for x in (0.0, 1.0))
    assert on.time < off.time
    both = timed(*case, tp_comm_overlap=np.array([0.0, 1.0]))
    assert both.metrics.step_time == pytest.approx([float(off.time), float(on.time)], rel=1e-12)
    shown = {
        s: sum(float(p.time) for b in step.blocks if b.block.name == "ffn.dense" for op, p in b.ops
               if op.category == "collective")
        for s, step in (("off", off), ("on", on))
    }  # fmt: skip
    assert shown["on"] < 0.7 * shown["off"]


def test_exchanges_hide_behind_another_micro_batch():
    off, on = (step_of(MIXTURE, "dp=8,ep=8", overlap_moe_expert_parallel_comm=x).time for x in (0.0, 1.0))
    assert on < off
    assert step_of(DENSE, "tp=8", overlap_moe_expert_parallel_comm=1.0).time == pytest.approx(
        step_of(DENSE, "tp=8", overlap_moe_expert_parallel_comm=0.0).time, rel=1e-12
    )


def test_a_library_sends_a_row_for_each_pick_and_kernels_one_copy_to_a_node():
    """All-to-all: tokens x top_k rows each way, forward and backward; across nodes kernels that forward inside
    a node are quicker."""
    made = model(MIXTURE)
    rows = 2048.0 * float(made.top_k) * float(made.hidden) * 2.0
    step = step_of(MIXTURE, "dp=8,ep=8")
    sent = [
        float(op.payload)
        for b in step.blocks
        for op, _ in b.ops
        if op.category == "collective" and op.exchange is not None
    ]
    assert sent == pytest.approx([rows] * 4, rel=1e-12)
    by = {how: step_of(MIXTURE, "dp=32,ep=32", "4x8xh100", st.train(32.0, 2048.0), expert_exchange=how)
          for how in ("alltoall", "deepep")}  # fmt: skip
    assert by["deepep"].time < by["alltoall"].time


def test_gradients_of_routed_rows_are_as_many_as_forward():
    graph = rank_graph(model(MIXTURE), WORK, plan("dp=8,ep=8"))
    blocks = {b.name: collectives(b.ops) for b in graph.blocks}
    there, back = ([float(c.payload) for c in blocks[name]] for name in ("ffn.moe", "ffn.moe.backward"))
    assert there == back and len(there) == 2


@pytest.mark.parametrize("settings", [{}, {"tp_comm_overlap": 1.0}, {"expert_exchange": "deepep"}])
@pytest.mark.parametrize("case", [(DENSE, "tp=8,sp=1"), (MIXTURE, "tp=2,dp=4,ep=8,sp=1")])
def test_more_bandwidth_is_never_slower(case, settings):
    system = roomy("8xh100")
    times = []
    for factor in (1.0, 2.0):
        first, *rest = system.fabric.dimension
        wider = replace(first, bandwidth=first.bandwidth * factor)
        given = replace(system, fabric=replace(system.fabric, dimension=(wider, *rest)))
        times.append(float(step_of(case[0], case[1], given, **settings).time))
    assert times[1] <= times[0]
