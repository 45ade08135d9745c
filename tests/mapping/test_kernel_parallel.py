"""Kernel parallelism: the paper's notation, what each scheme sends, and what must hold for any strategy."""

import json
from pathlib import Path

import numpy as np
import pytest
from cases import roomy, uncapped
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.errors import BadValue, UnknownName
from strata.mapping.kernel_parallel import (
    KernelSplit,
    Strategy,
    by_structure,
    layout_of,
    parse_strategy,
    strategies,
    strategy_text,
)
from strata.mapping.plan import division, division_text
from strata.mapping.shard import shard
from strata.workload.graph_walks import check_graph

REFERENCE = json.loads((Path(__file__).parents[1] / "data/deepflow/kernel_parallel.json").read_text())
TEXTS = ("RC-4-2-d8-p2", "CR-8", "CR-4-d2-p2", "d8", "p4", "d8-p2", "RC-2-2-d2", "RC-1-8")
BY_MODULE = "hidden=RC-4-2,softmax=CR-8,embedding=RC-2-4,projection=RC-8-1,d8,p2"
M, K, N = 4096.0, 2048.0, 8192.0
WIDE = 2.0  # bytes of fp16
FORWARD, TRAIN = st.forward(1.0), st.train(1.0, 1.0)


def rank_graph(program, work, text, **how):
    graph = program.trace(work)
    layout = layout_of(parse_strategy(text), program, **how)
    return check_graph(shard(graph, layout.sharding(graph, work, layout.active())))


def sent(program, work, text, **how):
    """Collectives as block, how often it runs, pattern, group and elements of its payload."""
    return [
        (block.name, float(block.times), op.pattern, op.group, op.payload / WIDE)
        for block, op in rank_graph(program, work, text, **how).ops()
        if op.kind == "collective"
    ]


def product():
    return st.program("gemm-8192", m=M, k=K, n=N)


def own(program, work, text, **how):
    """Pattern, group and elements of what a product's step sends."""
    return [c[2:] for c in sent(program, work, text, **how)]


@pytest.mark.parametrize("text", [*TEXTS, BY_MODULE])
def test_notation_is_read_and_written(text):
    assert strategy_text(parse_strategy(text)) == text


def test_what_the_notation_means():
    one = parse_strategy("RC-4-2-d8-p2")
    assert (one.kind, one.kp1, one.kp2, one.dp, one.lp, one.devices) == ("RC", 4.0, 2.0, 8.0, 2.0, 128.0)
    two = parse_strategy("CR-8-d2")
    assert (two.kind, two.kp1, two.kp2, two.split.depth, two.devices) == ("CR", 8.0, 1.0, 8.0, 16.0)
    assert parse_strategy("d8").kind == "none" and parse_strategy("p4").devices == 4.0
    many = Strategy(KernelSplit(np.array([4.0, 1.0]), np.array([2.0, 1.0]), np.array([1.0, 8.0])))
    assert many.kind.tolist() == ["RC", "CR"] and many.devices.tolist() == [8.0, 8.0]
    assert [strategy_text(many.at(i)) for i in range(2)] == ["RC-4-2", "CR-8"]


@pytest.mark.parametrize(
    "text", ["RC-4", "CR-4-2-2", "RC-4-2-", "d8-RC-2-2", "RC-0-2", "", "hidden=XY-2", "x"]
)
def test_other_texts_are_refused_in_one_line(text):
    with pytest.raises(BadValue) as error:
        parse_strategy(text)
    assert "\n" not in str(error.value)


def test_modules_share_the_same_devices_and_have_names():
    with pytest.raises(BadValue, match="same devices"):
        parse_strategy("hidden=RC-4-2,softmax=CR-4")
    with pytest.raises(UnknownName, match="attention"):
        layout_of(parse_strategy("attention=RC-4-2"), st.program("lstm-lm-512"))
    with pytest.raises(BadValue, match="multiples"):
        layout_of(parse_strategy("hidden=RC-2-3,softmax=RC-3-2"), st.program("lstm-lm-512"))
    with pytest.raises(BadValue, match="no products"):
        layout_of(parse_strategy("RC-4-2"), st.model("llama-3-8b"))


