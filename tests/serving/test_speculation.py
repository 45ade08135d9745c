"""Speculative decoding: laws of acceptance, worked examples, DFModel's inputs, and real models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import strata as st
from strata.base.errors import StrataError
from strata.serving.speculation import branch_acceptance, expected_tokens, tree_size

CHANCE, DEPTH = some.floats(0.0, 1.0), some.integers(1, 32)
# Seconds of one pass on 16 SN40L, as DFModel's logs have them (its fig. 21): a draft's over 1 token, the
# target's over 1 and over 5.
DRAFTS = {"68M": 8.11789e-5, "8B": 8.418939e-4, "70B": 5.748688e-3}
TARGET_1, TARGET_5 = 2.991352e-2, 3.147579e-2


def dfmodels_rate(depth, kept, draft, verify):
    """Tokens a second of one sequence as DFModel counts them, from the share of guesses that is kept (Ko et
    al., arXiv 2412.16432, sec. VIII-B).
    """
    return (depth * kept + 1.0) / (depth * draft + verify)


@given(depth=DEPTH, chance=CHANCE)
def test_a_round_yields_at_least_one_token_and_at_most_all(depth, chance):
    tokens = float(expected_tokens(float(depth), chance))
    assert 1.0 - 1e-12 <= tokens <= depth + 1.0 + 1e-9
    assert tokens == pytest.approx(sum(chance**i for i in range(depth + 1)))


@given(depth=DEPTH, chance=some.floats(0.0, 0.99), more=some.floats(0.0, 0.01), branches=some.integers(1, 8))
def test_tokens_grow_with_acceptance_depth_and_branches(depth, chance, more, branches):
    tokens = expected_tokens(float(depth), chance)
    assert expected_tokens(float(depth), chance + more) >= tokens - 1e-12
    assert expected_tokens(depth + 1.0, chance) >= tokens - 1e-12
    assert (
        branch_acceptance(chance, branches + 1.0)
        >= branch_acceptance(chance, float(branches))
        >= chance - 1e-12
    )


@given(branches=some.integers(1, 4), depth=some.integers(1, 6))
def test_a_tree_counts_its_nodes(branches, depth):
    assert float(tree_size(float(branches), float(depth))) == sum(branches**i for i in range(1, depth + 1))


@given(depth=DEPTH, chance=CHANCE, draft=some.floats(1e-5, 1e-2), verify=some.floats(1e-3, 1e-1))
def test_dfmodels_count_is_the_same_with_the_share_that_is_kept(depth, chance, draft, verify):
    tokens = expected_tokens(float(depth), chance)
    kept = (tokens - 1.0) / depth
    assert 0.0 <= kept <= 1.0 + 1e-12
    assert float(dfmodels_rate(depth, kept, draft, verify)) == pytest.approx(
        float(tokens / (depth * draft + verify))
    )


def test_dfmodels_findings_follow_from_its_times():
    share, plain = np.linspace(0.0, 1.0, 11), 1.0 / TARGET_1
    rates = {name: dfmodels_rate(4.0, share, time, TARGET_5) for name, time in DRAFTS.items()}
    assert np.all(np.diff(rates["8B"]) > 0)  # a higher acceptance helps
    assert np.all(rates["68M"] > rates["8B"]) and np.all(rates["8B"] > rates["70B"])
    # (4 x 0.8 + 1) / (4 x 0.842 + 31.48 ms), by hand
    assert rates["8B"][8] == pytest.approx(120.5, rel=0.002)
    assert rates["68M"][-1] / plain > 4.5 and rates["70B"][-1] / plain < 2.8  # "too much overhead"
    # A tree of two branches: a draft of 8B spends more on 2 + 4 + 8 + 16 guesses than the tree gains over a
    # sequence.
    guesses = float(tree_size(2.0, 4.0))
    tree = expected_tokens(4.0, branch_acceptance(0.6, 2.0)) / (guesses * DRAFTS["8B"] + TARGET_5)
    assert tree < expected_tokens(4.0, 0.6) / (4.0 * DRAFTS["8B"] + TARGET_5)
    small = expected_tokens(4.0, branch_acceptance(0.6, 2.0)) / (guesses * DRAFTS["68M"] + TARGET_5)
    assert small > expected_tokens(4.0, 0.6) / (4.0 * DRAFTS["68M"] + TARGET_5)


@pytest.fixture(scope="module")
def asked():
    return st.system("8xh200"), st.model("llama-3-70b"), st.model("llama-3.2-1b"), st.plan(tp=8)


def test_no_acceptance_never_pays_and_more_always_helps(asked):
    chances = np.linspace(0.0, 1.0, 9)[:, None]
    found = st.serving.speculate(
        *asked, batch=4, context=2048, acceptance=chances, window=np.arange(1.0, 9.0)
    )
    assert found.speedup.shape == (9, 8)
    assert np.all(found.speedup[0] < 1.0)
    assert np.all(np.diff(found.speedup, axis=0) > 0)
    assert np.all(found.speedup <= found.window + 1.0)
    assert np.all(np.diff(found.cycle) > 0)


def test_it_breaks_even_where_it_says(asked):
    found = st.serving.speculate(*asked, batch=4, context=2048, acceptance=0.7, window=3)
    even = st.serving.speculate(*asked, batch=4, context=2048, acceptance=float(found.break_even), window=3)
    assert float(even.speedup) == pytest.approx(1.0)
    slow = st.serving.speculate(
        asked[0], asked[1], st.model("llama-3-70b"), asked[3], batch=4, context=2048, acceptance=0.7, window=3
    )
    assert np.isnan(slow.break_even) or float(slow.break_even) > 0.9  # a draft as large as the target


def test_a_step_is_verified_as_a_decode_of_so_many_tokens(asked):
    system, model, draft, plan = asked
    found = st.serving.speculate(
        *asked, batch=8, context=1000, acceptance=0.5, window=4, draft_plan=st.plan(tp=8), engine="ideal"
    )
    verify = st.evaluate(system, model, st.decode(8, 1004, tokens=5), plan).metrics.step_time
    guess = st.evaluate(system, draft, st.decode(8, 1000), st.plan(tp=8)).metrics.step_time
    assert float(found.verify) == verify and float(found.guess) == 4.0 * guess
    assert float(found.speedup) == pytest.approx(
        float(found.step) * (1 - 0.5**5) / 0.5 / (verify + 4.0 * guess)
    )


def test_a_host_schedules_a_round_once(asked):
    """A draft's steps have no time of the host but their kernels' launches; the target's step has all."""
    system, model, draft, plan = asked
    found = st.serving.speculate(
        *asked, batch=8, context=1000, acceptance=0.5, window=4, draft_plan=st.plan(tp=8), engine="vllm"
    )
    with_host = st.evaluate(system, draft, st.decode(8, 1000), st.plan(tp=8), "vllm").metrics.step_time
    assert float(found.guess) < 4.0 * with_host
    assert (
        float(found.verify)
        == st.evaluate(system, model, st.decode(8, 1004, tokens=5), plan, "vllm").metrics.step_time
    )


