"""What each request of a served model brings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.calls import checked_class
from strata.errors import require
from strata.workload.routing import Routing
from strata.workload.tasks import USUAL_SKEW, Workload


@checked_class
@dataclass(frozen=True)
class Requests:
    """What each request brings. `variation` is the squared coefficient of variation of the time to read a
    prompt (0: all alike).
    """

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
