r"""Hyper-connections: a residual of several streams, which every block reads as one and mixes anew.

.. math:: x = \sum_i a_i s_i, \quad s'_j = \sum_i M_{ij} s_i + b_j F(x)

streams s; a block F reads their sum x under weights a, and its result joins each stream by b beside the mixed
streams; a, b and the doubly stochastic M come from the streams themselves by one product, M by iterations of
Sinkhorn and Knopp.

Zhu et al., Hyper-Connections, arXiv 2409.19606; Xie et al., mHC: Manifold-Constrained Hyper-Connections,
arXiv 2512.24880, sec. 4; DeepSeek-V4 report, sec. 2.2; sizes as in the modules that Hugging Face transformers
documents for deepseek_v4.
"""

from __future__ import annotations

from strata.arrays import Number
from strata.workload.attention_parts import LayerOps
from strata.workload.graph import Extent, Op
from strata.workload.model import Model
from strata.workload.moe import NORM_FLOP, SILU_FLOP, SILU_SPECIAL
from strata.workload.ops import Vector

COLLAPSED, STREAMS = "collapsed", "streams"
# of one element of the mixing matrix in an iteration: columns and rows, each added up and divided
BALANCE_FLOP = 4.0


def stream_width(model: Model) -> Number:
    """Elements of the residual of one token.

    >>> from strata.workload.model import model
    >>> stream_width(model("llama-3-8b"))
    4096.0
    """
    return model.hidden * model.streams if model.hyper_connections else model.hidden


def expanded_stream(model: Model, tokens: Extent, source: str) -> list[Op]:
    """The embedding in every stream."""
    if not model.hyper_connections:
        return []
    columns, layer = Extent(stream_width(model)), LayerOps(model, "embedding", tokens)
    return [layer.vector("expand_streams", source, STREAMS, columns, reads=1.0 / model.streams)]


def collapsed(model: Model, tokens: Extent, module: str, residual: str, last: bool = False) -> list[Op]:
    """Ops before a block: weights from all streams, balanced, and the streams added up under them.

    The head at the end (`last`) mixes nothing, so that it needs the weights of the sum alone.
    """
    if not model.hyper_connections:
        return []
    layer = LayerOps(model, module, Extent(tokens.count, tokens.unit, "sp_tokens"))
    wide, n = Extent(stream_width(model)), model.streams
    columns, stored = n if last else (2.0 + n) * n, model.embedding_dtype
    mix = layer.product(
        "stream_weights", residual, "stream_weights_out", Extent(columns), wide, bias=True, weight=stored
    )
    balance = 0.0 if last else BALANCE_FLOP * model.stream_mixes * n * n / model.hidden
    collapse = layer.vector(
        "collapse_streams",
        (residual, mix.output),
        COLLAPSED,
        Extent(model.hidden),
        reads=n,
        flop_per_element=(2.0 + NORM_FLOP) * n + SILU_FLOP * columns / model.hidden + balance,
        special_per_element=SILU_SPECIAL * columns / model.hidden,
        parameters=(Extent(1.0 if last else 3.0),),  # scales of the weights
    )
    return [mix, collapse]


def mixed_streams(
    model: Model, tokens: Extent, module: str, leaves: tuple[str, ...], residual: str
) -> Vector:
    """Streams mixed with each other, and what the block hands on added to each."""
    layer = LayerOps(model, module, Extent(tokens.count, tokens.unit, "sp_tokens"))
    return layer.vector(
        "mix_streams",
        (*leaves, residual, "stream_weights_out"),
        STREAMS,
        Extent(stream_width(model)),
        reads=1.0 + len(leaves) / model.streams,
        flop_per_element=2.0 * model.streams + 2.0,
        adds=True,
        gradients=len(leaves) + 1,
    )
