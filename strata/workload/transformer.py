"""trace(): a transformer and a workload become a graph. One block per distinct kind of attention and of ffn."""

from __future__ import annotations

from typing import Any

from strata.arrays import Number, namespace
from strata.workload.ffn import NORM_FLOP, ROPE_FLOP, gated_ffn
from strata.workload.graph import Attention, Block, Extent, Graph, MatMul, Op, Vector
from strata.workload.model import Model
from strata.workload.moe import expert_ops
from strata.workload.tasks import Workload
from strata.workload.training import backward_blocks

# Loads that a row waits for in turn, in fused kernels that give a row to one core: a norm fetches it in
# parts, and its sum
# meets twice in shared memory before the scales arrive; a greedy choice compares value and place of 512
# threads x 4 at once.
# Seen in Triton's and PyTorch's kernels on an H200: norms of 1536 and 4096 take 0.9 and 1.7 us longer than
# element-wise
# kernels of that size, an argmax over 128256 to 151936 logits 9 to 37 us.
NORM_TRIPS, NORM_LOAD, CHOICE_LOAD = 4.0, 1024.0, 2048.0
ROPE_PIECES = 4.0  # where nothing is fused: queries and keys turned, keys and values written to the cache


def trace(model: Model, work: Workload) -> Graph:
    """The graph of one step of a phase: the whole model, undivided."""
    tokens = Extent(work.batch, work.sequence, "tokens")
    blocks = [_first_end(model, tokens)]
    for part, make in ((0, _attention_block), (1, _ffn_block)):
        for kind in model.pattern.kinds(part):
            blocks.append(make(model, work, tokens, kind))
    read = tokens if work.phase == "train" else Extent(work.batch, _sampled(work), "tokens")
    blocks.append(_last_end(model, read, work.phase))
    if work.phase == "train":
        blocks += backward_blocks(blocks, model)
    return Graph(tuple(blocks))


def _sampled(work: Workload) -> Number:
    """Tokens of a sequence that reach the head: all a step generates, and the last of each prompt it reads."""
    if work.prompts is not None:
        return 1.0 + work.prompts / work.batch
    return work.sequence if work.phase == "decode" else 1.0


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


def _norm(name: str, module: str, model: Model, tokens: Extent, source: str, *, add: bool) -> Vector:
    """RMS or layer norm, fused with the residual addition before it."""
    rows = Extent(tokens.count, tokens.unit, "normed")
    weight = Extent(model.hidden, 2.0 if model.norm_bias else 1.0)
    moved = 2.0 if add else 1.0
    waits = NORM_TRIPS + model.hidden / NORM_LOAD
    return Vector(
        name,
        module,
        (source,),
        f"{name}_out",
        rows,
        (Extent(model.hidden),),
        moved,
        moved,
        NORM_FLOP + (1 if add else 0),
        0.0,
        model.activations,
        (weight,),
        pieces=2.0 if add else 1.0,
        trips=waits,
    )


def _first_end(model: Model, tokens: Extent) -> Block:
    table = (Extent(model.vocab, 1.0, "vocab"), Extent(model.hidden))
    ops: list[Op] = [
        Vector(
            "embed",
            "ends",
            ("ids",),
            "hidden_0",
            tokens,
            (Extent(model.hidden),),
            1.0,
            1.0,
            0.0,
            0.0,
            model.embedding_dtype,
            table,
            model.embedding_dtype,
        )
    ]
    if model.learned_positions:
        places = (Extent(model.positions), Extent(model.hidden))
        ops.append(
            Vector(
                "positions",
                "ends",
                ("hidden_0",),
                "hidden_p",
                tokens,
                (Extent(model.hidden),),
                2.0,
                1.0,
                1.0,
                0.0,
                model.embedding_dtype,
                places,
                model.embedding_dtype,
            )
        )
    return Block("embedding", -1, "", 1.0, tuple(ops))


def _last_end(model: Model, read: Extent, phase: str) -> Block:
    vocab = (Extent(model.vocab, 1.0, "vocab"),)
    final = _norm("final_norm", "ends", model, read, "hidden", add=True)
    head = MatMul(
        "head",
        "ends",
        (final.output,),
        "logits",
        read,
        vocab,
        Extent(model.hidden),
        model.embedding_dtype,
        model.activations,
        tied=model.tied,
    )
    # Greedy choice reads the logits once; the loss of a training step also takes an exponential of each.
    special = 1.0 if phase == "train" else 0.0
    waits = None if phase == "train" else 2.0 * model.vocab / CHOICE_LOAD
    choose = Vector(
        "sample" if phase != "train" else "loss",
        "ends",
        ("logits",),
        "token",
        read,
        vocab,
        1.0,
        0.0,
        1.0,
        special,
        "fp32",
        trips=waits,
    )
    return Block("head", -2, "", 1.0, (final, head, choose))


