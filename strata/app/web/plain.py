"""Answers as JSON has them: finite numbers, text, lists and objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


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
