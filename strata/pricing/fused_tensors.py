"""What runs of a block's ops read, write and hold: tensors between them, weights and caches, and how
often each tensor counts in which run.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from strata.arrays import Number, namespace
from strata.pricing.fused_partition import TensorUse, flow_factors
from strata.pricing.fusion import is_streamed
from strata.pricing.price import Price
from strata.workload.graph import Block, Graph, Op, is_collective

FLOWS = ("read", "written", "internal", "crossing", "whole")  # as `PartitionFlows` has them


def own_bytes(op: Op, price: Price) -> tuple[Number, Number]:
    """Bytes of weights an op reads, of tables and experts no more than it read by itself; and of what lies in
    memory between steps (a cache), which streams through and is never held.
    """
    weight = op.read_weight()
    weights = op.weight_bytes() + op.tied_bytes() + (0.0 if weight is None else weight.bytes())
    stored: Number = 0.0
    for place in range(len(op.inputs)):
        if op.stored_axes(place):
            size = op.operand_bytes(place)
            stored = stored if size is None else stored + size
    xp = namespace(weights, stored, price.memory_bytes)
    weights = xp.minimum(weights, price.memory_bytes)
    return weights, xp.minimum(stored, price.memory_bytes - weights)


def block_tensors(ops: list[Op], block: Block, sizes: dict[str, Number]) -> list[TensorUse]:
    """Tensors between the ops of a block, with those from outside that are no stored caches."""
    makers: dict[str, int] = {}
    readers: dict[tuple[str, int], list[int]] = {}
    whole: dict[tuple[str, int], list[int]] = {}
    bytes_of: dict[tuple[str, int], Number] = {}
    if block.entry is not None:
        sizes = {**sizes, block.entry.name: block.entry.bytes()}
    for i, op in enumerate(ops):
        for place, tensor in enumerate(op.inputs):
            if op.stored_axes(place):
                continue
            key = (tensor, makers.get(tensor, -1))
            readers.setdefault(key, []).append(i)
            if key[1] < 0 and key not in bytes_of:
                kept = op.kept_operand(place)
                stated = op.operand_bytes(place) if kept is None else kept.bytes()
                bytes_of[key] = sizes.get(tensor, 0.0 if stated is None else stated)
            wanted = op.operand_axes(place)
            made = key[1] >= 0 and _streams(ops[key[1]].result_axes())
            if made and wanted and not _streams(wanted):
                whole.setdefault(key, []).append(i)
        makers[op.output] = i
        bytes_of[op.output, i] = op.payload if is_collective(op) else op.output_bytes()
    left, outside = set(block.leaves) or {ops[-1].output}, len(ops)
    found = []
    for name, maker in dict.fromkeys([*bytes_of, *readers]):
        read = tuple(readers.get((name, maker), ()))
        waits = set(whole.get((name, maker), ()))
        leaves = name in left and makers.get(name) == maker
        targets = (*read, outside) if leaves or not read else read
        found.append(
            TensorUse(
                source=outside if maker < 0 else maker,
                targets=targets,
                bytes=bytes_of.get((name, maker), 0.0),
                whole=tuple(t in waits for t in targets),
            )
        )
    return found


def _streams(axes: tuple[str, ...]) -> bool:
    return any(map(is_streamed, axes))


@lru_cache(maxsize=256)
def run_structure(
    tensors: tuple[tuple[int, tuple[int, ...], tuple[bool, ...]], ...], communicates: tuple[bool, ...]
) -> tuple[dict[tuple[int, int], tuple[tuple[tuple[int, float], ...], ...]], list[float], list[float]]:
    """Which tensors count how often in the flows of each run of a block, and the levels of its ops: all that
    follows from structure alone.
    """
    uses = [TensorUse(source=s, targets=t, bytes=0.0, whole=w) for s, t, w in tensors]
    level, behind = _levels(uses, list(communicates))
    count = len(communicates)
    ends = [(first, last) for last in range(1, count + 1) for first in range(last)]
    inside = [np.array([first <= i < last for first, last in ends]) for i in range(count + 1)]
    factors = [flow_factors(tensor, inside, level, 1.0) for tensor in uses]
    found = {}
    for k, end in enumerate(ends):
        by_flow = []
        for flow in range(len(FLOWS)):
            counts = ((i, float(np.broadcast_to(f[flow], len(ends))[k])) for i, f in enumerate(factors))
            by_flow.append(tuple((i, count) for i, count in counts if count != 0.0))
        found[end] = tuple(by_flow)
    return found, level, behind


def _levels(tensors: list[TensorUse], communicates: list[bool]) -> tuple[list[float], list[float]]:
    """Longest path to each op, on which collectives are no stage of their own, and the most operands on a
    path that must be whole; last those of the world outside.
    """
    outside = len(communicates)
    level, behind = [0.0] * (outside + 1), [0.0] * (outside + 1)
    into: list[list[tuple[int, bool]]] = [[] for _ in communicates]
    for tensor in tensors:
        for reader, waits in zip(tensor.targets, tensor.whole, strict=True):
            if outside not in (tensor.source, reader):
                into[reader].append((tensor.source, waits))
    for i, sources in enumerate(into):
        step = 0.0 if communicates[i] else 1.0
        level[i] = max((level[s] + step for s, _ in sources), default=0.0)
        behind[i] = max((behind[s] + float(waits) for s, waits in sources), default=0.0)
    return level, behind


def tensor_sizes(graph: Graph) -> dict[str, Number]:
    """Bytes of the tensors of all blocks, as other blocks read them: what backward blocks need as `sizes`."""
    found: dict[str, Number] = {}
    for block in graph.blocks:
        if block.entry is not None:
            found[f"{block.name}:{block.entry.name}"] = block.entry.bytes()
        for op in block.ops:
            size = op.payload if is_collective(op) else op.output_bytes()
            found[f"{block.name}:{op.output}"] = size
    return found
