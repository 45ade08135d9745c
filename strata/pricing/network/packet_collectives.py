"""A collective of a group on a fabric, packet by packet: closed forms on symmetric groups, the router for the
rest of them.

Dimension after dimension, innermost first: along rings and chains from neighbour to neighbour, through a
switch, or a switch and one above it, by halves and doubles; a gather through switches begins with the
outermost, while its messages are small. Only the group itself sends; the links' rates are those a device
sustains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from strata.base.arrays import Array, Number, leaves, namespace
from strata.base.errors import BadValue
from strata.hardware.fabric import Dimension, Fabric, sustained_link
from strata.hardware.transport import Packets
from strata.mapping.place import GroupLayout
from strata.pricing.network import packets as forms
from strata.pricing.network.algorithm_names import (
    algorithm_key,
    cheapest,
    each_point,
    matching_algorithms,
    names_by_dimension,
)
from strata.pricing.network.algorithms import device_links, is_closed, where_power_of_two
from strata.pricing.network.collective_schedules import ScheduleStep, legal_schedules, schedule
from strata.pricing.network.packets import GridAxis, PacketHop, SwitchTree
from strata.pricing.network.routes import RouteLevel, route_levels, route_steps, steps_on_devices
from strata.pricing.network.transport_times import AlgorithmTimes

MOST = 256  # ranks the router takes: it follows every message
CLOSED = (
    "rings along rings and chains, halving_doubling and ring through a switch or two levels of them,"
    " direct or relayed all_to_all of one kind"
)


@dataclass(frozen=True, eq=False)
class FabricSegment:
    """Dimensions that are crossed as one: an axis of a grid, or a switch with the one above it."""

    wires: GridAxis | SwitchTree | None  # none where there is no closed form
    dimensions: tuple[int, ...]
    ranks: Number


@dataclass(frozen=True, eq=False)
class PacketTime:
    """Time of a collective [s], and its algorithm in each dimension; arrays of names for arrays."""

    time: Number
    names: tuple[str, ...] | tuple[Array, ...]


def fabric_segments(layouts: Sequence[GroupLayout], fabric: Fabric) -> list[FabricSegment]:
    """What a group crosses, innermost first."""
    segments: list[FabricSegment] = []
    for i, (layout, dimension) in enumerate(zip(layouts, fabric.dimension, strict=True)):
        if not np.any(np.asarray(layout.size) > 1):
            continue
        below = segments[-1] if segments else None
        if (
            below
            and dimension.shares_links_of
            and isinstance(below.wires, SwitchTree)
            and dimension.shares_links_of == fabric.dimension[below.dimensions[-1]].name
        ):
            segments[-1] = _joined(below, i, layout, dimension)
        else:
            segments.append(FabricSegment(_wires(layout, dimension), (i,), layout.size))
    return segments


def _wires(layout: GroupLayout, dimension: Dimension) -> GridAxis | SwitchTree | None:
    link = sustained_link(dimension)
    if dimension.kind == "switch":
        half = dimension.latency / 2.0
        return SwitchTree(layout.size, 1.0, link, half, link, half)
    if dimension.kind not in ("ring", "chain") or np.any(np.asarray(layout.stride) > 1):
        return None
    wraps = namespace(dimension.size, layout.size).where(is_closed(layout, dimension), 1.0, 0.0)
    return GridAxis(layout.size, link / device_links(dimension), dimension.latency, wraps)


def _joined(below: FabricSegment, i: int, layout: GroupLayout, dimension: Dimension) -> FabricSegment:
    """A switch and the one above it, joined by the group's share of its links; two have closed forms."""
    tree, dimensions, ranks = below.wires, (*below.dimensions, i), below.ranks * layout.size
    if not isinstance(tree, SwitchTree) or len(below.dimensions) > 1:
        return FabricSegment(None, dimensions, ranks)
    up = namespace(dimension.latency, tree.latency).maximum(dimension.latency / 2.0 - tree.latency, 0.0)
    shared = tree.inner * sustained_link(dimension)
    joined = SwitchTree(tree.inner, layout.size, tree.bandwidth, tree.latency, shared, up)
    return FabricSegment(joined, dimensions, ranks)


