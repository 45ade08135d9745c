"""measure(): kernels timed on the GPU at hand, written as the files `strata calibrate` and `strata validate`
read.

A reading is the time of one call inside a CUDA graph of many, over sets of buffers that take turns: what a
kernel takes without its launch, its data not in the cache unless it is small beside it. Everything here but
the backend runs without a GPU.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Protocol

from strata.base.errors import BadFile, StrataError, UnknownName
from strata.measure.shapes import COLUMNS, KINDS, TIMES, KernelCase, SustainedLoad, kernel_cases, load_cases
from strata.params import dashed
from strata.validation.readers.labels import Catalogue, chip_called

REPLAYS = 7  # readings of which the median counts
SPAN = 12e-3  # seconds one reading lasts at least: long beside an event's resolution and a graph's launch
QUICK_SPAN = 4e-3
WARM = 60e-3  # seconds of work before the first reading: clocks and power settle
ROOM = 0.8  # share of the free memory that buffers may take
BEYOND_CACHE = 3.0  # caches the sets of buffers fill together
ALWAYS_COLD = 16.0  # caches one set fills for a single set to be cold by itself
# as in the project's own files: a kernel that touches less than a thirty-second of the cache stays in it
MOST_SETS = 32
MOST_CALLS = 16384  # of one graph
FIRST_CALLS = 16  # of the graph that tells how long a call is
SUSTAINED, QUICK_SUSTAINED = 5.0, 2.0  # seconds a load is kept up while power is read
SETTLED = 0.6  # the last part of a load's samples that counts: power and temperature have settled


class Refused(StrataError):
    """A kernel this GPU or this PyTorch does not run; it is left out and the reason is kept."""


@dataclass(frozen=True)
class Sample:
    """What a board says of itself at one moment; nan where it does not say it."""

    power_w: float
    sm_mhz: float
    mem_mhz: float
    temp_c: float
    mem_temp: float


class Backend(Protocol):
    """A GPU that runs kernels. `about` says what it is, for the page beside the files."""

    name: str
    cores: int
    cache: int  # bytes of the last-level cache
    about: dict[str, str]

    def room(self) -> float:
        """Free memory [B]."""

    def kernel(self, case: KernelCase, sets: int) -> Callable[[int], object]:
        """The call of a case on one of its sets of buffers of random normal data; raises `Refused`."""

    def record(self, call: Callable[[int], object], count: int) -> Callable[[], float]:
        """A graph of so many calls; each use replays it and gives its seconds."""

    def watch(self, run: Callable[[], object], seconds: float) -> tuple[float, int, list[Sample]]:
        """Repeat something for so long: the seconds it took, how often it ran, the board's samples."""


@dataclass(frozen=True)
class MeasuredKernel:
    """One case that was measured, found in the file already, or left out (`why`)."""

    kind: str
    key: tuple[str, ...]
    place: int
    total: int
    why: str = ""


