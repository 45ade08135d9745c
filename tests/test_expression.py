"""Expressions of data files: what they may say, and what they may not."""

import numpy as np
import pytest

from strata.base.errors import BadValue, UnknownName
from strata.base.expression import Names, calculate, holds_at


def test_arithmetic_comparison_choice_and_functions():
    run = Names("run depth", {"rate": np.array([1.0, 4.0, 2.0]), "layers": np.array([2.0, 4.0, 8.0])})
    assert calculate("depth.layers[argmax(depth.rate)]", {"depth": run}, "t") == 4.0
    assert calculate("1 - depth.rate[-1] / max(depth.rate)", {"depth": run}, "t") == 0.5
    assert calculate("all(diff(depth.layers) > 0) and 3 < 4 <= 4", {"depth": run}, "t")
    assert calculate("[1, 2][1] if ours > paper else 0", {"ours": 2, "paper": 1}, "t") == 2


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "(1).__class__",
        "depth.rate.__class__",
        "[x for x in (1, 2)]",
        "lambda: 1",
        "open('x')",
        "depth.rate.sum()",
        "depth._values",
        "1 +",
    ],
)
def test_what_is_not_an_expression_is_one_line(text):
    with pytest.raises((BadValue, UnknownName)) as error:
        calculate(text, {"depth": Names("run depth", {"rate": np.ones(2)})}, "claim peak")
    assert "\n" not in str(error.value) and "claim peak" in str(error.value)


def test_names_that_are_not_there_name_those_that_are():
    with pytest.raises(UnknownName, match=r"rates.*nearest: rate"):
        calculate("depth.rates", {"depth": Names("run depth", {"rate": np.ones(2)})}, "claim peak")
    with pytest.raises(UnknownName, match="no name in claim peak called 'dept'"):
        calculate("dept.rate", {"depth": Names("run depth", {"rate": np.ones(2)})}, "claim peak")


def test_a_value_that_does_not_exist_is_one_line():
    with pytest.raises(BadValue, match="has no value"):
        calculate("rate[7]", {"rate": np.ones(2)}, "claim peak")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("9**9**9", "at most 1024 bits"),
        ("2**99999999", "at most 1024 bits"),
        ("2.0**99999", "has no value"),
        ("1 << 99999999999", "a shift is by 0 to 63 bits"),
        ("[0]*10**10", "at most 10000 items"),
        ("'x'*10**10", "at most 10000 items"),
        ("(-8)**0.5", "root of a negative number"),
        ("1/0", "division by zero"),
        ("rate / 0", "divide by zero"),
        ("log(rate - 1)", "has no value"),
        ("exp(1e9)", "overflow"),
        ("rate.shape", "follows the name of a run"),
        ("rate.T", "follows the name of a run"),
        ("_power(2, 3)", "functions are abs"),
        ("__builtins__", "numbers, names and functions"),
        ("mean([])", "at least one number"),
        ("round(rate, 10**9)", "between -300 and 300"),
        ("1j", "numbers, names and functions"),
        ("(" * 500 + "1" + ")" * 500, "cannot read the expression"),
        ("1+" * 100_000 + "1", "at most 2000 characters"),
        ("-" * 1900 + "1", "cannot read|parts"),
        (3, "an expression is text"),
    ],
)
def test_expressions_are_bounded(text, said):
    with pytest.raises(BadValue, match=said) as error:
        calculate(text, {"rate": np.array([1.0, 2.0])}, "claim peak")
    assert "\n" not in str(error.value) and len(str(error.value)) < 2000


@pytest.mark.parametrize("text", ["a == 1, 5", "'yes'", "[a, a]", "a[:1]*0 == a[:1], a", "diff(a) > 0"])
def test_a_condition_is_one_truth_at_each_point(text):
    with pytest.raises(BadValue, match="true or false at each point"):
        holds_at(text, {"a": np.array([1.0, 2.0, 3.0])}, 3, "here")
