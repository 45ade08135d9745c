"""The best partitions of one block under one layout: the end of a branch of the search over layouts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from strata.optimise.fuse import Fusion, all_steps, fuse_kernels, priced_path, too_large
from strata.optimise.fusion.fuse_path import PathResult, shortest_fusion
from strata.optimise.fusion.fusion_problem import FusionProblem
from strata.optimise.fusion.partition_prices import PartitionPricer
from strata.optimise.mappings.joint_block import OpenBlock
from strata.optimise.mappings.joint_steps import NarrowedSteps, tensor_ends
from strata.units import show

SLACK = 1e-9  # of a comparison of sums in another order


@dataclass(eq=False)
class LeafFusion:
    """One block's problem: partitions quicker than `worst` [s] with `free` bytes of DRAM for tensors; CP-SAT,
    where a block has too many order ideals, has so many seconds. `cramped`: the DRAM made a difference.
    """

    problem: FusionProblem
    worst: float
    free: float
    seconds: float
    cramped: bool = False

    def best(self, own: OpenBlock | None, narrowed: NarrowedSteps | None) -> Fusion | None:
        """The best partitions; None where they are not quicker than `worst`. `narrowed`: those partitions of
        the block that are still of use.
        """
        problem = self.problem
        if own is None or own.every is None or tensor_ends(problem) != tensor_ends(own.base):
            return self._apart()
        pricer = PartitionPricer(problem)
        if narrowed is None:
            return self._chain(pricer, shortest_fusion(pricer, own.every, self.worst * (1 + SLACK)))
        path = narrowed.best(pricer)
        return self._chain(pricer, path if path and path.time < self.worst * (1 + SLACK) else None)

    def _apart(self) -> Fusion | None:
        """For a layout that gives the block kernels of its own (sums between ranks), or too many ideals."""
        pricer = PartitionPricer(self.problem)
        steps = all_steps(pricer)
        if steps is not None:
            return self._chain(pricer, shortest_fusion(pricer, steps, self.worst * (1 + SLACK)))
        found = fuse_kernels(self.problem, method="cp-sat", seconds=self.seconds)
        if not found.feasible or max(p.dram for p in found.partitions) <= self.free:
            return found
        return self._within("cp-sat")

    def _chain(self, pricer: PartitionPricer, path: PathResult | None) -> Fusion | None:
        """Partitions of a shortest path, or others where these need more DRAM than there is."""
        problem = self.problem
        if path is None:
            reason = too_large(problem, pricer)
            return fuse_kernels(problem, seconds=self.seconds) if reason else None
        found = priced_path(problem, pricer, path)
        if max(p.dram for p in found.partitions) > self.free:
            return self._within("auto")
        return replace(
            found, lower_bound=found.time, proof="shortest path over order ideals", method="ideals"
        )

    def _within(self, method: str) -> Fusion:
        self.cramped = True
        limited = replace(self.problem, chip=replace(self.problem.chip, dram_capacity=self.free))
        return fuse_kernels(limited, method=method, seconds=self.seconds)


def dram_missing(least: float, need: float, room: float) -> str:
    """What is missing: under the layouts that divide most, where even these are too large."""
    if least > room:
        said, need = "needs at least", least
    else:
        said = "needs"
    return f"{said} {show(need, 'B')} of DRAM a chip, has {show(room, 'B')} ({need / room:.3g} times)"
