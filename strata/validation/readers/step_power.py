"""Power, clock and energy of whole forward passes repeated for seconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue
from strata.mapping.plan import Plan
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.steps import priced_step, with_layers
from strata.validation.readers.tables import Table
from strata.workload.tasks import decode, prefill

SIZES = ("layers", "batch", "q_len", "context")
# From this batch on the attention that ran was up to 1.6 times slower than the best one
# (validation/README.md): its steps take longer and spend more than those of the kernels we price.
OTHER_ATTENTION = 128


def step_power(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Sustained power, clock and energy of steps from one captured graph, nothing around it: the ideal
    engine, so many layers of each model. Power is the headline.
    """
    s = table.numbers(*SIZES)
    names, phases = table.text("model"), table.text("phase")
    system, engine = catalogue.system(f"1x{table.chip}"), catalogue.engine("ideal")

    def price(key: tuple[str, str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        if key[1] not in ("prefill", "decode"):
            raise BadValue(f"phase must be prefill or decode, but got '{key[1]}'")
        if key[1] == "prefill":
            work = prefill(v["batch"], v["q_len"], cached=v["context"] - v["q_len"])
        else:
            work = decode(v["batch"], v["context"], tokens=v["q_len"])
        model = with_layers(catalogue.model(key[0]), v["layers"])
        step = priced_step(system, model, work, Plan(), engine)
        power = step.static + step.price.energy / step.time
        return power, step.clock * system.chip.compute.max_clock, power * step.time

    forecasts = forecast(table, [names, phases], price, SIZES, metrics=3)
    judged = (phases != "decode") | (s["batch"] < OTHER_ATTENTION)
    measured = {
        "power": table.number("power_w"),
        "clock": table.number("sm_mhz") * 1e6,
        "energy": np.where(judged, table.number("joule_per_step"), np.nan),
    }
    parts = [
        compare_metric(
            table,
            values,
            forecasts,
            group_names(metric, phases, names, count=len(table)),
            metric=i,
            headline=metric == "power",
        )
        for i, (metric, values) in enumerate(measured.items())
    ]
    return join_metrics(parts)
