"""Communication beside computation against what was measured and published."""

from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.studies import run_entry
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import held_out
from strata.validation.readers.overlap import overlapped_kernels
from strata.validation.readers.tables import Table, read_table

DATA = Path(__file__).resolve().parents[3] / "validation"


def test_measured_kernels_are_met_by_one_set_of_quantities():
    found = overlapped_kernels(read_table(DATA, "h100/overlap.csv"), Catalogue())
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
    found = overlapped_kernels(table, Catalogue())
    assert not found.why
    small, large, short, long = found.predicted
    assert 1.5 < large / small < 2.5 and 3.0 < long / short < 9.0
    # At least the product at the H100's peak of 989.4 TFLOP/s, and what crosses the links at 450 GB/s.
    assert small > 2 * 1024 * 32 * 4096 * 1536 / 989.4e12
    assert long > max(2 * 8192 * 4096**2 / 989.4e12, 7 / 8 * 2 * 8192 * 4096 / 450e9)
