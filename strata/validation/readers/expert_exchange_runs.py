"""Exchanges of tokens between ranks of experts in and between nodes, as libraries for it publish them.

A row says how many ranks, on what, and the bandwidth or the time; the sizes behind it stand in the library's
own pages and tests, and here in data/conditions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue, UnknownName, require
from strata.hardware.fabric import Fabric, sized, with_library
from strata.hardware.transport import ANY
from strata.mapping.place import spread
from strata.params import by_name, part, quantity, text
from strata.precision import bytes_of
from strata.pricing.network.expert_levels import (
    ExpertLevels,
    expert_levels,
    forwarded_exchange,
    low_latency_exchange,
    message_bytes,
    reached_parts,
)
from strata.validation.readers.bare_kernels import token_exchange
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.multinode import shipped_network
from strata.validation.readers.network_names import chip_called, network_of
from strata.validation.readers.tables import Table

CONDITIONS = "network/expert_exchange.toml"
FIRST = "v1"  # where a source names no version of its library
PHASES = ("dispatch", "combine")
FEW, MANY = ("low",), ("normal", "high", "throughput", "hybrid")  # words for kernels of few or many tokens
FORMATS = {"dispatch": "fp8", "combine": "bf16"}  # where a row does not say
IN_NODE = ("nvlink", "nvswitch", "xgmi", "infinity", "pcie")  # words for links inside a node or a rack
GIGABIT = 1e9 / 8.0  # bytes
MOST = 1600.0  # Gb/s of one adapter; more is told of a node


@dataclass(frozen=True, eq=False, kw_only=True)
class ExchangeSizes:
    """What every run of a library's tests has in common."""

    width: Number = quantity("1", "elements of a token", positive=True)
    top_k: Number = quantity("1", "experts of a token", positive=True)
    experts: Number = quantity("1", "experts in all", positive=True)
    few: Number = quantity("1", "tokens of a rank, of the low-latency kernels", positive=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class ExchangeConditions:
    """Tests of a library for exchanges, by its version as sources name it."""

    title: str = text("what was run")
    sizes: ExchangeSizes = part(ExchangeSizes, "of all runs")
    many: dict[str, Number] = by_name("1", "tokens of a rank, of the kernels for many, by version")
    top_nodes: dict[str, Number] = by_name("1", "most nodes that a token goes to, by version")


def expert_exchange_runs(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Bandwidth of the kernels for many tokens, as their pages count it (bytes received, a node's or rank's
    own too), and latency of the low-latency ones; of a row with both, which say the same, the latency.
    """
    s = table.numbers("ep", "gpus_per_node", "sms", "bandwidth_GBs", "latency_us")
    names = ("source", "gpu", "fabric", "kernel", "phase", "format")
    keys = [table.text(name) for name in names]
    known = read_conditions(ExchangeConditions, table, CONDITIONS)

    def price(key: tuple[str, ...], rows: Array) -> Any:
        of = dict(zip(names, key, strict=True))
        of["kernel"] = kernel_kind(of["kernel"])
        levels = row_levels(of, s["ep"][rows], s["gpus_per_node"][rows], catalogue)
        made = row_exchange(of, levels, known)
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


def kernel_kind(name: str) -> str:
    """Which of the two kinds a row's kernels are.

    >>> kernel_kind("Low-latency"), kernel_kind("hybrid"), kernel_kind("normal")
    ('low_latency', 'normal', 'normal')
    """
    for kind, words in (("low_latency", FEW), ("normal", MANY)):
        if any(word in name.lower() for word in words):
            return kind
    raise BadValue(f"kernel must be normal or low_latency, but got '{name}'")


def row_levels(of: dict[str, str], ranks: Array, node: Array, catalogue: Catalogue) -> ExpertLevels:
    """Where the ranks of a row lie: nodes of so many, or one domain where the row names links inside it."""
    require(bool(np.all((ranks >= 2) & (node >= 1))), "ep must be from 2, gpus_per_node from 1", ep=ranks)
    if of["phase"] not in PHASES:
        raise BadValue(f"phase must be {' or '.join(PHASES)}, but got '{of['phase']}'")
    inside = any(word in of["fabric"].lower() for word in IN_NODE)
    node = ranks if inside else np.minimum(node, ranks)
    network = "" if inside else _named_network(of["fabric"], catalogue)
    joined = _quickest_fabric(of["gpu"], network, float(np.max(node)), catalogue)
    require(bool(np.all(ranks % node == 0)), "gpus_per_node must divide ep", ep=ranks, gpus_per_node=node)
    joined = with_library(sized(_with_adapter(joined, of["fabric"], inside, node), (node, ranks / node)), ANY)
    levels = expert_levels(of["phase"], spread(1.0, ranks, joined), joined)
    if levels is None:
        raise BadValue(f"{of['gpu']} has no transport that knows expert exchange kernels")
    return levels


def _named_network(words: str, catalogue: Catalogue) -> str:
    """The network between nodes that a row names, "" where it names none."""
    try:
        return network_of(words, catalogue=catalogue)
    except UnknownName:
        return ""


def _quickest_fabric(gpus: str, network: str, node: float, catalogue: Catalogue) -> Fabric:
    """The fabric of the chip a row names, with the network it names; of several chips, which share one
    figure, that with most links.
    """
    named = [name.strip() for name in re.split(r"[/,+]", re.sub(r"\(.*?\)", "", gpus)) if name.strip()]
    known = [name for name in named if catalogue.has_chip(name)] or [named[0] if named else gpus]
    chips = [chip_called(catalogue, name) for name in known]
    found = [
        shipped_network(catalogue, name, network, node, None) if network else catalogue.usual_fabric(name)
        for name in chips
    ]
    return max(found, key=lambda joined: float(np.max(joined.dimension[0].bandwidth)))


def _with_adapter(joined: Fabric, words: str, inside: bool, node: Array) -> Fabric:
    """The fabric with the adapter that a row tells in Gb/s, of a rank or of its node, in place of the usual
    one.
    """
    told = re.search(r"(?:(\d+)\s*x\s*)?(\d+)\s*g", words.lower())
    if inside or told is None:
        return joined
    told_rate = float(told.group(1) or 1) * float(told.group(2))
    rate = told_rate * GIGABIT / (node if told_rate > MOST else 1.0)
    first, *outer = joined.dimension
    return replace(joined, dimension=(first, *(replace(d, bandwidth=rate) for d in outer)))


def row_exchange(of: dict[str, str], levels: ExpertLevels, known: ExchangeConditions) -> Any:
    """What each rank of a row sends."""
    version = next((v for v in known.many if v in of["source"].lower()), FIRST)
    sizes = known.sizes
    return token_exchange(
        of["phase"],
        bytes_of(of["format"] or FORMATS[of["phase"]]),
        tokens=known.many[version] if of["kernel"] == "normal" else sizes.few,
        top_k=sizes.top_k,
        experts=sizes.experts,
        width=sizes.width,
        groups=levels.nodes,
        top_groups=np.minimum(levels.nodes, known.top_nodes[version]),
    )


def counted_bytes(kernel: str, made: Any, levels: ExpertLevels) -> Any:
    """Bytes that a published bandwidth counts, those that stay included: a copy for each node, inside one
    node for each rank, and a message for each pick of low latency.
    """
    row = message_bytes(made.direction, made.width, made.element, levels.kernels)
    if kernel != "normal":
        return made.tokens * made.top_k * row
    parts = np.where(levels.nodes > 1, levels.nodes, levels.node)
    return made.tokens * row * reached_parts(parts, made.top_k, made.groups, made.top_groups)
