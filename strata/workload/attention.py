"""Attention layers: grouped heads, latents that all heads share, and the scorer of sparse attention."""

from __future__ import annotations

from typing import Any

from strata.arrays import namespace
from strata.workload.attention_parts import (
    LATENT_UP,
    NO_WINDOW,
    ROPE_PIECES,
    Part,
    attended,
    attention_product,
    eager_heads,
    eager_rotation,
    index_ops,
    parts_of,
)
from strata.workload.compressed_attention import compressed_ops
from strata.workload.graph import Extent, Op
from strata.workload.model import Model
from strata.workload.moe import NORM_FLOP, ROPE_FLOP, SILU_FLOP, SILU_SPECIAL
from strata.workload.ops import Attention, MatMul, Vector
from strata.workload.tasks import Workload


def attention_ops(model: Model, work: Workload, tokens: Extent, kind: str, source: str) -> tuple[Op, ...]:
    """The ops of an attention layer after its norm; `kind` is full, window, sparse, csa or hca."""
    kinds = {"mla": _latent_attention, "gqa": _grouped_attention, "compressed": compressed_ops}
    return kinds[model.attention](model, work, tokens, kind, source)


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
        products=model.attention_products,
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
        eager=eager_heads(q.size, kv.size)
        if model.learned_positions
        else eager_rotation(q.size, 0.5 * kv.size, 0.5 * kv.size),
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
    o = attention_product(model, "o", mixed, "attended", m=tokens, n=(hidden,), k=q, bias=model.output_bias)
    scorer = _block_indexer(model, work, tokens, source) if kind == "sparse" else []
    return (qkv, rope, *scorer, *mix, *gate, o)


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
        role=LATENT_UP,
    )
    asked = (Extent(model.heads, model.head_dim, "heads"),)
    if model.direct_queries:
        queries = attention_product(
            model, "q", (source,), "q", m=tokens, n=asked, k=Extent(model.hidden), role=LATENT_UP
        )
    else:
        queries = attention_product(
            model, "q_up", ("latent_n",), "q", m=tokens, n=asked, k=Extent(model.q_rank), role=LATENT_UP
        )
    ops: list[Op] = [
        attention_product(model, "qkv_down", (source,), "latent", m=tokens, n=down, k=Extent(model.hidden)),
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
        role=LATENT_UP,
    )  # fmt: skip
    ops.append(rope)
    ends: list[str] = []
    for part in parts_of(work):
        some = _absorbed(model, part, kind) if part.work.phase == "decode" else _expanded(model, part, kind)
        ops += some
        ends.append(some[-1].output)
    o_in = Extent(model.heads, model.v_head_dim, "heads")
    ops.append(
        attention_product(model, "o", tuple(ends), "attended", m=tokens, n=(Extent(model.hidden),), k=o_in)
    )
    return tuple(ops)


def _absorbed(model: Model, part: Part, kind: str) -> list[Op]:
    """Latent attention of generated tokens: queries are brought into the latent, which all heads share."""
    nope, rank, width = model.head_dim - model.rope_dim, model.kv_rank, model.kv_rank + model.rope_dim
    each = Extent(model.heads, 1.0, "heads")
    rows = Extent(part.work.batch, part.work.sequence, "tokens")
    return [
        attention_product(
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
        attention_product(
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
        attention_product(
            model,
            "kv_up",
            ("latent_n",),
            "kv",
            m=known,
            n=(Extent(model.heads, nope + model.v_head_dim, "heads"),),
            k=Extent(rank),
            role=LATENT_UP,
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
    made = (
        attention_product(
            model, "index_q", ("latent_n",), "index_q_out", m=tokens, n=queries, k=Extent(model.q_rank)
        ),
        attention_product(
            model, "index_k", (source,), "index_k_out", m=tokens, n=keys, k=Extent(model.hidden)
        ),
    )
    return [*made, *index_ops(model, work, "index_k_out", 1.0, (Extent(2.0 * model.index_dim),))]


def _block_indexer(model: Model, work: Workload, tokens: Extent, source: str) -> list[Op]:
    """The scorer of blocks of keys: one index head for each group of heads, one index key for all; a block's
    score is the largest of its keys' (MiniMax-M3; Hugging Face transformers, minimax_m3_vl).
    """
    queries, keys = Extent(model.index_heads, model.index_dim, "kv_heads"), Extent(model.index_dim)
    wide = {"m": tokens, "k": Extent(model.hidden)}
    rope = Vector(
        name="index_rope", module="attention", inputs=("index_q_made", "index_k_made"), output="index_q_out",
        m=tokens, n=(queries, keys), reads=1.0, writes=1.0, flop_per_element=ROPE_FLOP + NORM_FLOP,
        special_per_element=0.0, precision=model.activations,
    )  # fmt: skip
    return [
        attention_product(model, "index_q", (source,), "index_q_made", n=(queries,), **wide),
        attention_product(model, "index_k", (source,), "index_k_made", n=(keys,), **wide),
        rope,
        *index_ops(model, work, "index_q_out", 1.0, (Extent(2.0 * model.index_dim),), heads="kv_heads"),
    ]
