"""Collectives of groups that reach over nodes, as a library runs them: one ring or one tree over all levels
of the fabric, its pieces in flight on all of them at once, so that the slowest level rules and latencies add.

A level is a fabric dimension that the group crosses. Inside a node ranks pass pieces along a chain, or the
switch adds them up; between nodes they go along rings over all ranks or up and down trees of nodes, every
device of a node sending its share through an adapter of its own. Times hold where a level between nodes is
crossed; groups inside a node are priced dimension by dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

from strata.base.arrays import Number, namespace
from strata.hardware.transport import Rings, Transport
from strata.pricing.network.algorithm_names import Level
from strata.pricing.network.transport_times import FLAGGED, AlgorithmTimes, doublings

EMPTY = "empty"  # among posts: of whole buffers with hardly anything in them


def slowest(times: Sequence[Number]) -> Number:
    r"""What pieces in flight on several levels at once take [s].

    .. math:: T = \max_k T_k

    The pieces of a long message fill every level, and the one that takes longest rules; what it waits for
    the first piece counts apart, with the latencies.

    Hu et al., Demystifying NCCL (2025), arXiv 2507.04786, sec. on pipelined chunks of rings and trees.

    >>> slowest((1.0, 3.0, 2.0))
    3.0
    """
    first, *others = times
    for time in others:
        both = first.__class__ is float and time.__class__ is float
        first = max(first, time) if both else namespace(first, time).maximum(first, time)
    return first


def ring_hops(level: Level, ranks: Number, steps: Number, closes: bool | None = None) -> Number:
    r"""Steps of one ring over all ranks that cross a level and none farther out.

    .. math:: h_k = s \Big(\frac{1}{m_k} - \frac{1}{m_{k+1}}\Big) \;
              (s / m_k \text{ at the outermost level, which closes the ring})

    ranks p, s steps round it (p for each of its links once); m_k ranks inside one member of level k. All
    levels together: s. `closes`: whether this level is the outermost one everywhere, or nowhere.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.mapping.place import spread
    >>> from strata.pricing.network.algorithm_names import crossed_levels
    >>> nodes = sized(fabric("hgx-h200"), (8, 4))
    >>> levels = crossed_levels(spread(1.0, 32.0, nodes), nodes.dimension)
    >>> [float(ring_hops(one, 32.0, 32.0)) for one in levels]
    [28.0, 4.0]
    """
    inside = steps if level.inner.__class__ is float and level.inner == 1.0 else steps / level.inner
    if closes:
        return inside
    inner = inside - steps / level.outer
    if closes is False:
        return inner
    last = (level.outer >= ranks * (1.0 - 1e-9)) & (level.size > 1)
    return namespace(level.size, level.inner, ranks, steps).where(last, inside, inner)


def level_loads(payload: Number, levels: Sequence[Level]) -> list[Number]:
    """What a buffer takes through the links of all ranks inside a member of each level, at their peak [s]."""
    return [one.where(payload / one.all_links) for one in levels]


def level_rings(pattern: str, payload: Number, levels: Sequence[Level], start: Rings) -> AlgorithmTimes:
    r"""Rings over all ranks of an all-gather, reduce-scatter, all-reduce or broadcast [s], by protocol.

    .. math:: T = T_0 + \Lambda + \max_k \frac{B}{m_k \beta_k}, \quad
              \Lambda = \sum_k h_k \alpha_k, \quad B = a \frac{p-1}{p} n

    h_k of s = a (p-1) steps (`ring_hops`), a = 2 for an all-reduce, else 1; of a broadcast B = n; every
    boundary of a level is crossed by B bytes, through the links :math:`\beta_k` of the :math:`m_k` ranks
    inside it together; start T_0 as inside a node. Whole buffers (simple) hide waiting behind sending as
    `buffered_ring`'s do, and wait for slots as far as blocks fill them (`filled_step`).

    Patarasuk & Yuan, J. Parallel Distrib. Comput. 69 (2009): rings; NCCL's channels, one for each adapter.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.mapping.place import spread
    >>> from strata.pricing.network.algorithm_names import crossed_levels
    >>> nodes = sized(fabric("hgx-h200"), (8, 4))
    >>> levels = crossed_levels(spread(1.0, 32.0, nodes), nodes.dimension)
    >>> sorted(level_rings("all_gather", 1e9, levels, levels[0].transport.rings))
    ['ring ll', 'ring ll128', 'ring simple']
    """
    ranks = levels[-1].outer
    passes = 2.0 if pattern == "all_reduce" else 1.0
    steps = passes * (ranks - 1.0)
    known = levels[-1].always
    hops = [ring_hops(one, ranks, steps, one is levels[-1] if known else None) for one in levels]
    whole = "all_gather" if pattern == "broadcast" else pattern
    at_peak = level_loads(payload, levels)
    if pattern != "broadcast":
        turn = steps / ranks
        at_peak = [turn * load for load in at_peak]
    times: AlgorithmTimes = {}
    for name in _protocols(levels):
        wait = _waits(hops, [_ring_step(one, name, payload / ranks, levels) for one in levels])
        share = name if name in FLAGGED else whole
        send = slowest(
            [
                sent * (1.0 / one.transport.rings.share[share])
                for sent, one in zip(at_peak, levels, strict=True)
            ]
        )
        if name in FLAGGED:
            times[f"ring {name}"] = wait + send + start.start["flagged"]
        else:
            send = send + payload / (ranks * start.own)
            root = namespace(wait, send).sqrt(wait * wait + send * send)
            times[f"ring {name}"] = root + start.start["simple"]
    return times


def filled_step(whole: Number, least: Number, block: Number, chunk: Number | None) -> Number:
    r"""Until the next rank of a ring sees a piece in whole buffers [s].

    .. math:: \alpha = \alpha_0 + (\alpha_1 - \alpha_0) \min\left(1, \frac{n / p}{c_0}\right)

    step :math:`\alpha_1` of full slots, :math:`\alpha_0` of slots with hardly anything in them: between nodes
    the proxy still posts them, inside a node they are seen as soon as words with flags. A rank passes on
    blocks of n / p bytes, in slots of c_0 together at most: of many ranks the blocks are short, and so is
    what a step waits for.

    Hu et al., Demystifying NCCL (2025), arXiv 2507.04786: chunks of a ring's steps are cut to its blocks.

    >>> [round(float(filled_step(11.0, 1.0, block, 4e6)), 2) for block in (1e6, 8e6)]
    [3.5, 11.0]
    """
    if chunk is None:
        return whole
    xp = namespace(whole, least, block, chunk)
    return least + (whole - least) * xp.minimum(1.0, block / chunk)


def _ring_step(level: Level, protocol: str, block: Number, levels: Sequence[Level]) -> Number:
    step = level.step(protocol)
    least = None if protocol in FLAGGED else _least_step(level)
    if least is None:
        return step
    chunk = next((one.transport.rings.chunk for one in reversed(levels) if one.network), None)
    return filled_step(step, least, block, chunk)


def _least_step(level: Level) -> Number | None:
    """A step in whole buffers with hardly anything in them, None where it is as that of full ones."""
    rings = level.transport.rings
    if not level.network:
        seen = next((name for name in reversed(FLAGGED) if name in rings.step), None)
        return None if seen is None else level.step(seen)
    if rings.post is None or EMPTY not in rings.post:
        return None
    return level.dimension.latency * rings.step["simple"] + rings.post[EMPTY]


def _waits(counts: Sequence[Number], steps: Sequence[Number]) -> Number:
    """Steps of every level, one after the other [s]."""
    total: Number = 0.0
    for count, step in zip(counts, steps, strict=True):
        if not _none(count):
            total = count * step if _none(total) else total + count * step
    return total


def _none(value: Number) -> bool:
    """Whether nothing is counted, as far as is seen at a glance."""
    return value.__class__ is float and value == 0.0


def _protocols(levels: Sequence[Level]) -> list[str]:
    """Protocols that every level knows: LL128 needs stores that arrive in order."""
    return [
        name
        for name in (*FLAGGED, "simple")
        if all(name in one.transport.rings.step for one in levels)
        and all(name == "simple" or name in one.transport.rings.share for one in levels)
    ]


def tree_load(nodes: Number) -> Number:
    r"""How often a buffer crosses the busiest node's adapters, one direction, up and down two trees at once.

    .. math:: f = \min(N, 4) / 2

    Half of the buffer goes up and down each tree. Of two nodes each is the root of one tree and a leaf of
    the other: n bytes a direction, not the 2 (N-1)/N of rings, so that bus bandwidth may exceed the adapters'
    rate. Of four or more, the busiest takes in two children's halves and its parent's sum, and is a leaf of
    the other tree: 2 n.

    Sanders, Speck & Träff, Parallel Comput. 35 (2009); NCCL's double binary trees.

    >>> tree_load(2.0), tree_load(3.0), tree_load(64.0)
    (1.0, 1.5, 2.0)
    """
    xp = namespace(nodes)
    return xp.minimum(nodes, 4.0) / 2.0


def piece_share(payload: Number, most: Number, pieces: Number) -> Number:
    r"""Share of a buffer that moves as one piece through a pipeline.

    .. math:: \frac{c}{n} = \Big(\frac{n}{c_0} + k\Big)^{-1}

    most c_0 [B]: slots of all channels; a shorter buffer n is cut into k pieces or so.

    >>> round(64 * piece_share(64e6, 4e6, 10.0), 2), round(piece_share(1e6, 4e6, 10.0), 3)  # MB
    (2.46, 0.098)
    """
    return 1.0 / (payload / most + pieces)


def level_trees(
    payload: Number, levels: Sequence[Level], start: Rings, in_switch: bool = False
) -> AlgorithmTimes:
    r"""All-reduce up and down trees of nodes with chains inside them, or with a switch that adds up [s].

    .. math:: T = T_0 + 2 (g-1) \alpha_0 + 2 \sum_k \lceil \log_2 N_k \rceil \alpha_k + T_{fill} +
              \max\Big(2\frac{g-1}{g} \frac{n}{\beta_0}, \frac{f(N_k)\, n}{m_k \beta_k}\Big)

    g ranks in a node, N_k members of level k with f as `tree_load`; T_fill: the first piece of whole buffers
    (`piece_share`) on every step. With `in_switch`, (g+1)/g n to and from the switch and no steps in the node
    stand in for the chain. A network that adds up takes one step up and one down, and n bytes.

    Sanders, Speck & Träff, Parallel Comput. 35 (2009); NCCL, trees and NVLS trees.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.mapping.place import spread
    >>> from strata.pricing.network.algorithm_names import crossed_levels
    >>> two, four = (sized(fabric("hgx-h200"), (8, nodes)) for nodes in (2, 4))
    >>> far, near = (crossed_levels(spread(1.0, 8.0 * n, f), f.dimension) for n, f in ((4, four), (2, two)))
    >>> more, less = (level_trees(8.0, at, at[0].transport.rings)["tree ll"] for at in (far, near))
    >>> round(float(more - less) * 1e6, 2)  # a level of the tree more, up and down: 2 x 5 us
    10.0
    """
    steps = [one.where(_tree_steps(one, in_switch)) for one in levels]
    loads = level_loads(payload, levels)
    at_peak = [_tree_bytes(one, in_switch) * load for one, load in zip(levels, loads, strict=True)]
    times: AlgorithmTimes = {}
    for name in ("simple",) if in_switch else _protocols(levels):
        shares = [_tree_share(one, name, in_switch) for one in levels]
        each = [_tree_step(one, name) for one in levels]
        if name not in FLAGGED:
            part = _piece(payload, levels)
            each = [
                step if _none(count) else step + part * load * (1.0 / share)
                for count, step, load, share in zip(steps, each, loads, shares, strict=True)
            ]
        begin = start.start["in_switch" if in_switch else "flagged" if name in FLAGGED else "simple"]
        send = slowest([sent * (1.0 / share) for sent, share in zip(at_peak, shares, strict=True)])
        times["nvls tree" if in_switch else f"tree {name}"] = begin + _waits(steps, each) + send
    return times


def _piece(payload: Number, levels: Sequence[Level]) -> Number:
    rings = next(one.transport.rings for one in reversed(levels) if one.network)
    if rings.chunk is None or rings.pieces is None:
        return 0.0
    return piece_share(payload, rings.chunk, rings.pieces)


def _adds_up(level: Level, value: Number, else_value: Number) -> Number:
    """One value where the level's switches add up, else another."""
    summed = level.dimension.reduction
    if summed is None:
        return else_value
    return namespace(summed, value, else_value).where(summed > 0, value, else_value)


