"""Time to first token, defined once: what a client sees of an engine in its steady state, its mean and the
time that a share of requests does not exceed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import require
from strata.serving.queueing import wait_within_share

HALVINGS_OF_TIME = 50  # of an interval that holds a quantile
SHORTEST = 1e-15  # stands for times of nothing where they divide [s]


@dataclass(frozen=True, eq=False, kw_only=True)
class FirstToken:
    r"""From a request's arrival to its first token.

    .. math:: T = A + V + W + U + R

    A until the engine takes the request in; V until it has a slot for a sequence; W until the prompts before
    are read; U the rest of the step under way; R reading its own prompt, beside sequences in flight. An
    arrival finds the engine in one of some states (last axis): none in flight, 1, 2, ..., with a `chance`;
    A + R is then certain (`base`), U uniform over a step (`step`). W is nothing, or with the chance `waiting`
    exponential (Kingman 1965), V likewise. A share q of requests has its first token within the quantile of
    W + U + base plus that of V: waits for slots fall on those that wait anyway.
    """

    chance: Array  # of each state [..., states]
    base: Array  # taking in and reading [s]
    step: Array  # under way at an arrival [s]
    queued: Array  # mean of W over all requests [s]
    waiting: Array  # chance that W is not nothing
    slot: Array  # mean of V over all requests [s]
    full: Array  # chance that V is not nothing

    @property
    def under_way(self) -> Array:
        """Mean of U [s]."""
        with np.errstate(invalid="ignore"):  # a plan that is out has no times
            return np.asarray(0.5 * np.sum(self.chance * self.step, axis=-1))

    @property
    def mean(self) -> Array:
        """Mean time to first token [s]."""
        with np.errstate(invalid="ignore"):  # a plan that is out has no times
            read = np.sum(self.chance * self.base, axis=-1)
        return np.asarray(read + self.under_way + self.queued + self.slot)

    def at(self, *index: Any) -> FirstToken:
        return FirstToken(**{f.name: np.asarray(getattr(self, f.name))[index] for f in fields(self)})

    def _share_within(self, time: Array) -> Array:
        r"""Share of requests for which W + U + base is not above a time.

        .. math:: F(y) = (1 - P) \frac{a}{s} + P \left(\frac{a}{s}
            - \frac{w}{s} e^{-(y-a)/w} (1 - e^{-a/w})\right), \quad a = \min(\max(y, 0), s)

        y the time after `base`, step s, chance P to wait and then w on average; summed over states.
        """
        y = time[..., None] - self.base
        step = np.maximum(self.step, SHORTEST)
        waiting = np.asarray(self.waiting)[..., None]
        each = np.maximum(np.asarray(self.queued)[..., None] / np.maximum(waiting, 1e-12), SHORTEST)
        at = np.clip(y, 0.0, step)
        at = np.where(y >= step, step, at)
        late = each / step * np.exp(-np.maximum(y - at, 0.0) / each) * -np.expm1(-at / each)
        return np.sum(self.chance * np.where(y >= 0.0, at / step - waiting * late, 0.0), axis=-1)

    def _slot_within(self, share: float) -> Array:
        return np.maximum(wait_within_share(self.slot, self.full, share), self.slot)

    @property
    def _least(self) -> Array:
        """Percentiles are not below this: fewer than their share of requests wait at light load, so that the
        plain quantile lies under the mean. Those who wait deviate by at least their mean."""
        return self.mean + self.queued

    def within_share(self, share: float) -> Array:
        """The time to first token that a share of requests does not exceed [s], for a share of at least half;
        never below the mean.

        >>> one = np.ones(1)
        >>> busy = FirstToken(chance=one, base=one, step=0 * one, queued=np.array(1.0), waiting=np.array(0.5),
        ...     slot=np.array(0.0), full=np.array(0.0))  # M/M/1 at half load, after 1 s
        >>> round(float(busy.within_share(0.95)), 3), float(busy.mean)
        (5.605, 2.0)
        """
        require(0.5 <= share < 1.0, "a share of requests lies between 0.5 and 1", share=share)
        with np.errstate(invalid="ignore", over="ignore"):
            known = np.isfinite(self.mean)
            each = np.where(known, self.queued / np.maximum(self.waiting, 1e-12), 0.0)
            low = np.where(known, np.min(self.base, axis=-1), 0.0)
            high = np.where(known, np.max(self.base + self.step, axis=-1) - each * np.log(1.0 - share), 0.0)
            for _ in range(HALVINGS_OF_TIME):
                middle = 0.5 * (low + high)
                enough = self._share_within(middle) >= share
                low, high = np.where(enough, low, middle), np.where(enough, middle, high)
            late = np.maximum(high + self._slot_within(share), self._least)
            return np.where(known, late, np.inf)

    def keeps(self, limit: float, share: float) -> Array:
        """Whether a share of requests has its first token within a limit [s]: `within_share` without looking
        for the time.
        """
        require(0.5 <= share < 1.0, "a share of requests lies between 0.5 and 1", share=share)
        if not np.isfinite(limit):
            return np.isfinite(self.mean)
        with np.errstate(invalid="ignore", over="ignore"):
            left = limit - self._slot_within(share)
            return (self._share_within(np.asarray(left)) >= share) & (self._least <= limit)
