"""A search as a page: the best design, how sure that is, the frontier, what matters, and why regions are
empty.
"""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.present import METRIC_NAMES, PHASE_SKIPS, SHOWN
from strata.app.report import LINES, _plotly, bars, page, picture, prediction_parts, rows_table
from strata.drawing import keep
from strata.mapping.plan import ORDERS, WORDS
from strata.search.fields import PLAN_FIELDS
from strata.search.goal import GOAL_UNITS, column
from strata.units import show

if TYPE_CHECKING:
    from strata.search.goal import Goal
    from strata.search.points import Evaluated
    from strata.search.run import Outcome, Progress
    from strata.search.sensitivity import Gain
    from strata.search.space import Space

DOTS = 3000  # points of a cloud
THREADS = 1500  # lines of the parallel coordinates
FRONTIER_ROWS, EMPTY_ROWS, REASON_BARS, LABELS = 20, 24, 8, 24
GOOD, POOR, GREY = "#3b0f70", "#fcbf6b", "#b5b5b5"


@dataclass(frozen=True, eq=False)
class Trait:
    """One thing that tells points apart: the choice of an axis, or a degree of the plan."""

    name: str
    labels: tuple[str, ...]
    of: np.ndarray  # which label each point has


def search_report(outcome: Outcome, path: Path, history: list[Progress] | None = None) -> Path:
    """A search as a page that opens offline; `history` is its progress after each round."""
    seen = outcome.evaluated()
    worth = worths(outcome.goal, seen) if len(seen) else np.empty(0)
    kinds = traits(outcome.space, seen.digits) if len(seen) else []
    parts = [_headline(outcome), _best(outcome)]
    figures: list[tuple[str, str, Any, int]] = []
    if history and np.isfinite([h.best for h in history]).any():
        figures.append(("How the answer came", _came_words(outcome), came_figure(outcome.goal, history), 340))
    if np.any(worth > 0):
        figures += _pictures(outcome, seen, worth, kinds)
    for place, (heading, said, figure, height) in enumerate(figures):
        parts.append(
            f"<h2>{html.escape(heading)}</h2><p class=dim>{html.escape(said)}</p>{picture(figure, place == 0, height)}"
        )
    if len(outcome.goal.metrics) > 1 and outcome.found:
        parts.append(_frontier_table(outcome))
    if len(seen):
        parts.append(_empty(outcome, seen, kinds, first=not figures))
    if outcome.found:
        axes, _ = outcome.gains()
        more = f"What 10 % more of each axis buys in {_name(outcome.goal.metrics[0])} at the best point"
        parts += [
            f"<h2>{html.escape(more)}</h2>",
            _gains(axes),
            "<h2>The best point as a prediction</h2>",
            *prediction_parts(outcome.result(), False),
        ]
    return keep(path, page(f"Strata search: {outcome.space.title or outcome.space.name}", parts))