def segment_times(pattern: str, payload: Number, segment: FabricSegment, packets: Packets) -> AlgorithmTimes:
    """Closed forms of a collective in one segment, where there are; `payload`: the buffer there [B]."""
    wires, ranks = segment.wires, segment.ranks
    if wires is None or pattern == "broadcast":
        return {}
    passes = 1.0 if pattern == "all_reduce" else 0.5  # a reduce-scatter is an all-reduce's first half
    if isinstance(wires, GridAxis):
        if pattern == "send":
            hop = PacketHop(wires.bandwidth, wires.latency)
            return {"send": forms.message_time(payload, (hop,), packets)}
        if pattern == "all_gather":
            return {"ring": forms.grid_all_gather(payload / ranks, (wires,), packets)}
        if pattern == "all_to_all":
            return {}
        return {"ring": passes * forms.grid_all_reduce(payload, (wires,), packets)}
    if pattern == "send":
        return {"send": forms.tree_ring_step(payload, wires, packets)}
    if pattern == "all_to_all":
        return {"direct": forms.tree_all_to_all(payload / ranks, wires, packets)}
    if pattern == "all_gather":
        doubled = forms.tree_all_gather(payload / ranks, wires, packets)
        turned = forms.tree_all_gather(payload / ranks, wires, packets, outer_first=False)
        ring = forms.tree_ring_all_gather(payload / ranks, wires, packets)
        return {
            "halving-doubling": where_power_of_two(ranks, doubled),
            "halving-doubling inner first": where_power_of_two(ranks, turned),
            "ring": ring,
        }
    doubled = passes * forms.tree_all_reduce(payload, wires, packets)
    ring = passes * forms.tree_ring_all_reduce(payload, wires, packets)
    return {"halving-doubling": where_power_of_two(ranks, doubled), "ring": ring}


def packet_price(
    pattern: str,
    payload: Number,
    layouts: Sequence[GroupLayout],
    fabric: Fabric,
    packets: Packets,
    asked: str = "",
) -> PacketTime:
    """Time of a collective packet by packet [s], by the cheapest closed form or by the algorithm asked for.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.hardware.transport import packets
    >>> from strata.mapping.place import spread
    >>> torus = sized(fabric("deepstack-torus-64"), (4, 4))
    >>> priced = packet_price("all_reduce", 65536.0, spread(1.0, 16.0, torus), torus, packets("ns3"))
    >>> round(priced.time * 1e9), priced.names
    (4056, ('ring', 'ring'))
    """
    segments = fabric_segments(layouts, fabric)
    exact = closed_form(pattern, payload, segments, len(fabric.dimension), packets, asked)
    return exact or router_price(pattern, payload, layouts, fabric, packets, asked)


def closed_form(
    pattern: str,
    payload: Number,
    segments: Sequence[FabricSegment],
    dimensions: int,
    packets: Packets,
    asked: str,
) -> PacketTime | None:
    """The closed form of a collective, None where a segment has none or not the one asked for."""
    name = "" if algorithm_key(asked) == "by_dimension" else asked
    if pattern == "all_to_all" and all(isinstance(one.wires, GridAxis) for one in segments):
        axes = [one.wires for one in segments if isinstance(one.wires, GridAxis)]
        block = payload / math.prod((one.ranks for one in segments), start=1.0)
        candidates: list[AlgorithmTimes] = [{"relay": forms.grid_all_to_all(block, axes, packets)}]
        crossed = [FabricSegment(None, tuple(d for one in segments for d in one.dimensions), 1.0)]
    elif pattern == "all_to_all" and len(segments) > 1:
        return None
    else:
        crossed = list(segments)
        buffers = zip(
            segments, _buffers(pattern, payload, segments, _outer_first(asked, segments)), strict=True
        )
        candidates = [segment_times(pattern, held, one, packets) for one, held in buffers]
    kept = [matching_algorithms(name, times) for times in candidates]
    if not all(kept):
        return None
    times = [
        cheapest(times_here)
        if one.wires is None
        else namespace(one.ranks).where(one.ranks > 1, cheapest(times_here), 0.0)
        for one, times_here in zip(crossed, kept, strict=True)
    ]
    time = (
        np.max(np.stack(np.broadcast_arrays(*times)), axis=0)
        if pattern == "send"
        else sum(times[1:], start=times[0])
    )
    return PacketTime(time, _names(crossed, kept, dimensions, np.shape(time)))


