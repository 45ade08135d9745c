"""`strata measure --what collectives`: what is timed and written by a made-up group, and by two real processes on
gloo where PyTorch is installed.
"""

import csv
import importlib.util
import json
import os
import socket
import subprocess
import sys

import pytest

from strata.app.cli import run_command
from strata.base.errors import BadValue, StrataError
from strata.measure import collectives
from strata.measure.collectives import (
    COLLECTIVES,
    READINGS,
    CollectiveCall,
    GroupFacts,
    chosen_ops,
    collective_sizes,
    measure_collectives,
    torch_group,
)
from strata.measure.measure import Refused
from strata.validation.readers.collective_files import COLLECTIVE_COLUMNS, runs_of_csv


class MadeUpGroup:
    """Ranks whose collectives take a start and a rate."""

    def __init__(self, ranks=16, nodes=2, rank=0, refuses=()):
        self.facts = GroupFacts(rank=rank, ranks=ranks, nodes=nodes, gpu="h100", library="2.27.3")
        self.refuses, self.asked, self.closed = refuses, [], False

    def call(self, op, dtype, elements):
        if op in self.refuses:
            raise Refused("this backend has none")
        assert elements % self.facts.ranks == 0
        return CollectiveCall(lambda: elements)

    def seconds(self, call, count):
        self.asked.append(count)
        return 20e-6 + call.run() * 2 / 100e9

    def close(self):
        self.closed = True


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_sizes_as_they_are_typed():
    assert (
        collective_sizes()[0] == 1 << 10
        and collective_sizes()[-1] == 1 << 30
        and len(collective_sizes()) == 21
    )
    assert collective_sizes(quick=True)[-1] == 1 << 26 and len(collective_sizes(quick=True)) == 17
    assert collective_sizes("1k:5K") == [1024, 2048, 4096] and collective_sizes("3,1G") == [3, 1 << 30]
    for bad in ("", " ", "0", "-1", "1.5M", "1X", "8:4", "1:2:3", "1K,", "9" * 30, "²", "1M:"):
        if bad:
            with pytest.raises(BadValue, match="--sizes"):
                collective_sizes(bad)


def test_ops_as_they_are_typed():
    assert chosen_ops([]) == list(COLLECTIVES) and chosen_ops(["alltoall,all_reduce"]) == [
        "all_to_all",
        "all_reduce",
    ]
    with pytest.raises(StrataError, match="--op is of 'broadcast'; what is priced is all_reduce"):
        chosen_ops(["broadcast"])


def test_rows_between_nodes_are_those_that_calibrate_takes(tmp_path):
    group = MadeUpGroup()
    told = {"fabric": "infiniband", "links": "8x400G", "sizes": collective_sizes("8:1M")}
    done = list(measure_collectives(group, tmp_path, **told))
    assert done[-1].place == done[-1].total == 4 * 18
    rows = rows_of(tmp_path / "network" / "multinode.csv")
    assert tuple(rows[0]) == COLLECTIVE_COLUMNS["network/multinode.csv"]
    # 8 and 16 bytes are less than one element a rank
    assert [d.why for d in done[:3]] == ["fewer elements than ranks"] * 2 + [""] and len(rows) == 4 * 16
    assert {r["op"] for r in rows} == set(COLLECTIVES) and rows[0]["bytes"] == "32"
    assert (rows[0]["nodes"], rows[0]["gpus"], rows[0]["gpus_per_node"], rows[0]["nccl"]) == (
        "2",
        "16",
        "8",
        "2.27.3",
    )
    assert float(rows[0]["time_us"]) == pytest.approx(20.0, rel=1e-3)
    assert max(group.asked) <= 400 and len(group.asked) == 4 * 16 * (1 + READINGS)
    # measured again: one collective's rows are replaced, the others stay
    list(measure_collectives(group, tmp_path, ops=["all_reduce"], **{**told, "sizes": [1 << 20]}))
    again = rows_of(tmp_path / "network" / "multinode.csv")
    assert len(again) == 3 * 16 + 1 and sum(r["op"] == "all_reduce" for r in again) == 1
    list(
        measure_collectives(
            group, tmp_path, ops=["all_reduce"], dtype="float", **{**told, "sizes": [1 << 20]}
        )
    )
    assert len(rows_of(tmp_path / "network" / "multinode.csv")) == 3 * 16 + 2


