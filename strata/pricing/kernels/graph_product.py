"""Products of a graph: with kernels that round their operands, and gradients of weights with their sums."""

from __future__ import annotations

from strata.base.arrays import Number
from strata.base.precision import bytes_of
from strata.pricing.kernels.device import WIDENED, Device, by_format, quantized_format
from strata.pricing.kernels.experts import price_experts
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import Price
from strata.software.trainer import ExpertBias
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.graph import total
from strata.workload.ops import MatMul

ROUND_FLOP = 3.0  # an element is compared with the largest of its block, scaled and rounded
TWO_LEVEL = ("nvfp4",)  # formats whose scales of blocks are relative to one of the whole tensor


def quantize_activations(elements: Number, to: str, device: Device, resident: bool) -> Price:
    r"""Price of rounding 16-bit activations before a product, or of what weights that are widened inside it
    add.

    .. math:: T = T_r + T_{stream}(e \, b)

    e elements, of b bytes each for all passes over them, in a streaming kernel; and the fixed time T_r that
    frameworks add: finding the largest value, allocating, launching. Both are of the chip's frameworks
    (`overhead.quantise`).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h200"))
    >>> [bool(quantize_activations(1e9, to, d, False).memory > 0) for to in ("fp8", "widened")]
    [True, False]
    """
    added = by_format(device.chip.overhead.quantise, to)
    fixed = Price(time=added, overhead=added, upper=added)
    if to == WIDENED:
        return fixed
    wide, narrow = elements * by_format(device.chip.overhead.quantise_bytes, to), elements * bytes_of(to)
    return fixed + vector_kernel(wide - narrow, narrow, elements * ROUND_FLOP, 0.0, device, resident=resident)


def quantize_both_ways(elements: Number, to: str, device: Device) -> Price:
    r"""Price of rounding an operand of a narrow product in training: its activations in the forward pass, its
    gradients in the backward pass.

    .. math:: T = T_{stream}(e (q + 2 b))

    e elements; q bytes read of each (`Trainer.quantize_bytes`), twice in a format whose blocks share a scale
    of the whole tensor, since a pass for its largest value goes before (`TWO_LEVEL`); b bytes of each of two
    copies written, one along rows for this product and one along columns for that of the weight's gradient,
    as narrow matrix units and scales of blocks ask for.

    NVIDIA, Transformer Engine user guide (FP8 primer; MXFP8 block scaling): transposes, and copies in both
    directions. NVIDIA, Pretraining Large Language Models with NVFP4, arXiv 2509.25149: a scale of the tensor
    above those of blocks.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h100"), quantize_bytes=2.0)
    >>> fp8, fp4 = (quantize_both_ways(1e9, to, d).time for to in ("fp8", "nvfp4"))
    >>> 1.2 < fp4 / fp8 < 1.4
    True
    """
    read = 2.0 if device.software.quantize_bytes is None else device.software.quantize_bytes
    read = read * (2.0 if to in TWO_LEVEL else 1.0)
    narrow = elements * bytes_of(to)
    flop = elements * ROUND_FLOP
    return vector_kernel(elements * read, 2.0 * narrow, flop, 0.0, device, resident=device.software.resident)


def quantize_weights(elements: Number, to: str, device: Device) -> Price:
    r"""Price of rounding weights for narrow products in training, once a step.

    .. math:: T = T_{stream}(e (q + 2 b))

    e elements that ranks hold in 16 bits, read once for q = 2 bytes each, or twice in a format whose blocks
    share a scale of the whole tensor (`TWO_LEVEL`); b bytes of each of two copies, along rows and columns.

    NVIDIA, Transformer Engine user guide (FP8 primer): weights are cast in the first micro-batch of a step
    and kept for the others (is_first_microbatch), unless parameters are gathered in their narrow format.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("b200"))
    >>> [round(float(quantize_weights(8e9, to, d).time * 1e3), 1) for to in ("fp8", "nvfp4")]
    [4.4, 5.7]
    """
    read = 4.0 if to in TWO_LEVEL else 2.0
    narrow = elements * bytes_of(to)
    return vector_kernel(elements * read, 2.0 * narrow, elements * ROUND_FLOP, 0.0, device)


