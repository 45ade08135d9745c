"""Collectives on composed fabric dimensions: the cheapest legal algorithm in each, or the one that was asked
for by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from strata.arrays import Number, namespace
from strata.errors import BadValue
from strata.hardware.fabric import Dimension, Fabric, peak_link, sustained_link
from strata.mapping.place import GroupLayout
from strata.pricing.network.algorithms import broadcast, group_link, ideal_ways, named_ways
from strata.pricing.network.transport_times import (
    AlgorithmTimes,
    direct_ways,
    pair_ways,
    ring_ways,
    send_ways,
)
from strata.pricing.price import Price
from strata.workload.graph import Collective

PATTERNS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
# every dimension carries all of the buffer, not only what inner ones left of it
WHOLE = ("all_to_all", "broadcast", "send")
# Names under which schedules know a way; a library's trees are two, too.
ALIASES = {
    "two_shot": ("scatter_and_gather", "two_shot"),
    "direct": ("scatter", "exchange", "pairs"),
    "double_tree": ("double_tree", "tree"),
    "tree": ("tree", "trees"),
    "bidirectional_ring": ("bidirectional_ring", "both_ways"),
    "pairwise": ("pairwise", "pairs"),
}


def ways(
    pattern: str, payload: Number, spread: GroupLayout, dimension: Dimension, every: bool = False
) -> AlgorithmTimes:
    """Each legal way of a collective inside one fabric dimension, with its time [s]; groups of one take none.

    Without `every`, ways that cannot be the cheapest are left out.
    """
    if pattern == "send":
        return _send_ways(payload, dimension)
    if dimension.transport_model is None:
        return (named_ways if every else ideal_ways)(pattern, payload, spread, dimension)
    link, by, ranks = group_link(spread, dimension), dimension.transport_model, spread.size
    if pattern == "broadcast":
        wait = dimension.latency * by.rings.step["simple"]
        return {
            "trees": by.rings.start["simple"]
            + broadcast(payload, ranks, by.rings.share["all_gather"] * link, wait, True)
        }
    if pattern == "all_to_all":
        found = pair_ways(payload, ranks, link, by.pairs)
    else:
        found = ring_ways(pattern, payload, ranks, link, dimension.latency, by.rings, dimension.reduction)
    if pattern == "all_reduce" and by.direct is not None:
        found |= direct_ways(payload, ranks, link, by.direct)
    return found


def cheapest(found: AlgorithmTimes) -> Number:
    """The cheapest way's time."""
    first, *others = found.values()
    for time in others:
        first = namespace(first, time).minimum(first, time)
    return first


def short(way: str) -> str:
    """A way's name as it is asked for.

    >>> short("halving-doubling"), short("scatter and gather")
    ('halving_doubling', 'scatter_and_gather')
    """
    return way.strip().lower().replace("-", "_").replace(" ", "_")


def matching_algorithms(name: str, found: AlgorithmTimes) -> AlgorithmTimes:
    """Those ways that a name means and that are legal: itself, or all whose name begins with it, as a
    library's rings.

    >>> matching_algorithms("ring", {"ring ll": 1.0, "ring simple": 2.0, "tree": 3.0})
    {'ring ll': 1.0, 'ring simple': 2.0}
    """
    if not name:
        return found
    meant = (short(name), *ALIASES.get(short(name), ()))
    kept = {
        way: time
        for way, time in found.items()
        if any(short(way) == m or short(way).startswith(m + "_") for m in meant)
    }
    return kept if kept and not _never(cheapest(kept)) else {}


def select(name: str, found: AlgorithmTimes, where: str) -> AlgorithmTimes:
    """The ways that a name means, or one line with the legal ones.

    >>> select("halving_doubling", {"ring": 1.0, "halving-doubling": float("inf")}, "nvlink of 6")
    Traceback (most recent call last):
    ...
    strata.errors.BadValue: on nvlink of 6 an algorithm is one of ring, but got 'halving_doubling'
    """
    kept = matching_algorithms(name, found)
    if not kept:
        legal = ", ".join(short(way) for way, time in found.items() if not _never(time))
        raise BadValue(f"on {where} an algorithm is one of {legal}, but got '{name}'")
    return kept


def _never(time: Number) -> bool:
    """Whether a way is not legal at some point; what a compiler traces is not known yet."""
    return isinstance(time, (float, np.floating, np.ndarray)) and not bool(np.all(np.isfinite(time)))


def dimension_ways(
    op: Collective, payload: Number, spread: GroupLayout, dimension: Dimension, name: str = ""
) -> AlgorithmTimes:
    """Ways of a collective inside one dimension: those that can be the cheapest, or the named one."""
    if not name:
        return ways(op.pattern, payload, spread, dimension)
    software = (
        f", with its transport {dimension.transport_model.name},"
        if dimension.transport_model is not None
        else ""
    )
    return select(
        name,
        ways(op.pattern, payload, spread, dimension, every=True),
        f"{dimension.name} of {_shown(spread.size)}{software}",
    )


def _shown(size: Number) -> str:
    try:
        least_size, most = float(np.min(size)), float(np.max(size))
    except (TypeError, ValueError):
        return "any size"
    return f"{most:g}" if least_size == most else f"{least_size:g} to {most:g}"


