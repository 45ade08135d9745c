"""`strata plan`: best first, under limits, with the next command to type."""

import shlex

import numpy as np
import pytest

LLAMA = ("--model", "llama-3-70b", "--system", "8xh200", "--batch", "64")


def test_plans_come_best_first_and_keep_the_limits(answer):
    got = answer(
        "plan",
        "--model",
        "llama-3.1-405b",
        "--system",
        "16xh200",
        "--batch",
        "4,16,64",
        "--tpot",
        "40ms",
        "--ttft",
        "2s",
        "--top",
        5,
        "--json",
    )
    rates = [p["metrics"]["tokens_per_s"] for p in got["plans"]]
    assert rates == sorted(rates, reverse=True)
    assert all(p["metrics"]["tpot"] <= 0.04 and p["metrics"]["ttft"] <= 2 for p in got["plans"])
    assert 1 <= len(rates) <= 5 <= got["feasible"] <= got["considered"]


def test_plan_table_leads_to_the_next_command(answer):
    text = answer(
        "plan",
        *LLAMA[:4],
        "--batch",
        "1,16",
        "--tpot",
        "50ms",
        "--top",
        3,
        "--engine",
        "vllm",
        "--set",
        "fabric.latency=2 us",
    )
    assert "TPOT at most 50 ms" in text
    assert "the best" in text
    hint = shlex.split(text.splitlines()[-1].partition("strata ")[2])
    assert hint[0] == "serving"
    assert {"--engine", "--set", "--clients", "--plan"} <= set(hint)
    said = answer(*hint)
    row = next(line.split() for line in text.splitlines() if line.endswith("the best"))
    assert row[1] in ("1", "16") and " ".join(row[3:5]) in said and " ".join(row[7:9]) in said


def test_plan_and_serving_print_one_answer(answer):
    """The best line of `plan` is the first of `serving`, and what `serving` says of it at its batch."""
    asked = ("--model", "llama-3-70b", "--system", "8xh200", "--input", "2048", "--output", "512")
    limits = ("--engine", "vllm", "--ttft", "1s", "--tpot", "30ms", "--share", "95%", "--json")
    for goal in ("throughput", "fastest"):
        planned = answer("plan", *asked, *limits, "--goal", goal)
        whole = answer("serving", *asked, *limits, "--goal", goal)
        best, first = planned["plans"][0], whole["plans"][0]
        plan, batch = best["question"]["plan"], best["question"]["batch"]
        told = ("serving", *asked, "--engine", "vllm", "--plan", plan, "--clients", f"{batch:g}", "--json")
        load = answer(*told)["load"]
        for name in (
            "ttft", "ttft_p95", "tpot", "tokens_per_s", "cost_per_mtoken", "energy_per_mtoken",
            "cost_per_device_hour",
        ):  # fmt: skip
            assert best["metrics"][name] == pytest.approx(load[name], rel=1e-9), name
            assert best["metrics"][name] == pytest.approx(first[name], rel=1e-9), name
        assert planned["goal"] == whole["question"]["goal"] == goal
        assert planned["interval"] == whole["interval"] and set(planned["interval"]) == {"ttft", "tpot"}


def test_the_largest_batch_is_no_power_of_two(answer):
    data = answer("plan", *LLAMA[:4], "--tpot", "25ms", "--engine", "vllm", "--json")
    batches = [p["question"]["batch"] for p in data["plans"]]
    assert any(np.log2(b) % 1 for b in batches)
    steps = answer("plan", *LLAMA[:4], "--tpot", "25ms", "--phase", "decode", "--engine", "vllm", "--json")
    assert any(np.log2(p["question"]["batch"]) % 1 for p in steps["plans"])


def test_goals_are_known_by_name(strata):
    got = strata("plan", *LLAMA, "--goal", "cheapst")
    assert got.code == 2 and "no goal called 'cheapst'; nearest: cheapest" in got.err


@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
def test_plan_shows_the_columns_of_its_phase(answer, phase):
    text = answer("plan", "--model", "llama-3-8b", "--system", "8xh200", "--batch", "8", "--phase", phase)
    assert ("TPOT" in text) == (phase == "decode")
    assert ("TTFT" in text) == (phase == "prefill")
