"""Units of every number of every command's JSON, and rows of every command in CSV and Parquet files."""

import csv
import json
import math
import shlex
from pathlib import Path

import pytest

import strata as st
from strata.app.cli import COMMANDS
from strata.app.rows_out import write_rows
from strata.base.shipped import paper_offers

EXAMPLES = {
    "predict": "predict -m llama-3-70b -s 8xh200 --batch 64 --phase decode --set chip.memory.bandwidth=x2 --explain",
    "predict a transform": "predict -m fft-1d-2e30 -s 8xh200 --plan p=8",
    "plan": "plan -m llama-3-70b -s 8xh200 --ttft 2s --tpot 40ms --top 2",
    "plan of batches": "plan -m llama-3-8b -s 8xh200 --batch 16,64 --phase decode --top 2",
    "compare": "compare -m llama-3-8b -s 1xh200 1xb200 --engine vllm -i 512 -o 128 --tpot 20ms",
    "sweep": "sweep -m llama-3-8b -s 8xh200 --vary batch=1,8 --vary chip.memory.bandwidth=2:8:2TB/s --plan best",
    "sweep of words": "sweep -m llama-3-8b --vary system=1xh100,1xh200 --vary kv=bf16,fp8 --phase decode",
    "power-cap": "power-cap -m llama-3-8b -s 1xh200 -b 64 -i 200:800 --caps 150,400,700",
    "timeline": "timeline -m llama-3-8b -s 8xh200 --batch 16 --plan tp=2,pp=4,microbatches=8",
    "timeline compared": "timeline -m llama-3-8b -s 8xh200 --batch 16 --plan tp=2,pp=4,microbatches=8 --compare",
    "list": "list chips",
    "show": "show chip h200",
    "show a program": "show program mixtral-moe-layer",
    "diff": "diff n5 n3",
    "serving": "serving -m llama-3-8b -s 1xh200 -i 2048 -o 512 --rate 1 --plan tp=1",
    "serving apart": "serving -m llama-3-8b -s 2xh200 --ttft 500ms --tpot 20ms --disaggregated",
    "simulate": "simulate -m llama-3-8b -s 1xh200 --rate 2 --count 40 --plan tp=1 --ttft 1s",
    "simulate for a rate": "simulate -m llama-3-8b -s 1xh200 --rate 2 --count 40 --plan tp=1 --ttft 1s --find-rate",
    "simulate rates": "simulate -m llama-3-8b -s 1xh200 --rate 2 --count 40 --plan tp=1 --rates 1,4",
    "simulate a fleet": "simulate -m llama-3-8b -s 1xh200 --rate 60 --count 80 --plan tp=1 --tpot 8ms --fleet",
    "simulate costs": "simulate -m llama-3-8b -s 1xh200 --rate 2 --count 40 --plan tp=1 --cost",
    "simulate caps": "simulate -m llama-3-8b -s 1xh200 --rate 2 --count 40 --plan tp=1 --caps 400",
    "launch": "launch -m llama-3-8b --plan tp=2 --engine vllm,trtllm",
    "speculate": "speculate --target llama-3-70b --draft llama-3.2-1b --system 8xh200 --window 2:3 --acceptance 0.7",
    "post-train": "post-train -m llama-3.1-8b -s 16xh100 --batch 16 --rollout-plan dp=8 --async",
    "train": "train -m llama-3-8b -s 8xh100 --tokens 1B --batch 64 --plan dp=8,zero=1,recompute=full",
    "train searched": "train -m llama-3-8b -s 8xh100 --tokens 1B --batch 64",
    "generate": "generate --technology n5 --budget h100 --template gpu",
    "codesign": "codesign --technology deepflow-v100 --template deepflow-2021-capped --budget deepflow-v100 "
    "--program lstm-lm-v100 --batch 256 --system 4 --strategy d4 --evaluations 60",
    "fabric": "fabric torus-256 --sizes 4,4,2,2,4",
    "collective": "collective all_reduce --system 4x8xh200 --ranks 8,32 --bytes 8kB,1MB --engine vllm",
    "collective on links": "collective all_reduce --system 4x8xh200 --bytes 1MB --links --algorithms",
    "collectives at once": "collective all_gather --system 4x8xh200 --bytes 1GB --ranks 8 --with reduce_scatter:1MB:32",
    "mapping": "mapping --mesh tp=16,dp=16 --fabric torus-256 --volumes tp=1GB,dp=10MB",
    "map": "map --program gpt3-layer --system 8xsn10 --plan tp=8 --layouts given --tiles 1,8",
    "heat": "heat stack-ref --layers 4",
    "heat over time": "heat stack-ref --layers 2 --transient 1s",
    "dram": "dram hbm3 --read-share 0.67",
    "area": "area stack-ref --layers 1:3",
    "area of one": "area h100",
    "cost": "cost stack-ref --layers 2,4",
    "cost of one": "cost h200",
    "cost of a system": "cost --system 8xh200",
    "validate": "validate --data DATA --worst 2",
    "validate seals": "validate --sealed",
    "search": "search next-node --goal tokens_per_s --limit tpot<=20ms --set weights=fp8 --sampler random --budget 100",
    "study": "study more",
    "studies": "study",
    "kernel": "kernel gemm --chip h200 --m 1,64 --n 8192 --k 8192",
    "kernel of a program": "kernel lu --chip h200 --order 512 --precision fp64",
    "calibrate": "calibrate h200 --only attention --data DATA",
}
WITHOUT = {"schema", "measure", "serve", "seal"}  # a schema; work on a device; a page; written once
STUDY = """
title = "One claim"
paper = "nobody"
[[run]]
name = "batches"
model = "llama-3-8b"
system = "1xh200"
phase = "decode"
vary = ["batch=1,8"]
[[claim]]
id = "more"
says = "larger batches give more"
paper = 1.5
ours = "batches.tokens_per_s[1] / batches.tokens_per_s[0]"
holds = "ours > paper"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asked")
    (folder / "data" / "h200").mkdir(parents=True)
    shipped = Path(st.__file__).parents[1] / "validation" / "h200"
    for name, lines in (("gemm.csv", 30), ("attention.csv", None)):
        text = (shipped / name).read_text().splitlines(keepends=True)
        (folder / "data" / "h200" / name).write_text("".join(text[:lines]))
    (folder / "more").mkdir()
    (folder / "more" / "study.toml").write_text(STUDY)
    return folder


def typed(example, place):
    words = shlex.split(EXAMPLES[example].replace("DATA", str(place / "data")))
    return [str(place / "more") if word == "more" else word for word in words]


def numbers(node, path=(), beside=()):
    """Every number with the keys above it, and the keys beside it."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key != "units":
                yield from numbers(value, (*path, key), node.keys())
    elif isinstance(node, list):
        for value in node:
            yield from numbers(value, path, beside)
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield path, beside


