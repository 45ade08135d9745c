"""Simulated services drawn: latencies and loads, requests and batches over time, traces for Perfetto."""

from __future__ import annotations

from heapq import heappop, heappush
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.figures import colour_of, note, picture, quantity_axis
from strata.app.render.simulated import LABELS, latencies
from strata.app.render.tables import cells_of
from strata.base.drawing import COLOURS, GREY, keep
from strata.base.errors import require
from strata.base.units import show
from strata.pricing.timeline import keep_trace, trace_slice
from strata.serving.priced_service import StepsRecord
from strata.serving.simulated_answers import CostFrontier
from strata.serving.simulated_result import Served
from strata.serving.simulator.scheduling import Request
from strata.serving.simulator.statistics import LatencyStatistics
from strata.simulate.gantt import PLOT, TOP, zoomed_page, zoomed_plot

MOST_REQUESTS, MOST_STEPS = 1200, 6000  # of a page
PHASES = (("queued", "#c9c9c9"), ("reading", COLOURS[1]), ("generating", COLOURS[0]))
ROW, BAND = 7.0, 46.0  # points of a request and of a curve over time
Lanes = list[tuple[int, Request]]
KINDS = {"generating": ("generates", COLOURS[0]), "reading": ("reads", COLOURS[1])}
KINDS |= {"kv": ("KV cache", COLOURS[2])}
SMALL = (
    "<style>table.t{border-collapse:collapse;margin:6px 0 10px}"
    "table.t td,table.t th{padding:2px 14px 2px 0;"
    "text-align:right;font-weight:normal}table.t th:first-child{text-align:left;color:#777}</style>"
)
PANELS = [(name, LABELS[name]) for name in ("ttft", "tpot", "latency", "queued")]
HEAD: dict[str, Any] = {"fontsize": 9.5, "x": 0.01, "ha": "left", "fontweight": "bold"}
LIMIT = (0, (4, 3))  # dashes of a limit
MARKED = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
FINE = 400  # points of a curve
TAIL = 1e-4  # share of requests at which axes begin


