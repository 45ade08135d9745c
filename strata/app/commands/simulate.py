"""`strata simulate`: a service request by request, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from strata.app.commands import options
from strata.app.commands import simulate_options as own
from strata.app.commands.options import command
from strata.app.commands.simulate_inputs import SimulateInputs
from strata.app.rows_out import answer, write_rows
from strata.app.terminal import say, status_line, wrote
from strata.errors import BadValue
from strata.mapping.engine import USUAL_SERVER
from strata.units import typed_quantity

if TYPE_CHECKING:
    from strata.simulate.server.fleet import Load


@command(
    "simulate",
    "A service request by request: percentiles, goodput, fleets.",
    "strata simulate -m llama-3-70b -s 8xh200 --rate 4 -i lognormal:1024:0.5 -o 256 "
    "--ttft 1s --tpot 40ms --html run.html",
)
def simulate_command(
    model: options.ModelName = "",
    system: options.SystemName = "",
    pools: own.PoolsFile = None,
    load: own.LoadText = "",
    trace: own.TraceFile = "",
    rate: own.RateOption = "",
    clients: own.ClientsOption = "",
    input: own.InputLengths = "",
    output: own.OutputLengths = "",
    count: own.CountOption = "",
    seed: own.SeedOption = "",
    speed: own.SpeedOption = "",
    plan: own.PlanOption = "",
    engine: own.EngineOption = USUAL_SERVER,
    sequences: own.SequencesOption = "",
    tokens: own.TokensOption = "",
    kv_blocks: own.BlocksOption = "",
    no_prefix_caching: own.NoPrefix = False,
    router: own.RouterOption = "least-loaded",
    replicas: own.ReplicasOption = "1",
    prefill: own.PrefillOption = "",
    decode: own.DecodeOption = "",
    prefill_workers: own.PrefillWorkers = "",
    decode_workers: own.DecodeWorkers = "",
    power_cap: own.CapOption = "",
    speculative: options.DraftText = "",
    eviction: own.EvictionOption = "recompute",
    kv_tiers: own.TiersOption = "",
    priorities: own.PrioritiesFlag = False,
    skew: own.SkewOption = "",
    ttft: own.TtftOption = "",
    tpot: own.TpotOption = "",
    latency: own.LatencyOption = "",
    share: own.ShareOption = "95%",
    find_rate: own.FindRate = False,
    rates: own.RatesOption = "",
    fleet: own.FleetFlag = False,
    other: own.OrSystems = None,
    goal: own.GoalOption = "cheapest",
    cost: own.CostFlag = False,
    against: own.AgainstOption = "tpot",
    caps: own.CapsOption = "",
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    set: options.SetItems = None,
    price: options.DevicePrice = "",
    requests: own.RequestsFile = None,
    picture: own.PictureFile = None,
    html: own.HtmlFile = None,
    perfetto: own.PerfettoFile = None,
    launch: own.LaunchFlag = False,
    json: options.JsonFlag = False,
    table: options.TableFile = None,
) -> None:
    """Serve requests one by one on a simulated service: what each waits for and sees, and what it costs."""
    asked = {k: v for k, v in locals().items() if k != "asked"}
    simulate_asked(SimulateInputs(asked))


def simulate_asked(asked: SimulateInputs) -> None:
    """Answer what is asked; each answer says whether it was stopped."""
    made: dict[str, Callable[[SimulateInputs], bool]] = {
        "run": _run,
        "find_rate": _find_rate,
        "rates": _rates,
        "fleet": _fleet,
        "cost": _cost,
        "caps": _caps,
    }
    if made[asked.kind](asked):
        raise typer.Exit(130)  # Ctrl-C: what is known so far was told


def _told(asked: SimulateInputs, data: Callable[[], Any], shown: Callable[[], Any], rows: Any = "") -> None:
    answer(data, shown, asked.told["json"], asked.told["table"], rows)


def _run(asked: SimulateInputs) -> bool:
    from strata.app.render.prediction import dimmed
    from strata.app.render.ranking import served_interval
    from strata.app.render.simulated import run_tables
    from strata.serving.launch import launch_commands

    told = asked.told
    keep = any(told[n] is not None for n in ("requests", "html", "perfetto"))
    with _bar(asked.load) as progress:
        run = asked.run(keep, progress)
    commands = launch_commands(run.services) if told["launch"] else []
    also = {"launch": [c.to_dict() for c in commands]} if commands else {}
    means = (run.times[name].mean for name in ("ttft", "tpot"))
    interval, lines = served_interval(run.system, run.model, run.engine.name, *means)
    data = run.to_dict() | also | ({} if interval is None else {"interval": interval})
    _told(asked, lambda: data, lambda: [*run_tables(run, asked.share), *dimmed(lines)])
    if commands and not told["json"]:
        say(*["\n" + c.text for c in commands])
    if told["requests"] is not None:
        wrote("requests", _write_requests(told["requests"], run))
    if asked.picture is not None:
        from strata.app.render.simulated_page import draw_latencies

        wrote("picture", draw_latencies(run, asked.picture))
    if told["html"] is not None:
        from strata.app.render.simulated_page import service_page

        wrote("page", service_page(run, told["html"]))
    if told["perfetto"] is not None:
        from strata.app.render.simulated_page import service_trace

        wrote("trace", service_trace(run, told["perfetto"]), " (open it at https://ui.perfetto.dev)")
    return run.stopped


def _write_requests(path: Path, run: Any) -> Path:
    from strata.app.rows_out import check_table
    from strata.app.terminal import plain_json

    rows = list(run.rows())
    if path.suffix.lower() != ".json":
        times = ("arrival", "queued", "ttft", "tpot", "latency")
        return write_rows(check_table(path) or path, rows, dict.fromkeys(times, "s"))
    from json import dumps

    from strata.drawing import keep

    return keep(path, dumps(plain_json(rows), default=str) + "\n")


def _find_rate(asked: SimulateInputs) -> bool:
    from strata.app.render.simulated import rate_dict, rate_tables
    from strata.serving.simulated_answers import find_rate

    services = asked.deployments()
    with _runs_bar() as told:
        found = find_rate(
            services, asked.load, asked.slo, share=asked.share, router=asked.told["router"], told=told
        )
    _told(asked, lambda: rate_dict(found), lambda: rate_tables(found, asked.slo), "runs")
    _draw_curve(asked, sorted(found.runs, key=lambda pair: pair[0]))
    return found.stopped


def _rates(asked: SimulateInputs) -> bool:
    from strata.app.render.simulated import curve_dict, curve_tables
    from strata.serving.simulated_answers import load_latency

    text = asked.told["rates"]
    wanted = None if text == "auto" else [typed_quantity(v.strip(), "Hz", "--rates") for v in text.split(",")]
    services = asked.deployments()
    with _runs_bar() as told:
        found = load_latency(
            services, asked.load, wanted, slo=asked.slo, router=asked.told["router"], told=told
        )
    _told(asked, lambda: curve_dict(found.runs), lambda: curve_tables(found.runs, asked.slo), "rates")
    _draw_curve(asked, found.runs)
    return found.stopped


def _draw_curve(asked: SimulateInputs, runs: Any) -> None:
    if asked.picture is not None and runs:
        from strata.app.render.simulated_page import draw_load_latency

        wrote("picture", draw_load_latency(runs, asked.slo, asked.picture))


def _fleet(asked: SimulateInputs) -> bool:
    from strata.app.render.simulated import fleet_dict, fleet_tables
    from strata.serving.simulated_fleet import fleet_for

    every = [asked.deployment, *asked.others()]
    services = [s for one in every for s in one.priced(asked.load, asked.slo)]
    with _runs_bar() as told:
        found = fleet_for(
            services,
            asked.load,
            asked.slo,
            share=asked.share,
            goal=asked.told["goal"],
            router=asked.told["router"],
            told=lambda choice: told(0.0, choice.run),
        )
    if found.best is None:
        raise BadValue(
            "no number of these systems keeps the limits: a single request on an idle one does not"
        )
    _told(asked, lambda: fleet_dict(found), lambda: fleet_tables(found), "fleets")
    if asked.told["launch"] and not asked.told["json"]:
        from strata.serving.launch import launch_commands

        say(*["\n" + c.text for c in launch_commands(found.best.run.services)])
    return found.stopped


def _cost(asked: SimulateInputs) -> bool:
    from strata.app.render.simulated import cost_frontier_dict, cost_frontier_tables
    from strata.serving.simulated_answers import cost_frontier

    with _runs_bar() as told:
        found = cost_frontier(
            asked.candidates(),
            asked.load,
            latency=asked.told["against"],
            share=asked.share,
            slo=asked.slo or None,
            told=told,
        )
    _told(asked, lambda: cost_frontier_dict(found), lambda: cost_frontier_tables(found), "points")
    if asked.picture is not None:
        from strata.app.render.simulated_page import draw_cost_frontier

        wrote("picture", draw_cost_frontier(found, asked.picture))
    return found.stopped


def _caps(asked: SimulateInputs) -> bool:
    from strata.app.commands.power_cap import typed_caps
    from strata.app.render.simulated import caps_dict, caps_tables
    from strata.serving.simulated import simulate_services
    from strata.serving.simulated_fleet import services_capped

    caps = typed_caps(asked.told["caps"])
    runs = []
    with _runs_bar() as told:
        for name, services in services_capped(asked.deployment, caps, asked.load, asked.slo):
            run = simulate_services(services, asked.load, router=asked.told["router"], slo=asked.slo)
            told(0.0, run)
            runs.append((name, run))
            if run.stopped:
                break
    _told(asked, lambda: caps_dict(runs), lambda: caps_tables(runs), "caps")
    return runs[-1][1].stopped


@contextmanager
def _bar(load: Load) -> Iterator[Callable[[float, int], bool] | None]:
    """A bar on stderr, where that is a terminal: requests served, how fast, and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    from time import monotonic

    inner = getattr(load, "load", load)
    total = getattr(inner, "count", None)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task, began = bar.add_task("pricing", total=total), monotonic()

        def progress(clock: float, done: int) -> bool:
            speed = done / max(monotonic() - began, 1e-9)
            said = f"{done:,} requests, {clock:,.0f} s of the service, {speed:,.0f} requests/s"
            bar.update(task, description=said, completed=done)
            return True

        yield progress


@contextmanager
def _runs_bar() -> Iterator[Callable[[float, Any], None]]:
    """A line on stderr, where that is a terminal: runs so far."""
    with status_line("pricing") as say_now:
        count = 0

        def told(rate: float, run: Any) -> None:
            nonlocal count
            count += 1
            at = f" at {rate:.3g} requests/s" if rate else ""
            say_now(f"run {count}: {run.fleet_text}{at}, {run.kept:.1%} within limits")

        yield told
