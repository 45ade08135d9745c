"""A run of training as a page and as a picture: days and money, memory by stage, where a step goes, what
stops take, other plans, scaling, sources.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from strata.app.render import page, training
from strata.app.render.figures import colour_of, picture
from strata.app.render.prediction_report import printed_html, result_records, sources_html
from strata.base.drawing import COLOURS, DARK, GREY
from strata.base.units import show
from strata.mapping.plan import plan_text
from strata.one_step import stage_memory
from strata.training.reliability import MONTH
from strata.training.run import TrainRun, count_text
from strata.training.scaling import ScalingCurve

STAGE_BARS = 24  # shown at most
WIDTH, ROW, HEAD = 11.0, 3.2, 0.55  # inches
WAIT_COLOUR, WORK_COLOUR = COLOURS[1], COLOURS[0]
SCALED: dict[str, Callable[[TrainRun], float]] = {
    "tokens/s/GPU, goodput included": lambda run: run.tokens_per_s_per_device * float(run.goodput.share),
    "days": lambda run: run.days,
}


def train_report(run: TrainRun, curves: list[ScalingCurve], path: Path) -> Path:
    """A run of training as a page that opens offline."""
    r, reliability = run.result, run.goodput
    rows = training.run_rows(run)
    rows.append(("goodput", f"{float(reliability.share):.1%}", "of the month is training"))
    said = [f"plan {plan_text(run.plan)}: {training.plan_words(run.plan, run.micro_batch)}"]
    if run.search is not None:
        s = run.search
        said.append(f"The best of {s.considered + s.refined:,} plans, {s.feasible:,} of which fit.")
    parts = [
        page.cards_html(rows),
        page.paragraphs([*said, *r.notes]),
        _memory(run),
        _step(run),
        _month(run),
        *(_scaling(curves) if curves else []),
        *(_others(run) if run.search is not None else []),
        sources_html(result_records(r)),
    ]
    title = f"Strata training: {r.model.name} on {r.system.name}"
    return page.write_page(path, title, parts, training.run_title(run))


def _memory(run: TrainRun) -> str:
    """A bar a stage, filled by purpose up to what a device may hold."""
    held, limit = stage_memory(run.result), float(run.result.metrics.memory_limit)
    labels = training.stage_names(run)
    places = np.unique(np.rint(np.linspace(0, len(labels) - 1, min(len(labels), STAGE_BARS))).astype(int))
    parts = {name: [float(sizes[i]) for i in places] for name, sizes in held.items()}
    sums = np.sum(list(parts.values()), axis=0)
    says = {name: show(sizes[int(np.argmax(sums))], "B") for name, sizes in parts.items()}
    texts, whole = [show(float(size), "B") for size in sums], max(limit, float(sums.max()))
    bars = page.stacked_html([labels[i] for i in places], parts, texts, whole, says=says)
    return page.section(training.memory_title(run).replace("memory", "Memory", 1).replace(",", ":", 1), bars)


def _step(run: TrainRun) -> str:
    whole, parts = float(run.result.metrics.step_time), training.step_parts(run)
    named = ((training.STEP_WORDS.get(name, name), time) for name, time in parts.items())
    rows = [(name, time, f"{show(time, 's')}, {time / whole:.1%}") for name, time in named]
    colours = [page.resource_colour(n if n in page.RESOURCE_COLOURS else "network") for n in parts]
    bars = page.bars_html(rows, colours)
    return page.bars_section(f"Where a step of {show(whole, 's')} goes", "On the mean device.", bars)


def _month(run: TrainRun) -> str:
    lost = {name: float(share) * MONTH / 3600.0 for name, share in run.goodput.lost.items()}
    rows = [(name, hours, f"{hours:.1f} h") for name, hours in lost.items()]
    bars = page.bars_html(rows, "var(--bad)")
    return page.section("What a month loses", bars, printed_html(training.goodput_table(run)))


def _scaling(curves: list[ScalingCurve]) -> list[str]:
    """Tokens/s of a device and days over devices, then a table a curve."""
    charts = [
        page.figure_html(_scaling_figure(curves, title, value), 340, f"scaling-{title.split()[0][:4]}")
        for title, value in SCALED.items()
    ]
    parts = [page.section("Scaling", f"<div class='two'>{''.join(charts)}</div>")]
    for curve in curves:
        table = page.html_table(*training.scaling_rows(curve, without="goodput"), (7,))
        parts.append(page.section(training.scaling_title(curve), table))
    return parts


def _scaling_figure(curves: list[ScalingCurve], title: str, value: Any) -> Any:
    figure = page.plotly_graphs().Figure()
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
    first, *rest = training.other_rows(run, found)
    rows = [first, *([*cells, behind or "+0.0%"] for *cells, behind in rest)]
    table = page.html_table(["plan", "tokens/s/GPU", "days", "MFU", "memory", "behind"], rows, best=0)
    below = page.paragraphs(training.others_remarks(found), "dim")
    return [page.section(f"T{training.OTHERS[1:]}", table, below), printed_html(training.levers_table(found))]


def draw_run(run: TrainRun, curves: list[ScalingCurve], path: Path) -> Path:
    """The picture, as SVG; scaling curves as a second row where there are any."""
    rows = 2 if curves else 1
    height = ROW * rows + HEAD
    shape = {"squeeze": False, "gridspec_kw": {"width_ratios": (1.25, 1, 1)}, "layout": None}
    with picture(path, (WIDTH, height), rows, 3, **shape) as (figure, axes):
        _draw_memory(axes[0][0], run)
        _draw_step(axes[0][1], run)
        _draw_month(axes[0][2], run)
        if curves:
            _draw_scaling(axes[1], curves)
        _head(figure, run, height)
    return path


def _head(figure: Any, run: TrainRun, height: float) -> None:
    """What the run is and its plan, above all parts."""
    r = run.result
    said = f"{r.model.name} on {r.system.name}: {count_text(run.tokens)} tokens in "
    said += f"{training.days_text(run.days)}, MFU {run.mfu:.1%}, goodput {float(run.goodput.share):.1%}"
    figure.text(0.012, 1 - 0.12 / height, said, fontsize=12, weight="bold", color=DARK, va="top")
    figure.text(0.012, 1 - 0.36 / height, plan_text(run.plan), fontsize=8.5, color=GREY, va="top")
    figure.tight_layout(rect=(0, 0, 1, 1 - HEAD / height))


def _draw_memory(axes: Any, run: TrainRun) -> None:
    """Stages as bars that lie, the first on top, filled by purpose."""
    held, limit = stage_memory(run.result), float(run.result.metrics.memory_limit)
    names = [name.replace("fullest", "fullest stage") for name in training.stage_names(run)]
    stages = len(names)
    places, left = np.arange(stages), np.zeros(stages)
    for place, (name, sizes) in enumerate((n, s) for n, s in held.items() if np.max(s) > 0):
        axes.barh(places, sizes / 1e9, left=left, color=colour_of(place), label=name, height=0.8)
        left = left + sizes / 1e9
    axes.axvline(limit / 1e9, color=DARK, linewidth=1.0, linestyle="--")
    axes.text(limit / 1e9, -0.7, show(limit, "B"), ha="right", va="bottom", fontsize=8, color=DARK)
    few = places if stages <= 16 else places[:: max(stages // 8, 1)]
    axes.set_yticks(few, [names[i] for i in few])
    axes.set_ylim(stages - 0.4 + max(0.8, 0.42 * stages), -0.75)
    axes.set(title="memory of a device [GB]", xlim=(0, limit / 1e9 * 1.04))
    axes.grid(axis="y", visible=False)
    axes.legend(fontsize=7.5, ncols=3, loc="lower left", frameon=False, handlelength=1.0, columnspacing=1.0)


def _draw_step(axes: Any, run: TrainRun) -> None:
    """Where a step's time goes, the work first."""
    whole, waits = float(run.result.metrics.step_time), run.waits
    parts = {name: time for name, time in training.step_parts(run).items() if time > 2e-3 * whole}
    shares = [100 * time / whole for time in parts.values()]
    said = [f"{show(time, 's')}, {100 * time / whole:.1f} %" for time in parts.values()]
    colours = [WAIT_COLOUR if name in waits else WORK_COLOUR for name in parts]
    names = [training.STEP_WORDS.get(name, name) for name in parts]
    _lying_bars(axes, names, shares, said, colours, beside=1.0)
    axes.set(title=f"a step of {show(whole, 's')} [%]", xlim=(0, max(shares) * 1.45))


