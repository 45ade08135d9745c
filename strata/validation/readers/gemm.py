"""Matrix products: bare, inside serving frameworks, under a profiler at a locked clock, and
of DeepBench.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.precision import bytes_of
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.recurrent import RecurrentLayer, recurrent_backward, recurrent_forward
from strata.pricing.kernels.unaligned import row_is_whole
from strata.pricing.kernels.vector import cache_miss_share
from strata.validation.readers.bare_kernels import (
    benchmark_time,
    cold_device,
    repeated_gemm,
    served_gemm_price,
)
from strata.validation.readers.benchmark_conditions import (
    ProfiledConditions,
    RecurrentConditions,
    RepeatedConditions,
    RooflineAssumptions,
    read_conditions,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    Forecast,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.labels import kernel_format
from strata.validation.readers.tables import Table
from strata.workload.lstm import CELLS

PROFILED_CHIP = "a100_sxm"
PROFILED = "a100/gemm_ncu.toml"  # its conditions
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
    """Products at a locked clock: time, DRAM bytes, and bytes through the L2; beside them time and DRAM bytes
    by the roofline of all memory levels, to which nothing was fitted.
    """
    s = table.numbers("m", "n", "k", "clock_Ghz")
    base = catalogue.chip(PROFILED_CHIP)
    known = read_conditions(ProfiledConditions, table, PROFILED)
    plain = datasheet_chip(base, known.roofline)
    footprint = bytes_of("bf16") * (s["m"] * s["k"] + s["n"] * s["k"] + s["m"] * s["n"])

    def priced(chip_at: Callable[[Array], Chip], fitted: bool) -> Forecast:
        def price(key: tuple[()], rows: Array) -> Any:
            dev = cold_device(chip_at(s["clock_Ghz"][rows] * 1e9))
            m, n, k = (s[c][rows] for c in "mnk")
            # weights lie in rows of n
            split = 1.0 - row_is_whole(n, bytes_of("bf16")) if fitted else 0.0
            product = matmul(m, n, k, dev, "bf16", "bf16", unaligned=split)
            # results stay in a cache that has room for them and are written when the counters have stopped
            kept = m * n * bytes_of("bf16") * (1.0 - cache_miss_share(footprint[rows], base.cache.capacity))
            moved = product.memory_bytes - (kept if fitted else 0.0)
            return product.time, moved, product.cache_bytes + FILLS * moved

        return forecast(table, [], price, tuple(s), metrics=3)

    beside = np.where(footprint > base.cache.capacity, " above the L2", " within the L2")
    seconds, dram = table.number("latency_ms") * 1e-3, table.number("dram_read") + table.number("dram_write")
    fitted = priced(lambda clock: unthrottled_chip(base, clock, known.efficiency), True)
    unfitted = priced(lambda clock: chip_at_clock(plain, clock), False)
    columns = np.where(s["n"] > 1.0, "roofline-time/matrices", "roofline-time/vectors")

    def counted(values: Array, forecasts: Forecast, names: Array, metric: int) -> ComparedPoints:
        return compare_metric(table, values, forecasts, names, metric=metric, headline=False)

    return join_metrics(
        [
            compare_metric(table, seconds, fitted, group_names("time", count=len(table))),
            counted(dram, fitted, np.char.add("dram", beside), 1),
            counted(table.number("l2_total"), fitted, np.char.add("l2", beside), 2),
            counted(seconds, unfitted, columns, 0),
            counted(dram, unfitted, np.char.add("roofline-dram/", np.char.strip(beside)), 1),
        ]
    )


def datasheet_chip(chip: Chip, given: RooflineAssumptions) -> Chip:
    """A chip by the roofline of all its memory levels, with its peaks and what is assumed of them in place of
    what was fitted.
    """
    compute, cache = chip.compute, chip.cache
    return replace(
        chip,
        kernel_model="hierarchical",
        compute=replace(
            compute, matrix_efficiency=dict.fromkeys(compute.matrix_efficiency, given.matrix_efficiency)
        ),
        cache=replace(
            cache, efficiency=given.cache_efficiency, core_bandwidth=cache.bandwidth / compute.cores
        ),
        memory=replace(chip.memory, efficiency=given.memory_efficiency, exposed=given.exposed),
        overhead=replace(chip.overhead, kernel=given.launch),
    )


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
        sram_bandwidth=chip.compute.sram_bandwidth * share,
    )
    cache = replace(
        chip.cache,
        bandwidth=chip.cache.bandwidth * share,
        core_bandwidth=chip.cache.core_bandwidth * share,
    )
    levels = [replace(level, bandwidth=level.bandwidth * share) for level in chip.levels or ()]
    return replace(chip, compute=compute, cache=cache, levels=tuple(levels) or None)


def unthrottled_chip(chip: Chip, clock: Array, efficiency: Number) -> Chip:
    """A fitted chip locked at a clock its power limit does not lower, where products sustain this share of
    the peak. Fixed times of kernels are cycles: they were fitted at the highest clock.
    """
    share, times = clock / chip.compute.clock, chip.overhead
    overhead = replace(
        times,
        kernel=times.kernel / share,
        tile=times.tile / share,
        step={name: time / share for name, time in times.step.items()},
        split={name: time / share for name, time in times.split.items()},
    )
    compute = replace(
        chip.compute, matrix_efficiency=dict.fromkeys(chip.compute.matrix_efficiency, efficiency)
    )
    return chip_at_clock(replace(chip, compute=compute, overhead=overhead), clock)


# what DeepBench calls its formats: 32 bits outside the matrix units, 16 bits in them, added up in 32
FORMATS = {"fp32": "fp32", "fp16_fp32acc": "fp16"}
ALIGNED = 16.0  # bytes to whose multiples 16-bit sizes were padded, so that matrix units take them


def deepbench_gemm(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Products over the same buffers again and again: what fits the cache lies in it."""
    s = table.numbers("m", "n", "k")
    known = read_conditions(RepeatedConditions, table, "v100/deepbench_gemm.toml")
    formats = table.text("precision")

    def priced(chip_of: Callable[[], Chip]) -> Forecast:
        def price(key: tuple[str], rows: Array) -> Any:
            chip, used = chip_of(), deepbench_format(key[0])
            grain = ALIGNED / bytes_of(used) if used == "fp16" else 1.0
            m, n, k = (np.ceil(s[c][rows] / grain) * grain for c in "mnk")
            return known.call + benchmark_time(repeated_gemm(m, n, k, device(chip), used), chip)

        return forecast(table, [formats], price, tuple(s))

    stated, made = priced(lambda: catalogue.chip(table.chip)), priced(known.regenerated.chip)
    time, beside = table.number("time_s"), group_names("regenerated", formats, count=len(table))
    return join_metrics(
        [
            compare_metric(table, time, stated, formats),
            compare_metric(table, time, made, beside, headline=False),
        ]
    )


