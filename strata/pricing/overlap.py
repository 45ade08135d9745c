"""Communication that runs beside computation."""

from __future__ import annotations

from strata.arrays import Number, namespace


def exposed(communication: Number, cover: Number) -> Number:
    r"""Communication time that remains when it may run beside so much computation [s].

    .. math:: T = \max(0, c - h)

    No contention for cores or memory; the first and last pieces are not held back.

    >>> float(exposed(3.0, 2.0)), float(exposed(1.0, 2.0))
    (1.0, 0.0)
    """
    return namespace(communication, cover).maximum(communication - cover, 0.0)
