"""`strata kernel`: the numbers of the Python API, tables of sizes, and one line for each mistake."""

import numpy as np
import pytest

import strata as st

GEMM = ("kernel", "gemm", "--chip", "h200", "--m", "4096", "--n", "4096", "--k", "4096")
ATTENTION = ("kernel", "attention", "--chip", "h200", "--context", "8192", "--heads", "32")
LINES = (
    "grouped --chip h200 --tokens 512 --experts 16 --n 1024 --k 2048 --top-k 2",
    "stream --chip h200 --rows 8192 --columns 4096 --op softmax",
    "lu --chip h200 --order 2048",
    "fft --chip h200 --points 4096 --lines 1000",
    "scan --chip h200 --length 4096 --inner 1000",
    "sort --chip h200 --length 1000000",
    "embedding_bag --chip h200 --bags 4096 --per-bag 20 --width 128",
    "experts --chip h200 --tokens 512 --experts 16 --hidden 2048 --inner 1024",
    "recurrent --chip h200 --hidden 1024 --batch 64 --steps 25 --call 1e-4",
    "adam --chip h200 --parameters 1000000",
    "ag_gemm --chip h200 --ranks 8 --m 8192 --n 4096 --k 8192",
)
COMMANDS = {line.split()[0]: ("kernel", *line.split()) for line in LINES}
COMMANDS |= {"gemm": GEMM, "attention": (*ATTENTION, "--kv-heads", "8", "--sequences", "16")}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_kernel_is_told_with_its_bounds_bytes_clock_and_power(answer, kind):
    said = answer(*COMMANDS[kind])
    for word in (kind, "time", "bounds", "bound by", "DRAM", "cache", "clock", "power", "limit 700 W"):
        assert word in said, word
    assert max(map(len, said.splitlines())) <= 140


@pytest.mark.parametrize("kind", COMMANDS)
def test_json_has_the_numbers_of_the_python_api(answer, kind):
    data = answer(*COMMANDS[kind], "--json")
    options = {"op": data["op"]} if "op" in data else {}
    found = st.kernel("h200", kind, **data["sizes"], **options, precision=data["precision"])
    assert (
        data["time_s"] == pytest.approx(float(found.time), rel=1e-12) and data["bound_by"] == found.bound_by
    )
    assert data["power_W"] == pytest.approx(float(found.power)) and data["clock_Hz"] == pytest.approx(
        float(found.clock)
    )
    assert data["lower_s"] <= data["time_s"] <= data["upper_s"] and sum(
        data["resources_s"].values()
    ) == pytest.approx(data["time_s"])


def test_lists_of_sizes_make_a_table(answer):
    words = ("kernel", "gemm", "--chip", "h200", "--m", "1,64", "--n", "1024,8192", "--k", "4096")
    rows = answer(*words, "--json")
    box = st.kernel("h200", "gemm", m=np.array([1, 64])[:, None], n=[1024, 8192], k=4096)
    assert [(r["sizes"]["m"], r["sizes"]["n"]) for r in rows] == [
        (1, 1024),
        (1, 8192),
        (64, 1024),
        (64, 8192),
    ]
    np.testing.assert_allclose([r["time_s"] for r in rows], np.ravel(box.time), rtol=1e-12)
    assert len(answer(*words).splitlines()) == 8  # what like cases measured comes last


def test_options_reach_the_kernel(answer):
    plain = answer(*GEMM, "--json")
    assert answer(*GEMM, "--once", "--json")["clock_Hz"] == plain["max_clock_Hz"]
    small = (*GEMM[:4], "--m", "64", *GEMM[6:], "--json")
    assert answer(*small, "--resident")["memory_B"] < answer(*small)["memory_B"]
    started = answer(*GEMM, "--start", "24 us", "--json")
    assert started["time_s"] == pytest.approx(plain["time_s"] + 24e-6)
    assert answer(*GEMM, "--clock", "1 GHz", "--json")["clock_Hz"] == 1e9
    assert answer(*GEMM, "--precision", "fp8", "--json")["memory_B"] == 4096**2 * 4
    assert answer(*GEMM, "--set", "memory.bandwidth=9.6 TB/s", "--json")["lower_s"] <= plain["lower_s"]
    causal, full = (
        answer(*ATTENTION, "--queries", "8192", *more, "--json")["flop"] for more in ((), ("--full",))
    )
    assert full / causal == pytest.approx(2, rel=0.001)


