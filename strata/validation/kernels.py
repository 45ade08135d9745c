"""Matrix products and streaming kernels: each row of a file priced by the same functions a model's step is made of."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.precision import bytes_of, rate_of
from strata.pricing.device import Device, device
from strata.pricing.matmul import matmul
from strata.pricing.price import Price
from strata.pricing.vector import vector
from strata.validation.datasets import Array, Forecast, Points, Table, forecast, joined, labels, points
from strata.validation.steps import named_chip
from strata.workload.ffn import NORM_FLOP

# Names of formats in the data sets: weight format, activation format, whether narrow weights are widened before the
# product, and the format the activations are quantised to by a kernel that is part of the measured call ("" for none).
FORMATS = {
    "bf16": ("bf16", "bf16", False, ""),
    "bfloat16": ("bf16", "bf16", False, ""),
    "float16": ("bf16", "bf16", False, ""),
    "fp16": ("bf16", "bf16", False, ""),
    "half": ("bf16", "bf16", False, ""),
    "fp8": ("fp8", "bf16", False, "fp8"),
    "fp8_static": ("fp8", "bf16", False, "fp8"),
    "fp8_block": ("fp8_block", "bf16", False, "fp8_block"),
    "nvfp4": ("fp4", "bf16", False, "fp4"),
    "sq": ("int8", "bf16", False, ""),
    "int8_wo": ("int8", "bf16", True, ""),
    "int4_wo": ("int4", "bf16", True, ""),
    "w4afp8": ("int4", "fp8", True, ""),
    "w4a16_mxfp4": ("mxfp4", "bf16", True, ""),
    "w4a8_mxfp4_mxfp8": ("mxfp4", "fp8", True, ""),
}
QUANTISE_FLOP = 3.0  # an element is compared with the largest of its block, scaled and rounded
# Vector work of one element (arithmetic, special functions), from the definitions: softmax subtracts the maximum, takes an
# exponential, adds up and divides; the erf of gelu is a polynomial and an exponential.
STREAMS = {"copy": (0.0, 0.0), "add": (1.0, 0.0), "rms_norm": (NORM_FLOP, 0.0), "softmax": (4.0, 1.0), "gelu": (12.0, 1.0)}
COPIES = 5.0
LONG_ENOUGH = 0.2  # ms: below it a board's power reading is noise (validation/README.md)


def formats(name: str) -> tuple[str, str, bool, str]:
    """What a data set's name of a format means for pricing."""
    if name not in FORMATS:
        raise BadValue(f"a format must be one of {', '.join(FORMATS)}, but got '{name}'")
    return FORMATS[name]


def quantise(elements: Any, to: str, dev: Device, resident: bool) -> Price:
    """Rounding 16-bit activations to a narrower format: a pass over them, and what a framework adds to it."""
    price = vector(elements * bytes_of("bf16"), elements * bytes_of(to), elements * QUANTISE_FLOP, 0.0, dev, resident)
    added = rate_of(dev.chip.overhead.quantise, to)
    return price + Price(time=added, overhead=added, upper=added)


def served_product(chip: Chip, dtype: str, m: Array, n: Array, k: Array) -> Price:
    """A product as a serving framework calls it: weights from DRAM, activations warm, quantised first where the format asks for it."""
    weight, activation, weight_only, rounded = formats(dtype)
    dev = device(chip, weight_only=weight_only)
    # Up to five copies of the weights take turns, so that small ones stay in the cache (validation/README.md).
    warm = np.where(COPIES * k * n * bytes_of(weight) < chip.cache.capacity, 1.0, 0.0)
    price = matmul(m, n, k, dev, weight, activation, resident=True, warm=warm)
    return price + quantise(m * k, rounded, dev, True) if rounded else price


def h200_gemm(table: Table) -> Points:
    """Cold-cache products; fp8 inputs are fp8 already, the result is bf16."""
    s = table.numbers("m", "n", "k")
    dev = device(named_chip("h200"), resident=False)

    def price(key: tuple[str], rows: Array) -> Any:
        weight, activation, _, _ = formats(key[0])
        return matmul(s["m"][rows], s["n"][rows], s["k"][rows], dev, weight, activation).time

    made = forecast(table, [table.text("dtype")], price, tuple(s))
    return points(table, table.number("median_s"), made, table.text("dtype"))


def ops_gemm(table: Table) -> Points:
    """Products timed inside serving frameworks."""
    s = table.numbers("m", "n", "k")
    keys = [table.text("system"), table.text("gemm_dtype")]

    def price(key: tuple[str, str], rows: Array) -> Any:
        return served_product(named_chip(key[0]), key[1], *(s[c][rows] for c in "mnk")).time

    made = forecast(table, keys, price, tuple(s))
    return points(table, table.number("latency_ms") * 1e-3, made, labels(*keys, count=len(table)))


