"""A search, and its page: where it stands, what it found, how sure that is, what more would buy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.render import page, search_figures
from strata.app.render.prediction import metric_label, metric_text, shown_metrics
from strata.app.render.prediction_report import prediction_parts
from strata.app.render.tables import picked, rows_table
from strata.app.terminal import titled, words
from strata.base.units import show
from strata.search.goal import GOAL_METRICS, metric_column

if TYPE_CHECKING:
    from strata.search.outcome import Progress, SearchOutcome
    from strata.search.points import Evaluated
    from strata.search.run import Search
    from strata.search.sensitivity import Gain

SHOWN_POINTS = 20
FRONTIER_ROWS, EMPTY_ROWS, REASON_BARS = 20, 24, 8  # shown at most


def progress_line(searching: Search, at: Progress) -> Any:
    """Where a search stands, in a line."""
    metric = searching.goal.metrics[0]
    unit = GOAL_METRICS[metric].unit
    parts = [f"round {at.rounds:,}", f"{at.rows:,} points"]
    parts += [*([f"{at.bounded:,} bounds"] if at.bounded else []), f"{at.rate:,.0f}/s"]
    parts += [f"best {metric} {show(at.best, unit)}"] if at.best == at.best else ["nothing fits yet"]
    if at.bound == at.bound:
        parts += [f"bound {show(at.bound, unit)}", f"gap {at.gap:.2%}", f"{at.open:,} regions open"]
    parts += [f"{clock_text(at.seconds)} gone"]
    parts += [f"{clock_text(at.left)} left"] if at.left == at.left else []
    return words("  ".join(parts))


def clock_text(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> clock_text(75.2), clock_text(3661)
    ('1:15', '1:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def search_tables(outcome: SearchOutcome) -> list[Any]:
    """What was found, how sure that is, what is out and why, and what more would buy."""
    best = _one(outcome) if len(outcome.goal.metrics) == 1 else _several(outcome)
    title = f"{outcome.goal.words()}: {outcome.space.title or outcome.space.name}\n{_said(outcome)}"
    out = ["", _out(outcome)] if outcome.counts else []
    remarks = ["", *outcome.remarks] if outcome.remarks else []
    axes, resources = outcome.gains()
    first, bound = outcome.goal.metrics[0], outcome.result().bound_by
    of_axes = f"What 10 % more of each axis buys in {first} at the best point, all that follows from it "
    of_resources = "What 10 % more of each resource buys in speed there; most of its time is credited to "
    gains = [_gains(f"{of_axes}included", axes), "", _gains(f"{of_resources}{bound}", resources)]
    return [titled(title, best), *out, *remarks, "", *gains]


def search_why(outcome: SearchOutcome) -> dict[str, Any]:
    """The same for machines: bottleneck and gains at the best point."""
    fields = "what=resource more gain=speedup note"
    told: dict[str, Any] = {"bound_by": outcome.result().bound_by}
    for name, gains in zip(("gains_of_axes", "gains_of_resources"), outcome.gains(), strict=True):
        told[name] = [picked(gain, fields) for gain in gains]
    return told | {"remarks": outcome.remarks}


def _said(outcome: SearchOutcome) -> str:
    proof = "nothing is proven" if outcome.gap != outcome.gap else "proven: no point of the space is better"
    if outcome.gap > 0:
        bound = show(outcome.bound, GOAL_METRICS[outcome.goal.metrics[0]].unit)
        proof = f"proven: no point is better than {bound} ({outcome.gap:.2%} away)"
    if len(outcome.goal.metrics) > 1 and outcome.gap == outcome.gap:
        near = f"one of these is at least as good as any other point, to {outcome.gap:.2%} in each"
        proof = f"proven: {near if outcome.gap > 0 else 'no other point belongs here'}"
    kept = f", kept in {outcome.out}" if outcome.out else ""
    evaluated = f"{outcome.rows:,} evaluated in {outcome.rounds:,} rounds{kept}"
    parts = [f"{size_text(outcome)} points in the space, {evaluated}", outcome.ended, proof, *outcome.notes]
    return "; ".join(parts)


def size_text(outcome: SearchOutcome) -> str:
    """How many points a space has."""
    return f"{outcome.space.size:,}" if outcome.space.size < 1e9 else f"{outcome.space.size:.3g}"


def listed_metrics(outcome: SearchOutcome) -> list[str]:
    """Metrics worth a line: those of the goal and of its limits first, then what its phase has."""
    wanted = [*outcome.goal.metrics, *outcome.goal.limits, *shown_metrics(outcome.space.scenario.phase)]
    return list(dict.fromkeys([*wanted, "device_power", "memory_used"]))


def _value(point: dict[str, Any], metric: str) -> str:
    value = point["metrics"].get(metric, float("nan"))
    return "" if value != value else metric_text(value, metric)


def _one(outcome: SearchOutcome) -> Any:
    point, space = outcome.best, outcome.space
    times = {axis.name for axis in space.axes if axis.kind == "times"}
    rows = [(name, f"x {label}" if name in times else label) for name, label in point["design"].items()]
    values = ((metric_label(metric), _value(point, metric)) for metric in listed_metrics(outcome))
    rows += [("", ""), *((label, text) for label, text in values if text)]
    made = rows_table("<|", rows, headed=False)
    made.columns[0].style, made.columns[1].style = "dim", "bold"
    return made


def _several(outcome: SearchOutcome) -> Any:
    """The frontier, a line a point: metrics, and the axes in which its points differ."""
    count, goal = len(outcome.frontier), outcome.goal.metrics
    points = [outcome.point(i) for i in range(min(count, SHOWN_POINTS))]
    designs = [point["design"] for point in points]
    varied = varied_axes(points)
    same = {n: label for n, label in designs[0].items() if n not in varied}
    rows = ([*(_value(p, m) for m in goal), *(p["design"][n] for n in varied)] for p in points)
    made = rows_table([*(f">{metric_label(m)}" for m in goal), *varied], rows)
    for place, column in enumerate(made.columns):
        column.style = "bold" if place < len(goal) else "dim"
    more = f"{count - len(points)} more points on the frontier\n" if count > len(points) else ""
    below = more + ("all have " + ", ".join(f"{k} {v}" for k, v in same.items()) if same else "")
    heading = "1 point that no other beats" if count == 1 else f"{count:,} points that no other beats"
    return titled(heading, made, below.strip())


def varied_axes(points: list[dict[str, Any]]) -> list[str]:
    """The axes in which points differ."""
    return [n for n in points[0]["design"] if len({p["design"][n] for p in points}) > 1]


def _out(outcome: SearchOutcome) -> Any:
    rows = []
    for rule, (points, alone) in outcome.reasons.items():
        rows.append((f"{points:,}", rule, f"{alone:,} by this alone" if alone < points else ""))
    made = rows_table(">||<", rows, headed=False)
    made.columns[2].style = "dim"
    return titled(f"{sum(outcome.counts.values()):,} of {outcome.rows:,} points are out", made)


def _gains(title: str, gains: list[Gain]) -> Any:
    rows, styles = [], []
    for gain in gains:
        out = gain.speedup != gain.speedup
        bought = f"out: {gain.note}" if out else gain.note or f"{gain.speedup:+.1%}"
        odd = abs(gain.more - 0.1) > 1e-3
        rows.append((gain.resource + (f" ({gain.more:+.0%})" if odd else ""), bought))
        styles.append("dim" if gain.note or gain.speedup < 0.005 else "")
    return titled(title, rows_table("|>", rows, styles, headed=False))


def why_no_design(outcome: SearchOutcome) -> str:
    """Why there is no answer, in one line."""
    kept = f"fits and keeps the limits ({outcome.goal.words()})"
    levers = "levers: looser limits, more choices"
    if outcome.bound == -outcome.goal.value(float("inf")):
        return f"proven: no point of {outcome.space.name} {kept}; {levers}"
    if not outcome.rows:
        return f"no point of {outcome.space.name} was evaluated"
    most = "; ".join(f"{points:,} x {rule}" for rule, (points, _) in list(outcome.reasons.items())[:3])
    return f"none of {outcome.rows:,} points {kept}: {most}; {levers}, --budget"


def search_report(outcome: SearchOutcome, path: Path, history: list[Progress] | None = None) -> Path:
    """A search as a page that opens offline; `history` is its progress after each round."""
    seen = outcome.evaluated()
    worth = search_figures.relative_worths(outcome.goal, seen) if len(seen) else np.empty(0)
    kinds = search_figures.traits_of(outcome.space, seen.digits) if len(seen) else []
    parts = [_headline(outcome), _best(outcome)]
    if np.any(worth > 0):
        parts += _pictures_html(outcome, seen, worth, kinds)
    known = np.isfinite([h.best for h in history or []])
    if history and known.any():
        drawn = ""  # a single round is no line
        if known.sum() > 1:
            drawn = page.figure_html(search_figures.came_figure(outcome.goal, history), 340, "progress")
        parts.append(
            page.section("How the answer came", page.paragraphs([_came_words(outcome)], "dim"), drawn)
        )
    if len(outcome.goal.metrics) > 1 and outcome.found:
        parts.append(_frontier_table(outcome))
    if len(seen):
        parts.append(_empty(outcome, seen, kinds))
    if outcome.found:
        first = metric_label(outcome.goal.metrics[0])
        parts += [
            page.section(
                f"What 10 % more of each axis buys in {first} at the best point", _gains_html(outcome)
            ),
            page.section("The best point as a prediction", *prediction_parts(outcome.result())),
        ]
    return page.write_page(path, f"Strata search: {outcome.space.title or outcome.space.name}", parts)


def _pictures_html(
    outcome: SearchOutcome, seen: Evaluated, worth: np.ndarray, kinds: list[search_figures.Trait]
) -> list[str]:
    """What shows the points: the cloud, what matters, choices alone and in pairs, designs."""
    first, second = search_figures.trade_metrics(outcome.goal)
    several = len(outcome.goal.metrics) > 1
    legend = "Dots are points that fit and keep the limits; the line joins those that no other beats in "
    legend += "both. The frame holds the line and most of the dots; a double click shows all."
    heading = f"{'Frontier' if several else 'Trade'}: {metric_label(first)} against {metric_label(second)}"
    chart = page.figure_html(search_figures.cloud_figure(outcome, seen, first, second), 460, "frontier")
    cloud = [page.section(heading, page.paragraphs([legend], "dim"), chart)]
    if not kinds:
        return cloud
    matters = sorted(((search_figures.importance(t, worth), t) for t in kinds), key=lambda pair: -pair[0])
    goal = metric_label(outcome.goal.metrics[0])
    ordered = [t for _, t in matters]
    explained = (
        f"The share of the variance of log {goal} over the points that are in which the choice of one axis "
        "alone explains. A sampler that looks where it is good has seen little of the rest."
    )
    relative = "Relative to the best of all. Where cells differ much, the choice must be right."
    pair, heat = search_figures.pair_html(ordered, worth)
    choices = search_figures.choices_html(ordered, worth)
    shown = min(search_figures.THREADS, int(np.sum(worth > 0)))
    lines = f"A line a design, the {shown:,} best of those evaluated over the {search_figures.AXES} axes "
    lines += "that matter most at most; strong is best. Drag along an axis to keep part of it."
    drawn = search_figures.threads_figure(outcome.goal, ordered, seen, worth)
    threads = page.figure_html(drawn, 480, "designs", least=760)
    shares = [(t.name, max(share, 0.0) * 100) for share, t in matters]
    bars = page.bars_html([(name, share, f"{share:.0f} %") for name, share in shares])
    return [
        *cloud,
        page.section("What matters", page.paragraphs([explained], "dim"), bars),
        page.section(f"Best {goal} with each choice", page.paragraphs([relative], "dim"), choices),
        page.section(f"Best {goal} over {pair}", page.paragraphs([relative], "dim"), heat) if heat else "",
        page.section("Designs", page.paragraphs([lines], "dim"), threads),
    ]


def _came_words(outcome: SearchOutcome) -> str:
    if outcome.gap != outcome.gap:
        return "This sampler proves nothing: there may be better points than the best found."
    bound = show(outcome.bound, GOAL_METRICS[outcome.goal.metrics[0]].unit)
    return f"Proven: no point is better than {bound}, {outcome.gap:.2%} from the best found."


def _headline(outcome: SearchOutcome) -> str:
    rounds = f"{outcome.rounds:,} rounds and {outcome.seconds:.1f} s; {outcome.ended}"
    lines = [
        f"{outcome.goal.words()}, of {size_text(outcome)} points in the space {outcome.space.name}.",
        f"{outcome.rows:,} points evaluated in {rounds}. {_came_words(outcome)}",
    ]
    return page.paragraphs([*lines, outcome.space.note or ""])


def _best(outcome: SearchOutcome) -> str:
    """The best design: what each axis chose, of what, and what that delivers."""
    if not outcome.found:
        text = "Why, is said below. Levers: looser limits, more choices, a larger budget."
        return page.section("No point fits and keeps the limits", page.paragraphs([text]))
    rows = []
    for axis in outcome.space.axes:
        ends = "fixed"
        if len(axis) > 1:
            ends = f"{axis.labels[0]} ... {axis.labels[-1]}" if axis.ordered else f"{len(axis):,} choices"
        fields = axis.fields[0] + (f" and {len(axis.fields) - 1} more" if len(axis.fields) > 1 else "")
        chosen = ("x " if axis.kind == "times" else "") + outcome.best["design"][axis.name]
        rows.append([axis.name, chosen, ends, fields])
    metrics = []
    for name in dict.fromkeys([*listed_metrics(outcome), "die_area"]):
        value = float(metric_column(outcome.frontier.columns, name)[0])
        if value == value:
            metrics.append([metric_label(name), metric_text(value, name), ""])
    several = f"The design with the best {metric_label(outcome.goal.metrics[0])}"
    heading = "Best design" if len(outcome.goal.metrics) == 1 else several
    table = page.html_table(["axis", "choice", "from", "field"], rows, (0, 1, 2, 3))
    return page.section(heading, page.cards_html(metrics), table)


def _frontier_table(outcome: SearchOutcome) -> str:
    """Points that no other beats: their metrics, and the axes in which they differ."""
    many, goal = len(outcome.frontier), outcome.goal.metrics
    places = np.unique(np.rint(np.linspace(0, many - 1, min(many, FRONTIER_ROWS))).astype(int))
    points = [outcome.point(int(i)) for i in places]
    varied = varied_axes(points)
    rows = []
    for p in points:
        rows.append([*(metric_text(p["metrics"][m], m) for m in goal), *(p["design"][n] for n in varied)])
    header = [*(metric_label(m) for m in goal), *varied]
    few = f", {len(points)} of them" if len(points) < many else ""
    heading = f"{many:,} points that no other beats{few}"
    return page.section(heading, page.html_table(header, rows, range(len(goal), len(header))))


def _empty(outcome: SearchOutcome, seen: Evaluated, kinds: list[search_figures.Trait]) -> str:
    """Why points are out, and the choices with which all or most are."""
    heading, total = "Why regions are empty", sum(outcome.counts.values())
    if not total:
        return page.section(
            heading, page.paragraphs(["None is: every point evaluated fits and keeps the limits."])
        )
    most = list(outcome.counts.items())[:REASON_BARS]
    bars = page.bars_html(
        [(why, c, f"{c:,} points, {c / outcome.rows:.1%}") for why, c in most], "var(--bad)"
    )
    reasons = np.asarray(outcome.goal.reasons(seen), dtype=object)
    out = np.array([bool(words) for words in reasons])
    usual = float(out.mean()) * 1.1  # a choice that is told is worse than most
    rows = []
    for trait in kinds:
        for place, label in enumerate(trait.labels):
            here = trait.of == place
            share, count = float(out[here].mean()), int(here.sum())
            if share >= max(0.5, usual):
                why, often = Counter(reasons[here & out]).most_common(1)[0]
                cells = [f"{trait.name} {label}", f"{count:,}", f"{share:.0%}"]
                rows.append((share, count, [*cells, f"{why} ({often / count:.0%})"]))
    rows.sort(key=lambda row: (-row[0], -row[1]))
    told = f"{total:,} of {outcome.rows:,} points are out."
    if not rows:
        return page.section(
            heading, bars, page.paragraphs([f"{told} No choice by itself makes the difference."])
        )
    told += " Choices with which most of them are:"
    header = ["choice", "points", "out", "most often because"]
    table = page.html_table(header, [cells for *_, cells in rows[:EMPTY_ROWS]], (0, 3))
    return page.section(heading, bars, page.paragraphs([told]), table)


def _gains_html(outcome: SearchOutcome) -> str:
    """A line for each numeric axis; where more is not legal, why."""
    rows = []
    for g in outcome.gains()[0]:
        rows.append([g.resource, f"{g.more:+.0%}", "out" if g.note else f"{g.speedup:+.1%}", g.note])
    return page.html_table(["axis", "more", "buys", ""], rows, (0, 3))
