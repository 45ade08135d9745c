"""`strata simulate` and `strata launch`: answers, files, mistakes, and Ctrl-C."""

import csv
import json

import pytest

from strata.app.cli import run_command
from strata.serving.priced_service import ObservedReplica

ASKED = ("simulate", "-m", "llama-3-8b", "-s", "1xh200", "--plan", "tp=1")


def test_a_run_says_what_requests_saw(answer):
    said = answer(*ASKED, "--rate", "4", "--count", "100", "--ttft", "1s", "--tpot", "20ms")
    for part in ("time to first token", "between tokens", "p99", "goodput", "cost/Mtoken", "step table"):
        assert part in said
    got = answer(*ASKED, "--rate", "4", "--count", "100", "--json")
    assert got["completed"] == 100 and got["fleet"][0]["plan"] == "tp=1" and got["refused"] == 0
    again = answer(*ASKED, "--rate", "4", "--count", "100", "--json", "--seed", "0")
    assert again["ttft"] == got["ttft"]
    assert answer(*ASKED, "--rate", "4", "--count", "100", "--json", "--seed", "1")["ttft"] != got["ttft"]


def test_every_request_goes_into_a_file(answer, tmp_path):
    table, lines = tmp_path / "r.csv", tmp_path / "r.json"
    answer(*ASKED, "--clients", "4", "--count", "60", "--requests", table)
    answer(*ASKED, "--clients", "4", "--count", "60", "--requests", lines)
    rows = list(csv.DictReader(table.open()))
    assert len(rows) == 60 and float(rows[0]["ttft [s]"]) > 0
    assert [r["ttft"] for r in json.loads(lines.read_text())] == [float(r["ttft [s]"]) for r in rows]


def test_a_trace_is_served_and_bad_ones_are_one_line(answer, strata, tmp_path):
    good = tmp_path / "trace.csv"
    good.write_text("arrival,input,output\n0.0,100,20\n0.5,200,30\n")
    got = answer(*ASKED, "--trace", good, "--json")
    assert (got["completed"], got["input_tokens"], got["output_tokens"]) == (2, 300, 50)
    for name, text, said in (
        ("columns.csv", "arrival,input\n0.0,100\n", "output"),
        ("times.csv", "arrival,input,output\n-1,100,20\n", "negative"),
        ("long.csv", "arrival,input,output\n0,100000,20\n", "context"),
    ):
        bad = tmp_path / name
        bad.write_text(text)
        got = strata(*ASKED, "--trace", bad)
        assert got.code == 2 and said in got.err and got.err.count("\n") == 1, got.err


def test_pictures_pages_and_traces(answer, tmp_path):
    page, trace, picture = (tmp_path / n for n in ("run.html", "run.json", "cdf.svg"))
    answer(*ASKED, "--rate", "8", "--count", "80", "--html", page, "--perfetto", trace, "--picture", picture)
    text = page.read_text()
    assert text.count("<title>request") >= 80 and "replica 0 generates" in text and "http" not in text
    events = json.loads(trace.read_text())["traceEvents"]
    kinds = {e["cat"] for e in events if e["ph"] == "X"}
    assert {"queued", "reading", "generating", "decode"} <= kinds
    assert sum(e.get("cat") == "generating" for e in events) == 80
    assert "<svg" in picture.read_text() and "p95" in picture.read_text()
    curve, cost = tmp_path / "curve.svg", tmp_path / "cost.svg"
    answer(*ASKED, "--rate", "4", "--count", "60", "--rates", "2,20,60", "--picture", curve, "--tpot", "9ms")
    answer(*ASKED, "--rate", "4", "--count", "60", "--cost", "--picture", cost)
    assert "requests/s" in curve.read_text() and "USD" in cost.read_text()


