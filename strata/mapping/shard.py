"""shard(): the graph of one rank, with collectives where layouts of its tensors do not meet."""

from __future__ import annotations

from dataclasses import replace

from strata.base.arrays import Number, ceil_div, namespace
from strata.mapping.divide import (
    TensorState,
    TensorStates,
    added,
    alike,
    divide,
    residual_in_parts,
    side_by_side,
    without_idle_collectives,
)
from strata.mapping.layout import (
    GRADIENTS,
    PLAIN,
    WEIGHT_GRADIENTS,
    Alternative,
    Conversion,
    PartitionSpec,
    Sharding,
    conversions,
)
from strata.mapping.sharded_collectives import (
    PARTIAL_OVER,
    SUFFIXES,
    expert_collectives,
    held_before,
    once_block,
    relaid,
    sharded_weights,
    summed_gradient,
)
from strata.workload.expert_ops import ExpertMatMul, is_expert_product, is_routed
from strata.workload.graph import Block, Collective, Extent, Graph, Op, Tensor, checked

SUMS = ("all_reduce", "reduce_scatter")


def shard(graph: Graph, sharding: Sharding) -> Graph:
    """The graph of the busiest rank, for one micro-batch; a layout of one rank leaves it as it is."""
    graph = without_idle_collectives(graph, sharding.active)
    if sharding.whole:
        return graph
    known: dict[tuple[int, str], Extent] = {}
    # weights a block needs whole, forward and again backward, and their gradients
    moved: dict[str, tuple[list[Collective], list[Collective]]] = {}
    training = any(block.direction == "backward" for block in graph.blocks)
    # what blocks gather from parts of sequences, as it is kept for their gradients
    kept: dict[str, TensorStates] = {}
    variants = sharding.variants or (sharding,)
    blocks = []
    for block in graph.blocks:
        role = sharding.role(block)
        stream = _local(block.output, role, sharding)
        block = residual_in_parts(block, sharding)
        entry, output = (_local(tensor, role, sharding) for tensor in (block.entry, block.output))
        local = replace(block, entry=entry, output=output, role=role)
        nodes = [
            (weight, [_dealt_out(divide(sharding.laid_out(op), sharding, known), sharding) for op in ops])
            for weight, ops in block.at_nodes()
        ]
        walks = [[_BlockPass(local, one, training, stream, kept) for _ in nodes] for one in variants]
        made = []
        for (weight, ops), *each in zip(nodes, *walks, strict=True):
            runs = [walk.run(ops) for walk in each]
            made.append((weight, runs[0] if len(runs) == 1 else side_by_side(ops, runs, variants)))
        if "fsdp" in sharding.active:
            if block.direction == "forward":
                moved[block.name] = sharded_weights(nodes[0][1], sharding, training)
            gathers, scatters = moved[block.gradient_of or block.name]
            last = scatters if block.direction == "backward" else []
            made = [(w, [*gathers, *ops, *last]) for w, ops in made]
        final = tuple((weight, tuple(ops)) for weight, ops in made)
        blocks.append(replace(local, ops=final[0][1], nodes=final if block.nodes else (), role=block.role))
        if walks[0][0].once:
            blocks.append(once_block(blocks[-1], walks[0][0].once))
    return checked(replace(graph, blocks=tuple(blocks)))


def _local(tensor: Tensor | None, role: str, sharding: Sharding) -> Tensor | None:
    """One rank's part of a boundary."""
    if tensor is None:
        return None
    extents = tuple(sharding.axis(role, e.axis).local(e) if e.axis else e for e in tensor.extents)
    return Tensor(tensor.name, extents, tensor.format)


def _dealt_out(op: Op, sharding: Sharding) -> Op:
    """A product of experts with the ranks these are dealt to, and the popular ones held more than once."""
    if not is_expert_product(op):
        return op
    ranks = sharding.axis(op.module, op.experts.axis).parts
    if "redundant_experts" not in sharding.active:
        return replace(op, ranks=ranks)
    held = ceil_div(op.all_experts + sharding.redundant_experts, ranks)
    experts = replace(op.experts, count=held)
    return replace(op, ranks=ranks, experts=experts, redundant_experts=sharding.redundant_experts)


