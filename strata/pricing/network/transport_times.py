"""A library's kernels inside one dimension: each legal algorithm's time by name, of two ranks or more; and
what kernels for experts, and adapters, take.
"""

from __future__ import annotations

from strata.base.arrays import Number, namespace
from strata.hardware.fabric import Dimension, sustained_link
from strata.hardware.transport import Direct, ExpertTransport, Pairs, Rings

AlgorithmTimes = dict[str, Number]
FLAGGED = ("ll", "ll128")


def flagged_ring(crossing: Number, steps: Number, start: Number, step: Number, rate: Number) -> Number:
    r"""Time of a ring whose words carry their own flags [s].

    .. math:: T = T_0 + s\,\alpha + B / \beta

    crossing B, bytes a rank sends [B]; steps s: p - 1 for a scatter or gather, 2(p - 1) for an all-reduce;
    start T0, kernel and meeting of the ranks [s]; step α, until a neighbour sees a word [s]; rate β [B/s].

    Hu et al., Demystifying NCCL (2025), arXiv 2507.04786: protocols LL, LL128 and Simple, steps of rings.

    >>> round(flagged_ring(7 / 8 * 65536, 7.0, 4.8e-6, 1.05e-6, 183e9) * 1e6, 2)
    12.46
    """
    return start + steps * step + crossing / rate


def buffered_ring(
    crossing: Number, kept: Number, steps: Number, start: Number, step: Number, rate: Number, own: Number
) -> Number:
    r"""Time of a ring that hands on whole buffers [s].

    .. math:: T = T_0 + \sqrt{(s\,\alpha)^2 + (B/\beta + b/\gamma)^2}

    As `flagged_ring`; kept b, the rank's own part, which it copies at γ. Steps of a short message wait for
    each other; a long one is cut into slots that follow each other, so that waiting hides behind sending:
    whichever is longer rules, and the root of squares is what lies between.

    Form: ours, on nccl-tests of A100 to B200; the extra b/γ explains why two ranks sustain less of the link
    than eight.

    >>> round(float(buffered_ring(7 / 8 * 2**28, 2**25, 7.0, 17.2e-6, 3.1e-6, 342e9, 770e9)) * 1e6)
    748
    """
    waiting, sending = steps * step, crossing / rate + kept / own
    return start + namespace(waiting, sending).sqrt(waiting * waiting + sending * sending)


def in_switch_sum(payload: Number, ranks: Number, start: Number, rate: Number) -> Number:
    r"""Time of an all-reduce that the switch adds up [s].

    .. math:: T = T_0 + \frac{p+1}{p} \frac{n}{\beta}

    Each rank's link carries its n bytes to the switch once, and its p-th of the sum comes out of it and goes
    back in, to be copied to all.

    NVIDIA, US patent 11463272 B2: pull and push requests to a multicast region that the switch reduces; the
    count of bytes is ours.

    >>> round(in_switch_sum(2**28, 8.0, 78e-6, 308e9) * 1e6)
    1058
    """
    return start + (ranks + 1.0) / ranks * payload / rate


def doublings(ranks: Number) -> Number:
    """Steps in which what one rank has reaches all, each of those that have it telling one more.

    >>> float(doublings(8.0)), float(doublings(9.0))
    (3.0, 4.0)
    """
    xp = namespace(ranks)
    return xp.ceil(xp.log2(xp.maximum(ranks, 1.0)) - 1e-9)


def double_tree(
    payload: Number, ranks: Number, latency: Number, start: Number, step: Number, bandwidth: Number
) -> Number:
    r"""Time of an all-reduce over two binary trees, half of the buffer each, up and down again [s].

    .. math:: T = T_0 + 2 \lceil \log_2 p \rceil \, s \, \alpha + 2 \frac{p-1}{p} \frac{n}{\beta}

    start T_0; steps of s latencies α; a rank that is a leaf of one tree is inside the other, so that both
    directions of every link are busy: bandwidth β.

    Sanders, Speck & Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
    Comput. 35 (2009).

    >>> round(float(double_tree(1e9, 64.0, 5e-6, 1e-5, 1.0, 50e9)) * 1e3, 2)
    39.45
    """
    hops = doublings(ranks)
    return start + 2.0 * hops * step * latency + 2.0 * (ranks - 1.0) / ranks * payload / bandwidth


