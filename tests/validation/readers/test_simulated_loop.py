"""Closed forms of a loop of clients against its simulation: where they agree, and where they do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from strata.mapping.plan import plan
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.closed_loop import client_times
from strata.validation.readers.online_conditions import plain_runs
from strata.validation.readers.served_models import engine_times
from strata.validation.readers.serving_online import online_runs
from strata.validation.readers.simulated_loop import ClosedRun, simulated_first_tokens
from strata.validation.readers.steps import Serving, systems_of
from strata.validation.readers.tables import read_table

ROUNDS = 10.0


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue()


def both(
    catalogue, clients, *, spread=0.4, engine="vllm", model="llama-3.1-8b", input=900.0, output=300.0, dp=1.0
):
    """First tokens of a loop in closed form and simulated, on H100s."""
    software, served = catalogue.engine(engine), catalogue.model(model)
    experts = {"ep": dp, "moe_tp": 1.0} if served.has_experts else {}
    layout = plan(tp=1.0, dp=dp, **experts)
    system = systems_of(catalogue, "h100", dp)
    n = np.array([float(clients)])
    run = plain_runs(input + 0.0 * n, output + 0.0 * n, ROUNDS)
    serving = Serving(system, served, layout, software, 0.0)
    closed = client_times(engine_times(serving, n, run), n, n, dp + 0.0 * n, run, software)[0]
    loop = ClosedRun(
        clients=clients,
        input=((1 - spread) * input, (1 + spread) * input),
        output=((1 - spread) * output, (1 + spread) * output),
        rounds=ROUNDS,
        tokens=int(software.tokens),
    )
    simulated = simulated_first_tokens(system, served, layout, software, [loop], skew=0.0)
    return float(closed[0]), simulated[0]


def test_one_client_alone_waits_for_its_own_prompt(catalogue):
    closed, simulated = both(catalogue, 1)
    half_a_step = 0.01  # the closed form has it, though nobody else asks
    assert simulated == pytest.approx(closed, rel=0.05, abs=half_a_step)


@pytest.mark.parametrize("clients", [8, 32])
def test_they_agree_where_answers_differ_and_prompts_come_apart(catalogue, clients):
    closed, simulated = both(catalogue, clients)
    assert simulated == pytest.approx(closed, rel=0.3)


def test_clients_whose_answers_are_alike_ask_together_for_ever(catalogue):
    closed, together = both(catalogue, 32, spread=0.0)
    apart = both(catalogue, 32)[1]
    assert together > 1.8 * closed  # the closed form takes prompts to come at random after the first
    assert together > 1.5 * apart


def test_ranks_that_wait_for_each_other_wait_less_under_load(catalogue):
    given = {"engine": "trtllm", "model": "qwen3-30b-a3b", "dp": 4.0}
    few, many = (both(catalogue, n, **given) for n in (8, 128))
    # the closed form has every prompt wait all the steps that an engine waits at most; where all ranks have one
    # they begin at once
    assert many[1] < 0.8 * many[0]
    assert many[1] / many[0] < few[1] / few[0]


def test_rounds_beyond_those_simulated_count_as_the_later_ones(catalogue):
    software, served = catalogue.engine("vllm"), catalogue.model("llama-3.1-8b")
    given = {"clients": 16, "input": (800.0, 1000.0), "output": (200.0, 300.0), "tokens": 8192}
    runs = [ClosedRun(rounds=r, **given) for r in (2.0, 10.0, 1000.0)]
    system = systems_of(catalogue, "h100", 1.0)
    short, usual, long = simulated_first_tokens(system, served, plan(), software, runs, skew=0.0)
    assert short > usual > long


def test_request_time_is_part_of_a_first_token(catalogue):
    software, served = catalogue.engine("vllm"), catalogue.model("llama-3.1-8b")
    run = ClosedRun(clients=1, input=(500.0, 500.0), output=(50.0, 50.0), rounds=4.0, tokens=8192)
    system = systems_of(catalogue, "h100", 1.0)
    none, some = (
        simulated_first_tokens(system, served, plan(), replace(software, request=t), [run], skew=0.0)[0]
        for t in (0.0, 0.1)
    )
    assert some - none == pytest.approx(0.1)


def test_prompts_that_come_together_are_tokenised_one_after_another(catalogue):
    software, served = catalogue.engine("vllm"), catalogue.model("llama-3.1-8b")
    system = systems_of(catalogue, "h100", 1.0)

    def first(clients, each):
        run = ClosedRun(clients=clients, input=(1000.0, 1000.0), output=(50.0, 50.0), rounds=1.0, tokens=8192)
        changed = replace(software, tokenize=each)
        return simulated_first_tokens(system, served, plan(), changed, [run], skew=0.0)[0]

    assert first(1, 1e-4) - first(1, None) == pytest.approx(0.1)
    # four prompts of 0.1 s each take far longer to tokenise than to read
    assert first(4, 1e-4) - first(1, 1e-4) == pytest.approx(0.15, abs=0.03)


def test_loops_of_other_lengths_are_simulated_where_the_engine_is_known():
    """All of 99 runs had first tokens of a formula that gave 64 clients 1.2 to 1.9 times what they saw."""
    table = read_table(Path("validation"), "serving/silicon.csv")
    asked = table.keep((table.text("model") == "qwen3-32b") & (np.arange(len(table)) % 7 == 0))
    points = online_runs(asked, Catalogue())
    ttft = np.array([g.startswith("ttft") for g in points.group])
    ratio = (points.predicted / points.measured)[ttft]
    many = asked.number("conc") == 64
    assert np.median(np.abs(ratio - 1.0)) < 0.15
    assert 0.8 < np.median(ratio[many]) < 1.2
