"""Kernels or blocks shared out over the stages of a pipeline so that the slowest stage is quickest, exactly.

A stage is what lies between two order ideals of the graph; a chain of ideals is a pipeline. The best chain is
a dynamic program over all of them; on a chain of blocks that is the classic contiguous partition.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue, require
from strata.mapping.layout import STAGES, Layout
from strata.mapping.shard import shard
from strata.optimise.fusion.ideals import as_rows, order_ideals
from strata.optimise.layout import LayoutSetting
from strata.optimise.layouts.layout_rules import LayoutRules, layout_rules
from strata.pricing.pricers import price_op
from strata.workload.graph import Collective, is_collective

IDEALS_LIMIT = 4000


@dataclass(frozen=True)
class StageTensor:
    """A tensor between kernels: who makes it, who reads it, and the time of sending it to another stage."""

    producer: int
    readers: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, eq=False, kw_only=True)
class StagePartition:
    """Kernels of each stage, with the time of its kernels, of what it sends, and of the slowest stage.

    `bound`: below which no partition can be; equal to `slowest` where all ideals were looked at.
    """

    stages: tuple[tuple[int, ...], ...]
    work: tuple[float, ...]
    sent: tuple[float, ...]
    slowest: float
    bound: float
    ideals: int

    @property
    def proved(self) -> bool:
        return self.bound >= self.slowest * (1.0 - 1e-12)


def partition_stages(
    times: Sequence[float],
    tensors: Sequence[StageTensor],
    stages: int,
    rules: LayoutRules | str = "strata",
    limit: int = IDEALS_LIMIT,
) -> StagePartition:
    """The partition of kernels over at most so many stages whose slowest stage is quickest.

    Kernels are numbered in an order in which each stands after those it reads. With more ideals than `limit`
    only stages that are contiguous in that order are looked at, and `bound` says how far that may be off.

    >>> chain = [StageTensor(i, (i + 1,), 0.1) for i in range(3)]
    >>> found = partition_stages([1.0, 2.0, 3.0, 1.0], chain, 2)
    >>> found.stages, round(found.slowest, 3), found.proved
    (((0, 1), (2, 3)), 4.0, True)
    """
    require(stages >= 1, "a pipeline has at least one stage", stages=stages)
    stated, count = layout_rules(rules), len(times)
    before: list[set[int]] = [set() for _ in range(count)]
    for tensor in tensors:
        for reader in tensor.readers:
            if reader <= tensor.producer:
                raise BadValue(
                    f"kernel {reader} reads what kernel {tensor.producer} makes, which is after it"
                )
            before[reader].add(tensor.producer)
    ideals = order_ideals([frozenset(found) for found in before], limit)
    every = ideals is not None
    rows = np.tril(np.ones((count + 1, count)), -1) if ideals is None else as_rows(ideals, count)
    work, sent = _stage_costs(rows, np.asarray(times, float), tensors, stated)
    cost = np.maximum(work, sent) if stated.stages == "max" else work + sent
    slowest, chain = _best_chain(np.where(_nested(rows), cost, np.inf), stages)
    pairs = list(itertools.pairwise(chain))
    least = slowest if every else max(*times, sum(times) / stages)
    return StagePartition(
        stages=tuple(tuple(int(k) for k in np.nonzero(rows[j] - rows[i])[0]) for i, j in pairs),
        work=tuple(float(work[i, j]) for i, j in pairs),
        sent=tuple(float(sent[i, j]) for i, j in pairs),
        slowest=slowest,
        bound=least,
        ideals=len(rows),
    )


def kernel_stages(
    setting: LayoutSetting, layout: Layout, stages: int, rules: LayoutRules | str = "strata"
) -> tuple[tuple[str, ...], StagePartition]:
    """Kernels of a program's first block under a layout, and their best partition over stages.

    A collective counts with the kernel that waits for it; tensors are sent over the mesh dimension `pp`.
    """
    rank = setting.rank
    require(
        STAGES in rank.placement.groups, f"the mesh has a dimension {STAGES}", mesh=", ".join(setting.mesh)
    )
    sharding = layout.sharding(setting.graph, setting.work, layout.active())
    block = shard(setting.graph, sharding).blocks[0]
    names, times, made = list[str](), list[float](), dict[str, tuple[int, float]]()
    readers: dict[str, list[int]] = {}
    waiting = 0.0
    for op in block.ops:
        seconds = float(price_op(op, rank).time)
        if is_collective(op):
            waiting += seconds
            continue
        for tensor in op.inputs:
            readers.setdefault(tensor, []).append(len(names))
        send = Collective(pattern="send", group=STAGES, payload=op.output_bytes())
        made[op.output] = (len(names), float(price_op(send, rank).time))
        names.append(op.name)
        times.append(seconds + waiting)
        waiting = 0.0
    if waiting:
        times[-1] += waiting
    tensors = [StageTensor(n, tuple(readers.get(t, ())), seconds) for t, (n, seconds) in made.items()]
    return tuple(names), partition_stages(times, tensors, stages, rules)


def _nested(rows: Array) -> Array:
    """Whether the first of two ideals lies inside of the second and is not the same."""
    size = rows.sum(1)
    inside: Array = (rows @ rows.T == size[:, None]) & (size[:, None] < size[None, :])
    return inside


def _stage_costs(
    rows: Array, times: Array, tensors: Sequence[StageTensor], rules: LayoutRules
) -> tuple[Array, Array]:
    """Time of the kernels between two ideals, and of what that stage sends.

    A tensor that skips stages is sent by the stage that makes it, or by every stage that it passes.
    """
    total = rows @ times
    work = total[None, :] - total[:, None]
    made = np.array([rows[:, t.producer] for t in tensors]).T.reshape(len(rows), -1)
    read = [rows[:, list(t.readers)].min(1) if t.readers else np.ones(len(rows)) for t in tensors]
    pending = made * (1.0 - np.array(read).T.reshape(len(rows), -1))
    crossing = pending * np.array([t.seconds for t in tensors])
    if rules.skips == "every stage":
        return work, np.broadcast_to(crossing.sum(1)[None, :], work.shape)
    return work, crossing.sum(1)[None, :] - made @ crossing.T


def _best_chain(cost: Array, stages: int) -> tuple[float, list[int]]:
    """The chain of ideals from first to last, of at most so many steps, whose costliest step is least."""
    count = len(cost)
    if count == 1:
        return 0.0, [0]
    best = np.full(count, np.inf)
    best[0] = -np.inf
    steps = []
    for _ in range(stages):
        table = np.maximum(best[:, None], cost)
        np.fill_diagonal(table, best)  # a stage may stay empty
        steps.append(table.argmin(0))
        best = table.min(0)
    place, chain = count - 1, [count - 1]
    for step in reversed(steps):
        place = int(step[place])
        if place != chain[-1]:
            chain.append(place)
    return float(best[-1]), chain[::-1]
