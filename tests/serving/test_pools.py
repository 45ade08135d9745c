"""Pools for reading and for generating, and the frontier: bytes by hand, limits, laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

import strata as st
from strata.base.errors import StrataError
from strata.base.pareto import non_dominated
from strata.serving.load import RemotePrefill, most_rate
from strata.serving.pools import cache_bytes, pool, pool_sizes, pools_limit, send_time
from strata.serving.under_load import client_steps
from strata.software.engine import request_time

ASKED = st.serving.Requests(2048, 256)


@pytest.fixture(scope="module")
def splits():
    return st.serving.disaggregate(
        st.system("8xh200"), st.model("llama-3-70b"), ASKED, "vllm", ttft=1.5, tpot=0.03
    )


@pytest.mark.parametrize("name, each", [
    ("llama-3-70b", 80 * 8 * 2 * 128 * 2),  # layers x kv heads x (key and value) x head x bytes
    ("deepseek-v3", 61 * (512 + 64) * 2),  # layers x (latent + rope) x bytes
])  # fmt: skip
def test_a_cache_weighs_what_its_layers_hold(name, each):
    assert float(cache_bytes(st.model(name), 1000.0)) == pytest.approx(1000.0 * each)


def test_a_window_bounds_the_cache():
    model = st.model("gpt-oss-20b")  # every other layer has a window
    assert (
        float(cache_bytes(model, 20000.0))
        < 1.1 * 0.5 * 20000 * model.layers * model.kv_heads * 2 * model.head_dim * 2
    )


def test_pools_fill_the_fabric_and_make_up_the_system():
    assert pool_sizes(st.system("8xh200")) == list(range(1, 8))
    nodes = st.system("4x8xh100")
    assert pool_sizes(nodes) == [8, 16, 24]
    part = pool(nodes, 24)
    assert float(part.devices) == 24 and [float(d.size) for d in part.fabric.dimension] == [8.0, 3.0]
    with pytest.raises(StrataError, match="8, 16, 24"):
        pool(nodes, 27)
    with pytest.raises(StrataError, match="at least 2"):
        st.serving.disaggregate(st.system("1xh200"), st.model("llama-3-8b"), ASKED)


def test_sending_is_a_send_of_a_ranks_share():
    system, sent = st.system("8xh200"), 671088640.0
    one, four = (send_time(system, sent, n) for n in (1.0, 4.0))
    assert one == float(st.network.collective(system, "send", bytes=sent, ranks=2, stride=4).time)
    assert 3.0 < one / four <= 4.0
    assert one >= sent / 450e9  # a link of NVLink 4 carries 450 GB/s one way


def test_a_split_keeps_its_limits_and_neither_pool_does_more(splits):
    assert splits == sorted(splits, key=lambda s: -s.rate) and splits[0].rate > 0
    for s in splits:
        assert s.prefill_devices + s.decode_devices == 8
        assert (
            float(s.prefill_plan.devices) == s.prefill_devices
            and float(s.decode_plan.devices) == s.decode_devices
        )
        assert s.rate <= min(s.prefill_rate, s.decode_rate) * (1 + 1e-6) and s.rate < pools_limit(s)
        if s.rate > 0:
            seen = s.load(s.rate)
            assert seen.ttft <= 1.5 * (1 + 1e-6) and seen.tpot <= 0.03 * (1 + 1e-6)
            assert not s.load(1.01 * s.rate).within(1.5, 0.03)


def test_the_best_split_balances_the_pools(splits):
    """Throughput matched: moving devices either way makes one pool the bottleneck."""
    best = splits[0]
    for s in splits:
        if s.prefill_devices < best.prefill_devices:
            assert s.prefill_rate <= best.rate * 1.001 or s.decode_rate <= best.rate * 1.001


def test_a_request_without_load_sees_reading_then_sending(splits):
    s = splits[0]
    idle = s.load(1e-9)
    plain = st.evaluate(
        pool(st.system("8xh200"), s.prefill_devices),
        "llama-3-70b",
        st.prefill(float(s.prefill_plan.dp), 2048),
        s.prefill_plan,
        "vllm",
    )
    assert s.read_time == pytest.approx(plain.metrics.ttft)
    software = st.engine("vllm")  # both pools take the request in
    outside = float(request_time(software, 2048.0) + software.frontend_latency)
    assert idle.ttft == pytest.approx(s.read_time + s.send_time + outside, rel=1e-6)
    step = st.evaluate(
        pool(st.system("8xh200"), s.decode_devices),
        "llama-3-70b",
        st.decode(float(s.decode_plan.dp * s.decode_plan.pp), ASKED.context),
        s.decode_plan,
        "vllm",
    )
    assert idle.tpot == pytest.approx(step.metrics.tpot, rel=1e-6)


def test_tokens_in_the_other_pool_wait_for_no_prompt():
    """The same devices twice: generating is as quick as an engine that never reads, at any rate."""
    apart = st.serving.curve("8xh200", "llama-3-70b", ASKED, "tp=8", reads=False, sequences=64)
    both = st.serving.curve("8xh200", "llama-3-70b", ASKED, "tp=8", sequences=64)
    assert np.array_equal(apart.step, both.step) and not apart.reads
    one, none = np.ones(1), np.zeros(1)
    remote = RemotePrefill(time=both.alone[:, 0], lanes=one, after=none, links=one)
    rate = 0.5 * float(most_rate(both)[0])
    assert st.serving.open_load(apart, rate, remote).tpot < st.serving.open_load(both, rate).tpot
    # one pool equals an engine whose steps a prompt does not lengthen
    free = replace(both, reading=np.broadcast_to(both.step[..., None], both.reading.shape))
    assert st.serving.open_load(free, rate).tpot == pytest.approx(
        st.serving.open_load(apart, rate, remote).tpot
    )


# ------------------------------------------------------------------------------------------------ the
# frontier


@given(arrays(float, (20, 2), elements=some.floats(0.0, 10.0)))
def test_no_point_of_a_frontier_is_beaten_and_every_other_is(values):
    first, second = values.T
    kept = non_dominated(np.stack([first, second], axis=1))
    assert kept.any()
    for i in range(len(first)):
        beats = (first >= first[i]) & (second >= second[i]) & ((first > first[i]) | (second > second[i]))
        if kept[i]:
            assert not beats.any()
        else:
            assert np.any(beats | ((first == first[i]) & (second == second[i]) & kept))


def test_the_frontier_of_a_system(splits):
    curve = st.serving.curve("8xh200", "llama-3-70b", ASKED, None, "vllm", sequences=256)
    plain, both = st.serving.serving_frontier(curve), st.serving.serving_frontier(curve, splits)
    best = plain.best
    assert len(best) > 5 and len({p.plan for p in best}) > 1
    assert np.all(np.diff([p.per_user for p in best]) > 0) and np.all(
        np.diff([p.per_device for p in best]) < 0
    )
    assert [p.per_user for p in both.aggregated] == [p.per_user for p in best]
    assert any(p.apart for p in both.points) and not any(p.apart for p in plain.points)
    for p in best[:3]:  # each point is what clients of that plan see
        seen = st.serving.closed_load(
            st.serving.curve("8xh200", "llama-3-70b", ASKED, p.plan, "vllm", sequences=256), p.clients
        ).at(0, 0)
        assert 1.0 / seen.tpot == pytest.approx(
            p.per_user, rel=1e-6
        ) and seen.tokens_per_s / 8 == pytest.approx(p.per_device, rel=1e-6)
    limited = st.serving.serving_frontier(curve, ttft=0.3, tpot=0.02)
    assert limited.points and all(p.ttft <= 0.3 and p.tpot <= 0.02 for p in limited.points)


def test_clients_step_up_to_the_most():
    assert client_steps(1.0).tolist() == [1.0]
    assert (
        client_steps(500.0)[0] == 1.0
        and client_steps(500.0)[-1] == 500.0
        and np.all(np.diff(client_steps(500.0)) >= 1)
    )


def test_guessing_makes_a_quiet_engine_quicker_and_takes_memory():
    asked = ("4xh200", "llama-3-70b", ASKED, "tp=4")
    plain, guessed = (
        st.serving.curve(*asked, sequences=4096),
        st.serving.curve(*asked, sequences=4096, drafting=st.serving.Drafting(st.model("llama-3.2-1b"), 0.8)),
    )
    assert guessed.slots[0] < plain.slots[0] and guessed.gain == pytest.approx(3.3616)
    single = st.serving.speculate(
        st.system("4xh200"),
        st.model("llama-3-70b"),
        st.model("llama-3.2-1b"),
        st.plan(tp=4),
        batch=1,
        context=ASKED.context,
        acceptance=0.8,
    )
    assert st.serving.open_load(guessed, 0.0).tpot[0] == pytest.approx(float(single.tpot))
    none = st.serving.curve(*asked, drafting=st.serving.Drafting(st.model("llama-3.2-1b"), 0.0))
    assert st.serving.open_load(none, 0.0).tpot[0] > st.serving.open_load(plain, 0.0).tpot[0]


def test_a_frontier_keeps_the_limits_that_are_told():
    asked = st.serving.Requests(input=1024, output=256)
    told = {"ttft": 0.5, "tpot": 0.02, "with_frontier": True, "disaggregated": True}
    found = st.serving.serve_under_load("8xh200", "llama-3-8b", asked, None, "vllm", **told)
    assert found.frontier is not None and found.frontier.points
    assert all(p.ttft <= 0.5 and p.tpot <= 0.02 for p in found.frontier.points)