def _once(found: list[tuple[list[Conversion], TensorState]]) -> list[tuple[list[Conversion], TensorState]]:
    """Conversions under each alternative: one for all of them where they are the same."""
    differ = any(one.alternative.ring or made != found[0][0] for made, one in found)
    return found if differ or len(found) < 2 else [(found[0][0], replace(found[0][1], alternative=PLAIN))]


class _BlockPass:
    """One walk over a block's ops: how each tensor was left, and collectives where a reader differs."""

    def __init__(
        self,
        block: Block,
        sharding: Sharding,
        training: bool,
        stream: Tensor | None,
        kept: dict[str, TensorStates],
    ):
        self.block, self.sharding, self.training = block, sharding, training
        self.stream = stream  # what it hands on, whole
        self.kept = kept
        self.state: dict[str, TensorStates] = dict(kept) if sharding.sequence_group else {}
        self.done: set[tuple[str, str, Conversion, str]] = set()  # what was brought where already
        self.ops: list[Op] = []
        # of a block that runs many times with the same weights: what moves weights and their gradients
        self.once: list[Collective] = []
        self.names: dict[str, int] = {}  # collectives so far by name
        if block.entry is not None:
            spec = sharding.spec(block.role, block.entry.axes)
            self.state[block.entry.name] = (TensorState(spec, (), block.entry.bytes),)

    def run(self, ops: list[Op]) -> list[Op]:
        experts = next((op for op in ops if is_expert_product(op)), None)
        for op in ops:
            if op.route and experts is not None:
                self._route(op, experts)
            else:
                self._plain(op)
        self._close(ops)
        return self.ops

    def _plain(self, op: Op) -> None:
        """An op after the collectives its operands need."""
        sharding = self.sharding
        if op.linear and any(state.partial for state in self.state.get(op.inputs[0], ())):
            self.ops.append(op)
            self.state[op.output] = self.state[op.inputs[0]]
            return
        if getattr(op, "adds", False):
            self._add_operands(op)
        else:
            for place, tensor in enumerate(op.inputs):
                self._reshard(op, place, (tensor,))
        if op.module.endswith((GRADIENTS, WEIGHT_GRADIENTS)):
            self._relay(op)
        self.ops.append(op)
        contracted = op.contracted_axes()
        if op.weight_gradient and not sharding.gradient_sums:
            contracted = ()  # added up once for a whole step
        left = [self._state_of(op, contracted, alternative) for alternative in self._alternatives_of(op)]
        first = left[0]
        if len(left) > 1 and all(s.spec == first.spec and s.partial == first.partial for s in left):
            left = [replace(first, alternative=PLAIN)]
        self.state[op.output] = tuple(left)

    def _state_of(self, op: Op, contracted: tuple[str, ...], alternative: Alternative) -> TensorState:
        """How an op leaves its result: partial sums over groups that divide what it sums over."""
        sharding = self.sharding
        spec = sharding.spec(op.module, op.result_axes(), alternative)
        over = sharding.spec(op.module, contracted, alternative) if contracted else {}
        if not over:
            return TensorState(spec, (), op.result_bytes, float, op.name, alternative)
        partial = tuple(dict.fromkeys(group for groups in over.values() for group in groups))
        spec = {c: kept for c, g in spec.items() if (kept := tuple(x for x in g if x not in partial))}
        return TensorState(spec, partial, op.result_bytes, op.partial_bytes, op.name, alternative)

    def _alternatives_of(self, op: Op) -> tuple[Alternative, ...]:
        """Alternatives in which an op's result may lie differently."""
        every = self.sharding.alternatives
        stored = any(op.stored_axes(i) for i in range(len(op.inputs)))
        return every if len(every) == 1 or op.module in self.sharding.modules or stored else (PLAIN,)

    def _add_operands(self, op: Op) -> None:
        """Operands that an op adds up: partial sums that lie alike on each rank first, then between ranks.
        The sum is that op's own; other readers find operands as they were.
        """
        known = [tensor for tensor in dict.fromkeys(op.inputs) if tensor in self.state]
        for tensors in alike(self.state, op.inputs):
            mine = len(known) > 1 and any(s.partial for t in tensors for s in self.state.get(t, ()))
            self._reshard(op, op.inputs.index(tensors[-1]), tensors, op.name if mine else "")

    def _reshard(self, op: Op, place: int, tensors: tuple[str, ...], own: str = "") -> None:
        """Collectives that bring an operand, or a sum, to an op; `own`: the op that alone has it."""
        sharding, stored, tensor = self.sharding, op.stored_axes(place), tensors[-1]
        left = added(self.state, tensors)
        if not stored and not left:
            return
        whole, wanted = op.whole_axes(), op.operand_axes(place)
        if whole:
            wanted = tuple(axis for axis in wanted if axis not in whole)
        plain = not stored and len(left) == 1 and not left[0].partial and op.module not in sharding.modules
        if plain and left[0].spec == sharding.spec(op.module, wanted, left[0].alternative):
            return
        found: list[tuple[list[Conversion], TensorState]] = []
        every = stored or op.module in sharding.modules
        for alternative in sharding.alternatives if every else [state.alternative for state in left]:
            want = sharding.spec(op.module, wanted, alternative)
            if stored:
                state = TensorState(sharding.spec(op.module, stored, alternative), producer=op.name)
            else:
                state = next((s for s in left if s.alternative is alternative), left[0])
            made = conversions(state.spec, state.partial, want)
            found.append((made, replace(state, alternative=alternative)))
        found = _once(found)
        for made, state in found:
            for one, size in zip(made, held_before(made, sharding), strict=True):
                key = (tensor, op.name if stored else own, one, state.alternative.name)
                if key not in self.done:
                    self.done.add(key)
                    self._add(self._collective(one, op, place, tensor, state, size))
        if not own and any(state.partial for _, state in found):  # added up: the next reader finds sums
            self.state[tensor] = tuple(state.added_up(found[0][0], sharding.degrees) for state in left)
        elif any(one.gathered and one.group == sharding.sequence_group for made, _ in found for one in made):
            self.kept[f"{self.block.name}:{tensor}"] = left

    def _relay(self, op: Op) -> None:
        """Collectives that bring weights and kept tensors to gradients laid out unlike their forward ops."""
        bring = self._add if self.sharding.deepflow else self._once_or_now
        for one in relaid(op, self.sharding):
            bring(one)
        for place, tensor in enumerate(op.inputs):
            if ":" in tensor:
                for one in relaid(op, self.sharding, place):
                    self._add(one)

    def _once_or_now(self, op: Collective) -> None:
        """A collective of weights or their gradients, once for all time steps of a block."""
        repeats = self.block.repeats
        if self.block.nodes or (isinstance(repeats, float) and repeats == 1.0):
            self._add(op)
        else:
            inputs = tuple(f"{self.block.name}:{tensor}" for tensor in op.inputs)
            self.once.append(replace(self._numbered(op), inputs=inputs))

    def _add(self, op: Collective) -> None:
        self.ops.append(self._numbered(replace(op, prefetch=True) if self.block.ahead else op))

    def _numbered(self, op: Collective) -> Collective:
        """A collective under a name of its own: several may stand before one op."""
        number = self.names[op.name] = self.names.get(op.name, 0) + 1
        return op if number == 1 else replace(op, name=f"{op.name}_{number}")

    def _collective(
        self, one: Conversion, op: Op, place: int, tensor: str, state: TensorState, size: Number
    ) -> Collective:
        own, alternative = op.operand_bytes(place), state.alternative
        degree = self.sharding.degrees[one.group]
        if one.pattern in SUMS:
            payload, name = state.summed() * size, f"{state.producer}_{SUFFIXES[one.pattern]}"
        else:
            payload = state.bytes() / state.pieces * size if own is None else own
            # What was stored is asked for as the whole that its reader wants.
            payload = (
                payload * degree
                if one.gathered and not (own is not None and op.stored_axes(place))
                else payload
            )
            name = f"{op.name}_{SUFFIXES[one.pattern]}"
        made = Collective(
            name=name + (f"_{alternative.name}" if alternative.name else ""),
            module=op.module,
            inputs=(tensor,),
            output=tensor,
            pattern=one.pattern,
            group=one.group,
            payload=alternative.masked(payload),
        )
        if alternative.ring and one.pattern == "all_gather" and one.group != self.sharding.sequence_group:
            xp = namespace(degree, payload)
            steps = xp.maximum(degree - 1.0, 1.0)
            return replace(
                made,
                pattern="send",
                payload=alternative.masked(xp.where(degree > 1, payload / degree, 0.0)),
                steps=steps,
                overlaps=op.name,
            )
        return made

    def _route(self, op: Op, experts: ExpertMatMul) -> None:
        """An op that moves rows between tokens and experts, with the collectives that carry them."""
        assert is_routed(op)
        assert self.stream is not None
        # tokens as experts see them: the residual itself may be wider, or they work in a latent
        rows, sharding = self.stream, self.sharding
        stream = Tensor(rows.name, (rows.extents[0], Extent(op.token)), rows.format)
        before, after = expert_collectives(op, experts, sharding, stream, self.training)
        self.ops += [*before, op, *after]
        if op.route != "combine":
            self.state[op.output] = (TensorState({}, (), op.output_bytes, op.partial_bytes, op.name),)
            return
        # Rows of experts' results: as a sum they lie and are as large as the tokens they belong to, on ranks
        # that hold parts of sequences their own ones, else what the experts of each rank made of them.
        partial: tuple[str, ...] = ()
        spec, size = sharding.spec(self.block.role, stream.axes), stream.bytes
        if sharding.sequence_group and self.block.output is not None:
            spec = sharding.spec(self.block.role, self.block.output.axes)
            size = Tensor(rows.name, (self.block.output.extents[0], *stream.extents[1:]), rows.format).bytes
        elif PARTIAL_OVER in sharding.active:
            partial = (PARTIAL_OVER,)
        self.state[op.output] = (TensorState(spec, partial, size, size, op.name),)

    def _close(self, ops: list[Op]) -> None:
        """Whole sums in the boundary's layout: of what is handed on, and of what nobody reads later."""
        leaves = self.block.leaves or ((ops[-1].output,) if self.block.output is not None else ())
        want = {}
        if self.block.output is not None:
            want = self.sharding.spec(self.block.role, self.block.output.axes)
        for tensors in alike(self.state, leaves):
            self._hand_on(tensors, want)
        read = {*leaves, *(tensor for op in ops for tensor in op.inputs)}
        for op in ops:
            if op.weight_gradient:
                partial = self.state[op.output][0].partial
                for one in summed_gradient(op, partial, self.sharding) if self.sharding.gradient_sums else ():
                    self._once_or_now(one)
            elif op.output not in read and any(s.partial for s in self.state[op.output]):
                self._hand_on((op.output,), self.state[op.output][0].spec)

    def _hand_on(self, tensors: tuple[str, ...], want: PartitionSpec) -> None:
        """Collectives between a result of a block, or the sum of several, and a layout."""
        left = added(self.state, tensors)
        for made, state in _once([(conversions(s.spec, s.partial, want), s) for s in left]):
            for one, size in zip(made, held_before(made, self.sharding), strict=True):
                if state.partial or (tensors[-1], "", one, state.alternative.name) not in self.done:
                    self._add(self._handed_on(one, tensors[-1], state, size))

    def _handed_on(self, one: Conversion, tensor: str, state: TensorState, size: Number) -> Collective:
        """A collective between a block's result and the layout of its boundary."""
        whole = self.sharding.degrees[one.group] if one.gathered else 1.0
        payload = state.bytes() / state.pieces * size * whole
        if one.pattern in SUMS:
            payload = state.summed() * size
        return Collective(
            name=f"{state.producer}_{SUFFIXES[one.pattern]}", module=self.block.role, inputs=(tensor,),
            output=tensor, pattern=one.pattern, group=one.group, payload=state.alternative.masked(payload),
        )  # fmt: skip
