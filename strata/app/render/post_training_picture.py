"""An iteration of post-training as a picture: phases on a time line, a line for each pool."""

from __future__ import annotations

from pathlib import Path

from strata.app.render.post_training import pools_text
from strata.drawing import COLOURS, DARK, GREY, Canvas
from strata.training.post_training import PostTraining
from strata.training.post_training_iteration import ALL, SAMPLING, TRAINING, Iteration, PostTrainingPhase
from strata.units import show

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
