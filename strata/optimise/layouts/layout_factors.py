"""What a layout costs, as tables over few modules: kernels, and the collectives between their layouts.

The walk is that of `mapping/shard.py`, for all options at once: every op finds its operands as they were
left, `conversions` says what stands between, and a tensor that several ops read carries what was already done
for it from one to the next as a variable of its own, so that tables stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number
from strata.base.errors import BadValue
from strata.mapping.divide import divide
from strata.mapping.layout import Conversion, conversions
from strata.mapping.sharded_collectives import held_before
from strata.optimise.layouts.factor_graph import FactorGraph
from strata.optimise.layouts.layout_options import (
    LayoutRules,
    ModuleOptions,
    per_option,
    sharding_of_all,
    sharding_of_each,
)
from strata.optimise.layouts.layout_states import (
    Holder,
    LayoutTables,
    LeftState,
    PartialSums,
    SpecKey,
    one_more_sum,
    spec_key,
)
from strata.pricing.pricers import Rank, price_op
from strata.workload.graph import Block, Graph, Op
from strata.workload.tasks import Workload


def layout_tables(
    graph: Graph,
    work: Workload,
    mesh: dict[str, Number],
    rank: Rank,
    rules: LayoutRules,
    options: dict[str, ModuleOptions],
) -> LayoutTables:
    """Tables whose sum, at one option per module, is the objective of the layout they make together."""
    each = sharding_of_each(options, graph, work, mesh)
    every = sharding_of_all(options, each)
    factors = FactorGraph({m: len(o) for m, o in options.items()})
    tables = LayoutTables(graph, rules, rank, options, each, every, factors)
    for block in graph.blocks:
        for number, (weight, ops) in enumerate(block.at_nodes()):
            share = float(block.times) * float(weight if block.nodes else 1.0)
            once = share if block.nodes else float(block.count)
            _BlockTables(tables, block, f"{block.name}/{number}", share, once).run(ops)
    return tables


class _BlockTables:
    """The walk over one block: who holds each tensor's state, and the tables so far."""

    def __init__(self, tables: LayoutTables, block: Block, name: str, weight: float, once: float):
        self.tables, self.block, self.name, self.weight, self.once = tables, block, name, weight, once
        self.holders: dict[str, Holder] = {}
        self.uses: dict[str, int] = {}

    def run(self, ops: tuple[Op, ...]) -> None:
        tables, block = self.tables, self.block
        leaves = block.leaves or ((ops[-1].output,) if block.output is not None else ())
        for tensor in (*(t for op in ops for t in op.inputs), *leaves):
            self.uses[tensor] = self.uses.get(tensor, 0) + 1
        if block.entry is not None:
            sizes = tables.entry_bytes(block)
            axes = block.entry.axes
            self.holders[block.entry.name] = self._left(block.role, axes, (), sizes, sizes)
        for op in ops:
            if op.route:
                raise BadValue(f"layouts of routed experts are not chosen op by op: {op.name}; give a plan")
            self._op(op, divide(op, tables.every, {}))
        self._close(leaves)

    def _left(
        self, module: str, axes: tuple[str, ...], contracted: tuple[str, ...], size: Array, summed: Array
    ) -> Holder:
        """How a module's options leave a tensor."""

        def state(k: int) -> LeftState:
            spec, partial = self.tables.left(module, axes, contracted, k)
            return LeftState(spec_key(spec), partial, float(size[k]), float(summed[k]))

        return self.tables.module(module, state)

    def _op(self, op: Op, local: Op) -> None:
        tables, count = self.tables, self.tables.count(op.module)
        if tables.rules.objective == "time":
            time = per_option(price_op(local, tables.rank).time, count)
            tables.add(self.weight * time, tables.module(op.module, lambda k: k))
        if self.block.direction == "forward" and not op.backward:
            for kept, size, times in (
                (tables.elements, local.weight_elements(), self.once),
                (tables.weights, local.weight_bytes(), self.once),
                (tables.results, local.output_bytes(), self.weight),
            ):
                kept[op.module] = kept.get(op.module, np.zeros(count)) + times * per_option(size, count)
        known = tuple(dict.fromkeys(t for t in op.inputs if t in self.holders))
        if getattr(op, "adds", False) and len(known) > 1:
            self._add_operands(op, local, known)
        else:
            for place, tensor in enumerate(op.inputs):
                self._read(op, local, place, tensor)
        size, summed = per_option(local.result_bytes(), count), per_option(local.partial_bytes(), count)
        left = self._left(op.module, op.result_axes(), op.contracted_axes(), size, summed)
        if any(state.partial for state in left.states):
            left = self._summed_here(op, left)
        self.holders[op.output] = left

    def _summed_here(self, op: Op, left: Holder) -> Holder:
        """Sums that stand with the kernel: of weights' gradients, of what nobody reads, or all by rule."""
        tables, unread = self.tables, not self.uses.get(op.output)
        if not (tables.rules.sums == "at kernel" or unread or op.weight_gradient):
            return left
        weight = self.once if op.weight_gradient else self.weight

        def cost(s: LeftState) -> float:
            payload = s.bytes if op.weight_gradient else s.summed
            return sum(tables.collective("all_reduce", g, payload, weight) for g in s.partial)

        tables.add(np.array([cost(s) for s in left.states]), left)
        return replace(left, states=tuple(replace(s, partial=()) for s in left.states))

    def _wants(self, op: Op, local: Op, place: int) -> Holder:
        """What the options of an op want of an operand: its layout, and its bytes where the op knows them."""
        axes = tuple(a for a in op.operand_axes(place) if a not in op.whole_axes())
        own = local.operand_bytes(place)
        sizes = None if own is None else per_option(own, self.tables.count(op.module))

        def want(k: int) -> tuple[SpecKey, float | None]:
            spec = spec_key(self.tables.each[k].spec(op.module, axes))
            return spec, None if sizes is None else float(sizes[k])

        return self.tables.module(op.module, want)

    def _read(self, op: Op, local: Op, place: int, tensor: str) -> None:
        stored = op.stored_axes(place)
        wants = self._wants(op, local, place)
        if stored:
            zero = np.zeros(self.tables.count(op.module))
            have = self._left(op.module, stored, (), zero, zero)
            self.tables.stepped("", lambda s, w: self._convert(s, w, True), have, wants, False)
        elif tensor in self.holders:
            self._step(tensor, wants, self._convert)

    def _step(
        self, tensor: str, second: Holder, step: Callable[[LeftState, Any], tuple[float, LeftState]]
    ) -> None:
        """One more use of a tensor, whose state goes on to the next one."""
        self.uses[tensor] -= 1
        name = f"{self.name}:{tensor}#{self.uses[tensor]}"
        after = self.tables.stepped(name, step, self.holders[tensor], second, self.uses[tensor] > 0)
        if after is not None:
            self.holders[tensor] = after

    def _convert(
        self, state: LeftState, want: tuple[SpecKey, float | None], stored: bool = False
    ) -> tuple[float, LeftState]:
        """Collectives that bring a tensor to a reader, and how it lies after them."""
        tables, (wanted, own) = self.tables, want
        made = conversions(state.layout(), state.partial, dict(wanted))
        cost, done, degrees = 0.0, state.done, tables.every.degrees
        again = tables.rules.consumers == "replicated"
        for one, size in zip(made, held_before(made, tables.every), strict=True):
            if one in done and not again:
                continue
            if one.pattern in ("all_reduce", "reduce_scatter"):
                payload = state.summed * size
            elif own is None:
                payload = state.bytes / state.pieces * size * (degrees[one.group] if one.gathered else 1.0)
            else:
                payload = own * (degrees[one.group] if one.gathered and not stored else 1.0)
            cost += tables.collective(one.pattern, one.group, float(payload), self.weight)
            done = done if again else done | {one}
        after = replace(state, done=done)
        return cost, _summed(after, made, degrees) if state.partial else after

    def _add_operands(self, op: Op, local: Op, tensors: tuple[str, ...]) -> None:
        """Operands that are added up: partial ones on each rank first, then once between ranks."""
        wants = self._wants(op, local, op.inputs.index(tensors[0]))
        self._between_ranks(f"{op.name}+", [self.holders[t] for t in tensors], wants)
        for tensor in tensors:
            self._step(tensor, wants, self._convert_whole)

    def _convert_whole(self, state: LeftState, want: tuple[SpecKey, float | None]) -> tuple[float, LeftState]:
        """An operand of a sum: a partial one stays as it is for others."""
        return (0.0, state) if state.partial else self._convert(state, want)

    def _between_ranks(self, name: str, holders: list[Holder], wants: Holder) -> None:
        """Partial sums that lie alike, added on each rank, brought to where they are wanted."""
        sums = Holder("", ((),), np.array([0]))
        for number, holder in enumerate(holders):
            if any(s.partial for s in holder.states):
                sums = self._one_more(f"{self.name}:{name}{number}", sums, holder)

        def cost(every: PartialSums, want: tuple[SpecKey, float | None]) -> float:
            return sum(self._convert(one, want)[0] for one in every)

        if sums.variable:
            table = [[cost(every, want) for want in wants.states] for every in sums.states]
            self.tables.add(np.array(table), sums, wants)

    def _one_more(self, name: str, sums: Holder, holder: Holder) -> Holder:
        """Partial sums so far with one more operand."""

        def step(every: PartialSums, left: LeftState) -> tuple[float, PartialSums]:
            return 0.0, one_more_sum(every, left)

        if sums.variable:
            made = self.tables.stepped(name, step, sums, holder, True)
            assert made is not None
            return made
        found: dict[Hashable, int] = {}
        first = [found.setdefault(one_more_sum((), s), len(found)) for s in holder.states]
        return Holder(holder.variable, tuple(found), np.array(first)[holder.place])

    def _close(self, leaves: tuple[str, ...]) -> None:
        """What the block hands on lies as its boundary says."""
        tables, output, role = self.tables, self.block.output, self.block.role
        axes = () if output is None else output.axes

        def want(k: int) -> tuple[SpecKey, None]:
            return spec_key(tables.each[k].spec(role, axes)), None

        wants = tables.module(role, want)
        mine = [self.holders[t] for t in dict.fromkeys(leaves) if t in self.holders]
        self._between_ranks("leaves+", mine, wants)
        for holder in mine:
            table = [[self._convert_whole(s, w)[0] for w in wants.states] for s in holder.states]
            tables.add(np.array(table), holder, wants)


def _summed(state: LeftState, made: list[Conversion], degrees: dict[str, Number]) -> LeftState:
    """A tensor whose partial sums were added up, in pieces where its first reader wanted them so."""
    spec, pieces = state.layout(), state.pieces
    for one in made:
        if one.pattern == "reduce_scatter":
            spec[one.onto] = (*spec.get(one.onto, ()), one.group)
            pieces = pieces * float(degrees[one.group])
    return replace(state, partial=(), spec=spec_key(spec), pieces=pieces)
