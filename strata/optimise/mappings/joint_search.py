"""The search over degrees and placements: candidates bounded with more and more effort, then solved."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadValue
from strata.mapping.layout import STAGES, Layout
from strata.optimise.layouts.layout_degrees import REPLICAS, DegreeCandidate, DegreeSearch, group_time, trains
from strata.optimise.layouts.layout_options import (
    chosen_layout,
    layout_rules,
    module_options,
    together_axes,
)
from strata.optimise.layouts.layout_states import RankMemory
from strata.optimise.mappings.joint_layer import LayerSearch
from strata.optimise.mappings.joint_problem import (
    BesideLayers,
    BlockProblem,
    LayerCertificate,
    LayerMapping,
    MapSettings,
    RankRoom,
    fusion_blocks,
)
from strata.workload.graph import Collective, is_collective

OPTIMAL = 1e-6  # gap below which a mapping is called optimal
DIVES = 8  # candidates that a first mapping is looked for in


@dataclass(frozen=True, eq=False, kw_only=True)
class MappedStep:
    """A candidate with the best mapping of its layers, and the parts of a step [s]."""

    candidate: DegreeCandidate
    layer: LayerMapping
    step: float
    stage: float  # of one micro-batch, slowest stage
    send: float  # of one micro-batch to the next stage and back
    gradients: float  # what sums of gradients over replicas add
    memory: float  # bytes a device needs


@dataclass(eq=False)
class CandidateSearch:
    """The search over candidates."""

    search: DegreeSearch
    told: MapSettings
    pins: Layout | None
    deadline: float
    progress: Callable[[float, float], None] | None
    searches: dict[Any, LayerSearch] = field(default_factory=dict)
    computes: dict[Any, float] = field(default_factory=dict)
    beside: dict[Any, tuple[float, float]] = field(default_factory=dict)
    known: dict[Any, tuple[RankMemory, LayerCertificate]] = field(default_factory=dict)
    solved: int = 0
    reason: str = ""
    stopped: bool = False
    interrupted: bool = False
    dived: MappedStep | None = None  # the best of a first look
    now: float = float("inf")  # bound of the candidate at hand
    least: float = float("inf")  # of what was solved, below its best

    def share(self, candidate: DegreeCandidate) -> float:
        return self.search.stage_layers(candidate) / self.search.layers

    def step(self, candidate: DegreeCandidate, layer: float) -> float:
        return self.search.step_time(candidate, self.share(candidate) * layer, 0.0)

    def key(self, candidate: DegreeCandidate) -> Any:
        groups = candidate.placement.groups
        spread = tuple(
            (d, tuple((float(g.size), float(g.stride)) for g in groups.get(d, ()))) for d in candidate.inner
        )
        return spread, float(self.search.micro(candidate).batch)

    def layer_search(self, candidate: DegreeCandidate) -> LayerSearch:
        key = self.key(candidate)
        if key not in self.searches:
            setting = self.search.setting(candidate)
            pinned = {} if self.pins is None else layout_pins(self.pins, setting.graph, setting.mesh)
            self.searches[key] = LayerSearch(setting, self.search.rules, self.told, pinned)
        return self.searches[key]

    def compute_floor(self, candidate: DegreeCandidate) -> float:
        """Kernels alone at the least of every layout: the same wherever the mesh lies."""
        key = (tuple(sorted(candidate.inner.items())), float(self.search.micro(candidate).batch))
        if key not in self.computes:
            compute = self.layer_search(candidate).layer.sums[0]
            self.computes[key] = float(sum(values.min() for values in compute.values()))
        return self.computes[key]

    def floor(self, candidate: DegreeCandidate, effort: int) -> float:
        """Seconds of a step below which a candidate is not; with more effort a higher bound. Infinite where
        its degrees divide no layout.
        """
        try:
            return self._floor(candidate, effort)
        except BadValue as error:
            self.reason = self.reason or str(error)
            return float("inf")

    def _floor(self, candidate: DegreeCandidate, effort: int) -> float:
        if effort == 0:
            return self.lower(candidate, self.compute_floor(candidate), 0.0)
        found = self.layer_search(candidate)
        if effort == 1:
            return self.lower(candidate, found.sums, 0.0)
        if not np.isfinite(found.floor):
            self.reason = self.reason or found.too_large
        return self.lower(candidate, found.floor, found.forward(found.root_floors))

    def lower(self, candidate: DegreeCandidate, layer: float, forward: float) -> float:
        r"""Below every step of a candidate whose layers take at least so long, and forward passes of them.

        .. math:: T \ge a (s t + h) + \max(0, g - s (t - f))

        with a micro-batches, share s of the layers, their time t, hand-overs h, forward pass f and gradients
        g, each at least: it does not fall as t grows.
        """
        if not np.isfinite(layer):
            return float("inf")
        send, sent = self.least_beside(candidate)
        share = self.share(candidate)
        hidden = share * max(layer - forward, 0.0)
        return self.search.step_time(candidate, share * layer, send) + max(0.0, sent - hidden)

    def least_beside(self, candidate: DegreeCandidate) -> tuple[float, float]:
        """The least seconds of a hand-over between stages, and of the sum of gradients over replicas."""
        key = ("beside", *candidate.mesh.items())
        if key not in self.beside:
            found, groups = self.layer_search(candidate), candidate.placement.groups
            send = min((s for costs in self.sends(candidate, found).values() for s in costs), default=0.0)
            sent = 0.0
            if trains(found.setting) and REPLICAS in groups:
                held = sum(float(w.min()) for w in found.layer.tables.elements.values())
                sent = self.gradient_sum(candidate, found, held)
            self.beside[key] = send, sent
        return self.beside[key]

    def solve(self, candidate: DegreeCandidate, best: MappedStep | None) -> MappedStep | None:
        """The best mapping of a candidate quicker than the best step so far.

        Its layers are solved once for all candidates that divide them alike, with all layouts that are hardly
        slower; where no other can be part of a quicker step than the best of these, that is the answer. Else
        they are solved again with what the step takes beside them.
        """
        found = self.layer_search(candidate)
        limit = float("inf") if best is None else best.step / self.step(candidate, 1.0)
        self.solved += 1
        known = self.shared(candidate, limit)
        forward, below = known.forward
        slower = self.lower(candidate, max(known.beyond, below), found.forward(found.root_floors))
        bound = min(self.lower(candidate, known.beyond, forward), slower)
        fastest = self.quickest(candidate, known)
        worst = min((x.step for x in (fastest, best) if x is not None), default=float("inf"))
        if bound < worst * (1 - OPTIMAL / 10) and not (known.stopped or self.interrupted):
            beside = self.beside_one(candidate, found)
            other = self.certificate(candidate, worst / self.step(candidate, 1.0), beside)
            bound = max(bound, other.beyond * self.step(candidate, 1.0))
            again = self.quickest(candidate, other)
            fastest = (
                again if fastest is None or (again is not None and again.step < fastest.step) else fastest
            )
        self.least = min(self.least, max(bound, self.now))
        return fastest

    def room(self, candidate: DegreeCandidate) -> RankRoom:
        keeps = self.search.keeps(candidate, self.layer_search(candidate).setting)
        return RankRoom(self.search.room, keeps)

    def shared(self, candidate: DegreeCandidate, limit: float) -> LayerCertificate:
        """The layers alone, as they were solved for a candidate that divides them alike and keeps no more."""
        key, keeps = self.key(candidate), self.room(candidate).keeps
        if key in self.known:
            other, known = self.known[key]
            sizes = ("element", "weight", "result")
            looser = all(getattr(other, size) <= getattr(keeps, size) for size in sizes)
            if (looser or not known.cramped) and (known.best is not None or known.bound >= limit):
                return known
        self.known[key] = keeps, self.certificate(candidate, limit, None)
        return self.known[key][1]

    def certificate(
        self, candidate: DegreeCandidate, limit: float, beside: BesideLayers | None
    ) -> LayerCertificate:
        one = self.step(candidate, 1.0)

        def tell(worst: float, bound: float) -> None:
            if self.progress is not None:
                self.progress(worst * one, bound * one)

        solution = self.layer_search(candidate).solve(
            self.room(candidate), limit, self.deadline, tell, beside
        )
        self.stopped |= solution.stopped
        self.interrupted |= solution.interrupted
        self.reason = solution.reason or self.reason
        return solution

    def quickest(self, candidate: DegreeCandidate, known: LayerCertificate) -> MappedStep | None:
        """The quickest step with the layers of a certificate."""
        every = [mapped for layer in known.near if (mapped := self.checked(candidate, layer)) is not None]
        return min(every, key=lambda mapped: mapped.step, default=None)

    def checked(self, candidate: DegreeCandidate, layer: LayerMapping | None) -> MappedStep | None:
        """A candidate's step with these layers; None where they do not fit its devices."""
        if layer is None:
            return None
        found = self.layer_search(candidate)
        held = found.layer.tables.held(self.room(candidate).keeps)
        options = {m: own.choices.index(layer.options[m]) for m, own in found.layer.options.items()}
        live = max((p.dram for b in layer.blocks for p in b.fusion.partitions), default=0.0)
        kept = sum(float(w[options[m]]) for m, w in held.items() if m in options) + live
        return self.priced(candidate, replace(layer, kept=kept)) if kept <= self.search.room else None

    def sends(self, candidate: DegreeCandidate, found: LayerSearch) -> dict[str, Array]:
        """Seconds of a hand-over between stages, there and back in training, by option of the boundary."""
        spread = candidate.placement
        block = next((b.block for b in found.layer.blocks if b.block.entry is not None), None)
        if STAGES not in spread.groups or block is None or block.role not in found.layer.options:
            return {}
        both = 2.0 if trains(found.setting) else 1.0
        sizes, fabric = found.layer.tables.entry_bytes(block), found.setting.rank.fabric
        times = [both * group_time("send", STAGES, float(size), spread, fabric) for size in sizes]
        return {block.role: np.array(times)}

    def beside_one(self, candidate: DegreeCandidate, found: LayerSearch) -> BesideLayers:
        """What a step takes beside its layers, as seconds of the layers that would make it as much longer."""
        one, share = self.step(candidate, 1.0), self.share(candidate)
        sends = {
            m: np.array([self.search.step_time(candidate, 0.0, s) / one for s in own])
            for m, own in self.sends(candidate, found).items()
        }
        if not (trains(found.setting) and REPLICAS in candidate.placement.groups):
            return BesideLayers(sends=sends)
        return BesideLayers(
            sends=sends,
            elements=found.layer.tables.elements,
            gradients=lambda held: self.gradient_sum(candidate, found, held) / one,
            hidden=share / one,
        )

    def gradient_sum(self, candidate: DegreeCandidate, found: LayerSearch, held: float) -> float:
        """Seconds of the sum of gradients over replicas, of ranks that hold so many elements."""
        payload = self.search.gradient_bytes * self.share(candidate) * held
        return group_time("all_reduce", REPLICAS, payload, candidate.placement, found.setting.rank.fabric)

    def priced(self, candidate: DegreeCandidate, layer: LayerMapping) -> MappedStep:
        share = self.share(candidate)
        blocks = {b.name: b.block.direction for b in self.layer_search(candidate).layer.blocks}
        time_of = [(b.times * b.fusion.time, blocks.get(b.block, "forward")) for b in layer.blocks]
        stage = share * sum(t for t, _ in time_of)
        backward = share * sum(t for t, way in time_of if way == "backward")
        _, send, gradients = self.search.beside_layers(candidate, layer.layout, backward)
        return MappedStep(
            candidate=candidate,
            layer=layer,
            step=self.search.step_time(candidate, stage, send) + gradients,
            stage=stage,
            send=send,
            gradients=gradients,
            memory=layer.kept,
        )

    def quieted(self, made: MappedStep | None) -> MappedStep | None:
        """A step that takes no longer and sends less, where there is one and time was left to look for it."""
        if made is None or self.stopped:
            return made
        found = self.layer_search(made.candidate)
        layer = quieter(found, made.layer, self.room(made.candidate), self.deadline)
        other = None if layer is made.layer else self.checked(made.candidate, layer)
        return other if other is not None and other.step <= made.step else made

    def collectives(self, made: MappedStep) -> tuple[Collective, ...]:
        """The collectives of one rank's blocks."""
        local, _, _ = self.search.beside_layers(made.candidate, made.layer.layout, 0.0)
        return tuple(op for _, op in local.ops() if is_collective(op))

    def dive(self, every: list[DegreeCandidate], waiting: list[tuple[float, int, int]]) -> MappedStep | None:
        """A first mapping: the quickest layout of the most promising candidates, fused."""
        best: MappedStep | None = None
        ranked = sorted((self.floor(every[n], 1), n) for _, _, n in heapq.nsmallest(DIVES * 4, waiting))
        for floor, n in ranked[:DIVES]:
            if not np.isfinite(floor):
                break
            if best is not None and (floor >= best.step or time.perf_counter() > self.deadline):
                break
            layer = self.layer_search(every[n]).first(self.room(every[n]), self.deadline)
            made = None if layer is None else self.priced(every[n], layer)
            if made is not None and (best is None or made.step < best.step):
                best = self.dived = made
        return best

    def run(self, every: list[DegreeCandidate]) -> tuple[MappedStep | None, float, int]:
        """The best step, its bound, and how many candidates were bounded away."""
        best: MappedStep | None = None
        waiting = [(self.floor(c, 0), 0, n) for n, c in enumerate(every)]
        heapq.heapify(waiting)
        try:
            best = self.dive(every, waiting)
            while waiting and np.isfinite(waiting[0][0]) and not self.interrupted:
                if best is not None and waiting[0][0] >= best.step * (1 - 1e-12):
                    break
                if time.perf_counter() > self.deadline:
                    self.stopped = True
                    break
                self.now, effort, n = waiting[0]
                heapq.heappop(waiting)
                if effort < 2:
                    heapq.heappush(waiting, (max(self.now, self.floor(every[n], effort + 1)), effort + 1, n))
                else:
                    made = self.solve(every[n], best)
                    best = made if made is not None and (best is None or made.step < best.step) else best
                self.now = float("inf")
        except KeyboardInterrupt:
            self.stopped = self.interrupted = True
            self.least = min(self.least, self.now)
            best = self.dived if best is None else best
        left = waiting[0][0] if waiting else float("inf")
        bound = min(left, self.least, float("inf") if best is None else best.step)
        return best, bound, len(every) - self.solved


