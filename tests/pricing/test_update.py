"""The end of a training step: what crosses between ranks that hold the same weights, what of it is seen, and
the optimiser.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.errors import BadValue
from strata.evaluate import pricing_of
from strata.hardware.transport import transport
from strata.mapping.place import place
from strata.mapping.plan_layout import group_ranks
from strata.pricing.network.collectives import price_collective
from strata.pricing.optimiser import host_update
from strata.pricing.pricers import Structure, rank_in_step
from strata.pricing.step import price
from strata.pricing.update import exposed_beside_chunks, update_parts, update_price
from strata.software.engine import engine
from strata.workload.graph import Collective, is_collective

SYSTEM, MODEL, WORK = "4x8xh100", "llama-3-8b", st.train(batch=64, length=4096)
MEGATRON = engine("megatron")


def trainer(**changes):
    return replace(MEGATRON, training=replace(MEGATRON.training, **changes))


def given_of(plan, how=MEGATRON, model=MODEL, system=SYSTEM, work=WORK):
    case = st.evaluate(system, model, work, plan, engine=how).case
    return pricing_of(case, case.workload, Structure(case.plan.active()))


def parts(plan, how=MEGATRON, **changes):
    pricing = given_of(plan, how, **changes)
    rank, step = rank_in_step(pricing), price(pricing)
    return update_parts(pricing, rank, step.blocks), step, pricing, rank


def timed(pattern, payload, group, pricing, rank):
    op = Collective(pattern=pattern, group=group, payload=payload)
    return float(price_collective(op, rank.placement.groups[group], rank.fabric).time)


def seen(step, pricing, rank, passes=(0.0, 0.0)):
    """What shows beside passes of so long, at the highest clock."""
    counts = [b.block.count for b in step.blocks]
    return update_price(pricing, rank, step.blocks, counts, passes).exposed


def held(step):
    return sum(
        float(b.block.count * b.held.parameters) for b in step.blocks if b.block.direction == "forward"
    )


def test_weights_gathered_in_pieces_take_longer():
    plan = st.plan(tp=1, dp=32, zero=1)
    whole, pieces = (
        parts(plan, trainer(overlap_param_gather=0.0, param_gather_rate=rate))[0].sums
        for rate in (None, 0.25)
    )
    assert float(pieces.parameters.time) == pytest.approx(4.0 * float(whole.parameters.time))
    assert float(pieces.gradients.time) == float(whole.gradients.time)


@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_gradients_are_summed_over_every_rank_that_holds_the_same_weights(form):
    """Context ranks too, in the trainer's format: one bucket where nothing runs beside it."""
    how = trainer(reduced_gradients=form, overlap_grad_reduce=0.0)
    found, step, pricing, rank = parts("tp=2,cp=4,dp=4", how)
    payload = held(step) * {"fp32": 4.0, "bf16": 2.0}[form]
    assert float(pricing.sharding.degrees["dp_cp"]) == 16.0
    expected = timed("all_reduce", payload, "dp_cp", pricing, rank)
    assert float(found.sums.gradients.time) == pytest.approx(expected, rel=1e-12)
    assert float(seen(step, pricing, rank)["gradients"]) == pytest.approx(expected, rel=1e-12)
    assert float(found.sums.parameters.time) == 0.0


def test_a_sharded_optimiser_scatters_gradients_and_gathers_weights():
    how = trainer(overlap_grad_reduce=0.0, overlap_param_gather=0.0)
    _, step, pricing, rank = parts("tp=2,cp=4,dp=4,zero=1", how)
    count = held(step)
    scatter = timed("reduce_scatter", 4.0 * count, "dp_shard", pricing, rank)
    gather = timed("all_gather", 2.0 * count, "dp_shard", pricing, rank)
    shown = seen(step, pricing, rank)
    assert float(shown["gradients"]) == pytest.approx(scatter, rel=1e-12)
    assert float(shown["parameters"]) == pytest.approx(gather, rel=1e-12)


def test_shards_with_copies_sum_inside_and_then_over_copies():
    how = trainer(overlap_grad_reduce=0.0, overlap_param_gather=0.0)
    found, step, pricing, rank = parts("dp=32,zero=1,dp_shard=8", how)
    count = held(step)
    inside = timed("reduce_scatter", 4.0 * count, "dp_shard", pricing, rank)
    over = timed("all_reduce", 4.0 * count / 8.0, "dp_copies", pricing, rank)
    assert float(found.sums.gradients.time) == pytest.approx(inside + over, rel=1e-12)
    sizes = {name: [float(p.size) for p in rank.placement.groups[name]] for name in ("dp_shard", "dp_copies")}
    assert sizes == {"dp_shard": [8.0, 1.0], "dp_copies": [1.0, 4.0]}


