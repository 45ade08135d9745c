"""Simulated steps as text: one with its resources, or schedules side by side."""

from __future__ import annotations

from typing import Any

from strata.app.terminal import plain_table, titled
from strata.result import Result
from strata.simulate.gantt import by_place
from strata.simulate.step import Simulation
from strata.units import show

MOST_RESOURCES = 24  # lines of a table; more are summed up


def simulation_table(made: Simulation) -> list[Any]:
    """One simulated step: its time beside the closed form, what leads from one to the other, and how busy
    resources were.
    """
    head = plain_table(show_header=False)
    for name, value, about in (
        ("schedule", made.schedule, f"{made.stages} stages, {made.microbatches} micro-batches"),
        ("time", show(made.time, "s"), f"{len(made.events.tasks):,} tasks, each {DETAIL[made.detail]}"),
        ("closed form", show(made.closed_form, "s"), "of the schedule, each stage in its own time"),
        ("evaluation", show(made.step_time, "s"), "what strata predict says"),
        ("bubble", f"{made.bubble:.1%}", "of the step the mean stage waits"),
    ):
        head.add_row(name, value, about)
    why = plain_table(show_header=False)
    for what, seconds in made.why:
        why.add_row(what, _signed(seconds, made.step_time))
    busy = plain_table("resource", ">busy")
    used = made.utilisation
    names = sorted(used, key=by_place)
    for name in names[:MOST_RESOURCES]:
        busy.add_row(name, f"{used[name]:.1%}")
    left = len(names) - MOST_RESOURCES
    below = f"and {left} more resources (--json has them)" if left > 0 else ""
    return [
        titled(made.title, head),
        titled("from the evaluation's time to this one", why),
        titled("busy", busy, below),
    ]


DETAIL = {"op": "an op", "block": "a block", "stage": "a stage's pass"}


def _signed(seconds: float, whole: float) -> str:
    """A difference; roundings are none."""
    if abs(seconds) <= 1e-9 * whole:
        return "0"
    return f"{'+' if seconds > 0 else '-'}{show(abs(seconds), 's')}"


def comparison_dict(result: Result, found: dict[str, Simulation | str]) -> dict[str, Any]:
    """Schedules side by side for machines."""
    rows = {n: s.to_dict() if isinstance(s, Simulation) else {"why_not": s} for n, s in found.items()}
    return {"plan": str(result.plan), "schedules": rows}


def comparison_table(result: Result, found: dict[str, Simulation | str]) -> Any:
    """Schedules side by side, or why one cannot run."""
    table = plain_table(
        "schedule", ">time", ">closed form", ">bubble", ">busiest stage", ">idlest stage", ">busiest link", ""
    )
    for name, made in found.items():
        if isinstance(made, str):
            table.add_row(name, *[""] * 6, made)
            continue
        used = made.utilisation
        stages = [v for k, v in used.items() if k.startswith("stage ") and k.count(" ") == 1]
        links = [v for k, v in used.items() if k.startswith("link ")]
        table.add_row(
            name,
            show(made.time, "s"),
            show(made.closed_form, "s"),
            f"{made.bubble:.1%}",
            f"{max(stages):.1%}",
            f"{min(stages):.1%}",
            f"{max(links):.1%}" if links else "",
            "",
        )
    about = f"{result.program.name} on {result.system.name}, {result.plan!r}, a training step"
    return titled(about, table)
