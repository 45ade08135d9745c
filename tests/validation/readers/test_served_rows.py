"""A served row is a command: what `strata validate` predicts is what the command prints, to the last bit."""

import json
import random
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from strata.errors import BadFile, UnknownName
from strata.mapping.engine import engine
from strata.memo import forget
from strata.serving.served_options import command_line, deployment_of, served_answer
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import configurations
from strata.validation.readers.registry import data_files, reader_of, served_kind
from strata.validation.readers.served_files import SERVED, row_of_file
from strata.validation.readers.served_layouts import engine_text, format_options, layout_text, whole_system
from strata.validation.readers.served_rows import Cells, ServedConditions, number_at
from strata.validation.readers.tables import read_table
from strata.workload.model import model

DATA = Path(__file__).parents[3] / "validation"
CATALOGUE = Catalogue()
FILES = [name for name in data_files(DATA) if served_kind(name) is not None]
SAMPLED, SEED, MOST_CLIENTS = 200, 30, 128


def cells_of(name):
    return list(served_kind(name).rows(read_table(DATA, name)))


def options_of(name, **columns):
    """Options of the first row of a file whose columns hold some texts."""
    kind = served_kind(name)
    row = next(c for c in cells_of(name) if all(c.text(k) == v for k, v in columns.items()))
    return kind.options(row, read_conditions(ServedConditions, row.table, kind.conditions), CATALOGUE)


def sampled_rows():
    """Rows of all served files, those with very many clients left to the others; each file has some."""
    every = [(name, c.line) for name in FILES for c in cells_of(name) if clients(c) <= MOST_CLIENTS]
    draw = random.Random(SEED)
    some = [draw.choice([row for row in every if row[0] == name]) for name in FILES]
    return some + draw.sample(every, SAMPLED - len(some))


def clients(row):
    told = {"conc", "concurrency", "max_num_seqs", "max_batch"} & set(row.table.columns)
    return max([row.number(column, empty=0.0) for column in told], default=0)


def test_every_served_file_is_read():
    assert set(FILES) == {n for n in data_files(DATA) if n.startswith("serving/")}
    assert all(any(served_kind(name) is kind for name in FILES) for kind in SERVED.values())


def test_the_command_of_a_row_prints_its_prediction(strata):
    points = [
        p
        for name, line in sampled_rows()
        for p in row_of_file(DATA, name, served_kind(name), line)
        if not p.why
    ]
    assert len(points) >= SAMPLED
    forget()
    printed = {}
    for point in points:
        words = shlex.split(point.command)
        assert words[:2] == ["strata", "simulate"] and words[-1] == "--json"
        if point.command not in printed:
            printed[point.command] = json.loads(strata(*words[1:]).out)
        assert number_at(printed[point.command], point.metric.at) == point.predicted, point.command


def test_a_row_is_predicted_alike_alone_and_in_its_file():
    name = "serving/silicon.csv"
    table = read_table(DATA, name)
    some = table.keep(np.arange(len(table)) % 97 == 5)
    points = reader_of(name, CATALOGUE)(some, CATALOGUE)
    for line in set(points.line.tolist()):
        alone = {p.metric.group: p.predicted for p in row_of_file(DATA, name, served_kind(name), line)}
        rows = points.line == line
        assert dict(zip(points.group[rows], points.predicted[rows].tolist(), strict=True)) == alone