def _attention_block(model: Model, work: Workload, tokens: Extent, kind: str) -> Block:
    make = _latent_attention if model.attention == "mla" else _grouped_attention
    count = model.pattern.total(0, kind)
    norm = _norm("attention_norm", "attention", model, tokens, "hidden", add=True)
    return Block(f"attention.{kind}", 0, kind, count, (norm, *make(model, work, tokens, kind, norm.output)))


def _softmax_attention(
    model: Model, work: Workload, kind: str, inputs: tuple[str, ...], *, beside: bool = False, **sizes: Any
) -> Attention:
    """The attention op of a kind: full, windowed or sparse; windows limit what is read and, for true windows,
    held.

    `beside`: of prompts that a decode step reads beside its sequences.
    """
    xp = namespace(work.context, model.window, model.sparse_top_k)
    limit = {"full": 1e18, "window": model.window, "sparse": model.sparse_top_k}[kind]
    span = attended(work.context, work.sequence, limit)
    read = xp.minimum(work.context, limit + work.sequence - 1)
    # A sparse step of many queries touches the union of their choices: at most the whole context.
    if kind == "sparse":
        read = xp.minimum(work.context, limit * work.sequence)
    held = work.context if kind == "sparse" else read
    return Attention(
        "prompt_attention" if beside else "attention", "attention", inputs, "mixed",
        sequences=Extent(work.batch, 1.0, "sequences"), queries=Extent(1.0, work.sequence, "queries"),
        span=Extent(1.0, span, "span"), cached=Extent(1.0, read, "span"), held=Extent(1.0, held, "held"),
        activation=model.activations, kv=model.kv, **sizes,
    )  # fmt: skip


def _grouped_attention(
    model: Model, work: Workload, tokens: Extent, kind: str, source: str
) -> tuple[Op, ...]:
    q = Extent(model.heads, model.head_dim, "heads")
    kv = Extent(model.kv_heads, 2.0 * model.head_dim, "kv_heads")
    out = Extent(model.heads, model.head_dim, "heads")
    qkv = MatMul(
        "qkv",
        "attention",
        (source,),
        "qkv_out",
        tokens,
        (q, kv),
        Extent(model.hidden),
        model.weights,
        model.activations,
        bias=model.qkv_bias,
    )
    head_norm = (Extent(2.0 * model.head_dim),) if model.qk_norm else ()
    work_per = ROPE_FLOP + (NORM_FLOP if model.qk_norm else 0.0)
    rope = Vector(
        "rope_and_cache",
        "attention",
        ("qkv_out",),
        "rotated",
        tokens,
        (q, kv),
        1.0,
        1.0,
        work_per,
        0.0,
        model.activations,
        head_norm,
        pieces=ROPE_PIECES,
    )
    mix = [
        _softmax_attention(
            model,
            part,
            kind,
            ("rotated", "cache"),
            beside=part.phase != work.phase,
            heads=Extent(model.heads, 1.0, "heads"),
            kv_heads=Extent(model.kv_heads, 1.0, "kv_heads"),
            key_dim=model.head_dim,
            value_dim=model.head_dim,
            kv_width=2.0 * model.head_dim,
        )
        for part in work.attending
    ]
    o = MatMul(
        "o",
        "attention",
        ("mixed",),
        "attended",
        tokens,
        (Extent(model.hidden),),
        out,
        model.weights,
        model.activations,
        bias=model.output_bias,
    )
    return (qkv, rope, *mix, o)


def _latent_attention(model: Model, work: Workload, tokens: Extent, kind: str, source: str) -> tuple[Op, ...]:
    """Multi-head latent attention: absorbed (one shared latent head) in decode, expanded to full heads
    elsewhere.
    """
    rank, rope_dim = model.kv_rank, model.rope_dim
    w, a = model.weights, model.activations
    down = (Extent(model.q_rank), Extent(rank), Extent(rope_dim))
    ops: list[Op] = [
        MatMul("qkv_down", "attention", (source,), "latent", tokens, down, Extent(model.hidden), w, a)
    ]
    norms = (Extent(model.q_rank + rank),)
    ops.append(
        Vector(
            "latent_norm",
            "attention",
            ("latent",),
            "latent_n",
            tokens,
            down,
            1.0,
            1.0,
            NORM_FLOP,
            0.0,
            a,
            norms,
        )
    )
    heads = Extent(model.heads, model.head_dim, "heads")
    ops.append(MatMul("q_up", "attention", ("latent_n",), "q", tokens, (heads,), Extent(model.q_rank), w, a))
    if kind == "sparse":
        ops += _indexer(model, work, tokens)
    rotated = (Extent(model.heads, rope_dim, "heads"), Extent(rank + rope_dim))
    ops.append(
        Vector(
            "rope_and_cache",
            "attention",
            ("q", "latent_n"),
            "rotated",
            tokens,
            rotated,
            1.0,
            1.0,
            ROPE_FLOP,
            0.0,
            a,
            pieces=ROPE_PIECES,
        )
    )
    for part in work.attending:
        ops += (
            _absorbed(model, part, kind)
            if part.phase == "decode"
            else _expanded(model, part, kind, beside=part.phase != work.phase)
        )
    last = "values" if work.phase == "decode" else "mixed"
    o_in = Extent(model.heads, model.v_head_dim, "heads")
    ops.append(MatMul("o", "attention", (last,), "attended", tokens, (Extent(model.hidden),), o_in, w, a))
    return tuple(ops)