def sets_of_buffers(touched: float, cache: float, room: float) -> int:
    """Sets of buffers that take turns, each out of the cache before its next; 0 where they do not fit.

    >>> [sets_of_buffers(touched, 50e6, 80e9) for touched in (1e6, 100e6, 1e9)]
    [32, 3, 1]
    >>> sets_of_buffers(1e9, 50e6, 0.5e9)
    0
    """
    wanted = 1 if touched >= ALWAYS_COLD * cache else math.ceil(BEYOND_CACHE * cache / touched) + 1
    held = int(ROOM * room // touched)
    return min(wanted, MOST_SETS, held) if held >= min(wanted, 2) else 0


def calls_of_a_graph(estimate: float, sets: int, span: float = SPAN) -> int:
    """Calls in one graph: long enough to time, and whole turns of the buffers, so that each is used as often.

    >>> calls_of_a_graph(1e-6, 30), calls_of_a_graph(5e-3, 3), calls_of_a_graph(1e-7, 32)
    (12000, 3, 16384)
    """
    turns = math.ceil(round(span / (max(estimate, 1e-9) * sets), 6))
    return sets * max(1, min(turns, MOST_CALLS // sets))


def time_kernel(backend: Backend, case: KernelCase, span: float = SPAN) -> dict[str, str]:
    """Median, least and largest time of one call [s], as the columns of a file."""
    sets = sets_of_buffers(case.touched, backend.cache, backend.room())
    if not sets:
        raise Refused(f"its buffers of {case.touched / 1e9:.1f} GB do not fit the GPU's free memory")
    call = backend.kernel(case, sets)
    count = _calls(backend, call, sets, span)
    replay = backend.record(call, count)
    warm = 0.0
    while warm < WARM * span / SPAN:
        warm += max(replay(), 1e-6)
    times = [replay() / count for _ in range(REPLAYS)]
    found = (median(times), min(times), max(times))
    return {name: f"{value:.4e}" for name, value in zip(TIMES, found, strict=True)}


def _calls(backend: Backend, call: Callable[[int], object], sets: int, span: float) -> int:
    first = min(sets, FIRST_CALLS)
    replay = backend.record(call, first)
    replay()  # what a first replay loads is not the kernel's time
    return calls_of_a_graph(replay() / first, sets, span)


def read_power(backend: Backend, load: SustainedLoad, seconds: float = SUSTAINED) -> dict[str, str]:
    """Power, clocks and temperatures of a load that is kept up, as the columns of a file."""
    count, run = 0, None
    if load.kernel is not None:
        sets = load.sets or sets_of_buffers(load.kernel.touched, backend.cache, backend.room())
        if not sets or sets * load.kernel.touched > ROOM * backend.room():
            raise Refused(
                f"its buffers of {load.kernel.touched / 1e9:.1f} GB do not fit the GPU's free memory"
            )
        call = backend.kernel(load.kernel, sets)
        count = _calls(backend, call, sets, 4 * SPAN)
        run = backend.record(call, count)
    took, times, samples = backend.watch(run or (lambda: None), seconds)
    if not samples:
        raise Refused("the board told no power: nvidia-smi, amd-smi or rocm-smi did not answer")
    late = samples[int(len(samples) * (1.0 - SETTLED)) :]
    row = {"seconds": f"{took:.2f}", "calls": str(times * count), "work_per_call": str(load.work)}
    for name, digits in (("power_w", 1), ("sm_mhz", 0), ("mem_mhz", 0), ("temp_c", 1), ("mem_temp", 0)):
        told = [value for s in late if not math.isnan(value := getattr(s, name))]
        row[name] = f"{fmean(told):.{digits}f}" if told else ""
    return row


def measure(
    backend: Backend, folder: Path, *, kinds: Sequence[str] = KINDS, quick: bool = False
) -> Iterator[MeasuredKernel]:
    """Time every kernel of the chosen kinds, one after another, and write each row as soon as it is known;
    rows a file has already are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _describe(backend, folder)
    for kind in chosen_kinds(kinds):
        todo: Sequence[KernelCase | SustainedLoad] = (
            load_cases() if kind == "power" else kernel_cases(kind, quick)
        )
        path = folder / f"{kind}.csv"
        known = _known(path, kind)
        for place, case in enumerate(todo, 1):
            why = "" if case.key in known else _measure_one(backend, case, kind, path, quick)
            yield MeasuredKernel(kind, case.key, place, len(todo), why)


def chosen_kinds(kinds: Sequence[str]) -> list[str]:
    """The kinds that were asked for, in the order of `KINDS`; a word may name several, like `gemm,stream`."""
    words = [word.strip() for text in kinds for word in text.split(",") if word.strip()]
    for word in words:
        if word not in KINDS:
            raise UnknownName("kind of kernel", word, KINDS, ", ".join(KINDS))
    return [kind for kind in KINDS if kind in words or not words]


def _measure_one(
    backend: Backend, case: KernelCase | SustainedLoad, kind: str, path: Path, quick: bool
) -> str:
    try:
        if isinstance(case, SustainedLoad):
            row = {"load": case.name, **read_power(backend, case, QUICK_SUSTAINED if quick else SUSTAINED)}
        else:
            row = {k: str(v) for k, v in case.row.items()}
            row |= time_kernel(backend, case, QUICK_SPAN if quick else SPAN)
    except Refused as refused:
        return str(refused)
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS[kind], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
    return ""


def _known(path: Path, kind: str) -> set[tuple[str, ...]]:
    """Keys of the rows a file has already: an earlier run, or one that was stopped."""
    if not path.exists():
        return set()
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS[kind]:
            raise BadFile(f"{path} has other columns than {', '.join(COLUMNS[kind])}; give another --out")
        told = ["load"] if kind == "power" else [c for c in COLUMNS[kind] if c not in TIMES]
        return {tuple(row[c] for c in told) for row in reader}


def _describe(backend: Backend, folder: Path) -> None:
    facts = {"GPU": backend.name, "cores": str(backend.cores), **backend.about}
    lines = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    said = (
        "Written by `strata measure`: random normal data, buffers larger than the cache in turns, "
        "CUDA graphs, median of 7 replays."
    )
    (folder / "README.md").write_text(
        f"# Kernels measured on one {backend.name}\n\n{said}\n\n| what | value |\n| --- | --- |\n{lines}",
        encoding="utf-8",
    )


def folder_name(device: str, cores: int) -> str:
    """The folder of a GPU's files: the shipped chip it is (name and cores agree), else its own name.

    >>> folder_name("NVIDIA A100-SXM4-80GB", 108), folder_name("NVIDIA H100 PCIe", 99)
    ('a100-80', 'nvidia-h100-pcie')
    """
    known = Catalogue()
    try:
        name = chip_called(known, device)
    except UnknownName:
        return dashed(device)
    return name if float(known.chip(name).compute.cores) == cores else dashed(device)
