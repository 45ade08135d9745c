"""How many tokens of prompt and answer a model has positions for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from strata.arrays import Number
from strata.errors import BadValue
from strata.params import data_folder
from strata.serving.requests import Requests
from strata.workload.model import Model
from strata.workload.tasks import Workload


def shipped_config(name: str) -> dict[str, Any]:
    """The config of a shipped model; empty where there is none."""
    path = data_folder("models") / f"{name}.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return config


def longest_context(model: Model) -> float:
    """Tokens of prompt and answer that a model has positions for; 0 where nothing says it.

    >>> from strata.workload.model import model
    >>> longest_context(model("llama-3-70b"))
    8192.0
    """
    config = shipped_config(model.name)
    table = {**config.get("text_config", {}), **config}
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    longest = next((table[n] for n in names if isinstance(table.get(n), int | float)), 0.0)
    return float(longest) or float(np.max(np.asarray(model.positions)))


def check_context(model: Model, input: Number, output: Number = 0.0) -> None:
    """Refuse requests whose prompt and answer, in the mean, pass the context of a model.

    >>> from strata.workload.model import model
    >>> check_context(model("llama-3-70b"), 8000.0, 256.0)
    Traceback (most recent call last):
    ...
    strata.errors.BadValue: 8,256 tokens of prompt and answer are more than the context of llama-3-70b (8,192); \
shorten them, or take another model
    """
    most, mean = longest_context(model), float(np.max(np.asarray(input) + output))
    if 0.0 < most < mean:
        raise BadValue(
            f"{mean:,.0f} tokens of prompt and answer are more than the context of {model.name} "
            f"({most:,.0f}); "
            "shorten them, or take another model"
        )


def check_work(program: Any, work: Workload | Requests) -> None:
    """The same of requests, or of a workload: what a sequence brings, has generated for it, or attends to."""
    if isinstance(work, Requests):
        check_context(program, work.input, work.output)
    elif isinstance(program, Model) and work.phase in ("prefill", "decode", "serve"):
        check_context(program, np.maximum(work.sequence, work.context), work.output)