def _pictures(
    outcome: Outcome, seen: Evaluated, worth: np.ndarray, kinds: list[Trait]
) -> list[tuple[str, str, Any, int]]:
    """Heading, words, picture and height of what shows the points."""
    first, second = trade(outcome.goal)
    several = len(outcome.goal.metrics) > 1
    said = "Dots are points that fit and keep the limits; the line joins those that no other beats in both."
    made = [
        (
            f"{'Frontier' if several else 'Trade'}: {_name(first)} against {_name(second)}",
            said,
            cloud_figure(outcome, seen, first, second),
            460,
        )
    ]
    if not kinds:
        return made
    matters = sorted(((importance(t, worth), t) for t in kinds), key=lambda pair: -pair[0])
    shares = [max(share, 0.0) * 100 for share, _ in matters]
    bar = bars(
        [t.name for _, t in matters], shares, [f"{s:.0f} %" for s in shares], "#4c72b0", "% of the variance"
    )
    goal = _name(outcome.goal.metrics[0])
    ordered = [t for _, t in matters]
    sampled = "A sampler that looks where it is good has seen little of the rest."
    return [
        *made,
        (
            "What matters",
            f"The share of the variance of log {goal} over the points that are in which the choice of one axis alone explains. {sampled}",
            bar,
            90 + 26 * len(matters),
        ),
        (
            f"Best {goal} with each choice",
            "Relative to the best of all. A steep line is a choice that must be right; a flat one is free.",
            choices_figure(ordered, worth),
            130 + 150 * -(-len(ordered) // 4),
        ),
        (
            "Designs",
            f"A line a design, the {min(THREADS, int(np.sum(worth > 0))):,} best of those evaluated; dark is best. Drag along an axis to keep part of it.",
            threads_figure(outcome.goal, ordered, seen, worth),
            480,
        ),
    ]


# ------------------------------------------------------------------------------------------------ what points
# are


def worths(goal: Goal, seen: Evaluated) -> np.ndarray:
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
        share = values / best if goal.larger[0] else best / values
    return np.where(inside & np.isfinite(share), share, 0.0)


def traits(space: Space, digits: np.ndarray) -> list[Trait]:
    """What tells these points apart: axes, and of plans each of their degrees; not what only repeats another."""
    found = []
    for i, axis in enumerate(space.axes):
        at = digits[:, i]
        if axis.kind != "plan":
            found.append(
                _trait(axis.name, at, [f"x {text}" if axis.kind == "times" else text for text in axis.labels])
            )
            continue
        for name, column_of in zip(PLAN_FIELDS, np.array(axis.values, float).T, strict=True):
            values, codes = np.unique(column_of, return_inverse=True)
            words = ["-".join(o) for o in ORDERS] if name == "order" else WORDS.get(name)
            found.append(
                _trait(
                    f"{axis.name}.{name}", codes[at], [words[int(v)] if words else f"{v:g}" for v in values]
                )
            )
    apart: dict[bytes, Trait] = {}
    for trait in found:
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


def trade(goal: Goal) -> tuple[str, str]:
    """The two metrics of the cloud: the goal's own, or the goal and what it is most often paid with."""
    if len(goal.metrics) > 1:
        return goal.metrics[0], goal.metrics[1]
    paid = {"energy_per_token": "tokens_per_s", "tokens_per_joule": "tokens_per_s"}
    return goal.metrics[0], paid.get(goal.metrics[0], "energy_per_token")


# ------------------------------------------------------------------------------------------------ pictures


def cloud_figure(outcome: Outcome, seen: Evaluated, first: str, second: str) -> Any:
    """Points that are in, by two metrics, and those that no other beats in both."""
    from strata.search.goal import Goal, frontier

    pair = Goal((first, second), outcome.goal.limits)
    scores = pair.scores(seen)
    inside = np.flatnonzero(np.isfinite(scores).all(axis=1))
    kept = frontier(scores)
    ends = np.flatnonzero(kept)
    ends = ends[np.argsort(scores[ends, 0])]
    x, y = column(seen.columns, second), column(seen.columns, first)
    dots = np.random.default_rng(0).permutation(inside)[:DOTS]
    figure = _plotly().Figure()
    figure.add_scatter(
        x=_told(x[dots], second),
        y=_told(y[dots], first),
        mode="markers",
        name="points",
        marker={"size": 4, "color": GREY},
        hoverinfo="skip",
    )
    hover = [_design(outcome.space, seen.digits[i]) for i in ends]
    figure.add_scatter(
        x=_told(x[ends], second),
        y=_told(y[ends], first),
        mode="lines+markers",
        name="no other beats",
        text=hover,
        line={"color": GOOD},
        hovertemplate="%{text}<br>%{x}, %{y}<extra></extra>",
    )
    if outcome.found:
        best = outcome.frontier.columns
        figure.add_scatter(
            x=_told(column(best, second)[:1], second),
            y=_told(column(best, first)[:1], first),
            mode="markers",
            name=f"best {_name(first)}",
            marker={"size": 13, "color": "#c44e52", "symbol": "star"},
            hoverinfo="skip",
        )
    figure.update_xaxes(title=_titled(second), **_spread(x[inside]))
    figure.update_yaxes(title=_titled(first), **_spread(y[inside]))
    return figure


def choices_figure(ordered: list[Trait], worth: np.ndarray) -> Any:
    """For each trait, the best worth found with each of its choices."""
    from plotly.subplots import make_subplots

    across = min(4, len(ordered))
    down = -(-len(ordered) // across)
    figure = make_subplots(
        rows=down,
        cols=across,
        subplot_titles=[t.name for t in ordered],
        vertical_spacing=0.42 / max(down, 1),
        horizontal_spacing=0.05,
    )
    for place, trait in enumerate(ordered):
        best = np.zeros(len(trait.labels))
        np.maximum.at(best, trait.of, worth)
        row, col = place // across + 1, place % across + 1
        shown = [None if b == 0 else float(f"{b:.4g}") for b in best]
        figure.add_scatter(
            x=list(range(len(best))),
            y=shown,
            mode="lines+markers",
            line={"color": GOOD},
            marker={"size": 5},
            showlegend=False,
            row=row,
            col=col,
            text=list(trait.labels),
            hovertemplate="%{text}: %{y:.3f}<extra></extra>",
        )
        step = -(-len(best) // 6)
        figure.update_xaxes(
            tickvals=list(range(0, len(best), step)),
            ticktext=list(trait.labels[::step]),
            tickfont={"size": 10},
            row=row,
            col=col,
        )
        figure.update_yaxes(range=[0, 1.08], tickvals=[0, 0.5, 1], tickfont={"size": 10}, row=row, col=col)
    figure.update_annotations(font={"size": 12})
    return figure


def threads_figure(goal: Goal, ordered: list[Trait], seen: Evaluated, worth: np.ndarray) -> Any:
    """Parallel coordinates of the best designs: a line a point over what tells them apart and the metrics of
    the goal.
    """
    go = _plotly()
    which = np.argsort(-worth, kind="stable")[: min(THREADS, int(np.sum(worth > 0)))]
    which = which[::-1]  # the best are drawn last, above the others
    lines = []
    for trait in ordered:
        if len(np.unique(trait.of[which])) == 1:
            continue
        step = -(-len(trait.labels) // LABELS)
        ticks = list(range(0, len(trait.labels), step))
        lines.append(
            {
                "label": trait.name,
                "values": trait.of[which].tolist(),
                "range": [0, len(trait.labels) - 1],
                "tickvals": ticks,
                "ticktext": [trait.labels[k] for k in ticks],
            }
        )
    lines += [{"label": _name(m), "values": _told(column(seen.columns, m)[which], m)} for m in goal.metrics]
    low, inner = float(worth[which].min()), {"x": [0.0, 0.96], "y": [0.06, 0.97]}  # room for slanting labels
    colour = {
        "color": worth[which].tolist(),
        "cmin": low,
        "cmax": 1.0,
        "colorscale": [[0, POOR], [0.7, LINES[4]], [1, GOOD]],
        "showscale": False,
    }
    figure = go.Figure(
        go.Parcoords(
            dimensions=lines,
            line=colour,
            domain=inner,
            labelangle=-20,
            labelside="bottom",
            tickfont={"size": 10},
        )
    )
    return figure


def came_figure(goal: Goal, history: list[Progress]) -> Any:
    """The best found and the proven bound over time."""
    figure = _plotly().Figure()
    step = -(-len(history) // 1000)
    kept = [*history[:-1:step], history[-1]]
    seconds = [h.seconds for h in kept]
    metric = goal.metrics[0]
    for name, values, colour in (
        ("best found", [h.best for h in kept], GOOD),
        ("proven bound", [h.bound for h in kept], "#c44e52"),
    ):
        if np.isfinite(values).any():
            told = [
                None if not np.isfinite(v) else t
                for v, t in zip(values, _told(np.array(values), metric), strict=True)
            ]
            figure.add_scatter(
                x=seconds,
                y=told,
                mode="lines+markers",
                name=name,
                line={"color": colour, "shape": "hv"},
                marker={"size": 4},
            )
    figure.update_xaxes(title="seconds", rangemode="tozero")
    figure.update_yaxes(title=_titled(metric))
    return figure


def _came_words(outcome: Outcome) -> str:
    if outcome.gap != outcome.gap:
        return "This sampler proves nothing: there may be better points than the best found."
    metric = outcome.goal.metrics[0]
    return f"Proven: no point is better than {show(outcome.bound, GOAL_UNITS[metric])}, {outcome.gap:.2%} from the best found."


# ------------------------------------------------------------------------------------------------ tables


def _headline(outcome: Outcome) -> str:
    size = outcome.space.size
    told = f"{size:,}" if size < 1e9 else f"{size:.3g}"
    lines = [
        f"{outcome.goal.words()}, of {told} points in the space {outcome.space.name}.",
        f"{outcome.rows:,} points evaluated in {outcome.rounds:,} rounds and {outcome.seconds:.1f} s; {outcome.ended}. {_came_words(outcome)}",
    ]
    return "".join(
        f"<p>{html.escape(line)}</p>"
        for line in (*lines, *([outcome.space.note] if outcome.space.note else []))
    )


def _best(outcome: Outcome) -> str:
    """The best design: what each axis chose, of what, and what that delivers."""
    if not outcome.found:
        return "<h2>No point fits and keeps the limits</h2><p>Why, is said below. Levers: looser limits, more choices, a larger budget.</p>"
    point = outcome.best
    rows = []
    for axis in outcome.space.axes:
        ends = (
            f"{axis.labels[0]} ... {axis.labels[-1]}"
            if axis.ordered and len(axis) > 1
            else f"{len(axis):,} choices"
            if len(axis) > 1
            else "fixed"
        )
        fields = axis.fields[0] + (f" and {len(axis.fields) - 1} more" if len(axis.fields) > 1 else "")
        rows.append(
            [axis.name, ("x " if axis.kind == "times" else "") + point["design"][axis.name], ends, fields]
        )
    skipped = PHASE_SKIPS[outcome.space.question.phase]
    wanted = [
        *outcome.goal.metrics,
        *outcome.goal.limits,
        *(m for m in SHOWN if m not in skipped),
        "device_power",
        "memory_used",
        "die_area",
    ]
    metrics = []
    for name in dict.fromkeys(wanted):
        value = float(column(outcome.frontier.columns, name)[0])
        if value == value:
            metrics.append([_name(name), _shown(value, name)])
    heading = (
        "Best design"
        if len(outcome.goal.metrics) == 1
        else f"The design with the best {_name(outcome.goal.metrics[0])}"
    )
    tables = (
        rows_table(["axis", "choice", "from", "field"], rows, (0, 1, 2, 3)),
        rows_table(["it delivers", ""], metrics),
    )
    return f"<h2>{html.escape(heading)}</h2><div style='display:flex;flex-wrap:wrap;gap:2rem'>{''.join(f'<div>{t}</div>' for t in tables)}</div>"


def _frontier_table(outcome: Outcome) -> str:
    """Points that no other beats: their metrics, and the axes in which they differ."""
    count = min(len(outcome.frontier), FRONTIER_ROWS)
    places = np.unique(np.rint(np.linspace(0, len(outcome.frontier) - 1, count)).astype(int))
    points = [outcome.point(int(i)) for i in places]
    varied = [n for n in points[0]["design"] if len({p["design"][n] for p in points}) > 1]
    rows = [
        [*(_shown(p["metrics"][m], m) for m in outcome.goal.metrics), *(p["design"][n] for n in varied)]
        for p in points
    ]
    words = tuple(range(len(outcome.goal.metrics), len(outcome.goal.metrics) + len(varied)))
    said = f"{len(outcome.frontier):,} points that no other beats" + (
        f", {len(points)} of them" if len(points) < len(outcome.frontier) else ""
    )
    return f"<h2>{said}</h2>" + rows_table([*(_name(m) for m in outcome.goal.metrics), *varied], rows, words)


def _empty(outcome: Outcome, seen: Evaluated, kinds: list[Trait], first: bool) -> str:
    """Why points are out, and the choices with which all or most are."""
    total = sum(outcome.counts.values())
    if not total:
        return (
            "<h2>Why regions are empty</h2><p>None is: every point evaluated fits and keeps the limits.</p>"
        )
    most = list(outcome.counts.items())[:REASON_BARS]
    figure = bars(
        [_cut(words) for words, _ in most],
        [c for _, c in most],
        [f"{c / outcome.rows:.1%}" for _, c in most],
        "#c44e52",
        "points",
    )
    said = np.asarray(outcome.goal.reasons(seen), dtype=object)
    out = np.array([bool(words) for words in said])
    usual = float(out.mean()) * 1.1  # a choice that is told is worse than most
    rows = []
    for trait in kinds:
        for place, label in enumerate(trait.labels):
            here = trait.of == place
            share = float(out[here].mean())
            if share >= max(0.5, usual):
                why, count = Counter(said[here & out]).most_common(1)[0]
                rows.append(
                    (
                        share,
                        int(here.sum()),
                        [
                            f"{trait.name} {label}",
                            f"{int(here.sum()):,}",
                            f"{share:.0%}",
                            f"{why} ({count / here.sum():.0%})",
                        ],
                    )
                )
    rows.sort(key=lambda row: (-row[0], -row[1]))
    table = (
        rows_table(
            ["choice", "points", "out", "most often because"],
            [row for _, _, row in rows[:EMPTY_ROWS]],
            (0, 3),
        )
        if rows
        else ""
    )
    told = f"{total:,} of {outcome.rows:,} points are out." + (
        " Choices with which most of them are:" if rows else " No choice by itself makes the difference."
    )
    return f"<h2>Why regions are empty</h2>{picture(figure, first, 90 + 28 * len(most))}<p>{told}</p>{table}"


def _gains(gains: list[Gain]) -> str:
    """A line for each numeric axis; where more is not legal, why."""
    rows = [
        [g.resource, f"{g.more:+.0%}", f"{g.speedup:+.1%}" if not g.note else "out", g.note] for g in gains
    ]
    return rows_table(["axis", "more", "buys", ""], rows, (0, 3))


# ------------------------------------------------------------------------------------------------ words and
# numbers


def _name(metric: str) -> str:
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def _shown(value: float, metric: str) -> str:
    return f"{value:.1%}" if metric in ("mfu", "mbu") else show(value, GOAL_UNITS[metric])


def _told(values: np.ndarray, metric: str) -> list[float]:
    """Numbers of a picture's axis, to four digits, in the unit `_titled` names: °C for kelvin, mm2 for m2."""
    unit = GOAL_UNITS[metric]
    scaled = values - 273.15 if unit == "K" else values * 1e6 if unit == "m2" else values
    return [float(f"{v:.4g}") for v in scaled]


def _titled(metric: str) -> str:
    unit = {"1": "", "K": "°C", "m2": "mm2"}.get(GOAL_UNITS[metric], GOAL_UNITS[metric])
    return _name(metric) + (f" [{unit}]" if unit else "")


def _spread(values: np.ndarray) -> dict[str, Any]:
    """A logarithmic axis where values span more than a factor of 20."""
    positive = values[values > 0]
    wide = len(positive) == len(values) and len(values) and values.max() > 20 * values.min()
    return {"type": "log", "exponentformat": "SI"} if wide else {"exponentformat": "SI"}


def _design(space: Space, digits: np.ndarray) -> str:
    return "<br>".join(
        f"{a.name} {html.escape(a.labels[int(d)])}"
        for a, d in zip(space.axes, digits, strict=True)
        if len(a) > 1
    )


def _cut(text: str, most: int = 70) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
