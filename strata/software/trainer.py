"""What a trainer does with gradients, parameters and optimiser state: one table of an engine's file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from strata.base.arrays import Number, register_pytree
from strata.base.precision import bytes_of
from strata.params import part, quantity, text

optional = partial(quantity, optional=True)
FORMATS = ("fp32", "bf16", "fp8", "nvfp4")
LIBRARY_EXCHANGE = "alltoall"
EXCHANGES = (LIBRARY_EXCHANGE, "deepep")
CAPTURES = ("none", "static", "all")
SPLITS = ("even", "balanced", "beyond")
STALLS = ("stages", "nodes")
WORKING = "bf16"  # format of weights that a trainer works with where products read no narrower one


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class TrainerMemory:
    """What training software holds beside what its arithmetic needs."""

    logits: Number = quantity(
        "B", "held for each logit while the loss and its gradient are worked out", positive=True
    )
    unfused_gates: Number = quantity(
        "1", "1 where an activation and the product with its gate are two kernels: what is between is kept"
    )
    activation_input: Number | None = optional(
        "B",
        "kept of an element that a gated activation reads, rounded for the backward pass (Megatron-LM's "
        "activation_func_fp8_input_store); left out: as it is",
        positive=True,
    )
    scores: Number = quantity(
        "B", "kept for each score of attention where that is not one fused kernel: probabilities and a mask"
    )
    attention_copy: Number = quantity(
        "1", "1 where attention's result is kept a second time, turned as the product after it reads it"
    )
    attention_result: Number | None = optional(
        "B",
        "kept of an element of attention's result, rounded once for its own gradient and for that of the "
        "product after it; left out: as each of them reads it",
        positive=True,
    )
    qkv_apart: Number | None = optional(
        "1",
        "1 where queries, keys and values are results of three products, so that nothing holds queries and "
        "keys as they were before their rotation; as 0 when left out: values stay in the buffer of all three",
    )
    expert_results: Number = quantity(
        "1",
        "1 where routing weights multiply results of experts, which are kept for gradients of the weights; 0 "
        "where they multiply activated rows, before the second product",
    )
    gradient_buffers: Number = quantity(
        "1", "1 where products keep a bf16 buffer for the gradient of each shape of weight"
    )
    buckets: Number = quantity(
        "B", "of a parameter in buckets of gradients beside those added up, where ranks sum them"
    )
    gathered: Number = quantity(
        "B",
        "of a parameter in buffers of the update's gather, where optimiser state is sharded: all of them and "
        "a rank's own",
    )
    gather_buffers: Number = quantity(
        "1", "whole residual streams in buffers of a tensor group that keeps sequences in pieces"
    )
    communicator: Number = quantity("B", "of a communication library's buffers for each group of ranks")
    fragments: Number = quantity(
        "1", "what the allocator holds and cannot use, over what comes and goes within a step"
    )


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class ExpertBias:
    """What it takes to add biases to results of experts by kernels of their own, expert by expert."""

    moved: Number = quantity("B", "moved of an element of results in a forward pass")
    moved_back: Number = quantity("B", "and in a backward pass, with gradients of biases and weights")
    host: Number = quantity("s", "host time for each expert that a rank holds, in a forward pass")
    host_back: Number = quantity("s", "and in a backward pass")


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Trainer:
    """Settings of a training framework, by the names its users know (Megatron-LM's flags)."""

    attention: str = text(
        "one fused kernel, or batched products with scores in DRAM between them",
        choices=("fused", "unfused"),
        default="fused",
    )
    main_gradients: str = text("format in which gradients are added up over micro-batches", choices=FORMATS)
    reduced_gradients: str = text("format in which gradients cross between ranks", choices=FORMATS)
    gathered_parameters: str = text(
        "format in which a sharded optimiser sends updated weights to all ranks; a narrow one is that of "
        "weights whose products read a narrow format, others go in bf16 (Megatron's fp8_param_gather)",
        choices=FORMATS,
    )
    optimizer_bytes: Number = quantity(
        "B", "optimiser state of a parameter: a full-precision copy and its moments", positive=True
    )
    overlap_grad_reduce: Number = quantity(
        "1", "1 where gradients cross beside the last backward pass, bucket by bucket, 0 where after it"
    )
    overlap_param_gather: Number = quantity(
        "1", "1 where updated weights are gathered beside the next forward pass, 0 where before it"
    )
    param_gather_rate: Number | None = optional(
        "1",
        "rate at which updated weights are gathered over that of one long message: less where pieces of each "
        "tensor are sent and copied by themselves; 1 when left out",
    )
    tp_comm_overlap: Number = quantity(
        "1", "1 where collectives of a tensor group run tile by tile beside the products they feed"
    )
    split: str = text(
        "layers of a pipeline's stages: as even as whole layers allow, or balanced by the work of products, "
        "the head's among them, until a stage has its share of it or more than that",
        choices=SPLITS,
        default=SPLITS[0],
    )
    async_tp: Number | None = optional(
        "1",
        "1 where a backward pass sums gradients of a product's input over a tensor group beside the product "
        "for its weight, and gathers its saved input beside that for its input (Megatron's asynchronous "
        "tensor parallel communication); as 1 when left out",
    )
    expert_exchange: str = text(
        "what carries tokens to experts and back: a library's all-to-all with a row for each pick, sorted "
        "before and after (Megatron's alltoall dispatcher), or kernels that send a token once to a node "
        "(its flex dispatcher with DeepEP)",
        choices=EXCHANGES,
        default=LIBRARY_EXCHANGE,
    )
    overlap_moe_expert_parallel_comm: Number | None = optional(
        "1",
        "1 where tokens go to experts and back beside the kernels of another micro-batch; as 0 when left out",
    )
    overlap_p2p: Number = quantity(
        "1", "1 where stages hand on activations beside their work, 0 where they wait for them"
    )
    bucket: Number | None = optional(
        "1",
        "parameters of a bucket of gradients that cross together; left out: each crosses as it is made, and "
        "none is waited for at the end",
        positive=True,
    )
    bucket_per_rank: Number | None = optional(
        "1", "parameters that a bucket has at least for each rank that sums it; none when left out"
    )
    update_rate: Number | None = optional(
        "1",
        "rate at which the optimiser's kernel streams over a chip's streams: chunks of many tensors are "
        "launched a few hundred at a time, and cores wait at the end of each launch; 1 when left out",
    )
    fused_loss: Number = quantity(
        "1", "1 where the loss is one kernel over the logits, 0 where softmax and loss are kernels in fp32"
    )
    loss_slots: Number | None = optional(
        "1",
        "issue slots of a vector lane for a logit in the loss's kernels, forward and backward each; left "
        "out: its own operations",
    )
    fused_gradient_add: Number | None = optional(
        "1",
        "1 where the product that makes a weight's gradient adds it to the main one, 0 where a kernel of its "
        "own does; left out: 1",
    )
    quantize_bytes: Number | None = optional(
        "B",
        "bytes read of an element of an operand to round it before narrow products and to lay it out for "
        "both of them; 0 or left out: the kernel before does so",
    )
    host_kernel: Number | None = optional(
        "s",
        "host time of a kernel of the forward pass, with the framework's own around it; left out: the "
        "engine's launches at the chip's launch time",
    )
    host_narrow: Number | None = optional(
        "s",
        "host time that a product in a narrow format adds to that of its kernel: operands rounded, scales "
        "and their history kept, the module around them; left out: none",
    )
    host_expert: Number | None = optional(
        "s",
        "host time for each expert that a rank holds, in each of the products of its experts, where their "
        "kernels are launched one by one; left out: such a product is one kernel",
    )
    expert_bias: ExpertBias | None = part(
        ExpertBias,
        "kernels that add biases to results of experts, where models have them; left out: their product does",
        optional=True,
    )
    captured: str = text(
        "kernels in CUDA graphs, which need no host: none, those whose shapes no routing changes (attention, "
        "router and what is before the exchange), or all of a step",
        choices=CAPTURES,
        default="none",
    )
    host_backward: Number | None = optional(
        "1", "host time of a kernel of the backward pass over that; left out: 1"
    )
    host_checkpoint: Number | None = optional(
        "1",
        "kernels of the forward pass whose host time it takes to checkpoint a layer, in each pass; left out: "
        "none",
    )
    host_collective: Number | None = optional(
        "s",
        "host time of a collective of a tensor group: the library's call, and the parts that products around "
        "it are cut into; left out: that of a kernel",
    )
    host_stall: Number | None = optional(
        "s",
        "host time that each rank of a tensor group adds to its collectives where hosts stall: all wait for "
        "a thread that has lost its core; left out: none",
    )
    stalls: str = text(
        "where hosts stall: in jobs whose stages hand over between nodes, or in all on several nodes",
        choices=STALLS,
        default=STALLS[0],
    )
    message_hold: Number | None = optional(
        "s",
        "time that a message between two stages holds both of them, beyond what it takes to cross; left "
        "out: none",
    )
    collective_skew: Number | None = optional(
        "s",
        "time that each rank of a tensor group over nodes adds to its collectives: all wait for the last to "
        "come; left out: none",
    )
    memory: TrainerMemory | None = part(
        TrainerMemory, "what it holds beside what its arithmetic needs; left out: nothing", optional=True
    )


def gathered_bytes(trainer: Trainer, narrow: Number) -> Number:
    r"""Bytes of a parameter that ranks gather, in the mean.

    .. math:: b = \nu b_g + (1 - \nu) \max(b_g, 2)

    share :math:`\nu` of parameters whose products read a narrow format, b_g of the gathered format: norms,
    embeddings and what is trained in bf16 stay in bf16.

    Megatron-LM, --fp8-param-gather.

    >>> from strata.software.engine import engine
    >>> from dataclasses import replace
    >>> fp8 = replace(engine("megatron").training, gathered_parameters="fp8")
    >>> [float(gathered_bytes(fp8, narrow)) for narrow in (0.0, 0.75, 1.0)]
    [2.0, 1.25, 1.0]
    """
    least = bytes_of(trainer.gathered_parameters)
    wide = max(least, bytes_of(WORKING))
    return wide if least == wide else wide + narrow * (least - wide)
