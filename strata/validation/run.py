"""validate(): every known file below a folder, predicted row by row."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from strata.errors import BadFile, UnknownName
from strata.validation import (
    attention,
    collectives,
    dram,
    experts,
    kernels,
    network,
    overlap,
    power,
    serving,
    silicon,
    thermal,
    training,
    whole,
)
from strata.validation.compare import entry
from strata.validation.datasets import Points, Table, held_out, read_table
from strata.validation.steps import named_chip

READERS: dict[str, Callable[[Table], Points]] = {
    "h200/decoder.csv": whole.decoder,
    "a100/gemm_ncu.csv": kernels.gemm_ncu,
    "area/deepstack_cores.csv": silicon.deepstack_cores,
    "dram/channel.csv": dram.channel,
    "h100/overlap.csv": overlap.overlap,
    "ns3/collectives.csv": network.published_runs,
    "ns3/runs.csv": network.own_runs,
    "ns3/schedules.csv": network.scheduled_runs,
    "ops/gemm.csv": kernels.ops_gemm,
    "ops/gemm_power.csv": power.gemm_power,
    "ops/context_attention.csv": attention.context_attention,
    "ops/generation_attention.csv": attention.generation_attention,
    "ops/context_mla.csv": attention.context_mla,
    "ops/generation_mla.csv": attention.generation_mla,
    "ops/moe.csv": experts.fused_experts,
    "ops/nccl.csv": collectives.nccl,
    "ops/custom_allreduce.csv": collectives.custom_allreduce,
    "ops/deepep_low_latency.csv": collectives.deepep,
    "serving/vllm.csv": serving.vllm,
    "serving/silicon.csv": serving.silicon,
    "serving/trtllm_max_throughput.csv": serving.max_throughput,
    "serving/*_nemo.csv": serving.nemo,
    "serving/*_[0-9]*x*_nim.csv": serving.nim,
    "serving/*_koyeb.csv": serving.koyeb,
    "thermal/stacks_3dice.json": thermal.stacks_3dice,
    "thermal/stacks_hotspot.json": thermal.stacks_hotspot,
    "training/h100_nanotron.csv": training.nanotron,
    "training/h100_nanotron_oom.csv": training.nanotron_oom,
    "training/a100_megatron.csv": training.a100_megatron,
    "training/a100_singlenode.csv": training.a100_deepspeed,
    "training/a100_multinode.csv": training.a100_deepspeed,
    "training/b200_megatron.csv": training.b200_megatron,
    "training/nvidia_bridge.csv": training.nvidia_bridge,
    "training/a100x4_llama2_7b.csv": training.a100x4,
    # Bare kernels, as `strata measure` writes them: the folder names the chip. Last, so that a name of its
    # own goes before.
    "*/gemm.csv": kernels.h200_gemm,
    "*/stream.csv": kernels.h200_stream,
    "*/power.csv": power.loads,
    "*/attention.csv": attention.h200_attention,
    "*/grouped_gemm.csv": experts.grouped_gemm,
}
# Files that chips, transports and engines are fitted to (two thirds of their lines).
FITTED = (
    "*/gemm.csv",
    "*/stream.csv",
    "*/grouped_gemm.csv",
    "*/attention.csv",
    "*/power.csv",
    "ops/gemm_power.csv",
    "ops/gemm.csv",
    "ops/moe.csv",
    "ops/context_attention.csv",
    "ops/generation_attention.csv",
    "ops/context_mla.csv",
    "ops/generation_mla.csv",
    "ops/nccl.csv",
    "ops/custom_allreduce.csv",
    "ops/deepep_low_latency.csv",
    "h100/overlap.csv",
    "area/deepstack_cores.csv",
    "dram/channel.csv",
    "serving/silicon.csv",
    "serving/vllm.csv",
    "serving/trtllm_max_throughput.csv",
)
NOT_YET = ("serving/requests/*.csv",)
INPUTS = ("training/h100_nanotron_models.csv",)  # read by other files, not predicted
OWN = (
    "accuracy.json",
    "limits.json",
    "*.md",
    "LICENSE*",
    "ns3/LICENSE",
    "ns3/*.cc",
    "ns3/*.py",
)  # what stands beside the data in the project's folder


def reader_of(name: str) -> Callable[[Table], Points] | None:
    """The reader of a file by its name below the data folder."""
    for pattern, reader in READERS.items():
        if fitting(name, pattern) and (
            not pattern.startswith("*/") or _is_chip(name.split("/", maxsplit=1)[0])
        ):
            return reader
    return None


def fitting(name: str, *patterns: str) -> bool:
    """Whether a file's name fits one of some patterns, folder by folder.

    >>> fitting("h100/gemm.csv", "ops/gemm.csv", "*/gemm.csv"), fitting("a/b/gemm.csv", "*/gemm.csv")
    (True, False)
    """
    return any(fnmatch.fnmatchcase(name, p) and name.count("/") == p.count("/") for p in patterns)


def _is_chip(folder: str) -> bool:
    try:
        return bool(named_chip(folder).name)
    except UnknownName:
        return False


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


def data_files(folder: Path) -> list[str]:
    """Names of the data files below a folder, sorted."""
    if not folder.is_dir():
        raise BadFile(f"no data folder at {folder}; it holds files such as h200/gemm.csv")
    every = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    names = [p.as_posix() for p in every if not any(part.startswith(".") for part in p.parts)]
    found = [n for n in names if not _any(n, OWN)]
    if not found:
        raise BadFile(f"{folder} holds no data files; it should hold files such as h200/gemm.csv")
    return found


def points(folder: Path | str) -> Iterator[tuple[str, Points]]:
    """Measured and predicted points of every known file below a folder, for plots and residuals."""
    where = Path(folder)
    for name in data_files(where):
        reader = reader_of(name)
        if reader is not None:
            yield name, reader(read_table(where, name))


def validate(folder: Path | str, *, keep_points: bool = False, unseen: bool = False) -> dict[str, Any]:
    """Predict every row of every known file and compare; `keep_points` adds "points", a list of all of them,
    for plots.

    `unseen` is for the project's own data: of files that chips are fitted to, only the held-out third is
    compared, and "unseen_models" says the same of served models that no fit has seen.

    Fractions, not percent. `not_yet` names files whose physics is not modelled yet, `unknown` those no reader
    fits.
    """
    where = Path(folder)
    names = data_files(where)
    files, kept = [], []
    for name, found in points(where):
        if unseen and fitting(name, *FITTED):
            found = held_out(found)
        files.append(entry(name, found))
        if keep_points:
            rows = zip(found.line, found.group, found.measured, found.predicted, found.headline, strict=True)
            kept += [
                {
                    "file": name,
                    "row": int(r),
                    "group": str(g),
                    "measured": float(m),
                    "predicted": float(p),
                    "headline": bool(h),
                }
                for r, g, m, p, h in rows
            ]
    later = [n for n in names if reader_of(n) is None and _any(n, NOT_YET)]
    unknown = [n for n in names if reader_of(n) is None and n not in later and n not in INPUTS]
    made: dict[str, Any] = {"files": files, "not_yet": later, "unknown": unknown}
    if unseen:
        made["unseen_models"] = _unseen_models(where, names)
        made["held_out"] = [n for n in names if fitting(n, *FITTED)]
    return made | {"points": kept} if keep_points else made


def _unseen_models(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    from strata.validation.unseen import FILES, unseen_models  # fits of engines call this module's readers

    found = []
    for name in (n for n in FILES if n in names):
        reader, table = reader_of(name), read_table(folder, name)
        assert reader is not None
        found += unseen_models(table, reader(table))
    return found
