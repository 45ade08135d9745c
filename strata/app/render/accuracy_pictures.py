"""Accuracy as pictures, the error over what was measured, one for each file, and as a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render import page
from strata.app.render.figures import colour_of
from strata.base.arrays import Array
from strata.base.drawing import COLOURS, STYLE, pyplot_of, save
from strata.base.units import factor
from strata.validation.accuracy.headline import HEADLINE, headline_cells, percent
from strata.validation.measured.spec import spec_of

BANDS = ((0.25, "#eef1f5"), (0.10, "#dbe2ea"))
SI_UNITS = {factor(unit)[1]: unit for unit in ("s", "B", "B/s", "W", "J", "K")}
LISTED = 14  # groups named beside a picture: more do not fit its height; the worst are
SHOWN = 0.6  # errors beyond it are drawn at the edge
MANY = 500  # points from which dots become pixels inside the picture
FAINT = {"linewidth": 0.8, "color": "#9aa5b1", "zorder": 0.6}


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
        if point.get("headline", True) or _metric(point["file"], point["group"]):
            files.setdefault(point["file"], []).append(point)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with pyplot.rc_context(STYLE):
        for name, mine in files.items():
            seen = _drawable(mine)
            if seen and pictured(name):
                path = folder / f"{picture_name(name)}.svg"
                written.append(save(pyplot, _file_figure(pyplot, name, seen), path))
        if files:
            written.append(save(pyplot, _overview(pyplot, files), folder / "overview.svg"))
    return written


def _drawable(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [p for p in points if p["measured"] > 0 and 0 < p["predicted"] < np.inf]


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
    """The error over what was measured, a panel for each metric of a file."""
    by_metric: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        by_metric.setdefault(_metric(name, point["group"]), []).append(point)
    size = (9.0, 3.2 * len(by_metric))
    figure, axes = pyplot.subplots(len(by_metric), 1, figsize=size, squeeze=False, layout="constrained")
    for (panel,), (metric, mine) in zip(axes, by_metric.items(), strict=True):
        measured, predicted = (np.array([p[k] for p in mine]) for k in ("measured", "predicted"))
        named = np.array(short_groups([p["group"].removeprefix(f"{metric}/") for p in mine]), dtype=object)
        error = predicted / measured - 1.0
        title = f"{name}{', ' + metric if metric else ''}: {len(mine)} points, MAPE"
        panel.set_title(f"{title} {np.mean(np.abs(error)):.1%}")
        _errors(panel, measured, error, named, group_unit(name, mine[0]["group"]))
    return figure


@lru_cache(maxsize=1024)
def group_unit(file: str, group: str) -> str:
    """The unit that points of a group are measured in, by the TOML of their file; "" where that is not known.

    >>> group_unit("serving/silicon.csv", "tpot/h100"), group_unit("h200/power.csv", "clock/idle")
    ('s', 'Hz')
    """
    spec = spec_of(None, file)
    metrics = [] if spec is None else [(m.group.split("{")[0], m.unit) for m in spec.metric]
    fitting = [(start, unit) for start, unit in metrics if group.startswith(start)]
    _, unit = max(fitting, key=lambda pair: len(pair[0]), default=("", "1"))
    return "Hz" if unit.endswith("Hz") else SI_UNITS.get(factor(unit)[1], "")


def _metric(file: str, group: str) -> str:
    """The first part of a group's name, in files whose metrics cannot share an axis."""
    spec = spec_of(None, file)
    units = set() if spec is None else {factor(m.unit)[1] for m in spec.metric}
    return group.split("/", maxsplit=1)[0] if len(units) > 1 or group.startswith(("ttft", "tpot")) else ""


def _colours(named: Array) -> dict[str, str]:
    """A colour for each family, the largest first."""
    names, counts = np.unique(named.astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(names[i]): colour_of(place) for place, i in enumerate(order)}


def _dots(axes: Any, x: Array, y: Array, named: Array) -> None:
    """All points at once, in shuffled order: a family drawn last would hide the others."""
    colours, many = _colours(named), len(x) > MANY
    order = np.random.default_rng(0).permutation(len(x))
    look = {"c": [colours[str(named[i])] for i in order], "linewidths": 0, "rasterized": many, "zorder": 2}
    axes.scatter(x[order], y[order], s=6 if many else 14, alpha=0.5 if many else 0.7, **look)