def lanes_of(requests: list[Request]) -> Lanes:
    """Each request with the first lane that is free when it comes."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    found, count = [], 0
    for r in requests:
        while busy and busy[0][0] <= r.arrival:
            heappush(free, heappop(busy)[1])
        if free:
            lane = heappop(free)
        else:
            lane, count = count, count + 1
        heappush(busy, (max(r.last, r.arrival), lane))
        found.append((lane, r))
    return found


def served_requests(run: Served) -> list[Request]:
    """Requests that were served, as they came."""
    return sorted((r for r in run.records if r.last >= 0.0), key=lambda r: r.arrival)


def phase_ends(r: Request) -> tuple[float, float, float, float]:
    """When a request came, was scheduled, had its first token and its last [s]."""
    return r.arrival, max(r.scheduled, r.arrival), max(r.first, r.scheduled), max(r.last, r.first)


def _phases(r: Request) -> list[tuple[str, str, float, float]]:
    ends = phase_ends(r)
    return [(name, colour, ends[i], ends[i + 1]) for i, (name, colour) in enumerate(PHASES)]


def _said(r: Request) -> str:
    again = f", preempted {r.preempted} times" if r.preempted else ""
    cached = f", {r.cached} cached" if r.cached else ""
    ttft, tpot, latency = cells_of(r, "ttft:s tpot:s latency:s")
    sizes = f"{r.input} tokens in{cached}, {r.output} out"
    return f"request {r.key}: {sizes}; TTFT {ttft}, TPOT {tpot}, end to end {latency}{again}"


def service_page(run: Served, path: Path) -> Path:
    """A page that opens offline: curves of batches and caches, and every request as a bar; wheel to zoom."""
    served = served_requests(run)
    require(bool(served), "no request was served: there is nothing to draw", requests=0)
    shown = served[:MOST_REQUESTS]
    end = max(r.last for r in shown)
    lanes = lanes_of(shown)
    rows = 1 + max(lane for lane, _ in lanes)
    steps = [s for s in run.steps if s.start < end]
    names = sorted({s.replica for s in steps})
    bands = [(i, kind) for i in names[:8] for kind in ("generating", "reading", "kv")]
    height = TOP + BAND * len(bands) + ROW * rows + 40.0
    left_out = f" (the first {len(shown):,} of {len(served):,} requests)" if len(shown) < len(served) else ""
    time = f"{show(end, 's')} of the service{left_out}"
    text = zoomed_page(run.title, time, PHASES, height, _chart(bands, steps, lanes, end, height))
    return keep(path, text.replace("</h1>", f"</h1>\n{_summary(run)}", 1))


def _summary(run: Served) -> str:
    """Latencies in a small table."""
    head = "".join(f"<th>{n}</th>" for n in ("", "mean", "p50", "p95", "p99"))
    rows = []
    for name, times in latencies(run).items():
        values = [times.mean, *(times.percentile(q) for q in (0.5, 0.95, 0.99))]
        cells = "".join(f"<td>{escape(show(v, 's'))}</td>" for v in values)
        rows.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    kept = f"; {run.kept:.1%} within limits" if run.slo else ""
    state = f"; saturated from {show(run.saturated_from, 's')}" if run.saturated_from is not None else ""
    said = f"{run.rate:.3g} requests/s, {run.tokens_per_s:,.0f} tokens/s{kept}{state}"
    return f'{SMALL}<p>{escape(said)}</p><table class="t"><tr>{head}</tr>{"".join(rows)}</table>'


def _chart(
    bands: list[tuple[int, str]], steps: list[StepsRecord], lanes: Lanes, end: float, height: float
) -> str:
    scale = PLOT / end
    inner = zoomed_plot(end, height, below=6.0)
    labels, y = [], TOP
    for replica, kind in bands:
        own = [s for s in steps if s.replica == replica]
        band, said = _band(own, kind, y, scale)
        inner.append(band)
        labels.append("".join(_labels(y + 20.0, f"replica {replica} {KINDS[kind][0]}", said)))
        y += BAND
    for lane, r in lanes:
        top = y + 12.0 + ROW * lane
        said = escape(_said(r))
        for _, colour, a, b in _phases(r):
            if b > a:
                size = f'width="{max((b - a) * scale, 0.3):.2f}" height="{ROW - 1.5:.1f}"'
                place = f'<rect class="n" x="{a * scale:.2f}" y="{top:.1f}" {size} fill="{colour}">'
                inner.append(f"{place}<title>{said}</title></rect>")
    labels += _labels(y + 22.0, "requests", "a bar each, from arrival")
    return "\n".join([*inner, "</svg>", *labels])


def _labels(y: float, name: str, said: str) -> list[str]:
    """A name, and a line about it below."""
    below = f'<text x="6" y="{y + 14.0:.1f}" fill="{GREY}">{escape(said)}</text>'
    return [f'<text x="6" y="{y:.1f}">{escape(name)}</text>', below]


def _band(steps: list[StepsRecord], kind: str, y: float, scale: float) -> tuple[str, str]:
    """A quantity of a replica's steps over time, as an area; and its largest value."""
    if len(steps) > MOST_STEPS:
        steps = joined_steps(steps, MOST_STEPS)
    values = [float(getattr(s, kind)) for s in steps]
    most = max(values, default=0.0)
    full = most or 1.0
    base, tall = y + BAND - 4.0, BAND - 12.0
    points = []
    for s, v in zip(steps, values, strict=True):
        top = base - tall * v / full
        points += [f"{s.start * scale:.2f},{base:.1f}", f"{s.start * scale:.2f},{top:.2f}"]
        points += [f"{s.end * scale:.2f},{top:.2f}", f"{s.end * scale:.2f},{base:.1f}"]
    unit = "sequences" if kind == "generating" else "tokens a step"
    said = f"up to {most:.1%} of its blocks" if kind == "kv" else f"up to {most:,.0f} {unit}"
    line = f'<line x1="0" y1="{base:.1f}" x2="{PLOT:.0f}" y2="{base:.1f}" stroke="#ddd"/>'
    area = f'<polygon points="{" ".join(points)}" fill="{KINDS[kind][1]}" fill-opacity="0.75"/>'
    return line + (area if points else ""), said


