"""Tiles of a core's results in memories that lie inside each other: which are tried, what fits, and the bytes
that arrays take.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number, namespace
from strata.pricing.kernels.traffic import ACCUMULATOR, HELD, Product

# Sides of the tiles of results tried for a core, and the widest ratio of the two.
SIDES = tuple(2.0**i for i in range(11, 3, -1))
ASPECT = 4.0
# Depth of operands that must lie ready [B of one row]: for an instruction of a matrix unit (16 elements of 16
# bits, as mma.sync and wgmma of the PTX ISA take them), and for a step of a core's main loop (twice that).
FRAGMENT_BYTES = 32.0
STEP_BYTES = 64.0


def core_tiles(most: float = float("inf")) -> Array:
    """Tiles of results tried for one core, largest first: powers of two with sides of similar length, of at
    most so many results.

    >>> [tuple(map(int, tile)) for tile in core_tiles(1024.0)]
    [(64, 16), (32, 32), (16, 64), (32, 16), (16, 32), (16, 16)]
    """
    tried = [(a, b) for a in SIDES for b in SIDES if max(a, b) <= ASPECT * min(a, b) and a * b <= most]
    return np.array(sorted(tried or [(SIDES[-1], SIDES[-1])], key=lambda t: (-t[0] * t[1], -t[0])))


def largest(*values: Number) -> Number:
    """The largest of some numbers, point by point.

    >>> largest(1.0, 3.0, 2.0)
    3.0
    """
    return reduce(namespace(*values).maximum, values)


def unit_grid(units: Number) -> tuple[Number, Number]:
    """Rows and columns in which a core's matrix units share its tile: as square as powers of two go.

    >>> [tuple(map(float, unit_grid(u))) for u in (1.0, 4.0, 8.0)]
    [(1.0, 1.0), (2.0, 2.0), (2.0, 4.0)]
    """
    xp = namespace(units)
    down = 2.0 ** xp.floor(xp.log(units) / (2.0 * np.log(2.0)) + 1e-9)
    return down, units / down


def register_bytes(product: Product, rows: Number, columns: Number, depth: Number) -> Number:
    r"""Bytes between the innermost memory and arrays of N_x x N_y multiply-adders [B], by the best of three
    dataflows.

    .. math::
        b = b_p m n k \min\left(
            \frac{a}{N_y} + \frac{w}{N_x} + \frac{2 s}{k'},
            \frac{a}{N_y} + \frac{2 s}{N_x} + \frac{w}{m},
            \frac{2 s}{N_y} + \frac{w}{N_x} + \frac{a}{n}\right)

    a, w bytes of an activation and a weight, s of a partial sum, which is read and written; results stay in
    the array for the depth k' of a part, or weights while m rows pass, or activations while n columns do.
    An array is no larger than the product. b_p products.

    DeepFlow (2023), eq. 5: flop (N_x N_y + K N_x + K N_y) / (2 K N_x N_y) elements, with K steps before what
    stays is exchanged.

    >>> square = Product(m=4096.0, n=4096.0, k=4096.0, input_bytes=2.0, weight_bytes=2.0, output_bytes=2.0)
    >>> round(float(register_bytes(square, 8.0, 4.0, 4096.0)) / square.flop, 4)  # 1/8 + 1/4 and the sums
    0.376
    """
    m, n, a, w = product.m, product.n, product.input_bytes, product.weight_bytes
    xp, sums = namespace(m, n, depth, rows, columns), 2.0 * ACCUMULATOR
    high, wide = xp.minimum(rows, m), xp.minimum(columns, n)
    results = a / wide + w / high + sums / depth
    weights = a / wide + sums / high + w / m
    inputs = sums / wide + w / high + a / n
    each = xp.minimum(results, xp.minimum(weights, inputs))
    return product.batch * m * n * product.k * each


def core_tile_fits(
    rows: Number, columns: Number, *, units: Number, registers: Number | None, local: Number
) -> Any:
    r"""Whether a tile of results fits a core: with sums, and operands for one instruction, in half of the
    memory of each of its matrix units, and operands for a step of the main loop in half of its local memory.

    .. math:: \frac{4 \, t_m t_n}{u} + 32 \left(\frac{t_m}{u_m} + \frac{t_n}{u_n}\right) \le \frac{M_u}{2},
        \quad 64 (t_m + t_n) \le \frac{M_l}{2}

    u = u_m u_n matrix units with M_u bytes each, M_l bytes of local memory; the other halves take in what
    comes next. Sums lie in local memory where units have none of their own (`registers` None). The smallest
    tile is tried in any case.

    >>> a100 = {"units": 4.0, "registers": 65536.0, "local": 196608.0}
    >>> [bool(core_tile_fits(128.0, n, **a100)) for n in (128.0, 256.0)]
    [True, False]
    """
    sums, step = rows * columns * ACCUMULATOR, (rows + columns) * STEP_BYTES
    if registers is None:
        fitting = sums + step <= HELD * local
    else:
        down, across = unit_grid(units)
        fragment = (rows / down + columns / across) * FRAGMENT_BYTES
        fitting = (sums / units + fragment <= HELD * registers) & (step <= HELD * local)
    return fitting | (rows * columns <= SIDES[-1] ** 2)
