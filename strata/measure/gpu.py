"""The GPU behind `strata measure`: PyTorch kernels and CUDA graphs (HIP's, on AMD). PyTorch is no dependency,
and is imported here alone, when a GPU is asked for.
"""

from __future__ import annotations

import datetime
import importlib
import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from strata.errors import StrataError
from strata.measure.board import amd_watch, first_visible, nvidia_watch
from strata.measure.measure import Refused, Sample
from strata.measure.shapes import KernelCase, tokens_of_experts

Call = Callable[[int], object]
# bytes, where PyTorch does not tell the cache: more than any GPU's, so that data is cold
UNKNOWN_CACHE = 128 << 20


class TorchGpu:
    """The first CUDA device PyTorch sees."""

    def __init__(self, torch: Any):
        self.torch = torch
        facts = torch.cuda.get_device_properties(0)
        self.name: str = facts.name
        self.cores: int = facts.multi_processor_count
        self.cache: int = getattr(facts, "L2_cache_size", 0) or UNKNOWN_CACHE
        self.uuid = f"GPU-{facts.uuid}" if hasattr(facts, "uuid") else "0"
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
            call = makers[case.kind](case.row, sets)
            call(0)  # what this GPU does not run fails here, before a graph is begun
            self.torch.cuda.synchronize()
        except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
            raise Refused(
                f"PyTorch {self.torch.__version__} does not run it here: {str(error).splitlines()[0]}"
            ) from None
        return call

    def record(self, call: Call, count: int) -> Callable[[], float]:
        try:
            graph = self._captured(call, count)
        except RuntimeError as error:  # the result of a kernel may be what no longer fits
            raise Refused(f"it cannot be captured in a graph: {str(error).splitlines()[0]}") from None
        return partial(event_seconds, self.torch, graph.replay)

    def _captured(self, call: Call, count: int) -> Any:
        torch = self.torch
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            call(0)  # libraries take their workspaces before the capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(count):
                call(i)
        return graph

    def watch(self, run: Callable[[], object], seconds: float) -> tuple[float, int, list[Sample]]:
        with amd_watch(first_visible(os.environ)) if self.amd else nvidia_watch(self.uuid) as samples:
            took, times = self._repeat(run, seconds)
        return took, times, samples

    def _repeat(self, run: Callable[[], object], seconds: float) -> tuple[float, int]:
        begin, times = time.perf_counter(), 0
        while (took := time.perf_counter() - begin) < seconds:
            if run() is None:
                time.sleep(0.05)  # idle
            times += 1
        return took, times

    def _random(self, *shape: int) -> Any:
        return self.torch.randn(shape, device="cuda", dtype=self.torch.bfloat16)

    def _product(self, row: dict[str, Any], sets: int) -> Call:
        torch, m, n, k = self.torch, row["m"], row["n"], row["k"]
        narrow = row["dtype"] == "fp8"
        if narrow and not self.amd and torch.cuda.get_device_capability() < (8, 9):
            raise Refused("this GPU has no fp8 arithmetic")

        def operand(rows: int) -> Any:
            values = self._random(rows, k)
            return values.to(self.fp8) if narrow else values

        a, b = [operand(m) for _ in range(sets)], [operand(n).t() for _ in range(sets)]
        c = [torch.empty((m, n), device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
        if not narrow:
            return lambda i: torch.mm(a[i % sets], b[i % sets], out=c[i % sets])
        one = torch.ones((), device="cuda", dtype=torch.float32)
        return lambda i: torch._scaled_mm(
            a[i % sets], b[i % sets], one, one, out_dtype=torch.bfloat16, out=c[i % sets]
        )

    def _stream(self, row: dict[str, Any], sets: int) -> Call:
        torch, op, shape = self.torch, row["op"], (row["rows"], row["cols"])
        functional = torch.nn.functional
        if op == "copy":
            source = [torch.randint(0, 256, shape, device="cuda", dtype=torch.uint8) for _ in range(sets)]
            target = [torch.empty_like(s) for s in source]
            return lambda i: target[i % sets].copy_(source[i % sets])
        x = [self._random(*shape) for _ in range(sets)]
        if op == "add":
            y, z = ([self._random(*shape) for _ in range(sets)] for _ in range(2))
            return lambda i: torch.add(x[i % sets], y[i % sets], out=z[i % sets])
        # As a model calls them: a new result, in the memory that the last one has just left.
        weight = self._random(shape[1])
        calls: dict[str, Call] = {
            "gelu": lambda i: functional.gelu(x[i % sets]),
            "softmax": lambda i: functional.softmax(x[i % sets], -1),
            "rms_norm": lambda i: functional.rms_norm(x[i % sets], (shape[1],), weight),
        }
        return calls[op]

    def _attention(self, row: dict[str, Any], sets: int) -> Call:
        torch = self.torch
        attended = importlib.import_module("torch.nn.attention")
        known = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
        backend = getattr(attended.SDPBackend, known[row["backend"]])
        batch, d = row["batch"], row["head_dim"]
        q = [self._random(batch, row["q_heads"], row["q_len"], d) for _ in range(sets)]
        k, v = (
            [self._random(batch, row["kv_heads"], row["kv_len"], d) for _ in range(sets)] for _ in range(2)
        )
        shared, causal = row["q_heads"] != row["kv_heads"], bool(row["causal"])

        def call(i: int) -> Any:
            at = i % sets
            with attended.sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    q[at], k[at], v[at], is_causal=causal, enable_gqa=shared
                )

        return call

    def _grouped(self, row: dict[str, Any], sets: int) -> Call:
        torch, count, tokens, n, k = self.torch, row["experts"], row["tokens_total"], row["n"], row["k"]
        each = torch.tensor(tokens_of_experts(count, tokens, row["routing"]), device="cuda")
        ends = each.cumsum(0).to(torch.int32)
        a = [self._random(tokens, k) for _ in range(sets)]
        b = [self._random(count, n, k).transpose(-2, -1) for _ in range(sets)]
        grouped = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
        return lambda i: grouped(a[i % sets], b[i % sets], offs=ends)


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
