"""From a rank's ops to a fusion problem: times on the chip, weights, tensors, communication."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number
from strata.base.errors import BadValue
from strata.optimise.fusion.fuse_path import fusion_steps
from strata.optimise.fusion.fusion_problem import (
    OUTSIDE,
    FusionChip,
    FusionKernel,
    FusionProblem,
    FusionTensor,
    order_ideals,
)
from strata.optimise.fusion.partition_prices import PartitionPricer
from strata.pricing.fusion import STREAM_AXES, is_streamed
from strata.pricing.fusion_rules import FusionRules, fusion_rules
from strata.pricing.pricers import Rank, on_chip, price_op
from strata.workload.graph import Block, Collective, Op, is_collective
from strata.workload.graph_walks import extents_of
from strata.workload.ops import is_vector

TILES = tuple(2**i for i in range(11))
Shape = Callable[[Op], dict[str, Any]]  # rows, columns, depth and FLOP of a kernel


def fusion_problem(
    block: Block,
    rank: Rank,
    shape: Shape,
    *,
    rules: FusionRules | str = "strata",
    stream_axes: tuple[str, ...] = STREAM_AXES,
    tiles: tuple[int, ...] = TILES,
    sizes: Mapping[str, Number] | None = None,
    **more: Any,
) -> FusionProblem:
    """The fusion problem of one rank's ops, sharded already, with every collective as network time of the
    kernel before it.

    A kernel's own time is its price on the same chip with DRAM out of the way, without its start. An operand
    is needed whole where the op that makes it has a streamed axis and its reader has none (keys and values of
    attention). What lies in memory between steps (a cache) is read beside the tensors, and never held.
    `shape` says what an array of multipliers sees of an op. `sizes`: bytes of tensors from outside that
    neither the block's entry nor the reading op states (`tensor_sizes` of a graph has those of its blocks).
    There are no more tiles than the shortest kernel has rows along the streamed axes. Buffers and weights lie
    in the chip's shared on-chip memory, and DRAM has room for all. `more`: other fields of the problem.
    """
    known = dict(sizes or {})
    if block.entry is not None:
        known.setdefault(block.entry.name, block.entry.bytes())
    made = _Reader(rank, stream_axes, shape, known)
    for op in block.ops:
        made.take(op)
    units = min(made.streamed, default=1.0)
    chip = rank.device.chip
    limits = FusionChip(
        sram=float(chip.cache.capacity),
        dram_bandwidth=float(rank.device.bandwidth),
        cores=int(rank.device.cores),
        array=(float(chip.compute.tile_m), float(chip.compute.tile_n)),
        clock=float(chip.compute.max_clock),
        start=float(rank.device.floor),
        grain=float(rank.device.grain),
    )
    return FusionProblem(
        kernels=tuple(made.kernels.values()),
        tensors=(*made.tensors, *made.leaving(set(block.leaves))),
        chip=limits,
        tiles=tuple(n for n in tiles if n <= units) or (1,),
        rules=fusion_rules(rules),
        **more,
    )


@dataclass
class _Made:
    """A tensor that is there: the kernel that makes it ("": outside), its bytes, whether it streams."""

    kernel: str
    bytes: float
    streams: bool


@dataclass
class _Reader:
    """Kernels and tensors as ops are read one after the other."""

    rank: Rank
    axes: tuple[str, ...]
    shape: Shape
    sizes: dict[str, Number]
    kernels: dict[str, FusionKernel] = field(default_factory=dict)
    tensors: list[FusionTensor] = field(default_factory=list)
    there: dict[str, _Made] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    streamed: list[float] = field(default_factory=list)  # rows of each kernel along the streamed axes

    def take(self, op: Op) -> None:
        if is_collective(op):
            self._communicate(op)
            return
        name = op.name if op.name not in self.kernels else f"{op.name}_{len(self.kernels)}"
        price = price_op(op, replace(self.rank, device=on_chip(self.rank.device)))
        weight = op.read_weight()
        extra, rows = 0.0, self._rows(op)
        self.streamed += rows
        for place, tensor in enumerate(op.inputs):
            extra += self._operand(op, name, place, tensor)
        held = float(op.weight_bytes() + op.tied_bytes() + (weight.bytes() if weight else 0.0))
        moved, rows_read = float(price.cache_bytes), 0.0
        if held > moved * (1.0 + 1e-6):  # rows of a table, of which a step reads a few
            held, rows_read = 0.0, max(0.0, moved - float(op.output_bytes()))
        self.kernels[name] = FusionKernel(
            name=name,
            time=float(price.time - price.overhead),
            **self.shape(op),
            weight_bytes=held,
            extra_bytes=extra + rows_read,
            pieces=1.0 if rows else _pieces(op),
            backward=op.backward,
        )
        self.there[op.output] = _Made(name, float(op.output_bytes()), self._streams(op.result_axes()))

    def _rows(self, op: Op) -> list[float]:
        """Rows along the streamed axes, where it has any: no more tiles than these can follow one another."""
        sizes = [float(e.size) for e in extents_of(op) if is_streamed(e.axis, self.axes)]
        return [math.prod(sizes)] if sizes else []

    def _streams(self, axes: tuple[str, ...]) -> bool:
        return any(is_streamed(axis, self.axes) for axis in axes)

    def _operand(self, op: Op, name: str, place: int, tensor: str) -> float:
        """Join an operand to the op; bytes of one that lies in memory between steps, which is only read."""
        found = self.there.get(tensor)
        stated = op.operand_bytes(place)
        if found is None:
            if op.stored_axes(place):
                return float(0.0 if stated is None else stated)
            found = self.there[tensor] = _Made(OUTSIDE, self._outside(op, place, tensor), False)
        whole = found.streams and not self._streams(op.operand_axes(place)) and bool(op.operand_axes(place))
        edge = FusionTensor(name=tensor, source=found.kernel, target=name, bytes=found.bytes, whole=whole)
        self.tensors.append(edge)
        self.read.add(tensor)
        return 0.0

    def _outside(self, op: Op, place: int, tensor: str) -> float:
        kept = op.kept_operand(place)
        stated = self.sizes.get(tensor, op.operand_bytes(place) if kept is None else kept.bytes())
        if stated is None:
            raise BadValue(
                f"{op.name} reads {tensor} from outside, and nothing says how large it is: give it in sizes"
            )
        return float(stated)

    def _communicate(self, op: Collective) -> None:
        """A collective is time of the kernel whose result it carries, or a kernel of its own."""
        time = float(price_op(op, self.rank).time)
        source = next((self.there[t] for t in op.inputs if t in self.there), None)
        kernel = source.kernel if source is not None else OUTSIDE
        if kernel == OUTSIDE:
            kernel = op.name if op.name not in self.kernels else f"{op.name}_{len(self.kernels)}"
            self.kernels[kernel] = FusionKernel(name=kernel, network=(time,), backward=op.backward)
        else:
            own = self.kernels[kernel]
            self.kernels[kernel] = replace(own, network=(sum(own.network) + time,))
        ranks = math.prod(float(part.size) for part in self.rank.placement.groups[op.group])
        carried = float(op.payload) / (ranks if op.pattern == "reduce_scatter" else 1.0)
        self.read.update(op.inputs)
        self.there[op.output] = _Made(kernel, carried, source.streams if source is not None else True)

    def leaving(self, named: set[str]) -> list[FusionTensor]:
        """Tensors that leave: those named, else those that nothing reads."""
        gone = named & set(self.there) or set(self.there) - self.read
        return [
            FusionTensor(name=t, source=self.there[t].kernel, target=OUTSIDE, bytes=self.there[t].bytes)
            for t in sorted(gone)
            if self.there[t].kernel != OUTSIDE
        ]


def kernel_shape(op: Op, columns: Number, element: float) -> dict[str, Number]:
    """Rows, columns, depth and FLOP of a kernel as an array of multipliers sees it: M x K x N with N
    streamed.

    Element-wise work has no depth; DFModel (2024) counts its operations beside those of products.
    """
    outputs, flop = op.output_bytes() / element, op.flop()
    # scores of keys leave nothing behind
    product = float(np.min(flop)) > 0 and float(np.min(outputs)) > 0
    return {
        "rows": outputs / columns,
        "columns": columns,
        "depth": flop / (2.0 * outputs) if product else 0.0 * flop,
        "flop": flop + (op.vector_flop() if is_vector(op) else 0.0),
    }


def _pieces(op: Op) -> float:
    """Pieces that an op without a streamed axis can be taken in alone: the longest axis of its result that
    all of its operands have, and that it need not find whole.
    """
    operands = [op.operand_axes(place) for place in range(len(op.inputs))]
    free = set(op.result_axes()).difference(op.indivisible_axes(), op.contracted_axes())
    shared = free.intersection(*operands)
    return max((float(e.size) for e in extents_of(op) if e.axis in shared), default=1.0)


IDEALS, STEPS = 20_000, 1_000_000


@dataclass(frozen=True, kw_only=True)
class MapSpace:
    """How many mappings there are, as integers: of degrees and placements, layouts over all of these, and
    fused mappings of one rank's blocks; `mappings` is their sum over candidates, `counts` says of what.
    """

    candidates: int
    layouts: int
    fusions: int
    mappings: int
    counts: str


def fused_space(problems: Iterable[FusionProblem]) -> tuple[int, str] | None:
    """Fused mappings of some blocks together, and what is counted; None where one has too many."""
    mappings, words = 1, ""
    for problem in problems:
        found = mapping_space(problem)
        if found is None:
            return None
        mappings, words = mappings * found[0], found[1]
    return mappings, words


def mapping_space(problem: FusionProblem) -> tuple[int, str] | None:
    """All mappings of a problem without pins and limits of partitions, whether or not they fit, and in words
    what is counted; None where it has more than `IDEALS` order ideals.

    Ordered partitions that respect the graph (chains of order ideals), times the numbers of tiles (one for
    all or one for each), times, where rules share out cores, every way to give each kernel lanes x stages
    (element-wise ones lanes alone) of the cores.
    """
    problem = replace(problem, pinned=(), max_partitions=0)
    pricer = PartitionPricer(problem)
    pricer.weights = 0.0 * pricer.weights  # what does not fit counts too
    masks = order_ideals(problem.before, IDEALS)
    steps = None if masks is None else fusion_steps(pricer, masks, STEPS)
    if steps is None:
        return None
    products = np.array([k.depth > 0 for k in problem.kernels])
    made, plain = (
        (rows.sum(1)[steps.second] - rows.sum(1)[steps.first]).astype(int).tolist()
        for rows in (steps.rows[:, products], steps.rows[:, ~products])
    )
    shared, pairs = problem.rules.compute == "cores", list(zip(made, plain, strict=True))
    ways = _core_shares(set(pairs), problem.chip.cores) if shared else dict.fromkeys(pairs, 1)
    choices, own = len(problem.tiles), problem.rules.tiles == "each"
    each = choices if own else 1
    total = [1] + [0] * (steps.ideals - 1)  # over chains to each ideal; steps are sorted by their second
    for i, j, pair in zip(steps.first.tolist(), steps.second.tolist(), pairs, strict=True):
        total[j] += total[i] * each * ways[pair]
    words = f"chains of order ideals x {'a number of tiles each' if each > 1 else 'one number of tiles'}"
    words += f" x lanes and stages of {problem.chip.cores} cores" if shared else ""
    return total[-1] * (1 if each > 1 else choices), words


def _core_shares(pairs: set[tuple[int, int]], cores: int) -> dict[tuple[int, int], int]:
    """Ways to give so many products lanes x stages and so many element-wise kernels lanes, within the cores.

    Generating functions, packed into one integer each: coefficients of x^c for c cores in all.

    >>> _core_shares({(1, 0), (0, 2)}, 4) == {(1, 0): 1 + 2 + 2 + 3, (0, 2): 1 + 2 + 3}
    True
    """
    most = max(a + b for a, b in pairs)
    bits = 2 * most * max(cores, 2).bit_length() + cores.bit_length()
    mask = (1 << bits * (cores + 1)) - 1

    def packed(values: list[int]) -> int:
        return sum(v << bits * c for c, v in enumerate(values))

    divisors = [0] * (cores + 1)
    for d in range(1, cores + 1):
        for c in range(d, cores + 1, d):
            divisors[c] += 1
    product, lanes = packed(divisors), packed([0] + [1] * cores)
    powers: dict[tuple[int, int], int] = {(0, 0): 1}

    def power(a: int, b: int) -> int:
        if (a, b) not in powers:
            smaller = power(a - 1, b) * product if a else power(a, b - 1) * lanes
            powers[a, b] = smaller & mask
        return powers[a, b]

    one = (1 << bits) - 1
    return {(a, b): sum(power(a, b) >> bits * c & one for c in range(cores + 1)) for a, b in sorted(pairs)}
