"""DeepFlow's device mapping, as its program computes it: for comparison with its published numbers.

It differs from `package_grid` in three ways. Packages have ports, a row of links at their left and right
side, and an edge between two packages is charged at the ports of those two only, as though any two were
neighbours (ours goes through every package on its way, so far-apart packages cost what they cost). The edge
leaves in its source's row and turns to the target's row in the column of the target's ports (ours keeps
dimension order: x to the end, then y). And one number, the worst link of the system, derates all traffic of a
network, whichever dimension meets it (ours keeps the worst link on each dimension's own way).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from strata.mapping.device_mapping import Coordinates, LogicalDimension
from strata.pricing.network.link_sharing import (
    INTER,
    INTRA,
    DeviceGrid,
    DeviceMapping,
    SharedLink,
    device_mappings,
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


def deepflow_mappings(
    mesh: Sequence[LogicalDimension], side: int, packages: int
) -> tuple[DeviceMapping, ...]:
    """A mesh in every order as DeepFlow lays, routes and counts it; `sharing` holds its two derates.

    >>> mesh = (LogicalDimension("kp1", 8), LogicalDimension("dp", 8))
    >>> deepflow_mappings(mesh, 8, 1)[0].sharing
    {'intra': 2, 'inter': 0}
    """
    return device_mappings(mesh, ported_packages(side, packages), layings=("snake",))
