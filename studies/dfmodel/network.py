"""DFModel's laws of communication, as its program has them: for comparison with its published numbers.

Ko et al., DFModel (2024; github kosho2013/DFModel at 62db2278), as in our study of it, sec. 3. A dimension
has p chips with links of b bytes a second. Ring and switch sum at the bandwidth of one link, fully connected
chips at that of all their links; `passes` is 1 in its program by default (its Table VI) and 2 in its
published 80-system study and in serving, where reduce-scatter and all-gather count apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from strata.base.arrays import Number, namespace
from strata.pricing.network.algorithms import ring_scatter

PUBLISHED_PASSES = 2.0  # of an all-reduce in the 80-system study and in serving; its program's default is 1


def dfmodel_all_reduce(
    kind: str, payload: Number, ranks: Number, link: Number, passes: Number, latency: Number = 0.0
) -> Number:
    r"""Time of an all-reduce in one dimension [s].

    .. math:: T = c (p-1) \left(l + \frac{V}{p b}\right) \;\text{(ring, switch)}, \quad
              T = c \left(l + \frac{V}{p b}\right) \;\text{(full)}

    V bytes; p ranks; b of one link [B/s]; c passes, 1 or 2; l latency of a link [s], 150 ns in serving. On a
    ring it is `ring_scatter`, passed c times.

    >>> [round(1e3 * dfmodel_all_reduce(k, 1e9, 8.0, 50e9, 2.0), 3) for k in ("ring", "full", "switch")]
    [35.0, 5.0, 35.0]
    >>> dfmodel_all_reduce("ring", 1e9, 8.0, 50e9, 2.0) == 2 * ring_scatter(1e9, 8.0, 50e9, 0.0)
    True
    """
    return passes * dfmodel_all_gather(kind, payload, ranks, link, latency)


def dfmodel_all_gather(
    kind: str, payload: Number, ranks: Number, link: Number, latency: Number = 0.0
) -> Number:
    r"""Time of an all-gather in one dimension [s].

    .. math:: T = (p-1) \left(l + \frac{V}{p b}\right) \;\text{(ring, switch)}, \quad
              T = l + \frac{V}{p b} \;\text{(full)}

    V bytes, gathered; p ranks; b of one link [B/s]; l latency of a link [s]; one rank takes none.

    >>> [round(1e3 * dfmodel_all_gather(k, 1e9, 8.0, 50e9), 3) for k in ("ring", "full", "switch")]
    [17.5, 2.5, 17.5]
    """
    if kind != "full":
        return ring_scatter(payload, ranks, link, latency)
    xp = namespace(payload, ranks, link, latency)
    return xp.where(ranks > 1.0, latency + payload / (ranks * link), 0.0)


def two_level_all_reduce(
    payload: Number, ranks: Number, domain: Number, fast: Number, slow: Number
) -> Number:
    r"""Time of an all-reduce of ranks in domains of high bandwidth [s]: inside at b0, between them at b1.

    .. math:: T = \frac{h-1}{h} \frac{V}{b_0} + \frac{p/h - 1}{p} \frac{V}{b_1}

    V bytes; p ranks in domains of h, at most p (a larger domain holds them all); links b0 inside and b1
    between [B/s]. Its Fig 7 (Rail-Only); what its logs lose from h = 4 to 8 and from 2 to 4 fits to 1e-5.

    >>> [round(1e3 * float(two_level_all_reduce(1e9, 8.0, h, 900e9, 50e9)), 3) for h in (1.0, 2.0, 8.0, 64.0)]
    [17.5, 8.056, 0.972, 0.972]
    """
    xp = namespace(ranks, domain, payload)
    inside = xp.minimum(domain, ranks)
    return (inside - 1.0) / inside * payload / fast + (ranks / inside - 1.0) / ranks * payload / slow


def bisection_links(kinds: Sequence[str], sizes: Sequence[Number], doubled: bool = False) -> Number:
    r"""Links that all-to-all traffic of all chips crosses, as DFModel counts them at the outermost dimension.

    .. math:: L = P / s \;\text{(ring)}, \quad L = s \;\text{(switch)}, \quad L = s^2 / 4 \;\text{(full)}

    P chips in all, size s of the outermost dimension. A torus is cut where its rings close too, so that twice
    as many links cross: `doubled` counts them, as its program does since its results were published.

    >>> torus, dragonfly = (["ring", "ring"], [32.0, 32.0]), (["full", "full"], [32.0, 32.0])
    >>> bisection_links(*torus), bisection_links(*torus, doubled=True), bisection_links(*dragonfly)
    (32.0, 64.0, 256.0)
    >>> bisection_links(["ring"] * 3, [8.0, 8.0, 16.0]), bisection_links(["ring", "switch"], [8.0, 128.0])
    (64.0, 128.0)
    """
    last = sizes[-1]
    if kinds[-1] == "switch":
        return last
    if kinds[-1] == "full":
        return last * last / 4.0
    inner: Number = 2.0 if doubled else 1.0
    for size in sizes[:-1]:
        inner = inner * size
    return inner


def bisection_all_to_all(pair: Number, devices: Number, links: Number, link: Number) -> Number:
    r"""Time of an all-to-all of all chips of a system [s], by what crosses its middle.

    .. math:: T = \frac{V_{ij} P^2 / 4}{L b}

    V_ij bytes from each chip to each; P chips; L links that cross (`bisection_links`) of b [B/s].

    >>> round(bisection_all_to_all(2.0**21, 1024.0, 32.0, 50e9), 6)  # FFT of 2^40 points, 2-D torus
    0.343597
    """
    return pair * devices * devices / 4.0 / (links * link)


def panel_broadcast(side: Number, block: Number, word: Number, rows: Number, link: Number) -> Number:
    r"""Time to send a panel of LU along a row of the process grid [s]; the rows of U go by the same law.

    .. math:: T = \frac{s B w}{X b}

    side s of what is left of the matrix, block B of columns, w bytes of a number; X ranks share the panel's
    rows; b of one link [B/s]. The broadcast (X rows, b_y) and the point-to-point sends of U (Y columns, b_x)
    run beside each other: the longer of the two counts.

    >>> round(panel_broadcast(2.0**20, 2048.0, 2.0, 32.0, 50e9) * 1e3, 3)
    2.684
    """
    return side * block * word / (rows * link)


def stage_handover(hidden: Number, sequence: Number, word: Number, layers: Number, link: Number) -> Number:
    r"""Time that stages of a pipeline send activations and their gradients in a batch of training [s].

    .. math:: T = \frac{2 h s w L}{b}

    hidden width h, tokens s of a sequence, w bytes of a number, L layers of the model, b of one link between
    stages [B/s].

    >>> round(stage_handover(10240.0, 2048.0, 2.0, 60.0, 12.5e9), 6)  # logged for Megatron on 1024 A100
    0.402653
    """
    return 2.0 * hidden * sequence * word * layers / link
