"""One collective on one fabric, asked for by name: the price a model's step waits for, with checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, as_float
from strata.base.errors import BadValue, UnknownName, require
from strata.hardware.fabric import Fabric, check_group, devices_of, sized, with_library
from strata.hardware.system import System, as_system
from strata.hardware.transport import IDEAL, Packets, as_packets
from strata.mapping.place import GroupLayout, place, spread
from strata.mapping.plan import Plan
from strata.pricing.kernels.device import device
from strata.pricing.network.algorithm_names import LibrarySetting, cheapest, each_point, names_by_dimension
from strata.pricing.network.collectives import (
    PATTERNS,
    chosen_algorithms,
    device_fabric,
    joined_levels,
    price_collective,
    times_by_dimension,
)
from strata.pricing.network.packet_collectives import packet_price
from strata.pricing.network.transport_times import AlgorithmTimes
from strata.pricing.price import Price
from strata.software.engine import Engine
from strata.software.engine import engine as make_engine
from strata.workload.graph import Collective

# How often the share of a buffer that is not a rank's own crosses its link; patterns not named send the whole
# buffer once.
PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def bus_factor(pattern: str, ranks: Number) -> Number:
    r"""Bytes that cross one rank's link for a byte of its buffer, in algorithms without addition inside the
    network.

    .. math:: f = 2 \frac{p-1}{p} \;\text{(all-reduce)}, \quad
              f = \frac{p-1}{p} \;\text{(all-gather, reduce-scatter, all-to-all)}, \quad
              f = 1 \;\text{(others)}

    ranks p. Bandwidth times f compares with a link's own, whatever the number of ranks; a switch that adds up
    can exceed it.

    NVIDIA, nccl-tests, doc/PERFORMANCE.md: algorithm and bus bandwidth; all-to-all and broadcast as in its
    summary.

    >>> bus_factor("all_reduce", 8.0), bus_factor("all_gather", 8.0), bus_factor("send", 8.0)
    (1.75, 0.875, 1.0)
    """
    return PASSES[pattern] * (ranks - 1.0) / ranks if pattern in PASSES else 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class CollectiveCost:
    """A collective with its price; arrays where sizes were. `fabric` is as the engine's software uses it."""

    fabric: Fabric
    pattern: str
    bytes: Number  # the whole buffer of one rank [B]
    ranks: Number
    stride: Number
    engine: str  # "" on the links alone
    layouts: tuple[GroupLayout, ...]  # of the group on each dimension
    price: Price
    asked: str | tuple[str, ...] = ""  # algorithms asked for; the cheapest where there are none
    packets: str = ""  # packet network it was priced on, packet by packet
    names: tuple[Any, ...] = ()  # algorithms taken there

    @property
    def op(self) -> Collective:
        """The collective as a step knows it."""
        return _op(self.pattern, self.bytes)

    @property
    def algorithm_times(self) -> tuple[AlgorithmTimes, ...]:
        """Every legal algorithm in each dimension with its time [s], {} where it is not crossed; infinite
        where it is not legal. One that runs over several levels stands in each of them with all of its time.
        """
        phases = "" if isinstance(self.asked, str) else self.asked
        return tuple(times_by_dimension(self.op, self.layouts, self.fabric, phases, every=True))

    @property
    def time(self) -> Number:
        return self.price.time

    @property
    def joined(self) -> Any:
        """Where one algorithm runs over several dimensions at once, as a library's does between nodes."""
        found = None if self.packets else joined_levels(self.op, self.layouts, self.fabric, self.asked)
        return False if found is None else found.where

    @property
    def lower(self) -> Number:
        """What must cross the links at their peak [s]: of one dimension after the other, or, where one
        algorithm runs over several at once, of the slowest.
        """
        return self.price.lower

    @property
    def energy(self) -> Number:
        """Energy of one rank's links [J]."""
        return self.price.link_energy

    @property
    def algorithm_bandwidth(self) -> Number:
        """Bytes of the buffer a second."""
        return self.bytes / self.price.time

    @property
    def bus_bandwidth(self) -> Number:
        """Bytes a second over one rank's link, as nccl-tests counts them (`bus_factor`)."""
        return self.algorithm_bandwidth * bus_factor(self.pattern, self.ranks)

    @property
    def algorithms(self) -> tuple[Any, ...]:
        """The algorithm in each dimension, innermost first, "" where it is not crossed; arrays for arrays."""
        if self.names:
            return self.names
        op, shape = self.op, np.shape(self.price.time)
        if not shape:
            return chosen_algorithms(op, self.layouts, self.fabric, self.asked)

        points = each_point((self.bytes, self.layouts, self.fabric.dimension), shape)
        each = [
            chosen_algorithms(
                replace(op, payload=payload), layouts, replace(self.fabric, dimension=dimensions), self.asked
            )
            for payload, layouts, dimensions in points
        ]
        return names_by_dimension(each, shape)


