"""The GPU behind `strata measure`: PyTorch kernels and CUDA graphs (HIP's, on AMD); and what its board says
of itself by nvidia-smi, amd-smi and rocm-smi, as samples of power, clocks and temperatures.

PyTorch is no dependency of Strata and is imported here alone, when a GPU is asked for. What a tool prints is
read by pure functions; what a board does not say is nan.
"""

from __future__ import annotations

import datetime
import importlib
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import fmean
from typing import Any

from strata.base.errors import StrataError
from strata.measure.measure import Refused, Sample
from strata.measure.shapes import KernelCase, tokens_of_experts

Call = Callable[[int], object]
Kernel = Callable[[], object]  # on one set of buffers
# bytes, where PyTorch does not tell the cache: more than any GPU's, so that data is cold
UNKNOWN_CACHE = 128 << 20
NVIDIA_FIELDS = "power.draw,clocks.sm,clocks.mem,temperature.gpu,temperature.memory"
SAMPLE_EVERY = 100  # ms, of nvidia-smi's own loop
POLLED_EVERY = 0.05  # s between two calls of a tool without a loop; a call itself takes longer
PATIENCE = 20.0  # s that one call may take
# Paths of a board's numbers, as AMD's tools call them; of those of one form the mean counts.
AMD_SMI = {
    "power_w": (r"power\.socket_power$", r"power\.current_socket_power$", r"power\.average_socket_power$"),
    "sm_mhz": (r"clock\.gfx(_\d+)?\.clk$",),
    "mem_mhz": (r"clock\.mem(_\d+)?\.clk$",),
    "temp_c": (r"temperature\.hotspot$",),
    "mem_temp": (r"temperature\.mem$",),
}
ROCM_SMI = {
    "power_w": ("current socket graphics package power", "average graphics package power"),
    "sm_mhz": ("sclk clock speed",),
    "mem_mhz": ("mclk clock speed",),
    "temp_c": (".*sensor junction",),
    "mem_temp": (".*sensor mem",),
}


def board_sample(line: str) -> Sample:
    """A line of nvidia-smi (`NVIDIA_FIELDS`, without units).

    >>> board_sample("652.1, 1500, 3201, 64, [N/A]")
    Sample(power_w=652.1, sm_mhz=1500.0, mem_mhz=3201.0, temp_c=64.0, mem_temp=nan)
    """
    return Sample(*(_number(cell) for cell in line.split(",")))


def nvidia_samples(text: str) -> list[Sample]:
    """The samples of nvidia-smi's loop; a line that was cut off is left out."""
    return [board_sample(line) for line in text.splitlines() if line.count(",") == NVIDIA_FIELDS.count(",")]


def amd_smi_samples(text: str) -> list[Sample]:
    """One sample for each GPU of `amd-smi metric --json`: socket power, mean clock of the compute dies that
    say it, memory clock, hotspot and memory temperature.

    >>> told = '[{"gpu": 0, "power": {"socket_power": {"value": 141, "unit": "W"}}, "clock": {"gfx_0": '
    >>> told += '{"clk": {"value": 2100, "unit": "MHz"}}, "gfx_1": "N/A"}, "temperature": "N/A"}]'
    >>> amd_smi_samples(told)
    [Sample(power_w=141.0, sm_mhz=2100.0, mem_mhz=nan, temp_c=nan, mem_temp=nan)]
    """
    printed = _json(text)
    boards = printed.get("gpu_data", []) if isinstance(printed, dict) else printed
    return [
        _sample(board, AMD_SMI)
        for board in (boards if isinstance(boards, list) else [])
        if isinstance(board, dict)
    ]


def rocm_smi_samples(text: str) -> list[Sample]:
    """One sample for each card of `rocm-smi --showpower --showclocks --showtemp --json`.

    >>> told = '{"card0": {"Average Graphics Package Power (W)": "35.0", "sclk clock speed:": "(132Mhz)", '
    >>> told += '"Temperature (Sensor junction) (C)": "41.0", "Temperature (Sensor memory) (C)": "33.0"}}'
    >>> rocm_smi_samples(told)
    [Sample(power_w=35.0, sm_mhz=132.0, mem_mhz=nan, temp_c=41.0, mem_temp=33.0)]
    """
    printed = _json(text)
    cards = printed.items() if isinstance(printed, dict) else ()
    return [
        _sample(card, ROCM_SMI) for name, card in cards if name.startswith("card") and isinstance(card, dict)
    ]


def _sample(board: Mapping[str, Any], forms: Mapping[str, Sequence[str]]) -> Sample:
    """What a board says by the paths of its numbers: of each quantity by the first form that says one."""
    numbers = [(path, number) for path, number in _numbers(board) if not math.isnan(number)]
    known = {
        name: [[n for path, n in numbers if re.match(form, path, re.I)] for form in listed]
        for name, listed in forms.items()
    }
    return Sample(**{name: next(map(fmean, filter(None, every)), math.nan) for name, every in known.items()})


