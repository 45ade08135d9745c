"""Collectives inside a node, and expert exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np

from strata.errors import BadValue
from strata.hardware.fabric import Fabric, with_library
from strata.hardware.transport import ANY, LIBRARY, Transport
from strata.mapping.place import spread
from strata.pricing.network.collectives import price_collective
from strata.pricing.network.expert_exchange import message_bytes
from strata.pricing.network.transport_times import expert_exchange
from strata.validation.datasets import Array, Points, Table, forecast, joined, labels, points
from strata.validation.steps import named_chip, named_system
from strata.workload.graph import Collective

PATTERNS = {
    "all_gather": "all_gather",
    "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
NOT_SUMMED = ("int8", "uint8")  # formats that switches do not add up
FP8, BF16 = 1.0, 2.0  # bytes of an element as DeepEP's low-latency kernels send it out and back


_IN_PLACE: ContextVar[Transport | None] = ContextVar(
    "transport priced in place of the shipped one of its name", default=None
)


@contextmanager
def moved_by(made: Transport) -> Iterator[None]:
    """Price rows with another version of a transport: how a fit asks what its quantities would do."""
    token = _IN_PLACE.set(made)
    try:
        yield
    finally:
        _IN_PLACE.reset(token)


def node(chip_name: str, speaks: str = LIBRARY) -> Fabric:
    """The fabric of one node of eight, as software of some kind uses it."""
    made, other = named_system(f"8x{chip_name}").fabric, _IN_PLACE.get()
    inner = made.dimension[0]
    if other is not None and other.name == inner.transport:
        made = replace(made, dimension=(replace(inner, transport_model=other), *made.dimension[1:]))
    return with_library(made, speaks)


def collective_time(fabric: Fabric, pattern: str, payload: Array, ranks: Array) -> Any:
    """Time of a collective of the first `ranks` devices of a node [s]; payload is the whole buffer of one
    rank.
    """
    op = Collective(pattern, "", (), "", pattern, "tp", payload)
    return price_collective(op, spread(1.0, ranks, fabric), fabric).time


def nccl(table: Table) -> Points:
    """NCCL inside one node; message_bytes is the whole (gathered) buffer, as Strata counts it."""
    s = table.numbers("num_gpus", "message_bytes")
    keys = [table.text("system"), table.text("op_name"), table.text("nccl_dtype")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        if key[1] not in PATTERNS:
            raise BadValue(f"op_name must be one of {', '.join(PATTERNS)}, but got '{key[1]}'")
        fabric = node(key[0])
        if key[2] in NOT_SUMMED:
            fabric = replace(fabric, dimension=tuple(replace(d, reduction=None) for d in fabric.dimension))
        return collective_time(fabric, PATTERNS[key[1]], s["message_bytes"][rows], s["num_gpus"][rows])

    made = forecast(table, keys, price, tuple(s))
    return points(
        table,
        table.number("latency_ms") * 1e-3,
        made,
        labels(*keys[:2], table.text("num_gpus"), count=len(table)),
    )


def custom_allreduce(table: Table) -> Points:
    """All-reduce as serving frameworks run it, by their own kernels or NCCL's; eager rows include the host's
    launch and stand apart.
    """
    s = table.numbers("num_gpus", "message_bytes")
    keys = [table.text("system"), table.text("kernel_source")]
    eager = np.array([k.lower().endswith("eager") for k in keys[1]])

    def price(key: tuple[str, str], rows: Array) -> Any:
        launch = named_chip(key[0]).overhead.launch if key[1].lower().endswith("eager") else 0.0
        speaks = key[1].split("_")[0].lower()
        return (
            collective_time(node(key[0], speaks), "all_reduce", s["message_bytes"][rows], s["num_gpus"][rows])
            + launch
        )

    made = forecast(table, keys, price, tuple(s))
    names = labels(*keys, table.text("num_gpus"), count=len(table))
    return points(table, table.number("latency_ms") * 1e-3, made, names, headline=~eager)


def deepep(table: Table) -> Points:
    """Low-latency expert exchange over eight ranks: each token is sent once for each of its experts, fp8 out
    and bf16 back.
    """
    s = table.numbers("node_num", "hidden_size", "num_token", "num_topk", "num_experts")
    system = table.text("system")

    def price(key: tuple[str], rows: Array) -> Any:
        if np.any(s["node_num"][rows] != 1):
            raise BadValue("DeepEP rows are known for one node only")
        hidden, picks, experts = (
            s["hidden_size"][rows],
            s["num_token"][rows] * s["num_topk"][rows],
            s["num_experts"][rows],
        )
        link = node(key[0], ANY).dimension[0]
        if link.transport_model is None or link.transport_model.experts is None:
            raise BadValue(f"{key[0]} has no transport that knows expert exchange kernels")
        by = link.transport_model.experts
        sent = {
            way: picks * message_bytes(way, hidden, element, by)
            for way, element in (("dispatch", FP8), ("combine", BF16))
        }
        return [expert_exchange(n, link.size, experts, link.bandwidth, way, by) for way, n in sent.items()]

    made = forecast(table, [system], price, tuple(s), metrics=2)
    sent = points(
        table, table.number("dispatch_avg_t_us") * 1e-6, made, labels(system, "dispatch", count=len(table))
    )
    returned = points(
        table,
        table.number("combine_avg_t_us") * 1e-6,
        made,
        labels(system, "combine", count=len(table)),
        metric=1,
    )
    return joined([sent, returned])
