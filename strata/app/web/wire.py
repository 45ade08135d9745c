"""How the server and its workers speak: one JSON object a line, on the worker's standard input and
output, of plain types.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

LONGEST_FRAME = 64 << 20  # bytes of one answer


def frame(told: dict[str, Any]) -> bytes:
    """An object as a line.

    >>> frame({"done": [1, None]})
    b'{"done":[1,null]}\\n'
    """
    return json.dumps(told, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def parsed(line: bytes) -> dict[str, Any]:
    """A line as an object."""
    told: dict[str, Any] = json.loads(line)
    return told


def plain(value: Any) -> Any:
    """A value as JSON types; a number that is none (infinite, NaN) is null.

    >>> plain({"a": np.float64(2.0), "b": (1, float("inf")), "c": np.arange(2)})
    {'a': 2.0, 'b': [1, None], 'c': [0, 1]}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return str(value)
