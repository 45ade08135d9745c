r"""trace_transformer(): a transformer and a workload become a graph. One block per distinct kind of attention
and of ffn.

Hyper-connections: a residual of several streams, which every block reads as one and mixes anew.

.. math:: x = \sum_i a_i s_i, \quad s'_j = \sum_i M_{ij} s_i + b_j F(x)

streams s; a block F reads their sum x under weights a, and its result joins each stream by b beside the mixed
streams; a, b and the doubly stochastic M come from the streams themselves by one product, M by iterations of
Sinkhorn and Knopp.

Zhu et al., Hyper-Connections, arXiv 2409.19606; Xie et al., mHC: Manifold-Constrained Hyper-Connections,
arXiv 2512.24880, sec. 4; DeepSeek-V4 report, sec. 2.2; sizes as in the modules that Hugging Face transformers
documents for deepseek_v4.
"""

from __future__ import annotations

from dataclasses import replace

from strata.base.arrays import Number
from strata.base.precision import bytes_of
from strata.workload.attention import attention_ops
from strata.workload.attention_parts import layer_ops
from strata.workload.graph import Block, BlockSequence, Extent, Graph, Op, Tensor, checked
from strata.workload.linear_attention import KEY_HEADS, STATE_HEADS, mixer_ops
from strata.workload.lora import training_graph
from strata.workload.model import ROUTED, Model
from strata.workload.moe import NORM, NORM_FLOP, SILU_FLOP, SILU_SPECIAL, expert_ops, gated_ffn
from strata.workload.ops import CrossEntropy, EagerKernels, Vector
from strata.workload.scan_ops import STATE
from strata.workload.tasks import Workload

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
    columns, layer = Extent(stream_width(model)), layer_ops(model, "embedding", tokens)
    return [layer.vector("expand_streams", source, STREAMS, columns, reads=1.0 / model.streams)]


def collapsed(model: Model, tokens: Extent, module: str, residual: str, last: bool = False) -> list[Op]:
    """Ops before a block: weights from all streams, balanced, and the streams added up under them.

    The head at the end (`last`) mixes nothing, so that it needs the weights of the sum alone.
    """
    if not model.hyper_connections:
        return []
    layer = layer_ops(model, module, Extent(tokens.count, tokens.unit, "sp_tokens"))
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
    layer = layer_ops(model, module, Extent(tokens.count, tokens.unit, "sp_tokens"))
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


# Loads that a row waits for in turn, in fused kernels that give a row to one core: a norm fetches it in
# parts, and its sum
# meets twice in shared memory before the scales arrive; a greedy choice compares value and place of 512
# threads x 4 at
# once. Seen in Triton's and PyTorch's kernels on an H200: norms of 1536 and 4096 take 0.9 and 1.7 us longer
# than
# element-wise kernels of that size, an argmax over 128256 to 151936 logits 9 to 37 us.
NORM_TRIPS, NORM_LOAD, CHOICE_LOAD = 4.0, 1024.0, 2048.0
# Where nothing is fused: a norm, which reads twice, and the sum before it; backward gradients of its operand
# (again in two passes) and of its scales, and sums of its readers' gradients and with the residual's: 12
# elements at the rate of streams, as profiled on an H200 (PyTorch 2.11, rows of 2048 to 8192).
EAGER_NORM = EagerKernels(streams=2.0, moved=6.0, backward=EagerKernels(streams=4.0, moved=12.0))
# Logits are widened to fp32 and their softmax taken in three passes over a row; backward a gradient of zeros
# but for the chosen, that of the softmax, and both rounded again.
EAGER_LOSS = EagerKernels(
    streams=2.0, moved=2.0, singles=1.0, passes=1.0, reread=2.0,
    backward=EagerKernels(streams=4.0, moved=5.5, reread=1.0),
)  # fmt: skip
VISION_TOWER = "vision tower"  # what its weights are called among the purposes of memory
RESIDUAL = "hidden"  # the stream that blocks read and add to
# of a token, over parts of a vocabulary: the largest logit, that of the target, the sum of exponentials
# (Megatron-LM, tensor_parallel/cross_entropy.py)
LOSS_TERMS = 3.0


def trace_transformer(model: Model, work: Workload) -> Graph:
    """The graph of one step of a phase: the whole model, undivided."""
    tokens = Extent(work.batch, work.sequence, "tokens")
    read = tokens if work.phase == "train" else Extent(work.batch, _sampled(work), "tokens")
    blocks = [_embedding(model, tokens), *_layer_blocks(model, work, tokens), _head(model, read, work.phase)]
    graph = Graph(
        blocks=tuple(blocks),
        sequence=_sequence(model),
        items=work.batch * work.generated,
        item="token",
        inputs=("ids", "cache") if model.mixer is None else ("ids", "cache", STATE),
        formats=tuple(
            (w, model.activations) for w in (model.weights, model.expert_weights, model.embedding_dtype)
        ),
        weight_only=model.weight_only,
        units=model.units,
        coordinates={} if model.mixer is None else {KEY_HEADS: STATE_HEADS},
        resident=_resident(model, work),
    )
    if work.phase != "train":
        return checked(graph)
    return training_graph(graph, work.adapters, work.frozen)


