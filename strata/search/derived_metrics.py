"""Metrics that searches make of others, declared as those of a point are; and all that a goal may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.pricing.metrics import HIGHER, LOWER, METRICS, ItemMetrics, Metric, TokenMetrics, declared
from strata.workload.model import Model

Columns = Mapping[str, np.ndarray]  # a metric of many points by its name
MM2 = 1e-6  # [m2]
TRILLION_PER_DAY = 1e12 / 86400.0  # tokens a second that make a trillion in a day


@dataclass(frozen=True, kw_only=True)
class DerivedMetric(Metric):
    """A metric of columns that gets better with each of its `inputs`, so that their bounds bound it."""

    inputs: tuple[str, ...]
    compute: Callable[[Columns], np.ndarray]


def _train_days(columns: Columns) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return TRILLION_PER_DAY / np.asarray(columns["tokens_per_s"], float)


def _tokens_per_joule(columns: Columns) -> np.ndarray:
    return 1.0 / np.asarray(columns["energy_per_token"], float)


def _tokens_per_mm2(columns: Columns) -> np.ndarray:
    area = np.asarray(columns["die_area"], float) / MM2
    return np.asarray(columns["tokens_per_s_per_device"], float) / area


# the one column besides metrics: points are evaluated with it
DIE_AREA = Metric(name="die_area", unit="m2", better=LOWER, label="compute silicon of a device")
DERIVED_METRICS = {
    m.name: m
    for m in (
        DerivedMetric(
            name="tokens_per_joule",
            unit="1",
            better=HIGHER,
            label="tokens/J",
            inputs=("energy_per_token",),
            compute=_tokens_per_joule,
        ),
        DerivedMetric(
            name="tokens_per_s_per_mm2",
            unit="1",
            better=HIGHER,
            label="tokens/s/mm2 of compute silicon",
            inputs=("tokens_per_s_per_device", "die_area"),
            compute=_tokens_per_mm2,
        ),
        DerivedMetric(
            name="train_days",
            unit="1",
            better=LOWER,
            label="days to train on a trillion tokens",
            inputs=("tokens_per_s",),
            compute=_train_days,
        ),
    )
}
POINT_METRICS: dict[str, Metric] = {**METRICS, DIE_AREA.name: DIE_AREA}  # what a point is evaluated for
GOAL_METRICS: dict[str, Metric] = {**POINT_METRICS, **DERIVED_METRICS}  # what a goal may name


def reported_metrics(program: Any) -> dict[str, Metric]:
    """Metrics of a point that are told: of a language model in tokens, of another program in its items."""
    record = TokenMetrics if isinstance(program, Model) else ItemMetrics
    return {**declared(record), DIE_AREA.name: DIE_AREA}


def metric_column(columns: Columns, name: str) -> np.ndarray:
    """A metric of many points, derived where it is one of searches only.

    >>> metric_column({"energy_per_token": np.array([0.5, np.inf])}, "tokens_per_joule").tolist()
    [2.0, 0.0]
    """
    derived = DERIVED_METRICS.get(name)
    return np.asarray(columns[name], float) if derived is None else derived.compute(columns)
