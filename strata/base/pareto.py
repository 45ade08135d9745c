"""Points that no other point beats."""

from __future__ import annotations

import numpy as np


def non_dominated(scores: np.ndarray) -> np.ndarray:
    """Mask of the rows of [N, M] scores, larger is better, that no other row dominates.

    Of equal rows the first is kept; rows with -inf never are.

    >>> non_dominated(np.array([[1.0, -5.0], [2.0, -6.0], [2.0, -7.0], [-np.inf, -np.inf]])).tolist()
    [True, True, False, False]
    """
    kept = np.zeros(len(scores), bool)
    # From the greatest row down, each row that is still there is on the frontier and removes all that it
    # dominates.
    left = np.flatnonzero((scores > -np.inf).all(axis=1))
    left = left[np.lexsort((left, *(-scores[left, m] for m in reversed(range(scores.shape[1])))))]
    while len(left):
        kept[left[0]] = True
        left = left[(scores[left] > scores[left[0]]).any(axis=1)]
    return kept
