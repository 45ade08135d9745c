"""How many devices of each dimension a system uses: whole domains, part of one (64 of 72), slices of a torus.

A job may use fewer devices than a domain has. Through a switch the rest is idle ports; where each pair has
its own link, links to devices outside of the system carry nothing; a slice of a torus whose ends are not
joined is a mesh. And clusters that only a few facts are known of: the shipped fabric that is nearest.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.errors import BadValue, require
from strata.hardware.fabric import Dimension, Fabric, closes, sized
from strata.hardware.transport import Transport
from strata.params import Param

# A system of several domains leaves at most this part of each unused, unless its name says how many it uses.
SPARE = 1 / 8


def sizes_of(count: int, per_domain: int | None, joined: Fabric, name: str) -> tuple[float, ...]:
    """Devices in each dimension of so many, or of so many domains of `per_domain` each, innermost first."""
    require(
        count >= 1 and (per_domain is None or per_domain >= 1),
        "a system has at least one device",
        system=name,
    )
    fixed = [d for d in joined.dimension if d.size is not None]
    whole = domain_size(joined)
    if per_domain is not None and not fixed and len(joined.dimension) > 1:
        # every size is open: so many inside, so many outside
        return (float(per_domain), *[1.0] * (len(joined.dimension) - 2), float(count))
    if per_domain is not None:
        require(
            per_domain <= whole,
            f"a node of fabric {joined.name} has at most {whole} devices",
            per_node=per_domain,
        )
        domains, inside = count, per_domain
    elif count <= whole:
        domains, inside = 1, count
    else:
        domains, inside = _shared_out(count, whole, joined.name)
    sizes = _fill(inside, fixed, name)
    if domains > 1:
        if len(fixed) == len(joined.dimension):
            raise BadValue(
                f"fabric {joined.name} has {whole} devices and no scale-out dimension, "
                f"but got (system='{name}')"
            )
        sizes = (*sizes, float(domains))
    return sizes


def domain_size(joined: Fabric) -> int:
    """Devices of the fabric's dimensions whose size is stated: a node, a rack, a pod."""
    return math.prod(int(d.size) for d in joined.dimension if d.size is not None)


