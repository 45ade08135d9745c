"""`strata search`: the best designs of a space, live, stopped and resumed at will."""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strata.app.commands.options import JsonFlag, PicturesReport, TableFile, command, typed
from strata.app.rows_out import answer
from strata.app.terminal import (
    complain,
    names_of,
    one_of,
    wrote,
)
from strata.errors import BadValue
from strata.units import whole

if TYPE_CHECKING:
    from strata.search.outcome import Progress
    from strata.search.run import Search


def _samplers(incomplete: str) -> list[str]:
    from strata.search.samplers import sampler_names

    return [n for n in sampler_names() if n.startswith(incomplete)]


def _goals(incomplete: str) -> list[str]:
    from strata.search.derived_metrics import GOAL_METRICS

    return [n for n in GOAL_METRICS if n.startswith(incomplete)]


SpaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPACE", help="a space of designs, or a TOML path", autocompletion=names_of("spaces")
    ),
]
GoalOption = Annotated[
    str, typed("--goal -g", "METRIC,...", "what to make best; several give a frontier", _goals)
]
LimitOption = Annotated[
    list[str] | None, typed("", "LIMIT", "what every answer keeps, like 'tpot<=40ms'; as often as needed")
]
SetOption = Annotated[
    list[str] | None,
    typed(
        "--set",
        "AXIS=CHOICES",
        "keep some choices of an axis: batch=4,8 or plan='tp=8;tp=4,dp=2'; as often as needed",
    ),
]
SamplerOption = Annotated[
    str, typed("", "NAME", "who says what comes next: exact proves its answer, the others do not", _samplers)
]
ExecutorOption = Annotated[
    str, typed("", "NAME", "who does the work: one, cores, jax or ray", one_of("one", "cores", "jax", "ray"))
]
WorkersOption = Annotated[str, typed("", "N", "processes of cores and ray  [default: one a core]")]
AddressOption = Annotated[
    str,
    typed(
        "",
        "ADDRESS",
        "a Ray cluster, like auto or ray://host:10001  [default: one that lives with the search]",
    ),
]
BudgetOption = Annotated[str, typed("", "N", "points to evaluate at most  [default: the sampler's]")]
GapOption = Annotated[
    float | None, typed("", "SHARE", "near enough to the proven bound, like 0.001  [default: the sampler's]")
]
SeedOption = Annotated[int, typed("", "N", "the same seed asks for the same points")]
OutOption = Annotated[Path | None, typed("", "FOLDER", "keep every point, as Parquet")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="go on with the study in --out")]


@command(
    "search",
    "The best designs of a space, under limits.",
    "strata search next-node --goal tokens_per_s --limit 'tpot<=20ms' --out out/next-node",
)
def search_command(
    space: SpaceArgument,
    goal: GoalOption = "tokens_per_s",
    limit: LimitOption = None,
    set: SetOption = None,
    sampler: SamplerOption = "exact",
    executor: ExecutorOption = "one",
    workers: WorkersOption = "",
    address: AddressOption = "",
    budget: BudgetOption = "",
    gap: GapOption = None,
    seed: SeedOption = 0,
    out: OutOption = None,
    resume: ResumeOption = False,
    json: JsonFlag = False,
    table: TableFile = None,
    report: PicturesReport = None,
) -> None:
    """Search a space of designs: the best point of one metric, or the frontier of several, under limits."""
    from strata.app.render.search import search_tables, search_why, why_no_design
    from strata.search.run import Search
    from strata.search.space import space as make_space

    searching = Search(
        make_space(space, **typed_choices(set or [])),
        goal,
        limits=limit or [],
        sampler=sampler,
        executor=executor,
        seed=seed,
        gap=gap,
        out=out,
        resume=resume,
        workers=int(whole(workers, "--workers")) if workers else 0,
        budget=int(whole(budget, "--budget")) if budget else None,
        address=address,
    )
    history, stopped = _watched(searching)
    outcome = searching.outcome()
    answer(
        lambda: {**outcome.as_dict(), **(search_why(outcome) if outcome.found else {})},
        lambda: search_tables(outcome) if outcome.found else [],
        json,
        table,
        lambda told: told["frontier"],
    )
    if report:
        from strata.app.render.search import search_report

        wrote("report", search_report(outcome, report, history))
    if stopped:
        again = shlex.join(["strata", *sys.argv[1:], *([] if resume else ["--resume"])])
        complain(
            f"go on with: {again}" if out else "nothing was kept; with --out FOLDER a search can be resumed"
        )
        raise typer.Exit(130)
    if not outcome.found:
        raise BadValue(why_no_design(outcome))


def typed_choices(items: list[str]) -> dict[str, list[str]]:
    """Choices kept of axes, as typed; plans have commas of their own and are set apart by semicolons.

    >>> typed_choices(["batch=4,8", "plan=tp=8;tp=4,dp=2"])
    {'batch': ['4', '8'], 'plan': ['tp=8', 'tp=4,dp=2']}
    """
    kept: dict[str, list[str]] = {}
    for item in items:
        name, _, text = item.partition("=")
        listed = [c.strip() for c in text.split(";" if "=" in text or ";" in text else ",") if c.strip()]
        if not (name.strip() and listed):
            raise BadValue(
                f"--set keeps choices of an axis, like batch=4,8 or plan='tp=8;tp=4,dp=2', but got '{item}'"
            )
        if name.strip() in kept:
            raise BadValue(f"--set names axis {name.strip()} twice; list its choices once")
        kept[name.strip()] = listed
    return kept


def _watched(searching: Search) -> tuple[list[Progress], bool]:
    """Run a search with a line that moves (on a terminal); every round's progress, and whether Ctrl-C ended
    it.
    """
    from rich.console import Console
    from rich.live import Live

    from strata.app.render.search import progress_line

    history: list[Progress] = []
    screen = Console(stderr=True, highlight=False, markup=False)
    try:
        # Ray says on stdout that a worker died; stdout is for the answer.
        with (
            redirect_stdout(sys.stderr),
            Live(console=screen, refresh_per_second=8, transient=True, redirect_stdout=False) as live,
        ):
            for progress in searching.rounds():
                history.append(progress)
                if screen.is_terminal:
                    live.update(progress_line(searching, progress))
    except KeyboardInterrupt:
        return history, True
    return history, False