def price_matmul(op: MatMul, device: Device) -> Price:
    """Price of a product in a graph, with its share of the kernels that round activations before it."""
    software = device.software
    if op.weight_gradient and op.backward and software.main_gradients:
        return _weight_gradient(op, device)
    resident, share = software.resident, software.separate_quantize_share
    m, k, batch = op.m.size, op.k.size, op.batch.size
    price = matmul(m, total(op.n), k, device, op.weight, op.activation, batch=batch, resident=resident)
    quantized = software.quantize_bytes is not None
    if not quantized and share.__class__ is float and share == 0.0:
        return price
    narrow = quantized_format(device, op.weight, op.activation)
    if not narrow:
        return price
    if quantized and narrow != WIDENED:
        # Operands of a weight's gradient were laid out for it by the products before.
        laid_out = op.backward and op.weight_gradient
        return price if laid_out else price + quantize_both_ways(batch * m * k, narrow, device)
    return price + quantize_activations(batch * m * k, narrow, device, resident).times(share)


def _weight_gradient(op: MatMul, device: Device) -> Price:
    """Price of a weight's gradient that is added to the main one: inside its product, which reads and writes
    that where it is wider, or by a kernel of its own, whatever its width. Its operands lie rounded already
    (`quantize_both_ways`).
    """
    software = device.software
    resident, fused = software.resident, software.fused_gradient_add
    sizes = (op.m.size, total(op.n), op.k.size, device, op.weight, op.activation)
    narrow, wide = bytes_of(op.activation), bytes_of(software.main_gradients)
    plain = matmul(*sizes, batch=op.batch.size, resident=resident)
    inside = plain
    if wide > narrow:
        inside = matmul(*sizes, batch=op.batch.size, resident=resident, result_bytes=2.0 * wide)
    if fused.__class__ is float and fused == 1.0:
        return inside
    elements = op.batch.size * op.m.size * total(op.n)
    added = vector_kernel(elements * (narrow + wide), elements * wide, elements, 0.0, device)
    return inside.times(fused) + (plain + added).times(1.0 - fused)


def biased_results(op: ExpertMatMul, kernels: ExpertBias, device: Device) -> Price:
    r"""Price of adding biases to results of experts, each times the routing weight of its row, by kernels of
    their own; backward of gradients of biases and weights.

    .. math:: T = T_{stream}(b \, r n)

    rows r of n elements, b bytes moved of each.

    Megatron-LM, megatron/core/transformer/moe/experts.py, TEGroupedMLP._apply_bias: for each expert its bias
    times weights in fp32 and a sum, all of them put together and rounded.

    >>> from strata.hardware.chip import chip
    >>> from strata.software.engine import engine
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.program import program
    >>> from strata.workload.tasks import train
    >>> blocks = {b.name: b for b in program("gpt-oss-120b").trace(train(1.0, 16384.0)).blocks}
    >>> names = {"ffn.moe": "experts_down", "ffn.moe.backward": "experts_down_dgrad"}
    >>> ops = [o for block, name in names.items() for o in blocks[block].ops if o.name == name]
    >>> told, h200 = engine("megatron").training.expert_bias, device(chip("h200"))
    >>> [round(float(biased_results(op, told, h200).time) * 1e3, 1) for op in ops]  # measured: 2.3 and 3.7
    [2.4, 3.8]
    """
    rows = op.tokens.size * op.top_k * op.experts.size / op.slots
    elements = rows * (op.k.size if op.backward else total(op.n))
    half = 0.5 * elements * (kernels.moved_back if op.backward else kernels.moved)
    return vector_kernel(half, half, elements, 0.0, device)


def price_routed(op: ExpertMatMul, device: Device) -> Price:
    """Price of a product of experts; in training with the rounding of the rows that come to them, and with
    gradients of their weights, which are read and written as wide as they are added up.
    """
    price, software = price_experts(op, device, op.ranks), device.software
    if not software.trains:
        return price
    if op.weighted_bias and software.expert_bias is not None:
        price = price + biased_results(op, software.expert_bias, device)
    if op.backward and op.weight_gradient:
        wide = bytes_of(software.main_gradients) if software.main_gradients else 0.0
        if wide <= bytes_of(op.activation):
            return price
        elements = op.weight_elements()
        return price + vector_kernel(elements * wide, elements * wide, elements, 0.0, device)
    narrow = quantized_format(device, op.weight, op.activation)
    if software.quantize_bytes is None or not narrow or narrow == WIDENED:
        return price
    rows = op.tokens.size * op.top_k * op.experts.size / op.slots
    return price + quantize_both_ways(rows * op.k.size, narrow, device)
