"""A search for people and machines: where it stands, what it found, how sure that is, and what more would
buy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from strata.app.render.metrics import metric_label, metric_text, shown_metrics
from strata.app.terminal import plain_table, titled
from strata.search.derived_metrics import GOAL_METRICS
from strata.units import show

if TYPE_CHECKING:
    from rich.text import Text

    from strata.search.outcome import Progress, SearchOutcome
    from strata.search.run import Search
    from strata.search.sensitivity import Gain

SHOWN_POINTS = 20


def progress_line(searching: Search, at: Progress) -> Text:
    """Where a search stands, in a line."""
    from rich.text import Text

    metric = searching.goal.metrics[0]
    parts = [
        f"round {at.rounds:,}",
        f"{at.rows:,} points",
        *([f"{at.bounded:,} bounds"] if at.bounded else []),
        f"{at.rate:,.0f}/s",
    ]
    parts += (
        [f"best {metric} {show(at.best, GOAL_METRICS[metric].unit)}"]
        if at.best == at.best
        else ["nothing fits yet"]
    )
    parts += (
        [
            f"bound {show(at.bound, GOAL_METRICS[metric].unit)}",
            f"gap {at.gap:.2%}",
            f"{at.open:,} regions open",
        ]
        if at.bound == at.bound
        else []
    )
    parts += [f"{clock_text(at.seconds)} gone"] + (
        [f"{clock_text(at.left)} left"] if at.left == at.left else []
    )
    return Text("  ".join(parts))


def clock_text(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> clock_text(75.2), clock_text(3661)
    ('1:15', '1:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def search_tables(outcome: SearchOutcome) -> Iterable[Any]:
    """What was found, how sure that is, what is out and why, and what more would buy."""
    table = _one(outcome) if len(outcome.goal.metrics) == 1 else _several(outcome)
    yield titled(
        f"{outcome.goal.words()}: {outcome.space.title or outcome.space.name}\n{_said(outcome)}", table
    )
    if outcome.counts:
        yield ""
        yield _out(outcome)
    if outcome.remarks:
        yield ""
        yield from outcome.remarks
    axes, resources = outcome.gains()
    yield ""
    yield _gains(
        f"What 10 % more of each axis buys in {outcome.goal.metrics[0]} at the best point, all that follows "
        "from it included",
        axes,
    )
    yield ""
    yield _gains(
        "What 10 % more of each resource buys in speed there; most of its time is credited to "
        f"{outcome.result().bound_by}",
        resources,
    )


def search_why(outcome: SearchOutcome) -> dict[str, Any]:
    """The same for machines: bottleneck and gains at the best point."""
    axes, resources = outcome.gains()

    def listed(gains: list[Gain]) -> list[dict[str, Any]]:
        return [{"what": g.resource, "more": g.more, "gain": g.speedup, "note": g.note} for g in gains]

    return {
        "bound_by": outcome.result().bound_by,
        "gains_of_axes": listed(axes),
        "gains_of_resources": listed(resources),
        "remarks": outcome.remarks,
    }


def _said(outcome: SearchOutcome) -> str:
    proof = "nothing is proven" if outcome.gap != outcome.gap else "proven: no point of the space is better"
    if outcome.gap > 0:
        metric = outcome.goal.metrics[0]
        proof = (
            f"proven: no point is better than {show(outcome.bound, GOAL_METRICS[metric].unit)} "
            f"({outcome.gap:.2%} away)"
        )
    if len(outcome.goal.metrics) > 1 and outcome.gap == outcome.gap:
        proof = (
            f"proven: one of these is at least as good as any other point, to {outcome.gap:.2%} in each"
            if outcome.gap > 0
            else "proven: no other point belongs here"
        )
    kept = f", kept in {outcome.out}" if outcome.out else ""
    size = f"{outcome.space.size:,}" if outcome.space.size < 1e9 else f"{outcome.space.size:.3g}"
    return (
        f"{size} points in the space, {outcome.rows:,} evaluated in {outcome.rounds:,} rounds{kept}; "
        f"{outcome.ended}; {proof}" + "".join(f"; {note}" for note in outcome.notes)
    )


def _listed(outcome: SearchOutcome) -> list[str]:
    """Metrics worth a line: those of the goal and of its limits first, then what its phase has."""
    wanted = [*outcome.goal.metrics, *outcome.goal.limits, *shown_metrics(outcome.space.scenario.phase)]
    return list(dict.fromkeys([*wanted, "device_power", "memory_used"]))


def _value(point: dict[str, Any], metric: str) -> str:
    value = point["metrics"].get(metric, float("nan"))
    return "" if value != value else metric_text(value, metric)


def _one(outcome: SearchOutcome) -> Any:
    point = outcome.best
    table = plain_table(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(style="bold")
    for name, label in point["design"].items():
        times = outcome.space.axes[outcome.space.axis(name)].kind == "times"
        table.add_row(name, f"x {label}" if times else label)
    table.add_row("", "")
    for metric in _listed(outcome):
        if text := _value(point, metric):
            table.add_row(metric_label(metric), text)
    return table


def _several(outcome: SearchOutcome) -> Any:
    """The frontier, a line a point: metrics, and the axes in which its points differ."""
    points = [outcome.point(i) for i in range(min(len(outcome.frontier), SHOWN_POINTS))]
    same = {
        n: points[0]["design"][n] for n in points[0]["design"] if len({p["design"][n] for p in points}) == 1
    }
    table = plain_table()
    for metric in outcome.goal.metrics:
        table.add_column(metric_label(metric), justify="right", style="bold", no_wrap=True)
    varied = [n for n in points[0]["design"] if n not in same]
    for name in varied:
        table.add_column(name, style="dim")
    for point in points:
        table.add_row(
            *(_value(point, m) for m in outcome.goal.metrics), *(point["design"][n] for n in varied)
        )
    more = len(outcome.frontier) - len(points)
    below = (f"{more} more points on the frontier\n" if more else "") + (
        "all have " + ", ".join(f"{k} {v}" for k, v in same.items()) if same else ""
    )
    count = len(outcome.frontier)
    said = "1 point that no other beats" if count == 1 else f"{count:,} points that no other beats"
    return titled(said, table, below.strip())


def _out(outcome: SearchOutcome) -> Any:
    table = plain_table(">", "", show_header=False)
    table.add_column(style="dim", no_wrap=True)
    for rule, (points, alone) in outcome.reasons.items():
        table.add_row(f"{points:,}", rule, f"{alone:,} by this alone" if alone < points else "")
    return titled(f"{sum(outcome.counts.values()):,} of {outcome.rows:,} points are out", table)


def _gains(title: str, gains: list[Gain]) -> Any:
    table = plain_table("", ">", show_header=False)
    for gain in gains:
        out = gain.speedup != gain.speedup
        bought = f"out: {gain.note}" if out else gain.note or f"{gain.speedup:+.1%}"
        odd = abs(gain.more - 0.1) > 1e-3
        table.add_row(
            gain.resource + (f" ({gain.more:+.0%})" if odd else ""),
            bought,
            style="dim" if gain.note or gain.speedup < 0.005 else "",
        )
    return titled(title, table)


def why_no_design(outcome: SearchOutcome) -> str:
    """Why there is no answer, in one line."""
    if outcome.bound == -outcome.goal.value(float("inf")):
        return (
            f"proven: no point of {outcome.space.name} fits and keeps the limits "
            f"({outcome.goal.words()}); levers: looser limits, more choices"
        )
    if not outcome.rows:
        return f"no point of {outcome.space.name} was evaluated"
    most = "; ".join(f"{points:,} x {rule}" for rule, (points, _) in list(outcome.reasons.items())[:3])
    return (
        f"none of {outcome.rows:,} points fits and keeps the limits ({outcome.goal.words()}): {most}; "
        "levers: looser limits, more choices, --budget"
    )
