"""What layers share: ops in the formats of a model, which tokens a query sees, the kinds of tokens of a step,
and the scorer that chooses among keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strata.base.arrays import Number, namespace
from strata.workload.graph import Extent, Op
from strata.workload.model import Model
from strata.workload.ops import Attention, EagerKernels, MatMul, RowOps, Some
from strata.workload.tasks import Workload

ROPE_PIECES = 4.0  # where nothing is fused: queries and keys turned, keys and values written to the cache
NO_WINDOW = 1e18
# role of ops that make queries, keys and values of all heads from latents: norms, products, rotation
LATENT_UP = "latent_up"


def eager_rotation(queries: Number, keys: Number, values: Number) -> EagerKernels:
    """Kernels that turn queries and keys where nothing is fused: each times cosines, its halves changed over
    and times sines, and the sum; backward with gradients of halves laid into zeros and of all put together.
    Sizes are columns; values are not turned. Passes as profiled on an H200 (PyTorch 2.11), where putting two
    halves together takes as long as one and a half.
    """
    share = (queries + keys) / (queries + keys + values)
    back = EagerKernels(singles=18.0, passes=8.5 * share)
    return EagerKernels(singles=10.0, passes=5.2 * share, backward=back)


def eager_heads(queries: Number, others: Number) -> EagerKernels:
    """Kernels around heads that nothing turns, where nothing is fused: results of heads laid side by side for
    the product after them; backward gradients of queries, keys and values put together. Sizes are columns.

    Megatron-LM, model/transformer.py: context_layer made contiguous, and the split of mixed_x_layer.
    """
    back = EagerKernels(streams=1.0, moved=2.0)
    return EagerKernels(streams=1.0, moved=2.0 * queries / (queries + others), backward=back)


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


@dataclass(frozen=True)
class LayerOps(RowOps):
    """Makes the ops of one part of a model: on the same tokens, in the model's formats unless said."""

    model: Model = field(kw_only=True)

    def product(
        self,
        name: str,
        inputs: Some[str],
        output: str,
        n: Some[Extent],
        k: Extent | None = None,
        /,
        **more: Any,
    ) -> MatMul:
        """A product with a weight, of the model's own width where no depth is given."""
        depth = Extent(self.model.hidden) if k is None else k
        return super().product(name, inputs, output, n, depth, **more)

    def attention(
        self, part: Part, inputs: tuple[str, ...], span: Number, read: Number, held: Number, **more: Any
    ) -> Attention:
        """Attention of a part's tokens to `span` others on average, of `read` that are read and `held` that
        are kept.
        """
        usual = {"name": part.named("attention"), "module": self.module, "output": part.named("mixed")}
        return Attention(
            inputs=inputs,
            sequences=Extent(part.work.batch, 1.0, "sequences"),
            queries=Extent(1.0, part.work.sequence, "queries"),
            span=Extent(1.0, span, "kv_tokens"),
            cached=Extent(1.0, read, "kv_tokens"),
            held=Extent(1.0, held, "kv_cache_tokens"),
            activation=self.model.activations,
            **{**usual, "kv": self.model.kv, **more},
        )


def layer_ops(model: Model, module: str, tokens: Extent, role: str = "") -> LayerOps:
    """What makes the ops of a part of a model."""
    return LayerOps(module, tokens, model.weights, model.activations, role, model=model)


def index_ops(
    layer: LayerOps, work: Workload, keys: str, ratio: Number, parameters: tuple[Extent, ...], heads: str = ""
) -> list[Op]:
    """Scores of index queries against the keys kept, one for each `ratio` tokens, and the choice of the top.

    heads: the axis of index heads where each serves its own group of heads.
    """
    model, ops = layer.model, list[Op]()
    for part in parts_of(work):
        step = part.work
        span, all_keys = attended(step.context, step.sequence, NO_WINDOW) / ratio, step.context / ratio
        score = layer.attention(
            part,
            ("index_q_out", keys),
            span,
            all_keys,
            all_keys,
            name=part.named("index_score"),
            module="indexer",
            output=part.named("scores"),
            heads=Extent(model.index_heads, 1.0, heads),
            kv_heads=Extent(1.0),
            key_dim=model.index_dim,
            value_dim=0.0,
            kv_width=model.index_dim,
            products=model.index_format,
            kv=model.index_format,
        )
        rows = layer_ops(model, layer.module, Extent(step.batch, step.sequence, "tokens"))
        top = rows.vector(
            part.named("index_top"),
            score.output,
            part.named("chosen"),
            Extent(model.index_heads, score.span.size, heads) if heads else score.span,
            writes=0.0,
            flop_per_element=2.0,
            precision="fp32",
            needs_whole=("kv_tokens",),
            parameters=() if part.beside else parameters,
        )
        ops += [score, top]
    return ops
