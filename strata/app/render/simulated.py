"""Simulated services, for machines and for people."""

from __future__ import annotations

from typing import Any

from strata.app.render.served import dollars_text, joules_text
from strata.app.terminal import plain_table, titled
from strata.serving.simulated_answers import CostFrontier, LargestRate, answer_row
from strata.serving.simulated_fleet import FleetAnswer
from strata.serving.simulated_result import UNITS, Served
from strata.simulate.server.saturation import LEVEL
from strata.simulate.server.statistics import LatencyStatistics
from strata.units import show

ROW_UNITS = {
    "rate": "1/s",
    "completed_rate": "1/s",
    "tokens_per_s": "1/s",
    "cost_per_mtoken": "USD",
    "energy_per_token": "J",
    "power": "W",
    **dict.fromkeys(("kept", "kept_low", "kept_high", "requests", "warm_up"), "1"),
    **{f"{n}_{q}": "s" for n in ("ttft", "tpot", "latency") for q in ("mean", "p50", "p95", "p99")},
}
LABELS = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "gaps": "between tokens",
    "latency": "end to end",
    "queued": "queued",
}
SHORT_RUN = 10.0  # mean latencies that a run must last to have forgotten its start


def slo_text(slo: dict[str, float]) -> str:
    """Limits in words."""
    names = {"ttft": "TTFT", "tpot": "TPOT", "latency": "end to end", "queued": "queued"}
    return ", ".join(f"{names[n]} at most {show(v, 's')}" for n, v in slo.items())


def run_tables(run: Served, share: float) -> list[Any]:
    """One run: latencies, then what was served and what it took."""
    times = plain_table()
    times.add_column("", style="dim", no_wrap=True)
    for name in ("mean", "±95 %", "p50", "p90", "p95", "p99", "largest"):
        times.add_column(name, justify="right", no_wrap=True)
    for name, kept in (("ttft", run.times["ttft"]), ("tpot", run.times["tpot"]), ("gaps", run.gaps)):
        times.add_row(LABELS[name], *_cells(kept))
    for name in ("latency", "queued"):
        times.add_row(LABELS[name], *_cells(run.times[name]))
    models = ["", _by_model(run)] if run.by_model else []
    return [titled(run.title, times, "\n".join(_remarks(run))), *models, "", _served(run, share)]


def _by_model(run: Served) -> Any:
    """What requests for each of several models saw."""
    names = ("requests", "refused", "tokens/s", "TTFT", "p95", "TPOT", "p95", "end to end")
    table = plain_table("<asked for", *(f">{name}" for name in names))
    for name, one in sorted(run.by_model.items()):
        ttft, tpot, latency = (one.times[n] for n in ("ttft", "tpot", "latency"))
        pairs = [show(v, "s") for t in (ttft, tpot) for v in (t.mean, t.percentile(0.95))]
        rate = show(one.output_tokens / run.end if run.end else 0.0)
        table.add_row(
            name or "-", f"{one.completed:,}", f"{one.refused:,}", rate, *pairs, show(latency.mean, "s")
        )
    return table


def _cells(times: LatencyStatistics) -> list[str]:
    sure = times.confidence
    shown = [show(times.percentile(q), "s") for q in (0.5, 0.9, 0.95, 0.99)]
    return [
        show(times.mean, "s"),
        show(sure, "s") if sure < float("inf") else "-",
        *shown,
        show(times.largest, "s"),
    ]


