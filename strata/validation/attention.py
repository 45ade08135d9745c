"""Attention kernels: grouped heads and latent attention, long passes and single steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.precision import bytes_of
from strata.pricing.attention import attention
from strata.pricing.device import Device, device
from strata.pricing.vector import vector
from strata.validation.datasets import Array, Points, Table, fastest, forecast, labels, points
from strata.validation.kernels import formats
from strata.validation.steps import named_chip
from strata.workload.ffn import ROPE_FLOP
from strata.workload.transformer import attended

# DeepSeek's latent attention (arXiv 2412.19437, sec. 4.2): latent 512, rotary 64, heads of 128 + 64 for keys and 128 for values.
RANK, ROPE, KEY, VALUE = 512.0, 64.0, 192.0, 128.0
NO_WINDOW = 1e18


def h200_attention(table: Table) -> Points:
    """bf16 attention on cold data; the faster backend of each shape counts."""
    same = ("phase", "batch", "q_heads", "kv_heads", "head_dim", "q_len", "kv_len", "causal")
    table = fastest(table, same, "median_s")
    s = table.numbers(*same[1:])
    dev = device(named_chip("h200"), resident=False)

    def price(key: tuple[str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        span = np.where(v["causal"] > 0, attended(v["kv_len"], v["q_len"], NO_WINDOW), v["kv_len"])
        d = v["head_dim"]
        return attention(v["batch"], v["q_len"], span, v["kv_len"], v["q_heads"], v["kv_heads"], d, d, 2.0 * d, dev, "bf16", "bf16").time

    made = forecast(table, [table.text("phase")], price, tuple(s))
    return points(table, table.number("median_s"), made, table.text("phase"))


def context_attention(table: Table) -> Points:
    """Prefill over isl tokens, causal, no tokens cached before."""
    return _grouped(table, "isl", lambda isl: (isl, attended(isl, isl, NO_WINDOW), isl))


def generation_attention(table: Table) -> Points:
    """One new token after `step` cached ones."""
    return _grouped(table, "step", lambda step: (1.0, step + 1.0, step + 1.0))


def _grouped(table: Table, length: str, extents: Any) -> Points:
    s = table.numbers("num_heads", "num_key_value_heads", "head_dim", "batch_size", length)
    keys = [table.text(c) for c in ("system", "attn_dtype", "kv_cache_dtype")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        queries, span, cached = extents(v[length])
        heads, d = v["num_heads"], v["head_dim"]
        kv_heads = np.where(v["num_key_value_heads"] > 0, v["num_key_value_heads"], heads)
        dev = device(named_chip(key[0]))
        mixed = attention(v["batch_size"], queries, span, cached, heads, kv_heads, d, d, 2.0 * d, dev, _stored(key[1]), _stored(key[2])).time
        return mixed + _rotate_and_store(v["batch_size"] * queries, heads * d, 2.0 * kv_heads * d, _stored(key[2]), dev)

    made = forecast(table, keys, price, tuple(s))
    return points(table, table.number("latency_ms") * 1e-3, made, labels(*keys, count=len(table)))


def _rotate_and_store(tokens: Any, rotated: Any, stored: Any, kv: str, dev: Device) -> Any:
    """The kernel that rotates queries and keys and writes the cache: a framework's attention call begins with it.

    It is why rows with one attention format and two cache formats differ. The framework's bookkeeping comes on top.
    """
    wide = bytes_of("bf16")
    elements = tokens * (rotated + stored)
    return (
        vector(elements * wide, tokens * (rotated * wide + stored * bytes_of(kv)), elements * ROPE_FLOP, 0.0, dev, True).time
        + dev.chip.overhead.paged
    )


def _stored(name: str) -> str:
    return formats(name)[0]


def context_mla(table: Table) -> Points:
    """Latent attention over a prompt: keys and values expanded to full heads."""

    def price(v: dict[str, Array], dev: Any, activation: str, kv: str) -> Any:
        isl, heads = v["isl"], v["num_heads"]
        span = attended(isl + v["step"], isl, NO_WINDOW)
        return attention(v["batch_size"], isl, span, isl + v["step"], heads, heads, KEY, VALUE, KEY + VALUE, dev, activation, kv).time

    return _latent(table, price)


def generation_mla(table: Table) -> Points:
    """Latent attention of one new token, absorbed: all heads share one latent of 512 + 64."""

    def price(v: dict[str, Array], dev: Any, activation: str, kv: str) -> Any:
        cached, heads = v["step"] + 1.0, v["num_heads"]
        return attention(v["batch_size"], 1.0, cached, cached, heads, 1.0, RANK + ROPE, RANK, RANK + ROPE, dev, activation, kv).time

    return _latent(table, price)


def _latent(table: Table, one: Any) -> Points:
    s = table.numbers("num_heads", "batch_size", "isl", "step")
    keys = [table.text(c) for c in ("system", "mla_dtype", "kv_cache_dtype")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        v, dev, kv = {k: x[rows] for k, x in s.items()}, device(named_chip(key[0])), _stored(key[2])
        return one(v, dev, _stored(key[1]), kv) + _rotate_and_store(v["batch_size"] * v["isl"], v["num_heads"] * ROPE, RANK + ROPE, kv, dev)

    made = forecast(table, keys, price, tuple(s))
    return points(table, table.number("latency_ms") * 1e-3, made, labels(*keys, count=len(table)))
