"""Partitions of a block that may still be part of a good mapping, priced again and again under other layouts.

Which tensors cross a partition's border does not depend on layouts, so that flows are matrices times the bytes
of tensors; and a partition with a number of tiles that no chain as quick as the incumbent holds at the least
value of everything is never priced again.
"""

from __future__ import annotations

import numpy as np

from strata.arrays import Array
from strata.optimise.fuse_path import PathResult, Paths, Steps, step_bounds
from strata.optimise.fusion_problem import FusionProblem
from strata.optimise.partition_prices import PartitionPricer, core_steps
from strata.pricing.fused_partition import PartitionFlows, TensorUse
from strata.pricing.fusion import tile_columns

FLOWS = ("read", "written", "internal", "crossing", "whole")
ROWS_LIMIT = 60_000  # partitions whose flows are kept as matrices


class OpenPricer(PartitionPricer):
    """Prices where kernels may still have one of several shapes: each cycle count takes the fewest cores that
    any of them needs.
    """

    def __init__(self, problem: FusionProblem, shapes: list[list[tuple[float, float, float]]]):
        super().__init__(problem)
        self.shapes = shapes

    def grid(self, tiles: int) -> tuple[Array, Array, Array]:
        if tiles not in self._grids:
            chip = self.problem.chip
            steps = [
                [core_steps(m, float(tile_columns(n, float(tiles))), k, chip.array, chip.cores) for m, n, k in own]
                for own in self.shapes
            ]
            candidates = np.unique(np.concatenate([cycles for own in steps for cycles, _ in own]))
            cores = np.full((len(candidates), len(steps)), chip.cores + 1.0)
            for i, own in enumerate(steps):
                for cycles, used in own:
                    at = np.searchsorted(-cycles, -candidates)
                    needed = np.where(at < len(used), used[np.minimum(at, len(used) - 1)], np.inf)
                    cores[:, i] = np.minimum(cores[:, i], needed)
            areas = np.array([min((c * u).min() for c, u in own) for own in steps])
            self._grids[tiles] = candidates, cores, areas
        return self._grids[tiles]


class NarrowedSteps:
    """The useful partitions of a block and the numbers of tiles they are useful with."""

    def __init__(self, pricer: PartitionPricer, steps: Steps, worst: float):
        problem = pricer.problem
        self.ends = tensor_ends(problem)
        self.one = problem.rules.tiles == "one"
        bounds = step_bounds(pricer, steps)
        useful = self._through(Paths(steps, 0, problem.apart), bounds, steps) <= worst * (1 + 1e-6)
        keep = useful.any(0)
        self.steps = Steps(
            first=steps.first[keep], second=steps.second[keep], rows=steps.rows, section=steps.section[keep]
        )
        self.useful = useful[:, keep]
        self.paths = Paths(self.steps, 0, problem.apart)
        self.sets = self.steps.sets(slice(None))
        self.span = pricer.span(self.sets)
        self.rows = [np.nonzero(row)[0] for row in self.useful]
        self.matrices = self._matrices(pricer) if len(self.sets) <= ROWS_LIMIT else None

    def _through(self, paths: Paths, bounds: Array, steps: Steps) -> Array:
        """The least time of a chain through every partition with every number of tiles."""
        found = np.empty(bounds.shape)
        rounds = [[i] for i in range(len(bounds))] if self.one else [list(range(len(bounds)))]
        for which in rounds:
            least = bounds[which].min(0)
            around = paths.forward(least)[-1][steps.first] + paths.backward(least)[steps.second]
            found[which] = around + bounds[which]
        return found

    def _matrices(self, pricer: PartitionPricer) -> list[Array]:
        """For each flow the share of every tensor's bytes that belongs to it, by partition."""
        made: list[list[Array]] = [[] for _ in FLOWS]
        own = pricer.groups
        for tensor in own:
            one = TensorUse(source=tensor.source, targets=tensor.targets, bytes=1.0, whole=tensor.whole)
            pricer.groups = [one]
            flows = pricer.flows(self.sets)
            for place, name in enumerate(FLOWS):
                made[place].append(np.broadcast_to(getattr(flows, name), len(self.sets)))
        pricer.groups = own
        return [np.array(rows).T.reshape(len(self.sets), -1) for rows in made]

    def same(self, problem: FusionProblem) -> bool:
        """Whether a problem has the same kernels and tensors."""
        return tensor_ends(problem) == self.ends

    def costs(self, pricer: PartitionPricer) -> Array:
        """Times of all useful partitions at every number of tiles; infinite where they are of no use."""
        found = np.full(self.useful.shape, np.inf)
        sizes = np.array([float(group.bytes) for group in pricer.groups])
        if self.matrices is not None:
            flows = [matrix @ sizes for matrix in self.matrices]
        else:
            whole = pricer.flows(self.sets)
            flows = [np.broadcast_to(getattr(whole, name), len(self.sets)) for name in FLOWS]
        levels, waits = self.span
        for place, tiles in enumerate(pricer.problem.tiles):
            rows = self.rows[place]
            if len(rows):
                part = PartitionFlows(**{n: f[rows] for n, f in zip(FLOWS, flows, strict=True)})
                span = (levels[rows], waits[rows])
                found[place, rows] = pricer.prices(self.sets[rows], tiles, flows=part, span=span).time
        return found

    def least(self, pricer: PartitionPricer) -> float:
        """Time of the best chain."""
        costs = self.costs(pricer)
        if not len(self.sets):
            return float("inf")
        if not self.one:
            return float(self.paths.forward(costs.min(0))[-1][-1])
        return min(
            (float(self.paths.forward(row)[-1][-1]) for row in costs if np.isfinite(row).any()),
            default=float("inf"),
        )

    def best(self, pricer: PartitionPricer) -> PathResult | None:
        """The best chain itself; a problem with fewer numbers of tiles takes the first ones."""
        problem = pricer.problem
        costs = self.costs(pricer)[: len(problem.tiles)]
        rounds = list(costs[:, None]) if self.one else [costs]
        best: tuple[float, list[int], Array, int] | None = None
        for number, rows in enumerate(rounds):
            cost = rows.min(0)
            found = self.paths.forward(cost)
            value = float(found[-1][-1])
            if np.isfinite(value) and (best is None or value < best[0]):
                path = np.array(self.paths.trace(cost, found))
                tiles = np.full(len(path), number) if self.one else rows[:, path].argmin(0)
                best = (value, path.tolist(), tiles, len(costs))
        if best is None:
            return None
        value, path, tiles, _ = best
        return PathResult(
            time=value,
            sets=self.sets[path],
            tiles=tuple(problem.tiles[int(i)] for i in tiles),
            ideals=self.steps.ideals,
            steps=len(self.sets),
            priced=int(self.useful.sum()),
        )


def tensor_ends(problem: FusionProblem) -> tuple[object, ...]:
    """What two problems must share for the same partitions and flows."""
    return (
        tuple(k.name for k in problem.kernels),
        tuple((t.name, t.source, t.target, t.whole) for t in problem.tensors),
    )
