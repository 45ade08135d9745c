"""Matrix products: bare, inside serving frameworks, and under a profiler at a locked clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.hardware.chip import Chip
from strata.precision import bytes_of
from strata.pricing.kernels.matmul import matmul
from strata.validation.readers.bare_kernels import benchmark_time, cold_device, served_gemm_price
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.formats import kernel_format
from strata.validation.readers.tables import Table

PROFILED_CHIP = "a100_sxm"
# an A100's L2 counts a byte of DRAM twice more: its two partitions hand each other what they fetch
FILLS = 2.0


def bare_gemm(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Cold-cache products; fp8 inputs are fp8 already, the result is bf16."""
    s = table.numbers("m", "n", "k")
    dev = cold_device(catalogue.chip(table.chip))

    def price(key: tuple[str], rows: Array) -> Any:
        used = kernel_format(key[0])
        m, n, k = (s[c][rows] for c in "mnk")
        product = matmul(m, n, k, dev, used.weight, used.activation)
        return benchmark_time(product, dev.chip)

    forecasts = forecast(table, [table.text("dtype")], price, tuple(s))
    return compare_metric(table, table.number("median_s"), forecasts, table.text("dtype"))


def served_gemm(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Products timed inside serving frameworks."""
    s = table.numbers("m", "n", "k")
    keys = [table.text("system"), table.text("gemm_dtype")]

    def price(key: tuple[str, str], rows: Array) -> Any:
        chip = catalogue.chip(key[0])
        return benchmark_time(served_gemm_price(chip, key[1], *(s[c][rows] for c in "mnk")), chip)

    forecasts = forecast(table, keys, price, tuple(s))
    names = group_names(*keys, count=len(table))
    return compare_metric(table, table.number("latency_ms") * 1e-3, forecasts, names)


def profiled_gemm(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Products at a locked clock: time, DRAM bytes, and bytes through the L2."""
    s = table.numbers("m", "n", "k", "clock_Ghz")
    base = catalogue.chip(PROFILED_CHIP)

    def price(key: tuple[()], rows: Array) -> Any:
        dev = cold_device(chip_at_clock(base, s["clock_Ghz"][rows] * 1e9))
        m, n, k = (s[c][rows] for c in "mnk")
        product = matmul(m, n, k, dev, "bf16", "bf16")
        return product.time, product.memory_bytes, product.cache_bytes + FILLS * product.memory_bytes

    forecasts = forecast(table, [], price, tuple(s), metrics=3)
    time = compare_metric(
        table, table.number("latency_ms") * 1e-3, forecasts, group_names("time", count=len(table))
    )
    footprint = bytes_of("bf16") * (s["m"] * s["k"] + s["n"] * s["k"] + s["m"] * s["n"])
    beside = np.where(footprint > base.cache.capacity, " above the L2", " within the L2")
    counted = {"dram": table.number("dram_read") + table.number("dram_write"), "l2": table.number("l2_total")}
    counters = [
        compare_metric(table, counts, forecasts, np.char.add(name, beside), metric=metric, headline=False)
        for metric, (name, counts) in enumerate(counted.items(), 1)
    ]
    return join_metrics([time, *counters])


def chip_at_clock(chip: Chip, clock: Array) -> Chip:
    """The chip at another clock: cores and their caches slow down with it, DRAM does not."""
    share = clock / chip.compute.clock
    compute = replace(
        chip.compute,
        clock=clock,
        max_clock=clock,
        matrix_rate={name: rate * share for name, rate in chip.compute.matrix_rate.items()},
        vector_rate=chip.compute.vector_rate * share,
        special_rate=chip.compute.special_rate * share,
    )
    cache = replace(
        chip.cache,
        bandwidth=chip.cache.bandwidth * share,
        core_bandwidth=chip.cache.core_bandwidth * share,
    )
    return replace(chip, compute=compute, cache=cache)
