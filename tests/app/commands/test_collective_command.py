"""`strata collective`: the numbers of the Python API, tables of sizes, and one line for each mistake."""

import json
from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.app.cli import run_command
from strata.pricing.network.collectives import PATTERNS

NODE = ("collective", "all_reduce", "--system", "8xh200", "--bytes", "1MB")


def test_a_collective_is_told_with_its_bound_bandwidths_ways_and_energy(answer):
    said = answer(
        "collective",
        "all_reduce",
        "-s",
        "4x8xh200",
        "--bytes",
        "1MB,1GB",
        "--ranks",
        "8,32",
        "--engine",
        "vllm",
    )
    for word in (
        "all_reduce on hgx-h200 (8 nvlink x 4 infiniband), engine vllm",
        "time",
        "lower",
        "bus bw",
        "energy",
        "nvlink 8: ",
        "infiniband 4: ",
    ):
        assert word in said, word
    assert len(said.splitlines()) == 8 and max(map(len, said.splitlines())) <= 140
    assert ", stride 8, engine" in answer(
        "collective", "all_gather", "-s", "4x8xh200", "--bytes", "1MB", "--stride", "8"
    )


@pytest.mark.parametrize("pattern", PATTERNS)
def test_json_has_the_numbers_of_the_python_api(answer, pattern):
    data = answer(
        "collective",
        pattern,
        "--system",
        "4x8xh200",
        "--bytes",
        "1MiB",
        "--ranks",
        "8",
        "--stride",
        "2",
        "--json",
    )
    found = st.network.collective("4x8xh200", pattern, bytes=2**20, ranks=8, stride=2)
    for name, value in {
        "time_s": found.time, "lower_s": found.lower, "algorithm_B_per_s": found.algorithm_bandwidth,
        "bus_B_per_s": found.bus_bandwidth,
        "energy_J": found.energy, "bytes": 2**20, "ranks": 8, "stride": 2,
    }.items():  # fmt: skip
        assert data[name] == pytest.approx(float(value), rel=1e-12), name
    assert [(d["name"], d["ranks"]) for d in data["dimensions"]] == [("nvlink", 4), ("infiniband", 2)]
    assert tuple(d["algorithm"] for d in data["dimensions"]) == found.algorithms


def test_lists_make_rows(answer):
    rows = answer(
        "collective",
        "all-to-all",
        "--system",
        "8xh200",
        "--bytes",
        "64 kB,4096,1e6",
        "--ranks",
        "2,8",
        "--json",
    )
    box = st.network.collective(
        "8xh200", "all_to_all", bytes=[64e3, 4096, 1e6], ranks=np.array([2, 8])[:, None]
    )
    assert [(r["ranks"], r["bytes"]) for r in rows] == [(r, b) for r in (2, 8) for b in (64e3, 4096, 1e6)]
    np.testing.assert_allclose([r["time_s"] for r in rows], np.ravel(box.time), rtol=1e-12)


def test_a_fabric_stands_in_for_a_system(answer):
    on_system = answer("collective", "all_reduce", "-s", "4x8xh200", "--bytes", "1MB", "--json")
    assert (
        answer(
            "collective", "all_reduce", "--fabric", "hgx-h200", "--sizes", "8,4", "--bytes", "1MB", "--json"
        )
        == on_system
    )
    alone = answer("collective", "all_reduce", "--fabric", "hgx-h200", "--bytes", "1MB", "--json")
    known = answer(*NODE, "--json")
    assert alone == known  # trusted as the chips that such a fabric joins
    assert answer("collective", "send", "--fabric", "torus-256", "--bytes", "1MB", "--json")["ranks"] == 256


def test_an_algorithm_by_name(answer):
    asked = (
        "collective",
        "all_reduce",
        "-s",
        "4x8xh200",
        "--bytes",
        "1MB",
        "--links",
        "--json",
        "--algorithm",
    )
    data, mixed = (answer(*asked, name) for name in ("halving_doubling", "one_shot,ring"))
    assert [d["algorithm"] for d in data["dimensions"]] == ["halving-doubling"] * 2 and data["engine"] is None
    assert [d["algorithm"] for d in mixed["dimensions"]] == ["one-shot", "ring"]
    assert "links alone" in answer(*NODE, "--links")


