"""Collectives on composed fabric dimensions: the cheapest legal algorithm in each, or the one that was asked
for by name; or one algorithm of a library over several levels at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from strata.base.arrays import Number, namespace
from strata.base.errors import BadValue
from strata.base.memo import Memo, is_settled, value_key
from strata.base.shipped import needed_model
from strata.hardware.fabric import Dimension, Fabric, peak_link, sustained_link
from strata.mapping.place import GroupLayout
from strata.pricing.kernels.device import Device
from strata.pricing.network.algorithm_names import (
    Level,
    algorithms_by_dimension,
    always_crosses,
    between_nodes,
    cheapest,
    crossed_levels,
    crosses,
    group_link,
    joins_levels,
    make_level,
    select_algorithms,
    shown_size,
)
from strata.pricing.network.algorithms import all_ideal_times, ideal_times, pipelined_broadcast
from strata.pricing.network.levels import level_times, slowest
from strata.pricing.network.transport_times import (
    AlgorithmTimes,
    pairwise_times,
    peer_memory_times,
    ring_times,
    send_times,
)
from strata.pricing.price import Price, network_price
from strata.workload.graph import Collective

PATTERNS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
# every dimension carries all of the buffer, not only what inner ones left of it
WHOLE_BUFFER = ("all_to_all", "broadcast", "send")


@dataclass(frozen=True, eq=False, slots=True)
class OverNodes:
    """A group that reaches over nodes: where it does, and its levels."""

    where: Any  # points that cross a level between nodes
    always: bool  # all of them do
    levels: list[Level]


@dataclass(frozen=True, eq=False, slots=True)
class Joined(OverNodes):
    """A collective that one algorithm runs over several levels at once."""

    times: AlgorithmTimes

    def least(self, pattern: str, payload: Number, sent: Sequence[Number] | None = None) -> list[Number]:
        """What must cross each level at its links' peak [s]; `sent`: its `level_bytes`, where known."""
        sent = level_bytes(pattern, payload, self.levels) if sent is None else sent
        return [
            one.where(each * (least_passes(pattern, one.dimension) / one.dimension.bandwidth))
            for one, each in zip(self.levels, sent, strict=True)
        ]


def level_bytes(pattern: str, payload: Number, levels: Sequence[Level]) -> list[Number]:
    """Bytes a rank sends over each level once round: an all-to-all's for ranks there, else what they lack."""
    if pattern == "all_to_all":
        return [(one.outer - one.inner) / levels[-1].outer * payload for one in levels]
    return [(one.size - 1.0) / one.size * payload / one.inner for one in levels]


def least_passes(pattern: str, dimension: Dimension) -> Number:
    """How often a buffer crosses a dimension's links at least: twice to be summed, once by the switch."""
    if pattern != "all_reduce":
        return 1.0
    return 2.0 if dimension.reduction is None else 2.0 / (1.0 + dimension.reduction)


def over_nodes(layouts: tuple[GroupLayout, ...], fabric: Fabric) -> OverNodes | None:
    """Levels of a group, all a library's and one between nodes; None where there is no such point."""
    crossed = [
        (layout, dimension)
        for layout, dimension in zip(layouts, fabric.dimension, strict=True)
        if not (layout.size.__class__ is float and layout.size <= 1.0)
    ]
    if not joins_levels([dimension for _, dimension in crossed]):
        return None
    nodes = math.prod((layout.size for layout, dimension in crossed if between_nodes(dimension)), start=1.0)
    if not crosses(nodes):
        return None
    return OverNodes(nodes > 1, always_crosses(nodes), crossed_levels(layouts, fabric.dimension))


def joined_levels(
    op: Collective, layouts: tuple[GroupLayout, ...], fabric: Fabric, asked: str | Sequence[str]
) -> Joined | None:
    """A collective over levels of which one lies between nodes, all of them a library's; None where there is
    no such point, or where an algorithm is asked for in each dimension: those are phases, one after another.
    """
    if op.pattern == "send" or not isinstance(asked, str):
        return None
    over = over_nodes(layouts, fabric)
    if over is None:
        return None
    first = next(d.transport_model for d in fabric.dimension if d.transport_model is not None)
    levels = over.levels
    times = level_times(op.pattern, op.payload, levels, first)
    if asked:
        shape = " x ".join(f"{shown_size(one.size)} {one.dimension.name}" for one in levels)
        times = select_algorithms(asked, times, f"the levels {shape}, with transport {first.name} inside,")
    return Joined(over.where, over.always, levels, times)


