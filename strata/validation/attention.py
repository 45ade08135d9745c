"""Attention kernels: grouped heads and latent attention, long passes and single steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.hardware.chip import Chip
from strata.precision import bytes_of, supports
from strata.pricing.kernels.attention import attention
from strata.pricing.kernels.device import Device, device
from strata.pricing.kernels.vector import missed, vector
from strata.pricing.price import Price
from strata.validation.datasets import Array, Points, Table, fastest, forecast, labels, points
from strata.validation.kernels import formats, timed
from strata.validation.steps import named_chip
from strata.workload.ffn import ROPE_FLOP
from strata.workload.transformer import attended

# DeepSeek's latent attention (arXiv 2412.19437, sec. 4.2): latent 512, rotary 64, heads of 128 + 64 for keys
# and 128 for values.
RANK, ROPE, KEY, VALUE = 512.0, 64.0, 192.0, 128.0
FEW = 2.0  # tokens: kernels for prompts take a prompt of one token as they take one of a few
NO_WINDOW = 1e18


def h200_attention(table: Table) -> Points:
    """bf16 attention on cold data; the faster backend of each shape counts."""
    same = ("phase", "batch", "q_heads", "kv_heads", "head_dim", "q_len", "kv_len", "causal")
    table = fastest(table, same, "median_s")
    s = table.numbers(*same[1:])
    dev = device(named_chip(table.chip), resident=False)

    def price(key: tuple[str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        span = np.where(v["causal"] > 0, attended(v["kv_len"], v["q_len"], NO_WINDOW), v["kv_len"])
        d = v["head_dim"]
        found = attention(
            v["batch"],
            v["q_len"],
            span,
            v["kv_len"],
            v["q_heads"],
            v["kv_heads"],
            d,
            d,
            2.0 * d,
            dev,
            "bf16",
            "bf16",
        )
        return timed(found, dev.chip)

    made = forecast(table, [table.text("phase")], price, tuple(s))
    return points(table, table.number("median_s"), made, table.text("phase"))


def context_attention(table: Table) -> Points:
    """Prefill over isl tokens, causal, no tokens cached before."""

    def extents(isl: Array) -> tuple[Any, ...]:
        return np.maximum(isl, FEW), attended(isl, isl, NO_WINDOW), isl

    return _grouped(table, "isl", extents, prompt=True)


def generation_attention(table: Table) -> Points:
    """One new token after `step` cached ones."""
    return _grouped(table, "step", lambda step: (1.0, step + 1.0, step + 1.0), prompt=False)


def _grouped(table: Table, length: str, extents: Any, prompt: bool) -> Points:
    s = table.numbers("num_heads", "num_key_value_heads", "head_dim", "batch_size", length)
    keys = [table.text(c) for c in ("system", "attn_dtype", "kv_cache_dtype")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        queries, span, cached = extents(v[length])
        batch, heads, d = v["batch_size"], v["num_heads"], v["head_dim"]
        kv_heads = np.where(v["num_key_value_heads"] > 0, v["num_key_value_heads"], heads)
        chip, kv = named_chip(key[0]), _stored(key[2])
        dev, products = device(chip), _products(chip, _stored(key[1]), kv)
        warm = 0.0 if prompt else _kept(chip, batch * cached * kv_heads * 2.0 * d * bytes_of(kv))
        mixed = attention(
            batch,
            queries,
            span,
            cached,
            heads,
            kv_heads,
            d,
            d,
            2.0 * d,
            dev,
            "bf16",
            kv,
            products=products,
            served=chip.paged,
            warm=warm,
        )
        tokens = batch * queries
        narrow = bytes_of(products if prompt else "bf16")
        turned = tokens * (heads + 2.0 * kv_heads) * d
        written = tokens * d * (heads * narrow + 2.0 * kv_heads * bytes_of(kv))
        return _served(mixed, _pass(turned, turned * bytes_of("bf16"), written, dev), dev)

    made = forecast(table, keys, price, tuple(s))
    return points(table, table.number("latency_ms") * 1e-3, made, labels(*keys, count=len(table)))


def _served(mixed: Price, around: Price, dev: Device) -> Any:
    """Time of a framework's call, replayed without pause."""
    return timed(mixed + around, dev.chip)