def _tree_bytes(level: Level, in_switch: bool) -> Number:
    """How often the buffer crosses a rank's link inside a node, or a member's links farther out."""
    if level.network:
        return _adds_up(level, 1.0, tree_load(level.size))
    return (level.size + 1.0) / level.size if in_switch else 2.0 * (level.size - 1.0) / level.size


def _tree_steps(level: Level, in_switch: bool) -> Number:
    """Steps up and down a tree in one level."""
    if not level.network:
        return 0.0 if in_switch else 2.0 * (level.size - 1.0)
    return 2.0 * _adds_up(level, 1.0, doublings(level.size))


def _tree_share(level: Level, protocol: str, in_switch: bool) -> Number:
    rings = level.transport.rings
    if protocol in FLAGGED:
        return rings.share[protocol]
    if level.network and rings.tree is not None:
        return rings.tree
    return rings.share["in_switch" if in_switch and not level.network else "all_reduce"]


def _tree_step(level: Level, protocol: str) -> Number:
    """One step; along a chain in a node the first slot of whole buffers is seen as soon as a flagged word."""
    flagged = not level.network and protocol == "simple" and "ll128" in level.transport.rings.step
    return level.step("ll128" if flagged else protocol)


def in_switch_trees(payload: Number, levels: Sequence[Level], start: Rings) -> AlgorithmTimes:
    """`level_trees` whose nodes' switch adds up, where it can: one level inside the node that reduces, no
    more ranks than the library joins so.
    """
    inside = [one for one in levels if not one.network]
    if len(inside) != 1 or "in_switch" not in start.start:
        return {}
    node, most = inside[0], levels[-1].transport.rings.in_switch_ranks
    summed = node.dimension.reduction
    if most is None or summed is None or "in_switch" not in node.transport.rings.share:
        return {}
    can = (summed > 0) & (node.size > 1) & (node.size <= most)
    return {
        name: namespace(time, node.size).where(can, time, float("inf"))
        for name, time in level_trees(payload, levels, start, in_switch=True).items()
    }


