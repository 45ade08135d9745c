"""Simulated services, for machines and for people."""

from __future__ import annotations

from typing import Any

from strata.app.render.ranking import dollars_text, joules_text
from strata.app.render.tables import card_table, cells_of, picked, rows_table, table
from strata.app.terminal import titled
from strata.base.units import show
from strata.serving.simulated_answers import CostFrontier, LargestRate, answer_row
from strata.serving.simulated_fleet import FleetAnswer
from strata.serving.simulated_result import UNITS, Served
from strata.serving.simulator.saturation import LEVEL
from strata.serving.simulator.statistics import LatencyStatistics

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

SHORT = {"ttft": "TTFT", "tpot": "TPOT"}
SHORT_RUN = 10.0  # mean latencies that a run must last to have forgotten its start


def slo_text(slo: dict[str, float]) -> str:
    """Limits in words."""
    return ", ".join(f"{SHORT.get(n, LABELS[n])} at most {show(v, 's')}" for n, v in slo.items())


def latencies(run: Served) -> dict[str, LatencyStatistics]:
    """Every latency of a run, by what it is called."""
    return {label: run.gaps if name == "gaps" else run.times[name] for name, label in LABELS.items()}


def run_tables(run: Served, share: float) -> list[Any]:
    """One run: latencies, then what was served and what it took."""
    rows = [(label, *_cells(times)) for label, times in latencies(run).items()]
    times = rows_table("<|>mean|>±95 %|>p50|>p90|>p95|>p99|>largest", rows)
    times.columns[0].style = "dim"
    models = ["", _by_model(run)] if run.by_model else []
    return [titled(run.title, times, "\n".join(_remarks(run))), *models, "", _served(run, share)]


def _by_model(run: Served) -> Any:
    """What requests for each of several models saw."""
    rows = []
    for name, one in sorted(run.by_model.items()):
        pairs = [*_spread(one, "ttft", 0.95), *_spread(one, "tpot", 0.95), *_spread(one, "latency")]
        rate = show(one.output_tokens / run.end if run.end else 0.0)
        rows.append((name or "-", *cells_of(one, "completed:, refused:,"), rate, *pairs))
    head = "<asked for|>requests|>refused|>tokens/s|>TTFT|>p95|>TPOT|>p95|>end to end"
    return rows_table(head, rows)


def _spread(run: Any, name: str, *quantiles: float) -> list[str]:
    """The mean of a latency and some of its percentiles."""
    times = run.times[name]
    return [show(v, "s") for v in (times.mean, *(times.percentile(q) for q in quantiles))]


def _cells(times: LatencyStatistics) -> list[str]:
    sure = times.confidence
    shown = [show(times.percentile(q), "s") for q in (0.5, 0.9, 0.95, 0.99)]
    margin = show(sure, "s") if sure < float("inf") else "-"
    return [show(times.mean, "s"), margin, *shown, show(times.largest, "s")]


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
        start, end = cells_of(over, "start:s end:s")
        found.append(f"overloaded from {start} to {end}: up to {over.waiting:,} wait")
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
    refused = "".join(f", {n:,} refused: {why}" for why, n in run.refusals.items())
    per_device = show(run.tokens_per_s / run.devices)
    rows = [
        ("requests", f"{run.completed:,}", f"in {show(run.end, 's')}{refused}"),
        ("requests/s", f"{run.rate:.4g}", ""),
        ("tokens/s", show(run.tokens_per_s), f"generated, {per_device} tokens/s/device"),
    ]
    if run.slo:
        kept = "keeps" if run.kept >= share else "misses"
        of = f"of requests: {kept} the share of {100 * share:g} %"
        rows.append(("goodput", f"{run.goodput:.4g}", f"requests/s within {slo_text(run.slo)}"))
        rows.append(("within limits", f"{run.kept:.1%}", of))
    held = f"{run.room.blocks:,} blocks of {run.room.page:,} tokens" if len(run.services) == 1 else "blocks"
    hourly = f"{dollars_text(3600.0 * run.dollars / run.devices)} USD per device-hour"
    decode, mixed = cells_of(run.step_errors, "decode_mean:.2% mixed_mean:.2%")
    rows += [
        ("KV cache held", f"{run.kv_use:.1%}", f"of a rank's {held}, at most {run.kv_highest:.1%}"),
        ("prefix hits", f"{run.prefix_hits:.1%}", "of prompt tokens"),
        ("preemptions", f"{run.preemptions:,}", ""),
        ("utilisation", f"{run.utilisation:.1%}", "of the time replicas step"),
        ("cost/Mtoken", f"{dollars_text(run.cost_per_mtoken)} USD", hourly),
        ("energy/token", joules_text(run.energy_per_token), f"{show(run.power, 'W')} on average"),
        ("step table", decode, f"mean error of a decode step between priced ones, {mixed} of one that reads"),
    ]
    return card_table(rows)


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
    head = ">requests/s|>tokens/s|>TTFT|>p95|>p99|>TPOT|>p95|>end to end|>USD/Mtok|>J/token|"
    head += ">within|" if limited else ""
    head += f">{100 * LEVEL:g} % sure|>of|" if runs[0][1].steady is not None else ""
    rows = []
    for rate, run in runs:
        cells = [f"{rate:.3g}", show(run.tokens_per_s), *_spread(run, "ttft", 0.95, 0.99)]
        cells += [*_spread(run, "tpot", 0.95), *_spread(run, "latency")]
        cells += [dollars_text(run.cost_per_mtoken), joules_text(run.energy_per_token)]
        cells += [f"{run.kept:.1%}"] if limited else []
        state = "saturated" if run.saturated else "given up" if run.given_up else ""
        if run.steady is not None:
            low, high, verdict = run.steady.low, run.steady.high, run.steady.verdict
            cells += [f"{100 * low:.1f}-{100 * high:.1f}%", f"{run.steady.requests:,}"]
            state = verdict if verdict != "kept" else ""
        rows.append([*cells, state])
    return rows_table(f"{head}>", rows)