def by_dimension(asked: str | Sequence[str], spreads: tuple[GroupLayout, ...]) -> tuple[str, ...]:
    """An algorithm's name for each dimension: one for all that are crossed, or a list of them, innermost
    first; "" is the cheapest.

    >>> by_dimension("ring", (GroupLayout(8.0, 1.0), GroupLayout(1.0, 1.0)))
    ('ring', '')
    """
    if not isinstance(asked, str) and len(asked) != len(spreads):
        raise BadValue(
            f"algorithms are one name, or one for each of the {len(spreads)} dimensions, but got {len(asked)}: {', '.join(asked)}"
        )
    each = (asked,) * len(spreads) if isinstance(asked, str) else tuple(asked)
    return tuple(name if _crosses(spread.size) else "" for name, spread in zip(each, spreads, strict=True))


def _crosses(size: Any) -> bool:
    try:
        return bool(np.any(np.asarray(size) > 1))
    except TypeError:  # traced
        return True


def algorithm(
    op: Collective, spreads: tuple[GroupLayout, ...], fabric: Fabric, by: str | Sequence[str] = ""
) -> tuple[str, ...]:
    """The way a single collective takes in each fabric dimension, innermost first; "" where it does not cross
    one.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.mapping.place import spread
    >>> node = sized(fabric("torus-256"), (4, 4, 1, 1, 1))
    >>> algorithm(Collective("sum", "", (), "", "all_reduce", "tp", 1e6), spread(1.0, 4.0, node), node)
    ('bidirectional ring', '', '', '', '')
    """
    return tuple(
        min(found, key=lambda name: float(found[name])) if found else ""
        for found in every_dimension(op, spreads, fabric, by)
    )


def every_dimension(
    op: Collective,
    spreads: tuple[GroupLayout, ...],
    fabric: Fabric,
    by: str | Sequence[str] = "",
    every: bool = False,
) -> list[AlgorithmTimes]:
    """The ways of a collective in each dimension, with `every` the dominated ones too; none where it does not
    cross one.
    """
    _check(op.pattern)
    found: list[AlgorithmTimes] = []
    inner: Number = 1.0
    for spread, dimension, name in zip(spreads, fabric.dimension, by_dimension(by, spreads), strict=True):
        payload = op.payload if op.pattern in WHOLE else op.payload / inner
        legal = (
            ways(op.pattern, payload, spread, dimension, True)
            if every
            else dimension_ways(op, payload, spread, dimension, name)
        )
        found.append(legal if _crosses(spread.size) else {})
        inner = inner * spread.members
    return found


def _check(pattern: str) -> None:
    if pattern not in PATTERNS:
        raise BadValue(f"a collective must be one of {', '.join(PATTERNS)}, but got '{pattern}'")


def price_collective(
    op: Collective, spreads: tuple[GroupLayout, ...], fabric: Fabric, by: str | Sequence[str] = ""
) -> Price:
    """Price of a collective of a group that is spread over a fabric's dimensions, by the cheapest ways or by
    named ones.
    """
    _check(op.pattern)
    names = by_dimension(by, spreads) if by else ("",) * len(spreads)
    if op.pattern == "send":
        return _send(op, spreads, fabric, names)
    time: Number = 0.0
    lower: Number = 0.0
    energy: Number = 0.0
    inner: Number = 1.0
    passes = 2.0 if op.pattern == "all_reduce" else 1.0
    for spread, dimension, name in zip(spreads, fabric.dimension, names, strict=True):
        payload = op.payload if op.pattern in WHOLE else op.payload / inner
        crossing = (spread.size - 1) / spread.size * payload
        once = cheapest(dimension_ways(op, payload, spread, dimension, name))
        time = time + namespace(spread.size, once).where(spread.size > 1, once, 0.0)
        saved = (
            1.0
            if dimension.reduction is None or op.pattern != "all_reduce"
            else 1.0 / (1.0 + dimension.reduction)
        )
        lower = lower + crossing * (passes * saved / dimension.bandwidth)
        energy = energy + crossing * (passes * dimension.energy)
        inner = inner * spread.members
    # Nothing to send takes no time: a batch holds collectives that some of its points do not need.
    time = namespace(op.payload, time).where(op.payload > 0, time, 0.0)
    return Price(time=time, network=time, lower=lower, upper=time, link_energy=energy, energy=energy)


def _send_ways(payload: Number, dimension: Dimension) -> AlgorithmTimes:
    """Each way of one message to a neighbour."""
    if dimension.transport_model is None:
        return {"send": dimension.latency + payload / sustained_link(dimension)}
    return send_ways(payload, peak_link(dimension), dimension.transport_model.pairs)


def _send(op: Collective, spreads: tuple[GroupLayout, ...], fabric: Fabric, names: tuple[str, ...]) -> Price:
    """One rank to its neighbour in the group; the slowest dimension the group crosses counts."""
    time: Number = 0.0
    lower: Number = 0.0
    energy: Number = 0.0
    payload = op.payload
    for spread, dimension, name in zip(spreads, fabric.dimension, names, strict=True):
        xp = namespace(payload, spread.size, dimension.bandwidth, time)
        crosses = spread.size > 1
        time = xp.maximum(
            time, xp.where(crosses, cheapest(dimension_ways(op, payload, spread, dimension, name)), 0.0)
        )
        lower = xp.maximum(lower, xp.where(crosses, payload / dimension.bandwidth, 0.0))
        energy = xp.where(crosses, payload * dimension.energy, energy)
    return Price(time=time, network=time, lower=lower, upper=time, link_energy=energy, energy=energy)
