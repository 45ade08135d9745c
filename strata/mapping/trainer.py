"""What training software does with gradients, parameters and optimiser state: formats, and what runs beside
what. One table of an engine's file.
"""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, register_pytree
from strata.params import part, quantity, text

FORMATS = ("fp32", "bf16", "fp8", "nvfp4")


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
    scores: Number = quantity(
        "B", "kept for each score of attention where that is not one fused kernel: probabilities and a mask"
    )
    attention_copy: Number = quantity(
        "1", "1 where attention's result is kept a second time, turned as the product after it reads it"
    )
    gradient_buffers: Number = quantity(
        "1",
        "1 where products keep a bf16 buffer for the gradient of each shape of weight",
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
        "format in which a sharded optimiser sends updated weights to all ranks", choices=FORMATS
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
    tp_comm_overlap: Number = quantity(
        "1", "1 where collectives of a tensor group run tile by tile beside the products they feed"
    )
    overlap_p2p: Number = quantity(
        "1", "1 where stages hand on activations beside their work, 0 where they wait for them"
    )
    bucket: Number = quantity("1", "parameters of a bucket of gradients that cross together", positive=True)
    fused_loss: Number = quantity(
        "1", "1 where the loss is one kernel over the logits, 0 where softmax and loss are kernels in fp32"
    )
    memory: TrainerMemory | None = part(
        TrainerMemory, "what it holds beside what its arithmetic needs; left out: nothing", optional=True
    )