def unit_of(path, units):
    """As docs/cli.md says: `a.b`, the key, or the nearest key above."""
    for i in reversed(range(len(path))):
        for name in [".".join(path[i - 1 : i + 1])] * (i > 0) + [path[i]]:
            if name in units:
                return units[name]
    return None


def test_every_command_has_an_example():
    assert {EXAMPLES[name].split()[0] for name in EXAMPLES} | WITHOUT >= {
        *COMMANDS,
        *paper_offers("commands"),
    }


def rows_of(path):
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file))
    assert rows and len(set(header)) == len(header)
    return header, rows


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_number_has_a_unit_and_every_command_writes_its_rows(answer, place, tmp_path, example):
    table = tmp_path / "new" / "rows.csv"
    got = answer(*typed(example, place), "--json", "--table", table)
    for told in got if isinstance(got, list) else [got]:
        units = told.get("units", {})
        assert all(isinstance(unit, str) for unit in units.values())
        bare = {p for p, beside in numbers(told) if "unit" not in beside and unit_of(p, units) is None}
        assert not bare
    header, rows = rows_of(table)
    assert all(len(row) == len(header) for row in rows)


@pytest.mark.parametrize("example", ["predict", "sweep of words", "list", "simulate", "cost", "kernel"])
def test_parquet_files_have_the_rows_of_csv_files(answer, place, tmp_path, example):
    parquet = pytest.importorskip("pyarrow.parquet")
    for ending in ("csv", "parquet"):
        answer(*typed(example, place), "--table", tmp_path / f"rows.{ending}")
    header, rows = rows_of(tmp_path / "rows.csv")
    columns = parquet.read_table(tmp_path / "rows.parquet").to_pydict()
    assert header == list(columns)
    for i, name in enumerate(header):
        for row, value in zip(rows, columns[name], strict=True):
            if isinstance(value, bool):
                assert row[i] == str(value).lower()
            elif isinstance(value, float):  # the same digits
                assert float(row[i]) == value
            elif value is None:
                assert row[i] == ""


