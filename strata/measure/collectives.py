"""measure_collectives(): collectives of PyTorch's process group, timed over all ranks that torchrun started,
as rows of the files that `strata calibrate --log` takes.

Sizes are counted as nccl-tests counts them: the whole (gathered) buffer. A reading is the mean time of one
call in a run of many, averaged over ranks, as nccl-tests has it by default; the least of a few readings
counts. On GPUs the calls are captured in a graph, so that Python's launches (some 30 us each) do not count.
"""

from __future__ import annotations

import datetime
import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from strata.base.drawing import keep
from strata.base.errors import BadValue, StrataError
from strata.measure.gpu import event_seconds, torch_module
from strata.measure.measure import Refused
from strata.measure.nccl_logs import chip_of_gpu, logged_op
from strata.validation.readers.collective_files import (
    OPS,
    SIZE_UNITS,
    WIDTHS,
    LoggedRow,
    LoggedRun,
    file_of_run,
    runs_of_csv,
    texts_of_runs,
)

COLLECTIVES = tuple(OPS.values())
DTYPES = {"float": "float32", "half": "float16", "bfloat16": "bfloat16"}
SMALLEST, LARGEST, QUICK_LARGEST = 1 << 10, 1 << 30, 1 << 26  # bytes of the buffers that are measured
SPAN, QUICK_SPAN = 50e-3, 10e-3  # seconds a reading lasts at least
WARM_CALLS, MOST_CALLS, READINGS = 5, 400, 3
GRAPHED = 20  # calls of one graph
TORCHRUN = "torchrun --nproc-per-node 8 --no-python strata measure --what collectives --out mine"


@dataclass(frozen=True, kw_only=True)
class GroupFacts:
    """Who takes part: this rank, all of them, the machines, the GPU, and the library."""

    rank: int
    ranks: int
    nodes: int
    gpu: str
    library: str


@dataclass(frozen=True)
class CollectiveCall:
    """What one use runs: a collective, or a graph of several."""

    run: Callable[[], object]
    calls: int = 1


@dataclass(frozen=True, kw_only=True)
class MeasuredCollective:
    """One size that was measured, or was left out (`why`)."""

    op: str
    bytes: int
    place: int
    total: int
    time_us: float = 0.0
    why: str = ""


def collective_sizes(text: str = "", quick: bool = False) -> list[int]:
    """Bytes of the buffers: powers of two between two ends (`1K:256M`), or a list of them.

    >>> collective_sizes("1K:8K"), collective_sizes("100,1M")
    ([1024, 2048, 4096, 8192], [100, 1048576])
    """
    if text and ":" not in text:
        return [_typed_size(word) for word in text.split(",")]
    ends = [_typed_size(word) for word in text.split(":")] if text else [SMALLEST, LARGEST]
    if len(ends) != 2 or ends[0] > ends[1]:
        raise BadValue(f"--sizes is a list, as 1M,4M, or two ends, as 1K:256M, but got '{text}'")
    if quick and not text:
        ends[1] = QUICK_LARGEST
    sizes = [ends[0]]
    while sizes[-1] * 2 <= ends[1]:
        sizes.append(sizes[-1] * 2)
    return sizes


def _typed_size(word: str) -> int:
    """One size, as nccl-tests takes it: K, M and G are powers of 1024."""
    found = re.fullmatch(r"([1-9][0-9]{0,11})([BKMG]?)", word.strip().upper())
    if found is None:
        raise BadValue(f"--sizes are whole numbers of bytes, as 8, 64K, 1M or 2G, but got '{word}'")
    return int(found[1]) * SIZE_UNITS[found[2]]


def chosen_ops(words: Sequence[str]) -> list[str]:
    """The collectives that were asked for; all where none was."""
    named = [word.strip() for text in words for word in text.split(",") if word.strip()]
    return list(dict.fromkeys(logged_op(word, "--op") for word in named)) or list(COLLECTIVES)


