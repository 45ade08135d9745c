"""Engines: what serving and training software adds to the kernels. A few numbers each, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any

from strata.arrays import Number, register_pytree
from strata.errors import require
from strata.mapping.trainer import Trainer
from strata.params import Sources, by_name, override, part, quantity, read_record, remembered, text
from strata.records import readable

USUAL_TRAINER = "megatron"


@register_pytree
@readable("before")
@dataclass(frozen=True, eq=False, kw_only=True)
class EarlierVersion:
    """What an engine did otherwise before a version; what is left out it did as now."""

    before: str = text("the version that changed it and when it came out, like v0.14 (2026-01-20)")
    asynchronous: Number | None = quantity("1", "as of the engine", optional=True, minimum=0)
    gap: Number | None = quantity("s", "as of the engine", optional=True, minimum=0)
    expert_layer: Number | None = quantity("s", "as of the engine", optional=True, minimum=0)


@register_pytree
@readable("platform")
@dataclass(frozen=True, eq=False, kw_only=True)
class OnPlatform:
    """What an engine does otherwise on a platform than on CUDA; what is left out it does as there."""

    platform: str = text("software that kernels are written for, as chips name it, like rocm")
    separate_quantize_share: Number | None = quantity("1", "as of the engine", optional=True, minimum=0)
    pdl_overlap: Number | None = quantity("1", "as of the engine", optional=True, minimum=0)


@register_pytree
@readable("name", "kernels", "collectives", "overlap")
@dataclass(frozen=True, eq=False, kw_only=True)
class Engine:
    """Host time, launches, and what an engine takes at once and may fill.

    Kernels are `bare`, or those of serving frameworks (`served`): attention over pages, activations rounded
    in passes of their own.
    """

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    kernels: str = text("whose kernels it runs", choices=("bare", "served"), default="bare")
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
    at_least: str = text(
        "an engine that it is never quicker than: software adds to what a chip does by itself; none where it "
        "repeats another program's counts",
        choices=("", "ideal"),
        default="ideal",
    )
    fusion: str = text(
        "kernels fused on the chip: wherever that is quicker on chips that execute dataflow, or none",
        choices=("dataflow", "none"),
        default="dataflow",
    )
    launcher: str = text(
        "the version whose command line starts it, a file of launchers/; none: there is none", default=""
    )
    expert_inputs: str = text(
        "format to which activations of experts in a narrow microscaling format (mxfp4) are rounded where "
        "the chip has that arithmetic; left out: 16 bits, by kernels measured so",
        choices=("", "fp8"),
        default="",
    )
    weight_only_experts: str = text(
        "kernels for experts in a format the chip has no arithmetic for: measured under that format's name, "
        "or a grouped product of the activations' format that widens weights inside (fused)",
        choices=("measured", "fused"),
        default="measured",
    )
    step: Number = quantity(
        "s", "host time of one step that no kernel hides: scheduling, input preparation, sampling"
    )
    sequence: Number = quantity(
        "s", "host time that each sequence of a rank adds to a step: its blocks, its token, its state"
    )
    stream: Number = quantity(
        "s",
        "host time that each token sent to a client as it comes adds to a step: detokenised, "
        "packed, sent; none offline",
    )
    sampling: Number | None = quantity(
        "1",
        "share of the time that sequences add to a step in which the device works at their logits (sorts, "
        "masks and draws), counted at the power of streaming from DRAM; left out: it waits",
        optional=True,
        minimum=0,
    )
    request: Number = quantity(
        "s", "time of a request outside all steps: taken in, tokenised, queued, its first token sent"
    )
    tokenize: Number | None = quantity(
        "s",
        "host time of each token of a prompt before the engine has it, one request after another; left out: "
        "part of a request's time",
        optional=True,
        minimum=0,
    )
    balance: Number = quantity(
        "1", "steps a prompt waits where attention ranks run beside one another: all are to read at once"
    )
    graph_break_time: Number = quantity(
        "s",
        "host time of one attention layer that no captured graph holds: the graph is broken around it",
    )
    breaks_at_chunks: Number | None = quantity(
        "1",
        "1 where captured graphs hold no attention of models that attend in chunks, as none holds sparse "
        "attention; left out: they hold it",
        optional=True,
        minimum=0,
    )
    asynchronous: Number | None = quantity(
        "1",
        "1 where the host schedules a step and sends tokens while the device works at the step before, so "
        "that the longer of both counts; left out: the device waits",
        optional=True,
        minimum=0,
    )
    gap: Number | None = quantity(
        "s",
        "time of the device between two steps that runs beside nothing: inputs copied, tokens drawn, the "
        "first kernel started; left out: none beyond the host's",
        optional=True,
        minimum=0,
    )
    whole_prompt: Number | None = quantity(
        "1",
        "1 where a request is let in only where blocks of the cache are free for all of its prompt; left "
        "out: where they are for the first chunk of it",
        optional=True,
        minimum=0,
    )
    separate_quantize_share: Number = quantity(
        "1",
        "share of narrow products before which a kernel of its own rounds the activations; the "
        "others' come rounded",
    )
    fused: Number = quantity(
        "1",
        "1 where residuals, norms, rotations, cache writes and gated activations are fused "
        "kernels, 0 where each is several",
    )
    pads_remote_experts: Number = quantity(
        "1",
        "1 where a rank of experts fills, activates and sums a row for every pick of its tokens, "
        "of experts held elsewhere too",
    )
    shared_expert_stream: Number = quantity(
        "1", "1 where experts that all tokens share run on a stream of their own, beside the routed ones"
    )
    product_rate: dict[str, Number] | None = by_name(
        "1",
        "rate of its products over that of a chip's best kernels, by the platform it runs on; 1 where none "
        "is given",
        optional=True,
    )
    expert_rate: dict[str, Number] | None = by_name(
        "1",
        "rate of its products of experts by format, over that of the kernels they were measured "
        "with; 1 where none is given",
        optional=True,
    )
    weight_only_rate: Number | None = quantity(
        "1",
        "rate at which fused weight-only products of experts read weights and multiply, over that of "
        "products in the activations' format; left out: 1",
        optional=True,
        minimum=0,
    )
    weight_only_work: Number | None = quantity(
        "1",
        "rate at which these multiply where every expert has tiles full of rows, as it does of prompts: "
        "weights are widened again for each tile; left out: as weight_only_rate",
        optional=True,
        minimum=0,
    )
    dealt_expert_read: dict[str, Number] | None = by_name(
        "1",
        "rate at which it reads weights of experts dealt out over ranks, by format, once a step has more "
        "tokens than a rank has experts, over the rate before; 1 where none is given",
        optional=True,
    )
    dealt_expert_rate: dict[str, Number] | None = by_name(
        "1", "the same of their products over those of tiles tuned for them", optional=True
    )
    whole_expert_fixed: dict[str, Number] | None = by_name(
        "1",
        "by format, what its kernels for experts that are not dealt out over ranks keep of the fixed times "
        "of grouped products (floor, sorting, start and end of a tile); 1 where it is left out",
        optional=True,
    )
    mixed: Number = quantity(
        "1",
        "1 where prompts are read in the steps that generate, 0 where these wait for steps that only read",
    )
    graphs: Number = quantity(
        "1", "1 where kernels are replayed from captured graphs, 0 where the host launches each"
    )
    prompt_graphs: Number = quantity(
        "1", "1 where captured graphs also hold steps that read prompts, 0 where the host launches those"
    )
    pdl_overlap: Number = quantity(
        "1",
        "share of a product's least loop time that captured graphs hide: weights are fetched "
        "while the kernel before ends",
    )
    launches: Number = quantity(
        "1", "kernels the framework launches for one op of the graph, where there are no captured graphs"
    )
    expert_launches: Number = quantity(
        "1", "the same for one product of experts, with sorting, scales and sums around it"
    )
    prompt_block: Number | None = quantity(
        "s",
        "host time to launch an attention or a feed-forward of a layer, ahead of the device, in steps that "
        "read prompts and that no captured graph holds; left out: none beside that of its kernels",
        optional=True,
        minimum=0,
    )
    expert_layer: Number | None = quantity(
        "s",
        "the same of a layer of experts; left out: as prompt_block",
        optional=True,
        minimum=0,
    )
    tokens: Number = quantity(
        "1",
        "tokens of one step at most, over all its sequences; a longer prompt is read in chunks",
        positive=True,
    )
    sequences: Number = quantity("1", "sequences one attention rank runs at once at most", positive=True)
    page: Number = quantity(
        "1", "tokens of one block of the cache: a sequence's last block is held whole", positive=True
    )
    memory_share: Number = quantity("1", "share of device memory the engine may fill")
    reserve: Number = quantity(
        "B", "memory of each device that is never the engine's: context, libraries, buffers"
    )
    earlier: tuple[EarlierVersion, ...] | None = part(
        EarlierVersion, "what earlier versions did otherwise, the latest first", optional=True, many=True
    )
    elsewhere: tuple[OnPlatform, ...] | None = part(
        OnPlatform, "what it does otherwise on other platforms than CUDA", optional=True, many=True
    )
    training: Trainer | None = part(Trainer, "how it trains; left out: as Megatron's defaults", optional=True)
    sources: Sources = field(default_factory=Sources)


def engine(name: str = "ideal", /, **changes: Any) -> Engine:
    """An engine by name or TOML path, with quantities replaced. A version or a date after @ is what it was
    then (`vllm@0.11`, `vllm@2025-10-29`); without one it is the newest.

    >>> float(engine("ideal").step)
    0.0
    >>> float(engine("vllm@0.12").asynchronous), float(engine("vllm").asynchronous)
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

    >>> float(request_time(engine("ideal", request=0.01, tokenize=2e-6), 1000.0))
    0.012
    """
    return engine.request if engine.tokenize is None else engine.request + engine.tokenize * tokens


def version_key(text: str) -> tuple[int, ...]:
    """The numbers a version or a date begins with, in the order versions follow one another.

    >>> version_key("1.2.0rc6.post3") < version_key("1.10"), version_key("2025-10-29")
    (True, (2025, 10, 29))
    """
    numbers = re.match(r"v?(\d+(?:[.-]\d+)*)", text)
    require(numbers is not None, "a version must begin with a number, like 0.14 or 2025-10-29", version=text)
    assert numbers is not None
    return tuple(int(part) for part in re.split(r"[.-]", numbers.group(1)))


def at_version(given: Engine, told: str) -> Engine:
    """An engine as it was at a version or a date; the newest where none is told.

    >>> [float(at_version(engine("vllm"), told).asynchronous) for told in ("0.12.0", "2026-03-27", "")]
    [0.0, 1.0, 1.0]
    """
    changed, sources = given, given.sources
    dated = re.match(r"\d{4}-\d\d", told) is not None
    for i, version in enumerate(given.earlier or ()):
        changing, _, date = version.before.rstrip(")").partition(" (")
        if not told or version_key(told) >= version_key(date if dated else changing):
            continue
        names = [f.name for f in fields(version) if f.name != "before"]
        new = {name: value for name in names if (value := getattr(version, name)) is not None}
        stated = {name: sources[path] for name in new if (path := f"earlier.{i}.{name}") in sources}
        changed, sources = replace(changed, **new), sources.updated(stated)
    return replace(changed, sources=sources) if changed is not given else given


def on_platform(given: Engine, platform: str) -> Engine:
    """An engine as it is on a platform.

    >>> [float(on_platform(engine("sglang"), on).separate_quantize_share) for on in ("", "rocm")]
    [0.0, 1.0]
    """
    for there in given.elsewhere or ():
        if there.platform == platform:
            names = [f.name for f in fields(there) if f.name != "platform"]
            return replace(given, **{n: v for n in names if (v := getattr(there, n)) is not None})
    return given


def as_engine(given: Engine | str) -> Engine:
    """The engine that is given, or the one of a name."""
    return engine(given) if isinstance(given, str) else given


def trainer_of(given: Engine) -> Trainer:
    """How an engine trains; what does not say so does it as Megatron.

    >>> trainer_of(engine("vllm")).gathered_parameters
    'bf16'
    """
    told = given.training or engine(USUAL_TRAINER).training
    assert told is not None
    return told


@remembered
def _stated(name: str) -> Engine:
    file, _, told = (name, "", "") if name.endswith(".toml") else name.partition("@")
    stated, params, _ = read_record(Engine, "engine", file)
    return at_version(replace(stated, sources=Sources(params)), told)
