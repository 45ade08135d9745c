"""A case: all inputs of an evaluation in one frozen record."""

from __future__ import annotations

from strata.base.records import readable
from strata.hardware.money import Economics
from strata.hardware.system import System
from strata.mapping.layout import Layout
from strata.mapping.plan import Plan
from strata.params import record
from strata.software.engine import Engine
from strata.workload.protocol import Program
from strata.workload.tasks import Workload


@readable("system", "program", "workload", "plan", "engine")
@record
class Case:
    """A program with its workload on a system, divided by a plan, run by an engine; numbers may be arrays."""

    system: System
    program: Program
    workload: Workload
    plan: Plan | Layout
    engine: Engine
    economics: Economics
