"""What a design may choose: shares of budgets, real numbers between limits, and choices out of a list.

A batch of designs is a matrix, a row each: columns of shares class by class, then real numbers, then choices
by their place in the list.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from strata.base.arrays import Array, namespace
from strata.base.errors import require


def project_shares(shares: Array, floor: float = 0.0, total: float = 1.0) -> Array:
    r"""The nearest shares [..., n] that keep a floor each and add up to at most the total.

    .. math:: \Pi(w) = \max(w - \theta, f), \quad
              \theta = \max_{1 \le k \le n} \frac{1}{k} \Big( \sum_{i \le k} (w_{(i)} - f) - (T - n f) \Big)

    w_(i) in falling order; f floor, T total, both in the unit of w. Where the shares add up to less than the
    total, :math:`\theta = 0`. Euclidean distance; every row by itself, n >= 1,
    n f <= T.

    Held, Wolfe & Crowder, Math. Program. 6 (1974), sec. 3; Duchi et al., ICML 2008, Fig. 1. That the pivot is
    the largest of the quotients follows from their falling off on both sides of it, and needs no search.

    >>> import numpy as np
    >>> project_shares(np.array([0.9, 0.3, 0.2])).round(4).tolist()
    [0.7667, 0.1667, 0.0667]
    >>> project_shares(np.array([0.2, -0.1])).tolist()
    [0.2, 0.0]
    """
    count = shares.shape[-1]
    require(
        count * floor <= total, "floors of all shares fit the total", parts=count, floor=floor, total=total
    )
    xp = namespace(shares)
    above = shares - floor
    falling = xp.sort(above, axis=-1)[..., ::-1]
    spent = xp.cumsum(falling, axis=-1) - (total - count * floor)
    pivot = xp.max(spent / xp.arange(1.0, count + 1.0), axis=-1, keepdims=True)
    over = xp.sum(xp.maximum(above, 0.0), axis=-1, keepdims=True) > total - count * floor
    projected: Array = xp.maximum(above - xp.where(over, pivot, 0.0), 0.0) + floor
    return projected


# of a budget: least that a share has above its floor, or that is left over, where its logarithm is asked for
LEAST_ROOM = 1e-6


@dataclass(frozen=True, kw_only=True)
class ShareClass:
    """A budget that is split: area, power or perimeter; shares add up to at most the total."""

    name: str
    members: tuple[str, ...]
    floor: float = 0.0
    total: float = 1.0

    @property
    def room(self) -> float:
        """What is shared out above the floors."""
        return self.total - len(self.members) * self.floor


@dataclass(frozen=True, kw_only=True)
class RealVariable:
    """A number between two limits, searched along its logarithm."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ChoiceVariable:
    """One of a list: a number of memory stacks, a strategy, a shape of the model. No slope leads along it."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DesignVariables:
    """All that is free, as columns of a matrix of designs."""

    shares: tuple[ShareClass, ...] = ()
    reals: tuple[RealVariable, ...] = ()
    choices: tuple[ChoiceVariable, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every column: CLASS.MEMBER of shares, then real numbers and choices by their names."""
        split = [f"{c.name}.{m}" for c in self.shares for m in c.members]
        return (*split, *(r.name for r in self.reals), *(c.name for c in self.choices))

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Columns of each class of shares."""
        ends = list(itertools.accumulate((len(c.members) for c in self.shares), initial=0))
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))

    @property
    def share_count(self) -> int:
        return sum(len(c.members) for c in self.shares)

    @property
    def smooth_count(self) -> int:
        """Columns that have a slope: shares and real numbers, which stand first."""
        return self.share_count + len(self.reals)

    @property
    def reals_at(self) -> slice:
        """Columns of real numbers."""
        return slice(self.share_count, self.smooth_count)

    @property
    def combinations(self) -> int:
        """Combinations of choices."""
        return math.prod(len(c.labels) for c in self.choices)

    @cached_property
    def _limits(self) -> tuple[Array, Array]:
        return np.array([r.low for r in self.reals]), np.array([r.high for r in self.reals])

    def column(self, name: str) -> int:
        """The place of a column."""
        require(name in self.names, f"a free variable is one of {', '.join(self.names)}", name=name)
        return self.names.index(name)

    def project(self, designs: Array) -> Array:
        """The nearest designs that keep every floor, budget and limit."""
        made = np.array(designs, float)
        for own, block in zip(self.shares, self.blocks, strict=True):
            made[:, block] = project_shares(made[:, block], own.floor, own.total)
        made[:, self.reals_at] = np.clip(made[:, self.reals_at], *self._limits)
        for k, choice in enumerate(self.choices, self.smooth_count):
            made[:, k] = np.clip(np.rint(made[:, k]), 0, len(choice.labels) - 1)
        return made

    def clipped(self, designs: Array) -> Array:
        """Designs whose shares are at most 1 each and whose numbers keep limits; budgets may be passed."""
        made = np.array(designs, float)
        made[:, : self.share_count] = np.minimum(made[:, : self.share_count], 1.0)
        made[:, self.reals_at] = np.clip(made[:, self.reals_at], *self._limits)
        return made

    def within_budgets(self, designs: Array) -> Array:
        """Whether designs keep every budget and limit; a probe of a search may not."""
        both = zip(self.shares, self.blocks, strict=True)
        sums = [designs[:, block].sum(axis=1) <= own.total * (1.0 + 1e-9) for own, block in both]
        real, (low, high) = designs[:, self.reals_at], self._limits
        inside = np.all((real >= low * (1 - 1e-9)) & (real <= high * (1 + 1e-9)), axis=1)
        kept: Array = np.all([inside, *sums], axis=0)
        return kept

    def random(self, rng: np.random.Generator, count: int) -> Array:
        """Designs drawn evenly over what is free, budgets spent; combinations of choices come in turn."""
        made = np.empty((count, len(self.names)))
        for own, block in zip(self.shares, self.blocks, strict=True):
            drawn = rng.dirichlet(np.ones(len(own.members)), count)
            made[:, block] = own.floor + own.room * drawn
        low, high = self._limits
        span = rng.random((count, len(self.reals)))
        made[:, self.reals_at] = low * (high / low) ** span
        made[:, self.smooth_count :] = self.combination(
            (np.arange(count) + int(rng.integers(self.combinations))) % self.combinations
        )
        return made

    def combination(self, index: Array) -> Array:
        """Choices [N, choices] of some combinations by their number."""
        sizes = tuple(len(c.labels) for c in self.choices)
        if not sizes:
            return np.empty((len(index), 0))
        return np.stack(np.unravel_index(index, sizes), axis=1).astype(float)

    def to_free(self, designs: Array) -> Array:
        r"""Coordinates without limits of the columns that have a slope.

        .. math:: z_i = \ln \frac{w_i - f}{\sum_j (w_j - f)}, \qquad z = \ln x

        shares w above their floor f; real numbers x. What a split leaves over is not kept: no part of a chip
        gets slower by a larger budget, so that searches along these coordinates spend all of it.
        """
        made = np.empty((len(designs), self.smooth_count))
        for own, block in zip(self.shares, self.blocks, strict=True):
            above = np.maximum(designs[:, block] - own.floor, LEAST_ROOM)
            made[:, block] = np.log(above / above.sum(axis=1, keepdims=True))
        made[:, self.reals_at] = np.log(designs[:, self.reals_at])
        return made

    def from_free(self, free: Array, choices: Array) -> Array:
        """Designs of free coordinates; every one keeps its floors, budgets and limits."""
        made = np.empty((len(free), len(self.names)))
        for own, block in zip(self.shares, self.blocks, strict=True):
            made[:, block] = own.floor + own.room * _soft_shares(free[:, block])
        low, high = self._limits
        made[:, self.reals_at] = np.clip(
            np.exp(np.clip(free[:, self.reals_at], np.log(low), np.log(high))), low, high
        )
        made[:, self.smooth_count :] = choices
        return made

    def free_slope(self, free: Array, slope: Array) -> Array:
        r"""A slope along designs as one along free coordinates.

        .. math:: \frac{\partial t}{\partial z_j} = r s_j \Big( g_j - \sum_i s_i g_i \Big), \qquad
                  \frac{\partial t}{\partial z} = x g

        s share of the room r above the floors, g slope along w or x.
        """
        made = np.empty_like(free)
        for own, block in zip(self.shares, self.blocks, strict=True):
            soft = _soft_shares(free[:, block])
            mean = np.sum(soft * slope[:, block], axis=1, keepdims=True)
            made[:, block] = own.room * soft * (slope[:, block] - mean)
        made[:, self.reals_at] = np.exp(free[:, self.reals_at]) * slope[:, self.reals_at]
        return made


def _soft_shares(free: Array) -> Array:
    """Shares of a whole by their logarithms."""
    parts = np.exp(free - free.max(axis=1, keepdims=True))
    whole: Array = parts / parts.sum(axis=1, keepdims=True)
    return whole
