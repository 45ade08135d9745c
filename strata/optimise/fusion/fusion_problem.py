"""The problem of fusion inside a chip: kernels, the tensors between them, the chip's limits, the rules; and
the order ideals of its kernels: sets that hold, with each kernel, all that must come before it.

Partitions that run one after the other are the steps of a chain of ideals, from the empty one to all kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadValue, UnknownName, require
from strata.pricing.fusion_rules import FusionRules, fusion_rules

ROWS = 512  # ideals that are held against all others at once
OUTSIDE = ""  # the source of a tensor that comes from outside of the graph, the target of one that leaves it


@dataclass(frozen=True, eq=False, kw_only=True)
class FusionKernel:
    """One kernel of a rank, after sharding.

    What rules "cores" need: M rows, N columns (the streamed axis), depth K of a product, 0 of element-wise
    work. What "priced" needs: `time`, on the chip with DRAM out of the way [s], and for
    products (depth above 0) the columns. What "utilisation" needs:
    FLOP. `network` is the time of its communication [s], one number for each set of links that work side by
    side. `extra_bytes` are read from DRAM besides tensors and weights. `pieces`: in how many it can be taken
    alone, one after the other, along axes of its own.
    """

    name: str
    rows: float = 1.0
    columns: float = 1.0
    depth: float = 0.0
    time: float = 0.0
    flop: float = 0.0
    weight_bytes: float = 0.0
    network: tuple[float, ...] = ()
    extra_bytes: float = 0.0
    pieces: float = 1.0
    backward: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class FusionTensor:
    """A tensor on its way from one kernel to another; several with one name are one tensor with several
    consumers. `whole`: each tile of the consumer needs all of it.
    """

    name: str
    source: str
    target: str
    bytes: float
    whole: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class FusionChip:
    """Limits of the chip, in SI: cores of W x H multipliers, clock, peak and its stated utilisation, SRAM and
    DRAM, start of a kernel, and the columns of a matrix instruction, to which short tiles are padded.
    """

    sram: float
    dram_bandwidth: float
    dram_capacity: float = float("inf")
    cores: int = 1
    array: tuple[float, float] = (1.0, 1.0)
    clock: float = 1.0
    peak: float = 1.0
    utilisation: float = 1.0
    start: float = 0.0
    grain: float = 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class FusionProblem:
    """Kernels and tensors to be laid into partitions on a chip.

    `tiles`: numbers of tiles allowed. `micro_batches` stream through a partition before the next one is
    loaded. `pinned`: groups of kernels; each partition then holds exactly one of them, in their order, and
    kernels in no group are free. `max_partitions`: 0 for no limit; with directions apart half of it for each.
    `layers` of the same weights' size share the DRAM, and `held_bytes` of other data.
    """

    kernels: tuple[FusionKernel, ...]
    tensors: tuple[FusionTensor, ...]
    chip: FusionChip
    tiles: tuple[int, ...] = (1,)
    rules: FusionRules = field(default_factory=fusion_rules)
    micro_batches: float = 1.0
    pinned: tuple[tuple[str, ...], ...] = ()
    max_partitions: int = 0
    layers: float = 1.0
    held_bytes: float = 0.0

    def __post_init__(self) -> None:
        require(bool(self.kernels), "a fusion problem needs kernels")
        names = [k.name for k in self.kernels]
        require(len(set(names)) == len(names), "each kernel needs a name of its own")
        require(bool(self.tiles) and min(self.tiles) >= 1, "tiles must be at least one", tiles=self.tiles)
        for tensor in self.tensors:
            for end in (tensor.source, tensor.target):
                if end != OUTSIDE and end not in self.index:
                    raise UnknownName(f"kernel of tensor {tensor.name}", end, names)
        for group in self.pinned:
            for name in group:
                if name not in self.index:
                    raise UnknownName("pinned kernel", name, names)
        _ = self.levels  # a cycle is an error of the problem, not of a solver

    @cached_property
    def index(self) -> dict[str, int]:
        return {kernel.name: i for i, kernel in enumerate(self.kernels)}

    @property
    def rounds(self) -> list[list[int]]:
        """Numbers of tiles, by their places, that one mapping may mix: each alone, or all of them."""
        every = list(range(len(self.tiles)))
        return [[i] for i in every] if self.rules.tiles == "one" else [every]

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs of kernels (source, target) that a tensor joins."""
        ends = ((t.source, t.target) for t in self.tensors if OUTSIDE not in (t.source, t.target))
        return tuple(dict.fromkeys((self.index[a], self.index[b]) for a, b in ends))

    @cached_property
    def apart(self) -> bool:
        """Whether forward kernels must come before backward ones; one partition in all holds both."""
        both = len({k.backward for k in self.kernels}) == 2
        return self.rules.directions_apart == "yes" and both and self.max_partitions != 1

    @cached_property
    def before(self) -> tuple[frozenset[int], ...]:
        """Kernels that must not come later than each kernel: producers, and what rules and pins order."""
        found: list[set[int]] = [set() for _ in self.kernels]
        for source, target in self.edges:
            found[target].add(source)
        if self.apart:
            forward = {i for i, k in enumerate(self.kernels) if not k.backward}
            for i, kernel in enumerate(self.kernels):
                found[i] |= forward if kernel.backward else set()
        for earlier, later in zip(self.pinned, self.pinned[1:], strict=False):
            for name in later:
                found[self.index[name]] |= {self.index[n] for n in earlier}
        return tuple(frozenset(f) for f in found)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """A topological order of the kernels."""
        left, done = {i: set(b) for i, b in enumerate(self.before)}, []
        while left:
            ready = [i for i, b in left.items() if not b]
            if not ready:
                names = ", ".join(self.kernels[i].name for i in list(left)[:6])
                raise BadValue(f"kernels wait for one another in a circle, among them {names}")
            done += ready
            left = {i: b.difference(ready) for i, b in left.items() if i not in set(ready)}
        return tuple(done)

    @cached_property
    def levels(self) -> tuple[Array, Array]:
        """Longest path to each kernel over tensors, and the most operands on a path that must be whole."""
        level, whole = np.zeros(len(self.kernels)), np.zeros(len(self.kernels))
        waits = {(t.source, t.target) for t in self.tensors if t.whole and self.rules.whole_operands == "yes"}
        whole_edges = {(self.index[a], self.index[b]) for a, b in waits if OUTSIDE not in (a, b)}
        into: list[list[int]] = [[] for _ in self.kernels]
        for source, target in self.edges:
            into[target].append(source)
        for i in self.order:
            for s in into[i]:
                level[i] = max(level[i], level[s] + 1)
                whole[i] = max(whole[i], whole[s] + ((s, i) in whole_edges))
        return level, whole


