"""A search as a page: the best design, how sure that is, the frontier, what matters, and why regions are
empty.
"""

from __future__ import annotations

import html
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.render.metrics import metric_label, metric_text, shown_metrics
from strata.app.render.page import bars_figure, figure_html, html_page, html_table
from strata.app.render.prediction_report import prediction_parts
from strata.app.render.search_figures import (
    THREADS,
    came_figure,
    choices_figure,
    cloud_figure,
    threads_figure,
)
from strata.app.render.search_traits import Trait, importance, relative_worths, trade_metrics, traits_of
from strata.drawing import keep
from strata.search.derived_metrics import GOAL_METRICS, metric_column
from strata.units import show

if TYPE_CHECKING:
    from strata.search.outcome import Progress, SearchOutcome
    from strata.search.points import Evaluated
    from strata.search.sensitivity import Gain


FRONTIER_ROWS, EMPTY_ROWS, REASON_BARS = 20, 24, 8  # shown at most


def search_report(outcome: SearchOutcome, path: Path, history: list[Progress] | None = None) -> Path:
    """A search as a page that opens offline; `history` is its progress after each round."""
    seen = outcome.evaluated()
    worth = relative_worths(outcome.goal, seen) if len(seen) else np.empty(0)
    kinds = traits_of(outcome.space, seen.digits) if len(seen) else []
    parts = [_headline(outcome), _best(outcome)]
    figures: list[tuple[str, str, Any, int]] = []
    if history and np.isfinite([h.best for h in history]).any():
        figures.append(("How the answer came", _came_words(outcome), came_figure(outcome.goal, history), 340))
    if np.any(worth > 0):
        figures += _pictures(outcome, seen, worth, kinds)
    for place, (heading, said, figure, height) in enumerate(figures):
        parts.append(
            f"<h2>{html.escape(heading)}</h2><p "
            f"class=dim>{html.escape(said)}</p>{figure_html(figure, place == 0, height)}"
        )
    if len(outcome.goal.metrics) > 1 and outcome.found:
        parts.append(_frontier_table(outcome))
    if len(seen):
        parts.append(_empty(outcome, seen, kinds, first=not figures))
    if outcome.found:
        axes, _ = outcome.gains()
        more = (
            f"What 10 % more of each axis buys in {metric_label(outcome.goal.metrics[0])} at the best point"
        )
        parts += [
            f"<h2>{html.escape(more)}</h2>",
            _gains(axes),
            "<h2>The best point as a prediction</h2>",
            *prediction_parts(outcome.result(), False),
        ]
    return keep(path, html_page(f"Strata search: {outcome.space.title or outcome.space.name}", parts))


def _pictures(
    outcome: SearchOutcome, seen: Evaluated, worth: np.ndarray, kinds: list[Trait]
) -> list[tuple[str, str, Any, int]]:
    """Heading, words, picture and height of what shows the points."""
    first, second = trade_metrics(outcome.goal)
    several = len(outcome.goal.metrics) > 1
    said = "Dots are points that fit and keep the limits; the line joins those that no other beats in both."
    cloud = [
        (
            f"{'Frontier' if several else 'Trade'}: {metric_label(first)} against {metric_label(second)}",
            said,
            cloud_figure(outcome, seen, first, second),
            460,
        )
    ]
    if not kinds:
        return cloud
    matters = sorted(((importance(t, worth), t) for t in kinds), key=lambda pair: -pair[0])
    shares = [max(share, 0.0) * 100 for share, _ in matters]
    bar = bars_figure(
        [t.name for _, t in matters], shares, [f"{s:.0f} %" for s in shares], "#4c72b0", "% of the variance"
    )
    goal = metric_label(outcome.goal.metrics[0])
    ordered = [t for _, t in matters]
    sampled = "A sampler that looks where it is good has seen little of the rest."
    return [
        *cloud,
        (
            "What matters",
            f"The share of the variance of log {goal} over the points that are in which the choice of one "
            f"axis alone explains. {sampled}",
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
            f"A line a design, the {min(THREADS, int(np.sum(worth > 0))):,} best of those evaluated; dark is "
            "best. Drag along an axis to keep part of it.",
            threads_figure(outcome.goal, ordered, seen, worth),
            480,
        ),
    ]


