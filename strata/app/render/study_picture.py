"""Pictures of a study, as its `[[picture]]` tables say: lines over an axis of a run, one for each value of
another axis, or boxes of how that axis spreads, or what a paper draws.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from strata.drawing import COLOURS, STYLE, pyplot_of, save
from strata.errors import BadValue, UnknownName, require
from strata.expression import Names, calculate
from strata.shipped import needed_model, paper_offers
from strata.studies import StudyOutcome

KEYS = (
    "file",
    "points",
    "title",
    "x",
    "y",
    "lines",
    "xlabel",
    "ylabel",
    "limit",
    "limited",
    "label",
    "log",
    "each",
    "box",
    "panels",
    "bars",
    "low",
    "high",
    "cells",
    "stacks",
    "words",
    "rows",
    "columns",
    "mappings",
    "memory",
    "network",
    "roofs",
)


def draw_study(outcome: StudyOutcome, folder: Path) -> list[Path]:
    """Every picture of a study; the paths that were written."""
    pyplot = pyplot_of()
    named = {name: Names(f"run {name}", values) for name, values in outcome.runs.items()}
    written = []
    with pyplot.rc_context(STYLE):
        for entry in outcome.study.table.get("picture", []):
            place = f"{outcome.study.name}: picture {entry.get('file', '?')}"
            for key in entry:
                if key not in KEYS:
                    raise UnknownName(f"key of {place}", key, KEYS, ", ".join(KEYS))
            added = next((key for key in paper_offers("study pictures") if key in entry), "")
            kind = "bars" if "bars" in entry else "x"
            for key in ("file",) if added else ("file", "y", kind):
                require(key in entry, f"{place} needs file, x (or bars, or mappings) and y", missing=key)
            draw = needed_model("study pictures", added) if added else {"bars": _bars, "x": _figure}[kind]
            written.append(save(pyplot, draw(pyplot, entry, named, place), folder / entry["file"]))
    return written


def _shared_start(words: np.ndarray) -> int:
    """How many letters all names begin with, up to the last hyphen.

    >>> _shared_start(np.array(["deepflow-n12", "deepflow-n1"]))
    9
    """
    first, last = min(words.tolist()), max(words.tolist())
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(letter for letter, _ in same).rfind("-") + 1


def _figure(pyplot: Any, entry: dict[str, Any], named: dict[str, Any], place: str) -> Any:
    """y over x; where y has a second axis, a line for each of `lines`; several y are several lines with the
    labels of `each`. With `panels` y has an entry for each, side by side on one scale.
    """
    panels = entry.get("panels")
    titles = panels or [entry.get("title", "")]
    each_panel = entry["y"] if panels else [entry["y"]]
    require(
        len(each_panel) == len(titles), f"{place}: `panels` has a title for each of y", panels=len(titles)
    )
    wide = 6.6 if panels is None else 0.9 + 2.6 * len(titles)
    figure, drawn = pyplot.subplots(
        1, len(titles), figsize=(wide, 3.8), layout="constrained", sharey=True, squeeze=False
    )
    for axes, title, y in zip(drawn[0], titles, each_panel, strict=True):
        draw = _boxes if entry.get("box") else _lines
        draw(axes, y if isinstance(y, list) else [y], entry, named, place)
        axes.set_title(title)
        axes.set_xlabel(entry.get("xlabel", ""))
        if "x" in entry.get("log", ""):
            axes.set_xscale("log")
        if "y" in entry.get("log", ""):
            axes.set_yscale("log")
    first = drawn[0][0]
    if "y" not in entry.get("log", ""):
        first.set_ylim(bottom=min(0.0, first.get_ylim()[0]))
    first.set_ylabel(entry.get("ylabel", ""))
    if first.get_legend_handles_labels()[1]:
        first.legend(frameon=False, fontsize=8)
    if panels is not None:
        figure.suptitle(entry.get("title", ""))
    return figure


def _lines(axes: Any, many: list[str], entry: dict[str, Any], named: dict[str, Any], place: str) -> None:
    """The lines of one panel."""
    labels = entry.get("each", [""] * len(many))
    require(
        len(labels) == len(many), f"{place}: `each` has a label for each of y", y=len(many), each=len(labels)
    )
    x = np.asarray(calculate(entry["x"], named, place))
    if x.dtype.kind == "U":  # names stand side by side, without what all of them begin with
        shown = [str(word)[_shared_start(x) :] for word in x]
        axes.set_xticks(range(len(shown)), shown)
        x = np.arange(len(shown))
    x = x.astype(float)
    colour = 0
    for text, label in zip(many, labels, strict=True):
        y = np.asarray(calculate(text, named, place), float)
        if y.shape[:1] != x.shape or y.ndim > 2:
            raise BadValue(
                f"{place}: y must have the axis of x and at most one more, but got shapes {x.shape} and "
                f"{y.shape}"
            )
        keys = (
            np.asarray(calculate(entry["lines"], named, place))
            if "lines" in entry and y.ndim == 2
            else [label]
        )
        columns = y.T if y.ndim == 2 else y[None]
        for key, column in zip(keys, columns, strict=True):
            seen = np.isfinite(column)
            said = str(key) if isinstance(key, str) else f"{entry.get('label', '')} {key:g}".strip()
            axes.plot(
                x[seen],
                column[seen],
                "o" if entry.get("points") else "o-",
                markersize=3.5,
                linewidth=1.5,
                color=COLOURS[colour % len(COLOURS)],
                label=said or None,
            )
            colour += 1
    if "limit" in entry:
        axes.axhline(
            float(entry["limit"]), color="#c44e52", linewidth=1.0, linestyle="--", label=entry.get("limited")
        )


def _boxes(axes: Any, many: list[str], entry: dict[str, Any], named: dict[str, Any], place: str) -> None:
    """Boxes from quartile to quartile with their median, and lines to the least and the most, of y's other
    axes over x, whose values are names; several y stand side by side.
    """
    x = list(calculate(entry["x"], named, place))
    labels = entry.get("each", [""] * len(many))
    require(
        len(labels) == len(many), f"{place}: `each` has a label for each of y", y=len(many), each=len(labels)
    )
    wide, axes.use_sticky_edges = 0.8 / len(many), False
    for i, (text, label) in enumerate(zip(many, labels, strict=True)):
        y = np.asarray(calculate(text, named, place), float)
        if y.ndim < 2 or len(y) != len(x):
            raise BadValue(f"{place}: y of a box has the axis of x and more, but got shape {y.shape}")
        y = y.reshape(len(x), -1)
        colour, middle = COLOURS[i % len(COLOURS)], np.arange(len(x)) + wide * (i - 0.5 * (len(many) - 1))
        least, low, median, high, most = np.nanquantile(y, (0.0, 0.25, 0.5, 0.75, 1.0), axis=1)
        axes.vlines(middle, least, most, color=colour, linewidth=1.0)
        axes.bar(
            middle,
            high - low,
            0.85 * wide,
            bottom=low,
            color=colour,
            alpha=0.55,
            linewidth=0,
            label=label or None,
        )
        axes.hlines(median, middle - 0.42 * wide, middle + 0.42 * wide, color="#222222", linewidth=1.4)
    said = [name if isinstance(name, str) else f"{name:g}" for name in x]
    long = max(len(name) for name in said) > 6
    axes.set_xticks(range(len(x)), said, rotation=60 if long else 0, ha="right" if long else "center")


def _bars(pyplot: Any, entry: dict[str, Any], named: dict[str, Any], place: str) -> Any:
    """A group of bars for each of `bars`, one for each y, with whiskers from `low` to `high`, which have as
    many entries where they are told; they start at the limit, where there is one.
    """
    names = [str(name) for name in calculate(entry["bars"], named, place)]
    columns = {
        key: [told] if isinstance(told := entry.get(key, entry["y"]), str) else told
        for key in ("y", "low", "high")
    }
    labels = entry.get("each", [""] * len(columns["y"]))
    counts = {key: len(listed) for key, listed in columns.items()} | {"each": len(labels)}
    require(len(set(counts.values())) == 1, f"{place}: y, low, high and each go together", **counts)
    figure, axes = pyplot.subplots(figsize=(6.6, 0.9 + 0.42 * len(names)), layout="constrained")
    start, thick = float(entry.get("limit", 0.0)), 0.8 / len(labels)
    for i, label in enumerate(labels):
        y, low, high = (
            np.asarray(calculate(columns[key][i], named, place), float) for key in ("y", "low", "high")
        )
        if y.shape != (len(names),):
            raise BadValue(f"{place}: y has a number for each bar, but got shape {y.shape}")
        at = np.arange(len(names)) + (i - 0.5 * (len(labels) - 1)) * thick
        spread = [y - low, high - y]
        whiskers = (
            {"xerr": spread, "error_kw": {"elinewidth": 0.9, "ecolor": "#333"}} if np.any(spread) else {}
        )
        look = {"color": COLOURS[i % len(COLOURS)], "label": label or None, "capsize": 2.0}
        axes.barh(at, y - start, thick, left=start, **whiskers, **look)
    axes.axvline(start, color="#c44e52", linewidth=1.0, linestyle="--", label=entry.get("limited"))
    axes.set_yticks(np.arange(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_title(entry.get("title", ""))
    axes.set_xlabel(entry.get("xlabel", ""))
    if len(labels) > 2:  # beside so many bars there is no room
        figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    elif axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8)
    return figure
