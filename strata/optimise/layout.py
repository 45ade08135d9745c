"""The exactly best layout between chips: one layout per kernel, with every collective that follows from it.

Tables of `layout_factors` are added up over modules; the least sum is found by bucket elimination where the
induced width allows it, else by cutset conditioning, with a proof or a gap.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from strata.base.arrays import Number
from strata.base.errors import BadValue, require
from strata.hardware.system import System, as_system
from strata.mapping.divide import without_idle_collectives
from strata.mapping.layout import STAGES, Layout
from strata.mapping.shard import shard
from strata.one_step import step_pricing
from strata.optimise.layouts.conditioning import ConditionedSearch
from strata.optimise.layouts.factor_graph import Assignment, eliminated, restricted, surviving
from strata.optimise.layouts.layout_factors import layout_tables
from strata.optimise.layouts.layout_options import LayoutRules, chosen_layout, layout_rules, module_options
from strata.optimise.layouts.layout_states import LayoutTables
from strata.pricing.pricers import Rank, price_op, rank_in_step
from strata.software.engine import Engine
from strata.workload.graph import Collective, Graph, is_collective
from strata.workload.program import program as make_program
from strata.workload.protocol import Program
from strata.workload.tasks import Workload

FIRST_LIMIT = 3_000_000  # entries of the largest table before options are narrowed by messages
ELIMINATION, CONDITIONING = "bucket elimination", "cutset conditioning"


@dataclass(frozen=True, eq=False, kw_only=True)
class LayoutChoice:
    """A layout with its certificate.

    `value`: the objective, seconds or bytes of all blocks (as often as they run); `bound`: below which no
    layout of the mesh can be. `time` is kernels and collectives one after the other, of the busiest rank.
    """

    layout: Layout
    value: float
    bound: float
    proved: bool
    method: str  # bucket elimination, or cutset conditioning
    options: dict[str, tuple[str, ...]]  # by module the axis on each dimension of the mesh
    collectives: tuple[tuple[str, Collective], ...]  # by block, as `shard` puts them in
    time: float
    compute: float
    communication: float
    combinations: float  # layouts there are
    kept: float  # of these, not beaten one module at a time
    width: int
    seconds: float  # that finding it took

    @property
    def gap(self) -> float:
        """How far above the bound the value may be, of the value."""
        return 0.0 if self.proved or self.value == 0 else (self.value - self.bound) / self.value


@dataclass(frozen=True, eq=False, kw_only=True)
class LayoutSetting:
    """What a layout is chosen for: a program's graph on the ranks of a system."""

    graph: Graph
    work: Workload
    mesh: dict[str, Number]
    rank: Rank


def layout_setting(
    system: System | str,
    program: Program | str,
    workload: Workload,
    mesh: dict[str, Number],
    engine: Engine | str = "ideal",
) -> LayoutSetting:
    """The graph and the rank that `evaluate` would price a layout of this mesh with."""
    code = make_program(program) if isinstance(program, str) else program
    degrees: dict[str, Number] = {name: float(degree) for name, degree in mesh.items()}
    bare = Layout(degrees)
    work = first_step(workload)
    pricing = step_pricing(as_system(system), code, work, bare, engine)
    graph = without_idle_collectives(pricing.unsharded_graph, bare.active())
    return LayoutSetting(graph=graph, work=work, mesh=degrees, rank=rank_in_step(pricing))


def first_step(workload: Workload) -> Workload:
    """The step a layout is chosen for: the first that generates, or the reading one."""
    reading, generating = workload.steps()
    if generating:
        return generating[0][1]
    assert reading is not None
    return reading


def best_layout(
    setting: LayoutSetting,
    *,
    rules: LayoutRules | str = "strata",
    pinned: dict[str, dict[str, str]] | None = None,
    time_limit: float = 60.0,
) -> LayoutChoice:
    """The best layout of a graph on a mesh of ranks, one per module, with its proof.

    `pinned`: module to mesh dimension to axis ("" for none), fixed.
    """
    start = time.perf_counter()
    stated, mesh, graph = layout_rules(rules), setting.mesh, setting.graph
    inside = {name: degree for name, degree in mesh.items() if name != STAGES}
    for module, told in (pinned or {}).items():
        for dimension in told:
            require(dimension in inside, f"{module} is pinned on a dimension of the mesh", on=dimension)
    options = module_options(graph, inside, stated, pinned or {})
    for module, own in options.items():
        if not len(own):
            raise BadValue(f"module {module} has no layout that divides it as it was pinned")
    tables = layout_tables(graph, setting.work, inside, setting.rank, stated, options)
    best, bound, how, kept = _solved(tables, time_limit)
    layout = chosen_layout(mesh, options, best.choice)
    compute, found = _priced(layout, setting)
    communication = sum(seconds for _, _, seconds in found)
    return LayoutChoice(
        layout=layout,
        value=best.value,
        bound=bound,
        proved=bound == best.value,
        method=how,
        options={m: own.choices[best.choice[m]] for m, own in options.items()},
        collectives=tuple((block, op) for block, op, _ in found),
        time=compute + communication,
        compute=compute,
        communication=communication,
        combinations=float(np.prod([float(len(o)) for o in options.values()])),
        kept=kept,
        width=best.width,
        seconds=time.perf_counter() - start,
    )


def _solved(tables: LayoutTables, time_limit: float) -> tuple[Assignment, float, str, float]:
    """The best choice, a bound of all, how it was found, and how many choices pruning left."""
    start, alive = time.perf_counter(), surviving(tables.factors, tables.hidden)
    small = restricted(tables.factors, alive)
    kept = float(np.prod([float(small.domains[m]) for m in tables.options]))
    best, how = eliminated(small, FIRST_LIMIT), ELIMINATION
    bound = best.value if best is not None else 0.0
    if best is None:
        search, how = ConditionedSearch(small, list(tables.options), start + time_limit).run(), CONDITIONING
        best = search.best
        if best is None:
            raise BadValue("no layout of this mesh was found; give it more time")
        bound = best.value if search.proved else min(search.bound, best.value)
    choice = {v: int(alive[v][k]) for v, k in best.choice.items()}
    return replace(best, choice=choice), bound, how, kept


def _priced(layout: Layout, setting: LayoutSetting) -> tuple[float, list[tuple[str, Collective, float]]]:
    """Seconds of a sharded graph's kernels, and its collectives with theirs."""
    graph = shard(setting.graph, layout.sharding(setting.graph, setting.work, layout.active()))
    compute, found = 0.0, list[tuple[str, Collective, float]]()
    for block in graph.blocks:
        for weight, ops in block.at_nodes():
            share = float(block.times) * float(weight if block.nodes else 1.0)
            for op in ops:
                seconds = share * float(price_op(op, setting.rank).time)
                if is_collective(op):
                    found.append((block.name, op, seconds))
                else:
                    compute += seconds
    return compute, found
