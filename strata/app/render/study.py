"""A study: its claims as a table and a page, and the pictures that its `[[picture]]` tables declare."""

from __future__ import annotations

import html
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.figures import colour_of
from strata.app.render.page import cards_html, paragraphs, picture_html, section, wide_table, write_page
from strata.app.render.tables import rows_table, table
from strata.app.terminal import words
from strata.base.drawing import STYLE, pyplot_of, save
from strata.base.errors import BadValue, UnknownName, require
from strata.base.expression import Names, calculate
from strata.base.shipped import needed_model, paper_offers
from strata.studies import StudyOutcome

KEYS = (
    "file points title x y lines xlabel ylabel limit limited label log each box panels bars low high cells "
    "stacks words rows columns mappings memory network roofs"
)
LIMIT = {"color": "#c44e52", "linewidth": 1.0, "linestyle": "--"}


def studies_table(known: dict[str, str]) -> Any:
    """A line a study."""
    return rows_table("<study|what it repeats", known.items())


def claim_text(value: Any) -> str:
    """A claim's number as people read it.

    >>> claim_text(0.123456), claim_text([1.0, 2.5]), claim_text(None), claim_text(True)
    ('0.1235', '1, 2.5', '', 'yes')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(claim_text(v) for v in value)
    return value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 10000 else f"{value:.4g}"


def claims_table(outcome: StudyOutcome) -> Any:
    """A line a claim."""
    rows = []
    for claim in outcome.claims:
        mark = words("yes", "green") if claim["holds"] else words("no", "red")
        said = words(claim["says"])
        if claim["note"]:
            said.append(f"\n{claim['note']}", style="dim")
        rows.append((said, claim_text(claim["paper"]), claim_text(claim["ours"]), mark))
    held = f"{sum(c['holds'] for c in outcome.claims)} of {len(outcome.claims)} claims hold"
    title = f"{outcome.study.title}\n{outcome.study.table['paper']}"
    return table(title, "claim~|paper~|ours~|holds~", rows, held)


def study_dict(outcome: StudyOutcome) -> dict[str, Any]:
    """A study for machines; the numbers of its searches are in the units of their goals."""
    told = outcome.as_dict()
    return told | ({"units": {"bound": "as the goal says"}} if "searches" in told else {})


def study_report(outcome: StudyOutcome, path: Path) -> Path:
    """A study as a page that opens offline: pictures first, then claim by claim, with its source."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = [(one.stem, one.read_text(encoding="utf-8")) for one in draw_study(outcome, Path(folder))]
    held, count = sum(c["holds"] for c in outcome.claims), len(outcome.claims)
    head = [("claims that hold", f"{held} of {count}", ""), ("study", outcome.study.name, "")]
    paper = str(outcome.study.table["paper"])
    parts = [
        cards_html(head),
        paragraphs([str(outcome.study.table.get("about", ""))]),
        *(f"<section>{picture_html(text, name)}</section>" for name, text in drawn),
        section("Claim by claim", _claims(outcome)),
        section("Source", paragraphs([paper])),
    ]
    return write_page(path, outcome.study.title, parts, paper)


def _claims(outcome: StudyOutcome) -> str:
    """What the paper says, what we get, and whether it holds; notes under the claim."""
    rows = []
    for claim in outcome.claims:
        note = f"<br><span class='dim'>{html.escape(claim['note'])}</span>" if claim["note"] else ""
        look, verdict = ("good", "holds") if claim["holds"] else ("bad", "does not")
        sides = (html.escape(claim_text(claim[side])) for side in ("paper", "ours"))
        cells = [html.escape(claim["says"]) + note, *sides]
        texts = "".join(f"<td class='w'>{cell}</td>" for cell in cells)
        rows.append(f"<tr>{texts}<td class='{look} verdict'>{verdict}</td></tr>")
    return wide_table("<th>claim</th><th>paper</th><th>ours</th><th></th>", rows)