def test_questions(answer):
    found = answer(*ASKED, "--rate", "8", "--count", "200", "--find-rate", "--tpot", "8ms", "--json")
    assert found["rate"] < found["fails_at"] <= 1.05 * found["rate"]
    sure = found["confidence"]
    assert sure["kept_low"] >= 0.95 and sure["confirmed"] >= 0.95 and sure["confirmed_requests"] > 3700
    fleet = answer(*ASKED, "--rate", "100", "--count", "300", "--fleet", "--tpot", "8ms", "--json")
    best = fleet["fleets"][0]
    assert best["holds"] and best["replicas"][0] > 1
    caps = answer(*ASKED, "--rate", "8", "--count", "60", "--caps", "400", "--json")["caps"]
    assert [row["cap"] for row in caps] == ["own limit", "400 W", "fixed clock"]
    apart = answer(
        *("simulate", "-m", "llama-3-8b", "-s", "2xh200", "--prefill", "tp=1", "--decode", "tp=1"),
        *("--rate", "4", "--count", "60", "--json"),
    )
    assert [part["system"] for part in apart["fleet"]] == ["1 of 2xh200", "1 of 2xh200"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "needs requests"),
        (("--rate", "2", "--clients", "3"), "both say"),
        (("--rate", "-2"), "positive"),
        (("--rate", "2", "--input", "lognorm:100"), "lognormal"),
        (("--rate", "2", "--find-rate"), "limit"),
        (("--rate", "2", "--find-rate", "--rates", "auto"), "one question"),
        (("--rate", "2", "--share", "2"), "--share"),
        (("--rate", "2", "--prefill", "tp=1"), "--decode"),
        (("--rate", "2", "--picture", "a.gif"), ".svg"),
        (("--rate", "2", "--rates", "auto", "--html", "a.html"), "single run"),
        (("--rate", "2", "--router", "fair"), "router"),
        (("--load", "poison:rate=3"), "poisson"),
        (("--rate", "30", "--fleet", "--tpot", "1us"), "no number of these systems"),
    ],
)
def test_mistakes_are_one_line(strata, words, said):
    got = strata(*ASKED, "--count", "20", *words) if words else strata(*ASKED)
    assert got.code == 2 and said in got.err and got.err.count("\n") == 1, got.err


def test_ctrl_c_prints_what_is_known_so_far(monkeypatch, capsys):
    ends = []

    def end(self, done, own=ObservedReplica.end):
        ends.append(1)
        if len(ends) == 400:
            raise KeyboardInterrupt
        own(self, done)

    monkeypatch.setattr(ObservedReplica, "end", end)
    code = run_command([*ASKED, "--rate", "8", "--count", "1000"])
    said = capsys.readouterr()
    assert code == 130 and "what is known so far" in said.out and "time to first token" in said.out


def test_launch_commands_are_those_of_each_engine(answer):
    got = answer(
        "launch", "-m", "deepseek-v3", "--plan", "dp=8,ep=8", "--engine", "vllm,sglang,trtllm", "--json"
    )
    vllm, sglang, trtllm = got
    assert "--data-parallel-size 8" in vllm["command"] and "--enable-expert-parallel" in vllm["command"]
    assert "--tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8" in sglang["command"]
    assert "--tp_size 8 --ep_size 8" in trtllm["command"] and "enable_attention_dp: true" in trtllm["config"]
    assert all(one["servers"] == 1 and not one["notes"] for one in got)


POOLS = """
[[pool]]
name = "chat"
model = "llama-3-8b"
system = "1xh200"
plan = "tp=1"

[[pool]]
name = "code"
model = "llama-3-8b"
system = "1xh200"
plan = "tp=1"
most_waiting = 8

[pool.adapters]
names = ["sql", "python"]
rank = 16
slots = 2
bandwidth = "50 GB/s"
"""


