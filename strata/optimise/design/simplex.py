"""Shares of a budget: the nearest ones that leave every part its floor and spend no more than there is."""

from __future__ import annotations

from strata.arrays import Array, namespace
from strata.errors import require


def project_shares(shares: Array, floor: float = 0.0, total: float = 1.0, fill: bool = False) -> Array:
    r"""The nearest shares [..., n] that keep a floor each and add up to at most (`fill`: exactly) the total.

    .. math:: \Pi(w) = \max(w - \theta, f), \quad
              \theta = \max_{1 \le k \le n} \frac{1}{k} \Big( \sum_{i \le k} (w_{(i)} - f) - (T - n f) \Big)

    w_(i) in falling order; f floor, T total, both in the unit of w. Where the shares add up to less than the
    total and nothing must be filled, :math:`\theta = 0`. Euclidean distance; every row by itself, n >= 1,
    n f <= T.

    Held, Wolfe & Crowder, Math. Program. 6 (1974), sec. 3; Duchi et al., ICML 2008, Fig. 1. That the pivot is
    the largest of the quotients follows from their falling off on both sides of it, and needs no search.

    >>> import numpy as np
    >>> project_shares(np.array([0.9, 0.3, 0.2])).round(4).tolist()
    [0.7667, 0.1667, 0.0667]
    >>> [project_shares(np.array([0.2, -0.1]), fill=fill).tolist() for fill in (False, True)]
    [[0.2, 0.0], [0.65, 0.35]]
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
    if not fill:
        over = xp.sum(xp.maximum(above, 0.0), axis=-1, keepdims=True) > total - count * floor
        pivot = xp.where(over, pivot, 0.0)
    projected: Array = xp.maximum(above - pivot, 0.0) + floor
    return projected