def draw_study(outcome: StudyOutcome, folder: Path) -> list[Path]:
    """Every picture of a study; the paths that were written."""
    pyplot = pyplot_of()
    named = {name: Names(f"run {name}", values) for name, values in outcome.runs.items()}
    written = []
    with pyplot.rc_context(STYLE):
        for entry in outcome.study.table.get("picture", []):
            place = f"{outcome.study.name}: picture {entry.get('file', '?')}"
            for key in entry:
                if key not in (known := KEYS.split()):
                    raise UnknownName(f"key of {place}", key, known, ", ".join(known))
            added = next((key for key in paper_offers("study pictures") if key in entry), "")
            kind = "bars" if "bars" in entry else "x"
            for key in ("file",) if added else ("file", "y", kind):
                require(key in entry, f"{place} needs file, x (or bars, or mappings) and y", missing=key)
            draw = needed_model("study pictures", added) if added else {"bars": _bars, "x": _figure}[kind]
            written.append(save(pyplot, draw(pyplot, entry, named, place), folder / entry["file"]))
    return written


def _shared_start(names: np.ndarray) -> int:
    """How many letters all names begin with, up to the last hyphen.

    >>> _shared_start(np.array(["deepflow-n12", "deepflow-n1"]))
    9
    """
    first, last = min(names.tolist()), max(names.tolist())
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(letter for letter, _ in same).rfind("-") + 1


def _figure(pyplot: Any, entry: dict[str, Any], named: dict[str, Any], place: str) -> Any:
    """y over x; where y has a second axis, a line for each of `lines`; several y are several lines with the
    labels of `each`. With `panels` y has an entry for each, side by side on one scale.
    """
    panels, log = entry.get("panels"), entry.get("log", "")
    titles, each_panel = (panels, entry["y"]) if panels else ([entry.get("title", "")], [entry["y"]])
    fits = len(each_panel) == len(titles)
    require(fits, f"{place}: `panels` has a title for each of y", panels=len(titles))
    size = (6.6 if panels is None else 0.9 + 2.6 * len(titles), 3.8)
    shape = {"layout": "constrained", "sharey": True, "squeeze": False}
    figure, drawn = pyplot.subplots(1, len(titles), figsize=size, **shape)
    draw = _boxes if entry.get("box") else _lines
    for axes, title, y in zip(drawn[0], titles, each_panel, strict=True):
        draw(axes, y if isinstance(y, list) else [y], entry, named, place)
        axes.set(title=title, xlabel=entry.get("xlabel", ""))
        axes.set(**{f"{axis}scale": "log" for axis in "xy" if axis in log})
    first = drawn[0][0]
    if "y" not in log:
        first.set_ylim(bottom=min(0.0, first.get_ylim()[0]))
    first.set_ylabel(entry.get("ylabel", ""))
    if first.get_legend_handles_labels()[1]:
        first.legend(frameon=False, fontsize=8)
    if panels is not None:
        figure.suptitle(entry.get("title", ""))
    return figure


def _labels(entry: dict[str, Any], many: list[str], place: str) -> list[str]:
    """The label of each of y."""
    labels: list[str] = entry.get("each", [""] * len(many))
    fits = len(labels) == len(many)
    require(fits, f"{place}: `each` has a label for each of y", y=len(many), each=len(labels))
    return labels


def _lines(axes: Any, many: list[str], entry: dict[str, Any], named: dict[str, Any], place: str) -> None:
    """The lines of one panel."""
    labels, colour = _labels(entry, many, place), 0
    x = np.asarray(calculate(entry["x"], named, place))
    if x.dtype.kind == "U":  # names stand side by side, without what all of them begin with
        shown = [str(word)[_shared_start(x) :] for word in x]
        axes.set_xticks(range(len(shown)), shown)
        x = np.arange(len(shown))
    x, look = x.astype(float), "o" if entry.get("points") else "o-"
    for text, label in zip(many, labels, strict=True):
        y = np.asarray(calculate(text, named, place), float)
        if y.shape[:1] != x.shape or y.ndim > 2:
            said = "y must have the axis of x and at most one more, but got shapes"
            raise BadValue(f"{place}: {said} {x.shape} and {y.shape}")
        several = "lines" in entry and y.ndim == 2
        keys = np.asarray(calculate(entry["lines"], named, place)) if several else [label]
        for key, column in zip(keys, y.T if y.ndim == 2 else y[None], strict=True):
            seen = np.isfinite(column)
            said = str(key) if isinstance(key, str) else f"{entry.get('label', '')} {key:g}".strip()
            style = {"markersize": 3.5, "linewidth": 1.5, "color": colour_of(colour)}
            axes.plot(x[seen], column[seen], look, label=said or None, **style)
            colour += 1
    if "limit" in entry:
        axes.axhline(float(entry["limit"]), label=entry.get("limited"), **LIMIT)


