"""Algorithms by name: those a name means, and the cheapest. Levels: the dimensions of a fabric that a group
crosses, as one algorithm over all of them finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number, is_traced, map_leaves, namespace
from strata.base.errors import BadValue
from strata.hardware.fabric import DIRECT, Dimension, peak_link
from strata.hardware.transport import Transport
from strata.mapping.place import GroupLayout
from strata.pricing.network.transport_times import AlgorithmTimes

# Names under which schedules know an algorithm; a library's trees are two, too.
ALIASES = {
    "two_shot": ("scatter_and_gather", "two_shot"),
    "direct": ("scatter", "exchange", "pairs"),
    "double_tree": ("double_tree", "tree"),
    "tree": ("tree", "trees"),
    "bidirectional_ring": ("bidirectional_ring", "both_ways"),
    "pairwise": ("pairwise", "pairs"),
}


def cheapest(times: AlgorithmTimes) -> Number:
    """The cheapest algorithm's time."""
    first, *others = times.values()
    if first.__class__ is float and all(time.__class__ is float for time in others):
        return min(first, *others) if others else first
    for time in others:
        first = namespace(first, time).minimum(first, time)
    return first


def algorithm_key(name: str) -> str:
    """An algorithm's name as it is asked for.

    >>> algorithm_key("halving-doubling"), algorithm_key("scatter and gather")
    ('halving_doubling', 'scatter_and_gather')
    """
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def matching_algorithms(name: str, times: AlgorithmTimes) -> AlgorithmTimes:
    """Those algorithms that a name means and that are legal: itself, else all whose name begins with it.

    >>> matching_algorithms("ring", {"ring ll": 1.0, "ring simple": 2.0, "tree": 3.0})
    {'ring ll': 1.0, 'ring simple': 2.0}
    """
    if not name:
        return times
    meant = (algorithm_key(name), *ALIASES.get(algorithm_key(name), ()))

    def means(known: str) -> bool:
        return any(known == m or known.startswith(m + "_") for m in meant)

    kept = {known: time for known, time in times.items() if algorithm_key(known) == meant[0]}
    kept = kept or {known: time for known, time in times.items() if means(algorithm_key(known))}
    return kept if kept and not _never(cheapest(kept)) else {}


def select_algorithms(name: str, times: AlgorithmTimes, place: str) -> AlgorithmTimes:
    """The algorithms that a name means, or one line with the legal ones.

    >>> select_algorithms("halving_doubling", {"ring": 1.0, "halving-doubling": float("inf")}, "nvlink of 6")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: on nvlink of 6 an algorithm is one of ring, but got 'halving_doubling'
    """
    kept = matching_algorithms(name, times)
    if not kept:
        legal = ", ".join(algorithm_key(known) for known, time in times.items() if not _never(time))
        raise BadValue(f"on {place} an algorithm is one of {legal}, but got '{name}'")
    return kept


def _never(time: Number) -> bool:
    """Whether an algorithm is not legal at some point; what a compiler traces is not known yet."""
    return isinstance(time, (float, np.floating, np.ndarray)) and not bool(np.all(np.isfinite(time)))


def each_point(tree: Any, shape: tuple[int, ...]) -> Iterator[Any]:
    """Every point of a tree of arrays that broadcast to a shape, as the same tree of single numbers."""
    for i in range(int(np.prod(shape))):

        def pick(value: Number, i: int = i) -> float:
            return float(np.broadcast_to(value, shape).flat[i])

        yield map_leaves(pick, tree)


