"""MLPerf Training: seconds an optimiser step under the plan of the submitted configuration, and whether we
would have said that it fits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import CONTEXT, Plan, plan
from strata.mapping.trainer import FORMATS
from strata.mapping.training_plan import OFFLOAD, RECOMPUTE
from strata.params import part, quantity, text
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.labels import dashed_all, trained_format
from strata.validation.readers.like_cases import case_keys
from strata.validation.readers.steps import priced_step, used_bytes
from strata.validation.readers.tables import Table
from strata.validation.readers.training_steps import (
    TRAINER,
    AdapterConditions,
    called_right,
    ranked_within,
    trained_parts,
    with_trainer,
)
from strata.workload.model import Model
from strata.workload.tasks import Workload, train


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundSoftware:
    """What software does from one round on; what is left out stays as it was."""

    source: str = text("where it is told, or why it is taken so")
    since: str = text("the first round it holds in, as v5.1")
    others: str = text("chips whose software is another, with commas; left out: none", default="")
    trains: str = text("all or lora; left out: both", default="")
    precisions: str = text("formats of products it holds for, with commas; left out: all", default="")
    tensor: Number | None = quantity(
        "1", "ranks of a tensor group above which it does not hold; left out: any number", optional=True
    )
    quantize_bytes: Number | None = quantity(
        "B",
        "read of an element of an operand to round it for both products that need it (`Trainer`); 0 where "
        "the kernel before does so",
        optional=True,
        minimum=0,
    )
    fused_adapters: Number | None = quantity(
        "1", "1 where adapters are added within their products", optional=True, minimum=0
    )

    def holds(self, run: MlperfRun) -> bool:
        """Whether a run is one of these; one that names no round is none."""
        return (
            round_order(run.round) >= round_order(self.since)
            and run.chip not in self.others.split(",")
            and self.trains in ("", run.trains)
            and (not self.precisions or run.precision in self.precisions.split(","))
            and (self.tensor is None or bool(run.tensor <= self.tensor))
        )


@dataclass(frozen=True)
class MlperfRun:
    """What decides which software a run had."""

    round: str
    chip: str
    trains: str
    precision: str
    tensor: float


@dataclass(frozen=True)
class FusedKernels:
    """What the software of a run does otherwise than its engine's file says."""

    quantize_bytes: float | None = None
    fused_adapters: bool = False


def fused_in_round(software: Sequence[RoundSoftware], run: MlperfRun) -> FusedKernels:
    """What the software of a run does: of each, the last that any record says.

    >>> fuser = RoundSoftware(source="", since="v5.1", tensor=1.0, fused_adapters=1.0)
    >>> run = MlperfRun("v5.1", "b200", "lora", "fp8", 1.0)
    >>> fused_in_round([fuser], run).fused_adapters
    True
    >>> fused_in_round([fuser], MlperfRun("v5.0", "b200", "lora", "fp8", 1.0)).fused_adapters
    False
    """
    found = FusedKernels()
    for one in software:
        if one.holds(run):
            read = found.quantize_bytes if one.quantize_bytes is None else float(one.quantize_bytes)
            adapters = found.fused_adapters if one.fused_adapters is None else bool(one.fused_adapters)
            found = FusedKernels(read, adapters)
    return found


def round_order(name: str) -> tuple[int, ...]:
    """A round as numbers that compare as rounds follow each other; none of a name without numbers.

    >>> round_order("v3.1") < round_order("v4.0") < round_order("v10.0"), round_order("")
    (True, ())
    """
    return tuple(int(number) for number in re.findall(r"\d+", name))


SIZES = ("devices", "nodes", "seq", "global_batch_sequences", "micro_batch", "tp", "cp", "pp", "virtual")
# Settings that are 1 or 0, by the columns that tell them; what a file leaves empty is off.
TRAINER_SETTINGS = {
    "tp_comm_overlap": "tp_overlap",
    "overlap_grad_reduce": "grad_reduce_overlap",
    "overlap_param_gather": "param_gather_overlap",
}
SWITCHES = ("zero", "sp", "pp_embed_loss_balanced", "optimizer_offload", *TRAINER_SETTINGS.values())
WORDS = ("model", "precision", "attention_precision", "recompute", "trains", "cuda_graph", "fp8_param_gather")
GBPS = 1e9 / 8.0  # B/s of a Gb/s
_BLOCK = re.compile(r"full/block/(\d+)")


