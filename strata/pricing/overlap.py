"""Communication that runs beside computation, and links that two collectives share."""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.hardware.fabric import Fabric
from strata.mapping.place import Spread


def exposed(communication: Number, cover: Number) -> Number:
    r"""Communication time that remains when it may run beside so much computation [s].

    .. math:: T = \max(0, c - h)

    No contention for cores or memory; the first and last pieces are not held back.

    >>> float(exposed(3.0, 2.0)), float(exposed(1.0, 2.0))
    (1.0, 0.0)
    """
    return namespace(communication, cover).maximum(communication - cover, 0.0)


def beside(communication: Number, work: Number, busy: Number) -> Number:
    r"""Time that communication adds to work whose own collectives keep the same links busy for a part of it [s].

    .. math:: T = \max(0, c - (w - b))

    communication c; work w with its own collectives; b of it on links that c needs as well. Work and communication together
    never take less than the links they share: :math:`w + T \ge b + c`.

    >>> float(beside(3.0, 4.0, 0.0)), float(beside(3.0, 4.0, 2.0))
    (0.0, 1.0)
    """
    xp = namespace(work, busy)
    return exposed(communication, xp.maximum(work - busy, 0.0))


def share_links(one: tuple[Spread, ...], other: tuple[Spread, ...], fabric: Fabric) -> Number:
    """1 where two groups have links in common, else 0: a dimension that both cross, or whose traffic leaves by the same links.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.mapping.place import spread
    >>> two = sized(fabric("hgx-h200"), (8, 4))
    >>> inner, across, all_of_it = spread(1.0, 8.0, two), spread(8.0, 4.0, two), spread(1.0, 32.0, two)
    >>> [float(share_links(*pair, two)) for pair in ((inner, across), (inner, all_of_it), (across, all_of_it))]
    [0.0, 1.0, 1.0]
    """
    found: Number = 0.0
    links = [d.through or d.name for d in fabric.dimension]
    for mine, a in zip(links, one, strict=True):
        for theirs, b in zip(links, other, strict=True):
            if mine == theirs:
                xp = namespace(a.size, b.size, found)
                found = xp.where((a.size > 1) & (b.size > 1), 1.0, found)
    return found
