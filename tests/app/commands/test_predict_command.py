"""`strata predict`, against the same question asked in Python."""

import json
from pathlib import Path

import pytest

import strata as st
from strata.app.render.prediction import metrics_of
from strata.app.terminal import plain_json
from strata.params import data_folder
from strata.pricing.metrics import TokenMetrics

LLAMA = ("--model", "llama-3-70b", "--system", "8xh200", "--batch", "64")
TASKS = {
    "serve": st.serve(64.0, 1024.0, 1024.0),
    "prefill": st.prefill(64.0, 1024.0),
    "decode": st.decode(64.0, 1536.0),
    "train": st.train(64.0, 1024.0),
}


@pytest.mark.parametrize("phase", TASKS)
def test_predict_gives_the_numbers_of_the_python_api(answer, phase):
    system, plan = ("64xh200", "tp=8,dp=8,zero=3") if phase == "train" else ("8xh200", "tp=8")
    got = answer(
        "predict",
        "--model",
        "llama-3-70b",
        "--system",
        system,
        "--batch",
        64,
        "--phase",
        phase,
        "--plan",
        plan,
        "--json",
    )
    r = st.evaluate(system, "llama-3-70b", TASKS[phase], plan)
    assert got["fits"] is True
    assert set(got["metrics"]) == set(metrics_of(TokenMetrics)) <= set(got["units"])
    assert got["metrics"] == plain_json({k: float(getattr(r.metrics, k)) for k in metrics_of(TokenMetrics)})
    assert got["bound_by"] == r.bound_by
    assert got["question"]["phase"] == phase
    assert got["question"]["devices"] == r.system.devices
    assert sum(got["memory_B"].values()) == pytest.approx(got["metrics"]["memory_used"])
    assert sum(got["energy_J"].values()) == pytest.approx(got["metrics"]["energy_per_token"])


def test_predict_names_its_plan_and_what_it_chose_from(answer):
    got = answer("predict", *LLAMA, "--json")
    choice = got["plan_choice"]
    assert choice["plan"] == got["question"]["plan"]
    assert 1 <= choice["feasible"] <= choice["considered"]
    best = st.evaluate("8xh200", "llama-3-70b", TASKS["serve"], choice["plan"])
    assert got["metrics"]["tokens_per_s"] == pytest.approx(float(best.metrics.tokens_per_s))
    text = answer("predict", *LLAMA)
    assert f"plan {choice['plan']}: best of {choice['considered']} legal plans" in text


def test_predict_says_everything_in_lines_that_fit(answer):
    text = answer(
        "predict",
        "--model",
        "deepseek-v3",
        "--system",
        "8xb200",
        "--batch",
        64,
        "--input",
        1024,
        "--output",
        1024,
        "--explain",
    )
    for word in (
        "deepseek-v3 on 8xb200",
        "time to first token",
        "time per output token",
        "bound by memory",
        "tokens/s/user",
        "memory/device",
        "Where the last decode step (context 2048) goes",
        "ffn.moe.experts_up",
        "DRAM bandwidth",
        "What 10 % more would buy",
    ):
        assert word in text
    lines = text.splitlines()
    assert max(map(len, lines)) <= 140
    assert all(line == line.rstrip() for line in lines)


def test_explained_ops_add_up_to_the_step(answer):
    got = answer("predict", *LLAMA, "--plan", "tp=8", "--phase", "decode", "--explain", "--json")
    assert sum(op["time"] for op in got["ops"]) == pytest.approx(got["metrics"]["step_time"], rel=1e-9)
    assert all(op["lower"] <= op["time"] * (1 + 1e-9) for op in got["ops"])