def layout_pins(given: Layout, graph: Any, mesh: dict[str, Any]) -> dict[str, dict[str, str]]:
    """A layout as pins: by module and dimension the axis that lies there."""
    options = module_options(graph, mesh, layout_rules(), {})
    own = dict(given.modules)
    pins: dict[str, dict[str, str]] = {}
    for module, domain in options.items():
        said = dict(given.axes) | dict(own.get(module, ()))
        known = {chosen for choice in domain.choices for chosen in choice}
        pins[module] = {}
        for d in domain.dimensions:
            lying = [axis for axis, groups in said.items() if d in groups]
            held = [c for c in known if c and set(together_axes(c)) <= set(lying)]
            held.sort(key=lambda c: (-len(together_axes(c)), lying.index(together_axes(c)[0])))
            pins[module][d] = held[0] if held else ""
    return pins


EQUAL = 1 + 1e-12  # seconds that are the same but for rounding


def quieter(search: LayerSearch, found: LayerMapping, room: RankRoom, deadline: float) -> LayerMapping:
    """A mapping of a layer that takes no longer and communicates less, changed module by module as long as
    one change does both; the mapping itself where none does.
    """
    best, least = found, sent_seconds(found.blocks)
    changed = True
    while changed and time.perf_counter() < deadline:
        changed = False
        for module, own in search.layer.options.items():
            now = {m: o.choices.index(best.options[m]) for m, o in search.layer.options.items()}
            for place in range(len(own.choices)):
                choice = {**now, module: place}
                layout = chosen_layout(search.setting.mesh, search.layer.options, choice)
                blocks = fusion_blocks(search.setting, layout, search.told)
                if place == now[module] or sent_seconds(blocks) >= least * (1 - 1e-9):
                    continue
                made = search.price(choice, room, best.time * EQUAL)
                if made is not None and made.time <= best.time * EQUAL:
                    best, least, changed = made, sent_seconds(blocks), True
                    break
    return best


def sent_seconds(blocks: Sequence[BlockProblem]) -> float:
    """Time of all communication of blocks, hidden or not [s]."""
    return float(sum(b.times * sum(sum(k.network) for k in b.problem.kernels) for b in blocks))
