"""Steps of an optimiser alone."""

from __future__ import annotations

from typing import Any

from strata.arrays import Array
from strata.pricing.kernels.device import device
from strata.pricing.optimiser import adam_kernel
from strata.validation.readers.bare_kernels import benchmark_time
from strata.validation.readers.benchmark_conditions import OptimiserConditions, read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.tables import Table

FULL = 4.0  # bytes of gradients, weights and moments in fp32


def fused_adamw(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """One fused AdamW step over fp32 parameters, gradients and moments, called from the host."""
    s = table.numbers("parameters")
    known = read_conditions(OptimiserConditions, table, "h200/optimiser.toml")
    chip = catalogue.chip(table.chip)

    def price(key: tuple[()], rows: Array) -> Any:
        count = s["parameters"][rows]
        update = adam_kernel(count, FULL, 3.0 * FULL, 0.0, device(chip), known.rate)
        return known.host + benchmark_time(update, chip)

    forecasts = forecast(table, [], price, tuple(s))
    names = group_names("adamw", "fused", count=len(table))
    return compare_metric(table, table.number("median_s"), forecasts, names)
