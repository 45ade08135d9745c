"""`strata sweep`, `strata power-cap`: several things varied at once; speed against a cap of power."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.app.commands import options
from strata.app.commands.options import command, drawing, flag, option, typed_sizes, with_price
from strata.app.rows_out import answer, write_rows
from strata.app.terminal import metric_names, print_json, say, wrote
from strata.errors import BadValue
from strata.units import whole

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
    from strata.app.render import sweep as render
    from strata.app.render.prediction import dimmed
    from strata.search.sweep import sweep as run_sweep

    size: dict[str, Any] = {**typed_sizes(batch, input, output)}
    software: dict[str, Any] = {"engine": engine, "weights": weights, "kv": kv, "fabric": fabric}
    asked: dict[str, Any] = {"phase": phase, "plan": plan, "metric": metric, "where": where, "orders": orders}
    swept = run_sweep(system, model, vary, **size, **software, **asked, changes=with_price(set, price))
    intervals, lines = render.sweep_intervals(swept)
    if json:
        print_json({**render.sweep_dict(swept), **intervals})
    else:
        remarks = (*render.sweep_remarks(swept), *render.best_line(swept))
        say(render.sweep_table(swept), *remarks, *dimmed(lines))
    if table:
        wrote("table", write_rows(table, *render.sweep_rows(swept)))
    if report:
        wrote("report", render.sweep_report(swept, report))


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
        "N",
        "prompt tokens of a sequence; 200:800 where only bounds are known: answers are ranges",
        flags="--input -i",
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
    json: options.JsonFlag = False,
    table: options.TableFile = None,
) -> None:
    """What a lower power limit of each device costs in speed and saves in energy: tokens/s, latency, clock,
    power and joules a token at each cap, of the devices and at the plug, and the cap with the least of them.
    """
    from strata.app.render.power_cap import draw_power_caps, power_cap_dict, power_cap_tables
    from strata.search.inputs import make_workload, named_inputs, phase_of
    from strata.search.power_caps import power_caps

    hardware, program, software = named_inputs(model, system, engine, weights, kv, set or [], fabric)
    wanted = phase_of(program, phase)
    lengths: Any = typed_lengths(input)
    work = make_workload(wanted, whole(batch, "--batch"), lengths, whole(output, "--output"))
    found = power_caps(
        hardware, program, work, plan, software, caps=typed_caps(caps) if caps.strip() else None
    )
    answer(power_cap_dict, power_cap_tables, json, table, "rows", of=[found])
    if svg is not None:
        wrote("picture", draw_power_caps(found, svg))


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