ONES = ",".join(["1"] * 40)
BAD = {
    "zero": ((*GEMM[:4], "--m", "0", *GEMM[6:]), ["--m must be a positive whole number", "'0'"]),
    "negative": ((*GEMM[:4], "--m", "-3", *GEMM[6:]), ["--m", "-3"]),
    "in a list": ((*GEMM[:4], "--m", "4,x", *GEMM[6:]), ["--m must be a positive whole number", "'x'"]),
    "precision": ((*GEMM, "--precision", "fp9"), ["'fp9'", "fp8", "mxfp4"]),
    "no such rate": ((*GEMM, "--precision", "fp4"), ["chip h200 has no fp4 matrix rate", "bf16, fp8"]),
    "chip": (("kernel", "gemm", "--chip", "h20o", *GEMM[4:]), ["'h20o'", "h200", "strata list chips"]),
    "missing": (
        ("kernel", "gemm", "--chip", "h200", "--m", "4"),
        ["kernel gemm needs --n", "strata kernel gemm --help"],
    ),
    "kernel": (("kernel", "gem"), ["'gem'", "nearest: gemm", "strata kernel --help"]),
    "option": ((*GEMM, "--precison", "fp8"), ["'--precison'", "--precision"]),
    "set": ((*GEMM, "--set", "bandwidth"), ["--set takes PATH=VALUE", "'bandwidth'"]),
    "set of nothing": ((*GEMM, "--set", "memory.bandwith=3"), ["'memory.bandwith'", "memory.bandwidth"]),
    "rows": (
        ("kernel", "gemm", "--chip", "h200", "--m", ONES, "--n", ONES, "--k", "1"),
        ["at most 1000 rows", "1600"],
    ),
    "heads": (
        (*ATTENTION, "--kv-heads", "5"),
        ["heads must be a multiple of kv_heads", "heads=32, kv_heads=5"],
    ),
    "context": ((*ATTENTION, "--queries", "9000"), ["context=8192, queries=9000"]),
    "op": ((*COMMANDS["stream"][:-1], "softmx"), ["'softmx'", "softmax"]),
    "time": ((*GEMM, "--start", "fast"), ["--start", "'fast'"]),
    "skew": ((*COMMANDS["grouped"], "--skew", "x"), ["--skew", "'x'"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line_that_names_it(strata, case):
    words, said = BAD[case]
    got = strata(*words)
    assert (got.code, got.out) == (2, "") and got.err.startswith("strata: ") and got.err.count("\n") == 1
    for part in said:
        assert part in got.err, got.err


@pytest.mark.parametrize(
    "words", [("kernel",), ("kernel", "--help"), *(("kernel", kind, "--help") for kind in COMMANDS)]
)
def test_help_has_an_example(strata, words):
    got = strata(*words)
    assert (got.code, got.err) == (0, "") and "Example: strata kernel" in got.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--clock", "9 THz"), "a locked clock must be above 0 and at most the 1.98e+09 Hz of h200"),
        (("--start=-1 s",), "start of a kernel must be at least 0 s"),
        (("--operands", "3"), "gemm operands must be a number of at least 1, at most 2, but got 3"),
    ],
)
def test_times_and_ranges_are_checked(strata, words, said):
    got = strata(*GEMM, *words)
    assert got.code == 2 and said in got.err and got.err.count("\n") == 1


def test_a_chip_without_work_idles(answer):
    idle = answer("kernel", "idle", "--chip", "h200", "--json")
    assert idle["time_s"] == 0 and 0 < idle["power_W"] < 200 and idle["flop_per_s"] == 0
