"""A block on a dataflow chip: runs of its ops fused into partitions wherever that is quicker, at every point
of a batch.

Ops keep their order, so that partitions are runs of them, and the best division into runs is a shortest path
over their ends: exact for that order, in broadcasting equations (`pricing/fusion.py`). Orders of a graph that
is no chain are the exact solver's (`optimise/fuse.py`), which prices partitions by the same equations.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from strata.arrays import Number, namespace
from strata.pricing.fused_partition import (
    PartitionLimits,
    PartitionPrice,
    PartitionWork,
    TensorUse,
    partition_flows,
    price_partition,
)
from strata.pricing.fusion import is_streamed, padded_work
from strata.pricing.fusion_rules import fusion_rules
from strata.pricing.price import ZERO, Price
from strata.pricing.pricers import PricedOp, Rank, on_chip, price_op
from strata.workload.graph import Block, Graph, Op, is_collective

TILES = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)  # numbers of tiles that a partition may pass on


class FusedRuns:
    """Prices of runs of a block's ops: each kernel's time on the chip with DRAM out of the way, the bytes it
    reads of weights and caches, and the tensors between them.
    """

    def __init__(
        self, priced: list[PricedOp], block: Block, rank: Rank, sizes: dict[str, Number] | None = None
    ):
        self.priced, self.rank = priced, rank
        bare = replace(rank, device=on_chip(rank.device))
        chip = [ZERO if is_collective(op) else price_op(op, bare) for op, _ in priced]
        paired = list(zip(priced, chip, strict=True))
        self.core = [0.0 if is_collective(op) else p.time - p.overhead for (op, _), p in paired]
        self.own = [0.0 if is_collective(op) else _own_bytes(op, p) for op, p in priced]
        self.network = [p.time if is_collective(op) else 0.0 for op, p in priced]
        self.product = [bool(op.category != "vector") and not is_collective(op) for op, _ in priced]
        self.rules = fusion_rules()
        self.tensors = _tensors([op for op, _ in priced], block, sizes or {})
        self.level, self.behind = _levels(self.tensors, [is_collective(op) for op, _ in priced])
        self.rows: Number = block.entry.extents[0].size if block.entry is not None else 1.0

    def fused(self, first: int, last: int) -> PartitionPrice:
        """Ops from one place up to another as one partition, at its best number of tiles; its time is
        infinite where it has no room.
        """
        device, inside = self.rank.device, range(first, last)
        within = [first <= i < last for i in range(len(self.priced) + 1)]
        work = PartitionWork(
            flows=partition_flows(self.tensors, within, self.level, 1.0),
            weights=sum((self.own[i] for i in inside), 0.0),
            compute=0.0,
            network=sum((self.network[i] for i in inside), 0.0),
            levels=float(len({self.level[i] for i in inside})),
            whole_levels=max(self.behind[i] for i in inside) - min(self.behind[i] for i in inside),
        )
        limits = PartitionLimits(sram=device.cache_capacity, bandwidth=device.bandwidth, start=device.floor)
        best: PartitionPrice | None = None
        for tiles in TILES:
            padding = padded_work(self.rows, tiles, device.grain)
            core = sum((self.core[i] * (padding if self.product[i] else 1.0) for i in inside), 0.0)
            found = price_partition(replace(work, compute=core), limits, self.rules, tiles, 1.0)
            xp = namespace(found.time, self.rows)
            room = found.fits & ((tiles <= self.rows) | (tiles == 1.0))
            found = replace(found, time=xp.where(room, found.time, math.inf))
            best = found if best is None else _quicker(found, best)
        assert best is not None
        return best

    def share(self, run: PartitionPrice, place: int, first: int, last: int) -> Price:
        """An op's part of the price of its run: of what binds it, as much as the op takes of that."""
        alone = self.priced[place][1]
        inside = range(first, last)
        core, own, net = (sum((part[i] for i in inside), 0.0) for part in (self.core, self.own, self.network))
        xp = namespace(run.time, core, own, net, alone.memory_bytes)
        by_network = (run.network > run.compute) & (run.network > run.memory)
        by_memory = (run.memory > run.compute) & (run.memory >= run.network)
        even = 1.0 / (last - first)

        def part(mine: Number, all: Number) -> Number:
            return xp.where(all > 0.0, mine / xp.where(all > 0.0, all, 1.0), even)

        used = xp.where(by_network, part(self.network[place], net), part(self.core[place], core))
        used = xp.where(by_memory, part(self.own[place], own), used)
        # A run without room takes for ever, and no point takes it.
        shown = xp.where(run.time < math.inf, run.time, 0.0)
        busy, start = xp.maximum(shown - self.rank.device.floor, 0.0) * used, self.rank.device.floor * even
        moved = part(self.own[place], own) * run.traffic
        dram_joule = self.rank.device.chip.energy.memory
        upper = (run.compute + run.memory + run.network) * used + start
        return alone.replaced(
            time=busy + start,
            compute=xp.where(by_network | by_memory, 0.0, busy),
            cache=0.0,
            memory=xp.where(by_memory, busy, 0.0),
            network=xp.where(by_network, busy, 0.0),
            overhead=start,
            lower=xp.minimum(alone.lower, busy + start),
            upper=xp.maximum(upper, busy + start),
            core_time_under_dram=xp.where(by_memory, run.compute * used, 0.0),
            memory_bytes=moved,
            energy=alone.energy + (moved - alone.memory_bytes) * dram_joule,
        )


