"""Runs of the trainers of 2021 and 2022 on A100s, and what their files hold."""

from __future__ import annotations

import numpy as np
import pytest

from strata.software.engine import engine
from strata.validation.accuracy.run import compared_files

DATA = "validation"


def compared(name: str):
    ((table, points),) = compared_files(DATA, None, f"training/{name}.csv")
    return table, points


def error(points, keep=slice(None)) -> float:
    return float(np.mean(np.abs(points.predicted / points.measured - 1.0)[keep]))


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("a100_megatron", 0.05),
        ("a100_multinode", 0.10),
        ("a100_singlenode", 0.15),
        ("a100x4_llama2_7b", 0.15),
    ],
)
def test_errors_of_all_rows(name, limit):
    _, points = compared(name)
    assert points.why == {} and error(points) < limit


def test_every_family_of_the_large_runs_is_near():
    table, points = compared("a100_multinode")
    off = np.abs(points.predicted / points.measured - 1.0)
    for size in np.unique(table.number("params_b")):
        assert np.median(off[table.number("params_b") == size]) < 0.13


def test_single_node_rows_are_sums_and_not_runs():
    """Times of a model and plan are linear in the number of micro-batches to the last digit: no run is so even.
    What is said of this file is said of a profile of its layers.
    """
    table, points = compared("a100_singlenode")
    fixed = ("hidden", "layers", "tp", "dp", "pp", "micro_batch")
    cases: dict[tuple[float, ...], list[tuple[float, float]]] = {}
    for i, case in enumerate(zip(*(table.number(c) for c in fixed), strict=True)):
        batch = float(table.number("global_batch")[i])
        cases.setdefault(case, []).append((batch, float(points.measured[i])))
    for rows in (np.array(rows) for rows in cases.values() if len(rows) > 2):
        line = np.polyval(np.polyfit(rows[:, 0], rows[:, 1], 1), rows[:, 0])
        np.testing.assert_allclose(line, rows[:, 1], rtol=1e-9)


def test_trainers_of_the_time_had_no_fused_attention():
    for name in ("megatron-2022", "megatron-deepspeed"):
        trainer = engine(name).training
        assert trainer is not None and trainer.attention == "unfused"
        assert trainer.overlap_grad_reduce == 0 and trainer.fused_gradient_add == 0
