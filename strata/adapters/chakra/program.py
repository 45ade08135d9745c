"""Chakra execution traces as programs: operations, bytes and collectives of a rank as they are written down.

Every rank does what the traced one does. Groups of ranks in the trace are dimensions of the program's mesh;
nothing of a rank's work can be divided further.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from strata.adapters.chakra.trace import (
    COLLECTIVE,
    COMM_TYPES,
    COMPUTE,
    MEM_LOAD,
    MEM_STORE,
    SEND,
    ChakraFile,
    ChakraNode,
    read_chakra,
)
from strata.base.arrays import Number, register_pytree
from strata.base.errors import BadFile, BadValue, UnknownName, require
from strata.base.precision import PRECISIONS
from strata.base.reading import json_file
from strata.base.records import readable
from strata.base.units import LARGEST, finite_number
from strata.workload.custom_ops import Communication, CustomOp
from strata.workload.graph import Block, BlockSequence, Extent, Graph, Op, checked
from strata.workload.protocol import Program
from strata.workload.tasks import Workload

MOST_NODES = 200_000  # of the files that are read for one program
MOST_INPUTS = 16  # of a node that are kept: a barrier may wait for thousands
COUNTED = ("num_ops", "tensor_size", "comm_size", "comm_src", "comm_dst")
RANKS, START, STEP = "ranks", "start", "step"
WHOLE_BYTES = "fp8"  # a format of one byte: payloads are told in bytes
# Each pattern that has a price of its own, with those that move the same bytes over the busiest link.
PATTERNS = {"reduce": "broadcast", "gather": "all_gather", "scatter": "reduce_scatter"}
EVERY, NEXT, COPIES = "world", "p2p", "copies"  # dimensions: all ranks, messages, ranks that never talk


@dataclass(frozen=True)
class TracedGroup:
    """A group of ranks in a trace: how far apart they lie, and how many they are."""

    name: str
    stride: int
    size: int


class TracedRank:
    """What a rank does, as one value in which a box has no quantities: nodes, each after those it depends on;
    dimensions of the mesh, innermost first; and the dimension of each node that talks.
    """

    def __init__(
        self,
        nodes: tuple[ChakraNode, ...],
        groups: tuple[TracedGroup, ...] = (),
        dimensions: dict[int, str] | None = None,
        told: bool = False,
    ) -> None:
        self.nodes, self.groups, self.dimensions = nodes, groups, dimensions or {}
        self.told = told  # the program's precision stands before that of nodes

    def __repr__(self) -> str:
        return f"TracedRank({len(self.nodes):,} nodes)"


@register_pytree
@readable("name", "ranks", "traced", "precision")
@dataclass(frozen=True, eq=False, kw_only=True)
class ChakraProgram(Program):
    """One rank's trace, done by all ranks."""

    name: str
    traced: TracedRank
    ranks: Number = 1.0
    precision: str = "bf16"  # of products whose node names none

    @property
    def groups(self) -> tuple[TracedGroup, ...]:
        return self.traced.groups

    @property
    def units(self) -> dict[str, Number]:
        return {RANKS: self.ranks}

    @property
    def mesh_dimensions(self) -> tuple[str, ...]:
        return tuple(g.name for g in self.groups) or (COPIES,)

    def layout_text(self) -> str:
        return ",".join(f"{g.name}={g.size}" for g in self.groups) or f"{COPIES}=1"

    def layout(self, **degrees: Number) -> dict[str, Any]:
        """The mesh of the trace's own groups, or of the degrees that are told."""
        mesh: dict[str, Number] = {g.name: float(g.size) for g in self.groups} or {COPIES: 1.0}
        return {"mesh": mesh | degrees, "axes": {RANKS: self.mesh_dimensions}}

    def division_over(self, devices: float) -> str:
        """The groups as they were traced, whatever the system."""
        return self.layout_text()

    def trace(self, work: Workload) -> Graph:
        if work.phase == "train":
            raise BadValue(f"{self.name} is a trace: it holds the passes it holds; ask for phase forward")
        block = Block(name=STEP, role=STEP, ops=tuple(self._ops()))
        return checked(
            Graph(
                blocks=(block,),
                sequence=BlockSequence(first=(STEP,)),
                items=work.batch,
                item=STEP,
                inputs=(START,),
                formats=((self.precision, self.precision),),
                units=self.units,
            )
        )

    def _ops(self) -> Iterator[Op]:
        """Ops in order; what costs nothing here hands on what it waits for."""
        made: dict[int, tuple[str, ...]] = {}
        dimension = self.traced.dimensions
        for node in self.traced.nodes:
            waits = dict.fromkeys(t for dep in (*node.data_deps, *node.ctrl_deps) for t in made[dep])
            inputs = tuple(waits)[-MOST_INPUTS:] or (START,)
            name = f"{node.id} {node.name}".strip()
            told = {"name": name, "module": STEP, "inputs": inputs, "output": name}
            op = self._op(node, told, dimension.get(node.id, ""))
            made[node.id] = inputs if op is None else (name,)
            if op is not None:
                yield op

    def _op(self, node: ChakraNode, told: dict[str, Any], over: str) -> Op | None:
        """The op of a node; None of one that only waits, or runs beside the device."""
        if node.attributes.get("is_cpu_op"):
            return None
        if over:
            # Strata's payload is the whole buffer; the size of a gather is what each rank brings to it
            pattern, size = _pattern(node, self.name), node.number("comm_size")
            if pattern == "all_gather":
                size *= next(g.size for g in self.groups if g.name == over)
            extents = (Extent(self.ranks, size, RANKS),)
            return Communication(pattern=pattern, group=over, extents=extents, precision=WHOLE_BYTES, **told)
        if node.type not in (COMPUTE, MEM_LOAD, MEM_STORE):
            return None
        named = None if self.traced.told else node.attributes.get("precision")
        return CustomOp(
            extents=(Extent(self.ranks, 1.0, RANKS),),
            flop_per_element=node.number("num_ops") if node.type == COMPUTE else 0.0,
            bytes_read=node.number("tensor_size"),
            bytes_written=0.0,
            precision=named if named in PRECISIONS else self.precision,
            unit="vector" if node.attributes.get("unit") == "vector" else "matrix",
            streamed=True,
            **told,
        )


