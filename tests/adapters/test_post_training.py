"""Post-training: laws of its times, hand sums of its parts, NeMo-RL's published steps, and bad input."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.adapters.post_training.iteration import (
    ALL,
    SAMPLING,
    TRAINING,
    colocated_transfer,
    iteration_time,
    resharded_bytes,
)
from strata.adapters.post_training.phases import PricedPool, padded_packs, training_plans
from strata.base.errors import BadValue, StrataError
from strata.serving.curve import as_many
from strata.serving.pools import send_time

MODEL, SMALL = "llama-3.1-8b", {"batch": 16, "group": 8, "minibatch": 64, "response": 400, "longest": 1500}
TRAIN = "dp=8,zero=3,recompute=full"


def small(**changes):
    return st.post_training_recipe("grpo", **(SMALL | changes))


def test_phases_of_one_pool_add_up_and_follow_each_other():
    way = st.post_training("8xh200", MODEL, small(), "dp=8", TRAIN, pools="one", keep=False).best
    assert way.fits and way.colocated and not way.asynchronous
    assert sum(p.time for p in way.phases) == pytest.approx(way.time)
    ends = 0.0
    for p in way.phases:
        assert p.pool == ALL and p.start == pytest.approx(ends) and p.time >= 0
        ends = p.start + p.time
    assert way.samples_per_s == pytest.approx(128 / way.time)
    assert way.tokens_per_s == pytest.approx(128 * (127 + 400) / way.time)
    names = [p.name for p in way.phases]
    assert names == ["read prompts", "rollouts", "rollout tail", "scoring", "training", "controller",
                     "moving state", "weight transfer", "loading weights"]  # fmt: skip


def test_training_is_the_step_that_evaluate_prices_as_often_as_the_recipe_says():
    recipe = small(epochs=2)
    way = st.post_training("8xh200", MODEL, recipe, "dp=8", TRAIN, pools="one").best
    step = st.evaluate("8xh200", MODEL, st.train(64, 527), way.training_plan, "megatron")
    assert way.phase("training") == pytest.approx(2 * 128 / 64 * float(step.metrics.step_time))
    assert way.memory["training"]["optimizer"] == pytest.approx(float(step.summary.memory["optimizer"]))


def test_rollouts_of_equal_lengths_are_so_many_decode_steps():
    """All 128 responses run together: 400 steps of 16 sequences a device, at contexts from 127 to 527."""
    recipe = small(spread=0, longest=400, prefix_caching=0)
    way = st.post_training("8xh200", MODEL, recipe, "dp=8", TRAIN, pools="one").best
    contexts = 127 + np.arange(400) + 0.5
    steps = st.evaluate("8xh200", MODEL, st.decode(128, contexts), "dp=8", "vllm").metrics.step_time
    assert way.phase("rollouts") + way.phase("rollout tail") == pytest.approx(float(np.sum(steps)), rel=0.01)


def test_a_critic_doubles_training_and_models_that_score_add_forward_passes():
    plain, ppo, ruled = (
        st.post_training("8xh200", MODEL, small(**how), "dp=8", TRAIN, pools="one", keep=False).best
        for how in ({}, {"critic": 1, "reward_model": 1}, {"reference": 0, "old_policy": 0})
    )
    assert ppo.phase("training") == pytest.approx(2 * plain.phase("training"))
    assert ppo.phase("scoring") > 1.8 * plain.phase("scoring") and ruled.phase("scoring") == 0
    assert ppo.memory["training"]["gradients"] == pytest.approx(2 * plain.memory["training"]["gradients"])


def test_asynchronous_is_never_slower_and_waits_less():
    how = {"rollout_devices": 8}
    sync = st.post_training("16xh100", MODEL, small(), "dp=8", TRAIN, **how).best
    off = st.post_training("16xh100", MODEL, small(), "dp=8", TRAIN, asynchronous=True, **how).best
    assert off.time <= sync.time
    parts = (sync.phase("read prompts") + sync.phase("rollouts") + sync.phase("rollout tail"),
             sync.phase("scoring") + sync.phase("training"))  # fmt: skip
    between = sync.phase("weight transfer") + sync.phase("controller") + off.phase("moving state")
    assert off.time == pytest.approx(max(parts) + between)
    assert min(off.idle_share(SAMPLING), off.idle_share(TRAINING)) < 0.05
    assert off.energy < sync.energy and off.usd < sync.usd


times = hy.floats(0, 1e4)


@given(r=times, learnt=times, t=times)
def test_iteration_times_are_ordered(r, learnt, t):
    sync, off = (float(iteration_time(r, learnt, t, a)) for a in (0.0, 1.0))
    assert 0 <= off <= sync * (1 + 1e-12) and off >= max(r, learnt, t)


def priced(devices, plan, **changes):
    return pool(devices, as_many(st.plan(plan)), **changes).rollouts()


def pool(devices, plans, engine="vllm", **changes):
    system = st.system(f"{devices}xh100")
    return PricedPool(system, st.model(MODEL), small(**changes), plans, st.engine(engine))


@settings(max_examples=8, deadline=None)
@given(
    group=hy.sampled_from([4, 16, 64]),
    response=hy.floats(50, 1400),
    spread=hy.sampled_from([0.0, 0.2, 0.5, 0.9]),
    tp=hy.sampled_from([1, 2]),
)
def test_more_replicas_are_never_slower_and_partial_rollouts_have_no_tail(group, response, spread, tp):
    how = {"group": group, "response": response, "spread": spread}
    few, many = (float(priced(n, f"tp={tp},dp={n // tp}", **how).time[0]) for n in (4, 8))
    assert 0 < many <= few * 1.001
    asked = pool(8, as_many(st.plan("dp=8")), **how)
    whole, part = (asked.rollouts(partial=p) for p in (False, True))
    assert float(part.time[0]) <= float(whole.time[0]) * 1.01 and float(part.tail[0]) == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_more_devices_at_one_split_are_never_slower(asynchronous):
    """Half sample and half train, each with its best plan."""
    asked = {"rollout_plan": None, "asynchronous": asynchronous}
    times = [
        st.post_training(f"{n}xh100", MODEL, small(), rollout_devices=n // 2, **asked).best.time
        for n in (16, 32, 64)
    ]
    assert times[0] >= times[1] >= times[2] > 0


def test_longer_tails_take_longer():
    times = [float(priced(8, "dp=8", spread=s).time[0]) for s in (0.0, 0.3, 0.6, 0.9)]
    assert times == sorted(times)


def test_less_memory_leaves_fewer_slots_and_more_time():
    asked = pool(8, as_many(st.plan("dp=8")), batch=512, response=1200)
    free, tight, none = (asked.rollouts(beside=b * 1e9) for b in (0.0, 62.0, 80.0))
    assert free.slots[0] > tight.slots[0] > 0 == none.slots[0]
    assert free.time[0] < tight.time[0] < none.time[0] == np.inf and none.lacks[0] > 0
    assert sum(v[0] for v in tight.memory.values()) <= tight.limit[0]


def test_many_plans_are_many_singles():
    system, model, recipe = st.system("8xh100"), st.model(MODEL), small()
    plans = ("dp=8", "tp=2,dp=4", "tp=4,dp=2")
    fields = {f: np.array([float(getattr(st.plan(p), f)) for p in plans]) for f in ("tp", "dp", "moe_tp")}
    many = replace(as_many(st.plan("dp=8")), **fields)
    megatron = st.engine("megatron")
    one = pool(8, many).rollouts()
    learnt = pool(8, training_plans(system, model, recipe, megatron, many), "megatron").learning()
    for i, p in enumerate(plans):
        single = priced(8, p)
        assert single.time[0] == pytest.approx(one.time[i], rel=1e-12)
        some = training_plans(system, model, recipe, megatron, st.plan(p))
        alone = pool(8, some, "megatron").learning()
        assert alone.training[0] == pytest.approx(learnt.training[i], rel=1e-12)


def test_the_best_split_is_no_slower_than_any_other_and_plans_that_are_found_no_slower_than_told_ones():
    found = st.post_training("32xh100", MODEL, small(), pools="two", asynchronous=True)
    assert {w.rollout_devices for w in found.ways} == {8, 16, 24}
    assert all(a.time <= b.time for a, b in zip(found.ways, found.ways[1:], strict=False))
    told = st.post_training(
        "32xh100", MODEL, small(), "dp=16", "dp=16,zero=1,recompute=full", asynchronous=True
    )
    same = next(w for w in found.ways if w.rollout_devices == 16)
    assert same.time <= told.best.time * (1 + 1e-9)


def test_transfer_is_what_the_hybrid_engine_sends():
    """HybridFlow's table 2: training tp x pp = 8, generation 2: (8 - 2) / (2 x 8) of the model."""
    assert float(resharded_bytes(1.0, 2.0, 8.0)) == pytest.approx((8 - 2) / (2 * 8))
    assert float(resharded_bytes(1.0, 8.0, 2.0)) == 0.0
    system, engine = st.system("8xh100"), st.engine("megatron")
    copied = 2 * 4e9 / float(system.chip.memory.bandwidth)
    assert colocated_transfer(system, 4e9, 4e9, engine) == pytest.approx(copied)
    times = [colocated_transfer(system, 16e9, 16e9 / n, engine) for n in (1, 2, 8)]
    assert times == sorted(times) and times[0] < times[2] < 0.2
    far = send_time(st.system("16xh100"), 16e9, 1.0, engine)
    assert 16e9 / 50e9 <= far < 2 * 16e9 / 50e9  # one adapter of 400 Gbit/s a device


