"""Pictures of a search: the cloud of its points, what each choice and each pair of choices costs, its designs
as lines, and how the answer came.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.render.page import heat_html, log_axis, plotly_graphs, tint
from strata.app.render.prediction import metric_label
from strata.mapping.plan import ORDERS, WORDS
from strata.search.fields import PLAN_FIELDS
from strata.search.goal import GOAL_METRICS, metric_column

if TYPE_CHECKING:
    from strata.search.goal import Goal
    from strata.search.outcome import Progress, SearchOutcome
    from strata.search.points import Evaluated
    from strata.search.space import Space

DOTS = 3000  # points of a cloud
THREADS = 1500  # lines of the parallel coordinates
LABELS = 10  # of one of their axes
AXES = 8  # of them: those that matter most, so that names have room beside each other
LETTERS = 18  # of a name on one of them
GOOD, POOR, GREY, MARKED = "var(--accent)", "var(--line)", "var(--faint)", "var(--c-memory)"


@dataclass(frozen=True, eq=False)
class Trait:
    """One thing that tells points apart: the choice of an axis, or a degree of the plan."""

    name: str
    labels: tuple[str, ...]
    of: np.ndarray  # which label each point has


def relative_worths(goal: Goal, seen: Evaluated) -> np.ndarray:
    """The first metric of each point relative to the best, 1 at the best and less below it; 0 where a point
    is out.
    """
    scores = goal.scores(seen)
    inside = np.isfinite(scores).all(axis=1)
    if not inside.any():
        return np.zeros(len(seen))
    values = np.where(inside, np.abs(scores[:, 0]), np.nan)
    best = float(np.abs(scores[inside, 0].max()))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = values / best if goal.higher_is_better[0] else best / values
    return np.where(inside & np.isfinite(share), share, 0.0)


def traits_of(space: Space, digits: np.ndarray) -> list[Trait]:
    """What tells these points apart: axes, and of plans each degree; not what only repeats another."""
    listed = []
    for i, axis in enumerate(space.axes):
        at = digits[:, i]
        if axis.kind != "plan":
            cross = "x " if axis.kind == "times" else ""
            listed.append(_trait(axis.name, at, [f"{cross}{text}" for text in axis.labels]))
            continue
        for name, column_of in zip(PLAN_FIELDS, np.array(axis.values, float).T, strict=True):
            values, codes = np.unique(column_of, return_inverse=True)
            words = ["-".join(o) for o in ORDERS] if name == "order" else WORDS.get(name)
            labels = [words[int(v)] if words else f"{v:g}" for v in values]
            listed.append(_trait(f"{axis.name}.{name}", codes[at], labels))
    apart: dict[bytes, Trait] = {}
    for trait in listed:
        if len(trait.labels) > 1:
            apart.setdefault(trait.of.tobytes(), trait)
    return list(apart.values())


def _trait(name: str, codes: np.ndarray, labels: list[str]) -> Trait:
    """Only the choices that occur."""
    used, of = np.unique(codes, return_inverse=True)
    return Trait(name, tuple(labels[int(u)] for u in used), of)


def importance(trait: Trait, worth: np.ndarray) -> float:
    """Share of the variance of log worth that the choice alone explains (omega squared: what chance would
    explain is taken off).

    >>> importance(Trait("a", ("1", "2"), np.array([0, 0, 1, 1])), np.array([1.0, 1.0, 0.5, 0.5]))
    1.0
    """
    inside = worth > 0
    values, of = np.log(worth[inside]), trait.of[inside]
    counts = np.bincount(of, minlength=len(trait.labels))
    used = int(np.sum(counts > 0))
    total = float(np.sum((values - values.sum() / max(len(values), 1)) ** 2))
    if len(values) <= used or used < 2 or total <= 1e-12 * len(values):
        return 0.0
    means = np.bincount(of, weights=values, minlength=len(trait.labels)) / np.maximum(counts, 1)
    between = float(np.sum(counts * (means - values.mean()) ** 2))
    noise = (total - between) / (len(values) - used)
    return max(between - (used - 1) * noise, 0.0) / (total + noise)


def trade_metrics(goal: Goal) -> tuple[str, str]:
    """The two metrics of the cloud: the goal's own, or the goal and what it is most often paid with."""
    if len(goal.metrics) > 1:
        return goal.metrics[0], goal.metrics[1]
    paid = {"energy_per_token": "tokens_per_s", "tokens_per_joule": "tokens_per_s"}
    return goal.metrics[0], paid.get(goal.metrics[0], "energy_per_token")


