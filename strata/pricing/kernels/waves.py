"""Waves of tiles: the pieces in which a product's results come."""

from __future__ import annotations

from strata.arrays import Number, ceil_div

# of results that a core finishes at a time, the largest a library ships
TILE_ROWS, TILE_COLUMNS = 128.0, 256.0


def tile_waves(m: Number, n: Number, batch: Number, cores: Number) -> Number:
    r"""Waves in which a product's results come: the pieces that communication can take it in.

    .. math:: w = \left\lceil \frac{b \lceil m/128 \rceil \lceil n/256 \rceil}{p} \right\rceil

    b products of m x n results on p cores. A product of one wave ends everywhere at once: nothing can be sent
    before.

    >>> float(tile_waves(8192.0, 4096.0, 1.0, 132.0)), float(tile_waves(64.0, 8192.0, 1.0, 132.0))
    (8.0, 1.0)
    """
    return ceil_div(batch * ceil_div(m, TILE_ROWS) * ceil_div(n, TILE_COLUMNS), cores)
