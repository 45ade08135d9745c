"""Post-training by reinforcement learning, for people, for machines, and as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.terminal import plain_table, titled
from strata.drawing import COLOURS, DARK, GREY, Canvas
from strata.mapping.plan import plan_text
from strata.training.post_training import PostTraining
from strata.training.post_training_iteration import ALL, SAMPLING, TRAINING, Iteration, PostTrainingPhase
from strata.units import show

SHOWN = 8  # ways that are listed


def post_training_tables(found: PostTraining) -> list[Any]:
    """A heading, the ways to run an iteration, and the best one: its phases, its memory, what it costs."""
    best = found.best
    below = "devices: one pool for all phases, or those that sample + those that train"
    parts: list[Any] = [titled(found.question, _ways_table(found.ways[:SHOWN]), below)]
    if len(found.ways) > SHOWN:
        parts.append(f"{len(found.ways) - SHOWN} more; --json has all of them")
    if not best.fits:
        return parts
    parts.append(titled(f"the best: {pools_text(best)}", _phases_table(best)))
    parts.append(titled("memory of a device", _memory_table(best)))
    return [*parts, *_remarks(best)]


def pools_text(way: Iteration) -> str:
    """How devices are shared out, in words."""
    if way.colocated:
        return "one pool" if way.keep else "one pool, moved out"
    return f"{way.rollout_devices} + {way.training_devices}" + (" async" if way.asynchronous else "")


def _ways_table(ways: list[Iteration]) -> Any:
    table = plain_table("<devices")
    for head in ("rollout plan", "training plan"):
        table.add_column(head, overflow="fold")
    for head in ("iteration", "samples/s", "tokens/s/device", "USD", "kWh"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for way in ways:
        plans = (plan_text(way.rollout_plan), plan_text(replace(way.training_plan, microbatches=0.0)))
        if not way.fits:
            table.add_row(pools_text(way), *plans, *["-"] * 5, "does not fit")
            continue
        cells = (
            show(way.time, "s"),
            f"{way.samples_per_s:.3g}",
            f"{way.tokens_per_s_per_device:,.0f}",
            f"{way.usd:.3g}",
            f"{way.kwh:.3g}",
        )
        table.add_row(pools_text(way), *plans, *cells, way.bound_by)
    return table


def _phases_table(way: Iteration) -> Any:
    table = plain_table()
    for head, side in (("phase", "left"), ("on", "left"), ("start", "right"), ("time", "right")):
        table.add_column(head, justify=side, no_wrap=True)
    table.add_column("share", justify="right")
    table.add_column("bound by")
    for p in way.phases:
        times = (show(p.start, "s"), show(p.time, "s"), f"{p.time / way.time:.1%}")
        table.add_row(p.name, p.pool, *times, p.bound_by)
    return table


def _memory_table(way: Iteration) -> Any:
    table = plain_table("<phase", ">used", ">may fill", "of which")
    for phase, held in way.memory.items():
        parts = ", ".join(f"{show(v, 'B')} {k}" for k, v in sorted(held.items(), key=lambda kv: -kv[1]))
        table.add_row(phase, show(sum(held.values()), "B"), show(way.limits[phase], "B"), parts)
    return table


def _remarks(way: Iteration) -> list[str]:
    said = [] if way.keep else ["moved out: what a phase does not need lies in the hosts' memory meanwhile"]
    said += [
        f"{way.slots:,.0f} responses at once, of {float(way.recipe.samples):,.0f}; "
        f"an iteration takes {way.usd:.3g} USD and {way.kwh:.3g} kWh"
    ]
    if not way.colocated:
        idle = ", ".join(f"the {pool} {way.idle_share(pool):.0%}" for pool in (SAMPLING, TRAINING))
        said.append(f"waiting: {idle} of the time")
    return said


def post_training_dict(found: PostTraining) -> dict[str, Any]:
    """Every number, SI units."""
    r = found.recipe
    names = ("batch", "group", "prompt", "response", "longest", "spread", "minibatch", "epochs")
    return {
        "question": {
            "model": found.model.name,
            "system": found.system.name,
            "recipe": r.name,
            "rollout_engine": found.rollout_engine.name,
            "training_engine": found.training_engine.name,
            **{name: float(getattr(r, name)) for name in names},
        },
        "ways": [_way(way) for way in found.ways],
        "why_none": found.why_none,
    }


def _way(way: Iteration) -> dict[str, Any]:
    return {
        "pools": "one" if way.colocated else "two",
        "asynchronous": way.asynchronous,
        "keep": way.keep,
        "rollout_devices": way.rollout_devices,
        "training_devices": way.training_devices,
        "rollout_plan": plan_text(way.rollout_plan),
        "training_plan": plan_text(way.training_plan),
        "fits": way.fits,
        "why_not": way.why_not,
        "time_s": way.time,
        "samples_per_s": way.samples_per_s,
        "tokens_per_s": way.tokens_per_s,
        "tokens_per_s_per_device": way.tokens_per_s_per_device,
        "cost_USD": way.usd,
        "energy_J": way.energy,
        "bound_by": way.bound_by,
        "slots": way.slots,
        "phases": [
            {"phase": p.name, "pool": p.pool, "start_s": p.start, "time_s": p.time, "bound_by": p.bound_by}
            for p in way.phases
            if np.isfinite(p.time)
        ],
        "memory_B": way.memory,
        "limit_B": way.limits,
    }


def post_training_rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each way, with times of its phases."""
    left_out = ("phases", "memory_B", "limit_B")
    return [
        {k: v for k, v in way.items() if k not in left_out}
        | {f"{p['phase'].replace(' ', '_')}_s": p["time_s"] for p in way["phases"]}
        for way in told["ways"]
    ]


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
    count = {SAMPLING: way.rollout_devices, TRAINING: way.training_devices}.get(
        name, way.rollout_devices if way.colocated else 0
    )
    canvas.text((14.0, y + 18.0), f"{name} ({count})", 9.0, GREY)
    canvas.box((LEFT, y + 4.0), (way.time * scale, ROW - 8.0), fill="#f2f2f2")
    for p in way.phases:
        if p.pool in (name, ALL):
            _phase(canvas, p, y, scale)


def _phase(canvas: Canvas, p: PostTrainingPhase, y: float, scale: float) -> None:
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
