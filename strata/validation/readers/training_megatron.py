"""Training runs of Megatron and DeepSpeed: seconds a step, and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.mapping.plan import CONTEXT, plan
from strata.params import quantity, text
from strata.validation.readers.benchmark_conditions import (
    GptConditions,
    MegatronConditions,
    OneModelConditions,
    read_conditions,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.like_cases import case_key, model_family
from strata.validation.readers.steps import (
    systems_of,
    used_bytes,
    with_layers,
)
from strata.validation.readers.tables import Table
from strata.validation.readers.training_steps import (
    TRAINER,
    gpt_model,
    ranked_by_gpus,
    training_step,
)

GIB = 2.0**30


@dataclass(frozen=True, eq=False, kw_only=True)
class OverlapConditions:
    """Training runs whose files hold every size, but not which collectives run beside the passes."""

    title: str = text("what was run")
    overlap_grad_reduce: Number = quantity("1", "1 where gradients are reduced beside the backward pass")
    overlap_param_gather: Number = quantity("1", "1 where parameters are gathered beside the forward pass")
    context: str = text("how context ranks meet in attention", choices=CONTEXT)
    host_kernel: Number = quantity(
        "s", "host time of a kernel of the forward pass, with its module around it"
    )
    slowest: Number = quantity(
        "1",
        "power limit at which a mean chip runs as fast as the slowest of the node at its own, over that: all "
        "ranks of a step wait for it",
        positive=True,
    )


def with_power_limit(chip: Chip, share: Number) -> Chip:
    """A chip with a share of its power limit."""
    return replace(chip, energy=replace(chip.energy, power_limit=share * chip.energy.power_limit))


def a100_megatron(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Seconds a batch of the published Megatron runs."""
    s = table.numbers("batch", "mb", "dp", "tp", "pp", "cp")
    keys = [table.text(c) for c in ("device", "model", "tp_sp", "recomputation")]
    known = read_conditions(MegatronConditions, table, "training/a100_megatron.toml")
    models = {model.name: model for model in known.model}

    def price(key: tuple[str, str, str, str], rows: Array) -> Any:
        size = key[1].split()[-1]
        if size not in models:
            raise BadValue(f"model must be GPT of {', '.join(models)}, but got '{key[1]}'")
        shape = models[size]
        v = {k: x[rows] for k, x in s.items()}
        chunks = shape.chunks if key[0].endswith("korthi") else None
        told: dict[str, Any] = {"async_tp": 0.0} if key[0].endswith(known.earlier) else {}
        layout = plan(
            tp=v["tp"],
            pp=v["pp"],
            dp=v["dp"],
            cp=v["cp"],
            microbatches=v["mb"],
            virtual_stages=np.where(v["pp"] > 1, 1.0 if chunks is None else chunks, 1.0),
            sp=1.0 if key[2].lower() == "true" else 0.0,
            recompute=key[3] or "none",
        )
        model = gpt_model(shape.layers, shape.hidden, shape.heads, known.sequence, known.vocabulary)
        system = systems_of(catalogue, "a100", v["tp"] * v["pp"] * v["dp"] * v["cp"])
        length = known.sequence + 0.0 * v["batch"]
        return training_step(
            catalogue, system, model, v["batch"], length, layout, engine=known.engine, **told
        ).time

    forecasts = forecast(table, keys, price, tuple(s))
    names = group_names("time", table.text("model"), count=len(table))
    case = [case_key(catalogue, "train", "a100", "dense", "gpt", known.engine)] * len(table)
    points = compare_metric(table, table.number("actual"), forecasts, names, case=case)
    return ranked_by_gpus(points, table, s["tp"] * s["pp"] * s["dp"] * s["cp"])


