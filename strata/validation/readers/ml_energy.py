"""Power, energy of a token and inter-token latency of servers that clients keep full.

Every step generates for all running sequences. Each of them asks anew when it has its answer, so that
:math:`a = n / L` prompts come with a step (n sequences, answers of L tokens), by chance: a share
:math:`q = 1 - e^{-a}` of the steps reads :math:`a / q` prompts beside its tokens, the others none. Mean power
and energy are over all steps, the median latency is that of the commoner kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import UnknownName
from strata.mapping.plan import Plan, plan
from strata.pricing.step import Step
from strata.validation.readers.benchmark_conditions import EnergyConditions, parallel_degree, read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.served_models import stored_model
from strata.validation.readers.steps import Serving, systems_of
from strata.validation.readers.tables import Table
from strata.workload.model import Model
from strata.workload.tasks import decode, mixed

SIZES = ("num_gpus", "avg_batch_size", "avg_output_len")
METRICS = (  # column, group, unit
    ("avg_power_watts", "power", 1.0),
    ("energy_per_token_joules", "energy", 1.0),
    ("median_itl_ms", "itl", 1e-3),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class SteadyState:
    """A full server: its median inter-token latency [s], mean time of a step [s], power of all its devices
    [W] and their energy for a token [J].
    """

    latency: Number
    step: Number
    power: Number
    token_energy: Number


def steady_state(serving: Serving, running: Array, prompt: Array, output: Array) -> SteadyState:
    """A server that always runs so many sequences, in the mean of its steps."""
    plan, skew = serving.plan, serving.skew
    middle = prompt + output / 2.0
    alone = serving.step(decode(running, middle, skew=skew))
    coming = running / output
    share = -np.expm1(-coming)
    room = np.maximum(serving.engine.tokens * plan.dp - running, plan.dp)
    read = np.minimum(coming / share, np.maximum(room / prompt, 1.0))
    reading = serving.step(mixed(running, middle, prompts=read, chunk=prompt, skew=skew))
    time = (1.0 - share) * alone.time + share * reading.time
    energy = (1.0 - share) * _joules(alone) + share * _joules(reading)
    devices = plan.tp * plan.pp * plan.dp
    return SteadyState(
        latency=alone.time,
        step=time,
        power=devices * energy / time,
        token_energy=devices * energy / running,
    )


def _joules(step: Step) -> Number:
    """Energy of one device in a step [J]."""
    return step.static * step.time + step.price.energy


def energy_runs(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """GPU power, energy of an output token and median inter-token latency of full servers."""
    keys = [table.text(c) for c in ("gpu_model", "model_id", "weight_precision", "task")]
    bare = np.array([name.rpartition("/")[2] for name in keys[1]], dtype=object)
    s = table.numbers(*SIZES)
    known = read_conditions(EnergyConditions, table, "serving/ml_energy.toml")

    def price(key: tuple[str, str, str, str], rows: Array) -> Any:
        found = served_steadily(table.keep(rows), catalogue, key, known, known.prompt)
        return found.power, found.token_energy, found.latency

    forecasts = forecast(table, keys, price, tuple(s), metrics=3)
    parts = [
        compare_metric(
            table,
            table.number(column) * unit,
            forecasts,
            group_names(name, keys[0], bare, count=len(table)),
            metric=metric,
            headline=name == "power",
        )
        for metric, (column, name, unit) in enumerate(METRICS)
    ]
    return join_metrics(parts)


def served_steadily(
    rows: Table,
    catalogue: Catalogue,
    key: tuple[str, str, str, str],
    known: EnergyConditions,
    prompts: dict[str, Number],
) -> SteadyState:
    """Rows of one chip, model, format of weights and task, with prompts of such lengths: the likely, the
    shortest or the longest of `known`.
    """
    gpu, model_name, weights, task = key
    if task not in prompts:
        raise UnknownName("task", task, sorted(prompts), "strata/data/conditions/serving/ml_energy.toml")
    model = stored_model(catalogue, model_name, weights)
    layout = _layout(rows, model)
    engine = replace(
        catalogue.engine(known.engine),
        tokens=known.tokens,
        asynchronous=known.asynchronous,
        sampling=known.sampling,
    )
    devices = parallel_degree(rows, "num_gpus")
    serving = Serving(systems_of(catalogue, gpu.lower(), devices), model, layout, engine, known.skew)
    # Its gauge of running requests is that of one attention rank: the highest of them.
    running = np.maximum(rows.number("avg_batch_size"), 1.0) * layout.dp
    output = np.maximum(rows.number("avg_output_len"), 1.0)
    return steady_state(serving, running, float(prompts[task]) + 0.0 * output, output)


def _layout(rows: Table, model: Model) -> Plan:
    """The layout of each row: attention over all devices of a replica, experts whole or cut."""
    devices, dp, ep = (parallel_degree(rows, c) for c in ("num_gpus", "data_parallel", "expert_parallel"))
    tp = np.maximum(devices / dp, 1.0)
    if not model.has_experts:
        return plan(tp=tp, dp=dp)
    return plan(tp=tp, dp=dp, ep=ep, moe_tp=np.maximum(tp * dp / ep, 1.0))
