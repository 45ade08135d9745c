"""DRAM channels against a cycle-accurate simulator: patterns by run, banks, share of reads and queue, for
whole sets of timings; and the areas of published cores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.hardware.chip import chip
from strata.hardware.dram.channel import (
    Controller,
    Dram,
    Stream,
    Timing,
    check_dram,
    dram_channel,
    sustained_channel,
)
from strata.hardware.silicon.area import area
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.tables import Table

# The simulator's own times, in clocks, by the quantity they are here. Its file leaves out tRTP and the bus's
# turn, which are its defaults: tRTP shows where one bank reads long runs, 14 + 30 + 14 clocks and 5 more for
# 16 bursts.
CLOCKS = {
    "cl": "CL",
    "cwl": "CWL",
    "wr": "tWR",
    "wtr_s": "tWTR_S",
    "wtr_l": "tWTR_L",
    "rcd": "tRCDRD",
    "rp": "tRP",
    "ras": "tRAS",
    "rrd_s": "tRRD_S",
    "rrd_l": "tRRD_L",
    "faw": "tFAW",
    "ccd_s": "tCCD_S",
    "ccd_l": "tCCD_L",
    "rfc": "tRFC",
    "refi": "tREFI",
}
RTP = 5.0
PATTERN = (
    "bank_groups",
    "banks_per_group",
    "burst_bytes",
    "row_bytes",
    "queue_entries",
    "bursts_per_row_visit",
    "banks_used",
    "read_share",
)
# whose controller is the simulator's: per-bank queues, open rows first, writes drained together
REFERENCE = "stacked-dram"


def simulated_dram(c: dict[str, Array], controller: Controller) -> Dram:
    """The channel of each row, all rows at once."""
    clock = c["tCK_ns"] * 1e-9
    times = {name: c[column] * clock for name, column in CLOCKS.items()}
    dram = Dram(
        name="simulated",
        title="a simulated channel",
        burst=c["burst_bytes"],
        row=c["row_bytes"],
        bank_groups=c["bank_groups"],
        banks_per_group=c["banks_per_group"],
        timing=Timing(clock=clock, rtp=RTP * clock, **times),
        controller=replace(controller, queue=c["queue_entries"]),
    )
    check_dram(dram, "dram/channel.csv")
    return dram


def dramsim_channels(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Bandwidth of one channel [B/s]."""
    return channel_under(table, dram_channel(REFERENCE).controller)


def channel_under(table: Table, controller: Controller) -> ComparedPoints:
    """The same with the constants of another controller, as a fit tries them."""
    needs = ("tCK_ns", *CLOCKS.values(), *PATTERN)
    c = table.numbers(*needs)
    set_name = table.text("timing")
    mixed = np.where(c["read_share"] < 1.0, "reads and writes", "reads").astype(object)

    def price(key: tuple[str, ...], rows: Array) -> Array:
        v = {name: column[rows] for name, column in c.items()}
        stream = Stream(
            run=v["bursts_per_row_visit"] * v["burst_bytes"],
            read_share=v["read_share"],
            banks=v["banks_used"],
        )
        return np.asarray(sustained_channel(simulated_dram(v, controller), stream).bandwidth)

    forecasts = forecast(table, [set_name], price, needs)
    names = group_names(set_name, mixed, count=len(table))
    return compare_metric(table, table.number("bandwidth_GBps") * 1e9, forecasts, names, rate=True)


AREA_REFERENCE = "stack-ref"  # the device the points were published for


def deepstack_cores(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Core counts by layers, connected layers, local memory and its port; `m = n` where every layer is
    connected.
    """
    columns = ("layers", "connected_layers", "sram_kib", "port_bytes_per_clock")
    s = table.numbers(*columns)

    def price(_: tuple[Any, ...], rows: Array) -> Array:
        clock = float(catalogue.chip(AREA_REFERENCE).compute.clock)
        owner = chip(
            AREA_REFERENCE,
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