def cloud_figure(outcome: SearchOutcome, seen: Evaluated, first: str, second: str) -> Any:
    """Points that are in, by two metrics, and those that no other beats in both."""
    from strata.base.pareto import non_dominated
    from strata.search.goal import Goal

    scores = Goal((first, second), outcome.goal.limits).scores(seen)
    inside = np.flatnonzero(np.isfinite(scores).all(axis=1))
    ends = np.flatnonzero(non_dominated(scores))
    ends = ends[np.argsort(scores[ends, 0])]
    x, y = metric_column(seen.columns, second), metric_column(seen.columns, first)
    dots = np.random.default_rng(0).permutation(inside)[:DOTS]
    figure = plotly_graphs().Figure()

    def scatter(across: np.ndarray, up: np.ndarray, name: str, mode: str = "markers", **look: Any) -> None:
        figure.add_scatter(x=_told(across, second), y=_told(up, first), mode=mode, name=name, **look)

    skip = {"hoverinfo": "skip"}
    scatter(x[dots], y[dots], "points", marker={"size": 4, "color": GREY}, **skip)
    hover = {"text": [_design(outcome.space, seen.digits[i]) for i in ends], "line": {"color": GOOD}}
    hover["hovertemplate"] = "%{text}<br>%{x}, %{y}<extra></extra>"
    scatter(x[ends], y[ends], "no other beats", "lines+markers", **hover)
    if outcome.found:
        best = [metric_column(outcome.frontier.columns, metric)[:1] for metric in (second, first)]
        star = {"size": 13, "color": MARKED, "symbol": "star"}
        scatter(best[0], best[1], f"best {metric_label(first)}", marker=star, **skip)
    for update, metric, values in ((figure.update_xaxes, second, x), (figure.update_yaxes, first, y)):
        drawn = [np.array(_told(values[some], metric)) for some in (inside, ends)]
        update(title=_titled(metric), **_spread(*drawn))
    return figure


def choices_html(ordered: list[Trait], worth: np.ndarray) -> str:
    """For each trait its choices as cells, as strong as the best worth found with them."""
    lines = []
    for trait in ordered:
        best = np.zeros(len(trait.labels))
        np.maximum.at(best, trait.of, worth)
        cells = ""
        for label, share in zip(trait.labels, best.tolist(), strict=True):
            style = f" style='background:{tint(share)}'" if share else " class='out'"
            worth_text = f"{share:.0%}" if share else "out"
            cells += f"<span{style}>{html.escape(label)}<small>{worth_text}</small></span>"
        lines.append(f"<div class='strip'><h3>{html.escape(trait.name)}</h3><div>{cells}</div></div>")
    return "".join(lines)


def pair_html(ordered: list[Trait], worth: np.ndarray) -> tuple[str, str]:
    """The two quantities that matter most, and the best worth found with each pair of their choices."""
    numbers = [trait for trait in ordered if len(trait.labels) > 2 and _is_quantity(trait)]
    if len(numbers) < 2:
        return "", ""
    down, across = numbers[:2]
    best = np.zeros((len(down.labels), len(across.labels)))
    np.maximum.at(best, (down.of, across.of), worth)
    values = np.where(best > 0, best, np.nan)
    texts = [[f"{v:.0%}" if v == v else "" for v in row] for row in values]
    heat = heat_html((across.name, across.labels), (down.name, down.labels), values, texts)
    return f"{down.name} and {across.name}", heat


def _is_quantity(trait: Trait) -> bool:
    """Whether all of a trait's choices are numbers, with or without a unit.

    >>> [_is_quantity(Trait("a", labels, np.zeros(1))) for labels in (("1 TB/s", "x 2"), ("ring",))]
    [True, False]
    """
    return all(re.match(r"(x )?[-+]?[\d.]", label) for label in trait.labels)


