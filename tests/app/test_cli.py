"""Each command as a new user types it, against the same question asked in Python."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import strata as st
from strata.app.catalogue import FILES, LISTED, SHOWN, catalogue
from strata.app.words import strict
from strata.hardware.transport import packets, transport
from strata.params import data_folder, file_model, load_table, names
from strata.pricing.metrics import METRIC_UNITS
from strata.units import parse

LLAMA = ("--model", "llama-3-70b", "--system", "8xh200", "--batch", "64")
TASKS = {
    "serve": st.serve(64.0, 1024.0, 1024.0),
    "prefill": st.prefill(64.0, 1024.0),
    "decode": st.decode(64.0, 1536.0),
    "train": st.train(64.0, 1024.0),
}


# --------------------------------------------------------------------------------------------------- predict


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
    assert set(got["metrics"]) == set(got["units"]) == set(METRIC_UNITS)
    assert got["metrics"] == strict({k: float(getattr(r.metrics, k)) for k in METRIC_UNITS})
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
        ("engine.step=3 ms", "engine", "step", 3e-3),
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
        'base = "h200"\nname = "fast"\n[memory]\nbandwidth = { value = "6 TB/s", source = "assumed: a faster stack of HBM" }\n'
    )
    Path("rack.toml").write_text(
        'name = "rack"\ntitle = "two nodes"\nchip = "fast.toml"\nfabric = "hgx-h200"\n[sizes]\ninfiniband = { value = 2, source = "assumed: this test" }\n'
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
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    r = st.evaluate("8xh200", "llama-3-70b", TASKS["decode"], "tp=8")
    assert sum(e["dur"] for e in events) == pytest.approx(float(r.metrics.step_time) * 1e6, rel=1e-9)
    assert {"name", "cat", "ts", "dur", "pid", "tid", "args"} <= set(events[0])
    ends = [e["ts"] + e["dur"] for e in events]
    assert all(later["ts"] >= end - 1e-6 for end, later in zip(ends, events[1:], strict=False))
    assert {e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"} == {"kernels", "network"}


def test_json_of_what_does_not_fit_says_why(strata):
    got = strata("predict", "--model", "llama-3.1-405b", "--system", "1xrtx-4090", "--json")
    data = json.loads(got.out)
    assert got.code == 2
    assert data["fits"] is False
    assert data["metrics"]["tpot"] is None
    assert data["infeasible"][0]["demand"] > data["infeasible"][0]["limit"]
    assert data["infeasible"][0]["levers"]


# ------------------------------------------------------------------------------------------------------ plan


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


# ----------------------------------------------------------------------------------------------------- sweep


def test_sweep_is_a_box_of_single_predictions(answer):
    got = answer(
        "sweep",
        *LLAMA[:4],
        "--plan",
        "tp=8",
        "--vary",
        "batch=8,64",
        "--vary",
        "chip.memory.bandwidth=2:8:3 TB/s",
        "--json",
    )
    assert [a["name"] for a in got["axes"]] == ["batch", "chip.memory.bandwidth"]
    assert got["axes"][1]["values"] == [2e12, 5e12, 8e12]
    rates = iter(got["metrics"]["tokens_per_s"])
    for batch in (8.0, 64.0):
        for bandwidth in ("2 TB/s", "5 TB/s", "8 TB/s"):
            r = st.evaluate(
                st.system("8xh200", **{"memory.bandwidth": bandwidth}),
                "llama-3-70b",
                st.serve(batch, 1024.0, 1024.0),
                "tp=8",
            )
            assert next(rates) == pytest.approx(float(r.metrics.tokens_per_s), rel=1e-12)


def test_sweep_of_a_degree_fills_the_system_and_says_what_is_out(answer):
    text = answer("sweep", *LLAMA, "--vary", "plan.tp=2,3,8")
    lines = text.splitlines()
    assert "dp=the rest" in lines[0]
    assert [line.split()[:2] for line in lines if line.startswith("       3")] == [["3", "-"]]
    assert "1 of 3 points are out" in text


@pytest.mark.parametrize(
    "name",
    ["fabric.bandwidth", "fabric.nvlink.bandwidth", "fabric.0.bandwidth", "fabric.dimension.0.bandwidth"],
)
def test_sweep_takes_short_names(answer, name):
    got = answer("sweep", *LLAMA, "--plan", "tp=8", "--vary", f"{name}=100,400 GB/s", "--json")
    assert got["axes"][0]["name"] == "fabric.dimension.0.bandwidth"
    assert got["metrics"]["tokens_per_s"][0] < got["metrics"]["tokens_per_s"][1]


@pytest.mark.parametrize("metric", sorted(METRIC_UNITS))
def test_sweep_shows_every_metric(answer, metric):
    assert answer("sweep", *LLAMA, "--plan", "tp=8", "--vary", "batch=8,64", "--metric", metric)


def test_sweep_varies_engine_and_three_axes(answer):
    got = answer(
        "sweep",
        *LLAMA,
        "--plan",
        "tp=8",
        "--vary",
        "engine.step=0,1 ms",
        "--vary",
        "input=128,1024",
        "--vary",
        "output=64,128,256",
        "--json",
    )
    assert len(got["metrics"]["tpot"]) == 12
    assert got["metrics"]["tpot"][6] > got["metrics"]["tpot"][0]


# --------------------------------------------------------------------------------------- list, show, schema


def test_every_listed_name_loads(answer):
    found = answer("list", "--json")
    assert set(found) == set(LISTED)
    loaders = {
        "chips": st.chip,
        "models": st.model,
        "fabrics": st.fabric,
        "engines": st.engine,
        "systems": st.system,
        "transports": transport,
        "packets": packets,
    }
    for kind, load in loaders.items():
        assert found[kind]
        for entry in found[kind]:
            assert entry["title"]
            if entry["name"] != "COUNTxCHIP":
                load(entry["name"])


@pytest.mark.parametrize("kind", [*LISTED, "chip"])
def test_list_prints_each_name(answer, kind):
    text = answer("list", kind)
    for entry in next(iter(catalogue(kind).values())):
        assert entry["name"] in text


SHOWABLE = [
    (kind, name)
    for kind in ("chip", "fabric", "memory", "engine", "transport", "packets")
    for name in names(kind)
]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *SHOWABLE,
        ("economics", "default"),
        ("system", "4x8xh100"),
        ("model", "deepseek-v3"),
        ("model", "gpt3-1t"),
    ],
)
def test_show_gives_every_number_a_source(answer, kind, name):
    got = answer("show", kind, name, "--json")
    assert len(got["numbers"]) >= 4
    for path, entry in got["numbers"].items():
        assert len(entry["source"]) >= 8, path
        assert entry["shown"], path
    if kind in FILES and kind != "system":
        for path, value in file_quantities(load_table(kind, name)).items():
            entry = got["numbers"][path]
            assert entry["value"] == pytest.approx(parse(value["value"], entry["unit"]))
            assert entry["source"].startswith(value["source"])  # a scaled one says so after it


def file_quantities(table, prefix=""):
    """Each quantity of a data file by its dotted path."""
    found = {}
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        if isinstance(value, dict) and "value" in value:
            found[f"{prefix}{key}"] = value
        elif isinstance(value, (dict, list)):
            found |= file_quantities(value, f"{prefix}{key}.")
    return found


def test_show_prints_numbers_sources_and_marks_what_is_assumed(answer):
    text = answer("show", "chip", "h200")
    flat = " ".join(text.split())
    for entry in answer("show", "chip", "h200", "--json")["numbers"].values():
        assert entry["shown"] in flat
    assert " * assumed:" in flat
    assert "numbers are assumed" in flat
    assert max(map(len, text.splitlines())) <= 140


@pytest.mark.parametrize("kind", FILES)
def test_schema_describes_the_shipped_files(answer, kind):
    schema = json.loads(answer("schema", kind))
    model = file_model(FILES[kind])
    assert schema == json.loads(json.dumps(model.model_json_schema()))
    for name in names(kind):
        table = load_table(kind, name)
        model.model_validate(table)
        assert set(schema["required"]) <= set(table) <= set(schema["properties"])


def test_schema_of_models_describes_the_shipped_configs(answer):
    schema = json.loads(answer("schema", "model"))
    checked = 0
    for name in names("models"):
        config = json.loads((data_folder("models") / f"{name}.json").read_text())
        config |= config.get("text_config", {})
        if "n_embd" not in config:  # GPT-2's keys
            assert set(schema["required"]) <= set(config), name
            checked += 1
    assert checked > 20


# ----------------------------------------------------------------------------------------------- diff,
# validate


def saved(answer, path, *words):
    path.write_text(json.dumps(answer("predict", *words, "--json")))
    return path


def test_diff_finds_exactly_what_changed(answer, tmp_path):
    first = saved(answer, tmp_path / "a.json", *LLAMA, "--plan", "tp=8")
    second = saved(
        answer, tmp_path / "b.json", *LLAMA, "--plan", "tp=8", "--set", "chip.memory.bandwidth=9.6 TB/s"
    )
    rows = {row["path"]: row for row in answer("diff", first, second, "--json")}
    assert rows["inputs.chip.numbers.memory.bandwidth.value"] == {
        "path": "inputs.chip.numbers.memory.bandwidth.value",
        "first": 4.8e12,
        "second": 9.6e12,
        "unit": "B/s",
        "ratio": 2.0,
    }
    inputs = {path for path in rows if path.startswith(("inputs.", "question."))}
    assert inputs == {
        "inputs.chip.hash",
        "inputs.chip.numbers.memory.bandwidth.value",
        "inputs.chip.numbers.memory.bandwidth.source",
    }
    assert rows["metrics.tokens_per_s"]["ratio"] > 1
    assert "metrics.memory_used" not in rows
    text = answer("diff", first, second)
    assert "4.8 TB/s" in text
    assert f"{len(rows)} differences" in text


def test_diff_of_equal_results(answer, tmp_path):
    path = saved(answer, tmp_path / "a.json", *LLAMA, "--plan", "tp=8")
    assert answer("diff", path, path, "--json") == []
    assert "are the same" in answer("diff", path, path)


def small_data(folder):
    source = Path(st.__file__).parents[1] / "validation" / "h200" / "decoder.csv"
    if not source.exists():
        pytest.skip("measured data is not in this checkout")
    (folder / "h200").mkdir(parents=True)
    (folder / "h200" / "decoder.csv").write_text("".join(source.read_text().splitlines(keepends=True)[:8]))
    (folder / "serving" / "requests").mkdir(parents=True)
    (folder / "serving" / "requests" / "a.csv").write_text("a\n1\n")
    (folder / "strange.csv").write_text("a\n1\n")
    return folder


def test_validate_compares_what_it_knows_and_names_the_rest(answer, tmp_path):
    data = small_data(tmp_path / "data")
    got = answer("validate", "--data", data, "--json")
    assert set(got) == {"files", "not_yet", "unknown"}
    assert (got["not_yet"], got["unknown"]) == (["serving/requests/a.csv"], ["strange.csv"])
    (entry,) = got["files"]
    assert {
        "file",
        "points",
        "failed",
        "mape",
        "median",
        "p90",
        "worst",
        "bias",
        "weighted",
        "groups",
    } <= set(entry)
    assert entry["file"] == "h200/decoder.csv"
    assert entry["points"] >= 1
    text = answer("validate", "--data", data)
    assert "h200/decoder.csv" in text
    assert "serving/requests/a.csv: not predicted yet" in text


# ---------------------------------------------------------------------------------- help, completion, process


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--help",),
        ("-h",),
        *((c, "--help") for c in ("predict", "plan", "sweep", "list", "show", "schema", "diff", "validate")),
    ],
)
def test_help_is_on_stdout(strata, words):
    got = strata(*words)
    assert (got.code, got.err) == (0, "")
    assert "Usage: strata" in got.out
    assert "strata predict --model" in got.out if len(words) < 2 else f"Example: strata {words[0]}" in got.out


def test_version(answer):
    assert answer("--version").strip() == f"strata {st.__version__}"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("strata predict --model llama-3-7", "llama-3-70b"),
        ("strata predict --system 4xh2", "4xh200"),
        ("strata predict --engine vl", "vllm"),
        ("strata predict --phase dec", "decode"),
        ("strata predict --kv fp8_", "fp8_block"),
        ("strata sweep --metric tok", "tokens_per_s"),
        ("strata show chip h2", "h200"),
        ("strata show model mixtral-8x2", "mixtral-8x22b"),
        ("strata val", "validate"),
    ],
)
def test_completion_offers_names(strata, monkeypatch, line, wanted):
    words = line.split()
    monkeypatch.setenv("_STRATA_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert wanted in strata().out.split()


def test_ctrl_c_is_one_line_and_130(strata, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("strata.app.ask.ask", interrupted)
    got = strata("predict", *LLAMA)
    assert (got.code, got.err.strip()) == (130, "strata: stopped by Ctrl-C")


def test_ctrl_c_ends_a_running_command():
    """A whole process, interrupted while it works."""
    script = (
        "import sys, time, strata.app.ask\n"
        "def long(*a, **k):\n    print('working', file=sys.stderr, flush=True)\n    time.sleep(30)\n"
        "strata.app.ask.ask = long\n"
        "from strata.app.cli import main\n"
        "sys.argv = ['strata', 'predict', '--model', 'llama-3-70b', '--system', '8xh200']\n"
        "main()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "working\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said.strip()) == (130, "strata: stopped by Ctrl-C")


def test_a_closed_pipe_is_no_error():
    command = [sys.executable, "-m", "strata.app.cli", "list"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=20) == 0


def test_start_loads_nothing_heavy():
    """A prediction imports no plotting, no compiler and no readers of measurements."""
    script = (
        "import sys\n"
        "from strata.app.cli import run\n"
        "code = run(['predict', '--model', 'llama-3-70b', '--system', '8xh200', '--plan', 'tp=8'])\n"
        "heavy = [m for m in ('plotly', 'jax', 'scipy', 'pandas', 'strata.validation.run', 'strata.app.report') if m in sys.modules]\n"
        "sys.exit(code or ' '.join(heavy) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_kind_is_shown_and_described():
    assert set(SHOWN) == {
        "chip",
        "fabric",
        "transport",
        "packets",
        "memory",
        "engine",
        "economics",
        "system",
        "model",
        "space",
    }
