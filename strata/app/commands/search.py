"""`strata sweep`, `strata power-cap`, `strata search`, `strata study`: several things varied at once, the
best designs of a space, published studies.
"""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from strata.app import terminal
from strata.app.commands import options
from strata.app.commands.options import argument, command, drawing, flag, option, with_price
from strata.app.rows_out import write_rows
from strata.app.terminal import listed_in, metric_names, names_of, one_of, wrote
from strata.base.errors import BadValue
from strata.base.units import whole

if TYPE_CHECKING:
    from strata.search.outcome import Progress
    from strata.search.run import Search

SET = option(
    None,
    "AXIS=CHOICES",
    "keep some choices of an axis: batch=4,8 or plan='tp=8;tp=4,dp=2'; as often as needed",
)
ADDRESS = option(
    "", "ADDRESS", "a Ray cluster, like auto or ray://host:10001  [default: one that lives with the search]"
)
LIMIT = option(None, "LIMIT", "what every answer keeps, like 'tpot<=40ms'; as often as needed")
EXECUTOR = option(
    "one", "NAME", "who does the work: one, cores, jax or ray", one_of("one", "cores", "jax", "ray")
)
VARY = option(
    ...,
    "AXIS",
    "an axis: batch=1,8,64 or chip.memory.bandwidth='2:8:7 TB/s' (from:to:count) or "
    "batch=log:1:1024:11 (equal factors) or plan.tp=1,2,4,8; words make groups: "
    "system=8xh200,8xb200, engine, model, fabric, weights, kv, phase, plan='tp=8;tp=4,dp=2', "
    "model.layers=40,80",
)
PLAN = option(
    "",
    "--plan -p PLAN",
    "parallel degrees, like tp=8,ep=8; best: for each point  [default: the best in the middle]",
)

