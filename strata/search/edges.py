"""What a winner of a search does not say by itself: that it stands on the edge of an axis, and that an axis
costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from strata.errors import StrataError
from strata.hardware.silicon.system_cost import cost_rate
from strata.search.points import case_of_points

if TYPE_CHECKING:
    from strata.search.points import Evaluated
    from strata.search.sensitivity import Gain
    from strata.search.space import Space

FELT = 1e-3  # of a metric: a smaller gain is no reason to widen an axis


def on_the_edge(space: Space, best: Evaluated, gains: list[Gain]) -> list[str]:
    """Numeric axes whose end the best point has, and along which the metric would get better past it."""
    found = []
    gain_of = {g.resource.split(", now ")[0]: g for g in gains}
    for axis, digit in zip(space.axes, best.digits[0], strict=True):
        gain = gain_of.get(axis.name)
        if not axis.ordered or len(axis) < 2 or gain is None or not np.isfinite(gain.speedup):
            continue
        values = np.array(axis.values, float)
        here = values[int(digit)]
        if here == values.max() and gain.speedup > FELT:
            found.append(f"{axis.name} ends at {axis.labels[int(digit)]}, and more would be better")
        elif here == values.min() and gain.speedup < -FELT:
            found.append(f"{axis.name} begins at {axis.labels[int(digit)]}, and less would be better")
    return found


def costs_nothing(space: Space, best: Evaluated) -> list[str]:
    """Numeric axes over chips and fabrics whose ends cost the same to buy, all else as in the best point."""
    found = []
    for i, axis in enumerate(space.axes):
        bought = any(f.startswith(("chip.", "fabric.")) for f in axis.fields)
        if not (axis.ordered and bought and len(axis) > 1):
            continue
        values = np.array(axis.values, float)
        ends = np.repeat(best.digits[:1], 2, axis=0)
        ends[:, i] = values.argmin(), values.argmax()
        try:
            case = case_of_points(space, ends)
            rates = np.broadcast_to(np.asarray(cost_rate(case.system, case.economics, 0.0), float), 2)
        except StrataError:  # an end that cannot be built with the rest of the best point has no price
            continue
        if rates[0] == rates[1]:
            found.append(axis.name)
    return found
