"""Pieces of work that a sampler asks for: pure, picklable, done the same way by every executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from strata.search.points import Evaluated, evaluate_points

if TYPE_CHECKING:
    from strata.search.space import Space


class Work(Protocol):
    """What a worker does for a sampler: any picklable record with `perform`, which is a pure function of the
    space and of the record.
    """

    def perform(self, space: Space, backend: str) -> Any: ...


@dataclass(frozen=True, eq=False)
class PointsWork:
    """Points to evaluate, a row of digits each; done, they are an `Evaluated`."""

    digits: np.ndarray

    def perform(self, space: Space, backend: str) -> Evaluated:
        return evaluate_points(space, self.digits, backend)


def perform(space: Space, work: Work, backend: str = "numpy") -> Any:
    """A piece of work, done: the one function that every executor calls, wherever it runs."""
    return work.perform(space, backend)