def _pass(elements: Any, read: Any, written: Any, dev: Device) -> Price:
    """The kernel that rotates queries and keys and writes the cache: a framework's attention call begins with
    it.
    """
    return vector(read, written, elements * ROPE_FLOP, 0.0, dev, True)


def _products(chip: Chip, attended_in: str, kv: str) -> str:
    """The format frameworks multiply in: the cache's where the chip has arithmetic for it, whatever format
    was asked for.
    """
    narrow = bytes_of(kv) < bytes_of(attended_in) and supports(chip.compute.matrix_rate, kv)
    return kv if narrow else attended_in


def _kept(chip: Chip, cache_bytes: Array) -> Array:
    """Share of the keys and values that one replay leaves in the shared cache for the next: the benchmark has
    one copy of them.
    """
    return 1.0 - missed(cache_bytes, chip.cache.capacity)


def _stored(name: str) -> str:
    return formats(name)[0]


def context_mla(table: Table) -> Points:
    """Latent attention over a prompt: keys and values expanded to full heads.

    Queries are rotated in place; with a narrow cache three kernels round the queries, keys and values of all
    heads.
    """

    def price(v: dict[str, Array], dev: Device, products: str, kv: str) -> tuple[Price, Price]:
        isl, heads, batch = v["isl"], v["num_heads"], v["batch_size"]
        queries, cached = np.maximum(isl, FEW), isl + v["step"]
        mixed = attention(
            batch,
            queries,
            attended(cached, isl, NO_WINDOW),
            cached,
            heads,
            heads,
            KEY,
            VALUE,
            KEY + VALUE,
            dev,
            "bf16",
            products,
            products=products,
            served=dev.chip.latent,
        )
        of_head, wide = batch * isl * heads, bytes_of("bf16")
        around = _pass(of_head * KEY, of_head * KEY * wide, of_head * KEY * wide, dev)
        for width in (KEY, KEY, VALUE) if bytes_of(products) < wide else ():
            rounded = of_head * width
            around = around + vector(rounded * wide, rounded * bytes_of(products), rounded, 0.0, dev, True)
        return mixed, around

    return _latent(table, price)


def generation_mla(table: Table) -> Points:
    """Latent attention of one new token, absorbed: all heads share one latent of 512 + 64."""

    def price(v: dict[str, Array], dev: Device, products: str, kv: str) -> tuple[Price, Price]:
        cached, heads, batch = v["step"] + 1.0, v["num_heads"], v["batch_size"]
        warm = _kept(dev.chip, batch * cached * (RANK + ROPE) * bytes_of(kv))
        mixed = attention(
            batch, 1.0, cached, cached, heads, 1.0, RANK + ROPE, RANK, RANK + ROPE, dev, "bf16", kv,
            products=products, served=dev.chip.latent, warm=warm,
        )  # fmt: skip
        turned = batch * heads * (RANK + ROPE)
        return mixed, _pass(turned, turned * bytes_of("bf16"), turned * bytes_of(products), dev)

    return _latent(table, price)


def _latent(table: Table, one: Any) -> Points:
    s = table.numbers("num_heads", "batch_size", "isl", "step")
    keys = [table.text(c) for c in ("system", "mla_dtype", "kv_cache_dtype")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        v, chip, kv = {k: x[rows] for k, x in s.items()}, named_chip(key[0]), _stored(key[2])
        dev = device(chip)
        mixed, around = one(v, dev, _products(chip, _stored(key[1]), kv), kv)
        return _served(mixed, around, dev)

    made = forecast(table, keys, price, tuple(s))
    return points(table, table.number("latency_ms") * 1e-3, made, labels(*keys, count=len(table)))