def joined_steps(steps: list[StepsRecord], most: int) -> list[StepsRecord]:
    """Neighbours as one, with the most of each, until they are few enough to draw."""
    by = -(-len(steps) // most)
    found = []
    for some in (steps[i : i + by] for i in range(0, len(steps), by)):
        most_of = {n: max(getattr(s, n) for s in some) for n in ("generating", "reading", "waiting", "kv")}
        found.append(some[0]._replace(end=some[-1].end, steps=sum(s.steps for s in some), **most_of))
    return found


def service_trace(run: Served, path: Path) -> Path:
    """Chrome trace JSON: a process of requests, and one of each replica with its steps and counters."""
    rows: list[dict[str, Any]] = [_named("requests", 0)]
    for lane, r in lanes_of(served_requests(run)):
        told = {"input": r.input, "output": r.output, "cached": r.cached, "preempted": r.preempted}
        for name, _, a, b in _phases(r):
            if b > a:
                rows.append(trace_slice(f"{name} {r.key}", name, (0, lane), a, b) | {"args": told})
    for i in sorted({s.replica for s in run.steps}):
        rows.append(_named(f"replica {i}", i + 1))
    for s in run.steps:
        kind = "mixed" if s.reading and s.generating else "read" if s.reading else "decode"
        name = f"{kind} x{s.steps}" if s.steps > 1 else kind
        told = {"sequences": s.generating, "prompt tokens": s.reading, "steps": s.steps}
        rows.append(trace_slice(name, kind, (s.replica + 1, 0), s.start, s.end) | {"args": told})
        for what, value in (("sequences", s.generating), ("waiting", s.waiting), ("KV cache", s.kv)):
            place = {"ph": "C", "pid": s.replica + 1, "ts": s.start * 1e6}
            rows.append({"name": what, **place, "args": {what: value}})
    return keep_trace(rows, path)


def _named(name: str, process: int) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}


def thinned(times: LatencyStatistics, most: int = FINE) -> tuple[Any, Any]:
    """The share of requests within a time, in few enough points to draw."""
    x, share = times.distribution()
    chosen = np.unique(np.linspace(0, len(x) - 1, min(most, len(x))).astype(int))
    return x[chosen], share[chosen]


def draw_latencies(run: Served, path: Path) -> Path:
    """The share of requests within a time, for each latency; with limits and percentiles."""
    with picture(path, (8.6, 5.6), 2, 2) as (figure, panels):
        for axes, (name, title), colour in zip(panels.flat, PANELS, COLOURS, strict=False):
            _distribution(axes, run.times[name], colour, title)
            if name == "tpot":
                x, share = thinned(run.gaps)
                axes.plot(x, share, color=COLOURS[4], linewidth=1.2, label="between any two tokens")
                axes.plot([], [], color=colour, linewidth=1.8, label="mean of each request")
                axes.legend(frameon=False, fontsize=7.5, loc="center right")
            if name in run.slo:
                limit, red = run.slo[name], COLOURS[3]
                axes.axvline(limit, color=red, linewidth=1.0, linestyle=LIMIT)
                note(axes, f"limit {show(limit, 's')}", (limit, 0.03), (3, 0), fontsize=7.5, color=red)
        for axes in panels[:, 0]:
            axes.set_ylabel("share of requests within")
        asked = f"{run.models_text} on {run.fleet_text}, {run.completed:,} requests at {run.rate:.3g}/s"
        figure.suptitle(asked, **HEAD)
    return path


def _distribution(axes: Any, times: LatencyStatistics, colour: str, title: str) -> None:
    x, share = thinned(times)
    axes.plot(x, share, color=colour, linewidth=1.8)
    axes.set_title(title, fontsize=9)
    axes.set_ylim(0.0, 1.03)
    log = False
    if times.count and times.largest > 0:
        low = max(times.percentile(TAIL), times.largest * 1e-4)
        log = times.largest > 8.0 * low
        if log:
            axes.set_xscale("log")
        axes.set_xlim(0.9 * low if log else 0.0, 1.08 * times.largest)
        for at, _ in MARKED:
            axes.plot([times.percentile(at)], [at], "o", color=colour, markersize=4)
        said = "\n".join(f"{name}  {show(times.percentile(at), 's')}" for at, name in MARKED)
        axes.text(0.98, 0.06, said, transform=axes.transAxes, ha="right", fontsize=8, color="#444")
    quantity_axis(axes.xaxis, "s", log)