def deepbench_rnn(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Recurrent layers without their input's product, forward, and backward to inputs and weights."""
    s = table.numbers("hidden", "batch", "time_steps")
    cells, formats = table.text("type"), table.text("precision")
    known = read_conditions(RecurrentConditions, table, "v100/deepbench_rnn.toml")

    def priced(chip_of: Callable[[], Chip]) -> Forecast:
        def price(key: tuple[str, str], rows: Array) -> Any:
            if key[0] not in CELLS:
                raise BadValue(f"a type must be one of {', '.join(CELLS)}, but got '{key[0]}'")
            sizes = {"hidden": s["hidden"][rows], "batch": s["batch"][rows], "steps": s["time_steps"][rows]}
            layer = RecurrentLayer(**sizes, cell=key[0], precision=deepbench_format(key[1]))
            chip = chip_of()
            forward = recurrent_forward(layer, device(chip), known.forward)
            backward = recurrent_backward(layer, device(chip), known.backward)
            return benchmark_time(forward, chip), benchmark_time(backward, chip)

        return forecast(table, [cells, formats], price, tuple(s), metrics=2)

    stated, made = priced(lambda: catalogue.chip(table.chip)), priced(known.regenerated.chip)
    parts: list[ComparedPoints] = []
    for metric, way in enumerate(("forward", "backward")):
        names, time = group_names(way, cells, formats, count=len(table)), table.number(f"{way}_s")
        beside = group_names("regenerated", names, count=len(table))
        parts.append(compare_metric(table, time, stated, names, metric=metric))
        parts.append(compare_metric(table, time, made, beside, metric=metric, headline=False))
    return join_metrics(parts)


def deepbench_format(name: str) -> str:
    """Strata's name of a format of DeepBench."""
    if name not in FORMATS:
        raise BadValue(f"a precision must be one of {', '.join(FORMATS)}, but got '{name}'")
    return FORMATS[name]