def test_zero_two_scatters_every_micro_batch_and_zero_three_in_every_block():
    how = trainer(overlap_grad_reduce=0.0)
    one, two = (parts(f"dp=32,zero={z},microbatches=2", how) for z in (1, 2))
    once, twice = (float(seen(*found[1:])["gradients"]) for found in (one, two))
    assert twice == pytest.approx(2.0 * once)
    found, step, pricing, _ = parts("dp=32,zero=3,microbatches=2", how)
    assert float(found.sums.gradients.time) == 0.0 and float(found.sums.parameters.time) == 0.0
    moved = {"all_gather": 0.0, "reduce_scatter": 0.0}
    for b in pricing.graph.blocks:
        for op in b.ops:
            if is_collective(op) and op.group == "dp_shard":
                moved[op.pattern] += float(b.count * op.payload)
                assert op.pattern == "all_gather" or b.direction == "backward"
    count = held(step)  # gathered forward and again backward in bf16, summed once in fp32
    assert moved == pytest.approx({"all_gather": 2 * 2.0 * count, "reduce_scatter": 4.0 * count}, rel=1e-12)


def test_experts_are_summed_by_the_ranks_that_hold_the_same_ones():
    plan = "tp=2,dp=16,ep=8,moe_tp=1,zero=1"
    found, _, _, rank = parts(plan, model="mixtral-8x7b")
    ranks = group_ranks(st.plan(plan), frozenset())
    assert [float(n) for n in ranks["expert_dp"][:2]] == [8.0, 4.0]
    assert "expert_shard" in rank.placement.groups and float(found.sums.gradients.time) > 0


def test_a_tied_embedding_is_summed_between_the_first_and_the_last_stage():
    tied = st.model("llama-3-8b", tied=True)
    found, _, pricing, rank = parts("tp=4,dp=2,pp=4", model=tied)
    payload = 4.0 * float(tied.vocab) * float(tied.hidden) / 4.0
    assert float(found.ends.time) == pytest.approx(timed("all_reduce", payload, "ends", pricing, rank))
    assert parts("tp=4,dp=2,pp=4")[0].ends.time == 0.0
    assert [float(p.size) for p in rank.placement.groups["ends"]] == [1.0, 2.0]


@given(
    sent=hy.floats(0.0, 10.0), work=hy.floats(0.0, 10.0), stages=hy.integers(1, 16), chunks=hy.integers(1, 8),
    share=hy.floats(0.0, 1.0),
)  # fmt: skip
@settings(max_examples=100)
def test_what_is_seen_lies_between_a_bucket_and_all(sent, work, stages, chunks, share):
    """Never less than the last bucket nor what no pass can cover, never more than all; more work hides more."""
    piece = share * sent
    seen = float(exposed_beside_chunks(sent, work, float(stages), float(chunks), piece))
    assert piece <= seen <= sent + 1e-12
    assert seen >= (sent - work) / chunks - 1e-12
    assert float(exposed_beside_chunks(sent, work + 1.0, float(stages), float(chunks), piece)) <= seen


def test_overlap_leaves_the_last_bucket():
    """A backward pass far longer than the sum hides all of it but the last bucket: they have 40 million
    parameters, but that of the embedding holds it whole.
    """
    found, step, pricing, rank = parts("tp=1,dp=8,microbatches=1", system="8xh100")
    bucket = timed("all_reduce", 4.0 * 40e6, "dp_cp", pricing, rank)
    pieces = held(step) / 40e6
    assert float(found.sums.gradients.time) == pytest.approx(bucket * pieces, rel=1e-9)
    cores = float(transport("nvlink4").tiles.cores)
    assert float(found.sums.cores) == pytest.approx(cores) and 0.0 < cores < 0.5
    beside = cores * bucket * pieces  # the cores that its kernels take are missed by those of the pass
    found_now = float(seen(step, pricing, rank, (9e9, 9e9))["gradients"])
    assert found_now == pytest.approx(bucket * 128256 * 4096 / 40e6 + beside, rel=1e-9)


@pytest.mark.parametrize(("model", "last"), [("gpt3-175b", 51200 * 12288), ("llama-2-70b", 32000 * 8192)])
def test_the_last_bucket_is_the_longer_of_a_bucket_and_the_embedding(model, last):
    for size in (40e6, 4e9):
        found, _, pricing, _ = parts(
            "tp=8,dp=4,microbatches=1,zero=1", how=trainer(bucket=size, bucket_per_rank=None), model=model
        )
        whole, piece = (float(p.time) for p in (found.sums.gradients, found.sums.last_gradients))
        count = sum(float(b.block.count * b.held.trained) for b in price(pricing).blocks
                    if b.block.direction == "forward")  # fmt: skip
        pieces = max(count / size, 1.0)
        end = next(b for b in price(pricing).blocks if b.block.name == "embedding").held.trained
        assert float(end) >= last / 8 * 0.99
        assert piece == pytest.approx(whole / pieces * max(float(end) * pieces / count, 1.0), rel=1e-9)
        assert piece <= whole * (1.0 + 1e-12)