def test_what_does_not_fit_is_an_answer_with_levers():
    found = st.post_training("8xh100", "llama-3.1-405b", small(), pools="one")
    assert not found.best.fits and found.best.time == np.inf and found.best.excess > 0
    assert "levers" in found.why_none and "GB" in found.why_none and "\n" not in found.why_none


BAD = [
    ({"recipe": "grpq"}, "no recipe called"),
    ({"rollout_devices": 3}, "rollout_devices"),
    ({"rollout_engine": "vlm"}, "no engine called"),
    ({"pools": "three"}, "one or two"),
    ({"pools": "one", "asynchronous": True}, "two pools"),
    ({"pools": "one", "rollout_devices": 8}, "one pool"),
    ({"rollout_plan": "dp=3", "pools": "two"}, "as many devices"),
    ({"training_plan": "tq=3"}, "degree"),
]


@pytest.mark.parametrize(("how", "said"), BAD, ids=str)
def test_bad_input_is_one_line(how, said):
    with pytest.raises(StrataError, match=said) as error:
        st.post_training("16xh100", MODEL, **how)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"minibatch": 100}, "minibatch"), ({"minibatch": 4096}, "minibatch"), ({"response": 9000}, "longest"),
     ({"batch": 0}, "batch"), ({"grop": 3}, "grop")],
)  # fmt: skip
def test_recipes_that_cannot_be_are_refused(changes, said):
    with pytest.raises(StrataError, match=said):
        st.post_training_recipe("grpo", **changes)


