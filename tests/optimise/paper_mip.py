"""DFModel's own integer program (its equations 1 to 4 and section V-B) in HiGHS: an independent check.

Nothing here comes from strata's pricing: matrices A, B, D, L and H as the paper has them, compute time from
FLOP at a stated utilisation, each edge a tensor of its own, all of compute, memory and network overlapped.
"""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix


class PaperMip:
    """Kernels (FLOP, weights, network time) and edges (source, target, bytes, depth) into p_max partitions."""

    def __init__(self, problem, tiles):
        self.problem, self.tiles = problem, tiles
        self.n, self.p = len(problem.kernels), len(problem.kernels)
        index = {k.name: i for i, k in enumerate(problem.kernels)}
        self.edges = [(index[t.source], index[t.target], t.bytes) for t in problem.tensors]
        self.m = len(self.edges)
        self.level = self._levels()
        # A, then B, then the critical time of each partition in units of `unit`
        self.columns = self.n * self.p + self.m * self.p + self.p
        self.rows, self.low, self.high = [], [], []

    def _levels(self):
        level = [0] * self.n
        for _ in range(self.n):
            for s, d, _ in self.edges:
                level[d] = max(level[d], level[s] + 1)
        return level

    def a(self, kernel, p):
        return kernel * self.p + p

    def b(self, edge, p):
        return self.n * self.p + edge * self.p + p

    def t(self, p):
        return (self.n + self.m) * self.p + p

    def add(self, terms, low=-np.inf, high=np.inf):
        self.rows.append(terms)
        self.low.append(low)
        self.high.append(high)

    def crossing(self, edge, p, scale):
        """D = A[src] xor A[dst] = A[src] + A[dst] - 2 B (equation 2 with equation 1)."""
        s, d, _ = self.edges[edge]
        return [(self.a(s, p), scale), (self.a(d, p), scale), (self.b(edge, p), -2.0 * scale)]

    def live(self, edge, p, scale):
        """L: from the partition of the source to that of the target, not where both are one (equation 3)."""
        s, d, _ = self.edges[edge]
        made = [(self.a(s, q), scale) for q in range(p + 1)]
        done = [(self.a(d, q), -scale) for q in range(p)]
        return [*made, *done, (self.b(edge, p), -scale)]

    def solve(self):
        chip, kernels = self.problem.chip, self.problem.kernels
        unit = sum(k.flop for k in kernels) / (chip.utilisation * chip.peak) + sum(
            2 * size / chip.dram_bandwidth for *_, size in self.edges
        )
        for k in range(self.n):
            self.add([(self.a(k, p), 1.0) for p in range(self.p)], 1.0, 1.0)
        for s, d, _ in self.edges:
            order = [(self.a(d, p), float(p)) for p in range(self.p)]
            self.add(order + [(self.a(s, p), -float(p)) for p in range(self.p)], 0.0)
        for e, (s, d, _) in enumerate(self.edges):
            for p in range(self.p):  # equation 1
                self.add([(self.b(e, p), 1.0), (self.a(s, p), -1.0)], high=0.0)
                self.add([(self.b(e, p), 1.0), (self.a(d, p), -1.0)], high=0.0)
                self.add([(self.b(e, p), 1.0), (self.a(s, p), -1.0), (self.a(d, p), -1.0)], -1.0)
        room = chip.dram_capacity - sum(k.weight_bytes for k in kernels)
        for p in range(self.p):
            self._partition(p, unit, room)
        matrix = lil_matrix((len(self.rows), self.columns))
        for i, terms in enumerate(self.rows):
            for column, value in terms:
                matrix[i, column] += value
        whole = np.concatenate([np.ones(self.columns - self.p), np.zeros(self.p)])
        cost = np.concatenate([np.zeros(self.columns - self.p), np.ones(self.p)])
        top = np.concatenate([np.ones(self.columns - self.p), np.full(self.p, np.inf)])
        found = milp(
            cost,
            constraints=LinearConstraint(matrix.tocsr(), self.low, self.high),
            integrality=whole,
            bounds=Bounds(0.0, top),
            options={"mip_rel_gap": 1e-9},
        )
        return found.fun * unit if found.status == 0 else np.inf

    def _partition(self, p, unit, room):
        chip, kernels = self.problem.chip, self.problem.kernels
        rate = chip.utilisation * chip.peak * unit
        self.add([(self.t(p), 1.0)] + [(self.a(k, p), -kernels[k].flop / rate) for k in range(self.n)], 0.0)
        network = [(self.a(k, p), -sum(kernels[k].network) / unit) for k in range(self.n)]
        self.add([(self.t(p), 1.0), *network], 0.0)
        moved, held, alive = [(self.t(p), 1.0)], [], []
        for e, (s, d, size) in enumerate(self.edges):
            moved += self.crossing(e, p, -size / chip.dram_bandwidth / unit)
            tile = size / self.tiles / chip.sram
            held += self.crossing(e, p, 2.0 * tile)
            held.append((self.b(e, p), (self.level[d] - self.level[s] + 1.0) * tile))
            alive += self.live(e, p, size / room)
        held += [(self.a(k, p), kernels[k].weight_bytes / chip.sram) for k in range(self.n)]
        self.add(moved, 0.0)
        self.add(held, high=1.0)
        self.add(alive, high=1.0)
