"""`strata collective`: the numbers of the Python API, tables of sizes, and one line for each mistake."""

import numpy as np
import pytest

import strata as st
from strata.pricing.collectives import PATTERNS

NODE = ("collective", "all_reduce", "--system", "8xh200", "--bytes", "1MB")


def test_a_collective_is_told_with_its_bound_bandwidths_ways_and_energy(answer):
    said = answer("collective", "all_reduce", "-s", "4x8xh200", "--bytes", "1MB,1GB", "--ranks", "8,32", "--engine", "vllm")
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
    assert len(said.splitlines()) == 7 and max(map(len, said.splitlines())) <= 140
    assert ", stride 8, engine" in answer("collective", "all_gather", "-s", "4x8xh200", "--bytes", "1MB", "--stride", "8")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_json_has_the_numbers_of_the_python_api(answer, pattern):
    data = answer("collective", pattern, "--system", "4x8xh200", "--bytes", "1MiB", "--ranks", "8", "--stride", "2", "--json")
    found = st.collective("4x8xh200", pattern, bytes=2**20, ranks=8, stride=2)
    for name, value in {
        "time_s": found.time, "lower_s": found.lower, "algorithm_B_per_s": found.algorithm_bandwidth, "bus_B_per_s": found.bus_bandwidth,
        "energy_J": found.energy, "bytes": 2**20, "ranks": 8, "stride": 2,
    }.items():  # fmt: skip
        assert data[name] == pytest.approx(float(value), rel=1e-12), name
    assert [(d["name"], d["ranks"]) for d in data["dimensions"]] == [("nvlink", 4), ("infiniband", 2)]
    assert tuple(d["algorithm"] for d in data["dimensions"]) == found.algorithms


def test_lists_make_rows(answer):
    rows = answer("collective", "all-to-all", "--system", "8xh200", "--bytes", "64 kB,4096,1e6", "--ranks", "2,8", "--json")
    box = st.collective("8xh200", "all_to_all", bytes=[64e3, 4096, 1e6], ranks=np.array([2, 8])[:, None])
    assert [(r["ranks"], r["bytes"]) for r in rows] == [(r, b) for r in (2, 8) for b in (64e3, 4096, 1e6)]
    np.testing.assert_allclose([r["time_s"] for r in rows], np.ravel(box.time), rtol=1e-12)


def test_a_fabric_stands_in_for_a_system(answer):
    on_system = answer("collective", "all_reduce", "-s", "4x8xh200", "--bytes", "1MB", "--json")
    assert answer("collective", "all_reduce", "--fabric", "hgx-h200", "--sizes", "8,4", "--bytes", "1MB", "--json") == on_system
    assert answer("collective", "all_reduce", "--fabric", "hgx-h200", "--bytes", "1MB", "--json") == answer(*NODE, "--json")
    assert answer("collective", "send", "--fabric", "torus-256", "--bytes", "1MB", "--json")["ranks"] == 256


BAD = {
    "pattern": (("collective", "gather", *NODE[2:]), ["no collective called 'gather'", "nearest: all_gather"]),
    "zero": ((*NODE[:-1], "0"), ["--bytes must be a positive number of bytes", "'0'"]),
    "negative": ((*NODE[:-1], "-1MB"), ["--bytes must be a positive number of bytes", "'-1MB'"]),
    "in a list": ((*NODE[:-1], "1MB,x"), ["--bytes", "'x'"]),
    "not a number": ((*NODE[:-1], "nan"), ["--bytes must be a positive number", "'nan'"]),
    "unit": ((*NODE[:-1], "3 s"), ["--bytes is measured in B", "'3 s'"]),
    "too many": ((*NODE, "--ranks", "16"), ["(8 nvlink x 1 infiniband) has 1 to 8 ranks", "ranks=16"]),
    "one": ((*NODE, "--ranks", "1"), ["needs 2 ranks or more", "ranks=1"]),
    "no rank": ((*NODE, "--ranks", "0"), ["--ranks must be a positive whole number", "'0'"]),
    "stride": ((*NODE, "--stride", "0"), ["--stride must be a positive whole number", "'0'"]),
    "apart": ((*NODE, "--ranks", "8", "--stride", "2"), ["ranks x stride", "8 devices", "ranks=8, stride=2"]),
    "uneven": (("collective", "send", "-s", "4x8xh200", "--bytes", "1", "--ranks", "12"), ["evenly", "ranks=12"]),
    "nowhere": (("collective", "send", "--bytes", "1"), ["needs --system or --fabric, and not both"]),
    "both": ((*NODE, "--fabric", "hgx-h200"), ["needs --system or --fabric, and not both"]),
    "sizes of a system": ((*NODE, "--sizes", "8"), ["--sizes belongs to --fabric", "8xh200"]),
    "sizes": (("collective", "send", "--fabric", "hgx-h200", "--sizes", "8,4,2", "--bytes", "1"), ["3 numbers", "nvlink, infiniband"]),
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