def draw_load_latency(runs: list[tuple[float, Served]], slo: dict[str, float], path: Path) -> Path:
    """Latencies over the rate of requests: median, 95th and 99th percentile; what is saturated hollow."""
    with picture(path, (10.4, 3.7), 1, 3) as (figure, panels):
        rates = [rate for rate, _ in runs]
        for axes, (name, title) in zip(panels, PANELS[:3], strict=True):
            for (at, label), colour in zip(MARKED, (COLOURS[0], COLOURS[1], COLOURS[3]), strict=True):
                values = [run.times[name].percentile(at) for _, run in runs]
                axes.plot(rates, values, "-", color=colour, linewidth=1.5, label=label)
                for rate, value, (_, run) in zip(rates, values, runs, strict=True):
                    fill = "white" if run.saturated or run.given_up else colour
                    axes.plot([rate], [value], "o", color=colour, markerfacecolor=fill, markersize=4)
            if name in slo:
                axes.axhline(slo[name], color=GREY, linewidth=1.0, linestyle=LIMIT)
                look = {"xycoords": ("axes fraction", "data"), "fontsize": 7.5, "color": "#555"}
                note(axes, f"limit {show(slo[name], 's')}", (0.02, slo[name]), (0, 3), **look)
            axes.set_title(title, fontsize=9)
            axes.set(xlabel="requests/s", xlim=(0.0, None))
            high = max(run.times[name].percentile(0.99) for _, run in runs)
            low = min(run.times[name].percentile(0.5) for _, run in runs)
            log = low > 0 and high > 20.0 * low
            axes.set(**({"yscale": "log"} if log else {"ylim": (0.0, None)}))
            quantity_axis(axes.yaxis, "s", log)
        panels[0].legend(frameon=False, fontsize=8)
        hollow = "; hollow: saturated or given up" if any(r.saturated or r.given_up for _, r in runs) else ""
        figure.suptitle(f"{runs[0][1].title}{hollow}", **HEAD)
    return path


def draw_cost_frontier(found: CostFrontier, path: Path) -> Path:
    """Cost of a million tokens over a percentile of a latency; each point a deployment at a rate."""
    with picture(path, (7.4, 4.4)) as (_, axes):
        for i, fleet in enumerate(dict.fromkeys(p.fleet for p in found.points)):
            own = sorted((p for p in found.points if p.fleet == fleet), key=lambda p: p.rate)
            look = {"color": colour_of(i)}
            axes.plot([p.seen for p in own], [p.cost for p in own], "-", linewidth=0.9, alpha=0.5, **look)
            for p in own:
                fill = "white" if p.saturated else colour_of(i)
                axes.plot([p.seen], [p.cost], "o", markerfacecolor=fill, markersize=4.5, **look)
            axes.plot([], [], "o-", markersize=4.5, label=fleet, **look)
        if found.best:
            x, y = [p.seen for p in found.best], [p.cost for p in found.best]
            axes.step(x, y, where="post", color="#222", linewidth=1.2, label="frontier, with requests/s")
            for p in found.best:
                note(axes, f"{p.rate:.2g}", (p.seen, p.cost), (4, 4), fontsize=7, color="#444")
        axes.set_ylim(bottom=0.0)
        axes.set_xscale("log")
        quantity_axis(axes.xaxis, "s", True)
        hollow = "; hollow: saturated" if any(p.saturated for p in found.points) else ""
        users = f"{found.latency.upper()}, {100 * found.share:g}th percentile"
        axes.set(
            xlabel=users, ylabel="USD for a million tokens", title=f"cost against what users see{hollow}"
        )
        axes.legend(frameon=False, fontsize=8)
    return path
