"""What the host adds to the kernels of a step, and what captured graphs take off them."""

from __future__ import annotations

from dataclasses import replace

from strata.arrays import Number, namespace
from strata.hardware.chip import Chip
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.workload.graph import Graph
from strata.workload.tasks import Workload

UNCAPTURED = "attention.sparse"  # blocks around which captured graphs are broken


def host_time(fixed: Number, each: Number, sequences: Number, breaks: Number, broken: Number) -> Number:
    r"""Host time of a step that no kernel hides [s].

    .. math:: T_h = h + n s + b u

    fixed time h; n sequences of the rank, s each; b breaks of the captured graph, u each.

    Fitted, not derived: see docs/engines.md for the rows behind each engine's numbers.

    >>> round(host_time(4e-4, 2e-5, 64.0, 0.0, 1.5e-4) * 1e3, 2), round(host_time(4e-4, 2e-5, 64.0, 61.0, 1.5e-4) * 1e3, 2)
    (1.68, 10.83)
    """
    return fixed + sequences * each + breaks * broken


def with_host(time: Number, engine: Engine, graph: Graph, work: Workload, plan: Plan) -> Number:
    """A step of kernels with its engine's host time. Data-parallel ranks have schedulers of their own."""
    breaks: Number = 0.0
    for block in graph.blocks:
        if block.name == UNCAPTURED:
            breaks = breaks + block.count
    xp = namespace(engine.graphs, engine.uncaptured)
    broken = xp.where(engine.graphs > 0, engine.uncaptured, 0.0)
    return time + host_time(engine.step, engine.sequence + engine.stream, work.batch / plan.dp, breaks, broken)


def as_captured(chip: Chip, engine: Engine) -> Chip:
    r"""A chip whose products start as an engine's captured graphs let them: least loop times :math:`t (1 - p)`.

    Kernels were timed one by one. In a captured graph the weights of the next are fetched while one ends (programmatic
    dependent launch), which hides the share p of the time a loop takes however few its tokens.

    >>> from strata.hardware.chip import chip
    >>> from strata.mapping.engine import engine
    >>> made = as_captured(chip("b200"), engine("ideal", prefetched=0.5))
    >>> round(float(made.overhead.step["bf16"] / chip("b200").overhead.step["bf16"]), 3)
    0.5
    """
    xp = namespace(engine.graphs, engine.prefetched)
    left = 1.0 - xp.where(engine.graphs > 0, engine.prefetched, 0.0)
    return replace(chip, overhead=replace(chip.overhead, step={name: time * left for name, time in chip.overhead.step.items()}))
