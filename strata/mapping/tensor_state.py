"""States of tensors between the ops of a block: how each was left, and what is added up before it moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from strata.arrays import Number
from strata.mapping.layout import PLAIN, Alternative, Conversion, PartitionSpec


@dataclass(frozen=True, eq=False, slots=True)
class TensorState:
    """How a tensor was left by the op that made it, under one of the alternatives a batch has."""

    spec: PartitionSpec
    partial: tuple[str, ...] = ()
    bytes: Callable[[], Number] = float  # of one rank, before `pieces`
    summed: Callable[[], Number] = float  # as partial sums
    producer: str = ""
    alternative: Alternative = PLAIN
    pieces: Number = 1.0  # that a sum was left in

    def added_up(self, made: list[Conversion], degrees: dict[str, Number]) -> TensorState:
        """Its partial sums added up, in pieces where its first reader wanted them so."""
        spec, pieces = dict(self.spec), self.pieces
        for one in made:
            if one.pattern == "reduce_scatter":
                spec[one.onto] = (*spec.get(one.onto, ()), one.group)
                pieces = pieces * degrees[one.group]
        return replace(self, partial=(), spec=spec, pieces=pieces)


TensorStates = tuple[TensorState, ...]  # one, or one for each alternative


def alike(left: dict[str, TensorStates], tensors: Sequence[str]) -> list[tuple[str, ...]]:
    """Tensors of a sum, in order of the last of each group: partial sums that lie alike on all ranks are
    added there first and go between ranks as one; each of the others by itself.

    >>> tp = TensorState({}, ("tp",))
    >>> cut = TensorState({"rows": ("cp",)}, ("tp",))
    >>> alike({"a": (tp,), "b": (cut,), "c": (tp,), "d": (TensorState({}),)}, "abcd")
    [('b',), ('a', 'c'), ('d',)]
    """
    groups: dict[object, list[str]] = {}
    for tensor in dict.fromkeys(tensors):
        states = left.get(tensor, ())
        key: object = tensor
        if any(state.partial for state in states):
            specs = [tuple(sorted(state.spec.items())) for state in states]
            key = tuple(specs if any(spec != specs[0] for spec in specs) else specs[:1])
        groups[key] = [*groups.pop(key, []), tensor]
    return [tuple(group) for group in groups.values()]


def added(left: dict[str, TensorStates], tensors: Sequence[str]) -> TensorStates:
    """Tensors that lie alike, added up on each rank: partial sums over the groups of any of them (a rank of a
    group that one of them is whole on adds it, the others nothing), as large as the last.
    """
    every = [left.get(tensor, ()) for tensor in tensors]
    if len(every) == 1:
        return every[0]
    longest = max(every, key=len)

    def groups(place: int) -> tuple[str, ...]:
        found = (states[min(place, len(states) - 1)].partial for states in every)
        return tuple(dict.fromkeys(group for partial in found for group in partial))

    return tuple(
        replace(every[-1][min(place, len(every[-1]) - 1)], partial=groups(place), alternative=one.alternative)
        for place, one in enumerate(longest)
    )