def collective(
    on: str | System | Fabric,
    pattern: str,
    *,
    bytes: Number,
    ranks: Number | None = None,
    stride: Number = 1,
    engine: str | Engine = "ideal",
    algorithm: str | Sequence[str] = "",
    packets: str | Packets = "",
    links: bool = False,
    setting: LibrarySetting | None = None,
    launches: Number = 0.0,
) -> CollectiveCost:
    """One collective of a group of ranks: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or
    send. Sizes may be arrays.

    `on`: a system or its name, or a fabric, whose open dimensions count as 1. `bytes` is the whole buffer of
    one rank: what is summed, gathered, scattered or sent in all. The group has every `stride`-th device,
    innermost first; all there are when `ranks` is left out. `engine`: whose ways of sending it may use, as in
    a step. `algorithm`: a name for every dimension the group crosses, or one for each dimension, innermost
    first; the cheapest when left out. `links`: on the links alone, whatever software sends there. `packets`:
    a packet network, to price it on them packet by packet. `setting`: what is left to the library. `launches`
    by the host before it, each as long as a system's chip takes.

    >>> import numpy as np
    >>> both = collective("8xh200", "all_reduce", bytes=np.array([8e3, 1e9]), ranks=8)
    >>> bool(both.time[0] < both.time[1]), bool(np.all(both.lower <= both.time)), both.bus_bandwidth.shape
    (True, True, (2,))
    """
    if pattern not in PATTERNS:
        raise UnknownName("collective", pattern, PATTERNS, ", ".join(PATTERNS))
    software = make_engine(engine) if isinstance(engine, str) else engine
    fabric = with_library(_fabric_of(on), IDEAL if links or packets else software.collectives)
    fabric = _with_sums(fabric, setting) if setting else fabric
    payload = _checked("bytes", bytes, whole=False)
    apart = _checked("stride", stride)
    members = devices_of(fabric) // apart if ranks is None else _checked("ranks", ranks)
    _check_shapes(bytes=payload, ranks=members, stride=apart)
    layouts = spread(apart, members, fabric)
    _check_group(fabric, members, apart, layouts)
    network, name = as_packets(packets) if packets else None, "" if links or packets else software.name
    alone = _cost(fabric, pattern, payload, (members, apart), layouts, name, algorithm, by_name=not packets)
    if setting is not None:
        alone = replace(alone, price=_price_left(alone, setting))
    if not isinstance(on, Fabric) and np.any(np.asarray(launches) > 0):
        later = alone.time + launches * as_system(on).chip.overhead.launch
        alone = replace(alone, price=alone.price.replaced(time=later, network=later, upper=later))
    return alone if network is None else _by_packets(alone, network)


def _with_sums(fabric: Fabric, setting: LibrarySetting) -> Fabric:
    """A fabric whose switches add up where a setting asks for it, and do not where it forbids it."""
    node, *outer = fabric.dimension
    node = replace(node, reduction=None) if setting.in_node is False else node
    outer = [replace(d, reduction=1.0) for d in outer] if setting.in_network else outer
    return replace(fabric, dimension=(node, *outer))


def _price_left(alone: CollectiveCost, setting: LibrarySetting) -> Price:
    """The price by the cheapest algorithm that a setting leaves; the library's own where it leaves none."""
    op, layouts, fabric = alone.op, alone.layouts, alone.fabric
    known = {name for times in times_by_dimension(op, layouts, fabric) for name in times}
    left = {name for name in known if setting.allows(name)}
    if op.pattern == "send" or left in (known, set()):
        return alone.price
    times: AlgorithmTimes = {}
    for name in sorted(left):
        try:
            times[name] = price_collective(op, layouts, fabric, name).time
        except BadValue:  # not legal for some of the sizes
            continue
    if not times:
        return alone.price
    least = cheapest(times)
    return replace(alone.price, time=least, network=least, upper=least)


def group_collective(
    on: str | System | Fabric,
    division: Plan,
    group: str,
    pattern: str,
    *,
    bytes: Number,
    engine: str | Engine = "ideal",
    algorithm: str | Sequence[str] = "",
    links: bool = False,
) -> CollectiveCost:
    """One collective of a plan's group (tp, ep, dp_cp, ...) as the plan lies on the fabric; the rest as in
    `collective`.

    >>> from strata.mapping.plan import plan
    >>> far = group_collective("4x8xh200", plan("tp=8,dp=4"), "dp", "all_reduce", bytes=1e9)
    >>> near = group_collective("4x8xh200", plan("tp=8,dp=4"), "tp", "all_reduce", bytes=1e9)
    >>> float(far.ranks), float(near.ranks), near.time < far.time
    (4.0, 8.0, True)
    """
    if pattern not in PATTERNS:
        raise UnknownName("collective", pattern, PATTERNS, ", ".join(PATTERNS))
    software = make_engine(engine) if isinstance(engine, str) else engine
    fabric = with_library(_fabric_of(on), IDEAL if links else software.collectives)
    active = division.active() | {group}
    every = division.group_ranks(active)
    if group not in every:
        raise UnknownName("group of ranks", group, every, ", ".join(every))
    stride, ranks, _ = every[group]
    require(bool(np.all(ranks > 1)), f"a collective of group {group} needs 2 ranks or more", ranks=ranks)
    check_group(fabric, division.devices)
    layouts = place(division, fabric, active).groups[group]
    payload, name = _checked("bytes", bytes, whole=False), "" if links else software.name
    return _cost(fabric, pattern, payload, (ranks, stride), layouts, name, algorithm)