DATA = Path(__file__).parents[1] / "data" / "nemo_rl.csv"
# predicted over published, as it stands; no row was fitted. GB200 come out too quick.
RATIOS = {
    ("llama-3.1-8b", "16xh100", "0"): 0.84,
    ("qwen3-32b", "32xh100", "0"): 0.82,
    ("qwen3-235b-a22b", "128xh100", "0"): 0.84,
    ("deepseek-v3", "256xh100", "0"): 0.82,
    ("llama-3.1-8b", "8xgb200", "0"): 0.75,
    ("qwen3-32b", "16xgb200", "0"): 0.73,
    ("llama-3.1-8b", "16xh100", "8"): 0.89,
    ("qwen3-32b", "64xh100", "32"): 0.85,
    ("qwen3-235b-a22b", "256xh100", "128"): 0.92,
}


def nemo_rows():
    return list(csv.DictReader(line for line in DATA.open(encoding="utf-8") if not line.startswith("#")))


def predicted(row):
    sizes = {name: float(row[name]) for name in ("group", "minibatch", "prompt", "longest")}
    sizes |= {"batch": float(row["prompts"]), "response": float(row["generated"])}
    recipe = st.post_training_recipe("grpo", packed=sizes["prompt"] + sizes["longest"], **sizes)
    engine = st.engine("vllm@0.11", gpu_memory_utilization=float(row["memory_share"]))
    two = int(row["rollout_gpus"])
    how = {"rollout_devices": two, "asynchronous": True} if two else {"pools": "one", "keep": False}
    model = st.model(row["model"], weights="bf16")
    plans = (row["rollout_plan"], row["training_plan"])
    return st.post_training(
        row["system"], model, recipe, *plans, engine, partial=row["in_flight"] == "1", **how
    ).best


def test_published_steps_of_nemo_rl():
    """Steps of a framework on 8 to 256 GPUs, from their settings alone: too quick by 8 to 18 % on H100s, by 25
    to 34 % on GB200s; all of them fit, as they did.
    """
    ratios, too_large = {}, []
    for row in nemo_rows():
        way = predicted(row)
        key = (row["model"], row["system"], row["rollout_gpus"])
        if way.fits:
            ratios[key] = way.time / float(row["step_s"])
        else:
            too_large.append(key)
    assert too_large == []
    for key, ratio in RATIOS.items():
        assert ratios[key] == pytest.approx(ratio, abs=0.15), key
    dense = [
        abs(r - 1) for (m, s, _), r in ratios.items() if "h100" in s and m in ("llama-3.1-8b", "qwen3-32b")
    ]
    assert np.mean(dense) < 0.18 and max(dense) < 0.22
    assert np.mean([abs(r - 1) for r in ratios.values()]) < 0.21


