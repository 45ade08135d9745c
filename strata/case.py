"""A case: all inputs of an evaluation in one frozen record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from strata.arrays import Number, register_pytree
from strata.hardware.system import Economics, System
from strata.mapping.engine import Engine
from strata.mapping.layout import Layout
from strata.mapping.plan import Plan
from strata.records import readable
from strata.workload.graph import Graph
from strata.workload.tasks import Workload


class Program(Protocol):
    """Anything that a workload turns into a graph: a language model, an FFT, a recommender, your own."""

    @property
    def name(self) -> str: ...

    @property
    def units(self) -> dict[str, Number]:
        """Indivisible units of the axes that layouts divide."""
        ...

    def trace(self, work: Workload) -> Graph:
        """The graph of one step, undivided."""
        ...


@register_pytree
@readable("system", "program", "workload", "plan", "engine")
@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A program with its workload on a system, divided by a plan or layout, run by an engine. Any number may
    be an array.
    """

    system: System
    program: Program
    workload: Workload
    plan: Plan | Layout
    engine: Engine
    economics: Economics