def either_times(joined: Joined | None, own: AlgorithmTimes) -> AlgorithmTimes:
    """Algorithms over several levels where there are such, else those of one dimension."""
    if joined is None:
        return own
    if joined.always:
        return joined.times
    names = dict.fromkeys((*own, *joined.times))
    return {
        name: namespace(joined.where, *(t[name] for t in (own, joined.times) if name in t)).where(
            joined.where, joined.times.get(name, float("inf")), own.get(name, float("inf"))
        )
        for name in names
    }


def algorithm_times(
    pattern: str, payload: Number, layout: GroupLayout, dimension: Dimension, every: bool = False
) -> AlgorithmTimes:
    """Each legal algorithm inside one dimension, with its time [s], groups of one taking none; without
    `every` those that can be the cheapest.
    """
    transport = dimension.transport_model
    if dimension.collectives:
        own = needed_model("collectives", dimension.collectives)(pattern, payload, layout, dimension)
        if own is not None:
            return own
    if pattern == "send":
        return _send_times(payload, dimension)
    if transport is None:
        return (all_ideal_times if every else ideal_times)(pattern, payload, layout, dimension)
    link, rings, ranks = group_link(layout, dimension), transport.rings, layout.size
    if between_nodes(dimension):
        return level_times(pattern, payload, [make_level(layout, dimension, transport)], transport)
    if pattern == "broadcast":
        wait, rate = dimension.latency * rings.step["simple"], rings.share["all_gather"] * link
        return {"trees": rings.start["simple"] + pipelined_broadcast(payload, ranks, rate, wait, True)}
    if pattern == "all_to_all":
        return pairwise_times(payload, ranks, link, transport.pairs)
    times = ring_times(pattern, payload, ranks, link, dimension.latency, rings, dimension.reduction)
    if pattern == "all_reduce" and transport.direct is not None:
        times |= peer_memory_times(payload, ranks, link, transport.direct)
    return times


def device_fabric(fabric: Fabric, device: Device) -> Fabric:
    """A fabric as the collectives of a device find it: a model of their own may pass the device's memory."""
    for name in sorted({d.collectives for d in fabric.dimension} - {""}):
        fabric = needed_model("device fabrics", name)(fabric, device)
    return fabric


def _send_times(payload: Number, dimension: Dimension) -> AlgorithmTimes:
    """Each algorithm of one message to a neighbour."""
    if dimension.transport_model is None:
        return {"send": dimension.latency + payload / sustained_link(dimension)}
    times = send_times(payload, peak_link(dimension), dimension.transport_model.pairs)
    far = dimension.latency if between_nodes(dimension) else 0.0
    return {name: time + far for name, time in times.items()}


@dataclass(frozen=True, eq=False, slots=True)
class Crossing:
    """What a collective brings to one dimension of a fabric: how its group lies there, the bytes of a rank's
    buffer that are left for it, and the algorithm asked for.
    """

    layout: GroupLayout
    dimension: Dimension
    payload: Number
    algorithm: str = ""

    @property
    def empty(self) -> bool:
        """Whether no point crosses the dimension, as far as is known at a glance."""
        return self.layout.size.__class__ is float and self.layout.size <= 1.0

    def sent(self) -> Number:
        """Bytes that a rank sends over its links once round: all but its own share."""
        return (self.layout.size - 1) / self.layout.size * self.payload

    def where(self, value: Number) -> Number:
        """A quantity where the group crosses the dimension, else 0."""
        size = self.layout.size
        return namespace(size, value).where(size > 1, value, 0.0)

    def times(self, op: Collective) -> AlgorithmTimes:
        """Algorithms of the collective here: those that can be the cheapest, or the named one."""
        layout, dimension, transport = self.layout, self.dimension, self.dimension.transport_model
        if not self.algorithm:
            return algorithm_times(op.pattern, self.payload, layout, dimension)
        software = "" if transport is None else f", with its transport {transport.name},"
        every = algorithm_times(op.pattern, self.payload, layout, dimension, every=True)
        place = f"{dimension.name} of {shown_size(layout.size)}{software}"
        return select_algorithms(self.algorithm, every, place)


def crossings(
    op: Collective,
    layouts: tuple[GroupLayout, ...],
    fabric: Fabric,
    asked: str | Sequence[str] = "",
    payload: Number | None = None,
) -> Iterator[Crossing]:
    """A collective's way through a fabric, innermost first. Sums, gathers and scatters leave the next
    dimension what one part of this one holds; others all of it (`payload`: where it is not the op's).
    """
    if op.pattern not in PATTERNS:
        raise BadValue(f"a collective must be one of {', '.join(PATTERNS)}, but got '{op.pattern}'")
    whole = op.payload if payload is None else payload
    names = algorithms_by_dimension(asked, layouts)
    inner: Number = 1.0
    for layout, dimension, name in zip(layouts, fabric.dimension, names, strict=True):
        yield Crossing(layout, dimension, whole if op.pattern in WHOLE_BUFFER else whole / inner, name)
        inner = inner * layout.members