def _numbers(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """Numbers of tables within tables, each with its path; one with its unit beside it is one."""
    for name, told in table.items():
        if isinstance(told, dict) and "value" not in told:
            yield from _numbers(told, f"{above}{name}.")
        else:
            yield f"{above}{name}", _number(told["value"] if isinstance(told, dict) else told)


def _json(text: str) -> Any:
    """What a tool printed as JSON, warnings before it left out; nothing where it is cut off."""
    at = min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=0)
    try:
        return json.loads(text[at:])
    except (ValueError, RecursionError):
        return None


def _number(cell: Any) -> float:
    """The number of a cell, a unit and brackets around it left out."""
    found = re.fullmatch(r"\s*\(?(-?\d+(?:\.\d+)?)\s*[A-Za-z°]*\)?\s*", str(cell))
    return float(found[1]) if found else math.nan


# ------------------------------------------------------------------------------------------- tools


# Tools that are asked again and again about a board, and how their answers are read.
AMD_TOOLS: dict[str, Callable[[str], list[Sample]]] = {
    "amd-smi metric -g {board} --power --clock --temperature --json": amd_smi_samples,
    "rocm-smi -d {board} --showpower --showclocks --showtemp --json": rocm_smi_samples,
}


def first_visible(environment: Mapping[str, str]) -> int:
    """The board behind PyTorch's first AMD device, as its tools count them.

    >>> first_visible({"HIP_VISIBLE_DEVICES": "3,4"}), first_visible({})
    (3, 0)
    """
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if (first := environment.get(name, "").split(",")[0].strip()).isdigit():
            return int(first)
    return 0


@contextmanager
def nvidia_watch(board: str) -> Iterator[list[Sample]]:
    """Samples of a board by nvidia-smi's own loop; the list is full when the block has ended."""
    samples: list[Sample] = []
    command = ["nvidia-smi", f"--id={board}", f"--query-gpu={NVIDIA_FIELDS}"]
    command += ["--format=csv,noheader,nounits", f"--loop-ms={SAMPLE_EVERY}"]
    with tempfile.TemporaryFile("w+") as told:
        try:
            sampler = subprocess.Popen(command, stdout=told, stderr=subprocess.DEVNULL)
        except OSError:
            raise Refused("the board told no power: nvidia-smi is not installed") from None
        try:
            yield samples
        finally:
            sampler.terminate()
            sampler.wait()
            told.seek(0)
            samples += nvidia_samples(told.read())


@contextmanager
def amd_watch(index: int) -> Iterator[list[Sample]]:
    """Samples of a board by the first of AMD's tools that is installed, asked again beside the load."""
    tool = next((command for command in AMD_TOOLS if shutil.which(command.split()[0])), "")
    if not tool:
        raise Refused("the board told no power: neither amd-smi nor rocm-smi is installed")
    samples: list[Sample] = []
    done = threading.Event()
    asked = (tool.format(board=index).split(), AMD_TOOLS[tool], samples, done)
    asker = threading.Thread(target=_ask_until, args=asked, daemon=True)
    asker.start()
    try:
        yield samples
    finally:
        done.set()
        asker.join(PATIENCE)


def _ask_until(
    command: list[str], read: Callable[[str], list[Sample]], samples: list[Sample], done: threading.Event
) -> None:
    while not done.is_set():
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.SubprocessError):
            return
        samples += read(answer.stdout)[:1]
        done.wait(POLLED_EVERY)


