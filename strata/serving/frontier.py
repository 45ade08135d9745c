"""The frontier between throughput and interactivity: what each device delivers against what each user sees,
over clients and plans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.mapping.plan import plan_text
from strata.pareto import non_dominated
from strata.records import Tabular, row_columns
from strata.rich_html import display_html, scatter_svg, table_html
from strata.serving.curve import Curve
from strata.serving.load import closed_load, open_load
from strata.serving.pools import Disaggregation, pools_limit
from strata.units import show

# of a split's highest rate
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)


@dataclass(frozen=True, kw_only=True)
class ServingPoint:
    """One way to serve."""

    plan: str
    clients: float  # requests under way at once
    per_user: float  # tokens/s
    per_device: float  # tokens/s
    ttft: float  # [s]
    tpot: float  # [s]
    apart: bool = False  # prompts are read on devices of their own
    best: bool = False  # no other point is better for users and for devices


@dataclass(frozen=True, kw_only=True)
class ServingFrontier(Tabular):
    """Every point, and the best of them from the most for a device to the most for a user."""

    points: tuple[ServingPoint, ...]

    @property
    def best(self) -> list[ServingPoint]:
        return sorted((p for p in self.points if p.best), key=lambda p: p.per_user)

    @property
    def aggregated(self) -> list[ServingPoint]:
        """The best of those that read and generate on the same devices."""
        one = [p for p in self.points if not p.apart]
        return sorted(compress(one, _non_dominated(one)), key=lambda p: p.per_user)

    def columns(self) -> dict[str, Any]:
        """Every point, the best marked."""
        return row_columns(vars(p) for p in self.points)

    def _repr_html_(self) -> str:
        """For notebooks: what devices and users get at the best points."""
        best = self.best
        heads = ("plan", "clients", "tokens/s/user", "tokens/s/device", "TTFT", "TPOT")
        rows = [
            (
                p.plan,
                f"{p.clients:g}",
                f"{p.per_user:.4g}",
                f"{p.per_device:.4g}",
                show(p.ttft, "s"),
                show(p.tpot, "s"),
            )
            for p in best
        ]
        points = [(p.per_user, p.per_device, f"{p.plan}, {p.clients:g} clients") for p in best]
        drawn = scatter_svg(points, "tokens/s/user", "tokens/s/device")
        title = f"Ways to serve: {len(best):,} of {len(self.points):,} points are beaten by no other"
        return display_html(title, drawn, table_html(heads, rows))

    def as_dict(self) -> dict[str, Any]:
        return {"points": [vars(p) for p in self.points], "best": [vars(p) for p in self.best]}


def _non_dominated(points: list[ServingPoint]) -> list[bool]:
    """Which points no other beats, for users and for devices."""
    kept: list[bool] = (
        non_dominated(np.array([[p.per_user, p.per_device] for p in points])).tolist() if points else []
    )
    return kept


def client_steps(most: float, count: int = 24) -> Array:
    """Whole numbers of clients in geometric steps, 1 and the most included.

    >>> client_steps(8.0, 4).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    return np.unique(np.round(np.maximum(most, 1.0) ** (np.arange(count) / (count - 1.0))))


def serving_frontier(
    curve: Curve,
    splits: list[Disaggregation] | None = None,
    *,
    clients: Any = None,
    beside: Any = (),
    ttft: float = np.inf,
    tpot: float = np.inf,
    share: float | None = None,
) -> ServingFrontier:
    """Points of every plan with so many clients at once (and with numbers `beside` them), and of pools at
    shares of their highest rate; limits on latency leave some out.
    """
    clients = (
        client_steps(float(np.max(curve.slots)))
        if clients is None
        else np.atleast_1d(np.asarray(clients, float))
    )
    clients = np.unique(np.concatenate([clients, np.asarray(beside, float)]))
    seen = closed_load(curve, clients)
    kept = seen.within(ttft, tpot, share) & (clients <= curve.slots[:, None])
    names = [plan_text(curve.plan_at(i)) for i in range(len(curve.slots))]
    points = []
    for i, j in np.argwhere(kept):
        one = seen.at(int(i), int(j))
        points.append(
            ServingPoint(
                plan=names[i],
                clients=float(clients[j]),
                per_user=float(1.0 / one.tpot),
                per_device=float(one.tokens_per_s) / curve.devices,
                ttft=float(one.ttft),
                tpot=float(one.tpot),
            )
        )
    for split in splits or []:
        points += _pool_points(split, ttft, tpot, share)
    best = _non_dominated(points)
    return ServingFrontier(points=tuple(replace(p, best=b) for p, b in zip(points, best, strict=True)))


def _pool_points(split: Disaggregation, ttft: float, tpot: float, share: float | None) -> list[ServingPoint]:
    devices = split.prefill_devices + split.decode_devices
    name = (
        f"{split.prefill_devices} read ({plan_text(split.prefill_plan)}),"
        f" {split.decode_devices} generate ({plan_text(split.decode_plan)})"
    )
    points = []
    for part in SHARES:
        one = open_load(split.curve, part * pools_limit(split), split.remote_prefill).at(0)
        if one.within(ttft, tpot, share):
            points.append(
                ServingPoint(
                    plan=name,
                    clients=float(one.active + one.rate * one.ttft),
                    per_user=float(1.0 / one.tpot),
                    per_device=float(one.tokens_per_s) / devices,
                    ttft=float(one.ttft),
                    tpot=float(one.tpot),
                    apart=True,
                )
            )
    return points
