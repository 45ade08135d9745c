"""`strata measure` without a GPU: what is measured, how long, and the files; a made-up GPU stands in for a
real one.
"""

import csv
import importlib
import math
import re

import numpy as np
import pytest

import strata as st
from strata.app.cli import run_command
from strata.base.errors import BadFile, StrataError, UnknownName
from strata.measure import gpu, measure
from strata.measure.measure import (
    REPLAYS,
    Refused,
    Sample,
    calls_of_a_graph,
    chosen_kinds,
    folder_name,
    read_power,
    sets_of_buffers,
    time_kernel,
)
from strata.measure.shapes import (
    COLUMNS,
    KINDS,
    QUICK,
    gemm_case,
    kernel_cases,
    load_cases,
    stream_case,
    tokens_of_experts,
)
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.power_cap import power_capped
from strata.validation import validate
from strata.validation.fit.calibrate import calibrate

SLOWER = 1.4  # a first replay, and a board that is not warm yet


class MadeUp:
    """A GPU whose products take what our equations say of an H200 with other quantities, and whose other
    kernels take 20 µs.
    """

    name, cores, cache = "NVIDIA H200", 132, 50 << 20

    def __init__(self, free=140e9, **changes):
        self.about = {"PyTorch": "none"}
        self.chip = st.chip("h200", **changes)
        self.free, self.recorded, self.replayed, self.used = free, [], 0, set()

    def room(self):
        return self.free

    def kernel(self, case, sets):
        if case.row.get("backend") == "cudnn":
            raise Refused("there is no cuDNN here")
        self.case, self.sets = case, sets
        return self.used.add

    def seconds(self):
        row = self.case.row
        if self.case.kind != "gemm":
            return 20e-6
        price = matmul(
            float(row["m"]),
            float(row["n"]),
            float(row["k"]),
            device(self.chip, resident=False),
            row["dtype"],
            "bf16",
        )
        return float(power_capped(price, self.chip).price.time)

    def record(self, call, count):
        took = self.seconds()
        for i in range(count):
            call(i % self.sets)
        self.recorded.append(count)
        replays = iter(range(10**9))

        def replay():
            self.replayed += 1
            return count * took * (SLOWER if next(replays) == 0 else 1.0)

        return replay

    def watch(self, run, seconds):
        run()
        rising = [Sample(100.0 + i, 1500.0, 3201.0, 60.0, math.nan) for i in range(10)]
        return seconds, 7, rising


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_lists_have_every_kind_and_no_row_twice():
    for kind in KINDS:
        listed = load_cases() if kind == "power" else kernel_cases(kind)
        assert len({c.key for c in listed}) == len(listed), kind
        if kind != "power":
            # 12 to fit, a third held out
            assert len(listed) > len(kernel_cases(kind, quick=True)) >= QUICK[kind] >= 18
            assert set(COLUMNS[kind]) == {*listed[0].row, "median_s", "min_s", "max_s"}
            assert all(c.touched > 0 for c in listed)
    assert [c.key for c in kernel_cases("gemm")] == [c.key for c in kernel_cases("gemm")]


def test_a_quick_list_covers_small_and_large():
    sizes = [float(c.row["m"]) for c in kernel_cases("gemm", quick=True)]
    assert min(sizes) <= 16 and max(sizes) >= 4096
    assert {c.row["phase"] for c in kernel_cases("attention", quick=True)} == {"prefill", "decode"}
    assert {c.row["op"] for c in kernel_cases("stream", quick=True)} == {
        "copy",
        "add",
        "rms_norm",
        "softmax",
        "gelu",
    }


def test_bytes_of_the_lists_are_those_of_the_shipped_files(tmp_path):
    add = stream_case("add", 8192, 4096).row
    assert (add["bytes_read"], add["bytes_written"]) == (134217728, 67108864)  # validation/h200/stream.csv
    assert stream_case("copy", 1, 32768).row["dtype"] == "u8"
    by_name = {load.name: load.work for load in load_cases()}
    # validation/h200/power.csv
    assert by_name["gemm_bf16_4096"] == 137438953472 and by_name["gemv_m1"] == 939524096


@pytest.mark.parametrize("routing", ["uniform", "zipf"])
def test_tokens_of_experts_add_up(routing):
    counts = tokens_of_experts(128, 4096, routing)
    assert len(counts) == 128 and sum(counts) == 4096
    assert (max(counts) > 400) == (routing == "zipf")


def test_buffers_leave_the_cache_before_their_next_turn():
    cache, room = 50e6, 100e9
    for touched in np.geomspace(2e6, 40e9, 40):
        sets = sets_of_buffers(touched, cache, room)
        assert sets * touched <= 0.8 * room
        assert touched >= 16 * cache or (sets - 1) * touched > cache, touched
    # one set would stay in the cache: rather no row than a wrong one
    assert sets_of_buffers(100e6, cache, 130e6) == 0
    assert sets_of_buffers(1e3, cache, room) == 32


def test_graphs_are_long_enough_and_use_each_set_as_often():
    for took in np.geomspace(1e-6, 0.1, 30):
        for sets in (1, 2, 3, 32):
            count = calls_of_a_graph(took, sets)
            assert count % sets == 0 and count <= 16384
            assert count * took >= 0.999 * 12e-3 or count > 16384 - sets


def test_a_reading_is_the_median_of_replays_after_a_warm_up():
    board = MadeUp()
    found = time_kernel(board, gemm_case("square", "bf16", 4096, 4096, 4096))
    board_time = board.seconds()
    # the slow first replay does not count
    assert float(found["median_s"]) == pytest.approx(board_time, rel=1e-3) == float(found["max_s"])
    assert board.replayed > REPLAYS + 2 and board.used == set(range(board.sets))
    assert board.recorded[-1] * board_time >= 12e-3