def test_a_tree_with_one_branch_is_a_sequence_and_a_batch_is_single_points(asked):
    line = st.serving.speculate(*asked, batch=8, context=1000, acceptance=0.5, window=2)
    both = st.serving.speculate(
        *asked, batch=8, context=1000, acceptance=0.5, window=2, branches=np.array([1.0, 3.0])
    )
    tree = st.serving.speculate(*asked, batch=8, context=1000, acceptance=0.5, window=2, branches=3)
    assert float(tree.verified) == 13.0 and float(tree.tokens) > float(line.tokens)
    assert both.speedup[1] == pytest.approx(float(tree.speedup), rel=1e-12)
    # its second level is priced one token later
    assert both.speedup[0] == pytest.approx(float(line.speedup), rel=1e-3)


def test_the_best_window_is_the_best(asked):
    best = st.serving.best_window(*asked, batch=1, context=2048, acceptance=0.8)
    every = st.serving.speculate(*asked, batch=1, context=2048, acceptance=0.8, window=np.arange(1.0, 13.0))
    assert float(best.speedup) == pytest.approx(float(np.max(every.speedup)))
    busy = st.serving.best_window(*asked, batch=512, context=2048, acceptance=0.8)
    assert float(busy.window) < float(best.window)  # a full batch computes what guesses add


def test_a_draft_shares_the_memory_unless_it_has_devices_of_its_own():
    small = st.system("2xh200")
    asked = (small, st.model("llama-3-70b"), st.model("llama-3-70b"), st.plan(tp=2))
    assert not st.serving.speculate(*asked, batch=32, context=2048, acceptance=0.9).fits
    apart = st.serving.speculate(*asked, batch=32, context=2048, acceptance=0.9, draft_system=small)
    assert apart.fits and apart.speedup < 1.0
    assert st.serving.speculate(*asked, batch=32, context=2048, acceptance=0.9).speedup == 0.0


@pytest.mark.parametrize(
    "bad",
    [{"acceptance": 1.2}, {"acceptance": -0.1}, {"window": 0}, {"window": 65}, {"branches": 8, "window": 8}],
)
def test_guesses_that_cannot_be_are_refused(asked, bad):
    with pytest.raises(StrataError):
        st.serving.speculate(*asked, **{"batch": 1, "context": 100, "acceptance": 0.5, **bad})
