"""Engines asked in process: batches, single requests, and throughput when there is no end of requests."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue
from strata.mapping.plan import plan
from strata.validation.readers.benchmark_conditions import (
    BatchConditions,
    DecodeConditions,
    SingleRequestConditions,
    ThroughputConditions,
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
from strata.validation.readers.like_cases import case_keys
from strata.validation.readers.served_models import (
    handed_over_time,
    in_process,
    largest_running_batch,
    named_in_file,
    prompt_time,
    served_model,
    stored_model,
)
from strata.validation.readers.steps import Serving, served_batch, systems_of
from strata.validation.readers.tables import Table
from strata.workload.model import Model

# Prompts of smaller batches are noisy (validation/README.md): such rows tell nothing about others.
NOISY_PROMPTS = 16.0


def vllm_batches(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """System decode and prefill tokens/s of a batch; eager rows launch every kernel from the host."""
    s = table.numbers("tp", "ep", "batch", "input_tokens", "output_tokens")
    keys = [table.text(c) for c in ("system", "model", "engine", "precision", "eager")]
    known = read_conditions(BatchConditions, table, "serving/vllm.toml")

    def price(key: tuple[str, str, str, str, str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        model = stored_model(catalogue, key[1], key[3].removesuffix("-weights"))
        then = catalogue.engine(f"{key[2]}@{known.version}")
        engine = replace(then, graphs=1.0 - float(key[4] == "1"), stream=0.0)
        serving = Serving(catalogue.system(key[0]), model, plan(tp=v["tp"], ep=v["ep"]), engine, known.skew)
        step = served_batch(serving, v["batch"], v["input_tokens"], v["output_tokens"]).step
        reading = handed_over_time(serving, v["batch"], v["input_tokens"])
        return v["batch"] / step, v["batch"] * v["input_tokens"] / reading

    forecasts = forecast(table, keys, price, tuple(s), metrics=2)
    eager, noisy = table.text("eager") == "1", s["batch"] < NOISY_PROMPTS
    chips = [re.sub(r"^\d+x", "", system.lower()) for system in keys[0]]
    parts = []
    for metric, name in enumerate(("decode", "prefill")):
        named = group_names(keys[0], keys[1], name, count=len(table))
        part = compare_metric(
            table,
            table.number(f"{name}_tokens_per_s"),
            forecasts,
            [f"{group}/eager" if e else group for group, e in zip(named, eager, strict=True)],
            metric=metric,
            headline=(not metric) & ~eager,
            rate=True,
            case=case_keys(
                catalogue, name, chips, keys[1], keys[2], skip=eager | noisy & (name == "prefill")
            ),
        )
        parts.append(part)
    return join_metrics(parts)


def max_throughput(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Offline output tokens/s of one GPU over a run of so many requests, in waves of the largest batch that
    fits.
    """
    s = table.numbers("isl", "osl")
    keys = [table.text(c) for c in ("model", "gpu", "parallel", "weights")]
    known = read_conditions(ThroughputConditions, table, "serving/trtllm_max_throughput.toml")

    def price(key: tuple[str, str, str, str], rows: Array) -> Any:
        match = re.fullmatch(r"(TP|DEP)(\d+)", key[2])
        if not match:
            raise BadValue(f"parallel must be TPn or DEPn, but got '{key[2]}'")
        count = float(match.group(2))
        layout = plan(tp=count) if match.group(1) == "TP" else plan(dp=count, ep=count, moe_tp=1.0)
        system, engine = (
            catalogue.system(f"{int(count)}x{key[1]}"),
            in_process(catalogue.engine(known.engine)),
        )
        serving = Serving(system, _throughput_model(catalogue, key[0], key[3]), layout, engine, known.skew)
        isl, osl = s["isl"][rows], s["osl"][rows]
        requests = known.requests(isl + osl)
        batch = np.minimum(largest_running_batch(serving, isl + osl, float(layout.dp)), requests)
        full = np.floor(requests / batch)
        rest = requests - full * batch
        last = np.where(rest > 0, _wave_time(serving, np.maximum(rest, 1.0), isl, osl), 0.0)
        return requests * osl / (full * _wave_time(serving, batch, isl, osl) + last) / count

    forecasts = forecast(table, keys, price, tuple(s))
    case = case_keys(catalogue, "throughput", table.text("gpu"), table.text("model"), known.engine)
    names = group_names(table.text("gpu"), table.text("model"), count=len(table))
    measured = table.number("output_tokens_per_s_per_gpu")
    return compare_metric(table, measured, forecasts, names, rate=True, case=case)


def _throughput_model(catalogue: Catalogue, name: str, weights: str) -> Model:
    """Experts in fp8 keep a cache as wide as their activations (serving/trtllm_max_throughput.toml)."""
    model = served_model(catalogue, name, weights, weights)
    wide = model.has_experts and not model.kv_rank and weights.lower() == "fp8"
    return replace(model, kv="bf16") if wide else model


def _wave_time(serving: Serving, running: Array, isl: Array, osl: Array) -> Any:
    """Time of so many requests that start and end together [s]."""
    step = served_batch(serving, running, isl, osl).step
    return prompt_time(serving, running, isl) + osl * step


def nemo(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Seconds for a prompt read and some tokens generated at batch 1, fp16."""
    tp = table.number("TP")
    keys = [table.text("device"), table.text("model")]
    known = read_conditions(SingleRequestConditions, table, "serving/nemo.toml")
    engine = replace(
        in_process(catalogue.engine(known.engine)),
        graphs=known.graphs,
        launches=known.launches,
        collectives=known.collectives,
    )

    def price(key: tuple[str, str], rows: Array) -> Any:
        system = systems_of(catalogue, key[0].lower(), tp[rows])
        serving = Serving(system, catalogue.model(key[1]), plan(tp=tp[rows]), engine)
        batch = served_batch(serving, 1.0 + 0.0 * tp[rows], known.input, known.output)
        return batch.prefill + (known.output - 1.0) * batch.step

    forecasts = forecast(table, keys, price, ("TP",))
    case = case_keys(catalogue, "decode", keys[0], keys[1], known.engine)
    return compare_metric(table, table.number("actual"), forecasts, keys[1], case=case)


def koyeb(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Seconds to generate decode_len tokens of a batch; the noisy group is left out."""
    name, chip_name = named_in_file(table, r"(.+)_([a-z0-9]+)_koyeb\.csv")
    known = read_conditions(DecodeConditions, table, "serving/koyeb.toml")
    table = table.keep(table.text("group") != known.left_out)
    s = table.numbers("prefill_len", "decode_len", "batch")

    def price(key: tuple[()], rows: Array) -> Any:
        length, output, batch = (x[rows] for x in s.values())
        system = catalogue.system(f"1x{catalogue.chip(chip_name).name}")
        engine = in_process(catalogue.engine(known.engine))
        serving = Serving(system, catalogue.model(name), plan(), engine)
        return output * served_batch(serving, batch, length, output).step

    forecasts = forecast(table, [], price, tuple(s))
    case = case_keys(catalogue, "decode", [chip_name] * len(table), [name] * len(table), known.engine)
    return compare_metric(table, table.number("decode_time_s"), forecasts, table.text("group"), case=case)
