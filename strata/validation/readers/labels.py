"""Names in measured files as labels and as the catalogue's: chips, engines and formats, however a file spells
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from strata.errors import BadValue, UnknownName

# What a trainer multiplies in: weights and activations, gradients alike.
TRAINED_FORMATS = {
    "bf16": "bf16",
    "fp16": "bf16",
    "fp8": "fp8",
    "fp8-cs": "fp8",
    "fp8-ds": "fp8",
    "fp8-mx": "fp8",
    "mxfp8": "fp8",
    "fp4": "fp4",
    "nvfp4": "nvfp4",
}
# Serving software by the label of its name; what follows a name (a router, a harness) is another's.
SERVERS = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm", "trtllm": "trtllm", "trt": "trtllm"}


def dashed(name: str) -> str:
    """A name in lower case with dashes.

    >>> dashed("H100 NVL"), dashed("SGLang (Dynamo)"), dashed("gpt3-175b"), dashed("llama-3.1-8b")
    ('h100-nvl', 'sglang-dynamo', 'gpt3-175b', 'llama-3.1-8b')
    """
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def dashed_all(names: Iterable[str]) -> list[str]:
    """Every name of a column in lower case with dashes."""
    return [dashed(name) for name in names]


def server_of(label: str) -> str:
    """The catalogue's name of a serving engine by its label; a router or harness around it, named before or
    after it, does not change it.

    >>> server_of("tensorrt-llm-dynamo"), server_of("vllm"), server_of("mori-sglang")
    ('trtllm', 'vllm', 'sglang')
    """
    for name, known in SERVERS.items():
        if f"-{name}-" in f"-{label}-":
            return known
    raise UnknownName("serving engine", label, list(SERVERS), ", ".join(SERVERS))


def server_names(labels: Iterable[str]) -> list[str]:
    """The catalogue's name of each engine; a label that nobody knows stays.

    >>> server_names(["sglang-dynamo", "atom"])
    ['sglang', 'atom']
    """
    named = []
    for label in labels:
        try:
            named.append(server_of(label))
        except UnknownName:
            named.append(label)
    return named


def trained_format(name: str) -> str:
    """Strata's name of the format that a trainer multiplies in.

    >>> trained_format("MXFP8"), trained_format("NVFP4")
    ('fp8', 'nvfp4')
    """
    if dashed(name) not in TRAINED_FORMATS:
        raise BadValue(f"precision must be one of {', '.join(TRAINED_FORMATS)}, but got '{name}'")
    return TRAINED_FORMATS[dashed(name)]
