"""Matrix products as the program of 2021 behind the DeepFlow paper times them, for comparison with its
outputs; what differs from the paper is kept.

Each level holds a tile of three sides, and tiles nest from DRAM inwards. The program draws twenty tiles a
level at random; here all of a grid of the same family are tried, level by level, keeping the best few.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from deepflow.tilings import largest
from strata.base.arrays import SCALARS, Array, Number, ceil_div, floor_div, namespace, rank_of
from strata.hardware.chip_parts import MemoryLevel
from strata.hardware.hierarchy import memory_levels, scope_capacity
from strata.pricing.kernels.device import Device, MatrixRate, kernel_price
from strata.pricing.kernels.traffic import Product, product_bound
from strata.pricing.price import Price

# Orders of (m, k, n) that stand for the sides (1, 2, 3) of the traffic formula, by what stays; the largest of
# m, k, n decides which is used, and results that stay are tried both ways.
ORDERS = {"weights": ((1, 2, 0),), "results": ((0, 2, 1), (2, 0, 1)), "activations": ((0, 1, 2),)}
# the side whose length over the array's gives the reuse of registers
REUSED = {"weights": 0, "results": 1, "activations": 2}
# Two sides of the tiles that are tried, sixteen pairs a level; the third side is what is left.
TRIED = (8.0, 64.0, 512.0, 4096.0)

Sides = tuple[Number, Number, Number]


def placed_tile(tile: Sides, extent: Sides, bypass: bool) -> Sides:
    r"""A tile inside a matrix product that may be smaller than it: sides end at the product's, and one other
    side grows by what that leaves free.

    .. math::
        M = t_1 t_2 + t_2 t_3 + t_1 t_3, \quad u_i = \min(t_i, d_i), \quad
        \begin{cases}
        u_2 = \lfloor (M - c \, u_1 u_3) / (u_1 + u_3) \rfloor & t_1 > d_1, t_3 > d_3 \\
        u_1 = \lfloor (M - u_2 u_3) / (u_2 + c \, u_3) \rfloor & t_3 > d_3 \\
        u_3 = \lfloor (M - u_1 u_2) / (u_2 + c \, u_1) \rfloor & t_1 > d_1 \text{ or } t_2 > d_2
        \end{cases}

    Sides t of the tile, d of the product, first case that holds; c = 0 where results `bypass` the level.

    nanocad-lab/DeepFlow, state of 2021 (566c192): found from its recorded tiles and bytes.

    >>> placed_tile((256.0, 64.0, 128.0), (128.0, 8192.0, 8192.0), True)
    (128.0, 64.0, 768.0)
    """
    t1, t2, t3 = tile
    d1, d2, d3 = extent
    xp = namespace(t1, t2, t3, d1, d2, d3)
    room, c = t1 * t2 + t2 * t3 + t1 * t3, 0.0 if bypass else 1.0
    u1, u2, u3 = xp.minimum(t1, d1), xp.minimum(t2, d2), xp.minimum(t3, d3)
    both, third, other = (t1 > d1) & (t3 > d3), t3 > d3, (t1 > d1) | (t2 > d2)
    deeper = floor_div(room - c * u1 * u3, u1 + u3)
    higher = floor_div(room - u2 * u3, u2 + c * u3)
    wider = floor_div(room - u1 * u2, u2 + c * u1)
    v1 = xp.where(both, u1, xp.where(third, higher, u1))
    v2 = xp.where(both, deeper, u2)
    v3 = xp.where(both | third, u3, xp.where(other, wider, u3))
    sides = zip((v1, v2, v3), extent, strict=True)
    one, two, three = (xp.maximum(xp.minimum(v, d), 1.0) for v, d in sides)
    return one, two, three


def chained_bytes(extent: Sides, tile: Sides, repeats: Number, size: Number, sums: bool) -> Number:
    r"""Bytes out of a level for the tiles of the one inside it [B].

    .. math:: b = p R \left(d_1 d_2 \left\lceil \frac{d_3}{t_3} \right\rceil
        + d_2 d_3 \left\lceil \frac{d_1}{t_1} \right\rceil + d_1 d_3 \, r\right), \quad
        r = \left\lceil \frac{d_2}{t_2} \right\rceil \text{ or } 1

    Sides d of this level's tile, of which there are R, and t of the inner one's; p bytes an element. Only at
    the innermost pair of levels partial sums are counted (r above 1).

    nanocad-lab/DeepFlow, state of 2021 (566c192).

    >>> chained_bytes((2048.0, 2048.0, 2048.0), (512.0, 2048.0, 1024.0), 1.0, 2.0, False)
    58720256.0
    """
    d1, d2, d3 = extent
    t1, t2, t3 = tile
    spilled: Number = ceil_div(d2, t2) if sums else 1.0
    once = d1 * d2 * ceil_div(d3, t3) + d2 * d3 * ceil_div(d1, t1) + d1 * d3 * spilled
    return size * repeats * once


def shortcut_register_bytes(flop: Number, reuse: Number, side: Number, size: Number) -> Number:
    r"""Bytes between registers and an array of N x N multiply-adders [B] as the program of 2021 has it; the
    paper's eq. 5 is `register_bytes`.

    .. math:: b = p \, F \, \frac{2 K + 1}{2 K N}

    F operations, reuse K of what stays, p bytes an element.

    nanocad-lab/DeepFlow, state of 2021 (566c192).

    >>> shortcut_register_bytes(17175674880.0, 512.0, 4.0, 2.0)
    8596224000.0
    """
    return size * flop * (2.0 * reuse + 1.0) / (2.0 * reuse * side)


def roof_time(flop: Number, moved: Number, rate: Number, bandwidth: Number, latency: Number) -> Number:
    r"""Time of a kernel under the roof of one level [s].

    .. math:: t = \begin{cases} b / B + \lambda & F / b < R / B \\ F / R & \text{else} \end{cases}

    F operations at rate R [FLOP/s], b bytes at bandwidth B [B/s] with latency λ.

    nanocad-lab/DeepFlow, state of 2021 (566c192).

    >>> roof_time(1e9, 2e9, 1e12, 1e12, 1e-3), roof_time(2e9, 1e9, 1e12, 1e12, 1e-3)
    (0.003, 0.002)
    """
    bound = flop * bandwidth < rate * moved
    return namespace(flop, moved, bandwidth).where(bound, moved / bandwidth + latency, flop / rate)


class ChainedTimes(NamedTuple):
    """A product in nested tiles: time without the launch, bytes and time of each level, innermost first, its
    operations, and sides of the tile of each level but DRAM.
    """

    time: Number
    moved: tuple[Number, ...]
    times: tuple[Number, ...]
    flop: Number
    tiles: tuple[Sides, ...]


def tile_family(elements: Number, bypass: bool, rank: int, xp: Any) -> Sides:
    """Tiles tried in a memory of so many elements: second and first sides of a grid of powers of two on two
    leading axes, the third side what is left, a power of two too.

    >>> one, two, three = tile_family(65536.0, False, 0, np)
    >>> int(one[1, 0]), int(two[1, 0]), int(three[1, 0])
    (8, 64, 512)
    """
    grid = np.array(TRIED).reshape((-1,) + (1,) * rank)
    first, second = xp.asarray(grid)[None], xp.asarray(grid)[:, None]
    left = (elements - first * second) / (second if bypass else first + second)
    third = 2.0 ** xp.floor(xp.log2(xp.maximum(left, 1.0)) + 1e-9)
    # a pair of sides that leaves no third gives way to the least tile
    one, two, three = (xp.where(left >= 1.0, side, 1.0) for side in (first, second, third))
    return one, two, three


def chained_times(
    order: Sides,
    tiles: tuple[Sides, ...],
    levels: tuple[MemoryLevel, ...],
    rate: Number,
    size: Number,
    registers: tuple[Number, Number],
) -> ChainedTimes:
    """Bytes and times of every level for given tiles, innermost first; registers: reuse, and side of the
    array.
    """
    flop = order[0] * order[2] * (2.0 * order[1] - 1.0)
    inner = [shortcut_register_bytes(flop, *registers, size)]
    extent, repeats = order, 1.0 + 0.0 * flop
    outer: list[Number] = []
    for index in range(len(levels) - 1, 0, -1):
        tile = placed_tile(tiles[index - 1], extent, index > 1)
        outer.append(chained_bytes(extent, tile, repeats, size, index == 1))
        for whole, side in zip(extent, tile, strict=True):
            repeats = repeats * ceil_div(whole, side)
        extent = tile
    moved = (*inner, *reversed(outer))
    times = tuple(
        roof_time(flop, b, rate, level.bandwidth * level.efficiency, level.latency)
        for b, level in zip(moved, levels, strict=True)
    )
    return ChainedTimes(largest(*times), moved, times, flop, tiles)


def loop_orders(m: Number, k: Number, n: Number) -> tuple[tuple[Sides, Number], ...]:
    """Sides (1, 2, 3) of the two orders tried at each point, with the side that is reused in registers: by
    the largest of m, k and n, equal ones in that order.

    >>> loop_orders(4096.0, 16384.0, 8192.0)
    (((4096.0, 8192.0, 16384.0), 8192.0), ((8192.0, 4096.0, 16384.0), 4096.0))
    """
    xp, given = namespace(m, k, n), (m, k, n)
    weights, results = (m >= k) & (m >= n), k >= n

    def chosen(orders: dict[str, tuple[int, ...]], at: dict[str, int]) -> tuple[Sides, Number]:
        def pick(of: dict[str, int]) -> Number:
            rest = xp.where(results, given[of["results"]], given[of["activations"]])
            found: Number = xp.where(weights, given[of["weights"]], rest)
            return found

        one, two, three = (pick({what: order[i] for what, order in orders.items()}) for i in range(3))
        return (one, two, three), pick({what: order[at[what]] for what, order in orders.items()})

    first = chosen({what: orders[0] for what, orders in ORDERS.items()}, REUSED)
    return first, chosen({what: orders[-1] for what, orders in ORDERS.items()}, REUSED)


def searched_times(
    order: Sides,
    elements: tuple[Number, ...],
    levels: tuple[MemoryLevel, ...],
    rate: Number,
    size: Number,
    registers: tuple[Number, Number],
) -> ChainedTimes:
    """The best of nested tilings of memories of so many elements (one instance of each level but DRAM).

    From DRAM inwards every tile of a level's family is tried inside the best tilings so far. One is kept for
    each second side: what an inner level moves hangs on it most, as outer levels do not count partial sums.
    """
    flop = order[0] * order[2] * (2.0 * order[1] - 1.0)
    given = (*order, *elements, rate, size, *registers, *(level.bandwidth for level in levels))
    xp, rank = namespace(*given), rank_of(*given)
    xp = np if xp is SCALARS else xp
    shape = np.broadcast_shapes(*(getattr(value, "shape", ()) for value in given))
    start = [xp.broadcast_to(xp.asarray(x) * 1.0, (1, *shape)) for x in (*order, 1.0, flop / rate, 0.0)]
    extent, (repeats, longest, soft) = tuple(start[:3]), start[3:]
    tiles: list[Any] = []
    for index in range(len(levels) - 1, 0, -1):
        family: Any = tile_family(elements[index - 1], index > 1, rank, xp)
        family = tuple(side[:, :, None] for side in family)  # second side, first side, tilings so far
        inner = placed_tile(family, extent, index > 1)
        moved = chained_bytes(extent, inner, repeats, size, index == 1)
        level = levels[index]
        bandwidth = level.bandwidth * level.efficiency
        worst = xp.maximum(longest, roof_time(flop, moved, rate, bandwidth, level.latency))
        traffic = soft + moved / bandwidth
        count = repeats
        for whole, side in zip(extent, inner, strict=True):
            count = count * ceil_div(whole, side)
        found = (*inner, count, worst, traffic, *family, *(side for tile in tiles for side in tile))
        kept = _best_by_second(worst + 1e-3 * traffic, found, shape, xp)
        extent, (repeats, longest, soft), chosen = tuple(kept[:3]), kept[3:6], kept[6:]
        tiles = [chosen[i : i + 3] for i in range(0, len(chosen), 3)]
    best = xp.argmin(longest + 1e-3 * soft, axis=0)[None]
    ends: Any = tuple(tuple(xp.take_along_axis(s, best, axis=0)[0] for s in tile) for tile in tiles)
    return chained_times(order, ends, levels, rate, size, registers)


def _best_by_second(cost: Array, found: tuple[Any, ...], shape: tuple[int, ...], xp: Any) -> list[Array]:
    """Of values over (second side, first side, tilings so far), those of least cost for each second side."""
    seconds = cost.shape[0]
    best = xp.argmin(cost.reshape(seconds, -1, *shape), axis=1)
    spread = xp.stack(xp.broadcast_arrays(*found)).reshape(len(found), seconds, -1, *shape)
    kept = xp.take_along_axis(spread, best[None, :, None], axis=2)[:, :, 0]
    return list(kept)


def deepflow_matmul(
    product: Product, device: Device, unit: MatrixRate, resident: bool = False, warm: Number = 0.0
) -> Price:
    """Price of a product as the DeepFlow program of 2021 times it: batches folded into m, one width for all
    elements, nothing kept in the cache between kernels.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("v100", kernel_model="deepflow-2021"))
    >>> shape = Product(m=4096.0, n=4096.0, k=4096.0, input_bytes=2.0, weight_bytes=2.0, output_bytes=2.0)
    >>> price = deepflow_matmul(shape, d, d.matrix("fp16", "fp16"))
    >>> bool(price.compute > 0), bool(price.flop == 4096.0**2 * 8191)
    (True, True)
    """
    chip, size = device.chip, product.input_bytes
    levels = memory_levels(chip)
    elements = tuple(scope_capacity(chip, level) / size for level in levels[:-1])
    side = chip.compute.tile_n if chip.compute.array_columns is None else chip.compute.array_columns
    (one, first), (two, second) = loop_orders(product.m * product.batch, product.k, product.n)
    rest = (*elements, unit.sustained, size, side, *(level.bandwidth for level in levels))
    xp, rank = namespace(*one, *rest), rank_of(*one, *rest)
    xp = np if xp is SCALARS else xp

    def both(a: Number, b: Number) -> Any:
        """The two orders on an axis before those of the points."""
        pair = xp.stack(xp.broadcast_arrays(a, b))
        return pair.reshape(2, *(1,) * (rank + 1 - pair.ndim), *pair.shape[1:])

    order: Any = tuple(both(a, b) for a, b in zip(one, two, strict=True))
    reuse = both(first, second) / side
    found = searched_times(order, elements, levels, unit.sustained, size, (reuse, side))
    best = xp.argmin(found.time, axis=0)[None]

    def better(value: Number) -> Number:
        of_both = xp.broadcast_to(value, found.time.shape)  # type: ignore[union-attr]
        picked: Number = xp.take_along_axis(of_both, best, axis=0)[0]
        return picked

    moved, times, flop = (
        [better(b) for b in found.moved],
        [better(t) for t in found.times],
        better(found.flop),
    )
    return kernel_price(
        device,
        compute=flop / unit.sustained,
        cache=largest(*times[:-1]),
        memory=times[-1],
        moved=moved[-2],
        dram=moved[-1],
        flop=flop,
        joule=flop * unit.energy,
        lower=product_bound(flop, moved[-1], unit, device),
        floor=device.floor,
    )


def register_stream(moved: Number, flop: Number, device: Device) -> Price:
    """Price of an element-wise kernel as the program of 2021 times it: against the innermost memory, where a
    correct one counts the cache and DRAM (`vector_kernel`).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> v100 = device(chip("v100"))
    >>> round((register_stream(1e9, 0.0, v100).time - v100.chip.overhead.kernel) * 1e6, 1)  # 1 GB in 8 us
    8.0
    """
    chip, first = device.chip, memory_levels(device.chip)[0]
    rate = max_rate(chip.compute.matrix_rate, chip.compute.matrix_efficiency)
    time = roof_time(flop, moved, rate, first.bandwidth * first.efficiency, first.latency)
    return kernel_price(
        device,
        compute=0.0,
        cache=time,
        memory=0.0,
        moved=moved,
        dram=0.0,
        flop=0.0,
        joule=flop * chip.energy.vector,
        lower=moved / first.bandwidth,
        floor=chip.overhead.kernel,
    )


def max_rate(rates: dict[str, Number], shares: dict[str, Number]) -> Number:
    """The highest sustained rate of any format: the program knows one."""
    return largest(0.0, *(rate * shares[name] for name, rate in rates.items()))
