"""Rows of the tables that nccl-tests and rccl-tests print, each checked against itself: bytes against
elements, bandwidth against time, and the bandwidth of the bus against the collective and its ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from strata.errors import BadValue
from strata.units import finite_number

WIDTHS = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16"), 2),
    **dict.fromkeys(("float", "int32", "uint32", "int"), 4),
    **dict.fromkeys(("double", "int64", "uint64"), 8),
}
TIME_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}  # microseconds
SIZE_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}  # as their options count
NOT_TOLD = "N/A"
# What a table's numbers may be off by, as they are printed: two decimals of a bandwidth, four digits of a
# time.
LAST_DIGIT, ROUNDED = 0.0051, 0.01
TELLING = 1.0  # GB/s from which two decimals tell a ratio of bandwidths to a percent
_NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][-+]?\d+)?")


@dataclass(frozen=True, kw_only=True)
class LoggedRow:
    """One size: its line in the log, bytes of the whole buffer, format, and the lower of both times."""

    line: int
    bytes: int
    dtype: str
    time_us: float


def is_number(word: str) -> bool:
    """Whether a word is a number as tables have it."""
    return word.isascii() and _NUMBER.fullmatch(word) is not None


def unit_of_times(units: str) -> float | None:
    """Microseconds of one unit of time, by the line of units below the columns; none where it has none.

    >>> unit_of_times("#  (B)    (elements)    (us)  (GB/s)  (GB/s)"), unit_of_times("#")
    (1.0, None)
    """
    found = re.findall(r"\(([^)]*)\)", units)
    return next((TIME_UNITS[unit] for unit in found if unit in TIME_UNITS), None)


def logged_row(
    line: int, words: list[str], columns: tuple[str, ...], scale: float, op: str, gpus: int
) -> LoggedRow:
    """One row, checked against itself; the lower of its times, which are in units of `scale` microseconds.

    >>> columns = tuple("size count type redop root time algbw busbw #wrong".split())
    >>> row = "1048576 262144 float sum -1 100.0 10.49 18.35 0".split()
    >>> logged_row(9, row, columns, 1.0, "all_reduce", 8)
    LoggedRow(line=9, bytes=1048576, dtype='float', time_us=100.0)
    """
    if len(words) != len(columns):
        raise BadValue(f"the row of size {words[0]} has {len(words)} of {len(columns)} columns: cut off")
    said, count, dtype = (words[columns.index(name)] for name in ("size", "count", "type"))
    if dtype not in WIDTHS:
        raise BadValue(f"type '{dtype}' of size {said} is unknown")
    size = _bytes(said, _whole(count, "count") * WIDTHS[dtype], gpus)
    begins = [i for i, column in enumerate(columns) if column == "time"]
    times = []
    for at, end in zip(begins, [*begins[1:], len(columns)], strict=True):
        told = dict(zip(columns[at:end], words[at:end], strict=True))
        if told["time"] != NOT_TOLD:
            took = _positive(told["time"], "time") * scale
            _check(size, took, told, op, gpus)
            times.append(took)
    if not times:
        raise BadValue(f"the row of size {said} has no time")
    return LoggedRow(line=line, bytes=size, dtype=dtype, time_us=min(times))


def _bytes(said: str, counted: int, gpus: int) -> int:
    """Bytes of the whole buffer: what is said, if elements agree with it, of one rank or of all."""
    size = _whole(said.rstrip("BKMGT"), "size") * SIZE_UNITS[said[len(said.rstrip("BKMGT")) :][:1]]
    near = [n for n in (counted, counted * gpus) if abs(n - size) <= (0 if said.isdigit() else 0.05 * size)]
    if not near:
        raise BadValue(
            f"size {said} does not agree with {counted} bytes of elements, of one rank or of {gpus}"
        )
    return near[0]


def _check(size: int, took: float, told: Mapping[str, str], op: str, gpus: int) -> None:
    """Refuse numbers that contradict each other, and results that were wrong."""
    if told.get("#wrong", "0") not in ("0", NOT_TOLD):
        raise BadValue(f"size {size} came out wrong in {told['#wrong']} elements")
    if "algbw" not in told or "busbw" not in told:
        return
    algorithm, bus = (_number(told[word], word) for word in ("algbw", "busbw"))
    rate = size / took * 1e-3  # GB/s
    if abs(rate - algorithm) > LAST_DIGIT + ROUNDED * rate:
        raise BadValue(f"size {size} in {took:g} us is {rate:.2f} GB/s, but algbw is {told['algbw']}")
    factor = (2.0 if op == "all_reduce" else 1.0) * (gpus - 1) / gpus
    if algorithm >= TELLING and abs(bus / algorithm - factor) > 2 * LAST_DIGIT / algorithm + ROUNDED:
        raise BadValue(
            f"busbw / algbw of size {size} is {bus / algorithm:.2f}, but {op} over {gpus} ranks has "
            f"{factor:.2f}: another collective, or other ranks"
        )


def _number(said: str, what: str) -> float:
    if not is_number(said):
        raise BadValue(f"{what} must be a number, but got '{said}'")
    return finite_number(said)


def _positive(said: str, what: str) -> float:
    value = _number(said, what)
    if value <= 0.0:
        raise BadValue(f"{what} must be above 0, but got {said}")
    return value


def _whole(said: str, what: str) -> int:
    if not (said.isascii() and said.isdigit() and len(said) < 16):
        raise BadValue(f"{what} must be a whole number, but got '{said[:40]}'")
    return int(said)
