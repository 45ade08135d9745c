"""A run of training as a page: days and money, memory by stage, where a step goes, what stops take, other
plans, scaling, sources.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.page import (
    cards_html,
    figure_html,
    html_page,
    html_table,
    paragraphs,
    plotly_graphs,
    section,
)
from strata.app.render.page_bars import (
    RESOURCE_COLOURS,
    bars_html,
    bars_section,
    resource_colour,
    stacked_html,
)
from strata.app.render.page_told import printed_html, result_records, sources_html
from strata.app.render.training import (
    STEP_WORDS,
    few_digits,
    goodput_table,
    levers_table,
    plan_words,
    run_rows,
    run_title,
    step_parts,
    train_dict,
)
from strata.drawing import keep
from strata.evaluate import stage_memory
from strata.mapping.plan import plan_text
from strata.search.plan_for import why_behind
from strata.training.reliability import MONTH
from strata.training.run import TrainRun
from strata.training.scaling import ScalingCurve
from strata.units import show

STAGE_BARS = 24  # shown at most


def train_report(run: TrainRun, curves: list[ScalingCurve], path: Path) -> Path:
    """A run of training as a page that opens offline."""
    r, reliability = run.result, run.goodput
    rows = run_rows(run)
    rows.append(("goodput", f"{float(reliability.share):.1%}", "of the month is training"))
    said = [f"plan {plan_text(run.plan)}: {plan_words(run.plan, run.micro_batch)}"]
    if run.search is not None:
        s = run.search
        said.append(f"The best of {s.considered + s.refined:,} plans, {s.feasible:,} of which fit.")
    parts = [
        cards_html(rows),
        paragraphs([*said, *r.notes]),
        _memory(run),
        _step(run),
        _month(run),
        *(_scaling(curves) if curves else []),
        *(_others(run) if run.search is not None else []),
        sources_html(result_records(r)),
    ]
    return keep(path, html_page(f"Strata training: {r.model.name} on {r.system.name}", parts, run_title(run)))


def _memory(run: TrainRun) -> str:
    """A bar a stage, filled by purpose up to what a device may hold."""
    held, limit = stage_memory(run.result), float(run.result.metrics.memory_limit)
    stages = len(next(iter(held.values())))
    places = np.unique(np.rint(np.linspace(0, stages - 1, min(stages, STAGE_BARS))).astype(int))
    parts = {name: [float(sizes[i]) for i in places] for name, sizes in held.items()}
    sums = np.sum(list(parts.values()), axis=0)
    fullest = int(np.argmax(sums))
    names = [f"stage {i}" for i in places] if stages > 1 else ["fullest" if run.plan.pp > 1 else "device"]
    bars = stacked_html(
        names,
        parts,
        [show(float(size), "B") for size in sums],
        max(limit, float(sums.max())),
        says={name: show(sizes[fullest], "B") for name, sizes in parts.items()},
    )
    used = show(float(run.result.metrics.memory_used), "B")
    return section(f"Memory of a device: {used} of {show(limit, 'B')} at most", bars)


def _step(run: TrainRun) -> str:
    whole, parts = float(run.result.metrics.step_time), step_parts(run)
    bars = bars_html(
        [STEP_WORDS.get(name, name) for name in parts],
        list(parts.values()),
        [f"{show(time, 's')}, {time / whole:.1%}" for time in parts.values()],
        [resource_colour(name if name in RESOURCE_COLOURS else "network") for name in parts],
    )
    return bars_section(f"Where a step of {show(whole, 's')} goes", "On the mean device.", bars)


def _month(run: TrainRun) -> str:
    lost = {name: float(share) * MONTH / 3600.0 for name, share in run.goodput.lost.items()}
    bars = bars_html(
        list(lost), list(lost.values()), [f"{hours:.1f} h" for hours in lost.values()], "var(--bad)"
    )
    return section("What a month loses", bars, printed_html(goodput_table(run)))


def _scaling(curves: list[ScalingCurve]) -> list[str]:
    """Tokens/s of a device and days over devices, then a table a curve."""
    charts = []
    for title, value in (
        (
            "tokens/s/GPU, goodput included",
            lambda run: run.tokens_per_s_per_device * float(run.goodput.share),
        ),
        ("days", lambda run: run.days),
    ):
        charts.append(
            figure_html(_scaling_figure(curves, title, value), 340, f"scaling-{title.split()[0][:4]}")
        )
    drawn = section("Scaling", f"<div class='two'>{''.join(charts)}</div>")
    return [drawn, *(_scaling_table(curve) for curve in curves)]


def _scaling_table(curve: ScalingCurve) -> str:
    """A line for each number of devices; why, where there is no plan."""
    efficiency, rows = iter(curve.efficiency()), []
    for point in curve.points:
        first = [f"{point.devices:,}", f"{point.batch:g}"]
        if point.run is None:
            rows.append([*first, *[""] * 5, point.why_none])
            continue
        run = point.run
        cells = [show(run.tokens_per_s_per_device), f"{next(efficiency):.1%}", f"{run.mfu:.1%}"]
        cells += [few_digits(run.days), f"{run.cost:,.0f}" if run.cost == run.cost else ""]
        rows.append([*first, *cells, plan_text(run.plan)])
    header = ["devices", "batch", "tokens/s/GPU", "efficiency", "MFU", "days", "USD", "plan"]
    said = {"strong": "the same batch for all", "weak": "the batch grows with the devices"}.get(
        curve.kind, ""
    )
    return section(f"{curve.kind} scaling: {said}", html_table(header, rows, (7,)))


def _scaling_figure(curves: list[ScalingCurve], title: str, value: Any) -> Any:
    figure = plotly_graphs().Figure()
    counts = sorted({float(run.result.system.devices) for curve in curves for run in curve.runs})
    for curve in curves:
        x = [float(run.result.system.devices) for run in curve.runs]
        figure.add_scatter(x=x, y=[value(run) for run in curve.runs], mode="lines+markers", name=curve.kind)
    figure.update_xaxes(title="devices", type="log", tickvals=counts, ticktext=[f"{n:,.0f}" for n in counts])
    figure.update_yaxes(title=title, rangemode="tozero")
    return figure


def _others(run: TrainRun) -> list[str]:
    found = run.search
    assert found is not None
    told = train_dict(run, [])["search"]["plans"]
    best = told[0]["tokens_per_s_per_device"]
    rows = [
        [
            p["plan"],
            show(p["tokens_per_s_per_device"]),
            few_digits(p["days"]),
            f"{p['mfu']:.1%}",
            show(p["memory_B"], "B"),
            f"{p['tokens_per_s_per_device'] / best - 1.0:+.1%}" if i else "",
        ]
        for i, p in enumerate(told)
    ]
    table = html_table(["plan", "tokens/s/GPU", "days", "MFU", "memory", "behind"], rows, best=0)
    below = [f"second: {why_behind(c.result, found.nearest)}" for c in found.choices[1:2]]
    below += [f"{count:,} plans are out: {why}" for why, count in found.out.items()]
    heading = "The best plans, one for each division of the devices"
    return [section(heading, table, paragraphs(below, "dim")), printed_html(levers_table(found))]