def measure_collectives(
    group: TorchGroup,
    folder: Path,
    *,
    ops: Sequence[str] = COLLECTIVES,
    sizes: Sequence[int] = (),
    dtype: str = "bfloat16",
    fabric: str = "",
    links: str = "",
    quick: bool = False,
) -> Iterator[MeasuredCollective]:
    """Time every collective at every size, all ranks together; rank 0 adds each to the file it belongs to."""
    facts = group.facts
    _check(facts, dtype, fabric, links)
    asked = list(sizes) or collective_sizes(quick=quick)
    total = len(ops) * len(asked)
    for i, op in enumerate(ops):
        rows: list[LoggedRow] = []
        for j, size in enumerate(asked):
            elements = size // (WIDTHS[dtype] * facts.ranks) * facts.ranks
            took, why = _timed(group, op, dtype, elements, QUICK_SPAN if quick else SPAN)
            real = elements * WIDTHS[dtype]
            if not why:
                rows.append(LoggedRow(line=j + 1, bytes=real, dtype=dtype, time_us=took * 1e6))
            yield MeasuredCollective(
                op=op, bytes=real, place=i * len(asked) + j + 1, total=total, time_us=took * 1e6, why=why
            )
        if rows and facts.rank == 0:
            _keep(_run(facts, op, rows, fabric, links), folder)


def _check(facts: GroupFacts, dtype: str, fabric: str, links: str) -> None:
    if facts.ranks < 2:
        raise BadValue(f"a collective needs two ranks or more, but there is one: {TORCHRUN}")
    if dtype not in DTYPES:
        raise BadValue(f"--dtype is one of {', '.join(DTYPES)}, but got '{dtype}'")
    if facts.ranks % facts.nodes:
        raise BadValue(f"{facts.ranks} ranks do not lie evenly on {facts.nodes} machines")
    if facts.nodes > 1 and not fabric:
        raise BadValue(
            f"ranks run on {facts.nodes} machines: give what joins them, --fabric infiniband, roce, efa ..."
        )
    if facts.nodes == 1 and (fabric or links):
        raise BadValue("ranks run on one machine, but --fabric and --links say what joins several")


def _timed(group: TorchGroup, op: str, dtype: str, elements: int, span: float) -> tuple[float, str]:
    """Seconds of one call, or why there are none."""
    if not elements:
        return 0.0, "fewer elements than ranks"
    try:
        call = group.call(op, dtype, elements)
    except Refused as refused:
        return 0.0, str(refused)
    # All ranks see the same time, so that all make as many calls.
    first = group.seconds(call, WARM_CALLS)
    count = max(1, min(MOST_CALLS, round(span / max(first, 1e-9))))
    return min(group.seconds(call, count) for _ in range(READINGS)), ""


def _run(facts: GroupFacts, op: str, rows: Sequence[LoggedRow], fabric: str, links: str) -> LoggedRun:
    return LoggedRun(
        log="strata measure",
        op=op,
        gpu=facts.gpu,
        nodes=facts.nodes,
        gpus=facts.ranks,
        fabric=fabric,
        links=links,
        library=facts.library,
        setting="default",
        rows=tuple(rows),
    )


def _keep(run: LoggedRun, folder: Path) -> None:
    """Write a run into its file, with the other runs that the file has."""
    path = folder / file_of_run(run)
    kept = runs_of_csv(path) if path.exists() else []
    what = [(r.op, r.gpu, r.nodes, r.gpus, r.fabric, r.rows[0].dtype) for r in (*kept, run)]
    others = [other for other, key in zip(kept, what, strict=False) if key != what[-1]]
    for name, text in texts_of_runs([*others, run]).items():
        keep(folder / name, text)


# --------------------------------------------------------------------------------- PyTorch's group