def _sizes(axis: Any, ends: Array, unit: str) -> None:
    """A logarithmic axis that says 20 µs, not 2e-5."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    wide = float(ends[1] / ends[0])
    marks = (1.0,) if wide > 50 else (1.0, 2.0, 5.0) if wide > 4 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    axis.set_major_locator(LogLocator(subs=marks))
    axis.set_major_formatter(EngFormatter(unit=unit))
    axis.set_minor_formatter(NullFormatter())


def _errors(axes: Any, measured: Array, error: Array, named: Array, unit: str) -> None:
    ends = np.array([measured.min() / 1.3, measured.max() * 1.3])
    for share, colour in BANDS:
        axes.fill_between(ends, -share, share, color=colour, linewidth=0, zorder=0.5)
    axes.axhline(0.0, **FAINT)
    _dots(axes, measured, np.clip(error, -SHOWN, SHOWN), named)
    colours = _colours(named)
    mape = {name: float(np.mean(np.abs(error[named == name]))) for name in colours}
    # in order of their colours, unless there are too many
    listed = sorted(colours, key=lambda name: -mape[name])[:LISTED] if len(colours) > LISTED else colours
    dot = {"linestyle": "", "marker": "o", "markersize": 4}
    for name in listed:
        axes.plot([], [], **dot, color=colours[name], label=f"{name}  {mape[name]:.1%}")
    if len(colours) > LISTED:
        axes.plot([], [], linestyle="", label=f"and {len(colours) - LISTED} groups with less")
    middle, size = _running_median(measured, error)
    if len(middle) > 1:
        clipped = np.clip(size, -SHOWN, SHOWN)
        axes.plot(middle, clipped, color="#222", linewidth=1.1, label="median by size", zorder=3)
    beyond = int(np.count_nonzero(np.abs(error) > SHOWN))
    said = f" ({beyond} points beyond ±{SHOWN:.0%} lie at the edge)" if beyond else ""
    axes.set(xscale="log", xlim=ends, ylim=(-SHOWN * 1.04, SHOWN * 1.04))
    axes.set(xlabel=f"measured{said}", ylabel="predicted / measured - 1")
    _sizes(axes.xaxis, ends, unit)
    _shares(axes.yaxis, (-0.5, -0.25, -0.1, 0, 0.1, 0.25, 0.5))
    look = {"frameon": False, "fontsize": 8, "handletextpad": 0.3, "alignment": "left"}
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), title="mean error", **look)


def _shares(axis: Any, marks: tuple[float, ...]) -> None:
    axis.set_ticks(marks, [f"{mark:+.0%}".replace("%", " %") if mark else "0" for mark in marks])


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
    axes.axvline(0.0, **FAINT)
    columns = {"transform": axes.get_yaxis_transform(), "va": "center", "ha": "right", "fontsize": 8}
    folders = list(dict.fromkeys(name.split("/", maxsplit=1)[0] for name in files))
    for row, (name, every) in enumerate(files.items()):
        points = [p for p in every if p.get("headline", True)]
        error = np.array([p["predicted"] / p["measured"] - 1.0 for p in points])
        low, middle, high = np.clip(np.quantile(error, (0.1, 0.5, 0.9)), -1.0, 1.0)
        colour = colour_of(folders.index(name.split("/", maxsplit=1)[0]))
        axes.plot([low, high], [row, row], color=colour, linewidth=5, solid_capstyle="round", alpha=0.45)
        axes.plot([middle], [row], marker="o", markersize=5, color=colour)
        axes.text(1.075, row, f"{np.mean(np.abs(error)):.1%}", color="#444", **columns)
        axes.text(1.14, row, str(len(points)), color="#777", **columns)
    for x, text in ((1.075, "MAPE"), (1.14, "points")):
        axes.text(x, -1.0, text, color="#777", **columns)
    axes.set_yticks(range(len(files)), list(files), fontsize=8)
    axes.set(ylim=(len(files) - 0.4, -1.4), xlim=(-1.02, 1.02))
    axes.set(xlabel="predicted / measured - 1: median and the middle 80 % of points")
    _shares(axes.xaxis, (-1, -0.5, -0.25, -0.1, 0, 0.1, 0.25, 0.5, 1))
    axes.grid(axis="y", visible=False)
    return figure


def accuracy_report(outcome: dict[str, Any], points: list[dict[str, Any]], path: Path) -> Path:
    """The numbers, the table, then predicted against measured, a picture a file."""
    parts: list[str] = []
    for entry in outcome["files"]:
        mine = _drawable([p for p in points if p["file"] == entry["file"]])
        if mine:
            said = f"{entry['points']} points, MAPE {entry['mape']:.1%}, median {entry['median']:.1%}, "
            said += f"bias {entry['bias']:+.1%}"
            drawn = page.figure_html(_scatter(mine), 420, picture_name(entry["file"]))
            parts.append(page.section(entry["file"], page.paragraphs([said], "dim"), drawn))
    keys = ("mape", "median", "p90", "worst", "bias", "weighted")
    rows = []
    for e in outcome["files"]:
        rows.append([e["file"], str(e["points"]), str(e["failed"] or ""), *(percent(e.get(k)) for k in keys)])
    said = "".join(
        page.paragraphs([f"{what}: {', '.join(outcome[key])}"], "dim")
        for key, what in (("not_yet", "not predicted yet"), ("unknown", "unknown files"))
        if outcome[key]
    )
    header = ["file", "points", "failed", "MAPE", "median", "P90", "worst", "bias", "weighted"]
    table = page.section("File by file", page.html_table(header, rows), said)
    lead = "error = predicted / measured - 1"
    shown = [page.cards_html(_cards(outcome)), _by_file(outcome), table, *parts]
    if outcome.get("families"):
        left_out = page.html_table(list(HEADLINE), headline_cells(outcome))
        shown.insert(0, page.section("Families left out, numbers refitted without each", left_out))
    return page.write_page(path, "Strata: predicted against measured", shown, lead)


def _cards(outcome: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What all files say together: each counts as much as any other."""
    files = [e for e in outcome["files"] if e.get("mape") is not None]
    if not files:
        return []
    told = {key: [float(e[key]) for e in files] for key in ("mape", "median", "bias")}
    worst = max(files, key=lambda e: float(e["mape"]))
    return [
        ("typical error of a file", f"{np.median(told['median']):.1%}", "median of the files' medians"),
        ("typical MAPE of a file", f"{np.median(told['mape']):.1%}", "median of the files' means"),
        ("bias", f"{np.median(told['bias']):+.1%}", "median; above 0: more predicted than measured"),
        ("points", f"{sum(e['points'] for e in files):,}", f"in {len(files)} files"),
        ("farthest off", f"{worst['mape']:.1%}", worst["file"]),
    ]