def test_a_product_by_rows_and_columns_sends_what_the_paper_says():
    """RC-4-2: forward a gather of m/KP1 x n over KP2; backward gathers of grad rows (m/KP1 x n over KP2) and
    of grad columns (m x n/KP2 over KP1), with A and W divided anew; gradient of the weight made in k/KP1 x
    n/KP2 and gathered to k x n/KP2 over KP1.
    """
    forward = [("all_gather", "kp2", M / 4 * N)]
    assert own(product(), FORWARD, "RC-4-2") == forward
    assert own(product(), TRAIN, "RC-4-2") == [
        *forward,
        ("all_gather", "kp2", M / 4 * N),
        ("all_to_all", "kp2", K * N / 2),
        ("all_gather", "kp1", M * N / 2),
        ("all_to_all", "kp1", K * M / 4),
        ("all_gather", "kp1", K * N / 2),
    ]
    graph = rank_graph(product(), TRAIN, "RC-4-2")
    shapes = {op.name: (op.m.size, op.k.size, op.n[0].size) for _, op in graph.ops() if op.kind == "matmul"}
    assert shapes == {
        "product": (M / 4, K, N / 2),
        "product_dgrad": (M / 4, N, K / 2),
        "product_wgrad": (K / 4, M, N / 2),
    }


def test_a_product_by_depth_scatters_sums_and_gathers_gradients():
    """CR-8: reduce-scatter of m x n, all-gather of m x n backward, weights' gradients where weights lie."""
    assert own(product(), FORWARD, "CR-8") == [("reduce_scatter", "depth", M * N)]
    both = [("reduce_scatter", "depth", M * N), ("all_gather", "depth", M * N)]
    assert own(product(), TRAIN, "CR-8") == both
    graph = rank_graph(product(), TRAIN, "CR-8")
    shapes = {op.name: (op.m.size, op.k.size, op.n[0].size) for _, op in graph.ops() if op.kind == "matmul"}
    # DeepFlow times (k, m/KP1, n) and (m, n/KP1, k): as many operations, but partial sums that it never adds up
    assert shapes["product_wgrad"] == (K / 8, M, N) and shapes["product_dgrad"] == (M, N, K / 8)
    assert np.prod(shapes["product_wgrad"]) == np.prod((K, M / 8, N))


def test_replicas_sum_the_gradient_of_their_own_shard():
    assert own(product(), TRAIN, "d8") == [("all_reduce", "dp", K * N)]
    assert own(product(), TRAIN, "CR-4-d2")[-1] == ("all_reduce", "dp", K / 4 * N)
    last = own(product(), TRAIN, "RC-2-4-d2")[-2:]
    assert last == [("all_reduce", "dp", K / 2 * N / 4), ("all_gather", "kp1", K * N / 4)]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_halved_gathers_of_the_paper_are_right_for_two_ranks_only(ranks):
    """DeepFlow gathers all of A^T (k x m) over KP1 and all of W^T (k x n) over KP2 and halves both; a rank
    needs its part of the rows only, which is an exchange of what each holds.
    """
    (_, _, ours) = next(c for c in own(product(), TRAIN, f"RC-{ranks}-1") if c[0] == "all_to_all")
    leaves = ours * (ranks - 1) / ranks  # elements that leave a rank
    theirs = 0.5 * K * M * (ranks - 1) / ranks
    assert theirs / leaves == pytest.approx(ranks / 2, rel=1e-12)


def test_sums_in_place_of_gathers_move_weights_once():
    scheme = own(product(), TRAIN, "RC-4-2-d2", backward="sum")
    assert scheme == [
        ("all_gather", "kp2", M / 8 * N),
        ("reduce_scatter", "kp2", M / 8 * K),
        ("all_reduce", "kp1", K * N / 2),
        ("all_reduce", "dp", K * N / 2),
    ]


