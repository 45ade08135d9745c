"""Collectives between nodes, as nccl-tests prints them: a cluster is built from the chip, the network's name
and the adapters that each row states.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.hardware.fabric import Fabric, sized, with_library
from strata.hardware.fabric_parts import Dimension
from strata.hardware.transport import LIBRARY
from strata.mapping.place import GroupLayout, spread
from strata.params import names
from strata.pricing.network.algorithm_names import cheapest
from strata.pricing.network.collectives import price_collective, times_by_dimension
from strata.pricing.network.level_parts import between_nodes
from strata.pricing.network.transport_times import AlgorithmTimes
from strata.validation.readers.bare_kernels import collective_op
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.collectives import NOT_SUMMED
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    rows_by_key,
)
from strata.validation.readers.network_names import (
    Asked,
    adapters_of,
    asked_of,
    chip_called,
    is_domain,
    network_of,
    network_parts,
    pattern_of_test,
)
from strata.validation.readers.tables import Table

COLUMNS = ("gpu", "fabric", "links", "op", "setting", "dtype")
# A time this often as long as one of a longer message of the same run is a first use (connections, buffers).
FIRST_USE = 2.0


def multinode(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """nccl-tests and rccl-tests between nodes; `bytes` is the whole buffer, as Strata counts it. Rows that a
    longer message of the same run beats by far are first uses and stand apart.
    """
    s = table.numbers("nodes", "gpus", "gpus_per_node", "bytes")
    keys = [table.text(c) for c in COLUMNS]
    counts = [s[c] for c in ("nodes", "gpus", "gpus_per_node")]
    measured = table.number("time_us") * 1e-6

    def price(key: tuple[Any, ...], rows: Array) -> Any:
        gpu, network, links, test, setting, dtype, *sizes = key
        pattern, asked = pattern_of_test(test), asked_of(setting)
        joined = cluster_fabric(catalogue, gpu, network, links, setting, (sizes[0], sizes[1], sizes[2]))
        if dtype.lower() in NOT_SUMMED or asked.in_node is False:
            node, *outer = joined.dimension
            joined = replace(joined, dimension=(replace(node, reduction=None), *outer))
        return asked_time(pattern, s["bytes"][rows], spread(1.0, float(sizes[1]), joined), joined, asked)

    forecasts = forecast(table, [*keys, *counts], price, tuple(s))
    group = group_names(keys[3], keys[0], keys[1], table.text("nodes"), count=len(table))
    runs = [*keys, *counts, table.text("nccl")] if "nccl" in table.columns else [*keys, *counts]
    first = first_uses(runs, s["bytes"], measured)
    return compare_metric(table, measured, forecasts, group, headline=~first)


def first_uses(runs: list[Array], size: Array, measured: Array) -> Array:
    """Rows whose time is beaten by far by a longer message of the same run.

    >>> run = [np.array(["a"] * 3)]
    >>> first_uses(run, np.array([1.0, 2.0, 4.0]), np.array([9e-3, 3e-4, 4e-4])).tolist()
    [True, False, False]
    """
    found = np.zeros(len(size), bool)
    for _, rows in rows_by_key(runs, len(size)):
        order = rows[np.argsort(size[rows], kind="stable")]
        times = np.where(np.isfinite(measured[order]) & (measured[order] > 0), measured[order], np.inf)
        least = np.minimum.accumulate(times[::-1])[::-1]
        found[order] = np.isfinite(times) & (times > FIRST_USE * least)
    return found


def asked_time(
    pattern: str, payload: Array, layouts: tuple[GroupLayout, ...], joined: Fabric, asked: Asked
) -> Number:
    """The cheapest of the algorithms that a setting leaves to the library [s]; where it leaves none that the
    collective knows, the library goes its own way.
    """
    op = collective_op(pattern, payload)
    free = price_collective(op, layouts, joined).time
    known = {name for times in times_by_dimension(op, layouts, joined) for name in times}
    left = {name for name in known if asked.allows(name)}
    if op.pattern == "send" or left in (known, set()):
        return free
    times: AlgorithmTimes = {}
    for name in sorted(left):
        try:
            times[name] = price_collective(op, layouts, joined, name).time
        except BadValue:  # not legal for some of the sizes
            continue
    return cheapest(times) if times else free


def cluster_fabric(
    catalogue: Catalogue,
    gpu: str,
    network: str,
    links: str,
    setting: str,
    counts: tuple[float, float, float],
) -> Fabric:
    """The fabric of so many nodes, devices and devices a node: the shipped one with this network and the
    chip's own links, its adapters as a row states them.

    >>> made = cluster_fabric(Catalogue(), "h100", "efa", "32x100G EFA", "default", (2.0, 16.0, 8.0))
    >>> made.name, [float(d.size) for d in made.dimension], float(made.dimension[1].bandwidth)
    ('p5-efa', [8.0, 2.0], 50000000000.0)
    """
    nodes, devices, per_node = counts
    gpu, (inside, kind) = chip_called(catalogue, gpu), network_parts(network)
    told, asked = adapters_of(links, network), asked_of(setting)
    domain = is_domain(kind)
    if domain:
        joined = catalogue.usual_fabric(gpu)
        node, outer = joined.dimension[0], joined.dimension[1:]
    else:
        kind = network_of(network, "", links, catalogue)
        joined = shipped_network(catalogue, gpu, kind, per_node, told.count and told.count / per_node)
        node, outer = joined.dimension[0], (next(d for d in joined.dimension if between_nodes(d)),)
        usual = 1.0 if outer[0].links is None else float(np.max(outer[0].links))
        rate = told.of_device(per_node, float(np.max(node.size)), usual)
        outer = outer if rate is None else (replace(outer[0], bandwidth=rate),)
    if not domain and network_of(network, setting, links, catalogue) == "sockets":
        outer = tuple(
            replace(d, transport="sockets", transport_model=catalogue.transport("sockets")) for d in outer
        )
    if asked.in_network:
        outer = tuple(replace(d, reduction=1.0) for d in outer)
    size = float(np.max(node.size))
    domains = ceil(devices / size) if inside or domain else nodes
    if per_node * nodes != devices or devices % domains or devices / domains > size:
        raise BadValue(
            f"{gpu} has {size:g} devices on {node.name}: whole nodes were expected,"
            f" but got (nodes={nodes:g}, gpus={devices:g}, gpus_per_node={per_node:g})"
        )
    made = replace(joined, dimension=(node, *outer))
    return with_library(sized(made, (devices / domains, domains)), LIBRARY)


def shipped_network(
    catalogue: Catalogue, gpu: str, kind: str, per_node: float, adapters: float | None
) -> Fabric:
    """The shipped fabric with a network of this kind whose nodes are nearest to the chip's: the same links
    inside, as many adapters a device.

    >>> shipped_network(Catalogue(), "h800", "roce", 8.0, None).dimension[1].transport
    'roce'
    """
    usual = catalogue.usual_fabric(gpu)
    wanted = "infiniband" if kind == "sockets" else kind
    known = [catalogue.fabric(name) for name in names("fabric")]
    found = [
        (one, d)
        for one in known
        for d in one.dimension[1:2]
        if between_nodes(d) and d.transport == wanted and not one.dimension[0].shares_links_of
    ]
    if not found:
        raise BadValue(f"no shipped fabric has a network of {kind}: write one, or name another")

    own = usual.dimension[0]

    def far(pair: tuple[Fabric, Dimension]) -> tuple[Any, ...]:
        one, d = pair
        inner = one.dimension[0]
        count = 1.0 if d.links is None else float(np.max(d.links))
        apart = 0.0 if adapters is None else abs(np.log(adapters / count))
        other = (inner.transport != own.transport, inner.bandwidth != own.bandwidth, inner.size != own.size)
        kind = (
            inner.kind != own.kind,
            abs(np.log(float(np.max(inner.bandwidth)) / float(np.max(own.bandwidth)))),
        )
        return (*other[:2], one.name != usual.name, kind[0], apart, other[2], kind[1], one.name)

    best, network = min(found, key=far)
    inner = best.dimension[0]
    same = inner.transport == own.transport and float(np.max(inner.bandwidth)) == float(np.max(own.bandwidth))
    if same and float(np.max(inner.size)) >= per_node:
        return best
    return replace(best, dimension=(own, network))
