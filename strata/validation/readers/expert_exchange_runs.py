"""Exchanges of tokens between ranks of experts in and between nodes, as libraries for it publish them.

A row says how many ranks, on what, and the bandwidth or the time; the sizes behind it stand in the library's
own pages (https://github.com/deepseek-ai/DeepEP, README.md and docs/legacy.md) and tests.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue, require
from strata.hardware.fabric import Fabric, sized, with_library
from strata.hardware.transport import ANY
from strata.mapping.place import spread
from strata.precision import bytes_of
from strata.pricing.network.expert_levels import (
    ExpertLevels,
    expert_levels,
    forwarded_exchange,
    low_latency_exchange,
    message_bytes,
    reached_parts,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.tables import Table
from strata.workload.graph import Exchange

# What the pages say of their runs: DeepSeek-V3's sizes, 4096 tokens a rank (8192 of the second version) or
# 128 of low latency, experts on 4 nodes at most (the second version's test has no such limit).
HIDDEN, TOP_K, EXPERTS, TOP_NODES = 7168.0, 8.0, 256.0, 4.0
MANY_TOKENS, MORE_TOKENS, FEW_TOKENS = 4096.0, 8192.0, 128.0
SECOND_VERSION = "v2"
PHASES, KERNELS = ("dispatch", "combine"), ("normal", "low_latency")
FORMATS = {"dispatch": "fp8", "combine": "bf16"}  # where a row does not say
IN_NODE = ("nvlink", "nvswitch", "xgmi", "infinity", "pcie")  # words for links inside a node or a rack
GIGABIT = 1e9 / 8.0  # bytes


def expert_exchange_runs(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Bandwidth of the kernels for many tokens, as their pages count it (bytes received, a node's or rank's
    own too), and latency of the low-latency ones; of a row with both, which say the same, the latency.
    """
    s = table.numbers("ep", "gpus_per_node", "sms", "bandwidth_GBs", "latency_us")
    names = ("source", "gpu", "fabric", "kernel", "phase", "format")
    keys = [table.text(name) for name in names]

    def price(key: tuple[str, ...], rows: Array) -> Any:
        of = dict(zip(names, key, strict=True))
        levels = row_levels(of, s["ep"][rows], s["gpus_per_node"][rows], catalogue)
        made = row_exchange(of, levels)
        by = replace(levels.kernels, notify=None)  # runs are repeated with the layout of the first
        if not np.all(np.isnan(s["sms"][rows])):
            by = replace(by, cores=np.where(np.isnan(s["sms"][rows]), by.cores or np.inf, s["sms"][rows]))
        levels = replace(levels, kernels=by)
        run = forwarded_exchange if of["kernel"] == "normal" else low_latency_exchange
        time = run(made, levels)[0]
        if not np.all(np.isfinite(time)):
            raise BadValue(f"no kernels for {of['kernel']} exchanges are known on {of['gpu']}")
        return [time, counted_bytes(of["kernel"], made, levels) / time]

    forecasts = forecast(table, keys, price, ("ep", "gpus_per_node"), metrics=2)
    groups = group_names(*(table.text(c) for c in ("phase", "gpu", "fabric")), count=len(table))
    told = np.isfinite(s["latency_us"])
    rate = np.where(told, np.nan, s["bandwidth_GBs"] * 1e9)
    parts = [
        compare_metric(table, s["latency_us"] * 1e-6, forecasts, groups, metric=0),
        compare_metric(table, rate, forecasts, groups, metric=1, rate=True),
    ]
    return join_metrics(parts)


def row_levels(of: dict[str, str], ranks: Array, node: Array, catalogue: Catalogue) -> ExpertLevels:
    """Where the ranks of a row lie: nodes of so many, or one domain where the row names links inside it."""
    require(bool(np.all((ranks >= 2) & (node >= 1))), "ep must be from 2, gpus_per_node from 1", ep=ranks)
    if of["phase"] not in PHASES:
        raise BadValue(f"phase must be {' or '.join(PHASES)}, but got '{of['phase']}'")
    if of["kernel"] not in KERNELS:
        raise BadValue(f"kernel must be {' or '.join(KERNELS)}, but got '{of['kernel']}'")
    joined = _quickest_fabric(of["gpu"], catalogue)
    inside = any(word in of["fabric"].lower() for word in IN_NODE)
    node = ranks if inside else np.minimum(node, ranks)
    require(bool(np.all(ranks % node == 0)), "gpus_per_node must divide ep", ep=ranks, gpus_per_node=node)
    joined = with_library(sized(_with_adapter(joined, of["fabric"], inside), (node, ranks / node)), ANY)
    levels = expert_levels(of["phase"], spread(1.0, ranks, joined), joined)
    if levels is None:
        raise BadValue(f"{of['gpu']} has no transport that knows expert exchange kernels")
    return levels


def _quickest_fabric(gpus: str, catalogue: Catalogue) -> Fabric:
    """The fabric of the chip a row names; of several names, which share one figure, that with most links."""
    named = [name.strip() for name in re.split(r"[/,+]", re.sub(r"\(.*?\)", "", gpus)) if name.strip()]
    known = [name for name in named if catalogue.has_chip(name)] or [named[0] if named else gpus]
    found = [catalogue.system(f"8x{catalogue.chip(name).name}").fabric for name in known]
    return max(found, key=lambda joined: float(np.max(joined.dimension[0].bandwidth)))


def _with_adapter(joined: Fabric, words: str, inside: bool) -> Fabric:
    """The fabric with the adapter that a row tells in Gb/s, in place of the usual one."""
    told = re.search(r"(?:(\d+)\s*x\s*)?(\d+)\s*g", words.lower())
    if inside or told is None:
        return joined
    rate = float(told.group(1) or 1) * float(told.group(2)) * GIGABIT
    first, *outer = joined.dimension
    return replace(joined, dimension=(first, *(replace(d, bandwidth=rate) for d in outer)))


def row_exchange(of: dict[str, str], levels: ExpertLevels) -> Exchange:
    """What each rank of a row sends."""
    second = SECOND_VERSION in of["source"].lower()
    many = MORE_TOKENS if second else MANY_TOKENS
    nodes = levels.nodes
    return Exchange(
        direction=of["phase"],
        tokens=many if of["kernel"] == "normal" else FEW_TOKENS,
        top_k=TOP_K,
        experts=EXPERTS,
        width=HIDDEN,
        element=bytes_of(of["format"] or FORMATS[of["phase"]]),
        groups=nodes,
        top_groups=nodes if second else np.minimum(nodes, TOP_NODES),
    )


def counted_bytes(kernel: str, made: Exchange, levels: ExpertLevels) -> Any:
    """Bytes that a published bandwidth counts, those that stay included: a copy for each node, inside one
    node for each rank, and a message for each pick of low latency.
    """
    row = message_bytes(made.direction, made.width, made.element, levels.kernels)
    if kernel != "normal":
        return made.tokens * made.top_k * row
    parts = np.where(levels.nodes > 1, levels.nodes, levels.node)
    return made.tokens * row * reached_parts(parts, made.top_k, made.groups, made.top_groups)
