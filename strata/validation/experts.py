"""Grouped products over experts, alone and as a fused expert layer."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from strata.errors import BadValue
from strata.pricing.device import Device, device
from strata.pricing.experts import price_experts
from strata.pricing.vector import price_vector
from strata.validation.datasets import Array, Points, Table, forecast, labels, points
from strata.validation.kernels import formats, quantise
from strata.validation.steps import named_chip
from strata.workload.ffn import SILU_FLOP, SILU_SPECIAL
from strata.workload.graph import ExpertMatMul, Extent, Vector

SKEWS = {"uniform": 0.0, "balanced": 0.0, "zipf": 1.0}


def skew_of(routing: str) -> float:
    """Exponent of the share of the i-th most popular expert.

    >>> skew_of("balanced"), skew_of("power_law_1.2")
    (0.0, 1.2)
    """
    power = re.fullmatch(r"power_law_([\d.]+)", routing)
    if power:
        return float(power.group(1))
    if routing not in SKEWS:
        raise BadValue(f"a routing must be one of {', '.join(SKEWS)} or power_law_EXPONENT, but got '{routing}'")
    return SKEWS[routing]


def _product(
    name: str, tokens: Array, top_k: Array, held: Array, experts: Array, n: Array, k: Array, skew: float, weight: str, activation: str
) -> ExpertMatMul:
    return ExpertMatMul(
        name, "moe", (), name, tokens=Extent(tokens), top_k=top_k, experts=Extent(held), all_experts=experts, n=(Extent(n),), k=Extent(k),
        skew=skew + 0.0 * tokens, weight=weight, activation=activation,
    )  # fmt: skip


def grouped_gemm(table: Table) -> Points:
    """One grouped product on cold data: each token goes to one expert."""
    s = table.numbers("experts", "tokens_total", "n", "k")
    dev = device(named_chip("h200"), resident=False)

    def price(key: tuple[str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        one = 1.0 + 0.0 * v["n"]
        op = _product("grouped", v["tokens_total"], one, v["experts"], v["experts"], v["n"], v["k"], skew_of(key[0]), "bf16", "bf16")
        return price_experts(op, dev).time

    made = forecast(table, [table.text("routing")], price, tuple(s))
    return points(table, table.number("median_s"), made, table.text("routing"))


def fused_experts(table: Table) -> Points:
    """Gate/up, activation and down of the busiest expert rank; tokens are those of the whole expert group.

    The call sorts tokens by expert before the products and adds their results up after: Strata's dispatch and combine.
    """
    s = table.numbers("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "num_tokens")
    keys = [table.text(c) for c in ("system", "moe_dtype", "distribution")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        weight, activation, weight_only, rounded = formats(key[1])
        dev = device(named_chip(key[0]), weight_only=weight_only)
        return _layer({k: x[rows] for k, x in s.items()}, skew_of(key[2]), weight, activation, rounded, dev)

    made = forecast(table, keys, price, tuple(s))
    return points(table, table.number("latency_ms") * 1e-3, made, labels(*keys, count=len(table)))


def _layer(v: dict[str, Array], skew: float, weight: str, activation: str, rounded: str, dev: Device) -> Any:
    """Time of one fused expert layer: two grouped products with the activation between; narrow formats round the input of both."""
    experts, ep, tokens, hidden = v["num_experts"], v["moe_ep_size"], v["num_tokens"], v["hidden_size"]
    inner = v["inter_size"] / v["moe_tp_size"]
    shared = (tokens, v["topk"], experts / ep, experts)
    up = _product("up", *shared, 2.0 * inner, hidden, skew, weight, activation)
    down = _product("down", *shared, hidden, inner, skew, weight, activation)
    routed = tokens * v["topk"] / ep
    rows, one = Extent(routed), (Extent(1.0),)
    middle = Vector("activation", "moe", (), "act", rows, (Extent(inner),), 2.0, 1.0, SILU_FLOP, SILU_SPECIAL, "bf16")
    sort = Vector("dispatch", "moe", (), "sent", rows, one, hidden, hidden, 0.0, 0.0, "bf16")
    gather = Vector("combine", "moe", (), "combined", rows, one, hidden, hidden / v["topk"], 2.0 * hidden, 0.0, "bf16")
    time = price_experts(up, dev, ep).time + price_experts(down, dev, ep).time
    time = time + sum(price_vector(op, dev).time for op in (sort, middle, gather))
    if rounded:
        # The fused kernel rounds the middle while it writes it; only the layer's input needs a kernel of its own.
        time = time + quantise(np.minimum(tokens, np.maximum(routed, 1.0)) * hidden, rounded, dev, True).time
    return time
