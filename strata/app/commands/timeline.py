"""`strata timeline`: a step simulated event by event, under a pipeline schedule or under all of them."""

from __future__ import annotations

from pathlib import Path

from strata.app.commands import options
from strata.app.commands.options import command, flag, option, typed_sizes, with_overlap, write_chakra
from strata.app.rows_out import answer
from strata.app.terminal import one_of, wrote
from strata.errors import BadValue

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
    "timeline",
    "Simulate a step event by event; compare pipeline schedules.",
    "strata timeline -m llama-3-70b -s 8x8xh200 --batch 64 --input 4096 "
    "--plan tp=8,pp=4,dp=2,microbatches=16,zero=1 --compare",
)
def timeline_command(
    model: options.ModelName,
    system: options.SystemName,
    batch: options.BatchSize = "1",
    input: options.InputTokens = "1024",
    output: options.OutputTokens = "1024",
    phase: options.PhaseName = "train",
    plan: options.PlanText = "",
    engine: options.EngineName = "ideal",
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    set: options.SetItems = None,
    overlap: options.OverlapMode = "",
    schedule: str = SCHEDULE,
    compare: bool = flag("--compare", "every schedule side by side, a stage's passes as tasks"),
    serial: bool = flag("--serial", "nothing runs beside anything, as the closed form counts"),
    detail: str = DETAIL,
    html: Path | None = option(None, "FILE", "write a Gantt chart as one HTML file"),
    trace: Path | None = option(None, "FILE", "write a trace for ui.perfetto.dev"),
    chakra: options.ChakraPrefix = None,
    json: options.JsonFlag = False,
    table: options.TableFile = None,
) -> None:
    """Simulate a step event by event: stages, links and micro-batches, with the closed form beside it."""
    from strata.app.render.accuracy import interval_of
    from strata.app.render.prediction import dimmed
    from strata.app.render.timeline import comparison_dict, comparison_table, simulation_table
    from strata.evaluate import evaluate
    from strata.mapping.plan import layout_degrees
    from strata.search.inputs import make_workload, named_inputs, phase_of
    from strata.search.plan_for import plan_for, why_infeasible
    from strata.simulate.step import simulate_schedules, simulate_step

    size = typed_sizes(batch, input, output)
    hardware, served, software = named_inputs(model, system, engine, weights, kv, with_overlap(set, overlap))
    work = make_workload(phase_of(served, phase), routing=None, **size)
    given = bool(plan or layout_degrees(served))
    result = evaluate(hardware, served, work, plan, software) if given else None
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
        return answer(lambda: comparison_dict(result, found), lambda: [shown], json, table, "schedules")
    if chakra:
        write_chakra(result, chakra)
    made = simulate_step(result, schedule, serial=serial, detail=detail)
    interval, lines = interval_of(result)
    told = lambda: {"plan": str(result.plan), **made.to_dict(), "interval": interval}  # noqa: E731
    answer(told, lambda: [*simulation_table(made), *dimmed(lines)], json, table)
    if html:
        wrote("gantt", made.to_html(html))
    if trace:
        wrote("trace", made.to_perfetto(trace), " (open it at https://ui.perfetto.dev)")
