"""Schedules: each collective as steps of bytes from rank to rank, before any link is known.

Stage one of the network. A rank's number is mixed radix over the dimensions' sizes, innermost fastest. Steps
follow each other; the messages of one step go at once. Stage two (`strata.pricing.network.routes`) lays them
on links; `strata.pricing.network.algorithms` has closed forms of the same algorithms where a group is
symmetric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from strata.base.arrays import Array, Number
from strata.base.errors import BadValue, UnknownName

PIECES = 8  # pieces that follow each other in pipelines (double_tree, pipeline)


@dataclass(frozen=True, eq=False)
class ScheduleStep:
    """Messages that go at once: `bytes[i]` from rank `source[i]` to rank `target[i]`; a pair may have two.
    `pieces[i]`: parts of the buffer in message i; in an all-to-all, part s N + t goes from s to t.
    """

    source: Array
    target: Array
    bytes: Array
    pieces: Array | None = None


@dataclass(frozen=True)
class RankGroup:
    """The ranks of a collective: members of each dimension, innermost first."""

    sizes: tuple[int, ...]

    @property
    def ranks(self) -> int:
        return int(np.prod(self.sizes))

    def stride(self, dimension: int) -> int:
        """Distance in rank between neighbours along a dimension."""
        return int(np.prod(self.sizes[:dimension], dtype=int))

    def along(self, dimension: int) -> Array:
        """Every rank's place along a dimension."""
        return np.arange(self.ranks) // self.stride(dimension) % self.sizes[dimension]

    def moved(self, dimension: int, places: int) -> Array:
        """For every rank, the one so many places on along a dimension, round the end."""
        here = self.along(dimension)
        return np.arange(self.ranks) + ((here + places) % self.sizes[dimension] - here) * self.stride(
            dimension
        )


# A move is who sends, who receives, and which pieces; `Moves` is its steps and how many pieces the buffer is
# cut into.
Move = tuple[Array, Array, Array]
Moves = tuple[list[Move], int]


