"""Pictures of accuracy: predicted over measured, and the error over size, one SVG for each file; and all
files at a glance.

They are drawn with matplotlib, which `pip install 'strata[plots]'` brings. The same points give the same
bytes, so that a picture under version control changes only when a prediction does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.drawing import COLOURS, STYLE, pyplot_of, save

BANDS = ((0.25, "#eef1f5"), (0.10, "#dbe2ea"))
# Metrics that begin the name of a group, and the unit they are measured in.
UNITS = {
    "power": "W",
    "clock": "Hz",
    "time": "s",
    "dram": "B",
    "l2": "B",
    "ttft": "s",
    "tpot": "s",
    "itl": "s",
    "prefill": "s",
    "decode": "s",
    "throughput": "tokens/s",
}
# these cannot share an axis
MIXED = ("power", "clock", "time", "dram", "l2", "ttft", "tpot", "itl", "throughput")
LISTED = 14  # groups named beside a picture: more do not fit its height; the worst are
SHOWN = 0.6  # errors beyond it are drawn at the edge
MANY = 500  # points from which dots become pixels inside the picture
FOLDERS_IN_SECONDS = ("ns3", "ops", "h100")


def draw_accuracy(
    points: list[dict[str, Any]], folder: Path, pictured: Callable[[str], bool] = lambda file: True
) -> list[Path]:
    """A picture for each file of `validate(..., keep_points=True)["points"]`, and `overview.svg` of all; the
    paths that were written.

    `pictured` chooses the files that get a picture of their own.
    """
    pyplot = pyplot_of()
    files: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        if point.get("headline", True) or _metric(point["group"]):
            files.setdefault(point["file"], []).append(point)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with pyplot.rc_context(STYLE):
        for name, mine in files.items():
            seen = [p for p in mine if p["measured"] > 0 and 0 < p["predicted"] < np.inf]
            if seen and pictured(name):
                written.append(
                    save(pyplot, _file_figure(pyplot, name, seen), folder / f"{picture_name(name)}.svg")
                )
        if files:
            written.append(save(pyplot, _overview(pyplot, files), folder / "overview.svg"))
    return written


def picture_name(file: str) -> str:
    """The picture of a data file.

    >>> picture_name("h200/gemm.csv")
    'h200-gemm'
    """
    return file.removesuffix(".csv").replace("/", "-")


def short_groups(groups: list[str], most: int = len(COLOURS)) -> list[str]:
    """Names of groups short enough to tell apart by colour: the last parts go where there are too many.

    >>> short_groups([f"h200/fp8/{i}" for i in range(20)] + ["b200/fp8/1"])[-2:]
    ['h200/fp8', 'b200/fp8']
    """
    parts = [g.split("/") for g in groups]
    for length in range(max(map(len, parts)), 1, -1):
        cut = ["/".join(p[:length]) for p in parts]
        if len(set(cut)) <= most:
            return cut
    return [p[0] for p in parts]


def _file_figure(pyplot: Any, name: str, points: list[dict[str, Any]]) -> Any:
    """Two panels for each metric of a file: predicted over measured, and the error over what was measured."""
    metrics = list(dict.fromkeys(_metric(p["group"]) for p in points))
    figure, axes = pyplot.subplots(
        len(metrics), 2, figsize=(9.0, 3.5 * len(metrics)), squeeze=False, layout="constrained"
    )
    for (left, right), metric in zip(axes, metrics, strict=True):
        mine = [p for p in points if _metric(p["group"]) == metric]
        measured, predicted = (np.array([p[k] for p in mine]) for k in ("measured", "predicted"))
        named = np.array(
            short_groups([p["group"].removeprefix(f"{metric}/") if metric else p["group"] for p in mine]),
            dtype=object,
        )
        unit = group_unit(name, metric or str(named[0]))
        mape = float(np.mean(np.abs(predicted / measured - 1.0)))
        left.set_title(f"{name}{', ' + metric if metric else ''}: {len(mine)} points, MAPE {mape:.1%}")
        _scatter(left, measured, predicted, named, unit)
        _errors(right, measured, predicted / measured - 1.0, named, unit)
    return figure


def group_unit(file: str, group: str) -> str:
    """The unit that points of a group are measured in; "" where that is not known.

    >>> group_unit("serving/vllm.csv", "tpot/h100"), group_unit("h200/gemm.csv", "bf16")
    ('s', 's')
    """
    return UNITS.get(group.split("/", maxsplit=1)[0], "s" if _in_seconds(file) else "")


def _metric(group: str) -> str:
    first = group.split("/", maxsplit=1)[0]
    return first if first in MIXED else ""


def _in_seconds(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder in FOLDERS_IN_SECONDS or file in (
        "gemm.csv",
        "stream.csv",
        "attention.csv",
        "grouped_gemm.csv",
        "decoder.csv",
    )


def _colours(named: Array) -> dict[str, str]:
    """A colour for each family, the largest first."""
    names, counts = np.unique(named.astype(str), return_counts=True)
    return {
        str(names[i]): COLOURS[place % len(COLOURS)]
        for place, i in enumerate(np.argsort(-counts, kind="stable"))
    }


def _dots(axes: Any, x: Array, y: Array, named: Array) -> None:
    """All points at once, in shuffled order: a family drawn last would hide the others."""
    colours, many = _colours(named), len(x) > MANY
    order = np.random.default_rng(0).permutation(len(x))
    shades = [colours[str(named[i])] for i in order]
    axes.scatter(
        x[order],
        y[order],
        s=6 if many else 14,
        c=shades,
        alpha=0.5 if many else 0.7,
        linewidths=0,
        rasterized=many,
        zorder=2,
    )


def _sizes(axes: Any, which: str, unit: str) -> None:
    """A logarithmic axis that says 20 µs, not 2e-5."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    axis = getattr(axes, f"{which}axis")
    low, high = getattr(axes, f"get_{which}lim")()
    axis.set_major_locator(
        LogLocator(
            subs=(1.0,)
            if high / low > 50
            else (1.0, 2.0, 5.0)
            if high / low > 4
            else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
        )
    )
    axis.set_major_formatter(EngFormatter(unit=unit) if unit else EngFormatter())
    axis.set_minor_formatter(NullFormatter())


