"""Link sharing: how many edges of a logical mesh each physical link carries, in every order of its
dimensions.

The mesh is laid over the devices (`deepflow.device_mapping`), each of its edges is routed dimension by
dimension, X then Y, by the router of `strata.pricing.network.routes`, and edges are counted link by link in
each direction. From the counts follow what every logical dimension keeps of the links' bandwidth, and the
best order for the bytes that a step sends along each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import numpy as np

from deepflow.device_mapping import (
    LAYINGS,
    Coordinates,
    LogicalDimension,
    lay_out,
    mapping_orders,
    shard_count,
    talking_shards,
)
from strata.base.arrays import Number, namespace
from strata.base.errors import BadValue, require
from strata.hardware.fabric import Fabric
from strata.pricing.network.routes import RouteLevel, RouteLink, route, route_levels

INTRA, INTER = "intra", "inter"


@dataclass(frozen=True)
class SharedLink:
    """A link in one direction: the network it belongs to, where it stands, its bandwidth [B/s], and the
    devices at its ends, one of them twice where it leads to a switch.
    """

    network: str
    place: Hashable
    bandwidth: float
    ends: tuple[Coordinates, ...] = ()


Route = Callable[[Coordinates, Coordinates], Sequence[SharedLink]]


@dataclass(frozen=True, eq=False, kw_only=True)
class DeviceGrid:
    """Devices that a mesh is laid over: sizes of the axes that are filled in turn, the networks between them,
    and the links from one device to another.
    """

    name: str
    sizes: tuple[int, ...]
    networks: tuple[str, ...]
    route: Route


def fabric_grid(fabric: Fabric) -> DeviceGrid:
    """The devices of a fabric whose dimensions have sizes, each dimension a network.

    >>> from strata.hardware.fabric import fabric, sized
    >>> grid = fabric_grid(sized(fabric("torus-256"), (4, 4, 1, 1, 1)))
    >>> grid.sizes, len(grid.route((0, 0, 0, 0, 0), (3, 2, 0, 0, 0)))
    ((4, 4, 1, 1, 1), 3)
    """
    for dimension in fabric.dimension:
        if dimension.size is None:
            raise BadValue(
                f"dimension {dimension.name} of fabric {fabric.name} has no size; give one, as with sized()"
            )
    levels = route_levels(fabric)
    names = tuple(d.name for d in fabric.dimension)
    sizes = tuple(level.size for level in levels)

    @cache
    def links(source: Coordinates, target: Coordinates) -> tuple[SharedLink, ...]:
        path = route(_number(source, sizes), _number(target, sizes), levels)
        return tuple(_fabric_link(link, names, levels) for link in path)

    return DeviceGrid(name=fabric.name, sizes=sizes, networks=names, route=links)


def _fabric_link(link: RouteLink, names: Sequence[str], levels: Sequence[RouteLevel]) -> SharedLink:
    """A link of the router with the dimension it belongs to and the devices at its ends."""
    axis, way, start = cast(tuple[int, Any, Coordinates], link.place)
    kind, size = levels[axis].kind, levels[axis].size
    end = start[axis] if kind == "switch" else way if kind == "full" else (start[axis] + way) % size
    ends = (start, (*start[:axis], end, *start[axis + 1 :]))
    return SharedLink(names[axis], link.place, link.bandwidth, ends)


def _number(place: Coordinates, sizes: Sequence[int]) -> int:
    """A device's number, innermost axis first."""
    number = 0
    for at, size in zip(reversed(place), reversed(sizes), strict=True):
        number = number * size + at
    return number


