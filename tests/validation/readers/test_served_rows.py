"""A served row is a command: what `strata validate` predicts is what the command prints, to the last bit."""

import json
import random
import shlex
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from strata.base.errors import BadFile, UnknownName
from strata.base.memo import forget
from strata.params import data_folder
from strata.search.served_options import command_line, deployment_of, served_answer
from strata.software.engine import engine
from strata.validation.measured.compared import counted_rows, one_row, row_arguments
from strata.validation.measured.formulas import Columns
from strata.validation.measured.reader import data_files, reader_of, row_points
from strata.validation.measured.spec import spec_of
from strata.validation.questions.question import question
from strata.validation.questions.served import (
    engine_text,
    format_options,
    layout_text,
    simulate_options,
    whole_system,
)
from strata.validation.readers.comparison import configurations
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table
from strata.workload.model import model

DATA = Path(__file__).parents[3] / "validation"
CATALOGUE = Catalogue()
FILES = [
    name
    for name in data_files(DATA)
    if name.startswith("serving/") and spec_of(DATA, name).question == "serve"
]
SAMPLED, SEED, MOST_CLIENTS = 30, 30, 64


@lru_cache
def table_of(name):
    """The rows of a file that count, with its derived columns, and its spec."""
    spec = spec_of(DATA, name)
    return counted_rows(read_table(DATA, name), spec), spec


def options_of(name, **columns):
    """Options of the first row of a file whose columns hold some texts."""
    table, spec = table_of(name)
    rows = np.all([table.text(column) == value for column, value in columns.items()], axis=0)
    asked = question(spec.question)
    return simulate_options(one_row(asked, row_arguments(asked, spec, Columns(table.keep(rows), spec)), 0))


def told(folder, name, line):
    return row_points(folder, name, line)


def read_lines(name):
    """Lines of a file that count, those with very many clients left to the others."""
    table, _ = table_of(name)
    columns = {"conc", "concurrency", "max_num_seqs", "max_batch"} & set(table.columns)
    few = [table.number(column, empty=0.0) <= MOST_CLIENTS for column in columns]
    return table.lines[np.all([np.ones(len(table), bool), *few], axis=0)].tolist()


def sampled_rows():
    """Rows of all served files; each file has some."""
    every = [(name, line) for name in FILES for line in read_lines(name)]
    draw = random.Random(SEED)
    some = [draw.choice([row for row in every if row[0] == name]) for name in FILES]
    return some + draw.sample(every, SAMPLED - len(some))


def test_the_command_of_a_row_prints_its_prediction(strata):
    points = [p for name, line in sampled_rows() for p in told(DATA, name, line) if p["predicted"]]
    assert len(points) >= SAMPLED
    forget()
    printed = {}
    for point in points:
        words = shlex.split(point["command"])
        assert words[:2] == ["strata", "simulate"] and words[-1] == "--json"
        if point["command"] not in printed:
            printed[point["command"]] = json.loads(strata(*words[1:]).out)
        answer = question("serve").answer(printed[point["command"]], point["at"])
        assert answer == point["predicted"], point["command"]


def test_a_row_is_predicted_alike_alone_and_in_its_file():
    name = "serving/silicon.csv"
    table = read_table(DATA, name)
    some = table.keep(np.arange(len(table)) % 97 == 5)
    points = reader_of(name, CATALOGUE)(some, CATALOGUE)
    for line in set(points.line.tolist()):
        alone = {p["group"]: p["predicted"] for p in told(DATA, name, line)}
        rows = points.line == line
        assert dict(zip(points.group[rows], points.predicted[rows].tolist(), strict=True)) == alone


