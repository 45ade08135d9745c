"""Grouped products of routed experts: uneven loads, experts nobody asks for, and the busiest rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from strata.arrays import Number, ceil_div, choose, lead, namespace, rank_of
from strata.precision import bytes_of, supports
from strata.pricing.kernels.device import Device, MatrixRate, close_price, of_format
from strata.pricing.kernels.dram_access import Asked, dram_bandwidth, dram_time, product_stream, shared
from strata.pricing.kernels.matmul import padded, product_bound
from strata.pricing.price import Price
from strata.workload.graph import total
from strata.workload.moe import chance, copies_of, expert_shares, load_of
from strata.workload.ops import ExpertMatMul, Vector
from strata.workload.routing import Routing

ROWS = np.array([32.0, 128.0])  # token rows of a tile
# index into ROWS, columns: what a tuned library chooses from
TILES = np.array([(0, 128), (1, 128), (1, 256)])
# tokens up to which sorting by expert takes longer the more there are: seen between 64 and 256 in ops/moe.csv
SORTED = 256.0


def expected_maximum(ranks: Number) -> Number:
    r"""Expected maximum of so many standard normal variables.

    .. math:: z = \Phi^{-1}\!\left(\frac{n - 0.375}{n + 0.25}\right)

    Blom, Statistical Estimates and Transformed Beta-Variables (1958); the inverse by Abramowitz & Stegun
    26.2.23, whose error is below 4.5e-4.

    >>> [round(float(expected_maximum(n)), 2) for n in (1.0, 8.0, 256.0)]
    [0.0, 1.43, 2.82]
    """
    xp = namespace(ranks)
    tail = 0.625 / (ranks + 0.25)
    t = xp.sqrt(-2.0 * xp.log(tail))
    z = t - (2.515517 + 0.802853 * t + 0.010328 * t**2) / (
        1 + 1.432788 * t + 0.189269 * t**2 + 0.001308 * t**3
    )
    return xp.where(ranks > 1, z, 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class Load:
    """What routing leaves on the busiest rank, whatever the width of its products."""

    tokens: Number  # token rows of all its experts
    experts: Number  # experts with at least one token
    tiles: Number  # tiles of rows, for each height of tiles (leading axis)
    deviation: Number = 0.0  # of one expert's tokens by chance, over their mean
    top: Number = 1.0  # popularity of the most popular expert (or copy of one), over the mean
    seen: Routing | None = None  # from a trace


def busiest(deviation: Number, ranks: Number, held: Number) -> Number:
    r"""Picks that fall by chance on the busiest of so many ranks, over the mean of all.

    .. math:: x = 1 + \left(z + \frac{z^2 - 1}{6} v\right) v, \quad v = \frac{\sigma}{\mu \sqrt{e}}

    relative deviation σ/μ of one expert's tokens; e experts held by each rank; z the `expected_maximum` of
    the ranks. Counts of few tokens are skewed as Poisson's are, whose skewness is their relative deviation v
    (Cornish & Fisher, Rev. Inst. Int. Stat. 5 (1938): the first term after the normal quantile).

    >>> round(float(busiest(0.5, 8.0, 4.0)), 3), float(busiest(0.5, 1.0, 32.0))
    (1.37, 1.0)
    """
    xp = namespace(deviation, ranks, held)
    z, v = expected_maximum(ranks), deviation / xp.sqrt(held)
    return 1.0 + xp.where(ranks > 1, (z + (z * z - 1.0) / 6.0 * v) * v, 0.0)


def most_on_a_rank(load: Load, ranks: Number, held: Number) -> Number:
    r"""Picks that fall on the busiest of so many ranks, over the mean: by chance, and by what is popular.

    .. math:: x = 1 + \sqrt{(y - 1)^2 + (x_0 - 1)^2}, \quad y = \frac{s + (e - 1) \frac{n - s}{n - 1}}{e}

    x_0 by chance (`busiest`). y of the rank with the most popular of n experts, of popularity s, beside e - 1
    others; of a trace, whose experts stay where they are, y as it was. The two are independent, so that their
    squares add up.

    >>> from strata.workload.routing import routing
    >>> seen = routing([[1.0] * 8 + [3.0] * 8])
    >>> float(most_on_a_rank(Load(1.0, 1.0, 1.0, seen=seen), 2.0, 8.0)), float(most_on_a_rank(Load(1.0, 1.0, 1.0, top=4.0), 4.0, 4.0))
    (1.5, 1.6)
    """
    known, drawn = by_popularity(load, ranks, held), busiest(load.deviation, ranks, held)
    return 1.0 + namespace(known, drawn).sqrt((known - 1.0) ** 2 + (drawn - 1.0) ** 2)


def by_popularity(load: Load, ranks: Number, held: Number) -> Number:
    """Picks of the busiest rank over the mean as far as they are no chance: y of `most_on_a_rank`."""
    xp = namespace(ranks, load.top, held, load.tokens)
    if load.seen is not None:
        return xp.interp(ranks, xp.asarray(load.seen.ranks), xp.asarray(load.seen.busiest))
    count = xp.maximum(ranks * held, 2.0)
    return xp.where(ranks > 1, (load.top + (held - 1.0) * (count - load.top) / (count - 1.0)) / held, 1.0)


def popularity(op: ExpertMatMul, rank: int) -> Number:
    """Popularity of the experts at quantile nodes (leading axis): as a trace saw it, or by the skew."""
    if op.routing is None:
        return expert_shares(op.all_experts, op.skew, rank)
    xp = namespace(*op.routing.shares, op.tokens.size)
    return lead(xp.stack([xp.asarray(s) for s in op.routing.shares]), rank, xp)


def busiest_load(op: ExpertMatMul, ranks: Number, rank: int) -> Load:
    r"""Load of the busiest of `ranks` expert ranks, with tiles of `ROWS`.

    An expert fills :math:`\overline{\lceil x / t_m \rceil}` tiles, averaged over the nodes of `load_of`,
    never the ceiling of a mean. The rank carries `most_on_a_rank` times the mean of its experts. Redundant
    copies share the tokens of their expert.
    """
    held = op.experts.size
    shares, copies = popularity(op, rank), None
    if not (isinstance(op.redundant_experts, float) and op.redundant_experts == 0.0):
        copies = copies_of(shares, op.redundant_experts / op.all_experts)
        shares = shares / copies
    p = chance(shares, op.all_experts, op.top_k)
    load, touched = load_of(op.tokens.size, p, rank, copies)
    xp = namespace(load, held, ranks)

    def averaged(values: Number, axis: int = 0) -> Number:
        return (
            xp.mean(values, axis=axis)
            if copies is None
            else xp.sum(values * copies, axis=axis) / xp.sum(copies, axis=0)
        )

    mean = averaged(load * touched)
    deviation = xp.sqrt(averaged(op.tokens.size * p * (1.0 - p))) / mean
    filled = averaged(ceil_div(load, lead(ROWS, 1 + rank, xp)) * touched, 1)
    some = averaged(touched)
    # copies are dealt out anew, wherever a trace had their experts
    known = op.routing if copies is None else None
    found = Load(mean, some, filled, deviation, _most_popular(op, copies, shares), known)
    more = most_on_a_rank(found, ranks, held)
    # What comes by chance reaches more experts, (1 - p)^T of one becoming (1 - p)^(T x); what is popular goes
    # to the expert it asks for.
    chances = 1.0 + more - by_popularity(found, ranks, held)
    missed = xp.log1p(-xp.minimum(some, 1.0 - 1e-12))
    first, others = (-xp.expm1(times * missed) for times in (xp.maximum(chances, found.top), chances))
    reached = xp.where(ranks > 1, (first + (held - 1.0) * others) / held, some)
    # every touched expert has a tile; those beyond the first follow the tokens
    tiles = reached + (filled - some) * more
    return replace(found, tokens=mean * held * more, experts=held * reached, tiles=held * tiles)


def _most_popular(op: ExpertMatMul, copies: Number | None, shares: Number) -> Number:
    r"""Tokens of the most popular expert over the mean: under a skew the first of all, in a trace as its node
    has it.

    .. math:: s = \frac{E}{k} \left(1 - (1 - w_1)^k\right), \quad w_n = \frac{(n + 1/2)^{1-a} - (1/2)^{1-a}}{(E + 1/2)^{1-a} - (1/2)^{1-a}}

    w_n of all picks go to the first n of E experts (`expert_shares`); k picks of a token are different
    experts. With r redundant copies the busiest copy has at most :math:`\max_n E w_n / (r + n)`, as in
    `copies_of`.

    >>> from strata.workload.graph import Extent
    >>> op = ExpertMatMul("up", "moe", (), "", Extent(1.0), 8.0, Extent(8.0), 256.0, (Extent(1.0),), Extent(1.0), 1.0, "bf16", "bf16")
    >>> round(float(_most_popular(op, None, np.ones(8))), 1)
    25.2
    """
    if op.routing is not None:
        return shares[-1] * (op.slots / op.all_experts)
    xp = namespace(op.all_experts, op.skew, op.top_k, op.redundant_experts)
    power = 1.0 - xp.where(abs(op.skew - 1.0) < 1e-6, 1.0 + 1e-5, op.skew)

    def first(count: Number) -> Number:
        return ((count + 0.5) ** power - 0.5**power) / ((op.all_experts + 0.5) ** power - 0.5**power)

    most = (1.0 - (1.0 - first(1.0)) ** op.top_k) * op.all_experts / op.top_k
    if copies is not None:
        each = [op.all_experts * first(2.0**i) / (op.redundant_experts + 2.0**i) for i in range(10)]
        level = each[0]
        for other in each[1:]:
            level = xp.maximum(level, other)
        most = xp.minimum(most, level * op.slots / op.all_experts)
    return xp.where(op.skew > 0.0, most, 1.0)


def shared_load(op: ExpertMatMul, device: Device, ranks: Number) -> Load:
    """The load of a layer, worked out once for its products: they share their extents, which are kept so that
    ids stay theirs.
    """
    rank = _rank(op, device, ranks)
    key = (id(op.tokens), id(op.experts), rank)
    if key not in device.loads:
        device.loads[key] = (op.tokens, op.experts, busiest_load(op, ranks, rank))
    load: Load = device.loads[key][2]
    return load


def _rank(op: ExpertMatMul, device: Device, ranks: Number) -> int:
    """Axes of the sizes and the hardware a product is priced with."""
    chip, made, unit = device.chip, device.chip.experts, device.matrix(op.weight, op.activation)
    sizes = (op.tokens.size, op.experts.size, op.slots, op.top_k, op.skew, ranks, total(op.n), op.k.size)
    hardware = (
        device.cores,
        device.cache_bandwidth,
        device.grain,
        chip.memory.bandwidth,
        made.memory_efficiency,
        made.tile,
    )
    return rank_of(*sizes, *hardware, *made.efficiency.values(), unit.peak, unit.widening)


@dataclass(frozen=True, eq=False, slots=True)
class Kernels:
    """How a library runs grouped products: sustained rate [FLOP/s], DRAM bandwidth [B/s], floor [s], and its
    tiles.

    `rows` and `columns` of the tiles to choose from lie on a leading axis, as do the tiles of the `Load` that
    comes with them.
    """

    rate: Number
    bandwidth: Number
    tile: Number  # start and end of one tile [s]
    floor: Number
    rows: Number
    columns: Number


def grouped(
    load: Load,
    n: Number,
    k: Number,
    device: Device,
    unit: MatrixRate,
    w: Number,
    stored: Number,
    kernels: Kernels,
    flop: Number,
) -> Price:
    r"""Price of the products of a rank's experts, each with its own tokens, k x n weights each.

    .. math::
        T = \sqrt{T_c^2 + T_m^2} + T_0, \quad T_m = \frac{e k n w + [b > C/2] \, b}{B}, \quad b = x (k a + n o)

        T_c = \max\left(\left\lceil \frac{t \lceil n / t_n \rceil}{p} \right\rceil (\tau + \tau_0), \frac{M}{L}\right), \quad
        \tau = \max\left(\frac{2 t_m t_n k}{R / p}, t_n k \nu\right)

    e touched experts with x tokens in t tiles of t_m rows; p cores of rate R together, each starting and
    ending a tile in τ_0; a weight takes ν to widen; bytes a, w, o of an input, a weight and a result; DRAM
    bandwidth B; M bytes through the cache at L, of capacity C. Tiles of a small expert do not fill the
    pipeline between cores and DRAM, so that the two hide each other only in part: their squares add up.

    The square is empirical: of powers 1.5, 2, 3 and the plain maximum it fitted validation/ops/moe.csv about
    as well as any.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h200"))
    >>> unit = d.matrix("bf16", "bf16")
    >>> kernels = Kernels(unit.sustained, d.bandwidth, 0.0, 0.0, np.array([128.0]), np.array([256.0]))
    >>> price = grouped(Load(1024.0, 8.0, np.array([8.0])), 28672.0, 4096.0, d, unit, 2.0, 2.0, kernels, 2.4e11)
    >>> 4e-4 < float(price.time) < 7e-4  # the weights alone take 3.9e-4 at the DRAM's peak
    True
    """
    cores, a = device.cores, unit.activation
    xp = namespace(load.tokens, load.tiles, n, k, cores, kernels.rate)
    rows, columns = padded(kernels.rows, device.grain), xp.minimum(kernels.columns, padded(n, device.grain))
    tiles = load.tiles * ceil_div(n, kernels.columns)
    work = rows * columns * (2.0 * cores / kernels.rate)
    if not (isinstance(unit.widening, float) and unit.widening == 0.0):
        work = xp.maximum(work, columns * unit.widening)
    computing = xp.maximum(ceil_div(tiles, cores), 1.0) * (work * k + kernels.tile)
    moved = tiles * ((rows * a + columns * w) * k) + load.tokens * n * stored
    least = xp.min(moved, axis=0) if device.for_bounds else None
    computing, moved = choose(xp.maximum(computing, moved / device.cache_bandwidth), computing, moved)
    cache = moved / device.cache_bandwidth
    moved = moved if least is None else least
    busy = xp.maximum(computing, cache)
    inout = load.tokens * (k * a + n * stored)
    if device.resident:
        inout = xp.where(inout > 0.5 * device.cache_capacity, inout, 0.0)
    dram = load.experts * k * n * w + inout
    memory = dram / kernels.bandwidth
    both = xp.sqrt(busy * busy + memory * memory)
    slower = busy >= memory
    stretch = xp.where(slower, both / busy, 1.0)
    return close_price(
        device,
        compute=computing * stretch,
        cache=cache * stretch,
        memory=xp.where(slower, memory, both),
        moved=moved,
        dram=dram,
        flop=flop,
        joule=flop * unit.energy,
        lower=product_bound(flop, dram, unit, device),
        floor=kernels.floor,
    )


def price_experts(op: ExpertMatMul, device: Device, ranks: Number = 1.0, load: Load | None = None) -> Price:
    """Price of one of the two products of a layer of experts, as serving frameworks run it, on the busiest of
    `ranks` expert ranks.

    The load is that of random routing (`busiest_load`), or one that is known. Half of the layer's floor and
    of sorting its tokens count for each product.
    """
    chip, made = device.chip, device.chip.experts
    unit = device.matrix(op.weight, op.activation)
    # Activations stored in 8 bits have kernels of their own, which leave narrower weights to matrix units
    # that take them.
    name = op.weight if bytes_of(op.activation) > 1.0 else op.activation
    if name != op.weight and supports(chip.compute.matrix_rate, op.weight):
        unit = replace(unit, widening=0.0)
    n, k = total(op.n), op.k.size
    rate, w, stored = (
        unit.peak * of_format(made.efficiency, name),
        bytes_of(op.weight),
        bytes_of(op.activation),
    )
    found = load or shared_load(op, device, ranks)
    xp = namespace(found.tokens, found.tiles, op.tokens.size, n, k, device.cores)
    rank = max(_rank(op, device, ranks), rank_of(found.tokens))
    each = found.tokens / xp.maximum(found.experts, 1.0)
    bandwidth = dram_bandwidth(
        device, made.memory_efficiency, lambda: product_stream(chip, each, n, k, unit.activation, w, stored)
    )
    rounded = found.tokens * k * (2.0 * of_format(made.passes, name))
    passes = dram_time(device, rounded, made.gather_efficiency, lambda: Asked(k * stored, 0.5, even=True))
    floor = (
        0.5 * (of_format(made.floor, name) + made.sort * xp.minimum(op.tokens.size / SORTED, 1.0)) + passes
    )
    kernels = Kernels(
        rate,
        bandwidth,
        made.tile,
        floor,
        lead(ROWS[TILES[:, 0]], rank, xp),
        lead(TILES[:, 1] * 1.0, rank, xp),
    )
    chosen = Load(found.tokens, found.experts, found.tiles[TILES[:, 0]])
    return grouped(chosen, n, k, device, unit, w, stored, kernels, op.flop())


def price_gather(op: Vector, device: Device) -> Price:
    r"""Price of taking rows to their experts, or of adding their results up: each row is a short stream to an
    address of its own.

    .. math:: T = \frac{r + w}{\gamma B_{peak}} + T_0

    bytes read r and written w; share γ of the DRAM peak that gathered rows reach; floor T_0 of a streaming
    kernel.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> h200 = chip("h200", **{"experts.gather_efficiency": 0.4, "overhead.stream": 0.0})
    >>> rows = Vector("dispatch", "moe", (), "sent", Extent(1e5), (Extent(4800.0),), 1.0, 1.0, 0.0, 0.0, "bf16", gathered=True)
    >>> round(float(price_gather(rows, device(h200)).time), 6)  # 1.92 GB at 1.92 TB/s
    0.001
    """
    chip, size = device.chip, op.elements() * bytes_of(op.precision)
    moved, flop = size * (op.reads + op.writes), op.vector_flop()
    row = op.row_bytes()
    memory = dram_time(
        device,
        moved,
        chip.experts.gather_efficiency,
        lambda: Asked(row, shared(op.reads, op.writes), even=True),
    )
    return close_price(
        device,
        compute=flop / chip.compute.vector_rate,
        cache=0.0,
        memory=memory,
        moved=moved,
        dram=moved,
        flop=0.0,
        joule=flop * chip.energy.vector,
        lower=moved / chip.memory.bandwidth,
        floor=chip.overhead.stream,
    )
