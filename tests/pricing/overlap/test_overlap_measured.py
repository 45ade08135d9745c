"""Communication beside computation against what was measured and published."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.studies import run_entry
from strata.validation.measured.reader import reader_of
from strata.validation.readers.comparison import held_out
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import Table, read_table

OVERLAPPED = reader_of("h100/overlap.csv", Catalogue())
DATA = Path(__file__).resolve().parents[3] / "validation"


def test_measured_kernels_are_met_by_one_set_of_quantities():
    found = OVERLAPPED(read_table(DATA, "h100/overlap.csv"), Catalogue())
    assert not found.why and set(found.group) >= {"ag_gemm", "gemm_rs", "ep_dispatch"}
    unseen = held_out(found)
    for points in (found, unseen):
        errors = np.abs(points.predicted / points.measured - 1.0)
        assert errors.mean() <= 0.08
        for kind in set(points.group):
            assert errors[points.group == kind].mean() <= 0.10, kind


def test_a_study_may_ask_for_errors_against_a_file():
    every, unseen = (
        run_entry({"name": "x", "file": "h100/overlap.csv", "held_out": held}, "here")
        for held in (False, True)
    )
    assert (
        every["points"] == 26
        and unseen["points"] == 9
        and list(every["groups"]) == ["ag_gemm", "ep_dispatch", "gemm_rs"]
    )
    assert every["mape"] == pytest.approx(np.mean(np.abs(every["error"]))) and every["ag_gemm_points"] == 12
    assert every["kinds"][0] == every["ag_gemm_mape"] and all(line % 3 == 0 for line in unseen["line"])
    with pytest.raises(st.StrataError, match="no reader fits"):
        run_entry({"name": "x", "file": "h100/nothing.csv"}, "here")
    with pytest.raises(st.StrataError, match="file, held_out"):
        run_entry({"name": "x", "file": "h100/overlap.csv", "unseen": True}, "here")


def test_rows_of_the_other_published_kinds_are_read():
    rows = {
        "kernel": ["moe_ar", "moe_ar", "ulysses", "ulysses"],
        "gpus": ["8"] * 4,
        "m": ["1024", "1024", "", ""],
        "n": ["4096", "8192", "4096", ""],
        "k": ["1536", "1536", "", ""],
        "comm_bytes_per_gpu": [""] * 4,
        "batch": ["", "", "1", "1"],
        "heads": ["", "", "32", "32"],
        "seq": ["", "", "8192", "65536"],
        "head_dim": ["", "", "128", "128"],
        "experts": ["128", "128", "", ""],
        "topk": ["32", "32", "", ""],
        "measured_ms": ["1"] * 4,
    }
    table = Table(
        "h100/overlap.csv", DATA, {k: np.array(v, dtype=object) for k, v in rows.items()}, np.arange(2, 6)
    )
    found = OVERLAPPED(table, Catalogue())
    assert not found.why
    small, large, short, long = found.predicted
    assert 1.5 < large / small < 2.5 and 3.0 < long / short < 9.0
    # At least the product at the H100's peak of 989.4 TFLOP/s, and what crosses the links at 450 GB/s.
    assert small > 2 * 1024 * 32 * 4096 * 1536 / 989.4e12
    assert long > max(2 * 8192 * 4096**2 / 989.4e12, 7 / 8 * 2 * 8192 * 4096 / 450e9)


def made_up(**cells):
    """One row of the file with its own conditions, cells it does not use empty."""
    own = read_table(DATA, "h100/overlap.csv")
    row = (
        dict.fromkeys(own.columns, "")
        | {key: str(value) for key, value in cells.items()}
        | {"measured_ms": "1"}
    )
    table = replace(own.keep(np.array([0])), columns={k: np.array([v], dtype=object) for k, v in row.items()})
    found = OVERLAPPED(table, Catalogue())
    assert not found.why, found.why
    return float(found.predicted[0])


def test_rows_of_fused_experts_count_tokens_times_picks():
    """m is rows over all experts: 1024 tokens at top-32 are 32768 rows of the product, and the sum that is
    reduced has 1024.
    """
    m, n, k, tokens = 32768, 4096, 1024, 1024
    moe = {"kernel": "moe_gemm_reduce_ar", "gpus": 8, "n": n, "k": k, "experts": 64}
    sums = 2 * tokens * n
    time = made_up(**moe, m=m, topk=32, comm_bytes_per_gpu=sums)
    flop_time = 2.0 * m * n * k / 989e12
    assert flop_time < time < 4.0 * flop_time + 100e-6
    # what is sent follows from the tokens where the file does not say it, and is what it says where it does
    assert made_up(**moe, m=m, topk=32) == pytest.approx(time, rel=1e-12)
    assert made_up(**moe, m=m, topk=32, comm_bytes_per_gpu=100 * sums) > 1.5 * time
    # as many rows without a sum over picks send 32 times as much
    assert made_up(**moe, m=m, topk=1) > time


@pytest.mark.parametrize("heads", [64, 8])
def test_ulysses_rows_are_as_before_the_exchange(heads):
    """64 heads of all ranks or the 8 of one: the bytes that a rank sends say which."""
    batch, seq, dim, width = 1, 8192, 128, 64 * 128
    row = {"kernel": "ulysses_a2a_gemm", "gpus": 8, "batch": batch, "seq": seq, "head_dim": dim, "n": width}
    sent = 2 * batch * seq * width // 8
    time = made_up(**row, heads=heads, comm_bytes_per_gpu=sent)
    named = made_up(**row, heads=heads, comm_bytes_per_gpu=sent, m=batch * seq // 8, k=width)
    assert time == pytest.approx(named, rel=1e-12)
    assert 2.0 * 1024 * width * width / 989e12 < time < 1e-3