def _scatter(axes: Any, measured: Array, predicted: Array, named: Array, unit: str) -> None:
    low, high = (
        float(min(measured.min(), predicted.min())) / 1.3,
        float(max(measured.max(), predicted.max())) * 1.3,
    )
    ends = np.array([low, high])
    for share, colour in BANDS:
        axes.fill_between(ends, ends * (1 - share), ends * (1 + share), color=colour, linewidth=0, zorder=0.5)
    axes.plot(ends, ends, color="#9aa5b1", linewidth=0.8, zorder=0.6)
    _dots(axes, measured, predicted, named)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured", ylabel="predicted")
    _sizes(axes, "x", unit)
    _sizes(axes, "y", unit)


def _errors(axes: Any, measured: Array, error: Array, named: Array, unit: str) -> None:
    ends = np.array([measured.min() / 1.3, measured.max() * 1.3])
    for share, colour in BANDS:
        axes.fill_between(ends, -share, share, color=colour, linewidth=0, zorder=0.5)
    axes.axhline(0.0, color="#9aa5b1", linewidth=0.8, zorder=0.6)
    _dots(axes, measured, np.clip(error, -SHOWN, SHOWN), named)
    colours = _colours(named)
    mape = {name: float(np.mean(np.abs(error[named == name]))) for name in colours}
    worst = sorted(colours, key=lambda name: -mape[name])[:LISTED] if len(colours) > LISTED else list(colours)
    for name in worst:
        axes.plot(
            [],
            [],
            linestyle="",
            marker="o",
            markersize=4,
            color=colours[name],
            label=f"{name}  {mape[name]:.1%}",
        )
    if len(colours) > LISTED:
        axes.plot([], [], linestyle="", label=f"and {len(colours) - LISTED} groups with less")
    middle, size = _running_median(measured, error)
    if len(middle) > 1:
        axes.plot(
            middle,
            np.clip(size, -SHOWN, SHOWN),
            color="#222",
            linewidth=1.1,
            label="median by size",
            zorder=3,
        )
    beyond = int(np.count_nonzero(np.abs(error) > SHOWN))
    said = "measured" + (f" ({beyond} points beyond ±{SHOWN:.0%} lie at the edge)" if beyond else "")
    axes.set(
        xscale="log",
        xlim=ends,
        ylim=(-SHOWN * 1.04, SHOWN * 1.04),
        xlabel=said,
        ylabel="predicted / measured - 1",
    )
    _sizes(axes, "x", unit)
    axes.set_yticks(
        [-0.5, -0.25, -0.1, 0, 0.1, 0.25, 0.5], ["-50 %", "-25 %", "-10 %", "0", "+10 %", "+25 %", "+50 %"]
    )
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.01, 1.02),
        frameon=False,
        fontsize=8,
        title="mean error",
        handletextpad=0.3,
        alignment="left",
    )