def _absorbed(model: Model, work: Workload, kind: str) -> list[Op]:
    """Latent attention of generated tokens: queries are brought into the latent, which all heads share."""
    nope, rank, w, a = model.head_dim - model.rope_dim, model.kv_rank, model.weights, model.activations
    each, width = Extent(model.heads, 1.0, "heads"), rank + model.rope_dim
    rows = Extent(work.batch, work.sequence, "tokens")
    return [
        MatMul(
            "absorb_q",
            "attention",
            ("rotated",),
            "q_latent",
            rows,
            (Extent(rank),),
            Extent(nope),
            w,
            a,
            batch=each,
        ),
        _softmax_attention(
            model,
            work,
            kind,
            ("q_latent", "cache"),
            heads=each,
            kv_heads=Extent(1.0),
            key_dim=width,
            value_dim=rank,
            kv_width=width,
            latent=True,
        ),
        MatMul(
            "absorb_v",
            "attention",
            ("mixed",),
            "values",
            rows,
            (Extent(model.v_head_dim),),
            Extent(rank),
            w,
            a,
            batch=each,
        ),
    ]


def _expanded(model: Model, work: Workload, kind: str, *, beside: bool) -> list[Op]:
    """Latent attention of prompts: keys and values of every head are made from the latents of all tokens
    known.
    """
    nope, rank, w, a = model.head_dim - model.rope_dim, model.kv_rank, model.weights, model.activations
    expanded, known = (
        (Extent(model.heads, nope + model.v_head_dim, "heads"),),
        Extent(work.batch, work.context, "tokens"),
    )
    return [
        # A mixed step has these weights already, absorbed into the products of its generated tokens.
        MatMul(
            "kv_up", "attention", ("rotated",), "kv", known, expanded, Extent(rank), w, a, stored=not beside
        ),
        _softmax_attention(
            model,
            work,
            kind,
            ("kv", "rotated"),
            beside=beside,
            heads=Extent(model.heads, 1.0, "heads"),
            kv_heads=Extent(1.0),
            key_dim=model.head_dim,
            value_dim=model.v_head_dim,
            kv_width=rank + model.rope_dim,
            latent=True,
        ),
    ]


def _indexer(model: Model, work: Workload, tokens: Extent) -> list[Op]:
    """The scorer of sparse attention: index queries and keys, scores against the whole context, and the
    choice of the top.
    """
    queries = (Extent(model.index_heads, model.index_dim),)
    ops: list[Op] = [
        MatMul(
            "index_q",
            "attention",
            ("latent_n",),
            "index_q_out",
            tokens,
            queries,
            Extent(model.q_rank),
            model.weights,
            model.activations,
        ),
        MatMul(
            "index_k",
            "attention",
            ("attention_norm_out",),
            "index_k_out",
            tokens,
            (Extent(model.index_dim + model.index_heads),),
            Extent(model.hidden),
            model.weights,
            model.activations,
        ),
    ]
    for part in work.attending:
        beside = part.phase != work.phase
        name, norm = "prompt_index" if beside else "index", () if beside else (Extent(2.0 * model.index_dim),)
        scores = Extent(1.0, attended(part.context, part.sequence, 1e18), "span")
        ops += [
            Attention(
                f"{name}_score",
                "attention",
                ("index_q_out", "cache"),
                "scores",
                sequences=Extent(part.batch, 1.0, "sequences"),
                queries=Extent(1.0, part.sequence, "queries"),
                span=scores,
                cached=Extent(1.0, part.context, "span"),
                held=Extent(1.0, part.context, "held"),
                heads=Extent(model.index_heads),
                kv_heads=Extent(1.0),
                key_dim=model.index_dim,
                value_dim=0.0,
                kv_width=model.index_dim,
                activation=model.activations,
                products="fp8",
                kv="fp8",
            ),
            Vector(
                f"{name}_top",
                "attention",
                ("scores",),
                "chosen",
                Extent(part.batch, part.sequence, "tokens"),
                (scores,),
                1.0,
                0.0,
                2.0,
                0.0,
                "fp32",
                norm,
            ),
        ]
    return ops


def _ffn_block(model: Model, work: Workload, tokens: Extent, kind: str) -> Block:
    norm = _norm("ffn_norm", "ffn" if kind == "dense" else "moe", model, tokens, "hidden", add=True)
    if kind == "moe":
        ops = expert_ops(model, work, tokens, norm.output)
    else:
        ops = gated_ffn(model, tokens, model.ffn, "ffn", "ffn", norm.output, model.ffn_bias)
    return Block(f"ffn.{kind}", 1, kind, model.pattern.total(1, kind), (norm, *ops))
