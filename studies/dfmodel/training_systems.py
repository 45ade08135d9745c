"""Training on many systems at once, DFModel's way: kernels one by one, all as one, or fused as is best.

Axes of systems are chip, topology, memory and link, as in `study_machine`; degrees of parallelism may have
further axes before them. What is not solved is one call for all systems; a fusion is solved once for all
systems whose layer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from dfmodel.linear_parts import LinearLink, LinearMemory
from dfmodel.systems import Topology, along, study_machine, study_point
from dfmodel.training import (
    TILES,
    DfmodelPlan,
    TrainingLayer,
    batch_time,
    batch_utilisation,
    fusion_chip,
    given_fusion,
    layer_fusion,
    layer_times,
    partition_numbers,
    rank_links,
    training_layer,
)
from strata.base.arrays import Array, Number, map_leaves
from strata.hardware.chip import Chip
from strata.optimise.fuse import Fusion, fuse_kernels
from strata.optimise.fusion.fusion_problem import FusionProblem
from strata.optimise.layouts.layout_degrees import factorisations
from strata.pricing.fusion import partition_dram
from strata.pricing.fusion_rules import fusion_rules
from strata.workload.dataflow import Dataflow

APART, ONE = 0, 1  # partitions of a chip: each kernel its own, or all kernels one; more: the best of so many
Degrees = tuple[Number, Number, Number]  # tensor, pipeline and data parallel


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingSystems:
    """What systems are made of, and how each chip runs kernels: `partitions` for each chip, APART, ONE, or
    the most that a fusion may have. `outer`: the link of all dimensions but the innermost.
    """

    chips: Sequence[Chip]
    topologies: Sequence[Topology]
    memories: Sequence[LinearMemory]
    links: Sequence[LinearLink]
    outer: LinearLink
    partitions: Sequence[int]
    layers: float = 128.0
    batch: float = 3072.0
    overlap: str = "all"
    tiles: int = TILES

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self.chips), len(self.topologies), len(self.memories), len(self.links))

    def degrees(self) -> Degrees:
        """Tensor parallel ranks on the first dimension, stages on the second, data parallel on a third."""
        sizes = [(*s, 1.0, 1.0)[:3] for _, s in self.topologies]
        tp, pp, dp = (along(1, [s[i] for s in sizes]) for i in range(3))
        return tp, pp, dp


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedSystems:
    """What systems take: times of one layer and sequence [s] by resource and as a whole, that of a batch, the
    share of the peak; `fits`: memory holds it. `mappings`: the partition of each kernel by (memory, network).
    """

    compute: Array
    memory: Array
    network: Array
    interval: Array
    time: Array
    utilisation: Array
    fits: Array
    partitions: Array
    mappings: dict[str, tuple[int, ...]] = field(default_factory=dict)


def train_systems(
    program: Dataflow,
    systems: TrainingSystems,
    degrees: Degrees | None = None,
    known: dict[str, tuple[int, ...]] | None = None,
    solve: bool = True,
) -> TrainedSystems:
    """A batch of training on every system; `known` mappings of an earlier call are priced instead of solved,
    and with `solve` false chips that fuse are left at their lower bound.
    """
    degrees = systems.degrees() if degrees is None else degrees
    layer = training_layer(program, degrees[0])
    chips = list(systems.chips)
    machine = study_machine(chips, systems.topologies, systems.memories, systems.links)
    links = rank_links(degrees, systems.topologies, machine.link, systems.outer.bandwidth)
    plan = DfmodelPlan(layers=systems.layers, batch=systems.batch, **links)
    whole = along(0, [p == ONE for p in systems.partitions])
    point = study_point(layer_times(layer, plan, machine), machine, whole, systems.overlap)
    shape = np.broadcast_shapes(np.shape(plan.dp), np.shape(plan.tp), np.shape(point.time), systems.shape)
    parts = {
        n: np.array(np.broadcast_to(getattr(point, n), shape))
        for n in ("compute", "memory", "network", "time")
    }
    counts = np.where(whole > 0.0, 1.0, float(len(layer.names)))
    count = np.array(np.broadcast_to(counts, shape))
    fits = np.array(np.broadcast_to(_fits(layer, plan, systems), shape))
    used: dict[str, tuple[int, ...]] = {}
    for chip, most in enumerate(systems.partitions):
        if most in (APART, ONE):
            continue
        if not solve:
            parts["time"][..., chip, :, :, :] = np.maximum(parts["compute"], parts["network"])[
                ..., chip, :, :, :
            ]
            fits[..., chip, :, :, :] = True
            continue
        solver = _Solver(systems, chip, dict(known or {}), used)
        for place in np.ndindex(*shape):
            if place[-4] != chip:
                continue
            found = solver.at(_one(layer, place, shape), _one_plan(plan, place, shape), place)
            fits[place] = found.feasible
            count[place] = len(found.partitions)
            for name in ("compute", "memory", "network"):
                parts[name][place] = sum(getattr(p, name) for p in found.partitions)
            parts["time"][place] = found.time
    interval = parts.pop("time")
    time = np.where(fits, batch_time(interval, plan, layer.token), np.inf)
    utilisation = batch_utilisation(time, layer, plan, machine.peak)
    return TrainedSystems(
        interval=interval, time=time, utilisation=np.broadcast_to(utilisation, shape), fits=fits,
        partitions=count, mappings=used, **parts,
    )  # fmt: skip


def _one(layer: TrainingLayer, place: tuple[int, ...], shape: tuple[int, ...]) -> TrainingLayer:
    """The layer of one system: plain numbers but for its own axes."""
    made: dict[str, Any] = {}
    for f in fields(layer):
        value = getattr(layer, f.name)
        if f.name in ("names", "backward", "edges"):
            continue
        own = np.asarray(value, float)
        if f.name in ("useful", "token", "tp"):
            made[f.name] = float(np.broadcast_to(own, shape)[place])
        else:
            made[f.name] = np.broadcast_to(own, (*shape, own.shape[-1]))[place]
    return replace(layer, **made)


def _one_plan(plan: DfmodelPlan, place: tuple[int, ...], shape: tuple[int, ...]) -> DfmodelPlan:
    made: DfmodelPlan = map_leaves(lambda v: float(np.broadcast_to(v, shape)[place]), plan)
    return made


def _fits(layer: TrainingLayer, plan: DfmodelPlan, systems: TrainingSystems) -> Array:
    """Whether DRAM holds the weights of a stage and the tensors alive, and one partition its buffers and
    weights in SRAM.
    """
    count = len(layer.names)
    spans = np.array([[a <= k <= b for k in range(count)] for a, b in layer.edges], float)
    live = (layer.bytes @ spans).max(-1)
    whole = along(0, [p == ONE for p in systems.partitions])
    dram = partition_dram(layer.weights.sum(-1) * plan.stage, np.where(whole > 0, 0.0, live), 1.0)
    room = along(2, [m.capacity for m in systems.memories])
    sram = along(0, [c.cache.capacity for c in systems.chips])
    held = (layer.bytes * _depths(layer)).sum(-1) / systems.tiles + layer.weights.sum(-1)
    return (dram <= room) & ((whole == 0.0) | (held <= sram))


def _depths(layer: TrainingLayer) -> Array:
    """Tiles of each tensor inside of a partition of all kernels: difference of levels and one."""
    level = np.zeros(len(layer.names))
    for a, b in sorted(layer.edges, key=lambda pair: pair[1]):
        level[b] = max(level[b], level[a] + 1.0)
    return np.array([level[b] - level[a] + 1.0 for a, b in layer.edges])


@dataclass
class _Solver:
    """Fusions of one chip's layers, each solved once."""

    systems: TrainingSystems
    chip: int
    known: dict[str, tuple[int, ...]]
    used: dict[str, tuple[int, ...]]
    found: dict[str, Fusion] = field(default_factory=dict)

    def problem(self, layer: TrainingLayer, plan: DfmodelPlan, place: tuple[int, ...]) -> FusionProblem:
        memory = self.systems.memories[place[-2]]
        chip = fusion_chip(
            self.systems.chips[self.chip],
            dram_bandwidth=float(memory.bandwidth), dram_capacity=float(memory.capacity),
        )  # fmt: skip
        rules = fusion_rules("dfmodel-2024", compute="utilisation", overlap=self.systems.overlap)
        most = self.systems.partitions[self.chip]
        return layer_fusion(layer, plan, chip, rules=rules, tiles=(self.systems.tiles,), max_partitions=most)

    def at(self, layer: TrainingLayer, plan: DfmodelPlan, place: tuple[int, ...]) -> Fusion:
        problem = self.problem(layer, plan, place)
        network = sum(k.network[0] for k in problem.kernels)
        memory = problem.chip.dram_bandwidth / 1e9
        key = f"tp {layer.tp:g}, {memory:g} GB/s, {network * 1e9:.0f} ns, {plan.stage:g}"
        if key not in self.found:
            given = self.known.get(key)
            self.found[key] = fuse_kernels(problem) if given is None else given_fusion(problem, given)
        fusion = self.found[key]
        if fusion.feasible:
            self.used[key] = partition_numbers(problem, fusion)
        return fusion