class TorchGroup:
    """The process group of torchrun: NCCL (RCCL on AMD) where there are GPUs, gloo where there are none."""

    def __init__(self, torch: Any, distributed: Any, environment: Mapping[str, str]):
        self.torch, self.distributed = torch, distributed
        self.on_gpu: bool = torch.cuda.is_available()
        local = int(environment.get("LOCAL_RANK", "0"))
        if self.on_gpu:
            torch.cuda.set_device(local)
        self.device = f"cuda:{local}" if self.on_gpu else "cpu"
        bound = {"device_id": torch.device(self.device)} if self.on_gpu else {}
        distributed.init_process_group(
            "nccl" if self.on_gpu else "gloo", timeout=datetime.timedelta(minutes=5), **bound
        )
        self.facts = self._facts()

    def _facts(self) -> GroupFacts:
        ranks = self.distributed.get_world_size()
        said = str(self.torch.cuda.get_device_name()) if self.on_gpu else "cpu"
        places: list[Any] = [None] * ranks
        self.distributed.all_gather_object(places, (machine_name(), said))
        gpus = sorted({gpu for _, gpu in places})
        if len(gpus) > 1:
            raise BadValue(f"ranks run on different GPUs: {', '.join(gpus)}")
        version = self.torch.cuda.nccl.version() if self.on_gpu else ("gloo",)
        return GroupFacts(
            rank=self.distributed.get_rank(),
            ranks=ranks,
            nodes=len({machine for machine, _ in places}),
            gpu=chip_of_gpu(said, "PyTorch") if self.on_gpu else "cpu",
            library=".".join(str(n) for n in version),
        )

    def call(self, op: str, dtype: str, elements: int) -> CollectiveCall:
        """A collective over a buffer of so many elements in all; raises `Refused`."""
        torch, d = self.torch, self.distributed

        def buffer(count: int) -> Any:
            return torch.ones(count, dtype=getattr(torch, DTYPES[dtype]), device=self.device)

        share = elements // self.facts.ranks
        makers: dict[str, Callable[[], Callable[[], object]]] = {
            "all_reduce": lambda: partial(d.all_reduce, buffer(elements)),
            "all_gather": lambda: partial(d.all_gather_into_tensor, buffer(elements), buffer(share)),
            "reduce_scatter": lambda: partial(d.reduce_scatter_tensor, buffer(share), buffer(elements)),
            "all_to_all": lambda: partial(d.all_to_all_single, buffer(elements), buffer(elements)),
        }
        made, why = _tried(makers[op])  # there may be no room for the buffers, on some ranks
        self._agree(why)
        try:
            made()
            if self.on_gpu:
                torch.cuda.synchronize()
        except (RuntimeError, NotImplementedError) as error:  # what a backend does not have, on all ranks
            raise Refused(f"the {d.get_backend()} backend does not run it: {_first_line(error)}") from None
        return self._graphed(made) if self.on_gpu else CollectiveCall(made)

    def _graphed(self, made: Callable[[], object]) -> CollectiveCall:
        """A graph of calls; the call itself where the library or some rank cannot be captured."""

        def capture() -> Callable[[], object]:
            graph = self.torch.cuda.CUDAGraph()
            # the library's watchdog asks for events meanwhile, on a thread of its own
            with self.torch.cuda.graph(graph, capture_error_mode="thread_local"):
                for _ in range(GRAPHED):
                    made()
            replay: Callable[[], object] = graph.replay
            return replay

        replay, why = _tried(capture)
        try:
            self._agree(why)
        except Refused:
            return CollectiveCall(made)
        return CollectiveCall(replay, GRAPHED)

    def _agree(self, why: str) -> None:
        """All ranks go on, or none: a collective that one of them leaves out never ends."""
        told: list[Any] = [None] * self.facts.ranks
        self.distributed.all_gather_object(told, why)
        if reason := next((t for t in told if t), ""):
            raise Refused(reason)

    def seconds(self, call: CollectiveCall, count: int) -> float:
        """Mean seconds of one call of at least so many, over all ranks."""
        uses = math.ceil(count / call.calls)
        self.distributed.barrier()
        call.run()  # ranks meet in it: what is timed begins together
        took = self._seconds(call.run, uses) / (uses * call.calls)
        mean = self.torch.tensor([took], dtype=self.torch.float64, device=self.device)
        self.distributed.all_reduce(mean)
        return float(mean.item()) / self.facts.ranks

    def _seconds(self, run: Callable[[], object], uses: int) -> float:
        if self.on_gpu:
            return event_seconds(self.torch, run, uses)
        begin = time.perf_counter()
        for _ in range(uses):
            run()
        return time.perf_counter() - begin

    def close(self) -> None:
        self.distributed.destroy_process_group()


def _tried(make: Callable[[], Callable[[], object]]) -> tuple[Callable[[], object], str]:
    """What was made, or why it could not be."""
    try:
        return make(), ""
    except RuntimeError as error:
        return str, _first_line(error)  # in its place what does nothing


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def machine_name() -> str:
    """What tells one machine from another: its boot, which containers share, else its host name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def torch_group() -> TorchGroup:
    """The group that torchrun made this process a rank of; one line where something is missing."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        raise StrataError(f"collectives are measured by several processes at once: {TORCHRUN}")
    torch, distributed = torch_module(), torch_module("torch.distributed")
    if not distributed.is_available():
        raise StrataError(f"PyTorch {torch.__version__} was built without torch.distributed")
    try:
        return TorchGroup(torch, distributed, os.environ)
    except (RuntimeError, ValueError) as error:
        if isinstance(error, StrataError):
            raise
        raise StrataError(f"the ranks do not find each other: {_first_line(error)}") from None
