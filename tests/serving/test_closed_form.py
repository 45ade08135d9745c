"""The closed form beside the simulator: what clients see, and which plans are best.

Every case is served request by request at shares of the highest rate that the simulator serves (measured: the
largest at which the times to first token of 4,000 and more requests do not grow), and by clients that each
wait for their answer. Loads that the closed form refuses are left out, and counted.
"""

from functools import cache

import numpy as np
import pytest

import strata as st
from strata.mapping.plan import plan_text
from strata.serving.pools import disaggregate
from strata.serving.simulated import simulate_services
from strata.serving.speculation import named_drafting

LLAMA, DEEPSEEK = ("8xh200", "llama-3.1-70b"), ("8xb200", "deepseek-v3")
# model, plan, engine, input, sequences of a rank, highest rate [1/s]
CASES = [
    (LLAMA, "tp=8", "vllm", 2048, 512, 7.28),
    (LLAMA, "tp=8", "sglang", 2048, 512, 7.05),
    (LLAMA, "tp=8", "trtllm", 2048, 512, 7.24),
    (LLAMA, "tp=4,pp=2", "vllm", 2048, 1024, 7.45),
    (LLAMA, "tp=4,dp=2", "vllm", 2048, 1024, 9.32),
    (LLAMA, "tp=8", "vllm", 8192, 1024, 2.24),
    (DEEPSEEK, "tp=8", "vllm", 2048, 512, 8.51),
    (DEEPSEEK, "tp=8", "sglang", 2048, 512, 6.17),
    (DEEPSEEK, "tp=8", "trtllm", 2048, 512, 8.02),
    (DEEPSEEK, "tp=8,ep=8", "vllm", 2048, 512, 9.84),
    (DEEPSEEK, "tp=8,ep=8", "sglang", 2048, 512, 8.65),
    (DEEPSEEK, "tp=8,ep=8", "trtllm", 2048, 512, 8.48),
    (DEEPSEEK, "dp=8,ep=8", "vllm", 2048, 128, 15.40),
    (DEEPSEEK, "dp=8,ep=8", "sglang", 2048, 128, 12.41),
    (DEEPSEEK, "dp=8,ep=8", "trtllm", 2048, 128, 20.30),
    (DEEPSEEK, "dp=8,ep=8", "sglang", 8192, 64, 3.29),
    (DEEPSEEK, "tp=8,ep=8 mtp", "vllm", 2048, 1024, 14.62),
]
OUTPUT, SHARES, CLIENTS = 512, (0.2, 0.4, 0.6, 0.8, 0.9), (1, 8, 64, 256)
WARM, TAIL = 0.25, 0.1  # of the requests of a run, not counted


@cache
def priced(system, model, plan, engine, input, sequences):
    """A deployment for both: its services and its curve."""
    plan, _, mtp = plan.partition(" ")
    software = st.engine(engine, max_num_seqs=float(sequences))
    drafting = named_drafting("mtp", st.model(model), acceptance=0.7, window=2.0) if mtp else None
    deployment = st.serving.Deployment(system, model, plan, software, drafting=drafting)
    requests = st.serving.Requests(input, OUTPUT)
    return deployment.priced(), st.serving.curve(system, model, requests, plan, software, drafting=drafting)


def simulated(services, load):
    """Mean TTFT and TPOT of a run's steady part."""
    run = simulate_services(services, load, keep=True)
    records = sorted(run.records, key=lambda r: r.arrival)
    steady = records[int(WARM * len(records)) : int((1.0 - TAIL) * len(records))]
    return np.mean([r.ttft for r in steady]), np.mean([r.tpot for r in steady])


def lengths(input):
    return {"input": st.serving.Lengths(mean=input), "output": st.serving.Lengths(mean=OUTPUT)}


def errors(seen, truth):
    return [float(ours / theirs) - 1.0 for ours, theirs in zip(seen, truth, strict=True)]


def checked(rows, limits, most_refused):
    """Median and worst of what was answered."""
    answered = np.abs([errors for refusal, errors in rows if not refusal])
    assert len(rows) - len(answered) <= most_refused
    for column, (median, worst) in zip(answered.T, limits, strict=True):
        assert np.median(column) < median and np.max(column) < worst