def _lying_bars(
    axes: Any, names: list[str], sizes: list[float], said: list[str], colours: Any, *, beside: float
) -> None:
    """Bars that lie, the first on top, with words beside their ends."""
    axes.barh(np.arange(len(sizes)), sizes, color=colours, height=0.7)
    for place, (size, words) in enumerate(zip(sizes, said, strict=True)):
        axes.text(size + beside, place, words, va="center", fontsize=8, color=DARK)
    labels = [fill(name, 16, break_long_words=False, break_on_hyphens=False) for name in names]
    axes.set_yticks(np.arange(len(sizes)), labels)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def _draw_month(axes: Any, run: TrainRun) -> None:
    """What a month loses, in hours."""
    lost = run.goodput.lost
    hours = [float(s) * MONTH / 3600.0 for s in lost.values()]
    said = [f"{each:.1f} h" for each in hours]
    _lying_bars(axes, list(lost), hours, said, COLOURS[3], beside=0.02 * max(hours))
    axes.set(title="hours lost in a month", xlim=(0, max(*hours, 1e-9) * 1.25))


def _draw_scaling(axes: Any, curves: list[ScalingCurve]) -> None:
    """Tokens/s of a device, days and money over devices, with what perfect scaling would be."""
    values = (*SCALED.values(), lambda run: run.cost / 1e6)
    for curve, colour in zip(curves, COLOURS, strict=False):
        counts = [float(run.result.system.devices) for run in curve.runs]
        line = {"color": colour, "marker": "o", "markersize": 3.5, "linewidth": 1.4, "label": curve.kind}
        for each, value in zip(axes, values, strict=True):
            each.plot(counts, [value(run) for run in curve.runs], **line)
    first = curves[0].runs
    counts = [float(run.result.system.devices) for run in first]
    perfect = [first[0].days * counts[0] / n for n in counts]
    axes[1].plot(counts, perfect, color=GREY, linewidth=0.9, linestyle=":", label="perfect")
    axes[0].set_title("tokens/s/GPU, goodput included")
    axes[1].set(title="days", yscale="log")
    axes[2].set_title("million USD")
    for each in (axes[0], axes[2]):
        each.set_ylim(0, each.get_ylim()[1] * 1.1)
    longest = max(run.days for curve in curves for run in curve.runs)
    ticks = [m * 10.0**e for e in range(-3, 6) for m in (1, 2, 5) if m * 10.0**e <= longest * 1.5]
    axes[1].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[1].set_ylim(min(perfect) * 0.8, longest * 1.25)
    for each in axes:
        each.set_xscale("log", base=2)
        each.set_xticks(counts, [f"{n:,.0f}" for n in counts], rotation=30 if len(counts) > 5 else 0)
        each.minorticks_off()
        each.set_xlabel("devices")
        each.legend(fontsize=8, frameon=False)
