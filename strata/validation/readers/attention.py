"""Attention kernels: grouped heads and latent attention, long passes and single steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.hardware.chip import Chip
from strata.precision import bytes_of, supports
from strata.pricing.kernels.attention import AttentionShape, attention_kernel
from strata.pricing.kernels.device import Device, device
from strata.pricing.kernels.vector import cache_miss_share, vector_kernel
from strata.pricing.price import Price
from strata.validation.readers.bare_kernels import benchmark_time, cold_device
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    fastest_backend,
    forecast,
    group_names,
)
from strata.validation.readers.labels import kernel_format
from strata.validation.readers.tables import Table
from strata.workload.attention_parts import attended
from strata.workload.moe import ROPE_FLOP

# DeepSeek's latent attention (arXiv 2412.19437, sec. 4.2): latent 512, rotary 64, heads of 128 + 64 for keys
# and 128 for values.
RANK, ROPE, KEY, VALUE = 512.0, 64.0, 192.0, 128.0
FEW = 2.0  # tokens: kernels for prompts take a prompt of one token as they take one of a few
NO_WINDOW = 1e18


def bare_attention(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """bf16 attention on cold data; the faster backend of each shape counts."""
    same = ("phase", "batch", "q_heads", "kv_heads", "head_dim", "q_len", "kv_len", "causal")
    table = fastest_backend(table, same, "median_s")
    s = table.numbers(*same[1:])
    dev = cold_device(catalogue.chip(table.chip))

    def price(key: tuple[str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        span = np.where(v["causal"] > 0, attended(v["kv_len"], v["q_len"], NO_WINDOW), v["kv_len"])
        shape = AttentionShape(
            sequences=v["batch"],
            queries=v["q_len"],
            span=span,
            cached=v["kv_len"],
            heads=v["q_heads"],
            kv_heads=v["kv_heads"],
            key_dim=v["head_dim"],
            value_dim=v["head_dim"],
            kv_width=2.0 * v["head_dim"],
            activation="bf16",
            kv="bf16",
        )
        mixed = attention_kernel(shape, dev)
        return benchmark_time(mixed, dev.chip)

    forecasts = forecast(table, [table.text("phase")], price, tuple(s))
    return compare_metric(table, table.number("median_s"), forecasts, table.text("phase"))


def context_attention(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Prefill over isl tokens, causal, no tokens cached before."""

    def extents(isl: Array) -> tuple[Any, ...]:
        return np.maximum(isl, FEW), attended(isl, isl, NO_WINDOW), isl

    return _grouped_heads(table, catalogue, "isl", extents, prompt=True)


