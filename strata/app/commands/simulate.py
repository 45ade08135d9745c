"""`strata simulate`: a service request by request, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.app.commands.options import (
    CacheFormat,
    DevicePrice,
    JsonFlag,
    ModelName,
    SetItems,
    SystemName,
    TableFile,
    WeightFormat,
    with_price,
)
from strata.app.rows_out import answer, write_rows
from strata.app.terminal import (
    names_of,
    one_of,
    say,
    typed_quantity,
    typed_time,
    whole,
    wrote,
)
from strata.errors import BadValue, require
from strata.units import parse

if TYPE_CHECKING:
    from strata.serving.priced_service import PricedService
    from strata.simulate.server.fleet import Load

LoadText = Annotated[
    str,
    typer.Option(
        "--load",
        metavar="LOAD",
        help="requests in a line: poisson:rate=8, gamma, bursty, daily, closed:clients=64, sessions, agents "
        "(docs/simulate.md)  [default: by --rate or --clients]",
    ),
]
TraceFile = Annotated[
    str,
    typer.Option("--trace", metavar="FILE", help="recorded requests, CSV or JSONL: arrival, input, output ..."),
]
RateOption = Annotated[str, typer.Option("--rate", metavar="N/s", help="requests that arrive at random each second")]
ClientsOption = Annotated[str, typer.Option("--clients", metavar="N", help="clients that each wait for their answer")]
InputLengths = Annotated[
    str,
    typer.Option(
        "--input", "-i", metavar="LENGTHS", help="prompt tokens: 1024, uniform:1024, lognormal:1024:0.5, ..."
    ),
]
OutputLengths = Annotated[
    str, typer.Option("--output", "-o", metavar="LENGTHS", help="tokens of answers, as --input")
]
CountOption = Annotated[str, typer.Option("--count", "-n", metavar="N", help="requests in all  [default: 1000]")]
SeedOption = Annotated[str, typer.Option("--seed", metavar="N", help="of all draws  [default: 0]")]
SpeedOption = Annotated[
    str, typer.Option("--speed", metavar="X", help="arrivals so many times as fast as the load says")
]
PlanOption = Annotated[
    str,
    typer.Option(
        "--plan", "-p", metavar="PLAN", help="parallel degrees, like tp=8  [default: the best of the mean request]"
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="software: vllm, sglang, trtllm, ideal, or a TOML path",
        autocompletion=names_of("engine"),
    ),
]
SequencesOption = Annotated[
    str, typer.Option("--sequences", metavar="N", help="sequences of a rank at once at most  [default: the engine's]")
]
TokensOption = Annotated[
    str, typer.Option("--tokens", metavar="N", help="tokens of a step at most  [default: the engine's]")
]
BlocksOption = Annotated[
    str, typer.Option("--kv-blocks", metavar="N", help="blocks of a rank's KV cache  [default: what memory holds]")
]
NoPrefix = Annotated[bool, typer.Option("--no-prefix-caching", help="prompts that begin alike share nothing")]
RouterOption = Annotated[
    str,
    typer.Option(
        "--router",
        metavar="NAME",
        help="round-robin, least-loaded, power-of-two or prefix-aware",
        autocompletion=one_of("round-robin", "least-loaded", "power-of-two", "prefix-aware"),
    ),
]
ReplicasOption = Annotated[str, typer.Option("--replicas", metavar="N", help="such systems behind the router")]
PrefillOption = Annotated[
    str, typer.Option("--prefill", metavar="PLAN", help="devices apart that read prompts, like tp=4 (with --decode)")
]
DecodeOption = Annotated[
    str, typer.Option("--decode", metavar="PLAN", help="devices apart that generate, like tp=4 (with --prefill)")
]
CapOption = Annotated[str, typer.Option("--power-cap", metavar="W", help="limit of each device's power")]
TtftOption = Annotated[str, typer.Option("--ttft", metavar="TIME", help="limit on a request's time to first token")]
TpotOption = Annotated[
    str, typer.Option("--tpot", metavar="TIME", help="limit on a request's mean time between tokens")
]
LatencyOption = Annotated[
    str, typer.Option("--latency", metavar="TIME", help="limit on the time to a request's last token")
]
ShareOption = Annotated[
    str, typer.Option("--share", metavar="SHARE", help="of requests that must keep all limits  [default: 95%]")
]
FindRate = Annotated[bool, typer.Option("--find-rate", help="the largest rate at which the share keeps the limits")]
RatesOption = Annotated[
    str, typer.Option("--rates", metavar="LIST", help="latency over load: rates like 2,4,8, or auto")
]
FleetFlag = Annotated[
    bool, typer.Option("--fleet", help="how many such systems keep the limits; with --or the best of several kinds")
]
OrSystems = Annotated[
    list[str] | None,
    typer.Option("--or", metavar="SYSTEM[:PLAN]", help="another system, for --fleet and --cost; as often as needed"),
]
GoalOption = Annotated[
    str,
    typer.Option(
        "--goal", metavar="GOAL", help="of --fleet: cheapest or smallest", autocompletion=one_of("cheapest", "smallest")
    ),
]
CostFlag = Annotated[
    bool, typer.Option("--cost", help="frontier of USD/Mtoken against TPOT (or --against) over rates and systems")
]
AgainstOption = Annotated[
    str,
    typer.Option(
        "--against", metavar="LATENCY", help="ttft, tpot or latency", autocompletion=one_of("ttft", "tpot", "latency")
    ),
]
CapsOption = Annotated[
    str, typer.Option("--caps", metavar="LIST", help="compare power caps of a device, like 400,500 [W], and fixed clocks")
]
RequestsFile = Annotated[
    Path | None, typer.Option("--requests", metavar="FILE", help="write every request, .csv, .parquet or .json")
]
PictureFile = Annotated[
    Path | None,
    typer.Option("--picture", metavar="FILE", help="draw the answer as .svg: latency CDF, load curve, frontier"),
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="write a page: timeline of requests and batches, CDF")
]
PerfettoFile = Annotated[
    Path | None, typer.Option("--perfetto", metavar="FILE", help="write a trace of requests for ui.perfetto.dev")
]
LaunchFlag = Annotated[bool, typer.Option("--launch", help="also the command that starts the deployment")]


def register_simulate(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        "simulate",
        short_help="A service request by request: percentiles, goodput, fleets.",
        epilog="Example: strata simulate -m llama-3-70b -s 8xh200 --rate 4 -i lognormal:1024:0.5 -o 256 "
        "--ttft 1s --tpot 40ms --html run.html",
    )(simulate_command)


def simulate_command(
    model: ModelName,
    system: SystemName,
    load: LoadText = "",
    trace: TraceFile = "",
    rate: RateOption = "",
    clients: ClientsOption = "",
    input: InputLengths = "",
    output: OutputLengths = "",
    count: CountOption = "",
    seed: SeedOption = "",
    speed: SpeedOption = "",
    plan: PlanOption = "",
    engine: EngineOption = "vllm",
    sequences: SequencesOption = "",
    tokens: TokensOption = "",
    kv_blocks: BlocksOption = "",
    no_prefix_caching: NoPrefix = False,
    router: RouterOption = "least-loaded",
    replicas: ReplicasOption = "1",
    prefill: PrefillOption = "",
    decode: DecodeOption = "",
    power_cap: CapOption = "",
    ttft: TtftOption = "",
    tpot: TpotOption = "",
    latency: LatencyOption = "",
    share: ShareOption = "95%",
    find_rate: FindRate = False,
    rates: RatesOption = "",
    fleet: FleetFlag = False,
    other: OrSystems = None,
    goal: GoalOption = "cheapest",
    cost: CostFlag = False,
    against: AgainstOption = "tpot",
    caps: CapsOption = "",
    weights: WeightFormat = "",
    kv: CacheFormat = "",
    set: SetItems = None,
    price: DevicePrice = "",
    requests: RequestsFile = None,
    picture: PictureFile = None,
    html: HtmlFile = None,
    perfetto: PerfettoFile = None,
    launch: LaunchFlag = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Serve requests one by one on a simulated service: what each waits for and sees, and what it costs."""
    asked = {k: v for k, v in locals().items() if k != "asked"}
    simulate_asked(_Asked(asked))


