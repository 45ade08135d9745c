"""What runs of collectives between nodes are called in logs and files: the test, the network between nodes,
its adapters, and what a setting asks the library for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from strata.errors import BadValue, UnknownName
from strata.params import names
from strata.validation.readers.catalogue import Catalogue

# Tests by the letters of their names. A reduction to one rank is a broadcast that goes the other way; a
# gather or scatter fills one rank's adapter and links as an all-to-all fills every rank's.
TESTS = {
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "broadcast",
    "gather": "all_to_all",
    "scatter": "all_to_all",
    "sendrecv": "send",
}
DOMAINS = ("nvl", "mnnvl", "nvswitch", "ualink", "xgmi", "infinityfabric", "intranode")
SOCKETS = re.compile(r"socket|NCCL_IB_DISABLE=1|\btcp\b", re.IGNORECASE)
# Gb/s of an adapter by the name of its signalling rate
SIGNALLING = {"fdr": 56.0, "edr": 100.0, "hdr": 200.0, "ndr": 400.0, "xdr": 800.0}
LARGEST = 1600.0  # Gb/s of one adapter; more is told of a node
GIGABIT = 1e9 / 8.0  # bytes

_COUNT = re.compile(r"(?<![\d.])(\d+)\s*[x×*]\s*(?=[\da-z])", re.IGNORECASE)
_RATE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*([GT])(?:B/s|[a-z/]*)", re.IGNORECASE)
_SIGNALLING = re.compile(rf"\b({'|'.join(SIGNALLING)})(\d+)?\b", re.IGNORECASE)
_OF_NODE = re.compile(r"(per|a|/|each)\s*(node|host|instance|server)|aggregate|total", re.IGNORECASE)
_SET = re.compile(r"\bNCCL_(ALGO|PROTO)\s*=\s*[\"']?([^\s\"'()]+)", re.IGNORECASE)
_NAMED = re.compile(r"\b(nvls\s?tree|nvls|ring|tree|ll128|ll|simple|collnet\w*)s?\b", re.IGNORECASE)


def pattern_of_test(test: str) -> str:
    """The collective that a test runs, by any spelling of its name.

    >>> pattern_of_test("all_reduce_perf"), pattern_of_test("AllToAll"), pattern_of_test("reduce-scatter")
    ('all_reduce', 'all_to_all', 'reduce_scatter')
    """
    key = re.sub(r"[^a-z]", "", re.sub(r"_perf(_mpi)?$", "", test.strip().lower()))
    if key not in TESTS:
        raise BadValue(f"a test between nodes is one of {', '.join(TESTS)}, but got '{test}'")
    return TESTS[key]


def chip_called(catalogue: Catalogue, name: str) -> str:
    """The shipped chip that a run's name of its devices means: the longest run of its words that is one.

    >>> chip_called(Catalogue(), "NVIDIA A100-SXM4-40GB"), chip_called(Catalogue(), "h100 nvl")
    ('a100-80', 'h100-nvl')
    """
    if catalogue.has_chip(name):
        return catalogue.chip(name).name
    words = re.findall(r"[a-z0-9]+", name.lower())
    for length in range(len(words), 0, -1):
        for at in range(len(words) - length + 1):
            said = "-".join(words[at : at + length])
            if catalogue.has_chip(said):
                return catalogue.chip(said).name
    return catalogue.chip(name).name  # refused, with the chips there are


def is_domain(network: str) -> bool:
    """Whether a network's name means the links inside a node or rack.

    >>> is_domain("NVL72"), is_domain("Infinity Fabric"), is_domain("infiniband")
    (True, True, False)
    """
    return re.sub(r"[^a-z0-9]", "", network.lower()).startswith(DOMAINS)


def network_parts(fabric: str) -> tuple[bool, str]:
    """Whether a fabric's name has links of a rack beside a network, and the name of the network.

    >>> network_parts("nvlink + RoCE v2"), network_parts("infiniband NDR"), network_parts("nvlink")
    ((True, 'RoCE v2'), (False, 'infiniband NDR'), (False, 'nvlink'))
    """
    parts = [part.strip() for part in fabric.split("+") if part.strip()]
    outer = [part for part in parts if not is_domain(part)]
    return bool(outer) and len(outer) < len(parts), (outer or parts or [""])[-1]


def known_networks(catalogue: Catalogue) -> dict[str, str]:
    """Transports between nodes by their names and other names."""
    found: dict[str, str] = {}
    for name in names("transport"):
        one = catalogue.transport(name)
        if one.rings.post is not None:
            found |= {word: name for word in (name, *one.aliases.split())}
    return found


def network_of(fabric: str, setting: str = "", links: str = "", catalogue: Catalogue | None = None) -> str:
    """The transport between nodes that a row's fabric and setting name, or else its links.

    >>> network_of("nvlink+roce", "default"), network_of("slingshot", "without plugin (sockets)")
    ('roce', 'sockets')
    >>> network_of("EFAv3"), network_of("GPUDirect-TCPXO"), network_of("", links="8x400G InfiniBand NDR")
    ('efa', 'tcpx', 'infiniband')
    """
    if SOCKETS.search(setting):
        return "sockets"
    known = known_networks(catalogue or Catalogue())
    kind = network_parts(fabric)[1]
    for text in (kind, links):
        words = re.findall(r"[a-z0-9]+", text.lower())
        meant = [
            (word == name, -at, len(name), known[name])
            for at, word in enumerate(words)
            for name in known
            if word == name or (len(name) > 2 and word.startswith(name))
        ]
        if meant:
            return max(meant)[3]
    kinds = sorted(set(known.values()))
    raise UnknownName("network", kind, kinds, ", ".join(kinds))


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Adapters of a node as far as a run tells them."""

    count: float | None = None
    rate: float | None = None  # of one [B/s]; of the node where there is no count and `whole`
    whole: bool = False

    def of_device(self, devices: float, node: float, usual: float) -> float | None:
        """Bytes a second for each of the devices that a node brings [B/s]; None where nothing is told.

        Where fewer devices than a node holds are used, each has the adapters beside it. `usual` adapters a
        device stand in for a count.
        """
        if self.rate is None:
            return None
        if self.whole:
            return self.rate / (devices if self.count is None else node)
        if self.count is None:
            return self.rate * usual
        return self.rate * self.count / (node if self.count >= node > devices else devices)


