"""`strata search`: the best designs of a space, live, stopped and resumed at will."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.app.words import choices, complain, names_of, plain_table, print_json, titled, whole
from strata.errors import BadValue

if TYPE_CHECKING:
    from rich.text import Text

    from strata.search.run import Outcome, Progress, Search
    from strata.search.sensitivity import Gain

SHOWN_POINTS = 20


def _samplers(incomplete: str) -> list[str]:
    from strata.search.samplers import names

    return [n for n in names() if n.startswith(incomplete)]


def _goals(incomplete: str) -> list[str]:
    from strata.search.goal import GOAL_UNITS

    return [n for n in GOAL_UNITS if n.startswith(incomplete)]


def add_to(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        short_help="The best designs of a space, under limits.",
        epilog="Example: strata search next-node --goal tokens_per_s --limit 'tpot<=20ms' --out out/next-node",
    )(search)


def search(
    space: Annotated[
        str,
        typer.Argument(
            metavar="SPACE", help="a space of designs, or a TOML path", autocompletion=names_of("spaces")
        ),
    ],
    goal: Annotated[
        str,
        typer.Option(
            "--goal",
            "-g",
            metavar="METRIC,...",
            help="what to make best; several give a frontier",
            autocompletion=_goals,
        ),
    ] = "tokens_per_s",
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMIT", help="what every answer keeps, like 'tpot<=40ms'; as often as needed"),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="AXIS=CHOICES",
            help="keep some choices of an axis: batch=4,8 or plan='tp=8;tp=4,dp=2'; as often as needed",
        ),
    ] = None,
    sampler: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="who says what comes next: exact proves its answer, the others do not",
            autocompletion=_samplers,
        ),
    ] = "exact",
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="who does the work: one, cores, jax or ray",
            autocompletion=choices("one", "cores", "jax", "ray"),
        ),
    ] = "one",
    workers: Annotated[
        str, typer.Option(metavar="N", help="processes of cores and ray  [default: one a core]")
    ] = "",
    address: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="a Ray cluster, like auto or ray://host:10001  [default: one that lives with the search]",
        ),
    ] = "",
    budget: Annotated[
        str, typer.Option(metavar="N", help="points to evaluate at most  [default: the sampler's]")
    ] = "",
    gap: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="near enough to the proven bound, like 0.001  [default: the sampler's]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="the same seed asks for the same points")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="keep every point, as Parquet")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the study in --out")] = False,
    json: Annotated[bool, typer.Option("--json", help="print JSON for machines")] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write an HTML report with pictures")
    ] = None,
) -> None:
    """Search a space of designs: the best point of one metric, or the frontier of several, under limits."""
    from strata.app.cli import say, wrote
    from strata.search.run import Search
    from strata.search.space import space as make_space

    looking = Search(
        make_space(space, **narrowed(set or [])),
        goal,
        limits=limit or [],
        sampler=sampler,
        engine=engine,
        seed=seed,
        gap=gap,
        out=out,
        resume=resume,
        workers=int(whole(workers, "--workers")) if workers else 0,
        budget=int(whole(budget, "--budget")) if budget else None,
        address=address,
    )
    history, stopped = watched(looking)
    outcome = looking.outcome()
    if json:
        print_json({**outcome.as_dict(), **(why(outcome) if outcome.found else {})})
    elif outcome.found:
        say(*answer(outcome))
    if report:
        from strata.app.search_report import search_report

        wrote("report", search_report(outcome, report, history))
    if stopped:
        again = shlex.join(["strata", *sys.argv[1:], *([] if resume else ["--resume"])])
        complain(
            f"go on with: {again}" if out else "nothing was kept; with --out FOLDER a search can be resumed"
        )
        raise typer.Exit(130)
    if not outcome.found:
        raise BadValue(nothing(outcome))


def narrowed(items: list[str]) -> dict[str, list[str]]:
    """Choices kept of axes, as typed; plans have commas of their own and are set apart by semicolons.

    >>> narrowed(["batch=4,8", "plan=tp=8;tp=4,dp=2"])
    {'batch': ['4', '8'], 'plan': ['tp=8', 'tp=4,dp=2']}
    """
    found: dict[str, list[str]] = {}
    for item in items:
        name, _, text = item.partition("=")
        listed = [c.strip() for c in text.split(";" if "=" in text or ";" in text else ",") if c.strip()]
        if not (name.strip() and listed):
            raise BadValue(
                f"--set keeps choices of an axis, like batch=4,8 or plan='tp=8;tp=4,dp=2', but got '{item}'"
            )
        if name.strip() in found:
            raise BadValue(f"--set names axis {name.strip()} twice; list its choices once")
        found[name.strip()] = listed
    return found


# -------------------------------------------------------------------------------------------- live


def watched(looking: Search) -> tuple[list[Progress], bool]:
    """Run a search with a line that moves (on a terminal); every round's progress, and whether Ctrl-C ended
    it.
    """
    from rich.console import Console
    from rich.live import Live

    history: list[Progress] = []
    screen = Console(stderr=True, highlight=False, markup=False)
    try:
        # Ray says on stdout that a worker died; stdout is for the answer.
        with (
            redirect_stdout(sys.stderr),
            Live(console=screen, refresh_per_second=8, transient=True, redirect_stdout=False) as live,
        ):
            for progress in looking.rounds():
                history.append(progress)
                if screen.is_terminal:
                    live.update(line(looking, progress))
    except KeyboardInterrupt:
        return history, True
    return history, False


def line(looking: Search, at: Progress) -> Text:
    """Where a search stands, in a line."""
    from rich.text import Text

    from strata.search.goal import GOAL_UNITS
    from strata.units import show

    metric = looking.goal.metrics[0]
    parts = [
        f"round {at.rounds:,}",
        f"{at.rows:,} points",
        *([f"{at.bounded:,} bounds"] if at.bounded else []),
        f"{at.rate:,.0f}/s",
    ]
    parts += (
        [f"best {metric} {show(at.best, GOAL_UNITS[metric])}"] if at.best == at.best else ["nothing fits yet"]
    )
    parts += (
        [f"bound {show(at.bound, GOAL_UNITS[metric])}", f"gap {at.gap:.2%}", f"{at.open:,} regions open"]
        if at.bound == at.bound
        else []
    )
    parts += [f"{clock(at.seconds)} gone"] + ([f"{clock(at.left)} left"] if at.left == at.left else [])
    return Text("  ".join(parts))


def clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> clock(75.2), clock(3661)
    ('1:15', '1:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# -------------------------------------------------------------------------------------------- the answer


def answer(outcome: Outcome) -> Iterable[Any]:
    """What was found, how sure that is, what is out and why, and what more would buy."""
    table = _one(outcome) if len(outcome.goal.metrics) == 1 else _several(outcome)
    yield titled(
        f"{outcome.goal.words()}: {outcome.space.title or outcome.space.name}\n{_said(outcome)}", table
    )
    if outcome.counts:
        yield ""
        yield _out(outcome)
    axes, resources = outcome.gains()
    yield ""
    yield _gains(
        f"What 10 % more of each axis buys in {outcome.goal.metrics[0]} at the best point, all that follows from it included",
        axes,
    )
    yield ""
    yield _gains(
        f"What 10 % more of each resource buys in speed there; most of its time is credited to {outcome.result().bound_by}",
        resources,
    )


def why(outcome: Outcome) -> dict[str, Any]:
    """The same for machines: bottleneck and gains at the best point."""
    axes, resources = outcome.gains()

    def listed(gains: list[Gain]) -> list[dict[str, Any]]:
        return [{"what": g.resource, "more": g.more, "gain": g.speedup, "note": g.note} for g in gains]

    return {
        "bound_by": outcome.result().bound_by,
        "gains_of_axes": listed(axes),
        "gains_of_resources": listed(resources),
    }


def _said(outcome: Outcome) -> str:
    proof = "nothing is proven" if outcome.gap != outcome.gap else "proven: no point of the space is better"
    if outcome.gap > 0:
        from strata.search.goal import GOAL_UNITS
        from strata.units import show

        metric = outcome.goal.metrics[0]
        proof = f"proven: no point is better than {show(outcome.bound, GOAL_UNITS[metric])} ({outcome.gap:.2%} away)"
    kept = f", kept in {outcome.out}" if outcome.out else ""
    size = f"{outcome.space.size:,}" if outcome.space.size < 1e9 else f"{outcome.space.size:.3g}"
    return f"{size} points in the space, {outcome.rows:,} evaluated in {outcome.rounds:,} rounds{kept}; {outcome.ended}; {proof}"


def _listed(outcome: Outcome) -> list[str]:
    """Metrics worth a line: those of the goal and of its limits first, then what its phase has."""
    from strata.app.present import PHASE_SKIPS, SHOWN

    skipped = PHASE_SKIPS[outcome.space.question.phase]
    return list(
        dict.fromkeys(
            [
                *outcome.goal.metrics,
                *outcome.goal.limits,
                *(m for m in SHOWN if m not in skipped),
                "device_power",
                "memory_used",
            ]
        )
    )


def _value(point: dict[str, Any], metric: str) -> str:
    from strata.search.goal import GOAL_UNITS
    from strata.units import show

    value = point["metrics"][metric]
    return (
        ""
        if value != value
        else f"{value:.1%}"
        if metric in ("mfu", "mbu")
        else show(value, GOAL_UNITS[metric])
    )


def _name(metric: str) -> str:
    from strata.app.present import METRIC_NAMES

    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def _one(outcome: Outcome) -> Any:
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
            table.add_row(_name(metric), text)
    return table


def _several(outcome: Outcome) -> Any:
    """The frontier, a line a point: metrics, and the axes in which its points differ."""
    points = [outcome.point(i) for i in range(min(len(outcome.frontier), SHOWN_POINTS))]
    same = {
        n: points[0]["design"][n] for n in points[0]["design"] if len({p["design"][n] for p in points}) == 1
    }
    table = plain_table()
    for metric in outcome.goal.metrics:
        table.add_column(_name(metric), justify="right", style="bold", no_wrap=True)
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
    return titled(f"{len(outcome.frontier)} points that no other beats", table, below.strip())


def _out(outcome: Outcome) -> Any:
    table = plain_table(show_header=False)
    table.add_column(justify="right")
    table.add_column()
    table.add_column(style="dim", no_wrap=True)
    for rule, (points, alone) in outcome.reasons.items():
        table.add_row(f"{points:,}", rule, f"{alone:,} by this alone" if alone < points else "")
    return titled(f"{sum(outcome.counts.values()):,} of {outcome.rows:,} points are out", table)


def _gains(title: str, gains: list[Gain]) -> Any:
    table = plain_table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for gain in gains:
        bought = f"out: {gain.note}" if gain.note else f"{gain.speedup:+.1%}"
        odd = abs(gain.more - 0.1) > 1e-3
        table.add_row(
            gain.resource + (f" ({gain.more:+.0%})" if odd else ""),
            bought,
            style="dim" if gain.note or gain.speedup < 0.005 else "",
        )
    return titled(title, table)


def nothing(outcome: Outcome) -> str:
    """Why there is no answer, in one line."""
    if outcome.bound == -outcome.goal.value(float("inf")):
        return f"proven: no point of {outcome.space.name} fits and keeps the limits ({outcome.goal.words()}); levers: looser limits, more choices"
    if not outcome.rows:
        return f"no point of {outcome.space.name} was evaluated"
    most = "; ".join(f"{points:,} x {rule}" for rule, (points, _) in list(outcome.reasons.items())[:3])
    return f"none of {outcome.rows:,} points fits and keeps the limits ({outcome.goal.words()}): {most}; levers: looser limits, more choices, --budget"