def order_ideals(before: Sequence[frozenset[int]], limit: int) -> list[int] | None:
    """All ideals as bit masks, smaller ones first; None where there are more than `limit`.

    >>> [bin(i)[2:] for i in order_ideals([frozenset(), frozenset({0}), frozenset({0})], 10)]
    ['0', '1', '11', '101', '111']
    >>> order_ideals([frozenset()] * 4, 15) is None  # 2^4
    True
    """
    needs = [sum(1 << b for b in found) for found in before]
    level, every = {0}, [0]
    while level:
        grown = set()
        for ideal in level:
            for i, need in enumerate(needs):
                if not ideal >> i & 1 and need & ~ideal == 0:
                    grown.add(ideal | 1 << i)
        every += sorted(grown)
        if len(every) > limit:
            return None
        level = grown
    return every


def as_rows(masks: Sequence[int], count: int) -> Array:
    """Bit masks as rows of zeros and ones, one column for each kernel.

    >>> as_rows([1, 6], 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """
    width = (count + 7) // 8
    packed = b"".join(mask.to_bytes(width, "little") for mask in masks)
    raw = np.frombuffer(packed, dtype=np.uint8).reshape(len(masks), width)
    rows: Array = np.unpackbits(raw, axis=1, count=count, bitorder="little").astype(np.float32)
    return rows


def nested_pairs(rows: Array, heaviest: float, weights: Array, limit: int) -> tuple[Array, Array] | None:
    """Places (i, j) of ideals with the first inside of the second and what lies between them at most so
    heavy, unless it is one kernel; None where there are more than `limit`.

    >>> first, second = nested_pairs(as_rows([0, 1, 3], 2), 1.0, np.array([1.0, 1.0]), 10)
    >>> list(zip(first.tolist(), second.tolist()))
    [(0, 1), (1, 2)]
    """
    size, load = rows.sum(1), rows @ weights.astype(np.float64)
    found_i, found_j, count = [], [], 0
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        inside = rows @ rows[part].T == size[:, None]
        added = size[None, part] - size[:, None]
        inside &= (added > 0) & ((load[None, part] - load[:, None] <= heaviest) | (added == 1))
        j, i = np.nonzero(inside.T)
        found_i.append(i.astype(np.int32))
        found_j.append((j + start).astype(np.int32))
        count += len(i)
        if count > limit:
            return None
    return np.concatenate(found_i), np.concatenate(found_j)
