"""Mixture of experts: router, dispatch, routed and shared experts, combine; how tokens spread over experts;
and dense feed-forward layers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from strata.base.arrays import Array, Number, lead, namespace
from strata.workload.attention_parts import LayerOps, layer_ops
from strata.workload.expert_ops import EXPERT_ROWS, ROUTER, SHARED_EXPERT, Combine, Dispatch, ExpertMatMul
from strata.workload.graph import Extent, Op
from strata.workload.model import Model
from strata.workload.ops import OPERATIONS, EagerKernels
from strata.workload.tasks import Workload

# Vector work per element (arithmetic, special functions), counted from the definitions; SiLU with the product
# by the other half of a gated layer.
NORM_FLOP, ROPE_FLOP = OPERATIONS["row"]["RMSNormalization"][0], OPERATIONS["row"]["RotaryEmbedding"][0]
SILU_FLOP, SILU_SPECIAL = (
    sum(counts) for counts in zip(OPERATIONS["element"]["Swish"], OPERATIONS["element"]["Mul"], strict=True)
)
NORM = "norm"  # role of the norm before a part of a layer
# Where nothing is fused: the function, and the product with the other half, both of columns side by side with
# others; backward the gradients of all three, and two of them put together.
EAGER_GATED = EagerKernels(
    singles=2.0, passes=2.0, backward=EagerKernels(streams=1.0, moved=3.0, singles=3.0, passes=4.0)
)
EAGER_PLAIN = EagerKernels(streams=1.0, moved=2.0, backward=EagerKernels(streams=1.0, moved=3.0))


def gated_ffn(
    layer: LayerOps, source: str, *, width: Number, axis: str, bias: bool, prefix: str = ""
) -> tuple[Op, ...]:
    """Up (and gate), activation, down; `axis` is what a layout may divide."""
    model = layer.model
    sides = 2.0 if model.gated else 1.0
    inner = Extent(width, 1.0, axis)
    up = layer.product(f"{prefix}up", source, f"{prefix}up_out", Extent(width, sides, axis), bias=bias)
    act = layer.vector(
        f"{prefix}activation",
        up.output,
        f"{prefix}act_out",
        inner,
        reads=sides,
        flop_per_element=SILU_FLOP,
        special_per_element=SILU_SPECIAL,
        pieces=2.0 if model.gated else 1.0,
        eager=EAGER_GATED if model.gated else EAGER_PLAIN,
    )
    hidden = Extent(model.hidden)
    return (
        up,
        act,
        layer.product(f"{prefix}down", act.output, f"{prefix}down_out", hidden, inner, bias=bias),
    )


# Midpoints of eight equally likely slices of the standard normal distribution: scipy.special.ndtri((i + 1/2)
# / 8).
UPPER_NODES = (0.15731068461017067, 0.4887764111146695, 0.8871465590188759, 1.5341205443525463)
NORMAL_NODES = np.array([*(-node for node in reversed(UPPER_NODES)), *UPPER_NODES])

EXPERT_NAME = 2.0  # the number of an expert in a table, in 64 bits, over an element of scores


def expert_ops(
    model: Model, work: Workload, tokens: Extent, source: str, kind: str = "moe"
) -> tuple[tuple[Op, ...], tuple[str, ...]]:
    """The ops of a mixture-of-experts layer after its norm, and what they hand on; `hash` names experts by a
    table of tokens.
    """
    layer, width = layer_ops(model, "moe", tokens), Extent(model.expert_rank)
    if not model.latent_experts:
        ops = (*_route(layer, source, source, kind), *_routed_experts(layer, work))
        leaf = "combined"
    else:
        # Routed experts work in a latent of all tokens, router and shared experts see the model's own width
        # (NVIDIA, Nemotron 3 white paper, 2025, sec. 2.2: LatentMoE).
        down = layer.product("latent_down", source, "latent_down_out", width)
        up = layer.product("latent_up", "combined", "latent_up_out", Extent(model.hidden), width)
        ops = (down, *_route(layer, source, down.output, kind), *_routed_experts(layer, work), up)
        leaf = up.output
    if not model.shared_experts:
        return ops, (leaf,)
    shared = gated_ffn(
        replace(layer, role=SHARED_EXPERT),
        source,
        width=model.shared_ffn,
        axis="shared_ffn",
        bias=False,
        prefix="shared_",
    )
    return (*ops, *shared), (leaf, shared[-1].output)


def _routed(layer: LayerOps) -> tuple[LayerOps, Number, dict[str, Number]]:
    """What makes ops on rows for experts, elements of a row that experts work on, and what a dispatch or a
    combine says of them.
    """
    model, tokens = layer.model, layer.rows
    width = model.expert_rank if model.latent_experts else model.hidden
    rows = layer_ops(model, layer.module, Extent(tokens.count, tokens.unit, "routed_tokens"))
    return rows, width, {"top_k": model.top_k, "width": width, "token": width}


def _route(layer: LayerOps, source: str, rows: str, kind: str) -> tuple[Op, ...]:
    """Scores of all experts, the choice among them, and rows on their way to the chosen."""
    model, router = layer.model, replace(layer, role=ROUTER)
    every, scored = Extent(model.experts), kind == "moe"
    scores = router.product(
        "router",
        source,
        "router_out",
        (every, Extent(1.0)) if model.shared_gate else every,
        weight=model.embedding_dtype,
        bias=model.router_bias and scored,
    )
    choice = router.vector(
        "top_k",
        scores.output,
        "routes",
        every if scored else Extent(model.top_k),
        reads=1.0 if scored else 1.0 + EXPERT_NAME,
        writes=0.0,
        flop_per_element=2.0,
        special_per_element=1.0,
        precision="fp32",
        # scores weigh the experts that the table names for a token
        parameters=() if scored else (Extent(model.vocab), Extent(model.top_k)),
        parameter_precision="fp64",
    )
    routed, width, sent = _routed(layer)
    picks = Extent(model.top_k)
    moved = {"reads": width, "writes": width, "gradients": 1, **sent}  # the choice has no gradient
    return (
        scores,
        choice,
        routed.vector("dispatch", (rows, choice.output), "sent", picks, Dispatch, **moved),
    )


def _routed_experts(layer: LayerOps, work: Workload) -> tuple[Op, ...]:
    """Products of the experts over the rows sent to them, and their results, weighted and added up for each
    token.
    """
    model, tokens, sides = layer.model, layer.rows, 2.0 if layer.model.gated else 1.0
    routed, width, sent = _routed(layer)
    hidden, inner = Extent(width), Extent(model.expert_ffn, 1.0, "expert_ffn")
    # Both products share these: what a rank has to do is worked out once for the two.
    grouped, held = Extent(tokens.count, tokens.unit, "ep_tokens"), Extent(model.experts, 1.0, "experts")

    def product(name: str, source: str, output: str, n: Extent, k: Extent) -> ExpertMatMul:
        return ExpertMatMul(
            name=name,
            module="moe",
            inputs=(source,),
            output=output,
            n=(n,),
            k=k,
            tokens=grouped,
            experts=held,
            top_k=model.top_k,
            all_experts=model.experts,
            skew=work.skew,
            routing=work.routing,
            weight=model.expert_weights,
            activation=model.activations,
            bias=model.expert_bias,
            groups=model.expert_groups,
            top_groups=model.top_groups,
            generates=work.phase == "decode" and work.prompts is None,
        )

    up = product("experts_up", "sent", "experts_mid", Extent(model.expert_ffn, sides, "expert_ffn"), hidden)
    activation = replace(routed, role=EXPERT_ROWS).vector(
        "experts_activation",
        up.output,
        "experts_act",
        Extent(model.top_k * model.expert_ffn, 1.0, "expert_ffn"),
        reads=sides,
        flop_per_element=SILU_FLOP,
        special_per_element=SILU_SPECIAL,
        pieces=2.0,
    )
    down = product("experts_down", activation.output, "experts_out", hidden, inner)
    down = replace(down, weighted_bias=model.expert_bias)
    added = {"reads": model.top_k, "flop_per_element": 2.0 * model.top_k, **sent}
    return (up, activation, down, routed.vector("combine", down.output, "combined", hidden, Combine, **added))


def expert_shares(experts: Number, skew: Number, rank: int = 0) -> Array:
    r"""Popularity of the experts in each of eight equal groups (leading axis, least popular first), 1 on
    average.

    .. math:: s_j = 8 \frac{F(q_j) - F(q_{j+1})}{F(1)}, \quad F(q) = \frac{(q E + 1/2)^{1-a} - (1/2)^{1-a}}{1-a}

    experts E, the i-th most popular asked for in proportion to :math:`i^{-a}`; skew a, 0 is uniform; group
    edges q from the least popular eighth to the most. The sum over experts is taken as an integral, whose
    groups add up to all picks exactly.

    Zipf's law as in the power_law rows of validation/ops/moe.csv.

    >>> expert_shares(128.0, 0.0).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    >>> float(expert_shares(128.0, 1.2).mean())
    1.0
    """
    xp = namespace(experts, skew)
    power = 1.0 - xp.where(xp.abs(skew - 1.0) < 1e-6, 1.0 + 1e-5, skew)  # the limit at 1 is a logarithm
    # over (1/2)^(1-a), which no skew overflows
    reached = (lead(np.linspace(2.0, 0.0, 9), rank, xp) * experts + 1.0) ** power - 1.0
    return 8.0 * (reached[:-1] - reached[1:]) / reached[:1]


def chance(shares: Number, experts: Number, top_k: Number) -> Number:
    """Probability that a token picks an expert of such popularity."""
    xp = namespace(shares, experts, top_k)
    return xp.minimum(top_k / experts * shares, 1.0 - 1e-12)


def expert_load_of(
    tokens: Number, p: Number, rank: int = 0, copies: Number | None = None
) -> tuple[Number, Number]:
    r"""Tokens of a touched expert at quantile nodes (leading axis), and the probability that an expert is
    touched.

    Tokens of one expert are binomial(T, p); given that there is at least one they have mean :math:`\mu = T p
    / P` and variance :math:`(T p (1-p) + (T p)^2) / P - \mu^2`, with :math:`P = 1 - (1-p)^T`. The nodes are
    the mean plus eight equally likely normal deviates, never below one token, scaled so that all picks are
    served. Under skew each node also takes the popularity of its quantile. Rounding up is done on the nodes,
    never on the mean: 256 experts, top-8, 2048 tokens fill 378 tiles of 64 rows, not 256. `rank` is the
    number of axes of what the load is used with; `copies` counts how often the experts of each node are held,
    where that differs.

    >>> load, touched = expert_load_of(2048.0, np.full((8, 1), 8 / 256), 1)
    >>> round(float(np.mean(load * touched) * 256)) == 2048 * 8
    True
    """
    xp = namespace(tokens, p)
    mean = tokens * p
    # Popular experts at the high nodes: one axis carries both chance and popularity.
    touched = -xp.expm1(tokens * xp.log1p(-p))
    given = xp.where(touched > 0.0, mean / xp.maximum(touched, 1e-300), 1.0)  # one token, where hardly any
    over = 1.0 - p + mean - given  # the variance is this times the mean
    # a single token has none, but for rounding
    spread = xp.sqrt(given) * xp.sqrt(xp.where(over > 1e-9 * given, over, 0.0))
    # Loads below one token cannot be; what they would have lacked is taken off the others, so that every pick
    # is served.
    extra = xp.maximum(given + lead(NORMAL_NODES, rank, xp) * spread - 1.0, 0.0)
    held = 1.0 if copies is None else copies
    due, drawn = xp.sum((mean - touched) * held, axis=0), xp.sum(touched * extra * held, axis=0)
    return 1.0 + extra * (due / xp.maximum(drawn, 1e-300)), touched


def copies_of(shares: Array, redundant: Number) -> Array:
    r"""How often the experts of each node are held when copies go to the most popular, so that the busiest
    copy has least to do.

    .. math:: m_j = \max\left(1, \frac{s_j}{c}\right), \quad c = \max_k \frac{\sum_{j > 8 - k} s_j}{8 r + k}

    popularity s of eight nodes, least popular first (leading axis); redundant r: copies over experts. A token
    goes to one copy. Copies are a mean over many experts here and need not be whole.

    >>> copies_of(np.array([0.5] * 7 + [4.5]), 1 / 8).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0]
    """
    xp = namespace(shares, redundant)
    top = xp.cumsum(shares[::-1], axis=0)
    count = lead(np.arange(1.0, len(NORMAL_NODES) + 1.0), top.ndim - 1, xp)
    level = xp.max(top / (len(NORMAL_NODES) * redundant + count), axis=0)
    return xp.maximum(1.0, shares / level)