def _outer_first(asked: str, segments: Sequence[FabricSegment]) -> bool:
    """Whether a gather begins outside, while its messages are small: through switches, unless a name says
    otherwise; rings go dimension by dimension from the inside.
    """
    inwards = algorithm_key(asked) not in ("by_dimension", "halving_doubling_inner_first")
    return inwards and all(isinstance(one.wires, SwitchTree) for one in segments)


def _buffers(
    pattern: str, payload: Number, segments: Sequence[FabricSegment], outer_first: bool
) -> Iterator[Number]:
    """The whole buffer in each segment [B]: a gather's blocks grow in the order it takes the segments in; a
    sum's shares shrink from the inside out.
    """
    ranks = math.prod((one.ranks for one in segments), start=1.0)
    inner: Number = 1.0
    for one in segments:
        if pattern == "send":
            yield payload
        elif pattern == "all_gather":
            yield payload / inner if outer_first else payload * (inner * one.ranks) / ranks
        else:
            yield payload / inner
        inner = inner * one.ranks


def _names(
    segments: Sequence[FabricSegment], kept: Sequence[AlgorithmTimes], dimensions: int, shape: tuple[int, ...]
) -> tuple[str, ...] | tuple[Array, ...]:
    """The cheapest algorithm's name for each dimension, "" where it is not crossed."""
    names: list[Array] = [np.full(shape, "")] * dimensions
    for one, by_algorithm in zip(segments, kept, strict=True):
        times = np.stack([np.broadcast_to(np.asarray(t, float), shape) for t in by_algorithm.values()])
        chosen = np.array(list(by_algorithm))[np.argmin(times, axis=0)]
        if one.wires is not None:
            chosen = np.where(np.broadcast_to(one.ranks, shape) > 1, chosen, "")
        for d in one.dimensions:
            names[d] = chosen
    return tuple(names) if shape else tuple(str(name) for name in names)


def router_price(
    pattern: str,
    payload: Number,
    layouts: Sequence[GroupLayout],
    fabric: Fabric,
    packets: Packets,
    asked: str,
) -> PacketTime:
    """The collective's schedule by the router, one point after the other."""
    given = (payload, tuple(layouts), fabric.dimension)
    shape = np.broadcast_shapes(*(np.shape(leaf) for leaf in leaves(given)))
    points = [
        _routed(pattern, size, lies, replace(fabric, dimension=dimensions), packets, asked)
        for size, lies, dimensions in each_point(given, shape)
    ]
    if not shape:
        return points[0]
    names = names_by_dimension([point.names for point in points], shape)
    return PacketTime(np.array([point.time for point in points]).reshape(shape), names)


def _whole(value: Number) -> int:
    """The whole number that a single quantity is but for rounding."""
    return round(float(value))


