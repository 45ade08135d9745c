"""Tuned kernels of AMD's library (ROCm/aiter): matrix products, and both products of a layer of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue, require
from strata.hardware.chip import Chip
from strata.pricing.kernels.device import Device, device
from strata.pricing.kernels.matmul import matmul
from strata.validation.readers.bare_kernels import (
    ExpertLayer,
    benchmark_time,
    cold_device,
    fused_experts_time,
)
from strata.validation.readers.benchmark_conditions import TunedConditions, read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    rows_by_key,
)
from strata.validation.readers.labels import kernel_format
from strata.validation.readers.tables import Table

# Formats of products, where the file names them otherwise than other files do; AMD's 4 bits are OCP's.
PRODUCT_FORMATS = {"fp4": "mxfp4", "fp16": "bf16", "fp8_blockscale": "fp8_block", "fp8_rowwise": "fp8"}
# Formats of experts, as PyTorch calls them; and those that blocks with a scale of their own make of them.
TORCH_FORMATS = {
    "bfloat16": "bf16",
    "float16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float4_e2m1fn_x2": "mxfp4",
    "int8": "int8",
    "int4": "int4",
}
BLOCKS = {"per_1x128": "fp8_block", "per_128x128": "fp8_block", "per_1x32": "mxfp8"}


def tuned_gemm(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """The best of a library's kernels for each product, in formats that are there already; what no cache
    holds.
    """
    s = table.numbers("m", "n", "k")
    known = read_conditions(TunedConditions, table, "ops/amd_gemm.toml")
    library = table.text("library") if "library" in table.columns else np.full(len(table), "named")
    batched = (library == "") & (table.text("format") == known.batched_format)
    keys = [table.text("chip"), table.text("format"), batched]

    def price(key: tuple[str, str, bool], rows: Array) -> Any:
        chip = catalogue.chip(key[0])
        dev = cold_device(batched_chip(chip) if key[2] else chip)
        used = kernel_format(PRODUCT_FORMATS.get(key[1].lower(), key[1].lower()))
        m, n, k = (s[c][rows] for c in "mnk")
        batch = known.batch if key[2] else 1.0
        product = matmul(m, n, k, dev, used.weight, used.activation, batch=batch)
        return benchmark_time(product, dev.chip)

    forecasts = forecast(table, keys, price, tuple(s))
    names = group_names(*keys[:2], count=len(table))
    return compare_metric(table, table.number("us") * 1e-6, forecasts, names)


def batched_chip(chip: Chip) -> Chip:
    """A chip whose products run as kernels of many small ones do (`compute.grouped_efficiency`)."""
    share = chip.compute.grouped_efficiency
    rates = {name: share * value for name, value in chip.compute.matrix_efficiency.items()}
    return replace(chip, compute=replace(chip.compute, matrix_efficiency=rates))


def tuned_experts(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Both products of a layer of experts, the second of which adds up a token's results: no router, no
    sorting. Random routing, each token to `topk` of the experts.
    """
    s = table.numbers("tokens", "model_dim", "inter_dim", "experts", "gated")
    s["topk"] = most_picks(table)
    keys = [table.text(c) for c in ("chip", "q_type", "q_dtype_a", "q_dtype_w")]

    def price(key: tuple[str, str, str, str], rows: Array) -> Any:
        weight, activation, weight_only = expert_formats(*key[1:])
        v = {name: column[rows] for name, column in s.items()}
        require(bool(np.all(v["topk"] >= 1.0)), "topk must be at least 1", topk=float(v["topk"].min()))
        layer = ExpertLayer(
            tokens=v["tokens"],
            top_k=v["topk"],
            experts=v["experts"],
            ranks=np.ones(len(rows)),
            hidden=v["model_dim"],
            inner=v["inter_dim"],
            weight=weight,
            activation=activation,
        )
        dev = _sorted_already(catalogue.chip(key[0]), weight_only)
        return fused_experts_time(layer, dev, 1.0 + v["gated"])

    forecasts = forecast(table, keys, price, tuple(name for name in s if name != "topk"))
    names = group_names(*keys[:2], count=len(table))
    return compare_metric(table, table.number("us") * 1e-6, forecasts, names)


def most_picks(table: Table) -> Array:
    """Experts of a token. A library that looks kernels up by `topk` too keeps one measurement under several
    of them, -1 for any: rows alike in all else and in time are one, that of the most picks.
    """
    picks = table.number("topk")
    others = [table.text(column) for column in table.columns if column not in ("topk", "q_dtype_a")]
    for _, rows in rows_by_key(others, len(table)):
        picks[rows] = np.max(picks[rows])
    return picks


def expert_formats(q_type: str, activation: str, weight: str) -> tuple[str, str, bool]:
    """Formats of weights and of stored activations of a layer of experts, and whether weights are widened.

    >>> expert_formats("QuantType.per_1x128", "float8_e4m3fn", "float8_e4m3fn")
    ('fp8_block', 'bf16', False)
    >>> expert_formats("QuantType.per_1x32", "float8_e4m3fn", "float4_e2m1fn_x2")
    ('mxfp4', 'fp8', True)
    """
    for name in (activation, weight):
        if name not in TORCH_FORMATS:
            raise BadValue(f"a format of experts must be one of {', '.join(TORCH_FORMATS)}, but got '{name}'")
    held, given = TORCH_FORMATS[weight], TORCH_FORMATS[activation]
    if held == "fp8":
        held = BLOCKS.get(q_type.rsplit(".", maxsplit=1)[-1], held)
    if given == "fp8" and held in ("mxfp4", "int4"):
        return held, "fp8", True
    return held, "bf16", given == "bf16" and held != "bf16"


def _sorted_already(chip: Chip, weight_only: bool) -> Device:
    """A chip with cold caches whose library does not sort tokens: that is timed apart; and adds results up in
    the second product, by no kernel of its own.
    """
    ready = replace(
        chip, experts=replace(chip.experts, sort=0.0), overhead=replace(chip.overhead, stream=0.0)
    )
    return device(ready, resident=False, weight_only=weight_only)