def _pattern(node: ChakraNode, name: str) -> str:
    if node.type == SEND:
        return "send"
    kind = node.attributes.get("comm_type", -1)
    if not isinstance(kind, int) or not 0 <= kind < len(COMM_TYPES):
        raise BadFile(
            f"{name}: collective {node.id} '{node.name}' is of comm_type {kind}; known are "
            f"{', '.join(f'{i} {word}' for i, word in enumerate(COMM_TYPES))}"
        )
    return PATTERNS.get(COMM_TYPES[kind], COMM_TYPES[kind])


def chakra_program(path: str | Path, /, **changes: Any) -> ChakraProgram:
    """The program in a trace: of one rank's file, or PREFIX.et of PREFIX.0.et, PREFIX.1.et and so on, of
    which the rank with most operations is taken. `precision` and `ranks` may be told.
    """
    path = Path(path)
    for key in changes:
        if key not in ("precision", "ranks"):
            raise UnknownName(f"field of trace {path.name}", key, ("precision", "ranks"), "precision, ranks")
    if "precision" in changes and changes["precision"] not in PRECISIONS:
        raise UnknownName("number format", str(changes["precision"]), PRECISIONS, ", ".join(PRECISIONS))
    rank, trace, count = _rank_of(path)
    ranks = changes.get("ranks", trace.attributes.get("ranks", count))
    ranks = int(finite_number(ranks, f"ranks of {path.name}"))
    require(ranks >= 1, f"{path.name} is of at least one rank", ranks=ranks)
    nodes = _in_order(trace.nodes, path.name)
    for node in nodes:
        for key in COUNTED:
            value = node.number(key)
            require(0.0 <= value < LARGEST, f"{path.name}: {key} of node {node.id} is a size", got=value)
    if not any(n.number("num_ops") or n.number("tensor_size") or n.number("comm_size") for n in nodes):
        raise BadFile(
            f"{path.name} states no operations (num_ops), bytes (tensor_size) or messages (comm_size): "
            "durations alone cannot be priced"
        )
    groups, dimensions, ranks = _Groups(path, trace, rank, ranks).found(nodes)
    named = trace.attributes.get("precision")
    return ChakraProgram(
        name=path.stem,
        traced=TracedRank(nodes, groups, dimensions, "precision" in changes),
        ranks=float(ranks),
        precision=changes.get("precision", named if named in PRECISIONS else "bf16"),
    )