class TorchGpu:
    """The first CUDA device PyTorch sees."""

    def __init__(self, torch: Any):
        self.torch = torch
        facts = torch.cuda.get_device_properties(0)
        self.name: str = facts.name
        self.cores: int = facts.multi_processor_count
        self.cache: int = getattr(facts, "L2_cache_size", 0) or UNKNOWN_CACHE
        self.uuid = f"GPU-{facts.uuid}" if getattr(facts, "uuid", None) else "0"
        self.amd = bool(getattr(torch.version, "hip", None))
        # the fp8 that the matrix units of this GPU take: CDNA 3 has no negative zero in it
        own = "gfx94" in getattr(facts, "gcnArchName", "")
        self.fp8 = torch.float8_e4m3fnuz if own else torch.float8_e4m3fn
        self.about = {
            "date": datetime.date.today().isoformat(),
            "memory": f"{facts.total_memory / 1e9:.0f} GB",
            "cache": f"{self.cache / 1e6:.0f} MB",
            "PyTorch": f"{torch.__version__}, "
            + (f"ROCm {torch.version.hip}" if self.amd else f"CUDA {torch.version.cuda}"),
            "driver and power limit": "not told" if self.amd else self._ask("driver_version,power.limit"),
        }

    def _ask(self, fields: str) -> str:
        try:
            command = ["nvidia-smi", f"--id={self.uuid}", f"--query-gpu={fields}", "--format=csv,noheader"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
            return done.stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return "not told"

    def room(self) -> float:
        self.torch.cuda.empty_cache()
        return float(self.torch.cuda.mem_get_info()[0])

    def kernel(self, case: KernelCase, sets: int) -> Call:
        makers = {
            "gemm": self._product,
            "stream": self._stream,
            "attention": self._attention,
            "grouped_gemm": self._grouped,
        }
        try:
            calls = [makers[case.kind](case.row) for _ in range(sets)]
            calls[0]()  # what this GPU does not run fails here, before a graph is begun
            self.torch.cuda.synchronize()
        except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
            raise Refused(
                f"PyTorch {self.torch.__version__} does not run it here: {str(error).splitlines()[0]}"
            ) from None
        return lambda i: calls[i % sets]()

    def record(self, call: Call, count: int) -> Callable[[], float]:
        torch = self.torch
        try:
            beside = torch.cuda.Stream()
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                call(0)  # libraries take their workspaces before the capture
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for i in range(count):
                    call(i)
        except RuntimeError as error:  # the result of a kernel may be what no longer fits
            raise Refused(f"it cannot be captured in a graph: {str(error).splitlines()[0]}") from None
        return partial(event_seconds, torch, graph.replay)

    def watch(self, run: Callable[[], object], seconds: float) -> tuple[float, int, list[Sample]]:
        with amd_watch(first_visible(os.environ)) if self.amd else nvidia_watch(self.uuid) as samples:
            begin, times = time.perf_counter(), 0
            while (took := time.perf_counter() - begin) < seconds:
                if run() is None:
                    time.sleep(0.05)  # idle
                times += 1
        return took, times, samples

    def _random(self, *shape: int) -> Any:
        return self.torch.randn(shape, device="cuda", dtype=self.torch.bfloat16)

    def _product(self, row: dict[str, Any]) -> Kernel:
        torch, m, n, k = self.torch, row["m"], row["n"], row["k"]
        narrow = row["dtype"] == "fp8"
        if narrow and not self.amd and torch.cuda.get_device_capability() < (8, 9):
            raise Refused("this GPU has no fp8 arithmetic")
        a, b = (self._random(rows, k).to(self.fp8 if narrow else torch.bfloat16) for rows in (m, n))
        c = torch.empty((m, n), device="cuda", dtype=torch.bfloat16)
        if not narrow:
            return partial(torch.mm, a, b.t(), out=c)
        one = torch.ones((), device="cuda", dtype=torch.float32)
        return partial(torch._scaled_mm, a, b.t(), one, one, out_dtype=torch.bfloat16, out=c)

    def _stream(self, row: dict[str, Any]) -> Kernel:
        torch, op, shape = self.torch, row["op"], (row["rows"], row["cols"])
        functional = torch.nn.functional
        if op == "copy":
            source = torch.randint(0, 256, shape, device="cuda", dtype=torch.uint8)
            return partial(torch.empty_like(source).copy_, source)
        x = self._random(*shape)
        if op == "add":
            return partial(torch.add, x, self._random(*shape), out=self._random(*shape))
        # As a model calls them: a new result, in the memory that the last one has just left.
        weight = self._random(shape[1])
        calls: dict[str, Kernel] = {
            "gelu": lambda: functional.gelu(x),
            "softmax": lambda: functional.softmax(x, -1),
            "rms_norm": lambda: functional.rms_norm(x, (shape[1],), weight),
        }
        return calls[op]

    def _attention(self, row: dict[str, Any]) -> Kernel:
        attended = importlib.import_module("torch.nn.attention")
        known = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
        backend = getattr(attended.SDPBackend, known[row["backend"]])
        heads, kv_heads, d = row["q_heads"], row["kv_heads"], row["head_dim"]
        q = self._random(row["batch"], heads, row["q_len"], d)
        k, v = (self._random(row["batch"], kv_heads, row["kv_len"], d) for _ in range(2))
        how = {"is_causal": bool(row["causal"]), "enable_gqa": heads != kv_heads}

        def call() -> Any:
            with attended.sdpa_kernel(backend):
                return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, **how)

        return call

    def _grouped(self, row: dict[str, Any]) -> Kernel:
        torch, count, tokens, n, k = self.torch, row["experts"], row["tokens_total"], row["n"], row["k"]
        each = torch.tensor(tokens_of_experts(count, tokens, row["routing"]), device="cuda")
        a, b = self._random(tokens, k), self._random(count, n, k).transpose(-2, -1)
        grouped = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
        return partial(grouped, a, b, offs=each.cumsum(0).to(torch.int32))


def event_seconds(torch: Any, run: Callable[[], object], uses: int = 1) -> float:
    """Seconds of the device for so many runs."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(uses):
        run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3


def torch_module(name: str = "torch", needs: str = "PyTorch") -> Any:
    """PyTorch or a part of it; one line where this Python has none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise StrataError(
            f"strata measure needs {needs}, and this Python has none: pip install torch"
        ) from None


def torch_gpu() -> TorchGpu:
    """The GPU PyTorch sees; one line that says what is missing where there is none."""
    torch = torch_module(needs="PyTorch with CUDA")
    if not torch.cuda.is_available():
        raise StrataError(
            f"strata measure needs a CUDA GPU, and PyTorch {torch.__version__} sees none; "
            "try nvidia-smi, or a PyTorch built with CUDA"
        )
    return TorchGpu(torch)