def _cost(
    fabric: Fabric,
    pattern: str,
    payload: Number,
    group: tuple[Number, Number],
    layouts: tuple[GroupLayout, ...],
    engine: str,
    algorithm: str | Sequence[str],
    by_name: bool = True,
) -> CollectiveCost:
    """The cost of a group's collective, by the algorithm asked for or, where not `by_name`, the cheapest."""
    asked = algorithm if isinstance(algorithm, str) else tuple(algorithm)
    price = price_collective(_op(pattern, payload), layouts, fabric, asked if by_name else "")
    return CollectiveCost(
        fabric=fabric,
        pattern=pattern,
        bytes=payload,
        ranks=group[0],
        stride=group[1],
        engine=engine,
        layouts=layouts,
        price=price,
        asked=asked,
    )


def _op(pattern: str, payload: Number) -> Collective:
    return Collective(name=pattern, pattern=pattern, group="", payload=payload)


def _by_packets(ideal: CollectiveCost, packets: Packets) -> CollectiveCost:
    """A collective on the links alone with the packets' time."""
    if not isinstance(ideal.asked, str):
        raise BadValue(
            "packet by packet a collective goes by one algorithm for all dimensions,"
            f" but got {', '.join(ideal.asked)}"
        )
    priced = packet_price(ideal.pattern, ideal.bytes, ideal.layouts, ideal.fabric, packets, ideal.asked)
    price = replace(ideal.price, time=priced.time, network=priced.time, upper=priced.time)
    return replace(ideal, price=price, packets=packets.name, names=priced.names)


def _fabric_of(on: str | System | Fabric) -> Fabric:
    """The fabric that was named, with a size for each dimension."""
    if isinstance(on, Fabric):
        fabric = on
    else:
        joined = as_system(on)
        fabric = device_fabric(joined.fabric, device(joined.chip))
    return sized(fabric, tuple(1.0 if d.size is None else d.size for d in fabric.dimension))


def _checked(name: str, value: Number, whole: bool = True) -> Number:
    """A size as float, positive and, unless it counts bytes, whole; traced arrays are taken as they are."""
    try:
        seen = np.asarray(value, float)
    except (TypeError, ValueError) as error:
        if hasattr(value, "__array_namespace__"):
            return value
        raise BadValue(f"collective {name} must be a number, but got {value!r}") from error
    good = (seen >= 1) & (seen < 1e15) & (seen == np.floor(seen)) if whole else (seen > 0) & np.isfinite(seen)
    if not np.all(good):
        rule = "a positive whole number" if whole else "a positive number"
        raise BadValue(
            f"collective {name} must be {rule}, but got {np.ravel(seen)[np.argmin(np.ravel(good))]:g}"
        )
    return as_float(seen if isinstance(value, (list, tuple)) else value)


def _check_shapes(**sizes: Number) -> None:
    shapes = {name: np.shape(value) for name, value in sizes.items()}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items() if shape)
        raise BadValue(f"collective sizes must broadcast against each other, but got {told}") from None


def _check_group(fabric: Fabric, ranks: Number, stride: Number, layouts: tuple[GroupLayout, ...]) -> None:
    """Two ranks or more, as many as the fabric has at this stride, a whole number in each dimension."""
    try:
        most, *rest = np.broadcast_arrays(
            np.asarray(devices_of(fabric), float), ranks, stride, *(s.size for s in layouts)
        )
    except TypeError:  # traced
        return
    members, apart, inside = rest[0], rest[1], np.stack(rest[2:])

    def refuse(broken: Any, relation: str) -> None:
        if np.any(broken):
            at = int(np.argmax(np.ravel(broken)))
            require(False, relation, ranks=int(np.ravel(members)[at]), stride=int(np.ravel(apart)[at]))

    refuse(members < 2, f"a collective on fabric {fabric.name} needs 2 ranks or more")
    check_group(fabric, int(np.max(members)))
    refuse(
        members * apart > most,
        f"ranks x stride must not exceed the {np.max(most):g} devices of fabric {fabric.name}",
    )
    shape = " x ".join(f"{np.max(d.size):g} {d.name}" for d in fabric.dimension)
    uneven = np.abs(np.prod(inside, axis=0) - members) > 1e-9
    refuse(uneven, f"a group must fill the inner dimensions of fabric {fabric.name} ({shape}) evenly")
