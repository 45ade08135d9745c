"""Engines: what serving and training software adds to the kernels, and the libraries of kernels that it
calls. A few numbers each, as data; a chip knows no library, and a library no chip.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from strata.base.arrays import Number, register_pytree
from strata.base.errors import BadFile, UnknownName, require
from strata.base.records import readable
from strata.params import (
    Sources,
    names,
    override,
    part,
    quantity,
    read_record,
    remembered,
    sourced_record,
    text,
)
from strata.params.files import merged
from strata.software.trainer import Trainer

KIND = "kernel-libraries"
LIBRARIES = tuple(names(KIND))
USUAL_TRAINER = "megatron"
USUAL_SERVER = "vllm"  # of every command that serves, where none is named


@register_pytree
@readable("name", "measured")
@dataclass(frozen=True, eq=False, kw_only=True)
class KernelLibrary:
    """How kernels run: which of a chip's measured ones they are, what is fused, and what runs beside what."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    measured: str = text(
        "which of a chip's measured kernels they are: bare, or those of serving frameworks, with attention "
        "over pages",
        choices=("bare", "served"),
        default="bare",
    )
    expert_inputs: str = text(
        "format to which activations of experts in a narrow microscaling format (mxfp4) are rounded where "
        "the chip has that arithmetic; left out: 16 bits, by kernels measured so",
        choices=("", "fp8"),
        default="",
    )
    fusion: str = text(
        "kernels fused on the chip: wherever that is quicker on chips that execute dataflow, or none",
        choices=("dataflow", "none"),
        default="dataflow",
    )
    fused: Number = quantity(
        "1",
        "1 where residuals, norms, rotations, cache writes and gated activations are fused kernels, 0 where "
        "each is several",
    )
    separate_quantize_share: Number = quantity(
        "1", "share of narrow products whose activations a kernel of its own rounds"
    )
    shared_expert_stream: Number = quantity(
        "1", "1 where experts that all tokens share run on a stream of their own, beside the routed ones"
    )
    expert_block_rate: Number = quantity(
        "1",
        "rate of grouped products of expert-parallel experts in scaled blocks, over that of tuned kernels",
        positive=True,
    )
    weight_only_rate: Number = quantity(
        "1",
        "rate of the arithmetic of grouped products that widen 4-bit weights inside, again for each tile of "
        "rows, over that of products in the activations' format",
        positive=True,
    )
    routed_launches: Number = quantity(
        "1", "launches of an op on routed rows that no graph holds, over those of any other", positive=True
    )
    pdl_overlap: Number = quantity(
        "1",
        "share of a product's least loop time that captured graphs hide: weights are fetched while the "
        "kernel before ends (programmatic dependent launch)",
    )
    product_rate: Number = quantity(
        "1", "rate of its products over that of a chip's best tuned kernels", positive=True
    )
    product_loop: Number = quantity(
        "1", "least loop time of its products over that of tuned kernels", positive=True
    )
    sources: Sources = field(default_factory=Sources)


@remembered
def kernel_library(name: str, platform: str = "") -> KernelLibrary:
    """A library by name or TOML path, as it is on a platform where it has a file of its own there.

    >>> [float(kernel_library("served", on).pdl_overlap) > 0 for on in ("", "rocm")]
    [True, False]
    """
    stem, dot, ending = name.partition(".toml")
    there = f"{stem}-{platform}{dot}{ending}"
    known = Path(there).is_file() if dot else there in names(KIND)
    return sourced_record(KernelLibrary, KIND, there if known else name)


@dataclass(frozen=True)
class EngineVersion:
    """A release of an engine: its number, its day, and the fields that differ from the next release's."""

    version: str
    date: str
    changes: tuple[str, ...] = ()


