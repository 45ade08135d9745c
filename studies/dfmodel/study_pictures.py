"""Pictures of a study over four axes: cells of a heat map, or stacked bars, two axes down and two across; and
hierarchical rooflines of mappings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.app.render.map import mapping_roofline
from strata.base.drawing import COLOURS, DARK, GREY
from strata.base.errors import BadValue, require
from strata.base.expression import calculate
from strata.optimise.fuse import MappingIntensity

RAMP = ("#f7fbff", "#c6dbef", "#6baed6", "#2171b5", "#08306b")
ROW = 0.235  # inches of a row of cells


class _Grid:
    """Names of rows and columns: two axes each, the outer one told once."""

    def __init__(self, entry: dict[str, Any], named: dict[str, Any], place: str):
        for key in ("rows", "columns"):
            require(
                len(entry.get(key, ())) == 2, f"{place}: `{key}` names two axes, the outer first", key=key
            )
        words = {key: [_short(calculate(t, named, place)) for t in entry[key]] for key in ("rows", "columns")}
        self.outer, self.inner = words["rows"]
        self.columns = [f"{a}\n{b}" for a in words["columns"][0] for b in words["columns"][1]]
        self.rows = [name for _ in self.outer for name in self.inner]
        self.shape = (len(self.rows), len(self.columns))

    def numbers(self, text: str, named: dict[str, Any], place: str) -> Any:
        found = np.asarray(calculate(text, named, place))
        if found.size != self.shape[0] * self.shape[1]:
            raise BadValue(f"{place}: '{text}' has {found.size} cells, rows and columns {self.shape}")
        return found.reshape(self.shape)

    def label_rows(self, axes: Any, first: bool) -> None:
        """Inner names at the rows, outer ones beside each group, lines between groups."""
        high = len(self.inner)
        axes.set_yticks(range(len(self.rows)), self.rows if first else [""] * len(self.rows), fontsize=7)
        axes.tick_params(length=0)
        for i, name in enumerate(self.outer):
            if first:
                middle = (i + 0.5) * high - 0.5
                axes.annotate(
                    name, (0.0, middle), xycoords=("axes fraction", "data"), xytext=(-58, 0),
                    textcoords="offset points", rotation=90, ha="center", va="center", fontsize=8,
                    color=DARK, fontweight="bold",
                )  # fmt: skip
            if i:
                axes.axhline(i * high - 0.5, color="white", linewidth=2.5)
        axes.set_ylim(len(self.rows) - 0.5, -0.5)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)


def _short(names: Any) -> list[str]:
    """Names without the word all of them begin with."""
    words = [str(name) for name in names]
    start = words[0].split("-")[0] + "-"
    return [w.removeprefix(start) if all(x.startswith(start) for x in words) else w for w in words]


def draw_cells(pyplot: Any, entry: dict[str, Any], named: dict[str, Any], place: str) -> Any:
    """A heat map for each of `cells`, side by side, every number in its cell, colours on a scale of
    logarithms; `words` stand below the numbers.
    """
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    grid, many = _Grid(entry, named, place), entry["cells"]
    titles, words = entry.get("panels", [""] * len(many)), entry.get("words", [""] * len(many))
    require(
        len(titles) == len(many) == len(words),
        f"{place}: `panels` and `words` have one for each of cells",
        cells=len(many), panels=len(titles), words=len(words),
    )  # fmt: skip
    told = any(words)
    row = ROW * (1.55 if told else 1.0)
    figure, drawn = pyplot.subplots(
        1, len(many), figsize=(1.5 + 2.45 * len(many), 1.0 + row * grid.shape[0]), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    ramp = LinearSegmentedColormap.from_list("cells", RAMP)
    for i, (axes, text) in enumerate(zip(drawn[0], many, strict=True)):
        values = grid.numbers(text, named, place).astype(float)
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        norm = LogNorm(low, high if high > low else low * 1.01)
        axes.imshow(values, cmap=ramp, norm=norm, aspect="auto", interpolation="nearest")
        below = grid.numbers(words[i], named, place) if words[i] else None
        for at in np.ndindex(*grid.shape):
            ink = "white" if norm(values[at]) > 0.48 else DARK
            said = _digits(values[at]) + ("" if below is None else f"\n{below[at]}")
            axes.text(at[1], at[0], said, ha="center", va="center", fontsize=6.8, color=ink, linespacing=1.0)
        axes.set_xticks(range(grid.shape[1]), grid.columns, fontsize=7)
        for edge in range(1, grid.shape[1]):
            axes.axvline(edge - 0.5, color="white", linewidth=0.8)
        axes.xaxis.tick_top()
        axes.set_title(titles[i], fontsize=9)
        grid.label_rows(axes, i == 0)
    figure.suptitle(entry.get("title", ""), x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def _digits(value: float) -> str:
    """Three digits, without an exponent."""
    if not np.isfinite(value):
        return "-"
    places = max(0, 2 - int(np.floor(np.log10(abs(value))))) if value else 0
    return f"{value:,.{min(places, 4)}f}"


def draw_stacks(pyplot: Any, entry: dict[str, Any], named: dict[str, Any], place: str) -> Any:
    """Bars of what each of `stacks` adds, as shares of their sum: a panel for each column, a bar for each
    row.
    """
    grid, labels = _Grid(entry, named, place), entry.get("each", [])
    require(
        len(labels) == len(entry["stacks"]),
        f"{place}: `each` has a label for each of stacks",
        each=len(labels),
    )
    parts = [grid.numbers(text, named, place).astype(float) for text in entry["stacks"]]
    whole = np.sum(parts, axis=0)
    count = grid.shape[1]
    figure, drawn = pyplot.subplots(
        1, count, figsize=(1.5 + 1.75 * count, 1.3 + 0.19 * grid.shape[0]), layout="constrained",
        sharex=True, squeeze=False,
    )  # fmt: skip
    for column, axes in enumerate(drawn[0]):
        left = np.zeros(grid.shape[0])
        for i, (part, label) in enumerate(zip(parts, labels, strict=True)):
            share = part[:, column] / whole[:, column]
            axes.barh(range(grid.shape[0]), share, 0.8, left=left, color=COLOURS[i], label=label, linewidth=0)
            left = left + share
        grid.label_rows(axes, column == 0)
        axes.set_xlim(0.0, 1.0)
        axes.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
        axes.set_title(grid.columns[column].replace("\n", ", "), fontsize=8)
        axes.set_xlabel(entry.get("xlabel", ""), fontsize=8, color=GREY)
    handles, said = drawn[0][0].get_legend_handles_labels()
    figure.legend(handles, said, loc="outside lower center", ncols=len(said), frameon=False, fontsize=8)
    figure.suptitle(entry.get("title", ""), x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def draw_mappings(pyplot: Any, entry: dict[str, Any], named: dict[str, Any], place: str) -> Any:
    """A hierarchical roofline of `mappings`: y their rates, `memory` and `network` their intensities, `roofs`
    the bandwidths of the two by name, `limit` the peak.
    """
    for key in ("y", "memory", "network", "roofs", "limit"):
        require(key in entry, f"{place}: mappings go with y, memory, network, roofs and limit", missing=key)
    require(len(entry["roofs"]) == 2, f"{place}: roofs are those of memory and network", roofs=entry["roofs"])
    names = [str(name) for name in calculate(entry["mappings"], named, place)]
    columns = [np.asarray(calculate(entry[k], named, place), float) for k in ("y", "memory", "network")]
    if any(column.shape != (len(names),) for column in columns):
        shapes = [column.shape for column in columns]
        raise BadValue(f"{place}: y, memory and network have a number for each mapping, but got {shapes}")
    points = [
        MappingIntensity(name=name, rate=float(y), memory=float(m), network=float(n))
        for name, y, m, n in zip(names, *columns, strict=True)
    ]
    first, second = ((name, float(speed)) for name, speed in entry["roofs"].items())
    return mapping_roofline(pyplot, points, (first, second), float(entry["limit"]), entry.get("title", ""))
