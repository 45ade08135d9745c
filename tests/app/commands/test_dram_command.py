"""`strata dram`: tables, JSON that adds up, the picture, and input that is wrong."""

import pytest

from strata.hardware.dram.channel import Stream, dram_channel, interface_peak, sustained_channel
from strata.params import names


@pytest.mark.parametrize("name", names("memory"))
def test_each_memory_prints_runs_up_to_its_row(answer, name):
    made, got = dram_channel(name), answer("dram", name, "--json")
    assert [row["run_B"] for row in got["runs"]] == [made.burst * 2.0**i for i in range(len(got["runs"]))]
    assert got["runs"][-1]["run_B"] == made.row and got["peak_B_per_s"] == pytest.approx(interface_peak(made))
    for row in got["runs"]:
        assert row["bandwidth_B_per_s"] <= min(row["bounds_B_per_s"].values()) * (1 + 1e-9)
        assert row["bounds_B_per_s"][row["binds"]] == min(row["bounds_B_per_s"].values())


def test_options_reach_the_stream(answer):
    given = (
        "--run",
        "48,1KiB",
        "--read-share",
        "0.5",
        "--banks",
        "4",
        "--outstanding",
        "2KiB",
        "--latency",
        "300ns",
        "--hot",
        "--set",
        "timing.faw=24 ns",
    )
    got = answer("dram", "hbm3", *given, "--json")["runs"]
    made = dram_channel("hbm3", **{"timing.faw": 24e-9})
    for row, run in zip(got, (48.0, 1024.0), strict=True):
        stream = Stream(run=run, read_share=0.5, banks=4.0, outstanding=2048.0, latency=300e-9)
        assert row["bandwidth_B_per_s"] == pytest.approx(
            float(sustained_channel(made, stream, 1.0).bandwidth)
        )
    text = answer("dram", "hbm3", *given)
    assert "buffer" in text and "48 B" in text and "50% of the visits read" in text


def test_the_picture_has_a_line_for_every_memory(answer, tmp_path):
    pytest.importorskip("matplotlib")
    answer("dram", "hbm3", "--svg", tmp_path / "new" / "runs.svg")
    text = (tmp_path / "new" / "runs.svg").read_text()
    assert all(f">{name}<" in text for name in names("memory"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("hmb3",), "no memory called 'hmb3'; nearest: hbm3"),
        (("hbm3", "--read-share", "1.5"), "--read-share must be a number from 0 to 1, but got '1.5'"),
        (("hbm3", "--run", "0"), "--run must be a positive number of bytes, but got '0'"),
        (("hbm3", "--run", "64 ns"), "64 ns"),
        (("hbm3", "--banks", "2.5"), "--banks"),
        (("hbm3", "--banks", "0"), "--banks must be a positive whole number"),
        (("hbm3", "--outstanding", "0B"), "outstanding must be positive"),
        (("hbm3", "--set", "timing.rc"), "--set takes PATH=VALUE"),
        (("hbm3", "--set", "timing.rc=20 ns"), "timing.rc must be at least ras + rp"),
        (("hbm3", "--set", "timing.rfd=20 ns"), "rfd"),
    ],
)
def test_wrong_input_is_one_line(strata, given, said):
    got = strata("dram", *given)
    assert got.code == 2 and said in got.err and "\n" not in got.err.strip()
