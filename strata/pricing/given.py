"""What a step is priced with: the graph of one rank, its division, its place on a system, and the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strata.hardware.system import System
from strata.mapping.engine import Engine, kernel_library
from strata.mapping.layout import Sharding
from strata.mapping.place import Placement
from strata.pricing.host import chip_under_library
from strata.pricing.kernels.device import device, shared_device, software_of, training_software
from strata.pricing.network.collectives import device_fabric
from strata.pricing.pricers import Rank
from strata.workload.graph import Graph
from strata.workload.tasks import Workload


@dataclass(frozen=True, eq=False)
class Structure:
    """What is fixed for a batch and hashed by a compiler: which collectives exist, and how many axes the box
    has.
    """

    active: frozenset[str]
    rank: int = 0
    for_bounds: bool = False  # prices below which no design of a box can be (search/bounds.py)
    time_alone: bool = False  # of a step only its time is asked for, and no memory is counted
    slowest: bool = False  # of several ways to run a step the slowest, above which no design of a box can be

    @property
    def pipelined(self) -> bool:
        return "pp" in self.active


@dataclass(frozen=True, eq=False, kw_only=True)
class Pricing:
    """What the step of a rank's graph is priced with."""

    graph: Graph  # of one rank
    whole: Graph  # undivided
    sharding: Sharding
    placement: Placement
    system: System
    engine: Engine
    work: Workload
    structure: Structure
    halves: Graph | None = None  # of one rank at half the batch, where two halves may run beside each other
    held: dict[Any, Any] = field(default_factory=dict)  # what its blocks hold, as far as known

    @property
    def training(self) -> bool:
        return any(block.direction == "backward" for block in self.graph.blocks)


def rank_in_step(given: Pricing) -> Rank:
    """One rank as an engine's kernels find it in a step of this kind."""
    engine = given.engine
    library = kernel_library(engine.kernels, given.system.chip.platform)
    chip = chip_under_library(given.system.chip, library, engine)
    software = software_of(
        library,
        weight_only=given.graph.weight_only,
        for_bounds=given.structure.for_bounds,
        **(training_software(engine) if given.training else {}),
    )
    dev = (device if given.structure.rank else shared_device)(chip, software)
    return Rank(device=dev, placement=given.placement, fabric=device_fabric(given.system.fabric, dev))