def test_units_are_those_of_the_quantities(answer):
    got = answer(*shlex.split(EXAMPLES["predict"]), "--json")
    wanted = {
        "tpot": "s",
        "tokens_per_s": "1/s",
        "power": "W",
        "memory_used": "B",
        "resources_s": "s",
        "mfu": "1",
    }
    assert {k: got["units"][k] for k in wanted} == wanted
    assert unit_of(("interval", "tpot", "high"), got["units"]) == "s"
    chip = answer("generate", "--technology", "n5", "--budget", "h100", "--template", "gpu", "--json")
    assert unit_of(("use", "power_W", "memory"), chip["units"]) == "W"
    assert unit_of(("worth_of_one_percent", "power", "FLOP/s"), chip["units"]) == "1"


def test_a_row_is_the_prediction(answer, tmp_path):
    words = ["predict", "-m", "llama-3-70b", "-s", "8xh200", "--batch", "64", "--plan", "tp=4,pp=2"]
    got = answer(*words, "--json")
    answer(*words, "--table", tmp_path / "one.csv")
    with (tmp_path / "one.csv").open(newline="") as file:
        (row,) = list(csv.DictReader(file))
    assert float(row["tpot [s]"]) == got["metrics"]["tpot"]
    assert (row["plan"], row["system"], row["fits"]) == ("tp=4,pp=2", "8xh200", "true")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("rows.xlsx", "--table writes CSV or Parquet"),
        ("", "is a folder|--table writes"),
        ("blocked/rows.csv", "blocked/rows.csv cannot be written: "),
        ("blocked/rows.parquet", "blocked/rows.parquet cannot be written: "),
    ],
)
def test_a_file_that_cannot_be_written_is_one_line(strata, tmp_path, file, said):
    (tmp_path / "blocked").write_text("a file where a folder should be")
    got = strata("dram", "hbm3", "--table", tmp_path / file)
    assert got.code == 2 and got.err.count("\n") == 1
    assert any(part in got.err for part in said.split("|"))


def test_a_full_disk_names_the_file(strata, tmp_path):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "rows.csv").symlink_to(full)
    got = strata("dram", "hbm3", "--table", tmp_path / "rows.csv")
    assert got.code == 2 and "rows.csv cannot be written: no space left" in got.err


def test_parquet_without_pyarrow_is_one_line(strata, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    got = strata("dram", "hbm3", "--table", tmp_path / "rows.parquet")
    assert got.code == 2 and "a Parquet file needs pyarrow: pip install 'strata[search]'" in got.err


def test_commas_quotes_and_what_is_not_finite(tmp_path):
    rows = [
        {"name": 'a "b", c\nd', "time": 0.1 + 0.2},
        {"name": "é", "time": math.inf},
        {"name": None, "more": 1},
    ]
    write_rows(tmp_path / "rows.csv", rows, {"time": "s", "more": "1"})
    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
        got = list(csv.reader(file))
    assert got == [
        ["name", "time [s]", "more"],
        ['a "b", c\nd', "0.30000000000000004", ""],
        ["é", "", ""],
        ["", "", "1"],
    ]
    assert json.loads(json.dumps(got)) == got
