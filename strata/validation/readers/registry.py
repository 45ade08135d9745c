"""Which reader reads which file, by its name below the data folder."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from pathlib import Path

from strata.errors import BadFile
from strata.validation.readers import (
    amd,
    attention,
    collectives,
    dram,
    expert_exchange_runs,
    experts,
    gemm,
    multinode,
    other_kernels,
    overlap,
    packet_runs,
    power,
    thermal,
    train_step,
    training_bridge,
    training_megatron,
    training_mlperf,
    training_nanotron,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.served_files import SERVED
from strata.validation.readers.served_rows import ServedFile, served_reader
from strata.validation.readers.tables import Table

Reader = Callable[[Table, Catalogue], ComparedPoints]
READERS: dict[str, Reader] = {
    "h200/decoder.csv": train_step.decoder_passes,
    "a100/gemm_ncu.csv": gemm.profiled_gemm,
    "area/deepstack_cores.csv": dram.deepstack_cores,
    "dram/channel.csv": dram.dramsim_channels,
    "h100/overlap.csv": overlap.overlapped_kernels,
    "network/expert_exchange.csv": expert_exchange_runs.expert_exchange_runs,
    "ns3/collectives.csv": packet_runs.published_runs,
    "ns3/runs.csv": packet_runs.own_runs,
    "ns3/schedules.csv": packet_runs.scheduled_runs,
    "ops/gemm.csv": gemm.served_gemm,
    "ops/gemm_power.csv": power.gemm_power,
    "ops/amd_gemm.csv": amd.tuned_gemm,
    "ops/amd_moe.csv": amd.tuned_experts,
    "ops/context_attention.csv": attention.context_attention,
    "ops/generation_attention.csv": attention.generation_attention,
    "ops/context_mla.csv": attention.context_mla,
    "ops/generation_mla.csv": attention.generation_mla,
    "ops/moe.csv": experts.fused_experts,
    "ops/nccl.csv": collectives.nccl,
    "ops/custom_allreduce.csv": collectives.custom_allreduce,
    "ops/deepep_low_latency.csv": collectives.deepep,
    "network/multinode.csv": multinode.multinode,
    **{name: served_reader(kind) for name, kind in SERVED.items()},
    "thermal/stacks_3dice.json": thermal.stacks_3dice,
    "thermal/stacks_hotspot.json": thermal.stacks_hotspot,
    "training/h100_nanotron.csv": training_nanotron.nanotron,
    "training/h100_nanotron_oom.csv": training_nanotron.nanotron_oom,
    "training/a100_megatron.csv": training_megatron.a100_megatron,
    "training/a100_singlenode.csv": training_megatron.a100_deepspeed,
    "training/a100_multinode.csv": training_megatron.a100_deepspeed,
    "training/b200_megatron.csv": training_megatron.b200_megatron,
    "training/nvidia_bridge.csv": training_bridge.nvidia_bridge,
    "training/megatron_bridge.csv": training_bridge.megatron_bridge,
    "training/mlperf.csv": training_mlperf.mlperf_steps,
    "training/a100x4_llama2_7b.csv": training_megatron.a100x4,
    # Bare kernels, as `strata measure` writes them: the folder names the chip. Last, so that a name of its
    # own goes before.
    "*/gemm.csv": gemm.bare_gemm,
    "*/stream.csv": other_kernels.bare_stream,
    "*/power.csv": power.sustained_loads,
    "*/step_power.csv": power.step_power,
    "*/train_step.csv": train_step.train_steps,
    "*/attention.csv": attention.bare_attention,
    "*/grouped_gemm.csv": experts.grouped_gemm,
    "*/optimiser.csv": other_kernels.fused_adamw,
    "*/other.csv": other_kernels.other_kernels,
    "*/deepbench_gemm.csv": gemm.deepbench_gemm,
    "*/deepbench_rnn.csv": gemm.deepbench_rnn,
}
INPUTS = ("training/h100_nanotron_models.csv",)  # read by other files, not predicted
# What stands beside the data in the project's folder.
BESIDE = (
    "accuracy.json",
    "limits.json",
    "points.json.gz",
    "*.md",
    "LICENSE*",
    "ns3/LICENSE",
    "ns3/*.cc",
    "ns3/*.py",
    "serving/*.toml",
    "training/*.toml",
)


def reader_of(name: str, catalogue: Catalogue) -> Reader | None:
    """The reader of a file by its name below the data folder."""
    for pattern, reader in READERS.items():
        of_a_chip = not pattern.startswith("*/") or catalogue.has_chip(name.split("/", maxsplit=1)[0])
        if matches(name, pattern) and of_a_chip:
            return reader
    return None


def served_kind(name: str) -> ServedFile | None:
    """The kind of a file of served models; None of other files."""
    return next((kind for pattern, kind in SERVED.items() if matches(name, pattern)), None)


def matches(name: str, *patterns: str) -> bool:
    """Whether a file's name fits one of some patterns, folder by folder.

    >>> matches("h100/gemm.csv", "ops/gemm.csv", "*/gemm.csv"), matches("a/b/gemm.csv", "*/gemm.csv")
    (True, False)
    """
    return any(fnmatch.fnmatchcase(name, p) and name.count("/") == p.count("/") for p in patterns)


def not_read(names: list[str], catalogue: Catalogue) -> list[str]:
    """Of some files those no reader fits."""
    return [n for n in names if reader_of(n, catalogue) is None and n not in INPUTS]


def data_files(folder: Path) -> list[str]:
    """Names of the data files below a folder, sorted."""
    if not folder.is_dir():
        raise BadFile(f"no data folder at {folder}; it holds files such as h200/gemm.csv")
    every = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    names = [p.as_posix() for p in every if not any(part.startswith(".") for part in p.parts)]
    data = [n for n in names if not _any(n, BESIDE)]
    if not data:
        raise BadFile(f"{folder} holds no data files; it should hold files such as h200/gemm.csv")
    return data


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)
