"""The system as its files have it, as a point of a space: where samplers that learn begin."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from strata.search.axes import DesignAxis
    from strata.search.scenario import Scenario
    from strata.search.space import Space

ROUND = 1 << 15  # points of a round


def stated_points(space: Space, rng: np.random.Generator, count: int) -> np.ndarray:
    """The system as described, with at most so many of its plans drawn at random: legal points, each once."""
    if space.scenario is None:  # a grid that stands for no system
        return np.empty((0, len(space.axes)), np.int64)
    rows = np.repeat(described(space, rng)[None], count, axis=0)
    for i, axis in enumerate(space.axes):
        if axis.kind == "plan":
            rows[1:, i] = rng.integers(0, len(axis), count - 1)
    legal = rows[np.asarray(space.legal(rows))]
    return legal[np.sort(np.unique(space.index(legal), return_index=True)[1])]


def described(space: Space, rng: np.random.Generator) -> np.ndarray:
    """The legal point nearest to the system as its file has it: numbers nearest to its own, its words, the
    variant that changes nothing.

    A quantity that the file leaves open is not limited there: it takes its highest choice that is legal with
    the others.
    """
    own = [_own(axis, space.scenario) for axis in space.axes]
    lists = [
        range(len(axis) - 1, -1, -1) if k is None else [k] for axis, k in zip(space.axes, own, strict=True)
    ]
    for block in combinations_in_blocks(itertools.product(*lists), ROUND):
        legal = block[np.asarray(space.legal(block))]
        if len(legal):
            return np.asarray(legal[0])
    drawn, wanted = space.random(rng, 4096), np.array([c[0] for c in lists])
    return np.asarray(drawn[np.argmin((drawn != wanted).sum(axis=1))])


def _own(axis: DesignAxis, scenario: Scenario) -> int | None:
    """The choice of an axis that is nearest to what its first field is in the scenario; None where the file
    leaves it open.
    """
    if axis.kind == "times":
        return int(np.argmin(np.abs(np.array(axis.values, float) - 1.0)))
    if axis.kind == "plan":
        return 0
    if axis.kind == "variant":
        return next((k for k, own in enumerate(axis.values) if not own), 0)
    own = scenario.base_value(axis.fields[0])
    if axis.kind == "word":
        return axis.values.index(own) if own in axis.values else 0
    return None if own is None else int(np.argmin(np.abs(np.array(axis.values, float) - float(own))))


def combinations_in_blocks(combinations: Iterator[tuple[int, ...]], size: int) -> Iterator[np.ndarray]:
    """Combinations of choices, some at a time, a row each."""
    while block := list(itertools.islice(combinations, size)):
        yield np.array(block, np.int64).reshape(len(block), -1)
