"""Tables of layouts under construction: states of tensors, who holds them, and what a collective adds."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadValue
from strata.mapping.layout import Conversion, PartitionSpec, Sharding
from strata.optimise.layouts.factor_graph import Factor, FactorGraph
from strata.optimise.layouts.layout_options import LayoutRules, ModuleOptions, per_option
from strata.pricing.pricers import Rank, price_op
from strata.workload.graph import Block, Collective, Graph

STATES_LIMIT = 40_000_000  # entries of one table of states
SpecKey = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class LeftState:
    """How a tensor was left, and which conversions of it have been made."""

    spec: SpecKey
    partial: tuple[str, ...] = ()
    bytes: float = 0.0
    summed: float = 0.0
    pieces: float = 1.0
    done: frozenset[Conversion] = frozenset()

    def layout(self) -> PartitionSpec:
        return dict(self.spec)


PartialSums = tuple[LeftState, ...]  # of operands that are added up: one for each way they lie


@dataclass(frozen=True, eq=False)
class Holder:
    """The variable that knows how a tensor lies: a module, or states of a tensor that was read before.

    `states` are those it may have, `place` says which one each option of the variable is.
    """

    variable: str
    states: tuple[Any, ...]
    place: Array


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """What a rank keeps, in bytes for each weight, each byte of weights, and each byte of results."""

    element: float = 0.0
    weight: float = 1.0
    result: float = 0.0


@dataclass(eq=False)
class LayoutTables:
    """Tables of a graph's layouts under construction. `hidden`: variables that are states, not choices."""

    graph: Graph
    rules: LayoutRules
    rank: Rank
    options: dict[str, ModuleOptions]
    each: list[Sharding]
    every: Sharding
    factors: FactorGraph
    hidden: set[str] = field(default_factory=set)
    prices: dict[tuple[str, str, float], float] = field(default_factory=dict)
    # by module and option, what one rank keeps: elements and bytes of weights, bytes of results
    elements: dict[str, Array] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    results: dict[str, Array] = field(default_factory=dict)

    def collective(self, pattern: str, group: str, payload: float, weight: float) -> float:
        """What one collective adds to the objective."""
        if payload <= 0:
            return 0.0
        if self.rules.objective == "bytes":
            whole = pattern == "all_to_all" and self.rules.exchanged == "tensor"
            return weight * payload * (float(self.every.degrees[group]) if whole else 1.0)
        key = (pattern, group, payload)
        if key not in self.prices:
            op = Collective(pattern=pattern, group=group, payload=payload)
            self.prices[key] = float(price_op(op, self.rank).time)
        return weight * self.prices[key]

    def held(self, keeps: RankMemory) -> dict[str, Array]:
        """Bytes that one rank keeps, by module and option."""
        return {
            m: keeps.element * self.elements[m] + keeps.weight * w + keeps.result * self.results[m]
            for m, w in self.weights.items()
        }

    def count(self, module: str) -> int:
        """Options of a module; one where nothing divides it."""
        return len(self.options[module]) if module in self.options else 1

    def left(
        self, module: str, axes: tuple[str, ...], contracted: tuple[str, ...], option: int
    ) -> tuple[PartitionSpec, tuple[str, ...]]:
        """How an option of a module leaves a tensor: its layout, and groups over which it is partial."""
        sharding = self.each[option]
        over = sharding.spec(module, contracted) if contracted else {}
        partial = tuple(dict.fromkeys(g for groups in over.values() for g in groups))
        spec = sharding.spec(module, axes)
        return {
            c: kept for c, g in spec.items() if (kept := tuple(x for x in g if x not in partial))
        }, partial

    def entry_bytes(self, block: Block) -> Array:
        """Bytes of what a block takes in, by option of its boundary."""
        assert block.entry is not None
        extents = (self.every.axis(block.role, e.axis).local(e) if e.axis else e for e in block.entry.extents)
        return per_option(replace(block.entry, extents=tuple(extents)).bytes(), self.count(block.role))

    def module(self, name: str, key: Callable[[int], Hashable]) -> Holder:
        """A module as the holder of what `key` says of each of its options."""
        found: dict[Hashable, int] = {}
        place = [found.setdefault(key(k), len(found)) for k in range(self.count(name))]
        return Holder(name, tuple(found), np.array(place))

    def add(self, table: Array, *holders: Holder) -> None:
        """A table over states of some holders, as a factor over their variables."""
        if not np.any(table):
            return
        full = table[np.ix_(*(h.place for h in holders))]
        fixed = tuple(0 if h.variable not in self.factors.domains else slice(None) for h in holders)
        full, names = full[fixed], [h.variable for h in holders if h.variable in self.factors.domains]
        letters = {name: chr(97 + i) for i, name in enumerate(dict.fromkeys(names))}
        if len(letters) < len(names):  # one variable twice: its diagonal
            full = np.where(np.isfinite(full), full, 1e300)
            full = np.einsum(f"{''.join(letters[n] for n in names)}->{''.join(letters.values())}", full)
            full = np.where(full >= 1e300, np.inf, full)
        self.factors.factors.append(Factor(tuple(letters), full))

    def stepped(
        self,
        name: str,
        step: Callable[[Any, Any], tuple[float, Any]],
        first: Holder,
        second: Holder,
        onward: bool,
    ) -> Holder | None:
        """Costs of a step over two holders, and the holder of the state it leaves, where it is needed."""
        cost = np.zeros((len(first.states), len(second.states)))
        found: dict[Hashable, int] = {}
        after = np.zeros(cost.shape, int)
        met = {(a, b) for a, b in zip(first.place, second.place, strict=False)}
        alike = first.variable == second.variable
        for i, a in enumerate(first.states):
            for j, b in enumerate(second.states):
                if alike and (i, j) not in met:
                    continue
                cost[i, j], state = step(a, b)
                after[i, j] = found.setdefault(state, len(found))
        if not onward:
            self.add(cost, first, second)
            return None
        made = Holder(name, tuple(found), np.arange(len(found)))
        if len(first.place) * len(second.place) * len(found) > STATES_LIMIT:
            raise BadValue(
                f"{name.partition('#')[0]} may lie in too many ways for all its readers on this mesh: "
                "take fewer dimensions, or pin some modules"
            )
        moved = np.full((*cost.shape, len(found)), np.inf)
        np.put_along_axis(moved, after[..., None], cost[..., None], -1)
        self.factors.domains[name] = len(found)
        self.hidden.add(name)
        self.add(moved, first, second, made)
        return made


def spec_key(spec: PartitionSpec) -> SpecKey:
    """A layout of a tensor as something that can be hashed."""
    return tuple(sorted(spec.items()))


def one_more_sum(every: PartialSums, left: LeftState) -> PartialSums:
    """Partial sums with one more operand, where it is one: added to those that lie alike on each rank.

    >>> two = one_more_sum((LeftState((), ("tp",)),), LeftState((), ("cp",)))
    >>> [(one.spec, one.partial) for one in two]
    [((), ('tp', 'cp'))]
    """
    if not left.partial:
        return every
    before = next((one.partial for one in every if one.spec == left.spec), ())
    groups = tuple(dict.fromkeys((*before, *left.partial)))
    others = (one for one in every if one.spec != left.spec)
    return tuple(sorted((*others, replace(left, partial=groups)), key=lambda one: one.spec))
