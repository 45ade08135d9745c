"""What each request of a served model brings, and whether it is within the model's context."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.base.arrays import Number
from strata.base.calls import checked_class
from strata.base.errors import BadValue, require
from strata.params import data_folder
from strata.workload.expert_ops import Routing
from strata.workload.model import Model
from strata.workload.tasks import USUAL_SKEW, Workload


@checked_class
@dataclass(frozen=True)
class Requests:
    """What each request brings; `variation`: squared coefficient of variation of the time to read it."""

    input: float
    output: float
    variation: float = 0.0
    skew: float = USUAL_SKEW  # routing: share of the i-th most popular expert ~ i**-skew
    routing: Routing | None = None  # popularity of experts from a trace, in place of the skew

    def __post_init__(self) -> None:
        require(self.input >= 1, "a request has a prompt of at least 1 token", input=self.input)
        require(
            self.output >= 2, "time per output token needs an output of at least 2 tokens", output=self.output
        )
        require(
            self.variation >= 0, "variation of the prompts must not be negative", variation=self.variation
        )
        require(self.skew >= 0, "skew of the experts must not be negative", skew=self.skew)

    @property
    def routed(self) -> dict[str, Any]:
        """How tokens pick their experts, as workloads take it."""
        return {"skew": self.skew, "routing": self.routing}

    @property
    def later(self) -> float:
        """Tokens after the first, which comes out of reading the prompt."""
        return self.output - 1.0

    @property
    def context(self) -> float:
        """Tokens of a sequence in the middle of its generation."""
        return self.input + self.output / 2.0


def requests_of(work: Workload) -> Requests:
    """The requests of a workload that serves some.

    >>> from strata.workload.tasks import serve
    >>> requests_of(serve(8.0, 1024.0, 256.0)).context
    1152.0
    """
    require(work.phase == "serve", "only st.serve has requests", phase=work.phase)
    read, written, skew = (float(np.asarray(v)) for v in (work.sequence, work.output, work.skew))
    return Requests(read, written, skew=skew, routing=work.routing)


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
    strata.base.errors.BadValue: 8,256 tokens of prompt and answer are more than the context of llama-3-70b (8,192); \
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