@dataclass(frozen=True, eq=False, kw_only=True)
class MlperfTrainingConditions:
    """What all submissions of a benchmark have in common."""

    title: str = text("what was run")
    reduced_gradients: str = text("format in which gradients cross between ranks", choices=FORMATS)
    activation_input: Number = quantity(
        "B",
        "kept of an element that the activation reads in runs of adapters in narrow formats",
        positive=True,
    )
    context: str = text("how context ranks meet in attention", choices=CONTEXT)
    host_kernel: Number = quantity("s", "host time of a kernel that no graph holds", minimum=0)
    host_narrow: Number = quantity("s", "host time that a product in a narrow format adds to it", minimum=0)
    software: tuple[RoundSoftware, ...] = part(
        RoundSoftware, "what software does from one round on, later records over earlier ones", many=True
    )
    adapters: AdapterConditions = part(AdapterConditions, "adapters of the runs that train only those")


def mlperf_steps(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Seconds a step, and the share of these runs, which all ran, that we would have called too large; ranks
    of plans and sizes of one chip and model.
    """
    known = read_conditions(MlperfTrainingConditions, table, "training/mlperf.toml")
    s = table.numbers(*SIZES)
    s |= {name: table.number(name, empty=0.0) for name in SWITCHES}
    s |= {"inside": domain_used(table), "lora_rank": table.number("lora_rank")}
    s["rate"] = table.number("inter_node_gbps_per_device") * GBPS
    chips = np.array(dashed_all(table.text("chip")), dtype=object)
    keys = [chips, *(table.text(c) for c in WORDS), _fused_kernels(table, chips, known)]

    def price(key: tuple[Any, ...], rows: Array) -> Any:
        chip_name, model_name, precision, attention, recompute, trains, graph, gathered, fused, inside = key
        v = {k: x[rows] for k, x in s.items()}
        adapters = trained_parts("trains", trains, ("all",), known.adapters, v["lora_rank"])
        if adapters is not None:
            adapters = replace(adapters, fused=fused.fused_adapters)
        system = _joined(catalogue, chip_name, v["devices"], inside, v["rate"])
        narrow = "" if attention in ("", "bf16", "fp16") else trained_format(attention)
        model = replace(
            catalogue.model(model_name, weights=trained_format(precision), kv="bf16"),
            attention_products=narrow,
        )
        engine = with_trainer(
            replace(catalogue.engine(TRAINER), cuda_graphs=1.0 if graph else 0.0),
            reduced_gradients=known.reduced_gradients,
            gathered_parameters="fp8" if gathered == "1" else "bf16",
            host_kernel=known.host_kernel,
            host_narrow=known.host_narrow,
            **{setting: v[column] for setting, column in TRAINER_SETTINGS.items()},
        )
        if fused.quantize_bytes is not None:
            engine = with_trainer(engine, quantize_bytes=fused.quantize_bytes or None)
        if adapters is not None and trained_format(precision) != "bf16":
            engine = _rounds_activation_input(engine, known.activation_input)
        work = train(v["global_batch_sequences"], v["seq"], adapters=adapters)
        time, used = _recomputed_step(system, model, work, v, recompute, engine, known.context)
        return time, used <= system.chip.memory.capacity

    forecasts = forecast(table, [*keys, s["inside"]], price, SIZES, metrics=2)
    models, count = table.text("model"), len(table)
    names = group_names(table.text("trains"), chips, models, count=count)
    case = case_keys(catalogue, "train", chips, models, TRAINER)
    time = compare_metric(table, table.number("step_seconds"), forecasts, names, case=case)
    fits = called_right(
        table, forecasts[1], forecasts.why, group_names("fits", chips, models, count=count), headline=False
    )
    systems = [f"{chip}/{name}" for chip, name in zip(chips, models, strict=True)]
    points = ranked_within(join_metrics([time, fits]), systems, table.lines)
    return replace(points, ranks={name: one_of_each(points, rows) for name, rows in points.ranks.items()})


def _fused_kernels(table: Table, chips: Array, known: MlperfTrainingConditions) -> Array:
    """What the software of each row's round does otherwise; a file without rounds says nothing of it."""
    rounds = table.columns.get("round", np.full(len(table), "", dtype=object))
    columns = rounds, chips, table.text("trains"), table.text("precision"), table.number("tp")
    runs = (MlperfRun(*cells) for cells in zip(*columns, strict=True))
    found = np.empty(len(table), dtype=object)
    found[:] = [fused_in_round(known.software, run) for run in runs]
    return found


def _rounds_activation_input(engine: Engine, size: Number) -> Engine:
    """An engine whose trainer keeps what a gated activation reads in so many bytes."""
    held = None if engine.training is None else engine.training.memory
    return engine if held is None else with_trainer(engine, memory=replace(held, activation_input=size))


def one_of_each(points: ComparedPoints, rows: Array) -> Array:
    """Of rows that ask the same, as several vendors submit them, the one in the middle: between them there is
    no order to predict.
    """
    by_prediction: dict[float, list[int]] = {}
    for row in sorted(rows, key=lambda row: points.measured[row]):
        by_prediction.setdefault(float(points.predicted[row]), []).append(int(row))
    return np.array([like[len(like) // 2] for like in by_prediction.values()])


def domain_used(table: Table) -> Array:
    """Devices of each scale-up domain that a job uses: what its segments have, else as large an equal part of
    the domain as there is (64 of 72).
    """
    devices, domain = table.number("devices"), table.number("scale_up_domain", empty=1.0)
    segment = table.number("segment_nodes") * table.number("devices_per_node")
    used = np.where(np.isnan(segment), domain, segment)
    return np.array([_equal_part(d, u) for d, u in zip(devices, used, strict=True)])


def _equal_part(devices: float, most: float) -> float:
    """The largest part of so many devices, all parts equal, that is at most so large.

    >>> [_equal_part(*pair) for pair in ((256.0, 72.0), (8.0, 72.0), (144.0, 72.0))]
    [64.0, 8.0, 72.0]
    """
    if np.isnan(devices) or devices < 1 or most < 1:
        return 1.0
    parts = range(int(min(devices, most)), 0, -1)
    return float(next((part for part in parts if devices % part == 0), 1))


def _joined(catalogue: Catalogue, chip_name: str, devices: Array, inside: float, rate: Array) -> System:
    """Systems of one chip that use so many devices of each domain, with adapters as a file states them."""
    several = bool(np.any(devices > inside))
    first = catalogue.system(f"{'2x' if several else ''}{inside:.0f}x{chip_name}")
    if not several:
        return first
    *inner, outer = first.fabric.dimension
    bandwidth = np.where(np.isnan(rate), outer.bandwidth, rate)
    between = replace(outer, size=devices / inside, bandwidth=bandwidth)
    fabric = replace(first.fabric, dimension=(*inner, between))
    return System(f"{chip_name} systems", first.chip, fabric)


def _recomputed_step(
    system: System,
    model: Model,
    work: Workload,
    v: dict[str, Array],
    recompute: str,
    engine: Engine,
    context: str,
) -> tuple[Any, Any]:
    """Time of a step and bytes of a device, all layers of a chunk recomputed or the first so many."""
    block = _BLOCK.fullmatch(recompute)
    mode = "full" if block else recompute or RECOMPUTE[0]
    if mode not in RECOMPUTE:
        raise BadValue(f"recompute must be {', '.join(RECOMPUTE)} or full/block/N, but got '{recompute}'")
    layout = _layout(v, mode, context)
    if block:
        layout = replace(layout, recompute_layers=float(block.group(1)))
    priced = priced_step(system, model, work, layout, engine)
    return priced.time, used_bytes(priced)


def _layout(v: dict[str, Array], recompute: str, context: str) -> Plan:
    """The plan of a configuration."""
    dp = v["devices"] / (v["tp"] * v["cp"] * v["pp"])
    return plan(
        tp=v["tp"],
        cp=v["cp"],
        pp=v["pp"],
        dp=dp,
        microbatches=np.maximum(np.round(v["global_batch_sequences"] / (dp * v["micro_batch"])), 1.0),
        virtual_stages=np.where(v["pp"] > 1, np.maximum(v["virtual"], 1.0), 1.0),
        zero=v["zero"],
        sp=v["sp"],
        recompute=recompute,
        split_ends=np.where(v["pp"] > 1, v["pp_embed_loss_balanced"], 0.0),
        offload=np.where(v["optimizer_offload"] > 0, float(OFFLOAD.index("optimizer")), 0.0),
        cp_mode=context,
    )