def generation_attention(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """One new token after `step` cached ones."""

    def extents(step: Array) -> tuple[Any, ...]:
        return 1.0, step + 1.0, step + 1.0

    return _grouped_heads(table, catalogue, "step", extents, prompt=False)


def _grouped_heads(
    table: Table, catalogue: Catalogue, length: str, extents: Any, prompt: bool
) -> ComparedPoints:
    s = table.numbers("num_heads", "num_key_value_heads", "head_dim", "batch_size", length)
    keys = [table.text(c) for c in ("system", "attn_dtype", "kv_cache_dtype")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        queries, span, cached = extents(v[length])
        batch, heads, d = v["batch_size"], v["num_heads"], v["head_dim"]
        kv_heads = np.where(v["num_key_value_heads"] > 0, v["num_key_value_heads"], heads)
        chip, kv = catalogue.chip(key[0]), kernel_format(key[2]).weight
        dev, products = device(chip), _products(chip, kernel_format(key[1]).weight, kv)
        shape = AttentionShape(
            sequences=batch,
            queries=queries,
            span=span,
            cached=cached,
            heads=heads,
            kv_heads=kv_heads,
            key_dim=d,
            value_dim=d,
            kv_width=2.0 * d,
            activation="bf16",
            kv=kv,
            products=products,
        )
        mixed = attention_kernel(
            shape,
            dev,
            served=chip.paged,
            warm=0.0 if prompt else _kept(chip, batch * cached * kv_heads * 2.0 * d * bytes_of(kv)),
        )
        tokens = batch * queries
        narrow = bytes_of(products if prompt else "bf16")
        turned = tokens * (heads + 2.0 * kv_heads) * d
        written = tokens * d * (heads * narrow + 2.0 * kv_heads * bytes_of(kv))
        return benchmark_time(mixed + _rotation(turned, turned * bytes_of("bf16"), written, dev), chip)

    return _compared_calls(table, keys, price, tuple(s))


def _compared_calls(table: Table, keys: list[Array], price: Any, needs: tuple[str, ...]) -> ComparedPoints:
    """A framework's calls, replayed without pause."""
    forecasts = forecast(table, keys, price, needs)
    names = group_names(*keys, count=len(table))
    return compare_metric(table, table.number("latency_ms") * 1e-3, forecasts, names)


def _rotation(elements: Any, read: Any, written: Any, dev: Device) -> Price:
    """The kernel that rotates queries and keys and writes the cache: a framework's attention call begins with
    it.
    """
    return vector_kernel(read, written, elements * ROPE_FLOP, 0.0, dev, resident=True)


def _products(chip: Chip, attended_in: str, kv: str) -> str:
    """The format frameworks multiply in: the cache's where the chip has arithmetic for it, whatever format
    was asked for.
    """
    narrow = bytes_of(kv) < bytes_of(attended_in) and supports(chip.compute.matrix_rate, kv)
    return kv if narrow else attended_in


def _kept(chip: Chip, cache_bytes: Array) -> Number:
    """Share of the keys and values that one replay leaves in the shared cache for the next: the benchmark has
    one copy of them.
    """
    return 1.0 - cache_miss_share(cache_bytes, chip.cache.capacity)


def context_mla(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Latent attention over a prompt: keys and values expanded to full heads.

    Queries are rotated in place; with a narrow cache three kernels round the queries, keys and values of all
    heads.
    """

    def price(v: dict[str, Array], dev: Device, products: str, kv: str) -> Price:
        isl, heads, batch = v["isl"], v["num_heads"], v["batch_size"]
        cached = isl + v["step"]
        shape = AttentionShape(
            sequences=batch,
            queries=np.maximum(isl, FEW),
            span=attended(cached, isl, NO_WINDOW),
            cached=cached,
            heads=heads,
            kv_heads=heads,
            key_dim=KEY,
            value_dim=VALUE,
            kv_width=KEY + VALUE,
            activation="bf16",
            kv=products,
            products=products,
        )
        mixed = attention_kernel(shape, dev, served=dev.chip.latent)
        of_head, wide = batch * isl * heads, bytes_of("bf16")
        around = _rotation(of_head * KEY, of_head * KEY * wide, of_head * KEY * wide, dev)
        for width in (KEY, KEY, VALUE) if bytes_of(products) < wide else ():
            rounded = of_head * width
            around = around + vector_kernel(
                rounded * wide, rounded * bytes_of(products), rounded, 0.0, dev, resident=True
            )
        return mixed + around

    return _latent_heads(table, catalogue, price)


def generation_mla(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Latent attention of one new token, absorbed: all heads share one latent of 512 + 64."""

    def price(v: dict[str, Array], dev: Device, products: str, kv: str) -> Price:
        cached, heads, batch = v["step"] + 1.0, v["num_heads"], v["batch_size"]
        shape = AttentionShape(
            sequences=batch,
            queries=1.0,
            span=cached,
            cached=cached,
            heads=heads,
            kv_heads=1.0,
            key_dim=RANK + ROPE,
            value_dim=RANK,
            kv_width=RANK + ROPE,
            activation="bf16",
            kv=kv,
            products=products,
        )
        mixed = attention_kernel(
            shape,
            dev,
            served=dev.chip.latent,
            warm=_kept(dev.chip, batch * cached * (RANK + ROPE) * bytes_of(kv)),
        )
        turned = batch * heads * (RANK + ROPE)
        return mixed + _rotation(turned, turned * bytes_of("bf16"), turned * bytes_of(products), dev)

    return _latent_heads(table, catalogue, price)


def _latent_heads(table: Table, catalogue: Catalogue, one: Any) -> ComparedPoints:
    s = table.numbers("num_heads", "batch_size", "isl", "step")
    keys = [table.text(c) for c in ("system", "mla_dtype", "kv_cache_dtype")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        chip, kv = catalogue.chip(key[0]), kernel_format(key[2]).weight
        products = _products(chip, kernel_format(key[1]).weight, kv)
        call = one({k: x[rows] for k, x in s.items()}, device(chip), products, kv)
        return benchmark_time(call, chip)

    return _compared_calls(table, keys, price, tuple(s))
