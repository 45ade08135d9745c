"""The headline: families left out, pooled by kind of question, beside what was held out and what nobody saw."""

import pytest

from strata.validation.accuracy.headline import HELD_OUT, how_seen, question_rows


def family(file, kind, mape, count=10, refitted=True, metric="time"):
    figures = {"mape": mape, "shown": mape / 2, "median": mape / 2}
    return {
        "file": file,
        "metric": metric,
        "kind": kind,
        "refitted": refitted,
        "rows": count,
        "configurations": count,
        **figures,
        "families": {"a": {"rows": count, "mape": mape, "shown": mape / 2}},
    }


def test_the_headline_counts_configurations_of_families_that_were_refitted():
    files = [
        {"file": "h200/gemm.csv", "points": 30, "mape": 0.2, "median": 0.1, "seen": "held out"},
        {"file": "v100/other.csv", "points": 10, "mape": 0.04, "median": 0.03, "seen": ""},
        {"file": "serving/silicon.csv", "points": 10, "mape": 0.5, "median": 0.4, "seen": "chosen"},
    ]
    families = [
        family("h200/gemm.csv", "chip", 0.1, 10),
        family("h200/attention.csv", "chip", 0.4, 30),
        family("v100/other.csv", "chip", 0.9, refitted=False),
        family("serving/silicon.csv", "engine", 0.3, metric="ttft"),
    ]
    served, kernels = question_rows({"files": files, "families": families})
    assert kernels["left_out"]["points"] == 40 and kernels["left_out"]["mape"] == pytest.approx(0.325)
    assert kernels["held_out"]["mape"] == 0.2 and kernels["unseen"]["mape"] == 0.04
    assert served["kind"] == "engine" and served["held_out"] is None and served["unseen"] is None


def test_rows_in_sight_of_a_choice_are_marked():
    assert how_seen("serving/silicon.csv") == how_seen("peers/neusight_runs.csv") == "chosen"
    assert how_seen("ns3/runs.csv") == "" and how_seen("ops/gemm.csv") == HELD_OUT
