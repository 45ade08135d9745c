"""Serving in DFModel's terms: a stage's time as a sum without overlap, latency through a pipeline,
speculative decoding from passes. A paper's closed form, to compare with; `evaluate` is ours.

Ko et al., DFModel (arXiv 2412.16432), sec. VIII, and the results it logged: what its text leaves
open was read from those and is said at each equation.
"""

from __future__ import annotations

from dataclasses import dataclass

from strata.base.arrays import Number, namespace, register_pytree
from strata.pricing.network.algorithms import ring_scatter

SIMD_KERNELS = 7.0  # of a layer that every chip repeats: three adds, two norms, two dropouts
SCORE_KERNELS = 2.0  # softmax and dropout, one operation an element
ALL_REDUCES = 2.0  # of a layer: after the projection and after the second FFN product


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class ServedLayer:
    """A transformer layer as DFModel's graph has it: as many heads of K and V as of Q, an FFN without
    gate.
    """

    hidden: Number
    inner: Number  # width of the FFN
    heads: Number
    read: Number  # bytes of weights and cache that a decode pass reads, all chips together: as stated


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class ServingChips:
    """What DFModel knows of a serving system."""

    peak: Number  # FLOP/s of a chip
    efficiency: Number  # of its peak
    memory: Number  # B/s of a chip
    link: Number  # B/s into the ring
    latency: Number  # of a link [s]


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class ServingStage:
    """One pipeline stage, its four times added, and what a pass through all of them takes; seconds."""

    compute: Number
    memory: Number
    serialisation: Number
    link_latency: Number
    hop: Number  # from a stage to the next one
    stages: Number
    tokens: Number  # of a pass

    @property
    def interval(self) -> Number:
        """Initiation interval: a pass starts each [s]."""
        return self.compute + self.memory + self.serialisation + self.link_latency

    @property
    def latency(self) -> Number:
        """TTFT of a prefill, TPOT of a decode [s]."""
        return pipeline_latency(self.interval, self.hop, self.stages)

    @property
    def throughput(self) -> Number:
        """Tokens/s of the system, every stage busy with another request."""
        return self.tokens / self.interval


def layer_work(layer: ServedLayer, tokens: Number, context: Number, cached: Number, tp: Number) -> Number:
    r"""Operations of one chip for a layer [FLOP].

    .. math:: F = \frac{2h(4h + 2f)s + fs + 2hcs + 4hc\,d}{p} + \lceil \tfrac{n s}{p} \rceil\, c (2h/n + 2) + 7hs

    hidden size h, FFN width f, heads n, tokens s, context c, chips p of tensor parallelism; d = 1 where K and
    V come from a cache (decode) and 0 where not (prefill). The cached rows cost 4hc once, whatever s: the
    logged operations of passes of one and of five tokens have it so. Only the score product and its softmax
    and dropout go by whole rows n s, so that 12 heads on 16 chips work as 16; seven elementwise kernels are
    repeated by every chip. Read from the operations and compute times DFModel logged; the seventeen times
    are met to 1e-6.

    >>> eight = ServedLayer(hidden=4096.0, inner=14336.0, heads=32.0, read=0.0)
    >>> round(layer_work(eight, 1.0, 4097.0, 1.0, 16.0) / (0.9 * 638.976e12) * 1e9, 3)
    54.784
    """
    xp = namespace(layer.hidden, layer.inner, layer.heads, tokens, context, cached, tp)
    h, f = layer.hidden, layer.inner
    shared = 2.0 * h * (4.0 * h + 2.0 * f) * tokens + f * tokens
    attended = 2.0 * h * context * tokens + 4.0 * h * context * cached
    rows = xp.ceil(layer.heads * tokens / tp)
    scores = rows * context * (2.0 * h / layer.heads + SCORE_KERNELS)
    return (shared + attended) / tp + scores + SIMD_KERNELS * h * tokens


