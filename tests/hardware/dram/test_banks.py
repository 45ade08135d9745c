"""Banks: what a channel gives where row cycles, banks in step and turns of the bus bind, worked by hand."""

import numpy as np
import pytest

from strata.hardware.dram.channel import (
    Stream,
    dram_channel,
    sustained_channel,
)

NANO = 1e-9


def bandwidth(made, hot=0.0, port=None, **stream):
    return float(sustained_channel(made, Stream(**stream), hot, port).bandwidth)


def quiet(**changes):
    """A channel of round numbers: 64 B in 2 ns, 16 banks, rows cycle in 26 ns, refreshed so rarely that it
    does not count.
    """
    return dram_channel("stacked-dram", **{"burst": 64.0, "timing.refi": 1.0, **changes})


def test_one_bank_gives_a_run_in_each_row_cycle():
    assert bandwidth(quiet(), run=64.0, banks=1.0) == pytest.approx(64 / 26e-9, rel=1e-4)
    # 16 bursts: tRCD 8, 15 more bursts 30, tRTP 5, tRP 8.
    assert bandwidth(quiet(), run=1024.0, banks=1.0) == pytest.approx(1024 / 51e-9, rel=1e-4)
    # Written: the last data arrives CWL 4 + burst 2 after its command, tWR 16 later the row closes.
    assert bandwidth(quiet(), run=64.0, banks=1.0, read_share=0.0) == pytest.approx(64 / 38e-9, rel=1e-4)


def test_two_banks_in_step_close_their_rows_together():
    # 2 x 8 bursts of 2 ns alternate; after the last of the first bank tRTP + tRP + tRCD = 21 ns, of which 2
    # are the other bank's last burst.
    assert bandwidth(quiet(), run=512.0, banks=2.0) == pytest.approx(
        2 * 512 / (8 + 14 * 2 + 5 + 8) / NANO, rel=1e-4
    )


def test_turns_of_the_bus_cost_what_their_times_add_up_to():
    # Runs longer than a bank's queue, a controller that holds one write back: a turn for every 1/(p (1 - p))
    # = 4 visits.
    made = quiet(**{"controller.queue": 1.0, "controller.spill": 0.0})
    turn = (14 + 2 - 4 + 1) + (4 + 2 + 6) - 2 * 2
    share = 0.25 / np.sqrt(1 + (0.5 / 32) ** 2)
    assert bandwidth(made, run=2048.0, read_share=0.5) == pytest.approx(
        2048 / (64 + share * turn) / NANO, rel=1e-4
    )
