"""One DRAM channel: what its banks, rows and timings leave of the interface for a stream of accesses.

A stream visits banks in turn: each visit opens a row, moves a run of bytes and leaves. The time of a visit is the longest of what
the interface, the banks, the activation window and the turns between reads and writes need; refresh is taken off the whole.
The same equations hold for HBM, DDR, LPDDR and DRAM stacked on logic: only the numbers differ (data/memories).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.arrays import Number, ceil_div, namespace, register_pytree
from strata.errors import BadValue, require
from strata.params import Sources, build, find, load_table, override, part, quantity, text
from strata.units import show

HOT = 85.0  # degrees C above which cells leak so fast that JEDEC halves the refresh interval
ACTIVATES = 4.0  # activations a window of tFAW may hold
LEGAL = {"run": "positive", "read_share": "from 0 to 1", "banks": "at least 1", "outstanding": "positive"}
LEAST_JITTER = 1e-3  # of streams without turns, whose bounds do not blur: the longest alone counts


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Timing:
    """Times between commands, by their JEDEC names without the t: `rcd` is tRCD. `_s` to another bank group, `_l` to the same."""

    clock: Number = quantity("s", "one period of the command clock, tCK", positive=True)
    ccd_s: Number = quantity("s", "burst to burst in different bank groups: the time of a burst on the bus", positive=True)
    ccd_l: Number = quantity("s", "burst to burst in one bank group", positive=True)
    cl: Number = quantity("s", "read command to data")
    cwl: Number = quantity("s", "write command to data")
    rcd: Number = quantity("s", "activation to the first read or write", positive=True)
    rp: Number = quantity("s", "precharge to the next activation of a bank", positive=True)
    ras: Number = quantity("s", "activation to precharge, at least", positive=True)
    rc: Number = quantity("s", "activation to activation of one bank; left out: ras + rp", optional=True)
    rtp: Number = quantity("s", "last read to precharge")
    wr: Number = quantity("s", "last written data to precharge")
    wtr_s: Number = quantity("s", "written data to a read in another bank group")
    wtr_l: Number = quantity("s", "written data to a read in the same bank group")
    rtw: Number = quantity("s", "read to write; left out: cl + ccd_s - cwl and one clock for the bus to turn", optional=True)
    rrd_s: Number = quantity("s", "activation to activation in different bank groups", positive=True)
    rrd_l: Number = quantity("s", "activation to activation in one bank group", positive=True)
    faw: Number = quantity("s", "window that holds at most four activations", positive=True)
    rfc: Number = quantity("s", "one refresh of all banks")
    refi: Number = quantity("s", "time between refreshes, up to 85 C", positive=True)


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Controller:
    """How a memory controller orders requests: open rows first, writes held back and drained together."""

    queue: Number = quantity("1", "transactions it sees ahead of the banks, and writes it holds back", minimum=1)
    bank_queue: Number = quantity("1", "transactions that wait at one bank", minimum=1)
    rounds: Number = quantity("1", "rounds over the banks between two turns from reads to writes, where a visit fits a bank's queue", positive=True)
    jitter: Number = quantity("1", "how far bounds that are near each other add up when reads and writes come at random")
    spill: Number = quantity("1", "the same where a visit does not fit a bank's queue, so that reads and writes meet in its row")
    drift: Number = quantity(
        "1", "length of a visit, in row cycles of its bank, at which two banks that wait for each other come apart", positive=True
    )


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Dram:
    """One channel: an independent bus with its banks."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    note: str = text("what a reader of these numbers should know", default="")
    burst: Number = quantity("B", "one transaction, the least that is moved", positive=True)
    row: Number = quantity("B", "open row of a bank, as this channel sees it", positive=True)
    bank_groups: Number = quantity("1", "bank groups", minimum=1)
    banks_per_group: Number = quantity("1", "banks of a group", minimum=1)
    timing: Timing = part(Timing, "times between commands")
    controller: Controller = part(Controller, "order of requests")
    sources: Sources = field(default_factory=Sources)


def _span(value: Any) -> str:
    """A number, or the least and the most of many."""
    low, high = float(np.min(value)), float(np.max(value))
    return f"{low:g}" if low == high or np.isnan(low) else f"{low:g} to {high:g}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Stream:
    """How a kernel reads and writes one channel.

    `run` bytes in a row at each visit to a bank; `read_share` of the visits read; `banks` it spreads over (all when left out);
    `outstanding` bytes asked for and not yet there, over the `latency` of a request (both left out: no limit). `packed`: runs end where
    bursts do, or the next run takes the rest of a burst, so that nothing is moved in vain.
    """

    run: Number
    read_share: Number = 1.0
    banks: Number | None = None
    outstanding: Number | None = None
    latency: Number | None = None
    packed: bool = False

    def __post_init__(self) -> None:
        for name, low, high in (("run", 0.0, np.inf), ("read_share", -1e-12, 1.0), ("banks", 0.999, np.inf), ("outstanding", 0.0, np.inf)):
            value = getattr(self, name)
            # What a compiler traces has no value yet.
            if isinstance(value, (float, int, np.ndarray)) and not np.all((np.asarray(value) > low) & (np.asarray(value) <= high)):
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


