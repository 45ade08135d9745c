"""`strata predict`: a model on a system under a plan, or under the best one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strata.app.commands.options import (
    BatchSize,
    CacheFormat,
    EngineName,
    InputTokens,
    JsonFlag,
    ModelName,
    OutputTokens,
    OverlapMode,
    PhaseName,
    PlanText,
    ReportFile,
    RoutingFile,
    SetItems,
    SystemName,
    WeightFormat,
    typed_sizes,
    with_overlap,
)
from strata.app.terminal import print_json, say, wrote
from strata.errors import BadValue

if TYPE_CHECKING:
    from strata.result import Result


def register_predict(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        "predict",
        short_help="Predict a model on a system.",
        epilog="Example: strata predict -m deepseek-v3 -s 8xb200 --batch 64 --input 1024 --output 1024 "
        "--explain",
    )(predict_command)


def predict_command(
    model: ModelName,
    system: SystemName,
    batch: BatchSize = "1",
    input: InputTokens = "1024",
    output: OutputTokens = "1024",
    phase: PhaseName = "serve",
    plan: PlanText = "",
    engine: EngineName = "ideal",
    weights: WeightFormat = "",
    kv: CacheFormat = "",
    set: SetItems = None,
    routing: RoutingFile = "",
    overlap: OverlapMode = "",
    explain: Annotated[
        bool, typer.Option("--explain", help="say where time and memory go and what would help")
    ] = False,
    json: JsonFlag = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the step as a trace for ui.perfetto.dev")
    ] = None,
    roofline: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="draw the chip's roofs with the step's ops on them"),
    ] = None,
    report: ReportFile = None,
) -> None:
    """Predict a model on a system: latency, throughput, energy, memory and cost, with what binds them."""
    from strata.app.render.accuracy import interval_of
    from strata.app.render.explanation import explanation, op_rows
    from strata.app.render.prediction import dimmed, headline_table, prediction_dict
    from strata.app.render.ranking import choice_dict, choice_text
    from strata.evaluate import evaluate
    from strata.mapping.plan import divides_itself, usual_division
    from strata.search.inputs import make_workload, named_inputs, phase_of, routing_from_file
    from strata.search.plan_for import plan_for, why_infeasible

    size = typed_sizes(batch, input, output)
    hardware, served, software = named_inputs(model, system, engine, weights, kv, with_overlap(set, overlap))
    work = make_workload(phase_of(served, phase), **size, routing=routing_from_file(routing, served))
    plan = plan or usual_division(served, hardware.devices)
    asked = (hardware, served, work, software)
    ranking = None if plan or divides_itself(served) else plan_for(*asked, top=1, at_once=True)
    result = evaluate(hardware, served, work, plan, software) if ranking is None else ranking.nearest
    chosen = None if ranking is None or ranking.why_none else ranking.choices[0]
    interval, lines = (None, []) if ranking is not None and ranking.why_none else interval_of(result)
    lines = [*([choice_text(chosen)] if chosen else []), *lines, *result.notes]
    if json:
        told = {**prediction_dict(result), "plan_choice": choice_dict(chosen), "interval": interval}
        print_json(told | ({"ops": op_rows(result)} if explain and result.fits else {}))
    if not result.fits:
        raise BadValue(why_infeasible(result))
    if not json:
        say(headline_table(result), *dimmed(lines), *(["", explanation(result)] if explain else []))
    if trace:
        wrote("trace", _write_trace(result, trace), " (open it at https://ui.perfetto.dev)")
    if roofline:
        wrote("roofline", _draw_roofline(result, roofline))
    if report:
        wrote("report", _write_report(result, report, lines))


def _write_trace(result: Result, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return result.timeline.to_perfetto(path)


def _write_report(result: Result, path: Path, lines: list[str]) -> Path:
    from strata.app.render.prediction_report import prediction_report

    return prediction_report(result, path, lines)


def _draw_roofline(result: Result, path: Path) -> Path:
    from strata.app.render.roofline_picture import draw_roofline
    from strata.roofline import roofline_of

    if path.suffix != ".svg":
        raise BadValue(f"--roofline writes an SVG picture: give a name that ends in .svg, but got '{path}'")
    work = result.workload
    question = f"{result.program.name} on {result.system.name}, {work.phase}, batch {work.batch:g}"
    return draw_roofline(roofline_of(result), question, path)
