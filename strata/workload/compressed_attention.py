r"""Attention over compressed keys: a window of tokens as they are, and one entry for each so many before.

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

from strata.arrays import Number, field_names, namespace
from strata.precision import bytes_of
from strata.workload.attention_parts import (
    NO_WINDOW,
    ROPE_PIECES,
    Part,
    attended,
    attention_product,
    index_ops,
    parts_of,
)
from strata.workload.graph import Extent, Op, axes_of, total
from strata.workload.model import Model
from strata.workload.moe import NORM_FLOP, ROPE_FLOP
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


def compressed_ops(model: Model, work: Workload, tokens: Extent, kind: str, source: str) -> tuple[Op, ...]:
    """The ops of a layer after its norm; `kind` is csa, hca or window."""
    each, shared = Extent(model.heads, model.head_dim, "heads"), Extent(model.head_dim)
    down = (Extent(model.q_rank), shared)
    norm = Vector(
        name="latent_norm", module="attention", inputs=("latent",), output="latent_n", m=tokens, n=down,
        reads=1.0, writes=1.0, flop_per_element=NORM_FLOP, special_per_element=0.0,
        precision=model.activations, parameters=(Extent(model.q_rank + model.head_dim),),
    )  # fmt: skip
    ops: list[Op] = [
        attention_product(model, "qkv_down", (source,), "latent", m=tokens, n=down, k=Extent(model.hidden)),
        norm,
        attention_product(model, "q_up", ("latent_n",), "q", m=tokens, n=(each,), k=Extent(model.q_rank)),
    ]
    known: tuple[str, ...] = ("q", "latent_n")
    if kind != "window":
        ops += _compressor(model, work, tokens, kind, source)
        known = (*known, ops[-1].output)
    if kind == "csa":
        ops += _chosen(model, work, tokens)
    rope = SharedRotation(
        name="rope_and_cache", module="attention", inputs=known, output="rotated", m=tokens,
        n=(each, shared), reads=1.0, writes=1.0, flop_per_element=ROPE_FLOP + NORM_FLOP,
        special_per_element=0.0, precision=model.activations, pieces=ROPE_PIECES,
        parameters=(Extent(model.heads, 1.0, "heads"),),  # a sink for each head
    )  # fmt: skip
    mix = [_shared_attention(model, part, kind) for part in parts_of(work)]
    share = model.rope_dim / model.head_dim
    back = Vector(
        name="inverse_rope", module="attention", inputs=tuple(op.output for op in mix), output="unrotated",
        m=tokens, n=(each,), reads=share, writes=share, flop_per_element=share * ROPE_FLOP,
        special_per_element=0.0, precision=model.activations,
    )  # fmt: skip
    return (*ops, rope, *mix, back, *_output(model, tokens))


def _output(model: Model, tokens: Extent) -> tuple[Op, ...]:
    """Groups of heads brought to a low rank each, and all of them to the model's width."""
    groups = Extent(model.o_groups, 1.0, "heads")
    inside = Extent(model.heads * model.head_dim / model.o_groups)
    return (
        attention_product(
            model, "o_down", ("unrotated",), "o_latent", m=tokens, n=(Extent(model.o_rank),), k=inside,
            batch=groups,
        ),
        attention_product(
            model, "o", ("o_latent",), "attended", m=tokens, n=(Extent(model.hidden),),
            k=Extent(model.o_groups, model.o_rank, "heads"),
        ),
    )  # fmt: skip


def _compressor(model: Model, work: Workload, tokens: Extent, kind: str, source: str) -> list[Op]:
    """Values and gates of all tokens, and one entry of each window of them; the indexer has its own."""
    ratio, overlap = ratio_of(model, kind), OVERLAP[kind]
    width = model.head_dim + (model.index_dim if kind == "csa" else 0.0)
    channels, scorers = Extent(2.0 * overlap * width), Extent(model.index_heads)
    xp = namespace(ratio, work.sequence)
    # what an open window needs of tokens before: a step by step reading moves all of it once
    kept = xp.minimum(overlap * ratio / work.sequence, 1.0)
    made = width / (ratio * channels.size)
    product = attention_product(
        model, "compress_in", (source,), "compress_out", m=tokens,
        n=(channels, scorers) if kind == "csa" else (channels,), k=Extent(model.hidden),
        weight=model.embedding_dtype,
    )  # fmt: skip
    pool = WindowPool(
        name="compress",
        module="attention",
        inputs=("compress_out",),
        output="compressed",
        m=tokens,
        n=(channels,),
        reads=1.0 + kept,
        writes=kept + made,
        flop_per_element=0.5 * POOL_FLOP + made * (NORM_FLOP + ROPE_FLOP),
        special_per_element=0.5 * POOL_SPECIAL,
        precision="fp32",
        parameters=(Extent(overlap * width * ratio + width),),  # biases of places, and norms
        sequences=Extent(sum((p.work.batch for p in parts_of(work)), 0.0), 1.0, "sequences"),
        window=overlap * ratio,
    )
    return [product, pool]


def _chosen(model: Model, work: Workload, tokens: Extent) -> list[Op]:
    """Scores of compressed entries for each query, and the choice of the top."""
    queries = attention_product(
        model, "index_q", ("latent_n",), "index_q_out", m=tokens,
        n=(Extent(model.index_heads, model.index_dim),), k=Extent(model.q_rank),
    )  # fmt: skip
    return [queries, *index_ops(model, work, "compressed", model.csa_ratio, ())]


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
    return Attention(
        name=part.named("attention"),
        module="latent_attention",
        inputs=("rotated", "cache"),
        output=part.named("mixed"),
        sequences=Extent(work.batch, 1.0, "sequences"),
        queries=Extent(1.0, work.sequence, "queries"),
        span=Extent(1.0, span, "kv_tokens"),
        cached=Extent(1.0, read, "kv_tokens"),
        held=Extent(1.0, held, "kv_cache_tokens"),
        heads=Extent(model.heads, 1.0, "heads"),
        kv_heads=Extent(1.0),
        key_dim=model.head_dim,
        value_dim=model.head_dim,
        kv_width=model.head_dim,
        activation=model.activations,
        kv=model.kv,
        latent=True,
    )
