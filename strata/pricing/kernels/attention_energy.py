"""What fused attention draws power for beside its products: scores, and sums of gradients in the cache."""

from __future__ import annotations

from strata.arrays import Number
from strata.hardware.chip import Chip

SUMMED_BYTES = 8.0  # an element of a sum in fp32, read and written where it is added to


def score_energy(scores: Number, chip: Chip, *, backward: bool) -> Number:
    r"""Energy between the products of attention [J].

    .. math:: E = e_s n \cdot (1 \text{ or } s_b)

    n scores, whole blocks of them, at e_s each (`energy.score`: exponential, sums, rounding, local memory);
    the backward pass has s_b times the vector work of a score (`compute.softmax_backward`). 0 where a chip
    says nothing of it.

    Measured on one H200: both passes run at the power limit, at 0.86 of the highest clock.

    >>> from strata.hardware.chip import chip
    >>> [round(score_energy(1e9, chip("h200"), backward=back), 3) for back in (False, True)]
    [0.155, 0.496]
    """
    each, more = chip.energy.score, chip.compute.softmax_backward
    if each is None:
        return 0.0
    return each * scores * (more if backward and more is not None else 1.0)


def gradient_sum_bytes(rows: Number, width: Number) -> Number:
    r"""Bytes through the shared cache that only a backward pass of attention moves [B].

    .. math:: b = 8 \, n \, d

    a core holds a block of keys while queries pass: queries and gradients of results are as many bytes as
    keys and values of a forward pass; but the gradient of each query, of `width` d, is added in fp32, read
    and written in the shared cache, for every block of keys, as long as one of queries: n = keys that all
    blocks of queries walk. It shows in power alone: cores are busy longer.

    Dao, FlashAttention-2, arXiv 2307.08691, sec. 3.1.2: atomic additions to dQ.

    >>> gradient_sum_bytes(32.0 * 2112.5, 128.0)  # a head of 4096 queries and keys
    69222400.0
    """
    return SUMMED_BYTES * rows * width