def test_algorithms_side_by_side(answer):
    said = answer("collective", "all_reduce", "-s", "4x8xh200", "--bytes", "1MB,1GB", "--algorithms")
    assert said.count("cheapest") == 2 and "nvlink 8 x infiniband 4" in said  # one algorithm over both levels
    said = answer(
        "collective", "all_reduce", "-s", "4x8xh200", "--bytes", "1MB,1GB", "--algorithms", "--links"
    )
    assert said.count("cheapest") == 4 and "nvlink 8" in said and max(map(len, said.splitlines())) <= 140
    data = answer(*NODE, "--algorithms", "--links", "--json")
    ways = data["dimensions"][0]["algorithms"]
    assert min(ways, key=ways.get) == data["dimensions"][0]["algorithm"] and ways[
        data["dimensions"][0]["algorithm"]
    ] == pytest.approx(data["time_s"])
    assert {"ring", "halving-doubling", "double tree", "one-shot", "scatter and gather"} <= set(
        ways
    ) and list(ways.values()) == sorted(ways.values())
    six = answer(
        "collective",
        "all_reduce",
        "--fabric",
        "hgx-h200",
        "--sizes",
        "6",
        "--bytes",
        "1MB",
        "--algorithms",
        "--links",
        "--json",
    )
    assert (
        "halving-doubling" not in six["dimensions"][0]["algorithms"] and "algorithms" in six["dimensions"][1]
    )


def test_packets_are_those_of_the_python_api(answer):
    rows = answer(
        "collective",
        "all_reduce",
        "--fabric",
        "deepstack-torus-64",
        "--sizes",
        "4,4",
        "--bytes",
        "512,64KiB",
        "--packets",
        "ns3",
        "--json",
    )
    found = st.network.collective(
        st.hardware.sized(st.fabric("deepstack-torus-64"), (4, 4)),
        "all_reduce",
        bytes=[512, 65536],
        packets="ns3",
    )
    assert [r["time_s"] for r in rows] == pytest.approx(list(found.time)) and rows[0]["packets"] == "ns3"
    assert "packets ns3" in answer(
        "collective", "all_reduce", "-s", "8xh200", "--bytes", "1MB", "--packets", "ns3"
    )


def test_collectives_at_once(answer):
    words = (
        "collective",
        "all_gather",
        "-s",
        "4x8xh200",
        "--bytes",
        "1GB",
        "--ranks",
        "8",
        "--with",
        "reduce-scatter:100MB:32",
        "--with",
        "send:1MB:4:8",
    )
    data = answer(*words, "--json")
    asked = [
        {"pattern": "all_gather", "bytes": 1e9, "ranks": 8},
        {"pattern": "reduce_scatter", "bytes": 1e8, "ranks": 32},
    ]
    found = st.network.concurrent_collectives(
        "4x8xh200", [*asked, {"pattern": "send", "bytes": 1e6, "ranks": 4, "stride": 8}]
    )
    assert data["time_s"] == pytest.approx(float(found.time)) and data[
        "one_after_the_other_s"
    ] == pytest.approx(float(found.one_after_the_other))
    assert [c["time_s"] for c in data["collectives"]] == pytest.approx([float(t) for t in found.finish])
    said = answer(*words)
    assert "3 collectives at once on hgx-h200, engine ideal" in said and "one after the other" in said
    rows = answer(
        "collective", "all_gather", "-s", "8xh200", "--bytes", "1MB,1GB", "--with", "all_gather:1MB", "--json"
    )
    assert len(rows) == 2 and rows[0]["time_s"] < rows[1]["time_s"]


