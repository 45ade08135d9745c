"""Servers under load: first tokens and token times at a client's concurrency.

What a batch costs comes from `served_models`, how a closed loop of clients turns it into what they see from
`closed_loop`, and how the runs were made from files beside the data (`benchmark_conditions`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue
from strata.mapping.engine import Engine
from strata.mapping.plan import plan
from strata.precision import supports
from strata.validation.readers.benchmark_conditions import ClientConditions, parallel_degree, read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.closed_loop import client_times
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
    rows_by_key,
)
from strata.validation.readers.launch_flags import launched_engine
from strata.validation.readers.like_cases import case_keys
from strata.validation.readers.online_conditions import (
    OnlineConditions,
    closed_runs,
    drawn_rows,
    online_runs_of,
    plain_runs,
)
from strata.validation.readers.served_models import (
    engine_times,
    largest_running_batch,
    named_in_file,
    pooled_times,
    served_model,
)
from strata.validation.readers.simulated_loop import simulated_first_tokens
from strata.validation.readers.steps import Serving, systems_of
from strata.validation.readers.tables import Table
from strata.workload.model import Model

NIM_METRICS = (  # column, group, unit
    ("TTFT (ms)", "ttft", 1e-3),
    ("ITL (ms)", "itl", 1e-3),
    ("Throughput (Tokens/s)", "throughput", 1.0),
)
NIM_CASES = {"ttft": "request", "itl": "decode", "throughput": "throughput"}


def online_runs(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """End-to-end runs of serving frameworks at a client concurrency, aggregated or with prefill and decode
    workers apart.
    """
    text = {
        c: table.text(c)
        for c in ("model", "system", "backend", "mode", "precision", "gemm_quant_mode", "moe_quant_mode")
    }
    told = {c: table.text(c) for c in ("backend_version", "measured")}
    weights = np.where(text["gemm_quant_mode"] == "", text["precision"], text["gemm_quant_mode"])
    experts = np.where(text["moe_quant_mode"] == "", weights, text["moe_quant_mode"])
    known = read_conditions(OnlineConditions, table, "serving/silicon.toml")
    drawn = drawn_rows(table, known)
    keys = [text["model"], text["system"], text["backend"], weights, experts, text["mode"]]
    keys += [told["backend_version"], told["measured"], drawn]

    def price(key: tuple[str, str, str, str, str, str, str, str, bool], rows: Array) -> Any:
        model = served_model(catalogue, key[0], key[3], key[4])
        if not supports(catalogue.chip(key[1]).compute.matrix_rate, model.expert_weights):
            model = replace(model, kv=known.weight_only_cache)
        flags = known.flags if key[8] else ()
        engine = launched_engine(catalogue.engine(key[2]), key[6], key[7], key[1], flags)
        if key[5] not in ("agg", "disagg"):
            raise BadValue(f"mode must be agg or disagg, but got '{key[5]}'")
        run = _aggregated if key[5] == "agg" else _disaggregated
        return run(table.keep(rows), catalogue, key[1], model, engine, known)

    forecasts = forecast(table, keys, price, ("isl", "osl", "conc"), metrics=2)
    parts = []
    for metric, (name, phase) in enumerate((("ttft", "request"), ("tpot", "decode"))):
        part = compare_metric(
            table,
            table.number(f"silicon_{name}_ms") * 1e-3,
            forecasts,
            group_names(name, text["system"], text["backend"], text["model"], count=len(table)),
            metric=metric,
            headline=name == "tpot",
            case=case_keys(catalogue, phase, text["system"], text["model"], text["backend"]),
        )
        parts.append(part)
    return join_metrics(parts)


def _aggregated(
    rows: Table, catalogue: Catalogue, chip_name: str, model: Model, engine: Engine, known: OnlineConditions
) -> tuple[Any, Any]:
    """One pool of workers that read prompts and generate."""
    tp, pp, dp = (parallel_degree(rows, c) for c in ("tp_size", "pp_size", "attention_dp_size"))
    experts: dict[str, Any] = {"moe_tp": tp}
    if model.has_experts:
        columns = {"ep": "moe_ep_size", "moe_tp": "moe_tp_size"}
        experts = {degree: parallel_degree(rows, column) for degree, column in columns.items()}
    serving = Serving(
        systems_of(catalogue, chip_name, tp * pp * dp),
        model,
        plan(tp=tp, pp=pp, dp=dp, **experts),
        engine,
        known.skew,
    )
    clients, run = (
        rows.number("conc"),
        online_runs_of(rows, chip_name, engine.name, bool(model.kv_rank), known),
    )
    running = np.minimum(clients, largest_running_batch(serving, run.input + run.output, dp))
    ttft, tpot = client_times(engine_times(serving, running, run), clients, running, dp, run, engine)
    degrees = {"tp": tp, "pp": pp, "dp": dp, **experts}
    measured = np.isfinite(rows.number("silicon_ttft_ms"))  # what nobody measured need not be simulated
    every = closed_runs(rows, engine, model.name, run, known)
    loops = [loop if seen else None for loop, seen in zip(every, measured, strict=True)]
    keys = [*degrees.values(), np.broadcast_to(run.guesses, tp.shape), [loop is None for loop in loops]]
    for key, same in rows_by_key(keys, len(rows)):
        asked = [loop for i in same if (loop := loops[i]) is not None]
        if asked:
            told: dict[str, Any] = {name: float(v) for name, v in zip(degrees, key, strict=False)}
            layout = plan(**told)
            system = systems_of(catalogue, chip_name, np.asarray(layout.tp * layout.pp * layout.dp))
            means = simulated_first_tokens(system, model, layout, engine, asked, skew=float(known.skew))
            ttft[same] = means + run.first[same] / run.rounds[same]
    return ttft, tpot


def _disaggregated(
    rows: Table, catalogue: Catalogue, chip_name: str, model: Model, engine: Engine, known: OnlineConditions
) -> tuple[Any, Any]:
    """Prefill and decode workers apart: a token waits for nobody's prompt, prompts wait for prompts only."""
    clients, run = (
        rows.number("conc"),
        online_runs_of(rows, chip_name, engine.name, bool(model.kv_rank), known),
    )
    pool, workers = {}, {}
    for side in ("prefill", "decode"):
        sizes = ("tp_size", "attention_dp_size", "moe_ep_size")
        tp, dp, ep = (parallel_degree(rows, f"{side}_{c}") for c in sizes)
        experts: dict[str, Any] = {"moe_tp": tp}
        if model.has_experts:
            experts = {"ep": ep, "moe_tp": np.maximum(tp * dp / ep, 1.0)}
        system = systems_of(catalogue, chip_name, tp * dp)
        pool[side] = Serving(system, model, plan(tp=tp, dp=dp, **experts), engine, known.skew)
        workers[side] = parallel_degree(rows, f"{side}_num_workers")
    at_once = parallel_degree(rows, "prefill_batch_size") * pool["prefill"].plan.dp
    return pooled_times(pool, workers, at_once, clients, run)