def _remarks(run: Served) -> list[str]:
    """What must be known of the numbers."""
    found = ["time per output token: of each request over its own tokens; between tokens: of all tokens"]
    if run.saturated_from is not None:
        most = max([o.waiting for o in run.overloads], default=0)
        found.append(
            f"saturated from {show(run.saturated_from, 's')} on: requests come faster than they are served, "
            f"{most:,} wait at most; latencies grow with the length of the run"
        )
    for over in [o for o in run.overloads if o.end < float("inf")][:3]:
        found.append(
            f"overloaded from {show(over.start, 's')} to {show(over.end, 's')}: up to {over.waiting:,} wait"
        )
    mean = run.times["latency"].mean
    if run.end and run.end < SHORT_RUN * mean:
        found.append(
            f"a short run: it lasts {run.end / mean:.1f} times a request, so that its start and end weigh; "
            "--count adds requests"
        )
    if run.stopped:
        found.append(f"stopped after {show(run.end, 's')} of the service: what is known so far")
    return found


def _served(run: Served, share: float) -> Any:
    table = plain_table(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(style="dim")
    refused = "".join(f", {n:,} refused: {why}" for why, n in run.refusals.items())
    table.add_row("requests", f"{run.completed:,}", f"in {show(run.end, 's')}{refused}")
    per_device = show(run.tokens_per_s / run.devices)
    table.add_row("requests/s", f"{run.rate:.4g}", "")
    table.add_row("tokens/s", show(run.tokens_per_s), f"generated, {per_device} tokens/s/device")
    if run.slo:
        good = f"{run.goodput:.4g}"
        kept = "keeps" if run.kept >= share else "misses"
        table.add_row("goodput", good, f"requests/s within {slo_text(run.slo)}")
        table.add_row(
            "within limits", f"{run.kept:.1%}", f"of requests: {kept} the share of {100 * share:g} %"
        )
    held = f"{run.room.blocks:,} blocks of {run.room.page:,} tokens" if len(run.services) == 1 else "blocks"
    about = f"of a rank's {held}, at most {run.kv_highest:.1%}"
    table.add_row("KV cache held", f"{run.kv_use:.1%}", about)
    table.add_row("prefix hits", f"{run.prefix_hits:.1%}", "of prompt tokens")
    table.add_row("preemptions", f"{run.preemptions:,}", "")
    table.add_row("utilisation", f"{run.utilisation:.1%}", "of the time replicas step")
    table.add_row(
        "cost/Mtoken",
        f"{dollars_text(run.cost_per_mtoken)} USD",
        f"{dollars_text(3600.0 * run.dollars / run.devices)} USD per device-hour",
    )
    table.add_row("energy/token", joules_text(run.energy_per_token), f"{show(run.power, 'W')} on average")
    errors = run.step_errors
    table.add_row(
        "step table",
        f"{errors['decode_mean']:.2%}",
        f"mean error of a decode step between priced ones, {errors['mixed_mean']:.2%} of one that reads",
    )
    return table


# ---------------------------------------------------------------------------------- rates


def curve_dict(runs: list[tuple[float, Served]]) -> dict[str, Any]:
    return {"rates": [answer_row(rate, run) for rate, run in runs], "units": dict(ROW_UNITS)}


def curve_tables(runs: list[tuple[float, Served]], slo: dict[str, float]) -> list[Any]:
    """Latency over load."""
    if not runs:
        return ["stopped before the first run was over"]
    title = runs[0][1].title
    limits = f"; within: share of requests that keep {slo_text(slo)}" if slo else ""
    return [titled(title, _runs_table(runs, bool(slo)), f"the same requests at every rate{limits}")]


def _runs_table(runs: list[tuple[float, Served]], limited: bool) -> Any:
    table = plain_table()
    names = (
        "requests/s",
        "tokens/s",
        "TTFT",
        "p95",
        "p99",
        "TPOT",
        "p95",
        "end to end",
        "USD/Mtok",
        "J/token",
    )
    judged = [f"{100 * LEVEL:g} % sure", "of"] if runs[0][1].steady is not None else []
    for name in (*names, *(["within"] if limited else []), *judged, ""):
        table.add_column(name, justify="right", no_wrap=True)
    for rate, run in runs:
        t, p, e = (run.times[n] for n in ("ttft", "tpot", "latency"))
        cells = [f"{rate:.3g}", show(run.tokens_per_s), show(t.mean, "s")]
        cells += [show(t.percentile(q), "s") for q in (0.95, 0.99)]
        cells += [show(p.mean, "s"), show(p.percentile(0.95), "s"), show(e.mean, "s")]
        cells += [dollars_text(run.cost_per_mtoken), joules_text(run.energy_per_token)]
        within = [f"{run.kept:.1%}"] if limited else []
        state = "saturated" if run.saturated else "given up" if run.given_up else ""
        if run.steady is not None:
            low, high, verdict = run.steady.low, run.steady.high, run.steady.verdict
            within += [f"{100 * low:.1f}-{100 * high:.1f}%", f"{run.steady.requests:,}"]
            state = verdict if verdict != "kept" else ""
        table.add_row(*cells, *within, state)
    return table


def rate_dict(found: LargestRate) -> dict[str, Any]:
    return {
        "rate": found.rate,
        "fails_at": found.above,
        "width": found.width,
        "share": found.share,
        "stopped": found.stopped,
        "confidence": found.confidence,
        "run": found.run.to_dict() if found.run else None,
        "runs": [answer_row(rate, run) for rate, run in sorted(found.runs, key=lambda p: p[0])],
        "units": {**UNITS, **ROW_UNITS, "fails_at": "1/s", "width": "1", "share": "1"}
        | dict.fromkeys(("level", "confirmed", "confirmed_requests"), "1"),
    }


def rate_tables(found: LargestRate, slo: dict[str, float]) -> list[Any]:
    """The largest rate and the runs that found it."""
    if not found.runs:
        return ["stopped before the first run was over"]
    run = found.runs[0][1]
    asked = f"{100 * found.share:g} % of requests within {slo_text(slo)}"
    if found.rate and found.above == float("inf"):
        said = f"every rate up to {found.rate:.3g} requests/s keeps {asked}: too few requests (--count)"
    elif found.rate:
        above = next(one.steady for rate, one in found.runs if rate == found.above)
        said = f"{found.rate:.3g} requests/s keep {asked}; {found.above:.3g} "
        said += "may not" if above and above.verdict == "undecided" else "do not"
    else:
        said = f"no rate keeps {asked}: not even {found.above:.2g} requests/s"
    if found.stopped:
        said += "; stopped: what is known so far"
    rows = sorted(found.runs, key=lambda p: p[0])
    return [titled(f"{run.title}: {said}", _runs_table(rows, True), _sureness(found))]


def _sureness(found: LargestRate) -> str:
    """How sure the largest rate is, in words."""
    many = f"{len(found.runs)} runs of the same requests"
    steady = found.run.steady if found.run else None
    if steady is None:
        return many
    other = found.confirmed.steady if found.confirmed else None
    again = f"; drawn anew {other.kept:.1%} of {other.requests:,}" if other else ""
    dropped = f", after a warm-up of {steady.warm_up:,}" if steady.warm_up else ""
    return (
        f"{steady.kept:.1%} of {steady.requests:,} requests{dropped}; {100 * LEVEL:g} % sure: "
        f"{steady.low:.1%} to {steady.high:.1%}; the rate within {found.width:.1%}, by {many}{again}"
    )


# ---------------------------------------------------------------------------------- fleets


def fleet_dict(found: FleetAnswer) -> dict[str, Any]:
    rows = [
        {
            "fleet": c.run.fleet_text,
            "replicas": list(c.copies),
            "devices": c.devices,
            "dollars_per_hour": 3600.0 * c.dollars,
            "kept": c.run.kept,
            "holds": c.holds,
            "cost_per_mtoken": c.run.cost_per_mtoken,
            "energy_per_token": c.run.energy_per_token,
            "ttft_p95": c.run.times["ttft"].percentile(0.95),
            "tpot_p95": c.run.times["tpot"].percentile(0.95),
        }
        for c in [*found.choices, *[t for t in found.tried if not t.holds]]
    ]
    units = {"dollars_per_hour": "USD/h", "cost_per_mtoken": "USD", "energy_per_token": "J"}
    units |= {"ttft_p95": "s", "tpot_p95": "s", "replicas": "1", "kept": "1", "share": "1"}
    return {
        "goal": found.goal,
        "share": found.share,
        "stopped": found.stopped,
        "fleets": rows,
        "units": units,
    }


def fleet_tables(found: FleetAnswer) -> list[Any]:
    """Fleets that keep the limits, best first."""
    table = plain_table(
        "<fleet", ">devices", ">USD/h", ">USD/Mtok", ">J/token", ">TTFT p95", ">TPOT p95", ">within"
    )
    for c in found.choices[:12]:
        seen = [show(c.run.times[n].percentile(0.95), "s") for n in ("ttft", "tpot")]
        money = [dollars_text(3600.0 * c.dollars), dollars_text(c.run.cost_per_mtoken)]
        table.add_row(
            c.run.fleet_text,
            f"{c.devices:g}",
            *money,
            joules_text(c.run.energy_per_token),
            *seen,
            f"{c.run.kept:.1%}",
        )
    best = found.choices[0].run
    limits = slo_text(best.slo)
    title = f"{found.goal} fleet for {best.model.name}: {100 * found.share:g} % of requests within {limits}"
    below = f"{len(found.tried)} fleets simulated with the same requests"
    below += "; stopped: what is known so far" if found.stopped else ""
    return [titled(title, table, below)]


# ---------------------------------------------------------------------------------- cost, caps


def cost_frontier_dict(found: CostFrontier) -> dict[str, Any]:
    best = {id(p) for p in found.best}
    rows = [{**vars(p), "best": id(p) in best} for p in found.points]
    units = {"rate": "1/s", "seen": "s", "cost": "USD", "energy": "J", "share": "1"}
    return {"latency": found.latency, "share": found.share, "points": rows, "units": units}


def cost_frontier_tables(found: CostFrontier) -> list[Any]:
    """The frontier of cost against a latency."""
    table = plain_table("<fleet")
    seen = f"{found.latency.upper()} p{100 * found.share:g}"
    for name in ("requests/s", seen, "USD/Mtok", "J/token"):
        table.add_column(name, justify="right", no_wrap=True)
    for p in found.best:
        cells = [f"{p.rate:.3g}", show(p.seen, "s"), dollars_text(p.cost), joules_text(p.energy)]
        table.add_row(p.fleet, *cells)
    below = f"of {len(found.points)} runs those that no other beats in both"
    if not found.best:
        below = "no run is on the frontier: no price is known, or all are saturated or miss the limits"
    return [titled(f"cost against {seen}", table, below)]


def caps_dict(runs: list[tuple[str, Served]]) -> dict[str, Any]:
    rows = [{"cap": name} | answer_row(0.0, run) for name, run in runs]
    for row in rows:
        del row["rate"]
    return {"caps": rows, "units": dict(ROW_UNITS)}


def caps_tables(runs: list[tuple[str, Served]]) -> list[Any]:
    """The same load at power caps and at fixed clocks."""
    table = plain_table(
        "<each device", ">tokens/s", ">TTFT p95", ">TPOT", ">p95", ">power", ">J/token", ">USD/Mtok"
    )
    for name, run in runs:
        t, p = run.times["ttft"], run.times["tpot"]
        table.add_row(
            name,
            show(run.tokens_per_s),
            show(t.percentile(0.95), "s"),
            show(p.mean, "s"),
            show(p.percentile(0.95), "s"),
            show(run.power, "W"),
            joules_text(run.energy_per_token),
            dollars_text(run.cost_per_mtoken),
        )
    first = runs[0][1]
    title = f"{first.title}: power caps"
    return [titled(title, table, "own limit: clocks fall where the chip's limit asks for it; fixed: never")]
