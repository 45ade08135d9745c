"""A picture of collectives: bus bandwidth against bytes, and which algorithm is the cheapest where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.drawing import COLOURS, STYLE, check_picture, pyplot_of, save
from strata.pricing.network.collective_cost import CollectiveCost, bus_factor


def draw_collectives(costs: Sequence[CollectiveCost], path: Path) -> Path:
    """Write the picture: a line for each group, priced at many sizes; of a single group its algorithms
    too, where one runs over all dimensions it crosses.
    """
    check_picture(path)
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7.6, 4.4), layout="constrained")
        if len(costs) == 1:
            _draw_algorithms(axes, costs[0])
        for i, cost in enumerate(costs):
            rate = np.broadcast_to(cost.bus_bandwidth, np.shape(cost.bytes)) / 1e9
            label = "cheapest" if len(costs) == 1 else f"{float(np.max(cost.ranks)):g} ranks"
            axes.plot(cost.bytes, rate, color=COLOURS[i % len(COLOURS)], linewidth=2.2, label=label)
        first = costs[0]
        axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="bus bandwidth [GB/s]")
        shape = " x ".join(f"{float(np.max(d.size)):g} {d.name}" for d in first.fabric.dimension)
        software = f"engine {first.engine}" if first.engine else "links alone"
        axes.set_title(f"{first.pattern} on {first.fabric.name} ({shape}), {software}")
        axes.legend(frameon=False, fontsize=7)
        return save(pyplot, figure, path)


def _draw_algorithms(axes: Any, cost: CollectiveCost) -> None:
    """Each algorithm's bus bandwidth, thin; one for each dimension does not say what all of them take."""
    crossed = [times for times in cost.algorithm_times if times]
    if cost.packets or not (len(crossed) == 1 or np.all(cost.joined)):
        return
    moved: Array = np.asarray(cost.bytes * bus_factor(cost.pattern, cost.ranks) / 1e9, float)
    for i, (name, time) in enumerate(crossed[0].items()):
        rate = np.where(np.isfinite(time), moved / time, np.nan)
        axes.plot(cost.bytes, rate, color=COLOURS[(i + 1) % len(COLOURS)], linewidth=0.9, label=name)