def _shared_out(count: int, whole: int, fabric: str) -> tuple[int, int]:
    """Domains that devices take, and how many of each: whole ones, or an equal part of as few as can be.

    >>> _shared_out(144, 72, "nvl72"), _shared_out(128, 72, "nvl72"), _shared_out(1024, 72, "nvl72")
    ((2, 72), (2, 64), (16, 64))
    """
    least, fewest = -(-count // whole), math.ceil(whole * (1 - SPARE))
    if whole - fewest < count // fewest - least:  # the shorter list: of parts, or of domains
        parts = ((count // inside, inside) for inside in range(whole, fewest - 1, -1))
    else:
        parts = ((domains, count // domains) for domains in range(least, count // fewest + 1))
    for domains, inside in parts:
        if domains * inside == count:
            return domains, inside
    such = f", like {least}x{count // least}x..." if count % least == 0 else ""
    raise BadValue(
        f"more than one node means whole nodes of {whole}, or an equal part of each, at least "
        f"{fewest}; write NODESxCHIPSx... for others{such}, "
        f"but got (devices={count}, fabric='{fabric}')"
    )


def equal_part(devices: float, most: float) -> int:
    """The largest part of so many devices, all parts equal, that is at most so large.

    >>> [equal_part(*pair) for pair in ((256.0, 72.0), (8.0, 72.0), (144.0, 72.0))]
    [64, 8, 72]
    """
    return next(part for part in range(max(int(min(devices, most)), 1), 0, -1) if devices % part == 0)


def even_counts(total: int) -> list[int]:
    """A number of devices, and the largest multiples of higher powers of two below it, most first.

    >>> even_counts(72), even_counts(7), even_counts(8)
    ([72, 64], [7, 6, 4], [8])
    """
    multiples = (total >> k << k for k in range(total.bit_length()))
    return list(dict.fromkeys(multiples))


def even_part(name: str) -> str:
    """The name of the largest part of a system that is a power of two of devices; none where all of them are.

    Sizes of models are multiples of powers of two, so that other counts of devices leave fewer ways to divide
    them.

    >>> even_part("72xgb200"), even_part("24xh200"), even_part("8xh200"), even_part("2x72xgb200")
    ('64xgb200', '16xh200', '', '')
    """
    said = re.fullmatch(r"(\d{1,9})x([A-Za-z./].*)", name, re.ASCII)
    counts = even_counts(int(said[1])) if said else []
    return f"{counts[-1]}x{said[2]}" if said and len(counts) > 1 else ""


def _fill(devices: int, fixed: list[Dimension], name: str) -> tuple[float, ...]:
    """Sizes of the inner dimensions that hold so many devices, innermost first: one dimension after the
    other, but slices of a torus as near to a cube as there are.
    """
    if fixed and all(d.wrap is not None for d in fixed):
        return _slice(devices, fixed, name)
    sizes = []
    for dimension in fixed:
        size = int(dimension.size)
        take = min(size, devices)
        require(
            devices % take == 0,
            "devices must fill the inner dimensions of the fabric evenly",
            devices=devices,
            dimension=size,
            system=name,
        )
        sizes.append(float(take))
        devices //= take
    return tuple(sizes)


def _slice(devices: int, fixed: list[Dimension], name: str) -> tuple[float, ...]:
    """The shape of a slice of a torus: least sum of its sides, then most rings that close."""
    limits = [int(d.size) for d in fixed]
    choices = [
        (*inner, devices // math.prod(inner))
        for inner in itertools.product(*(_divisors(devices, limit) for limit in limits[:-1]))
        if devices % math.prod(inner) == 0
    ]
    legal = [s for s in choices if all(a <= b for a, b in zip(s, limits, strict=True))]
    require(
        bool(legal),
        f"no slice of the torus {'x'.join(map(str, limits))} has so many devices",
        devices=devices,
        system=name,
    )

    def rank(shape: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        closed = sum(closes(d, float(s)) for d, s in zip(fixed, shape, strict=True))
        return sum(shape), -closed, tuple(-s for s in shape)

    return tuple(float(s) for s in min(legal, key=rank))


def _divisors(number: int, limit: int) -> list[int]:
    return [d for d in range(1, min(number, limit) + 1) if number % d == 0]


def used_part(built: Fabric, sizes: tuple[float, ...]) -> Fabric:
    """A fabric of which a system uses so many members of each dimension.

    >>> from strata.hardware.fabric import fabric
    >>> used_part(fabric("mi325x-node"), (4.0,)).dimension[0].bandwidth / 1e9  # three of seven links of 64
    192.0
    >>> [d.kind for d in used_part(fabric("tpu-v5e-torus"), (16.0, 8.0)).dimension[:2]]
    ['ring', 'chain']
    """
    made = sized(built, sizes)
    dimensions, told = [], {}
    for i, (old, new) in enumerate(zip(built.dimension, made.dimension, strict=True)):
        if old.kind != "full" or old.size is None or not 1 < float(new.size) < float(old.size):
            dimensions.append(new)
            continue
        share = (float(new.size) - 1.0) / (float(old.size) - 1.0)
        links = None if old.links is None else old.links * share
        new = replace(new, bandwidth=old.bandwidth * share, links=links)
        why = f"derived: the links to {new.size - 1:g} of {old.size - 1:g} other members"
        path = f"dimension.{i}.bandwidth"
        before = f"{built.sources[path].source}; " if path in built.sources else ""
        told[path] = Param(new.bandwidth, "B/s", before + why)
        dimensions.append(new)
    return replace(made, dimension=tuple(dimensions), sources=made.sources.updated(told))


# ---------------------------------------------------------------------- clusters by a few facts


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Adapters of a node as far as they are known."""

    count: float | None = None
    rate: float | None = None  # of one [B/s]; of the node where there is no count and `whole`
    whole: bool = False

    def of_device(self, devices: float, node: float, usual: float) -> float | None:
        """Bytes a second for each of the devices that a node brings [B/s]; None where nothing is known.

        Where fewer devices than a node holds are used, each has the adapters beside it. `usual` adapters a
        device stand in for a count.

        >>> Adapters(count=8.0, rate=50e9).of_device(2.0, 8.0, 1.0)
        50000000000.0
        """
        if self.rate is None:
            return None
        if self.whole:
            return self.rate / (devices if self.count is None else node)
        if self.count is None:
            return self.rate * usual
        return self.rate * self.count / (node if self.count >= node > devices else devices)


def cluster_fabric(
    usual: Fabric,
    shipped: Sequence[Fabric],
    *,
    network: str,
    nodes: float,
    devices: float,
    per_node: float,
    adapters: Adapters,
    over_nodes: bool = False,
    sockets: Transport | None = None,
) -> Fabric:
    """The fabric of so many nodes: of the shipped ones that with this network and a chip's own links, its
    adapters as they are known; "" is no network, all devices inside one domain of links.

    `usual` is the chip's own fabric; `over_nodes`: its links reach over several nodes; `sockets` carry what
    leaves a node.

    >>> from strata.hardware.fabric import fabric
    >>> known = [fabric("hgx-h100"), fabric("p5-efa")]
    >>> far = {"nodes": 2.0, "devices": 16.0, "per_node": 8.0, "adapters": Adapters(count=32.0, rate=12.5e9)}
    >>> made = cluster_fabric(known[0], known, network="efa", **far)
    >>> made.name, [float(d.size) for d in made.dimension], float(made.dimension[1].bandwidth)
    ('p5-efa', [8.0, 2.0], 50000000000.0)
    """
    if network:
        count = adapters.count and adapters.count / per_node
        usual, outer = nearest_network(usual, shipped, network, per_node, count)
        node = usual.dimension[0]
        links = 1.0 if outer.links is None else float(np.max(outer.links))
        rate = adapters.of_device(per_node, float(np.max(node.size)), links)
        outer = outer if rate is None else replace(outer, bandwidth=rate)
        around: tuple[Dimension, ...] = (outer,)
        if sockets is not None:
            around = (replace(outer, transport=sockets.name, transport_model=sockets),)
    else:
        node, around = usual.dimension[0], usual.dimension[1:]
    size = float(np.max(node.size))
    domains = math.ceil(devices / size) if over_nodes or not network else nodes
    if nodes % 1 or per_node * nodes != devices or devices % domains or devices / domains > size:
        raise BadValue(
            f"{usual.name} has {size:g} devices on {node.name}: whole nodes were expected,"
            f" but got (nodes={nodes:g}, devices={devices:g}, devices a node={per_node:g})"
        )
    return sized(replace(usual, dimension=(node, *around)), (devices / domains, domains))


def nearest_network(
    usual: Fabric, shipped: Sequence[Fabric], network: str, per_node: float, adapters: float | None
) -> tuple[Fabric, Dimension]:
    """The shipped fabric with a network of this kind whose nodes are nearest to those of a usual fabric (the
    same links inside, as many adapters a device), and its dimension between nodes; its nodes are the usual
    ones where it has others.
    """
    known = [
        (one, d)
        for one in shipped
        for d in one.dimension[1:2]
        if d.transport == network and d.medium == "network" and not one.dimension[0].shares_links_of
    ]
    if not known:
        raise BadValue(f"no shipped fabric has a network of {network}: write one, or name another")
    own = usual.dimension[0]

    def far(pair: tuple[Fabric, Dimension]) -> tuple[Any, ...]:
        one, d = pair
        inner = one.dimension[0]
        count = 1.0 if d.links is None else float(np.max(d.links))
        rates = float(np.max(inner.bandwidth)), float(np.max(own.bandwidth))
        return (
            inner.transport != own.transport,
            inner.bandwidth != own.bandwidth,
            one.name != usual.name,
            inner.kind != own.kind,
            0.0 if adapters is None else abs(np.log(adapters / count)),
            inner.size != own.size,
            abs(np.log(rates[0] / rates[1])),
            one.name,
        )

    best, outer = min(known, key=far)
    inner = best.dimension[0]
    same = inner.transport == own.transport and float(np.max(inner.bandwidth)) == float(np.max(own.bandwidth))
    if same and float(np.max(inner.size)) >= per_node:
        return best, outer
    return replace(best, dimension=(own, outer)), outer