def adapters_of(links: str, network: str = "") -> Adapters:
    """Adapters of a node, from what a run says of its links, and of its network's signalling rate.

    >>> adapters_of("8x400G CX-7, IB NDR")
    Adapters(count=8.0, rate=50000000000.0, whole=False)
    >>> adapters_of("3.2 Tbps").whole, adapters_of("8 x CX-7", "infiniband NDR").rate
    (True, 50000000000.0)
    >>> adapters_of("8x2x200G").count
    16.0
    """
    count = 1.0
    counted = _COUNT.findall(links)
    for some in counted:
        count *= float(some)
    rate, of_bytes = None, False
    if told := _RATE.search(links):
        rate = float(told[1]) * (1e3 if told[2].upper() == "T" else 1.0)
        of_bytes = told[0].replace(" ", "").endswith(("GB/s", "TB/s", "GBps"))
    elif named := _SIGNALLING.search(links) or _SIGNALLING.search(network):
        rate = float(named[2]) if named[2] else SIGNALLING[named[1].lower()]
    if (counted and count <= 0) or (rate is not None and rate <= 0):
        raise BadValue(f"links must be adapters of some rate, like 8x400G, but got '{links}'")
    if rate is None:
        return Adapters(count=count if counted else None)
    rate = rate * 8.0 if of_bytes else rate
    whole = not counted and (rate > LARGEST or bool(_OF_NODE.search(links)))
    return Adapters(count=count if counted else None, rate=rate * GIGABIT, whole=whole)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a setting asks the library for: algorithms and protocols it may use, all where there are none
    named, and additions inside switches.
    """

    algorithms: frozenset[str] = frozenset()
    protocols: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    in_node: bool | None = None  # switches of the node add up (NVLS)
    in_network: bool | None = None  # switches of the network do (SHARP)

    def allows(self, algorithm: str) -> bool:
        """Whether the library may take an algorithm.

        >>> asked = asked_of("NCCL_ALGO=Ring NCCL_PROTO=^LL")
        >>> [asked.allows(name) for name in ("ring ll", "ring simple", "tree ll")]
        [False, True, False]
        """
        way, protocol = _way_of(algorithm)
        if way in self.without or protocol in self.without:
            return False
        algorithms = not self.algorithms or way in self.algorithms
        return algorithms and (not self.protocols or not protocol or protocol in self.protocols)


def _way_of(algorithm: str) -> tuple[str, str]:
    """Algorithm and protocol of an algorithm's name; no protocol where it has none of its own."""
    words = algorithm.split()
    protocol = words[-1] if words[-1] in ("ll", "ll128", "simple") else ""
    way = "".join(words[:-1] if protocol else words)
    return {"nvlstree": "nvls", "inswitch": "nvls"}.get(way, way), protocol or "simple" * (way == "nvlstree")