class _Asked:
    """The command line, checked and made into inputs."""

    def __init__(self, told: dict[str, Any]) -> None:
        from strata.app.commands.options import picture_file
        from strata.search.inputs import named_inputs

        self.told = told
        self.picture = picture_file(told["picture"])
        self.kinds = [k for k in ("find_rate", "rates", "fleet", "cost", "caps") if told[k]]
        require(len(self.kinds) <= 1, "one question at a time", asked=", ".join(self.kinds))
        self.kind = self.kinds[0] if self.kinds else "run"
        kept = [n for n in ("requests", "html", "perfetto") if told[n] is not None]
        if kept and self.kind != "run":
            raise BadValue(f"--{kept[0]} is of a single run: leave out --{self.kind.replace('_', '-')}")
        self.changes = with_price(told["set"], told["price"])
        self.system, self.model, self.engine = named_inputs(
            told["model"], told["system"], told["engine"], told["weights"], told["kv"], self.changes
        )
        limits = {n: typed_time(told[n], f"--{n}") for n in ("ttft", "tpot", "latency")}
        self.slo = {n: v for n, v in limits.items() if v < float("inf")}
        self.share = parse(told["share"], "1", "--share")
        require(0 < self.share <= 1, "--share lies between 0 and 100%", given=told["share"])
        self.load = self._load()

    def _load(self) -> Load:
        from strata.serving.simulated_answers import PacedLoad
        from strata.simulate.server.load_text import load_of

        told = self.told
        ways = [n for n in ("load", "trace", "rate", "clients") if told[n]]
        if not ways:
            raise BadValue("simulate needs requests: --rate, --clients, --load or --trace; see strata simulate --help")
        if len(ways) > 1:
            raise BadValue(f"--{ways[0]} and --{ways[1]} both say which requests come; give one")
        options: dict[str, Any] = {n: told[n] for n in ("count", "seed") if told[n]}
        if ways[0] in ("rate", "clients"):
            options |= {"input": told["input"] or "1024", "output": told["output"] or "256"}
        else:
            options |= {n: told[n] for n in ("input", "output") if told[n]}
        if told["rate"]:
            value = typed_quantity(told["rate"], "Hz", "--rate")
            require(value > 0, "--rate must be positive", rate=told["rate"])
            made = load_of("poisson", rate=value, **options)
        elif told["clients"]:
            made = load_of("closed", clients=int(whole(told["clients"], "--clients")), **options)
        else:
            made = load_of(told["load"] or told["trace"], **options)
        if not told["speed"]:
            return made
        return PacedLoad(load=made, speed=parse(told["speed"], "1", "--speed"))

    @property
    def options(self) -> dict[str, Any]:
        """How a deployment is priced."""
        told = self.told
        names = ("sequences", "tokens", "kv_blocks")
        found: dict[str, Any] = {
            n: int(whole(told[n], f"--{n.replace('_', '-')}")) for n in names if told[n]
        }
        found |= {"prefix_caching": not told["no_prefix_caching"], "load": self.load, "slo": self.slo}
        if told["power_cap"]:
            found["power_cap"] = typed_quantity(told["power_cap"], "W", "--power-cap")
        return found

    def services(self) -> list[PricedService]:
        """The deployment that is asked for."""
        from strata.serving.priced_service import price_service
        from strata.serving.simulated_pools import disaggregated_services

        told = self.told
        copies = int(whole(told["replicas"], "--replicas"))
        if bool(told["prefill"]) != bool(told["decode"]):
            raise BadValue("devices apart need both --prefill PLAN and --decode PLAN")
        if told["prefill"]:
            require(not told["plan"], "--prefill and --decode are plans: leave out --plan")
            inputs = (self.system, self.model, told["prefill"], told["decode"], self.engine)
            return [s.copied(copies) for s in disaggregated_services(*inputs, **self.options)]
        made = price_service(self.system, self.model, told["plan"], self.engine, **self.options)
        return [made.copied(copies)]

    def others(self) -> list[PricedService]:
        """Deployments on other systems."""
        from strata.search.inputs import named_inputs
        from strata.serving.priced_service import price_service

        found = []
        for word in self.told["other"] or []:
            name, _, plan = word.partition(":")
            told = (self.told["weights"], self.told["kv"])
            system, model, engine = named_inputs(
                self.told["model"], name, self.told["engine"], *told, self.changes
            )
            found.append(price_service(system, model, plan, engine, **self.options))
        return found


