"""Layers that repeat in a period: how many of a kind stand among the first of them."""

from __future__ import annotations

from strata.arrays import SCALARS, Number, floor_div, has_axes, lead, namespace, rank_of


def layers_within(
    layers: Number, prefix: Number, in_prefix: bool, places: tuple[int, ...], length: int
) -> Number:
    """How many of the first layers are of a kind: all of a prefix or none, then some places of a period."""
    xp = namespace(layers, prefix)
    inside = xp.minimum(layers, prefix) if in_prefix else 0.0 * layers
    return inside + places_within(xp.maximum(layers - prefix, 0.0), places, length)


def places_within(layers: Number, places: tuple[int, ...], length: int) -> Number:
    r"""How many of the first layers stand at some places of a period.

    .. math:: n = \sum_p \left\lfloor \frac{L + \ell - 1 - p}{\ell} \right\rfloor

    L layers, a period of ℓ layers, places p in it counted from 0.

    >>> float(places_within(10.0, (3,), 4)), float(places_within(10.0, (0, 1, 2, 3), 4))
    (2.0, 10.0)
    """
    if len(places) == length:
        return layers
    if not places:
        return 0.0 * layers
    if not has_axes(layers) and namespace(layers) is SCALARS:
        return sum((floor_div(layers + (length - 1 - place), length) for place in places), 0.0)
    # all places at once: a long list of layers stays one operation
    xp = namespace(layers)
    before = lead([float(length - 1 - place) for place in places], rank_of(layers), xp)
    return xp.sum(floor_div(layers + before, length), axis=0)
