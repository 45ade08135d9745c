"""The best mapping of a program on a system: degrees, their place on the fabric, layouts and fused partitions
together, with one certificate.

Candidates are factorisations of the devices (`layout_degrees`). Each is bounded by compute alone, then by
weighted sums over all its layouts, then by fusion at the least of everything; whichever is lowest is looked
at next, and solved by branch and bound over layouts (`joint_layer`) only where none of these exceeds the best
step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.errors import BadValue, require
from strata.base.precision import bytes_of
from strata.base.records import Tabular, row_columns
from strata.base.rich_html import blocks_svg, display_html, rich_cards, table_html
from strata.base.units import finite_number, show
from strata.hardware.system import System, as_system
from strata.mapping.layout import STAGES, Layout, layout
from strata.mapping.place import place
from strata.mapping.rules import bounded_degree
from strata.optimise.fusion.fusion_graph import TILES, MapSpace, fused_space
from strata.optimise.layout import first_step
from strata.optimise.layouts.layout_degrees import REPLICAS, DegreeCandidate, DegreeSearch, degree_candidates
from strata.optimise.layouts.layout_options import LayoutRules, layout_rules, module_options
from strata.optimise.mappings.joint_problem import MapSettings, unstated_bytes
from strata.optimise.mappings.joint_search import OPTIMAL, CandidateSearch, MappedStep
from strata.pricing.fusion_rules import FusionRules, fusion_rules
from strata.software.engine import Engine
from strata.workload.dataflow import Dataflow
from strata.workload.graph import Collective
from strata.workload.program import program as make_program
from strata.workload.protocol import Program
from strata.workload.tasks import Workload

FREE = "free"
PARTITION = ("tiles", "time", "compute", "memory", "network", "sram", "traffic", "passes", "binds")


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramMapping(Tabular):
    """The best mapping found, and its certificate: no mapping has a step below `bound`."""

    best: MappedStep | None
    bound: float
    candidates: int  # factorisations and places on the fabric
    bounded: int  # of these never solved: their bound is above the best step
    nodes: int  # sets of layouts bounded
    layouts: int  # layouts priced in full, with all partitions
    space: MapSpace | None  # None: too many order ideals to count
    seconds: float
    reason: str  # why nothing fits
    stopped: bool  # out of time, or interrupted
    interrupted: bool = False  # by Ctrl-C
    collectives: tuple[Collective, ...]  # of all blocks under the best layouts
    given: str = ""  # the plan whose layouts were taken, where they were not searched

    @property
    def feasible(self) -> bool:
        return self.best is not None

    @property
    def gap(self) -> float:
        """How much shorter a step could be at most, as a share of this one's time."""
        return float("inf") if self.best is None else max(0.0, 1.0 - self.bound / self.best.step)

    @property
    def optimal(self) -> bool:
        return self.gap <= OPTIMAL

    @property
    def proof(self) -> str:
        """The certificate in words."""
        if self.best is None:
            return "no mapping fits" if not self.stopped else "nothing found in time"
        said = (
            f"{self.candidates:,} factorisations and placements, {self.bounded:,} of them "
            f"{'not looked into' if self.stopped else 'bounded away'}; "
            f"{self.nodes:,} sets of layouts bounded, {self.layouts:,} layouts fused exactly"
        )
        if self.given:
            said = f"partitions of every block, under the layouts of {self.given}"
        head = "optimal" if self.optimal else f"within {self.gap:.3%} of the best there is"
        return f"{head}: {said}"

    def __repr__(self) -> str:
        step = "none" if self.best is None else f"{show(self.best.step, 's')} a step"
        return f"ProgramMapping({step}, {self.proof})"

    def columns(self) -> dict[str, Any]:
        """Partitions of every block: kernels that run together, their times [s], rooms and traffic [B]."""
        blocks = self.best.layer.blocks if self.best else ()
        return row_columns(
            {
                "block": b.block,
                "times": b.times,
                "kernels": " ".join(p.kernels),
                **{name: getattr(p, name) for name in PARTITION},
            }
            for b in blocks
            for p in b.fusion.partitions
        )

    def _repr_html_(self) -> str:
        """For notebooks: partitions as wide as their time, coloured by what binds them."""
        if self.best is None:
            return display_html(f"Mapping: {self.reason or self.proof}")
        best = self.best
        mesh = ", ".join(f"{name} {size:g}" for name, size in best.candidate.mesh.items()) or "one device"
        cards = [
            ("time of a step", show(best.step, "s"), f"bound {show(self.bound, 's')}"),
            ("gap", f"{self.gap:.2%}", "optimal" if self.optimal else "to the bound"),
            ("mesh", mesh, f"{best.candidate.microbatches:g} micro-batches"),
            ("memory a device", show(best.memory, "B"), ""),
        ]
        rows = []
        for b in best.layer.blocks:
            drawn = [
                (
                    " ".join(p.kernels),
                    p.time,
                    p.binds,
                    f"{' '.join(p.kernels)}: {show(p.time, 's')}, {p.binds} binds",
                )
                for p in b.fusion.partitions
            ]
            rows.append((f"{b.block}, {b.times:g} times", drawn))
        layouts = [(module, " ".join(map(str, axes))) for module, axes in best.layer.options.items()]
        return display_html(
            f"Mapping, {self.proof}",
            rich_cards(cards),
            blocks_svg(rows),
            table_html(("module", "axes"), layouts, said="layouts"),
        )


