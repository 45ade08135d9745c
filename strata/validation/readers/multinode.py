"""Collectives between nodes, as nccl-tests prints them: a cluster is built from the chip, the network's name
and the adapters that each row states.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue, UnknownName
from strata.hardware.fabric import Fabric, sized, with_library
from strata.hardware.fabric_parts import Dimension
from strata.hardware.transport import LIBRARY
from strata.mapping.place import spread
from strata.params import names
from strata.pricing.network.collectives import price_collective
from strata.pricing.network.level_parts import between_nodes
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
from strata.validation.readers.tables import Table

TESTS = {
    "all_gather": "all_gather",
    "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send",
}
# other names of networks, and of the links inside a node where a domain reaches over nodes
OTHER_NAMES = {
    "ib": "infiniband",
    "ethernet": "roce",
    "rocev2": "roce",
    "tcp": "sockets",
    "socket": "sockets",
}
DOMAINS = ("nvlink", "mnnvl", "ualink")
ALGORITHMS = {"ring": "ring", "tree": "tree", "nvlstree": "nvls tree"}
SOCKETS = re.compile(r"socket|NCCL_IB_DISABLE=1|NCCL_NET=socket", re.IGNORECASE)
ADAPTERS = re.compile(r"(\d+)\s*x\s*(\d+(?:\.\d+)?)\s*G", re.IGNORECASE)
ALGORITHM = re.compile(r"NCCL_ALGO=(?:\w+:)?(\w+)", re.IGNORECASE)
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
        if test.lower() not in TESTS:
            raise BadValue(f"a test between nodes is one of {', '.join(TESTS)}, but got '{test}'")
        joined = cluster_fabric(catalogue, gpu, network, links, setting, (sizes[0], sizes[1], sizes[2]))
        if dtype.lower() in NOT_SUMMED or "NVLS_ENABLE=0" in setting.upper():
            joined = replace(joined, dimension=tuple(replace(d, reduction=None) for d in joined.dimension))
        pattern = TESTS[test.lower()]
        asked = "" if pattern == "send" else asked_algorithm(setting)
        op = collective_op(pattern, s["bytes"][rows])
        return price_collective(op, spread(1.0, float(sizes[1]), joined), joined, asked).time

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


def asked_algorithm(setting: str) -> str:
    """The algorithm a setting forces, "" where the library chooses.

    >>> asked_algorithm("NCCL_ALGO=allreduce:nvlstree"), asked_algorithm("default")
    ('nvls tree', '')
    """
    found = ALGORITHM.search(setting)
    return ALGORITHMS.get(found[1].lower(), "") if found else ""


def network_of(fabric: str, setting: str) -> str:
    """The transport between nodes that a row's fabric and setting name.

    >>> network_of("nvlink+roce", "default"), network_of("slingshot", "without plugin (sockets)")
    ('roce', 'sockets')
    """
    kind = fabric.strip().lower().split("+")[-1]
    return "sockets" if SOCKETS.search(setting) else OTHER_NAMES.get(kind, kind)


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
    inside, kind = "+" in network, network_of(network, "")
    adapters = ADAPTERS.search(links)
    rate = float(adapters[1]) * float(adapters[2]) * 1e9 / 8 / per_node if adapters else None
    if kind in DOMAINS:
        node, joined = catalogue.usual_fabric(gpu).dimension[0], catalogue.usual_fabric(gpu)
        outer: tuple[Dimension, ...] = joined.dimension[1:]
    else:
        joined = _shipped(catalogue, gpu, kind, per_node, float(adapters[1]) / per_node if adapters else None)
        node, outer = joined.dimension[0], (next(d for d in joined.dimension if between_nodes(d)),)
    if rate is not None and kind not in DOMAINS:
        outer = (replace(outer[0], bandwidth=rate),)
    if network_of(network, setting) == "sockets":
        outer = tuple(
            replace(d, transport="sockets", transport_model=catalogue.transport("sockets")) for d in outer
        )
    if "sharp" in setting.lower() or "COLLNET_ENABLE=1" in setting.upper():
        outer = tuple(replace(d, reduction=1.0) for d in outer)
    size = float(np.max(node.size))
    domains = ceil(devices / size) if inside or kind in DOMAINS else nodes
    if per_node * nodes != devices or devices % domains or devices / domains > size:
        raise BadValue(
            f"{gpu} has {size:g} devices on {node.name}: whole nodes were expected,"
            f" but got (nodes={nodes:g}, gpus={devices:g}, gpus_per_node={per_node:g})"
        )
    made = replace(joined, dimension=(node, *outer))
    return with_library(sized(made, (devices / domains, domains)), LIBRARY)


def _shipped(catalogue: Catalogue, gpu: str, kind: str, per_node: float, adapters: float | None) -> Fabric:
    """The shipped fabric with a network of this kind whose nodes are nearest to the chip's: the same links
    inside, as many adapters a device.
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
        kinds = sorted({d.transport for one in known for d in one.dimension if between_nodes(d)})
        raise UnknownName("network", kind, kinds, ", ".join(kinds))

    def far(pair: tuple[Fabric, Dimension]) -> tuple[Any, ...]:
        one, d = pair
        inner, own = one.dimension[0], usual.dimension[0]
        count = 1.0 if d.links is None else float(np.max(d.links))
        apart = 0.0 if adapters is None else abs(np.log(adapters / count))
        other = (inner.transport != own.transport, inner.bandwidth != own.bandwidth, inner.size != own.size)
        return (*other[:2], one.name != usual.name, apart, other[2], one.name)

    best, network = min(found, key=far)
    inner = best.dimension[0]
    if inner.transport == usual.dimension[0].transport and float(np.max(inner.size)) >= per_node:
        return best
    return replace(best, dimension=(usual.dimension[0], network))
