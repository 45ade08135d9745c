"""Post-training by reinforcement learning, for people, for machines, and as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.adapters.post_training.iteration import ALL, SAMPLING, TRAINING, Iteration
from strata.adapters.post_training.run import PostTraining
from strata.app.render.tables import cells_of, floats, picked, rows_table, table
from strata.app.terminal import titled
from strata.base.drawing import COLOURS, DARK, GREY, Canvas
from strata.base.units import show
from strata.mapping.plan import plan_text

SHOWN = 8  # ways that are listed
WIDTH, LEFT, RIGHT, TOP, ROW, GAP = 860.0, 210.0, 24.0, 58.0, 30.0, 14.0
TICKS = 6
PHASES = {
    "read prompts": COLOURS[9],
    "rollouts": COLOURS[0],
    "rollout tail": "#9dbbe0",
    "scoring": COLOURS[2],
    "training": COLOURS[1],
    "moving state": COLOURS[5],
    "weight transfer": COLOURS[3],
}
MOST_WAYS = 4  # that are drawn: the best of each kind


def post_training_tables(found: PostTraining) -> list[Any]:
    """A heading, the ways to run an iteration, and the best one: its phases, its memory, what it costs."""
    best = found.best
    below = "devices: one pool for all phases, or those that sample + those that train"
    parts: list[Any] = [titled(found.question, _ways_table(found.ways[:SHOWN]), below)]
    if len(found.ways) > SHOWN:
        parts.append(f"{len(found.ways) - SHOWN} more; --json has all of them")
    if not best.fits:
        return parts
    phases = (
        (*cells_of(p, "name pool start:s time:s"), f"{p.time / best.time:.1%}", p.bound_by)
        for p in best.phases
    )
    memory = []
    for phase, sizes in best.memory.items():
        largest = sorted(sizes.items(), key=lambda item: -item[1])
        of_which = ", ".join(f"{show(size, 'B')} {name}" for name, size in largest)
        memory.append((phase, show(sum(sizes.values()), "B"), show(best.limits[phase], "B"), of_which))
    parts.append(table(f"the best: {pools_text(best)}", "<phase|<on|>start|>time|)share|bound by", phases))
    parts.append(table("memory of a device", "<phase|>used|>may fill|of which", memory))
    return [*parts, *_remarks(best)]


def pools_text(way: Iteration) -> str:
    """How devices are shared out, in words."""
    if way.colocated:
        return "one pool" if way.keep else "one pool, moved out"
    return f"{way.rollout_devices} + {way.training_devices}" + (" async" if way.asynchronous else "")


def _ways_table(ways: list[Iteration]) -> Any:
    fields = "time:s samples_per_s:.3g tokens_per_s_per_device:,.0f usd:.3g kwh:.3g bound_by"
    rows = []
    for way in ways:
        plans = (plan_text(way.rollout_plan), plan_text(replace(way.training_plan, microbatches=0.0)))
        cells = cells_of(way, fields) if way.fits else [*["-"] * 5, "does not fit"]
        rows.append((pools_text(way), *plans, *cells))
    head = "<devices|rollout plan~|training plan~|>iteration|>samples/s|>tokens/s/device|>USD|>kWh|<bound by"
    return rows_table(head, rows)


def _remarks(way: Iteration) -> list[str]:
    said = [] if way.keep else ["moved out: what a phase does not need lies in the hosts' memory meanwhile"]
    at_once = f"{way.slots:,.0f} responses at once, of {float(way.recipe.samples):,.0f}"
    said.append(f"{at_once}; an iteration takes {way.usd:.3g} USD and {way.kwh:.3g} kWh")
    if not way.colocated:
        idle = ", ".join(f"the {pool} {way.idle_share(pool):.0%}" for pool in (SAMPLING, TRAINING))
        said.append(f"waiting: {idle} of the time")
    return said


def post_training_dict(found: PostTraining) -> dict[str, Any]:
    """Every number, SI units."""
    names = "model=model.name system=system.name recipe=recipe.name rollout_engine=rollout_engine.name"
    own = "batch group prompt response longest spread minibatch epochs"
    return {
        "question": {
            **picked(found, f"{names} training_engine=training_engine.name"),
            **floats(found.recipe, own),
        },
        "ways": [_way(way) for way in found.ways],
        "why_none": found.why_none,
    }


def _way(way: Iteration) -> dict[str, Any]:
    rates = "samples_per_s tokens_per_s tokens_per_s_per_device"
    phase = "phase=name pool start_s=start time_s=time bound_by"
    return {
        "pools": "one" if way.colocated else "two",
        **picked(way, "asynchronous keep rollout_devices training_devices"),
        **picked(way, "rollout_plan training_plan", plan_text),
        **picked(way, f"fits why_not time_s=time {rates} cost_USD=usd energy_J=energy bound_by slots"),
        "phases": [picked(p, phase) for p in way.phases if np.isfinite(p.time)],
        **picked(way, "memory_B=memory limit_B=limits"),
    }


def post_training_rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each way, with times of its phases."""
    left_out = ("phases", "memory_B", "limit_B")
    return [
        {k: v for k, v in way.items() if k not in left_out}
        | {f"{p['phase'].replace(' ', '_')}_s": p["time_s"] for p in way["phases"]}
        for way in told["ways"]
    ]


