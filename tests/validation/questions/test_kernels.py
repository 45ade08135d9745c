"""Rows of kernels: the line that a row stands for gives the same number, and every option has a way to type it."""

import shlex

import numpy as np
import pytest

from strata.base.shipped import shipped_folder
from strata.pricing.kernel_kinds import KINDS
from strata.pricing.kernel_request import ALWAYS, OPTIONS, SIZES
from strata.validation.measured.reader import row_points
from strata.validation.questions.question import question

ROWS = [
    ("h200/gemm.csv", 40),
    ("h200/attention.csv", 9),
    ("h200/stream.csv", 30),
    ("h200/other.csv", 224),  # layers of an LSTM that are trained
    ("h200/other.csv", 3),
    ("h200/power.csv", 4),
    ("h200/optimiser.csv", 3),
    ("h100/overlap.csv", 3),
    ("h100/overlap.csv", 24),
    ("ops/gemm.csv", 5000),
    ("ops/moe.csv", 200),
    ("ops/generation_mla.csv", 12),
    ("ops/amd_gemm.csv", 3),  # a batch of products
    ("ops/amd_moe.csv", 100),
    ("v100/deepbench_gemm.csv", 100),
    ("v100/deepbench_rnn.csv", 9),
    ("a100/gemm_ncu.csv", 6),
]
KEYS = {"time": "time_s", "power": "power_W", "clock": "clock_Hz", "memory_bytes": "memory_B"} | {
    "cache_bytes": "cache_B",
    "bytes_until_end": "until_end_B",
}


@pytest.mark.parametrize(("name", "line"), ROWS)
def test_the_line_of_a_row_gives_its_prediction(answer, name, line):
    asked = question("kernel")
    for point in row_points(shipped_folder("validation"), name, line):
        assert point["command"].startswith("strata kernel ")
        told = answer(*shlex.split(point["command"])[1:], "--json")
        numbers = {key: told[column] for key, column in KEYS.items()}
        assert asked.answer(numbers, point["at"]) == pytest.approx(point["predicted"], rel=1e-9)


def test_every_size_and_option_is_one_of_some_kernel():
    assert {name for known in KINDS.values() for name in known.sizes} == set(SIZES)
    assert {name for known in KINDS.values() for name in (*known.options, *ALWAYS)} == set(OPTIONS)
    assert {*SIZES, *OPTIONS} - {"activations", "weight_only"} <= set(question("kernel").arguments)


def test_an_answer_may_be_a_formula_of_answers():
    asked = question("kernel")
    told = {"cache_bytes": np.array([1.0, 2.0]), "bytes_until_end": np.array([10.0, 20.0])}
    assert asked.answer(told, "cache_bytes + 2 * bytes_until_end").tolist() == [21.0, 42.0]