def test_power_is_the_mean_of_the_settled_part():
    found = read_power(MadeUp(), load_cases()[1], seconds=5.0)
    assert float(found["power_w"]) == pytest.approx(np.mean([104, 105, 106, 107, 108, 109]), abs=0.06)
    assert found["mem_temp"] == "" and found["work_per_call"] == str(2 * 2048**3) and int(found["calls"]) > 7
    assert read_power(MadeUp(), load_cases()[0], seconds=1.0)["calls"] == "0"


def test_it_writes_the_files_and_goes_on_where_it_stopped(tmp_path):
    board, folder = MadeUp(), tmp_path / "h200"
    first = measure.measure(board, folder, kinds=["gemm"], quick=True)
    for _ in range(10):
        next(first)
    first.close()  # as Ctrl-C does
    assert len(rows_of(folder / "gemm.csv")) == 10
    done = list(measure.measure(board, folder, kinds=["gemm"], quick=True))
    assert (
        len(done)
        == len(rows_of(folder / "gemm.csv"))
        == len(kernel_cases("gemm", quick=True))
        == done[-1].total
    )
    assert "NVIDIA H200" in (folder / "README.md").read_text()


def test_what_the_gpu_refuses_is_left_out_with_its_reason(tmp_path):
    done = list(measure.measure(MadeUp(), tmp_path / "h200", kinds=["attention"], quick=True))
    assert {d.why for d in done} == {"", "there is no cuDNN here"}
    assert {row["backend"] for row in rows_of(tmp_path / "h200" / "attention.csv")} == {"flash"}
    small = list(measure.measure(MadeUp(free=1e9), tmp_path / "small", kinds=["gemm"], quick=True))
    assert any(re.search(r"[\d.]+ GB do not fit", d.why) for d in small) and not all(d.why for d in small)


def test_a_file_of_another_shape_is_not_written_to(tmp_path):
    (tmp_path / "gemm.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadFile, match="has other columns than name, dtype"):
        list(measure.measure(MadeUp(), tmp_path, kinds=["gemm"]))
    assert (tmp_path / "gemm.csv").read_text() == "a,b\n1,2\n"


def test_kinds_may_be_listed_and_unknown_ones_are_refused():
    assert chosen_kinds(["stream,gemm"]) == ["gemm", "stream"] and chosen_kinds([]) == list(KINDS)
    with pytest.raises(UnknownName, match="nearest: gemm"):
        chosen_kinds(["gem"])


@pytest.mark.parametrize(
    ("device_name", "cores", "folder"),
    [
        ("NVIDIA H200", 132, "h200"), ("NVIDIA H100 80GB HBM3", 132, "h100"), ("NVIDIA A100-SXM4-80GB", 108, "a100-80"),
        ("NVIDIA GeForce RTX 4090", 128, "rtx-4090"), ("NVIDIA H100 PCIe", 114, "h100-pcie"), ("NVIDIA GB200", 152, "gb200"),
        ("NVIDIA H100 PCIe", 99, "nvidia-h100-pcie"), ("NVIDIA H20", 78, "nvidia-h20"),
    ],
)  # fmt: skip
def test_a_gpu_is_the_shipped_chip_of_its_name_and_cores(device_name, cores, folder):
    assert folder_name(device_name, cores) == folder


def test_measure_then_calibrate_is_two_commands(tmp_path, monkeypatch, capsys):
    truth = {"memory.efficiency": 0.7}
    monkeypatch.setattr(gpu, "torch_gpu", lambda: MadeUp(**truth))
    out = tmp_path / "mine"
    assert run_command(["measure", "--out", str(out), "--only", "gemm,power", "--quick"]) == 0
    said = capsys.readouterr()
    assert "h200/gemm.csv" in said.out and f"next: strata calibrate h200 --data {out}" in said.err
    assert run_command(["calibrate", "h200", "--data", str(out), "--only", "products", "--json"]) == 0
    _, (fitted,) = calibrate("h200", out, only=("products",))
    assert fitted.after <= fitted.before and fitted.values["memory.efficiency"] == pytest.approx(0.7, rel=0.1)
    assert [f["file"] for f in validate(out)["files"]] == ["h200/gemm.csv", "h200/power.csv"]


def test_a_folder_names_the_chip_and_a_chip_of_ones_own_can_be_fitted(tmp_path):
    made = tmp_path / "mygpu.toml"
    made.write_text('base = "h200"\nname = "mygpu"\n')
    list(measure.measure(MadeUp(), tmp_path / "data" / "mygpu", kinds=["gemm"], quick=True))
    assert validate(tmp_path / "data")["unknown"] == ["mygpu/gemm.csv"]  # not a shipped chip
    chip, (fitted,) = calibrate(str(made), tmp_path / "data", only=("products",))
    assert chip.name == "mygpu" and fitted.files == ("mygpu/gemm.csv",)
    list(measure.measure(MadeUp(), tmp_path / "data" / "h100", kinds=["gemm"], quick=True))
    (file,) = validate(tmp_path / "data")["files"]
    assert file["file"] == "h100/gemm.csv" and file["failed"] == 0


def test_without_pytorch_or_a_gpu_it_says_so_in_one_line(tmp_path, monkeypatch, capsys):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(
        StrataError, match="needs PyTorch with CUDA, and this Python has none: pip install torch"
    ):
        gpu.torch_gpu()

    class Blind:
        __version__ = "2.9"

        class cuda:
            @staticmethod
            def is_available():
                return False

    monkeypatch.setattr(importlib, "import_module", lambda name: Blind)
    assert run_command(["measure", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "needs a CUDA GPU, and PyTorch 2.9 sees none" in said
