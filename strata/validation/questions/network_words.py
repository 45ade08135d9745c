"""Words for collectives in files and logs: the test, the network between nodes, its adapters, and what a
setting asks the library for.
"""

from __future__ import annotations

import re

from strata.errors import BadValue, UnknownName
from strata.hardware.part_of_domain import Adapters
from strata.params import names
from strata.pricing.network.algorithm_names import LibrarySetting
from strata.units import factor
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.collective_files import OPS

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
            for word in re.split(r"[,|/]", listed.rsplit(":", 1)[-1]):
                name = re.sub(r"[^a-z0-9]", "", word.lower())
                name = "nvls" if name.startswith("nvls") else name
                (without if "^" in value else only).add(name)
    return LibrarySetting(
        algorithms=frozenset(only - {*PROTOCOLS}),
        protocols=frozenset(only & {*PROTOCOLS}),
        without=frozenset(without),
        in_node=False if "nvls" in without else switched.get("NVLS"),
        in_network=switched.get("COLLNET"),
    )
