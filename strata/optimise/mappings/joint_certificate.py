"""What the search of a layer finds: the best mapping, its proof, and what a step takes beside its layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from strata.arrays import Array
from strata.mapping.layout import Layout
from strata.optimise.fuse import Fusion
from strata.optimise.layouts.layout_states import RankMemory
from strata.optimise.mappings.joint_problem import BlockProblem


@dataclass(frozen=True, eq=False, kw_only=True)
class MappedBlock:
    """One block under a layout with its best partitions, and how often it runs."""

    block: str
    times: float
    problem: BlockProblem
    fusion: Fusion


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerMapping:
    """Layouts of all modules and partitions of all blocks: seconds of one micro-batch on one rank, all
    layers.
    """

    layout: Layout
    options: dict[str, tuple[str, ...]]
    blocks: tuple[MappedBlock, ...]
    time: float
    kept: float  # bytes a rank keeps of all layers, and the most that is alive at once besides


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerCertificate:
    """The best mapping of a layer below a limit, if there is one, and what no mapping is quicker than."""

    best: LayerMapping | None
    bound: float
    nodes: int
    layouts: int  # priced in full
    combinations: int  # layouts there are
    reason: str = ""
    stopped: bool = False  # out of time before it was proved, or partitions by CP-SAT were
    interrupted: bool = False
    cramped: bool = False  # something was left out for its memory
    forward: tuple[float, float] = (0.0, 0.0)  # least forward pass of mappings below so many seconds
    near: tuple[LayerMapping, ...] = ()  # hardly slower ones, the best first
    beyond: float = 0.0  # what no other mapping is quicker than


@dataclass(frozen=True, eq=False, kw_only=True)
class BesideLayers:
    r"""What a step takes beside its layers, in seconds of these: hand-overs by options of a module, and the
    sum of gradients as far as the last backward pass does not hide it.

    .. math:: T = t + h + \max(0, g - \sigma (t - f))

    with layers t, forward pass f, hand-over h; sum of gradients g, of the elements that a rank holds; and
    sigma the share of a step that one pass is.
    """

    sends: dict[str, Array] = field(default_factory=dict)
    elements: dict[str, Array] = field(default_factory=dict)
    gradients: Callable[[float], float] | None = None  # seconds of the sum of so many elements
    hidden: float = 0.0  # sigma

    def total(self, layers: float, forward: float, alive: dict[str, Array]) -> float:
        """Below every step of open layouts whose layers, and forward passes, take at least so long."""
        found = layers
        if self.gradients is not None:
            held = sum(float(own[alive[m]].min()) for m, own in self.elements.items() if m in alive)
            passed = self.hidden * max(layers - forward, 0.0)
            found += max(0.0, self.gradients(held) - passed)
        return found + self.send(alive)

    def send(self, alive: dict[str, Array]) -> float:
        return sum(float(own[alive[m]].min()) for m, own in self.sends.items())


@dataclass(frozen=True, eq=False)
class RankRoom:
    """What a rank may keep: bytes, and how they are counted."""

    capacity: float
    keeps: RankMemory