def map_program(
    program: Program | str,
    system: System | str,
    workload: Workload,
    *,
    plan: str | Layout | dict[str, float] | None = None,
    rules: str | FusionRules = "strata",
    layouts: str | LayoutRules = "",
    tiles: Sequence[int] = TILES,
    pinned: Sequence[Sequence[str]] = (),
    engine: Engine | str = "ideal",
    microbatch: float = 0.0,
    together: float = 1.0,
    seconds: float = 60.0,
    progress: Callable[[float, float], None] | None = None,
) -> ProgramMapping:
    """The mapping of least step time, with its proof: degrees and placement, one layout for every module, and
    fused partitions with their tiles.

    `plan`: None or "free" searches all factorisations of the devices; degrees ("tp=8,dp=2", innermost on the
    fabric first) fix them and leave layouts free; a `Layout` fixes those too. `rules` name the rules of
    fusion, and those of layouts unless `layouts` says others. `pinned`: groups of kernels that stay together,
    in order.
    `microbatch`: sequences of a micro-batch, unless said one in training and all of a replica's elsewhere;
    `together`: micro-batches that stream through a partition before
    the next is loaded. `progress`: called with the best step and its bound. Ctrl-C ends the search with the
    best so far.
    """
    began, machine = time.perf_counter(), as_system(system)
    code = make_program(program) if isinstance(program, str) else program
    stated = fusion_rules(rules)
    words = layout_rules(layouts or (stated.name if isinstance(stated.name, str) else "strata"))
    require(seconds > 0, "seconds must be positive", seconds=seconds)
    work = first_step(workload)
    told = map_settings(code, work, stated, tiles, pinned, together)
    search = DegreeSearch(system=machine, program=code, workload=work, engine=engine, rules=words)
    every = map_candidates(search, plan, microbatch or 1.0)
    if not microbatch and work.phase != "train":
        every = [replace(candidate, microbatches=1.0) for candidate in every]
    pins = plan if isinstance(plan, Layout) else None
    outer = CandidateSearch(search, told, pins, began + seconds, progress)
    best, bound, bounded = outer.run(every)
    best = outer.quieted(best)
    searches = outer.searches.values()
    return ProgramMapping(
        best=best,
        bound=bound,
        candidates=len(every),
        bounded=bounded,
        nodes=sum(s.nodes for s in searches),
        layouts=sum(len(s.priced) for s in searches),
        space=_map_space(outer, every),
        seconds=time.perf_counter() - began,
        reason="" if best is not None else outer.reason,
        stopped=outer.stopped,
        interrupted=outer.interrupted,
        collectives=() if best is None else outer.collectives(best),
    )


