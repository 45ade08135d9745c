"""`strata calibrate --log`: logs in, rows and transports out; what is wrong in one line."""

import json

import pytest
from collective_logs import POWERS, made_log

from strata.app.cli import run_command


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.log").write_text(made_log())
    (tmp_path / "two.log").write_text(made_log(hosts=("a", "b"), op="all_gather", sizes=POWERS[10:22]))
    return tmp_path


def test_a_log_is_read_fitted_and_written(here, capsys):
    assert (
        run_command(["calibrate", "--log", "one.log", "-o", "fitted", "--json", "--table", "runs.csv"]) == 0
    )
    said = capsys.readouterr()
    told = json.loads(said.out)
    (run,), (fitted,) = told["runs"], told["transports"]
    assert (run["op"], run["devices"], run["nodes"], run["rows"], run["largest_B"]) == (
        "all_reduce",
        8,
        1,
        28,
        1 << 30,
    )
    (family,) = fitted["families"]
    assert fitted["transport"] == "nvlink4" and family["after"] < family["before"]
    assert fitted["units"]["rings.start.flagged"] == "s"
    assert sorted(p.name for p in (here / "fitted").rglob("*.*")) == [
        "hgx-h100.toml",
        "nccl.csv",
        "nvlink4.toml",
    ]
    assert "next: strata predict --fabric fitted/hgx-h100.toml" in said.err
    assert (here / "runs.csv").read_text().count("\n") == 2
    assert run_command(["calibrate", "--log", "one.log"]) == 0  # for people, nothing written
    assert "8 h100" in capsys.readouterr().out


def test_logs_between_nodes_are_kept(here, capsys):
    command = ["calibrate", "--log", "two.log", "--fabric", "efa", "--links", "32x100G"]
    assert run_command([*command, "-o", "kept", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"] == [{"file": "network/multinode.csv", "rows": 12}] and len(told["notes"]) == 1
    first, row = (here / "kept" / "network" / "multinode.csv").read_text().splitlines()[:2]
    assert first == "gpu,nodes,gpus,gpus_per_node,fabric,links,op,nccl,setting,dtype,bytes,time_us"
    assert row.startswith("h100,2,16,8,efa,32x100G,all_gather,,default,float,8192,")
    assert run_command(command) == 2 and "nothing to fit: network/multinode.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "calibrate needs the chip to fit"),
        ("h200 --partial --nodes 2", "--nodes, --partial says something of logs, but there is no --log FILE"),
        ("--log none.log", "no log at none.log"),
        ("--log .", "is a folder, not a log"),
        ("--log one.log --data .", "--log takes neither --data nor --only"),
        ("--log one.log -o fit.toml", "with --log, --output is a folder, but got 'fit.toml'"),
        ("--log one.log --nodes 2", "one.log lines 5-12: its 8 ranks run on one host"),
        ("--log one.log --fabric efa", "its ranks run on one node, but --fabric"),
        ("--log two.log", "2 nodes and does not say what joins them"),
        ("--log one.log --op broadcast", "is of 'broadcast'; what is priced is"),
        ("--log one.log --op all_gather", "busbw / algbw"),
        ("h20o --log one.log", "no chip called 'h20o'"),
        ("--log one.log --log cut.log", "cut.log line 30: the row of size 65536 has"),
        ("--log bytes.log", "bytes.log is not a text log"),
    ],
)
def test_what_is_wrong_is_one_line(here, capsys, words, said):
    text = made_log()
    (here / "cut.log").write_text(text[: text.index(" 65536 ") + 40])
    (here / "bytes.log").write_bytes(b"\x80\x00" + text.encode())
    assert run_command(["calibrate", *words.split()]) == 2
    told = capsys.readouterr()
    assert said in told.err and told.err.count("\n") == 1 and not told.out
