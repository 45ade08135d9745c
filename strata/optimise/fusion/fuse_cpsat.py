"""The best fusion by OR-Tools' CP-SAT: for graphs with too many order ideals, with a proven gap at any time.

CP-SAT takes integers. Every time and size is rounded down and every limit up, so that the bound it proves is
one of the real problem; the mapping it finds is priced again without rounding.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from strata.base.arrays import ceil_div
from strata.base.shipped import extra_package
from strata.optimise.fuse import Fusion, no_fusion, price_mapping, priced_path
from strata.optimise.fusion.fuse_path import PathResult, in_line
from strata.optimise.fusion.fusion_problem import FusionProblem
from strata.optimise.fusion.partition_prices import PartitionPricer, core_steps, fills

TIME_BITS = 32  # of the time of the kernel-by-kernel mapping; fewer where the fill of pipelines multiplies it
ROOM_BITS = 40  # of a memory's capacity


def fuse_by_cpsat(problem: FusionProblem, *, seconds: float = 60.0) -> Fusion:
    """The best mapping found in so many seconds, with the proven bound; Ctrl-C ends the search early."""
    cp_model = extra_package("ortools.sat.python.cp_model", "a proof by CP-SAT", "map")

    pricer = PartitionPricer(problem)
    model, start = _Model(problem, pricer, cp_model), in_line(pricer)
    if start is not None:
        model.hint(start)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    status = solver.solve(model.model)
    bound = max(0.0, solver.best_objective_bound) * model.unit
    rounding = f"times in units of {model.unit:.2g} s, rounded down"
    known = [] if start is None else [priced_path(problem, pricer, start)]
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        known.append(price_mapping(problem, *model.mapping(solver), pricer=pricer))
    elif status == cp_model.INFEASIBLE:
        bound = float("inf")
    best = min((k for k in known if k.feasible), key=lambda k: k.time, default=None)
    if best is None:
        proof = "no mapping fits, by CP-SAT" if math.isinf(bound) else "none found in time, by CP-SAT"
        return no_fusion(proof, "cp-sat", solver.wall_time, proof, bound)
    found = replace(best, lower_bound=min(bound, best.time), method="cp-sat", seconds=solver.wall_time)
    proof = (
        f"optimal by CP-SAT to {found.gap:.1e} ({rounding})"
        if found.optimal
        else (
            f"within {found.gap:.2%} of the optimum by CP-SAT, stopped after {solver.wall_time:.1f} s "
            f"({rounding})"
        )
    )
    return replace(found, proof=proof)


class _Model:
    """The integer program of a problem: A[k, p] puts kernel k into partition p."""

    def __init__(self, problem: FusionProblem, pricer: PartitionPricer, cp_model: Any):
        self.problem, self.pricer, self.cp = problem, pricer, cp_model
        self.model = cp_model.CpModel()
        self.count = len(problem.kernels)
        self.slots = len(problem.pinned) or problem.max_partitions or self.count
        every = [pricer.prices(np.eye(self.count), n) for n in problem.tiles]
        alone = np.array([p.compute + p.memory + p.network for p in every])
        longest = np.where(np.isfinite(alone), alone, 0.0).max(0).sum() + self.count * problem.chip.start
        steps = max(problem.tiles) * problem.micro_batches if problem.rules.fill == "yes" else 1.0
        bits = TIME_BITS - max(0, math.ceil(math.log2(steps)) - 11)
        self.unit = float(max(longest, 1e-30)) * 2.0**-bits
        # Where few partitions are allowed, kernels on a share of the cores may take longer than on all.
        crowded = problem.rules.compute == "cores" and bool(problem.pinned or problem.max_partitions)
        self.most = 2 ** (bits + (10 if crowded else 1))
        self.deepest = 2 + int(pricer.level.max() + pricer.whole_level.max())
        self._alone = every
        self._assignment()
        self._tiles()
        self.passes: list[list[tuple[Any, float]]] = []
        self.moves = [self._flows(p) for p in range(self.slots)]
        for p in range(self.slots):
            self._sram(p)
        if math.isfinite(problem.chip.dram_capacity):
            self._dram()
        computes = self._compute()
        times = [self._time(p, computes[p]) for p in range(self.slots)]
        self.total = sum(times)
        self.model.minimize(self.total)

    def _units(self, seconds: float) -> int:
        return math.floor(seconds / self.unit)

    def _assignment(self) -> None:
        problem, model = self.problem, self.model
        self.at = [[model.new_bool_var("") for _ in range(self.slots)] for _ in range(self.count)]
        self.place = [sum(p * a for p, a in enumerate(row)) for row in self.at]
        self.used = [model.new_bool_var("") for _ in range(self.slots)]
        for row in self.at:
            model.add_exactly_one(row)
        for p in range(self.slots):
            model.add_max_equality(self.used[p], [row[p] for row in self.at])
        for early, late in zip(self.used, self.used[1:], strict=False):
            if not (problem.apart and problem.max_partitions):
                model.add_implication(late, early)
        for target, sources in enumerate(problem.before):
            for source in sources:
                model.add(self.place[source] <= self.place[target])
        if problem.apart:
            half = self.slots // 2 if problem.max_partitions else model.new_int_var(0, self.slots, "")
            for kernel, place in zip(problem.kernels, self.place, strict=True):
                model.add(place >= half) if kernel.backward else model.add(place < half)
        for p, group in enumerate(problem.pinned):
            for name in group:
                model.add(self.at[problem.index[name]][p] == 1)

    def _tiles(self) -> None:
        """tiled[p][n]: partition p has the n-th number of tiles."""
        model, choices = self.model, len(self.problem.tiles)
        rows = 1 if self.problem.rules.tiles == "one" else self.slots
        own = [[model.new_bool_var("") for _ in range(choices)] for _ in range(rows)]
        for row in own:
            model.add_exactly_one(row)
        self.tiled = [own[min(p, rows - 1)] for p in range(self.slots)]

    def _there(self, kernel: int, p: int) -> Any:
        return self.at[kernel][p] if kernel < self.count else 0

    def _flows(self, p: int) -> list[tuple[Any, Any, Any, Any, float]]:
        """(read, written, buffer depth, held whole, bytes) of each tensor in a partition."""
        model, level = self.model, np.append(self.pricer.level, 0.0)
        found = []
        for tensor in self.pricer.groups:
            source, targets, size, whole = tensor.source, tensor.targets, tensor.bytes, tensor.whole
            made = self._there(source, p)
            read, written, held = (model.new_bool_var("") for _ in range(3))
            deepest = max(2, *(int(level[t] - level[source]) + 1 for t in targets))
            depth = model.new_int_var(0, deepest, "")
            holders = [self._there(t, p) for t, w in zip(targets, whole, strict=True) if w]
            model.add_max_equality(held, holders) if holders else model.add(held == 0)
            for target in targets:
                used = self._there(target, p)
                model.add(read >= used - made)
                model.add(written >= made - used)
                if source < self.count and target < self.count:
                    deep = int(level[target] - level[source]) + 1
                    model.add(depth >= deep * (used + made - 1)).only_enforce_if(~held)
            model.add(depth >= 2 * read).only_enforce_if(~held)
            model.add(depth >= 2 * written).only_enforce_if(~held)
            found.append((read, written, depth, held, float(size)))
        return found

    def _sram(self, p: int) -> None:
        """Buffers and weights fit; or a kernel alone takes its weights in passes, or itself in pieces."""
        problem, model, alone = self.problem, self.model, self._alone
        byte = problem.chip.sram * 2.0**-ROOM_BITS
        copies = min(problem.micro_batches, 2.0)
        tiled_extra = []
        weights = sum(
            int(w / byte) * row[p] for w, row in zip(self.pricer.weights, self.at, strict=True) if w > 0
        )
        for n, tiles in enumerate(problem.tiles):
            single = []
            for k in np.nonzero(((alone[n].passes > 1) | (self.pricer.pieces > 1)) & alone[n].fits)[0]:
                lone = model.new_bool_var("")
                model.add_implication(lone, self.at[k][p])
                model.add_implication(lone, self.tiled[p][n])
                model.add(sum(row[p] for row in self.at) == 1).only_enforce_if(lone)
                single.append(lone)
                tiled_extra.append((lone, self._repeated(int(k), float(alone[n].passes[k]))))
            buffers = sum(
                int(size / tiles / byte) * depth + int(size * copies / byte) * held
                for _, _, depth, held, size in self.moves[p]
            )
            model.add(weights + buffers <= 2**ROOM_BITS + 1).only_enforce_if(
                self.tiled[p][n], *(~lone for lone in single)
            )
        self.passes.append(tiled_extra)

    def _repeated(self, kernel: int, passes: float) -> float:
        """Bytes that a kernel alone moves for its passes beyond the first."""
        row = np.zeros((1, self.count))
        row[0, kernel] = 1.0
        flows = self.pricer.flows(row)
        written = flows.written if self.problem.rules.weight_tiling == "all" else 0.0
        return float(np.max((passes - 1.0) * (flows.read + written)))

    def _dram(self) -> None:
        problem, model = self.problem, self.model
        byte = problem.chip.dram_capacity * 2.0**-ROOM_BITS
        room = problem.chip.dram_capacity - self.pricer.weights.sum() * problem.layers - problem.held_bytes
        done: list[list[Any]] = [[0] for _ in range(self.count)]  # in a partition before p
        for k in range(self.count):
            for p in range(self.slots):
                done[k].append(done[k][-1] + self.at[k][p])
        for p in range(self.slots):
            live = []
            for tensor in self.pricer.groups:
                source, targets, size = tensor.source, tensor.targets, float(tensor.bytes)
                alive = model.new_bool_var("")
                made = done[source][p] if source < self.count else 1
                for t in targets:
                    model.add(alive >= made - (done[t][p] if t < self.count else 0))
                    later = done[t][p + 1] if t < self.count else 0
                    model.add(alive >= self._there(source, p) - later)
                live.append(int(size * problem.micro_batches / byte) * alive)
            model.add(sum(live) <= math.floor(room / byte) + 1)

    def _compute(self) -> list[Any]:
        """Compute time of each partition."""
        problem, model, how = self.problem, self.model, self.problem.rules.compute
        own = [model.new_int_var(0, self.most, "") for _ in range(self.slots)]
        if how != "cores":
            for n, tiles in enumerate(problem.tiles):
                times = [self._units(float(t)) for t in self.pricer.compute(np.eye(self.count), tiles)]
                for p in range(self.slots):
                    work = sum(t * row[p] for t, row in zip(times, self.at, strict=True))
                    model.add(own[p] >= work).only_enforce_if(self.tiled[p][n])
            return own
        shares: list[list[Any]] = [[] for _ in range(self.slots)]
        for k in range(self.count):
            cores, cycles = self._share(k)
            for p in range(self.slots):
                taken = model.new_int_var(0, problem.chip.cores, "")
                model.add(taken >= cores).only_enforce_if(self.at[k][p])
                model.add(own[p] >= cycles).only_enforce_if(self.at[k][p])
                shares[p].append(taken)
        for taken in shares:
            model.add(sum(taken) <= problem.chip.cores)
        for n, tiles in enumerate(problem.tiles):  # what follows of it: core-cycles over cores
            least = [self._units(float(t)) for t in self.pricer.least_compute(np.eye(self.count), tiles)]
            for p in range(self.slots):
                work = sum(t * row[p] for t, row in zip(least, self.at, strict=True))
                model.add(own[p] >= work).only_enforce_if(self.tiled[p][n])
        return own

    def _share(self, kernel: int) -> tuple[Any, Any]:
        """Cores of a kernel and its time with them: one of the useful steps at one number of tiles."""
        problem, model, k = self.problem, self.model, self.problem.kernels[kernel]
        cores, cycles, chosen = [], [], []
        for n, tiles in enumerate(problem.tiles):
            folded = float(ceil_div(k.columns, float(tiles)))
            steps = core_steps(k.rows, folded, k.depth, problem.chip.array, problem.chip.cores)
            options = [model.new_bool_var("") for _ in steps[0]]
            for option, time, used in zip(options, *steps, strict=True):
                cores.append(int(used) * option)
                cycles.append(self._units(float(time) * tiles / problem.chip.clock) * option)
            chosen += options
            for p in range(self.slots):
                model.add(sum(options) == 1).only_enforce_if(self.at[kernel][p], self.tiled[p][n])
        model.add_exactly_one(chosen)
        return sum(cores), sum(cycles)

    def _time(self, p: int, compute: Any) -> Any:
        problem, model, rules = self.problem, self.model, self.problem.rules
        memory = self._memory(p)
        network = model.new_int_var(0, self.most, "")
        for channel in range(self.pricer.network.shape[1]):
            column = self.pricer.network[:, channel]
            model.add(network >= sum(self._units(t) * row[p] for t, row in zip(column, self.at, strict=True)))
        compute = self._filled(p, compute) if rules.fill == "yes" else compute
        critical = model.new_int_var(0, self.most * self.deepest, "")
        if rules.overlap == "none":
            model.add(critical >= compute + memory + network)
        else:
            apart = network if rules.overlap == "network apart" else 0
            model.add(critical >= compute + apart)
            model.add(critical >= memory + apart)
            model.add(critical >= network)
            if rules.fill == "yes" and rules.overlap == "all" and problem.micro_batches <= 1:
                for n, tiles in enumerate(problem.tiles):
                    if tiles == 1:  # communication takes its turn with the kernels
                        model.add(critical >= compute + network).only_enforce_if(self.tiled[p][n])
        start = problem.chip.start / problem.micro_batches if rules.start == "yes" else 0.0
        return critical + self._units(start) * self.used[p]

    def _memory(self, p: int) -> Any:
        problem, pricer = self.problem, self.pricer
        bandwidth, weighed = problem.chip.dram_bandwidth, problem.rules.weight_traffic == "read"
        own = pricer.extra + (pricer.weights / problem.micro_batches if weighed else 0.0)
        moved = sum(self._units(b / bandwidth) * row[p] for b, row in zip(own, self.at, strict=True))
        for read, written, _, _, size in self.moves[p]:
            moved += self._units(size / bandwidth) * (read + written)
        for lone, repeated in self.passes[p]:
            moved += self._units(repeated / bandwidth) * lone
        return moved

    def _filled(self, p: int, compute: Any) -> Any:
        """Compute time with the pipeline's fill and drain: n m T >= (n m + levels - 1 + n whole levels) C."""
        model, batches = self.model, Fraction(self.problem.micro_batches).limit_denominator(1000)
        products = []
        for level in (self.pricer.level, self.pricer.whole_level):
            top = int(level.max())
            high, low, span = (model.new_int_var(0, top, "") for _ in range(3))
            for k in range(self.count):
                model.add(high >= int(level[k])).only_enforce_if(self.at[k][p])
                model.add(low <= int(level[k])).only_enforce_if(self.at[k][p])
            model.add(span >= high - low)
            product = model.new_int_var(0, self.most * max(top, 1), "")
            model.add_multiplication_equality(product, [span, compute])
            products.append(product)
        filled = model.new_int_var(0, self.most * self.deepest, "")
        over, under = batches.numerator, batches.denominator
        for n, tiles in enumerate(self.problem.tiles):
            waits = products[0] + tiles * products[1] if fills(self.problem, tiles) else 0
            total = compute * (tiles * over) + waits * under
            model.add(filled * (tiles * over) >= total).only_enforce_if(self.tiled[p][n])
        return filled

    def hint(self, start: PathResult) -> None:
        """Begin with a known mapping, and look for nothing longer."""
        self.model.add(self.total <= math.ceil(start.time / self.unit))
        half = self.slots // 2 if self.problem.apart and self.problem.max_partitions else 0
        back = [k.backward for k in self.problem.kernels]
        forward = sum(1 for row in start.sets if not np.any(row[back]))
        for place, (row, tiles) in enumerate(zip(start.sets, start.tiles, strict=True)):
            p = place if not half or place < forward else half + place - forward
            for k in range(self.count):
                for q in range(self.slots):
                    if row[k]:
                        self.model.add_hint(self.at[k][q], int(q == p))
            if self.problem.rules.tiles == "each" or place == 0:
                for n, literal in zip(self.problem.tiles, self.tiled[p], strict=True):
                    self.model.add_hint(literal, int(n == tiles))

    def mapping(self, solver: Any) -> tuple[list[tuple[str, ...]], list[int]]:
        """Names of kernels in each partition of a solution, and its numbers of tiles."""
        partitions, tiles = [], []
        for p in range(self.slots):
            held = [self.problem.kernels[k].name for k in range(self.count) if solver.value(self.at[k][p])]
            if held:
                partitions.append(tuple(held))
                tiles.append(
                    next(t for t, y in zip(self.problem.tiles, self.tiled[p], strict=True) if solver.value(y))
                )
        return partitions, tiles