# ------------------------------------------------------------------------------------- rounding


def test_weights_gathered_wide_are_rounded_once_a_step():
    """7.0 billion weights of layers, read as bf16 and written twice in fp8; gathered in fp8, they are there."""
    narrow = st.model("llama-3-8b", weights="fp8")
    times = {}
    for name in ("bf16", "fp8"):
        found, step, _, _ = parts(
            "dp=8,zero=1", how=trainer(gathered_parameters=name), model=narrow, system="8xh100"
        )
        times[name] = found.optimiser
    layers = 32 * 4096 * (4096 * 2 + 1024 * 2 + 3 * 14336)
    more = float((times["bf16"] + times["fp8"].times(-1.0)).memory_bytes)
    # and the optimiser writes the copies that are gathered one byte wider
    assert more == pytest.approx(layers * 4.0 + held(step) / 8 * 1.0, rel=0.01)
    wide, _, _, _ = parts("dp=8,zero=1", system="8xh100")
    assert float(wide.optimiser.time) < float(times["bf16"].time)


def test_frozen_weights_stay_rounded():
    narrow, work = st.model("llama-3-8b", weights="fp8"), st.train(64, 4096, adapters=st.Lora(rank=16.0))
    tuned, *_ = parts("dp=8,zero=1", model=narrow, system="8xh100", work=work)
    assert float(tuned.optimiser.memory_bytes) < 1e9


def test_a_batch_of_plans_is_each_of_them():
    texts = (
        "dp=32",
        "dp=32,zero=1",
        "cp=4,dp=8,zero=2",
        "dp=32,zero=3",
        "dp=32,zero=3,dp_shard=8",
        "pp=4,dp=8,zero=1",
    )
    alone = [float(st.evaluate(SYSTEM, MODEL, WORK, t, engine="megatron").metrics.step_time) for t in texts]
    every = [st.plan(t) for t in texts]
    names = ("cp", "dp", "pp", "zero", "dp_shard")
    joined = st.plan(**{n: np.array([float(getattr(p, n)) for p in every]) for n in names})
    found = st.evaluate(SYSTEM, MODEL, WORK, joined, engine="megatron").metrics.step_time
    assert np.asarray(found) == pytest.approx(alone, rel=1e-9)


def test_offload_is_the_hosts_update_or_a_plain_refusal():
    """Adam of one eighth of the weights streams the host's memory; a fabric without a host says so."""
    plain, there = (
        parts("dp=8,zero=1" + more, system="8xh200")[0].optimiser for more in ("", ",offload=optimizer")
    )
    step = parts("dp=8,zero=1", system="8xh200")[1]
    _, update = host_update(held(step) / 8.0, 4.0, 12.0, 2.0, 55e9, 102e9)
    assert float(there.time) > float(update) > 5.0 * float(plain.time)
    with pytest.raises(BadValue, match=r"host\.link"):
        st.evaluate("8xa100", MODEL, WORK, "dp=8,zero=1,offload=optimizer")


def test_plans_that_offload_nothing_need_no_host():
    """A batch of plans says so by an array of zeros."""
    plans = st.plan(dp=np.array([8.0, 4.0]), tp=np.array([1.0, 2.0]), offload=np.zeros(2))
    assert np.all(st.evaluate("8xa100", MODEL, WORK, plans).metrics.step_time > 0)


def test_groups_of_a_plan_lie_where_their_ranks_do():
    plan = st.plan("tp=4,cp=2,dp=4,zero=1")
    fabric = st.hardware.sized(st.fabric("hgx-h100"), (8.0, 4.0))
    lies = place(plan, fabric, plan.active()).groups["dp_cp"]
    assert [float(p.size) for p in lies] == [2.0, 4.0]


@pytest.mark.parametrize("zero", [0.0, 1.0, 2.0])
def test_experts_held_by_several_ranks_of_a_tensor_group_are_summed_in_a_batch_and_alone(zero):
    """One copy of everything else is no reason that gradients of experts need no sum."""
    plans = [(8.0, 1.0, 2.0, 1.0), (8.0, 1.0, 2.0, 2.0), (8.0, 1.0, 8.0, 1.0), (4.0, 2.0, 8.0, 1.0)]
    names, system, work = ("tp", "dp", "ep", "moe_tp"), "8xh100", st.train(batch=8, length=4096)

    def time(**degrees):
        found = st.plan(**degrees, zero=zero)
        return price(given_of(found, model="qwen3-30b-a3b", system=system, work=work)).time

    alone = [float(time(**dict(zip(names, one, strict=True)))) for one in plans]
    columns = {name: np.array([one[i] for one in plans]) for i, name in enumerate(names)}
    assert time(**columns) == pytest.approx(alone, rel=1e-9)
    inside = parts(st.plan("tp=8,ep=2,moe_tp=1"), model="qwen3-30b-a3b", system=system, work=work)[0]
    assert float(inside.sums.gradients.time) > 0
