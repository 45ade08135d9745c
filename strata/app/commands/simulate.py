"""`strata simulate`: a service request by request, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from strata.app.commands import options
from strata.app.commands.options import command, flag, option, picture_file, with_price
from strata.app.rows_out import write_rows
from strata.app.terminal import names_of, one_of, plain_json, progress_bar, say, status_line, wrote
from strata.base.drawing import keep
from strata.base.errors import BadValue, require
from strata.base.units import typed_quantity
from strata.search.served_options import deployment_of, limits_of_options, load_of_options, share_of_options
from strata.software.engine import USUAL_SERVER

if TYPE_CHECKING:
    from strata.serving.deployment import Deployment
    from strata.serving.priced_service import PricedService
    from strata.serving.simulated import Deployments, Progress
    from strata.serving.simulated_result import Served
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
INPUT = option("", "--input -i LENGTHS", "prompt tokens: 1024, uniform:1024, lognormal:1024:0.5, ...")
PLAN = option("", "--plan -p PLAN", "parallel degrees, like tp=8  [default: the best of the mean request]")
ENGINE = option(
    USUAL_SERVER, "NAME", "software: vllm, sglang, trtllm, ideal, or a TOML path", names_of("engine")
)
FLEET = flag("--fleet", "how many such systems keep the limits; with --or the best of several kinds")
OTHER = option(None, "--or SYSTEM[:PLAN]", "another system, for --fleet and --cost; as often as needed")
GOAL = option("cheapest", "GOAL", "of --fleet: cheapest or smallest", one_of("cheapest", "smallest"))
# what describes a deployment, and what stands there where nothing was typed
USUAL_DEPLOYMENT = {
    "engine": USUAL_SERVER,
    "router": "least-loaded",
    "replicas": "1",
    "eviction": "recompute",
}
DEPLOYMENT = (
    "engine router replicas eviction model system plan prefill decode sequences tokens prefill_workers "
    "decode_workers kv_blocks no_prefix_caching power_cap speculative kv_tiers priorities skew other weights "
    "kv set price"
)


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
    output: str = option("", "--output -o LENGTHS", "tokens of answers, as --input"),
    count: str = option("", "--count -n N", "requests in all  [default: 1000]"),
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
    form: options.AnswerForm = options.FORM,
) -> None:
    """Serve requests one by one on a simulated service: what each waits for and sees, and what it costs."""
    asked = SimulateInputs(dict(locals()))
    if KINDS.get(asked.kind, _run)(asked):
        raise typer.Exit(130)  # Ctrl-C: what is known so far was told


def _run(asked: SimulateInputs) -> bool:
    from strata.adapters.launchers.commands import launch_commands
    from strata.app.render import simulated_page
    from strata.app.render.prediction import dimmed
    from strata.app.render.ranking import served_interval
    from strata.app.render.simulated import run_tables

    chosen = asked.told
    keep = any(chosen[n] is not None for n in ("requests", "html", "perfetto"))
    with _bar(asked.load) as progress:
        run = asked.run(keep, progress)
    commands = launch_commands(run.services) if chosen["launch"] else []
    also = {"launch": [c.to_dict() for c in commands]} if commands else {}
    means = (run.times[name].mean for name in ("ttft", "tpot"))
    interval, lines = served_interval(run.system, run.model, run.engine.name, *means)
    data = run.to_dict() | also | ({} if interval is None else {"interval": interval})
    asked.form.answer(data, lambda: [*run_tables(run, asked.share), *dimmed(lines)])
    if commands and not asked.form.json:
        say(*["\n" + c.text for c in commands])
    options.write("requests", chosen["requests"], _write_requests, run)
    options.write("picture", asked.picture, simulated_page.draw_latencies, run)
    options.write("page", chosen["html"], simulated_page.service_page, run)
    if chosen["perfetto"] is not None:
        trace = simulated_page.service_trace(run, chosen["perfetto"])
        wrote("trace", trace, " (open it at https://ui.perfetto.dev)")
    return run.stopped


def _write_requests(run: Any, path: Path) -> Path:
    rows = list(run.rows())
    if path.suffix.lower() != ".json":
        times = ("arrival", "queued", "ttft", "tpot", "latency")
        return write_rows(path, rows, dict.fromkeys(times, "s"))
    return keep(path, dumps(plain_json(rows), default=str) + "\n")


def _find_rate(asked: SimulateInputs) -> bool:
    from strata.app.render.simulated import rate_dict, rate_tables
    from strata.app.render.simulated_page import draw_load_latency
    from strata.serving.simulated_answers import find_rate

    services = asked.deployments()
    with _runs_bar() as told:
        more: dict[str, Any] = {"share": asked.share, "router": asked.told["router"], "told": told}
        found = find_rate(services, asked.load, asked.slo, **more)
    asked.form.answer(lambda: rate_dict(found), lambda: rate_tables(found, asked.slo), "runs")
    runs = sorted(found.runs, key=lambda pair: pair[0])
    options.write("picture", asked.picture if runs else None, draw_load_latency, runs, asked.slo)
    return found.stopped


def _rates(asked: SimulateInputs) -> bool:
    from strata.app.render.simulated import curve_dict, curve_tables
    from strata.app.render.simulated_page import draw_load_latency
    from strata.serving.simulated_answers import load_latency

    text = asked.told["rates"]
    wanted = None if text == "auto" else [typed_quantity(v.strip(), "Hz", "--rates") for v in text.split(",")]
    services = asked.deployments()
    with _runs_bar() as told:
        more: dict[str, Any] = {"slo": asked.slo, "router": asked.told["router"], "told": told}
        found = load_latency(services, asked.load, wanted, **more)
    runs = found.runs
    asked.form.answer(lambda: curve_dict(runs), lambda: curve_tables(runs, asked.slo), "rates")
    options.write("picture", asked.picture if runs else None, draw_load_latency, runs, asked.slo)
    return found.stopped


def _fleet(asked: SimulateInputs) -> bool:
    from strata.app.render.simulated import fleet_dict, fleet_tables
    from strata.serving.simulated_fleet import fleet_for

    every = [asked.deployment, *asked.others()]
    services = [s for one in every for s in one.priced(asked.load, asked.slo)]
    more: dict[str, Any] = {name: asked.told[name] for name in ("goal", "router")}
    with _runs_bar() as told:
        more["told"] = lambda choice: told(0.0, choice.run)
        found = fleet_for(services, asked.load, asked.slo, share=asked.share, **more)
    if found.best is None:
        raise BadValue(
            "no number of these systems keeps the limits: a single request on an idle one does not"
        )
    asked.form.answer(fleet_dict, fleet_tables, "fleets", of=[found])
    if asked.told["launch"] and not asked.form.json:
        from strata.adapters.launchers.commands import launch_commands

        say(*["\n" + c.text for c in launch_commands(found.best.run.services)])
    return found.stopped


def _cost(asked: SimulateInputs) -> bool:
    from strata.app.render.simulated import cost_frontier_dict, cost_frontier_tables
    from strata.app.render.simulated_page import draw_cost_frontier
    from strata.serving.simulated_answers import cost_frontier

    more: dict[str, Any] = {"latency": asked.told["against"], "share": asked.share}
    with _runs_bar() as told:
        found = cost_frontier(asked.candidates(), asked.load, slo=asked.slo or None, told=told, **more)
    asked.form.answer(cost_frontier_dict, cost_frontier_tables, "points", of=[found])
    options.write("picture", asked.picture, draw_cost_frontier, found)
    return found.stopped


def _caps(asked: SimulateInputs) -> bool:
    from strata.app.commands.search import typed_caps
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
    asked.form.answer(caps_dict, caps_tables, "caps", of=[runs])
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


class SimulateInputs:
    """The command line, checked and made into inputs."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told, self.form = told, told["form"]
        self.picture = picture_file(told["picture"])
        kinds = [k for k in KINDS if told[k]]
        require(len(kinds) <= 1, "one question at a time", asked=", ".join(kinds))
        self.kind = kinds[0] if kinds else "run"
        kept = [n for n in ("requests", "html", "perfetto") if told[n] is not None]
        if kept and self.kind != "run":
            raise BadValue(f"--{kept[0]} is of a single run: leave out --{self.kind.replace('_', '-')}")
        self.options = told | {"set": with_price(told["set"], told["price"])}
        if told["pools"] is not None:
            self._check_pools()
        else:
            self.deployment = deployment_of(self.options)
        self.slo, self.share = limits_of_options(told), share_of_options(told)
        self.load = load_of_options(told)

    def _check_pools(self) -> None:
        """A file of pools says what serves: nothing else may."""
        given = [n for n in DEPLOYMENT.split() if self.told[n] and self.told[n] != USUAL_DEPLOYMENT.get(n)]
        if given:
            flag = {"other": "or"}.get(given[0], given[0].replace("_", "-"))
            raise BadValue(f"--pools says what serves: leave out --{flag}")
        if self.kind in ("fleet", "cost", "caps"):
            raise BadValue(f"--{self.kind} asks which deployments to take: leave out --pools")

    def deployments(self) -> Deployments:
        """What serves: the pools of a file, or the one deployment that is asked for."""
        from strata.search.served_options import read_pools

        if self.told["pools"] is None:
            return self.deployment.priced(self.load, self.slo)
        return read_pools(self.told["pools"], self.load, slo=self.slo)

    def run(self, keep: bool, progress: Progress | None) -> Served:
        """What becomes of the requests."""
        from strata.serving.deployment import served
        from strata.serving.simulated import simulate_services

        more: dict[str, Any] = {"slo": self.slo, "keep": keep, "progress": progress}
        if self.told["pools"] is None:
            return served(self.deployment, self.load, **more)
        return simulate_services(self.deployments(), self.load, router=self.told["router"], **more)

    def others(self, all_plans: bool = False) -> list[Deployment]:
        """Deployments on other systems; with `all_plans` several of each that names no plan."""
        words = [word.partition(":") for word in self.told["other"] or []]
        systems = [deployment_of(self.options | {"system": name, "plan": plan}) for name, _, plan in words]
        return [one for s in systems for one in (self._planned(s) if all_plans else [s])]

    def candidates(self) -> list[list[PricedService]]:
        """Deployments to compare: of a system without a plan, several plans."""
        every = [*self._planned(self.deployment), *self.others(all_plans=True)]
        return [one.priced(self.load, self.slo) for one in every]

    def _planned(self, one: Deployment) -> list[Deployment]:
        from strata.serving.priced_service import promising_plans

        if one.plan or one.prefill:
            return [one]
        plans = promising_plans(one.system, one.model, self.load, one.engine)
        return [replace(one, plan=plan) for plan in plans]


KINDS = {
    "find_rate": _find_rate,
    "rates": _rates,
    "fleet": _fleet,
    "cost": _cost,
    "caps": _caps,
}  # else a run
