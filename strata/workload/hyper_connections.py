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
from strata.workload.graph import Extent, Op
from strata.workload.model import Model
from strata.workload.moe import NORM_FLOP, SILU_FLOP, SILU_SPECIAL
from strata.workload.ops import MatMul, Vector

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
    return [
        Vector(
            name="expand_streams", module="embedding", inputs=(source,), output=STREAMS, m=tokens,
            n=(Extent(stream_width(model)),), reads=1.0 / model.streams, writes=1.0, flop_per_element=0.0,
            special_per_element=0.0, precision=model.activations,
        )
    ]  # fmt: skip


def collapsed(model: Model, tokens: Extent, module: str, residual: str, last: bool = False) -> list[Op]:
    """Ops before a block: weights from all streams, balanced, and the streams added up under them.

    The head at the end (`last`) mixes nothing, so that it needs the weights of the sum alone.
    """
    if not model.hyper_connections:
        return []
    rows, wide, n = Extent(tokens.count, tokens.unit, "sp_tokens"), stream_width(model), model.streams
    columns = n if last else (2.0 + n) * n
    mix = MatMul(
        name="stream_weights", module=module, inputs=(residual,), output="stream_weights_out", m=rows,
        n=(Extent(columns),), k=Extent(wide), bias=True, weight=model.embedding_dtype,
        activation=model.activations,
    )  # fmt: skip
    balance = 0.0 if last else BALANCE_FLOP * model.stream_mixes * n * n / model.hidden
    collapse = Vector(
        name="collapse_streams",
        module=module,
        inputs=(residual, mix.output),
        output=COLLAPSED,
        m=rows,
        n=(Extent(model.hidden),),
        reads=n,
        writes=1.0,
        flop_per_element=(2.0 + NORM_FLOP) * n + SILU_FLOP * columns / model.hidden + balance,
        special_per_element=SILU_SPECIAL * columns / model.hidden,
        precision=model.activations,
        parameters=(Extent(1.0 if last else 3.0),),  # scales of the weights
    )
    return [mix, collapse]


def mixed_streams(
    model: Model, tokens: Extent, module: str, leaves: tuple[str, ...], residual: str
) -> Vector:
    """Streams mixed with each other, and what the block hands on added to each."""
    rows, n = Extent(tokens.count, tokens.unit, "sp_tokens"), model.streams
    return Vector(
        name="mix_streams",
        module=module,
        inputs=(*leaves, residual, "stream_weights_out"),
        output=STREAMS,
        m=rows,
        n=(Extent(stream_width(model)),),
        reads=1.0 + len(leaves) / n,
        writes=1.0,
        flop_per_element=2.0 * n + 2.0,
        special_per_element=0.0,
        precision=model.activations,
        adds=True,
        gradients=len(leaves) + 1,
    )
