"""The roofline as a picture: one roof a memory level, one ceiling a kind of arithmetic, and each op a dot
under the roof that binds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.drawing import COLOURS, DARK, GREY, STYLE, pyplot_of, save
from strata.roofline import Roofline, RooflinePoint
from strata.units import show

NAMED = 8  # dots that are named: those that take most time
LEAST_SHARE = 0.005  # of the time, of a dot with a name
NEAR = (0.4, 0.2)  # decades of intensity and of rate, within which dots share a name
BOUND = {"compute": COLOURS[3], "cache": COLOURS[1], "memory": COLOURS[0], "overhead": COLOURS[7]}


def draw_roofline(roofline: Roofline, question: str, path: Path) -> Path:
    """Write the picture as SVG."""
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(9.6, 5.6))
        low, high = _span(roofline)
        _draw_roofs(axes, roofline, low, high)
        for point in reversed(roofline.points):
            axes.scatter(
                [point.intensity],
                [point.rate],
                s=30.0 + 1400.0 * point.share,
                color=BOUND[point.bound_by],
                alpha=0.7,
                edgecolors="white",
                linewidths=0.8,
                zorder=4,
            )
        _name_points(axes, roofline, low**0.35 * high**0.65)
        _explain(axes, roofline)
        axes.set(xscale="log", yscale="log", xlim=(low, high))
        least = min([p.rate for p in roofline.points] + [roofline.roofs[-1].bandwidth * low])
        axes.set_ylim(0.4 * least, 3.0 * roofline.ceilings[0].peak)
        axes.set_xlabel("operations for each byte of the level that binds [FLOP/B]")
        axes.set_ylabel("rate [FLOP/s]")
        axes.set_title(f"Roofline of {roofline.chip}: {question}")
        figure.tight_layout()
        return save(pyplot, figure, path)


def _span(roofline: Roofline) -> tuple[float, float]:
    """Ends of the x axis: all dots, and the ridge of the slowest level."""
    ridge = roofline.ceilings[0].peak / roofline.roofs[-1].bandwidth
    at = [p.intensity for p in roofline.points] + [ridge]
    return 0.3 * min([0.5, *at]), 6.0 * max(at)


def _draw_roofs(axes: Any, roofline: Roofline, low: float, high: float) -> None:
    peak = roofline.ceilings[0].peak
    for roof, colour in zip(reversed(roofline.roofs), _shades(len(roofline.roofs)), strict=True):
        ridge = peak / roof.bandwidth
        axes.plot([low, ridge], [low * roof.bandwidth, peak], color=colour, linewidth=1.5, zorder=2)
        said = f" {roof.name} {show(roof.bandwidth, 'B/s')}"
        at = np.sqrt(low * ridge) if ridge > low else low
        axes.annotate(
            said,
            (at, at * roof.bandwidth),
            textcoords="offset points",
            xytext=(-3, 4),
            rotation=_slope(axes, roofline, low, high),
            rotation_mode="anchor",
            fontsize=7.5,
            color=colour,
            ha="center",
        )
    for ceiling in roofline.ceilings:
        start = ceiling.peak / roofline.roofs[0].bandwidth
        axes.plot([max(start, low), high], [ceiling.peak] * 2, color=DARK, linewidth=1.5, zorder=2)
        axes.annotate(
            f"{ceiling.name} {show(ceiling.peak, 'FLOP/s')}",
            (high, ceiling.peak),
            textcoords="offset points",
            xytext=(-4, 4),
            fontsize=7.5,
            color=DARK,
            ha="right",
        )


def _slope(axes: Any, roofline: Roofline, low: float, high: float) -> float:
    """Angle of a roof on the page: one decade up for each to the right."""
    least = min([p.rate for p in roofline.points] + [roofline.roofs[-1].bandwidth * low])
    decades_up = np.log10(3.0 * roofline.ceilings[0].peak / (0.4 * least))
    across, up = 8.6 / np.log10(high / low), 4.6 / decades_up  # inches of a decade
    return float(np.degrees(np.arctan2(up, across)))


def _shades(count: int) -> list[str]:
    """From DRAM inwards: the darkest is the slowest."""
    return [f"#{v:02x}{v:02x}{v + 12:02x}" for v in np.linspace(60, 165, count).astype(int)]


def _name_points(axes: Any, roofline: Roofline, middle: float) -> None:
    """Names stand to the right of their dots, to the left where the picture ends soon."""
    for together in named_groups(roofline):
        first = together[0]
        share = sum(point.share for point in together)
        names = ", ".join(dict.fromkeys(point.op for point in together[:3]))
        side = 1.0 if first.intensity < middle else -1.0
        more = f" and {len(together) - 3} more" if len(together) > 3 else ""
        axes.annotate(
            f"{names}{more} {share:.0%}",
            (first.intensity, first.rate),
            textcoords="offset points",
            xytext=(side * (6.0 + 14.0 * np.sqrt(first.share)), -3.0),
            ha="left" if side > 0 else "right",
            fontsize=7.5,
            color=DARK,
            zorder=5,
        )


def named_groups(roofline: Roofline) -> list[list[RooflinePoint]]:
    """Dots that get a name, those of nearly the same place together: the ones that take most time."""
    groups: list[list[RooflinePoint]] = []
    for point in roofline.points:
        for group in groups:
            if (
                abs(np.log10(point.intensity / group[0].intensity)) < NEAR[0]
                and abs(np.log10(point.rate / group[0].rate)) < NEAR[1]
            ):
                group.append(point)
                break
        else:
            groups.append([point])
    shares = [sum(point.share for point in group) for group in groups]
    order = sorted(range(len(groups)), key=lambda i: -shares[i])
    return [groups[i] for i in order[:NAMED] if shares[i] >= LEAST_SHARE]


def _explain(axes: Any, roofline: Roofline) -> None:
    for name in dict.fromkeys(p.bound_by for p in roofline.points):
        axes.scatter([], [], s=40.0, color=BOUND[name], alpha=0.7, label=f"bound by {name}")
    if roofline.points:
        axes.legend(loc="lower right", fontsize=7.5, frameon=False, labelcolor=GREY)
    axes.annotate(
        f"size of a dot: its share of the step's time; {roofline.hidden:.0%} is communication and moves",
        (0.0, -0.13),
        xycoords="axes fraction",
        fontsize=7.0,
        color=GREY,
    )
