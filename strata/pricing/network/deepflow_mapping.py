"""DeepFlow's device mapping, as its program computes it: for comparison with its published numbers.

It differs from `package_grid` in three ways. Packages have ports, a row of links at their left and right
side, and an edge between two packages is charged at the ports of those two only, as though any two were
neighbours (ours goes through every package on its way, so far-apart packages cost what they cost). The edge
leaves in its source's row and turns to the target's row in the column of the target's ports (ours keeps
dimension order: x to the end, then y). And one number, the worst link of the system, derates all traffic of a
network, whichever dimension meets it (ours keeps the worst link on each dimension's own way).

One rule of the laying is inferred from two of the 28 recorded layouts alone (`turned_over`): it agrees with
all of them, but another rule might as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from strata.mapping.device_mapping import Coordinates, LogicalDimension
from strata.pricing.network.link_sharing import (
    INTER,
    INTRA,
    DeviceGrid,
    DeviceMapping,
    SharedLink,
    device_mappings,
    edge_loads,
)
from strata.pricing.network.routes import RouteLevel, route


def ported_packages(side: int, packages: int) -> DeviceGrid:
    """Packages of side x side devices with ports left and right, as DeepFlow's Projection joins them.

    The first dimension goes along y, the others along x and then y, rows of blocks there and back; every
    package is filled alike.
    """
    levels = (RouteLevel("chain", side, 1.0, 0.0), RouteLevel("chain", side, 1.0, 0.0))

    def inside(package: int, source: Coordinates, target: Coordinates) -> Iterator[SharedLink]:
        first, last = (x + side * y for x, y in (source, target))
        yield from (SharedLink(INTRA, (package, link.place), 1.0) for link in route(first, last, levels))

    @cache
    def links(source: Coordinates, target: Coordinates) -> tuple[SharedLink, ...]:
        (x, y, package), (u, v, other) = source, target
        if package == other:
            return tuple(inside(package, (x, y), (u, v)))
        out, into = (side - 1, 0) if other > package else (0, side - 1)
        return (
            *inside(package, (x, y), (out, y)),
            SharedLink(INTER, ("out", package, out, y), 1.0),
            SharedLink(INTER, ("in", other, into, y), 1.0),
            *inside(other, (into, y), (into, v)),
            *inside(other, (into, v), (u, v)),
        )

    return DeviceGrid(
        name=f"{packages} packages of {side} x {side} with ports",
        sizes=(side, side, packages),
        networks=(INTRA, INTER),
        route=links,
        turning=2,
        first_axes=(1, 0, 2),
    )


def turned_over(
    places: Mapping[Coordinates, Coordinates],
    mesh: Sequence[LogicalDimension],
    order: Sequence[str],
    side: int,
) -> dict[Coordinates, Coordinates]:
    """Places where every row of copies that comes back holds its copies mirrored along x.

    >>> mesh = (LogicalDimension("kp1", 4), LogicalDimension("kp2", 2), LogicalDimension("dp", 2))
    >>> turned_over({(2, 0, 0): (2, 2, 0), (2, 0, 1): (3, 2, 0)}, mesh, ("kp2", "dp", "kp1"), 4)
    {(2, 0, 0): (3, 2, 0), (2, 0, 1): (2, 2, 0)}
    """
    column = {d.name: k for k, d in enumerate(mesh)}
    found, high = dict(places), mesh[column[order[0]]].degree
    wide, high = -(-high // side), min(high, side)  # the first dimension goes along y
    for name in order[1:]:
        if wide >= side:
            break  # no room along x: copies only go up
        across, rows = side // wide, side // high
        for shard, (x, y, package) in found.items():
            if shard[column[name]] % (across * rows) // across % 2:
                found[shard] = (x + wide - 1 - 2 * (x % wide), y, package)
        degree = mesh[column[name]].degree
        wide, high = wide * min(degree, across), high * min(-(-degree // across), rows)
    return found


def deepflow_mappings(
    mesh: Sequence[LogicalDimension], side: int, packages: int
) -> tuple[DeviceMapping, ...]:
    """A mesh in every order as DeepFlow lays, routes and counts it; `sharing` holds its two derates.

    Its program names the dimensions kp1, kp2, dp, lp, in this order. Where another than the first of the mesh
    is laid first, rows that come back are mirrored.

    >>> mesh = (LogicalDimension("kp1", 8), LogicalDimension("dp", 8))
    >>> deepflow_mappings(mesh, 8, 1)[0].sharing
    {'intra': 2, 'inter': 0}
    """
    grid, found = ported_packages(side, packages), []
    for mapping in device_mappings(mesh, grid, layings=("snake",)):
        if mapping.order and mapping.order[0] != mesh[0].name:
            places = turned_over(mapping.places, mesh, mapping.order, side)
            mapping = replace(mapping, places=places, loads=edge_loads(mesh, places, grid.route))
        found.append(mapping)
    return tuple(found)