def _came_words(outcome: SearchOutcome) -> str:
    if outcome.gap != outcome.gap:
        return "This sampler proves nothing: there may be better points than the best found."
    bound = show(outcome.bound, GOAL_METRICS[outcome.goal.metrics[0]].unit)
    return f"Proven: no point is better than {bound}, {outcome.gap:.2%} from the best found."


def _headline(outcome: SearchOutcome) -> str:
    size = outcome.space.size
    told = f"{size:,}" if size < 1e9 else f"{size:.3g}"
    lines = [
        f"{outcome.goal.words()}, of {told} points in the space {outcome.space.name}.",
        f"{outcome.rows:,} points evaluated in {outcome.rounds:,} rounds and {outcome.seconds:.1f} s; "
        f"{outcome.ended}. {_came_words(outcome)}",
    ]
    return "".join(
        f"<p>{html.escape(line)}</p>"
        for line in (*lines, *([outcome.space.note] if outcome.space.note else []))
    )


def _best(outcome: SearchOutcome) -> str:
    """The best design: what each axis chose, of what, and what that delivers."""
    if not outcome.found:
        return (
            "<h2>No point fits and keeps the limits</h2><p>Why, is said below. Levers: looser limits, "
            "more choices, a larger budget.</p>"
        )
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
    wanted = [*outcome.goal.metrics, *outcome.goal.limits, *shown_metrics(outcome.space.scenario.phase)]
    wanted += ["device_power", "memory_used", "die_area"]
    metrics = []
    for name in dict.fromkeys(wanted):
        value = float(metric_column(outcome.frontier.columns, name)[0])
        if value == value:
            metrics.append([metric_label(name), metric_text(value, name)])
    heading = (
        "Best design"
        if len(outcome.goal.metrics) == 1
        else f"The design with the best {metric_label(outcome.goal.metrics[0])}"
    )
    tables = (
        html_table(["axis", "choice", "from", "field"], rows, (0, 1, 2, 3)),
        html_table(["it delivers", ""], metrics),
    )
    return (
        f"<h2>{html.escape(heading)}</h2><div "
        f"style='display:flex;flex-wrap:wrap;gap:2rem'>{''.join(f'<div>{t}</div>' for t in tables)}</div>"
    )


def _frontier_table(outcome: SearchOutcome) -> str:
    """Points that no other beats: their metrics, and the axes in which they differ."""
    count = min(len(outcome.frontier), FRONTIER_ROWS)
    places = np.unique(np.rint(np.linspace(0, len(outcome.frontier) - 1, count)).astype(int))
    points = [outcome.point(int(i)) for i in places]
    varied = [n for n in points[0]["design"] if len({p["design"][n] for p in points}) > 1]
    rows = [
        [*(metric_text(p["metrics"][m], m) for m in outcome.goal.metrics), *(p["design"][n] for n in varied)]
        for p in points
    ]
    words = tuple(range(len(outcome.goal.metrics), len(outcome.goal.metrics) + len(varied)))
    said = f"{len(outcome.frontier):,} points that no other beats" + (
        f", {len(points)} of them" if len(points) < len(outcome.frontier) else ""
    )
    return f"<h2>{said}</h2>" + html_table(
        [*(metric_label(m) for m in outcome.goal.metrics), *varied], rows, words
    )


def _empty(outcome: SearchOutcome, seen: Evaluated, kinds: list[Trait], first: bool) -> str:
    """Why points are out, and the choices with which all or most are."""
    total = sum(outcome.counts.values())
    if not total:
        return (
            "<h2>Why regions are empty</h2><p>None is: every point evaluated fits and keeps the limits.</p>"
        )
    most = list(outcome.counts.items())[:REASON_BARS]
    figure = bars_figure(
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
        html_table(
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
    return (
        f"<h2>Why regions are empty</h2>{figure_html(figure, first, 90 + 28 * len(most))}<p>{told}</p>{table}"
    )


def _gains(gains: list[Gain]) -> str:
    """A line for each numeric axis; where more is not legal, why."""
    rows = [
        [g.resource, f"{g.more:+.0%}", f"{g.speedup:+.1%}" if not g.note else "out", g.note] for g in gains
    ]
    return html_table(["axis", "more", "buys", ""], rows, (0, 3))


def _cut(text: str, most: int = 70) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