def ring_times(
    pattern: str,
    payload: Number,
    ranks: Number,
    link: Number,
    latency: Number,
    rings: Rings,
    reduction: Number | None,
) -> AlgorithmTimes:
    """Times of a gather, scatter or all-reduce of the whole buffer; link: the peak of one rank [B/s]."""
    start, step, share = rings.start, rings.step, rings.share
    passes = 2.0 if pattern == "all_reduce" else 1.0
    steps, kept = passes * (ranks - 1.0), payload / ranks
    crossing = steps * kept
    wait = steps * latency
    times = {
        f"ring {name}": flagged_ring(crossing, wait, start["flagged"], step[name], share[name] * link)
        for name in FLAGGED
    }
    times["ring simple"] = buffered_ring(
        crossing, kept, wait, start["simple"], step["simple"], share[pattern] * link, rings.own
    )
    if pattern == "all_reduce" and rings.tree is not None:
        times["tree"] = double_tree(
            payload, ranks, latency, start["flagged"], step["simple"], rings.tree * link
        )
    if pattern == "all_reduce" and reduction is not None and "in_switch" in share:
        summed = in_switch_sum(payload, ranks, start["in_switch"], share["in_switch"] * link)
        times["in switch"] = namespace(reduction, summed).where(reduction > 0, summed, float("inf"))
    return times


def pairwise_times(payload: Number, ranks: Number, link: Number, pairs: Pairs) -> AlgorithmTimes:
    r"""Times of an all-to-all in which each rank sends payload n, its own share included [s].

    .. math:: T_{ll} = T_0 + (p-2) \alpha + \frac{n}{p\,\beta_c}, \quad
              T_{simple} = T_1 + (p-2) \alpha + \frac{p-1}{p}\frac{n}{\beta} + \frac{n}{p\,\gamma}

    Flagged bytes of a pair pass one channel βc; whole buffers share the link β; γ copies what stays.

    >>> start = {"flagged": 6.3e-6, "simple": 12.3e-6}
    >>> pairs = Pairs(start=start, peer=0.36e-6, channel=0.0142, share=0.673, own=2.4e12)
    >>> [(name, round(float(t) * 1e6, 1)) for name, t in pairwise_times(65536.0, 8.0, 450e9, pairs).items()]
    [('pairs ll', 9.7), ('pairs simple', 14.7)]
    """
    each, peers = payload / ranks, (ranks - 2.0) * pairs.peer
    flagged = pairs.start["flagged"] + peers + each / (pairs.channel * link)
    simple = pairs.start["simple"] + peers + (ranks - 1.0) * each / (pairs.share * link) + each / pairs.own
    # A channel is never faster than the link that all pairs of a rank share.
    sent = (ranks - 1.0) * each / link
    return {"pairs ll": namespace(flagged, sent).maximum(flagged, sent), "pairs simple": simple}


def send_times(payload: Number, link: Number, pairs: Pairs) -> AlgorithmTimes:
    """Times of one message to one peer [s]."""
    return {
        "send ll": pairs.start["flagged"] + payload / (pairs.channel * link),
        "send simple": pairs.start["simple"] + payload / (pairs.share * link),
    }


