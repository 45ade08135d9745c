"""What a step is priced with: the graph of one rank, its division, its place on a system, and the engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from strata.arrays import Number, namespace
from strata.hardware.chip import Chip
from strata.hardware.system import System
from strata.mapping.engine import Engine, KernelLibrary, kernel_library
from strata.mapping.layout import Sharding
from strata.mapping.place import Placement
from strata.memo import Memo, is_settled, settled_record, value_key
from strata.pricing.kernels.device import device, shared_device, software_of, training_software
from strata.pricing.network.collectives import device_fabric
from strata.pricing.pricers import Rank
from strata.workload.graph import Graph
from strata.workload.tasks import Workload


@dataclass(frozen=True, eq=False)
class Structure:
    """What is fixed for a batch and hashed by a compiler."""

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


def chip_under_library(chip: Chip, library: KernelLibrary, engine: Engine) -> Chip:
    r"""A chip whose products run as a library has them: at its share of the best kernels' rate, with least
    loop times :math:`q t (1 - p)`, q times those of the best kernels.

    Kernels were timed one by one. In a captured graph the weights of the next are fetched while one ends
    (programmatic dependent launch), which hides the share p of the time a loop takes however few its tokens.

    >>> from strata.hardware.chip import chip
    >>> from strata.mapping.engine import engine
    >>> from strata.mapping.engine import kernel_library
    >>> half = replace(kernel_library("bare"), pdl_overlap=0.5)
    >>> under = chip_under_library(chip("b200"), half, engine("ideal"))
    >>> round(float(under.overhead.step["bf16"] / chip("b200").overhead.step["bf16"]), 3)
    0.5
    """
    xp = namespace(engine.cuda_graphs, library.pdl_overlap)
    left = 1.0 - xp.where(engine.cuda_graphs > 0, library.pdl_overlap, 0.0)
    loop = left * library.product_loop
    key = value_key(loop, library.product_rate) if is_settled(chip) else None
    if key is None:
        return _with_rates(chip, loop, library.product_rate)
    return _CHIPS.of((chip, key), lambda: settled_record(_with_rates(chip, loop, library.product_rate)))


_CHIPS = Memo(128)


def _with_rates(chip: Chip, loop: Number, rate: Number) -> Chip:
    """A chip with `loop` times its least loop times, and a share of its rate of products, scaled sums too."""
    overhead = replace(chip.overhead, step={name: time * loop for name, time in chip.overhead.step.items()})
    shares = {name: share * rate for name, share in chip.compute.matrix_efficiency.items()}
    scaling = chip.compute.rescale
    slower = None if scaling is None else {name: q / rate for name, q in scaling.items()}
    compute = replace(chip.compute, matrix_efficiency=shares, rescale=slower)
    return replace(chip, overhead=overhead, compute=compute)
