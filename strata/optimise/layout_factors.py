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

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.mapping.gradients import held_before
from strata.mapping.layout import Conversion, conversions, divide
from strata.optimise.factor_graph import FactorGraph
from strata.optimise.layout_options import (
    ModuleOptions,
    per_option,
    sharding_of_all,
    sharding_of_each,
)
from strata.optimise.layout_rules import LayoutRules
from strata.optimise.layout_states import NO_SUM, Holder, LayoutTables, LeftState, SpecKey, SumSoFar, spec_key
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
            sizes = self._boundary_bytes("entry")
            axes = block.entry.axes
            self.holders[block.entry.name] = self._left(block.role, axes, (), sizes, sizes)
        for op in ops:
            if op.route:
                raise BadValue(f"layouts of routed experts are not chosen op by op: {op.name}; give a plan")
            self._op(op, divide(op, tables.every, {}))
        self._close(leaves)

    def _boundary_bytes(self, side: str) -> Array:
        tensor, role, known = getattr(self.block, side), self.block.role, self.tables.every
        made = replace(tensor, extents=tuple(known.axis(role, e.axis).local(e) for e in tensor.extents))
        return per_option(made.bytes(), len(self.tables.options.get(role, (0,))))

    def _left(
        self, module: str, axes: tuple[str, ...], contracted: tuple[str, ...], size: Array, summed: Array
    ) -> Holder:
        """How a module's options leave a tensor."""

        def state(k: int) -> LeftState:
            sharding = self.tables.each[k]
            spec = sharding.spec(module, axes)
            over = sharding.spec(module, contracted) if contracted else {}
            partial = tuple(dict.fromkeys(g for groups in over.values() for g in groups))
            spec = {c: kept for c, g in spec.items() if (kept := tuple(x for x in g if x not in partial))}
            return LeftState(spec_key(spec), partial, float(size[k]), float(summed[k]))

        return self.tables.module(module, state)

    def _op(self, op: Op, local: Op) -> None:
        tables, count = self.tables, len(self.tables.options.get(op.module, (0,)))
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
        if getattr(op, "adds", False) and tables.rules.sums == "at reader":
            self._sum_first(op)
        else:
            for place, tensor in enumerate(op.inputs):
                self._read(op, local, place, tensor)
        size, summed = per_option(local.output_bytes(), count), per_option(local.partial_bytes(), count)
        left = self._left(op.module, op.result_axes(), op.contracted_axes(), size, summed)
        if any(state.partial for state in left.states):
            left = self._summed_here(op, left)
        self.holders[op.output] = left

    def _summed_here(self, op: Op, left: Holder) -> Holder:
        """Sums that stand with the kernel itself: of weights' gradients, and all where rules say so; what
        nobody reads must not stay partial.
        """
        tables, unread = self.tables, not self.uses.get(op.output)
        at_kernel = tables.rules.sums == "at kernel"
        if not (at_kernel or unread or op.weight_gradient):
            return left
        weight = self.once if op.weight_gradient else self.weight

        def cost(s: LeftState) -> float:
            if not (at_kernel or op.weight_gradient):
                return np.inf if s.partial else 0.0
            payload = s.bytes if op.weight_gradient else s.summed
            return sum(tables.collective("all_reduce", g, payload, weight) for g in s.partial)

        tables.add(np.array([cost(s) for s in left.states]), left)
        return replace(left, states=tuple(replace(s, partial=()) for s in left.states))

    def _wants(self, op: Op, local: Op, place: int) -> Holder:
        """What the options of an op want of an operand: its layout, and its bytes where the op knows them."""
        axes = tuple(a for a in op.operand_axes(place) if a not in op.whole_axes())
        own = local.operand_bytes(place)
        count = len(self.tables.options.get(op.module, (0,)))
        sizes = None if own is None else per_option(own, count)

        def want(k: int) -> tuple[SpecKey, float | None]:
            spec = spec_key(self.tables.each[k].spec(op.module, axes))
            return spec, None if sizes is None else float(sizes[k])

        return self.tables.module(op.module, want)

    def _read(self, op: Op, local: Op, place: int, tensor: str) -> None:
        stored = op.stored_axes(place)
        wants = self._wants(op, local, place)
        if stored:
            zero = np.zeros(len(self.tables.options.get(op.module, (0,))))
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

    def _sum_first(self, op: Op) -> None:
        """Operands that are added up: partial ones on each rank first, then once between ranks."""
        tables, wants = self.tables, self._wants(op, op, 0)
        mine = [t for t in op.inputs if t in self.holders]
        before = {t: self.holders[t] for t in mine}
        for tensor in mine:
            self._step(tensor, wants, self._add_up)
        summed = [h for h in before.values() if any(s.partial for s in h.states)]
        if not summed:
            return
        sizes = Holder("", (None,), np.array([0]))
        if self.block.output is not None:
            known = self._boundary_bytes("output")
            sizes = tables.module(self.block.role, lambda k: float(known[k]))
        state = Holder("", (NO_SUM,), np.array([0]))
        for number, holder in enumerate(summed):
            last = number == len(summed) - 1
            name = f"{self.name}:{op.name}+{number}"
            state = self._gathered_sum(name, state, holder)
            if last:
                cost = [[self._sum_cost(s, size) for size in sizes.states] for s in state.states]
                table = np.array(cost)
                if sizes.variable:
                    tables.add(table, state, sizes)
                else:
                    tables.add(table[:, 0], state)

    def _gathered_sum(self, name: str, state: Holder, holder: Holder) -> Holder:
        """Sums so far (how many, over which groups, bytes of the last) with one more operand."""

        def one_more(so_far: SumSoFar, left: LeftState) -> tuple[float, SumSoFar]:
            if not left.partial:
                return 0.0, so_far
            groups = tuple(dict.fromkeys((*so_far.groups, *left.partial)))
            return 0.0, SumSoFar(min(so_far.count + 1, 2), groups, left.summed, left.spec)

        if state.variable:
            made = self.tables.stepped(name, one_more, state, holder, True)
            assert made is not None
            return made
        found: dict[Hashable, int] = {}
        first = [found.setdefault(one_more(state.states[0], s)[1], len(found)) for s in holder.states]
        return Holder(holder.variable, tuple(found), np.array(first)[holder.place])

    def _sum_cost(self, so_far: SumSoFar, boundary: float | None) -> float:
        payload = so_far.summed if so_far.count < 2 or boundary is None else boundary
        return sum(self.tables.collective("all_reduce", g, payload, self.weight) for g in so_far.groups)

    def _add_up(self, state: LeftState, want: tuple[SpecKey, float | None]) -> tuple[float, LeftState]:
        """An operand of a sum: a partial one is added up as it lies, and must then be where it is wanted."""
        if not state.partial:
            return self._convert(state, want)
        after = replace(state, partial=())
        return (np.inf if conversions(state.layout(), (), dict(want[0])) else 0.0), after

    def _close(self, leaves: tuple[str, ...]) -> None:
        """What the block hands on lies as its boundary says."""
        tables, output, role = self.tables, self.block.output, self.block.role
        known = None if output is None else self._boundary_bytes("output")
        axes = () if output is None else output.axes

        def want(k: int) -> tuple[SpecKey, float | None]:
            spec = spec_key(tables.each[k].spec(role, axes))
            return spec, None if known is None else float(known[k])

        wants, mine = tables.module(role, want), [t for t in leaves if t in self.holders]
        if not mine or role not in tables.options:
            return
        sums = Holder("", (NO_SUM,), np.array([0]))
        for number, tensor in enumerate(mine):
            if any(s.partial for s in self.holders[tensor].states):
                sums = self._gathered_sum(f"{self.name}:leaves+{number}", sums, self.holders[tensor])
        if sums.variable:
            table = np.array([[self._leaving_sum(s, w) for w in wants.states] for s in sums.states])
            tables.add(table, sums, wants)
        for tensor in mine:
            self._handed_on(self.holders[tensor], sums, wants)

    def _sums_of(self, so_far: SumSoFar, want: tuple[SpecKey, float | None]) -> list[Conversion]:
        """The collectives that add up what leaves a block, in pieces where its boundary wants them so."""
        return conversions(dict(so_far.spec), so_far.groups, dict(want[0]))[: len(so_far.groups)]

    def _leaving_sum(self, so_far: SumSoFar, want: tuple[SpecKey, float | None]) -> float:
        payload = so_far.summed if so_far.count < 2 or want[1] is None else want[1]
        made = self._sums_of(so_far, want)
        sizes = held_before(made, self.tables.every)
        return sum(
            self.tables.collective(one.pattern, one.group, float(payload * size), self.weight)
            for one, size in zip(made, sizes, strict=True)
        )

    def _handed_on(self, holder: Holder, sums: Holder, wants: Holder) -> None:
        """A result that was added up where it was partial, brought to where the boundary wants it."""
        tables, degrees = self.tables, self.tables.every.degrees

        def cost(s: LeftState, so_far: SumSoFar, want: tuple[SpecKey, float | None]) -> float:
            if s.partial:
                s = _summed(s, self._sums_of(so_far, want), degrees)
            made, total = conversions(s.layout(), (), dict(want[0])), 0.0
            for one, size in zip(made, held_before(made, tables.every), strict=True):
                whole = degrees[one.group] if one.gathered else 1.0
                payload = float(s.bytes / s.pieces * size * whole)
                total += tables.collective(one.pattern, one.group, payload, self.weight)
            return total

        if any(s.partial for s in holder.states):
            every = [[[cost(s, f, w) for w in wants.states] for f in sums.states] for s in holder.states]
            tables.add(np.array(every), holder, sums, wants)
        else:
            tables.add(
                np.array([[cost(s, NO_SUM, w) for w in wants.states] for s in holder.states]), holder, wants
            )


def _summed(state: LeftState, made: list[Conversion], degrees: dict[str, Number]) -> LeftState:
    """A tensor whose partial sums were added up, in pieces where its first reader wanted them so."""
    spec, pieces = state.layout(), state.pieces
    for one in made:
        if one.pattern == "reduce_scatter":
            spec[one.onto] = (*spec.get(one.onto, ()), one.group)
            pieces = pieces * float(degrees[one.group])
    return replace(state, partial=(), spec=spec_key(spec), pieces=pieces)
