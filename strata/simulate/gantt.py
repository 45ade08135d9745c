"""Pictures of a schedule: a Gantt chart in one HTML file, a track a resource, and a trace for Perfetto."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import count
from pathlib import Path

from strata.base.drawing import COLOURS, DARK, GREY, keep
from strata.base.units import show
from strata.pricing import timeline
from strata.simulate.events import Schedule, ScheduledTask

WIDTH, LABEL, TRACK, TOP = 1400.0, 170.0, 26.0, 34.0  # points
PLOT = WIDTH - LABEL - 16.0
KIND_COLOURS = {
    "forward": COLOURS[0],
    "backward": COLOURS[1],
    "weight": COLOURS[2],
    "both": COLOURS[4],
    "send": COLOURS[7],
    "collective": COLOURS[3],
    "recompute": COLOURS[8],
    "update": COLOURS[5],
    "embedding": COLOURS[9],
    "cell": COLOURS[0],
    "softmax": COLOURS[4],
}
MEANING = {
    "both": "forward beside backward",
    "weight": "gradients to weights",
    "backward": "backward",
    "send": "hand-over",
    "update": "update, host",
}
TICKS = 8
NARROW = 4.0


def gantt_html(schedule: Schedule, path: str | Path, title: str) -> Path:
    """Write a Gantt chart: one HTML file, hover for names and times, wheel to zoom, drag to move."""
    return keep(Path(path), gantt_page(schedule, title))


def gantt_svg(schedule: Schedule, path: str | Path) -> Path:
    """Write the chart alone, for pages that show it."""
    look = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11" stroke-width="0.6"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return keep(Path(path), f"<svg {look} {_box(_height(schedule))}>\n{ground}\n{_chart(schedule)}\n</svg>\n")


def gantt_inline(schedule: Schedule) -> str:
    """The chart for a notebook, on a ground of its own: its ink is made for white paper."""
    look = (
        'font-family="sans-serif" font-size="11" stroke-width="0.6" role="img" aria-label="tasks over time"'
    )
    style = 'style="width:100%;background:#fff;color:#222;border-radius:8px"'
    # several charts of one page must not share a name
    chart = _chart(schedule).replace(' id="plot"', "")
    return f"<svg {look} {style} {_box(_height(schedule))}>{chart}</svg>"


def gantt_page(schedule: Schedule, title: str) -> str:
    """The chart as text; the same schedule gives the same bytes."""
    kinds = dict.fromkeys(t.task.kind for t in schedule.tasks if t.end > t.start)
    legend = [(MEANING.get(k, k), KIND_COLOURS.get(k, GREY)) for k in kinds]
    return zoomed_page(title, show(schedule.time, "s"), legend, _height(schedule), _chart(schedule))


def zoomed_page(title: str, time: str, legend: Sequence[tuple[str, str]], height: float, chart: str) -> str:
    """A page with a chart over time that can be zoomed: what it shows, what colours mean, its points."""
    return PAGE.format(
        title=escape(title),
        time=escape(time),
        legend=" ".join(f'<span><i style="background:{c}"></i>{escape(n)}</span>' for n, c in legend),
        width=f"{WIDTH:.0f}",
        height=f"{height:.0f}",
        plot=f"{PLOT:.0f}",
        label=f"{LABEL:.0f}",
        box=_box(height),
        chart=chart,
        dark=DARK,
    )


def zoomed_plot(time: float, height: float, below: float = 22.0) -> list[str]:
    """The beginning of the picture within a chart that is zoomed: its frame, and ticks over so long."""
    frame = (
        f'<svg x="{LABEL:.0f}" y="0" width="{PLOT:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {PLOT:.0f} {height:.0f}" preserveAspectRatio="none" id="plot">'
    )
    return [frame, _ticks(time, PLOT / (time or 1.0), height - below)]


def _height(schedule: Schedule) -> float:
    return TOP + TRACK * len(tracks_of(schedule)) + 24.0


def _box(height: float) -> str:
    return f'viewBox="0 0 {WIDTH:.0f} {height:.0f}"'


def _chart(schedule: Schedule) -> str:
    """Tracks with their names and busy shares, and their bars in a picture that can be zoomed."""
    tracks, shown = tracks_of(schedule), [t for t in schedule.tasks if t.end > t.start]
    scale = PLOT / (schedule.time or 1.0)
    rows = {name: TOP + TRACK * i for i, name in enumerate(tracks)}
    lines = [
        f'<line x1="0" y1="{y + TRACK:.1f}" x2="{WIDTH:.0f}" y2="{y + TRACK:.1f}" stroke="#e8e8e8"/>'
        for y in rows.values()
    ]
    used = schedule.utilisation()
    labels = [
        f'<text x="6" y="{y + TRACK * 0.66:.1f}">{escape(name)}'
        f'<tspan fill="{GREY}"> {used.get(name, 0.0):.0%}</tspan></text>'
        for name, y in rows.items()
    ]
    inner = zoomed_plot(schedule.time, _height(schedule))
    bars = [_bar(t, rows[line], scale) for t in shown for line in lines_of(t)]
    return "\n".join([*lines, *inner, *bars, "</svg>", *labels])


def tracks_of(schedule: Schedule) -> list[str]:
    """Lines of a picture: stages first, each with its own resources behind it, then links between them."""
    return sorted({line for t in schedule.tasks if t.end > t.start for line in lines_of(t)}, key=by_place)


def lines_of(t: ScheduledTask) -> tuple[str, ...]:
    """The tracks a task stands on: every resource it holds."""
    return t.task.resources or (t.track,)


def by_place(name: str) -> tuple[bool, list[int], str]:
    """The key that sorts resources: stages by their number, each with its own, then links between them.

    >>> sorted(["link 0>1", "stage 10", "stage 2 DRAM", "stage 2"], key=by_place)
    ['stage 2', 'stage 2 DRAM', 'stage 10', 'link 0>1']
    """
    return not name.startswith("stage"), [int(n) for n in re.findall(r"\d+", name)], name


def _bar(t: ScheduledTask, y: float, scale: float) -> str:
    colour = KIND_COLOURS.get(t.task.kind, GREY)
    x, width = t.start * scale, (t.end - t.start) * scale
    said = f"{t.task.name}: {show(t.start, 's')} to {show(t.end, 's')} ({show(t.end - t.start, 's')})"
    # without an edge, where that would be all one sees
    narrow = ' stroke="#fff"' if width > NARROW else ' class="n"'
    return (
        f'<rect{narrow} x="{x:.3f}" y="{y + 3.0:.1f}" width="{width:.3f}" height="{TRACK - 6.0:.1f}"'
        f' fill="{colour}">'
        f"<title>{escape(said)}</title></rect>"
    )


def _ticks(time: float, scale: float, bottom: float) -> str:
    found = []
    for i in range(TICKS + 1):
        at = time * i / TICKS
        x = at * scale
        side = "end" if i == TICKS else "middle" if i else "start"
        found.append(
            f'<line x1="{x:.1f}" y1="{TOP - 6.0:.0f}" x2="{x:.1f}" y2="{bottom:.0f}" stroke="#eee"/>'
            f'<text x="{x:.1f}" y="{TOP - 12.0:.0f}" text-anchor="{side}" fill="{GREY}">'
            f"{escape(show(at, 's'))}</text>"
        )
    return "\n".join(found)


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 13px sans-serif; color: {dark}; margin: 16px; }}
h1 {{ font-size: 16px; margin: 0 0 4px; }}
p {{ margin: 0 0 8px; }}
span i {{ display: inline-block; width: 11px; height: 11px; margin: 0 4px 0 12px; vertical-align: -1px; }}
svg {{ font: 11px sans-serif; width: 100%; max-width: {width}px; user-select: none; }}
rect {{ stroke: #fff; stroke-width: 0.6px; vector-effect: non-scaling-stroke; }}
rect.n {{ stroke: none; }}
.near rect.n {{ stroke: #fff; }}
rect:hover, .near rect.n:hover {{ stroke: #000; }}
</style></head><body>
<h1>{title}</h1>
<p>{time}; {legend}</p>
<svg {box} id="chart">
{chart}
</svg>
<p>Hover for names and times; turn the wheel to zoom, drag to move, double-click for the whole.</p>
<script>
const plot = document.getElementById("plot"), whole = {plot}, tall = {height};
let left = 0, wide = whole, held = null;
const texts = plot.querySelectorAll("text");
function draw() {{
  wide = Math.min(whole, Math.max(whole / 5000, wide));
  left = Math.max(0, Math.min(whole - wide, left));
  plot.setAttribute("viewBox", left + " 0 " + wide + " " + tall);
  plot.classList.toggle("near", wide < whole / 6);
  texts.forEach(t => t.style.display = wide < whole ? "none" : "");
}}
plot.addEventListener("wheel", e => {{
  e.preventDefault();
  const box = document.getElementById("chart").getBoundingClientRect();
  const at = ((e.clientX - box.left) / box.width * {width} - {label}) / whole;
  const next = wide * Math.exp(e.deltaY / 400);
  left += (wide - next) * at; wide = next; draw();
}}, {{ passive: false }});
plot.addEventListener("mousedown", e => held = [e.clientX, left]);
window.addEventListener("mouseup", () => held = null);
window.addEventListener("mousemove", e => {{
  if (!held) return;
  const box = document.getElementById("chart").getBoundingClientRect();
  left = held[1] - (e.clientX - held[0]) / box.width * {width} * wide / whole; draw();
}});
plot.addEventListener("dblclick", () => {{ left = 0; wide = whole; draw(); }});
</script></body></html>
"""


