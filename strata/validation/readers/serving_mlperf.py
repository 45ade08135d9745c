"""MLPerf Inference: output tokens/s of a whole system, with all requests at once (Offline) or at the load
that keeps the limits (Server, Interactive).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.mapping.plan import plan
from strata.params import by_name, quantity, text
from strata.validation.readers.benchmark_conditions import parallel_degree, read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.closed_loop import client_times
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.labels import dashed_all, server_names, server_of
from strata.validation.readers.like_cases import case_keys
from strata.validation.readers.mlperf_prompts import PROMPTS, mlperf_prompts
from strata.validation.readers.online_conditions import RunConditions, plain_runs
from strata.validation.readers.served_models import (
    engine_times,
    in_process,
    largest_running_batch,
    prompt_time,
    served_model,
)
from strata.validation.readers.steps import Serving, served_batch, systems_of
from strata.validation.readers.tables import Table

FILE = "serving/mlperf.toml"
SCENARIOS = ("Offline", "Server", "Interactive")
HALVINGS = 12  # of the logarithm of requests in flight, where limits bound them


@dataclass(frozen=True, eq=False, kw_only=True)
class MlperfConditions:
    """Requests of data sets, given to an engine in process."""

    title: str = text("what was run")
    skew: Number = quantity("1", "exponent of the power law by which experts are asked for")
    beams: dict[str, Number] = by_name("1", "sequences generated for one request, by model; 1 for others")


def mlperf_serving(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Output tokens/s of the whole system; of rows that state samples/s alone, these times a sample's
    tokens.
    """
    chips, engines = (np.array(dashed_all(table.text(c)), dtype=object) for c in ("chip", "engine"))
    models, scenarios = table.text("model"), table.text("scenario")
    known = read_conditions(MlperfConditions, table, FILE)
    keys = [chips, engines, models, table.text("weights"), scenarios]

    def price(key: tuple[str, str, str, str, str], rows: Array) -> Any:
        chip_name, engine, model, weights, scenario = key
        if scenario not in SCENARIOS:
            raise BadValue(f"scenario must be one of {', '.join(SCENARIOS)}, but got '{scenario}'")
        part = table.keep(rows)
        serving, replicas = _replica(part, catalogue, (chip_name, server_of(engine), model, weights), known)
        run = _requests(part, model)
        beams = float(known.beams.get(model, 1.0))
        offline = scenario == SCENARIOS[0]
        each = _offline(serving, run, beams) if offline else _loaded(part, serving, replicas, run, beams)
        return replicas * each

    forecasts = forecast(table, keys, price, ("devices", "mean_output"))
    measured = table.number("tokens_per_s")
    said = table.number("samples_per_s") * table.number("mean_output")
    return compare_metric(
        table,
        np.where(np.isnan(measured), said, measured),
        forecasts,
        group_names(scenarios, chips, models, count=len(table)),
        rate=True,
        case=case_keys(catalogue, "throughput", chips, models, server_names(engines)),
    )


def _replica(
    rows: Table, catalogue: Catalogue, named: tuple[str, str, str, str], known: MlperfConditions
) -> tuple[Serving, Array]:
    """One copy of the model, and how many there are. Where attention is told to be data parallel, it is so
    over the ranks that share the layers.
    """
    chip_name, engine_name, model_name, weights = named
    model = served_model(catalogue, model_name, weights, weights)
    ranks, pp, ep = (parallel_degree(rows, c) for c in ("tp", "pp", "ep"))
    apart = rows.number("attention_dp", empty=0.0) > 0
    tp, dp = np.where(apart, 1.0, ranks), np.where(apart, ranks, 1.0)
    experts: dict[str, Any] = {"moe_tp": tp}
    if model.has_experts:
        experts = {"ep": ep, "moe_tp": np.maximum(ranks / ep, 1.0)}
    engine = in_process(catalogue.engine(engine_name))
    most = rows.number("max_batch") / dp
    engine = replace(engine, sequences=np.where(np.isnan(most), engine.sequences, np.maximum(most, 1.0)))
    system = systems_of(catalogue, chip_name, ranks * pp)
    copies = rows.number("replicas")
    copies = np.where(np.isnan(copies), rows.number("devices") / (ranks * pp), copies)
    return Serving(system, model, plan(tp=tp, pp=pp, dp=dp, **experts), engine, known.skew), copies


def _requests(rows: Table, model: str) -> RunConditions:
    """Mean requests of the data set; nothing of a run's start shows, as it lasts for minutes."""
    told = rows.number("mean_input")
    likely = mlperf_prompts().likely
    if np.any(np.isnan(told)) and model not in likely:
        raise BadValue(f"mean_input is empty, and the prompts of {model} are not known ({PROMPTS})")
    length = np.where(np.isnan(told), likely.get(model, np.nan), told)
    return plain_runs(length, rows.number("mean_output"), np.inf)


def _largest(serving: Serving, run: RunConditions, beams: float) -> Array:
    """Requests that run at once: what fits, and the engine's limit of requests."""
    several = replace(serving, engine=replace(serving.engine, sequences=serving.engine.sequences * beams))
    fits = largest_running_batch(several, run.input + run.output, serving.plan.dp)
    return np.maximum(np.floor(fits / beams), 1.0)


def _offline(serving: Serving, run: RunConditions, beams: float) -> Any:
    """Tokens/s of one copy with as many requests as it takes, one coming for each that ends."""
    batch = _largest(serving, run, beams)
    step = served_batch(serving, beams * batch, run.input, run.output).step
    return batch * run.output / (prompt_time(serving, batch, run.input) + run.output * step)


def _loaded(rows: Table, serving: Serving, replicas: Array, run: RunConditions, beams: float) -> Any:
    """Tokens/s of one copy with as many requests in flight as were measured; where that is not told, with the
    most that keep the limits in their means.
    """
    most, at_once = _largest(serving, run, beams), np.asarray(serving.plan.dp, float)

    def seen(flight: Any) -> tuple[Any, Any]:
        running = np.minimum(flight, most)
        times = engine_times(serving, beams * running, run)
        return client_times(times, flight, running, at_once, run, serving.engine)

    flight = np.maximum(rows.number("mean_in_flight") / replicas, 1.0)
    if np.any(np.isnan(flight)):
        limits = [rows.number(f"{name}_limit_s") for name in ("ttft", "tpot")]
        if np.any(np.isnan(flight) & (np.isnan(limits[0]) | np.isnan(limits[1]))):
            raise BadValue("a loaded row needs mean_in_flight, or both limits")
        flight = np.where(np.isnan(flight), _within(seen, limits, most), flight)
    ttft, tpot = seen(flight)
    return flight * run.output / (ttft + run.output * tpot)


def _within(seen: Any, limits: list[Array], most: Array) -> Array:
    """The most requests in flight whose mean times keep some limits; 1 where none do."""
    low, high = np.zeros_like(most), np.log(most)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        kept = np.all(
            [time <= limit for time, limit in zip(seen(np.exp(middle)), limits, strict=True)], axis=0
        )
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    return np.exp(low)