def a100_deepspeed(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Milliseconds an iteration of Megatron-DeepSpeed: full recomputation, 1F1B, ZeRO-0, fp16."""
    sizes = ("gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "seq", "tp", "dp", "pp")
    s = table.numbers(*sizes)
    known = read_conditions(GptConditions, table, "training/a100_deepspeed.toml")

    def price(key: tuple[()], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        microbatches = np.maximum(np.round(v["global_batch"] / (v["dp"] * v["micro_batch"])), 1.0)
        layout = plan(tp=v["tp"], dp=v["dp"], pp=v["pp"], microbatches=microbatches, recompute=2.0)
        model = gpt_model(v["layers"], v["hidden"], v["heads"], v["seq"], known.vocabulary)
        system = systems_of(catalogue, "a100", v["gpus"])
        return training_step(
            catalogue, system, model, v["global_batch"], v["seq"], layout, engine=known.engine
        ).time

    forecasts = forecast(table, [], price, tuple(s))
    names = group_names("time", Path(table.name).stem, count=len(table))
    case = [case_key(catalogue, "train", "a100", "dense", "gpt", known.engine)] * len(table)
    points = compare_metric(table, table.number("iteration_ms") * 1e-3, forecasts, names, case=case)
    return ranked_by_gpus(points, table, s["gpus"])


def b200_megatron(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Time and peak allocated memory of a few layers of Llama on one node: distributed optimiser (ZeRO-1),
    sequence parallel with TP.
    """
    sizes = ("layers", "tp", "pp", "dp", "ep", "cp", "seq_len", "micro_batch", "num_microbatches")
    s = table.numbers(*sizes)
    models = table.text("model")
    known = read_conditions(OverlapConditions, table, "training/b200_megatron.toml")
    overlaps: dict[str, Any] = {
        "overlap_grad_reduce": known.overlap_grad_reduce,
        "overlap_param_gather": known.overlap_param_gather,
        "host_kernel": known.host_kernel,
    }

    def price(key: tuple[str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        microbatches = v["num_microbatches"]
        layout = plan(
            tp=v["tp"],
            pp=v["pp"],
            dp=v["dp"],
            cp=v["cp"],
            ep=v["ep"],
            microbatches=microbatches,
            zero=np.ones_like(microbatches),
            sp=np.ones_like(microbatches),
            cp_mode=known.context,
        )
        system = systems_of(catalogue, "b200", v["tp"] * v["pp"] * v["dp"] * v["cp"])
        system = replace(system, chip=with_power_limit(system.chip, known.slowest))
        model = with_layers(catalogue.model(key[0]), v["layers"])
        batch = v["dp"] * v["micro_batch"] * microbatches
        step = training_step(catalogue, system, model, batch, v["seq_len"], layout, **overlaps)
        return step.time, used_bytes(step, reserve=False)

    forecasts = forecast(table, [models], price, tuple(s), metrics=2)
    names = {metric: group_names(metric, models, count=len(table)) for metric in ("time", "memory")}
    case = [case_key(catalogue, "train", "b200", "dense", model_family(m), TRAINER) for m in models]
    time = compare_metric(table, table.number("measured_ms") * 1e-3, forecasts, names["time"], case=case)
    peak = table.number("measured_peak_alloc_gib") * GIB
    held = [case_key(catalogue, "memory", "b200", "dense", model_family(m), TRAINER) for m in models]
    memory = compare_metric(table, peak, forecasts, names["memory"], metric=1, headline=False, case=held)
    return ranked_by_gpus(join_metrics([time, memory]), table, s["tp"] * s["pp"] * s["dp"] * s["cp"])


def a100x4(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Seconds a step of one model on four A100, one sequence a micro-batch."""
    s = table.numbers("TP", "PP", "CP", "DP")
    known = read_conditions(OneModelConditions, table, "training/a100x4_llama2_7b.toml")

    def price(key: tuple[str], rows: Array) -> Any:
        tp, pp, cp, dp = (x[rows] for x in s.values())
        layout = plan(
            tp=tp,
            pp=pp,
            cp=cp,
            dp=dp,
            microbatches=known.batch / dp,
            zero=np.where(key[0] == "FSDP", 3.0, 0.0) + 0.0 * dp,
        )
        system = systems_of(catalogue, "a100", tp * pp * cp * dp, known.fabric)
        model = catalogue.model(known.model)
        batch, length = known.batch + 0.0 * dp, known.sequence + 0.0 * dp
        return training_step(catalogue, system, model, batch, length, layout, engine=known.engine).time

    forecasts = forecast(table, [table.text("variant")], price, tuple(s))
    names = group_names("time", Path(table.name).stem, count=len(table))
    family = model_family(known.model)
    case = [case_key(catalogue, "train", "a100", "dense", family, known.engine)] * len(table)
    points = compare_metric(table, table.number("Avg_Step_Time_s"), forecasts, names, case=case)
    return ranked_by_gpus(points, table, s["TP"] * s["PP"] * s["CP"] * s["DP"])