def fuse_block(
    priced: list[PricedOp], block: Block, rank: Rank, sizes: dict[str, Number] | None = None
) -> list[PricedOp]:
    """A block's ops in the partitions that take least time in their order: each op as part of its run, or
    alone as it was priced where no run with it is quicker.

    `sizes`: bytes of tensors of other blocks.
    """
    ahead = [pair for pair in priced if is_collective(pair[0]) and pair[0].prefetch]
    if ahead:  # gathered beside the block before: no part of a run
        rest = [pair for pair in priced if not (is_collective(pair[0]) and pair[0].prefetch)]
        return [*ahead, *fuse_block(rest, block, rank, sizes)]
    count = len(priced)
    runs = FusedRuns(priced, block, rank, sizes)
    best: list[Number] = [0.0]
    taken: list[
        list[tuple[int, PartitionPrice | None, Number]]
    ] = []  # at each end: start, run, its time in all
    for last in range(1, count + 1):
        ways: list[tuple[int, PartitionPrice | None, Number]] = [
            (last - 1, None, best[last - 1] + priced[last - 1][1].time)
        ]
        for first in range(last - 1):
            run = runs.fused(first, last)
            ways.append((first, run, best[first] + run.time))
        least = ways[0][2]
        for _, _, time in ways[1:]:
            least = namespace(least, time).minimum(least, time)
        best.append(least)
        taken.append(ways)
    return _chosen(priced, runs, best, taken)


def _chosen(
    priced: list[PricedOp],
    runs: FusedRuns,
    best: list[Number],
    taken: list[list[tuple[int, PartitionPrice | None, Number]]],
) -> list[PricedOp]:
    """Each op at the price of the run it lies in, point by point, from the last op back."""
    count = len(priced)
    reached: list[Any] = [False] * count + [True]
    found: list[Price] = [ZERO] * count
    for last in range(count, 0, -1):
        open_: Any = reached[last]
        if open_ is False:
            continue
        for first, run, time in taken[last - 1]:
            here = open_ & (time <= best[last])
            open_ = open_ & ~here if hasattr(here, "shape") else open_ and not here
            if here is False or not (hasattr(here, "shape") or here):
                continue
            reached[first] = here if reached[first] is False else reached[first] | here
            for place in range(first, last):
                price = priced[place][1] if run is None else runs.share(run, place, first, last)
                found[place] = price if here is True else _added_where(here, price, found[place])
    return [(op, price) for (op, _), price in zip(priced, found, strict=True)]


def _quicker(one: PartitionPrice, other: PartitionPrice) -> PartitionPrice:
    """The quicker of two prices of a partition, point by point."""
    xp = namespace(one.time, other.time)
    better = one.time < other.time
    return PartitionPrice(
        **{name: xp.where(better, value, getattr(other, name)) for name, value in one.__dict__.items()}
    )


