"""A case: all inputs of an evaluation in one frozen record."""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import register_pytree
from strata.hardware.money import Economics
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.layout import Layout
from strata.mapping.plan import Plan
from strata.records import readable
from strata.workload.program import Program
from strata.workload.tasks import Workload


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
