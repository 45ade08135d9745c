"""Questions about collectives and exchanges between experts, answered as `strata collective` and `st.network`
do; and about runs of packet simulators.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from strata.base.errors import BadValue, UnknownName, require
from strata.base.units import factor
from strata.hardware.fabric import Fabric
from strata.hardware.part_of_domain import Adapters, cluster_fabric
from strata.hardware.transport import packets
from strata.params import names
from strata.pricing.network.algorithm_names import LibrarySetting
from strata.pricing.network.collective_cost import collective
from strata.pricing.network.expert_exchange import expert_exchange_cost
from strata.pricing.network.packet_runs import packet_collective_time, scheduled_job
from strata.pricing.network.routes import run_schedules
from strata.validation.questions.question import Argument, QuestionKind, number, word
from strata.validation.readers.collective_files import OPS
from strata.validation.readers.labels import Catalogue, chip_called

# Tests by the letters of their names. A reduction to one rank is a broadcast that goes the other way; a
# gather or scatter fills one rank's adapter and links as an all-to-all fills every rank's.
TESTS = {
    **OPS,
    "alltoallv": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "broadcast",
    "gather": "all_to_all",
    "scatter": "all_to_all",
    "sendrecv": "send",
}
DOMAINS = ("nvl", "mnnvl", "nvswitch", "ualink", "xgmi", "infinityfabric", "intranode", "pcie")
LARGEST = 200e9  # B/s of one adapter; more is told of a node
PROTOCOLS = ("ll", "ll128", "simple")

_SOCKETS = re.compile(r"socket|NCCL_IB_DISABLE=1|\btcp\b", re.IGNORECASE)
_ADAPTERS = re.compile(
    r"(?:(?<![\d.])(\d+)\s*[x×*]\s*)?(?<![\d.])(\d+(?:\.\d+)?)\s*([GT])(B)?", re.IGNORECASE
)
_SET = re.compile(r"\bNCCL_(ALGO|PROTO|NVLS_ENABLE|COLLNET_ENABLE)\s*=\s*[\"']?([^\s\"'()]+)")


def pattern_of_test(test: str) -> str:
    """The collective that a test runs, by any spelling of its name.

    >>> pattern_of_test("all_reduce_perf"), pattern_of_test("AllToAll"), pattern_of_test("reduce-scatter")
    ('all_reduce', 'all_to_all', 'reduce_scatter')
    """
    key = re.sub(r"[^a-z]", "", re.sub(r"_perf(_mpi)?$", "", test.strip().lower()))
    if key not in TESTS:
        raise BadValue(f"a test between nodes is one of {', '.join(TESTS)}, but got '{test}'")
    return TESTS[key]


def network_parts(fabric: str) -> tuple[bool, str]:
    """Whether links of a node or rack reach over nodes, and the network between them, "" where there is none.

    >>> network_parts("nvlink + RoCE v2"), network_parts("infiniband NDR"), network_parts("NVL72")
    ((True, 'RoCE v2'), (False, 'infiniband NDR'), (True, ''))
    """
    parts = [part.strip() for part in fabric.split("+") if part.strip()]
    outer = [part for part in parts if not re.sub(r"[^a-z0-9]", "", part.lower()).startswith(DOMAINS)]
    return len(outer) < len(parts), (outer or [""])[-1]


def network_of(fabric: str, setting: str = "", catalogue: Catalogue | None = None) -> str:
    """The transport between nodes that a row's fabric names, or that its setting asks for.

    >>> network_of("nvlink+roce", "default"), network_of("slingshot", "without plugin (sockets)")
    ('roce', 'sockets')
    >>> network_of("EFAv3"), network_of("GPUDirect-TCPXO")
    ('efa', 'tcpx')
    """
    if _SOCKETS.search(setting):
        return "sockets"
    every = [(catalogue or Catalogue()).transport(name) for name in names("transport")]
    known = {
        word: one.name
        for one in every
        if one.rings.post is not None
        for word in (one.name, *one.aliases.split())
    }
    kind = network_parts(fabric)[1] or fabric
    meant = [
        (word == name, -at, len(name), known[name])
        for at, word in enumerate(re.findall(r"[a-z0-9]+", kind.lower()))
        for name in known
        if word == name or (len(name) > 2 and word.startswith(name))
    ]
    if not meant:
        kinds = sorted(set(known.values()))
        raise UnknownName("network", kind, kinds, ", ".join(kinds))
    return max(meant)[3]


def adapters_of(links: str) -> Adapters:
    """Adapters of a node, from what a run says of its links: how many and the rate of each, or that of all.

    >>> adapters_of("8x400G CX-7, IB NDR"), adapters_of("3.2 Tbps").whole
    (Adapters(count=8.0, rate=50000000000.0, whole=False), True)
    """
    told = _ADAPTERS.search(links)
    if told is None:
        return Adapters()
    rate = float(told[2]) * factor(f"{told[3].upper()}B/s")[0] * (1.0 if told[4] == "B" else 1 / 8)
    if rate <= 0 or told[1] == "0":
        raise BadValue(f"links must be adapters of some rate, like 8x400G, but got '{links}'")
    return Adapters(
        count=float(told[1]) if told[1] else None, rate=rate, whole=not told[1] and rate > LARGEST
    )


def setting_of(setting: str) -> LibrarySetting:
    """What a setting asks for, in the library's variables.

    >>> setting_of("NCCL_ALGO=allreduce:nvlstree").algorithms, setting_of("NCCL_NVLS_ENABLE=0").in_node
    (frozenset({'nvls'}), False)
    >>> setting_of("NCCL_ALGO=^Ring NCCL_PROTO=LL128,Simple").without
    frozenset({'ring'})
    """
    only: set[str] = set()
    without: set[str] = set()
    switched: dict[str, bool] = {}
    for variable, value in _SET.findall(re.sub(r"[,;|\s]+(?=\w+=)", " ", setting)):
        if variable.endswith("_ENABLE"):
            switched[variable.removesuffix("_ENABLE")] = value != "0"
            continue
        for listed in value.split(";"):
            for part in re.split(r"[,|/]", listed.rsplit(":", 1)[-1]):
                name = re.sub(r"[^a-z0-9]", "", part.lower())
                name = "nvls" if name.startswith("nvls") else name
                (without if "^" in value else only).add(name)
    return LibrarySetting(
        algorithms=frozenset(only - {*PROTOCOLS}),
        protocols=frozenset(only & {*PROTOCOLS}),
        without=frozenset(without),
        in_node=False if "nvls" in without else switched.get("NVLS"),
        in_network=switched.get("COLLNET"),
    )


def _collective(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Of a system, or of the cluster that a run's words tell."""
    cost = collective(
        catalogue.system(given["system"]) if "system" in given else run_cluster(given, catalogue),
        pattern_of_test(given["pattern"]),
        bytes=given["bytes"],
        ranks=given["ranks"],
        engine=catalogue.engine(given["engine"]),
        setting=_setting(given),
        launches=given.get("launches", 0.0),
    )
    return {"time": cost.time, "bus_bandwidth": cost.bus_bandwidth}


