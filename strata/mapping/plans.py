"""Every legal plan of a device count, and those worth pricing, as one Plan of arrays; training as a box."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from strata.base.arrays import map_leaves
from strata.base.batch import take
from strata.base.errors import require
from strata.base.expression import holds_at
from strata.hardware.system import System
from strata.mapping.plan import Plan, usual_moe_tp
from strata.mapping.rules import bounded_devices, bounded_plans, divisors, remainder
from strata.mapping.training_plan import SCHEDULE
from strata.software.engine import Engine, as_engine
from strata.workload.model import Model
from strata.workload.tasks import Workload

MOST_MICRO = 32  # sequences of a micro-batch that are looked at
MESH_DEGREES = ("tp", "cp", "dp", "pp", "ep", "moe_tp", "sp", "cp_mode")


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
    redundant: bool = False,
) -> Plan:
    """Every legal plan of a device count, as one Plan whose degrees are arrays: all factorisations into tp,
    cp, dp and pp, all ways to share the experts out, and each of the ZeRO levels and of the ways of context
    parallelism asked for.

    An expert is cut into as many parts as attention at most, or, without expert parallelism, over every data
    parallel rank; not `freely`: as its tensor group leaves it, or not at all. With `sp` tensor groups share
    out norms and residuals. `redundant`: groups that do not divide the experts hold copies of some, so many
    as fill them.
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
        grids = _grids(tp, cp, dp, experts, freely, redundant) if model.has_experts else [(1, tp)]
        for (ep, moe_tp), level, by in itertools.product(grids, zero, cp_mode):
            if (level == 0 or dp > 1) and (by == cp_mode[0] or cp > 1):
                rows.append((tp, cp, dp, devices // group, ep, moe_tp, level, by, -experts % ep))
    table = np.array(rows, float).T
    degrees = ("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero", "cp_mode", "redundant_experts")
    made = Plan(**dict(zip(degrees, table, strict=True)))
    made = made if np.any(made.redundant_experts) else replace(made, redundant_experts=0.0)
    made = replace(made, sp=(made.tp > 1) * 1.0) if sp else made
    work = Workload(phase, batch, 1.0, 1.0)
    broken = np.zeros(table.shape[1], bool)
    with np.errstate(invalid="ignore"):  # a batch without bounds leaves no remainder
        for violation in made.violations(model.units, work, float(devices)):
            broken |= np.broadcast_to(violation.broken, broken.shape)
    return taken(made, ~broken)


def _grids(tp: int, cp: int, dp: int, experts: int, freely: bool, redundant: bool) -> list[tuple[int, int]]:
    """Ways to share out experts over tp x cp x dp ranks: how many parts, and how often each expert is cut."""
    group = tp * cp * dp
    found = set()
    for ep in divisors(group):
        if experts % ep == 0 or (redundant and -experts % ep <= experts):
            cuts = {int(usual_moe_tp(tp, cp, dp, ep)), 1, *(divisors(tp) if freely else ())}
            # attention data parallel, experts cut over all of its ranks
            cuts |= {tp * dp} if ep == cp == 1 else set()
            found |= {(ep, cut) for cut in cuts if cut and group % (ep * cut) == 0}
    return sorted(found)


def taken(many: Plan, which: Any) -> Plan:
    """Some of the plans of an array of plans, by a mask or by indices."""
    degrees = {f.name: getattr(many, f.name) for f in fields(Plan)}
    return replace(many, **{name: d[which] for name, d in degrees.items() if isinstance(d, np.ndarray)})


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingBox:
    """Meshes x micro-batches x recomputation x schedules x ZeRO; `legal`: which points are plans."""

    plan: Plan
    legal: np.ndarray

    @property
    def size(self) -> int:
        """How many plans there are."""
        return int(self.legal.sum())

    def at(self, places: Any) -> Plan:
        """Plans at flat places of the box, as one Plan of a list."""
        where = np.unravel_index(np.asarray(places), self.legal.shape)
        held = {f.name: np.asarray(getattr(self.plan, f.name), float) for f in fields(Plan)}
        return Plan(**{name: np.broadcast_to(value, self.legal.shape)[where] for name, value in held.items()})


def plans_of_training(
    devices: int,
    model: Model,
    batch: float,
    *,
    zero: tuple[int, ...] = (0, 1, 2, 3),
    recompute: tuple[int, ...] = (0, 1, 2),
    schedules: tuple[str, ...] = ("1f1b",),
    cp_mode: tuple[int, ...] = (0, 1, 2),
    sp: tuple[int, ...] = (0, 1),
    freely: bool = False,
) -> TrainingBox:
    """Every legal plan of training `batch` sequences a step on a device count, as one box.

    The batch divides into ranks and micro-batches of equal size; interleaved pipelines (1f1b with virtual
    stages) have equal chunks and micro-batches in multiples of their stages (Narayanan et al., SC 2021, sec.
    2.2.2), DualPipe an even number of stages and twice as many micro-batches or more; zero-bubble, DualPipe
    and GPipe have one chunk a stage. Not `freely`: ZeRO levels above 1 without a pipeline alone, which would
    exchange gradients for every micro-batch.

    >>> import strata as st
    >>> box = plans_of_training(8, st.model("llama-3-8b"), 16.0)
    >>> box.legal.shape, box.size, float(box.at([0]).pp[0])
    ((58, 5, 3, 5, 4), 3891, 8.0)
    """
    meshes = _training_meshes(devices, model, batch, cp_mode, sp, freely)
    sizes = np.array([m for m in divisors(int(batch)) if m <= MOST_MICRO], float)
    layers = int(float(model.layers))
    orders = [(name, 1) for name in schedules]
    if "1f1b" in schedules:
        chunks = [v for v in divisors(layers) if 1 < v <= layers // 2]
        orders += [("1f1b", v) for v in chunks if np.any(layers % (meshes.pp * v) == 0)]
    wide = {
        name: np.asarray(getattr(meshes, name), float)[:, None, None, None, None] for name in MESH_DEGREES
    }
    each = batch / wide["dp"]  # sequences of a rank
    micro = sizes[None, :, None, None, None]
    divides = remainder(each, micro) == 0
    passes = np.where(divides, each / micro, 1.0)
    recomputed = np.array(recompute, float)[None, None, :, None, None]
    order = np.array([SCHEDULE.index(name) for name, _ in orders], float)[None, None, None, :, None]
    virtual = np.array([v for _, v in orders], float)[None, None, None, :, None]
    level = np.array(zero, float)[None, None, None, None, :]
    many = Plan(
        **wide, microbatches=passes, recompute=recomputed, schedule=order, virtual_stages=virtual, zero=level
    )
    staged, plain = wide["pp"] > 1, (order == order.min()) & (virtual == 1)
    interleaves = (remainder(float(layers), wide["pp"] * virtual) == 0) & (remainder(passes, wide["pp"]) == 0)
    both_ways = (remainder(wide["pp"], 2.0) == 0) & (passes >= 2.0 * wide["pp"])
    runs = np.where(virtual > 1, interleaves, np.where(order == SCHEDULE.index("dualpipe"), both_ways, True))
    sharded = (level == 0) | (wide["dp"] * wide["cp"] > 1)
    sharded = sharded & ((level < 2) | ~staged | freely)
    legal = divides & np.where(staged, runs, plain) & sharded & (recomputed >= 0)
    return TrainingBox(plan=many, legal=legal)


def _training_meshes(
    devices: int, model: Model, batch: float, cp_mode: tuple[int, ...], sp: tuple[int, ...], freely: bool
) -> Plan:
    """Meshes whose data parallel ranks divide the batch, with and without sequence parallelism."""
    found = plans(devices, model, phase="train", batch=batch, cp_mode=cp_mode, freely=freely)
    found = taken(found, batch % found.dp == 0)
    split = [
        taken(replace(found, sp=np.full(np.shape(found.tp), float(s))), (found.tp > 1) | (s == sp[0]))
        for s in sp
    ]
    split[0] = replace(split[0], sp=np.where(split[0].tp > 1, split[0].sp, 0.0))
    every = {name: [np.asarray(getattr(part, name)) for part in split] for name in MESH_DEGREES}
    return replace(found, **{name: np.concatenate(parts) for name, parts in every.items()})


def candidate_plans(
    system: System, model: Model, workload: Workload, engine: Engine | str = "ideal", where: str = ""
) -> Plan:
    """Every legal plan worth pricing, in the usual order; `where` keeps some, by a condition over degrees
    like ``(ep == 1) & (cp == 1)``.

    Without a framework's limits (`bare` kernels) weights may be sharded over data parallel ranks (zero=3),
    context ranks may meet in each way, experts be cut into any number of parts, and tensor groups share out
    norms (sp=1, where steps have tokens enough); serving frameworks keep weights whole, gather keys and cut
    experts as attention leaves them. Training may shard its state, too; where requests are served, expert
    groups that do not divide the experts hold copies of some.

    >>> import strata as st
    >>> system, model, work = st.system("8xh200"), st.model("llama-3-70b"), st.decode(batch=64, context=2048)
    >>> plans = candidate_plans(system, model, work, where="(zero == 0) & (cp == 1)")
    >>> len(plans.tp), float(plans.zero.max())
    (10, 0.0)
    """
    software = as_engine(engine)
    bare = software.kernels == "bare"
    zero: tuple[int, ...] = (0, 1, 3) if workload.phase == "train" else (0, 3) if bare else (0,)
    modes: tuple[int, ...] = (0, 1, 2) if bare else (0,)
    # keys do not go round, and one latent for all heads cannot be shared out by heads
    if workload.phase == "decode":
        modes = (0, 2) if bare and model.attention == "gqa" else (0,)
    long = workload.phase in ("prefill", "train")
    every = plans(
        int(float(system.devices)),
        model,
        phase=workload.phase,
        zero=zero,
        cp_mode=modes,
        freely=bare,
        sp=bare and long,
        redundant=workload.phase == "serve",
    )
    if not where:
        return every
    kept = holds_at(where, named_degrees(every), np.size(every.tp), "where")
    require(bool(kept.any()), "no legal plan is left by the condition on plans", where=where)
    return taken(every, kept)


def named_degrees(every: Plan) -> dict[str, np.ndarray]:
    """Degrees of plans by name, but for their order on the fabric."""
    names = (f.name for f in fields(Plan) if f.name != "order")
    return {name: np.broadcast_to(getattr(every, name), np.shape(every.tp)) for name in names}


def plan_at(every: Plan, index: int) -> Plan:
    """One plan out of many."""
    one: Plan = take(every, (index,), 1)
    return map_leaves(float, one)
