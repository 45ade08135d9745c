"""Feed-forward layers, dense or shared by all tokens of a mixture of experts."""

from __future__ import annotations

from strata.arrays import Number
from strata.workload.graph import Extent, Op
from strata.workload.model import Model
from strata.workload.operations import OPERATIONS
from strata.workload.ops import EagerKernels, MatMul, Vector

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
    model: Model,
    tokens: Extent,
    *,
    width: Number,
    axis: str,
    module: str,
    source: str,
    bias: bool,
    prefix: str = "",
    role: str = "",
) -> tuple[Op, ...]:
    """Up (and gate), activation, down; `axis` is what a layout may divide."""
    sides = 2.0 if model.gated else 1.0
    inner, hidden = Extent(width, 1.0, axis), Extent(model.hidden)
    up = MatMul(
        name=f"{prefix}up",
        module=module,
        role=role,
        inputs=(source,),
        output=f"{prefix}up_out",
        m=tokens,
        n=(Extent(width, sides, axis),),
        k=hidden,
        bias=bias,
        weight=model.weights,
        activation=model.activations,
    )
    act = Vector(
        name=f"{prefix}activation",
        module=module,
        role=role,
        inputs=(up.output,),
        output=f"{prefix}act_out",
        m=tokens,
        n=(inner,),
        reads=sides,
        writes=1.0,
        flop_per_element=SILU_FLOP,
        special_per_element=SILU_SPECIAL,
        precision=model.activations,
        pieces=2.0 if model.gated else 1.0,
        eager=EAGER_GATED if model.gated else EAGER_PLAIN,
    )
    down = MatMul(
        name=f"{prefix}down", module=module, role=role, inputs=(act.output,), output=f"{prefix}down_out",
        m=tokens, n=(hidden,), k=inner, bias=bias, weight=model.weights, activation=model.activations,
    )  # fmt: skip
    return (up, act, down)
