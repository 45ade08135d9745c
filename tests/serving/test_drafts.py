"""Drafts side by side: the numbers of `speculate`, which is best, and what cannot be."""

import numpy as np
import pytest

import strata as st
from strata.base.errors import StrataError
from strata.search.served_options import typed_draft
from strata.serving.drafts import parameters_of
from strata.serving.speculation import best_window

DRAFTS = ("llama-3.2-1b", "llama-3-8b")
WINDOWS, CHANCES = np.arange(1.0, 9.0), np.array([0.5, 0.7, 0.9])


@pytest.fixture(scope="module")
def found():
    return st.serving.compare_drafts(
        "llama-3-70b", DRAFTS, "8xh200", window=WINDOWS, acceptance=CHANCES, plan="tp=8", context=1024
    )


def test_every_point_is_a_single_speculation(found):
    for name in DRAFTS:
        rates = found.tokens_per_s(name)
        assert rates.shape == (8, 3)
        for i, j in ((0, 0), (3, 1), (7, 2)):
            one = st.serving.speculate(
                st.system("8xh200"),
                st.model("llama-3-70b"),
                st.model(name),
                st.plan(tp=8),
                batch=1.0,
                context=1024.0,
                window=float(WINDOWS[i]),
                acceptance=float(CHANCES[j]),
            )
            assert rates[i, j] == pytest.approx(1.0 / float(one.tpot), rel=1e-9)
            assert found.speedup(name)[i, j] == pytest.approx(float(one.speedup), rel=1e-9)


def test_the_best_window_and_draft_are_those_of_the_table(found):
    asked = (st.system("8xh200"), st.model("llama-3-70b"), st.model("llama-3.2-1b"), st.plan(tp=8))
    alone = best_window(*asked, batch=1.0, context=1024.0, acceptance=0.7)
    assert found.best_windows("llama-3.2-1b")[1] == float(alone.window)
    assert np.all(np.diff(found.best_windows("llama-3.2-1b")) >= 0)  # surer guesses go further
    assert found.best_drafts() == ["llama-3.2-1b"] * 3 and found.other_vocabularies == []
    assert np.all(found.tokens_per_s("llama-3.2-1b") > found.tokens_per_s("llama-3-8b"))


def test_acceptance_always_helps_and_counting_in_proportion_promises_more(found):
    other = st.serving.compare_drafts(
        "llama-3-70b", DRAFTS, "8xh200", window=WINDOWS, acceptance=CHANCES, plan="tp=8", context=1024,
        counting="proportional",
    )  # fmt: skip
    for name in DRAFTS:
        assert np.all(np.diff(found.tokens_per_s(name), axis=1) > 0)
        more = other.tokens_per_s(name) / found.tokens_per_s(name)
        assert np.all(more[1:] > 1) and np.allclose(more[0], 1.0)  # one guess: the same


def test_a_tree_gains_more_of_a_poor_draft_and_verifies_more():
    sequence, tree = (
        st.serving.compare_drafts(
            "llama-3-70b", "llama-3.2-1b", "8xh200", window=[2.0, 4.0], acceptance=[0.3], branches=b
        )
        for b in (1.0, 2.0)
    )
    name = "llama-3.2-1b"
    assert np.all(tree.tokens_per_s(name) > sequence.tokens_per_s(name))
    assert np.ravel(tree.drafts[name].verified).tolist() == [7.0, 31.0]
    assert np.all(np.ravel(tree.drafts[name].verify) >= np.ravel(sequence.drafts[name].verify))


def test_what_does_not_fit_is_said_not_raised():
    found = st.serving.compare_drafts("llama-3-70b", "llama-3-8b", "1xh200", window=[2.0], acceptance=[0.8])
    assert not np.any(found.drafts["llama-3-8b"].fits) and np.all(found.tokens_per_s("llama-3-8b") == 0)


def test_llama_68m_is_as_small_as_published():
    assert parameters_of(st.model("llama-68m")) == pytest.approx(68_030_208, rel=2e-3)
    found = st.serving.compare_drafts("llama-3.1-405b", "llama-68m", "16xsn40l", window=[4.0])
    assert found.other_vocabularies == ["llama-68m"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"drafts": "llama-3.1-405b"}, "the draft llama-3.1-405b is larger than its target llama-3-70b"),
        ({"drafts": []}, "at least one draft"),
        ({"drafts": ["llama-3-8b", "llama-3-8b"]}, "named once"),
        ({"acceptance": [0.5, 1.5]}, "acceptance must lie between 0 and 1"),
        ({"window": 0.0}, "window must lie between 1 and 64"),
        ({"counting": "linear"}, "no way to count tokens called 'linear'"),
        ({"branches": 8.0, "window": 6.0}, "at most 4096 tokens"),
    ],
)
def test_what_cannot_be_is_one_line(asked, said):
    given = {"drafts": "llama-3.2-1b", **asked}
    with pytest.raises(StrataError, match=said) as error:
        st.serving.compare_drafts("llama-3-70b", given.pop("drafts"), "8xh200", **given)
    assert "\n" not in str(error.value)


def test_a_model_guesses_with_its_own_module():
    """`mtp` lies as the model does, and is one draft beside others."""
    own = st.serving.compare_drafts("deepseek-v3", ["mtp", "llama-3-8b"], "8xb200", plan="dp=8,ep=8", batch=8)
    assert list(own.drafts) == ["mtp", "llama-3-8b"]
    assert float(own.drafts["mtp"].draft.plan.ep) == 8.0
    served = typed_draft("draft=mtp,acceptance=0.7", st.model("deepseek-v3"))
    assert served["draft"].window == 1.0
