"""Element-wise and row-wise kernels of eager PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.arrays import Array
from strata.pricing.kernels.device import device
from strata.pricing.kernels.eager import eager_kernel
from strata.validation.readers.bare_kernels import benchmark_time
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast
from strata.validation.readers.tables import Table

TURNS = 32.0  # sets of buffers that take turns at most: small ones stay in the cache
OWN_RESULTS = ("copy", "add")  # their results have buffers of their own


def bare_stream(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Streaming kernels on buffers that take turns."""
    s = table.numbers("rows", "cols", "bytes_read", "bytes_written")
    chip = catalogue.chip(table.chip)
    dev = device(chip)

    def price(key: tuple[str], rows: Array) -> Any:
        count, columns, read, written = (column[rows] for column in s.values())
        # Results of other kernels fall into the memory the last one left.
        turned = TURNS * (read + written if key[0] in OWN_RESULTS else read)
        footprint = np.maximum(turned, read + written)
        price = eager_kernel(
            key[0],
            count,
            columns,
            bytes_read=read,
            bytes_written=written,
            device=dev,
            footprint=footprint,
        )
        return benchmark_time(price, chip)

    forecasts = forecast(table, [table.text("op")], price, tuple(s))
    return compare_metric(table, table.number("median_s"), forecasts, table.text("op"))