def test_set_changes_a_number_and_the_answer(answer):
    base = answer("predict", *LLAMA, "--plan", "tp=8", "--json")
    fast = answer("predict", *LLAMA, "--plan", "tp=8", "--set", "chip.memory.bandwidth=9.6 TB/s", "--json")
    assert fast["metrics"]["tokens_per_s"] > 1.1 * base["metrics"]["tokens_per_s"]
    assert fast["inputs"]["chip"]["hash"] != base["inputs"]["chip"]["hash"]
    assert fast["inputs"]["fabric"]["hash"] == base["inputs"]["fabric"]["hash"]
    assert fast["inputs"]["chip"]["numbers"]["memory.bandwidth"] == {
        "value": 9.6e12,
        "unit": "B/s",
        "source": "given by the caller",
    }


def test_overlap_is_an_option_of_its_own(answer, strata):
    asked = ("-m", "deepseek-v3", "-s", "8xh200", "--phase", "prefill", "-b", 32)
    by_set, by_option, plain = (
        answer("predict", *asked, "--plan", "dp=8,ep=8", *more, "--json")["metrics"]["ttft"]
        for more in (("--set", "engine.overlap=dual_batch"), ("--overlap", "dual_batch"), ())
    )
    assert by_option == by_set < plain
    wanted = ("--where", "(dp == 8) & (zero == 0)", "--top", 1, "--json")
    without, beside = (
        answer("plan", *asked, *wanted, *more)["plans"][0]["metrics"]["ttft"]
        for more in ((), ("--overlap", "tiles"))
    )
    assert beside < without
    got = strata("predict", *asked, "--overlap", "tile")
    assert got.code == 2 and "none, tiles, dual_batch" in got.err and len(got.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "owner", "path", "value"),
    [
        ("fabric.latency=9 us", "fabric", "dimension.0.latency", 9e-6),
        ("fabric.infiniband.latency=9 us", "fabric", "dimension.1.latency", 9e-6),
        ("fabric.1.latency=9 us", "fabric", "dimension.1.latency", 9e-6),
        ("engine.host_step=3 ms", "engine", "host_step", 3e-3),
    ],
)
def test_set_reaches_fabric_and_engine(answer, change, owner, path, value):
    got = answer("predict", *LLAMA, "--plan", "tp=8", "--set", change, "--json")
    assert got["inputs"][owner]["numbers"][path]["value"] == pytest.approx(value)


def test_set_reaches_the_model(answer):
    got = answer(
        "predict",
        *LLAMA,
        "--plan",
        "tp=8",
        "--set",
        "model.kv=fp8",
        "--set",
        "model.tied=true",
        "--weights",
        "fp8",
        "--json",
    )
    assert got["question"]["precision"]["kv"] == "fp8"
    assert got["question"]["precision"]["weights"] == "fp8"
    assert got["inputs"]["model"]["sizes"]["tied"] is True