def _shares(group: RankGroup, dimension: int, places: Array, outwards: bool = False) -> Array:
    """Pieces a rank deals with at places of a dimension; piece q is rank q's. Scattered inner dimensions:
    with the rank's own places there. Gathered ones (`outwards`): with its places outside.
    """
    stride, size = group.stride(dimension), group.sizes[dimension]
    ranks, beyond = np.arange(group.ranks), stride * size
    if outwards:
        return (ranks // beyond * beyond + places * stride)[:, None] + np.arange(stride)
    return (ranks % stride + places * stride)[:, None] + np.arange(group.ranks // beyond) * beyond


def _ring_steps(group: RankGroup, dimension: int, gathers: bool, outwards: bool = False) -> Iterator[Move]:
    """Along one dimension p - 1 times a part to the next rank: of the sum so far, or the last received."""
    ranks, after, here = np.arange(group.ranks), group.moved(dimension, 1), group.along(dimension)
    size = group.sizes[dimension]
    for step in range(size - 1):
        yield ranks, after, _shares(group, dimension, (here - step - (0 if gathers else 1)) % size, outwards)


def _ring(group: RankGroup, gathers: bool) -> list[Move]:
    return list(_ring_steps(RankGroup((group.ranks,)), 0, gathers))


def _both_ways(group: RankGroup, gathers: bool) -> list[Move]:
    """Every part goes both ways round: half the steps; the farthest of an even ring goes half and half."""
    size = group.ranks
    ranks = np.arange(size)
    moves = []
    for step in range(1, size // 2 + 1):
        parts = []
        for turn in (1, -1):
            owner = ranks - turn * (step - 1) if gathers else ranks + turn * (size // 2 + 1 - step)
            farthest = size % 2 == 0 and (step == size // 2 if gathers else step == 1)
            halves = [(turn + 1) // 2] if farthest else [0, 1]
            parts.append(
                (ranks, (ranks + turn) % size, np.stack([owner % size * 2 + h for h in halves], axis=1))
            )
        moves.append(_together(parts))
    return moves


def _together(parts: Sequence[Move]) -> Move:
    source, target, pieces = (np.concatenate([p[i] for p in parts]) for i in range(3))
    return source, target, pieces


def _halving(group: RankGroup, gathers: bool, turned: bool = False) -> list[Move]:
    """Pairs at distance 1, 2, 4 …: a scatter halves what it sums, the large parts between neighbours; a
    gather doubles what it has, the farthest pair first. `turned`: a scatter begins with the farthest pair, a
    gather with the nearest; the large parts go between those far apart.
    """
    ranks, count = np.arange(group.ranks), group.ranks
    moves = []
    for distance in (2**k for k in range(count.bit_length() - 1)):
        partner = ranks ^ distance
        owner = ranks if gathers else partner
        if turned:
            pieces = (owner // distance * distance)[:, None] + np.arange(distance)
        else:  # the parts whose last bits are its
            pieces = (owner % (2 * distance))[:, None] + np.arange(0, count, 2 * distance)
        moves.append((ranks, partner, pieces))
    return moves if gathers == turned else moves[::-1]


def _halving_turned(group: RankGroup, gathers: bool) -> list[Move]:
    return _halving(group, gathers, turned=True)


def _all_pairs(ranks: int) -> tuple[Array, Array]:
    source, target = np.divmod(np.arange(ranks * ranks), ranks)
    return source[source != target], target[source != target]


def _direct(group: RankGroup, gathers: bool) -> list[Move]:
    source, target = _all_pairs(group.ranks)
    return [(source, target, (source if gathers else target)[:, None])]


def _scattered_by_dimension(group: RankGroup) -> list[Move]:
    return [move for d in range(len(group.sizes)) for move in _ring_steps(group, d, False)]


def _gathered_inwards(group: RankGroup) -> list[Move]:
    return [move for d in reversed(range(len(group.sizes))) for move in _ring_steps(group, d, True)]


def _gathered_outwards(group: RankGroup) -> list[Move]:
    return [move for d in range(len(group.sizes)) for move in _ring_steps(group, d, True, outwards=True)]


def _hierarchical(group: RankGroup) -> Moves:
    """One step inside the innermost dimension, one ring outside over ranks of one part, one step back."""
    two = RankGroup((group.sizes[0], group.ranks // group.sizes[0]))
    ranks, here, size = np.arange(group.ranks), two.along(0), group.sizes[0]
    inside = [(two.moved(0, k), (here + k) % size) for k in range(1, size)]
    scatter = [_together([(ranks, to, _shares(two, 0, place)) for to, place in inside])] if inside else []
    gather = [_together([(ranks, to, _shares(two, 0, here)) for to, _ in inside])] if inside else []
    return [*scatter, *_ring_steps(two, 1, False), *_ring_steps(two, 1, True), *gather], group.ranks


def tree_depths(ranks: int) -> tuple[Array, Array]:
    r"""Parent and depth of each place of an in-order binary tree, place 0 on top of it; odd places are
    leaves.

    The root of places 1 … n is the largest power of two among them. Two such trees, the second moved by one
    place, have every rank as a leaf in one and inside in the other; both are :math:`\lceil \log_2 p \rceil`
    deep.

    Sanders, Speck & Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
    Comput. 35 (2009), sec. 2.

    >>> [part.tolist() for part in tree_depths(8)]
    [[-1, 2, 4, 2, 0, 6, 4, 6], [0, 3, 2, 3, 1, 3, 2, 3]]
    """
    parent, depth = np.full(ranks, -1), np.zeros(ranks, int)

    def grow(first: int, count: int, above: int) -> None:
        if count < 1:
            return
        half = 1 << (count.bit_length() - 1)
        root = first + half - 1
        parent[root], depth[root] = above, depth[above] + 1
        grow(first, half - 1, root)
        grow(root + 1, count - half, root)

    grow(1, ranks - 1, 0)
    return parent, depth


def _double_tree(group: RankGroup) -> Moves:
    """Half of the buffer up and down each of two trees, in pieces that follow each other."""
    ranks = group.ranks
    parent, depth = tree_depths(ranks)
    places = np.arange(1, ranks)
    deepest = int(depth.max())
    steps: list[list[Move]] = [[] for _ in range(2 * deepest + PIECES - 1)]
    for tree in (0, 1):
        rank = (np.arange(ranks) - tree) % ranks  # the rank at each place
        child, above = rank[places], rank[parent[places]]
        for piece in range(PIECES):
            for level in range(1, deepest + 1):
                at = depth[places] == level
                part = np.full((int(at.sum()), 1), tree * PIECES + piece)
                steps[deepest - level + piece].append((child[at], above[at], part))
                steps[deepest + level - 1 + piece].append((above[at], child[at], part))
    return [_together(step) for step in steps], 2 * PIECES


def _one_shot(group: RankGroup) -> Moves:
    source, target = _all_pairs(group.ranks)
    return [(source, target, np.zeros((len(source), 1), int))], 1


def _tree(group: RankGroup) -> Moves:
    """Whoever has the message sends it to one who has not: twice as many after each step."""
    moves = []
    for distance in (2**k for k in range((group.ranks - 1).bit_length())):
        source = np.arange(min(distance, group.ranks - distance))
        moves.append((source, source + distance, np.zeros((len(source), 1), int)))
    return moves, 1


def _pipeline(group: RankGroup) -> Moves:
    """Piece after piece from rank to rank."""
    moves = []
    for step in range(group.ranks - 2 + PIECES):
        source = np.arange(max(0, step - PIECES + 1), min(step, group.ranks - 2) + 1)
        moves.append((source, source + 1, (step - source)[:, None]))
    return moves, PIECES


def _exchange(group: RankGroup) -> Moves:
    source, target = _all_pairs(group.ranks)
    return [(source, target, (source * group.ranks + target)[:, None])], group.ranks**2


def _pairwise(group: RankGroup) -> Moves:
    ranks, count = np.arange(group.ranks), group.ranks
    targets = [(ranks + k) % count for k in range(1, count)]
    return [(ranks, to, (ranks * count + to)[:, None]) for to in targets], count**2


def _relay(group: RankGroup) -> Moves:
    """Dimension by dimension to the next rank, k times for the rank k places on. A rank holds blocks whose
    target has its place in the inner dimensions, and whose source has it in the outer.
    """
    ranks, count = np.arange(group.ranks), group.ranks
    moves = []
    for d, size in enumerate(group.sizes):
        stride, here = group.stride(d), group.along(d)
        inner, outer = np.arange(stride), np.arange(count // (stride * size)) * stride * size
        own_inner, own_outer = ranks % stride, ranks // (stride * size) * (stride * size)
        for places in range(1, size):
            for hop in range(places):
                start = (here - hop) % size
                source = (own_outer + start * stride)[:, None, None] + inner[None, :, None]
                target = (own_inner + (start + places) % size * stride)[:, None, None] + outer[None, None, :]
                moves.append((ranks, group.moved(d, 1), (source * count + target).reshape(count, -1)))
    return moves, count**2


def _send(group: RankGroup) -> Moves:
    return [(np.array([0]), np.array([1]), np.array([[0]]))], 1


def _scatter(one: Callable[[RankGroup, bool], list[Move]], cut: int = 1) -> Callable[[RankGroup], Moves]:
    return lambda group: (one(group, False), cut * group.ranks)


def _gather(one: Callable[[RankGroup, bool], list[Move]], cut: int = 1) -> Callable[[RankGroup], Moves]:
    return lambda group: (one(group, True), cut * group.ranks)


def _sum(one: Callable[[RankGroup, bool], list[Move]], cut: int = 1) -> Callable[[RankGroup], Moves]:
    return lambda group: ([*one(group, False), *one(group, True)], cut * group.ranks)


def _rabenseifner(group: RankGroup) -> Moves:
    """Halved at distances 1, 2, 4 …, then doubled back by the same pairs in reverse."""
    halved = _halving(group, False)
    back = [(target, source, pieces) for source, target, pieces in reversed(halved)]
    return [*halved, *back], group.ranks


SCHEDULES: dict[str, dict[str, Callable[[RankGroup], Moves]]] = {
    "all_reduce": {
        "ring": _sum(_ring),
        "bidirectional_ring": _sum(_both_ways, 2),
        "halving_doubling": _rabenseifner,
        "double_tree": _double_tree,
        "one_shot": _one_shot,
        "two_shot": _sum(_direct),
        "hierarchical": _hierarchical,
        "by_dimension": lambda group: (
            [*_scattered_by_dimension(group), *_gathered_inwards(group)],
            group.ranks,
        ),
    },
    "all_gather": {
        "ring": _gather(_ring),
        "bidirectional_ring": _gather(_both_ways, 2),
        "halving_doubling": _gather(_halving),
        "halving_doubling_inner_first": _gather(_halving_turned),
        "direct": _gather(_direct),
        "by_dimension": lambda group: (_gathered_outwards(group), group.ranks),
        "outermost_first": lambda group: (_gathered_inwards(group), group.ranks),
    },
    "reduce_scatter": {
        "ring": _scatter(_ring),
        "bidirectional_ring": _scatter(_both_ways, 2),
        "halving_doubling": _scatter(_halving),
        "halving_doubling_outer_first": _scatter(_halving_turned),
        "direct": _scatter(_direct),
        "by_dimension": lambda group: (_scattered_by_dimension(group), group.ranks),
    },
    "all_to_all": {"direct": _exchange, "pairwise": _pairwise, "relay": _relay},
    "broadcast": {"tree": _tree, "pipeline": _pipeline},
    "send": {"send": _send},
}
POWERS_OF_TWO = ("halving_doubling", "halving_doubling_inner_first", "halving_doubling_outer_first")


def legal_schedules(pattern: str, sizes: Sequence[int]) -> tuple[str, ...]:
    """Algorithms that a collective of a group has.

    >>> legal_schedules("all_gather", (6,))
    ('ring', 'bidirectional_ring', 'direct', 'by_dimension', 'outermost_first')
    """
    if pattern not in SCHEDULES:
        raise UnknownName("collective", pattern, SCHEDULES, ", ".join(SCHEDULES))
    ranks = int(np.prod(sizes))
    return tuple(name for name in SCHEDULES[pattern] if name not in POWERS_OF_TWO or ranks & (ranks - 1) == 0)


def schedule(pattern: str, algorithm: str, sizes: Sequence[int], bytes: Number) -> tuple[ScheduleStep, ...]:
    """Steps of a collective by an algorithm's name. `sizes`: members of each dimension, innermost first.

    `bytes` is the whole buffer of one rank: what is summed; what all have after an all-gather or before a
    reduce-scatter; what one rank sends in all, its own share included, in an all-to-all, or a matrix of it
    with a row for each source; else the message.

    >>> for step in schedule("all_gather", "ring", (3,), 300.0):
    ...     print(step.source, step.target, step.bytes)
    [0 1 2] [1 2 0] [100. 100. 100.]
    [0 1 2] [1 2 0] [100. 100. 100.]
    """
    group = RankGroup(tuple(int(size) for size in sizes))
    if not group.sizes or min(group.sizes) < 1 or group.ranks < 2:
        raise BadValue(
            f"a collective has sizes of at least 1 and 2 ranks or more, but got (sizes={tuple(sizes)})"
        )
    legal = legal_schedules(pattern, group.sizes)
    if algorithm not in legal:
        why = f", {algorithm} only for powers of two" if algorithm in SCHEDULES[pattern] else ""
        raise BadValue(
            f"{pattern} of {group.ranks} ranks goes by {', '.join(legal)}{why}, but got '{algorithm}'"
        )
    moves, parts = SCHEDULES[pattern][algorithm](group)
    weight = _weights(bytes, parts, group.ranks, pattern == "all_to_all")
    return tuple(
        ScheduleStep(source, target, weight[pieces].sum(axis=1), pieces) for source, target, pieces in moves
    )


def _weights(bytes: Number, parts: int, ranks: int, pairs: bool) -> Array:
    """Bytes of each piece: equal ones, or those of a matrix of traffic."""
    given = np.asarray(bytes, float)
    if np.any(given < 0) or not np.all(np.isfinite(given)):
        raise BadValue(f"bytes of a collective must be positive numbers, but got {np.min(given):g}")
    if given.ndim == 0:
        return np.full(parts, given / (ranks if pairs else parts))
    if given.shape != (ranks, ranks) or not pairs:
        raise BadValue(
            f"a matrix of bytes belongs to an all_to_all and has {ranks} rows and columns,"
            f" but got shape {given.shape}"
        )
    return given.ravel()