# ----------------------------------------------------------------------------------------------- free degrees


def training_degrees(devices: int, heads: int, layers: int) -> Array:
    """All (TP, PP, DP) of so many devices, TP a divisor of the heads and PP one of the layers.

    >>> len(training_degrees(1024, 160, 128)), training_degrees(4, 2, 4).tolist()
    (45, [[1, 1, 4], [1, 2, 2], [1, 4, 1], [2, 1, 2], [2, 2, 1]])
    """
    every = factorisations(devices, 3)
    return np.array([d for d in every if heads % d[0] == 0 and layers % d[1] == 0], int)


@dataclass(frozen=True, eq=False, kw_only=True)
class FreeDegrees:
    """The best (TP, PP, DP) of every system, with what it reaches; axes chip, topology, memory, link."""

    tp: Array
    pp: Array
    dp: Array
    utilisation: Array
    solved: int  # fusions
    mappings: dict[str, tuple[int, ...]]


def free_degrees(
    program: Dataflow,
    systems: TrainingSystems,
    choices: Array,
    known: dict[str, tuple[int, ...]] | None = None,
    progress: Callable[[int], None] | None = None,
) -> FreeDegrees:
    """The best degrees of every system among `choices` (rows of TP, PP, DP), proved: all by one call where
    nothing is solved; where kernels are fused, in order of a lower bound until none can be better.
    """
    column = [choices[:, i].reshape(-1, 1, 1, 1, 1).astype(float) for i in range(3)]
    every = train_systems(program, systems, (column[0], column[1], column[2]), solve=False)
    best = np.array(every.utilisation)  # an upper bound where kernels are fused
    chosen = np.argmax(best, axis=0)
    value = np.max(best, axis=0)
    known, solved = dict(known or {}), 0
    used: dict[str, tuple[int, ...]] = {}
    for place in np.ndindex(*systems.shape):
        if systems.partitions[place[0]] in (APART, ONE):
            continue
        top, at = 0.0, 0
        for plan in np.argsort(-best[(slice(None), *place)], kind="stable"):
            if best[(plan, *place)] <= top:
                break
            one = replace(
                systems, chips=[systems.chips[place[0]]], topologies=[systems.topologies[place[1]]],
                memories=[systems.memories[place[2]]], links=[systems.links[place[3]]],
                partitions=[systems.partitions[place[0]]],
            )  # fmt: skip
            tp, pp, dp = (float(v) for v in choices[plan])
            found = train_systems(program, one, (tp, pp, dp), known)
            solved += len(set(found.mappings) - set(known))
            known |= found.mappings
            if found.utilisation.item() > top:
                top, at = found.utilisation.item(), int(plan)
                last = found.mappings
        if progress is not None:
            progress(solved)
        chosen[place], value[place] = at, top
        used |= last
    degrees = choices[chosen]
    return FreeDegrees(
        tp=degrees[..., 0], pp=degrees[..., 1], dp=degrees[..., 2], utilisation=value, solved=solved,
        mappings=used,
    )  # fmt: skip
