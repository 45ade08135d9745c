"""SI inside; "4.8 TB/s" is parsed and printed only here.

GB is 1e9 bytes and GiB 2**30; a FLOP is one operation (a multiply-add counts two); a bit is 1/8 byte; °C is
stored in kelvin.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number
from strata.base.errors import BadUnit, BadValue, require

_PREFIX = {
    "f": 1e-15, "p": 1e-12, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "c": 1e-2, "": 1.0,
    "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip
# Each base unit: factor to SI and exponents of (byte, flop, second, joule, metre, volt, kelvin, dollar).
_BASE = {
    "B": (1.0, (1, 0, 0, 0, 0, 0, 0, 0)),
    "bit": (0.125, (1, 0, 0, 0, 0, 0, 0, 0)),
    "FLOP": (1.0, (0, 1, 0, 0, 0, 0, 0, 0)),
    "OP": (1.0, (0, 1, 0, 0, 0, 0, 0, 0)),
    "s": (1.0, (0, 0, 1, 0, 0, 0, 0, 0)),
    "h": (3600.0, (0, 0, 1, 0, 0, 0, 0, 0)),
    "year": (31557600.0, (0, 0, 1, 0, 0, 0, 0, 0)),
    "Hz": (1.0, (0, 0, -1, 0, 0, 0, 0, 0)),
    "J": (1.0, (0, 0, 0, 1, 0, 0, 0, 0)),
    "W": (1.0, (0, 0, -1, 1, 0, 0, 0, 0)),
    "Wh": (3600.0, (0, 0, 0, 1, 0, 0, 0, 0)),
    "m": (1.0, (0, 0, 0, 0, 1, 0, 0, 0)),
    "V": (1.0, (0, 0, 0, 0, 0, 1, 0, 0)),
    "K": (1.0, (0, 0, 0, 0, 0, 0, 1, 0)),
    "USD": (1.0, (0, 0, 0, 0, 0, 0, 0, 1)),
}
LARGEST = 1e40  # of a quantity from outside, in SI; 1 / LARGEST is the smallest
_NONE = (0,) * 8
_NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*$")
_TOKEN = re.compile(r"([A-Za-zµ°%$]+?)(-?\d)?$")


def _token(text: str, whole: str) -> tuple[float, tuple[int, ...]]:
    if text in ("1", "%"):
        return (0.01 if text == "%" else 1.0), _NONE
    match = _TOKEN.match(text)
    if match:
        name, power = match.group(1).replace("$", "USD"), int(match.group(2) or 1)
        for cut in (0, 1, 2):  # the longest base first, so that "Wh" is not hours with a prefix
            prefix, base = name[:cut], name[cut:]
            if base in _BASE and prefix in _PREFIX:
                factor, dimension = _BASE[base]
                return (_PREFIX[prefix] * factor) ** power, tuple(d * power for d in dimension)
    raise BadUnit(
        f"unknown unit '{whole}'; use B, bit, FLOP, s, Hz, W, J, m, V, K, degC, USD with SI prefixes, "
        "like 'TB/s'"
    )


def factor(unit: str) -> tuple[float, tuple[int, ...]]:
    """Factor to SI and dimension of a unit such as ``TB/s`` or ``pJ/bit``.

    >>> factor("TB/s")[0], round(factor("pJ/bit")[0] * 1e12, 6), factor("mm2")[0], factor("/ms")[0]
    (1000000000000.0, 8.0, 1e-06, 1000.0)
    """
    if unit in ("", "1"):
        return 1.0, _NONE
    scale = 1.0
    dimension: tuple[int, ...] = _NONE
    sign = 1
    written = unit.replace(" ", "")
    for part in re.split(r"([/*])", f"1{written}" if written.startswith("/") else written):
        if part and part in "/*":
            sign = -1 if part == "/" else 1
            continue
        f, d = _token(part, unit)
        scale *= f**sign
        dimension = tuple(a + sign * b for a, b in zip(dimension, d, strict=True))
    return scale, dimension


def parse(text: str | float | int, unit: str = "1", what: str = "value") -> float:
    """A quantity as its SI number; the dimension must be that of ``unit``.

    >>> parse("4.8 TB/s", "B/s"), parse("40ms", "s"), parse(132, "1")
    (4800000000000.0, 0.04, 132.0)
    >>> parse("85 degC", "K")
    358.15
    >>> parse("4.8 TB", "B/s", "memory.bandwidth")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadUnit: memory.bandwidth is measured in B/s, but got '4.8 TB'
    """
    if isinstance(text, bool):
        raise BadUnit(f"{what} is a number, but got {text}")
    expected = factor(unit)[1]
    if isinstance(text, (int, float)):
        if expected != _NONE:
            raise BadUnit(
                f"{what} needs its unit written out, like '{text} {unit}', but got the bare number {text}"
            )
        return finite_number(text, what)
    match = _NUMBER.match(text) if isinstance(text, str) else None
    if not match:
        raise BadUnit(f"{what} is a number with a unit, like '3 {unit}', but got '{text}'")
    number, given = finite_number(match.group(1), what), match.group(2)
    if given in ("degC", "°C") and unit == "K":
        return number + 273.15
    scale, dimension = factor(given)
    if dimension != expected:
        kind = "a plain number" if unit == "1" else f"measured in {unit}"
        raise BadUnit(f"{what} is {kind}, but got '{text}'" + ("" if given else " without a unit"))
    return finite_number(number * scale, what)


def finite_number(value: str | float, what: str = "value") -> float:
    """A number, as typed or given, that is finite and neither too large nor too small for equations.

    >>> finite_number("1e3"), finite_number(8)
    (1000.0, 8.0)
    >>> finite_number("1e999", "--power")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: --power must be a finite number, but got '1e999'
    """
    try:
        number = float(value)
    except (ValueError, TypeError):
        raise BadValue(f"{what} must be a number, but got '{value}'") from None
    except OverflowError:
        number = float("inf")
    if not sensible(number):
        endless = not abs(number) < float("inf")
        told = "a finite number" if endless else f"0, or between 1/{LARGEST:g} and {LARGEST:g}"
        raise BadValue(f"{what} must be {told}, but got '{value}'")
    return number


def whole(text: str | float, what: str) -> float:
    """A positive whole number, as typed.

    >>> whole("64", "--batch"), whole("1e3", "--input")
    (64.0, 1000.0)
    >>> whole("1.5", "--batch")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: --batch must be a positive whole number, but got '1.5'
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (value >= 1 and value == value // 1 and value < 1e15):
        raise BadValue(f"{what} must be a positive whole number, but got '{text}'")
    return value


def typed_quantity(text: str, unit: str, option: str) -> float:
    """A quantity in SI, as typed: a bare number is in the unit itself.

    >>> typed_quantity("60", "W", "--power"), typed_quantity("0.5 kW", "W", "--power")
    (60.0, 500.0)
    """
    try:
        float(text)
    except ValueError:
        return parse(text, unit, option)
    return finite_number(text, option)


def typed_time(text: str, option: str) -> float:
    """A positive time in seconds, or infinity where none is typed: a limit.

    >>> typed_time("40ms", "--tpot"), typed_time("", "--ttft")
    (0.04, inf)
    """
    value = parse(text, "s", option) if text else float("inf")
    require(value > 0, f"{option} must be a positive time", given=text)
    return value


def sensible(values: Any) -> Any:
    """Whether numbers are 0, or of a size that products of a few of them are numbers too.

    >>> sensible(4e12), sensible(1e-320), sensible(float("nan"))
    (True, False, False)
    """
    size = abs(values)
    return (size < LARGEST) & ((size > 1.0 / LARGEST) | (size == 0.0))


def finite_array(values: Any, what: str = "value") -> Array:
    """Numbers of a list or an array, at least one, each neither infinite nor NaN.

    >>> finite_array([1, 2, 4]).tolist()
    [1.0, 2.0, 4.0]
    >>> finite_array([1, "many"], "batch")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: batch must hold finite numbers, but got [1, 'many']
    """
    try:
        found = np.asarray(values)
        found = found.astype(float, copy=False) if found.dtype.kind in "fiu" else np.zeros(0)
    except (ValueError, TypeError, OverflowError):
        found = np.zeros(0)
    once = tuple(slice(None) if step else slice(0, 1) for step in found.strides)  # what is broadcast once
    if found.size == 0 or not sensible(found[once]).all():
        raise BadValue(f"{what} must hold finite numbers, but got {_brief(values)}")
    return found


def finite_quantity(value: Any, what: str = "value") -> Any:
    """A quantity as given, a number or an array, each number of it finite; what is traced stays as it is.

    >>> finite_quantity(float("inf"), "model.hidden")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: model.hidden must be a finite number, but got 'inf'
    """
    if isinstance(value, np.ndarray):
        return finite_array(value, what)
    if isinstance(value, int | float | np.number) and not isinstance(value, bool | np.complexfloating):
        finite_number(value if isinstance(value, int | float) else value.item(), what)
    return value


def box_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape arrays broadcast to.

    >>> box_shape([(3, 1), (4,)])
    (3, 4)
    """
    try:
        return tuple(np.broadcast_shapes(*shapes)) if shapes else ()
    except ValueError:
        distinct = sorted({str(s) for s in shapes})
        raise BadValue(
            f"arrays of the inputs must broadcast together, but got shapes {', '.join(distinct)}"
        ) from None


def _brief(values: Any) -> str:
    text = " ".join(repr(values).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


_SHOWN = ("f", "p", "n", "u", "m", "", "k", "M", "G", "T", "P", "E")


def show(value: Number, unit: str = "1", digits: int = 3) -> str:
    """A number with the SI prefix that keeps it between 1 and 1000.

    >>> show(4.8e12, "B/s"), show(0.0421, "s"), show(0.25), show(1.2e-11, "J/B"), show(8.14e-4, "m2")
    ('4.8 TB/s', '42.1 ms', '0.25', '12 pJ/B', '814 mm2')
    """
    value = float(value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if unit == "K":
        return f"{value - 273.15:.{digits}g} degC"
    if unit in ("1", "USD") or value == 0:
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
        return text if unit == "1" else f"{text} {unit}"
    if unit == "m2":
        return f"{value * 1e6:.{digits}g} mm2"
    step = 0
    while abs(value) >= 999.5 and step < 6:
        value, step = value / 1000, step + 1
    while abs(value) < 0.9995 and step > -5:
        value, step = value * 1000, step - 1
    return f"{value:.{digits}g} {_SHOWN[step + 5]}{unit}"