def names_by_dimension(each: Sequence[Any], shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Names that every point has for each dimension, as one array of each dimension."""
    return tuple(np.array(names, dtype=str).reshape(shape) for names in zip(*each, strict=True))


def shown_size(size: Number) -> str:
    try:
        least, most = float(np.min(size)), float(np.max(size))
    except (TypeError, ValueError):
        return "any size"
    return f"{most:g}" if least == most else f"{least:g} to {most:g}"


def algorithms_by_dimension(asked: str | Sequence[str], layouts: tuple[GroupLayout, ...]) -> tuple[str, ...]:
    """An algorithm's name for each dimension: one for all that are crossed, or a list of them, innermost
    first; "" is the cheapest.

    >>> algorithms_by_dimension("ring", (GroupLayout(8.0, 1.0), GroupLayout(1.0, 1.0)))
    ('ring', '')
    """
    if not asked:
        return ("",) * len(layouts)
    if not isinstance(asked, str) and len(asked) != len(layouts):
        raise BadValue(
            f"algorithms are one name, or one for each of the {len(layouts)} dimensions,"
            f" but got {len(asked)}: {', '.join(asked)}"
        )
    each = (asked,) * len(layouts) if isinstance(asked, str) else tuple(asked)
    return tuple(name if crosses(layout.size) else "" for name, layout in zip(each, layouts, strict=True))


@dataclass(frozen=True, kw_only=True)
class LibrarySetting:
    """What a setting leaves to a library: algorithms and protocols that it may use, all where none are named;
    those that it may not; and sums inside switches.
    """

    algorithms: frozenset[str] = frozenset()  # ring, tree, nvls
    protocols: frozenset[str] = frozenset()  # ll, ll128, simple
    without: frozenset[str] = frozenset()  # of either
    in_node: bool | None = None  # switches of the node add up (NVLS)
    in_network: bool | None = None  # switches of the network do (SHARP)

    def allows(self, algorithm: str) -> bool:
        """Whether the library may take an algorithm.

        >>> setting = LibrarySetting(algorithms=frozenset({"ring"}), without=frozenset({"ll"}))
        >>> [setting.allows(name) for name in ("ring ll", "ring simple", "tree ll")]
        [False, True, False]
        """
        words = algorithm.split()
        protocol = words[-1] if words[-1] in ("ll", "ll128", "simple") else ""
        way = "".join(words[:-1] if protocol else words)
        if way in ("nvlstree", "inswitch"):
            way, protocol = "nvls", protocol or "simple" * (way == "nvlstree")
        if {way, protocol} & self.without:
            return False
        named = not self.algorithms or way in self.algorithms
        return named and (not self.protocols or not protocol or protocol in self.protocols)


def crosses(size: Any) -> bool:
    """Whether a group has two members or more in a dimension, at some point."""
    if size.__class__ is float:
        return bool(size > 1.0)
    return is_traced(size) or bool(np.any(np.asarray(size) > 1))


def always_crosses(size: Any) -> bool:
    """Whether a group has two members or more at every point; what a compiler traces is not known yet."""
    return not is_traced(size) and bool(np.all(np.asarray(size) > 1))


def between_nodes(dimension: Dimension) -> bool:
    """Whether a library's proxies move messages over adapters of a network in this dimension."""
    transport = dimension.transport_model
    return dimension.medium == "network" and transport is not None and transport.rings.post is not None


def joins_levels(dimensions: Sequence[Dimension]) -> bool:
    """Whether a library's one algorithm runs over these dimensions: all its own, one between nodes."""
    known = all(d.transport_model is not None and not d.collectives for d in dimensions)
    return known and any(between_nodes(d) for d in dimensions)


@dataclass(frozen=True, eq=False, slots=True)
class Level:
    """One dimension as a collective over several finds it."""

    size: Number  # members of the group
    inner: Number  # ranks of the group inside one member
    outer: Number  # ranks inside this level and all below it
    link: Number  # most of one rank into the group, one direction [B/s]
    all_links: Number  # of all ranks inside one member together [B/s]
    dimension: Dimension
    transport: Transport
    network: bool  # between nodes
    always: bool  # every point crosses it, as far as is known

    def where(self, value: Number) -> Number:
        """A quantity where the group crosses the level, else 0."""
        return value if self.always else namespace(self.size, value).where(self.size > 1, value, 0.0)

    def step(self, protocol: str) -> Number:
        """Until a rank over there sees a piece [s]: latency, and what the host's proxy adds."""
        rings = self.transport.rings
        post = 0.0 if rings.post is None else rings.post.get(protocol, 0.0)
        return self.dimension.latency * rings.step[protocol] + post


def make_level(layout: GroupLayout, dimension: Dimension, transport: Transport, inner: Number = 1.0) -> Level:
    """A level of a group that lies so in a dimension, `inner` ranks of it inside each member."""
    link, most = group_link(layout, dimension), transport.rings.ceiling
    if most is not None:
        link = namespace(link, most).minimum(link, most)
    return Level(
        size=layout.size,
        inner=inner,
        outer=layout.size if inner.__class__ is float and inner == 1.0 else inner * layout.size,
        link=link,
        all_links=link if inner.__class__ is float and inner == 1.0 else inner * link,
        dimension=dimension,
        transport=transport,
        network=between_nodes(dimension),
        always=always_crosses(layout.size),
    )


def crossed_levels(layouts: Sequence[GroupLayout], dimensions: Sequence[Dimension]) -> list[Level]:
    """The dimensions a group crosses at some point, innermost first."""
    levels = []
    inner: Number = 1.0
    for layout, dimension in zip(layouts, dimensions, strict=True):
        crossed = not (layout.size.__class__ is float and layout.size <= 1.0)
        if crossed and dimension.transport_model is not None:
            levels.append(make_level(layout, dimension, dimension.transport_model, inner))
        inner = layout.members if inner.__class__ is float and inner == 1.0 else inner * layout.members
    return levels


def group_link(layout: GroupLayout, dimension: Dimension) -> Number:
    r"""Peak bandwidth one rank has into its group inside a dimension, one direction [B/s].

    The links its group reaches (`group_share`). On rings and chains, groups that interleave with stride s
    share the wires: :math:`\beta / s`.
    """
    link = peak_link(dimension) * group_share(dimension, layout.size)
    return link if dimension.kind in DIRECT else link / layout.stride


def group_share(dimension: Dimension, members: Number) -> Number:
    r"""Part of its bandwidth into a dimension that a device can use inside a group of some of the members.

    .. math:: s = 1 \;\text{(switch)}, \quad s = \frac{g-1}{N-1} \;\text{(full)}, \quad
              s = \max\left(\frac{g-1}{N-1}, \frac{1}{2}\right) \;\text{(dragonfly)}

    g members of N. Where each pair has its own link, a group reaches only the links between its members. A
    dragonfly may go round through a third group instead, which crosses two global links for one: never below
    a half.

    Kim, Dally, Scott & Abts, Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA (2008), sec. 4:
    Valiant routing.

    >>> from strata.hardware.fabric import fabric
    >>> mesh = fabric("mi325x-node").dimension[0]
    >>> groups = fabric("slingshot-dragonfly").dimension[2]
    >>> round(float(group_share(mesh, 4.0)), 3), round(float(group_share(groups, 2.0)), 3)
    (0.429, 0.5)
    """
    if dimension.kind not in ("full", "dragonfly"):
        return 1.0
    xp = namespace(members, dimension.size)
    direct = xp.maximum(members - 1.0, 1.0) / xp.maximum(dimension.size - 1.0, 1.0)
    return direct if dimension.kind == "full" else xp.maximum(direct, 0.5)