@register_pytree
@readable("name", "kernels", "collectives", "overlap")
@dataclass(frozen=True, eq=False, kw_only=True)
class Engine:
    """The host's time, what an engine takes at once and may fill, and libraries it calls. Numbers that an
    engine does not state are those of `ideal`: no host time, no limits.
    """

    DATED_VERSIONS: ClassVar[bool] = True  # its file may have [[versions]]

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    kernels: str = text(
        "the library of kernels it calls, a file of kernel-libraries/", choices=LIBRARIES, default="bare"
    )
    collectives: str = text(
        "ideal (links alone), library (NCCL), any way the fabric has, or a framework's own kernels by name",
        default="library",
    )
    overlap: str = text(
        "communication beside computation: none, inside kernels (tiles), or of one half of the "
        "batch beside the other (dual_batch)",
        choices=("none", "tiles", "dual_batch"),
        default="none",
    )
    host_step: Number = quantity("s", "host time of one step: scheduling, input preparation")
    async_scheduling: Number = quantity(
        "1",
        "1 where the host schedules a step while the device works at the one before, so that the longer of "
        "both counts; 0 where the device waits",
    )
    step_gap: Number = quantity(
        "s", "time between the kernels of two steps that nothing hides: inputs copied, tokens drawn"
    )
    sequence_gap: Number = quantity(
        "s", "the same for each sequence of a rank: its logits, its blocks, its token sent to its client"
    )
    launches: Number = quantity(
        "1", "launches by the framework for each kernel that no captured graph holds, each `overhead.launch`"
    )
    cuda_graphs: Number = quantity(
        "1", "steps that are replayed from captured graphs: 0 none, 1 those that only decode, 2 all"
    )
    frontend_latency: Number = quantity(
        "s", "time of a request outside all steps: HTTP, queues between processes, its first token sent"
    )
    tokenize: Number = quantity("s", "host time of each token of a prompt before the engine has it")
    recv_interval: Number = quantity("1", "steps between two looks for new requests", positive=True)
    attention_dp_wait: Number = quantity(
        "1", "steps a prompt waits where attention ranks step together, so that all read at once"
    )
    chunked_prefill: Number = quantity(
        "1", "1 where prompts are read in the steps that decode, 0 where these wait for steps that only read"
    )
    max_num_batched_tokens: Number = quantity(
        "1",
        "tokens of one step at most, over all its sequences; a longer prompt is read in chunks",
        positive=True,
    )
    max_num_seqs: Number = quantity("1", "sequences one attention rank runs at once at most", positive=True)
    kv_block_size: Number = quantity("1", "tokens of one block of the KV cache", positive=True)
    gpu_memory_utilization: Number = quantity("1", "share of device memory the engine may fill")
    reserve: Number = quantity("B", "memory of each device that is never the engine's: context, libraries")
    versions: tuple[EngineVersion, ...] = ()
    training: Trainer | None = part(Trainer, "how it trains; left out: as Megatron's defaults", optional=True)
    sources: Sources = field(default_factory=Sources)


def engine(name: str = "ideal", /, **changes: Any) -> Engine:
    """An engine by name or TOML path, with quantities replaced. A version or a day after @ is what it was
    then (`vllm@0.11`, `vllm@2025-10-29`); without one it is the newest.

    >>> float(engine("ideal").host_step)
    0.0
    >>> float(engine("vllm@0.12").async_scheduling), float(engine("vllm").async_scheduling)
    (0.0, 1.0)
    """
    stated: Engine = _stated(str(name))
    if not changes:
        return stated
    changed, given = override(stated, changes, "engine")
    return replace(changed, sources=stated.sources.updated(given))


def request_time(engine: Engine, tokens: Number) -> Number:
    r"""Time of a request alone outside all steps [s].

    .. math:: T = r + p t

    fixed time r; a prompt of p tokens, t each to be tokenised. Prompts are tokenised one after another: where
    many come at once, they wait for each other.

    >>> float(request_time(engine("ideal", frontend_latency=0.01, tokenize=2e-6), 1000.0))
    0.012
    """
    return engine.frontend_latency + engine.tokenize * tokens


