"""One block of a layer with every option of its modules: the least fusion problem of those that are open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.base.arrays import Array
from strata.mapping.divide import divide
from strata.mapping.layout import conversions
from strata.mapping.sharded_collectives import held_before
from strata.optimise.fuse import all_steps
from strata.optimise.fusion.fuse_path import Steps, shortest_fusion
from strata.optimise.fusion.fusion_graph import kernel_shape
from strata.optimise.fusion.fusion_problem import OUTSIDE, FusionProblem, FusionTensor
from strata.optimise.fusion.partition_prices import PartitionPricer
from strata.optimise.layouts.layout_options import per_option
from strata.optimise.mappings.joint_problem import element_bytes, kernel_columns, kernel_ops
from strata.optimise.mappings.joint_steps import NarrowedSteps
from strata.pricing.pricers import price_op
from strata.workload.graph import Block, Op

Open = dict[str, Array]  # by module the options that are still open
OPEN_FIELDS = ("time", "flop", "rows", "columns", "depth", "weight_bytes", "extra_bytes")
ONLY = np.array([0])  # options of a module that nothing divides
BELOW = 1.0 - 1e-9  # of a bound, for the order of its sums

if TYPE_CHECKING:
    from strata.optimise.mappings.joint_bound import OpenLayer


@dataclass(frozen=True, eq=False)
class PairCost:
    """Seconds between a kernel and one reader of its result, and bytes there, by options of both."""

    kernel: str
    modules: tuple[str, str]
    table: Array
    reader: str = ""
    bytes: Array | None = None


class OpenBlock:
    """One block with all options of its modules: the least fusion problem of those that are open."""

    def __init__(self, name: str, times: float, block: Block, base: FusionProblem, layer: OpenLayer):
        self.name, self.times, self.block, self.base, self.layer = name, times, block, base, layer
        self.values: dict[str, dict[str, Array]] = {}
        self.full: dict[str, Array] = {}  # prices with DRAM and start, as tables of layouts have them
        self.module: dict[str, str] = {}
        self.bytes: dict[str, Array] = {}  # of results, by kernel
        self.pairs: list[PairCost] = []
        for kernel, op in kernel_ops(block):
            self._measure(kernel, op)
        self._join()
        self.every: Steps | None = None

    def _measure(self, kernel: str, op: Op) -> None:
        layer, module = self.layer, op.module
        count = layer.tables.count(module)
        local = divide(op, layer.tables.every, {})
        price = price_op(local, layer.tables.rank)
        weight = local.read_weight()
        held = local.weight_bytes() + local.tied_bytes() + (weight.bytes() if weight else 0.0)
        moved = price.cache_bytes
        table = np.asarray(held) > np.asarray(moved) * (1.0 + 1e-6)
        columns = per_option(
            kernel_columns(local, layer.setting.graph, layer.axes, layer.tables.every), count
        )
        shape = kernel_shape(local, columns, element_bytes(op, layer.setting))
        made = {
            "time": price.time - price.overhead,
            "weight_bytes": np.where(table, 0.0, held),
            "extra_bytes": np.where(table, np.maximum(0.0, moved - local.output_bytes()), 0.0),
            **shape,
        }
        self.values[kernel] = {name: per_option(made[name], count) for name in OPEN_FIELDS}
        self.full[kernel] = per_option(price.time, count)
        self.module[kernel] = module
        self.bytes[kernel] = per_option(local.output_bytes(), count)

    def _join(self) -> None:
        """Tables between kernels and readers, and what a sum leaves of a result's bytes."""
        layer = self.layer
        ops = self.ops = dict(kernel_ops(self.block))
        makers = {op.output: kernel for kernel, op in ops.items()}
        readers: dict[str, int] = {}
        for op in ops.values():
            for tensor in op.inputs:
                readers[tensor] = readers.get(tensor, 0) + 1
        for kernel, op in ops.items():
            local = divide(op, layer.tables.every, {})
            if getattr(op, "adds", False):
                self._added(kernel, op, makers)
                continue
            for place, tensor in enumerate(op.inputs):
                if tensor in makers and not op.stored_axes(place):
                    own = local.operand_bytes(place)
                    stated = None if own is None else per_option(own, layer.tables.count(op.module))
                    self._pair(makers[tensor], kernel, place, stated, readers[tensor] > 1)
        for kernel, op in ops.items():
            partial = [layer.left(op, k)[1] for k in range(layer.tables.count(op.module))]
            pieces = [float(np.prod([float(layer.tables.every.degrees[g]) for g in p])) for p in partial]
            self.bytes[kernel] = self.bytes[kernel] / np.array(pieces)

    def _added(self, reader: str, op: Op, makers: dict[str, str]) -> None:
        """Operands that are added up on each rank first, then once between ranks with the last one that is
        partial: as large as it is, or as the block's boundary.
        """
        layer, tables = self.layer, self.layer.tables
        mine = [makers[t] for t in op.inputs if t in makers]
        output = self.block.output
        least = np.inf if output is None else float(output.bytes()) / layer.ranks
        for number, kernel in enumerate(mine):
            made = self.ops[kernel]
            count, readers = layer.tables.count(made.module), layer.tables.count(op.module)
            local = divide(made, tables.every, {})
            size, summed = per_option(local.output_bytes(), count), per_option(local.partial_bytes(), count)
            partial = np.array([bool(layer.left(made, k)[1]) for k in range(count)])
            size = np.where(partial, np.minimum(size, least), size)  # a sum is as large as the boundary
            cost = np.zeros(count)
            for k in range(count) if number == len(mine) - 1 else ():
                for group in layer.left(made, k)[1]:
                    cost[k] += tables.collective("all_reduce", group, min(float(summed[k]), least), 1.0)
            spread = (count, readers)
            table, sizes = (np.broadcast_to(v[:, None], spread) for v in (cost, size))
            self.pairs.append(PairCost(kernel, (made.module, op.module), table, reader, sizes))

    def _pair(self, kernel: str, reader: str, place: int, stated: Array | None, shared: bool) -> None:
        layer, tables = self.layer, self.layer.tables
        made, read = self.ops[kernel], self.ops[reader]
        first, second = layer.tables.count(made.module), layer.tables.count(read.module)
        local = divide(made, tables.every, {})
        size, summed = per_option(local.output_bytes(), first), per_option(local.partial_bytes(), first)
        axes = tuple(a for a in read.operand_axes(place) if a not in read.whole_axes())
        table = np.zeros((first, second))
        carried = np.broadcast_to(size[:, None], table.shape).copy()
        for i in range(first):
            spec, partial = layer.left(made, i)
            for j in range(second):
                want = tables.each[j].spec(read.module, axes)
                found = conversions(spec, partial, want)
                if partial and shared:  # another reader may have asked for the sum in another way
                    found = found[: len(partial)]
                for one, held in zip(found, held_before(found, tables.every), strict=True):
                    degree = float(tables.every.degrees[one.group]) if one.gathered else 1.0
                    if one.pattern in ("all_reduce", "reduce_scatter"):
                        payload = float(summed[i] * held)
                    else:
                        payload = float((size[i] * held if stated is None else stated[j]) * degree)
                    cost = tables.collective(one.pattern, one.group, payload, 1.0)
                    ranks = float(tables.every.degrees[one.group])
                    carried[i, j] = payload / (ranks if one.pattern == "reduce_scatter" else 1.0)
                    if partial and shared:
                        other = tables.collective("reduce_scatter", one.group, payload, 1.0)
                        cost = min(cost, other)
                        carried[i, j] = min(carried[i, j], payload / ranks)
                    table[i, j] += cost
        self.pairs.append(PairCost(kernel, (made.module, read.module), table, reader, carried))

    def left_behind(self, alive: Open) -> dict[str, float]:
        """The least bytes of what the block's kernels leave, as later blocks read it."""
        carried = self._carried(alive)[1]
        found: dict[str, float] = {}
        for kernel, op in self.ops.items():
            own = float(self.bytes[kernel][alive.get(op.module, ONLY)].min())
            sizes = [size for (source, _), size in carried.items() if source == kernel]
            found[f"{self.block.name}:{op.output}"] = min(sizes, default=own)
        return found

    def relaxed(self, alive: Open) -> FusionProblem:
        """The fusion problem of the least value of everything over open options."""
        network, carried = self._carried(alive)
        kernels = []
        for kernel in self.base.kernels:
            own = self.values.get(kernel.name)
            if own is None:
                kernels.append(replace(kernel, network=()))
                continue
            which = alive.get(self.module[kernel.name], ONLY)
            least_of: dict[str, Any] = {name: float(values[which].min()) for name, values in own.items()}
            if self.base.rules.compute == "priced" and np.ptp(own["columns"][which]) > 0:
                least_of["depth"] = 0.0  # tiles of another number of columns pad otherwise: none is below
            sent = network.get(kernel.name, 0.0)
            kernels.append(replace(kernel, network=(sent,) if sent else (), **least_of))
        behind = self.layer.left_behind(self, alive)
        tensors = tuple(self._tensor(t, alive, carried, behind) for t in self.base.tensors)
        return replace(self.base, kernels=tuple(kernels), tensors=tensors)

    def _carried(self, alive: Open) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
        """The least network time of kernels, and the least bytes on the way to their readers."""
        network: dict[str, float] = {}
        carried: dict[tuple[str, str], float] = {}
        for pair in self.pairs:
            a, b = pair.modules
            least = float(_over(pair.table, alive, a, b).min())
            if pair.bytes is not None:
                key = (pair.kernel, pair.reader)
                size = float(_over(pair.bytes, alive, a, b).min())
                carried[key] = min(carried.get(key, size), size)
            known = network.get(pair.kernel, 0.0)
            # conversions that several readers share are made once: only the dearest counts
            network[pair.kernel] = max(known, least)
        return network, carried

    def _tensor(
        self,
        tensor: FusionTensor,
        alive: Open,
        carried: dict[tuple[str, str], float],
        behind: dict[str, float],
    ) -> FusionTensor:
        if (tensor.source, tensor.target) in carried:
            return replace(tensor, bytes=carried[tensor.source, tensor.target])
        if tensor.source != OUTSIDE:
            own = self.bytes.get(tensor.source)
            if own is None:
                return replace(tensor, bytes=0.0)
            return replace(tensor, bytes=float(own[alive.get(self.module[tensor.source], ONLY)].min()))
        entry = self.block.entry
        if entry is not None and entry.name == tensor.name:
            role = self.block.role
            return replace(
                tensor, bytes=float(self.layer.tables.entry_bytes(self.block)[alive.get(role, ONLY)].min())
            )
        return replace(tensor, bytes=behind.get(tensor.name, tensor.bytes / self.layer.ranks))

    def pricer(self, alive: Open) -> PartitionPricer:
        """Prices below those of every open layout."""
        problem = self.relaxed(alive)
        if problem.rules.compute != "cores":
            return PartitionPricer(problem)
        shapes = []
        for kernel in problem.kernels:
            own = self.values.get(kernel.name)
            if own is None:
                shapes.append([(kernel.rows, kernel.columns, kernel.depth)])
                continue
            which = alive.get(self.module[kernel.name], ONLY)
            sides = zip(*(own[side][which].tolist() for side in ("rows", "columns", "depth")), strict=True)
            shapes.append(list(dict.fromkeys(sides)))
        return PartitionPricer(problem, shapes)

    def prepare(self, alive: Open) -> float:
        """A first bound of the block, over all of its partitions."""
        pricer = self.pricer(alive)
        self.every = all_steps(pricer)
        if self.every is None:
            return plain_bound(pricer)
        found = shortest_fusion(pricer, self.every)
        return float("inf") if found is None else found.time * BELOW

    @cached_property
    def steps(self) -> NarrowedSteps | None:
        """All partitions, to be narrowed."""
        return None if self.every is None else NarrowedSteps(PartitionPricer(self.base), self.every)

    def bound(
        self, alive: Open, steps: NarrowedSteps | None, worst: float
    ) -> tuple[float, NarrowedSteps | None]:
        """Below the block's time under open layouts, and partitions still of use below `worst`."""
        if steps is None:
            return plain_bound(self.pricer(alive)), None
        least, left = steps.branch(self.pricer(alive), worst)
        return least * BELOW, left


def _over(table: Array, alive: Open, first: str, second: str) -> Array:
    """The entries of a table over two modules that are open."""
    if first == second:
        return np.diag(table)[alive.get(first, ONLY)]
    found: Array = table[np.ix_(alive.get(first, ONLY), alive.get(second, ONLY))]
    return found


def plain_bound(pricer: PartitionPricer) -> float:
    """A bound without any path: all work and weights at once, all in and out; no SRAM limit, no fill."""
    every = np.ones((1, len(pricer.problem.kernels)))
    found = []
    for tiles in pricer.problem.tiles:
        compute = pricer.least_compute(every, tiles)
        price = pricer.prices(every, tiles, compute=compute)
        found.append(max(float(compute[0]), float(price.memory[0]), float(price.network[0])))
    return min(found)
