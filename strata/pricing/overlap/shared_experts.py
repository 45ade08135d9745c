"""Kernels on a second stream: experts that all tokens share beside those they are routed to."""

from __future__ import annotations

from dataclasses import replace

from strata.arrays import Number, namespace
from strata.pricing.kernels.device import Device
from strata.pricing.price import Price, total_price
from strata.workload.expert_ops import SHARED_EXPERT
from strata.workload.graph import Op

CREDITS = ("time", "compute", "cache", "memory", "network", "overhead")


def left_over(one: Price, other: Price, bandwidth: Number) -> Number:
    r"""Time that kernels add to others beside which they run [s].

    .. math:: T = \max\left(T_1, T_2, C_1 + C_2, \frac{b_1 + b_2}{B}\right) - T_2

    times T_1 and T_2 alone, of which the cores bound C_1 and C_2; bytes b of DRAM, of sustained bandwidth B.
    Launches, floors and waits of one hide behind the other; arithmetic and bytes add up.

    >>> small = Price(time=14e-6, memory=2e-6, overhead=12e-6, memory_bytes=1e7)
    >>> large = Price(time=6e-5, memory=5e-5, memory_bytes=3e8)
    >>> float(left_over(small, large, 7e12)), round(float(left_over(small, large, 4.5e12)) * 1e6, 1)
    (0.0, 8.9)
    """
    xp = namespace(one.time, other.time, one.compute, one.memory_bytes, bandwidth)
    bound = xp.maximum(one.compute + other.compute, (one.memory_bytes + other.memory_bytes) / bandwidth)
    together = xp.minimum(xp.maximum(xp.maximum(one.time, other.time), bound), one.time + other.time)
    return together - other.time


def overlap_shared_experts(priced: list[tuple[Op, Price]], device: Device) -> list[tuple[Op, Price]]:
    """The ops of a block with shared experts beside the routed ones, as far as the engine runs them so
    (`shared_expert_stream`).
    """
    shared = [p for op, p in priced if op.role == SHARED_EXPERT]
    routed = [p for op, p in priced if op.category == "experts"]
    if not shared or not routed:
        return priced
    both = [total_price([(1.0, p) for p in part]) for part in (shared, routed)]
    xp = namespace(both[0].time)
    kept = left_over(both[0], both[1], device.bandwidth) / xp.where(both[0].time > 0.0, both[0].time, 1.0)
    share = 1.0 - device.software.shared_expert_stream * (1.0 - kept)
    return [(op, _shown(p, share) if op.role == SHARED_EXPERT else p) for op, p in priced]


def _shown(price: Price, share: Number) -> Price:
    """A price of which only a share of the time is seen; what it moves and spends stays."""
    return replace(
        price,
        **{name: getattr(price, name) * share for name in CREDITS},
        lower=price.lower * share,
        saved=price.time * (1.0 - share),
    )
