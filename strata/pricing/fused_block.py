"""A block on a dataflow chip: runs of its ops fused into partitions wherever that is quicker, point by point.

Ops keep their order, so that partitions are runs of them, and the best division into runs is a shortest path
over their ends: exact for that order, in broadcasting equations (`pricing/fusion.py`). Orders of a graph that
is no chain are the exact solver's (`optimise/fuse.py`), which prices partitions by the same equations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.base.arrays import SCALARS, Mask, Number, choose, lead, namespace, rank_of
from strata.pricing import fusion
from strata.pricing.fusion_rules import fusion_rules
from strata.pricing.price import ZERO, Price, price_where
from strata.pricing.pricers import PricedOp, Rank, on_chip, price_op
from strata.workload.graph import Block, Graph, Op, is_collective


def own_bytes(op: Op, price: Price) -> tuple[Number, Number]:
    """Bytes of weights an op reads by itself; and of a cache, which streams through and is never held."""
    weight = op.read_weight()
    weights = op.weight_bytes() + op.tied_bytes() + (0.0 if weight is None else weight.bytes())
    stored: Number = 0.0
    for place in range(len(op.inputs)):
        if op.stored_axes(place):
            size = op.operand_bytes(place)
            stored = stored if size is None else stored + size
    xp = namespace(weights, stored, price.memory_bytes)
    weights = xp.minimum(weights, price.memory_bytes)
    return weights, xp.minimum(stored, price.memory_bytes - weights)


def block_tensors(ops: list[Op], block: Block, sizes: dict[str, Number]) -> list[fusion.TensorUse]:
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
            fusion.TensorUse(
                source=outside if maker < 0 else maker,
                targets=targets,
                bytes=bytes_of.get((name, maker), 0.0),
                whole=tuple(t in waits for t in targets),
            )
        )
    return found


def _streams(axes: tuple[str, ...]) -> bool:
    return any(map(fusion.is_streamed, axes))


@lru_cache(maxsize=256)
def run_structure(
    tensors: tuple[tuple[int, tuple[int, ...], tuple[bool, ...]], ...], communicates: tuple[bool, ...]
) -> tuple[dict[tuple[int, int], tuple[tuple[tuple[int, float], ...], ...]], list[float], list[float]]:
    """Which tensors count how often in the flows of each run, and ops' levels: structure alone."""
    uses = [fusion.TensorUse(source=s, targets=t, bytes=0.0, whole=w) for s, t, w in tensors]
    level, behind = _levels(uses, list(communicates))
    count = len(communicates)
    ends = [(first, last) for last in range(1, count + 1) for first in range(last)]
    inside = [np.array([first <= i < last for first, last in ends]) for i in range(count + 1)]
    factors = [fusion.flow_factors(tensor, inside, level, 1.0) for tensor in uses]
    found = {}
    for k, end in enumerate(ends):
        by_flow = []
        for flow in range(len(fusion.FLOWS)):
            counts = ((i, float(np.broadcast_to(f[flow], len(ends))[k])) for i, f in enumerate(factors))
            by_flow.append(tuple((i, count) for i, count in counts if count != 0.0))
        found[end] = tuple(by_flow)
    return found, level, behind


def _levels(tensors: list[fusion.TensorUse], communicates: list[bool]) -> tuple[list[float], list[float]]:
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


TILES = tuple(4.0**i for i in range(6))  # numbers of tiles that a partition may pass on


@dataclass(frozen=True, eq=False, kw_only=True)
class FusedRun:
    """A run of ops as one partition, at its best number of tiles: times [s] and bytes."""

    time: Number
    compute: Number
    busy: Number
    memory: Number
    traffic: Number  # from and to DRAM
    core: Number  # over its ops: time on the chip, weights and caches, communication
    own: Number
    network: Number
    count: Number