def dram(name: str, **changes: Any) -> Dram:
    """A memory by name or TOML path, with some quantities replaced.

    >>> dram("hbm3").burst, dram("hbm3", **{"timing.faw": "20 ns"}).timing.faw
    (32.0, 2e-08)
    """
    where = find("memory", name).name
    made, params = build(Dram, load_table("memory", name), where)
    made, given = override(made, changes, "memory")
    check_dram(made, where)
    known: Dram = replace(made, sources=Sources(params).updated(given))
    return known


@lru_cache(maxsize=32)
def shipped(name: str) -> Dram:
    """A memory as its file has it, read once."""
    return dram(name)


def check_dram(made: Dram, where: str) -> None:
    """Refuse timings that contradict each other.

    >>> dram("hbm3", **{"timing.rc": "20 ns"})
    Traceback (most recent call last):
    ...
    strata.errors.BadValue: hbm3.toml: timing.rc must be at least ras + rp, but got rc = 20 ns, ras = 33 ns, rp = 14 ns
    """
    t = made.timing

    def ordered(low: Number, high: Number, relation: str, **times: Number) -> None:
        wrong = np.ravel(np.asarray(low) > np.asarray(high) * (1 + 1e-9))
        if wrong.any():  # of a batch, the first that is wrong
            first = int(np.argmax(wrong))
            raise BadValue(
                f"{where}: {relation}, but got " + ", ".join(f"{k} = {show(np.broadcast_to(v, wrong.shape)[first], 's')}" for k, v in times.items())
            )

    if t.rc is not None:
        ordered(t.ras + t.rp, t.rc, "timing.rc must be at least ras + rp", rc=t.rc, ras=t.ras, rp=t.rp)
    ordered(t.rcd, t.ras, "timing.ras must be at least rcd", ras=t.ras, rcd=t.rcd)
    ordered(t.ccd_s, t.ccd_l, "timing.ccd_l must be at least ccd_s", ccd_l=t.ccd_l, ccd_s=t.ccd_s)
    ordered(t.rrd_s, t.rrd_l, "timing.rrd_l must be at least rrd_s", rrd_l=t.rrd_l, rrd_s=t.rrd_s)
    taken = t.rfc + t.rtp + t.rp + t.rcd
    ordered(2.0 * taken, t.refi, "timing.refi must leave time between refreshes even when heat halves it", refi=t.refi, rfc=t.rfc)
    require(
        bool(np.all(np.asarray(made.burst) <= np.asarray(made.row))), f"{where}: a row must hold at least one burst", row=made.row, burst=made.burst
    )


def interface_peak(made: Dram) -> Number:
    r"""Peak bandwidth of a channel's bus [B/s].

    .. math:: B = x / t_{CCD}

    bytes of a transaction x; time of it on the bus.

    >>> interface_peak(dram("hbm3")) / 1e9
    25.6
    """
    return made.burst / made.timing.ccd_s


def refresh_left(t: Timing, hot: Number = 0.0) -> Number:
    r"""Share of time that refresh leaves.

    .. math:: \rho = 1 - (1 + h) \frac{t_{RFC} + t_{RTP} + t_{RP} + t_{RCD} - t_{CCD}}{t_{REFI}}

    All banks are closed, refreshed and opened again; h = 1 above 85 C, where cells are refreshed twice as often.

    JEDEC JESD235, JESD238: refresh command, temperature-compensated refresh.

    >>> t = dram("hbm3").timing
    >>> bool(refresh_left(t, 1.0) < refresh_left(t) < 1)
    True
    """
    return 1.0 - (1.0 + hot) * (t.rfc + t.rtp + t.rp + t.rcd - t.ccd_s) / t.refi


