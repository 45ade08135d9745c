"""The best layouts and partitions of a layer on one mesh, together: branch and bound over layouts.

A node is a set of open options for every module. Its bound is the larger of the two of `joint_bound`; a node
of one layout is priced exactly by the shortest path over order ideals of every block. Best nodes come first, so
that the bound of the layer is that of the next node at any time.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue
from strata.mapping.layout import Layout
from strata.optimise.fuse import Fusion, fuse_kernels, priced_path, too_large
from strata.optimise.fuse_path import shortest_fusion
from strata.optimise.joint_bound import OpenBlock, OpenLayer, shares_grid
from strata.optimise.joint_steps import tensor_ends
from strata.optimise.joint_problem import BlockProblem, MapSettings, fusion_blocks
from strata.optimise.layout import LayoutSetting, chosen_layout
from strata.optimise.layout_states import RankMemory
from strata.optimise.layout_options import module_options
from strata.optimise.layout_rules import LayoutRules
from strata.optimise.partition_prices import PartitionPricer

SLACK = 1e-9  # of a comparison of sums in another order
NOWHERE = float("inf")
FEW = 5000  # partitions of a block that are quick to price
AGAIN = 40  # nodes after which partitions are looked through again


@dataclass(frozen=True, eq=False, kw_only=True)
class MappedBlock:
    """One block under a layout with its best partitions, and how often it runs."""

    block: str
    times: float
    problem: BlockProblem
    fusion: Fusion


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerMapping:
    """Layouts of all modules and partitions of all blocks: seconds of one micro-batch on one rank, all
    layers.
    """

    layout: Layout
    options: dict[str, tuple[str, ...]]
    blocks: tuple[MappedBlock, ...]
    time: float
    kept: float  # bytes a rank keeps of all layers, and the most that is alive at once besides


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerCertificate:
    """The best mapping of a layer quicker than a limit, if there is one, and what no mapping is quicker than."""

    best: LayerMapping | None
    bound: float
    nodes: int
    layouts: int  # priced in full
    combinations: int  # layouts there are
    reason: str = ""


@dataclass
class _Room:
    """What a rank may keep: bytes, and how they are counted."""

    capacity: float
    keeps: RankMemory


@dataclass(eq=False)
class LayerSearch:
    """Branch and bound over the layouts of one mesh; may be asked again with another limit."""

    setting: LayoutSetting
    rules: LayoutRules
    told: MapSettings
    pinned: dict[str, dict[str, str]] = field(default_factory=dict)
    nodes: int = 0
    priced: dict[tuple[int, ...], LayerMapping | None] = field(default_factory=dict)
    proved: dict[tuple[int, ...], float] = field(default_factory=dict)  # bounds of layouts cut short
    reason: str = ""

    def __post_init__(self) -> None:
        options = module_options(self.setting.graph, self.setting.mesh, self.rules, self.pinned)
        for module, own in options.items():
            if not len(own):
                raise BadValue(f"module {module} has no layout that divides it as it was pinned")
        self.layer = OpenLayer(self.setting, self.rules, self.told, options)
        self.root = self.layer.whole
        self.root_floors = [block.prepare(self.root) for block in self.layer.blocks]
        self.floors = list(self.root_floors)
        self.shares = shares_grid(self.told.rules.overlap)
        self.order = list(dict.fromkeys(m for b in self.layer.blocks for m in b.module.values() if m in options))
        self.order += [m for m in options if m not in self.order]

    @property
    def combinations(self) -> int:
        found = 1
        for own in self.layer.options.values():
            found *= len(own)
        return found

    @property
    def floor(self) -> float:
        """Below every mapping of the layer."""
        return max(self._least, self._sums)

    @property
    def _least(self) -> float:
        return sum(b.times * f for b, f in zip(self.layer.blocks, self.floors, strict=True))

    @property
    def _sums(self) -> float:
        if not hasattr(self, "_known_sums"):
            found = [self.layer.sum_bound(s, self.root) for s in self.shares]
            values = [f.value for f in found if f is not None]
            self._known_sums = max(values, default=0.0)
            ranked = sorted(
                (s for s, f in zip(self.shares, found, strict=True) if f is not None),
                key=lambda s: -next(f.value for g, f in zip(self.shares, found, strict=True) if g == s and f),
            )
            self.shares = tuple(ranked)
            self.starts = [f.choice for f in found if f is not None]
        return self._known_sums

    def solve(
        self,
        room: _Room,
        limit: float = NOWHERE,
        deadline: float = NOWHERE,
        progress: Callable[[float, float], None] | None = None,
    ) -> LayerCertificate:
        """The best mapping quicker than `limit`, with a bound."""
        for block in self.layer.blocks:
            block.steps = None
        self.floors = list(self.root_floors)
        best = self._first(room, limit)
        worst = limit if best is None else min(limit, best.time)
        floor = self.floor
        alive: dict[str, Array] | None = dict(self.root)
        if floor < worst * (1 - SLACK) and self.combinations > 1 and np.isfinite(worst):
            alive = self._reduced(room, worst, deadline)
            if alive is not None:
                best = self._start(alive, room, best, worst, deadline)
                worst = worst if best is None else min(worst, best.time)
                floor = max(floor, self._least)
        heap: list[tuple[float, int, dict[str, Array]]] = []
        if alive is not None and floor < worst * (1 - SLACK):
            heap.append((floor, 0, alive))
        count, again = 0, self.nodes + AGAIN
        while heap and heap[0][0] < worst * (1 - SLACK):
            if time.perf_counter() > deadline:
                break
            if self.nodes >= again:
                again = self.nodes + AGAIN
                self._narrow(_union([entry[2] for entry in heap]), worst)
            bound, _, alive = heapq.heappop(heap)
            if progress is not None:
                progress(worst, bound)
            module = next((m for m in self.order if len(alive[m]) > 1), None)
            if module is None:
                found = self.price({m: int(a[0]) for m, a in alive.items()}, room, worst)
                if found is not None and found.time < worst:
                    best, worst = found, found.time
                continue
            for option in alive[module]:
                child = {**alive, module: np.array([option])}
                self.nodes += 1
                low = max(bound, self.bound(child, worst, room))
                if low < worst * (1 - SLACK):
                    count += 1
                    heapq.heappush(heap, (low, count, child))
        left = min((entry[0] for entry in heap), default=worst)
        return LayerCertificate(
            best=best,
            bound=min(left, worst),
            nodes=self.nodes,
            layouts=len(self.priced),
            combinations=self.combinations,
            reason=self.reason if best is None else "",
        )

    def _first(self, room: _Room, limit: float) -> LayerMapping | None:
        """A good layout to begin with: the quickest with kernels one after the other."""
        _ = self.floor
        starts = list(self.starts)
        if self.combinations > 1:
            try:
                chosen = chosen_layout(self.setting, rules=self.layer.rules, pinned=self.pinned, time_limit=10.0)
                own = self.layer.options
                starts.insert(0, {m: own[m].choices.index(c) for m, c in chosen.options.items()})
            except BadValue:
                pass
        for choice in starts:
            found = self.price(choice, room, limit)
            if found is not None:
                return found
        return None

    def _start(
        self,
        alive: dict[str, Array],
        room: _Room,
        best: LayerMapping | None,
        worst: float,
        deadline: float,
    ) -> LayerMapping | None:
        """Better layouts from the least weighted sums of those that are open."""
        seen = list[dict[str, int]]()
        for shares in self.shares:
            found = self.layer.sum_bound(shares, alive)
            if found is None or found.choice in seen or time.perf_counter() > deadline:
                continue
            seen.append(found.choice)
            made = self.price(found.choice, room, worst)
            if made is not None and made.time < worst:
                best, worst = made, made.time
                self._narrow(alive, worst)
        return best

    def _narrow(self, alive: dict[str, Array], worst: float) -> None:
        """Bounds of blocks over open options, and only partitions that something quicker than `worst` holds."""
        for place, block in enumerate(self.layer.blocks):
            own = block.floor(alive) if block.steps is None else block.bound(alive)
            self.floors[place] = max(self.floors[place], own)
        spare = max(worst - self._least, 0.0)
        for block, floor in zip(self.layer.blocks, self.floors, strict=True):
            block.narrow(alive, floor + spare / block.times)

    def _reduced(self, room: _Room, worst: float, deadline: float) -> dict[str, Array] | None:
        """Options that may still be part of something quicker than `worst`, module by module; None where a
        module has none. First by what is cheap, then by all partitions.
        """
        alive = dict(self.root)
        small = [b for b in self.layer.blocks if b.every is not None and len(b.every.first) <= FEW]
        for blocks in (small, self.layer.blocks):
            changed = True
            while changed and time.perf_counter() < deadline:
                changed = False
                if blocks is not small:
                    self._narrow(alive, worst)
                    if self._least >= worst * (1 - SLACK):
                        return None
                for module in self.order:
                    keep = self._useful(alive, module, room, worst, blocks)
                    if not keep.any():
                        return None
                    if not keep.all():
                        alive[module] = alive[module][keep]
                        changed = True
        return alive

    def _useful(
        self, alive: dict[str, Array], module: str, room: _Room, worst: float, blocks: list[OpenBlock]
    ) -> Array:
        """Whether each open option of a module may be part of something quicker than `worst`."""
        keep = np.ones(len(alive[module]), bool)
        if len(keep) < 2:
            return keep
        for shares in self.shares[:3]:
            keep &= self.layer.sum_marginals(shares, alive, module) < worst * (1 - SLACK)
        for place in np.nonzero(keep)[0]:
            child = {**alive, module: alive[module][[place]]}
            self.nodes += 1
            keep[place] = self.bound(child, worst, room, blocks=blocks, sums=False) < worst * (1 - SLACK)
        return keep

    def bound(
        self,
        alive: dict[str, Array],
        worst: float,
        room: _Room,
        blocks: list[OpenBlock] | None = None,
        sums: bool = True,
    ) -> float:
        """Below every mapping of the open options; infinite where nothing fits or is quicker than `worst`."""
        held = self.layer.tables.held(room.keeps)
        kept = sum(float(w[alive[m]].min()) for m, w in held.items() if m in alive)
        if kept > room.capacity:
            return NOWHERE
        low = 0.0
        if sums:
            for shares in self.shares[:3]:
                found = self.layer.sum_bound(shares, alive)
                low = max(low, 0.0 if found is None else found.value)
                if low >= worst * (1 - SLACK):
                    return low
        total = self._least
        for floor, block in zip(self.floors, self.layer.blocks, strict=True):
            if blocks is not None and block not in blocks:
                continue
            total += block.times * max(block.bound(alive) - floor, 0.0)
            if total >= worst:
                return total
        return max(low, total)

    def price(self, choice: dict[str, int], room: _Room, worst: float) -> LayerMapping | None:
        """One layout exactly, with the best partitions of every block; None where it does not fit or is not
        quicker than `worst`.
        """
        key = tuple(choice[m] for m in self.layer.options)
        if self.proved.get(key, 0.0) >= worst:
            return None
        held = self.layer.tables.held(room.keeps)
        kept = float(sum(w[choice[m]] for m, w in held.items() if m in choice))
        if kept > room.capacity:
            self.reason = self.reason or _dram(kept, room.capacity)
            return None
        options = {m: own.choices[choice[m]] for m, own in self.layer.options.items()}
        modules = tuple((m, own.axes(choice[m])) for m, own in self.layer.options.items())
        layout = Layout(dict(self.setting.mesh), modules=modules)
        blocks = fusion_blocks(self.setting, layout, self.told)
        made: list[MappedBlock] = []
        total = 0.0
        for one in blocks:
            found = self._fused(one, (worst - total) / one.times, room.capacity - kept)
            if found is None or not found.feasible:
                if found is not None:
                    self.reason = found.reason
                self.proved[key] = worst if found is None else NOWHERE
                return None
            total += one.times * found.time
            made.append(MappedBlock(block=one.block, times=one.times, problem=one, fusion=found))
        live = max((p.dram for b in made for p in b.fusion.partitions), default=0.0)
        answer = LayerMapping(
            layout=layout, options=options, blocks=tuple(made), time=total, kept=kept + live
        )
        self.priced[key] = answer
        return answer

    def _fused(self, one: BlockProblem, worst: float, free: float) -> Fusion | None:
        """The best partitions of a block; None where they are not quicker than `worst`."""
        problem = one.problem
        own = next((b for b in self.layer.blocks if b.name == one.block), None)
        if own is None or own.every is None:
            return fuse_kernels(problem)
        pricer = PartitionPricer(problem)
        if own.steps is not None and own.steps.same(problem):
            path = own.steps.best(pricer)
            path = path if path is not None and path.time < worst else None
        elif tensor_ends(problem) == tensor_ends(own.base):
            path = shortest_fusion(pricer, own.every, worst * (1 + SLACK))
        else:
            return fuse_kernels(problem)
        if path is None:
            reason = too_large(problem, pricer)
            return fuse_kernels(problem) if reason else None
        found = priced_path(problem, pricer, path)
        found = replace(found, lower_bound=found.time, proof="shortest path over order ideals", method="ideals")
        if max(p.dram for p in found.partitions) > free:
            limited = replace(problem, chip=replace(problem.chip, dram_capacity=free))
            return fuse_kernels(limited)
        return found


def _union(nodes: list[dict[str, Array]]) -> dict[str, Array]:
    """Options that are open in some node."""
    return {m: np.unique(np.concatenate([node[m] for node in nodes])) for m in nodes[0]}


def _dram(need: float, room: float) -> str:
    return f"needs {need / 1e9:.4g} GB of DRAM a chip, has {room / 1e9:.4g} GB ({need / room:.3g} times)"


def rank_room(capacity: float, keeps: RankMemory) -> _Room:
    """What a rank may keep."""
    return _Room(capacity, keeps)