def test_time_steps_gather_hidden_states_and_move_weights_once():
    """DeepFlow gathers sums of all four gates (4 D); with the gates of a unit on one rank only h is
    needed, and W is exchanged once for all time steps.
    """
    lstm = st.program("lstm-lm-v100", layers=2)
    batch, width, steps = 64.0, float(lstm.hidden), float(lstm.steps)
    found = sent(lstm, st.train(batch, 1.0), "RC-4-2-d1")
    cell = [c[1:] for c in found if c[0].startswith("cell")]
    assert cell == [
        (2 * steps, "all_gather", "kp2", batch / 4 * width),
        (2 * steps, "all_gather", "kp2", batch / 4 * 4 * width),
        (2 * steps, "all_gather", "kp1", batch * 4 * width / 2),
        (2 * steps, "all_to_all", "kp1", batch / 4 * 2 * width),
        (2.0, "all_to_all", "kp2", 2 * width * 4 * width / 2),
        (2.0, "all_gather", "kp1", 2 * width * 4 * width / 2),
    ]
    sums = [c[1:] for c in sent(lstm, st.train(batch, 1.0), "d8") if c[2] == "all_reduce"]
    assert sums == [
        (1.0, "all_reduce", "dp", width * lstm.vocab),
        (1.0, "all_reduce", "dp", width * lstm.projection),
        (2.0, "all_reduce", "dp", 8 * width**2),
        (1.0, "all_reduce", "dp", width * lstm.vocab),
    ]


def test_a_softmax_needs_two_numbers_of_a_row_not_the_row():
    """DeepFlow gathers m/KP1 x vocabulary; sums of rows are two fp32 numbers a row."""
    lstm = st.program("lstm-lm-v100")
    head = [c for c in sent(lstm, st.forward(64.0), "RC-4-2") if c[0] == "head"]
    assert [c[2:] for c in head] == [("all_reduce", "kp2", 2 * 4 / WIDE * 16)]


def test_modules_of_their_own_meet_by_conversion():
    lstm = st.program("lstm-lm-512")
    layout = layout_of(parse_strategy("hidden=RC-4-2,softmax=CR-8,d2"), lstm)
    assert list(layout.mesh.items()) == [("kp1", 4.0), ("kp2", 2.0), ("dp", 2.0), ("pp", 1.0)]
    head = [c[2:4] for c in sent(lstm, st.forward(64.0), "hidden=RC-4-2,softmax=CR-8,d2") if c[0] == "head"]
    assert head[0] == ("all_to_all", "kp1")  # rows for depth
    assert head[1:3] == [("reduce_scatter", "kp1"), ("reduce_scatter", "kp2")]
    same = sent(lstm, TRAIN, ",".join(f"{m}=RC-4-2" for m in lstm.kernel_modules))
    assert [c[1:] for c in same] == [c[1:] for c in sent(lstm, TRAIN, "RC-4-2")]
    three = layout_of(parse_strategy("hidden=RC-4-2,softmax=RC-2-4"), lstm)
    assert list(three.mesh.values())[:3] == [2.0, 2.0, 2.0]


@settings(max_examples=30, deadline=None)
@given(
    split=hy.sampled_from(["RC-1-1", "RC-4-2", "RC-2-4", "RC-8-1", "CR-8", "CR-2"]),
    dp=hy.sampled_from([1, 2, 4]),
    backward=hy.sampled_from(["gather", "sum"]),
    train=hy.booleans(),
)
def test_the_ranks_do_the_whole_work_between_them(split, dp, backward, train):
    lstm = st.program("lstm-lm-v100", vocab=32768, softmax_reads="projection")
    work = TRAIN if train else FORWARD
    work = type(work)(work.phase, 256.0, 1.0, 1.0)
    text = f"{split}-d{dp}"
    part, whole = rank_graph(lstm, work, text, backward=backward), lstm.trace(work)
    assert part.flop() * parse_strategy(text).devices == pytest.approx(whole.flop(), rel=1e-12)


@pytest.mark.parametrize("phase", ["forward", "train"])
def test_a_batch_of_strategies_is_each_by_itself(phase):
    lstm, work = st.program("lstm-lm-v100", layers=2), st.Workload(phase, 512.0, 1.0, 1.0)
    every = strategies(8, lstm)
    box = st.evaluate("8xh200", lstm, work, every)
    alone = [
        st.evaluate("8xh200", lstm, work, strategy_text(every.at(i))).metrics.step_time
        for i in range(every.dp.size)
    ]
    assert box.fits.all() and len({strategy_text(every.at(i)) for i in range(every.dp.size)}) == every.dp.size
    np.testing.assert_allclose(box.metrics.step_time, alone, rtol=1e-12)
    jax = st.evaluate("8xh200", lstm, work, every, backend="jax")
    np.testing.assert_allclose(jax.metrics.step_time, alone, rtol=1e-9)