def asked_of(setting: str) -> Asked:
    """What a setting asks for, in the library's variables or in words.

    >>> asked_of("NCCL_ALGO=allreduce:nvlstree").algorithms, asked_of("NVLS off").in_node
    (frozenset({'nvls'}), False)
    >>> asked_of("SHARP").in_network, asked_of("without SHARP").in_network, asked_of("tree, LL128").protocols
    (True, False, frozenset({'ll128'}))
    """
    algorithms: set[str] = set()
    protocols: set[str] = set()
    without: set[str] = set()
    setting = re.sub(r"[,;|\s]+(?=\w+=)", " ", setting)
    for _, listed in _SET.findall(setting):
        lists = [part.rsplit(":", 1)[-1] for part in listed.split(";")]
        for word in (w for some in lists for w in re.split(r"[,|/]", some) if w):
            _note(word.lstrip("^"), without if "^" in listed else algorithms, protocols, "^" in listed)
    rest = re.sub(r"\bN?RCCL_\w+=\S+|\bNCCL_\w+=\S+", " ", setting)
    if re.search(r"\b(algo\w*|proto\w*)\s*[=:]", rest, re.IGNORECASE) or not _SET.search(setting):
        for said in _NAMED.finditer(rest):
            word = said[1].lower()
            if word.startswith(("nvls", "collnet")) and not word.endswith("tree"):
                continue
            off = switched(rest, said[1]) is False
            _note(word, without if off else algorithms, protocols, off)
    network = switched(setting, "sharp")
    return Asked(
        algorithms=frozenset(algorithms),
        protocols=frozenset(protocols),
        without=frozenset(without),
        in_node=switched(setting, "nvls"),
        in_network=switched(setting, "collnet") if network is None else network,
    )


def _note(word: str, algorithms: set[str], protocols: set[str], off: bool) -> None:
    key = re.sub(r"[^a-z0-9]", "", word.lower())
    if key in ("ll", "ll128", "simple"):
        (algorithms if off else protocols).add(key)
    elif key.startswith("nvls"):
        algorithms.add("nvls")
    elif key in ("ring", "tree"):
        algorithms.add(key)


def switched(setting: str, word: str) -> bool | None:
    """Whether a setting turns something on or off; None where it does not name it.

    >>> [switched(s, "nvls") for s in ("NCCL_NVLS_ENABLE=0", "no NVLS", "NVLS=1", "default")]
    [False, False, True, None]
    """
    found = re.search(rf"(?:\b|_){word}", setting, re.IGNORECASE)
    if found is None:
        return None
    ways = (
        rf"\b(no|not|non|without|disable[sd]?)[\s:-]+{word}",
        rf"(\b|_){word}\w*[\s=:]*(0\b|off\b|disabled\b|false\b|no\b)",
        rf"(\b|_){word}_?disabled?\s*[=:]\s*1",
        rf"\^{word}",
    )
    return not any(re.search(way, setting, re.IGNORECASE) for way in ways)
