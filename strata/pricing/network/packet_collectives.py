"""A collective of a group on a fabric, packet by packet: closed forms on symmetric groups, the router for the
rest of them.

Dimension after dimension, innermost first: along rings and chains from neighbour to neighbour, through a
switch, or a switch and one above it, by halves and doubles. Only the group itself sends; the links' rates are
those a device sustains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from strata.arrays import Number, leaves, map_leaves, namespace
from strata.errors import BadValue
from strata.hardware.fabric import Dimension, Fabric, sustained_link
from strata.hardware.transport import Packets
from strata.mapping.place import GroupLayout
from strata.pricing.network import packets as forms
from strata.pricing.network.algorithms import is_closed
from strata.pricing.network.collectives import cheapest, matching_algorithms, short
from strata.pricing.network.packets import Axis, Hop, Tree
from strata.pricing.network.routes import Level, levels_of, placed, routed_steps
from strata.pricing.network.schedules import Step, legal_schedules, schedule
from strata.pricing.network.transport_times import AlgorithmTimes

MOST = 256  # ranks the router takes: it follows every message
CLOSED = "rings along rings and chains, halving_doubling and ring through a switch or two levels of them, direct or relayed all_to_all of one kind"


@dataclass(frozen=True, eq=False)
class Part:
    """Dimensions that are crossed as one: an axis of a grid, or a switch with the one above it."""

    wires: Axis | Tree | None  # none where there is no closed form
    dimensions: tuple[int, ...]
    name: str
    ranks: Number


@dataclass(frozen=True, eq=False)
class Packeted:
    """Time of a collective [s], and the way it takes in each dimension; arrays of names for arrays."""

    time: Number
    names: tuple[Number, ...]


def parts_of(spreads: Sequence[GroupLayout], fabric: Fabric) -> list[Part]:
    """What a group crosses, innermost first."""
    made: list[Part] = []
    for i, (spread, dimension) in enumerate(zip(spreads, fabric.dimension, strict=True)):
        if not np.any(np.asarray(spread.size) > 1):
            continue
        below = made[-1] if made else None
        if (
            below
            and dimension.shares_links_of
            and isinstance(below.wires, Tree)
            and dimension.shares_links_of == fabric.dimension[below.dimensions[-1]].name
        ):
            made[-1] = _joined(below, i, spread, dimension)
        else:
            made.append(
                Part(
                    _wires(spread, dimension),
                    (i,),
                    f"{dimension.name} of {np.max(spread.size):g}",
                    spread.size,
                )
            )
    return made


def _wires(spread: GroupLayout, dimension: Dimension) -> Axis | Tree | None:
    link = sustained_link(dimension)
    if dimension.kind == "switch":
        half = dimension.latency / 2.0
        return Tree(spread.size, 1.0, link, half, link, half)
    if dimension.kind not in ("ring", "chain") or np.any(np.asarray(spread.stride) > 1):
        return None
    xp = namespace(dimension.size, spread.size)
    links = xp.minimum(2.0, xp.maximum(dimension.size - 1.0, 1.0))
    return Axis(
        spread.size, link / links, dimension.latency, xp.where(is_closed(spread, dimension), 1.0, 0.0)
    )


def _joined(below: Part, i: int, spread: GroupLayout, dimension: Dimension) -> Part:
    """A switch and the one above it, which it reaches by a link as wide as the group's share of its own; two
    levels have closed forms.
    """
    tree = below.wires
    name, ranks = f"{below.name} x {dimension.name} of {np.max(spread.size):g}", below.ranks * spread.size
    if not isinstance(tree, Tree) or len(below.dimensions) > 1:
        return Part(None, (*below.dimensions, i), name, ranks)
    xp = namespace(dimension.latency, tree.latency)
    up = xp.maximum(dimension.latency / 2.0 - tree.latency, 0.0)
    made = Tree(
        tree.inner, spread.size, tree.bandwidth, tree.latency, tree.inner * sustained_link(dimension), up
    )
    return Part(made, (*below.dimensions, i), name, ranks)


def _power_of_two(ranks: Number, time: Number) -> Number:
    xp = namespace(ranks, time)
    steps = xp.log2(xp.maximum(ranks, 1.0))
    return xp.where(abs(steps - xp.floor(steps + 0.5)) < 1e-9, time, float("inf"))


def part_ways(pattern: str, payload: Number, part: Part, how: Packets) -> AlgorithmTimes:
    """Closed forms of a collective inside one part; none where there is no such form. `payload` is the whole
    buffer there [B].
    """
    wires, ranks = part.wires, part.ranks
    if wires is None or pattern == "broadcast":
        return {}
    if pattern == "send":
        return {"send": _neighbour(payload, wires, how)}
    if isinstance(wires, Axis):
        if pattern == "all_gather":
            return {"ring": forms.grid_all_gather(payload / ranks, (wires,), how)}
        passes = 1.0 if pattern == "all_reduce" else 0.5  # a reduce-scatter is an all-reduce's first half
        return (
            {"ring": passes * forms.grid_all_reduce(payload, (wires,), how)}
            if pattern != "all_to_all"
            else {}
        )
    if pattern == "all_gather":
        doubled, ring = (
            forms.tree_all_gather(payload / ranks, wires, how),
            forms.tree_ring_all_gather(payload / ranks, wires, how),
        )
    elif pattern == "all_to_all":
        return {"direct": forms.tree_all_to_all(payload / ranks, wires, how)}
    else:
        passes = 1.0 if pattern == "all_reduce" else 0.5
        doubled, ring = (
            passes * forms.tree_all_reduce(payload, wires, how),
            passes * forms.tree_ring_all_reduce(payload, wires, how),
        )
    return {"halving-doubling": _power_of_two(ranks, doubled), "ring": ring}


def _neighbour(payload: Number, wires: Axis | Tree, how: Packets) -> Number:
    if isinstance(wires, Axis):
        return forms.message_time(payload, (Hop(wires.bandwidth, wires.latency),), how)
    return forms.tree_message(payload, wires, wires.outer > 1.0, 1.0, 1.0, how)


def packet_price(
    pattern: str,
    payload: Number,
    spreads: Sequence[GroupLayout],
    fabric: Fabric,
    how: Packets,
    asked: str = "",
) -> Packeted:
    """Time of a collective packet by packet [s], by the cheapest closed form or by the algorithm asked for.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.hardware.transport import packets
    >>> from strata.mapping.place import spread
    >>> torus = sized(fabric("deepstack-torus-64"), (4, 4))
    >>> found = packet_price("all_reduce", 65536.0, spread(1.0, 16.0, torus), torus, packets("ns3"))
    >>> round(found.time * 1e9), found.names
    (4056, ('ring', 'ring'))
    """
    parts = parts_of(spreads, fabric)
    exact = closed_form(pattern, payload, parts, len(fabric.dimension), how, asked)
    return exact or routed_price(pattern, payload, spreads, fabric, how, asked)


def closed_form(
    pattern: str, payload: Number, parts: Sequence[Part], dimensions: int, how: Packets, asked: str
) -> Packeted | None:
    """The closed form of a collective, None where a part has none or not the one asked for."""
    name = "" if short(asked) == "by_dimension" else asked
    if pattern == "all_to_all" and all(isinstance(part.wires, Axis) for part in parts):
        ways: list[AlgorithmTimes] = [{"relay": _relayed(payload, parts, how)}]
        groups = [Part(None, tuple(d for part in parts for d in part.dimensions), "", 1.0)]
    elif pattern == "all_to_all" and len(parts) > 1:
        return None
    else:
        groups, ways, inner = list(parts), [], 1.0
        ranks = np.prod([part.ranks for part in parts], axis=0) if pattern == "all_gather" else 1.0
        for part in parts:
            inner_next = inner * part.ranks
            # A gather's blocks grow from the inside out; a sum's shares shrink.
            held = (
                payload * inner_next / ranks
                if pattern == "all_gather"
                else payload
                if pattern == "send"
                else payload / inner
            )
            ways.append(part_ways(pattern, held, part, how))
            inner = inner_next
    if not all(ways):
        return None
    kept = [matching_algorithms(name, found) for found in ways]
    if not all(kept):
        return None
    times = [cheapest(found) for found in kept]
    crossed = [
        namespace(p.ranks, t).where(p.ranks > 1, t, 0.0) if p.wires is not None else t
        for p, t in zip(groups, times, strict=True)
    ]
    time = (
        np.max(np.stack(np.broadcast_arrays(*crossed)), axis=0)
        if pattern == "send"
        else sum(crossed[1:], start=crossed[0])
    )
    return Packeted(time, _names(groups, kept, dimensions, np.shape(time)))


def _relayed(payload: Number, parts: Sequence[Part], how: Packets) -> Number:
    ranks: Number = 1.0
    for part in parts:
        ranks = ranks * part.ranks
    return forms.grid_all_to_all(
        payload / ranks, [part.wires for part in parts if isinstance(part.wires, Axis)], how
    )


def _names(
    parts: Sequence[Part], kept: Sequence[AlgorithmTimes], dimensions: int, shape: tuple[int, ...]
) -> tuple[Number, ...]:
    """The cheapest way's name for each dimension, "" where it is not crossed."""
    names: list[Number] = [np.full(shape, "")] * dimensions
    for part, found in zip(parts, kept, strict=True):
        times = np.stack([np.broadcast_to(np.asarray(t, float), shape) for t in found.values()])
        chosen = np.array(list(found))[np.argmin(times, axis=0)]
        for d in part.dimensions:
            names[d] = (
                np.where(np.broadcast_to(part.ranks, shape) > 1, chosen, "")
                if part.wires is not None
                else chosen
            )
    return tuple(names) if shape else tuple(str(name) for name in names)