# counters of a stage: field of a task's work, name, unit
COUNTERS = (("flop", "TFLOP/s", 1e12), ("memory_bytes", "DRAM GB/s", 1e9), ("energy", "power [W]", 1.0))
SENDS = "to "  # how names of hand-overs begin


def perfetto_json(schedule: Schedule, path: str | Path, static: float = 0.0) -> Path:
    """Write Chrome trace JSON; `static`: power of a device that flows whatever it does [W]."""
    where, rows = _places(schedule), list[timeline.TraceRow]()
    for process in sorted({process for process, _ in where.values()}):
        rows += timeline.named_process(process, f"stage {process}")
    for line, place in where.items():
        rows += timeline.named_thread(place, line)
    for t in schedule.tasks:
        if t.end > t.start:
            rows += _bars(t, where)
    return timeline.keep_trace(
        [*rows, *_counters(schedule, where, static), *_arrows(schedule, where)], Path(path)
    )


def _places(schedule: Schedule) -> dict[str, tuple[int, int]]:
    """Process and thread of each track: resources of a stage, and links that leave it, are with its cores."""
    found: dict[str, tuple[int, int]] = {}
    threads: dict[int, Iterator[int]] = {}
    for line in tracks_of(schedule):
        numbers = by_place(line)[1]
        process = numbers[0] if numbers else 0
        found[line] = (process, next(threads.setdefault(process, count(1))))
    return found


