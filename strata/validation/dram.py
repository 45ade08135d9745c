"""DRAM channels against a cycle-accurate simulator: patterns by run, banks, share of reads and queue, for
whole sets of timings.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from strata.hardware.dram.channel import (
    Controller,
    Dram,
    Stream,
    Timing,
    check_dram,
    dram_channel,
    sustained_channel,
)
from strata.validation.datasets import Array, Points, Table, forecast, labels, points

# The simulator's own times, in clocks, by the quantity they are here. Its file leaves out tRTP and the bus's
# turn, which are its defaults:
# tRTP shows where one bank reads long runs, 14 + 30 + 14 clocks and 5 more for 16 bursts.
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


def channel_of(c: dict[str, Array], how: Controller) -> Dram:
    """The channel of each row, all rows at once."""
    clock = c["tCK_ns"] * 1e-9
    timing = Timing(
        clock=clock, rtp=RTP * clock, **{name: c[column] * clock for name, column in CLOCKS.items()}
    )
    made = Dram(
        name="simulated",
        title="a simulated channel",
        burst=c["burst_bytes"],
        row=c["row_bytes"],
        bank_groups=c["bank_groups"],
        banks_per_group=c["banks_per_group"],
        timing=timing,
        controller=replace(how, queue=c["queue_entries"]),
    )
    check_dram(made, "dram/channel.csv")
    return made


def channel(table: Table) -> Points:
    """Bandwidth of one channel [B/s]."""
    return with_controller(table, dram_channel(REFERENCE).controller)


def with_controller(table: Table, how: Controller) -> Points:
    """The same with the constants of another controller, as a fit tries them."""
    needs = ("tCK_ns", *CLOCKS.values(), *PATTERN)
    c = table.numbers(*needs)
    set_name = table.text("timing")
    mixed = np.where(c["read_share"] < 1.0, "reads and writes", "reads").astype(object)

    def price(key: tuple[str, ...], rows: Array) -> Array:
        of = {name: column[rows] for name, column in c.items()}
        stream = Stream(
            run=of["bursts_per_row_visit"] * of["burst_bytes"],
            read_share=of["read_share"],
            banks=of["banks_used"],
        )
        bandwidth: Array = np.asarray(sustained_channel(channel_of(of, how), stream).bandwidth)
        return bandwidth

    made = forecast(table, [set_name], price, needs)
    return points(
        table,
        table.number("bandwidth_GBps") * 1e9,
        made,
        labels(set_name, mixed, count=len(table)),
        rate=True,
    )
