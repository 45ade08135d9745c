"""A step as Chakra execution traces, one file a rank, for ASTRA-sim and other readers of MLCommons Chakra."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from strata.adapters.chakra.stage import StageNode, StageNodes
from strata.adapters.chakra.trace import COLLECTIVE, RECEIVE, SEND, ChakraFile, ChakraNode, chakra_bytes
from strata.base.drawing import keep
from strata.base.errors import BadValue
from strata.mapping.training_plan import SCHEDULE
from strata.result import Result
from strata.simulate.orders import Pass, device_orders
from strata.simulate.passes import StepPasses
from strata.simulate.step import passes_of

MOST_NODES_WRITTEN = 1_000_000  # over all ranks: some 200 MB, some 20 seconds
SMALLEST = 1  # number of the first group; 0 are all ranks


@dataclass(frozen=True, kw_only=True)
class ChakraTraces:
    """What every rank of a step does: the nodes of each stage, and the ranks of each group."""

    title: str
    ranks: int
    precision: str
    stages: tuple[tuple[StageNode, ...], ...] = field(repr=False)
    groups: dict[str, tuple[tuple[int, ...], ...]] = field(repr=False)  # by name, each with its members

    @property
    def nodes(self) -> int:
        """Nodes of all ranks."""
        return sum(len(nodes) for nodes in self.stages) * self.ranks // len(self.stages)

    @cached_property
    def numbered(self) -> dict[tuple[str, tuple[int, ...]], int]:
        """A number for each group of ranks, as ASTRA-sim's file of groups has them."""
        every = [(name, members) for name, sets in self.groups.items() for members in sets]
        return {group: i for i, group in enumerate(every, SMALLEST)}

    def _own(self, rank: int) -> dict[str, tuple[int, ...]]:
        """The groups that a rank belongs to, with their members."""
        return {name: next(m for m in sets if rank in m) for name, sets in self.groups.items()}

    def rank(self, rank: int) -> ChakraFile:
        """The trace of one rank."""
        numbers, own = self.numbered, self._own(rank)
        stage = own["pp"].index(rank) if "pp" in own else 0
        nodes = tuple(self._node(n, rank, own) if n.group else n for n in self.stages[stage])
        mine = {str(numbers[name, members]): (name, members) for name, members in own.items()}
        told = {
            "schema": "strata",
            "title": self.title,
            "rank": rank,
            "ranks": self.ranks,
            "precision": self.precision,
            "process_groups": json.dumps({number: list(m) for number, (_, m) in mine.items()}),
            "group_names": json.dumps({number: name for number, (name, _) in mine.items()}),
        }
        return ChakraFile(nodes=nodes, attributes=told)

    def _node(self, node: StageNode, rank: int, own: dict[str, tuple[int, ...]]) -> ChakraNode:
        told: dict[str, Any] = dict(node.attributes)
        if node.type == COLLECTIVE:
            members = own[node.group]
            gathers = told["comm_type"] == GATHERS
            told["comm_size"] = round(node.payload / len(members) if gathers else node.payload)
            told["pg_name"] = str(self.numbered[node.group, members])
        elif node.type in (SEND, RECEIVE):
            members = own[node.group]
            at = members.index(rank)
            other = members[node.stage if node.stage >= 0 else (at + node.to) % len(members)]
            ends = (rank, other) if node.type == SEND else (other, rank)
            told |= {"comm_src": ends[0], "comm_dst": ends[1]}
        return replace(node, attributes=told)

    def write(self, prefix: str | Path) -> list[Path]:
        """Write PREFIX.0.et, PREFIX.1.et and so on, and PREFIX.groups.json, ASTRA-sim's file of groups."""
        prefix = Path(prefix)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        found, known = [], dict[int, bytes]()
        for rank in range(self.ranks):
            path = prefix.with_name(f"{prefix.name}.{rank}.et")
            try:
                path.write_bytes(chakra_bytes(self.rank(rank), known))
            except OSError as error:
                raise BadValue(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
            found.append(path)
        groups = {str(number): list(members) for (_, members), number in self.numbered.items()}
        return [*found, keep(prefix.with_name(f"{prefix.name}.groups.json"), json.dumps(groups))]

    def to_dict(self) -> dict[str, Any]:
        """How much there is of what."""
        return {"ranks": self.ranks, "nodes": self.nodes, "groups": len(self.numbered)}


GATHERS = 2  # all_gather: the size of a gather is what each rank brings to it


def chakra_traces(result: Result) -> ChakraTraces:
    """The (last) step of a single evaluated point as Chakra execution traces of all its ranks.

    >>> import strata as st
    >>> r = st.evaluate("8xh200", "llama-3-8b", st.decode(batch=64, context=2048), "tp=4,dp=2")
    >>> traces = chakra_traces(r)
    >>> traces.ranks, traces.nodes, sorted(traces.groups)
    (8, 2864, ['tp'])
    """
    if result.shape:
        raise BadValue(f"a trace is of one point, but got a box of shape {result.shape}; use at(i, ...)")
    passes = passes_of(result)
    ranks = int(float(passes.given.system.devices))
    per_pass = sum(len(p.forward.ops) + (len(p.backward.ops) if p.backward else 0) for p in passes.placed)
    about = per_pass * passes.microbatches * ranks / passes.stages
    if about > MOST_NODES_WRITTEN:
        raise BadValue(
            f"traces of {ranks:,} ranks would have some {about:,.0f} nodes, over {MOST_NODES_WRITTEN:,}: "
            "ask for fewer devices, layers or micro-batches"
        )
    stages = tuple(tuple(nodes) for nodes in _stages(passes))
    return ChakraTraces(
        title=f"{result.program.name} on {result.system.name}, {result.plan!r}",
        ranks=ranks,
        precision=str(passes.given.graph.formats[0][1]) if passes.given.graph.formats else "bf16",
        stages=stages,
        groups=_groups(result, ranks, {n.group for nodes in stages for n in nodes if n.group}),
    )


def _stages(passes: StepPasses) -> Iterator[list[StageNode]]:
    """The nodes of each stage, in the order its schedule gives."""
    sharding = passes.given.sharding
    virtual = int(float(sharding.virtual_stages)) if passes.given.training else 1
    stages, pieces = passes.stages, passes.microbatches
    schedule = "interleaved" if virtual > 1 else SCHEDULE[int(float(sharding.training.schedule))]
    if passes.given.training:
        orders = device_orders(schedule, stages, pieces, virtual)
    else:
        orders = [[Pass("F", i, s) for i in range(pieces)] for s in range(stages)]
    count = stages * virtual
    chunks = passes.chunk_blocks(count)
    half = pieces // 2 if schedule == "dualpipe" and passes.given.training else 0

    def device(microbatch: int, chunk: int) -> int:
        return stages - 1 - chunk if half and microbatch >= half else chunk % stages

    for stage, order in enumerate(orders):
        made = StageNodes(passes, chunks, stage)
        for entry in order:
            both = [Pass("F", entry.microbatch, entry.chunk), entry.beside] if entry.beside else [entry]
            for p in both:
                step = 1 if p.what == "F" else -1
                talks = p.what != "W"
                before, after = p.chunk - step, p.chunk + step
                came = device(p.microbatch, before) if talks and 0 <= before < count else None
                goes = device(p.microbatch, after) if talks and 0 <= after < count else None
                made.add_pass(p, None if came == stage else came, None if goes == stage else goes)
        if passes.given.training:
            made.add_update()
        yield made.nodes


def _groups(result: Result, ranks: int, used: set[str]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The ranks of every group that is talked in."""
    every = result.plan.group_ranks(result.plan.active())
    return {
        name: _sets(int(float(stride)), int(float(size)), levels, ranks)
        for name, (stride, size, levels) in every.items()
        if name in used
    }


def _sets(stride: int, size: int, levels: Any, ranks: int) -> tuple[tuple[int, ...], ...]:
    """Groups of so many ranks, so far apart, counted through levels (stride, degree) where these are told.

    >>> _sets(2, 2, None, 8)
    ((0, 2), (1, 3), (4, 6), (5, 7))
    """
    of = {rank: _counted(rank, levels) for rank in range(ranks)}
    sets: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for rank, (place, beside) in of.items():
        at = place // stride % size
        sets.setdefault((beside, place - at * stride), []).append((at, rank))
    return tuple(tuple(rank for _, rank in sorted(members)) for members in sets.values())


def _counted(rank: int, levels: Any) -> tuple[int, int]:
    """A rank counted through levels, and what of it no level counts."""
    if levels is None:
        return rank, 0
    place, below, beside = 0, 1, rank
    for stride, degree in levels:
        far, many = int(float(stride)), int(float(degree))
        digit = rank // far % many
        place, below, beside = place + digit * below, below * many, beside - digit * far
    return place, beside