def version_key(version: str) -> tuple[int, ...]:
    """The numbers of a version or a day, in the order versions follow one another; a candidate (rc) comes
    before its release.

    >>> version_key("1.2.0rc6.post3") < version_key("1.2.0") < version_key("1.10"), version_key("2025-10-29")
    (True, (2025, 10, 29))
    """
    numbers = re.match(r"v?(\d+(?:[.-]\d+)*)(?:rc(\d+))?", version)
    require(
        numbers is not None, "a version must begin with a number, like 0.14 or 2025-10-29", version=version
    )
    assert numbers is not None
    release = tuple(int(part) for part in re.split(r"[.-]", numbers.group(1)))
    return release if numbers.group(2) is None else (*release[:-1], release[-1] - 1, int(numbers.group(2)))


def is_day(version: str) -> bool:
    """Whether what stands after @ is a day."""
    return re.fullmatch(r"\d{4}-\d\d-\d\d", version) is not None


def usual_engine(phase: str) -> str:
    """The engine where none is named: a server where requests are served, else no software."""
    return USUAL_SERVER if phase == "serve" else "ideal"


def has_host_time(given: Engine) -> bool:
    """Whether an engine adds host time to a step, as all software does.

    >>> [has_host_time(engine(name)) for name in ("ideal", "vllm", "megatron")]
    [False, True, True]
    """
    return bool(np.any(np.asarray(given.host_step + given.step_gap + given.sequence_gap) > 0))


def as_engine(given: Engine | str) -> Engine:
    """The engine that is given, or the one of a name."""
    return engine(given) if isinstance(given, str) else given


def trainer_of(given: Engine) -> Trainer:
    """How an engine trains; what does not say so does it as Megatron.

    >>> trainer_of(engine("vllm")).gathered_parameters
    'bf16'
    """
    trainer = given.training or engine(USUAL_TRAINER).training
    assert trainer is not None
    return trainer


@remembered
def _stated(name: str) -> Engine:
    file, at, version = (name, "", "") if name.endswith(".toml") else name.partition("@")
    require(bool(version) or not at, "a version stands after @, like vllm@0.12", engine=name)
    releases: list[EngineVersion] = []
    stated, params, _ = read_record(Engine, "engine", file, partial(_at_version, file, version, releases))
    return replace(stated, versions=tuple(releases), sources=Sources(params))


def _at_version(
    name: str, version: str, releases: list[EngineVersion], table: dict[str, Any]
) -> dict[str, Any]:
    """The table of an engine's file as of a version: what later releases changed lies over the rest."""
    entries = table.pop("versions", [])
    for entry in entries if isinstance(entries, list) else [entries]:
        dated = isinstance(entry, dict) and all(isinstance(entry.get(k), str) for k in ("version", "date"))
        if not dated or not is_day(entry["date"]):
            raise BadFile(f"engine {name}: each of [[versions]] has a version and a date like 2026-01-20")
        changes = tuple(key for key in entry if key not in ("version", "date"))
        releases.append(EngineVersion(entry["version"], entry["date"], changes))
    releases.sort(key=lambda release: version_key(release.version))
    entries = sorted(entries, key=lambda entry: version_key(entry["version"]))
    if version:
        wanted = _release(name, version, releases)
        for entry in reversed(entries):
            if version_key(entry["version"]) >= version_key(wanted.version):
                over = {key: value for key, value in entry.items() if key not in ("version", "date")}
                table = merged(table, over)
    return table


def _release(name: str, version: str, releases: list[EngineVersion]) -> EngineVersion:
    """The release a version names, or begins with, or that begins with it; of a day the last one out."""
    known = [r.version for r in releases]
    if is_day(version):
        out = [r for r in releases if r.date <= version]
        if not out:
            first = f"{releases[0].version} ({releases[0].date})" if releases else "none is listed"
            raise UnknownName(f"version of {name}", version, (), f"the first listed is {first}")
        return out[-1]
    bare = version.removeprefix("v")
    exact = [r for r in releases if bare == r.version or re.match(rf"{re.escape(r.version)}\D", bare)]
    wider = [r for r in releases if re.match(rf"{re.escape(bare)}\D", r.version)]
    if not exact and not wider:
        raise UnknownName(f"version of {name}", version, known, ", ".join(known) or "none is listed")
    return (exact or wider)[-1]
