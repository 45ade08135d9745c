"""Residuals that tensor ranks hold in parts: volumes, mixed batches, placement of groups."""

import numpy as np
import pytest
from cases import collectives, model, rank_graph, roomy

import strata as st
from strata.hardware.system import system
from strata.mapping.place import place
from strata.mapping.plan import plan

WORK = st.train(16.0, 1024.0)


def sent_bytes(name, division):
    """Bytes each block sends over the tensor group: a ring's (n-1)/n of the buffer, twice for a sum."""
    found, ways = {}, {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}
    made = plan(division)
    share = (float(made.tp) - 1.0) / float(made.tp)
    for block in rank_graph(model(name), WORK, made).blocks:
        own = [c for c in collectives(block.ops) if c.group == "tp"]
        found[block.name] = sum(float(c.payload) * ways[c.pattern] * share for c in own)
    return found


def test_a_scatter_and_a_gather_send_what_a_sum_sends():
    """Forward the volume of an all-reduce, backward that and the saved input once more (Korthikanti et al.,
    arXiv 2205.05198, sec. 4.2.2)."""
    whole, parts = sent_bytes("llama-3-8b", "tp=8"), sent_bytes("llama-3-8b", "tp=8,sp=1")
    for name in ("attention.full", "ffn.dense"):
        assert parts[name] == pytest.approx(whole[name], rel=1e-12)
        assert parts[f"{name}.backward"] == pytest.approx(1.5 * whole[f"{name}.backward"], rel=1e-12)


def test_only_what_is_divided_sends():
    patterns = {}
    for division in ("dp=8", "dp=8,sp=1", "tp=8", "tp=8,sp=1", "cp=8,cp_mode=ring"):
        graph = rank_graph(model("llama-3-8b"), WORK, plan(division))
        patterns[division] = {
            (c.pattern, c.group) for b in graph.blocks for c in collectives(b.ops) if c.payload > 0
        }
    assert patterns["dp=8"] == patterns["dp=8,sp=1"] == set()
    assert patterns["tp=8"] == {("all_reduce", "tp")}
    assert patterns["tp=8,sp=1"] == {("all_gather", "tp"), ("reduce_scatter", "tp"), ("all_reduce", "tp")}
    assert {group for _, group in patterns["cp=8,cp_mode=ring"]} == {"cp"}


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3"])
def test_a_batch_with_and_without_is_its_single_plans(name):
    degrees = {
        "tp": [1.0, 2.0, 2.0, 4.0, 8.0, 2.0, 4.0],
        "cp": [1.0, 2.0, 2.0, 1.0, 1.0, 4.0, 2.0],
        "dp": [8.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0],
        "ep": [1.0, 4.0, 2.0, 8.0, 8.0, 4.0, 1.0] if name == "deepseek-v3" else [1.0] * 7,
        "moe_tp": [1.0] * 7,
        "sp": [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0],
        "cp_mode": [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 2.0],
    }
    every = plan(**{key: np.array(values) for key, values in degrees.items()})
    many = st.evaluate(roomy("8xh100"), name, WORK, every, engine="megatron").metrics.step_time
    for place_, found in enumerate(many):
        one = plan(**{key: values[place_] for key, values in degrees.items()})
        alone = st.evaluate(roomy("8xh100"), name, WORK, one, engine="megatron").metrics.step_time
        assert float(found) == pytest.approx(float(alone), rel=1e-12)


def test_tensor_and_context_ranks_lie_inside_a_domain_used_in_part():
    """64 of 72 devices of each rack: tp and cp inside, replicas across, stages outermost (Megatron's order)."""
    racks = system("4x64xgb200")
    made = plan(tp=4, cp=2, dp=8, pp=4)
    groups = place(made, racks.fabric, made.active()).groups
    inside, across = ([float(spread.size) for spread in groups[g]] for g in ("tp", "pp"))
    assert np.prod(inside) == 4 and inside[-1] == 1
    assert across[-1] == 4
    assert [float(s.size) for s in groups["cp"]][-1] == 1
    assert [float(s.size) for s in groups["dp"]][-1] == 1