def _rank_of(path: Path) -> tuple[int, ChakraFile, int]:
    """The rank that is priced, its trace, and how many ranks have files."""
    stem = path.name.removesuffix(".et")
    prefix, _, number = stem.rpartition(".")
    if path.exists() or not (path.parent / f"{stem}.0.et").exists():
        trace, rank = read_chakra(path, MOST_NODES), int(number) if number.isdigit() else 0
        beside = sum(1 for p in path.parent.glob("*.et") if p.name.startswith(f"{prefix}.")) if prefix else 1
        return rank, trace, max(beside, 1)
    best: tuple[float, int, ChakraFile] | None = None
    left, count = MOST_NODES, 0
    while (path.parent / f"{stem}.{count}.et").exists():
        if left <= 0:
            raise BadFile(f"{path.name} has more than {MOST_NODES:,} nodes; name the file of one rank")
        trace = read_chakra(path.parent / f"{stem}.{count}.et", left)
        work = sum(n.number("num_ops") for n in trace.nodes)
        if best is None or work > best[0]:
            best = (work, count, trace)
        left, count = left - len(trace.nodes), count + 1
    assert best is not None  # the first is there
    return best[1], best[2], count


def _in_order(nodes: tuple[ChakraNode, ...], name: str) -> tuple[ChakraNode, ...]:
    """Nodes so that each stands after those it depends on, else in the order of the file."""
    place = {node.id: i for i, node in enumerate(nodes)}
    if len(place) < len(nodes):
        twice = next(n.id for i, n in enumerate(nodes) if place[n.id] != i)
        raise BadFile(f"{name} has two nodes with id {twice}")
    waits = TopologicalSorter({i: () for i in range(len(nodes))})
    for i, node in enumerate(nodes):
        for dep in {*node.data_deps, *node.ctrl_deps}:
            if dep not in place:
                raise BadFile(
                    f"{name}: node {node.id} '{node.name}' depends on node {dep}, which is not there"
                )
            waits.add(i, place[dep])
    with suppress(CycleError):  # what is in none comes out still
        waits.prepare()
    ready, order = list(waits.get_ready()), list[int]()
    heapq.heapify(ready)
    while ready:
        order.append(heapq.heappop(ready))
        waits.done(order[-1])
        for other in waits.get_ready():
            heapq.heappush(ready, other)
    if len(order) < len(nodes):
        stuck = [str(nodes[i].id) for i in sorted({*range(len(nodes))} - {*order})][:5]
        raise BadFile(f"{name}: these nodes wait for each other in a cycle: {', '.join(stuck)}")
    return tuple(nodes[i] for i in order)