def _resident(model: Model, work: Workload) -> dict[str, Number]:
    """Weights of a vision tower, which servers load with the decoder and keep in 16 bits."""
    if not model.vision_tower or work.phase == "train":
        return {}
    return {VISION_TOWER: model.tower_parameters * bytes_of(model.embedding_dtype)}


def _layer_blocks(model: Model, work: Workload, tokens: Extent) -> list[Block]:
    """One block for each kind of attention and of ffn; where both read the same residual, one for both."""
    pattern = model.pattern
    if model.parallel_residual:
        return [_joint_block(model, work, tokens, pair) for pair in pattern.pairs()]
    return [
        *(_attention_block(model, work, tokens, kind) for kind in pattern.kinds(0)),
        *(_ffn_block(model, work, tokens, kind) for kind in pattern.kinds(1)),
    ]


def _sequence(model: Model) -> BlockSequence:
    """The model's layers as names of blocks."""
    pattern = model.pattern

    def layer(kinds: tuple[str, ...]) -> tuple[str, ...]:
        attention, ffn = kinds
        if model.parallel_residual:
            return (f"layer.{attention}.{ffn}",)
        blocks = ((f"attention.{attention}", attention), (f"ffn.{ffn}", ffn))
        return tuple(name for name, kind in blocks if kind != "none")

    return BlockSequence(
        first=("embedding",),
        prefix=layer(pattern.prefix) if pattern.prefix else (),
        prefix_layers=pattern.prefix_layers,
        period=tuple(layer(kinds) for kinds in pattern.period),
        layers=pattern.layers,
        last=("head",),
    )


def _sampled(work: Workload) -> Number:
    """Tokens of a sequence that reach the head: all a step generates, the last of each prompt it reads."""
    if work.prompts is not None:
        return work.generated + work.prompts / work.batch
    return work.sequence if work.phase == "decode" else 1.0


def _stream(model: Model, tokens: Extent, axis: str, format: str = "") -> Tensor:
    """The residual stream of some tokens; norms may hold it in smaller parts than products read it
    (`sp_tokens`).
    """
    rows = Extent(tokens.count, tokens.unit, axis)
    return Tensor(RESIDUAL, (rows, Extent(stream_width(model))), format or model.activations)


def _norm(name: str, module: str, model: Model, tokens: Extent) -> Vector:
    """RMS or layer norm, fused with the residual addition before it."""
    layer = layer_ops(model, module, Extent(tokens.count, tokens.unit, "sp_tokens"), NORM)
    return layer.vector(
        name,
        RESIDUAL,
        f"{name}_out",
        Extent(model.hidden),
        reads=2.0,
        writes=2.0,
        flop_per_element=NORM_FLOP + 1,
        parameters=(Extent(model.hidden, 2.0 if model.norm_bias else 1.0),),
        pieces=2.0,
        eager=EAGER_NORM,
        trips=NORM_TRIPS + model.hidden / NORM_LOAD,
        adds=True,
        also_writes=1.0,
    )


def _norm_after(before: list[Op], norm: Vector) -> Vector:
    """A norm of what the ops before it made of the residual, where there are any: nothing is added to it."""
    if not before:
        return norm
    return replace(
        norm, inputs=(before[-1].output,), reads=1.0, writes=1.0, flop_per_element=NORM_FLOP, pieces=1.0,
        adds=False, also_writes=0.0,
    )  # fmt: skip


def _embedding(model: Model, tokens: Extent) -> Block:
    hidden, stored = Extent(model.hidden), model.embedding_dtype
    layer, formats = (
        layer_ops(model, "embedding", tokens),
        {"precision": stored, "parameter_precision": stored},
    )
    vocab = (Extent(model.vocab, 1.0, "vocab"), hidden)
    ops: list[Op] = [
        layer.vector("embed", "ids", "hidden_0", hidden, parameters=vocab, looked_up=("vocab",), **formats)
    ]
    if model.learned_positions:
        added = {"reads": 2.0, "flop_per_element": 1.0, "parameters": (Extent(model.positions), hidden)}
        ops.append(layer.vector("positions", "hidden_0", "hidden_p", hidden, **added, **formats))
    ops += expanded_stream(model, tokens, ops[-1].output)
    stream = _stream(model, tokens, "tokens", stored)
    return Block(name="embedding", role="embedding", ops=tuple(ops), output=stream, leaves=(ops[-1].output,))


