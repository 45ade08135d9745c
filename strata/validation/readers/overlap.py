"""Kernels that compute and communicate at once, on the nodes they were measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue
from strata.hardware.fabric import Fabric
from strata.pricing.kernels.device import Device
from strata.validation.readers.bare_kernels import (
    cold_device,
    cold_gemm,
    collective_op,
    dispatch_op,
    fused_time,
    second_expert_gemm,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.collectives import node_fabric
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast
from strata.validation.readers.tables import Table

HALF = 2.0  # bytes of an element: all were measured in 16 bits
SIZES = (
    "gpus",
    "m",
    "n",
    "k",
    "comm_bytes_per_gpu",
    "batch",
    "heads",
    "seq",
    "head_dim",
    "experts",
    "topk",
)
Columns = dict[str, Array]


@dataclass(frozen=True, eq=False)
class MeasuredNode:
    """What rows were measured on: a cold device, and the fabric of its node."""

    device: Device
    fabric: Fabric


def overlapped_kernels(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Kernels that compute and communicate at once on eight of the chips that the file's folder names."""
    s = table.numbers(*SIZES)
    node = MeasuredNode(cold_device(catalogue.chip(table.chip)), node_fabric(catalogue, table.chip))

    def price(key: tuple[str], rows: Array) -> Any:
        return kernel_time(key[0])(node, {k: x[rows] for k, x in s.items()})

    forecasts = forecast(table, [table.text("kernel")], price, ("gpus",))
    return compare_metric(table, table.number("measured_ms") * 1e-3, forecasts, table.text("kernel"))


def kernel_time(kernel: str) -> Callable[[MeasuredNode, Columns], Any]:
    """The time of a kernel's rows by its name, or by the words in it."""
    for word, time in KERNELS.items():
        if word in kernel.lower():
            return time
    raise BadValue(f"kernel must be one of {', '.join(KERNELS)}, but got '{kernel}'")


def _given(value: Array, otherwise: Array | float) -> Array:
    """A column where it is filled, else what follows from others."""
    return np.where(np.isnan(value), otherwise, value)


def _gathered_product(node: MeasuredNode, v: Columns) -> Any:
    """All rows gathered from the ranks, for a product with the rank's own columns."""
    sent = _given(v["comm_bytes_per_gpu"], HALF * v["m"] * v["k"] / v["gpus"]) * v["gpus"]
    work = [cold_gemm(v["m"], v["n"], v["k"], node.device)]
    return fused_time(
        collective_op("all_gather", sent), node.fabric, v["gpus"], work, feeds=False, dev=node.device
    )


def _scattered_product(node: MeasuredNode, v: Columns) -> Any:
    """A product over the rank's own depth, its sums scattered over the ranks."""
    sent = _given(v["comm_bytes_per_gpu"], HALF * v["m"] * v["n"] / v["gpus"]) * v["gpus"]
    work = [cold_gemm(v["m"], v["n"], v["k"], node.device)]
    return fused_time(
        collective_op("reduce_scatter", sent), node.fabric, v["gpus"], work, feeds=True, dev=node.device
    )


def _dispatch(node: MeasuredNode, v: Columns) -> Any:
    """Tokens to the ranks of their experts, a message for each pick."""
    return fused_time(dispatch_op(v, HALF), node.fabric, v["gpus"], [], feeds=False, dev=node.device)


def _ulysses(node: MeasuredNode, v: Columns) -> Any:
    """Attention's results from ranks of heads to ranks of tokens, for the output projection of a rank's
    tokens. Before the exchange a rank has all tokens of its heads: `heads` are these where the bytes it sends
    say so, else those of all ranks.
    """
    width = v["heads"] * v["head_dim"]
    one_rank = v["comm_bytes_per_gpu"] > HALF * v["batch"] * v["seq"] * width / np.sqrt(v["gpus"])
    width = np.where(one_rank, v["gpus"] * width, width)
    rows = _given(v["m"], v["batch"] * v["seq"] / v["gpus"])
    k, n = _given(v["k"], width), _given(v["n"], width)
    sent = _given(v["comm_bytes_per_gpu"], HALF * v["batch"] * v["seq"] * width / v["gpus"])
    work = [cold_gemm(rows, n, k, node.device)]
    return fused_time(
        collective_op("all_to_all", sent), node.fabric, v["gpus"], work, feeds=False, dev=node.device
    )


def _summed_experts(node: MeasuredNode, v: Columns) -> Any:
    """The experts' second product, a token's picks added up, and the sum over ranks that cut the experts. m
    counts rows of all experts, tokens times picks.
    """
    picks = _given(v["topk"], 1.0)
    tokens = v["m"] / picks
    work = second_expert_gemm(v | {"m": tokens}, _given(v["experts"], 1.0), picks, node.device)
    sent = _given(v["comm_bytes_per_gpu"], HALF * tokens * v["n"])
    summed = collective_op("all_reduce", sent)
    return fused_time(summed, node.fabric, v["gpus"], work, feeds=True, dev=node.device)


KERNELS = {
    "ag_gemm": _gathered_product,
    "gemm_rs": _scattered_product,
    "dispatch": _dispatch,
    "a2a_gemm": _ulysses,
    "ulysses": _ulysses,
    "moe": _summed_experts,
    "ep_a2a": _dispatch,
}