def test_validate_says_the_command_of_a_row(strata):
    told = json.loads(strata("validate", "serving/silicon.csv", "--row", "100", "--json").out)
    assert [row["at"] for row in told] == ["ttft.mean", "tpot.mean"]
    assert all(row["command"].startswith("strata simulate --model deepseek-v3") for row in told)
    assert "error" in strata("validate", "serving/silicon.csv", "--row", "100").out
    for words, why in (
        (("serving/silicn.csv", "--row", "3"), "nearest: serving/silicon.csv"),
        (("serving/silicon.csv", "--row", "9999"), "no row of serving/silicon.csv called '9999'"),
        (("--row", "3"), "--row is of one file"),
    ):
        refused = strata("validate", *words)
        assert refused.code == 2 and why in refused.err


def test_rows_of_one_command_are_one_configuration():
    name = "serving/mlperf_power.csv"
    points = reader_of(name, CATALOGUE)(read_table(DATA, name), CATALOGUE)
    once = configurations(points)
    assert len(points) == 20 and len(once) == 5  # two servers of one make are the same command in two groups
    assert len(set(points.command)) == 4
    first = points.group == once.group[0]
    assert once.measured[0] == np.median(points.measured[first])


def test_rows_that_another_file_has_are_not_read_twice(tmp_path):
    name = "serving/silicon2.csv"
    table, spec = table_of(name)
    assert len(table) == len(read_table(DATA, name)) - 48
    (tmp_path / "serving").mkdir()
    (tmp_path / name).write_bytes((DATA / name).read_bytes())
    assert len(counted_rows(read_table(tmp_path, name), spec)) == 389


def test_columns_are_options():
    drawn = options_of("serving/silicon.csv", backend="vllm", isl="1024", osl="1024")
    assert drawn["input"] == "uniform:1024" and "engine.async_scheduling=1" in drawn["set"]
    assert int(drawn["count"]) == 10 * int(drawn["clients"])
    other = options_of("serving/silicon.csv", backend="vllm", backend_version="0.12.0")
    assert other["load"].endswith("prompts=100") and other["engine"] == "vllm@0.12.0" and "input" not in other
    mended = options_of(
        "serving/silicon.csv", model="gpt-oss-120b", tp_size="4", moe_tp_size="2", moe_ep_size="2"
    )
    assert (mended["system"], mended["plan"]) == ("2xh200", "tp=2,ep=2,moe_tp=1")
    polled = options_of("serving/inferencex.csv", engine="SGLang", chip="b200", concurrency="64")
    assert "engine.recv_interval=30" in polled["set"]
    guessed = options_of("serving/inferencex.csv", engine="TensorRT-LLM", speculative="mtp", dp_attention="0")
    assert guessed["speculative"] == "draft=mtp,acceptance=0.7,window=3"
    apart = options_of(
        "serving/inferencex.csv", engine="SGLang (Dynamo)", prefill_workers="6", prefill_devices="48"
    )
    assert apart["prefill_workers"] == "6" and apart["system"] == "72xgb200"
    limits = options_of("serving/mlperf.csv", scenario="Server", model="llama-2-70b")
    assert limits["find_rate"] is True and limits["share"] == "99%" and limits["ttft"] == "2.0s"
    several = options_of("serving/mlperf.csv", scenario="Server", model="llama-3.1-405b", chip="b200")
    assert (several["system"], several["replicas"], several["tokens"]) == ("4xb200", "2", "2048")
    streamed = options_of("serving/mlperf.csv", scenario="Server", model="deepseek-v3")
    assert "engine.sequence_gap=280 us" in streamed["set"] and "replicas" not in streamed
    batch = options_of("serving/argonne.csv", engine="llama.cpp", count="4")
    assert batch["plan"] == "pp=4" and batch["clients"] == batch["count"] == "1"


@pytest.mark.parametrize(("name", "together"), [("llama-3.1-405b", True), ("llama-2-70b", False)])
def test_a_rate_is_of_all_replicas_that_are_simulated(name, together):
    """Replicas with few sequences each are simulated together, others one by one."""
    table, spec = table_of("serving/mlperf.csv")
    wanted = {"scenario": "Server", "model": name, "devices": "8", "chip": "b200"}
    (row, *_) = np.flatnonzero(np.all([table.text(c) == value for c, value in wanted.items()], axis=0))
    columns = Columns(table.keep(np.array([row])), spec)
    (measured,) = columns["tokens"] / columns["mean_output"]
    replicas = 1 if together else columns["replicas"][0]
    assert measured == pytest.approx(columns["samples_per_s"][0] / replicas, rel=1e-3)