def test_pools_come_from_a_file(answer, strata, tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text(POOLS)
    load = "poisson:rate=8,input=300,output=60,count=120,models=chat:0.5/sql:0.5"
    got = answer("simulate", "--pools", path, "--load", load, "--json")
    assert got["completed"] + got["refused"] == 120 and set(got["by_model"]) == {"chat", "sql"}
    assert [one["pool"] for one in got["fleet"]] == ["chat", "code"]
    said = answer("simulate", "--pools", path, "--load", load, "--launch")
    assert "asked for" in said and " sql " in said and said.count("vllm serve") == 2
    assert "models=NAME:SHARE" in strata("simulate", "--pools", path, "--rate", "3").err
    for more, why in (
        (("--plan", "tp=1"), "leave out --plan"),
        (("--engine", "sglang"), "leave out --engine"),
        (("--or", "1xb200"), "leave out --or"),
        (("--fleet", "--ttft", "1s"), "leave out --pools"),
    ):
        got = strata("simulate", "--pools", path, "--load", load, *more)
        assert got.code == 2 and why in got.err and got.err.count("\n") == 1
    assert "no file of pools" in strata("simulate", "--pools", tmp_path / "none", "--rate", "3").err
    assert "needs --system" in strata("simulate", "-m", "llama-3-8b", "--rate", "3").err


def test_servers_in_several_machines(answer, strata):
    """Flags of each engine; the size of a machine is told, or that of the system."""
    asked = ("launch", "-m", "llama-3-70b", "--plan", "tp=8,pp=2", "--engine", "vllm,sglang,trtllm", "--json")
    for size in (("--per-node", "8"), ("--system", "16xh200")):
        vllm, sglang, trtllm = answer(*asked, *size)
        assert "--nnodes 2 --node-rank $NODE_RANK --master-addr $HEAD" in vllm["command"]
        assert vllm["others"] == vllm["command"] + " --headless" and vllm["nodes"] == 2
        assert "--nnodes 2 --node-rank $NODE_RANK --dist-init-addr $HEAD:20000" in sglang["command"]
        assert not sglang["others"]
        assert trtllm["command"].startswith("mpirun -n 16 --hostfile hosts trtllm-llmapi-launch trtllm-serve")
    (shared,) = answer("launch", "-m", "deepseek-v3", "--plan", "dp=16,ep=16", "--per-node", "8", "--json")
    assert "--data-parallel-size 16" in shared["command"]
    assert "--data-parallel-size-local 8 --data-parallel-address $HEAD" in shared["command"]
    assert shared["others"].endswith("--headless --data-parallel-start-rank $((NODE_RANK * 8))")
    wide = strata("launch", "-m", "deepseek-v3", "--plan", "tp=16,dp=2,ep=32", "--per-node", "8")
    assert wide.code == 2 and "whole data parallel ranks" in wide.err and "tp=16,dp=2,ep=16" in wide.err
    (tray,) = answer("launch", "-m", "deepseek-v3", "--plan", "tp=8,ep=8", "--system", "8xgb200", "--json")
    assert tray["nodes"] == 2  # compute trays of four
    (one,) = answer(
        "launch",
        "-m",
        "llama-3-70b",
        "--plan",
        "tp=8,dp=4",
        "--per-node",
        "8",
        "--engine",
        "trtllm",
        "--json",
    )
    assert one["nodes"] == 1 and one["servers"] == 4
    text = strata(
        "launch", "-m", "llama-3-70b", "--plan", "tp=16", "--engine", "sglang", "--per-node", "8"
    ).out
    assert "# the same on the second machine (NODE_RANK=1)" in text and "# HEAD: the address" in text
    assert "--per-node" in strata("launch", "-m", "llama-3-70b", "--plan", "tp=16", "--per-node", "x").err


def test_flags_of_roles_and_drafts_are_those_of_the_manuals(answer):
    asked = ("launch", "-m", "deepseek-v3", "--plan", "tp=8,ep=8", "--json")
    (reads,) = answer(*asked, "--engine", "trtllm", "--role", "prefill")
    (writes,) = answer(*asked, "--engine", "trtllm", "--role", "decode")
    overlap = "disable_overlap_scheduler: true"  # context servers of TensorRT-LLM 1.0 have none
    assert overlap in reads["config"] and overlap not in writes["config"]
    (guess,) = answer(*asked, "--engine", "trtllm", "--draft", "llama-3-8b:3")
    assert "decoding_type: DraftTarget" in guess["config"] and "max_draft_len: 3" in guess["config"]


def test_what_flags_cannot_say_is_said(answer, strata):
    (one,) = answer("launch", "-m", "llama-3-70b", "--plan", "tp=4", "--weights", "nvfp4", "--json")
    assert any("NVFP4" in note for note in one["notes"])
    (two,) = answer("launch", "-m", "llama-3-70b", "--plan", "tp=4,dp=2", "--engine", "trtllm", "--json")
    assert two["servers"] == 2 and "--tp_size 4" in two["command"]
    (fp8,) = answer(
        "launch", "-m", "llama-3-70b", "--plan", "tp=8", "--kv", "fp8", "--weights", "fp8", "--json"
    )
    assert "--quantization fp8" in fp8["command"] and "--kv-cache-dtype fp8" in fp8["command"]
    assert (
        "no launcher starts engine ideal"
        in strata("launch", "-m", "llama-3-8b", "--plan", "tp=1", "--engine", "ideal").err
    )
    text = answer(*ASKED, "--rate", "2", "--count", "20", "--launch")
    assert "vllm serve" in text and "--max-num-seqs 1024" in text


@pytest.mark.parametrize(
    ("engine", "plan", "servers", "flags"),
    [
        ("vllm", "tp=8", 1, "--tensor-parallel-size 8"),
        ("vllm", "dp=8,moe_tp=8", 1, "--tensor-parallel-size 1 --data-parallel-size 8"),
        ("vllm", "tp=4,dp=2,ep=8", 1, "--data-parallel-size 2 --enable-expert-parallel"),
        ("vllm", "dp=72,ep=24,redundant_experts=8", 3, "--eplb-config '{\"num_redundant_experts\": 8}'"),
        (
            "vllm",
            "tp=8,ep=8 --sequences 64 --tokens 4096",
            1,
            "--max-num-seqs 64 --max-num-batched-tokens 4096",
        ),
        ("sglang", "tp=8,ep=4", 1, "--tp-size 8 --ep-size 4"),
        ("sglang", "tp=4,dp=2,ep=8", 1, "--tp-size 8 --dp-size 2 --enable-dp-attention --ep-size 8"),
        ("sglang", "tp=4,pp=2", 1, "--pp-size 2 --max-running-requests 8192"),
        ("trtllm", "tp=8,ep=4", 1, "--tp_size 8 --ep_size 4"),
        ("trtllm", "dp=16,ep=8", 2, "--tp_size 8 --ep_size 8"),
    ],
)
def test_an_engine_is_started_with_the_servers_that_a_plan_is(answer, engine, plan, servers, flags):
    (one,) = answer("launch", "-m", "deepseek-v3", "--engine", engine, "--json", "--plan", *plan.split())
    assert one["servers"] == servers and flags in one["command"]


@pytest.mark.parametrize(
    ("engine", "plan", "more", "why", "nearest"),
    [
        ("vllm", "tp=8,ep=4", (), "over all tp x dp ranks", "tp=8,ep=8"),
        ("vllm", "tp=4,pp=2", ("--draft", "mtp:1"), "guesses go with pp=1", "tp=4,dp=2"),
        ("vllm", "tp=4,dp=2,ep=8,order=dp-tp", (), "usual order", "tp=4,dp=2,ep=8"),
        ("sglang", "tp=2,cp=4,ep=8", (), "cp=1", "tp=2,dp=4,ep=8"),
        ("sglang", "tp=8,ep=4,moe_tp=1", (), "experts once", "tp=8,ep=4"),
        ("sglang", "tp=4,pp=2", ("--set", "engine.chunked_prefill=1"), "a pipeline does not", "tp=4,dp=2"),
        ("trtllm", "tp=4,dp=2,ep=8", (), "enable_attention_dp", "tp=4,dp=2,ep=4"),
    ],
)
def test_a_plan_that_an_engine_does_not_run_is_refused_with_the_nearest(
    answer, strata, engine, plan, more, why, nearest
):
    words = ("launch", "-m", "deepseek-v3", "--engine", engine, *more)
    got = strata(*words, "--plan", plan)
    assert got.code == 2 and why in got.err and got.err.endswith(f"that it does: {nearest}\n")
    assert answer(*words, "--plan", nearest, "--json")


def test_launch_refuses_what_no_engine_has(strata):
    for words, why in (
        (("-m", "deepseek-v3", "--plan", "tp=3"), "must divide heads"),
        (("-m", "llama-3-70b", "--plan", "tp=16", "-s", "8xh200"), "more than 8xh200"),
        (("-m", "llama-3-70b", "--plan", "tp=4", "--draft", "mtp:1"), "no module that guesses"),
        (("-m", "llama-3-70b", "--plan", "tp=4", "--kv", "int4"), "has no KV cache in int4"),
        (("-m", "llama-3-70b", "--plan", "tp=4", "--context", "99999"), "context of llama-3-70b (8,192)"),
    ):
        got = strata("launch", *words)
        assert got.code == 2 and why in got.err and got.err.count("\n") == 1
