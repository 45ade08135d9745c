"""Whole forward passes of a model on one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.errors import BadValue
from strata.mapping.engine import engine
from strata.mapping.plan import Plan
from strata.validation.datasets import Array, Points, Table, fastest, forecast, labels, points
from strata.validation.steps import case_of, family_of, named_system, priced
from strata.workload.model import Model, Pattern
from strata.workload.tasks import decode, prefill

SIZES = ("layers", "hidden", "q_heads", "kv_heads", "head_dim", "ffn", "vocab", "batch", "q_len", "context")


def decoder(table: Table) -> Points:
    """Forward passes from one captured graph, nothing around it: the ideal engine. The faster backend of each
    case counts.
    """
    table = fastest(table, ("model", "phase", *SIZES), "median_s")
    s = table.numbers(*SIZES)

    def price(key: tuple[str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        if key[0] not in ("prefill", "decode"):
            raise BadValue(f"phase must be prefill or decode, but got '{key[0]}'")
        if key[0] == "prefill":
            work = prefill(v["batch"], v["q_len"], cached=v["context"] - v["q_len"])
        else:
            work = decode(v["batch"], v["context"], tokens=v["q_len"])
        return priced(named_system(f"1x{table.chip}"), _model(v), work, Plan(), engine("ideal")).time

    made = forecast(table, [table.text("phase")], price, SIZES)
    names = labels(table.text("model"), table.text("phase"), count=len(table))
    cases = [
        case_of(p, table.chip, "dense", family_of(m))
        for p, m in zip(table.text("phase"), table.text("model"), strict=True)
    ]
    return points(table, table.number("median_s"), made, names, case=np.array(cases, dtype=object))


def _model(v: dict[str, Array]) -> Model:
    """A llama-like model of the row's sizes."""
    pattern = Pattern((), 0.0, (("full", "dense"),), v["layers"])
    return Model(
        "decoder",
        pattern,
        v["hidden"],
        v["q_heads"],
        v["kv_heads"],
        v["head_dim"],
        v["vocab"],
        ffn=v["ffn"],
        v_head_dim=v["head_dim"],
    )
