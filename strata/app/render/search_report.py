"""A search as a page: the best design, how sure that is, the frontier, what matters, and why regions are
empty.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from strata.app.render.metrics import metric_label, metric_text, shown_metrics
from strata.app.render.page import cards_html, figure_html, html_page, html_table, paragraphs, section
from strata.app.render.page_bars import bars_html
from strata.app.render.prediction_report import prediction_parts
from strata.app.render.search_figures import (
    AXES,
    THREADS,
    Trait,
    came_figure,
    choices_html,
    cloud_figure,
    importance,
    pair_html,
    relative_worths,
    threads_figure,
    trade_metrics,
    traits_of,
)
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
    if np.any(worth > 0):
        parts += _pictures(outcome, seen, worth, kinds)
    known = np.isfinite([h.best for h in history or []])
    if history and known.any():
        # a single round is no line
        drawn = figure_html(came_figure(outcome.goal, history), 340, "progress") if known.sum() > 1 else ""
        parts.append(section("How the answer came", paragraphs([_came_words(outcome)], "dim"), drawn))
    if len(outcome.goal.metrics) > 1 and outcome.found:
        parts.append(_frontier_table(outcome))
    if len(seen):
        parts.append(_empty(outcome, seen, kinds))
    if outcome.found:
        axes, _ = outcome.gains()
        more = (
            f"What 10 % more of each axis buys in {metric_label(outcome.goal.metrics[0])} at the best point"
        )
        parts += [
            section(more, _gains(axes)),
            section("The best point as a prediction", *prediction_parts(outcome.result())),
        ]
    return keep(path, html_page(f"Strata search: {outcome.space.title or outcome.space.name}", parts))


def _pictures(outcome: SearchOutcome, seen: Evaluated, worth: np.ndarray, kinds: list[Trait]) -> list[str]:
    """What shows the points: the cloud, what matters, choices alone and in pairs, designs."""
    first, second = trade_metrics(outcome.goal)
    several = len(outcome.goal.metrics) > 1
    said = "Dots are points that fit and keep the limits; the line joins those that no other beats in both. "
    said += "The frame holds the line and most of the dots; a double click shows all."
    heading = f"{'Frontier' if several else 'Trade'}: {metric_label(first)} against {metric_label(second)}"
    drawn = figure_html(cloud_figure(outcome, seen, first, second), 460, "frontier")
    cloud = [section(heading, paragraphs([said], "dim"), drawn)]
    if not kinds:
        return cloud
    matters = sorted(((importance(t, worth), t) for t in kinds), key=lambda pair: -pair[0])
    shares = [max(share, 0.0) * 100 for share, _ in matters]
    goal = metric_label(outcome.goal.metrics[0])
    ordered = [t for _, t in matters]
    sampled = "A sampler that looks where it is good has seen little of the rest."
    explained = (
        f"The share of the variance of log {goal} over the points that are in which the choice of one "
    )
    explained += f"axis alone explains. {sampled}"
    relative = "Relative to the best of all. Where cells differ much, the choice must be right."
    pair, heat = pair_html(ordered, worth)
    lines = f"A line a design, the {min(THREADS, int(np.sum(worth > 0))):,} best of those evaluated over the "
    lines += f"{AXES} axes that matter most at most; strong is best. Drag along an axis to keep part of it."
    threads = figure_html(threads_figure(outcome.goal, ordered, seen, worth), 480, "designs", least=760)
    bars = bars_html([t.name for t in ordered], shares, [f"{s:.0f} %" for s in shares])
    return [
        *cloud,
        section("What matters", paragraphs([explained], "dim"), bars),
        section(f"Best {goal} with each choice", paragraphs([relative], "dim"), choices_html(ordered, worth)),
        section(f"Best {goal} over {pair}", paragraphs([relative], "dim"), heat) if heat else "",
        section("Designs", paragraphs([lines], "dim"), threads),
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
    return paragraphs([*lines, outcome.space.note or ""])


def _best(outcome: SearchOutcome) -> str:
    """The best design: what each axis chose, of what, and what that delivers."""
    if not outcome.found:
        said = "Why, is said below. Levers: looser limits, more choices, a larger budget."
        return section("No point fits and keeps the limits", paragraphs([said]))
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
            metrics.append([metric_label(name), metric_text(value, name), ""])
    heading = (
        "Best design"
        if len(outcome.goal.metrics) == 1
        else f"The design with the best {metric_label(outcome.goal.metrics[0])}"
    )
    return section(
        heading, cards_html(metrics), html_table(["axis", "choice", "from", "field"], rows, (0, 1, 2, 3))
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
    return section(said, html_table([*(metric_label(m) for m in outcome.goal.metrics), *varied], rows, words))


def _empty(outcome: SearchOutcome, seen: Evaluated, kinds: list[Trait]) -> str:
    """Why points are out, and the choices with which all or most are."""
    total = sum(outcome.counts.values())
    if not total:
        none = "None is: every point evaluated fits and keeps the limits."
        return section("Why regions are empty", paragraphs([none]))
    most = list(outcome.counts.items())[:REASON_BARS]
    bars = bars_html(
        [words for words, _ in most],
        [c for _, c in most],
        [f"{c:,} points, {c / outcome.rows:.1%}" for _, c in most],
        "var(--bad)",
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
    return section("Why regions are empty", bars, paragraphs([told]), table)


def _gains(gains: list[Gain]) -> str:
    """A line for each numeric axis; where more is not legal, why."""
    rows = [
        [g.resource, f"{g.more:+.0%}", f"{g.speedup:+.1%}" if not g.note else "out", g.note] for g in gains
    ]
    return html_table(["axis", "more", "buys", ""], rows, (0, 3))
