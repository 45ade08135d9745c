"""Simulated steps as text: one with its resources, or schedules side by side."""

from __future__ import annotations

from typing import Any

from strata.app.render.tables import bare, cells_of, table
from strata.result import Result
from strata.simulate.gantt import by_place
from strata.simulate.step import Simulation
from strata.units import show

MOST_RESOURCES = 24  # lines of a table; more are summed up
DETAIL = {"op": "an op", "block": "a block", "stage": "a stage's pass"}


def simulation_table(made: Simulation) -> list[Any]:
    """One simulated step: its time beside the closed form, what leads from one to the other, and how busy
    resources were.
    """
    head = (
        ("schedule", made.schedule, f"{made.stages} stages, {made.microbatches} micro-batches"),
        ("time", show(made.time, "s"), f"{len(made.events.tasks):,} tasks, each {DETAIL[made.detail]}"),
        ("closed form", show(made.closed_form, "s"), "of the schedule, each stage in its own time"),
        ("evaluation", show(made.step_time, "s"), "what strata predict says"),
        ("bubble", f"{made.bubble:.1%}", "of the step the mean stage waits"),
    )
    why = ((what, _signed(seconds, made.step_time)) for what, seconds in made.why)
    names = sorted(made.utilisation, key=by_place)
    busy = ((name, f"{made.utilisation[name]:.1%}") for name in names[:MOST_RESOURCES])
    left = len(names) - MOST_RESOURCES
    below = f"and {left} more resources (--json has them)" if left > 0 else ""
    return [
        bare(made.title, head),
        bare("from the evaluation's time to this one", why),
        table("busy", "resource|>busy", busy, below),
    ]


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
    rows = []
    for name, made in found.items():
        if isinstance(made, str):
            rows.append([name, *[""] * 6, made])
            continue
        used = made.utilisation
        stages = [v for k, v in used.items() if k.startswith("stage ") and k.count(" ") == 1]
        links = [v for k, v in used.items() if k.startswith("link ")]
        busiest = [f"{max(stages):.1%}", f"{min(stages):.1%}", f"{max(links):.1%}" if links else "", ""]
        rows.append([name, *cells_of(made, "time:s closed_form:s bubble:.1%"), *busiest])
    about = f"{result.program.name} on {result.system.name}, {result.plan!r}, a training step"
    head = "schedule|>time|>closed form|>bubble|>busiest stage|>idlest stage|>busiest link|"
    return table(about, head, rows)