BAD = {
    "algorithm": ((*NODE, "--algorithm", "bucket"), ["an algorithm is one of", "ring_ll", "'bucket'"]),
    "power of two": (
        (*NODE, "--links", "--ranks", "6", "--algorithm", "halving_doubling"),
        ["nvlink of 6", "one_shot", "'halving_doubling'"],
    ),
    "packets": ((*NODE, "--packets", "ns4"), ["'ns4'", "ns3"]),
    "with": ((*NODE, "--with", "all_gather"), ["--with is PATTERN:SIZE", "'all_gather'"]),
    "with size": ((*NODE, "--with", "all_gather:x"), ["--with", "'x'"]),
    "with pattern": ((*NODE, "--with", "gather:1MB"), ["no collective called 'gather'"]),
    "with ranks": (
        (*NODE, "--with", "all_gather:1MB:0"),
        ["--with ranks must be a positive whole number", "'0'"],
    ),
    "with packets": (
        (*NODE, "--with", "all_gather:1MB", "--packets", "ns3"),
        ["--with does not go with --packets"],
    ),
    "algorithms": ((*NODE, "--algorithms", "--algorithm", "ring"), ["--algorithms stands alone"]),
    "pattern": (
        ("collective", "gather", *NODE[2:]),
        ["no collective called 'gather'", "nearest: all_gather"],
    ),
    "zero": ((*NODE[:-1], "0"), ["--bytes must be a positive number of bytes", "'0'"]),
    "negative": ((*NODE[:-1], "-1MB"), ["--bytes must be a positive number of bytes", "'-1MB'"]),
    "in a list": ((*NODE[:-1], "1MB,x"), ["--bytes", "'x'"]),
    "not a number": ((*NODE[:-1], "nan"), ["--bytes must be a finite number", "'nan'"]),
    "unit": ((*NODE[:-1], "3 s"), ["--bytes is measured in B", "'3 s'"]),
    "too many": ((*NODE, "--ranks", "16"), ["(8 nvlink x 1 infiniband) has 1 to 8 ranks", "ranks=16"]),
    "one": ((*NODE, "--ranks", "1"), ["needs 2 ranks or more", "ranks=1"]),
    "no rank": ((*NODE, "--ranks", "0"), ["--ranks must be a positive whole number", "'0'"]),
    "stride": ((*NODE, "--stride", "0"), ["--stride must be a positive whole number", "'0'"]),
    "apart": ((*NODE, "--ranks", "8", "--stride", "2"), ["ranks x stride", "8 devices", "ranks=8, stride=2"]),
    "uneven": (
        ("collective", "send", "-s", "4x8xh200", "--bytes", "1", "--ranks", "12"),
        ["evenly", "ranks=12"],
    ),
    "nowhere": (("collective", "send", "--bytes", "1"), ["needs --system or --fabric, and not both"]),
    "both": ((*NODE, "--fabric", "hgx-h200"), ["needs --system or --fabric, and not both"]),
    "sizes of a system": ((*NODE, "--sizes", "8"), ["--sizes belongs to --fabric", "8xh200"]),
    "sizes": (
        ("collective", "send", "--fabric", "hgx-h200", "--sizes", "8,4,2", "--bytes", "1"),
        ["3 numbers", "nvlink, infiniband"],
    ),
    "fabric": (("collective", "send", "--fabric", "hgx-h20", "--bytes", "1"), ["'hgx-h20'", "hgx-h200"]),
    "engine": ((*NODE, "--engine", "vlm"), ["'vlm'", "vllm"]),
    "missing": (NODE[:-2], ["collective needs --bytes", "strata collective --help"]),
    "option": ((*NODE, "--rank", "8"), ["'--rank'", "--ranks"]),
    "rows": ((*NODE[:-1], ",".join(["1"] * 600), "--ranks", "2,4"), ["at most 1000 rows", "1200"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line_that_names_it(strata, case):
    words, said = BAD[case]
    got = strata(*words)
    assert (got.code, got.out) == (2, "") and got.err.startswith("strata: ") and got.err.count("\n") == 1
    for part in said:
        assert part in got.err, got.err


def test_help_has_an_example(strata):
    got = strata("collective", "--help")
    assert (got.code, got.err) == (0, "") and "Example: strata collective" in got.out


@pytest.mark.skipif(not Path("out/ns3/collective").exists(), reason="ns-3 harness not built: make ns3")
def test_the_simulator_runs_the_same_collective(capsys):
    words = [
        "collective",
        "all_reduce",
        "--fabric",
        "deepstack-torus-64",
        "--sizes",
        "4,2",
        "--bytes",
        "8kB,64kB",
        "--packets",
        "ns3",
        "--simulate",
        "--json",
    ]
    assert run_command(words) == 0
    for row in json.loads(capsys.readouterr().out):
        assert row["time_s"] == pytest.approx(row["ns3_s"], rel=0.02)


def test_the_simulator_needs_packets(capsys):
    assert (
        run_command(["collective", "all_reduce", "--system", "8xh200", "--bytes", "8kB", "--simulate"]) == 2
    )
    assert "--packets ns3" in capsys.readouterr().err


def test_a_picture_shows_bus_bandwidth_and_algorithms(answer, tmp_path):
    fabric = ("collective", "all_reduce", "--fabric", "p5-efa", "--sizes", "8,4", "--bytes", "1kB,1GB")
    answer(*fabric, "--svg", str(tmp_path / "a.svg"))
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(word in drawn for word in ("bus bandwidth", "nvls tree", "ring ll128", "cheapest"))
    answer(*NODE, "--ranks", "2,8", "--svg", str(tmp_path / "b.svg"))
    assert "8 ranks" in (tmp_path / "b.svg").read_text(encoding="utf-8")


def test_a_fabric_by_name_is_trusted_as_the_chips_on_such_links(answer):
    said = answer("collective", "all_reduce", "--fabric", "p5-efa", "--sizes", "8,4", "--bytes", "1MB")
    assert "measured runs: nccl on h100" in said
    assert "no run like this was measured" in answer(
        "collective", "all_reduce", "--fabric", "torus-256", "--bytes", "1MB"
    )