def simulate_asked(asked: _Asked) -> None:
    """Answer what is asked."""
    made: dict[str, Callable[[_Asked], None]] = {
        "run": _run,
        "find_rate": _find_rate,
        "rates": _rates,
        "fleet": _fleet,
        "cost": _cost,
        "caps": _caps,
    }
    made[asked.kind](asked)


def _told(asked: _Asked, data: Callable[[], Any], shown: Callable[[], Any], rows: Any = "") -> None:
    answer(data, shown, asked.told["json"], asked.told["table"], rows)


def _run(asked: _Asked) -> None:
    from strata.app.render.simulated import run_tables
    from strata.serving.launch import launch_commands
    from strata.serving.simulated import simulate_services

    told = asked.told
    keep = any(told[n] is not None for n in ("requests", "html", "perfetto"))
    services = asked.services()
    with _bar(asked.load) as progress:
        run = simulate_services(
            services, asked.load, router=told["router"], slo=asked.slo, keep=keep, progress=progress
        )
    commands = launch_commands(services) if told["launch"] else []
    data = lambda: {**run.to_dict(), "launch": [c.to_dict() for c in commands]}  # noqa: E731
    _told(asked, data, lambda: run_tables(run, asked.share))
    if commands and not told["json"]:
        say(*["\n" + c.text for c in commands])
    if told["requests"] is not None:
        wrote("requests", _write_requests(told["requests"], run))
    if asked.picture is not None:
        from strata.app.render.simulated_picture import draw_latencies

        wrote("picture", draw_latencies(run, asked.picture))
    if told["html"] is not None:
        from strata.app.render.simulated_page import service_page

        wrote("page", service_page(run, told["html"]))
    if told["perfetto"] is not None:
        from strata.app.render.simulated_page import service_trace

        wrote("trace", service_trace(run, told["perfetto"]), " (open it at https://ui.perfetto.dev)")


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