def test_every_strategy_is_there_once():
    every = strategies(8, st.program("gemm-8192"))
    texts = {strategy_text(every.at(i)) for i in range(every.dp.size)}
    rc = {(a, b, 8 // a // b) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8) if a * b <= 8}
    assert len(texts) == every.dp.size == len(rc) + 3  # and CR-2-d4, CR-4-d2, CR-8
    only = strategies(8, st.program("gemm-8192"), kinds=("CR",))
    assert set(only.kind.tolist()) == {"CR", "none"} and only.dp.size == 4


def test_strategies_by_module_in_parts_of_one_structure():
    lstm, work = st.program("lstm-lm-v100"), st.train(64.0, 1.0)
    every = strategies(4, lstm, per_module=True)
    parts = by_structure(every)
    assert sorted(np.concatenate([where for where, _ in parts]).tolist()) == list(range(every.dp.size))
    rng = np.random.default_rng(0)
    for where, part in parts[:6]:
        box = st.evaluate("4xh200", lstm, work, part)
        at = int(rng.integers(len(where)))
        one = st.evaluate("4xh200", lstm, work, every.at(int(where[at])))
        assert box.metrics.step_time[at] == pytest.approx(one.metrics.step_time, rel=1e-12)
        assert parse_strategy(division_text(one.plan)).devices == 4.0


def test_a_layout_has_stages_that_hand_on_every_time_step():
    """A wavefront: stages of equal layers take S + P - 1 time steps in place of S P."""
    cells = st.program("lstm-lm-v100", layers=8, vocab=0, projection=0, steps=10)
    fast = "1xh200", "8xh200"
    one, eight = (
        st.evaluate(uncapped(roomy(system)), cells, st.forward(4096.0), plan)
        for system, plan in zip(fast, ("d1", "p8"), strict=True)
    )
    sends = eight.steps[0].time_by_kind["collective"]
    busy = one.steps[0].time / 8 + sends
    assert eight.steps[0].time == pytest.approx(busy * (1 + 7 / 10), rel=0.02)
    assert eight.metrics.memory_used < one.metrics.memory_used / 4
    broken = st.evaluate("16xh200", cells, st.forward(64.0), "p16").infeasible
    assert any("layers" in b.what and b.demand == 16.0 and b.limit == 8.0 for b in broken)


@pytest.mark.parametrize("row", REFERENCE["distributed_products"], ids=lambda r: f"{r['strategy']}-{r['m']}")
def test_deepflow_reference_distributed_products(row):
    """Time of the links for what our layouts send, by its ring at its bandwidth, against its own time of
    communication, which has memory and launches beside; 5 us a hop.
    """
    made = st.program("gemm-8192", m=row["m"], k=row["k"], n=row["n"])
    strategy = parse_strategy(row["strategy"])
    time = 0.0
    for pattern, group, elements in own(made, FORWARD, row["strategy"]):
        assert pattern == ("reduce_scatter" if strategy.kind == "CR" else "all_gather")
        ranks = float(strategy.kp1 if group == "depth" else strategy.kp2)
        time += (ranks - 1) / ranks * elements * WIDE / row["bandwidth"][0 if group == "depth" else 1]
        time += 5e-6 * (ranks - 1)
    assert time == pytest.approx(row["comm_time"], rel=0.02)


def test_degrees_and_notation_are_one():
    lstm = st.program("lstm-lm-512")
    by_text, by_degrees = division(lstm, "RC-4-2-d8"), division(lstm, "kp1=4,kp2=2,dp=8")
    assert by_text.mesh == by_degrees.mesh and by_text.modules == by_degrees.modules
    assert division_text(by_degrees) == "RC-4-2-d8" and division_text(division(lstm, "depth=8")) == "CR-8"
    assert division(lstm, "RC-4-2", dp=8.0).mesh == by_text.mesh
    with pytest.raises(BadValue, match="RC-4-2-d8-p2"):
        division(lstm, "tp=8")