GOAL = option(
    "tokens_per_s",
    "--goal -g METRIC,...",
    "what to make best; several give a frontier",
    listed_in("strata.search.goal", "GOAL_METRICS"),
)
SAMPLER = option(
    "exact",
    "NAME",
    "who says what comes next: exact proves its answer, the others do not",
    listed_in("strata.search.samplers", "sampler_names"),
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
    form: options.AnswerForm = options.FORM,
    report: options.PicturesReport = None,
) -> None:
    """Search a space of designs: the best point of one metric, or the frontier of several, under limits."""
    from strata.app.render.search import search_report, search_tables, search_why, why_no_design
    from strata.search.run import Search
    from strata.search.space import space as make_space

    how: dict[str, Any] = {"limits": limit or [], "sampler": sampler, "executor": executor, "seed": seed}
    how |= {"gap": gap, "out": out, "resume": resume, "address": address}
    how |= {"workers": int(whole(workers, "--workers")) if workers else 0}
    how |= {"budget": int(whole(budget, "--budget")) if budget else None}
    searching = Search(make_space(space, **typed_choices(set or [])), goal, **how)
    history, stopped = _watched(searching)
    outcome = searching.outcome()
    form.answer(
        lambda: {**outcome.as_dict(), **(search_why(outcome) if outcome.found else {})},
        lambda: search_tables(outcome) if outcome.found else [],
        lambda told: told["frontier"],
    )
    options.write("report", report, lambda path: search_report(outcome, path, history))
    if stopped:
        again = shlex.join(["strata", *sys.argv[1:], *([] if resume else ["--resume"])])
        terminal.complain(
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


@command(
    "study",
    "Repeat a published study, claim by claim.",
    "strata study deepstack-layers --report out/layers.html",
)
def study_command(
    name: str = argument(
        "",
        "[NAME]",
        "a study, or the path of its folder; left out: all there are",
        listed_in("strata.studies", "study_names"),
    ),
    form: options.AnswerForm = options.FORM,
    report: Path | None = option(None, "FILE", "write an HTML page with pictures"),
    write: bool = flag("--write", "keep what was found, and the pictures, in the study's folder"),
) -> None:
    """Repeat a published study: for each claim what the paper says, what we get, and whether it holds."""
    from strata import studies
    from strata.app.render.study import claims_table, draw_study, studies_table, study_dict, study_report

    if not name:
        known = {n: studies.study(n).title for n in studies.study_names()}
        rows = [{"study": n, "title": title} for n, title in known.items()]
        return form.answer(known, [studies_table(known)], lambda _: rows)
    with terminal.status_line(f"running study {name}"):
        outcome = studies.run_study(name)
    form.answer(study_dict(outcome), lambda: [claims_table(outcome)], "claims")
    if write:
        wrote("result", studies.store_result(outcome))
        drawn = draw_study(outcome, outcome.study.folder)
        wrote("pictures", outcome.study.folder, f" ({len(drawn)} files)")
    options.write("report", report, study_report, outcome)


@command(
    "sweep",
    "Vary several things at once.",
    "strata sweep -m llama-3-70b -s 8xh200 --vary batch=1,8,64 --vary chip.memory.bandwidth='2:8:4 TB/s'",
)
def sweep_command(
    vary: list[str] = VARY,
    model: options.ModelName = "",
    system: options.SystemName = "",
    batch: options.BatchSize = "1",
    input: options.InputTokens = "1024",
    output: options.OutputTokens = "1024",
    phase: options.PhaseName = "serve",
    plan: str = PLAN,
    engine: options.EngineName = "ideal",
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    fabric: options.FabricName = "",
    set: options.SetItems = None,
    price: options.DevicePrice = "",
    metric: str = option("", "NAME", "what to show; --json has all of them", metric_names),
    form: options.AnswerForm = options.FORM,
    where: str = option("", "CONDITION", "with --plan best: only plans like this, '(ep == 1) & (cp == 1)'"),
    orders: bool = flag("--orders", "with --plan best: every order of each plan on the fabric"),
    report: options.PicturesReport = None,
) -> None:
    """Vary several things at once, each on its own axis, and see what they do: up to three quantities, and
    words besides.
    """
    from strata.app.render import sweep as render
    from strata.app.render.prediction import dimmed
    from strata.search.sweep import sweep as run_sweep

    size: dict[str, Any] = {**options.typed_sizes(batch, input, output)}
    software: dict[str, Any] = {"engine": engine, "weights": weights, "kv": kv, "fabric": fabric}
    asked: dict[str, Any] = {"phase": phase, "plan": plan, "metric": metric, "where": where, "orders": orders}
    swept = run_sweep(system, model, vary, **size, **software, **asked, changes=with_price(set, price))
    intervals, lines = render.sweep_intervals(swept)
    if form.json:
        terminal.print_json({**render.sweep_dict(swept), **intervals})
    else:
        remarks = (*render.sweep_remarks(swept), *render.best_line(swept))
        terminal.say(render.sweep_table(swept), *remarks, *dimmed(lines))
    if form.table:
        wrote("table", write_rows(form.table, *render.sweep_rows(swept)))
    options.write("report", report, render.sweep_report, swept)


@command(
    "power-cap",
    "Speed and energy against a cap of power.",
    "strata power-cap -m llama-3-70b -s 8xh200 -b 256 -i 1024 -o 256 --plan tp=8 "
    "--caps 300:700:9 --svg caps.svg",
)
def power_cap_command(
    model: options.ModelName,
    system: options.SystemName,
    caps: str = option(
        "",
        "W",
        "caps of one device, as of nvidia-smi -pl: 500, a list 400,500,600 or 300:700:9 (from:to:count)  "
        "[default: from 40 % of its limit to all of it]",
    ),
    batch: options.BatchSize = "1",
    input: str = option(
        "1024",
        "--input -i N",
        "prompt tokens of a sequence; 200:800 where only bounds are known: answers are ranges",
    ),
    output: options.OutputTokens = "1024",
    phase: options.PhaseName = "serve",
    plan: options.PlanText = "",
    engine: options.EngineName = "ideal",
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    fabric: options.FabricName = "",
    set: options.SetItems = None,
    svg: Path | None = drawing("write a picture: speed, latency, power and energy against the cap"),
    form: options.AnswerForm = options.FORM,
) -> None:
    """What a lower power limit of each device costs in speed and saves in energy: tokens/s, latency, clock,
    power and joules a token at each cap, of the devices and at the plug, and the cap with the least of them.
    """
    from strata.app.render.sweep import draw_power_caps, power_cap_dict, power_cap_tables
    from strata.search.inputs import make_workload, named_inputs, phase_of
    from strata.search.power_caps import power_caps

    hardware, program, software = named_inputs(model, system, engine, weights, kv, set or [], fabric)
    wanted = phase_of(program, phase)
    lengths: Any = typed_lengths(input)
    work = make_workload(wanted, whole(batch, "--batch"), lengths, whole(output, "--output"))
    found = power_caps(
        hardware, program, work, plan, software, caps=typed_caps(caps) if caps.strip() else None
    )
    form.answer(power_cap_dict, power_cap_tables, "rows", of=[found])
    options.write("picture", svg, draw_power_caps, found)


def typed_caps(text: str) -> list[float]:
    """Caps as typed, in watts unless a unit is said.

    >>> typed_caps("300:500:3"), typed_caps("0.4,0.5 kW")
    ([300.0, 400.0, 500.0], [400.0, 500.0])
    """
    from strata.search.sweep_axes import parse_axis

    told = text.strip()
    said = told if told[-1:].isalpha() else f"{told} W"
    try:
        values: list[float] = parse_axis(f"caps={said}", {"caps": "W"}, {}).values.tolist()
    except BadValue as error:
        if "an axis" in str(error):
            raise BadValue(f"--caps are watts, like 400,500,600 or 300:700:9, but got '{text}'") from None
        raise
    return values


def typed_lengths(text: str) -> Any:
    """Prompts as typed: one length, or the ends of an interval.

    >>> typed_lengths("1024"), typed_lengths("200:800").tolist()
    (1024.0, [200.0, 800.0])
    """
    import numpy as np

    first, between, last = text.partition(":")
    if not between:
        return whole(text, "--input")
    low, high = whole(first.strip(), "--input"), whole(last.strip(), "--input")
    if low > high:
        raise BadValue(f"--input is a length or an interval like 200:800, but got '{text}'")
    return np.array([low, high]) if low < high else low
