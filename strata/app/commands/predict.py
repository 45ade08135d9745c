"""`strata predict`, `strata timeline`: a model on a system under a plan, and its step event by event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.commands import options
from strata.app.commands.options import command, flag, option, picture_file, with_price
from strata.app.rows_out import keep_table
from strata.app.terminal import one_of, print_json, say, wrote
from strata.base.errors import BadValue, StrataError

if TYPE_CHECKING:
    from strata.result import RankedPlan, Result
    from strata.search.what_if import Question, WhatIf
    from strata.workload.tasks import Workload

ROOFLINE = option(None, "FILE", "draw the chip's roofs with the step's ops on them", check=picture_file)

SCHEDULE = option(
    "",
    "NAME",
    "gpipe, 1f1b, interleaved, zero-bubble or dualpipe  [default: the plan's]",
    one_of("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"),
)
DETAIL = option(
    "auto",
    "WHAT",
    "tasks are ops (op), blocks (block) or a stage's whole passes (stage)",
    one_of("auto", "op", "block", "stage"),
)


@command(
    "predict",
    "Predict a model on a system.",
    "strata predict -m deepseek-v3 -s 8xb200 --batch 64 --input 1024 --output 1024 --explain",
)
def predict_command(
    case: options.AskedCase,
    fabric: options.FabricName = "",
    routing: options.RoutingFile = "",
    lora: options.LoraAdapters = "",
    frozen: options.FrozenModules = "",
    overlap: options.OverlapMode = "",
    price: options.DevicePrice = "",
    explain: bool = flag("--explain", "say where time and memory go and what would help"),
    form: options.AnswerForm = options.FORM,
    trace: Path | None = option(None, "FILE", "write the step as a trace for ui.perfetto.dev"),
    chakra: options.ChakraPrefix = None,
    roofline: Path | None = ROOFLINE,
    report: options.ReportFile = None,
) -> None:
    """Predict a model on a system: latency, throughput, energy, memory and cost, with what binds them."""
    from strata.app.render import explanation as why_so
    from strata.app.render.accuracy import interval_of
    from strata.app.render.prediction import dimmed, headline_table, prediction_dict
    from strata.app.render.program_graph import config_notes
    from strata.app.render.ranking import choice_dict
    from strata.result import why_infeasible
    from strata.search.what_if import Question

    names = ("system", "model", "engine", "weights", "kv", "plan")
    named = {name: getattr(case, name) for name in names}
    work, set = _work_of(case, routing, (lora, frozen)), case.set
    always = tuple(with_price(options.with_overlap([], overlap), price))
    asked = Question(**named, work=work, fabric=fabric, always=always)
    result, ranking = asked.answer(set or [])
    chosen = None if ranking is None or ranking.why_none else ranking.choices[0]
    interval, lines = (None, []) if ranking is not None and ranking.why_none else interval_of(result)
    lines = [*_choice_lines(asked, chosen, set), *lines, *result.notes, *config_notes(case.model, result)]
    changed = _beside(asked, result, set) if set and result.fits else None
    if chakra and result.fits:
        options.write_chakra(result, chakra)
    if form.json:
        told = {**prediction_dict(result), "plan_choice": choice_dict(chosen), "interval": interval}
        why = (
            {"ops": why_so.op_rows(result), "gains": why_so.gain_rows(result)}
            if explain and result.fits
            else {}
        )
        print_json(told | ({} if changed is None else {"difference": why_so.difference_dict(changed)}) | why)
    if not result.fits:
        raise BadValue(why_infeasible(result))
    keep_table(form.table, prediction_dict(result) if form.table else None)
    if not form.json:
        difference = [] if changed is None else ["", why_so.difference_table(changed)]
        say(headline_table(result), *dimmed(lines), *difference)
        if explain:
            say("", why_so.explanation(result))
    _write_files(result, lines, trace, roofline, report)


def _choice_lines(asked: Question, chosen: RankedPlan | None, changes: list[str] | None) -> list[str]:
    """What the plan was chosen from, and the part of the devices that does more."""
    from strata.app.render.ranking import choice_text, part_text

    if chosen is None:
        return []
    part = asked.part_that_does_more(chosen.result, changes or [])
    return [choice_text(chosen), *([part_text(part, chosen.result)] if part else [])]


def _write_files(
    result: Result, lines: list[str], trace: Path | None, roofline: Path | None, report: Path | None
) -> None:
    """The trace, the picture and the page that were asked for."""
    if trace:
        trace.parent.mkdir(parents=True, exist_ok=True)
        wrote("trace", result.timeline.to_perfetto(trace), " (open it at https://ui.perfetto.dev)")
    if roofline:
        from strata.app.render.roofline_picture import draw_roofline
        from strata.roofline import roofline_of

        work = result.workload
        question = f"{result.program.name} on {result.system.name}, {work.phase}, batch {work.batch:g}"
        wrote("roofline", draw_roofline(roofline_of(result), question, roofline))
    if report:
        from strata.app.render.prediction_report import prediction_report

        wrote("report", prediction_report(result, report, lines))


def _beside(asked: Question, result: Result, changes: list[str]) -> WhatIf | None:
    """What the changes do; None where there is no answer without them."""
    try:
        return asked.beside(result, changes)
    except StrataError:
        return None


def _work_of(case: options.AskedCase, routing: str, tuned: tuple[str, str]) -> Callable[[Any], Workload]:
    """The workload of a program, as typed."""
    from strata.search.inputs import fine_tuning, make_workload, phase_of, routing_from_file

    trained, size = fine_tuning(case.phase, *tuned), options.typed_sizes(case.batch, case.input, case.output)
    return lambda program: make_workload(
        phase_of(program, case.phase), **size, routing=routing_from_file(routing, program), **trained
    )


@command(
    "timeline",
    "Simulate a step event by event; compare pipeline schedules.",
    "strata timeline -m llama-3-70b -s 8x8xh200 --batch 64 --input 4096 "
    "--plan tp=8,pp=4,dp=2,microbatches=16,zero=1 --compare",
)
def timeline_command(
    case: options.TrainedCase,
    overlap: options.OverlapMode = "",
    schedule: str = SCHEDULE,
    compare: bool = flag("--compare", "every schedule side by side, a stage's passes as tasks"),
    serial: bool = flag("--serial", "nothing runs beside anything, as the closed form counts"),
    detail: str = DETAIL,
    html: Path | None = option(None, "FILE", "write a Gantt chart as one HTML file"),
    trace: Path | None = option(None, "FILE", "write a trace for ui.perfetto.dev"),
    chakra: options.ChakraPrefix = None,
    form: options.AnswerForm = options.FORM,
) -> None:
    """Simulate a step event by event: stages, links and micro-batches, with the closed form beside it."""
    from strata.app.render.accuracy import interval_of
    from strata.app.render.explanation import comparison_dict, comparison_table, simulation_table
    from strata.app.render.prediction import dimmed
    from strata.evaluate import evaluate
    from strata.mapping.plan import layout_degrees
    from strata.result import why_infeasible
    from strata.search.inputs import named_inputs
    from strata.search.plan_for import plan_for
    from strata.simulate.step import simulate_schedules, simulate_step

    named = (case.model, case.system, case.engine, case.weights, case.kv)
    hardware, served, software = named_inputs(*named, options.with_overlap(case.set, overlap))
    work = _work_of(case, "", ("", ""))(served)
    given = bool(case.plan or layout_degrees(served))
    result = evaluate(hardware, served, work, case.plan, software) if given else None
    result = result or plan_for(hardware, served, work, software, top=1, at_once=True).nearest
    if not result.fits:
        raise BadValue(why_infeasible(result))
    if compare and (schedule or html or trace or chakra):
        raise BadValue("--compare runs every schedule: leave out --schedule, --html, --trace and --chakra")
    if chakra and schedule:
        raise BadValue("--chakra writes the plan's own schedule: say it in --plan, as schedule=zero-bubble")
    if compare:
        found = simulate_schedules(result)
        shown = comparison_table(result, found)
        return form.answer(comparison_dict(result, found), [shown], "schedules")
    if chakra:
        options.write_chakra(result, chakra)
    made = simulate_step(result, schedule, serial=serial, detail=detail)
    interval, lines = interval_of(result)
    told = {"plan": str(result.plan), **made.to_dict(), "interval": interval}
    form.answer(told, lambda: [*simulation_table(made), *dimmed(lines)])
    if html:
        wrote("gantt", made.to_html(html))
    if trace:
        wrote("trace", made.to_perfetto(trace), " (open it at https://ui.perfetto.dev)")
