"""Loads of routed experts: uneven picks, experts nobody asks for, the busiest rank; in the mean or drawn."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number, as_float, ceil_div, lead, namespace, rank_of
from strata.base.errors import BadValue, require
from strata.base.memo import value_key
from strata.pricing.kernels.device import Device
from strata.workload.expert_ops import ExpertMatMul, Routing
from strata.workload.graph import total
from strata.workload.moe import chance, copies_of, expert_load_of, expert_shares

ROWS = np.array([32.0, 128.0])  # token rows of a tile, where a chip's file does not say
DRAWS = 8  # random routings that an answer is averaged over
LONGEST = 1 << 27  # picks, or experts in all draws: a count of each must fit memory
MOST = 0.8  # of all tokens: the highest value drawn for an expert before the values are scaled
SKEWS = {"uniform": 0.0, "balanced": 0.0, "zipf": 1.0}


@lru_cache(maxsize=64)
def tile_heights(rows: str) -> Array:
    """Token rows of the tiles a library chooses from, as a chip's file names them.

    >>> tile_heights("16 32 128").tolist()
    [16.0, 32.0, 128.0]
    """
    try:
        heights = [float(word) for word in rows.split()]
    except ValueError:
        heights = []
    require(bool(heights), "experts.tile_rows must be numbers separated by spaces", tile_rows=rows)
    return np.array(heights)


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


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ExpertLoad:
    """What routing leaves on the busiest rank, whatever the width of its products."""

    tokens: Number  # token rows of all its experts
    experts: Number  # experts with at least one token
    tiles: Number  # tiles of rows, for each height of tiles (leading axis)
    deviation: Number = 0.0  # of one expert's tokens by chance, over their mean
    top: Number = 1.0  # popularity of the most popular expert (or copy of one), over the mean
    seen: Routing | None = None  # from a trace


def busiest_by_chance(deviation: Number, ranks: Number, held: Number) -> Number:
    r"""Picks that fall by chance on the busiest of so many ranks, over the mean of all.

    .. math:: x = 1 + \left(z + \frac{z^2 - 1}{6} v\right) v, \quad v = \frac{\sigma}{\mu \sqrt{e}}

    relative deviation σ/μ of one expert's tokens; e experts held by each rank; z the `expected_maximum` of
    the ranks. Counts of few tokens are skewed as Poisson's are, whose skewness is their relative deviation v
    (Cornish & Fisher, Rev. Inst. Int. Stat. 5 (1938): the first term after the normal quantile).

    >>> round(float(busiest_by_chance(0.5, 8.0, 4.0)), 3), float(busiest_by_chance(0.5, 1.0, 32.0))
    (1.37, 1.0)
    """
    xp = namespace(deviation, ranks, held)
    z, v = expected_maximum(ranks), deviation / xp.sqrt(held)
    return 1.0 + xp.where(ranks > 1, (z + (z * z - 1.0) / 6.0 * v) * v, 0.0)


def most_on_a_rank(load: ExpertLoad, ranks: Number, held: Number) -> Number:
    r"""Picks that fall on the busiest of so many ranks, over the mean: by chance, and by what is popular.

    .. math:: x = 1 + \sqrt{(y - 1)^2 + (x_0 - 1)^2}, \quad y = \frac{s + (e - 1) \frac{n - s}{n - 1}}{e}

    x_0 by chance (`busiest_by_chance`). y of the rank with the most popular of n experts, of popularity s,
    beside e - 1 others; of a trace, whose experts stay where they are, y as it was. The two are independent,
    so that their squares add up.

    >>> from strata.workload.expert_ops import routing
    >>> seen = routing([[1.0] * 8 + [3.0] * 8])
    >>> one = ExpertLoad(tokens=1.0, experts=1.0, tiles=1.0)
    >>> traced, skewed = replace(one, seen=seen), replace(one, top=4.0)
    >>> float(most_on_a_rank(traced, 2.0, 8.0)), float(most_on_a_rank(skewed, 4.0, 4.0))
    (1.5, 1.6)
    """
    known, drawn = busiest_by_popularity(load, ranks, held), busiest_by_chance(load.deviation, ranks, held)
    return 1.0 + namespace(known, drawn).sqrt((known - 1.0) ** 2 + (drawn - 1.0) ** 2)


def busiest_by_popularity(load: ExpertLoad, ranks: Number, held: Number) -> Number:
    """Picks of the busiest rank over the mean as far as they are no chance: y of `most_on_a_rank`."""
    xp = namespace(ranks, load.top, held, load.tokens)
    if load.seen is not None:
        return xp.interp(ranks, xp.asarray(load.seen.ranks), xp.asarray(load.seen.busiest))
    count = xp.maximum(ranks * held, 2.0)
    return xp.where(ranks > 1, (load.top + (held - 1.0) * (count - load.top) / (count - 1.0)) / held, 1.0)


def expert_popularity(op: ExpertMatMul, rank: int) -> Array:
    """Popularity of the experts at quantile nodes (leading axis): as a trace saw it, or by the skew."""
    if op.routing is None:
        return expert_shares(op.all_experts, op.skew, rank)
    xp = namespace(*op.routing.shares, op.tokens.size)
    return lead(xp.stack([xp.asarray(s) for s in op.routing.shares]), rank, xp)


def busiest_load(op: ExpertMatMul, ranks: Number, rank: int, heights: Array = ROWS) -> ExpertLoad:
    r"""Load of the busiest of `ranks` expert ranks, with tiles of so many rows.

    An expert fills :math:`\overline{\lceil x / t_m \rceil}` tiles, averaged over the nodes of
    `expert_load_of`, never the ceiling of a mean. The rank carries `most_on_a_rank` times the mean of its
    experts. Redundant copies share the tokens of their expert.
    """
    held = op.experts.size
    shares, copies = expert_popularity(op, rank), None
    if op.redundant_experts.__class__ is not float or op.redundant_experts != 0.0:
        copies = copies_of(shares, op.redundant_experts / op.all_experts)
        shares = shares / copies
    p = chance(shares, op.all_experts, op.top_k)
    load, touched = expert_load_of(op.tokens.size, p, rank, copies)
    nodes = namespace(load, held, ranks)

    def averaged(values: Number, axis: int = 0) -> Number:
        if copies is None:
            return as_float(nodes.mean(values, axis=axis))
        return as_float(nodes.sum(values * copies, axis=axis) / nodes.sum(copies, axis=0))

    mean, some = averaged(load * touched), averaged(touched)
    filled = averaged(ceil_div(load, lead(heights, 1 + rank, nodes)) * touched, 1)
    deviation = averaged(op.tokens.size * p * (1.0 - p))
    xp = namespace(mean, deviation, held, ranks)
    mean_rank = ExpertLoad(
        tokens=mean,
        experts=some,
        tiles=filled,
        deviation=xp.sqrt(deviation) / mean,
        top=as_float(_most_popular(op, copies, shares)),
        # copies are dealt out anew, wherever a trace had their experts
        seen=op.routing if copies is None else None,
    )
    more = most_on_a_rank(mean_rank, ranks, held)
    # What comes by chance reaches more experts, (1 - p)^T of one becoming (1 - p)^(T x); what is popular goes
    # to the expert it asks for.
    chances = 1.0 + more - busiest_by_popularity(mean_rank, ranks, held)
    missed = xp.log1p(-xp.minimum(some, 1.0 - 1e-12))
    first, others = (-xp.expm1(times * missed) for times in (xp.maximum(chances, mean_rank.top), chances))
    reached = as_float(xp.where(ranks > 1, (first + (held - 1.0) * others) / held, some))
    # every touched expert has a tile; those beyond the first follow the tokens
    tiles = reached + (filled - some) * more
    return replace(mean_rank, tokens=mean * held * more, experts=held * reached, tiles=held * tiles)


def _most_popular(op: ExpertMatMul, copies: Array | None, shares: Array) -> Number:
    r"""Tokens of the most popular expert over the mean: under a skew the first of all, in a trace as its node
    has it.

    .. math:: s = \frac{E}{k} \left(1 - (1 - w_1)^k\right), \quad
        w_n = \frac{(n + 1/2)^{1-a} - (1/2)^{1-a}}{(E + 1/2)^{1-a} - (1/2)^{1-a}}

    w_n of all picks go to the first n of E experts (`expert_shares`); k picks of a token are different
    experts. With r redundant copies the busiest copy has at most :math:`\max_n E w_n / (r + n)`, as in
    `copies_of`.

    >>> from strata.workload.graph import Extent
    >>> formats = {"weight": "bf16", "activation": "bf16"}
    >>> sizes = {"n": (Extent(1.0),), "k": Extent(1.0), "tokens": Extent(1.0), "experts": Extent(8.0)}
    >>> routing = {"top_k": 8.0, "all_experts": 256.0, "skew": 1.0}
    >>> op = ExpertMatMul(name="up", module="moe", inputs=(), output="", **sizes, **routing, **formats)
    >>> round(float(_most_popular(op, None, np.ones(8))), 1)
    25.2
    """
    if op.routing is not None:
        return shares[-1] * (op.slots / op.all_experts)
    xp = namespace(op.all_experts, op.skew, op.top_k, op.redundant_experts)
    power = 1.0 - xp.where(xp.abs(op.skew - 1.0) < 1e-6, 1.0 + 1e-5, op.skew)

    def first(count: Number) -> Number:  # over (1/2)^(1-a), which no skew overflows
        return ((2.0 * count + 1.0) ** power - 1.0) / ((2.0 * op.all_experts + 1.0) ** power - 1.0)

    most = (1.0 - (1.0 - first(1.0)) ** op.top_k) * op.all_experts / op.top_k
    if copies is not None:
        each = [op.all_experts * first(2.0**i) / (op.redundant_experts + 2.0**i) for i in range(10)]
        level = each[0]
        for other in each[1:]:
            level = xp.maximum(level, other)
        most = xp.minimum(most, level * op.slots / op.all_experts)
    return xp.where(op.skew > 0.0, most, 1.0)


def shared_load(op: ExpertMatMul, device: Device, ranks: Number) -> ExpertLoad:
    """The load of a layer, worked out once for its products, which share sizes or, as arrays, extents."""
    rank, picks = load_rank(op, device, ranks), (op.all_experts, op.top_k, op.skew, op.redundant_experts)
    sizes = value_key(op.tokens, op.experts, *picks, ranks) or (id(op.tokens), id(op.experts))
    held = (op.tokens, op.experts, op.routing)

    def made() -> tuple[Any, ExpertLoad]:
        return held, busiest_load(op, ranks, rank, tile_heights(device.chip.experts.tile_rows))

    return device.loads.of((sizes, rank, id(op.routing)), made)[1]


def load_rank(op: ExpertMatMul, device: Device, ranks: Number) -> int:
    """Axes of the sizes and the hardware a product of experts is priced with."""
    chip, kernels, unit = device.chip, device.chip.experts, device.matrix(op.weight, op.activation)
    sizes = (op.tokens.size, op.experts.size, op.slots, op.top_k, op.skew, ranks, total(op.n), op.k.size)
    drawn = 0.0 if kernels.core_bandwidth is None else kernels.core_bandwidth
    rates = (device.cores, device.cache_bandwidth, device.grain, chip.memory.bandwidth, drawn)
    rescaling = (chip.compute.vector_rate, *(chip.compute.rescale or {}).values())
    shares = (kernels.memory_efficiency, kernels.tile, *kernels.efficiency.values())
    return rank_of(*sizes, *rates, *shares, *rescaling, unit.peak, unit.widening)


def routing_skew(routing: str) -> float:
    """Exponent of the power law that popularity follows; 0 where experts are alike.

    >>> routing_skew("balanced"), routing_skew("power_law_1.2")
    (0.0, 1.2)
    """
    power = re.fullmatch(r"power_law_(\d+\.?\d*)", routing)
    if power:
        return float(power.group(1))
    if routing not in SKEWS:
        raise BadValue(
            f"a routing must be one of {', '.join(SKEWS)} or power_law_EXPONENT, but got '{routing}'"
        )
    return SKEWS[routing]


def round_robin_counts(tokens: int, experts: int, top_k: int) -> Array:
    """Tokens of each expert when they are dealt out in turn: slot j of a token goes to the j-th of top_k
    equal parts of the experts.

    Fewer tokens than a part has experts are spread over it.

    >>> round_robin_counts(2, 8, 2).tolist(), round_robin_counts(6, 8, 2).tolist()
    ([1, 0, 1, 0, 1, 0, 1, 0], [2, 2, 1, 1, 2, 2, 1, 1])
    """
    part = -(-experts // top_k)
    token, slot = np.arange(tokens)[:, None], np.arange(top_k)
    place = token if tokens >= part else token * part // tokens
    return np.bincount(((place + slot * part) % experts).ravel(), minlength=experts)


def power_law_counts(tokens: int, experts: int, top_k: int, power: float, uniform: Array) -> Array:
    r"""Tokens of each expert (last axis) when their popularity follows a power law, from uniform numbers in
    [0, 1).

    .. math:: x = \left( (h^{1-a} - l^{1-a}) u + l^{1-a} \right)^{1/(1-a)}

    x has density :math:`x^{-a}` between l and h (of a = 1, :math:`l (h / l)^u`); scaled to all picks and
    rounded, the largest take what rounding left. An expert gets a token once at most: what it would have
    twice goes to the first experts.

    The collector of github ai-dynamo/aiconfigurator, whose rows ops/moe.csv holds.

    >>> counts = power_law_counts(64, 8, 2, 1.2, np.linspace(0.0, 0.99, 8))
    >>> int(counts.sum()), int(counts.max()), bool((np.diff(counts)[1:] >= 0).all())
    (128, 65, True)
    """
    low, high = (1.0, MOST * tokens) if tokens * top_k > experts else (0.01, 2.0)
    if power == 1.0:
        value = low * (high / low) ** uniform
    else:
        least, most = low ** (1 - power), high ** (1 - power)
        value = ((most - least) * uniform + least) ** (1 / (1 - power))
    counts = np.round(value / value.sum(-1, keepdims=True) * (tokens * top_k))
    missing = tokens * top_k - counts.sum(-1, keepdims=True)
    place = np.argsort(np.argsort(-counts, axis=-1, kind="stable"), axis=-1)
    counts = counts + np.where(missing > 0, missing // experts + (place < missing % experts), 0)
    return np.where(missing < 0, np.where(place == 0, counts + missing, counts), counts)


def _once(counts: Array, tokens: int) -> Array:
    """No expert above all tokens: what is over fills the experts in order."""
    over = np.maximum(counts - tokens, 0).sum(-1, keepdims=True)
    counts = np.minimum(counts, tokens)
    room = tokens - counts
    before = np.cumsum(room, axis=-1) - room
    filled: Array = counts + np.clip(over - before, 0, room)
    return filled


@lru_cache(maxsize=4096)
def busiest_rank_counts(tokens: int, experts: int, top_k: int, ranks: int, power: float) -> Array:
    """Tokens of each expert on the rank that is timed, one row for each draw: with a power law the busiest
    rank, else the first.

    >>> busiest_rank_counts(4096, 128, 8, 16, 0.0).tolist()
    [[256.0, 256.0, 256.0, 256.0, 256.0, 256.0, 256.0, 256.0]]
    """
    require(1 <= top_k <= experts, "a token picks at most all experts", top_k=top_k, experts=experts)
    _check_length(tokens * top_k, experts)
    held = experts // ranks
    if power == 0.0:
        return round_robin_counts(tokens, experts, top_k)[None, :held].astype(float)
    uniform = np.random.default_rng(experts).random((DRAWS, experts))
    counts = power_law_counts(tokens, experts, top_k, power, uniform).reshape(DRAWS, ranks, held)
    busiest = counts.sum(-1).argmax(-1)
    every = np.arange(DRAWS)
    first = counts[:, 0].copy()
    counts[:, 0] = counts[every, busiest]
    counts[every[busiest > 0], busiest[busiest > 0]] = first[busiest > 0]
    return _once(counts.reshape(DRAWS, experts), tokens)[:, :held]


@lru_cache(maxsize=4096)
def multinomial_counts(tokens: int, experts: int, skew: float) -> Array:
    """Tokens of each expert when every token picks one, the i-th as i to the -skew; a row for each draw."""
    _check_length(0, experts)
    share = np.arange(1.0, experts + 1.0) ** -skew
    return np.random.default_rng(experts).multinomial(tokens, share / share.sum(), size=DRAWS).astype(float)


def _check_length(picks: int, experts: int) -> None:
    most = max(picks, DRAWS * experts)
    require(most <= LONGEST, f"tokens are dealt out to at most {LONGEST:,} places", places=most)


def load_of_counts(counts: list[Array], rows: Array) -> ExpertLoad:
    """The load of each measured row (last axis) in each draw (axis before it), in tiles (leading axis)."""
    tiles = [np.sum(ceil_div(c, rows[:, None, None]), -1) for c in counts]
    seen = [np.stack([c.sum(-1), (c > 0).sum(-1), *t]) for c, t in zip(counts, tiles, strict=True)]
    draws = max(s.shape[1] for s in seen)
    stacked = np.stack([np.broadcast_to(s, (s.shape[0], draws)) for s in seen], axis=-1)
    return ExpertLoad(tokens=stacked[0], experts=stacked[1], tiles=stacked[2:])


def reached_parts(parts: Number, top_k: Number, groups: Number, top_groups: Number) -> Number:
    r"""Distinct parts (nodes, ranks) that hold experts of a token, in the mean.

    .. math:: d = \min\left(P - P (1 - 1/P)^k,\; d_g\right), \quad
              d_g = \max\left(1, P - P (1 - g/G)^{G/P}\right) \;(P \le G), \quad
              d_g = L - (L - g)(1 - 1/L)^{k - g}, \; L = P g / G \;(P > G)

    P equal parts of the experts; k picks of a token, from the best g of G groups of experts (1 of 1 where the
    router knows no groups). The best expert of each group that is chosen is picked; other picks fall on the
    chosen groups evenly. Against drawn routings within 5 %.

    DeepSeek-V3 technical report (arXiv 2412.19437), sec. 2.1.2: node-limited routing, 4 of 8 groups.

    >>> [round(float(reached_parts(n, 8.0, 8.0, 4.0)), 2) for n in (1.0, 2.0, 8.0, 64.0)]
    [1.0, 1.88, 4.0, 7.34]
    >>> round(float(reached_parts(8.0, 8.0, 1.0, 1.0)), 3)
    5.251
    """
    xp = namespace(parts, top_k, groups, top_groups)
    even = parts * (1.0 - (1.0 - 1.0 / parts) ** top_k)
    few = xp.maximum(parts * (1.0 - (1.0 - top_groups / groups) ** (groups / parts)), 1.0)
    held = xp.maximum(parts * top_groups / groups, 1.0)  # parts that hold the groups of a token
    more = xp.maximum(top_k - top_groups, 0.0)
    many = held - (held - xp.minimum(top_groups, held)) * (1.0 - 1.0 / held) ** more
    return xp.minimum(even, xp.where(parts <= groups, few, many))