def test_models_and_systems_by_path(answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my-llama"
    folder.mkdir()
    config = folder / "config.json"
    config.write_text((data_folder("models") / "llama-3-70b.json").read_text())
    Path("fast.toml").write_text(
        'base = "h200"\nname = "fast"\n[memory]\nbandwidth = { value = "6 TB/s", source = "assumed: a faster '
        'stack of HBM" }\n'
    )
    Path("rack.toml").write_text(
        'name = "rack"\ntitle = "two nodes"\nchip = "fast.toml"\nfabric = "hgx-h200"\n[sizes]\ninfiniband = '
        '{ value = 2, source = "assumed: this test" }\n'
    )
    for model in (config, folder):
        got = answer(
            "predict",
            "--model",
            model,
            "--system",
            "rack.toml",
            "--batch",
            64,
            "--plan",
            "tp=8,dp=2",
            "--json",
        )
        assert (got["question"]["model"], got["question"]["system"], got["question"]["devices"]) == (
            "my-llama",
            "rack",
            16,
        )
        assert (
            got["inputs"]["chip"]["numbers"]["memory.bandwidth"]["source"] == "assumed: a faster stack of HBM"
        )
    same = answer(
        "predict", "--model", "llama-3-70b", "--system", "16xh200", "--batch", 64, "--plan", "tp=8,dp=2",
        "--set", "chip.memory.bandwidth=6 TB/s", "--json",
    )  # fmt: skip
    assert got["metrics"] == pytest.approx(same["metrics"], nan_ok=True)
    # --set works on a chip that came from a file, too
    slow = answer(
        "predict",
        "--model",
        folder,
        "--system",
        "rack.toml",
        "--batch",
        64,
        "--plan",
        "tp=8,dp=2",
        "--set",
        "chip.memory.bandwidth=2 TB/s",
        "--json",
    )
    assert slow["metrics"]["tpot"] > got["metrics"]["tpot"]
    assert "6 TB/s" in answer("show", "chip", "fast.toml")


def test_trace_is_a_chrome_trace_whose_durations_add_up_to_the_step(strata, tmp_path):
    path = tmp_path / "new" / "step.json"
    got = strata("predict", *LLAMA, "--plan", "tp=8", "--phase", "decode", "--trace", path)
    assert got.code == 0
    assert str(path) in got.err
    trace = json.loads(path.read_text())
    # kernels and collectives one after the other; what they read of DRAM stands beside them, on a track
    tracks = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    events = [e for e in trace["traceEvents"] if e["ph"] == "X" and tracks[e["tid"]] != "DRAM"]
    r = st.evaluate("8xh200", "llama-3-70b", TASKS["decode"], "tp=8")
    assert sum(e["dur"] for e in events) == pytest.approx(float(r.metrics.step_time) * 1e6, rel=1e-9)
    assert {"name", "cat", "ts", "dur", "pid", "tid", "args"} <= set(events[0])
    ends = [e["ts"] + e["dur"] for e in events]
    assert all(later["ts"] >= end - 1e-6 for end, later in zip(ends, events[1:], strict=False))
    assert set(tracks.values()) == {"kernels", "DRAM", "network"}


def test_json_of_what_does_not_fit_says_why(strata):
    got = strata("predict", "--model", "llama-3.1-405b", "--system", "1xrtx-4090", "--json")
    data = json.loads(got.out)
    assert got.code == 2
    assert data["fits"] is False
    assert data["metrics"]["tpot"] is None
    assert data["infeasible"][0]["demand"] > data["infeasible"][0]["limit"]
    assert data["infeasible"][0]["levers"]


def test_a_served_batch_says_that_its_first_token_is_not_what_clients_see(strata):
    """`predict` reads a whole batch at once, `plan` and `serving` say what clients see: 599 ms and 53 ms."""
    got = strata("predict", "--model", "llama-3-70b", "--system", "8xh200", "--batch", 16, "--plan", "tp=8")
    first = next(line for line in got.out.splitlines() if "time to first token" in line)
    assert "prompts of the batch at once" in first and "strata serving" in first


def test_what_training_keeps_beside_weights_is_named(strata):
    """Of 19.8 GB of 'weights' a device two were weights."""
    asked = ("--model", "llama-3-70b", "--system", "64xh200", "--batch", 256, "--plan", "dp=64,zero=3")
    got = strata("predict", *asked, "--input", 1024, "--phase", "train").out
    assert all(f"{purpose} " in got for purpose in ("parameters", "gradients", "optimizer", "activations"))
    assert "optimizer" not in strata("predict", *LLAMA, "--plan", "tp=8").out


def test_adapters_and_frozen_modules_as_typed(answer):
    asked = (
        "predict",
        "-m",
        "llama-3-8b",
        "-s",
        "8xh100",
        "--phase",
        "train",
        "--batch",
        8,
        "--plan",
        "dp=8",
    )
    tuned = answer(*asked, "--lora", "16:attention", "--json")
    work = st.train(8.0, 1024.0, adapters=st.Lora(rank=16.0, modules=("attention",)))
    same = st.evaluate("8xh100", "llama-3-8b", work, "dp=8")
    assert tuned["metrics"]["step_time"] == pytest.approx(float(same.metrics.step_time))
    head = answer(*asked, "--frozen", "embedding,attention,ffn", "--json")
    assert head["metrics"]["step_time"] < tuned["metrics"]["step_time"]
