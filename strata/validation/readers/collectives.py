"""Collectives inside a node, and expert exchanges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue
from strata.hardware.fabric import Fabric, with_library
from strata.hardware.transport import ANY, LIBRARY
from strata.pricing.network.expert_levels import message_bytes
from strata.pricing.network.transport_times import expert_exchange
from strata.validation.readers.bare_kernels import node_collective_time
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.tables import Table

PATTERNS = {
    "all_gather": "all_gather",
    "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
NOT_SUMMED = ("int8", "uint8")  # formats that switches do not add up
FP8, BF16 = 1.0, 2.0  # bytes of an element as DeepEP's low-latency kernels send it out and back


def node_fabric(catalogue: Catalogue, chip_name: str, library: str = LIBRARY) -> Fabric:
    """The fabric of one node of eight, as software of some kind uses it."""
    return with_library(catalogue.system(f"8x{chip_name}").fabric, library)


def nccl(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """NCCL inside one node; message_bytes is the whole (gathered) buffer, as Strata counts it."""
    s = table.numbers("num_gpus", "message_bytes")
    keys = [table.text("system"), table.text("op_name"), table.text("nccl_dtype")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        if key[1] not in PATTERNS:
            raise BadValue(f"op_name must be one of {', '.join(PATTERNS)}, but got '{key[1]}'")
        fabric = node_fabric(catalogue, key[0])
        if key[2] in NOT_SUMMED:
            fabric = replace(fabric, dimension=tuple(replace(d, reduction=None) for d in fabric.dimension))
        return node_collective_time(fabric, PATTERNS[key[1]], s["message_bytes"][rows], s["num_gpus"][rows])

    forecasts = forecast(table, keys, price, tuple(s))
    names = group_names(*keys[:2], table.text("num_gpus"), count=len(table))
    return compare_metric(table, table.number("latency_ms") * 1e-3, forecasts, names)


def custom_allreduce(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """All-reduce as serving frameworks run it, by their own kernels or NCCL's; eager rows include the host's
    launch and stand apart.
    """
    s = table.numbers("num_gpus", "message_bytes")
    keys = [table.text("system"), table.text("kernel_source")]
    eager = np.array([k.lower().endswith("eager") for k in keys[1]])

    def price(key: tuple[str, str], rows: Array) -> Any:
        launch = catalogue.chip(key[0]).overhead.launch if key[1].lower().endswith("eager") else 0.0
        fabric = node_fabric(catalogue, key[0], key[1].split("_")[0].lower())
        return launch + node_collective_time(
            fabric, "all_reduce", s["message_bytes"][rows], s["num_gpus"][rows]
        )

    forecasts = forecast(table, keys, price, tuple(s))
    names = group_names(*keys, table.text("num_gpus"), count=len(table))
    return compare_metric(table, table.number("latency_ms") * 1e-3, forecasts, names, headline=~eager)


def deepep(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Low-latency expert exchange over eight ranks: each token is sent once for each of its experts, fp8 out
    and bf16 back.
    """
    s = table.numbers("node_num", "hidden_size", "num_token", "num_topk", "num_experts")
    system = table.text("system")

    def price(key: tuple[str], rows: Array) -> Any:
        if np.any(s["node_num"][rows] != 1):
            raise BadValue("DeepEP rows are known for one node only")
        hidden, experts = s["hidden_size"][rows], s["num_experts"][rows]
        picks = s["num_token"][rows] * s["num_topk"][rows]
        link = node_fabric(catalogue, key[0], ANY).dimension[0]
        if link.transport_model is None or link.transport_model.experts is None:
            raise BadValue(f"{key[0]} has no transport that knows expert exchange kernels")
        kernels = link.transport_model.experts
        sent = {
            direction: picks * message_bytes(direction, hidden, element, kernels)
            for direction, element in (("dispatch", FP8), ("combine", BF16))
        }
        return [
            expert_exchange(payload, link.size, experts, link.bandwidth, direction, kernels)
            for direction, payload in sent.items()
        ]

    forecasts = forecast(table, [system], price, tuple(s), metrics=2)
    parts = [
        compare_metric(
            table,
            table.number(f"{direction}_avg_t_us") * 1e-6,
            forecasts,
            group_names(system, direction, count=len(table)),
            metric=metric,
        )
        for metric, direction in enumerate(("dispatch", "combine"))
    ]
    return join_metrics(parts)