def pipeline_latency(interval: Number, hop: Number, stages: Number) -> Number:
    r"""Time of a pass through a pipeline [s].

    .. math:: T = P\,t + (P - 1)\,g

    stages P of t each, g from one to the next. It rises with P at a fixed number of chips, as the stages'
    memory time does not fall; the paper's text says that latency is "decreased".

    >>> round(pipeline_latency(0.6106073e-3, 0.17048e-6, 2.0) * 1e3, 4)
    1.2214
    """
    return stages * interval + (stages - 1.0) * hop


def serving_stage(
    layer: ServedLayer,
    chips: ServingChips,
    *,
    layers: Number,
    tp: Number,
    pp: Number = 1.0,
    tokens: Number = 1.0,
    context: Number = 4096.0,
    cached: Number = 1.0,
    word: float = 2.0,
    factor: float = 2.0,
) -> ServingStage:
    r"""A stage of L = layers / P layers, one request at a time, nothing overlapped.

    .. math::

        t = L \left( \frac{F}{u\,R} + \frac{d\,m}{p\,B} + 2 \kappa \frac{p-1}{p} \frac{h s w}{b} + 2 \kappa (p-1) l \right),
        \quad g = \frac{h s w}{p\,b} + l

    operations F of :func:`layer_work`, peak R at efficiency u; bytes m a decode pass reads, memory B; two
    all-reduces on a ring of links b with latency l, each kappa passes of (p - 1) / p (2: reduce-scatter and
    all-gather one after the other; 1: as DFModel counts them elsewhere); words of w bytes.

    >>> chips = ServingChips(peak=638.976e12, efficiency=0.9, memory=1638.4e9, link=50e9, latency=150e-9)
    >>> eight = ServedLayer(hidden=4096.0, inner=14336.0, heads=32.0, read=26 * 4096.0**2)
    >>> stage = serving_stage(eight, chips, layers=32.0, tp=16.0, context=4097.0)
    >>> round(stage.throughput, 1)
    1187.8
    """
    depth = layers / pp
    payload = layer.hidden * tokens * word
    work = layer_work(layer, tokens, context, cached, tp)
    rings = ALL_REDUCES * factor
    return ServingStage(
        compute=depth * work / (chips.efficiency * chips.peak),
        memory=depth * cached * layer.read / (tp * chips.memory),
        serialisation=depth * rings * ring_scatter(payload, tp, chips.link, 0.0),
        link_latency=depth * rings * ring_scatter(0.0, tp, chips.link, chips.latency),
        hop=payload / (tp * chips.link) + chips.latency,
        stages=pp,
        tokens=tokens,
    )


def draft_passes(window: Number, tree: Number) -> Number:
    r"""Passes of a draft for a guess as DFModel's text counts tokens, one after the other.

    .. math:: n = w \text{ (sequence)}, \quad 2^w \text{ (tree)}

    A tree "with a total of 2^K tokens" (sec. VIII-B, of SpecInfer). That each of them is a pass is our
    reading of a draft that has to "generate an exponential amount of tokens": no run of a tree is among its
    results. SpecInfer itself drafts a level of the tree in one pass: `strata.serving.speculate`.

    >>> float(draft_passes(4.0, False)), float(draft_passes(4.0, True))
    (4.0, 16.0)
    """
    xp = namespace(window, tree)
    return xp.where(tree, 2.0**window, window) + 0.0


def dfmodel_tokens_per_s(passes: Number, draft: Number, verify: Number, tokens: Number) -> Number:
    r"""Tokens/s of one sequence with speculative decoding.

    .. math:: v = \frac{E}{n\,t_d + t_v}

    tokens E of a round, in DFModel's results w a + 1; n passes of the draft of t_d [s], one of the target t_v
    [s], which DFModel priced for five tokens at every window.

    >>> from strata.serving.speculation import proportional_tokens
    >>> rate = dfmodel_tokens_per_s(4.0, 0.8419e-3, 31.4758e-3, proportional_tokens(4.0, 0.8))
    >>> round(rate, 1)
    120.5
    """
    return tokens / (passes * draft + verify)