def test_parts_of_options():
    deepseek, oss = model("deepseek-v3"), model("gpt-oss-120b")
    h200, b200 = CATALOGUE.chip("h200"), CATALOGUE.chip("b200")
    assert layout_text(deepseek, dp=48, ep=48) == "dp=48,ep=48,moe_tp=1,redundant_experts=32"
    assert whole_system("b200", {4: 1, 8: 3}) == "32xb200"
    assert engine_text("TensorRT-LLM (Dynamo)", "1.1.0-dev.2", "2026-04-18") == "trtllm@1.3.0rc7"
    assert format_options(oss, h200, "fp8", "mxfp4") == {"kv": "bf16"}
    assert format_options(oss, b200, "fp8", "mxfp4") == {"kv": "fp8"}
    blocks = {"weights": "fp8_block", "kv": "fp8", "set": ("model.expert_weights=fp8_block",)}
    assert format_options(deepseek, h200, "fp8", "fp8") == blocks


def test_an_engine_in_place_of_another_changes_what_its_version_does_not_say():
    asked = {"model": "llama-3-8b", "system": "1xh200", "plan": "tp=1", "clients": "8", "count": "80"}
    slow = {"vllm": replace(engine("vllm"), host_step=50e-3, async_scheduling=0.5)}
    old = deployment_of({**asked, "engine": "vllm@0.12.0"}, slow).engine
    assert old.host_step == 50e-3 and old.async_scheduling == 0.0
    assert served_answer(asked, slow)["tpot"]["mean"] > 3 * served_answer(asked)["tpot"]["mean"]
    assert served_answer(asked) is served_answer({**asked, "engine": "vllm@0.24"})
    assert (
        command_line({"model": "a b", "find_rate": True})
        == "strata simulate --model 'a b' --find-rate --json"
    )


def test_what_cannot_be_read_says_why(tmp_path):
    (tmp_path / "serving/requests").mkdir(parents=True)
    text = (DATA / "serving/requests/rtx4090_llama-3.1-8b.csv").read_text(encoding="utf-8").splitlines()
    for name, lines, why in (
        ("rtx4090_llama-3.1-8b.csv", [text[0], text[1].replace("17.5703", "0.1")], "must come in this order"),
        ("someone.csv", text[:3], "the name must say chip and model"),
    ):
        path = tmp_path / "serving/requests" / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with pytest.raises(BadFile, match=why):
            told(tmp_path, f"serving/requests/{name}", 2)
    silicon = "serving/silicon.csv"
    unknown = (DATA / silicon).read_text(encoding="utf-8").splitlines()
    (tmp_path / silicon).write_text(
        "\n".join([unknown[0], unknown[1].replace(unknown[1].split(",")[1], "b2000")]) + "\n",
        encoding="utf-8",
    )
    assert all(p["predicted"] is None and "b2000" in p["why"] for p in told(tmp_path, silicon, 2))
    with pytest.raises(UnknownName, match="no row of"):
        told(tmp_path, silicon, 7)


def test_a_folder_of_data_alone_takes_the_shipped_conditions_and_one_with_a_toml_its_own(tmp_path):
    name = "serving/trtllm_max_throughput.csv"
    (tmp_path / "serving").mkdir()
    (tmp_path / name).write_bytes((DATA / name).read_bytes())
    usual, shipped = (told(folder, name, 40) for folder in (DATA, tmp_path))
    assert usual == shipped
    described = (data_folder("measured") / "serving/trtllm_max_throughput.toml").read_text(encoding="utf-8")
    (tmp_path / name).with_suffix(".toml").write_text(f"questoin = 1\n{described}")
    with pytest.raises(BadFile, match="no key 'questoin'"):
        told(tmp_path, name, 40)
