"""Matrix products and streaming kernels: each row of a file priced by the same functions a model's step is
made of.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.precision import bytes_of
from strata.pricing.kernels.device import device, rounded_to
from strata.pricing.kernels.eager import eager
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.quantize import rounding
from strata.pricing.power_cap import power_capped
from strata.pricing.price import Price
from strata.validation.datasets import Array, Forecast, Points, Table, forecast, joined, labels, points
from strata.validation.steps import named_chip

# Names of formats in the data sets: weight format, activation format, and whether narrow weights are widened
# before the product.
FORMATS = {
    "bf16": ("bf16", "bf16", False),
    "bfloat16": ("bf16", "bf16", False),
    "float16": ("bf16", "bf16", False),
    "fp16": ("bf16", "bf16", False),
    "half": ("bf16", "bf16", False),
    "fp8": ("fp8", "bf16", False),
    "fp8_static": ("fp8", "bf16", False),
    "fp8_block": ("fp8_block", "bf16", False),
    "nvfp4": ("fp4", "bf16", False),
    "sq": ("int8", "bf16", False),
    "int8_wo": ("int8", "bf16", True),
    "int4_wo": ("int4", "bf16", True),
    "w4afp8": ("int4", "fp8", True),
    "w4a16_mxfp4": ("mxfp4", "bf16", True),
    "w4a8_mxfp4_mxfp8": ("mxfp4", "fp8", True),
}
TURNS = 32.0  # sets of buffers of a streaming kernel that take turns at most: small ones stay in the cache
COPIES = 5.0
# an A100's L2 counts a byte of DRAM twice more: its two partitions hand each other what they fetch
FILLS = 2.0


def formats(name: str) -> tuple[str, str, bool]:
    """What a data set's name of a format means for pricing."""
    if name not in FORMATS:
        raise BadValue(f"a format must be one of {', '.join(FORMATS)}, but got '{name}'")
    return FORMATS[name]


def timed(price: Price, chip: Chip) -> Any:
    """Time of a kernel in a benchmark that repeats it for some ten milliseconds [s]."""
    return power_capped(price, chip, briefly=True).price.time


def served_product(chip: Chip, dtype: str, m: Array, n: Array, k: Array) -> Price:
    """A product as a serving framework calls it: weights from DRAM, activations warm, quantised first where
    the format asks for it.
    """
    weight, activation, weight_only = formats(dtype)
    dev = device(chip, weight_only=weight_only)
    rounded = rounded_to(dev, weight, activation)
    # Up to five copies of the weights take turns, so that small ones stay in the cache
    # (validation/README.md).
    warm = np.where(COPIES * k * n * bytes_of(weight) < chip.cache.capacity, 1.0, 0.0)
    price = matmul(m, n, k, dev, weight, activation, resident=True, warm=warm)
    return price + rounding(m * k, rounded, dev, True) if rounded else price


def h200_gemm(table: Table) -> Points:
    """Cold-cache products; fp8 inputs are fp8 already, the result is bf16."""
    s = table.numbers("m", "n", "k")
    dev = device(named_chip(table.chip), resident=False)

    def price(key: tuple[str], rows: Array) -> Any:
        weight, activation, _ = formats(key[0])
        return timed(matmul(s["m"][rows], s["n"][rows], s["k"][rows], dev, weight, activation), dev.chip)

    made = forecast(table, [table.text("dtype")], price, tuple(s))
    return points(table, table.number("median_s"), made, table.text("dtype"))


def ops_gemm(table: Table) -> Points:
    """Products timed inside serving frameworks."""
    s = table.numbers("m", "n", "k")
    keys = [table.text("system"), table.text("gemm_dtype")]

    def price(key: tuple[str, str], rows: Array) -> Any:
        chip = named_chip(key[0])
        return timed(served_product(chip, key[1], *(s[c][rows] for c in "mnk")), chip)

    made = forecast(table, keys, price, tuple(s))
    return points(table, table.number("latency_ms") * 1e-3, made, labels(*keys, count=len(table)))


def h200_stream(table: Table) -> Points:
    """Element-wise and row-wise kernels of eager PyTorch, on buffers that take turns."""
    s = table.numbers("rows", "cols", "bytes_read", "bytes_written")
    chip = named_chip(table.chip)
    dev = device(chip)

    def price(key: tuple[str], rows: Array) -> Any:
        count, columns, read, written = (column[rows] for column in s.values())
        # Results of copy and add have buffers of their own; those of the others fall into the memory the last
        # one left.
        turned = TURNS * (read + written if key[0] in ("copy", "add") else read)
        found = eager(key[0], count, columns, read, written, dev, np.maximum(turned, read + written))
        return timed(found, chip)

    made = forecast(table, [table.text("op")], price, tuple(s))
    return points(table, table.number("median_s"), made, table.text("op"))


def gemm_ncu(table: Table) -> Points:
    """Products at a locked clock: time, DRAM bytes, and bytes through the L2."""
    s = table.numbers("m", "n", "k", "clock_Ghz")
    base = named_chip("a100_sxm")

    def price(key: tuple[()], rows: Array) -> Any:
        chip = at_clock(base, s["clock_Ghz"][rows] * 1e9)
        dev = device(chip, resident=False)
        found = matmul(s["m"][rows], s["n"][rows], s["k"][rows], dev, "bf16", "bf16")
        return found.time, found.memory_bytes, found.cache_bytes + FILLS * found.memory_bytes

    made = forecast(table, [], price, tuple(s), metrics=3)
    time = points(table, table.number("latency_ms") * 1e-3, made, labels("time", count=len(table)))
    dram = table.number("dram_read") + table.number("dram_write")
    footprint = bytes_of("bf16") * (s["m"] * s["k"] + s["n"] * s["k"] + s["m"] * s["n"])
    beyond = np.where(footprint > base.cache.capacity, " above the L2", " within the L2")
    return joined(
        [
            time,
            _counter(table, dram, made, "dram", beyond, 1),
            _counter(table, table.number("l2_total"), made, "l2", beyond, 2),
        ]
    )


def _counter(table: Table, measured: Array, made: Forecast, name: str, beyond: Array, metric: int) -> Points:
    return points(table, measured, made, np.char.add(name, beyond), metric=metric, headline=False)


def at_clock(chip: Chip, clock: Array) -> Chip:
    """The chip at another clock: cores and their caches slow down with it, DRAM does not."""
    share = clock / chip.compute.clock
    rates = {name: rate * share for name, rate in chip.compute.matrix_rate.items()}
    compute = replace(
        chip.compute,
        clock=clock,
        max_clock=clock,
        matrix_rate=rates,
        vector_rate=chip.compute.vector_rate * share,
        special_rate=chip.compute.special_rate * share,
    )
    return replace(
        chip,
        compute=compute,
        cache=replace(
            chip.cache,
            bandwidth=chip.cache.bandwidth * share,
            core_bandwidth=chip.cache.core_bandwidth * share,
        ),
    )