def _boxes(axes: Any, many: list[str], entry: dict[str, Any], named: dict[str, Any], place: str) -> None:
    """Boxes from quartile to quartile with their median, and lines to the least and the most, of y's other
    axes over x, whose values are names; several y stand side by side.
    """
    x = list(calculate(entry["x"], named, place))
    labels = _labels(entry, many, place)
    wide, axes.use_sticky_edges = 0.8 / len(many), False
    for i, (text, label) in enumerate(zip(many, labels, strict=True)):
        y = np.asarray(calculate(text, named, place), float)
        if y.ndim < 2 or len(y) != len(x):
            raise BadValue(f"{place}: y of a box has the axis of x and more, but got shape {y.shape}")
        colour, middle = colour_of(i), np.arange(len(x)) + wide * (i - 0.5 * (len(many) - 1))
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        least, low, median, high, most = np.nanquantile(y.reshape(len(x), -1), shares, axis=1)
        axes.vlines(middle, least, most, color=colour, linewidth=1.0)
        look = {"color": colour, "alpha": 0.55, "linewidth": 0, "label": label or None}
        axes.bar(middle, high - low, 0.85 * wide, bottom=low, **look)
        axes.hlines(median, middle - 0.42 * wide, middle + 0.42 * wide, color="#222222", linewidth=1.4)
    said = [name if isinstance(name, str) else f"{name:g}" for name in x]
    long = max(len(name) for name in said) > 6
    axes.set_xticks(range(len(x)), said, rotation=60 if long else 0, ha="right" if long else "center")


def _bars(pyplot: Any, entry: dict[str, Any], named: dict[str, Any], place: str) -> Any:
    """A group of bars for each of `bars`, one for each y, with whiskers from `low` to `high`, which have as
    many entries where they are told; they start at the limit, where there is one.
    """
    names = [str(name) for name in calculate(entry["bars"], named, place)]
    told = {key: entry.get(key, entry["y"]) for key in ("y", "low", "high")}
    columns = {key: [each] if isinstance(each, str) else each for key, each in told.items()}
    labels = entry.get("each", [""] * len(columns["y"]))
    counts = {key: len(listed) for key, listed in columns.items()} | {"each": len(labels)}
    require(len(set(counts.values())) == 1, f"{place}: y, low, high and each go together", **counts)
    figure, axes = pyplot.subplots(figsize=(6.6, 0.9 + 0.42 * len(names)), layout="constrained")
    start, thick = float(entry.get("limit", 0.0)), 0.8 / len(labels)
    for i, label in enumerate(labels):
        texts = (columns[key][i] for key in ("y", "low", "high"))
        y, low, high = (np.asarray(calculate(text, named, place), float) for text in texts)
        if y.shape != (len(names),):
            raise BadValue(f"{place}: y has a number for each bar, but got shape {y.shape}")
        at = np.arange(len(names)) + (i - 0.5 * (len(labels) - 1)) * thick
        look: dict[str, Any] = {"color": colour_of(i), "label": label or None, "capsize": 2.0}
        if np.any([y - low, high - y]):
            look |= {"xerr": [y - low, high - y], "error_kw": {"elinewidth": 0.9, "ecolor": "#333"}}
        axes.barh(at, y - start, thick, left=start, **look)
    axes.axvline(start, label=entry.get("limited"), **LIMIT)
    axes.set_yticks(np.arange(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(title=entry.get("title", ""), xlabel=entry.get("xlabel", ""))
    if len(labels) > 2:  # beside so many bars there is no room
        figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    elif axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8)
    return figure