def routed_price(
    pattern: str, payload: Number, spreads: Sequence[GroupLayout], fabric: Fabric, how: Packets, asked: str
) -> Packeted:
    """The collective's schedule by the router, one point after the other."""
    asked_for = (payload, tuple(spreads), fabric.dimension)
    shape = np.broadcast_shapes(*(np.shape(leaf) for leaf in leaves(asked_for)))
    found = []
    for i in range(int(np.prod(shape))):

        def pick(value: Number, i: int = i) -> float:
            return float(np.broadcast_to(value, shape).flat[i])

        size, layout_key, dimensions = map_leaves(pick, asked_for)
        found.append(_routed(pattern, size, layout_key, replace(fabric, dimension=dimensions), how, asked))
    if not shape:
        return found[0]
    names = tuple(
        np.array([f.names[d] for f in found], dtype=str).reshape(shape) for d in range(len(spreads))
    )
    return Packeted(np.array([f.time for f in found]).reshape(shape), names)


def _routed(
    pattern: str, payload: float, spreads: Sequence[GroupLayout], fabric: Fabric, how: Packets, asked: str
) -> Packeted:
    sizes = tuple(round(spread.size) for spread in spreads)
    ranks = int(np.prod(sizes))
    name = short(asked) or next(iter(_preferred(pattern, sizes, fabric)))
    if ranks > MOST:
        raise BadValue(
            f"packet by packet, {pattern}{f' by {name}' if asked else ''} on fabric {fabric.name} has no closed form, and the router takes {MOST} ranks"
            f" at most, but got {ranks}; closed forms: {CLOSED}"
        )
    levels, members = _levels(spreads, fabric), _members(spreads, fabric)
    if pattern == "send":  # to the neighbour in the slowest dimension, as a step counts it
        (step,) = schedule(pattern, name, sizes, payload)
        strides = [int(np.prod(sizes[:d], dtype=int)) for d, size in enumerate(sizes) if size > 1]
        time = max(
            routed_steps((Step(step.source, np.array([members[s]]), step.bytes),), levels, how).time
            for s in strides
        )
    else:
        time = routed_steps(*spelt_out(pattern, payload, spreads, fabric, name), how).time
    return Packeted(time, tuple(f"routed {name}" if size > 1 else "" for size in sizes))


