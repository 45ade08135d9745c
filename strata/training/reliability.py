"""Failures, checkpoints and slow machines: what share of a month a job trains."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from strata.base.arrays import Number, namespace, register_pytree
from strata.base.records import readable
from strata.params import Sources, override, quantity, remembered, sourced_record, text

MONTH = 30.0 * 24.0 * 3600.0
WAITING = ("checkpoints", "restarts", "planned stops")  # devices do nothing meanwhile


@register_pytree
@readable()
@dataclass(frozen=True, eq=False, kw_only=True)
class Reliability:
    """How often a job stops, what it takes to go on, and how state is kept: stated, not predicted."""

    name: str = text("short name")
    device_mtbf: Number = quantity(
        "s",
        "mean time between unexpected stops of a job, of one device: a job of N has it over N",
        positive=True,
    )
    planned_every: Number = quantity("s", "mean time between planned stops of a job", positive=True)
    restart: Number = quantity("s", "from a failure until devices load the checkpoint")
    storage_bandwidth: Number = quantity("B/s", "storage bandwidth for each device of the job", positive=True)
    host_bandwidth: Number = quantity(
        "B/s", "bandwidth at which a device copies its state into its host's memory", positive=True
    )
    pause: Number = quantity("s", "that a checkpoint stops the job for, beside copying or writing")
    asynchronous: Number = quantity("1", "1 where checkpoints are written beside training, 0 where it waits")
    stragglers: Number = quantity("1", "how much longer steps take for slow machines")
    sources: Sources = field(default_factory=Sources)


def reliability(name: str = "default", /, **changes: Any) -> Reliability:
    """The assumptions behind goodput, with quantities replaced.

    >>> float(reliability(restart="300 s").restart)
    300.0
    """
    stated: Reliability = _stated(str(name))
    if not changes:
        return stated
    changed, noted = override(stated, changes, "reliability")
    return replace(changed, sources=stated.sources.updated(noted))


@remembered
def _stated(name: str) -> Reliability:
    return sourced_record(Reliability, "reliability", name)


@register_pytree
@readable()
@dataclass(frozen=True, eq=False, kw_only=True)
class Goodput:
    """What share of its time a job trains, and where the rest goes; shares add up to 1."""

    share: Number  # of the time that steps which count take, at the speed of healthy machines
    mtbf: Number  # of the whole job [s]
    interval: Number  # between checkpoints [s]
    stall: Number  # of training for one checkpoint [s]
    writing: Number  # time until a checkpoint is on storage [s]
    recovery: Number  # from a failure until the job trains again [s]
    state: Number  # bytes of a checkpoint
    failures: Number  # in a month of 30 days
    lost: dict[str, Number]  # shares of time, by what takes them

    @property
    def stopped(self) -> Number:
        """Share of time in which devices wait: for checkpoints, restarts and planned stops."""
        return sum((self.lost[name] for name in WAITING), 0.0)


def daly_interval(stall: Number, mtbf: Number) -> Number:
    r"""Time of training between checkpoints that loses least [s].

    .. math:: \tau = \sqrt{2 \delta M} \left(1 + \frac{\sqrt{x}}{3} + \frac{x}{9}\right) - \delta, \quad
        x = \frac{\delta}{2 M}

    stall δ of a checkpoint [s], mean time between failures M [s]; M itself where δ is 2 M or more.

    Daly, Future Generation Computer Systems 22 (2006), eq. 37; Young, CACM 17 (1974), without the bracket.

    >>> round(float(daly_interval(60.0, 11138.0))), round(float(daly_interval(1.0, 11138.0)))
    (1116, 149)
    """
    xp = namespace(stall, mtbf)
    ratio = stall / (2.0 * mtbf)
    best = xp.sqrt(2.0 * stall * mtbf) * (1.0 + xp.sqrt(ratio) / 3.0 + ratio / 9.0) - stall
    return xp.where(stall < 2.0 * mtbf, best, mtbf + 0.0)


def trained_share(interval: Number, stall: Number, mtbf: Number, recovery: Number) -> Number:
    r"""Share of a job's time in steps that count, with failures at any time, checkpoints and recovery.

    .. math:: g = \frac{\tau}{M e^{R / M} \left(e^{(\tau + \delta) / M} - 1\right)}

    interval τ, stall δ, mean time between failures M, recovery R [s].

    Daly (2006), eq. 20.

    >>> round(float(trained_share(1117.0, 60.0, 11138.0, 600.0)), 3)
    0.853
    """
    xp = namespace(interval, stall, mtbf, recovery)
    return interval / (mtbf * xp.exp(recovery / mtbf) * xp.expm1((interval + stall) / mtbf))


def training_goodput(
    state: Number, devices: Number, given: Reliability, interval: Number | None = None
) -> Goodput:
    r"""What share of its time a job of so many devices trains, whose checkpoints hold `state` bytes.

    .. math:: G = \frac{P}{P + R} \, \frac{g(\tau)}{1 + s}

    planned stops every P, recovery R, stragglers s, `trained_share` g; checkpoints at Daly's interval unless
    told, and not before the last one is written. Work done while an asynchronous checkpoint is being written
    is lost with it: it counts in R.

    A job like that of Llama 3 405B, whose report says "higher than 90 %" of 54 days (arXiv 2407.21783, sec.
    3.3.4):

    >>> found = training_goodput(14 * 405e9, 16384.0, reliability())
    >>> round(float(found.share), 2), round(float(found.mtbf / 3600), 1), round(float(found.failures))
    (0.91, 3.1, 233)
    """
    xp = namespace(state, devices, given.device_mtbf, given.asynchronous)
    mtbf = given.device_mtbf / devices
    writing = state / (devices * given.storage_bandwidth)
    copying = state / (devices * given.host_bandwidth)
    beside = given.asynchronous > 0
    stall = given.pause + xp.where(beside, copying, writing)
    every = daly_interval(stall, mtbf) if interval is None else interval
    every = xp.maximum(every, xp.where(beside, writing, 0.0))
    recovery = given.restart + writing
    again = recovery + xp.where(beside, writing, 0.0)
    trains = trained_share(every, stall, mtbf, again)
    restarts = -xp.expm1(-again / mtbf) * recovery / again
    runs = given.planned_every / (given.planned_every + recovery)
    healthy = 1.0 / (1.0 + given.stragglers)
    checkpoints = trains * stall / every
    return Goodput(
        share=runs * trains * healthy,
        mtbf=mtbf,
        interval=every,
        stall=stall,
        writing=writing,
        recovery=recovery,
        state=state + 0.0,
        failures=MONTH / mtbf,
        lost={
            "checkpoints": runs * checkpoints,
            "restarts": runs * restarts,
            "work done again": runs * (1.0 - trains - checkpoints - restarts),
            "planned stops": 1.0 - runs,
            "stragglers": runs * trains * (1.0 - healthy),
        },
    )
