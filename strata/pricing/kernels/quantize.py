"""Activations brought to a narrower format before a product, as serving frameworks do it."""

from __future__ import annotations

from strata.arrays import Number
from strata.precision import bytes_of
from strata.pricing.kernels.device import WIDENED, Device, by_format
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import Price

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