def level_exchange(payload: Number, levels: Sequence[Level], start: Transport) -> AlgorithmTimes:
    r"""All-to-all in which each rank sends payload n, its own share included, on all levels at once [s].

    .. math:: T = T_0 + \alpha + \sum_k (N_k - 1) \alpha_k + \max_k \frac{m_{k+1} - m_k}{p}\frac{n}{\beta_k}
              + \frac{n}{p\,\gamma}

    α the network's latency; messages of a node's ranks for one adapter leave together, so that a level costs
    its members' posts α_k, not its ranks'; γ copies what stays. Flagged bytes pass one channel a pair.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), sec. 3.3: load of uniform
    traffic.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.mapping.place import spread
    >>> from strata.pricing.network.algorithm_names import crossed_levels
    >>> nodes = sized(fabric("hgx-h200"), (8, 4))
    >>> levels = crossed_levels(spread(1.0, 32.0, nodes), nodes.dimension)
    >>> time = level_exchange(1e9, levels, levels[0].transport)["pairs simple"]
    >>> round(float(time) * 1e3, 1)  # 24/32 of 1 GB through an adapter of 0.9 x 50 GB/s
    16.7
    """
    ranks = levels[-1].outer
    pairs = start.pairs
    far = slowest([one.where(one.dimension.latency) for one in levels if one.network])
    posts: Number = sum((one.where((one.size - 1.0) * one.transport.pairs.peer) for one in levels), start=0.0)
    each = payload / ranks
    whole = slowest(
        [one.where((one.outer - one.inner) * each / (one.transport.pairs.share * one.link)) for one in levels]
    )
    lanes = slowest([one.where(each / (one.transport.pairs.channel * one.link)) for one in levels])
    return {
        "pairs ll": pairs.start["flagged"] + far + posts + slowest([lanes, whole]),
        "pairs simple": pairs.start["simple"] + far + posts + whole + each / pairs.own,
    }


def level_times(pattern: str, payload: Number, levels: Sequence[Level], start: Transport) -> AlgorithmTimes:
    """Each algorithm over levels of which one lies between nodes; `start`: the transport inside the node."""
    if pattern == "all_to_all":
        return level_exchange(payload, levels, start)
    times = level_rings(pattern, payload, levels, start.rings)
    if pattern == "all_reduce":
        times |= level_trees(payload, levels, start.rings)
        times |= in_switch_trees(payload, levels, start.rings)
    return times