# Phases of a step of NeMo-RL v0.3 with Megatron (NVIDIA-NeMo/RL, issue 959, a table of its makers and of a user):
# GPUs, tokens generated; seconds of training, refit, generation and log-probabilities. Plans are not stated.
PHASES = [("llama-3.1-8b", 8, 795, 28, 5, 58, 18), ("llama-3.1-70b", 64, 398, 28, 14, 84, 18)]


@pytest.mark.parametrize(("name", "gpus", "generated", "training", "refit", "generation", "scoring"), PHASES)
def test_published_phases_of_nemo_rl(name, gpus, generated, training, refit, generation, scoring):
    """Refit (state moves out and new weights are loaded), from which its time a tensor comes, within a quarter;
    the rest by plans of ours within a factor of 2.
    """
    recipe = st.post_training_recipe("grpo", response=float(generated))
    engine = st.engine("vllm@0.11", gpu_memory_utilization=0.6)
    plans = {8: ("dp=8", "dp=8,zero=1,recompute=full"), 64: ("tp=4,dp=16", "tp=4,pp=4,dp=4,zero=1,sp=1")}
    way = st.post_training(f"{gpus}xh100", name, recipe, *plans[gpus], engine, pools="one", keep=False).best
    assert way.fits
    out = 0.5 * way.phase("moving state")  # and as much back, before training
    assert way.phase("loading weights") + out == pytest.approx(refit, rel=0.25)
    for phase, seconds in (("training", training), ("scoring", scoring)):
        assert 0.4 < way.phase(phase) / seconds < 1.7, phase
    sampled = sum(way.phase(p) for p in ("read prompts", "rollouts", "rollout tail"))
    assert 0.4 < sampled / generation < 1.2


def test_packing_samples_trains_as_many_tokens():
    """Packs of samples cost what as many tokens in whole samples do, and what their ends are padded with. A pack
    that was rounded up to two samples trained 1.6 times as many tokens (138 s in place of 87 s of Qwen3-32B)."""
    row = next(r for r in nemo_rows() if (r["model"], r["system"]) == ("qwen3-32b", "32xh100"))
    sizes = {name: float(row[name]) for name in ("group", "minibatch", "prompt", "longest")}
    sizes |= {"batch": float(row["prompts"]), "response": float(row["generated"])}
    recipe = st.post_training_recipe("grpo", packed=sizes["prompt"] + sizes["longest"], **sizes)
    way = predicted(row)
    work, model = st.train(512, sizes["prompt"] + sizes["response"]), st.model(row["model"], weights="bf16")
    whole = st.evaluate(row["system"], model, work, row["training_plan"] + ",microbatches=256", "megatron")
    plain = 4 * float(whole.metrics.step_time)  # 2,048 samples in updates of 512
    assert way.phase("training") / padded_packs(recipe) == pytest.approx(plain, rel=0.01)
    forward = way.phase("scoring") / 2  # by the policy and by the reference
    assert 2.5 < way.phase("training") / forward < 3.5


def test_packs_of_a_pipeline_are_filled_up():
    """Of samples longer than half a pack each is a pack of its own: a pipeline runs it whole, one stage what is
    there. Short samples share packs, and nothing is lost."""
    long, short = (st.post_training_recipe("grpo", response=n, longest=3992.0, prompt=104.0, spread=0.0)
                   for n in (2100.0, 500.0))  # fmt: skip
    assert padded_packs(long) == pytest.approx(4096 / 2204) and padded_packs(short) == 1.0


def test_the_host_of_a_step_is_counted():
    """Weights are loaded tensor by tensor on one pool alone; the controller handles samples on either."""
    recipe = st.post_training_recipe("grpo", batch=16, group=8, minibatch=128)
    less = st.post_training_recipe("grpo", batch=16, group=8, minibatch=128, refit="0 s", controller="0 s")
    asked = ("16xh100", "qwen3-8b")
    one, two = (st.post_training(*asked, recipe, pools=pools).best for pools in ("one", "two"))
    bare = st.post_training(*asked, less, pools="one").best
    assert one.phase("loading weights") > 1.0 and two.phase("loading weights") == 0.0
    assert one.phase("controller") == two.phase("controller") == pytest.approx(128 * 1.5e-3)
    assert one.time - bare.time == pytest.approx(one.phase("loading weights") + one.phase("controller"))


def test_engines_do_what_they_can():
    with pytest.raises(BadValue, match="vllm samples and does not train"):
        st.post_training("8xh100", "qwen3-8b", training_engine="vllm")
    with pytest.raises(BadValue, match="megatron trains and does not sample"):
        st.post_training("8xh100", "qwen3-8b", rollout_engine="megatron")