def turns(made: Dram, bursts: Number, banks: Number, read_share: Number) -> Number:
    r"""Turns from reads to writes and back, for each visit.

    .. math::
        f = \begin{cases} \min\left(p (1 - p), \frac{2 \sqrt{p (1 - p)}}{\kappa b}\right) & r \le q_b \\
        \frac{p (1 - p)}{\sqrt{1 + (p Q / r)^2}} & r > q_b \end{cases}

    Visits that read with probability p change direction p (1 - p) times each. Where visits of r bursts fit a bank's queue q_b, every
    bank goes on in one direction as long as any has work there: about one turn in κ rounds over b banks. Longer ones are only
    gathered as far as the Q writes that the controller holds back reach.

    The first case fitted, the second derived from how writes drain; both against validation/dram/channel.csv.

    >>> few, many = (turns(dram("hbm3"), r, 16.0, 0.67) for r in (4.0, 32.0))
    >>> 0 < float(few) < float(many) < 0.67 * 0.33
    True
    """
    xp = namespace(bursts, banks, read_share, made.controller.queue)
    how = made.controller
    change = read_share * (1.0 - read_share)
    short = xp.minimum(change, 2.0 * xp.sqrt(change) / (how.rounds * banks))
    long = change / xp.sqrt(1.0 + (read_share * how.queue / bursts) ** 2)
    return xp.where(bursts > how.bank_queue, long, short)


def bank_time(made: Dram, bursts: Number, banks: Number, read_share: Number) -> Number:
    r"""Time the banks need for a visit [s].

    .. math::
        T = \frac{p P_r + (1 - p) P_w}{b}, \quad
        P = \max\left(t_{RC}, t_{RCD} + (r - 1) t_{CCD,L} + t_b + t_{RP}\right)

    A bank opens a row, moves r bursts and closes it again: t_b is tRTP after reads, CWL + burst + tWR after writes. b banks
    work side by side.

    >>> d = dram("hbm3")
    >>> round(float(bank_time(d, 1.0, 1.0, 1.0)) * 1e9, 1)  # tRC of one bank
    47.0
    """
    t = made.timing
    xp = namespace(bursts, banks, read_share, t.ras, t.rcd)
    cycle = t.ras + t.rp if t.rc is None else t.rc
    moving = t.rcd + (bursts - 1.0) * t.ccd_l + t.rp
    reads = xp.maximum(cycle, moving + t.rtp)
    writes = xp.maximum(cycle, moving + t.cwl + t.ccd_s + t.wr)
    return (read_share * reads + (1.0 - read_share) * writes) / banks


def in_step(made: Dram, bursts: Number, banks: Number, read_share: Number, alone: Number, step: Number) -> Number:
    r"""Time the banks need for a visit when few of them take turns burst by burst, so that all close their rows at once [s].

    .. math:: T = T_b + w \left[ \frac{g - (b - 1)(d - t)}{b} + (r - 1) t - T_b \right]_+, \quad g = t_{RCD} + t_b + t_{RP}

    time T_b of banks that do not wait for each other (`bank_time`); bursts of b banks alternate, t apart, and rows open d apart. Two banks keep in step
    unless visits are much longer than a row cycle (w falls to 0 around r t = δ g) or the controller sees only one of them; up to four do
    if rows open as fast as bursts follow and two visits fit a bank's queue (one where tFAW holds no row back). More banks come apart by themselves.

    Seen in validation/dram/channel.csv: two banks and 8 bursts a visit reach two thirds of the peak, where row cycles alone would allow 0.9.

    >>> d = dram("stacked-dram")
    >>> two, eight = (in_step(d, 8.0, b, 1.0, bank_time(d, 8.0, b, 1.0), d.timing.ccd_s) for b in (2.0, 8.0))
    >>> bool(two > bank_time(d, 8.0, 2.0, 1.0)), bool(eight == bank_time(d, 8.0, 8.0, 1.0))
    (True, True)
    """
    t, how = made.timing, made.controller
    xp = namespace(bursts, banks, read_share, t.rcd, t.rrd_s, step, how.queue)
    apart = xp.maximum(t.rrd_s, step)
    gap = t.rcd + t.rp + read_share * t.rtp + (1.0 - read_share) * (t.cwl + t.ccd_s + t.wr)

    def within(value: Number) -> Number:
        return xp.minimum(xp.maximum(value, 0.0), 1.0)

    several = within(banks - 1.0)
    # Long visits in both directions lose their step at the turns.
    steady = xp.where(how.queue > bursts - how.bank_queue, 1.0 - 4.0 * read_share * (1.0 - read_share), 0.0)
    seen = xp.where(bursts > how.bank_queue, steady, 1.0)
    pair = within(3.0 - banks) * seen * within((how.drift - bursts * step / gap) / (0.25 * how.drift))
    paced = (bursts <= how.bank_queue) & (t.faw <= ACTIVATES * step)
    four = within(5.0 - banks) * xp.where((t.rrd_s <= step) & ((2.0 * bursts <= how.bank_queue) | paced), 1.0, 0.0)
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
    longest = times[0]
    for time in times[1:]:
        longest = xp.maximum(longest, time)
    power = 1.0 / xp.maximum(jitter, LEAST_JITTER)
    total: Number = 0.0
    for time in times:
        total = total + (time / longest) ** power
    return longest * total ** (1.0 / power)


