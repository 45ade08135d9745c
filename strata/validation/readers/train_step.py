"""Passes of a training step on one device: layers forward, the loss, and backward through both; and
forward passes of a decoder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue, UnknownName
from strata.hardware.chip import Chip
from strata.mapping.engine import Engine, trainer_of
from strata.mapping.plan import Plan, plan
from strata.pricing.power_cap import power_capped, time_at_clock
from strata.pricing.price import Price, total_price
from strata.pricing.step import Step
from strata.pricing.training_memory import NOTHING, kept_activations
from strata.validation.readers.benchmark_conditions import TrainedConditions, read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    fastest_backend,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.like_cases import case_key, model_family
from strata.validation.readers.steps import dense_model, priced_step
from strata.validation.readers.tables import Table
from strata.workload.model import Model
from strata.workload.tasks import decode, prefill, train

SIZES = ("layers", "hidden", "q_heads", "kv_heads", "head_dim", "ffn", "vocab", "batch", "sequence")
ENGINES = {"compiled": "torch-compile", "eager": "pytorch"}
RECOMPUTE = {0.0: "none", 1.0: "full"}
LAYERS, HEAD = ("attention", "ffn"), "head"  # roles of blocks; there is no embedding in what was timed
METRICS = {"forward": "forward_s", "loss": "loss_forward_s", "backward": "backward_s", "kept": "kept_bytes"}


def train_steps(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """A rank's share of a decoder (sizes are the rank's): time of each pass, and what its layers keep for the
    backward pass.
    """
    s = table.numbers(*SIZES)
    modes = table.text("mode")
    system = catalogue.system(f"1x{table.chip}")
    known = read_conditions(TrainedConditions, table, "h200/train_step.toml")

    def price(key: tuple[str, float, float], rows: Array) -> Any:
        mode, gated, recompute = key
        if mode not in ENGINES:
            raise UnknownName("mode of a training step", mode, ENGINES, ", ".join(ENGINES))
        if recompute not in RECOMPUTE:
            raise BadValue(f"recompute must be 0 or 1, but got {recompute:g}")
        v = {k: x[rows] for k, x in s.items()}
        division = plan(recompute=RECOMPUTE[recompute], microbatches=1)
        engine = _on_host(catalogue.engine(ENGINES[mode]), known.host)
        step = priced_step(system, _decoder(v, gated > 0), train(v["batch"], v["sequence"]), division, engine)
        forward, loss, backward = measured_passes(step, system.chip)
        times = forward + known.start, loss, backward
        return (*times, kept_by_layers(step, recompute > 0, engine))

    keys = [modes, table.number("gated"), table.number("recompute")]
    forecasts = forecast(table, keys, price, (*SIZES, "gated", "recompute"), metrics=len(METRICS))
    parts = [
        compare_metric(
            table,
            table.number(column),
            forecasts,
            group_names(metric, modes, table.text("model"), count=len(table)),
            metric=i,
            headline=metric in ("forward", "backward"),
        )
        for i, (metric, column) in enumerate(METRICS.items())
    ]
    return join_metrics(parts)


def _on_host(engine: Engine, slower: Number) -> Engine:
    """An engine on a host that takes so many times as long for a kernel."""
    trainer = engine.training
    if trainer is None or trainer.host_kernel is None:
        return replace(engine, launches=engine.launches * slower)
    return replace(engine, training=replace(trainer, host_kernel=trainer.host_kernel * slower))


def _decoder(v: dict[str, Array], gated: bool) -> Model:
    named = ("layers", "hidden", "kv_heads", "head_dim", "ffn", "vocab")
    return dense_model("decoder", heads=v["q_heads"], gated=gated, **{k: v[k] for k in named})


def _passes(step: Step) -> tuple[list[tuple[Number, Price]], ...]:
    """Prices of the layers forward, of the loss forward, and of the backward pass with what runs again."""
    forward: list[tuple[Number, Price]] = []
    loss: list[tuple[Number, Price]] = []
    backward: list[tuple[Number, Price]] = []
    for b in step.blocks:
        if b.block.role not in (*LAYERS, HEAD):
            continue
        if b.block.direction == "backward":
            backward.append((b.block.times, b.price))
        elif b.block.role == HEAD:
            loss.append((b.block.times, b.price))
        else:
            forward.append((b.block.times, b.price))
            backward.append((b.block.times, b.again))
    return forward, loss, backward


def measured_passes(step: Step, chip: Chip) -> tuple[Number, Number, Number]:
    """Time of the layers forward, of the loss forward, and of the backward pass of both [s], at the clock
    that all of them together leave.
    """
    prices = [total_price(parts) for parts in _passes(step)]
    whole = total_price([(1.0, price) for price in prices])
    clock = power_capped(whole, chip, briefly=True).share
    forward, loss, backward = (time_at_clock(price, clock) for price in prices)
    return forward, loss, backward


def kept_by_layers(step: Step, recomputed: bool, engine: Engine) -> Number:
    """Bytes that the layers keep for their backward pass: all that it reads, or what they take in."""
    layers = [b for b in step.blocks if b.block.role in LAYERS and b.block.direction == "forward"]
    if recomputed:  # a layer keeps what it takes in; of its blocks each has an entry
        return sum((b.block.times * b.held.boundary for b in layers if b.block.role == LAYERS[0]), 0.0)
    facts = trainer_of(engine).memory or NOTHING
    return sum((b.block.times * kept_activations(b.held, 0.0, facts, False) for b in layers), 0.0)


PASS_SIZES = (
    "layers",
    "hidden",
    "q_heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "vocab",
    "batch",
    "q_len",
    "context",
)


def decoder_passes(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Forward passes from one captured graph, nothing around it: the ideal engine. The faster backend of each
    case counts.
    """
    table = fastest_backend(table, ("model", "phase", *PASS_SIZES), "median_s")
    s = table.numbers(*PASS_SIZES)
    system, engine = catalogue.system(f"1x{table.chip}"), catalogue.engine("ideal")

    def price(key: tuple[str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        if key[0] not in ("prefill", "decode"):
            raise BadValue(f"phase must be prefill or decode, but got '{key[0]}'")
        if key[0] == "prefill":
            work = prefill(v["batch"], v["q_len"], cached=v["context"] - v["q_len"])
        else:
            work = decode(v["batch"], v["context"], tokens=v["q_len"])
        named = ("layers", "hidden", "kv_heads", "head_dim", "ffn", "vocab")
        model = dense_model("decoder", heads=v["q_heads"], **{k: v[k] for k in named})
        return priced_step(system, model, work, Plan(), engine).time

    forecasts = forecast(table, [table.text("phase")], price, PASS_SIZES)
    names = group_names(table.text("model"), table.text("phase"), count=len(table))
    cases = [
        case_key(catalogue, phase, table.chip, "dense", model_family(name), "ideal")
        for phase, name in zip(table.text("phase"), table.text("model"), strict=True)
    ]
    return compare_metric(
        table, table.number("median_s"), forecasts, names, case=np.array(cases, dtype=object)
    )
