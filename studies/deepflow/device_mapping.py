"""Device mapping: where the shards of a logical mesh lie on a grid of devices, and which of them talk.

A logical mesh has dimensions of its own topology (tensor parallel a ring, a pipeline a chain, experts all to
all). Its shards are laid over the physical grid by wrap-around, in one order of the dimensions: the first
fills the grid's innermost axis, and what does not fit goes on in the next row. What the links then carry is
counted by `deepflow.link_sharing`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations, product
from math import prod

import numpy as np

from strata.base.errors import BadValue, require
from strata.mapping.layout import Layout

LOGICAL = ("ring", "chain", "full")
LAYINGS = ("wrap", "snake")
Coordinates = tuple[int, ...]


@dataclass(frozen=True)
class LogicalDimension:
    """One dimension of a logical mesh: its name, its degree, and who talks to whom along it.

    `ring`: each to the next, and the last to the first; `chain`: without that; `full`: each to each.
    """

    name: str
    degree: int
    topology: str = "ring"

    def __post_init__(self) -> None:
        require(
            self.degree >= 1 and int(self.degree) == self.degree,
            f"the degree of mesh dimension {self.name} must be a whole number of at least 1",
            degree=self.degree,
        )
        if self.topology not in LOGICAL:
            raise BadValue(
                f"mesh dimension {self.name} is one of {', '.join(LOGICAL)}, but got '{self.topology}'"
            )

    def pairs(self) -> list[tuple[int, int]]:
        """Coordinates along it that talk, each pair once; a ring of two is one pair.

        >>> LogicalDimension("tp", 4).pairs(), LogicalDimension("pp", 3, "chain").pairs()
        ([(0, 1), (1, 2), (2, 3), (3, 0)], [(0, 1), (1, 2)])
        """
        if self.topology == "full":
            return [(i, j) for i in range(self.degree) for j in range(i + 1, self.degree)]
        joined = [(i, i + 1) for i in range(self.degree - 1)]
        closes = self.topology == "ring" and self.degree > 2
        return [*joined, (self.degree - 1, 0)] if closes else joined


def shards_of(mesh: Sequence[LogicalDimension]) -> list[Coordinates]:
    """Coordinates of every shard of a mesh, the first dimension fastest."""
    return [place[::-1] for place in product(*(range(d.degree) for d in reversed(mesh)))]


def shard_count(mesh: Sequence[LogicalDimension]) -> int:
    """Shards of a mesh: the product of its degrees."""
    return prod(int(d.degree) for d in mesh)


def talking_shards(mesh: Sequence[LogicalDimension]) -> dict[str, list[tuple[Coordinates, Coordinates]]]:
    """Pairs of shards that talk, by the dimension they talk along.

    >>> mesh = (LogicalDimension("tp", 2), LogicalDimension("pp", 2, "chain"))
    >>> talking_shards(mesh)["pp"]
    [((0, 0), (0, 1)), ((1, 0), (1, 1))]
    """
    found: dict[str, list[tuple[Coordinates, Coordinates]]] = {}
    for at, dimension in enumerate(mesh):
        others = [s for s in shards_of(mesh) if s[at] == 0]
        found[dimension.name] = [
            ((*s[:at], i, *s[at + 1 :]), (*s[:at], j, *s[at + 1 :]))
            for s in others
            for i, j in dimension.pairs()
        ]
    return found


def mapping_orders(
    mesh: Sequence[LogicalDimension], volumes: Mapping[str, float] | None = None
) -> list[tuple[str, ...]]:
    """Orders in which the dimensions of a mesh can be laid, those of degree 1 left out.

    Dimensions of equal degree with the same pairs and equal traffic (`volumes`) are interchangeable: of
    orders that differ only in them the first counts.

    >>> mesh = [LogicalDimension("kp1", 4), LogicalDimension("kp2", 2), LogicalDimension("dp", 2)]
    >>> mapping_orders(mesh)
    [('kp1', 'kp2', 'dp'), ('kp2', 'kp1', 'dp'), ('kp2', 'dp', 'kp1')]
    """
    several = [d for d in mesh if d.degree > 1]
    found: dict[Hashable, tuple[str, ...]] = {}
    for order in permutations(several):
        alike = tuple(
            (d.degree, frozenset(map(frozenset, d.pairs())), (volumes or {}).get(d.name)) for d in order
        )
        found.setdefault(alike, tuple(d.name for d in order))
    return list(found.values())


def lay_out(
    mesh: Sequence[LogicalDimension],
    order: Sequence[str],
    sizes: Sequence[int],
    laying: str = "wrap",
) -> dict[Coordinates, Coordinates] | None:
    """Where each shard of a mesh lies on a grid of these sizes, or None where blocks do not fit.

    `wrap`: shards one after the other, innermost axis first. `snake`: dimension after dimension; copies of
    the block laid so far go along the innermost axis with room, and every other row of copies comes back, so
    that one copy and the next are neighbours.

    >>> ring = [LogicalDimension("tp", 8)]
    >>> list(lay_out(ring, ("tp",), (4, 2)).values())[3:6]
    [(3, 0), (0, 1), (1, 1)]
    >>> list(lay_out(ring, ("tp",), (4, 2), "snake").values())[3:6]
    [(3, 0), (3, 1), (2, 1)]
    """
    if laying not in LAYINGS:
        raise BadValue(f"shards are laid by {' or '.join(LAYINGS)}, but got '{laying}'")
    by_name = {d.name: d for d in mesh}
    ordered = [by_name[name] for name in order]
    require(
        shard_count(mesh) <= prod(sizes),
        f"a mesh must fit on the {'x'.join(map(str, sizes))} devices",
        shards=shard_count(mesh),
    )
    places = (_wrapped if laying == "wrap" else _snaked)(ordered, sizes)
    if places is None:
        return None
    columns = [[d.name for d in mesh].index(name) for name in order]
    return {shard: places[tuple(shard[k] for k in columns)] for shard in shards_of(mesh)}


def _wrapped(
    ordered: Sequence[LogicalDimension], sizes: Sequence[int]
) -> dict[Coordinates, Coordinates] | None:
    """Shard by shard, innermost axis first."""
    places = {}
    for number, shard in enumerate(shards_of(ordered)):
        at = []
        for size in sizes:
            at.append(number % size)
            number //= size
        places[shard] = tuple(at)
    return places


def _snaked(
    ordered: Sequence[LogicalDimension], sizes: Sequence[int]
) -> dict[Coordinates, Coordinates] | None:
    """Block by block, rows of copies there and back."""
    places: dict[Coordinates, Coordinates] = {(): (0,) * len(sizes)}
    block = [1] * len(sizes)
    for dimension in ordered:
        room = [size // taken for size, taken in zip(sizes, block, strict=True)]
        if dimension.degree > prod(room):
            return None
        laid = {}
        for copy in range(dimension.degree):
            shift = [step * b for step, b in zip(_there_and_back(copy, room), block, strict=True)]
            for shard, place in places.items():
                laid[(*shard, copy)] = tuple(p + s for p, s in zip(place, shift, strict=True))
        places, rest = laid, dimension.degree
        for axis, slots in enumerate(room):
            taken = min(rest, slots)
            block[axis] *= taken
            rest = -(-rest // taken)
    return places


def _there_and_back(number: int, room: Sequence[int]) -> list[int]:
    """Digits of a number in these radices, lowest first, each running back where the digits above it are odd.

    >>> [_there_and_back(i, (3, 2)) for i in range(6)]
    [[0, 0], [1, 0], [2, 0], [2, 1], [1, 1], [0, 1]]
    """
    digits = []
    for slots in room:
        number, digit = divmod(number, slots)
        digits.append(slots - 1 - digit if number % 2 else digit)
    return digits


def in_every_mesh_order(made: Layout, texts: list[str]) -> tuple[list[Layout], list[str]]:
    """A layout of several strategies in every order of its mesh on the fabric, and how each is written: the
    strategy, and in parentheses its dimensions, innermost first, where there are several.

    >>> import strata as st
    >>> from strata.mapping.kernel_parallel import layout_of
    >>> from strata.search.plans import candidate_strategies
    >>> lstm = st.program("lstm-lm-v100")
    >>> many = candidate_strategies(st.system("8xh200"), lstm, "(pp == 1) & (dp == 4) & (depth == 1)")
    >>> made, told = in_every_mesh_order(layout_of(many, lstm), ["RC-1-2-d4", "RC-2-1-d4"])
    >>> len(made), told[:3]
    (2, ['RC-1-2-d4 (kp2 dp)', 'RC-2-1-d4 (kp1 dp)', 'RC-1-2-d4 (dp kp2)'])
    """
    degrees = {name: np.broadcast_to(np.asarray(v), len(texts)) for name, v in made.mesh.items()}
    active = [name for name in made.dimensions if np.any(degrees[name] > 1)]
    blocks: list[tuple[str, ...]] = []  # of dimensions that no strategy has together: their order is nothing
    for name in active:
        alone = (b for b in blocks if not any(np.any((degrees[name] > 1) & (degrees[o] > 1)) for o in b))
        block = next(alone, None)
        if block is None:
            blocks.append((name,))
        else:
            blocks[blocks.index(block)] = (*block, name)
    layouts, told = [], []
    for chosen in permutations(blocks):
        order = tuple(chain(*chosen))
        rest = tuple(name for name in made.dimensions if name not in order)
        layouts.append(replace(made, dimensions=(*order, *rest)))
        for i, text in enumerate(texts):
            own = [name for name in order if degrees[name][i] > 1]
            told.append(f"{text} ({' '.join(own)})" if len(own) > 1 else text)
    return layouts, told
