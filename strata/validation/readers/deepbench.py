"""DeepBench: matrix products and recurrent layers, timed over many calls on the same buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.precision import bytes_of
from strata.pricing.kernels.device import device
from strata.pricing.kernels.recurrent import RecurrentLayer, recurrent_backward, recurrent_forward
from strata.validation.readers.bare_kernels import benchmark_time, repeated_gemm
from strata.validation.readers.benchmark_conditions import (
    RecurrentConditions,
    RepeatedConditions,
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
from strata.validation.readers.tables import Table
from strata.workload.lstm import CELLS

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
