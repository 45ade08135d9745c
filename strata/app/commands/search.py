"""`strata search`, `strata study`: the best designs of a space; published studies, claim by claim."""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from strata.app.commands.options import JsonFlag, PicturesReport, TableFile, argument, command, flag, option
from strata.app.rows_out import answer
from strata.app.terminal import complain, names_of, one_of, wrote
from strata.errors import BadValue
from strata.units import whole

if TYPE_CHECKING:
    from strata.search.outcome import Progress
    from strata.search.run import Search


def _samplers(incomplete: str) -> list[str]:
    from strata.search.samplers import sampler_names

    return [n for n in sampler_names() if n.startswith(incomplete)]


def _goals(incomplete: str) -> list[str]:
    from strata.search.goal import GOAL_METRICS

    return [n for n in GOAL_METRICS if n.startswith(incomplete)]


SET = option(
    None,
    "AXIS=CHOICES",
    "keep some choices of an axis: batch=4,8 or plan='tp=8;tp=4,dp=2'; as often as needed",
)
ADDRESS = option(
    "", "ADDRESS", "a Ray cluster, like auto or ray://host:10001  [default: one that lives with the search]"
)
GOAL = option(
    "tokens_per_s", "METRIC,...", "what to make best; several give a frontier", _goals, flags="--goal -g"
)
LIMIT = option(None, "LIMIT", "what every answer keeps, like 'tpot<=40ms'; as often as needed")
SAMPLER = option(
    "exact", "NAME", "who says what comes next: exact proves its answer, the others do not", _samplers
)
EXECUTOR = option(
    "one", "NAME", "who does the work: one, cores, jax or ray", one_of("one", "cores", "jax", "ray")
)


@command(
    "search",
    "The best designs of a space, under limits.",
    "strata search next-node --goal tokens_per_s --limit 'tpot<=20ms' --out out/next-node",
)
def search_command(
    space: str = argument(..., "SPACE", "a space of designs, or a TOML path", names_of("spaces")),
    goal: str = GOAL,
    limit: list[str] | None = LIMIT,
    set: list[str] | None = SET,
    sampler: str = SAMPLER,
    executor: str = EXECUTOR,
    workers: str = option("", "N", "processes of cores and ray  [default: one a core]"),
    address: str = ADDRESS,
    budget: str = option("", "N", "points to evaluate at most  [default: the sampler's]"),
    gap: float | None = option(
        None, "SHARE", "near enough to the proven bound, like 0.001  [default: the sampler's]"
    ),
    seed: int = option(0, "N", "the same seed asks for the same points"),
    out: Path | None = option(None, "FOLDER", "keep every point, as Parquet"),
    resume: bool = flag("--resume", "go on with the study in --out"),
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


def _study_names(incomplete: str) -> list[str]:
    from strata.studies import study_names

    return [n for n in study_names() if n.startswith(incomplete)]


@command(
    "study",
    "Repeat a published study, claim by claim.",
    "strata study deepstack-layers --report out/layers.html",
)
def study_command(
    name: str = argument(
        "", "[NAME]", "a study, or the path of its folder; left out: all there are", _study_names
    ),
    json: JsonFlag = False,
    table: TableFile = None,
    report: Path | None = option(None, "FILE", "write an HTML page with pictures"),
    write: bool = flag("--write", "keep what was found, and the pictures, in the study's folder"),
) -> None:
    """Repeat a published study: for each claim what the paper says, what we get, and whether it holds."""
    from rich.console import Console

    from strata import studies
    from strata.app.render.study import claims_table, studies_table, study_dict

    if not name:
        known = {n: studies.study(n).title for n in studies.study_names()}
        answer(
            lambda: known,
            lambda: [studies_table(known)],
            json,
            table,
            lambda told: [{"study": n, "title": title} for n, title in told.items()],
        )
        return
    with Console(stderr=True).status(f"running study {name}"):
        outcome = studies.run_study(name)
    answer(lambda: study_dict(outcome), lambda: [claims_table(outcome)], json, table, "claims")
    if write:
        from strata.app.render.study import draw_study

        wrote("result", studies.store_result(outcome))
        drawn = draw_study(outcome, outcome.study.folder)
        wrote("pictures", outcome.study.folder, f" ({len(drawn)} files)")
    if report:
        from strata.app.render.study import study_report

        wrote("report", study_report(outcome, report))
