"""Calls from Python: wrong ones are one line, lists are arrays, and no plan means the best one."""

import warnings

import numpy as np
import pytest

import strata as st
from strata.base.calls import checked_call
from strata.base.errors import StrataError


def _broken() -> float:
    return 1 / 0


WRONG = {
    "a misspelt argument": (lambda: st.decode(bach=1), "decode has no argument 'bach'; nearest: batch"),
    "too few": (lambda: st.decode(8), "decode: missing a required argument: 'context'"),
    "too many": (lambda: st.chip("h200", 3), "chip: too many positional arguments"),
    "nothing": (lambda: st.decode(None, 8), "decode: batch is a number or an array or list of numbers"),
    "text for a number": (lambda: st.serve(8, "long", 8), "serve: input is a number"),
    "infinity": (lambda: st.decode(float("inf"), 8), "decode: batch is a number"),
    "not a number in a list": (lambda: st.decode([1, float("nan")], 8), "batch must hold finite numbers"),
    "words in a list": (lambda: st.decode([1, "a"], 8), "batch must hold finite numbers, but got [1, 'a']"),
    "no list": (lambda: st.decode([], 8), "batch must hold finite numbers"),
    "a number for a system": (
        lambda: st.evaluate(3, "llama-3-8b", st.decode(1, 1)),
        "system is a System or text",
    ),
    "a chip for a model": (
        lambda: st.evaluate("h200", st.chip("h200"), st.decode(1, 1)),
        "program is a Program",
    ),
    "no workload": (lambda: st.evaluate("h200", "llama-3-8b", None), "workload is a Workload, but got None"),
    "infinite bandwidth": (lambda: st.chip("h200", **{"memory.bandwidth": float("inf")}), "finite"),
    "a tiny number": (lambda: st.chip("h200", **{"memory.bandwidth": 1e-320}), "must be 0, or between"),
    "an option of a search": (
        lambda: st.search.search("next-node", buget=8),
        "no argument 'buget'; nearest: budget",
    ),
    "a seed in parts": (lambda: st.search.search("next-node", seed=1.5), "seed is a whole number"),
    "a request in words": (lambda: st.serving.Requests("long", 8), "Requests: input is a number"),
    "an axis that is no text": (lambda: st.sweep("h200", "llama-3-8b", [3]), "vary is a list of text"),
    "no program": (lambda: st.strategies(4, object()), "has no products that a strategy divides"),
    "a grid as texts": (lambda: st.search.goal("tpot", np.ones((2, 2))), "limits is a dictionary or a list"),
    "numbers as limits": (lambda: st.search.goal("tpot", {"tpot": 3}), "limits is a dictionary or a list"),
    "a mesh of things": (lambda: st.layout({"p": object()}), "layout: p must hold finite numbers"),
    "an axis on a number": (lambda: st.layout({"p": 2}, {"m": 1}), "axis m lies on a dimension by name"),
    "a map that is none": (lambda: st.hardware.heat("stack-ref", 60, map=object()), "a power map"),
    "picks as bytes": (lambda: st.routing(b"x"), "routing: counts is"),
    "a seed below zero": (lambda: st.search.search("next-node", seed=-1), "a seed is a whole number"),
    "plans of too many": (
        lambda: st.plans(10**9 + 7, st.model("llama-3-8b")),
        "sought of at most 16,777,216 devices",
    ),
    "whatever else": (checked_call(_broken), "_broken cannot use what it was given"),
}


@pytest.mark.parametrize(("call", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_call_is_one_line(call, said):
    with pytest.raises(StrataError) as error:
        call()
    assert said in str(error.value) and "\n" not in str(error.value)


def test_lists_are_arrays():
    listed = st.evaluate("8xh200", "llama-3-8b", st.decode([1, 8, 64], 2048), "tp=8")
    told = st.evaluate("8xh200", "llama-3-8b", st.decode(np.array([1.0, 8.0, 64.0]), 2048), "tp=8")
    assert np.array_equal(listed.metrics.tokens_per_s, told.metrics.tokens_per_s)
    assert st.chip("h200", cores=[66, 132]).compute.cores.tolist() == [66.0, 132.0]
    assert st.plan(tp=[1, 8]).tp.tolist() == [1.0, 8.0]


def test_no_plan_is_the_best_one_as_on_the_command_line(strata):
    import json

    size = ("--batch", 64, "--input", 512, "--output", 64)
    typed = json.loads(strata("predict", "-m", "llama-3-8b", "-s", "8xh200", *size, "--json").out)
    for none in (None, ""):
        called = st.evaluate("8xh200", "llama-3-8b", st.serve(64, 512, 64), none)
        assert called.fits and called.metrics.tokens_per_s == pytest.approx(typed["metrics"]["tokens_per_s"])
    box = st.evaluate("8xh200", "llama-3-8b", st.serve([1, 64, 128], 512, 64))
    assert box.shape == (3,) and box.fits.any()


@pytest.mark.parametrize("seed", range(3))
def test_no_warning_for_extreme_numbers(seed):
    """Sizes and rates over many powers of ten: an answer, or one line, and never a warning."""
    rng = np.random.default_rng(seed)

    def drawn(low, high):
        return float(np.round(10 ** rng.uniform(low, high)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            chip = {"memory.bandwidth": drawn(0, 20), "memory.capacity": drawn(6, 18)}
            work = st.serve(drawn(0, 12), drawn(0, 9), drawn(0, 9))
            try:
                st.evaluate(st.system("8xh200", **chip), "mixtral-8x7b", work, "tp=8").metrics.tokens_per_s  # noqa: B018
                st.evaluate("8xh200", "llama-3-8b", st.train(drawn(0, 12), drawn(0, 9)), "tp=8").bound_by  # noqa: B018
            except StrataError as error:
                assert "\n" not in str(error)