def spelt_out(
    pattern: str, payload: float, spreads: Sequence[GroupLayout], fabric: Fabric, name: str
) -> tuple[tuple[Step, ...], tuple[Level, ...]]:
    """The steps of a group's collective by the name of its schedule, between devices of the fabric, and the
    levels they run on.
    """
    sizes = tuple(round(spread.size) for spread in spreads)
    return placed(schedule(pattern, name, sizes, payload), _members(spreads, fabric)), _levels(
        spreads, fabric
    )


def schedule_of(names: Sequence[str], spreads: Sequence[GroupLayout], fabric: Fabric) -> str:
    """The schedule that the ways taken in each dimension are, for a simulator to run; one line where it is
    several.
    """
    ways = {name.removeprefix("routed ").replace("-", "_") for name in names if name}
    parts = [part for part in parts_of(spreads, fabric) if part.ranks > 1]
    along = all(isinstance(part.wires, Axis) for part in parts)
    if len(ways) == 1 and (len(parts) == 1 or (not along and any(n.startswith("routed ") for n in names))):
        return ways.pop()
    if along and ways == {"ring"}:
        return "by_dimension"
    if along and len(ways) == 1:
        return ways.pop()
    raise BadValue(
        f"on fabric {fabric.name} this is a schedule for each dimension ({', '.join(n for n in names if n)}); name one for all with --algorithm"
    )


def _preferred(pattern: str, sizes: tuple[int, ...], fabric: Fabric) -> Iterator[str]:
    """Legal schedules, the likeliest first: halves and doubles through switches, else dimension by dimension."""
    along = any(
        d.kind in ("ring", "chain") and size > 1 for d, size in zip(fabric.dimension, sizes, strict=True)
    )
    order = (
        ("by_dimension", "relay", "pipeline")
        if along
        else ("halving_doubling", "by_dimension", "direct", "tree")
    )
    legal = legal_schedules(pattern, sizes)
    yield from (name for name in order if name in legal)
    yield from legal


def _members(spreads: Sequence[GroupLayout], fabric: Fabric) -> tuple[int, ...]:
    """Devices of a group's ranks, innermost dimension fastest."""
    members, below = np.zeros(1, int), 1
    for spread, dimension in zip(spreads, fabric.dimension, strict=True):
        members = (
            np.arange(round(spread.size))[:, None] * round(spread.stride) * below * (spread.size > 1)
            + members
        ).ravel()
        below *= round(dimension.size)
    return tuple(members.tolist())


def _levels(spreads: Sequence[GroupLayout], fabric: Fabric) -> tuple[Level, ...]:
    """Levels to route on: those of the fabric, and one link upwards for a group's share where a dimension is
    reached through an inner one.
    """
    made = list(levels_of(fabric))
    for i, dimension in enumerate(fabric.dimension):
        below = fabric.dimension[i - 1] if i else None
        if (
            below is not None
            and dimension.shares_links_of == below.name
            and made[i].kind == made[i - 1].kind == "switch"
        ):
            share = max(spreads[i - 1].size, 1.0) * float(sustained_link(dimension))
            made[i] = Level("tree", made[i].size, share, max(made[i].latency - made[i - 1].latency, 0.0))
    return tuple(made)
