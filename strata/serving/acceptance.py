"""How far guesses of a draft carry: tokens a verified guess yields, as a sequence or as a tree. Pure, for
numbers and arrays.
"""

from __future__ import annotations

from collections.abc import Callable

from strata.arrays import Number, namespace


def expected_tokens(depth: Number, acceptance: Number) -> Number:
    r"""Mean tokens gained by one verification of a guess of some depth, the target's own token included.

    .. math:: E = \sum_{i=0}^{w} a^i = \frac{1 - a^{w+1}}{1 - a}

    depth w of the guess; chance a that the target agrees with one more token, the same for each and
    independent of the others.

    Leviathan, Kalman & Matias, Fast Inference from Transformers via Speculative Decoding (ICML 2023), eq. 1.

    >>> expected_tokens(4.0, 0.0), expected_tokens(4.0, 1.0), round(expected_tokens(4.0, 0.8), 4)
    (1.0, 5.0, 3.3616)
    """
    xp = namespace(depth, acceptance)
    sure = acceptance > 1.0 - 1e-9
    below = xp.where(sure, 0.5, acceptance)
    return xp.where(sure, depth + 1.0, (1.0 - below ** (depth + 1.0)) / (1.0 - below))


def branch_acceptance(acceptance: Number, branches: Number) -> Number:
    r"""Chance that one of several guesses for a token is the target's.

    .. math:: \alpha = 1 - (1 - a)^b

    chance a of each of b guesses, taken as independent: an upper estimate, as a second guess is likelier
    wrong than the first.

    Chen et al., Sequoia, arXiv 2402.12374, measures how chances fall from guess to guess; equal chances are
    the limit.

    >>> branch_acceptance(0.6, 1.0), round(branch_acceptance(0.6, 2.0), 6)
    (0.6, 0.84)
    """
    return 1.0 - (1.0 - acceptance) ** branches


def tree_size(branches: Number, depth: Number) -> Number:
    r"""Guessed tokens of a full tree.

    .. math:: \sum_{i=1}^{w} b^i = \frac{b\,(b^w - 1)}{b - 1}

    branches b, depth w; a sequence has one branch and w tokens. Miao et al., SpecInfer (ASPLOS 2024), sec. 3.

    >>> tree_size(1.0, 4.0), tree_size(2.0, 3.0)
    (4.0, 14.0)
    """
    xp = namespace(branches, depth)
    single = branches < 1.5
    b = xp.where(single, 2.0, branches)
    return xp.where(single, depth, b * (b**depth - 1.0) / (b - 1.0))


def proportional_tokens(depth: Number, kept: Number) -> Number:
    r"""Mean tokens gained by one verification where a share of the guesses is kept, wherever they stand.

    .. math:: E = w k + 1

    depth w of the guess; share k of the guessed tokens that is kept, from 0 to 1. It equals
    :func:`expected_tokens` where k is what independent acceptances leave, (E - 1) / w; with the chance of one
    token in place of the share it counts tokens behind a rejected one, too, and is too high.

    DFModel (Ko et al., arXiv 2412.16432), sec. VIII-B, as its published results are counted.

    >>> proportional_tokens(4.0, 0.8), round(float(expected_tokens(4.0, 0.8)), 4)
    (4.2, 3.3616)
    """
    return depth * kept + 1.0


COUNTINGS: dict[str, Callable[[Number, Number], Number]] = {
    "independent": expected_tokens,
    "proportional": proportional_tokens,
}  # how an acceptance becomes tokens of a round
