"""Degrees and placement together: all factorisations of the devices.

A candidate is how many ranks divide a layer (one mesh dimension or several), how many stages a pipeline has,
how many replicas there are, and in which order these lie on the fabric.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from strata.base.arrays import Number
from strata.base.errors import require
from strata.base.precision import bytes_of
from strata.hardware.fabric import Fabric
from strata.hardware.system import System
from strata.mapping.layout import STAGES, Layout
from strata.mapping.place import Placement, place
from strata.mapping.shard import shard
from strata.optimise.layout import LayoutSetting, layout_setting
from strata.optimise.layouts.layout_options import LayoutRules
from strata.optimise.layouts.layout_states import RankMemory
from strata.pricing.network.collectives import price_collective
from strata.pricing.pipeline import pipeline_time
from strata.pricing.price import beside
from strata.pricing.training_memory import state_bytes
from strata.software.engine import Engine, as_engine, trainer_of
from strata.workload.graph import Collective, Graph
from strata.workload.protocol import Program
from strata.workload.tasks import Workload

REPLICAS = "dp"


@dataclass(frozen=True, eq=False, kw_only=True)
class DegreeCandidate:
    """Ranks of every mesh dimension, innermost on the fabric first, micro-batches, and where groups lie."""

    mesh: dict[str, float]
    microbatches: float
    placement: Placement

    @property
    def stages(self) -> float:
        return self.mesh.get(STAGES, 1.0)

    @property
    def replicas(self) -> float:
        return self.mesh.get(REPLICAS, 1.0)

    @property
    def inner(self) -> dict[str, float]:
        """Dimensions that divide a layer."""
        return {d: n for d, n in self.mesh.items() if d not in (STAGES, REPLICAS)}


@dataclass(eq=False)
class DegreeSearch:
    system: System
    program: Program
    workload: Workload
    engine: Engine | str
    rules: LayoutRules
    settings: dict[Any, LayoutSetting] = field(default_factory=dict)

    @cached_property
    def layers(self) -> float:
        return float(self.program.trace(self.workload).sequence.layers) or 1.0

    def micro(self, candidate: DegreeCandidate) -> Workload:
        share = float(self.workload.batch) / (candidate.replicas * candidate.microbatches)
        return replace(self.workload, batch=share)

    def setting(self, candidate: DegreeCandidate) -> LayoutSetting:
        work = self.micro(candidate)
        key = (tuple(candidate.inner.items()), float(work.batch))
        if key not in self.settings:
            self.settings[key] = layout_setting(
                self.system, self.program, work, dict(candidate.inner), self.engine
            )
        found = self.settings[key]
        return replace(found, rank=replace(found.rank, placement=candidate.placement))

    def stage_layers(self, candidate: DegreeCandidate) -> float:
        return float(np.ceil(self.layers / candidate.stages))

    def step_time(self, candidate: DegreeCandidate, stage: float, send: float) -> float:
        r"""Time of a step of all micro-batches, without sums over replicas [s].

        .. math:: T = (t + s)(m + P - 1), \qquad
                  T = t \left(1 + \frac{P - 1}{m \max(L - 1, 1)}\right) m + s m

        Priced: slowest stage t with its sends s, micro-batches m, stages P. Formula: L layers of a stage
        (DFModel's program, 2024: II (1 + (PP - 1) / (m (L - 1 or 1))) L batch / DP + p2p).
        """
        pieces, stages = candidate.microbatches, candidate.stages
        if self.rules.step == "priced":
            return float(pipeline_time(stage + send, stages, pieces))
        inner = max(self.stage_layers(candidate) - 1.0, 1.0)
        return float(stage * (1.0 + (stages - 1.0) / (pieces * inner)) * pieces + send * pieces)

    @cached_property
    def room(self) -> float:
        return float(self.system.chip.memory.capacity)

    def keeps(self, candidate: DegreeCandidate, setting: LayoutSetting) -> RankMemory:
        """Bytes of a device for what its layout keeps of all layers: those of its stage, with the state of an
        optimiser and the results of micro-batches on their way in training.
        """
        share = self.stage_layers(candidate) / self.layers
        if not trains(setting):
            return RankMemory(weight=share)
        flying = min(candidate.stages, candidate.microbatches)
        trainer = trainer_of(as_engine(self.engine))
        element = share * float(sum(state_bytes(0.0, 1.0, trainer, 0.0, 1.0)))
        return RankMemory(element=element, weight=share, result=share * flying)

    @property
    def gradient_bytes(self) -> Number:
        """Of a parameter whose gradient is summed over replicas."""
        return bytes_of(trainer_of(as_engine(self.engine)).reduced_gradients)

    def beside_layers(
        self, candidate: DegreeCandidate, layout: Layout, backward: float
    ) -> tuple[Graph, float, float]:
        """The graph of one rank, seconds of a micro-batch to the next stage and back, and what the sum of
        gradients over replicas adds beside so many seconds of backward pass.
        """
        setting, share = self.setting(candidate), self.stage_layers(candidate) / self.layers
        sharding = layout.sharding(setting.graph, setting.work, layout.active())
        local = shard(setting.graph, sharding)
        spread, fabric, training = candidate.placement, setting.rank.fabric, trains(setting)
        entry = next((b.entry for b in local.blocks if b.entry is not None), None)
        send = gradients = 0.0
        if STAGES in spread.groups and entry is not None:
            send = group_time("send", STAGES, entry.bytes(), spread, fabric) * (2.0 if training else 1.0)
        if training and REPLICAS in spread.groups:
            held = float(sum(b.count * op.weight_elements() for b, op in local.ops() if not op.backward))
            sent = group_time("all_reduce", REPLICAS, self.gradient_bytes * share * held, spread, fabric)
            gradients = float(beside(sent, backward, 0.0))  # beside the last backward pass
        return local, send, gradients


def group_time(pattern: str, group: str, payload: Number, spread: Placement, fabric: Fabric) -> float:
    """Seconds of a collective of a group, or of a hand-over along it, where it lies."""
    op = Collective(pattern=pattern, group=group, payload=payload)
    return float(price_collective(op, spread.groups[group], fabric).time)


def trains(setting: LayoutSetting) -> bool:
    """Whether a graph has a backward pass."""
    return any(op.backward for _, op in setting.graph.ops())


def degree_candidates(
    system: System,
    layers: float,
    workload: Workload,
    dimensions: Sequence[str],
    rules: LayoutRules,
    microbatch: float = 1.0,
) -> Iterator[DegreeCandidate]:
    """All factorisations of the devices, in every order that lies differently on the fabric."""
    devices, batch = int(float(system.devices)), float(workload.batch)
    require(microbatch > 0, "a micro-batch has at least one sequence", microbatch=microbatch)
    names = (*dimensions, STAGES, REPLICAS)
    for degrees in factorisations(devices, len(names)):
        mesh = dict(zip(names, map(float, degrees), strict=True))
        if mesh[STAGES] > layers or batch % (mesh[REPLICAS] * microbatch):
            continue
        several = [d for d in names if mesh[d] > 1]
        seen = set()
        for order in itertools.permutations(several):
            laid = Layout({d: mesh[d] for d in order} or {names[0]: 1.0})
            spread = place(laid, system.fabric, laid.active())
            key = tuple(
                (d, tuple((float(g.size), float(g.stride), float(g.members)) for g in spread.groups[d]))
                for d in several
            )
            if key in seen or (rules.placement == "one each" and not _one_each(spread, system)):
                continue
            seen.add(key)
            yield DegreeCandidate(
                mesh={d: mesh[d] for d in order} | {d: 1.0 for d in names if d not in order},
                microbatches=batch / (mesh[REPLICAS] * microbatch),
                placement=spread,
            )


def factorisations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of so many factors, in order.

    >>> list(factorisations(4, 2))
    [(1, 4), (2, 2), (4, 1)]
    """
    if parts == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            yield from ((first, *rest) for rest in factorisations(number // first, parts - 1))


def _one_each(spread: Placement, system: System) -> bool:
    """Whether every group fills fabric dimensions of its own."""
    sizes = [float(d.size) for d in system.fabric.dimension]
    for lies in spread.groups.values():
        used = [(float(g.size), size) for g, size in zip(lies, sizes, strict=True) if float(g.size) > 1]
        if any(size != whole for size, whole in used):
            return False
    return True
