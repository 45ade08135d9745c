"""Prices of layers with a state: steps do not see the context, prompts are linear in it; states are read and
written once a step; division conserves work; a batch is its points, JAX is NumPy.
"""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import kernels, roomy
from hybrids import HYBRIDS, bamba, falcon_h1, jamba_mini, kimi_linear, mamba2, nemotron_3_nano, qwen3_next

import strata as st
from strata.hardware.chip import chip
from strata.mapping.plan import plan_text
from strata.mapping.shard import shard
from strata.pricing.kernels.device import device
from strata.pricing.kernels.numerical import price_state_scan
from strata.workload.graph import Extent, is_collective
from strata.workload.scan_ops import StateScan

DATA = Path(__file__).parents[2] / "data"
every = pytest.mark.parametrize("name", HYBRIDS)


def scans(made, work):
    return [op for _, op in made.trace(work).ops() if op.kind == "state_scan"]


def rank_graph(made, work, plan):
    graph = made.trace(work)
    return shard(graph, plan.sharding(graph, work, plan.active()))


@every
def test_a_step_of_a_state_does_not_see_the_context(name):
    made, h200 = HYBRIDS[name](), device(chip("h200"))
    times = [float(price_state_scan(scans(made, st.decode(32.0, c))[0], h200).time) for c in (1e3, 1e4, 1e6)]
    assert times[0] == times[1] == times[2] > 0.0


def test_a_model_without_a_cache_takes_as_long_at_any_context():
    work = st.decode(64.0, np.array([1e3, 1e5, 1e7]))
    found = st.evaluate(st.system("8xh200"), mamba2(), work, st.plan(tp=8)).metrics
    assert np.ptp(found.step_time) == 0.0 and np.ptp(found.memory_used) == 0.0


@every
def test_a_step_reads_and_writes_its_states(name):
    made, h200 = HYBRIDS[name](), chip("h200")
    op = scans(made, st.decode(512.0, 4096.0))[0]
    price = price_state_scan(op, device(h200))
    states = float(op.held_bytes())
    assert 2.0 * states <= float(price.memory_bytes) <= 2.2 * states
    least = 2.0 * states / h200.memory.bandwidth
    assert least <= float(price.time) <= 1.5 * least


def measured():
    """Kernels timed on an H200."""
    lines = [line for line in (DATA / "state_scan_h200.csv").read_text().splitlines() if line[0] != "#"]
    return list(csv.DictReader(lines))


@pytest.mark.parametrize(
    "row", measured(), ids=lambda r: "-".join((r["what"], r["rule"], r["heads"], r["tokens"]))
)
def test_prices_are_those_of_kernels_timed_on_an_h200(row):
    """Within a quarter; steps of fewer than 32 sequences, which are all launch, are left out."""
    step, tokens = row["what"] == "step", float(row["tokens"])
    op = StateScan(
        name="s", module="m", inputs=("a", "state"), output="o", rule=row["rule"], activation="bf16",
        sequences=Extent(tokens if step else 1.0), queries=Extent(1.0, 1.0 if step else tokens), share=Extent(1.0),
        heads=Extent(float(row["heads"])), key_heads=Extent(float(row["key_heads"])), stepwise=step,
        key_dim=float(row["key_dim"]), value_dim=float(row["value_dim"]), chunk=float(row["chunk"]),
        state=row["state"],
    )  # fmt: skip
    taken = sum(float(row[f"{part}_us"] or 0.0) for part in ("products", "passing", "step"))
    assert float(price_state_scan(op, device(chip("h200"))).time) * 1e6 == pytest.approx(taken, rel=0.25)


@every
def test_long_prompts_take_as_long_as_their_tokens(name):
    """Four times the tokens take four times as long, but for the kernels' fixed times."""
    made, h200 = HYBRIDS[name](), device(chip("h200"))
    one, four = (
        float(price_state_scan(scans(made, st.prefill(1.0, n))[0], h200).time) for n in (2**16, 2**18)
    )
    assert 3.7 < four / one < 4.3


