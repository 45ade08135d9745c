"""The frontier between throughput and interactivity: what each device delivers against what each user sees,
over clients and plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.mapping.plan import plan_text
from strata.serving.curve import Array, Curve
from strata.serving.load import closed_load, open_load
from strata.serving.pools import Disaggregation, pools_limit

# of a split's highest rate
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)


@dataclass(frozen=True)
class Point:
    """One way to serve."""

    plan: str
    clients: float  # requests under way at once
    per_user: float  # tokens/s
    per_device: float  # tokens/s
    ttft: float  # [s]
    tpot: float  # [s]
    apart: bool = False  # prompts are read on devices of their own
    best: bool = False  # no other point is better for users and for devices


@dataclass(frozen=True)
class Frontier:
    """Every point, and the best of them from the most for a device to the most for a user."""

    points: tuple[Point, ...]

    @property
    def best(self) -> list[Point]:
        return sorted((p for p in self.points if p.best), key=lambda p: p.per_user)

    @property
    def together(self) -> list[Point]:
        """The best of those that read and generate on the same devices."""
        one = [p for p in self.points if not p.apart]
        kept: Any = (
            pareto(np.array([p.per_user for p in one]), np.array([p.per_device for p in one])) if one else []
        )
        return sorted((p for p, k in zip(one, kept, strict=True) if k), key=lambda p: p.per_user)

    def as_dict(self) -> dict[str, Any]:
        return {"points": [vars(p) for p in self.points], "best": [vars(p) for p in self.best]}


def pareto(first: Array, second: Array) -> Array:
    """Where no other point is at least as good in both and better in one; of equal points the first.

    >>> pareto(np.array([1.0, 2.0, 2.0, 3.0]), np.array([5.0, 4.0, 3.0, 4.0])).tolist()
    [True, False, False, True]
    """
    order = np.lexsort((np.arange(len(first)), -second, -first))
    ranked = second[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ranked)[:-1]])
    kept = np.zeros(len(first), bool)
    kept[order[ranked > before]] = True
    return kept


def client_steps(most: float, count: int = 24) -> Array:
    """Whole numbers of clients in geometric steps, 1 and the most included.

    >>> client_steps(8.0, 4).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    return np.unique(np.round(np.maximum(most, 1.0) ** (np.arange(count) / (count - 1.0))))


def frontier(
    curve: Curve,
    splits: list[Disaggregation] | None = None,
    *,
    clients: Any = None,
    ttft: float = np.inf,
    tpot: float = np.inf,
) -> Frontier:
    """Points of every plan with so many clients at once, and of pools at shares of their highest rate; limits
    on latency leave some out.
    """
    clients = (
        client_steps(float(np.max(curve.slots)))
        if clients is None
        else np.atleast_1d(np.asarray(clients, float))
    )
    seen = closed_load(curve, clients)
    kept = seen.within(ttft, tpot) & (clients <= curve.slots[:, None])
    names = [plan_text(curve.plan_at(i)) for i in range(len(curve.slots))]
    found = []
    for i, j in np.argwhere(kept):
        one = seen.at(int(i), int(j))
        found.append(
            Point(
                names[i],
                float(clients[j]),
                float(1.0 / one.tpot),
                float(one.tokens_per_s) / curve.devices,
                float(one.ttft),
                float(one.tpot),
            )
        )
    for split in splits or []:
        found += _pool_points(split, ttft, tpot)
    best: Any = (
        pareto(np.array([p.per_user for p in found]), np.array([p.per_device for p in found]))
        if found
        else []
    )
    return Frontier(tuple(Point(**{**vars(p), "best": bool(b)}) for p, b in zip(found, best, strict=True)))


def _pool_points(split: Disaggregation, ttft: float, tpot: float) -> list[Point]:
    devices = split.prefill_devices + split.decode_devices
    name = f"{split.prefill_devices} read ({plan_text(split.prefill_plan)}), {split.decode_devices} generate ({plan_text(split.decode_plan)})"
    found = []
    for share in SHARES:
        one = open_load(split.curve, share * pools_limit(split), split.reader).at(0)
        if one.within(ttft, tpot):
            under_way = float(one.active + one.rate * one.ttft)
            found.append(
                Point(
                    name,
                    under_way,
                    float(1.0 / one.tpot),
                    float(one.tokens_per_s) / devices,
                    float(one.ttft),
                    float(one.tpot),
                    True,
                )
            )
    return found
