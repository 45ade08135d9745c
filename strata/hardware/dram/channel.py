"""One DRAM channel: what its banks, rows and timings leave of the interface for a stream of accesses.

A stream visits banks in turn: each visit opens a row, moves a run of bytes and leaves. The time of a visit is
the longest of what the interface, the banks, the activation window and the turns between reads and writes
need; refresh is taken off the whole. The same equations hold for HBM, DDR, LPDDR and DRAM stacked on logic:
only the numbers differ (data/memories).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, ceil_div, namespace
from strata.base.errors import BadValue, require
from strata.base.units import show
from strata.hardware.dram.banks import ACTIVATES, bank_time, blurred, in_step, turns
from strata.params import (
    Named,
    Sources,
    find,
    override,
    part,
    positive,
    quantity,
    read_record,
    record,
    remembered,
    text,
)

LEGAL = {"run": "positive", "read_share": "from 0 to 1", "banks": "at least 1", "outstanding": "positive"}


@record
class Timing:
    """Times between commands, by their JEDEC names without the t: `rcd` is tRCD. `_s` to another bank group,
    `_l` to the same.
    """

    clock: Number = positive("s", "one period of the command clock, tCK")
    ccd_s: Number = positive("s", "burst to burst in different bank groups: the time of a burst on the bus")
    ccd_l: Number = positive("s", "burst to burst in one bank group")
    cl: Number = quantity("s", "read command to data")
    cwl: Number = quantity("s", "write command to data")
    rcd: Number = positive("s", "activation to the first read or write")
    rp: Number = positive("s", "precharge to the next activation of a bank")
    ras: Number = positive("s", "activation to precharge, at least")
    rc: Number | None = quantity("s", "activation to activation of one bank; left out: ras + rp")
    rtp: Number = quantity("s", "last read to precharge")
    wr: Number = quantity("s", "last written data to precharge")
    wtr_s: Number = quantity("s", "written data to a read in another bank group")
    wtr_l: Number = quantity("s", "written data to a read in the same bank group")
    rtw: Number | None = quantity(
        "s", "read to write; left out: cl + ccd_s - cwl and one clock for the bus to turn"
    )
    rrd_s: Number = positive("s", "activation to activation in different bank groups")
    rrd_l: Number = positive("s", "activation to activation in one bank group")
    faw: Number = positive("s", "window that holds at most four activations")
    rfc: Number = quantity("s", "one refresh of all banks")
    refi: Number = positive("s", "time between refreshes, up to 85 C")


@record
class Controller:
    """How a memory controller orders requests: open rows first, writes held back and drained together."""

    queue: Number = quantity(
        "1", "transactions it sees ahead of the banks, and writes it holds back", minimum=1
    )
    bank_queue: Number = quantity("1", "transactions that wait at one bank", minimum=1)
    rounds: Number = positive(
        "1", "rounds over the banks between two turns from reads to writes, where a visit fits a bank's queue"
    )
    jitter: Number = quantity(
        "1", "how far bounds that are near each other add up when reads and writes come at random"
    )
    spill: Number = quantity(
        "1", "the same where a visit does not fit a bank's queue, so that reads and writes meet in its row"
    )
    drift: Number = positive(
        "1",
        "length of a visit, in row cycles of its bank, at which two banks that wait for each other come "
        "apart",
    )


@record
class Dram(Named):
    """One channel: an independent bus with its banks."""

    note: str = text("what a reader of these numbers should know", default="")
    burst: Number = positive("B", "one transaction, the least that is moved")
    row: Number = positive("B", "open row of a bank, as this channel sees it")
    bank_groups: Number = quantity("1", "bank groups", minimum=1)
    banks_per_group: Number = quantity("1", "banks of a group", minimum=1)
    timing: Timing = part(Timing, "times between commands")
    controller: Controller = part(Controller, "order of requests")


def _span(value: Any) -> str:
    """A number, or the least and the most of many."""
    low, high = float(np.min(value)), float(np.max(value))
    return f"{low:g}" if low == high or np.isnan(low) else f"{low:g} to {high:g}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Stream:
    """How a kernel reads and writes one channel.

    `run` bytes in a row at each visit to a bank; `read_share` of the visits read; `banks` it spreads over
    (all when left out); `outstanding` bytes asked for and not yet there, over the `latency` of a request
    (both left out: no limit). `packed`: runs end where bursts do, or the next run takes the rest of a burst,
    so that nothing is moved in vain.
    """

    run: Number
    read_share: Number = 1.0
    banks: Number | None = None
    outstanding: Number | None = None
    latency: Number | None = None
    packed: bool = False

    def __post_init__(self) -> None:
        for name, low, high in (
            ("run", 0.0, np.inf),
            ("read_share", -1e-12, 1.0),
            ("banks", 0.999, np.inf),
            ("outstanding", 0.0, np.inf),
        ):
            value = getattr(self, name)
            # What a compiler traces has no value yet.
            if isinstance(value, (float, int, np.ndarray)) and not np.all(
                (np.asarray(value) > low) & (np.asarray(value) <= high)
            ):
                raise BadValue(f"a stream's {name} must be {LEGAL[name]}, but got {_span(value)}")


@dataclass(frozen=True, eq=False)
class Sustained:
    """Bandwidth a stream gets [B/s], each bound on it by name, and the share of time that refresh leaves."""

    bandwidth: Number
    bounds: dict[str, Number]
    refresh: Number

    @property
    def binding(self) -> str:
        """Name of the least bound of a single stream."""
        return min(self.bounds, key=lambda name: float(self.bounds[name]))


def dram_channel(name: str, /, **changes: Any) -> Dram:
    """A channel of a memory by name or TOML path, with some quantities replaced.

    >>> dram_channel("hbm3").burst, dram_channel("hbm3", **{"timing.faw": "20 ns"}).timing.faw
    (32.0, 2e-08)
    """
    stated: Dram = _stated(name)
    if not changes:
        return stated
    changed, given = override(stated, changes, "memory")
    check_dram(changed, find("memory", name).name)
    return replace(changed, sources=stated.sources.updated(given))


@remembered
def _stated(name: str) -> Dram:
    dram, params, file = read_record(Dram, "memory", name)
    check_dram(dram, file)
    return replace(dram, sources=Sources(params))


def check_dram(dram: Dram, file: str) -> None:
    """Refuse timings that contradict each other.

    >>> dram_channel("hbm3", **{"timing.rc": "20 ns"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: hbm3.toml: timing.rc must be at least ras + rp, but got rc = 20 ns, ...
    """
    t = dram.timing

    def ordered(low: Number, high: Number, relation: str, **times: Number) -> None:
        wrong = np.ravel(np.asarray(low) > np.asarray(high) * (1 + 1e-9))
        if wrong.any():  # of a batch, the first that is wrong
            first = int(np.argmax(wrong))
            raise BadValue(
                f"{file}: {relation}, but got "
                + ", ".join(
                    f"{k} = {show(np.broadcast_to(v, wrong.shape)[first], 's')}" for k, v in times.items()
                )
            )

    if t.rc is not None:
        ordered(t.ras + t.rp, t.rc, "timing.rc must be at least ras + rp", rc=t.rc, ras=t.ras, rp=t.rp)
    ordered(t.rcd, t.ras, "timing.ras must be at least rcd", ras=t.ras, rcd=t.rcd)
    ordered(t.ccd_s, t.ccd_l, "timing.ccd_l must be at least ccd_s", ccd_l=t.ccd_l, ccd_s=t.ccd_s)
    ordered(t.rrd_s, t.rrd_l, "timing.rrd_l must be at least rrd_s", rrd_l=t.rrd_l, rrd_s=t.rrd_s)
    taken = t.rfc + t.rtp + t.rp + t.rcd
    ordered(
        2.0 * taken,
        t.refi,
        "timing.refi must leave time between refreshes even when heat halves it",
        refi=t.refi,
        rfc=t.rfc,
    )
    require(
        bool(np.all(np.asarray(dram.burst) <= np.asarray(dram.row))),
        f"{file}: a row must hold at least one burst",
        row=dram.row,
        burst=dram.burst,
    )


def interface_peak(dram: Dram) -> Number:
    r"""Peak bandwidth of a channel's bus [B/s].

    .. math:: B = x / t_{CCD}

    bytes of a transaction x; time of it on the bus.

    >>> interface_peak(dram_channel("hbm3")) / 1e9
    25.6
    """
    return dram.burst / dram.timing.ccd_s


def refresh_left(t: Timing, hot: Number = 0.0) -> Number:
    r"""Share of time that refresh leaves.

    .. math:: \rho = 1 - (1 + h) \frac{t_{RFC} + t_{RTP} + t_{RP} + t_{RCD} - t_{CCD}}{t_{REFI}}

    All banks are closed, refreshed and opened again; h = 1 above 85 C, where cells are refreshed twice as
    often.

    JEDEC JESD235, JESD238: refresh command, temperature-compensated refresh.

    >>> t = dram_channel("hbm3").timing
    >>> bool(refresh_left(t, 1.0) < refresh_left(t) < 1)
    True
    """
    return 1.0 - (1.0 + hot) * (t.rfc + t.rtp + t.rp + t.rcd - t.ccd_s) / t.refi


def sustained_channel(dram: Dram, stream: Stream, hot: Number = 0.0, port: Number | None = None) -> Sustained:
    r"""Bandwidth a stream gets from one channel [B/s], with every bound on it.

    .. math::
        B = \min\left(\rho \frac{u \, r x}{T + \epsilon}, \frac{o}{\lambda}, S\right), \quad
        T = \left(T_i^{1/j} + T_b^{1/j} + T_a^{1/j}\right)^j, \quad T_i = r t + f \tau, \quad
        T_a = \max\left(t_{RRD}, \frac{t_{FAW}}{4}\right)

        \tau = t_{RTW} + CWL + t + t_{WTR} - 2 t, \quad
        \epsilon = [t_{RP} + t_{RCD} - (Q + q_b) t]_+ \, [r > q_b], \quad
        j = 2 \sqrt{p (1 - p)} \begin{cases} (1 + 1/r) j_0 & r \le q_b \\ j_1 & r > q_b \end{cases}

    A visit moves r whole transactions of x bytes, of which the share u was asked for, t apart; f turns a
    visit (`turns`) cost τ each; banks need T_b (`in_step`), activations T_a. Where visits come at random,
    bounds near each other add up (`blurred`). A controller that sees less ahead than a row takes to open
    waits ε. Refresh leaves ρ. o bytes outstanding over latency λ (Little, Oper. Res. 9 (1961)) and an SRAM
    port S bound it too.

    Constants of the controller are fitted to DRAMsim3 (Li et al., IEEE CAL 19 (2020)),
    validation/dram/channel.csv.

    >>> d = dram_channel("hbm3")
    >>> long, short = (sustained_channel(d, Stream(run=n)) for n in (1024.0, 32.0))
    >>> [(round(float(s.bandwidth) / 1e9, 1), s.binding) for s in (long, short)]
    [(23.1, 'interface'), (7.7, 'activation')]
    """
    bus = bus_of(dram, stream.banks, hot)
    of = visit(bus, stream.run, stream.read_share, stream.packed)
    t, useful = dram.timing, of.useful
    bounds: dict[str, Number] = {
        "interface": useful / of.moving,
        "turnaround": useful / of.turning,
        "banks": useful / of.rows,
        "activation": useful / bus.opening,
        "look-ahead": useful / (of.moving + of.blind),
    }
    bandwidth = of.bandwidth
    if stream.outstanding is not None:
        bounds["buffer"] = in_flight_bound(t, stream.outstanding, stream.latency)
        bandwidth = namespace(bandwidth, bounds["buffer"]).minimum(bandwidth, bounds["buffer"])
    if port is not None:
        bounds["sram"] = port
        bandwidth = namespace(bandwidth, port).minimum(bandwidth, port)
    return Sustained(bandwidth, bounds, bus.left)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Bus:
    """What all streams of a channel share: the banks they spread over, times between bursts, of turns and of
    activations [s], what refresh leaves.
    """

    dram: Dram
    banks: Number
    step: Number
    turn: Number
    opening: Number
    left: Number


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Visit:
    """One visit to a bank: useful bytes, less refresh [B]; times that bound it, and the time it takes [s]."""

    useful: Number
    moving: Number
    turning: Number
    rows: Number
    blind: Number
    time: Number

    @property
    def bandwidth(self) -> Number:
        return self.useful / self.time


def bus_of(dram: Dram, banks: Number | None = None, hot: Number = 0.0) -> Bus:
    """The bus of a channel whose streams spread over so many banks (all when left out)."""
    t = dram.timing
    banks = dram.bank_groups * dram.banks_per_group if banks is None else banks
    xp = namespace(banks, dram.bank_groups, hot, t.faw, t.rrd_s, t.ccd_s, t.ccd_l)
    groups = xp.maximum(xp.minimum(dram.bank_groups, banks), 1.0)
    back = t.cl + t.ccd_s - t.cwl + t.clock if t.rtw is None else t.rtw
    turn = xp.maximum(back + t.cwl + t.wtr_s - t.ccd_s, 0.0)
    opening = xp.maximum(xp.maximum(t.rrd_s, t.rrd_l / groups), t.faw / ACTIVATES)
    step = xp.maximum(t.ccd_s, t.ccd_l / groups)
    return Bus(dram=dram, banks=banks, step=step, turn=turn, opening=opening, left=refresh_left(t, hot))


def visit(bus: Bus, run: Number, reads: Number, packed: bool) -> Visit:
    """A visit of `run` bytes, a share of which `reads`: as `sustained_channel`, without buffer and port."""
    dram, banks, step = bus.dram, bus.banks, bus.step
    t, controller = dram.timing, dram.controller
    xp = namespace(run, banks, reads, step, bus.left, dram.row, dram.burst, controller.queue)
    whole = xp.maximum(run / dram.burst, 1.0) if packed else ceil_div(run, dram.burst)
    bursts, asked = xp.minimum(whole, dram.row / dram.burst), 1.0 if packed else run / (whole * dram.burst)
    moving = bursts * step
    turning = moving + turns(dram, bursts, banks, reads) * bus.turn
    rows = in_step(dram, bursts, banks, reads, bank_time(dram, bursts, banks, reads), step)
    long = bursts > controller.bank_queue
    spread = xp.where(long, controller.spill, (1.0 + 1.0 / bursts) * controller.jitter)
    jitter = 2.0 * xp.sqrt(reads * (1.0 - reads)) * spread
    ahead = (controller.queue + controller.bank_queue) * t.ccd_s
    blind = xp.where(long, xp.maximum(t.rp + t.rcd - ahead, 0.0), 0.0)
    time = blurred([turning, rows, bus.opening + 0.0 * moving], jitter) + blind
    useful = asked * bursts * dram.burst * bus.left
    return Visit(useful=useful, moving=moving, turning=turning, rows=rows, blind=blind, time=time)


def in_flight_bound(t: Timing, outstanding: Number, latency: Number | None = None) -> Number:
    """Bandwidth that bytes outstanding over a request's latency, at least a row's opening, allow [B/s]."""
    first = t.rcd + t.cl + t.ccd_s
    return outstanding / (first if latency is None else namespace(latency, first).maximum(latency, first))
