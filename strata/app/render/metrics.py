"""Metrics as people read them: which are listed, what they are called, how their values are written."""

from __future__ import annotations

from typing import Any

from strata.pricing.metrics import METRICS, TokenMetrics, declared
from strata.search.derived_metrics import GOAL_METRICS
from strata.units import show

# The numbers of a prediction worth a line, in the order of reading.
HEADLINE = (
    "ttft",
    "tpot",
    "step_time",
    "tokens_per_s",
    "tokens_per_s_per_user",
    "tokens_per_s_per_device",
    "items_per_s",
    "mfu",
    "mbu",
    "energy_per_token",
    "energy_per_item",
    "power",
    "temperature",
    "cost_per_mtoken",
    "cost_per_mitem",
    "cost_per_device_hour",
)
# What any program has and a language model says in tokens.
SAID_IN_TOKENS = {
    "items_per_s": "tokens_per_s",
    "energy_per_item": "energy_per_token",
    "cost_per_mitem": "cost_per_mtoken",
}
SHARES = ("mfu", "mbu")  # written in per cent


def metrics_of(record: Any) -> list[str]:
    """The metrics that a record of them has, without those it repeats in tokens.

    >>> from strata.pricing.metrics import ItemMetrics, TokenMetrics
    >>> "items_per_s" in metrics_of(ItemMetrics), "items_per_s" in metrics_of(TokenMetrics)
    (True, False)
    """
    names = declared(record if isinstance(record, type) else type(record))
    return [name for name in names if SAID_IN_TOKENS.get(name) not in names]


def shown_metrics(phase: str, record: Any = TokenMetrics) -> list[str]:
    """What is listed of a phase; its first or next token says what a step takes, where it has one.

    >>> [shown_metrics(phase)[0] for phase in ("prefill", "decode", "train")]
    ['ttft', 'tpot', 'step_time']
    """
    own = metrics_of(record)
    had = [name for name in HEADLINE if name in own and phase in METRICS[name].phases]
    return [name for name in had if name != "step_time" or not {"ttft", "tpot"} & set(had)]


def metric_label(name: str) -> str:
    """What people call a metric, or a goal that is no metric of a point.

    >>> metric_label("tpot"), metric_label("tokens_per_joule")
    ('time per output token', 'tokens per joule')
    """
    return METRICS[name].label if name in METRICS else name.replace("_", " ")


def metric_text(value: float, name: str) -> str:
    """A metric's value as people read it.

    >>> metric_text(0.25, "mfu"), metric_text(0.02, "tpot")
    ('25.0%', '20 ms')
    """
    unit = METRICS[name].unit if name in METRICS else GOAL_METRICS[name].unit
    return f"{value:.1%}" if name in SHARES else show(value, unit)
