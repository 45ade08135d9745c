"""`strata plan`: best first, under limits, with the next command to type."""

import shlex

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
    assert hint[0] == "predict"
    assert {"--engine", "--set", "--batch", "--plan"} <= set(hint)
    assert "time per output token" in answer(*hint)


@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
def test_plan_shows_the_columns_of_its_phase(answer, phase):
    text = answer("plan", "--model", "llama-3-8b", "--system", "8xh200", "--batch", "8", "--phase", phase)
    assert ("TPOT" in text) == (phase == "decode")
    assert ("TTFT" in text) == (phase == "prefill")