def _running_median(measured: Array, error: Array, parts: int = 10) -> tuple[Array, Array]:
    """Median error of points of like size, for sizes in equal steps of their logarithm."""
    place = np.log(measured)
    edges = np.linspace(place.min(), place.max() + 1e-9, parts + 1)
    which = np.digitize(place, edges[1:-1])
    kept = [i for i in range(parts) if np.count_nonzero(which == i) >= 3]
    centres = np.exp(0.5 * (edges[:-1] + edges[1:]))
    return centres[kept], np.array([np.median(error[which == i]) for i in kept])


def _overview(pyplot: Any, files: dict[str, list[dict[str, Any]]]) -> Any:
    """All files at a glance: the middle 80 % of errors, their median, and the mean absolute error."""
    figure, axes = pyplot.subplots(figsize=(9.0, 0.8 + 0.22 * len(files)), layout="constrained")
    for share, colour in BANDS:
        axes.axvspan(-share, share, color=colour, linewidth=0, zorder=0.5)
    axes.axvline(0.0, color="#9aa5b1", linewidth=0.8, zorder=0.6)
    folders = list(dict.fromkeys(name.split("/", maxsplit=1)[0] for name in files))
    for row, (name, every) in enumerate(files.items()):
        points = [p for p in every if p.get("headline", True)]
        error = np.array([p["predicted"] / p["measured"] - 1.0 for p in points])
        low, middle, high = np.clip(np.quantile(error, (0.1, 0.5, 0.9)), -1.0, 1.0)
        colour = COLOURS[folders.index(name.split("/", maxsplit=1)[0]) % len(COLOURS)]
        axes.plot([low, high], [row, row], color=colour, linewidth=5, solid_capstyle="round", alpha=0.45)
        axes.plot([middle], [row], marker="o", markersize=5, color=colour)
        axes.text(
            1.075,
            row,
            f"{np.mean(np.abs(error)):.1%}",
            va="center",
            ha="right",
            fontsize=8,
            color="#444",
            transform=axes.get_yaxis_transform(),
        )
        axes.text(
            1.14,
            row,
            str(len(points)),
            va="center",
            ha="right",
            fontsize=8,
            color="#777",
            transform=axes.get_yaxis_transform(),
        )
    for x, text in ((1.075, "MAPE"), (1.14, "points")):
        axes.text(
            x,
            -1.0,
            text,
            va="center",
            ha="right",
            fontsize=8,
            color="#777",
            transform=axes.get_yaxis_transform(),
        )
    axes.set_yticks(range(len(files)), list(files), fontsize=8)
    axes.set(
        ylim=(len(files) - 0.4, -1.4),
        xlim=(-1.02, 1.02),
        xlabel="predicted / measured - 1: median and the middle 80 % of points",
    )
    axes.set_xticks(
        [-1, -0.5, -0.25, -0.1, 0, 0.1, 0.25, 0.5, 1],
        ["-100 %", "-50 %", "-25 %", "-10", "0", "+10", "+25 %", "+50 %", "+100 %"],
    )
    axes.grid(axis="y", visible=False)
    return figure
