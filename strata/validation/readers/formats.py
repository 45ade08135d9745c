"""Number formats by the names data sets give them."""

from __future__ import annotations

from dataclasses import dataclass

from strata.errors import BadValue
from strata.hardware.chip import Chip


@dataclass(frozen=True)
class KernelFormat:
    """What a kernel multiplies: formats of weights and activations, and whether narrow weights are widened
    before the product.
    """

    weight: str
    activation: str = "bf16"
    weight_only: bool = False


KERNEL_FORMATS = {
    "bf16": KernelFormat("bf16"),
    "bfloat16": KernelFormat("bf16"),
    "float16": KernelFormat("bf16"),
    "fp16": KernelFormat("bf16"),
    "half": KernelFormat("bf16"),
    "fp8": KernelFormat("fp8"),
    "fp8_static": KernelFormat("fp8"),
    "fp8_block": KernelFormat("fp8_block"),
    "nvfp4": KernelFormat("fp4"),
    "mxfp4": KernelFormat("mxfp4"),
    "mxfp6": KernelFormat("mxfp6"),
    "mxfp8": KernelFormat("mxfp8"),
    "sq": KernelFormat("int8"),
    "int8": KernelFormat("int8"),
    "int8_wo": KernelFormat("int8", weight_only=True),
    "int4_wo": KernelFormat("int4", weight_only=True),
    "w4afp8": KernelFormat("int4", "fp8", weight_only=True),
    "w4a16_mxfp4": KernelFormat("mxfp4", weight_only=True),
    "w4a8_mxfp4_mxfp8": KernelFormat("mxfp4", "fp8", weight_only=True),
}
# Weights as served.
WEIGHT_FORMATS = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "bf16",
    "float16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "fp4": "fp4",
    "fp8_static": "fp8",
    "w4afp8": "int4",
    "nvfp4": "fp4",
    "mxfp4": "mxfp4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4",
    "int8": "int8",
    "int8_wo": "int8",
    "int4_wo": "int4",
}
# Formats of one width that differ in how elements share their scales: a chip multiplies one of them.
FOUR_BITS = ("fp4", "mxfp4")


def kernel_format(name: str) -> KernelFormat:
    """What a data set's name of a kernel's format means for pricing."""
    if name not in KERNEL_FORMATS:
        raise BadValue(f"a format must be one of {', '.join(KERNEL_FORMATS)}, but got '{name}'")
    return KERNEL_FORMATS[name]


def weight_format(name: str) -> str:
    """Strata's name of a weight format."""
    if name.lower() not in WEIGHT_FORMATS:
        raise BadValue(f"a weight format must be one of {', '.join(WEIGHT_FORMATS)}, but got '{name}'")
    return WEIGHT_FORMATS[name.lower()]


def multiplied_format(name: str, chip: Chip) -> str:
    """The format of weights that a chip multiplies, of a run that says no more than how wide they are: 'fp4'
    is that of its matrix units.

    >>> from strata.hardware.chip import chip
    >>> [multiplied_format("fp4", chip(name)) for name in ("b200", "mi355x", "h200")]
    ['fp4', 'mxfp4', 'fp4']
    """
    rates = chip.compute.matrix_rate
    if name.lower() != "fp4" or "fp4" in rates:
        return name
    return next((f for f in FOUR_BITS if f in rates), name)