def peer_memory_times(payload: Number, ranks: Number, link: Number, kernels: Direct) -> AlgorithmTimes:
    r"""All-reduce by reading peers' memory [s]: all of every peer at once, or a p-th of each and then the
    sums.

    .. math:: T_1 = T_0 + (p-2) \alpha + (p-1)\frac{n}{\beta}, \quad
              T_2 = T_0 + T_s + (p-2) \alpha + 2\frac{p-1}{p}\frac{n}{\beta}

    vLLM and TensorRT-LLM, custom all-reduce kernels (one-shot and two-shot).

    >>> kernels = Direct(start={"a": 2.4e-6}, peer={"a": 0.1e-6}, share={"a": 0.75}, second={"a": 1e-6})
    >>> [(name, round(t * 1e6, 2)) for name, t in peer_memory_times(65536.0, 8.0, 450e9, kernels).items()]
    [('one-shot a', 4.36), ('two-shot a', 4.34)]
    """
    times: AlgorithmTimes = {}
    for name, start in kernels.start.items():
        begin, rate = start + (ranks - 2.0) * kernels.peer[name], kernels.share[name] * link
        crossing = (ranks - 1.0) * payload / rate
        times[f"one-shot {name}"] = begin + crossing
        if kernels.second is not None and name in kernels.second:
            times[f"two-shot {name}"] = begin + kernels.second[name] + 2.0 * crossing / ranks
    if kernels.limit is None:
        return times
    limits = {name: kernels.limit.get(name.split()[1], float("inf")) for name in times}
    return {
        name: namespace(payload, time).where(payload <= limits[name], time, float("inf"))
        for name, time in times.items()
    }


def expert_exchange(
    payload: Number,
    ranks: Number,
    experts: Number,
    link: Number,
    direction: str,
    kernels: ExpertTransport,
    *,
    nodes: Number = 1.0,
    between: Number = 0.0,
) -> Number:
    r"""Time of a dispatch of tokens to their experts' ranks, or of the combine back, a message for each pick
    [s].

    .. math:: T = T_0 + E\,\alpha + \max\left(\frac{p-1}{p N}\frac{n}{\beta}, T_b\right) + \frac{n}{E\,\gamma}

    payload n, bytes a rank sends in all (a message for each expert a token goes to, header and scales
    included); ranks p of a node, N nodes; experts E of the layer, each with a counter α and, on dispatch,
    threads of its own that receive at γ; so few experts receive slowly. between :math:`T_b`, what leaves the
    node by the adapters meanwhile (`adapter_time`): the slower of the two rules.

    Form: ours, on DeepEP's low-latency kernels (github deepseek-ai/DeepEP), eight ranks of H200 and B200;
    between nodes nothing is fitted.

    >>> rates = {"share": {"combine": 0.5}, "lane": 4.5e9, "header": 16.0, "scale": 0.0}
    >>> kernels = ExpertTransport(start={"combine": 9.6e-6}, expert={"combine": 4.8e-9}, **rates)
    >>> round(expert_exchange(128 * 8 * 7168 * 2.0, 8.0, 256.0, 450e9, "combine", kernels) * 1e6, 1)
    67.9
    """
    xp = namespace(payload, ranks, link, nodes, between)
    sent = (ranks - 1.0) / (ranks * nodes) * payload / (kernels.share[direction] * link)
    received = payload / (experts * kernels.lane) if direction == "dispatch" else 0.0
    return (
        kernels.start[direction] + experts * kernels.expert[direction] + xp.maximum(sent, between) + received
    )


def adapter_time(payload: Number, messages: Number, post: Number, dimension: Dimension) -> Number:
    r"""Time of what a rank sends to other nodes by its adapter [s]; nothing where it sends nothing.

    .. math:: T_b = \alpha + m\,\tau + n / \beta

    payload n [B] in m messages, each posted in τ [s]; latency α of the outer dimension and the bandwidth β
    that it sustains [B/s].

    >>> from strata.hardware.fabric import fabric
    >>> network = fabric("hgx-h100").dimension[1]  # 50 GB/s, of which 0.9 is sustained; 5 us
    >>> round(float(adapter_time(128 * 8 * 7408 / 2, 128 * 8 / 2, 0.0, network)) * 1e6, 1)
    89.3
    """
    xp = namespace(payload, messages, dimension.bandwidth)
    time = dimension.latency + messages * post + payload / sustained_link(dimension)
    return xp.where(payload > 0, time, 0.0)
