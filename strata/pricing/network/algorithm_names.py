"""Algorithms by name: those a name means, the cheapest, and which dimensions of a fabric a group crosses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Array, Number, is_traced, map_leaves, namespace
from strata.errors import BadValue
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
    strata.errors.BadValue: on nvlink of 6 an algorithm is one of ring, but got 'halving_doubling'
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