def _bars(t: ScheduledTask, where: dict[str, tuple[int, int]]) -> Iterator[timeline.TraceRow]:
    work = t.task.work
    told = {
        name: value for name, value in (("flop", work.flop), ("memory_bytes", work.memory_bytes)) if value
    }
    for line in lines_of(t):
        yield timeline.trace_slice(t.task.name, t.task.kind or "task", where[line], t.start, t.end, **told)


def _counters(
    schedule: Schedule, where: dict[str, tuple[int, int]], static: float
) -> Iterator[timeline.TraceRow]:
    """What each stage computes, reads and draws; nothing where tasks do not know their work."""
    known = [t for t in schedule.tasks if t.end > t.start and t.task.work.flop + t.task.work.energy > 0.0]
    stages: dict[int, list[ScheduledTask]] = {}
    for t in known:
        stages.setdefault(where[lines_of(t)[0]][0], []).append(t)
    for process, tasks in stages.items():
        for field, name, unit in COUNTERS:
            amounts = ((t.start, t.end, getattr(t.task.work, field)) for t in tasks)
            base = static if field == "energy" else 0.0
            yield from timeline.rate_counter(process, name, amounts, unit=unit, base=base)


def _arrows(schedule: Schedule, where: dict[str, tuple[int, int]]) -> Iterator[timeline.TraceRow]:
    """From each message on its link to the pass that waits for it."""
    sent = {t.task.name: t for t in schedule.tasks if t.task.kind == "send" and t.end > t.start}
    numbers = count(1)
    for t in schedule.tasks:
        if t.end <= t.start:
            continue
        for name in t.task.after:
            message = sent.get(name) if name.startswith(SENDS) else None
            if message is not None:
                start, end = where[lines_of(message)[0]], where[lines_of(t)[0]]
                times = (*start, message.start), (*end, t.start)
                yield from timeline.trace_arrow(next(numbers), name, *times)