def _head(model: Model, read: Extent, phase: str) -> Block:
    vocab, layer, stored = (
        Extent(model.vocab, 1.0, "vocab"),
        layer_ops(model, "head", read),
        model.embedding_dtype,
    )
    before = collapsed(model, read, "head", RESIDUAL, last=True)
    final = _norm_after(before, _norm("final_norm", "head", model, read))
    head = layer.product("head", final.output, "logits", vocab, weight=stored, tied=model.tied)
    # Greedy choice reads the logits once, all of them in one place; the loss of a training step also takes an
    # exponential of each, and adds up over parts of the vocabulary.
    training = phase == "train"
    choose = layer.vector(
        "loss" if training else "sample",
        head.output,
        "token",
        vocab,
        CrossEntropy if training else Vector,
        writes=0.0,
        flop_per_element=1.0,
        special_per_element=1.0 if training else 0.0,
        precision="fp32",
        trips=None if training else 2.0 * model.vocab / CHOICE_LOAD,
        needs_whole=() if training else ("vocab",),
        row_sums=LOSS_TERMS if training else 0.0,
        eager=EAGER_LOSS if training else None,
    )
    entry = _stream(model, read, "sp_tokens")
    return Block(name="head", role="head", ops=(*before, final, head, choose), entry=entry)


def _attention_block(model: Model, work: Workload, tokens: Extent, kind: str) -> Block:
    before = collapsed(model, tokens, "attention", RESIDUAL)
    norm = _norm_after(before, _norm("attention_norm", "attention", model, tokens))
    ops, leaves = _mixing(model, work, tokens, kind, norm.output)
    count = model.pattern.total(0, kind)
    block = _layer_block(model, tokens, "attention", (*before, norm, *ops), leaves)
    return replace(block, name=f"attention.{kind}", count=count)


def _ffn_block(model: Model, work: Workload, tokens: Extent, kind: str) -> Block:
    module = "ffn" if kind == "dense" else "moe"
    before = collapsed(model, tokens, module, RESIDUAL)
    norm = _norm_after(before, _norm("ffn_norm", module, model, tokens))
    ops, leaves = _feeding(model, work, tokens, kind, norm.output)
    block = _layer_block(model, tokens, "ffn", (*before, norm, *ops), leaves)
    return replace(block, name=f"ffn.{kind}", count=model.pattern.total(1, kind))


def _joint_block(model: Model, work: Workload, tokens: Extent, pair: tuple[str, str]) -> Block:
    """A layer whose attention and ffn read the same residual: their results are added up before ranks do."""
    norm = _norm("attention_norm", "attention", model, tokens)
    ops: list[Op] = [norm]
    leaves: tuple[str, ...] = ()
    if pair[0] != "none":
        mixed, leaves = _mixing(model, work, tokens, pair[0], norm.output)
        ops += mixed
    if pair[1] != "none":
        source = norm.output
        if not model.shared_norm:
            own = _norm("ffn_norm", "ffn" if pair[1] == "dense" else "moe", model, tokens)
            ops, source = [*ops, own], own.output
        fed, also = _feeding(model, work, tokens, pair[1], source)
        ops, leaves = [*ops, *fed], (*leaves, *also)
    block = _layer_block(model, tokens, "attention", tuple(ops), leaves)
    count = model.pattern.total_pair(pair)
    return replace(block, name=f"layer.{pair[0]}.{pair[1]}", count=count)


def _mixing(
    model: Model, work: Workload, tokens: Extent, kind: str, source: str
) -> tuple[list[Op], tuple[str, ...]]:
    """Ops that mix tokens, and what they hand on: attention, a state, or both side by side."""
    ops: list[Op] = []
    leaves: list[str] = []
    if kind != "linear":
        ops += attention_ops(model, work, tokens, "full" if kind == "parallel" else kind, source)
        leaves.append(ops[-1].output)
    if kind in ("linear", "parallel"):
        ops += mixer_ops(model, work, tokens, source)
        leaves.append(ops[-1].output)
    return ops, tuple(leaves)


def _feeding(
    model: Model, work: Workload, tokens: Extent, kind: str, source: str
) -> tuple[tuple[Op, ...], tuple[str, ...]]:
    """Ops of a feed-forward layer and what they hand on."""
    if kind in ROUTED:
        return expert_ops(model, work, tokens, source, kind)
    layer = layer_ops(model, "ffn", tokens)
    ops = gated_ffn(layer, source, width=model.ffn, axis="ffn", bias=model.ffn_bias)
    return ops, (ops[-1].output,)


def _layer_block(
    model: Model, tokens: Extent, role: str, ops: tuple[Op, ...], leaves: tuple[str, ...]
) -> Block:
    """A block of a layer: what it hands on joins the residual, normed first where the model has it so."""
    if model.post_norms:
        after = _post_norm(model, tokens, role, leaves)
        ops, leaves = (*ops, after), (after.output,)
    if model.hyper_connections:
        mixed = mixed_streams(model, tokens, role, leaves, RESIDUAL)
        ops, leaves = (*ops, mixed), (mixed.output,)
    return Block(
        name=role, role=role, ops=ops, entry=_stream(model, tokens, "sp_tokens"),
        output=_stream(model, tokens, "tokens"), leaves=leaves,
    )  # fmt: skip


def _post_norm(model: Model, tokens: Extent, role: str, leaves: tuple[str, ...]) -> Vector:
    """A norm of what attention or an ffn hands on, added up first: the residual comes after it."""
    before = _norm(f"post_{role}_norm", role, model, tokens)
    return replace(
        before, inputs=leaves, reads=float(len(leaves)), writes=1.0, flop_per_element=NORM_FLOP, pieces=1.0,
        also_writes=0.0,
    )  # fmt: skip
