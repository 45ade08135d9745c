"""Grouped products over experts, alone and as a fused expert layer."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from strata.errors import BadValue
from strata.pricing.kernels.device import Device, device
from strata.pricing.kernels.experts import ROWS, Kernels, Load, grouped, price_experts, price_gather
from strata.pricing.kernels.vector import price_vector
from strata.validation.datasets import Array, Points, Table, forecast, labels, points
from strata.validation.kernels import formats, timed
from strata.validation.routing import at_random, first_rank, load_of
from strata.validation.steps import named_chip
from strata.workload.ffn import SILU_FLOP, SILU_SPECIAL
from strata.workload.graph import ExpertMatMul, Extent, Vector

SKEWS = {"uniform": 0.0, "balanced": 0.0, "zipf": 1.0}
# PyTorch's grouped product has two output tiles: the small one where an expert has at most so many rows on
# average; tiles go
# in pairs, one above the other (aten/src/ATen/native/cuda/GroupMM.cu as read at commit 06c0cf0; that the
# measured 2.11 does the same is assumed).
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


def grouped_gemm(table: Table) -> Points:
    """One grouped product on cold data: each token goes to one expert."""
    s = table.numbers("experts", "tokens_total", "n", "k")
    chip = named_chip(table.chip)
    dev = device(chip, resident=False)

    def price(key: tuple[str], rows: Array) -> Any:
        experts, tokens, n, k = (s[c][rows] for c in s)
        counts = [at_random(int(t), int(e), skew_of(key[0])) for t, e in zip(tokens, experts, strict=True)]
        found = load_of(counts, PAIR * np.array([SMALL[0], LARGE[0]]))
        small = tokens / experts <= SWITCH
        tiles = PAIR * np.where(small, found.tiles[0], found.tiles[1])
        unit = dev.matrix("bf16", "bf16")
        kernels = Kernels(
            unit.sustained * chip.compute.grouped_efficiency,
            chip.memory.bandwidth * chip.memory.grouped_efficiency,
            dev.tile,
            chip.overhead.grouped,
            np.where(small, SMALL[0], LARGE[0])[None, None],
            np.where(small, SMALL[1], LARGE[1])[None, None],
        )
        made = grouped(
            Load(found.tokens, found.experts, tiles[None]),
            n,
            k,
            dev,
            unit,
            2.0,
            2.0,
            kernels,
            2.0 * tokens * n * k,
        )
        return timed(made, chip).mean(0)

    made = forecast(table, [table.text("routing")], price, tuple(s))
    return points(table, table.number("median_s"), made, table.text("routing"))


def fused_experts(table: Table) -> Points:
    """A layer of experts on the busiest rank, as a framework runs it; tokens are those of the whole expert
    group.

    Priced at the highest clock: a bf16 layer reaches 825 TFLOP/s here on an H200, whose large products in
    ops/gemm.csv stop at about 700 at the power limit. The likely cause, not checked, is that the benchmark
    leaves most weights unfilled, and products with zeros draw little power.
    """
    s = table.numbers(
        "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "num_tokens"
    )
    keys = [table.text(c) for c in ("system", "moe_dtype", "distribution")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        weight, activation, weight_only = formats(key[1])
        dev = device(named_chip(key[0]), weight_only=weight_only)
        return _layer({k: x[rows] for k, x in s.items()}, skew_of(key[2]), weight, activation, dev)

    made = forecast(table, keys, price, tuple(s))
    return points(table, table.number("latency_ms") * 1e-3, made, labels(*keys, count=len(table)))


def _layer(v: dict[str, Array], power: float, weight: str, activation: str, dev: Device) -> Any:
    """Time of one layer: the ops of `expert_ops` behind the router."""
    experts, ep, tokens, hidden = v["num_experts"], v["moe_ep_size"], v["num_tokens"], v["hidden_size"]
    inner = v["inter_size"] / v["moe_tp_size"]
    sizes = zip(tokens, experts, v["topk"], ep, strict=True)
    load = load_of([first_rank(int(t), int(e), int(k), int(r), power) for t, e, k, r in sizes], ROWS)
    routing = {
        "tokens": Extent(tokens),
        "top_k": v["topk"],
        "experts": Extent(experts / ep),
        "all_experts": experts,
        "skew": 0.0 * tokens,
    }
    products = [
        ExpertMatMul(
            name,
            "moe",
            (),
            name,
            n=(Extent(n),),
            k=Extent(k),
            weight=weight,
            activation=activation,
            **routing,
        )  # type: ignore[arg-type]
        for name, n, k in (("up", 2.0 * inner, hidden), ("down", hidden, inner))
    ]
    routed, wide = Extent(load.tokens), (Extent(hidden),)
    # every token gets a sum, whether this rank has a part in it or not
    back = tokens / np.maximum(load.tokens, 1.0)
    streams = (
        Vector("top_k", "moe", (), "routes", Extent(tokens), (Extent(experts),), 1.0, 0.0, 2.0, 1.0, "fp32"),
        Vector(
            "activation",
            "moe",
            (),
            "act",
            routed,
            (Extent(inner),),
            2.0,
            1.0,
            SILU_FLOP,
            SILU_SPECIAL,
            "bf16",
        ),
    )
    moves = (
        Vector(
            "dispatch",
            "moe",
            (),
            "sent",
            routed,
            wide,
            1.0,
            0.5 * dev.matrix(weight, activation).activation,
            0.0,
            0.0,
            "bf16",
        ),
        Vector("combine", "moe", (), "combined", routed, wide, 1.0, back, 2.0, 0.0, "bf16"),
    )
    time = sum(price_experts(op, dev, ep, load).time for op in products)
    time = (
        time
        + sum(price_vector(op, dev).time for op in streams)
        + sum(price_gather(op, dev).time for op in moves)
    )
    return time.mean(0)