def _by_file(outcome: dict[str, Any]) -> str:
    scored = (e for e in outcome["files"] if e.get("mape") is not None)
    files = sorted(scored, key=lambda e: float(e["mape"]))
    bars = page.bars_html([(e["file"], float(e["mape"]), f"{e['mape']:.1%}") for e in files])
    return page.bars_section("MAPE of each file", "Mean of the absolute errors.", bars)


def _scatter(points: list[dict[str, Any]]) -> Any:
    """Predicted over measured on logarithmic axes, a colour a group, at most 2000 points each."""
    figure = page.plotly_graphs().Figure()
    for place, group in enumerate(dict.fromkeys(p["group"] for p in points)):
        chosen = [p for p in points if p["group"] == group]
        chosen = chosen[:: -(-len(chosen) // 2000)]
        x, y = ([float(f"{p[k]:.4g}") for p in chosen] for k in ("measured", "predicted"))
        look = {"size": 6, "opacity": 0.75, "color": page.series_colour(place)}
        figure.add_scatter(x=x, y=y, mode="markers", name=str(group), marker=look)
    ends = [f(p["measured"] for p in points) for f in (min, max)]
    dashed = {"color": "var(--faint)", "dash": "dash"}
    figure.add_scatter(x=ends, y=ends, mode="lines", line=dashed, name="equal")
    for update, key in ((figure.update_xaxes, "measured"), (figure.update_yaxes, "predicted")):
        update(title=key, **page.log_axis(*(float(f(p[key] for p in points)) for f in (min, max))))
    return figure