def _map_space(outer: CandidateSearch, every: list[DegreeCandidate]) -> MapSpace | None:
    """The exact size of the space; None where a block has too many order ideals to count."""
    first = next(iter(outer.searches.values()), None)
    found = None if first is None else fused_space(block.base for block in first.layer.blocks)
    if found is None:
        return None
    fusions, words = found
    layouts, known = 0, dict[Any, int]()
    for candidate in every:
        key = tuple(sorted(candidate.inner.items()))
        if key not in known:
            setting = outer.search.setting(candidate)
            options = module_options(setting.graph, setting.mesh, outer.search.rules, {})
            known[key] = math.prod(len(own) for own in options.values())
        layouts += known[key]
    return MapSpace(
        candidates=len(every),
        layouts=layouts,
        fusions=fusions,
        mappings=layouts * fusions,
        counts=f"degrees and placements x a layout for every module x {words}, for every block",
    )


def map_settings(
    code: Any,
    work: Workload,
    rules: FusionRules,
    tiles: Sequence[int],
    pinned: Sequence[Sequence[str]],
    together: float,
) -> MapSettings:
    """What every layout of a program is fused with."""
    return MapSettings(
        rules=rules,
        tiles=tuple(sorted({int(n) for n in tiles})),
        together=together,
        pinned=tuple(tuple(group) for group in pinned),
        outside=outside_bytes(code, work),
    )


def map_candidates(
    search: DegreeSearch, plan: str | Layout | dict[str, float] | None, microbatch: float
) -> list[DegreeCandidate]:
    """All factorisations of the devices, or the one that is given."""
    if plan is None or plan == FREE:
        every = list(
            degree_candidates(
                search.system, search.layers, search.workload, ("tp",), search.rules, microbatch
            )
        )
        if not every:
            raise BadValue("no factorisation of the devices lies on the fabric and divides the batch")
        return every
    mesh = {d: float(n) for d, n in plan.mesh.items()} if isinstance(plan, Layout) else typed_degrees(plan)
    ranks, devices = float(np.prod(list(mesh.values()))), float(search.system.devices)
    require(ranks == devices, "the degrees must use all devices", degrees=ranks, devices=devices)
    require(
        mesh.get(STAGES, 1.0) <= search.layers, "there are no more stages than layers", pp=mesh.get(STAGES)
    )
    pieces = float(search.workload.batch) / (mesh.get(REPLICAS, 1.0) * microbatch)
    require(pieces >= 1 and pieces == int(pieces), "replicas and micro-batches must divide the batch",
            batch=float(search.workload.batch), dp=mesh.get(REPLICAS, 1.0))  # fmt: skip
    laid = Layout(dict(mesh))
    spread = place(laid, search.system.fabric, laid.active())
    return [DegreeCandidate(mesh=mesh, microbatches=pieces, placement=spread)]


def typed_degrees(plan: str | dict[str, float]) -> dict[str, float]:
    """Degrees of a mesh as typed, innermost on the fabric first.

    >>> typed_degrees("tp=8,dp=2")
    {'tp': 8.0, 'dp': 2.0}
    """
    if not isinstance(plan, str):
        return {name: float(degree) for name, degree in plan.items()}
    found = {}
    for item in plan.split(","):
        name, equals, value = item.strip().partition("=")
        degree = finite_number(value, name) if value.isdecimal() else 0.0
        if not equals or not name or degree < 1:
            raise BadValue(f"a plan is degrees like tp=8,pp=4,dp=2, but got '{item}'")
        found[name] = float(bounded_degree(degree, name))
    return found


def usual_layout(program: Dataflow, plan: str | dict[str, float]) -> Layout:
    """The layout that a program says it has under these degrees.

    >>> from strata.workload.program import program
    >>> usual_layout(program("gpt3-layer"), "tp=8").axes
    (('heads', ('tp',)), ('mlp', ('tp',)), ('samples', ('dp',)))
    """
    return layout(**program.layout(**typed_degrees(plan)))


def outside_bytes(program: Any, work: Workload) -> tuple[tuple[str, float], ...]:
    """Bytes of the tensors that come from outside, undivided."""
    if not isinstance(program, Dataflow):
        return (("ids", 0.0), *unstated_bytes(program.trace(work)))
    sizes = program.sized(work)
    width = float(bytes_of(program.precision))
    return tuple(
        (name, width * float(np.prod([float(sizes[axis]) for axis in axes]))) for name, axes in program.inputs
    )
