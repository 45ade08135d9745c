"""Kernels that compute and communicate at once, on the nodes they were measured on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from strata.errors import BadValue
from strata.mapping.place import spread
from strata.pricing.kernels.device import device
from strata.pricing.kernels.experts import price_experts, price_gather
from strata.pricing.kernels.matmul import matmul
from strata.pricing.overlap.fused import fuse, pieces_of, tile_link
from strata.pricing.price import Price
from strata.validation.collectives import node
from strata.validation.datasets import Array, Points, Table, forecast, points
from strata.validation.steps import named_chip
from strata.workload.graph import Collective, Exchange, ExpertMatMul, Extent, MatMul, Op, Vector

HALF = 2.0  # bytes of an element: all were measured in 16 bits
Rows = dict[str, Array]


def overlap(table: Table) -> Points:
    """Kernels that compute and communicate at once on eight of the chips that the file's folder names."""
    s = {
        c: table.number(c)
        for c in (
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
    }

    def price(key: tuple[str], rows: Array) -> Any:
        return kind_of(key[0])(table.chip, {k: x[rows] for k, x in s.items()})

    made = forecast(table, [table.text("kernel")], price, ("gpus",))
    return points(table, table.number("measured_ms") * 1e-3, made, table.text("kernel"))


def kind_of(kernel: str) -> Callable[[str, Rows], Any]:
    """The reader of a kernel's rows by its name, or by the words in it."""
    for word, reader in KINDS.items():
        if word in kernel.lower():
            return reader
    raise BadValue(f"kernel must be one of {', '.join(KINDS)}, but got '{kernel}'")


def _given(value: Array, otherwise: Array | float) -> Array:
    """A column where it is filled, else what follows from others."""
    return np.where(np.isnan(value), otherwise, value)


def _product(chip: str, m: Array, n: Array, k: Array) -> tuple[Op, Price]:
    op = MatMul("product", "", (), "", Extent(m), (Extent(n),), Extent(k), "bf16", "bf16")
    return op, matmul(m, n, k, device(named_chip(chip), resident=False), "bf16", "bf16")


def _with(chip: str, op: Collective, gpus: Array, work: list[tuple[Op, Price]], feeds: bool) -> Any:
    """Time of a collective fused with kernels, the first of which sets the pieces."""
    fabric, dev = node(chip), device(named_chip(chip), resident=False)
    link = tile_link(op, spread(1.0, gpus, fabric), fabric)
    slower, added = fuse(
        op, link, [p for _, p in work], pieces_of(work[0][0], dev, link.ranks) if work else 1.0, feeds, dev
    )
    return sum((p.time for p in slower), 0.0) + added


def _collective(pattern: str, payload: Array, exchange: Exchange | None = None) -> Collective:
    return Collective(pattern, "", (), "", pattern, "tp", payload, exchange=exchange)


def _gathered_product(chip: str, v: Rows) -> Any:
    """All rows gathered from the ranks, for a product with the rank's own columns."""
    sent = _given(v["comm_bytes_per_gpu"], HALF * v["m"] * v["k"] / v["gpus"]) * v["gpus"]
    return _with(
        chip,
        _collective("all_gather", sent),
        v["gpus"],
        [_product(chip, v["m"], v["n"], v["k"])],
        feeds=False,
    )


def _scattered_product(chip: str, v: Rows) -> Any:
    """A product over the rank's own depth, its sums scattered over the ranks."""
    sent = _given(v["comm_bytes_per_gpu"], HALF * v["m"] * v["n"] / v["gpus"]) * v["gpus"]
    return _with(
        chip,
        _collective("reduce_scatter", sent),
        v["gpus"],
        [_product(chip, v["m"], v["n"], v["k"])],
        feeds=True,
    )


def _dispatch(chip: str, v: Rows) -> Any:
    """Tokens to the ranks of their experts, a message for each pick."""
    sent = Exchange("dispatch", v["m"], v["topk"], v["experts"], v["n"], HALF)
    return _with(
        chip, _collective("all_to_all", HALF * v["m"] * v["n"] * v["topk"], sent), v["gpus"], [], feeds=False
    )


def _ulysses(chip: str, v: Rows) -> Any:
    """Attention's results from ranks of heads to ranks of tokens, for the output projection of a rank's
    tokens.
    """
    width = v["heads"] * v["head_dim"]
    rows = _given(v["m"], v["batch"] * v["seq"] / v["gpus"])
    k, n = _given(v["k"], width), _given(v["n"], width)
    sent = _given(v["comm_bytes_per_gpu"], HALF * v["batch"] * v["seq"] * width / v["gpus"])
    return _with(chip, _collective("all_to_all", sent), v["gpus"], [_product(chip, rows, n, k)], feeds=False)


def _summed_experts(chip: str, v: Rows) -> Any:
    """The experts' second product, a token's picks added up, and the sum over the ranks that cut the experts."""
    dev, experts, picks = (
        device(named_chip(chip), resident=False),
        _given(v["experts"], 1.0),
        _given(v["topk"], 1.0),
    )
    columns = (Extent(v["n"]),)
    down = ExpertMatMul(
        "down",
        "",
        (),
        "",
        Extent(v["m"]),
        picks,
        Extent(experts),
        experts,
        columns,
        Extent(v["k"]),
        0.0,
        "bf16",
        "bf16",
    )
    add = Vector(
        "combine", "", (), "", Extent(v["m"]), columns, picks, 1.0, 2.0 * picks, 0.0, "bf16", gathered=True
    )
    work: list[tuple[Op, Price]] = [(down, price_experts(down, dev)), (add, price_gather(add, dev))]
    return _with(chip, _collective("all_reduce", HALF * v["m"] * v["n"]), v["gpus"], work, feeds=True)


KINDS = {
    "ag_gemm": _gathered_product,
    "gemm_rs": _scattered_product,
    "dispatch": _dispatch,
    "a2a_gemm": _ulysses,
    "ulysses": _ulysses,
    "moe": _summed_experts,
    "ep_a2a": _dispatch,
}