def rate_dict(found: LargestRate) -> dict[str, Any]:
    return {
        **picked(found, "rate fails_at=above width share stopped confidence"),
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


def fleet_dict(found: FleetAnswer) -> dict[str, Any]:
    own = "kept=run.kept holds cost_per_mtoken=run.cost_per_mtoken energy_per_token=run.energy_per_token"
    rows = []
    for c in [*found.choices, *[t for t in found.tried if not t.holds]]:
        row = picked(c, "fleet=run.fleet_text replicas=copies devices")
        row |= {"dollars_per_hour": 3600.0 * c.dollars, **picked(c, own)}
        rows.append(row | {f"{n}_p95": c.run.times[n].percentile(0.95) for n in ("ttft", "tpot")})
    units = {"dollars_per_hour": "USD/h", "cost_per_mtoken": "USD", "energy_per_token": "J"}
    units |= {"ttft_p95": "s", "tpot_p95": "s", "replicas": "1", "kept": "1", "share": "1"}
    return {**picked(found, "goal share stopped"), "fleets": rows, "units": units}


def fleet_tables(found: FleetAnswer) -> list[Any]:
    """Fleets that keep the limits, best first."""
    rows = []
    for c in found.choices[:12]:
        seen = [_spread(c.run, n, 0.95)[1] for n in ("ttft", "tpot")]
        spent = [dollars_text(3600.0 * c.dollars), dollars_text(c.run.cost_per_mtoken)]
        spent.append(joules_text(c.run.energy_per_token))
        rows.append((c.run.fleet_text, f"{c.devices:g}", *spent, *seen, f"{c.run.kept:.1%}"))
    best = found.choices[0].run
    limits = slo_text(best.slo)
    title = f"{found.goal} fleet for {best.model.name}: {100 * found.share:g} % of requests within {limits}"
    below = f"{len(found.tried)} fleets simulated with the same requests"
    below += "; stopped: what is known so far" if found.stopped else ""
    head = "<fleet|>devices|>USD/h|>USD/Mtok|>J/token|>TTFT p95|>TPOT p95|>within"
    return [table(title, head, rows, below)]


def cost_frontier_dict(found: CostFrontier) -> dict[str, Any]:
    best = {id(p) for p in found.best}
    rows = [{**vars(p), "best": id(p) in best} for p in found.points]
    units = {"rate": "1/s", "seen": "s", "cost": "USD", "energy": "J", "share": "1"}
    return {**picked(found, "latency share"), "points": rows, "units": units}


def cost_frontier_tables(found: CostFrontier) -> list[Any]:
    """The frontier of cost against a latency."""
    seen = f"{found.latency.upper()} p{100 * found.share:g}"
    shown = "fleet rate:.3g seen:s"
    rows = ((*cells_of(p, shown), dollars_text(p.cost), joules_text(p.energy)) for p in found.best)
    below = f"of {len(found.points)} runs those that no other beats in both"
    if not found.best:
        below = "no run is on the frontier: no price is known, or all are saturated or miss the limits"
    return [table(f"cost against {seen}", f"<fleet|>requests/s|>{seen}|>USD/Mtok|>J/token", rows, below)]


def caps_dict(runs: list[tuple[str, Served]]) -> dict[str, Any]:
    rows = [{"cap": name} | answer_row(0.0, run) for name, run in runs]
    rows = [{key: value for key, value in row.items() if key != "rate"} for row in rows]
    return {"caps": rows, "units": dict(ROW_UNITS)}


def caps_tables(runs: list[tuple[str, Served]]) -> list[Any]:
    """The same load at power caps and at fixed clocks."""
    rows = []
    for name, run in runs:
        seen = (_spread(run, "ttft", 0.95)[1], *_spread(run, "tpot", 0.95), show(run.power, "W"))
        spent = (joules_text(run.energy_per_token), dollars_text(run.cost_per_mtoken))
        rows.append((name, show(run.tokens_per_s), *seen, *spent))
    head = "<each device|>tokens/s|>TTFT p95|>TPOT|>p95|>power|>J/token|>USD/Mtok"
    below = "own limit: clocks fall where the chip's limit asks for it; fixed: never"
    return [table(f"{runs[0][1].title}: power caps", head, rows, below)]
