"""Number formats: their names, their bytes, and how a format picks a rate from a chip's table.

A format is named by a string, or by a code (its place in `PRECISIONS`), which may be an array.
"""

from __future__ import annotations

from collections.abc import Mapping

from strata.arrays import Number, namespace
from strata.errors import MissingQuantity, UnknownName

# Bytes of one element with its share of block scales: nvfp4 has one fp8 scale for 16 elements, mxfp4 one
# 8-bit scale for
# 32 (OCP Microscaling Formats v1.0, sec. 5.2), fp8_block one fp32 scale for 128 x 128, int4 one fp16 scale
# for 128.
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
}
PRECISIONS = tuple(BYTES)
# Formats that run on the same arithmetic as another; of the two 16-bit formats a chip may have only one.
ARITHMETIC = {"fp16": "bf16", "bf16": "fp16", "fp8_block": "fp8", "mxfp4": "fp4"}


def check(name: str) -> str:
    if name not in BYTES:
        raise UnknownName("precision", name, PRECISIONS, ", ".join(PRECISIONS))
    return name


def bytes_of(precision: str | Number) -> Number:
    """Bytes of one element.

    >>> bytes_of("fp8"), bytes_of("fp4")
    (1.0, 0.5625)
    """
    if isinstance(precision, str):
        return BYTES[check(precision)]
    xp = namespace(precision)
    return xp.take(xp.asarray(list(BYTES.values())), xp.asarray(precision).astype(int))


def supports(rates: Mapping[str, Number], precision: str) -> bool:
    return precision in rates or ARITHMETIC.get(precision) in rates


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