@every
@pytest.mark.parametrize("phase", ["decode", "prefill", "train"])
def test_ranks_share_out_all_of_the_work(name, phase):
    """Of heads and groups that divide evenly nothing is lost or done twice; a single group is held by all."""
    made = HYBRIDS[name]()
    work = {
        "decode": st.decode(8.0, 2048.0),
        "prefill": st.prefill(8.0, 2048.0),
        "train": st.train(8.0, 2048.0),
    }[phase]
    whole = made.trace(work)
    for plan in (st.plan(tp=2), st.plan(dp=4), st.plan(tp=4, dp=2, sp=1)):
        plan = replace(plan, microbatches=1.0)
        part = rank_graph(made, work, plan)
        ranks = float(plan.tp * plan.dp)
        for before, after in zip(whole.blocks, part.blocks, strict=True):
            for op, cut in zip(before.ops, kernels(after.ops), strict=True):
                if cut.module != "mixer":
                    continue
                shared = made.mixer.key_heads < plan.tp or not any(
                    "state" in a for a in (*op.result_axes(), *op.contracted_axes())
                )
                assert ranks * float(cut.flop()) >= float(op.flop()) * (1 - 1e-9)
                if not shared:
                    assert ranks * float(cut.flop()) == pytest.approx(float(op.flop()))
                if op.state_bytes() is not None and not op.backward and not shared:
                    assert ranks * float(cut.state_bytes()) == pytest.approx(float(op.state_bytes()))


@every
def test_the_sum_after_the_out_projection_is_all_that_tensor_ranks_send(name):
    """Mamba-1 adds up its steps, B and C as well, which all channels share; attention and state of one layer
    are one sum.
    """
    made = HYBRIDS[name]()
    part = rank_graph(made, st.prefill(2.0, 4096.0), st.plan(tp=2))
    block = next(b for b in part.blocks if any(op.kind == "state_scan" for op in b.ops))
    sent = [(op.name, op.pattern) for op in block.ops if is_collective(op)]
    first = [("x_proj_sum", "all_reduce")] if made.mixer.kind == "mamba1" else []
    assert sent == [*first, ("out_proj_sum", "all_reduce")]


def test_ranks_that_share_a_sequence_pass_states_not_tokens():
    """Sun et al., LASP-2, arXiv 2502.07563: what is gathered does not grow with the sequence."""
    for make in (bamba, qwen3_next, kimi_linear, jamba_mini, falcon_h1):
        sent = []
        for length in (4096.0, 65536.0):
            part = rank_graph(make(), st.prefill(2.0, length), st.plan(cp=4))
            ops = [
                op
                for b in part.blocks
                for op in b.ops
                if is_collective(op) and op.name == "state_scan_gather"
            ]
            sent.append([(op.pattern, op.group, float(op.payload)) for op in ops])
        assert sent[0] == sent[1] and sent[0][0][:2] == ("all_gather", "cp")
        mixer = make().mixer
        states = 4 * 2 * mixer.heads * mixer.key_dim * mixer.value_dim * 4.0  # of two sequences on four ranks
        assert sent[0][0][2] == states * (2.0 if mixer.rule == "delta" else 1.0)
        decode = rank_graph(make(), st.decode(2.0, 4096.0), st.plan(cp=4))
        assert not [op for b in decode.blocks for op in b.ops if op.name == "state_scan_gather"]


def test_tensor_ranks_divide_the_heads_of_a_state():
    made = replace(nemotron_3_nano(), mixer=replace(nemotron_3_nano().mixer, heads=60.0))
    found = st.evaluate(st.system("8xh200"), made, st.decode(8.0, 512.0), st.plan(tp=8))
    assert any("heads of a state" in one.what for one in found.infeasible)
    legal = st.plans(8, nemotron_3_nano())
    assert "tp=8" in {plan_text(st.plan(tp=float(t))) for t in legal.tp}


def test_states_have_a_line_of_their_own_in_memory():
    found = st.evaluate(
        st.system("8xh200"), qwen3_next(), st.decode(64.0, 32768.0), st.plan(tp=2, dp=4, ep=8)
    )
    mixer = qwen3_next().mixer
    assert found.summary.memory["state"] == pytest.approx(64 / 4 * 36 * float(mixer.state_bytes()) / 2)
    assert found.summary.memory["cache"] == pytest.approx(
        64 / 4 * 32768 * 12 * 2 * 256 * 2.0
    )  # a head a rank
    plain = st.evaluate(st.system("8xh200"), st.model("llama-3-8b"), st.decode(8.0, 512.0), st.plan(tp=8))
    assert "state" not in plain.summary.memory