def chosen_algorithms(
    op: Collective, layouts: tuple[GroupLayout, ...], fabric: Fabric, asked: str | Sequence[str] = ""
) -> tuple[str, ...]:
    """The algorithm a single collective takes in each dimension, innermost first; "" where not crossed.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.mapping.place import spread
    >>> node = sized(fabric("torus-256"), (4, 4, 1, 1, 1))
    >>> op = Collective(pattern="all_reduce", group="tp", payload=1e6)
    >>> chosen_algorithms(op, spread(1.0, 4.0, node), node)
    ('bidirectional ring', '', '', '', '')
    """
    return tuple(
        min(times, key=lambda name: float(times[name])) if times else ""
        for times in times_by_dimension(op, layouts, fabric, asked)
    )


def times_by_dimension(
    op: Collective,
    layouts: tuple[GroupLayout, ...],
    fabric: Fabric,
    asked: str | Sequence[str] = "",
    every: bool = False,
) -> list[AlgorithmTimes]:
    """The algorithms of a collective in each dimension, with `every` the dominated ones too; none where it
    does not cross one. One that runs over several levels at once stands in each of them with all of its time.
    """
    found = list(crossings(op, layouts, fabric, asked))
    joined = joined_levels(op, layouts, fabric, asked)
    return [
        {} if not crosses(here.layout.size) else either_times(joined, _own_times(op, here, every, joined))
        for here in found
    ]


def _own_times(op: Collective, here: Crossing, every: bool, joined: Joined | None) -> AlgorithmTimes:
    """The algorithms inside one dimension; none where all points run over several levels."""
    if joined is not None and joined.always:
        return {}
    if every:
        return algorithm_times(op.pattern, here.payload, here.layout, here.dimension, True)
    return here.times(op)


def price_collective(
    op: Collective, layouts: tuple[GroupLayout, ...], fabric: Fabric, asked: str | Sequence[str] = ""
) -> Price:
    """Price of a group's collective over a fabric's dimensions, by the cheapest algorithms or named ones."""
    key = value_key(op.pattern, op.payload, layouts, asked) if is_settled(fabric) else None
    return _PRICES.of(key and (fabric, key), lambda: _price_collective(op, layouts, fabric, asked))


_PRICES = Memo(4096)


def _price_collective(
    op: Collective, layouts: tuple[GroupLayout, ...], fabric: Fabric, asked: str | Sequence[str]
) -> Price:
    if op.pattern == "send":
        return _price_send(op, layouts, fabric, asked)
    time: Number = 0.0
    lower: Number = 0.0
    energy: Number = 0.0
    joined = joined_levels(op, layouts, fabric, asked)
    passes = 2.0 if op.pattern == "all_reduce" else 1.0
    each: list[Number] = []
    for here in crossings(op, layouts, fabric, asked):
        if here.empty:
            continue
        dimension, sent = here.dimension, here.sent()
        each.append(sent)
        energy = energy + sent * (passes * dimension.energy)
        if joined is None or not (joined.always or between_nodes(dimension)):
            time = time + here.where(cheapest(_own_times(op, here, False, joined)))
            lower = lower + sent * (least_passes(op.pattern, dimension) / dimension.bandwidth)
    if joined is not None:
        known = None if op.pattern in WHOLE_BUFFER else each  # the bytes of each level are those
        both = cheapest(joined.times)
        least = slowest(joined.least(op.pattern, op.payload, known))
        if joined.always:
            time, lower = both, least
        else:
            xp = namespace(joined.where, both, time)
            time, lower = xp.where(joined.where, both, time), xp.where(joined.where, least, lower)
    # Nothing to send takes no time: a batch holds collectives that some of its points do not need.
    time = namespace(op.payload, time).where(op.payload > 0, time, 0.0)
    return network_price(time, energy, lower=lower)


def _price_send(
    op: Collective, layouts: tuple[GroupLayout, ...], fabric: Fabric, asked: str | Sequence[str]
) -> Price:
    """One rank to its neighbour in the group; the slowest dimension the group crosses counts."""
    time: Number = 0.0
    lower: Number = 0.0
    energy: Number = 0.0
    for here in crossings(op, layouts, fabric, asked):
        if here.empty:
            continue
        dimension, crosses = here.dimension, here.layout.size > 1
        xp = namespace(here.payload, here.layout.size, dimension.bandwidth, time)
        time = xp.maximum(time, xp.where(crosses, cheapest(here.times(op)), 0.0))
        lower = xp.maximum(lower, xp.where(crosses, here.payload / dimension.bandwidth, 0.0))
        energy = xp.where(crosses, here.payload * dimension.energy, energy)
    return network_price(time, energy, lower=lower)
