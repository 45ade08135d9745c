"""Products of a graph: with the kernels that round their operands before narrow products, and gradients of
weights with the sums they go to.
"""

from __future__ import annotations

from strata.mapping.trainer import ExpertBias
from strata.precision import bytes_of
from strata.pricing.kernels.device import WIDENED, Device, quantized_format
from strata.pricing.kernels.experts import price_experts
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.quantize import quantize_activations, quantize_both_ways
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import Price
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.graph import total
from strata.workload.ops import MatMul


def price_matmul(op: MatMul, device: Device) -> Price:
    """Price of a product in a graph, with its share of the kernels that round activations before narrow
    products.
    """
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
    >>> from strata.mapping.engine import engine
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
