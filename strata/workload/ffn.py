"""Feed-forward layers, dense or shared by all tokens of a mixture of experts."""

from __future__ import annotations

from strata.arrays import Number
from strata.workload.graph import Extent, MatMul, Op, Vector
from strata.workload.model import Model

# Vector work per element (arithmetic, special functions): RMS norm squares, sums, scales and multiplies by a
# weight;
# a rotation is three operations; SiLU is one exponential, one division and two products. Counted from the
# definitions.
NORM_FLOP, ROPE_FLOP, SILU_FLOP, SILU_SPECIAL = 4.0, 3.0, 4.0, 2.0


def gated_ffn(
    model: Model, tokens: Extent, width: Number, axis: str, module: str, source: str, bias: bool
) -> tuple[Op, ...]:
    """Up (and gate), activation, down; `axis` is what a plan may split."""
    sides = 2.0 if model.gated else 1.0
    inner = Extent(width, 1.0, axis)
    prefix = "" if module == "ffn" else "shared_"
    up = MatMul(
        f"{prefix}up",
        module,
        (source,),
        f"{prefix}up_out",
        tokens,
        (Extent(width, sides, axis),),
        Extent(model.hidden),
        model.weights,
        model.activations,
        bias=bias,
    )
    act = Vector(
        f"{prefix}activation",
        module,
        (up.output,),
        f"{prefix}act_out",
        tokens,
        (inner,),
        sides,
        1.0,
        SILU_FLOP,
        SILU_SPECIAL,
        model.activations,
        pieces=2.0 if model.gated else 1.0,
    )
    down = MatMul(
        f"{prefix}down",
        module,
        (act.output,),
        f"{prefix}down_out",
        tokens,
        (Extent(model.hidden),),
        inner,
        model.weights,
        model.activations,
        bias=bias,
    )
    return (up, act, down)