def sustained_channel(made: Dram, stream: Stream, hot: Number = 0.0, port: Number | None = None) -> Sustained:
    r"""Bandwidth a stream gets from one channel [B/s], with every bound on it.

    .. math::
        B = \min\left(\rho \frac{u \, r x}{T + \epsilon}, \frac{o}{\lambda}, S\right), \quad
        T = \left(T_i^{1/j} + T_b^{1/j} + T_a^{1/j}\right)^j, \quad T_i = r t + f \tau, \quad T_a = \max\left(t_{RRD}, \frac{t_{FAW}}{4}\right)

        \tau = t_{RTW} + CWL + t + t_{WTR} - 2 t, \quad \epsilon = [t_{RP} + t_{RCD} - (Q + q_b) t]_+ \, [r > q_b], \quad j = 2 \sqrt{p (1 - p)} \begin{cases} (1 + 1/r) j_0 & r \le q_b \\ j_1 & r > q_b \end{cases}

    A visit moves r whole transactions of x bytes, of which the share u was asked for, t apart; f turns a visit (`turns`) cost τ each;
    banks need T_b (`in_step`), activations T_a. Where visits come at random, bounds near each other add up (`blurred`). A controller
    that sees less ahead than a row takes to open waits ε. Refresh leaves ρ. o bytes outstanding over latency λ (Little,
    Oper. Res. 9 (1961)) and an SRAM port S bound it too.

    Constants of the controller are fitted to DRAMsim3 (Li et al., IEEE CAL 19 (2020)), validation/dram/channel.csv.

    >>> d = dram("hbm3")
    >>> long, short = (sustained_channel(d, Stream(run=n)) for n in (1024.0, 32.0))
    >>> round(float(long.bandwidth) / 1e9, 1), long.binding, round(float(short.bandwidth) / 1e9, 1), short.binding
    (23.1, 'interface', 7.7, 'activation')
    """
    t, how = made.timing, made.controller
    banks = made.bank_groups * made.banks_per_group if stream.banks is None else stream.banks
    reads = stream.read_share
    xp = namespace(stream.run, banks, reads, hot, t.faw, t.rrd_s, t.ccd_s, t.ccd_l, made.row, how.queue, 0.0 if port is None else port)
    whole = xp.maximum(stream.run / made.burst, 1.0) if stream.packed else ceil_div(stream.run, made.burst)
    bursts, asked = xp.minimum(whole, made.row / made.burst), 1.0 if stream.packed else stream.run / (whole * made.burst)
    groups = xp.maximum(xp.minimum(made.bank_groups, banks), 1.0)
    step = xp.maximum(t.ccd_s, t.ccd_l / groups)
    turned = turns(made, bursts, banks, reads)
    back = t.cl + t.ccd_s - t.cwl + t.clock if t.rtw is None else t.rtw
    turn = xp.maximum(back + t.cwl + t.wtr_s - t.ccd_s, 0.0)
    moving = bursts * step
    rows = in_step(made, bursts, banks, reads, bank_time(made, bursts, banks, reads), step)
    opening = xp.maximum(xp.maximum(t.rrd_s, t.rrd_l / groups), t.faw / ACTIVATES)
    jitter = 2.0 * xp.sqrt(reads * (1.0 - reads)) * xp.where(bursts > how.bank_queue, how.spill, (1.0 + 1.0 / bursts) * how.jitter)
    blind = xp.where(bursts > how.bank_queue, xp.maximum(t.rp + t.rcd - (how.queue + how.bank_queue) * t.ccd_s, 0.0), 0.0)
    time = blurred([moving + turned * turn, rows, opening + 0.0 * moving], jitter) + blind
    left = refresh_left(t, hot)
    useful = asked * bursts * made.burst * left
    bounds: dict[str, Number] = {
        "interface": useful / moving, "turnaround": useful / (moving + turned * turn), "banks": useful / rows, "activation": useful / opening,
        "look-ahead": useful / (moving + blind),
    }  # fmt: skip
    bandwidth = useful / time
    if stream.outstanding is not None:
        first = t.rcd + t.cl + t.ccd_s
        bounds["buffer"] = stream.outstanding / (first if stream.latency is None else xp.maximum(stream.latency, first))
        bandwidth = xp.minimum(bandwidth, bounds["buffer"])
    if port is not None:
        bounds["sram"] = port
        bandwidth = xp.minimum(bandwidth, port)
    return Sustained(bandwidth, bounds, left)


def is_hot(temperature: Number) -> Number:
    """1 where DRAM must be refreshed twice as often.

    >>> float(is_hot(84.0)), float(is_hot(91.0))
    (0.0, 1.0)
    """
    return namespace(temperature).where(temperature > HOT, 1.0, 0.0)