def test_two_pools_send_states_with_the_cache():
    from strata.serving.pools import cache_bytes

    made = qwen3_next()
    state = 36 * float(made.mixer.state_bytes())
    assert float(cache_bytes(made, 1000.0)) == pytest.approx(1000 * 12 * 2 * 2 * 256 * 2.0 + state)


PLANS = {"tp": [1.0, 2.0, 4.0], "pp": [2.0, 4.0, 1.0], "dp": [4.0, 1.0, 2.0]}


@every
def test_a_batch_is_its_points(name):
    made, system = HYBRIDS[name](), roomy("8xh200")
    plans = st.plan(**{k: np.array(v) for k, v in PLANS.items()})
    for work in (
        st.decode(32.0, np.array([[512.0], [8192.0]])),
        st.prefill(np.array([[8.0], [16.0]]), 2048.0),
    ):
        box = st.evaluate(system, made, work, plans).metrics.step_time
        for i, j in ((0, 0), (1, 1), (1, 2)):
            one = st.plan(**{k: v[j] for k, v in PLANS.items()})
            cut = {k: float(v[i, 0]) if isinstance(v, np.ndarray) else v for k, v in vars(work).items()}
            alone = st.evaluate(system, made, type(work)(**cut), one).metrics.step_time
            assert box[i, j] == pytest.approx(float(alone), rel=1e-12)


def test_jax_is_numpy():
    """Layers in no period, on a pipeline; without experts, which take long to compile."""
    system, plans = roomy("8xh200"), st.plan(**{k: np.array(v) for k, v in PLANS.items()})
    made, work = bamba(), st.prefill(8.0, 2048.0)
    found = (st.evaluate(system, made, work, plans, backend=b).metrics.step_time for b in ("numpy", "jax"))
    box, compiled = found
    assert np.asarray(compiled) == pytest.approx(box, rel=1e-9)


@pytest.mark.parametrize("how", ["none", "tiles", "dual_batch"])
@pytest.mark.parametrize("make", [nemotron_3_nano, mamba2, falcon_h1])
def test_layers_of_one_part_overlap_as_others_do(make, how):
    engine = replace(st.engine("ideal"), overlap=how)
    work, plan = st.decode(256.0, 4096.0), st.plan(tp=4, dp=2)
    found = st.evaluate(st.system("8xh200"), make(), work, plan, engine=engine)
    plain = st.evaluate(st.system("8xh200"), make(), work, plan, engine=replace(engine, overlap="none"))
    assert 0.0 < float(found.metrics.step_time) <= float(plain.metrics.step_time) * (1 + 1e-9)


def test_every_stage_of_an_uneven_order_is_looked_at():
    """The slowest stage of a pipeline over layers in no period is the slowest of all stages."""
    from strata.pricing.pipeline import stage_counts, stage_nodes

    order = nemotron_3_nano().trace(st.decode(1.0, 1.0)).sequence
    for stages in (2.0, 3.0, 7.0, 13.0, 26.0, 51.0, 52.0):
        seen = stage_nodes(stages, order.layers, len(order.period))
        for block in ("attention.linear", "attention.full", "ffn.moe"):
            some = stage_counts(order, block, stages, seen)
            all_of_them = stage_counts(order, block, stages, np.arange(stages))
            assert np.max(some) == np.max(all_of_them) and np.sum(all_of_them) == float(
                order.within(52.0, block)
            )


def test_the_share_of_the_peak_that_chunks_reach_is_the_chips():
    """Twice the share saves half of the time of the products inside chunks, and nothing else."""
    h200, op = chip("h200"), scans(mamba2(), st.prefill(1.0, 2.0**16))[0]
    share = h200.compute.scan_efficiency
    slow, fast = (
        float(
            price_state_scan(op, device(replace(h200, compute=replace(h200.compute, scan_efficiency=e)))).time
        )
        for e in (share, 2.0 * share)
    )
    blocks, cores = float(op.chunks() * op.heads.size), 132.0
    turns = -(-blocks // cores) * cores / blocks
    products = float(op.flop()) / (float(device(h200).matrix("bf16", "bf16").peak) * share) * turns
    assert slow - fast == pytest.approx(products / 2.0, rel=1e-6)


def test_every_chip_says_the_share_and_where_it_is_from():
    assert "state_scan_h200.csv" in chip("h200").sources["compute.scan_efficiency"].source
    for name in ("b200", "mi300x", "tpu-v6e", "sn40l"):
        assert "assumed: as on" in chip(name).sources["compute.scan_efficiency"].source
