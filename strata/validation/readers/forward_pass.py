"""Whole forward passes of a model on one device."""

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
    fastest_backend,
    forecast,
    group_names,
)
from strata.validation.readers.like_cases import case_key, model_family
from strata.validation.readers.steps import dense_model, priced_step
from strata.validation.readers.tables import Table
from strata.workload.tasks import decode, prefill

SIZES = ("layers", "hidden", "q_heads", "kv_heads", "head_dim", "ffn", "vocab", "batch", "q_len", "context")


def decoder_passes(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Forward passes from one captured graph, nothing around it: the ideal engine. The faster backend of each
    case counts.
    """
    table = fastest_backend(table, ("model", "phase", *SIZES), "median_s")
    s = table.numbers(*SIZES)
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

    forecasts = forecast(table, [table.text("phase")], price, SIZES)
    names = group_names(table.text("model"), table.text("phase"), count=len(table))
    cases = [
        case_key(catalogue, phase, table.chip, "dense", model_family(name), "ideal")
        for phase, name in zip(table.text("phase"), table.text("model"), strict=True)
    ]
    return compare_metric(
        table, table.number("median_s"), forecasts, names, case=np.array(cases, dtype=object)
    )