def package_grid(side: int, packages: int, intra: float = 1.0, inter: float = 1.0) -> DeviceGrid:
    """Packages of side x side devices, a mesh each, side by side in a chain: one large mesh whose links
    between packages are slower.

    `intra` and `inter`: bandwidth of one link inside a package and between two [B/s]. A route goes along x,
    through every package on its way, then along y.

    >>> grid = package_grid(2, 3)
    >>> [link.network for link in grid.route((1, 0, 0), (0, 1, 2))]
    ['inter', 'intra', 'inter', 'intra']
    """
    for what, value in (("side", side), ("packages", packages)):
        require(value >= 1 and int(value) == value, f"{what} must be a whole number of at least 1", got=value)
    for what, bandwidth in (("intra", intra), ("inter", inter)):
        require(0 < bandwidth < np.inf, f"{what}, the bandwidth of a link, must be positive", got=bandwidth)
    levels = (RouteLevel("chain", side * packages, intra, 0.0), RouteLevel("chain", side, intra, 0.0))
    wide = side * packages

    @cache
    def links(source: Coordinates, target: Coordinates) -> tuple[SharedLink, ...]:
        first, last = (x + side * package + wide * y for x, y, package in (source, target))
        return tuple(_package_link(link.place, side, intra, inter) for link in route(first, last, levels))

    return DeviceGrid(
        name=f"{packages} package{'s' if packages > 1 else ''} of {side} x {side}",
        sizes=(side, side, packages),
        networks=(INTRA, INTER),
        route=links,
    )


