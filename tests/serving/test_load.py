"""Engines under load: limits with known answers, laws, steps that read and generate."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import strata as st
from strata.base.errors import StrataError
from strata.mapping.plans import plans
from strata.serving.load import most_rate
from strata.software.engine import request_time
from strata.workload.graph_walks import check_graph

RUNS = Path(__file__).parents[2] / "validation" / "serving" / "requests"


@pytest.fixture(scope="module")
def one():
    return st.serving.curve(
        "8xh200", "llama-3-70b", st.serving.Requests(2048, 128), "tp=8", "ideal", sequences=256
    )


@pytest.fixture(scope="module")
def pieces():
    return st.serving.curve(
        "8xh200", "llama-3-70b", st.serving.Requests(2048, 128), "tp=8", "ideal", sequences=256, chunk=512
    )


@pytest.fixture(scope="module")
def many():
    model = st.model("llama-3-8b")
    return st.serving.curve(
        "4xh200", model, st.serving.Requests(1024, 256), plans(4, model), "vllm", sequences=128
    )


# ------------------------------------------------------------------------------------------------ steps that
# do both


MIXED = [
    ("llama-3-8b", "1xh200", "tp=1"),
    ("llama-3-70b", "8xh200", "tp=4,dp=2"),
    ("mixtral-8x7b", "8xh200", "tp=8,ep=8"),
    ("deepseek-v3", "8xb200", "tp=8,ep=8"),
]


@pytest.mark.parametrize("model, system, plan", MIXED)
def test_a_mixed_step_costs_less_than_its_parts_and_more_than_either(model, system, plan):
    def time(work):
        return st.evaluate(system, model, work, plan).metrics.step_time

    for tokens in (64.0, 1024.0):
        both = time(st.mixed(64.0, 2048.0, prompts=2.0, chunk=tokens))
        generating, reading = time(st.decode(64.0, 2048.0)), time(st.prefill(2.0, tokens))
        assert max(generating, reading) < both < generating + reading


def test_weights_are_read_once_and_operations_add_up():
    """By hand on one chip: bytes and operations of a mixed step are those of its parts less one reading of
    all weights.
    """
    model, system = st.model("llama-3-8b"), st.system("1xh200")
    mixed = model.trace(st.mixed(64.0, 2048.0, prompts=1.0, chunk=512.0, cached=512.0))
    check_graph(mixed)
    apart = (
        model.trace(st.decode(64.0, 2048.0)).flop() + model.trace(st.prefill(1.0, 512.0, cached=512.0)).flop()
    )
    assert mixed.flop() == pytest.approx(apart, rel=1e-12)
    assert mixed.parameters() == model.trace(st.decode(64.0, 2048.0)).parameters()
    moved = [
        st.evaluate(system, model, w).steps[0].price.memory_bytes
        for w in (
            st.mixed(64.0, 2048.0, prompts=1.0, chunk=512.0),
            st.decode(64.0, 2048.0),
            st.prefill(1.0, 512.0),
        )
    ]
    weights = 2.0 * (model.layers * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336) + 4096 * 128256)
    assert moved[0] == pytest.approx(moved[1] + moved[2] - weights, rel=0.04)


def test_a_mixed_step_with_hardly_a_prompt_is_a_decode_step():
    for model, system, plan in MIXED:
        plain = st.evaluate(system, model, st.decode(64.0, 2048.0), plan).metrics
        hardly = st.evaluate(system, model, st.mixed(64.0, 2048.0, prompts=2.0, chunk=1e-6), plan).metrics
        # kernels for the prompts still start
        assert plain.step_time <= hardly.step_time < 1.08 * plain.step_time
        assert hardly.tokens_per_s * hardly.step_time == pytest.approx(64.0)


def test_mixed_steps_in_a_box_equal_single_ones():
    chunks = np.array([16.0, 256.0, 2048.0])
    box = st.evaluate(
        "8xb200", "deepseek-v3", st.mixed(32.0, 4096.0, prompts=1.0, chunk=chunks, cached=512.0), "tp=8,ep=8"
    )
    for i, chunk in enumerate(chunks):
        single = st.evaluate(
            "8xb200",
            "deepseek-v3",
            st.mixed(32.0, 4096.0, prompts=1.0, chunk=float(chunk), cached=512.0),
            "tp=8,ep=8",
        )
        assert box.metrics.step_time[i] == pytest.approx(single.metrics.step_time, rel=1e-12)


def test_mixed_steps_are_the_same_under_jax():
    pytest.importorskip("jax")
    work = st.mixed(np.array([8.0, 64.0]), 2048.0, prompts=1.0, chunk=512.0)
    ours, theirs = (
        st.evaluate("1xh200", "llama-3-8b", work, backend=b).metrics.step_time for b in ("numpy", "jax")
    )
    assert theirs == pytest.approx(ours, rel=1e-9)


# ------------------------------------------------------------------------------------------------ limits


def test_without_load_a_request_sees_a_plain_prefill_and_single_steps(one):
    idle = st.serving.open_load(one, 1e-9).at(0)
    prefill = st.evaluate("8xh200", "llama-3-70b", st.prefill(1, 2048), "tp=8").metrics.ttft
    step = st.evaluate("8xh200", "llama-3-70b", st.decode(1, 2048 + 64), "tp=8").metrics.tpot
    assert idle.ttft == pytest.approx(prefill, rel=1e-6) and idle.tpot == pytest.approx(step, rel=1e-6)
    alone = st.serving.closed_load(one, 1).at(0, 0)
    assert alone.ttft == pytest.approx(prefill) and alone.tpot == pytest.approx(step)
    assert alone.rate == pytest.approx(1.0 / (prefill + 127 * step))
    assert st.serving.open_load(one, 0.0).at(0).ttft == pytest.approx(prefill)


def test_a_chunk_as_long_as_the_prompt_or_longer_is_no_chunk(one):
    again = st.serving.curve(
        "8xh200", "llama-3-70b", st.serving.Requests(2048, 128), "tp=8", "ideal", sequences=256, chunk=4096
    )
    assert again.alone[0, 0] == one.alone[0, 0] and np.array_equal(one.step, again.step)
    assert again.pieces[0, 0] == one.pieces[0, 0] == 1.0


def test_smaller_chunks_read_later_and_disturb_less(one, pieces):
    assert pieces.pieces[0, 0] == 5.0  # 512 tokens less the sequence that decodes
    assert st.serving.open_load(pieces, 0.0).ttft > st.serving.open_load(one, 0.0).ttft
    assert np.all(pieces.reading[..., 0] < one.reading[..., 0])  # the longest pause of a sequence
    assert most_rate(pieces) < most_rate(one)


def test_an_engine_has_its_own_limits_and_time_for_a_request():
    ideal, vllm = (
        st.serving.curve("8xh200", "llama-3.1-70b", st.serving.Requests(16384, 128), "tp=8", by)
        for by in ("ideal", "vllm")
    )
    own = st.engine("vllm")
    assert ideal.pieces[0, 0] == 1.0 and vllm.pieces[0, 0] == 3.0  # 8192 tokens less the one that decodes
    assert vllm.slots[0] <= float(own.max_num_seqs)
    outside = float(request_time(st.engine("vllm"), 16384.0))
    assert st.serving.open_load(vllm, 0.0).waits[0] == pytest.approx(outside)


def test_beyond_what_it_completes_an_engine_is_overloaded(one):
    most = float(most_rate(one)[0])
    below, above = st.serving.open_load(one, 0.5 * most).at(0), st.serving.open_load(one, 1.2 * most).at(0)
    assert (
        below.fits
        and below.utilisation < 1
        and np.isfinite(below.ttft)
        and below.tokens_per_s == pytest.approx(0.5 * most * 128)
    )
    assert not above.fits and above.ttft == np.inf == above.tpot and above.tokens_per_s == 0.0


# ------------------------------------------------------------------------------------------------ laws


@settings(max_examples=10)
@given(share=some.floats(0.0, 0.9), more=some.floats(0.0, 0.08))
def test_latencies_grow_with_the_rate(one, pieces, share, more):
    for curve in (one, pieces):
        most = float(most_rate(curve)[0])
        both = st.serving.open_load(curve.only([0, 0]), most * np.array([share, share + more]))
        low, high = both.at(0), both.at(1)
        assert (
            low.ttft <= high.ttft * (1 + 1e-9)
            and low.tpot <= high.tpot * (1 + 1e-9)
            and low.active <= high.active + 1e-9
        )
        assert low.ttft == pytest.approx(low.waits + low.reads)
        assert low.ttft <= low.ttft_at(0.9) * (1 + 1e-12) <= low.ttft_at(0.99) * (1 + 1e-9)


def test_more_clients_complete_more_and_each_sees_less(many):
    seen = st.serving.closed_load(many, np.arange(1.0, 129.0))
    good = many.slots >= 128
    assert good.any()
    assert np.all(np.diff(seen.rate[good]) > -1e-9 * seen.rate[good][:, 1:])
    assert np.all(
        seen.rate * (seen.ttft + 255 * seen.tpot)
        == pytest.approx(np.broadcast_to(np.arange(1.0, 129.0), seen.rate.shape), rel=1e-6)
    )  # Little


def test_more_clients_than_slots_wait_for_one(one):
    few = replace(one, slots=np.array([16.0]))
    inside, outside = st.serving.closed_load(few, 16).at(0, 0), st.serving.closed_load(few, 48).at(0, 0)
    assert outside.rate == pytest.approx(inside.rate, rel=1e-6)
    assert outside.ttft == pytest.approx(inside.ttft + 32 / inside.rate)


def test_a_box_of_plans_equals_each_plan_alone(many):
    limits = {"ttft": 0.5, "tpot": 0.02}
    rates = st.serving.goodput(many, **limits)
    for i in range(len(many.slots)):
        one = st.serving.curve(
            "4xh200", "llama-3-8b", st.serving.Requests(1024, 256), many.plan_at(i), "vllm", sequences=128
        )
        assert one.slots[0] == many.slots[i]
        assert float(st.serving.goodput(one, **limits)[0]) == pytest.approx(rates[i], rel=1e-9)


def test_goodput_keeps_the_limits_and_no_more_does(many):
    limits = {"ttft": 0.4, "tpot": 0.012}
    rates = st.serving.goodput(many, **limits)
    assert np.any(rates > 0)
    kept = st.serving.open_load(many, rates).within(**limits)
    assert np.all(kept[rates > 0])
    beyond = st.serving.open_load(many, rates * 1.001 + 1e-3).within(**limits)
    assert not np.any(beyond[rates > 0])
    assert np.all(st.serving.goodput(many, ttft=0.4, tpot=0.011) <= rates * (1 + 1e-6))
    assert np.all(st.serving.goodput(many, **limits, share=0.95) <= rates * (1 + 1e-6))
    assert np.all(st.serving.goodput(many, ttft=1e-6) == 0.0)


def test_the_largest_batch_keeps_the_limits_and_the_next_does_not(many):
    for limits in ((1.0, 0.01), (0.1, np.inf), (np.inf, np.inf), (0.08, 0.02)):
        most, seen = st.serving.largest_concurrency(many, *limits)
        for i, clients in enumerate(most):
            one = many.at(i)
            if clients:
                assert seen.within(*limits)[i] and st.serving.closed_load(one, clients).within(*limits)[0, 0]
            if clients < many.slots[i]:
                assert not st.serving.closed_load(one, clients + 1).within(*limits)[0, 0]
    assert np.all(st.serving.largest_concurrency(many, ttft=1e-6)[0] == 0.0)


def test_what_does_not_fit_is_an_answer():
    found = st.serving.curve("1xh100", "llama-3-70b", st.serving.Requests(1024, 128), "tp=1")
    assert found.slots[0] == 0 and st.serving.goodput(found, 1.0, 1.0)[0] == 0.0
    seen = st.serving.open_load(found, 1.0).at(0)
    assert not seen.fits and seen.ttft == np.inf and seen.tokens_per_s == 0.0
    assert (
        not st.serving.closed_load(found, 4).fits[0, 0] and st.serving.largest_concurrency(found)[0][0] == 0.0
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: st.serving.Requests(0, 10),
        lambda: st.serving.Requests(10, 1),
        lambda: st.serving.Requests(10, 10, variation=-1),
        lambda: st.serving.curve("1xh200", "llama-3-8b", st.serving.Requests(10, 10), chunk=0),
        lambda: st.serving.curve("1xh200", "llama-3-8b", st.serving.Requests(10, 10), sequences=0),
    ],
)
def test_what_cannot_be_asked_is_refused(make):
    with pytest.raises(StrataError):
        make()


def test_negative_rates_and_no_clients_are_refused(one):
    for wrong in (
        lambda: st.serving.open_load(one, -1.0),
        lambda: st.serving.closed_load(one, 0),
        lambda: st.serving.goodput(one, ttft=0.0),
        lambda: st.serving.open_load(one, 1.0).ttft_at(0.2),
    ):
        with pytest.raises(StrataError):
            wrong()


# ------------------------------------------------------------------------------------------------ against
# others


def test_a_real_server_that_was_overloaded():
    """300 requests at 10 a second to vLLM on one RTX 4090, whose cache holds 41,408 tokens: it fell behind,
    as it should.
    """
    with (RUNS / "rtx4090_llama-3.1-8b.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    read, written, last, arrived = (
        np.array([float(r[k]) for r in rows])
        for k in ("input_tokens", "output_tokens", "last_token_s", "arrival_s")
    )
    asked = st.serving.Requests(read.mean(), written.mean(), read.var() / read.mean() ** 2)
    found = st.serving.curve("1xrtx-4090", "llama-3.1-8b", asked, "tp=1", "vllm", chunk=2048, sequences=256)
    assert not st.serving.open_load(found, len(rows) / arrived.max()).fits[0]
    assert found.slots[0] == pytest.approx(41408 / asked.context, rel=0.2)
    assert most_rate(found)[0] == pytest.approx(len(rows) / last.max(), rel=0.25)
