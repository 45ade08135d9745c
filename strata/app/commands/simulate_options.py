"""Options of `strata simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strata.app.terminal import names_of, one_of

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
    typer.Option(
        "--trace", metavar="FILE", help="recorded requests, CSV or JSONL: arrival, input, output ..."
    ),
]
RateOption = Annotated[
    str, typer.Option("--rate", metavar="N/s", help="requests that arrive at random each second")
]
ClientsOption = Annotated[
    str, typer.Option("--clients", metavar="N", help="clients that each wait for their answer")
]
InputLengths = Annotated[
    str,
    typer.Option(
        "--input", "-i", metavar="LENGTHS", help="prompt tokens: 1024, uniform:1024, lognormal:1024:0.5, ..."
    ),
]
OutputLengths = Annotated[
    str, typer.Option("--output", "-o", metavar="LENGTHS", help="tokens of answers, as --input")
]
CountOption = Annotated[
    str, typer.Option("--count", "-n", metavar="N", help="requests in all  [default: 1000]")
]
SeedOption = Annotated[str, typer.Option("--seed", metavar="N", help="of all draws  [default: 0]")]
SpeedOption = Annotated[
    str, typer.Option("--speed", metavar="X", help="arrivals so many times as fast as the load says")
]
PlanOption = Annotated[
    str,
    typer.Option(
        "--plan",
        "-p",
        metavar="PLAN",
        help="parallel degrees, like tp=8  [default: the best of the mean request]",
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
    str,
    typer.Option(
        "--sequences", metavar="N", help="sequences of a rank at once at most  [default: the engine's]"
    ),
]
TokensOption = Annotated[
    str, typer.Option("--tokens", metavar="N", help="tokens of a step at most  [default: the engine's]")
]
BlocksOption = Annotated[
    str,
    typer.Option(
        "--kv-blocks", metavar="N", help="blocks of a rank's KV cache  [default: what memory holds]"
    ),
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
ReplicasOption = Annotated[
    str, typer.Option("--replicas", metavar="N", help="such systems behind the router")
]
PrefillOption = Annotated[
    str,
    typer.Option(
        "--prefill", metavar="PLAN", help="devices apart that read prompts, like tp=4 (with --decode)"
    ),
]
DecodeOption = Annotated[
    str,
    typer.Option("--decode", metavar="PLAN", help="devices apart that generate, like tp=4 (with --prefill)"),
]
CapOption = Annotated[str, typer.Option("--power-cap", metavar="W", help="limit of each device's power")]
SpeculativeOption = Annotated[
    str,
    typer.Option(
        "--speculative",
        metavar="GUESS",
        help="draft=NAME (or mtp: the model's own module),acceptance=0.7 and, if told, window=3, branches=1",
        autocompletion=one_of("draft=", "draft=mtp,acceptance="),
    ),
]
EvictionOption = Annotated[
    str,
    typer.Option(
        "--eviction",
        metavar="HOW",
        help="of requests without room: recompute (read again), swap (to the host) or none (let in with all)",
        autocompletion=one_of("recompute", "swap", "none"),
    ),
]
TiersOption = Annotated[
    str,
    typer.Option(
        "--kv-tiers",
        metavar="NAMES",
        help="where caches go that a device has no room for, like host,disk  [default: nowhere]",
        autocompletion=names_of("kv-tiers"),
    ),
]
PrioritiesFlag = Annotated[
    bool, typer.Option("--priorities", help="requests with the lowest priority number first")
]
SkewOption = Annotated[
    str, typer.Option("--skew", metavar="X", help="exponent of the experts' popularity: 0 is uniform")
]
TtftOption = Annotated[
    str, typer.Option("--ttft", metavar="TIME", help="limit on a request's time to first token")
]
TpotOption = Annotated[
    str, typer.Option("--tpot", metavar="TIME", help="limit on a request's mean time between tokens")
]
LatencyOption = Annotated[
    str, typer.Option("--latency", metavar="TIME", help="limit on the time to a request's last token")
]
ShareOption = Annotated[
    str,
    typer.Option("--share", metavar="SHARE", help="of requests that must keep all limits  [default: 95%]"),
]
FindRate = Annotated[
    bool, typer.Option("--find-rate", help="the largest rate at which the share keeps the limits")
]
RatesOption = Annotated[
    str, typer.Option("--rates", metavar="LIST", help="latency over load: rates like 2,4,8, or auto")
]
FleetFlag = Annotated[
    bool,
    typer.Option(
        "--fleet", help="how many such systems keep the limits; with --or the best of several kinds"
    ),
]
OrSystems = Annotated[
    list[str] | None,
    typer.Option(
        "--or", metavar="SYSTEM[:PLAN]", help="another system, for --fleet and --cost; as often as needed"
    ),
]
GoalOption = Annotated[
    str,
    typer.Option(
        "--goal",
        metavar="GOAL",
        help="of --fleet: cheapest or smallest",
        autocompletion=one_of("cheapest", "smallest"),
    ),
]
CostFlag = Annotated[
    bool,
    typer.Option("--cost", help="frontier of USD/Mtoken against TPOT (or --against) over rates and systems"),
]
AgainstOption = Annotated[
    str,
    typer.Option(
        "--against",
        metavar="LATENCY",
        help="ttft, tpot or latency",
        autocompletion=one_of("ttft", "tpot", "latency"),
    ),
]
CapsOption = Annotated[
    str,
    typer.Option(
        "--caps", metavar="LIST", help="compare power caps of a device, like 400,500 [W], and fixed clocks"
    ),
]
RequestsFile = Annotated[
    Path | None,
    typer.Option("--requests", metavar="FILE", help="write every request, .csv, .parquet or .json"),
]
PictureFile = Annotated[
    Path | None,
    typer.Option(
        "--picture", metavar="FILE", help="draw the answer as .svg: latency CDF, load curve, frontier"
    ),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="write a page: timeline of requests and batches, CDF"),
]
PerfettoFile = Annotated[
    Path | None,
    typer.Option("--perfetto", metavar="FILE", help="write a trace of requests for ui.perfetto.dev"),
]
LaunchFlag = Annotated[bool, typer.Option("--launch", help="also the command that starts the deployment")]