def test_arrivals_at_random():
    rows = []
    for (system, model), plan, engine, input, sequences, highest in CASES[::2]:
        services, curve = priced(system, model, plan, engine, input, sequences)
        rates = highest * np.array(SHARES)
        every = st.serving.open_load(curve.only([0] * len(rates)), rates)
        for i, rate in enumerate(rates):
            seen = every.at(i)
            count = int(max(2000, 8 * seen.active))
            load = st.serving.OpenLoad(rate=float(rate), count=count, seed=2, **lengths(input))
            rows.append((str(seen.refusal), errors((seen.ttft, seen.tpot), simulated(services, load))))
    checked(rows, ((0.05, 0.15), (0.05, 0.15)), most_refused=4)


def test_clients_that_wait_for_their_answers():
    rows = []
    for (system, model), plan, engine, input, sequences, _ in CASES:
        services, curve = priced(system, model, plan, engine, input, sequences)
        for clients in CLIENTS:
            count = max(40, 8 * clients)
            load = st.serving.ClosedLoad(clients=clients, count=count, seed=3, **lengths(input))
            ttft, tpot = simulated(services, load)
            seen, rate = st.serving.closed_load(curve, clients).at(0, 0), clients / (ttft + 511 * tpot)
            rows.append((str(seen.refusal), errors((seen.ttft, seen.tpot, seen.rate), (ttft, tpot, rate))))
    checked(rows, ((0.05, 0.2), (0.05, 0.15), (0.05, 0.15)), most_refused=8)


def test_pools():
    pair = st.serving.Deployment(*LLAMA, engine="vllm", prefill="tp=4", decode="tp=4").priced()
    asked = st.serving.Requests(2048, OUTPUT)
    plan = {"prefill_plan": st.plan("tp=4"), "decode_plan": st.plan("tp=4")}
    split = disaggregate(st.system(LLAMA[0]), st.model(LLAMA[1]), asked, "vllm", prefill_devices=4, **plan)[0]
    rows = []
    for rate in 7.18 * np.array(SHARES):
        load = st.serving.OpenLoad(rate=float(rate), count=2500, seed=2, **lengths(2048))
        seen = split.load(float(rate))
        rows.append((str(seen.refusal), errors((seen.ttft, seen.tpot), simulated(pair, load))))
    checked(rows, ((0.1, 0.15), (0.05, 0.15)), most_refused=0)


def held_rate(services, limits, most):
    """The highest rate at which mean latencies keep limits, as the simulator has it, to some 3 %."""
    low, high = 0.0, most
    for _ in range(5):
        rate = 0.5 * (low + high)
        load = st.serving.OpenLoad(rate=rate, count=1000, seed=1, **lengths(2048))
        ttft, tpot = simulated(services, load)
        low, high = (rate, high) if ttft <= limits[0] and tpot <= limits[1] else (low, rate)
    return low


def kendall(first, second):
    """Kendall's tau of two lists of scores."""
    pairs = [(i, j) for i in range(len(first)) for j in range(i)]
    signs = [np.sign(first[i] - first[j]) * np.sign(second[i] - second[j]) for i, j in pairs]
    return float(np.mean(signs))


@pytest.mark.parametrize("system, model", [LLAMA, DEEPSEEK])
def test_plans_rank_alike(system, model):
    limits, made = (2.0, 0.05), st.model(model)
    software = st.engine("vllm")
    curve = st.serving.curve(system, made, st.serving.Requests(2048, OUTPUT), None, software)
    rates = st.serving.goodput(curve, *limits)
    order = np.argsort(-rates)[:9]
    truth = []
    for i in order:
        plan = plan_text(curve.plan_at(int(i)))
        services = st.serving.Deployment(system, made, plan, software).priced()
        truth.append(held_rate(services, limits, 2.0 * float(rates[i]) + 1.0))
    assert int(np.argmax(truth)) < 4
    assert kendall(rates[order][:8], truth[:8]) > 0.6