def _routed(
    pattern: str, payload: float, layouts: Sequence[GroupLayout], fabric: Fabric, packets: Packets, asked: str
) -> PacketTime:
    sizes = tuple(_whole(layout.size) for layout in layouts)
    ranks = int(np.prod(sizes))
    name = algorithm_key(asked) or next(iter(preferred_schedules(pattern, sizes, fabric)))
    if ranks > MOST:
        by_name = f" by {name}" if asked else ""
        raise BadValue(
            f"packet by packet, {pattern}{by_name} on fabric {fabric.name} has no closed form, and the router"
            f" takes {MOST} ranks at most, but got {ranks}; closed forms: {CLOSED}"
        )
    steps, levels = group_schedule(pattern, payload, layouts, fabric, name)
    if pattern == "send":  # to the neighbour in the slowest dimension, as a step counts it
        members = _members(layouts, fabric)
        strides = [int(np.prod(sizes[:d], dtype=int)) for d, size in enumerate(sizes) if size > 1]
        sends = [replace(steps[0], target=np.array([members[stride]])) for stride in strides]
        time = max(route_steps((send,), levels, packets).time for send in sends)
    else:
        time = route_steps(steps, levels, packets).time
    return PacketTime(time, tuple(f"routed {name}" if size > 1 else "" for size in sizes))


def group_schedule(
    pattern: str, payload: float, layouts: Sequence[GroupLayout], fabric: Fabric, name: str
) -> tuple[tuple[ScheduleStep, ...], tuple[RouteLevel, ...]]:
    """The steps of a group's collective by its schedule, between devices, and the levels they run on."""
    sizes = tuple(_whole(layout.size) for layout in layouts)
    steps = steps_on_devices(schedule(pattern, name, sizes, payload), _members(layouts, fabric))
    return steps, routed_levels(layouts, fabric)


def schedule_for_simulator(names: Sequence[str], layouts: Sequence[GroupLayout], fabric: Fabric) -> str:
    """The schedule that the algorithms taken are, for a simulator to run; one line where it is several."""
    schedules = {algorithm_key(name.removeprefix("routed ")) for name in names if name}
    segments = [segment for segment in fabric_segments(layouts, fabric) if segment.ranks > 1]
    along = all(isinstance(segment.wires, GridAxis) for segment in segments)
    routed = any(name.startswith("routed ") for name in names)
    if len(schedules) == 1 and (len(segments) == 1 or (not along and routed)):
        return schedules.pop()
    if along and schedules == {"ring"}:
        return "by_dimension"
    if along and len(schedules) == 1:
        return schedules.pop()
    raise BadValue(
        f"on fabric {fabric.name} this is a schedule for each dimension"
        f" ({', '.join(name for name in names if name)}); name one for all with --algorithm"
    )


def preferred_schedules(pattern: str, sizes: tuple[int, ...], fabric: Fabric) -> Iterator[str]:
    """Legal schedules, the likeliest first: halves and doubles through switches, else by dimension."""
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


def _members(layouts: Sequence[GroupLayout], fabric: Fabric) -> tuple[int, ...]:
    """Devices of a group's ranks, innermost dimension fastest."""
    members, below = np.zeros(1, int), 1
    for layout, dimension in zip(layouts, fabric.dimension, strict=True):
        members = (
            np.arange(_whole(layout.size))[:, None] * _whole(layout.stride) * below * (layout.size > 1)
            + members
        ).ravel()
        below *= _whole(dimension.size)
    return tuple(members.tolist())


def routed_levels(layouts: Sequence[GroupLayout], fabric: Fabric) -> tuple[RouteLevel, ...]:
    """Levels to route on: the fabric's, with one link upwards where an inner dimension's is shared."""
    levels = list(route_levels(fabric))
    for i, dimension in enumerate(fabric.dimension):
        below = fabric.dimension[i - 1] if i else None
        if (
            below is not None
            and dimension.shares_links_of == below.name
            and levels[i].kind == levels[i - 1].kind == "switch"
        ):
            share = max(float(layouts[i - 1].size), 1.0) * float(sustained_link(dimension))
            latency = max(levels[i].latency - levels[i - 1].latency, 0.0)
            levels[i] = RouteLevel("tree", levels[i].size, share, latency)
    return tuple(levels)
