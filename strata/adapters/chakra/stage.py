"""Nodes of a Chakra trace: what one stage of a step does, pass after pass, with the edges of the graph.

Ranks of a stage do the same in groups of their own, so that nodes name groups and neighbours; a rank's file
says which ranks these are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from strata.adapters.chakra.trace import COLLECTIVE, COMM_TYPES, COMPUTE, RECEIVE, SEND, ChakraNode
from strata.base.arrays import Number
from strata.base.precision import bytes_of
from strata.mapping.training_plan import recompute_share
from strata.pricing.block import PricedBlock, PricedOp
from strata.pricing.price import Price
from strata.pricing.update import sum_groups, update_parts, weight_moves
from strata.simulate.orders import Pass
from strata.simulate.passes import PlacedBlock, StepPasses
from strata.software.engine import trainer_of
from strata.software.trainer import gathered_bytes
from strata.workload.graph import Collective, Op, is_collective

Ids = tuple[int, ...]  # of nodes
MOST_STEPS = 256  # messages of one ring that are written one by one


@dataclass(frozen=True, kw_only=True)
class StageNode(ChakraNode):
    """A node of every rank of a stage: a group by its name, a neighbour by how far away it is in one."""

    group: str = ""  # of a collective or message
    payload: float = 0.0  # bytes of a collective as Strata counts them: the whole buffer of a rank
    to: int = 0  # of a message: members on, or back
    stage: int = -1  # or the stage at its other end


@dataclass
class StageNodes:
    """The nodes of one stage as they are made. Of each block it is known what made its tensors, for the ops
    and passes that read them.
    """

    passes: StepPasses
    chunks: list[list[PlacedBlock]]
    stage: int
    nodes: list[StageNode] = field(default_factory=list)
    made: dict[tuple[int, int, str], dict[str, int]] = field(default_factory=dict)
    last: Ids = ()  # the end of the pass before

    def add_pass(self, p: Pass, came: int | None, goes: int | None) -> None:
        """A pass of a micro-batch: what it takes in comes from a stage, and what it makes goes to one."""
        forward = p.what == "F"
        behind = self.last
        carried: Ids = ()
        if came is not None:
            carried = (self._message(p, came, RECEIVE, behind, ()),)
        for b in self.chunks[p.chunk] if forward else self.chunks[p.chunk][::-1]:
            carried = self._block(p, b, carried, behind) or carried
        if goes is not None:
            self._message(p, goes, SEND, (), carried)
        self.last = carried or behind

    def _message(self, p: Pass, other: int, kind: int, after: Ids, made_by: Ids) -> int:
        """Activations or gradients between stages; a tag says of which chunk and micro-batch."""
        back = p.what != "F"
        # both ends name the boundary by the chunk that takes in
        chunk = p.chunk + (0 if kind == RECEIVE else (-1 if back else 1))
        tag = 2 * (p.microbatch * len(self.chunks) + chunk) + back
        size = float(self.passes.send_bytes)
        word = "send" if kind == SEND else "receive"
        told = {"comm_size": round(size), "comm_tag": tag}
        ends = {"group": "pp", "payload": size, "stage": other}
        return self._add(f"{p.name} {word}", kind, made_by, after, self.passes.send, told, **ends)

    def _block(self, p: Pass, b: PlacedBlock, carried: Ids, behind: Ids) -> Ids:
        """The ops of a block in a pass, after what its layer computes again; the nodes that it ends with."""
        if p.what == "F":
            return self._ops(p, b, b.forward, carried, behind)
        training = self.passes.given.sharding.training
        if p.what != "W" and b.again > 0.0 and b.backward is not None:
            shares = [(op, float(recompute_share(b.forward.block, op, training))) for op, _ in b.forward.ops]
            again = {op.name: share * b.again for op, share in shares if share > 0.0}
            if again:
                carried = self._ops(p, b, b.forward, carried, behind, again) or carried
        return self._ops(p, b, b.backward, carried, behind) if b.backward is not None else ()

    def _ops(
        self,
        p: Pass,
        b: PlacedBlock,
        priced: PricedBlock,
        carried: Ids,
        behind: Ids,
        again: dict[str, float] | None = None,
    ) -> Ids:
        block = priced.block
        made = self.made.setdefault((p.microbatch, b.layer, block.name), {})
        if block.entry is not None and again is None:
            made[block.entry.name] = carried[-1] if carried else -1
        label = f"{p.name} {b.layer} {block.name} {'again ' if again is not None else ''}"
        gates: list[int] = []  # weights on their way: ops of the block wait for them
        ends: Ids = ()
        for op, price, runs in _ops_of(priced):
            share = 1.0 if again is None else again.get(op.name, 0.0)
            if share == 0.0 or (p.what in ("B", "W") and op.weight_gradient != (p.what == "W")):
                continue
            read = self._read(p, b, op, made, carried)
            waits = () if read else (*gates, *behind)
            often = b.runs * runs * share
            if not is_collective(op):
                data = dict.fromkeys((*read, *gates))
                gates = []
                ends = (self._compute(f"{label}{op.name}", op, price, often, tuple(data), waits),)
            elif float(op.payload) > 0.0:
                ahead = not op.inputs and not ends
                data = dict.fromkeys(read or ends)
                one = self._talk(f"{label}{op.name}", op, float(price.time), often, tuple(data), waits)
                gates += [one] if ahead else []
                ends = ends if ahead else (one,)
            else:
                continue
            made[op.output] = ends[0] if ends else gates[-1]
        return ends or tuple(gates)

    def _read(self, p: Pass, b: PlacedBlock, op: Op, made: dict[str, int], carried: Ids) -> Ids:
        """The nodes that made what an op reads: in its block, in another one, or in the block before."""
        found: dict[int, None] = {}
        for tensor in op.inputs:
            block, far, name = tensor.rpartition(":")
            there = self.made.get((p.microbatch, b.layer, block), {}) if far else made
            node = there.get(name)
            if node is not None and node >= 0:
                found[node] = None
            elif not far:
                found |= dict.fromkeys(carried)
        return tuple(found)

    def _compute(self, name: str, op: Op, price: Price, often: float, data: Ids, after: Ids) -> int:
        work, unit = _work(op, price)
        attributes: dict[str, Any] = {
            "num_ops": max(round(work * often), 1),
            "tensor_size": round(float(price.memory_bytes) * often),
            "unit": unit,
        }
        precision = getattr(op, "activation", getattr(op, "precision", ""))
        attributes |= {"precision": precision} if precision else {}
        return self._add(name, COMPUTE, data, after, float(price.time) * often, attributes)

    def _talk(self, name: str, op: Collective, time: float, often: float, data: Ids, after: Ids) -> int:
        """A collective; a ring's messages one after the other where it is one of messages."""
        payload = float(op.payload) * often
        steps = min(max(round(float(op.steps)), 1), MOST_STEPS) if op.overlaps else 1
        one = -1
        for _ in range(steps):
            data, after = ((one,), ()) if one >= 0 else (data, after)
            ends = {"group": op.group, "payload": payload}
            if op.pattern != "send":
                told = {"comm_type": COMM_TYPES.index(op.pattern)}
                one = self._add(name, COLLECTIVE, data, after, time / steps, told, **ends)
                continue
            told = {"comm_size": round(payload), "comm_tag": len(self.nodes) + (1 << 30)}
            self._add(f"{name} send", SEND, data, after, time / steps, told, **ends, to=1)
            one = self._add(f"{name} receive", RECEIVE, data, after, 0.0, told, **ends, to=-1)
        return one

    def _add(
        self, name: str, kind: int, data: Ids, after: Ids, time: float, told: dict[str, Any], **ends: Any
    ) -> int:
        place = len(self.nodes)
        after = tuple(a for a in dict.fromkeys(after) if a not in data)
        self.nodes.append(
            StageNode(
                id=place,
                name=name,
                type=kind,
                data_deps=data,
                ctrl_deps=after,
                duration=round(time * self.passes.stretch * 1e6),
                attributes={"is_cpu_op": False} | told,
                **ends,
            )
        )
        return place

    # ------------------------------------------------------------------------------------- the update

    def add_update(self) -> None:
        """The end of a training step: gradients summed, the optimiser, weights sent on."""
        given, rank = self.passes.given, self.passes.rank
        parts = update_parts(given, rank, self.passes.step.blocks)
        done = list(self.last)
        for what, op in self._sums() if not given.sharding.gradient_sums else ():
            if what == "gradients":
                done.append(self._talk(op.name, op, 0.0, 1.0, self.last, ()))
        price = parts.optimiser
        size = round(float(price.memory_bytes))
        work: dict[str, Any] = {"num_ops": 1, "tensor_size": size, "unit": "vector"}
        time = float(price.time - price.network)
        after = self._add("optimiser", COMPUTE, tuple(dict.fromkeys(done)), (), time, work)
        for what, op in self._sums() if not given.sharding.gradient_sums else ():
            if what == "parameters":
                self._talk(op.name, op, 0.0, 1.0, (after,), ())

    def _sums(self) -> Iterator[tuple[str, Collective]]:
        """Collectives of the weights that this stage holds."""
        given = self.passes.given
        trainer, zero = trainer_of(given.engine), float(given.sharding.zero)
        held = [b.forward.held for chunk in self._held_chunks() for b in chunk]
        experts = sum(float(h.trained_experts) for h in held)
        every = sum(float(h.trained) for h in held)
        width = {"gradients": bytes_of(trainer.reduced_gradients), "parameters": gathered_bytes(trainer, 0.0)}
        groups = self.passes.rank.placement.groups
        for kind, names in sum_groups(groups).items():
            count = every - experts if kind == "dense" else experts
            shards = float(given.sharding.degrees.get(names[1], 1.0)) if zero > 0 else 1.0
            for what, pattern, group, where, pieces in weight_moves(names, zero, shards):
                if where and group in groups and count > 0.0:
                    size = count / float(pieces) * float(width[what])
                    name = f"{pattern} of {what} ({kind})"
                    yield what, Collective(name=name, pattern=pattern, group=group, payload=size)

    def _held_chunks(self) -> list[list[PlacedBlock]]:
        stages = self.passes.stages
        return [chunk for i, chunk in enumerate(self.chunks) if i % stages == self.stage]


def _ops_of(b: PricedBlock) -> Iterator[tuple[Op, Price, float]]:
    """Ops of a block with their prices and how often they run; iterations of changing sizes one by one."""
    nodes: list[tuple[Number, list[PricedOp]]] = [(n.weight, n.ops) for n in b.raw] or [(1.0, list(b.ops))]
    for weight, ops in nodes:
        for op, price in ops:
            yield op, price, float(weight)


def _work(op: Op, price: Price) -> tuple[float, str]:
    """Operations of an op, useful or not, and the units they run on."""
    useful = float(price.flop)
    if useful > 0.0 and getattr(op, "unit", "matrix") == "matrix":
        return useful, "matrix"
    told: Any = op
    each = getattr(op, "flop_per_element", None)
    if each is None:
        return useful, "vector"
    each = each + getattr(op, "special_per_element", 0.0)
    return float(told.elements() * each), "vector"