def threads_figure(goal: Goal, ordered: list[Trait], seen: Evaluated, worth: np.ndarray) -> Any:
    """Parallel coordinates of the best designs: a line a point over what tells them apart and the metrics of
    the goal.
    """
    go = plotly_graphs()
    which = np.argsort(-worth, kind="stable")[: min(THREADS, int(np.sum(worth > 0)))]
    which = which[::-1]  # the best are drawn last, above the others
    lines = []
    apart = [trait for trait in ordered if len(np.unique(trait.of[which])) > 1]
    for trait in apart[:AXES]:
        ticks = list(range(0, len(trait.labels), -(-len(trait.labels) // LABELS)))
        ticked = {"tickvals": ticks, "ticktext": [_short(trait.labels[k]) for k in ticks]}
        place = {"values": trait.of[which].tolist(), "range": [0, len(trait.labels) - 1]}
        lines.append({"label": _short(trait.name), **place, **ticked})
    for m in goal.metrics:
        values = _told(metric_column(seen.columns, m)[which], m)
        lines.append({"label": _short(metric_label(m)), "values": values})
    colour = {"color": worth[which].tolist(), "cmin": float(worth[which].min()), "cmax": 1.0}
    colour |= {"colorscale": [[0, POOR], [0.7, GREY], [1, GOOD]], "showscale": False}
    look = {
        "domain": {"x": [0.05, 0.93], "y": [0.02, 0.9]},  # room for names and ticks
        "labelside": "top",
        "labelfont": {"size": 11},
        "tickfont": {"size": 10},
        "rangefont": {"size": 1, "color": "rgba(0,0,0,0)"},  # the ends are ticks already
    }
    figure = go.Figure(go.Parcoords(dimensions=lines, line=colour, **look))
    figure.update_layout(margin={"l": 70, "r": 70, "t": 40, "b": 16}, paper_bgcolor="var(--paper)")
    return figure


def _short(name: str) -> str:
    """A name with room on an axis; of a path its last word.

    >>> _short("chip.memory.bandwidth"), _short("a name that is far too long")
    ('bandwidth', 'a name that is fa…')
    """
    last = name if len(name) <= LETTERS or " " in name else name.rpartition(".")[2]
    return last if len(last) <= LETTERS else last[: LETTERS - 1] + "…"


def came_figure(goal: Goal, history: list[Progress]) -> Any:
    """The best found and the proven bound over time."""
    figure, metric = plotly_graphs().Figure(), goal.metrics[0]
    kept = [*history[: -1 : -(-len(history) // 1000)], history[-1]]
    seconds = [h.seconds for h in kept]
    lines = (("best found", [h.best for h in kept], GOOD), ("proven bound", [h.bound for h in kept], MARKED))
    for name, values, colour in lines:
        if np.isfinite(values).any():
            shown = zip(values, _told(np.array(values), metric), strict=True)
            told = [t if np.isfinite(v) else None for v, t in shown]
            look = {"line": {"color": colour, "shape": "hv"}, "marker": {"size": 4}}
            figure.add_scatter(x=seconds, y=told, mode="lines+markers", name=name, **look)
    figure.update_xaxes(title="seconds", rangemode="tozero")
    figure.update_yaxes(title=_titled(metric))
    return figure


def _told(values: np.ndarray, metric: str) -> list[float]:
    """Numbers of a picture's axis, to four digits, in the unit `_titled` names: °C for kelvin, mm2 for m2."""
    unit = GOAL_METRICS[metric].unit
    scaled = values - 273.15 if unit == "K" else values * 1e6 if unit == "m2" else values
    return [float(f"{v:.4g}") for v in scaled]


def _titled(metric: str) -> str:
    unit = {"1": "", "K": "°C", "m2": "mm2"}.get(GOAL_METRICS[metric].unit, GOAL_METRICS[metric].unit)
    return metric_label(metric) + (f" [{unit}]" if unit else "")


def _spread(values: np.ndarray, leading: np.ndarray) -> dict[str, Any]:
    """An axis on which the leading points fill the frame, and of the others those that are not far behind;
    logarithmic where that spans more than a factor of 20.
    """
    if not len(values) or not len(leading):
        return {"exponentformat": "SI"}
    near = np.quantile(values, (0.1, 0.9))
    low, high = min(leading.min(), near[0]), max(leading.max(), near[1])
    if low > 0 and high > 20 * low:
        return log_axis(float(low), float(high))
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return {"exponentformat": "SI", "range": [float(low - room), float(high + room)]}


def _design(space: Space, digits: np.ndarray) -> str:
    chosen = ((a, a.labels[int(d)]) for a, d in zip(space.axes, digits, strict=True) if len(a) > 1)
    return "<br>".join(f"{axis.name} {label}" for axis, label in chosen)