def test_validate_says_the_command_of_a_row(strata):
    told = json.loads(strata("validate", "serving/silicon.csv", "--row", "100", "--json").out)
    assert [row["at"] for row in told] == ["ttft.mean", "tpot.mean"]
    assert all(row["command"].startswith("strata simulate --model deepseek-v3") for row in told)
    assert "error" in strata("validate", "serving/silicon.csv", "--row", "100").out
    for words, why in (
        (("h200/gemm.csv", "--row", "3"), "rows of h200/gemm.csv have no command yet"),
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
    assert len(cells_of(name)) == len(read_table(DATA, name)) - 48
    (tmp_path / "serving").mkdir()
    (tmp_path / name).write_bytes((DATA / name).read_bytes())
    assert len(list(served_kind(name).rows(read_table(tmp_path, name)))) == 389


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
    assert limits["find_rate"] is True and limits["share"] == "99%" and limits["ttft"] == "2s"
    several = options_of("serving/mlperf.csv", scenario="Server", model="llama-3.1-405b", chip="b200")
    assert (several["system"], several["replicas"], several["tokens"]) == ("4xb200", "2", "2048")
    streamed = options_of("serving/mlperf.csv", scenario="Server", model="deepseek-v3")
    assert "engine.sequence_gap=280 us" in streamed["set"] and "replicas" not in streamed
    batch = options_of("serving/argonne.csv", engine="llama.cpp", count="4")
    assert batch["plan"] == "pp=4" and batch["clients"] == batch["count"] == "1"


def test_a_rate_is_of_all_replicas_that_are_simulated():
    """Replicas with few sequences each are simulated together, others one by one."""
    name = "serving/mlperf.csv"
    kind, table = served_kind(name), read_table(DATA, name)
    known = read_conditions(ServedConditions, table, kind.conditions)
    for model_name, together in (("llama-3.1-405b", True), ("llama-2-70b", False)):
        wanted = {"scenario": "Server", "model": model_name, "devices": "8", "chip": "b200"}
        row = next(c for c in kind.rows(table) if all(c.text(k) == v for k, v in wanted.items()))
        (metric,) = kind.metrics(row, known)
        replicas = 1 if together else row.number("replicas")
        assert metric.measured == pytest.approx(row.number("samples_per_s") / replicas, rel=1e-3)


def test_parts_of_options():
    deepseek = model("deepseek-v3")
    assert layout_text(deepseek, dp=48, ep=48) == "dp=48,ep=48,moe_tp=1,redundant_experts=32"
    assert whole_system(CATALOGUE, "b200", {4: 1, 8: 3}) == "32xb200"
    assert engine_text("TensorRT-LLM (Dynamo)", "1.1.0-dev.2", "2026-04-18") == "trtllm@1.3.0rc7"
    assert format_options(CATALOGUE, "gpt-oss-120b", "h200", "fp8", "mxfp4") == {"kv": "bf16"}
    assert format_options(CATALOGUE, "gpt-oss-120b", "b200", "fp8", "mxfp4") == {"kv": "fp8"}
    blocks = {"weights": "fp8_block", "kv": "fp8", "set": ("model.expert_weights=fp8_block",)}
    assert format_options(CATALOGUE, "deepseek-v3", "h200", "fp8", "fp8") == blocks


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
        ("someone.csv", text[:3], "the name must say model and system"),
    ):
        path = tmp_path / "serving/requests" / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with pytest.raises(BadFile, match=why):
            row_of_file(tmp_path, f"serving/requests/{name}", served_kind(f"serving/requests/{name}"), 2)
    unknown = (DATA / "serving/silicon.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "serving/silicon.csv").write_text(
        "\n".join([unknown[0], unknown[1].replace(unknown[1].split(",")[1], "b2000")]) + "\n",
        encoding="utf-8",
    )
    points = row_of_file(tmp_path, "serving/silicon.csv", served_kind("serving/silicon.csv"), 2)
    assert all(p.predicted == 0 and "b2000" in p.why for p in points)
    with pytest.raises(UnknownName, match="no row of"):
        row_of_file(tmp_path, "serving/silicon.csv", served_kind("serving/silicon.csv"), 7)
    cells = Cells(read_table(DATA, "serving/silicon.csv"), 0)
    assert cells.degree("prefill_tp_size") == 1
    with pytest.raises(BadFile, match="no column 'no such column'"):
        cells.text("no such column")