def _package_link(place: Hashable, side: int, intra: float, inter: float) -> SharedLink:
    """A link of the large mesh: between packages where it steps over a border along x."""
    axis, step, start = cast(tuple[int, int, Coordinates], place)
    end = (start[0] + step, start[1]) if axis == 0 else (start[0], start[1] + step)
    ends = tuple((x % side, y, x // side) for x, y in (start, end))
    leaves = ends[0][2] != ends[1][2]
    return SharedLink(INTER, place, inter, ends) if leaves else SharedLink(INTRA, place, intra, ends)


@dataclass(frozen=True, eq=False, kw_only=True)
class DeviceMapping:
    """A mesh laid over devices in one order, and what its edges make of the links.

    `loads`: edges of each dimension on each link that is used, one direction.
    """

    grid: DeviceGrid
    mesh: tuple[LogicalDimension, ...]
    order: tuple[str, ...]
    laying: str
    places: dict[Coordinates, Coordinates] = field(repr=False)
    loads: dict[SharedLink, Counter[str]] = field(repr=False)

    @property
    def sharing(self) -> dict[str, int]:
        """Most edges on any link of each network; 0 where none is used."""
        worst = dict.fromkeys(self.grid.networks, 0)
        for link, load in self.loads.items():
            worst[link.network] = max(worst[link.network], load.total())
        return worst

    @property
    def networks_used(self) -> dict[str, tuple[str, ...]]:
        """Networks that the edges of each dimension go over."""
        used: dict[str, set[str]] = {d.name: set() for d in self.mesh}
        for link, load in self.loads.items():
            for name in load:
                used[name].add(link.network)
        return {name: tuple(n for n in self.grid.networks if n in there) for name, there in used.items()}

    @property
    def bandwidth(self) -> dict[str, float]:
        """What an edge of each dimension keeps of the worst link on its way when all dimensions send [B/s];
        infinite where it has none.
        """
        return {name: self._least(name, self._names) for name in self._names}

    @property
    def alone_bandwidth(self) -> dict[str, float]:
        """The same when only that dimension sends [B/s]."""
        return {name: self._least(name, [name]) for name in self._names}

    @property
    def _names(self) -> list[str]:
        return [d.name for d in self.mesh]

    def _least(self, name: str, sending: Sequence[str]) -> float:
        """Bandwidth of the worst link on a dimension's ways, shared with all that send [B/s]."""
        return min(
            (
                link.bandwidth / sum(load[sender] for sender in sending)
                for link, load in self.loads.items()
                if load[name]
            ),
            default=float("inf"),
        )

    def time(self, volumes: Mapping[str, Number], together: bool = False) -> Number:
        r"""Time a step's traffic takes on the links [s]: bytes of each dimension over one of its edges.

        .. math:: T = \sum_d V_d \max_l \frac{e_{dl}}{b_l} \quad \text{or together} \quad
                  T = \max_l \frac{1}{b_l} \sum_d V_d\, e_{dl}

        volume V [B] in one direction; e edges of dimension d on link l of bandwidth b [B/s]. One dimension
        after the other, as a step's collectives mostly run, or all at once. Arrays where volumes are.

        Ardalani, Pal & Gupta, DeepFlow (2023), sec. 5.2 and 6.4: a link is shared by the edges on it.

        >>> mesh = (LogicalDimension("tp", 4), LogicalDimension("dp", 4))
        >>> on_rows = device_mappings(mesh, package_grid(4, 1, 100e9), layings=("wrap",))[0]
        >>> on_rows.time({"tp": 1e9, "dp": 1e8}), on_rows.time({"tp": 1e9, "dp": 1e8}, together=True)
        (0.022, 0.02)
        """
        unknown = set(volumes) - set(self._names)
        if unknown:
            raise BadValue(f"no mesh dimension called {min(unknown)}; there: {', '.join(self._names)}")
        xp = namespace(*volumes.values())
        if not together:
            apart: Number = 0.0
            for name, volume in volumes.items():
                apart = apart + volume / self.alone_bandwidth[name]
            return apart
        worst: Number = 0.0
        for per_byte in {
            tuple(load[n] / link.bandwidth for n in volumes) for link, load in self.loads.items()
        }:
            held: Number = 0.0
            for volume, share in zip(volumes.values(), per_byte, strict=True):
                held = held + volume * share
            worst = xp.maximum(worst, held)
        return worst


def device_mappings(
    mesh: Sequence[LogicalDimension],
    grid: DeviceGrid,
    volumes: Mapping[str, float] | None = None,
    *,
    layings: Sequence[str] = LAYINGS,
    together: bool = False,
) -> tuple[DeviceMapping, ...]:
    """A mesh on a grid of devices in every order of its dimensions, best first.

    Best is the least time of the traffic (`volumes`: bytes of each dimension over one of its edges, a step;
    a byte each when left out); of equal ones that with less sharing. Blocks that do not fit are left out.

    >>> mesh = (LogicalDimension("tp", 4), LogicalDimension("dp", 4))
    >>> [(m.order, m.sharing["intra"]) for m in device_mappings(mesh, package_grid(4, 1))][:2]
    [(('tp', 'dp'), 2), (('tp', 'dp'), 2)]
    """
    names = [d.name for d in mesh]
    require(len(set(names)) == len(names), "dimensions of a mesh have names of their own", names=names)
    devices = int(np.prod(grid.sizes, dtype=int))
    require(
        shard_count(mesh) <= devices,
        f"a mesh must have at most as many shards as {grid.name} has devices",
        shards=shard_count(mesh),
        devices=devices,
    )
    sent = dict.fromkeys(names, 1.0) if volumes is None else volumes
    found = [m for order in mapping_orders(mesh, volumes) for m in _laid(tuple(mesh), grid, order, layings)]

    def rank(mapping: DeviceMapping) -> tuple[float, ...]:
        both = [float(mapping.time(sent, together=t)) for t in (together, not together)]
        return (*both, *(float(n) for n in reversed(mapping.sharing.values())))

    return tuple(sorted(found, key=rank))


def _laid(
    mesh: tuple[LogicalDimension, ...], grid: DeviceGrid, order: tuple[str, ...], layings: Sequence[str]
) -> Iterator[DeviceMapping]:
    """A mesh in one order, laid in each of these ways that fits."""
    for laying in layings:
        places = lay_out(mesh, order, grid.sizes, laying)
        if places is not None:
            yield DeviceMapping(
                grid=grid,
                mesh=mesh,
                order=order,
                laying=laying,
                places=places,
                loads=edge_loads(mesh, places, grid.route),
            )


def edge_loads(
    mesh: Sequence[LogicalDimension], places: Mapping[Coordinates, Coordinates], way: Route
) -> dict[SharedLink, Counter[str]]:
    """Edges of each dimension on each link: both directions of every pair that talks, each on its own way."""
    loads: dict[SharedLink, Counter[str]] = {}
    for name, pairs in talking_shards(mesh).items():
        for one, other in pairs:
            for source, target in ((one, other), (other, one)):
                for link in way(places[source], places[target]):
                    loads.setdefault(link, Counter())[name] += 1
    return loads


def best_mapping(
    mesh: Sequence[LogicalDimension],
    grid: DeviceGrid,
    volumes: Mapping[str, float],
    *,
    together: bool = False,
) -> DeviceMapping:
    """The mapping with the least time of a step's traffic: bytes of each dimension over one of its edges.

    >>> mesh = (LogicalDimension("tp", 4), LogicalDimension("dp", 4))
    >>> best_mapping(mesh, package_grid(2, 4, 1e12, 1e11), {"tp": 1e9, "dp": 1e6}).order
    ('tp', 'dp')
    """
    return device_mappings(mesh, grid, volumes, together=together)[0]