class _Groups:
    """Groups of ranks that a trace talks in, as dimensions of one mesh."""

    def __init__(self, path: Path, trace: ChakraFile, rank: int, ranks: int) -> None:
        self.name, self.rank, self.ranks = path.name, rank, ranks
        self.members = self._members(path, trace)
        self.names = _table(trace.attributes.get("group_names"), path.name)

    def _members(self, path: Path, trace: ChakraFile) -> dict[str, list[int]]:
        """Members of groups by name: as the trace says itself, or a file of them beside it."""
        own = _table(trace.attributes.get("process_groups"), path.name)
        stem = path.name.removesuffix(".et")
        for prefix in (stem, stem.rpartition(".")[0]):
            beside = path.parent / f"{prefix}.groups.json"
            if not own and prefix and beside.exists():
                own = json_file(beside, "file of groups")
        return {str(k): _ranks(listed) for k, listed in own.items()} if isinstance(own, dict) else {}

    def found(self, nodes: tuple[ChakraNode, ...]) -> tuple[tuple[TracedGroup, ...], dict[int, str], int]:
        """The mesh, the dimension of each node that talks, and the ranks."""
        groups: dict[tuple[int, int], str] = {}
        of_node: list[tuple[int, tuple[int, int]]] = []
        for node in nodes:
            if node.type not in (COLLECTIVE, SEND) or node.attributes.get("is_cpu_op"):
                continue
            if node.type == COLLECTIVE:
                name, shape = self._collective(node)
            else:
                name, shape = NEXT, self._message(node)
            if shape[1] > 1:
                groups.setdefault(shape, name)
                of_node.append((node.id, shape))
        mesh, names = self._mesh(groups)
        return mesh, {node: names[shape] for node, shape in of_node}, self.ranks

    def _collective(self, node: ChakraNode) -> tuple[str, tuple[int, int]]:
        group = str(node.attributes.get("pg_name") or "0")
        ranks = self.members.get(group)
        if ranks is None:
            if group != "0":
                raise BadFile(
                    f"{self.name}: collective {node.id} '{node.name}' goes over group {group}, whose ranks "
                    "no process_groups and no PREFIX.groups.json name"
                )
            return EVERY, (1, self.ranks)
        stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
        even = ranks and ranks == list(range(ranks[0], ranks[0] + stride * len(ranks), max(stride, 1)))
        if not even:
            raise BadFile(f"{self.name}: group {group} lies unevenly on the ranks: {str(ranks)[:60]}")
        self.ranks = max(self.ranks, ranks[-1] + 1)
        return str(self.names.get(group, f"group{group}")), (stride, len(ranks))

    def _message(self, node: ChakraNode) -> tuple[int, int]:
        """A group that a message stays in: one of neighbours that are so far apart, else two ranks."""
        src = int(node.number("comm_src")) if "comm_src" in node.attributes else self.rank
        ends = {abs(src), abs(int(node.number("comm_dst")))}
        far = max(max(ends) - min(ends), 1)
        self.ranks = max(self.ranks, max(ends) + 1)
        for ranks in self.members.values():
            if len(ranks) > 1 and ranks[1] - ranks[0] == far and ends <= {*ranks}:
                return far, len(ranks)
        return far, 2

    def _mesh(
        self, groups: dict[tuple[int, int], str]
    ) -> tuple[tuple[TracedGroup, ...], dict[tuple[int, int], str]]:
        """Groups as levels, innermost first, with copies where ranks between them never talk."""
        made, names, below = list[TracedGroup](), dict[tuple[int, int], str](), 1
        for shape in sorted(groups):
            stride, size = shape
            if stride % below:
                inner = made[-1].name if made else ""
                raise BadFile(
                    f"{self.name}: groups {inner} and {groups[shape]} share ranks, so that they make no mesh"
                )
            if stride > below:
                made.append(TracedGroup(_free(COPIES, made), below, stride // below))
            names[shape] = _free(groups[shape], made)
            made.append(TracedGroup(names[shape], stride, size))
            below = stride * size
        self.ranks = -(-self.ranks // below) * below
        if self.ranks > below:
            made.append(TracedGroup(_free(COPIES, made), below, self.ranks // below))
        return tuple(made), names


def _free(name: str, made: list[TracedGroup]) -> str:
    """A name that no dimension has yet, and none that means more in a plan: `pp` cuts a program into stages,
    groups of training (`dp_cp`) sum its gradients.
    """
    name = "".join(c for c in name.partition("_")[0] if c.isalnum()) or COPIES
    name = {"pp": NEXT, "ends": NEXT, "fsdp": "dp"}.get(name, name)
    taken = {g.name for g in made}
    return next(n for n in (name, *(f"{name}{i}" for i in range(2, len(taken) + 3))) if n not in taken)


def _table(text: Any, name: str) -> dict[str, Any]:
    """An attribute that holds a JSON object."""
    if not isinstance(text, str) or not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFile(f"{name}: the groups of its metadata are no JSON") from None
    return found if isinstance(found, dict) else {}


def _ranks(listed: Any) -> list[int]:
    """The ranks of a group in order; none where what is listed are no ranks."""
    whole = isinstance(listed, list) and all(isinstance(r, int) and r >= 0 for r in listed)
    return sorted({*listed}) if whole else []