def _find_rate(asked: _Asked) -> None:
    from strata.app.render.simulated import rate_dict, rate_tables
    from strata.serving.simulated_answers import find_rate

    services = asked.services()
    with _runs_bar() as told:
        found = find_rate(
            services, asked.load, asked.slo, share=asked.share, router=asked.told["router"], told=told
        )
    _told(asked, lambda: rate_dict(found), lambda: rate_tables(found, asked.slo), "runs")
    _draw_curve(asked, sorted(found.runs, key=lambda pair: pair[0]))


def _rates(asked: _Asked) -> None:
    from strata.app.render.simulated import curve_dict, curve_tables
    from strata.serving.simulated_answers import load_latency

    text = asked.told["rates"]
    wanted = None if text == "auto" else [typed_quantity(v.strip(), "Hz", "--rates") for v in text.split(",")]
    services = asked.services()
    with _runs_bar() as told:
        runs = load_latency(
            services, asked.load, wanted, slo=asked.slo, router=asked.told["router"], told=told
        )
    _told(asked, lambda: curve_dict(runs), lambda: curve_tables(runs, asked.slo), "rates")
    _draw_curve(asked, runs)


def _draw_curve(asked: _Asked, runs: Any) -> None:
    if asked.picture is not None:
        from strata.app.render.simulated_picture import draw_load_latency

        wrote("picture", draw_load_latency(runs, asked.slo, asked.picture))


def _fleet(asked: _Asked) -> None:
    from strata.app.render.simulated import fleet_dict, fleet_tables
    from strata.serving.simulated_fleet import fleet_for

    services = [*asked.services(), *asked.others()]
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
        raise BadValue("no number of these systems keeps the limits: a single request on an idle one does not")
    _told(asked, lambda: fleet_dict(found), lambda: fleet_tables(found), "fleets")
    if asked.told["launch"] and not asked.told["json"]:
        from strata.serving.launch import launch_commands

        say(*["\n" + c.text for c in launch_commands(found.best.run.services)])


def _cost(asked: _Asked) -> None:
    from strata.app.render.simulated import cost_dict, cost_tables
    from strata.serving.simulated_answers import cost_frontier

    candidates = [[s] for s in (*asked.services(), *asked.others())]
    with _runs_bar() as told:
        found = cost_frontier(
            candidates,
            asked.load,
            latency=asked.told["against"],
            share=asked.share,
            slo=asked.slo or None,
            told=told,
        )
    _told(asked, lambda: cost_dict(found), lambda: cost_tables(found), "points")
    if asked.picture is not None:
        from strata.app.render.simulated_picture import draw_cost_frontier

        wrote("picture", draw_cost_frontier(found, asked.picture))


def _caps(asked: _Asked) -> None:
    from strata.app.commands.power_cap import typed_caps
    from strata.app.render.simulated import caps_dict, caps_tables
    from strata.serving.simulated import simulate_services
    from strata.serving.simulated_fleet import power_capped

    caps = typed_caps(asked.told["caps"])
    options = {k: v for k, v in asked.options.items() if k != "power_cap"}
    inputs = {"model": asked.model, "plan": asked.told["plan"], "engine": asked.engine}
    runs = []
    with _runs_bar() as told:
        for name, service in power_capped(asked.system, caps, **inputs, **options):
            run = simulate_services([service], asked.load, router=asked.told["router"], slo=asked.slo)
            told(0.0, run)
            runs.append((name, run))
    _told(asked, lambda: caps_dict(runs), lambda: caps_tables(runs), "caps")


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
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    screen = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task, count = bar.add_task("pricing", total=None), 0

        def told(rate: float, run: Any) -> None:
            nonlocal count
            count += 1
            at = f" at {rate:.3g} requests/s" if rate else ""
            bar.update(task, description=f"run {count}: {run.fleet_text}{at}, {run.kept:.1%} within limits")

        yield told
