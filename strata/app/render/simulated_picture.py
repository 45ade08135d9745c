"""Simulated services as pictures: distributions of latencies, latency over load, cost against a latency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.drawing import COLOURS, GREY, STYLE, pyplot_of, save
from strata.serving.simulated_answers import CostFrontier
from strata.serving.simulated_result import Served
from strata.simulate.server.statistics import LatencyStatistics
from strata.units import show

PANELS = (
    ("ttft", "time to first token"),
    ("tpot", "time per output token"),
    ("latency", "end to end"),
    ("queued", "queued"),
)
MARKED = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
FINE = 400  # points of a curve
TAIL = 1e-4  # share of requests at which axes begin


def time_axis(axis: Any, log: bool = False) -> None:
    """Ticks that read 20 ms and 3 s."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if log else MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(lambda v, _: show(float(v), "s")))
    axis.set_minor_formatter(NullFormatter())


def _thinned(times: LatencyStatistics) -> tuple[Any, Any]:
    x, share = times.distribution()
    if len(x) > FINE:
        chosen = np.unique(np.linspace(0, len(x) - 1, FINE).astype(int))
        x, share = x[chosen], share[chosen]
    return x, share


def draw_latencies(run: Served, path: Path) -> Path:
    """The share of requests within a time, for each latency; with limits and percentiles."""
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, panels = pyplot.subplots(2, 2, figsize=(8.6, 5.6), layout="constrained")
        for axes, (name, title), colour in zip(panels.flat, PANELS, COLOURS, strict=False):
            _distribution(axes, run.times[name], colour, title)
            if name == "tpot":
                x, share = _thinned(run.gaps)
                axes.plot(x, share, color=COLOURS[4], linewidth=1.2, label="between any two tokens")
                axes.plot([], [], color=colour, linewidth=1.8, label="mean of each request")
                axes.legend(frameon=False, fontsize=7.5, loc="center right")
            if name in run.slo:
                axes.axvline(run.slo[name], color=COLOURS[3], linewidth=1.0, linestyle=(0, (4, 3)))
                axes.annotate(
                    f"limit {show(run.slo[name], 's')}",
                    (run.slo[name], 0.03),
                    xytext=(3, 0),
                    textcoords="offset points",
                    fontsize=7.5,
                    color=COLOURS[3],
                )
        for axes in panels[:, 0]:
            axes.set_ylabel("share of requests within")
        figure.suptitle(
            f"{run.models_text} on {run.fleet_text}, {run.completed:,} requests at {run.rate:.3g}/s",
            fontsize=9.5,
            x=0.01,
            ha="left",
            fontweight="bold",
        )
        return save(pyplot, figure, path)


def _distribution(axes: Any, times: LatencyStatistics, colour: str, title: str) -> None:
    x, share = _thinned(times)
    axes.plot(x, share, color=colour, linewidth=1.8)
    axes.set_title(title, fontsize=9)
    axes.set_ylim(0.0, 1.03)
    log = False
    if times.count and times.largest > 0:
        low = max(times.percentile(TAIL), times.largest * 1e-4)
        log = times.largest > 8.0 * low
        if log:
            axes.set_xscale("log")
        axes.set_xlim(0.9 * low if log else 0.0, 1.08 * times.largest)
        for at, _ in MARKED:
            axes.plot([times.percentile(at)], [at], "o", color=colour, markersize=4)
        said = "\n".join(f"{name}  {show(times.percentile(at), 's')}" for at, name in MARKED)
        axes.text(0.98, 0.06, said, transform=axes.transAxes, ha="right", fontsize=8, color="#444")
    time_axis(axes.xaxis, log)


def draw_load_latency(runs: list[tuple[float, Served]], slo: dict[str, float], path: Path) -> Path:
    """Latencies over the rate of requests: median, 95th and 99th percentile; what is saturated hollow."""
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, panels = pyplot.subplots(1, 3, figsize=(10.4, 3.7), layout="constrained")
        rates = [rate for rate, _ in runs]
        for axes, (name, title) in zip(panels, PANELS[:3], strict=True):
            for (at, label), colour in zip(MARKED, (COLOURS[0], COLOURS[1], COLOURS[3]), strict=True):
                values = [run.times[name].percentile(at) for _, run in runs]
                axes.plot(rates, values, "-", color=colour, linewidth=1.5, label=label)
                for rate, value, (_, run) in zip(rates, values, runs, strict=True):
                    fill = "white" if run.saturated or run.given_up else colour
                    axes.plot([rate], [value], "o", color=colour, markerfacecolor=fill, markersize=4)
            if name in slo:
                axes.axhline(slo[name], color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
                axes.annotate(
                    f"limit {show(slo[name], 's')}",
                    (0.02, slo[name]),
                    xycoords=("axes fraction", "data"),
                    xytext=(0, 3),
                    textcoords="offset points",
                    fontsize=7.5,
                    color="#555",
                )
            axes.set_title(title, fontsize=9)
            axes.set_xlabel("requests/s")
            axes.set_xlim(left=0.0)
            high = max(run.times[name].percentile(0.99) for _, run in runs)
            low = min(run.times[name].percentile(0.5) for _, run in runs)
            log = low > 0 and high > 20.0 * low
            if log:
                axes.set_yscale("log")
            else:
                axes.set_ylim(bottom=0.0)
            time_axis(axes.yaxis, log)
        panels[0].legend(frameon=False, fontsize=8)
        hollow = "; hollow: saturated or given up" if any(r.saturated or r.given_up for _, r in runs) else ""
        first = runs[0][1]
        figure.suptitle(
            f"{first.title}{hollow}",
            fontsize=9.5,
            x=0.01,
            ha="left",
            fontweight="bold",
        )
        return save(pyplot, figure, path)


def draw_cost_frontier(found: CostFrontier, path: Path) -> Path:
    """Cost of a million tokens over a percentile of a latency; each point a deployment at a rate."""
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7.4, 4.4), layout="constrained")
        fleets = list(dict.fromkeys(p.fleet for p in found.points))
        for i, fleet in enumerate(fleets):
            own = sorted((p for p in found.points if p.fleet == fleet), key=lambda p: p.rate)
            colour = COLOURS[i % len(COLOURS)]
            axes.plot(
                [p.seen for p in own], [p.cost for p in own], "-", color=colour, linewidth=0.9, alpha=0.5
            )
            for p in own:
                fill = "white" if p.saturated else colour
                axes.plot([p.seen], [p.cost], "o", color=colour, markerfacecolor=fill, markersize=4.5)
            axes.plot([], [], "o-", color=colour, markersize=4.5, label=fleet)
        if found.best:
            x, y = [p.seen for p in found.best], [p.cost for p in found.best]
            axes.step(x, y, where="post", color="#222", linewidth=1.2, label="frontier, with requests/s")
            for p in found.best:
                axes.annotate(
                    f"{p.rate:.2g}",
                    (p.seen, p.cost),
                    xytext=(4, 4),
                    textcoords="offset points",
                    fontsize=7,
                    color="#444",
                )
        axes.set_ylim(bottom=0.0)
        axes.set_xscale("log")
        time_axis(axes.xaxis, True)
        axes.set_xlabel(f"{found.latency.upper()}, {100 * found.share:g}th percentile")
        axes.set_ylabel("USD for a million tokens")
        hollow = "; hollow: saturated" if any(p.saturated for p in found.points) else ""
        axes.set_title(f"cost against what users see{hollow}")
        axes.legend(frameon=False, fontsize=8)
        return save(pyplot, figure, path)
