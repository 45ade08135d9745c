r"""Attention layers: grouped heads, latents that all heads share, compressed keys, and the scorer of sparse
attention.

Compressed keys: a window of tokens as they are, and one entry for each so many before.

All heads share one entry of `head_dim`, key and value at once. `csa` (compressed sparse attention) makes an
entry of every 4 tokens from windows that overlap, and an indexer chooses some for each query; `hca` (heavily
compressed attention) makes one of every 128 and reads all; `window` has neither. What a query reads of c
tokens and a layer keeps of them:

.. math:: r = \min(c, w) + \min\left(\frac{c}{m}, k\right), \quad h = \min(c, w) + \frac{c}{m}

window w, ratio m, entries chosen k (hca: all). Of 2**20 tokens DeepSeek-V4-Pro keeps 9.62 GiB in bf16.

DeepSeek-V4 report (2026), sec. 2.3; vLLM blog, DeepSeek V4 in vLLM, 2026-04-24 (9.62 GiB; the state of the
compressor kept beside, in fp32); sizes of the projections as Hugging Face transformers documents them for
deepseek_v4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from strata.base.arrays import Number, field_names, namespace
from strata.base.precision import bytes_of
from strata.workload.attention_parts import (
    LATENT_UP,
    NO_WINDOW,
    ROPE_PIECES,
    LayerOps,
    Part,
    attended,
    eager_heads,
    eager_rotation,
    index_ops,
    layer_ops,
    parts_of,
)
from strata.workload.graph import Extent, Op, axes_of, total
from strata.workload.model import Model
from strata.workload.moe import NORM_FLOP, ROPE_FLOP, SILU_FLOP, SILU_SPECIAL
from strata.workload.ops import Attention, Vector
from strata.workload.tasks import Workload


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WindowPool(Vector):
    """Windows of tokens made one entry each, by weights of their own; the tokens of an open window are kept
    for the next step.
    """

    sequences: Extent
    window: Number  # tokens that are kept

    def state_bytes(self) -> Number:
        kept = self.sequences.size * self.window * total(self.n)
        return 0.0 if self.backward else kept * bytes_of(self.precision)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SharedRotation(Vector):
    """Queries of all heads turned, with the keys that they share, which are its operands after the first: the
    gradient of those is a sum over heads.
    """

    def gradient(self) -> tuple[Op, ...]:
        (made,) = Vector.gradient(self)
        back = Vector(**{name: getattr(made, name) for name in field_names(Vector)})
        heads, keys = self.n
        shared = replace(
            back,
            name=f"{self.name}_shared",
            inputs=(back.output,),
            output=f"{back.output}_shared",
            n=(keys,),
            reads=1.0,
            writes=1.0,
            flop_per_element=1.0,
            looked_up=axes_of(heads),
            beside=(heads,),
        )
        return back, shared

    def gradient_place(self, place: int, gradients: tuple[Op, ...]) -> Op:
        return gradients[min(place, 1)]


# Of a value with its gate: the place's bias, a softmax over the window and the sum under it.
POOL_FLOP, POOL_SPECIAL = 5.0, 1.0
OVERLAP = {"csa": 2.0, "hca": 1.0}  # windows that a token is part of


def ratio_of(model: Model, kind: str) -> Number:
    """Tokens of one compressed entry."""
    return model.csa_ratio if kind == "csa" else model.hca_ratio


def compressed_ops(layer: LayerOps, work: Workload, kind: str, source: str) -> tuple[Op, ...]:
    """The ops of a layer after its norm; `kind` is csa, hca or window."""
    model = layer.model
    each, shared = Extent(model.heads, model.head_dim, "heads"), Extent(model.head_dim)
    down, normed = (Extent(model.q_rank), shared), Extent(model.q_rank + model.head_dim)
    ops: list[Op] = [
        layer.product("qkv_down", source, "latent", down),
        layer.vector(
            "latent_norm", "latent", "latent_n", down, flop_per_element=NORM_FLOP, parameters=(normed,)
        ),
        layer.product("q_up", "latent_n", "q", each, Extent(model.q_rank)),
    ]
    known: tuple[str, ...] = ("q", "latent_n")
    if kind != "window":
        ops += _compressor(layer, work, kind, source)
        known = (*known, ops[-1].output)
    if kind == "csa":  # scores of compressed entries for each query, and the choice of the top
        queries = Extent(model.index_heads, model.index_dim)
        ops.append(layer.product("index_q", "latent_n", "index_q_out", queries, Extent(model.q_rank)))
        ops += index_ops(layer, work, "compressed", model.csa_ratio, ())
    rope = layer.vector(
        "rope_and_cache",
        known,
        "rotated",
        (each, shared),
        SharedRotation,
        flop_per_element=ROPE_FLOP + NORM_FLOP,
        pieces=ROPE_PIECES,
        parameters=(Extent(model.heads, 1.0, "heads"),),  # a sink for each head
    )
    mix = [_shared_attention(model, part, kind) for part in parts_of(work)]
    mixed, share = tuple(op.output for op in mix), model.rope_dim / model.head_dim
    turning = {"reads": share, "writes": share, "flop_per_element": share * ROPE_FLOP}
    # groups of heads are brought to a low rank each, and all of them to the model's width
    groups = Extent(model.o_groups, 1.0, "heads")
    inside = Extent(model.heads * model.head_dim / model.o_groups)
    ranks = Extent(model.o_groups, model.o_rank, "heads")
    return (
        *ops,
        rope,
        *mix,
        layer.vector("inverse_rope", mixed, "unrotated", each, **turning),
        layer.product("o_down", "unrotated", "o_latent", Extent(model.o_rank), inside, batch=groups),
        layer.product("o", "o_latent", "attended", Extent(model.hidden), ranks),
    )


def _compressor(layer: LayerOps, work: Workload, kind: str, source: str) -> list[Op]:
    """Values and gates of all tokens, and one entry of each window of them; the indexer has its own."""
    model = layer.model
    ratio, overlap = ratio_of(model, kind), OVERLAP[kind]
    width = model.head_dim + (model.index_dim if kind == "csa" else 0.0)
    channels, scorers = Extent(2.0 * overlap * width), Extent(model.index_heads)
    xp = namespace(ratio, work.sequence)
    # what an open window needs of tokens before: a step by step reading moves all of it once
    kept = xp.minimum(overlap * ratio / work.sequence, 1.0)
    made = width / (ratio * channels.size)
    columns = (channels, scorers) if kind == "csa" else (channels,)
    pool = layer.vector(
        "compress",
        "compress_out",
        "compressed",
        channels,
        WindowPool,
        reads=1.0 + kept,
        writes=kept + made,
        flop_per_element=0.5 * POOL_FLOP + made * (NORM_FLOP + ROPE_FLOP),
        special_per_element=0.5 * POOL_SPECIAL,
        precision="fp32",
        parameters=(Extent(overlap * width * ratio + width),),  # biases of places, and norms
        sequences=Extent(sum((p.work.batch for p in parts_of(work)), 0.0), 1.0, "sequences"),
        window=overlap * ratio,
    )
    return [layer.product("compress_in", source, "compress_out", columns, weight=model.embedding_dtype), pool]


def _shared_attention(model: Model, part: Part, kind: str) -> Attention:
    """All heads over the window and the entries that a query sees."""
    work, window = part.work, model.window
    xp = namespace(work.context, work.sequence, window)
    span = attended(work.context, work.sequence, window)
    read = xp.minimum(work.context, window + work.sequence - 1)
    held = read
    if kind != "window":
        ratio = ratio_of(model, kind)
        entries = work.context / ratio
        most = model.sparse_top_k * ratio if kind == "csa" else NO_WINDOW
        span = span + attended(work.context, work.sequence, most) / ratio
        chosen = xp.minimum(entries, model.sparse_top_k * work.sequence) if kind == "csa" else entries
        read, held = read + chosen, held + entries
    layer = layer_ops(model, "latent_attention", Extent(work.batch, work.sequence, "tokens"))
    heads, dim = {"heads": Extent(model.heads, 1.0, "heads"), "kv_heads": Extent(1.0)}, model.head_dim
    widths = {"key_dim": dim, "value_dim": dim, "kv_width": dim}
    return layer.attention(part, ("rotated", "cache"), span, read, held, **heads, **widths, latent=True)


def attention_ops(model: Model, work: Workload, tokens: Extent, kind: str, source: str) -> tuple[Op, ...]:
    """The ops of an attention layer after its norm; `kind` is full, window, sparse, csa or hca."""
    kinds = {"mla": _latent_attention, "gqa": _grouped_attention, "compressed": compressed_ops}
    return kinds[model.attention](layer_ops(model, "attention", tokens), work, kind, source)


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
    layer = layer_ops(model, module, Extent(work.batch, work.sequence, "tokens"))
    sizes = {"heads": Extent(model.heads, 1.0, "heads"), "products": model.attention_products} | sizes
    return layer.attention(part, inputs, span, read, held, **sizes)


def _grouped_attention(layer: LayerOps, work: Workload, kind: str, source: str) -> tuple[Op, ...]:
    model = layer.model
    q = Extent(model.heads, model.head_dim, "heads")
    kv = Extent(model.kv_heads, 2.0 * model.head_dim, "kv_heads")
    columns = Extent(model.heads, 2.0 * model.head_dim, "heads") if model.output_gate else q
    qkv = layer.product("qkv", source, "qkv_out", (columns, kv), bias=model.qkv_bias)
    rope = layer.vector(
        "rope_and_cache",
        qkv.output,
        "rotated",
        (q, kv),
        flop_per_element=ROPE_FLOP + (NORM_FLOP if model.qk_norm else 0.0),
        parameters=(Extent(2.0 * model.head_dim),) if model.qk_norm else (),
        pieces=ROPE_PIECES,
        eager=eager_heads(q.size, kv.size)
        if model.learned_positions
        else eager_rotation(q.size, 0.5 * kv.size, 0.5 * kv.size),
    )
    widths = {"key_dim": model.head_dim, "value_dim": model.head_dim, "kv_width": 2.0 * model.head_dim}
    groups = Extent(model.kv_heads, 1.0, "kv_heads")
    mix = [
        _softmax(model, part, kind, "softmax_attention", (rope.output, "cache"), kv_heads=groups, **widths)
        for part in parts_of(work)
    ]
    mixed, gate = tuple(op.output for op in mix), list[Op]()
    if model.output_gate:  # results of heads times the sigmoid of what the projection of queries makes beside
        silu = {"flop_per_element": SILU_FLOP, "special_per_element": SILU_SPECIAL}
        gate = [
            layer.vector("output_gate", (*mixed, qkv.output), "gated", q, reads=2.0, beside=(kv,), **silu)
        ]
        mixed = ("gated",)
    o = layer.product("o", mixed, "attended", Extent(model.hidden), q, bias=model.output_bias)
    scorer = _block_indexer(layer, work, source) if kind == "sparse" else []
    return (qkv, rope, *scorer, *mix, *gate, o)


def _latent_attention(layer: LayerOps, work: Workload, kind: str, source: str) -> tuple[Op, ...]:
    """Multi-head latent attention: absorbed (one shared latent head) in decode, expanded to full heads
    elsewhere.
    """
    model, up = layer.model, layer_ops(layer.model, layer.module, layer.rows, LATENT_UP)
    rank, rope_dim = model.kv_rank, model.rope_dim
    shared = (Extent(rank), Extent(rope_dim))
    down = shared if model.direct_queries else (Extent(model.q_rank), *shared)
    normed = Extent(rank if model.direct_queries else model.q_rank + rank)
    asked = Extent(model.heads, model.head_dim, "heads")
    ops: list[Op] = [
        layer.product("qkv_down", source, "latent", down),
        up.vector(
            "latent_norm", "latent", "latent_n", down, flop_per_element=NORM_FLOP, parameters=(normed,)
        ),
        up.product("q", source, "q", asked)
        if model.direct_queries
        else up.product("q_up", "latent_n", "q", asked, Extent(model.q_rank)),
    ]
    if kind == "sparse":
        ops += _indexer(layer, work, source)
    rope = up.vector(
        "rope_and_cache",
        ("q", "latent_n"),
        "rotated",
        (Extent(model.heads, rope_dim, "heads"), Extent(rank + rope_dim)),
        flop_per_element=ROPE_FLOP,
        pieces=ROPE_PIECES,
        gradients=1,  # what flows back to the latent is a few columns, the same for all heads
    )
    ops.append(rope)
    ends: list[str] = []
    for part in parts_of(work):
        some = _absorbed(model, part, kind) if part.work.phase == "decode" else _expanded(model, part, kind)
        ops += some
        ends.append(some[-1].output)
    o_in = Extent(model.heads, model.v_head_dim, "heads")
    return (*ops, layer.product("o", tuple(ends), "attended", Extent(model.hidden), o_in))


def _absorbed(model: Model, part: Part, kind: str) -> list[Op]:
    """Latent attention of generated tokens: queries are brought into the latent, which all heads share."""
    nope, rank, width = model.head_dim - model.rope_dim, model.kv_rank, model.kv_rank + model.rope_dim
    each = Extent(model.heads, 1.0, "heads")
    layer = layer_ops(model, "attention", Extent(part.work.batch, part.work.sequence, "tokens"))
    sizes = {"key_dim": width, "value_dim": rank, "kv_width": width, "latent": True}
    inputs, values = ("q_latent", "cache"), Extent(model.v_head_dim)
    return [
        layer.product("absorb_q", "rotated", "q_latent", Extent(rank), Extent(nope), batch=each),
        _softmax(model, part, kind, "latent_attention", inputs, kv_heads=Extent(1.0), **sizes),
        layer.product("absorb_v", "mixed", "values", values, Extent(rank), batch=each),
    ]


def _expanded(model: Model, part: Part, kind: str) -> list[Op]:
    """Latent attention of prompts: keys and values of every head are made from the latents of all tokens
    known.
    """
    nope, rank = model.head_dim - model.rope_dim, model.kv_rank
    known = layer_ops(model, "attention", Extent(part.work.batch, part.work.context, "tokens"), LATENT_UP)
    both = Extent(model.heads, nope + model.v_head_dim, "heads")
    sizes = {"key_dim": model.head_dim, "value_dim": model.v_head_dim, "kv_width": rank + model.rope_dim}
    inputs = ("rotated", "kv")
    return [
        # A mixed step has these weights already, absorbed into the products of its generated tokens.
        known.product("kv_up", "latent_n", "kv", both, Extent(rank), stored=not part.beside),
        _softmax(model, part, kind, "latent_attention", inputs, kv_heads=Extent(1.0), latent=True, **sizes),
    ]


def _indexer(layer: LayerOps, work: Workload, source: str) -> list[Op]:
    """The scorer of sparse attention: index queries and keys, scores against the whole context, and the
    choice of the top.
    """
    model = layer.model
    queries, keys = Extent(model.index_heads, model.index_dim), Extent(model.index_dim + model.index_heads)
    return [
        layer.product("index_q", "latent_n", "index_q_out", queries, Extent(model.q_rank)),
        layer.product("index_k", source, "index_k_out", keys),
        *index_ops(layer, work, "index_k_out", 1.0, (Extent(2.0 * model.index_dim),)),
    ]


def _block_indexer(layer: LayerOps, work: Workload, source: str) -> list[Op]:
    """The scorer of blocks of keys: one index head for each group of heads, one index key for all; a block's
    score is the largest of its keys' (MiniMax-M3; Hugging Face transformers, minimax_m3_vl).
    """
    model = layer.model
    queries, keys = Extent(model.index_heads, model.index_dim, "kv_heads"), Extent(model.index_dim)
    inputs, flop = ("index_q_made", "index_k_made"), ROPE_FLOP + NORM_FLOP
    return [
        layer.product("index_q", source, "index_q_made", queries),
        layer.product("index_k", source, "index_k_made", keys),
        layer.vector("index_rope", inputs, "index_q_out", (queries, keys), flop_per_element=flop),
        *index_ops(layer, work, "index_q_out", 1.0, (Extent(2.0 * model.index_dim),), heads="kv_heads"),
    ]
