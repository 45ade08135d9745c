"""What a library's kernels make of a collective inside one fabric dimension: each legal way with its time.

Every function returns its candidates by name, so that a single call can say which was the cheapest. Times
hold for two ranks or more; the caller answers for groups of one.
"""

from __future__ import annotations

from strata.arrays import Number, namespace
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
    xp = namespace(payload, ranks, bandwidth)
    hops = xp.ceil(xp.log2(xp.maximum(ranks, 1.0)) - 1e-9)
    return start + 2.0 * hops * step * latency + 2.0 * (ranks - 1.0) / ranks * payload / bandwidth


def ring_ways(
    pattern: str,
    payload: Number,
    ranks: Number,
    link: Number,
    latency: Number,
    by: Rings,
    reduction: Number | None,
) -> AlgorithmTimes:
    """Ways of an all-gather, reduce-scatter or all-reduce; payload is the whole buffer, link the peak of one
    rank [B/s].
    """
    passes = 2.0 if pattern == "all_reduce" else 1.0
    steps, kept = passes * (ranks - 1.0), payload / ranks
    crossing = steps * kept
    wait = steps * latency
    ways = {
        f"ring {p}": flagged_ring(crossing, wait, by.start["flagged"], by.step[p], by.share[p] * link)
        for p in FLAGGED
    }
    ways["ring simple"] = buffered_ring(
        crossing, kept, wait, by.start["simple"], by.step["simple"], by.share[pattern] * link, by.own
    )
    if pattern == "all_reduce" and by.tree is not None:
        ways["tree"] = double_tree(
            payload, ranks, latency, by.start["flagged"], by.step["simple"], by.tree * link
        )
    if pattern == "all_reduce" and reduction is not None and "in_switch" in by.share:
        summed = in_switch_sum(payload, ranks, by.start["in_switch"], by.share["in_switch"] * link)
        ways["in switch"] = namespace(reduction, summed).where(reduction > 0, summed, float("inf"))
    return ways


def pair_ways(payload: Number, ranks: Number, link: Number, by: Pairs) -> AlgorithmTimes:
    r"""Ways of an all-to-all in which each rank sends payload n, its own share included.

    .. math:: T_{ll} = T_0 + (p-2) \alpha + \frac{n}{p\,\beta_c}, \quad
              T_{simple} = T_1 + (p-2) \alpha + \frac{p-1}{p}\frac{n}{\beta} + \frac{n}{p\,\gamma}

    Flagged bytes of a pair pass one channel βc; whole buffers share the link β; γ copies what stays.

    >>> by = Pairs(start={"flagged": 6.3e-6, "simple": 12.3e-6}, peer=0.36e-6, channel=0.0142, share=0.673, own=2.4e12)
    >>> [(name, round(float(t) * 1e6, 1)) for name, t in pair_ways(65536.0, 8.0, 450e9, by).items()]
    [('pairs ll', 9.7), ('pairs simple', 14.7)]
    """
    each, peers = payload / ranks, (ranks - 2.0) * by.peer
    flagged = by.start["flagged"] + peers + each / (by.channel * link)
    simple = by.start["simple"] + peers + (ranks - 1.0) * each / (by.share * link) + each / by.own
    # A channel is never faster than the link that all pairs of a rank share.
    sent = (ranks - 1.0) * each / link
    return {"pairs ll": namespace(flagged, sent).maximum(flagged, sent), "pairs simple": simple}


def send_ways(payload: Number, link: Number, by: Pairs) -> AlgorithmTimes:
    """Ways of one message to one peer."""
    return {
        "send ll": by.start["flagged"] + payload / (by.channel * link),
        "send simple": by.start["simple"] + payload / (by.share * link),
    }


def direct_ways(payload: Number, ranks: Number, link: Number, by: Direct) -> AlgorithmTimes:
    r"""All-reduce by reading peers' memory: all of every peer at once, or a p-th of each and then the sums.

    .. math:: T_1 = T_0 + (p-2) \alpha + (p-1)\frac{n}{\beta}, \quad
              T_2 = T_0 + T_s + (p-2) \alpha + 2\frac{p-1}{p}\frac{n}{\beta}

    vLLM and TensorRT-LLM, custom all-reduce kernels (one-shot and two-shot).

    >>> by = Direct(start={"a": 2.4e-6}, peer={"a": 0.1e-6}, share={"a": 0.75}, second={"a": 1e-6})
    >>> [(name, round(t * 1e6, 2)) for name, t in direct_ways(65536.0, 8.0, 450e9, by).items()]
    [('one-shot a', 4.36), ('two-shot a', 4.34)]
    """
    ways: AlgorithmTimes = {}
    for name, start in by.start.items():
        begin, rate = start + (ranks - 2.0) * by.peer[name], by.share[name] * link
        crossing = (ranks - 1.0) * payload / rate
        ways[f"one-shot {name}"] = begin + crossing
        if by.second is not None and name in by.second:
            ways[f"two-shot {name}"] = begin + by.second[name] + 2.0 * crossing / ranks
    if by.limit is None:
        return ways
    limits = {way: by.limit.get(way.split()[1], float("inf")) for way in ways}
    return {
        way: namespace(payload, time).where(payload <= limits[way], time, float("inf"))
        for way, time in ways.items()
    }


def expert_exchange(
    payload: Number, ranks: Number, experts: Number, link: Number, way: str, by: ExpertTransport
) -> Number:
    r"""Time of a dispatch of tokens to their experts' ranks, or of the combine back [s].

    .. math:: T = T_0 + E\,\alpha + \frac{p-1}{p}\frac{n}{\beta} + \frac{n}{E\,\gamma}

    payload n, bytes a rank sends in all (a message for each expert a token goes to, header and scales
    included); experts E of the layer, each with a counter α and, on dispatch, threads of its own that receive
    at γ; so few experts receive slowly.

    Form: ours, on DeepEP's low-latency kernels (github deepseek-ai/DeepEP), eight ranks of H200 and B200.

    >>> by = ExpertTransport(start={"combine": 9.6e-6}, expert={"combine": 4.8e-9}, share={"combine": 0.5}, lane=4.5e9, header=16.0, scale=0.0)
    >>> round(expert_exchange(128 * 8 * 7168 * 2.0, 8.0, 256.0, 450e9, "combine", by) * 1e6, 1)
    67.9
    """
    sent = (ranks - 1.0) / ranks * payload / (by.share[way] * link)
    received = payload / (experts * by.lane) if way == "dispatch" else 0.0
    return by.start[way] + experts * by.expert[way] + sent + received
