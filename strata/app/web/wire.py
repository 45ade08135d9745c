"""How the server and its workers speak: one JSON object a line, on the worker's standard input and output."""

from __future__ import annotations

import json
from typing import Any

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