def test_one_machine_is_the_other_file_and_only_rank_0_writes(tmp_path):
    told = {"ops": ["all_to_all"], "sizes": [1 << 20, 1 << 21]}
    list(measure_collectives(MadeUpGroup(ranks=8, nodes=1, rank=3), tmp_path, **told))
    assert not list(tmp_path.iterdir())
    list(measure_collectives(MadeUpGroup(ranks=8, nodes=1), tmp_path, **told))
    (run,) = runs_of_csv(tmp_path / "ops" / "nccl.csv")
    assert (run.op, run.nodes, run.gpus, len(run.rows)) == ("all_to_all", 1, 8, 2)


def test_what_a_backend_does_not_run_is_left_out_with_its_reason(tmp_path):
    group = MadeUpGroup(ranks=8, nodes=1, refuses=("reduce_scatter",))
    done = list(measure_collectives(group, tmp_path, sizes=[1 << 20]))
    assert [d.why for d in done] == ["", "", "this backend has none", ""]
    assert {r["op_name"] for r in rows_of(tmp_path / "ops" / "nccl.csv")} == {
        "all_reduce",
        "all_gather",
        "alltoall",
    }


@pytest.mark.parametrize(
    ("group", "told", "said"),
    [
        ({"ranks": 1, "nodes": 1}, {}, "two ranks or more"),
        ({}, {}, "2 machines: give what joins them"),
        ({"nodes": 1}, {"fabric": "efa"}, "on one machine, but --fabric"),
        ({"ranks": 9}, {"fabric": "efa"}, "do not lie evenly"),
        ({"nodes": 1}, {"dtype": "int4"}, "--dtype is one of float, half, bfloat16"),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path, group, told, said):
    with pytest.raises(BadValue, match=said):
        list(measure_collectives(MadeUpGroup(**group), tmp_path, sizes=[1 << 20], **told))


def test_the_command(tmp_path, monkeypatch, capsys):
    out = tmp_path / "mine"
    command = ["measure", "--what", "collectives", "--out", str(out)]
    monkeypatch.delenv("RANK", raising=False)
    assert run_command(command) == 2
    assert (
        "torchrun --nproc-per-node 8 --no-python strata measure --what collectives" in capsys.readouterr().err
    )
    monkeypatch.setenv("RANK", "0")
    group = MadeUpGroup(ranks=8, nodes=1)
    monkeypatch.setattr(collectives, "torch_group", lambda: group)
    assert run_command([*command, "--op", "all_reduce", "--json"]) == 0 and group.closed
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert (told["devices"], len(told["collectives"]), told["units"]["time_s"]) == (8, 21, "s")
    assert f"next: strata calibrate --log {out / 'ops' / 'nccl.csv'}" in said.err
    assert run_command(["calibrate", "--log", str(out / "ops" / "nccl.csv"), "--json"]) == 0
    (fitted,) = json.loads(capsys.readouterr().out)["transports"]
    assert (
        fitted["transport"] == "nvlink4" and fitted["families"][0]["after"] < fitted["families"][0]["before"]
    )
    for more, line in (
        (["--only", "gemm"], "by themselves, under torchrun"),
        (["--sizes", "x"], "--sizes are whole numbers"),
        (["--fabric", "efa"], "on one machine"),
    ):
        assert run_command([*command, *more]) == 2 and line in capsys.readouterr().err
    monkeypatch.setenv("RANK", "3")  # said once, by rank 0
    group = MadeUpGroup(ranks=8, nodes=1, rank=3)
    assert run_command([*command, "--fabric", "efa"]) == 2 and capsys.readouterr().err == ""
    assert run_command(["measure", "--out", str(out), "--sizes", "1M"]) == 2
    assert "--sizes says something of collectives: --what collectives" in capsys.readouterr().err


def test_without_pytorch_it_says_so(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(StrataError, match="needs PyTorch, and this Python has none"):
        torch_group()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_two_processes_on_gloo(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [
        sys.executable, "-c", "from strata.app.cli import main; main()", "measure", "--what", "collectives",
        "--out", str(tmp_path / "mine"), "--quick", "--sizes", "1K,16K", "--dtype", "float", "--json",
    ]  # fmt: skip
    env = {**os.environ, **common, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = [
        subprocess.Popen(
            command,
            env={**env, "RANK": str(r), "LOCAL_RANK": str(r)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for r in range(2)
    ]
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    told = json.loads(said[0][0])
    assert not said[1][0] and (told["gpu"], told["devices"], told["nodes"], told["library"]) == (
        "cpu",
        2,
        1,
        "gloo",
    )
    rows = rows_of(tmp_path / "mine" / "ops" / "nccl.csv")
    measured = [one for one in told["collectives"] if not one["why"]]
    assert len(rows) == len(measured) and {"all_reduce", "all_gather"} <= {r["op_name"] for r in rows}
    assert all(float(row["latency_ms"]) > 0 for row in rows)
