"""Grouped products over experts, alone and as a fused expert layer."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from strata.arrays import Array, has_axes
from strata.errors import BadValue
from strata.pricing.kernels.device import device
from strata.pricing.kernels.expert_load import ROWS, ExpertLoad
from strata.pricing.kernels.experts import GroupedKernels, grouped_product
from strata.pricing.kernels.product import Product
from strata.validation.readers.bare_kernels import (
    ExpertLayer,
    benchmark_time,
    cold_device,
    expert_layer_time,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.formats import kernel_format
from strata.validation.readers.routing import busiest_rank_counts, expert_load, multinomial_counts
from strata.validation.readers.tables import Table

SKEWS = {"uniform": 0.0, "balanced": 0.0, "zipf": 1.0}
# PyTorch's grouped product has two output tiles: the small one where an expert has at most so many rows on
# average; tiles go in pairs, one above the other (aten/src/ATen/native/cuda/GroupMM.cu as read at commit
# 06c0cf0; that the measured 2.11 does the same is assumed).
SMALL, LARGE, SWITCH, PAIR = (64.0, 128.0), (128.0, 256.0), 128.0, 2.0


def skew_of(routing: str) -> float:
    """Exponent of the power law that popularity follows; 0 where experts are alike.

    >>> skew_of("balanced"), skew_of("power_law_1.2")
    (0.0, 1.2)
    """
    power = re.fullmatch(r"power_law_([\d.]+)", routing)
    if power:
        return float(power.group(1))
    if routing not in SKEWS:
        raise BadValue(
            f"a routing must be one of {', '.join(SKEWS)} or power_law_EXPONENT, but got '{routing}'"
        )
    return SKEWS[routing]


def grouped_gemm(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """One grouped product on cold data: each token goes to one expert."""
    s = table.numbers("experts", "tokens_total", "n", "k")
    chip = catalogue.chip(table.chip)
    dev = cold_device(chip)

    def price(key: tuple[str], rows: Array) -> Any:
        experts, tokens, n, k = (s[c][rows] for c in s)
        sizes, skew = zip(tokens, experts, strict=True), skew_of(key[0])
        counts = [multinomial_counts(int(t), int(e), skew) for t, e in sizes]
        load = expert_load(counts, PAIR * np.array([SMALL[0], LARGE[0]]))
        assert has_axes(load.tiles)
        small = tokens / experts <= SWITCH
        tiles = PAIR * np.where(small, load.tiles[0], load.tiles[1])
        unit = dev.matrix("bf16", "bf16")
        kernels = GroupedKernels(
            rate=unit.sustained * chip.compute.grouped_efficiency,
            bandwidth=chip.memory.bandwidth * chip.memory.grouped_efficiency,
            tile=dev.tile,
            floor=chip.overhead.grouped,
            rows=np.where(small, SMALL[0], LARGE[0])[None, None],
            columns=np.where(small, SMALL[1], LARGE[1])[None, None],
        )
        drawn = ExpertLoad(tokens=load.tokens, experts=load.experts, tiles=tiles[None])
        product = Product(
            m=load.tokens, n=n, k=k, input_bytes=unit.activation, weight_bytes=2.0, output_bytes=2.0
        )
        price = grouped_product(drawn, product, dev, unit, kernels, 2.0 * tokens * n * k)
        return benchmark_time(price, chip).mean(0)

    forecasts = forecast(table, [table.text("routing")], price, tuple(s))
    return compare_metric(table, table.number("median_s"), forecasts, table.text("routing"))


def fused_experts(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """A layer of experts on the busiest rank, as a framework runs it; tokens are those of the whole expert
    group.

    Priced at the highest clock: a bf16 layer reaches 825 TFLOP/s here on an H200, whose large products in
    ops/gemm.csv stop at about 700 at the power limit. The likely cause, not checked, is that the benchmark
    leaves most weights unfilled, and products with zeros draw little power.
    """
    sizes = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "num_tokens")
    s = table.numbers(*sizes)
    keys = [table.text(c) for c in ("system", "moe_dtype", "distribution")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        used, v = kernel_format(key[1]), {k: x[rows] for k, x in s.items()}
        layer = ExpertLayer(
            tokens=v["num_tokens"],
            top_k=v["topk"],
            experts=v["num_experts"],
            ranks=v["moe_ep_size"],
            hidden=v["hidden_size"],
            inner=v["inter_size"] / v["moe_tp_size"],
            weight=used.weight,
            activation=used.activation,
        )
        dev = device(catalogue.chip(key[0]), weight_only=used.weight_only)
        return expert_layer_time(layer, _busiest_load(layer, skew_of(key[2])), dev)

    forecasts = forecast(table, keys, price, tuple(s))
    names = group_names(*keys, count=len(table))
    return compare_metric(table, table.number("latency_ms") * 1e-3, forecasts, names)


def _busiest_load(layer: ExpertLayer, power: float) -> ExpertLoad:
    sizes = zip(layer.tokens, layer.experts, layer.top_k, layer.ranks, strict=True)
    counts = [busiest_rank_counts(int(t), int(e), int(k), int(r), power) for t, e, k, r in sizes]
    return expert_load(counts, ROWS)