def _typed(given: dict[str, Any]) -> str:
    """The line of `strata collective` that a row asks; "" where its library was set otherwise or waits."""
    if given["setting"] or not given["summed"] or given["launches"]:
        return ""
    return (
        f"strata collective {pattern_of_test(given['pattern'])} --system {given['system']} --ranks "
        f"{given['ranks']:g} --bytes {given['bytes']:.12g} --engine {given['engine']}"
    )


def _setting(given: dict[str, Any]) -> Any:
    """The setting of a run; switches of a node add up no format that they do not know."""
    setting = setting_of(given["setting"])
    return setting if given["summed"] else replace(setting, in_node=False)


def run_cluster(given: dict[str, Any], catalogue: Catalogue) -> Fabric:
    """The fabric of a run between nodes, as its words for chip, network, adapters and setting tell it."""
    chip = chip_called(catalogue, given["chip"])
    over_nodes, outer = network_parts(given["network"])
    inside = over_nodes and not outer
    network = "" if inside else network_of(given["network"], "", catalogue)
    sockets = not inside and network_of(given["network"], given["setting"], catalogue) == "sockets"
    return cluster_fabric(
        catalogue.usual_fabric(chip),
        [catalogue.fabric(name) for name in names("fabric")],
        network="infiniband" if network == "sockets" else network,
        nodes=given["nodes"],
        devices=given["ranks"],
        per_node=given["per_node"],
        adapters=adapters_of(given["links"]),
        over_nodes=over_nodes,
        sockets=catalogue.transport("sockets") if sockets else None,
    )


