"""Visits to rows: turns of the bus, row cycles, banks that wait for each other, blurred bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from strata.base.arrays import Number, namespace

if TYPE_CHECKING:
    from strata.hardware.dram.channel import Dram

APART = 5.0  # banks that come apart by themselves
FADED = -80.0  # logarithm of a share that no sum of shares feels
LEAST_JITTER = 1e-3  # of streams without turns, whose bounds do not blur: the longest alone counts
ACTIVATES = 4.0  # activations a window of tFAW may hold


def turns(dram: Dram, bursts: Number, banks: Number, read_share: Number) -> Number:
    r"""Turns from reads to writes and back, for each visit.

    .. math::
        f = \begin{cases} \min\left(p (1 - p), \frac{2 \sqrt{p (1 - p)}}{\kappa b}\right) & r \le q_b \\
        \frac{p (1 - p)}{\sqrt{1 + (p Q / r)^2}} & r > q_b \end{cases}

    Visits that read with probability p change direction p (1 - p) times each. Where visits of r bursts fit a
    bank's queue q_b, every bank goes on in one direction as long as any has work there: about one turn in κ
    rounds over b banks. Longer ones are only gathered as far as the Q writes that the controller holds back
    reach.

    The first case fitted, the second derived from how writes drain; both against validation/dram/channel.csv.

    >>> from strata.hardware.dram.channel import dram_channel
    >>> few, many = (turns(dram_channel("hbm3"), r, 16.0, 0.67) for r in (4.0, 32.0))
    >>> 0 < float(few) < float(many) < 0.67 * 0.33
    True
    """
    xp = namespace(bursts, banks, read_share, dram.controller.queue)
    controller = dram.controller
    change = read_share * (1.0 - read_share)
    short = xp.minimum(change, 2.0 * xp.sqrt(change) / (controller.rounds * banks))
    long = change / xp.sqrt(1.0 + (read_share * controller.queue / bursts) ** 2)
    return xp.where(bursts > controller.bank_queue, long, short)


def bank_time(dram: Dram, bursts: Number, banks: Number, read_share: Number) -> Number:
    r"""Time the banks need for a visit [s].

    .. math::
        T = \frac{p P_r + (1 - p) P_w}{b}, \quad
        P = \max\left(t_{RC}, t_{RCD} + (r - 1) t_{CCD,L} + t_b + t_{RP}\right)

    A bank opens a row, moves r bursts and closes it again: t_b is tRTP after reads, CWL + burst + tWR after
    writes. b banks work side by side.

    >>> from strata.hardware.dram.channel import dram_channel
    >>> d = dram_channel("hbm3")
    >>> round(float(bank_time(d, 1.0, 1.0, 1.0)) * 1e9, 1)  # tRC of one bank
    47.0
    """
    t = dram.timing
    xp = namespace(bursts, banks, read_share, t.ras, t.rcd)
    cycle = t.ras + t.rp if t.rc is None else t.rc
    moving = t.rcd + (bursts - 1.0) * t.ccd_l + t.rp
    reads = xp.maximum(cycle, moving + t.rtp)
    writes = xp.maximum(cycle, moving + t.cwl + t.ccd_s + t.wr)
    return (read_share * reads + (1.0 - read_share) * writes) / banks


def in_step(
    dram: Dram, bursts: Number, banks: Number, read_share: Number, alone: Number, step: Number
) -> Number:
    r"""Time the banks need for a visit when few of them take turns burst by burst, so that all close their
    rows at once [s].

    .. math::
        T = T_b + w \left[ \frac{g - (b - 1)(d - t)}{b} + (r - 1) t - T_b \right]_+, \quad
        g = t_{RCD} + t_b + t_{RP}

    time T_b of banks that do not wait for each other (`bank_time`); bursts of b banks alternate, t apart, and
    rows open d apart. Two banks keep in step unless visits are much longer than a row cycle (w falls to 0
    around r t = δ g) or the controller sees only one of them; up to four do if rows open as fast as bursts
    follow and two visits fit a bank's queue (one where tFAW holds no row back). More banks come apart by
    themselves.

    Seen in validation/dram/channel.csv: two banks and 8 bursts a visit reach two thirds of the peak, where
    row cycles alone would allow 0.9.

    >>> from strata.hardware.dram.channel import dram_channel
    >>> d = dram_channel("stacked-dram")
    >>> two, eight = (in_step(d, 8.0, b, 1.0, bank_time(d, 8.0, b, 1.0), d.timing.ccd_s) for b in (2.0, 8.0))
    >>> bool(two > bank_time(d, 8.0, 2.0, 1.0)), bool(eight == bank_time(d, 8.0, 8.0, 1.0))
    (True, True)
    """
    t, controller = dram.timing, dram.controller
    if isinstance(banks, float | np.ndarray) and np.min(banks) >= APART:
        return alone
    xp = namespace(bursts, banks, read_share, t.rcd, t.rrd_s, step, controller.queue)
    apart = xp.maximum(t.rrd_s, step)
    gap = t.rcd + t.rp + read_share * t.rtp + (1.0 - read_share) * (t.cwl + t.ccd_s + t.wr)

    def within(value: Number) -> Number:
        return xp.minimum(xp.maximum(value, 0.0), 1.0)

    several = within(banks - 1.0)
    # Long visits in both directions lose their step at the turns.
    one_way = 1.0 - 4.0 * read_share * (1.0 - read_share)
    steady = xp.where(controller.queue > bursts - controller.bank_queue, one_way, 0.0)
    seen = xp.where(bursts > controller.bank_queue, steady, 1.0)
    drift = controller.drift
    pair = within(3.0 - banks) * seen * within((drift - bursts * step / gap) / (0.25 * drift))
    paced = (bursts <= controller.bank_queue) & (t.faw <= ACTIVATES * step)
    four = within(APART - banks) * xp.where(
        (t.rrd_s <= step) & ((2.0 * bursts <= controller.bank_queue) | paced), 1.0, 0.0
    )
    together = (gap - (banks - 1.0) * (apart - step)) / banks + (bursts - 1.0) * step
    return alone + several * xp.maximum(pair, four) * xp.maximum(together - alone, 0.0)


def blurred(times: list[Number], jitter: Number) -> Number:
    r"""The longest of some times, and more where others come near it [s].

    .. math:: T = \left(\sum_i T_i^{1/j}\right)^j

    jitter j: 0 is the maximum.

    >>> round(float(blurred([3.0, 3.0], 0.2)), 2), round(float(blurred([3.0, 2.0], 1e-3)), 2)
    (3.45, 3.0)
    """
    xp = namespace(*times, jitter)
    longest, others = times[0], []
    for time in times[1:]:
        longest, other = xp.maximum(longest, time), xp.minimum(longest, time)
        others.append(other)
    spread = xp.maximum(jitter, LEAST_JITTER)
    power, total = 1.0 / spread, 1.0
    for time in others:
        # Of what falls below the last bit of the sum nothing is left; numbers smaller still would be slow.
        total = total + xp.exp(xp.maximum(power * xp.log(time / longest), FADED))
    return longest * xp.exp(spread * xp.log(total))