class FusedRuns:
    """Prices of runs of a block's ops: each kernel's time with DRAM out of the way, its bytes and tensors."""

    def __init__(
        self, priced: list[PricedOp], block: Block, rank: Rank, sizes: dict[str, Number] | None = None
    ):
        self.priced, self.rank, device = priced, rank, rank.device
        bare = replace(rank, device=on_chip(device))
        joint = [is_collective(op) for op, _ in priced]
        chip = [ZERO if c else price_op(op, bare) for (op, _), c in zip(priced, joint, strict=True)]
        self.core = [0.0 if c else p.time - p.overhead for p, c in zip(chip, joint, strict=True)]
        own = [(0.0, 0.0) if c else own_bytes(op, p) for (op, p), c in zip(priced, joint, strict=True)]
        self.weights, self.caches = [weights for weights, _ in own], [cache for _, cache in own]
        self.own = [weights + cache for weights, cache in own]
        # A ring's steps beside its attention hide there when both are alone; in a run they take their time.
        self.network = [p.upper if c else 0.0 for (_, p), c in zip(priced, joint, strict=True)]
        self.product = [op.category != "vector" and not c for (op, _), c in zip(priced, joint, strict=True)]
        # Only a kernel alone may take its weights in passes.
        self.rules = replace(fusion_rules(), weight_tiling="none")
        self.tensors = block_tensors([op for op, _ in priced], block, sizes or {})
        shape = tuple((t.source, t.targets, t.whole) for t in self.tensors)
        self.uses, self.levels, self.behind = run_structure(shape, tuple(joint))
        self.rows: Number = block.entry.extents[0].size if block.entry is not None else 1.0
        limits = {"sram": device.cache_capacity, "bandwidth": device.bandwidth, "start": device.floor}
        self.limits = fusion.PartitionLimits(**limits)
        sizes_of = [t.bytes for t in self.tensors]
        every = (*self.core, *self.own, *self.network, *sizes_of, *limits.values(), self.rows, device.grain)
        self.tiles, self.padding, self.allowed = self._tilings(rank_of(*every), namespace(*every))

    def _tilings(self, rank: int, xp: Any) -> tuple[Number, Number, Mask]:
        """Numbers of tiles that rows of some point allow (leading axis), what they pad, where they may be."""
        most = np.max(self.rows) if isinstance(self.rows, float | np.ndarray | np.generic) else math.inf
        some = [tiles for tiles in TILES if tiles == 1.0 or tiles <= most]
        tiles = 1.0 if len(some) == 1 else lead(some, rank, np if xp is SCALARS else xp)
        padding = fusion.padded_work(self.rows, tiles, self.rank.device.grain)
        return tiles, padding, (tiles <= self.rows) | (tiles == 1.0)

    def work(self, first: int, last: int) -> tuple[fusion.PartitionWork, Number, Number]:
        """What ops of some places ask for as one partition; time of its products and of its other kernels."""
        inside = range(first, last)
        sums = {
            name: sum((self.tensors[i].bytes * factor for i, factor in uses), 0.0)
            for name, uses in zip(fusion.FLOWS, self.uses[first, last], strict=True)
        }
        products = sum((self.core[i] for i in inside if self.product[i]), 0.0)
        others = sum((self.core[i] for i in inside if not self.product[i]), 0.0)
        work = fusion.PartitionWork(
            flows=fusion.PartitionFlows(**sums),
            weights=sum((self.weights[i] for i in inside), 0.0),
            extra=sum((self.caches[i] for i in inside), 0.0),
            compute=0.0,
            network=sum((self.network[i] for i in inside), 0.0),
            levels=float(len({self.levels[i] for i in inside})),
            whole_levels=max(self.behind[i] for i in inside) - min(self.behind[i] for i in inside),
        )
        return work, products, others

    def hopeless(self, first: int, last: int) -> bool:
        """Whether no point has room for what a run holds in any tiling, and so for no longer run either."""
        held = sum((self.weights[i] for i in range(first, last)), 0.0)
        for i, factor in self.uses[first, last][-1]:
            held = held + self.tensors[i].bytes * factor
        return _nowhere(held <= self.limits.sram * (1.0 + 1e-9))

    def fused(self, first: int, last: int) -> FusedRun:
        """Ops of some places as one partition at its best number of tiles; infinite time without room."""
        work, products, others = self.work(first, last)
        core = products * self.padding + others
        found = fusion.price_partition(replace(work, compute=core), self.limits, self.rules, self.tiles, 1.0)
        xp = namespace(found.time, self.tiles, self.allowed)
        compute, busy = found.compute, found.busy
        time = xp.where(found.fits & self.allowed, found.time, math.inf)
        if self.tiles.__class__ is not float:
            every: list[Any] = [value + 0.0 * self.tiles for value in (compute, busy)]
            time, compute, busy = choose(time, time, *every)
        return FusedRun(
            time=time,
            compute=compute,
            busy=busy,
            memory=found.memory,
            traffic=found.traffic,
            core=products + others,
            own=work.weights + work.extra,
            network=work.network,
            count=float(last - first),
        )

    def share(self, run: FusedRun, place: int) -> Price:
        """An op's part of the price of its run: of what binds it, as much as the op takes of that."""
        alone = self.priced[place][1]
        xp = namespace(run.time, run.core, run.own, run.network, alone.memory_bytes)
        even = 1.0 / run.count

        def part(mine: Number, all: Number) -> Number:
            return xp.where(all > 0.0, mine / xp.where(all > 0.0, all, 1.0), even)

        # A run without room takes for ever, and no point takes it.
        shown = xp.where(run.time < math.inf, run.time, 0.0)
        critical = xp.maximum(xp.maximum(run.busy, run.memory), run.network)
        by_memory = (run.memory > run.busy) & (run.memory >= run.network)
        by_network = (run.network > run.busy) & (run.network > run.memory)
        compute = xp.where(by_memory | by_network, 0.0, run.compute)
        memory = xp.where(by_memory, run.memory, 0.0)
        network = xp.where(by_network, run.network, xp.where(by_memory, 0.0, run.busy - run.compute))
        of_core, of_own = part(self.core[place], run.core), part(self.own[place], run.own)
        of_network = part(self.network[place], run.network)
        parts = {"compute": compute * of_core, "memory": memory * of_own, "network": network * of_network}
        parts["overhead"] = xp.maximum(shown - critical, 0.0) * even
        time = parts["compute"] + parts["memory"] + parts["network"] + parts["overhead"]
        moved = of_own * run.traffic
        upper = run.compute * of_core + run.memory * of_own + run.network * of_network + parts["overhead"]
        return alone.replaced(
            **parts,
            time=time,
            cache=0.0,
            lower=xp.minimum(alone.lower, time),
            upper=xp.maximum(upper, time),
            # by the same shares as DRAM's time, behind which it hides at any clock
            core_time_under_dram=xp.where(by_memory, run.compute * of_own, 0.0),
            memory_bytes=moved,
            energy=alone.energy + (moved - alone.memory_bytes) * self.rank.device.chip.energy.memory,
            saved=0.0,
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
    runs = FusedRuns(priced, block, rank, sizes)
    best: list[Number] = [0.0]
    taken: list[list[tuple[int, FusedRun | None, Number]]] = []  # at each end: start, run, time in all
    for last in range(1, len(priced) + 1):
        least = best[last - 1] + priced[last - 1][1].time
        ways: list[tuple[int, FusedRun | None, Number]] = [(last - 1, None, least)]
        for first in range(last - 2, -1, -1):
            if runs.hopeless(first, last):
                break
            run = runs.fused(first, last)
            time = best[first] + run.time
            if _nowhere(time < least):
                continue
            ways.append((first, run, time))
            least = namespace(least, time).minimum(least, time)
        best.append(least)
        taken.append(ways)
    found = _chosen(runs, best, taken)
    return _at_least(found, runs) if rank.device.software.for_bounds else found


def _chosen(
    runs: FusedRuns, best: list[Number], taken: list[list[tuple[int, FusedRun | None, Number]]]
) -> list[PricedOp]:
    """Each op at the price of the run it lies in, point by point, from the last op back."""
    count = len(runs.priced)
    reached: list[Any] = [np.False_] * count + [np.True_]
    found = [price for _, price in runs.priced]
    for last in range(count, 0, -1):
        open_: Any = reached[last]
        members: list[Any] = [np.False_] * last
        merged: FusedRun | None = None
        for first, run, time in taken[last - 1]:
            here = open_ & (time <= best[last])
            if _nowhere(here):
                continue
            open_ = open_ & ~here
            reached[first] = reached[first] | here
            if run is None:
                continue
            merged = run if merged is None else _run_where(here, run, merged)
            members[first:last] = [member | here for member in members[first:last]]
        for place, inside in enumerate(members):
            if merged is not None and not _nowhere(inside):
                found[place] = price_where(inside, runs.share(merged, place), found[place])
    return [(op, price) for (op, _), price in zip(runs.priced, found, strict=True)]


def _at_least(found: list[PricedOp], runs: FusedRuns) -> list[PricedOp]:
    """Ops of a block at prices that no chip with at most these resources undercuts: times as they are, all
    credited to what a clock does not slow but the work that each op has in any run; the least bytes from DRAM
    of any division into runs, whatever room they need. A better chip may divide the block in another way,
    which starts more kernels, shows more of its communication or moves more bytes, although it takes less
    time.
    """
    priced = runs.priced
    least: list[Number] = [0.0]
    for last in range(1, len(priced) + 1):
        fewest = least[last - 1] + priced[last - 1][1].memory_bytes
        for first in range(last - 1):
            run = runs.work(first, last)[0]
            way = least[first] + run.flows.read + run.flows.written + run.weights + run.extra
            fewest = namespace(fewest, way).minimum(fewest, way)
        least.append(fewest)
    usual = sum((p.memory_bytes for _, p in priced), 0.0)
    xp = namespace(usual, least[-1])
    kept = xp.where(usual > 0.0, least[-1] / xp.where(usual > 0.0, usual, 1.0), 1.0)
    joins = any(is_collective(op) for op, _ in priced)  # beside it kernels may hide, whatever their clock
    made = []
    for place, (op, price) in enumerate(found):
        alone = priced[place][1]
        moved = alone.memory_bytes * kept
        saved = (alone.memory_bytes - moved) * runs.rank.device.chip.energy.memory
        work = alone.compute + alone.cache + alone.core_time_under_dram
        under = 0.0 if joins else namespace(work, runs.core[place]).minimum(work, runs.core[place])
        changes = dict.fromkeys(("compute", "cache", "network", "overhead"), 0.0 * price.time)
        changes |= {"memory": price.time, "core_time_under_dram": under, "memory_bytes": moved}
        made.append((op, price.replaced(**changes, energy=alone.energy - saved)))
    return made


def _nowhere(mask: Any) -> bool:
    """Whether a condition is known to hold at no point; of what is compiled nothing is known."""
    if mask.__class__ is bool:
        return not mask
    return isinstance(mask, np.ndarray | np.bool_) and not mask.any()


def _run_where(here: Any, run: FusedRun, rest: FusedRun) -> FusedRun:
    xp = namespace(here, run.time, rest.time)
    return FusedRun(
        **{name: xp.where(here, value, getattr(rest, name)) for name, value in run.__dict__.items()}
    )