def _expert_exchange(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    kernels = ("low_latency", "normal")
    require(given["kernel"] in kernels, f"kernel must be {' or '.join(kernels)}", kernel=given["kernel"])
    require(given["ranks"] >= 2, "an exchange needs 2 ranks or more", ranks=given["ranks"])
    sizes = ("ranks", "tokens", "top_k", "experts", "width", "top_nodes", "cores")
    fabric, costs = run_cluster(given, catalogue), {}
    for direction in ("dispatch", "combine"):
        cost = expert_exchange_cost(
            fabric,
            direction,
            precision=given[f"{direction}_precision"],
            low_latency=given["kernel"] == "low_latency",
            **{name: given[name] for name in sizes},
        )
        costs[direction] = {"time": cost.time, "bandwidth": cost.bandwidth}
    return costs


def _packet_collective(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    sizes = {name: given[name] for name in _GRID}
    kind = given["topology"], given["collective"], given["algorithm"]
    return {"time": packet_collective_time(*kind, packets(given["packets"]), **sizes)}


def _packet_schedule(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    return {"time": _routed_time(tuple(given[name] for name in _SCHEDULE), given["packets"])}


@lru_cache(maxsize=1024)  # tables, pictures and limits read the same file, and a large run takes a second
def _routed_time(cells: tuple[str, ...], simulator: str) -> float:
    job = scheduled_job(dict(zip(_SCHEDULE, cells, strict=True)))
    return run_schedules(*job, packets(simulator)).time


_COST = {"time": "s", "bus_bandwidth": "B/s"}
_OF_LIBRARY = {
    "pattern": word("collective, by any spelling"),
    "bytes": number("whole buffer of one rank", "B"),
    "engine": word("whose ways of sending it may use", "pytorch"),
    "setting": word("what the library was told, in its variables: NCCL_ALGO=Ring", ""),
    "summed": number("0 of a format that switches do not add up", default=1.0, alike=True),
}
_CLUSTER = {
    "chip": word("name of the chip"),
    "network": word("network between nodes, or links inside a node or rack: infiniband, nvlink+roce, nvlink"),
    "links": word("adapters of a node, like 8x400G", ""),
    "setting": word("what the library was told, in its variables: NCCL_ALGO=Ring", ""),
    "nodes": number("nodes", alike=True),
    "ranks": number("members of the group", alike=True),
    "per_node": number("of them on a node", alike=True),
}
_GRID = {
    "bytes": number("of one rank", "B"),
    "inner": number("nodes of the innermost side or level"),
    "outer": number("nodes of the next one", default=1.0),
    "third": number("nodes of the third one", default=1.0),
    "inner_rate": number("bandwidth of an inner link", "B/s"),
    "outer_rate": number("bandwidth of an outer link", "B/s"),
    "inner_hop": number("latency of an inner link", "s"),
    "outer_hop": number("latency of an outer link", "s"),
}
_SCHEDULE: dict[str, Argument] = {
    "levels": word("levels from the innermost, kind:size:GB/s:ns each"),
    "members": word("devices of the group, first:count:stride", ""),
    "collective": word("collective"),
    "algorithm": word("its schedule"),
    "bytes": word("bytes of the whole buffer"),
    "skew": word("exponent of how much targets are wanted", ""),
    "other_collective": word("a collective that starts at once", ""),
    "other_algorithm": word("its schedule", ""),
    "other_bytes": word("bytes of its whole buffer", ""),
    "other_members": word("its devices", ""),
}

QUESTIONS = {
    "collective": QuestionKind(
        name="collective",
        arguments={
            "system": word("name of the system, like 8xh200"),
            "ranks": number("members of the group"),
            "launches": number("launches by the host before it", default=0.0),
            **_OF_LIBRARY,
        },
        answers=_COST,
        ask=_collective,
        command=_typed,
        rates=("bus_bandwidth",),
    ),
    "cluster_collective": QuestionKind(
        name="cluster_collective",
        arguments={**_CLUSTER, **_OF_LIBRARY},
        answers=_COST,
        ask=_collective,
        rates=("bus_bandwidth",),
    ),
    "expert_exchange": QuestionKind(
        name="expert_exchange",
        arguments={
            **_CLUSTER,
            "kernel": word("low_latency, or normal for those that forward many tokens"),
            "dispatch_precision": word("format of elements on their way to experts", "fp8"),
            "combine_precision": word("format of elements on their way back", "bf16"),
            "tokens": number("tokens of a rank"),
            "top_k": number("experts of a token"),
            "experts": number("experts in all"),
            "width": number("elements of a token"),
            "top_nodes": number("most nodes that a token goes to", default=float("inf")),
            "cores": number("cores that copy; as usual where left out", default=float("nan")),
        },
        answers={
            f"{d}.{n}": u for d in ("dispatch", "combine") for n, u in (("time", "s"), ("bandwidth", "B/s"))
        },
        ask=_expert_exchange,
        rates=("dispatch.bandwidth", "combine.bandwidth"),
    ),
    "packet_collective": QuestionKind(
        name="packet_collective",
        arguments={
            "packets": word("packet network"),
            "topology": word("switch, torus or mesh"),
            "collective": word("collective"),
            "algorithm": word("algorithm"),
            **_GRID,
        },
        answers={"time": "s"},
        ask=_packet_collective,
    ),
    "packet_schedule": QuestionKind(
        name="packet_schedule",
        arguments={"packets": word("packet network"), **_SCHEDULE},
        answers={"time": "s"},
        ask=_packet_schedule,
    ),
}