def nim(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """TTFT, ITL and output tokens/s at a concurrency; model and system stand in the file's name, tensor
    parallel over all GPUs, bf16.
    """
    name, count, chip_name = named_in_file(table, r"(.+)_(\d+)x([a-z0-9_]+)_nim\.csv")
    s = table.numbers("Input Tokens", "Output Tokens", "Concurrency")
    known = read_conditions(ClientConditions, table, "serving/nim.toml")

    def price(key: tuple[()], rows: Array) -> Any:
        isl, osl, clients = (x[rows] for x in s.values())
        system, engine = catalogue.system(f"{count}x{chip_name}"), catalogue.engine(known.engine)
        serving = Serving(system, catalogue.model(name), plan(tp=float(count)), engine, known.skew)
        run = plain_runs(isl, osl, known.rounds)
        times = engine_times(serving, clients, run)
        ttft, tpot = client_times(times, clients, clients, np.ones_like(isl), run, engine)
        return ttft, tpot, clients * osl / (ttft + osl * tpot)

    forecasts = forecast(table, [], price, tuple(s), metrics=3)
    rows = len(table)
    parts = []
    for metric, (column, label, unit) in enumerate(NIM_METRICS):
        part = compare_metric(
            table,
            table.number(column) * unit,
            forecasts,
            group_names(label, count=rows),
            metric=metric,
            headline=label == "itl",
            rate=label == "throughput",
            case=case_keys(catalogue, NIM_CASES[label], [chip_name] * rows, [name] * rows, known.engine),
        )
        parts.append(part)
    return join_metrics(parts)
