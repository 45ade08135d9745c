"""The best plan of training: every mesh x micro-batch x recomputation x schedule x ZeRO level priced as one
box, best first, with what each lever is worth and why the rest is out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from strata.base.errors import BadValue, require
from strata.base.expression import holds_at
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.place import orders_matter, try_orders
from strata.mapping.plan import Plan
from strata.mapping.plans import TrainingBox, named_degrees, plan_at, plans_of_training
from strata.mapping.rules import MEMORY, RULES
from strata.mapping.training_plan import OFFLOAD
from strata.one_step import memory_needed
from strata.pricing.metrics import known_metric
from strata.result import RankedPlan, Result
from strata.software.engine import Engine, as_engine, has_host_time
from strata.training.plan_levers import LeverWorth, PricedPlans, lever_worths, refine
from strata.workload.model import Model
from strata.workload.tasks import Workload

ROWS_ALIKE = 100  # of a box, to be priced as one of their own
PLACED = 48  # of the best meshes whose other orders on the fabric are priced, too
DIVIDED = ("tp", "cp", "dp", "pp", "ep", "moe_tp")  # two plans of one mesh differ in levers alone


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingSearch:
    """Plans of training, best first, one of each mesh; where none fits, the one that needs least."""

    choices: list[RankedPlan]
    nearest: Result  # the best; else the one that needs the least memory
    considered: int
    feasible: int
    out: dict[str, int] = field(default_factory=dict)  # how many plans break which rule
    levers: tuple[LeverWorth, ...] = ()
    metric: str = "tokens_per_s"
    refined: int = 0  # plans tried beside those of the box: some layers recomputed, fewer shards


def search_training(
    system: System,
    model: Model,
    workload: Workload,
    engine: Engine | str = "megatron",
    *,
    metric: str = "tokens_per_s",
    top: int = 5,
    where: str = "",
) -> TrainingSearch:
    """Price every legal plan of a training step in one box, and rank the best of each mesh.

    Recomputation, the micro-batch, the schedule, ZeRO and sequence parallelism are tried by themselves; where
    memory asks for it only some layers are recomputed, and the best plans also shard over fewer ranks
    (`refine`). State goes to the host's memory where nothing fits without. The best meshes are also priced in
    every other order on the fabric.

    >>> import strata as st
    >>> found = search_training(st.system("8xh100"), st.model("llama-3-8b"), st.train(64, 4096), top=3)
    >>> found.considered > 3000, found.feasible < found.considered, len(found.choices)
    (True, True, 3)
    """
    declared = known_metric(metric, workload.phase)
    batch = float(workload.batch)
    require(batch == np.floor(batch), "a batch is a whole number of sequences", batch=batch)
    box = training_box(system, model, batch, engine, where)
    asked = _Asked(system, model, workload, engine, metric, 1.0 if declared.higher_is_better else -1.0, where)
    priced, reason = asked.box(box)
    out = {rule.relation: n for rule in RULES if (n := int(np.sum(box.legal & (reason & rule.bit > 0))))}
    considered, feasible = box.size, int(np.isfinite(priced.scores).sum())
    host = system.fabric.host
    linked = host is not None and host.link is not None
    # what may lie in the host's memory where nothing fits without, least first: codes of a plan's offload
    for code in range(1, len(OFFLOAD)) if linked and not feasible and not where else ():
        box = replace(box, plan=replace(box.plan, offload=float(code)))
        priced, _ = asked.box(box)
        considered, feasible = considered + box.size, int(np.isfinite(priced.scores).sum())
        if feasible:
            break
    told: dict[str, Any] = {"considered": considered, "feasible": feasible, "out": out, "metric": metric}
    if not feasible:
        least = plan_at(box.at([int(np.argmin(np.where(box.legal, priced.used, np.inf)))]), 0)
        return TrainingSearch(choices=[], nearest=evaluate(system, model, workload, least, engine), **told)
    better, scores = refine(box, priced, float(model.layers), asked.listed), priced.scores
    told |= {"refined": better.tried}
    places = _best_of_each_mesh(box, scores)[: max(PLACED, top)]
    found, worth = better.at(box, places), scores.ravel()[places]
    orders, placed = _other_orders(asked, found, worth)
    scores.reshape(-1)[places] = worth  # levers are worth what the best order makes of them
    counts: dict[str, Any] = {"considered": considered, "feasible": feasible, "placed": placed}
    choices = []
    for rank, i in enumerate(np.argsort(-worth, kind="stable")[:top]):
        plan = replace(plan_at(found, int(i)), order=float(orders[i]))
        choices.append(
            RankedPlan(result=evaluate(system, model, workload, plan, engine), rank=rank, **counts)
        )
    levers = tuple(lever_worths(box, scores, batch))
    return TrainingSearch(choices=choices, nearest=choices[0].result, levers=levers, **told)


@dataclass(frozen=True, eq=False)
class _Asked:
    """What plans are priced for."""

    system: System
    model: Model
    workload: Workload
    engine: Engine | str
    metric: str
    sign: float  # -1 where less is better
    where: str

    def box(self, box: TrainingBox) -> tuple[PricedPlans, np.ndarray]:
        """Memory of every legal plan of a box, prices of those that fit, and what rules the others out.

        Pipelines of one length are looked at together: others have other chunks a stage and other
        micro-batches, so that most of the whole box would be no plan at all.
        """
        shape, lengths = box.legal.shape, np.ravel(box.plan.pp)
        values, times, used = np.full(shape, np.nan), np.full(shape, np.inf), np.full(shape, np.nan)
        reason, limit = np.zeros(shape, int), 0.0
        asked = self.system, self.model, self.workload
        for length in np.unique(lengths):
            part, where = _trimmed(box, np.flatnonzero(lengths == length))
            if not part.size:
                continue
            needed, limit = memory_needed(*asked, part.plan, self.engine)
            fits = part.legal & (needed <= limit)
            used[np.ix_(*where)] = np.broadcast_to(needed, fits.shape)
            reason[np.ix_(*where)] = np.where(fits, 0, MEMORY.bit)
            for rows in _alike(fits):
                some, inside = _trimmed(TrainingBox(plan=part.plan, legal=fits), rows)
                found = evaluate(*asked, some.plan, self.engine)
                at = np.ix_(*(outer[inner] for outer, inner in zip(where, inside, strict=True)))
                values[at] = np.broadcast_to(getattr(found.metrics, self.metric), some.legal.shape)
                times[at] = np.broadcast_to(found.metrics.step_time, some.legal.shape)
                reason[at] = np.broadcast_to(found.reason, some.legal.shape)
        good = box.legal & (reason == 0) & np.isfinite(values)
        scores = np.where(good, self.sign * values, -np.inf)
        return PricedPlans(scores=scores, times=times, used=used, limit=limit), reason

    def listed(self, some: Plan, count: int, where: str | None = None) -> PricedPlans:
        """Plans of a list, those that the condition on plans leaves."""
        where = self.where if where is None else where
        found = evaluate(self.system, self.model, self.workload, some, self.engine)
        wide = (getattr(found.metrics, self.metric), found.metrics.step_time, found.metrics.memory_used)
        values, times, used = (np.broadcast_to(np.asarray(each, float), count) for each in wide)
        good = np.broadcast_to(found.fits, count) & np.isfinite(values)
        if where:
            good = good & holds_at(where, named_degrees(some), count, "where")
        scores = np.where(good, self.sign * values, -np.inf)
        limit = float(np.min(found.metrics.memory_limit))
        return PricedPlans(scores=scores, times=times, used=used, limit=limit)


def ranked_training(
    system: System,
    model: Model,
    workload: Workload,
    engine: Engine | str,
    *,
    metric: str,
    top: int,
    where: str = "",
) -> list[RankedPlan]:
    """The best plans of training for a workload whose batch may be a list, of all batches together."""
    higher = known_metric(metric, workload.phase).higher_is_better
    found = [
        search_training(
            system, model, replace(workload, batch=float(batch)), engine, metric=metric, top=top, where=where
        )
        for batch in np.atleast_1d(np.asarray(workload.batch, float))
    ]
    counts: dict[str, Any] = {
        "considered": sum(one.considered for one in found),
        "feasible": sum(one.feasible for one in found),
        "placed": sum(choice.placed for one in found for choice in one.choices[:1]),
    }
    every = [choice for one in found for choice in one.choices]
    every.sort(key=lambda c: float(getattr(c.result.metrics, metric)) * (-1.0 if higher else 1.0))
    return [replace(choice, rank=rank, **counts) for rank, choice in enumerate(every[:top])]


def training_box(
    system: System, model: Model, batch: float, engine: Engine | str = "megatron", where: str = ""
) -> TrainingBox:
    """The plans that are priced: what a training framework runs, or all of them where there is no software;
    `where` keeps some by a condition over degrees.
    """
    bare = not has_host_time(as_engine(engine))
    schedules = ("1f1b", "zero-bubble", "dualpipe") if bare else ("1f1b",)
    devices = int(float(system.devices))
    box = plans_of_training(devices, model, batch, schedules=schedules, freely=bare)
    if where:
        places = np.flatnonzero(box.legal)
        kept = holds_at(where, named_degrees(box.at(places)), len(places), "where")
        require(bool(kept.any()), "no legal plan is left by the condition on plans", where=where)
        legal = np.zeros(box.legal.size, bool)
        legal[places[kept]] = True
        box = TrainingBox(plan=box.plan, legal=legal.reshape(box.legal.shape))
        box, _ = _trimmed(box)
    if not box.size:
        raise BadValue(
            f"{model.name} has no plan of training on {devices} devices with a batch of {batch:g}: "
            "tp must go with its heads, pp with its layers and dp must divide the batch; "
            f"nearest batches: {batch_neighbours(batch, devices)}"
        )
    return box


def batch_neighbours(batch: float, parts: float) -> str:
    """The nearest batches that so many ranks divide.

    >>> batch_neighbours(1000, 512), batch_neighbours(3, 8)
    ('512 or 1024', '8')
    """
    below = np.floor(batch / parts) * parts
    return f"{below:g} or {below + parts:g}" if below else f"{below + parts:g}"


def _trimmed(box: TrainingBox, rows: np.ndarray | None = None) -> tuple[TrainingBox, list[np.ndarray]]:
    """The box, or some rows of its first axis, without places of an axis at which no plan is legal; and the
    places that are left, by axis.
    """
    plan, legal, where = box.plan, box.legal, []
    for axis in range(legal.ndim):
        inside = legal if rows is None or axis else legal[rows]
        kept = np.flatnonzero(inside.any(axis=tuple(a for a in range(legal.ndim) if a != axis)))
        kept = kept if rows is None or axis else rows[kept]
        where.append(kept)
        legal = np.take(legal, kept, axis)
        cut = {
            f.name: np.take(value, kept, axis)
            for f in fields(Plan)
            if np.ndim(value := getattr(plan, f.name)) and value.shape[axis] > 1
        }
        plan = replace(plan, **cut)
    return TrainingBox(plan=plan, legal=legal), where


def _alike(fits: np.ndarray) -> list[np.ndarray]:
    """Rows of a box of which some plan fits, those together that fit with the same recomputation, schedules
    and ZeRO levels: others of their box would be priced for nothing. Few rows alike join the rest.
    """
    levers = fits.any(axis=1).reshape(fits.shape[0], -1)
    kinds, which, often = np.unique(levers, axis=0, return_inverse=True, return_counts=True)
    few = often < ROWS_ALIKE
    which = np.where(few[which.ravel()], -1, which.ravel())
    which[~levers.any(axis=1)] = len(kinds)
    return [np.flatnonzero(which == kind) for kind in np.unique(which) if kind < len(kinds)]


def _best_of_each_mesh(box: TrainingBox, scores: np.ndarray) -> np.ndarray:
    """Flat places of the best plan of every mesh that has one, best first."""
    each = scores.reshape(scores.shape[0], -1)
    place = each.argmax(axis=1)
    best = each[np.arange(len(each)), place]
    meshes = np.stack([getattr(box.plan, name).ravel() for name in DIVIDED], axis=1)
    _, which = np.unique(meshes, axis=0, return_inverse=True)
    order = np.argsort(-best, kind="stable")
    order = order[np.isfinite(best[order])]
    _, first = np.unique(which.ravel()[order], return_index=True)
    rows = order[np.sort(first)]
    found: np.ndarray = rows * each.shape[1] + place[rows]
    return found


def _other_orders(asked: _Asked, found: Plan, worth: np.ndarray) -> tuple[np.ndarray, int]:
    """The best order on the fabric for each plan, whose `worth` it raises; how many were priced."""
    orders = np.zeros(len(worth))
    if not orders_matter(asked.system.fabric):
        return orders, 0

    def score(rows: Plan) -> np.ndarray:
        return asked.listed(rows, np.size(rows.order), where="").scores[None]

    every = np.arange(len(worth))
    return orders, try_orders(asked.system, found, score, worth[None], orders[None], every, every[:1])
