"""Every legal plan of a device count, as one Plan whose degrees are arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

from strata.errors import require
from strata.mapping.divisors import bounded_devices, bounded_plans, divisors
from strata.mapping.plan import Plan, usual_moe_tp
from strata.workload.model import Model
from strata.workload.tasks import Workload


def _factors(devices: int) -> Iterator[tuple[int, int, int]]:
    """Degrees of tp, cp and dp whose product divides the devices."""
    for tp in divisors(devices):
        for cp in divisors(devices // tp):
            for dp in divisors(devices // tp // cp):
                yield tp, cp, dp


def plans(
    devices: int,
    model: Model,
    *,
    phase: str = "decode",
    batch: float = float("inf"),
    zero: tuple[int, ...] = (0,),
    cp_mode: tuple[int, ...] = (0,),
    freely: bool = True,
    sp: bool = False,
) -> Plan:
    """Every legal plan of a device count, as one Plan whose degrees are arrays: all factorisations into tp,
    cp, dp and pp, all ways to share the experts out, and each of the ZeRO levels and of the ways of context
    parallelism asked for.

    An expert is cut into as many parts as attention at most, or, without expert parallelism, over every data
    parallel rank; not `freely`: as its tensor group leaves it, or not at all. With `sp` tensor groups share
    out norms and residuals.
    """
    bounded_devices(devices)
    require(
        bool(zero) and bool(cp_mode), "plans need a ZeRO level and a way of context parallelism", zero=zero
    )
    rows: list[tuple[int, ...]] = []
    experts = int(float(model.experts)) if model.has_experts else 1
    for tp, cp, dp in _factors(devices):
        bounded_plans(len(rows), devices)
        group = tp * cp * dp
        grids = _grids(tp, cp, dp, experts, freely) if model.has_experts else [(1, tp)]
        for (ep, moe_tp), level, by in itertools.product(grids, zero, cp_mode):
            if (level == 0 or dp > 1) and (by == cp_mode[0] or cp > 1):
                rows.append((tp, cp, dp, devices // group, ep, moe_tp, level, by))
    table = np.array(rows, float).T
    made = Plan(**dict(zip(("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero", "cp_mode"), table, strict=True)))
    made = replace(made, sp=(made.tp > 1) * 1.0) if sp else made
    work = Workload(phase, batch, 1.0, 1.0)
    broken = np.zeros(table.shape[1], bool)
    for violation in made.violations(model.units, work, float(devices)):
        broken |= np.broadcast_to(violation.broken, broken.shape)
    return taken(made, ~broken)


def _grids(tp: int, cp: int, dp: int, experts: int, freely: bool) -> list[tuple[int, int]]:
    """Ways to share out experts over tp x cp x dp ranks: how many parts, and how often each expert is cut."""
    group = tp * cp * dp
    found = set()
    for ep in divisors(group):
        if experts % ep == 0:
            cuts = {int(usual_moe_tp(tp, cp, dp, ep)), 1, *(divisors(tp) if freely else ())}
            # attention data parallel, experts cut over all of its ranks
            cuts |= {tp * dp} if ep == cp == 1 else set()
            found |= {(ep, cut) for cut in cuts if cut and group % (ep * cut) == 0}
    return sorted(found)


def taken(many: Plan, which: Any) -> Plan:
    """Some of the plans of an array of plans, by a mask or by indices."""
    return replace(
        many,
        **{
            f.name: getattr(many, f.name)[which]
            for f in fields(Plan)
            if isinstance(getattr(many, f.name), np.ndarray)
        },
    )