def gemm_power(table: Table) -> Points:
    """Board power of repeated products, and their time. Power is judged on rows long enough to be measured."""
    s = table.numbers("m", "n", "k", "power_limit_w")
    keys = [table.text("system"), table.text("gemm_dtype")]

    def price(key: tuple[str, str], rows: Array) -> Any:
        chip = named_chip(key[0])
        found = served_product(chip, key[1], *(s[c][rows] for c in "mnk"))
        return np.minimum(_power(chip, found), s["power_limit_w"][rows]), found.time

    made = forecast(table, keys, price, tuple(s), metrics=2)
    took, count = table.number("latency_ms"), len(table)
    drawn = np.where(took >= LONG_ENOUGH, table.number("power_w"), np.nan)
    power = points(table, drawn, made, labels("power", *keys, count=count))
    return joined([power, points(table, took * 1e-3, made, labels("time", *keys, count=count), metric=1, headline=False)])


def _power(chip: Chip, price: Price) -> Any:
    """Power a kernel asks for when it is repeated without pause [W]."""
    return price.energy / price.time + chip.energy.static_power


def h200_stream(table: Table) -> Points:
    """Element-wise and row-wise kernels on cold data."""
    s = table.numbers("rows", "cols", "bytes_read", "bytes_written")
    dev = device(named_chip("h200"), resident=False)

    def price(key: tuple[str], rows: Array) -> Any:
        if key[0] not in STREAMS:
            raise BadValue(f"a streaming op must be one of {', '.join(STREAMS)}, but got '{key[0]}'")
        flop, special = STREAMS[key[0]]
        elements = s["rows"][rows] * s["cols"][rows]
        return vector(s["bytes_read"][rows], s["bytes_written"][rows], elements * flop, elements * special, dev).time

    made = forecast(table, [table.text("op")], price, tuple(s))
    return points(table, table.number("median_s"), made, table.text("op"))


def h200_power(table: Table) -> Points:
    """Sustained power and clock of repeated kernels."""
    work = table.number("work_per_call")
    chip = named_chip("h200")

    def price(key: tuple[str], rows: Array) -> Any:
        found = _load(key[0], work[rows], chip)
        asked = chip.energy.static_power + 0.0 * work[rows] if found is None else _power(chip, found)
        limit, static = chip.energy.power_limit, chip.energy.static_power
        # A stated rough rule until there is a clock loop: power above static follows the cube of the clock.
        fall = np.minimum((limit - static) / np.maximum(asked - static, 1e-9), 1.0) ** (1 / 3)
        return np.minimum(asked, limit), chip.compute.clock * fall

    made = forecast(table, [table.text("load")], price, ("work_per_call",), metrics=2)
    power = points(table, table.number("power_w"), made, labels("power", table.text("load"), count=len(table)))
    clock = points(table, table.number("sm_mhz") * 1e6, made, labels("clock", table.text("load"), count=len(table)), metric=1, headline=False)
    return joined([power, clock])


def _load(load: str, work: Array, chip: Chip) -> Price | None:
    """The kernel behind the name of a load; None is idle."""
    cold = device(chip, resident=False)
    product = re.fullmatch(r"gemm_(\w+?)_(\d+)", load)
    if load == "idle":
        return None
    if product:
        weight, activation, _, _ = formats(product.group(1))
        size = np.cbrt(work / 2.0)
        return matmul(size, size, size, cold, weight, activation)
    if load == "gemv_m1":  # [1, 8192] x [57344, 8192]^T (validation/README.md)
        depth = 8192.0 + 0.0 * work
        return matmul(1.0 + 0.0 * work, work / (depth * bytes_of("bf16")), depth, cold, "bf16", "bf16")
    if load.startswith("copy"):
        return vector(work / 2.0, work / 2.0, 0.0, 0.0, cold, resident="l2" in load)
    raise BadValue(f"a load must be idle, gemm_FORMAT_SIZE, gemv_m1 or copy_..., but got '{load}'")


def gemm_ncu(table: Table) -> Points:
    """Products at a locked clock: time, DRAM bytes, and bytes through the L2."""
    s = table.numbers("m", "n", "k", "clock_Ghz")
    base = named_chip("a100_sxm")

    def price(key: tuple[()], rows: Array) -> Any:
        chip = at_clock(base, s["clock_Ghz"][rows] * 1e9)
        dev = device(chip, resident=False)
        found = matmul(s["m"][rows], s["n"][rows], s["k"][rows], dev, "bf16", "bf16")
        return found.time, found.memory_bytes, found.cache_bytes

    made = forecast(table, [], price, tuple(s), metrics=3)
    time = points(table, table.number("latency_ms") * 1e-3, made, labels("time", count=len(table)))
    dram = table.number("dram_read") + table.number("dram_write")
    parts = [time, _counter(table, dram, made, "dram", 1), _counter(table, table.number("l2_total"), made, "l2", 2)]
    return joined(parts)


def _counter(table: Table, measured: Array, made: Forecast, name: str, metric: int) -> Points:
    return points(table, measured, made, labels(name, count=len(table)), metric=metric, headline=False)


def at_clock(chip: Chip, clock: Array) -> Chip:
    """The chip at another clock: cores and their caches slow down with it, DRAM does not."""
    share = clock / chip.compute.clock
    rates = {name: rate * share for name, rate in chip.compute.matrix_rate.items()}
    compute = replace(
        chip.compute, clock=clock, matrix_rate=rates, vector_rate=chip.compute.vector_rate * share, special_rate=chip.compute.special_rate * share
    )
    return replace(chip, compute=compute, cache=replace(chip.cache, bandwidth=chip.cache.bandwidth * share))
