"""The best layouts and partitions of a layer on one mesh, together: branch and bound over layouts.

A node is a set of open options for every module. Its bound is the larger of the two of `joint_bound`; a node
of one layout is priced exactly by the shortest path over order ideals of every block. Best nodes come first,
so that the bound of the layer is that of the next node at any time.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadValue
from strata.optimise.fuse import too_large
from strata.optimise.layout import LayoutSetting, best_layout
from strata.optimise.layouts.layout_options import LayoutRules, chosen_layout, module_options
from strata.optimise.mappings.joint_bound import OpenLayer, shares_grid
from strata.optimise.mappings.joint_problem import (
    BesideLayers,
    LayerCertificate,
    LayerMapping,
    MappedBlock,
    MapSettings,
    RankRoom,
    fusion_blocks,
)
from strata.optimise.mappings.joint_steps import SLACK, LeafFusion, NarrowedSteps, dram_missing

NOWHERE = float("inf")
FEW = 5000  # partitions of a block that are quick to price
NEAR = 3e-5  # share by which layouts may be slower and still be kept: gradients may make them the best
MANY = 256  # of these


@dataclass(eq=False)
class _Node:
    """Open options with their bound, and what is left of every block: partitions and their own bounds."""

    bound: float
    number: int
    alive: dict[str, Array]
    steps: list[NarrowedSteps | None]
    floors: list[float]

    def __lt__(self, other: _Node) -> bool:
        return (self.bound, self.number) < (other.bound, other.number)


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
    reduced_floors: list[float] = field(default_factory=list)  # of layouts below the next
    reduced_below: float = NOWHERE

    def __post_init__(self) -> None:
        options = module_options(self.setting.graph, self.setting.mesh, self.rules, self.pinned)
        for module, own in options.items():
            if not len(own):
                mesh = ",".join(f"{d}={n:g}" for d, n in self.setting.mesh.items())
                raise BadValue(f"no layout of module {module} divides it evenly over {mesh} as it is pinned")
        self.layer = OpenLayer(self.setting, self.rules, self.told, options)
        self.root = self.layer.whole
        self.beside, self.deadline, self.loose = BesideLayers(), NOWHERE, NOWHERE
        self.cramped = False
        self.shares = shares_grid(self.told.rules.overlap)
        self.order = list(
            dict.fromkeys(m for b in self.layer.blocks for m in b.module.values() if m in options)
        )
        self.order += [m for m in options if m not in self.order]

    @property
    def combinations(self) -> int:
        return math.prod(len(own) for own in self.layer.options.values())

    @cached_property
    def root_floors(self) -> list[float]:
        """Bounds of the blocks over all layouts."""
        return [block.prepare(self.root) for block in self.layer.blocks]

    @property
    def floor(self) -> float:
        """Below every mapping of the layer."""
        blocks = zip(self.layer.blocks, self.root_floors, strict=True)
        return max(sum(b.times * f for b, f in blocks), self.sums)

    def forward(self, floors: list[float]) -> float:
        """The part of blocks' times that goes forward."""
        blocks = zip(self.layer.blocks, floors, strict=True)
        return sum(b.times * f for b, f in blocks if b.block.direction == "forward")

    @cached_property
    def too_large(self) -> str:
        """One line on a kernel that fits no partition under any layout."""
        pricers = (block.pricer(self.root) for block in self.layer.blocks)
        return next((why for pricer in pricers if (why := too_large(pricer.problem, pricer))), "")

    @cached_property
    def sums(self) -> float:
        """Below every mapping: the best weighted sum of compute, memory and network."""
        found = [(s, f) for s in self.shares if (f := self.layer.sum_bound(s, self.root)) is not None]
        found.sort(key=lambda pair: -pair[1].value)
        self.shares = tuple(shares for shares, _ in found)
        self.starts = [f.choice for _, f in found]
        return found[0][1].value if found else 0.0

    def solve(
        self,
        room: RankRoom,
        limit: float = NOWHERE,
        deadline: float = NOWHERE,
        progress: Callable[[float, float], None] | None = None,
        beside: BesideLayers | None = None,
    ) -> LayerCertificate:
        """The best mapping quicker than `limit`, with a bound, and those that are hardly slower; `beside`:
        what a step takes beside its layers. Ctrl-C ends it with the best so far.
        """
        self.beside, self.deadline, self.loose = beside or BesideLayers(), deadline, NOWHERE
        self.cramped, self.reduced_floors, self.reduced_below = False, [], NOWHERE
        pool: list[LayerMapping] = []
        heap: list[_Node] = []
        now, worst, stopped, interrupted = self.sums, limit, False, False
        try:
            root = self._root(room, limit) if np.isfinite(limit) else None  # most limits leave nothing
            first = self._first(room, limit) if root is not None or not np.isfinite(limit) else None
            if first is not None:
                pool.append(first)
                worst = min(limit, first.time)
                root = self._root(room, worst * (1 + NEAR))
            elif not np.isfinite(limit):
                root = self._root(room, limit)
            heap += [] if root is None else [root]
            now = NOWHERE
            while heap and heap[0].bound < worst * (1 + (NEAR if len(pool) < MANY else -SLACK)):
                if stopped := time.perf_counter() >= deadline:
                    break
                node = heapq.heappop(heap)
                now = node.bound
                if progress is not None:
                    progress(worst, node.bound)
                for found in self._expanded(node, heap, room, worst * (1 + NEAR)):
                    pool.append(found)
                    worst = min(worst, found.time)
                now = NOWHERE
        except KeyboardInterrupt:
            stopped = interrupted = True
        left = min((node.bound for node in heap), default=NOWHERE)
        beyond = min(left, now, self.loose, worst * (1 + NEAR))
        unique = {tuple(m.options.items()): m for m in pool if m.time <= worst * (1 + NEAR)}
        near = tuple(sorted(unique.values(), key=lambda m: m.time))
        best = near[0] if near and near[0].time < limit else None
        return LayerCertificate(
            best=best,
            bound=min(beyond, worst),
            nodes=self.nodes,
            layouts=len(self.priced),
            combinations=self.combinations,
            reason=self.reason if best is None else "",
            stopped=(stopped and min(left, now) < worst * (1 - SLACK)) or self.loose < worst * (1 - 1e-6),
            interrupted=interrupted,
            cramped=self.cramped,
            forward=(self.forward(self.reduced_floors or self.root_floors), self.reduced_below),
            near=near,
            beyond=beyond,
        )

    def _expanded(
        self, node: _Node, heap: list[_Node], room: RankRoom, worst: float
    ) -> Iterator[LayerMapping]:
        """The mapping of a node of one layout; the children of others go to the heap."""
        module = self._divided(node)
        if module is None:
            found = self.price({m: int(a[0]) for m, a in node.alive.items()}, room, worst, node.steps)
            if found is not None and found.time < worst:
                yield found
            return
        made = []
        for option in node.alive[module]:
            child = self._child(node, {**node.alive, module: np.array([option])}, worst, room)
            made += [] if child is None else [child]
        for child in made:  # all or none, wherever Ctrl-C comes
            heapq.heappush(heap, child)

    def _root(self, room: RankRoom, worst: float) -> _Node | None:
        """The node of all options that cheap bounds leave; None where nothing is quicker than `worst`."""
        blocks = self.layer.blocks
        steps = [block.steps for block in blocks]
        node = _Node(self.floor, 0, self.root, steps, list(self.root_floors))
        if not np.isfinite(worst) or self.combinations == 1:
            return node
        alive = self._reduced(room, worst)
        if alive is None:
            return None
        found = self._child(node, alive, worst, room)
        if found is not None:
            self.reduced_floors, self.reduced_below = found.floors, worst
        return found

    def _child(self, node: _Node, alive: dict[str, Array], worst: float, room: RankRoom) -> _Node | None:
        """A node of fewer options with its bound; None where it is of no use."""
        self.nodes += 1
        held = self.layer.tables.held(room.keeps)
        if sum(float(w[alive[m]].min()) for m, w in held.items() if m in alive) > room.capacity:
            self.cramped = True
            self.reason = self.reason or "needs more DRAM than a chip has, in every layout that is open"
            return None
        send = self.beside.send(alive)
        low, going = node.bound, self.forward(node.floors)
        for shares in self.shares[:3]:
            found = self.layer.sum_bound(shares, alive)
            low = max(low, 0.0 if found is None else self.beside.total(found.value, going, alive))
            if low >= worst * (1 - SLACK):
                return None
        floors, steps = list(node.floors), list(node.steps)
        blocks = self.layer.blocks
        for place in sorted(range(len(blocks)), key=lambda i: step_count(steps[i])):
            block = blocks[place]
            rest = sum(b.times * f for i, (b, f) in enumerate(zip(blocks, floors, strict=True)) if i != place)
            own, steps[place] = block.bound(alive, steps[place], (worst - send - rest) / block.times)
            floors[place] = max(floors[place], own)
            layers = sum(b.times * f for b, f in zip(blocks, floors, strict=True))
            low = max(low, self.beside.total(layers, self.forward(floors), alive))
            if low >= worst * (1 - SLACK):
                return None
        return _Node(low, self.nodes, alive, steps, floors)

    def _reduced(self, room: RankRoom, worst: float) -> dict[str, Array] | None:
        """Options that may be part of something quicker than `worst` by what is cheap: weighted sums, and
        blocks of few partitions; None where a module has none.
        """
        alive = dict(self.root)
        small = [
            b.steps if b.steps is not None and len(b.steps.index) <= FEW else None for b in self.layer.blocks
        ]
        changed = True
        while changed:
            changed = False
            for module in self.order:
                keep = np.ones(len(alive[module]), bool)
                if len(keep) < 2:
                    continue
                for shares in self.shares[:3]:
                    keep &= self.layer.sum_marginals(shares, alive, module) < worst * (1 - SLACK)
                for place in np.nonzero(keep)[0]:
                    child = {**alive, module: alive[module][[place]]}
                    keep[place] = self._quick(child, small) < worst * (1 - SLACK)
                if not keep.any():
                    return None
                if not keep.all():
                    alive[module] = alive[module][keep]
                    changed = True
        return alive

    def _divided(self, node: _Node) -> str | None:
        """The module whose options are looked at one by one next: that which lifts the bound of the least
        block most; None where one layout is left.
        """
        several = [m for m in self.order if len(node.alive[m]) > 1]
        if len(several) < 2:
            return several[0] if several else None
        place = min(range(len(node.steps)), key=lambda i: step_count(node.steps[i]))
        block, steps = self.layer.blocks[place], node.steps[place]
        if steps is None or len(steps.index) > FEW:
            return several[0]
        best, most = several[0], -1.0
        for module in several:
            lifts = []
            for option in node.alive[module]:
                pricer = block.pricer({**node.alive, module: np.array([option])})
                lifts.append(min(steps.least(pricer) / node.floors[place] - 1.0, 1.0))
            score = float(np.prod(np.maximum(lifts, 1e-6)) ** (1.0 / len(lifts)))
            if score > most:
                best, most = module, score
        return best

    def _quick(self, alive: dict[str, Array], small: list[NarrowedSteps | None]) -> float:
        """A bound with all partitions of small blocks, and the first bound of others."""
        self.nodes += 1
        total = 0.0
        for block, steps, floor in zip(self.layer.blocks, small, self.root_floors, strict=True):
            own = floor if steps is None else max(floor, block.bound(alive, steps, NOWHERE)[0])
            total += block.times * own
        return total

    def first(self, room: RankRoom, deadline: float) -> LayerMapping | None:
        """A good mapping in no time."""
        self.beside, self.deadline = BesideLayers(), deadline
        _ = self.root_floors
        return self._first(room, NOWHERE)

    def _first(self, room: RankRoom, limit: float) -> LayerMapping | None:
        """A good layout to begin with: the quickest with kernels one after the other."""
        _ = self.sums
        starts = list(self.starts)
        if self.combinations > 1:
            try:
                chosen = best_layout(
                    self.setting, rules=self.layer.rules, pinned=self.pinned, time_limit=10.0
                )
                own = self.layer.options
                starts.insert(0, {m: own[m].choices.index(c) for m, c in chosen.options.items()})
            except BadValue:
                pass
        for choice in starts:
            found = self.price(choice, room, limit)
            if found is not None:
                return found
        return None

    def price(
        self,
        choice: dict[str, int],
        room: RankRoom,
        worst: float,
        steps: list[NarrowedSteps | None] | None = None,
    ) -> LayerMapping | None:
        """One layout with its best partitions, exactly; None where none fits or is below `worst`."""
        key = tuple(choice[m] for m in self.layer.options)
        if self.proved.get(key, 0.0) >= worst:
            return None
        held = self.layer.tables.held(room.keeps)
        kept = float(sum(w[choice[m]] for m, w in held.items() if m in choice))
        if kept > room.capacity:
            self.cramped = True
            least = float(sum(w.min() for m, w in held.items() if m in choice))
            self.reason = self.reason or dram_missing(max(least, room.capacity), kept, room.capacity)
            return None
        options = {m: own.choices[choice[m]] for m, own in self.layer.options.items()}
        layout = chosen_layout(self.setting.mesh, self.layer.options, choice)
        blocks = fusion_blocks(self.setting, layout, self.told)
        made: list[MappedBlock] = []
        only = {m: np.array([k]) for m, k in choice.items()}
        total, low, going = self.beside.send(only), 0.0, 0.0
        ways = {b.name: b.block.direction for b in self.layer.blocks}
        for one in blocks:
            leaf = LeafFusion(one.problem, (worst - total) / one.times, room.capacity - kept, self._left)
            place = next((i for i, b in enumerate(self.layer.blocks) if b.name == one.block), None)
            found = leaf.best(
                None if place is None else self.layer.blocks[place],
                None if place is None or steps is None else steps[place],
            )
            self.cramped |= leaf.cramped
            if found is None or not (found.feasible or np.isfinite(found.lower_bound)):
                if found is not None:
                    self.reason = found.reason
                if not (self.beside.sends or self.beside.elements):
                    self.proved[key] = worst if found is None else NOWHERE
                return None
            total += one.times * found.time
            low += one.times * found.lower_bound
            going += one.times * found.lower_bound * (ways.get(one.block) == "forward")
            made.append(MappedBlock(block=one.block, times=one.times, problem=one.problem, fusion=found))
        if low < sum(b.times * b.fusion.time for b in made) * (1 - SLACK):  # CP-SAT ran out of time
            self.loose = min(self.loose, self.beside.total(low, going, only))
        if not np.isfinite(total):
            self.reason = self.reason or "no partitions found in time"
            return None
        layers = sum(b.times * b.fusion.time for b in made)
        forward = sum(b.times * b.fusion.time for b in made if ways.get(b.block) == "forward")
        total = self.beside.total(layers, forward, only)
        live = max((p.dram for b in made for p in b.fusion.partitions), default=0.0)
        answer = LayerMapping(
            layout=layout, options=options, blocks=tuple(made), time=total, kept=kept + live
        )
        self.priced[key] = answer
        return answer

    @property
    def _left(self) -> float:
        """Seconds until the deadline, as CP-SAT takes them."""
        return min(60.0, max(0.01, self.deadline - time.perf_counter()))


def step_count(steps: NarrowedSteps | None) -> int:
    """Partitions that are left of a block."""
    return 0 if steps is None else len(steps.index)
