"""Number formats: their names, their bytes, and how a format picks a rate from a chip's table.

A format is named by a string, or by a code (its place in `PRECISIONS`), which may be an array.
"""

from __future__ import annotations

from collections.abc import Mapping

from strata.base.arrays import Number, namespace
from strata.base.errors import MissingQuantity, UnknownName

# Bytes of one element with its share of block scales. nvfp4 has one fp8 (e4m3) scale for 16 elements, and one
# fp32 scale for a tensor, whose share is nothing (NVIDIA, Introducing NVFP4, 2025); fp4 is the same, under
# the name it had here before. The formats of OCP's Microscaling v1.0, sec. 5.2, have one 8-bit power of two
# (e8m0) for 32 elements: mxfp8, mxfp6 (both of its kinds), mxfp4. fp8_block has one fp32 scale for 128 x 128,
# int4 one fp16 scale for 128.
BYTES = {
    "fp64": 8.0,
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4 / 128**2,
    "int8": 1.0,
    "fp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "int4": 0.5 + 2 / 128,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp6": 0.75 + 1 / 32,
    "mxfp8": 1.0 + 1 / 32,
}
PRECISIONS = tuple(BYTES)
# Formats that run on the same arithmetic as another, where a chip states no rate for themselves; of the two
# 16-bit formats a chip may have only one. Numbers of 6 bits go through units for 8 (PTX ISA, tcgen05.mma of
# kind mxf8f6f4), unless a chip has a rate of its own for them, as CDNA 4 has.
ARITHMETIC = {
    "fp16": "bf16",
    "bf16": "fp16",
    "fp8_block": "fp8",
    "mxfp4": "fp4",
    "nvfp4": "fp4",
    "mxfp6": "fp8",
    "mxfp8": "fp8",
}
# What stands beside the elements in memory: how many share one scale, and the scale's bytes.
SCALES = {
    "nvfp4": (16, 1.0),
    "fp4": (16, 1.0),
    "mxfp4": (32, 1.0),
    "mxfp6": (32, 1.0),
    "mxfp8": (32, 1.0),
    "fp8_block": (128 * 128, 4.0),
    "int4": (128, 2.0),
}


def check(name: str) -> str:
    if not isinstance(name, str) or name not in BYTES:
        raise UnknownName("precision", str(name), PRECISIONS, ", ".join(PRECISIONS))
    return name


def bytes_of(precision: str | Number) -> Number:
    """Bytes of one element.

    >>> bytes_of("fp8"), bytes_of("fp4")
    (1.0, 0.5625)
    >>> [8 * bytes_of(name) for name in ("nvfp4", "mxfp4", "mxfp6", "mxfp8")]  # bits
    [4.5, 4.25, 6.25, 8.25]
    """
    if isinstance(precision, str):
        return BYTES[check(precision)]
    xp = namespace(precision)
    return xp.take(xp.asarray(list(BYTES.values())), xp.asarray(precision).astype(int))


def supports(rates: Mapping[str, Number], precision: str) -> bool:
    return precision in rates or ARITHMETIC.get(precision) in rates


def as_measured(table: Mapping[str, Number], precision: str) -> Number:
    """The entry of a table of kernels that were measured in some formats; a format that was not takes that of
    the narrowest which is no narrower.

    >>> as_measured({"bf16": 2.0, "fp8": 1.0}, "nvfp4"), as_measured({"bf16": 2.0, "fp8": 1.0}, "int8")
    (1.0, 1.0)
    """
    if supports(table, check(precision)):
        return rate_of(table, precision)
    wider = [name for name in table if name in BYTES and BYTES[name] >= BYTES[precision]]
    return table[min(wider, key=BYTES.__getitem__)] if wider else rate_of(table, precision)


def rate_of(rates: Mapping[str, Number], precision: str | Number, owner: str = "chip") -> Number:
    """The entry of a chip's table for a precision; a format shares the entry of the arithmetic it runs on.

    >>> rate_of({"bf16": 2.0, "fp8": 4.0}, "fp16")
    2.0
    """
    if isinstance(precision, str):
        check(precision)
        for name in (precision, ARITHMETIC.get(precision, precision)):
            if name in rates:
                return rates[name]
        raise MissingQuantity(f"{owner} has no {precision} matrix rate; it has: {', '.join(rates)}")
    xp = namespace(precision, *rates.values())
    value = xp.nan
    for code, name in enumerate(PRECISIONS):
        if supports(rates, name):
            value = xp.where(precision == code, rate_of(rates, name), value)
    return value