def _added_where(here: Any, price: Price, rest: Price) -> Price:
    """A price where a condition holds, beside what holds elsewhere."""
    xp = namespace(here, price.time)
    return rest + Price(**{name: xp.where(here, value, 0.0) for name, value in price.__dict__.items()})


def _own_bytes(op: Op, price: Price) -> Number:
    """Bytes of weights and caches an op reads; of tables and experts no more than it read by itself."""
    weight = op.read_weight()
    held = op.weight_bytes() + op.tied_bytes() + (0.0 if weight is None else weight.bytes())
    for place in range(len(op.inputs)):
        if op.stored_axes(place):
            stored = op.operand_bytes(place)
            held = held if stored is None else held + stored
    return namespace(held, price.memory_bytes).minimum(held, price.memory_bytes)


def _tensors(ops: list[Op], block: Block, sizes: dict[str, Number]) -> list[TensorUse]:
    """Tensors between the ops of a block, with those from outside that are no stored caches."""
    makers: dict[str, int] = {}
    readers: dict[tuple[str, int], list[int]] = {}
    whole: dict[tuple[str, int], list[int]] = {}
    bytes_of: dict[tuple[str, int], Number] = {}
    if block.entry is not None:
        sizes = {**sizes, block.entry.name: block.entry.bytes()}
    for i, op in enumerate(ops):
        for place, tensor in enumerate(op.inputs):
            if op.stored_axes(place):
                continue
            key = (tensor, makers.get(tensor, -1))
            readers.setdefault(key, []).append(i)
            if key[1] < 0 and key not in bytes_of:
                kept = op.kept_operand(place)
                stated = op.operand_bytes(place) if kept is None else kept.bytes()
                bytes_of[key] = sizes.get(tensor, 0.0 if stated is None else stated)
            wanted = op.operand_axes(place)
            made = key[1] >= 0 and _streams(ops[key[1]].result_axes())
            if made and wanted and not _streams(wanted):
                whole.setdefault(key, []).append(i)
        makers[op.output] = i
        bytes_of[op.output, i] = op.payload if is_collective(op) else op.output_bytes()
    left, outside = set(block.leaves) or {ops[-1].output}, len(ops)
    found = []
    for name, maker in dict.fromkeys([*bytes_of, *readers]):
        read = tuple(readers.get((name, maker), ()))
        waits = set(whole.get((name, maker), ()))
        leaves = name in left and makers.get(name) == maker
        targets = (*read, outside) if leaves or not read else read
        found.append(
            TensorUse(
                source=outside if maker < 0 else maker,
                targets=targets,
                bytes=bytes_of.get((name, maker), 0.0),
                whole=tuple(t in waits for t in targets),
            )
        )
    return found


def _streams(axes: tuple[str, ...]) -> bool:
    return any(map(is_streamed, axes))


def _levels(tensors: list[TensorUse], communicates: list[bool]) -> tuple[list[float], list[float]]:
    """Longest path to each op, on which collectives are no stage of their own, and the most operands on a
    path that must be whole; last those of the world outside.
    """
    outside = len(communicates)
    level, behind = [0.0] * (outside + 1), [0.0] * (outside + 1)
    into: list[list[tuple[int, bool]]] = [[] for _ in communicates]
    for tensor in tensors:
        for reader, waits in zip(tensor.targets, tensor.whole, strict=True):
            if outside not in (tensor.source, reader):
                into[reader].append((tensor.source, waits))
    for i, sources in enumerate(into):
        step = 0.0 if communicates[i] else 1.0
        level[i] = max((level[s] + step for s, _ in sources), default=0.0)
        behind[i] = max((behind[s] + float(waits) for s, waits in sources), default=0.0)
    return level, behind


def tensor_sizes(graph: Graph) -> dict[str, Number]:
    """Bytes of the tensors of all blocks, as other blocks read them: what backward blocks need as `sizes`."""
    found: dict[str, Number] = {}
    for block in graph.blocks:
        if block.entry is not None:
            found[f"{block.name}:{block.entry.name}"] = block.entry.bytes()
        for op in block.ops:
            size = op.payload if is_collective(op) else op.output_bytes()
            found[f"{block.name}:{op.output}"] = size
    return found
