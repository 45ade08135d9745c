"""`strata simulate`: a service request by request, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from strata.app.commands import options
from strata.app.commands.options import command, flag, option
from strata.app.commands.simulate_inputs import SimulateInputs
from strata.app.rows_out import answer, write_rows
from strata.app.terminal import names_of, one_of, progress_bar, say, status_line, wrote
from strata.errors import BadValue
from strata.mapping.engine import USUAL_SERVER
from strata.units import typed_quantity

if TYPE_CHECKING:
    from strata.serving.simulator.fleet import Load


LOAD = option(
    "",
    "LOAD",
    "requests in a line: poisson:rate=8, gamma, bursty, daily, closed:clients=64, sessions, agents "
    "(docs/simulate.md)  [default: by --rate or --clients]",
)
ROUTER = option(
    "least-loaded",
    "NAME",
    "round-robin, least-loaded, power-of-two or prefix-aware",
    one_of("round-robin", "least-loaded", "power-of-two", "prefix-aware"),
)
EVICTION = option(
    "recompute",
    "HOW",
    "of requests without room: recompute (read again), swap (to the host) or none (let in with all)",
    one_of("recompute", "swap", "none"),
)
KV_TIERS = option(
    "",
    "NAMES",
    "where caches go that a device has no room for, like host,disk  [default: nowhere]",
    names_of("kv-tiers"),
)
POOLS = option(None, "FILE", "pools of a fleet, TOML: models, systems, limits, adapters (docs/simulate.md)")
INPUT = option(
    "", "LENGTHS", "prompt tokens: 1024, uniform:1024, lognormal:1024:0.5, ...", flags="--input -i"
)
PLAN = option(
    "", "PLAN", "parallel degrees, like tp=8  [default: the best of the mean request]", flags="--plan -p"
)
ENGINE = option(
    USUAL_SERVER, "NAME", "software: vllm, sglang, trtllm, ideal, or a TOML path", names_of("engine")
)
FLEET = flag("--fleet", "how many such systems keep the limits; with --or the best of several kinds")
OTHER = option(
    None, "SYSTEM[:PLAN]", "another system, for --fleet and --cost; as often as needed", flags="--or"
)
GOAL = option("cheapest", "GOAL", "of --fleet: cheapest or smallest", one_of("cheapest", "smallest"))


@command(
    "simulate",
    "A service request by request: percentiles, goodput, fleets.",
    "strata simulate -m llama-3-70b -s 8xh200 --rate 4 -i lognormal:1024:0.5 -o 256 "
    "--ttft 1s --tpot 40ms --html run.html",
)
def simulate_command(
    model: options.ModelName = "",
    system: options.SystemName = "",
    pools: Path | None = POOLS,
    load: str = LOAD,
    trace: str = option("", "FILE", "recorded requests, CSV or JSONL: arrival, input, output ..."),
    rate: str = option("", "N/s", "requests that arrive at random each second"),
    clients: str = option("", "N", "clients that each wait for their answer"),
    input: str = INPUT,
    output: str = option("", "LENGTHS", "tokens of answers, as --input", flags="--output -o"),
    count: str = option("", "N", "requests in all  [default: 1000]", flags="--count -n"),
    seed: str = option("", "N", "of all draws  [default: 0]"),
    speed: str = option("", "X", "arrivals so many times as fast as the load says"),
    plan: str = PLAN,
    engine: str = ENGINE,
    sequences: options.RankSequences = "",
    tokens: options.StepTokens = "",
    kv_blocks: str = option("", "N", "blocks of a rank's KV cache  [default: what memory holds]"),
    no_prefix_caching: options.NoPrefixFlag = False,
    router: str = ROUTER,
    replicas: str = option("1", "N", "such systems behind the router"),
    prefill: str = option("", "PLAN", "devices apart that read prompts, like tp=4 (with --decode)"),
    decode: str = option("", "PLAN", "devices apart that generate, like tp=4 (with --prefill)"),
    prefill_workers: str = option("", "N", "workers that read prompts  [default: 1]"),
    decode_workers: str = option("", "N", "workers that generate  [default: 1]"),
    power_cap: str = option("", "W", "limit of each device's power"),
    speculative: options.DraftText = "",
    eviction: str = EVICTION,
    kv_tiers: str = KV_TIERS,
    priorities: bool = flag("--priorities", "requests with the lowest priority number first"),
    skew: str = option("", "X", "exponent of the experts' popularity (1); 0: uniform"),
    ttft: str = option("", "TIME", "limit on a request's time to first token"),
    tpot: str = option("", "TIME", "limit on a request's mean time between tokens"),
    latency: str = option("", "TIME", "limit on the time to a request's last token"),
    share: str = option("95%", "SHARE", "of requests that must keep all limits  [default: 95%]"),
    find_rate: bool = flag("--find-rate", "the largest rate at which the share keeps the limits"),
    rates: str = option("", "LIST", "latency over load: rates like 2,4,8, or auto"),
    fleet: bool = FLEET,
    other: list[str] | None = OTHER,
    goal: str = GOAL,
    cost: bool = flag("--cost", "frontier of USD/Mtoken against TPOT (or --against) over rates and systems"),
    against: str = option("tpot", "LATENCY", "ttft, tpot or latency", one_of("ttft", "tpot", "latency")),
    caps: str = option("", "LIST", "compare power caps of a device, like 400,500 [W], and fixed clocks"),
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    set: options.SetItems = None,
    price: options.DevicePrice = "",
    requests: Path | None = option(None, "FILE", "write every request, .csv, .parquet or .json"),
    picture: Path | None = option(
        None, "FILE", "draw the answer (.svg, .png, .pdf): latency CDF, load curve, frontier"
    ),
    html: Path | None = option(None, "FILE", "write a page: timeline of requests and batches, CDF"),
    perfetto: Path | None = option(None, "FILE", "write a trace of requests for ui.perfetto.dev"),
    launch: bool = flag("--launch", "also the command that starts the deployment"),
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

    chosen = asked.told
    keep = any(chosen[n] is not None for n in ("requests", "html", "perfetto"))
    with _bar(asked.load) as progress:
        run = asked.run(keep, progress)
    commands = launch_commands(run.services) if chosen["launch"] else []
    also = {"launch": [c.to_dict() for c in commands]} if commands else {}
    means = (run.times[name].mean for name in ("ttft", "tpot"))
    interval, lines = served_interval(run.system, run.model, run.engine.name, *means)
    data = run.to_dict() | also | ({} if interval is None else {"interval": interval})
    _told(asked, lambda: data, lambda: [*run_tables(run, asked.share), *dimmed(lines)])
    if commands and not chosen["json"]:
        say(*["\n" + c.text for c in commands])
    if chosen["requests"] is not None:
        wrote("requests", _write_requests(chosen["requests"], run))
    if asked.picture is not None:
        from strata.app.render.simulated_page import draw_latencies

        wrote("picture", draw_latencies(run, asked.picture))
    if chosen["html"] is not None:
        from strata.app.render.simulated_page import service_page

        wrote("page", service_page(run, chosen["html"]))
    if chosen["perfetto"] is not None:
        from strata.app.render.simulated_page import service_trace

        wrote("trace", service_trace(run, chosen["perfetto"]), " (open it at https://ui.perfetto.dev)")
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
    from strata.app.commands.sweep import typed_caps
    from strata.app.render.simulated import caps_dict, caps_tables
    from strata.serving.simulated import simulate_services
    from strata.serving.simulated_fleet import services_capped

    caps = typed_caps(asked.told["caps"])
    runs = []
    with _runs_bar() as show_run:
        for name, services in services_capped(asked.deployment, caps, asked.load, asked.slo):
            run = simulate_services(services, asked.load, router=asked.told["router"], slo=asked.slo)
            show_run(0.0, run)
            runs.append((name, run))
            if run.stopped:
                break
    _told(asked, lambda: caps_dict(runs), lambda: caps_tables(runs), "caps")
    return runs[-1][1].stopped


@contextmanager
def _bar(load: Load) -> Iterator[Callable[[float, int], bool] | None]:
    """A bar on stderr, where that is a terminal: requests served, how fast, and the time left."""
    from time import monotonic

    total = getattr(getattr(load, "load", load), "count", None)
    with progress_bar() as bar:
        if bar.disable:
            yield None
            return
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
