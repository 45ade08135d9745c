"""Cores that fit a stacked device's die, against DeepStack's published points."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.arrays import Array
from strata.hardware.chip import chip
from strata.hardware.silicon.area import area
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.tables import Table

REFERENCE = "stack-ref"  # the device the points were published for


def deepstack_cores(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Core counts by layers, connected layers, local memory and its port; `m = n` where every layer is
    connected.
    """
    columns = ("layers", "connected_layers", "sram_kib", "port_bytes_per_clock")
    s = table.numbers(*columns)

    def price(_: tuple[Any, ...], rows: Array) -> Array:
        clock = float(catalogue.chip(REFERENCE).compute.clock)
        owner = chip(
            REFERENCE,
            **{
                "stack.layers": s["layers"][rows],
                "stack.connected_layers": s["connected_layers"][rows],
                "compute.sram_capacity": s["sram_kib"][rows] * 1024.0,
                "compute.sram_bandwidth": s["port_bytes_per_clock"][rows] * clock,
            },
        )
        return np.asarray(area(owner).cores)

    group = group_names("cores", count=len(table))
    return compare_metric(table, table.number("cores"), forecast(table, [group], price, columns), group)
