"""A co-design for machines and for people: what changed, what binds, how methods compare; and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deepflow.codesign import Codesign
from deepflow.design.problem import SPLITS
from strata.app.render.generation import generation_dict
from strata.app.rows_out import rate_unit
from strata.app.terminal import plain_table, titled
from strata.base.drawing import COLOURS, STYLE, pyplot_of, save
from strata.base.units import show
from strata.pricing.metrics import METRICS
from strata.result import reasons

BUDGETS = {"die_area": "die area", "node_area": "package area", "power": "power"}


def codesign_dict(found: Codesign) -> dict[str, Any]:
    """A co-design for machines, in SI units."""
    trace, metric = found.trace, found.problem.metric
    unit = rate_unit(metric, METRICS[metric].unit)
    told: dict[str, Any] = {
        "metric": metric,
        "units": {"stated": unit, "best": unit, "value": unit, "trace": f"1, {unit}"},
        "found": found.found,
        "stated": float(getattr(found.start.metrics, metric)),
        "method": trace.method,
        "evaluations": trace.evaluations,
        "seconds": trace.seconds,
        "proven": found.proven,
    }
    if not found.found:
        return told
    best = found.result
    told |= {
        "best": found.value,
        "design": found.design,
        "stated_design": found.problem.named(found.problem.start),
        "bound_by": best.bound_by,
        "worth_of_one_percent": found.worth,
        "chip": generation_dict(found.generation),
        "trace": [list(pair) for pair in zip(trace.counts.tolist(), trace.values.tolist(), strict=True)],
    }
    if found.compared:
        told["methods"] = {
            name: {
                "value": t.value,
                "gap": found.gaps[name],
                "seconds": t.seconds,
                "evaluations": t.evaluations,
            }
            for name, t in found.compared.items()
        }
    return told


def codesign_tables(found: Codesign) -> list[Any]:
    """A co-design for people."""
    problem, trace = found.problem, found.trace
    metric = METRICS[problem.metric]
    before = float(getattr(found.start.metrics, problem.metric))
    how = "all evaluated, proven" if found.proven else f"{trace.method}, {trace.evaluations:,} designs"
    if not found.found:
        return [f"no design fits ({how}): more evaluations, a larger budget, or a smaller program"]
    stated = show(before, metric.unit) if found.start.fits else "; ".join(reasons(found.start.reason))
    title = (
        f"{metric.label} of {problem.program.name}: {show(found.value, metric.unit)}, as stated {stated};"
        f" {how} in {trace.seconds:.1f} s"
    )
    return [
        titled(title, _changes(found), _worth(found)),
        *([""] if found.compared else []),
        *_methods(found),
    ]


def _changes(found: Codesign) -> Any:
    """Every component: its shares before and after, and what binds it."""
    classes = [own.name for own in found.problem.variables.shares]
    table = plain_table("component", *classes, "bound by")
    for column in table.columns[1:-1]:
        column.justify = "right"
    start, best = found.problem.named(found.problem.start), found.design
    members = dict.fromkeys(m for own in found.problem.variables.shares for m in own.members)
    for member in members:
        cells = [
            f"{100 * float(start[key]):.1f} -> {100 * float(best[key]):.1f} %"
            if (key := f"{name}.{member}") in best
            else ""
            for name in classes
        ]
        table.add_row(member, *cells, found.generation.binds.get(member, ""))
    for name, value in best.items():
        if name.partition(".")[0] in SPLITS:
            continue
        both = f"{_told(name, start[name])} -> {_told(name, value)}"
        if name == "devices":  # as many as are built, which may be fewer than are allowed
            counts = [
                found.problem.generation_of(d).made.built.memory.devices for d in (None, found.trace.design)
            ]
            both = " -> ".join(f"{float(n):g}" for n in counts)
        table.add_row(name.replace("_", " "), both, *[""] * len(classes))
    return table


def _told(name: str, value: float | str) -> str:
    return f"{1e6 * float(value):.0f} mm2" if name == "die_area" else str(value)


def _worth(found: Codesign) -> str:
    """What rules the step, and what a hundredth more of each budget buys."""
    told = ", ".join(f"{BUDGETS[name]} {100 * gain:.2f} %" for name, gain in found.worth.items())
    return f"bound by {found.result.bound_by}; faster by one percent more of: {told}"


def _methods(found: Codesign) -> list[Any]:
    if not found.compared:
        return []
    metric = METRICS[found.problem.metric]
    table = plain_table("method", "best", "behind by", "time")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, gap in sorted(found.gaps.items(), key=lambda item: item[1]):
        trace = found.compared[name]
        value = show(found.metric_of(trace.value), metric.unit)
        table.add_row(name, value, f"{100 * gap:.1f} %", f"{trace.seconds:.1f} s")
    return [titled(f"methods at {found.trace.evaluations:,} designs each", table)]


def draw_codesign(found: Codesign, path: Path) -> Path:
    """How each method went, and the split before and after."""
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        wide = len(found.problem.variables.shares)
        figure, axes = pyplot.subplots(
            1, 1 + wide, figsize=(4.6 + 2.1 * wide, 3.4), width_ratios=[2.3, *[1.0] * wide]
        )
        panels = [axes] if not wide else list(axes)
        _draw_traces(found, panels[0])
        start, best = found.problem.named(found.problem.start), found.design
        members = list(dict.fromkeys(m for own in found.problem.variables.shares for m in own.members))
        colour = {m: COLOURS[k % len(COLOURS)] for k, m in enumerate(members)}
        for panel, own in zip(panels[1:], found.problem.variables.shares, strict=True):
            _draw_split(panel, own.name, [start, best], own.members, colour)
        handles = [pyplot.Rectangle((0, 0), 1, 1, color=colour[m]) for m in members]
        if members:
            figure.legend(handles, members, loc="lower center", ncols=len(members), fontsize=8, frameon=False)
        figure.tight_layout(rect=(0, 0.08, 1, 1))
        return save(pyplot, figure, path)


def _draw_traces(found: Codesign, panel: Any) -> None:
    metric = METRICS[found.problem.metric]
    before = float(getattr(found.start.metrics, found.problem.metric))
    scale = 1e3 if metric.unit == "s" else 1.0
    traces = found.compared or {found.trace.method: found.trace}
    for k, (name, trace) in enumerate(sorted(traces.items(), key=lambda item: item[1].value)):
        counts = [*trace.counts, trace.evaluations]
        values = [scale * found.metric_of(v) for v in (*trace.values, trace.value)]
        panel.step(counts, values, where="post", label=name, color=COLOURS[k % len(COLOURS)])
    if found.start.fits:
        panel.axhline(scale * before, color="#777", linestyle=":", linewidth=1.0)
        panel.text(10, scale * before, " as stated", va="bottom", color="#777", fontsize=8)
    unit = "ms" if metric.unit == "s" else metric.unit
    panel.set(xscale="log", yscale="log", xlabel="designs evaluated", ylabel=f"{metric.label} [{unit}]")
    lowest = scale * min(before, *(float(found.metric_of(t.value)) for t in traces.values()))
    panel.set(xlim=(10, 1.1 * found.trace.evaluations), ylim=(0.8 * lowest, 6.0 * lowest))
    panel.set_title("the best so far")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter("{x:g}")
    panel.legend(fontsize=7, ncols=2, loc="upper right", facecolor="white", framealpha=0.9, edgecolor="none")


def _draw_split(
    panel: Any, name: str, both: list[Any], members: tuple[str, ...], colour: dict[str, str]
) -> None:
    for x, design in enumerate(both):
        below = 0.0
        for member in members:
            share = 100 * float(design[f"{name}.{member}"])
            panel.bar(x, share, 0.7, bottom=below, color=colour[member])
            below += share
    panel.set_xticks([0, 1], ["stated", "best"])
    panel.set(ylim=(0, 100), title=f"{name} [%]")
    panel.grid(axis="x", visible=False)
