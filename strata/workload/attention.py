"""Attention layers: grouped heads, latents that all heads share, and the scorer of sparse attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strata.arrays import Number, namespace
from strata.workload.ffn import NORM_FLOP, ROPE_FLOP, SILU_FLOP, SILU_SPECIAL
from strata.workload.graph import Extent, Op
from strata.workload.model import Model
from strata.workload.ops import Attention, MatMul, Vector
from strata.workload.tasks import Workload

ROPE_PIECES = 4.0  # where nothing is fused: queries and keys turned, keys and values written to the cache
NO_WINDOW = 1e18


def attended(context: Number, sequence: Number, window: Number) -> Number:
    r"""Mean number of tokens a causal query attends to, at most `window`.

    .. math:: \bar{s} = \frac{F(c) - F(c - q)}{q}, \quad F(x) = \sum_{p=1}^{x} \min(p, w)

    context c; new tokens q; window w. Exact for whole numbers.

    >>> float(attended(4.0, 4.0, 1e18)), float(attended(1024.0, 1.0, 128.0))
    (2.5, 128.0)
    """
    xp = namespace(context, sequence, window)

    def summed(x: Number) -> Number:
        inside = xp.minimum(x, window)
        return inside * (inside + 1) / 2 + (x - inside) * window

    return (summed(context) - summed(context - sequence)) / sequence


def attention_ops(model: Model, work: Workload, tokens: Extent, kind: str, source: str) -> tuple[Op, ...]:
    """The ops of an attention layer after its norm; `kind` is full, window or sparse."""
    make = _latent_attention if model.attention == "mla" else _grouped_attention
    return make(model, work, tokens, kind, source)


@dataclass(frozen=True)
class Part:
    """One kind of token of a step: those it generates, or those of prompts that it reads beside."""

    work: Workload
    beside: bool

    def named(self, name: str) -> str:
        return f"prompt_{name}" if self.beside else name


def parts_of(work: Workload) -> tuple[Part, ...]:
    """The kinds of tokens of a step whose attention differs."""
    return tuple(Part(part, part.phase != work.phase) for part in work.attending)


def _softmax(
    model: Model, part: Part, kind: str, module: str, inputs: tuple[str, ...], **sizes: Any
) -> Attention:
    """The attention op of a kind: full, windowed or sparse; windows limit what is read and, for true windows,
    held.
    """
    work = part.work
    xp = namespace(work.context, model.window, model.sparse_top_k)
    limit = {"full": NO_WINDOW, "window": model.window, "sparse": model.sparse_top_k}[kind]
    span = attended(work.context, work.sequence, limit)
    read = xp.minimum(work.context, limit + work.sequence - 1)
    # A sparse step of many queries touches the union of their choices: at most the whole context.
    if kind == "sparse":
        read = xp.minimum(work.context, limit * work.sequence)
    held = work.context if kind == "sparse" else read
    return Attention(
        name=part.named("attention"),
        module=module,
        inputs=inputs,
        output=part.named("mixed"),
        sequences=Extent(work.batch, 1.0, "sequences"),
        queries=Extent(1.0, work.sequence, "queries"),
        span=Extent(1.0, span, "kv_tokens"),
        cached=Extent(1.0, read, "kv_tokens"),
        held=Extent(1.0, held, "kv_cache_tokens"),
        activation=model.activations,
        kv=model.kv,
        **sizes,
    )


def _grouped_attention(
    model: Model, work: Workload, tokens: Extent, kind: str, source: str
) -> tuple[Op, ...]:
    q = Extent(model.heads, model.head_dim, "heads")
    kv = Extent(model.kv_heads, 2.0 * model.head_dim, "kv_heads")
    hidden = Extent(model.hidden)
    columns = Extent(model.heads, 2.0 * model.head_dim, "heads") if model.output_gate else q
    qkv = MatMul(
        name="qkv",
        module="attention",
        inputs=(source,),
        output="qkv_out",
        m=tokens,
        n=(columns, kv),
        k=hidden,
        bias=model.qkv_bias,
        weight=model.weights,
        activation=model.activations,
    )
    rope = Vector(
        name="rope_and_cache",
        module="attention",
        inputs=("qkv_out",),
        output="rotated",
        m=tokens,
        n=(q, kv),
        reads=1.0,
        writes=1.0,
        flop_per_element=ROPE_FLOP + (NORM_FLOP if model.qk_norm else 0.0),
        special_per_element=0.0,
        precision=model.activations,
        parameters=(Extent(2.0 * model.head_dim),) if model.qk_norm else (),
        pieces=ROPE_PIECES,
    )
    mix = [
        _softmax(
            model,
            part,
            kind,
            "softmax_attention",
            ("rotated", "cache"),
            heads=Extent(model.heads, 1.0, "heads"),
            kv_heads=Extent(model.kv_heads, 1.0, "kv_heads"),
            key_dim=model.head_dim,
            value_dim=model.head_dim,
            kv_width=2.0 * model.head_dim,
        )
        for part in parts_of(work)
    ]
    mixed, gate = tuple(op.output for op in mix), list[Op]()
    if model.output_gate:
        gate, mixed = [_gate(model, tokens, (*mixed, "qkv_out"), q, kv)], ("gated",)
    o = _product(model, "o", mixed, "attended", m=tokens, n=(hidden,), k=q, bias=model.output_bias)
    return (qkv, rope, *mix, *gate, o)


def _gate(model: Model, tokens: Extent, inputs: tuple[str, ...], q: Extent, kv: Extent) -> Vector:
    """Results of heads times the sigmoid of a gate that the projection of queries makes beside them."""
    return Vector(
        name="output_gate",
        module="attention",
        inputs=inputs,
        output="gated",
        m=tokens,
        n=(q,),
        reads=2.0,
        writes=1.0,
        flop_per_element=SILU_FLOP,
        special_per_element=SILU_SPECIAL,
        precision=model.activations,
        beside=(kv,),
    )


def _latent_attention(model: Model, work: Workload, tokens: Extent, kind: str, source: str) -> tuple[Op, ...]:
    """Multi-head latent attention: absorbed (one shared latent head) in decode, expanded to full heads
    elsewhere.
    """
    rank, rope_dim = model.kv_rank, model.rope_dim
    shared = (Extent(rank), Extent(rope_dim))
    down = shared if model.direct_queries else (Extent(model.q_rank), *shared)
    norm = Vector(
        name="latent_norm",
        module="attention",
        inputs=("latent",),
        output="latent_n",
        m=tokens,
        n=down,
        reads=1.0,
        writes=1.0,
        flop_per_element=NORM_FLOP,
        special_per_element=0.0,
        precision=model.activations,
        parameters=(Extent(rank if model.direct_queries else model.q_rank + rank),),
    )
    asked = (Extent(model.heads, model.head_dim, "heads"),)
    if model.direct_queries:
        queries = _product(model, "q", (source,), "q", m=tokens, n=asked, k=Extent(model.hidden))
    else:
        queries = _product(model, "q_up", ("latent_n",), "q", m=tokens, n=asked, k=Extent(model.q_rank))
    ops: list[Op] = [
        _product(model, "qkv_down", (source,), "latent", m=tokens, n=down, k=Extent(model.hidden)),
        norm,
        queries,
    ]
    if kind == "sparse":
        ops += _indexer(model, work, tokens, source)
    rope = Vector(
        name="rope_and_cache", module="attention", inputs=("q", "latent_n"), output="rotated", m=tokens,
        n=(Extent(model.heads, rope_dim, "heads"), Extent(rank + rope_dim)), reads=1.0, writes=1.0,
        flop_per_element=ROPE_FLOP, special_per_element=0.0, precision=model.activations, pieces=ROPE_PIECES,
        gradients=1,  # what flows back to the latent is a few columns, the same for all heads
    )  # fmt: skip
    ops.append(rope)
    ends: list[str] = []
    for part in parts_of(work):
        some = _absorbed(model, part, kind) if part.work.phase == "decode" else _expanded(model, part, kind)
        ops += some
        ends.append(some[-1].output)
    o_in = Extent(model.heads, model.v_head_dim, "heads")
    ops.append(_product(model, "o", tuple(ends), "attended", m=tokens, n=(Extent(model.hidden),), k=o_in))
    return tuple(ops)


def _product(model: Model, name: str, inputs: tuple[str, ...], output: str, **sizes: Any) -> MatMul:
    return MatMul(
        name=name,
        module="attention",
        inputs=inputs,
        output=output,
        weight=model.weights,
        activation=model.activations,
        **sizes,
    )


def _absorbed(model: Model, part: Part, kind: str) -> list[Op]:
    """Latent attention of generated tokens: queries are brought into the latent, which all heads share."""
    nope, rank, width = model.head_dim - model.rope_dim, model.kv_rank, model.kv_rank + model.rope_dim
    each = Extent(model.heads, 1.0, "heads")
    rows = Extent(part.work.batch, part.work.sequence, "tokens")
    return [
        _product(
            model, "absorb_q", ("rotated",), "q_latent", m=rows, n=(Extent(rank),), k=Extent(nope), batch=each
        ),
        _softmax(
            model,
            part,
            kind,
            "latent_attention",
            ("q_latent", "cache"),
            heads=each,
            kv_heads=Extent(1.0),
            key_dim=width,
            value_dim=rank,
            kv_width=width,
            latent=True,
        ),
        _product(
            model,
            "absorb_v",
            ("mixed",),
            "values",
            m=rows,
            n=(Extent(model.v_head_dim),),
            k=Extent(rank),
            batch=each,
        ),
    ]


def _expanded(model: Model, part: Part, kind: str) -> list[Op]:
    """Latent attention of prompts: keys and values of every head are made from the latents of all tokens
    known.
    """
    nope, rank = model.head_dim - model.rope_dim, model.kv_rank
    known = Extent(part.work.batch, part.work.context, "tokens")
    return [
        # A mixed step has these weights already, absorbed into the products of its generated tokens.
        _product(
            model,
            "kv_up",
            ("latent_n",),
            "kv",
            m=known,
            n=(Extent(model.heads, nope + model.v_head_dim, "heads"),),
            k=Extent(rank),
            stored=not part.beside,
        ),
        _softmax(
            model,
            part,
            kind,
            "latent_attention",
            ("rotated", "kv"),
            heads=Extent(model.heads, 1.0, "heads"),
            kv_heads=Extent(1.0),
            key_dim=model.head_dim,
            value_dim=model.v_head_dim,
            kv_width=rank + model.rope_dim,
            latent=True,
        ),
    ]


def _indexer(model: Model, work: Workload, tokens: Extent, source: str) -> list[Op]:
    """The scorer of sparse attention: index queries and keys, scores against the whole context, and the
    choice of the top.
    """
    queries, keys = (
        (Extent(model.index_heads, model.index_dim),),
        (Extent(model.index_dim + model.index_heads),),
    )
    ops: list[Op] = [
        _product(model, "index_q", ("latent_n",), "index_q_out", m=tokens, n=queries, k=Extent(model.q_rank)),
        _product(model, "index_k", (source,), "index_k_out", m=tokens, n=keys, k=Extent(model.hidden)),
    ]
    for part in parts_of(work):
        step = part.work
        scores = Extent(1.0, attended(step.context, step.sequence, NO_WINDOW), "kv_tokens")
        score = Attention(
            name=part.named("index_score"),
            module="indexer",
            inputs=("index_q_out", "index_k_out"),
            output=part.named("scores"),
            sequences=Extent(step.batch, 1.0, "sequences"),
            queries=Extent(1.0, step.sequence, "queries"),
            span=scores,
            cached=Extent(1.0, step.context, "kv_tokens"),
            held=Extent(1.0, step.context, "kv_cache_tokens"),
            heads=Extent(model.index_heads),
            kv_heads=Extent(1.0),
            key_dim=model.index_dim,
            value_dim=0.0,
            kv_width=model.index_dim,
            activation=model.activations,
            products="fp8",
            kv="fp8",
        )
        top = Vector(
            name=part.named("index_top"),
            module="attention",
            inputs=(score.output,),
            output=part.named("chosen"),
            m=Extent(step.batch, step.sequence, "tokens"),
            n=(scores,),
            reads=1.0,
            writes=0.0,
            flop_per_element=2.0,
            special_per_element=0.0,
            precision="fp32",
            needs_whole=("kv_tokens",),
            parameters=() if part.beside else (Extent(2.0 * model.index_dim),),
        )
        ops += [score, top]
    return ops
