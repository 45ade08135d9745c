"""InferenceX: first tokens and token times of closed loops, aggregated and with prefill and decode workers
apart, with and without multi-token prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.mapping.engine import Engine
from strata.mapping.plan import plan
from strata.params import by_name, part, quantity, text
from strata.validation.readers.benchmark_conditions import parallel_degree, read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.closed_loop import EngineTimes, client_times
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.engine_releases import EngineRelease, ReleaseTimes, release_of, release_times
from strata.validation.readers.labels import dashed_all, server_names, server_of
from strata.validation.readers.like_cases import case_keys
from strata.validation.readers.online_conditions import Polling, RunConditions
from strata.validation.readers.served_models import (
    engine_times,
    largest_running_batch,
    pooled_times,
    served_model,
)
from strata.validation.readers.steps import Serving, systems_of
from strata.validation.readers.tables import Table
from strata.workload.model import Model

FILE = "serving/inferencex.toml"
UNDATED = "9999"  # a run without a date counts as one of the last release


@dataclass(frozen=True, eq=False, kw_only=True)
class AcceptanceByLength:
    """Text that goes on for long repeats itself, and is guessed more easily: a line in the logarithm of the
    length between two.
    """

    short: Number = quantity("1", "chance that a guess is right in outputs of short_tokens and fewer")
    short_tokens: Number = quantity("1", "tokens of such outputs", positive=True)
    long: Number = quantity("1", "chance that a guess is right in outputs of long_tokens and more")
    long_tokens: Number = quantity("1", "tokens of such outputs", positive=True)

    def at(self, output: Array) -> Array:
        """The chance in outputs of such lengths."""
        between = np.log(output / self.short_tokens) / np.log(self.long_tokens / self.short_tokens)
        return self.short + (self.long - self.short) * np.clip(between, 0.0, 1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class InferencexConditions:
    """Closed loops of clients by one benchmark."""

    title: str = text("what was run")
    skew: Number = quantity("1", "exponent of the power law by which experts are asked for")
    mean_share: Number = quantity("1", "mean length over the one it names", positive=True)
    rounds: Number = quantity("1", "requests of each client", positive=True)
    acceptance: AcceptanceByLength = part(AcceptanceByLength, "chance that a guessed token is right")
    polling: Polling = part(Polling, "who looks for requests now and then")
    guesses: dict[str, Number] = by_name("1", "tokens guessed in a step, by engine")
    data_parallel_guesses: dict[str, Number] = by_name("1", "the same with data-parallel attention")
    whole_worker: Number = quantity(
        "1", "devices up to which a worker of unrecorded layout is tensor parallel"
    )
    release: tuple[EngineRelease, ...] = part(
        EngineRelease, "releases of engines, the first counts", many=True
    )


def inferencex(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """TPOT and TTFT by chip, engine, model and kind (agg, disagg, agg-mtp, disagg-mtp); means where they were
    recorded, else medians.
    """
    chips, engines = (np.array(dashed_all(table.text(c)), dtype=object) for c in ("chip", "engine"))
    models, guessing = table.text("model"), table.text("speculative")
    together = np.where(table.text("disaggregated") == "1", "disagg", "agg")
    keys = [chips, engines, models, table.text("precision"), together, guessing]
    known = read_conditions(InferencexConditions, table, FILE)

    def price(key: tuple[str, str, str, str, str, str], rows: Array) -> Any:
        if key[5] not in ("", "none", "mtp"):
            raise BadValue(f"speculative must be none or mtp, but got '{key[5]}'")
        model, engine = served_model(catalogue, key[2], key[3], key[3]), catalogue.engine(server_of(key[1]))
        if key[5] == "mtp" and not model.kv_rank:
            raise BadValue(f"{model.name} has no layers of its own to guess tokens with")
        run = _aggregated if key[4] == "agg" else _disaggregated
        return run(table.keep(rows), catalogue, key[0], model, engine, known)

    forecasts = forecast(table, keys, price, ("isl", "osl", "concurrency"), metrics=2)
    kinds = [f"{k}-{g}" if g not in ("", "none") else k for k, g in zip(together, guessing, strict=True)]
    parts = []
    for metric, (name, phase) in enumerate((("ttft", "request"), ("tpot", "decode"))):
        mean, median = (table.number(f"{which}_{name}_s") for which in ("mean", "median"))
        part_points = compare_metric(
            table,
            np.where(np.isnan(mean), median, mean),
            forecasts,
            group_names(name, chips, engines, models, np.array(kinds, dtype=object), count=len(table)),
            metric=metric,
            headline=name == "tpot",
            case=case_keys(catalogue, phase, chips, models, server_names(engines)),
        )
        parts.append(part_points)
    return join_metrics(parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class AggregatedRuns:
    """Rows of one engine on one chip whose workers read prompts and generate, as the engine's file prices
    them.
    """

    times: EngineTimes
    clients: Array
    running: Array
    ranks: Array  # attention ranks
    experts: Array  # ranks that experts are dealt out over
    run: RunConditions

    def seen(self, release: ReleaseTimes, engine: Engine) -> tuple[Any, Any]:
        """TTFT and TPOT that clients see of a release [s]."""
        times = release.of(self.times, self.run.guesses)
        return client_times(times, self.clients, self.running, self.ranks, self.run, engine)


def aggregated_runs(
    rows: Table,
    catalogue: Catalogue,
    chip_name: str,
    model: Model,
    engine: Engine,
    known: InferencexConditions,
) -> AggregatedRuns:
    """One pool of workers that read prompts and generate."""
    degrees = _degrees(rows, "", rows.number("devices"))
    serving = _pool(catalogue, chip_name, model, engine, known, degrees)
    dp, clients = degrees["dp"], rows.number("concurrency")
    run = _run(rows, chip_name, engine, dp, known)
    running = np.minimum(clients, largest_running_batch(serving, run.input + run.output, dp))
    return AggregatedRuns(
        times=engine_times(serving, running, run),
        clients=clients,
        running=running,
        ranks=dp,
        experts=degrees["ep"],
        run=run,
    )


def _aggregated(
    rows: Table,
    catalogue: Catalogue,
    chip_name: str,
    model: Model,
    engine: Engine,
    known: InferencexConditions,
) -> tuple[Any, Any]:
    runs = aggregated_runs(rows, catalogue, chip_name, model, engine, known)
    place = released(rows, catalogue.chip(chip_name), runs.experts, known)
    return runs.seen(release_times(known.release, place), engine)


def _disaggregated(
    rows: Table,
    catalogue: Catalogue,
    chip_name: str,
    model: Model,
    engine: Engine,
    known: InferencexConditions,
) -> tuple[Any, Any]:
    """Prefill and decode workers apart; a prefill worker reads a prompt on each attention rank at once, and
    as many as its steps hold where they queue.
    """
    pool, workers, ranks, release = {}, {}, {}, {}
    for side, prefix in (("prefill", "prefill_"), ("decode", "")):
        workers[side] = parallel_degree(rows, f"{side}_workers")
        each = parallel_degree(rows, f"{side}_devices") / workers[side]
        degrees = _degrees(rows, prefix, each, known.whole_worker)
        pool[side] = _pool(catalogue, chip_name, model, engine, known, degrees)
        ranks[side] = degrees["dp"]
        place = released(rows, catalogue.chip(chip_name), degrees["ep"], known)
        release[side] = release_times(known.release, place)
    run = _run(rows, chip_name, engine, ranks["decode"], known)
    at_once, clients = ranks["prefill"], rows.number("concurrency")
    full = np.maximum(np.floor(engine.tokens / run.input), 1.0) * at_once
    return pooled_times(pool, workers, at_once, clients, run, release, full)


def released(rows: Table, chip: Chip, ep: Array, known: InferencexConditions) -> Array:
    """Place of the release of each row, by its date and layout; rows of one engine and precision."""
    (label,), precision = dashed_all(rows.text("engine")[:1]), rows.text("precision")[0]
    dates = np.where(rows.text("date") == "", UNDATED, rows.text("date"))
    return release_of(known.release, label, chip, precision, dates, ep > 1)


def _degrees(rows: Table, prefix: str, devices: Array, whole: Number = 0.0) -> dict[str, Array]:
    """Degrees of a worker of so many devices. A worker of several devices whose layout says 1 is not filled
    in: it is tensor parallel, or data and expert parallel where it says data-parallel attention and has more
    than `whole` devices.
    """
    tp, ep = (parallel_degree(rows, f"{prefix}{c}") for c in ("tp", "ep"))
    apart = rows.number(f"{prefix}dp_attention", empty=0.0) > 0
    untold = (tp == 1) & (devices > 1)
    apart = apart & ~(untold & (devices <= whole))
    ep = np.where(untold & apart, devices, ep)
    return {"tp": np.where(apart, 1.0, devices), "dp": np.where(apart, devices, 1.0), "ep": ep}


def _pool(
    catalogue: Catalogue,
    chip_name: str,
    model: Model,
    engine: Engine,
    known: InferencexConditions,
    degrees: dict[str, Array],
) -> Serving:
    tp, dp, ep = (degrees[k] for k in ("tp", "dp", "ep"))
    experts: dict[str, Any] = {"moe_tp": tp}
    if model.has_experts:
        experts = {"ep": ep, "moe_tp": np.maximum(tp * dp / ep, 1.0)}
    layout = plan(tp=tp, dp=dp, **experts)
    return Serving(systems_of(catalogue, chip_name, tp * dp), model, layout, engine, known.skew)


def _run(
    rows: Table, chip_name: str, engine: Engine, dp: Array, known: InferencexConditions
) -> RunConditions:
    isl, osl, clients = (rows.number(c) for c in ("isl", "osl", "concurrency"))
    output = rows.number("mean_osl")
    polling = known.polling
    polled = (
        (engine.name == polling.engine)
        & (chip_name in polling.chips.split())
        & (rows.text("disaggregated") != "1")
    )
    interval = np.where(clients >= polling.many_clients, polling.many_clients_steps, polling.steps)
    guesses = np.where(
        dp > 1, known.data_parallel_guesses.get(engine.name, 0.0), known.guesses.get(engine.name, 0.0)
    )
    one = np.ones_like(isl)
    return RunConditions(
        input=known.mean_share * isl,
        output=np.where(np.isnan(output), known.mean_share * osl, output),
        guesses=np.where(rows.text("speculative") == "mtp", guesses, 0.0),
        acceptance=known.acceptance.at(osl),
        polled=np.where(polled, interval, 1.0),
        burst=np.maximum(polling.chunk / (known.mean_share * isl), 1.0),
        fresh=one,
        rounds=known.rounds * one,
        first=0.0 * one,
        median=np.isnan(rows.number("mean_ttft_s")),
    )