def draw_post_training(found: PostTraining, path: Path) -> Path:
    """The best ways that fit, on one scale of time, each with its pools under one another."""
    ways = [way for way in found.ways if way.fits][:MOST_WAYS]
    lines = sum(len(pools_of(way)) for way in ways)
    height = TOP + lines * ROW + len(ways) * (GAP + 16.0) + 44.0
    canvas = Canvas(WIDTH, height)
    canvas.text((14.0, 20.0), found.question, 10.5, DARK, bold=True)
    _legend(canvas, [p.name for way in ways for p in way.phases])
    scale = (WIDTH - LEFT - RIGHT) / max(way.time for way in ways)
    y = TOP
    for way in ways:
        said = f"{pools_text(way)}: {show(way.time, 's')}, {way.samples_per_s:.3g} samples/s"
        canvas.text((14.0, y + 11.0), said, 9.0, DARK, bold=True)
        y += 16.0
        for name in pools_of(way):
            _line(canvas, way, name, y, scale)
            y += ROW
        y += GAP
    _ticks(canvas, max(way.time for way in ways), scale, y)
    return canvas.save(path)


def pools_of(way: Iteration) -> tuple[str, ...]:
    """The lines of a way: its pools."""
    return (ALL,) if way.colocated else (SAMPLING, TRAINING)


def _line(canvas: Canvas, way: Iteration, name: str, y: float, scale: float) -> None:
    count = way.training_devices if name == TRAINING else way.rollout_devices
    canvas.text((14.0, y + 18.0), f"{name} ({count})", 9.0, GREY)
    canvas.box((LEFT, y + 4.0), (way.time * scale, ROW - 8.0), fill="#f2f2f2")
    for p in (p for p in way.phases if p.pool in (name, ALL)):
        x, wide = LEFT + p.start * scale, p.time * scale
        canvas.box((x, y + 4.0), (wide, ROW - 8.0), fill=PHASES.get(p.name, GREY), edge="#ffffff", width=0.6)
        if wide > 40.0:
            canvas.text((x + 0.5 * wide, y + 18.5), show(p.time, "s"), 8.0, "#ffffff", centred=True)


def _legend(canvas: Canvas, names: list[str]) -> None:
    x = 14.0
    for name, colour in PHASES.items():
        if name in names:
            canvas.box((x, 32.0), (10.0, 10.0), fill=colour)
            canvas.text((x + 14.0, 41.0), name, 8.5, DARK)
            x += 32.0 + 5.2 * len(name)


def _ticks(canvas: Canvas, time: float, scale: float, y: float) -> None:
    canvas.line((LEFT, y), (LEFT + time * scale, y), GREY, width=0.8)
    for i in range(TICKS + 1):
        at = time * i / TICKS
        x = LEFT + at * scale
        canvas.line((x, y), (x, y + 4.0), GREY, width=0.8)
        canvas.text((x, y + 16.0), f"{at:.3g} s", 8.0, GREY, centred=True)
