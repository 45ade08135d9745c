"""`strata sweep`: several things varied at once."""

from __future__ import annotations

from typing import Any

from strata.app.commands import options
from strata.app.commands.options import command, flag, option, typed_sizes, with_price
from strata.app.rows_out import write_rows
from strata.app.terminal import metric_names, print_json, say, wrote

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
    "PLAN",
    "parallel degrees, like tp=8,ep=8; best: for each point  [default: the best in the middle]",
    flags="--plan -p",
)


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
    json: options.JsonFlag = False,
    table: options.TableFile = None,
    where: str = option("", "CONDITION", "with --plan best: only plans like this, '(ep == 1) & (cp == 1)'"),
    orders: bool = flag("--orders", "with --plan best: every order of each plan on the fabric"),
    report: options.PicturesReport = None,
) -> None:
    """Vary several things at once, each on its own axis, and see what they do: up to three quantities, and
    words besides.
    """
    from strata.app.render.prediction import dimmed
    from strata.app.render.sweep import (
        best_line,
        sweep_dict,
        sweep_intervals,
        sweep_remarks,
        sweep_rows,
        sweep_table,
    )
    from strata.search.sweep import sweep as run_sweep

    size: dict[str, Any] = {**typed_sizes(batch, input, output)}
    software: dict[str, Any] = {
        "engine": engine,
        "weights": weights,
        "kv": kv,
        "fabric": fabric,
        "changes": with_price(set, price),
    }
    asked: dict[str, Any] = {"phase": phase, "plan": plan, "metric": metric, "where": where, "orders": orders}
    swept = run_sweep(system, model, vary, **size, **software, **asked)
    intervals, lines = sweep_intervals(swept)
    if json:
        print_json({**sweep_dict(swept), **intervals})
    else:
        say(sweep_table(swept), *sweep_remarks(swept), *best_line(swept), *dimmed(lines))
    if table:
        wrote("table", write_rows(table, *sweep_rows(swept)))
    if report:
        from strata.app.render.sweep import sweep_report

        wrote("report", sweep_report(swept, report))
