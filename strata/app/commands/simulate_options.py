"""Options of `strata simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from strata.app.commands.options import flag, typed
from strata.app.terminal import names_of, one_of

LoadText = Annotated[
    str,
    typed(
        "--load",
        "LOAD",
        "requests in a line: poisson:rate=8, gamma, bursty, daily, closed:clients=64, sessions, agents "
        "(docs/simulate.md)  [default: by --rate or --clients]",
    ),
]
TraceFile = Annotated[
    str, typed("--trace", "FILE", "recorded requests, CSV or JSONL: arrival, input, output ...")
]
RateOption = Annotated[str, typed("--rate", "N/s", "requests that arrive at random each second")]
ClientsOption = Annotated[str, typed("--clients", "N", "clients that each wait for their answer")]
InputLengths = Annotated[
    str, typed("--input", "LENGTHS", "prompt tokens: 1024, uniform:1024, lognormal:1024:0.5, ...", short="-i")
]
OutputLengths = Annotated[str, typed("--output", "LENGTHS", "tokens of answers, as --input", short="-o")]
CountOption = Annotated[str, typed("--count", "N", "requests in all  [default: 1000]", short="-n")]
SeedOption = Annotated[str, typed("--seed", "N", "of all draws  [default: 0]")]
SpeedOption = Annotated[str, typed("--speed", "X", "arrivals so many times as fast as the load says")]
PoolsFile = Annotated[
    Path | None,
    typed("--pools", "FILE", "pools of a fleet, TOML: models, systems, limits, adapters (docs/simulate.md)"),
]
PlanOption = Annotated[
    str,
    typed(
        "--plan", "PLAN", "parallel degrees, like tp=8  [default: the best of the mean request]", short="-p"
    ),
]
EngineOption = Annotated[
    str,
    typed(
        "--engine",
        "NAME",
        "software: vllm, sglang, trtllm, ideal, or a TOML path",
        complete=names_of("engine"),
    ),
]
SequencesOption = Annotated[
    str, typed("--sequences", "N", "sequences of a rank at once at most  [default: the engine's]")
]
TokensOption = Annotated[str, typed("--tokens", "N", "tokens of a step at most  [default: the engine's]")]
BlocksOption = Annotated[
    str, typed("--kv-blocks", "N", "blocks of a rank's KV cache  [default: what memory holds]")
]
NoPrefix = Annotated[bool, flag("--no-prefix-caching", "prompts that begin alike share nothing")]
RouterOption = Annotated[
    str,
    typed(
        "--router",
        "NAME",
        "round-robin, least-loaded, power-of-two or prefix-aware",
        complete=one_of("round-robin", "least-loaded", "power-of-two", "prefix-aware"),
    ),
]
ReplicasOption = Annotated[str, typed("--replicas", "N", "such systems behind the router")]
PrefillOption = Annotated[
    str, typed("--prefill", "PLAN", "devices apart that read prompts, like tp=4 (with --decode)")
]
DecodeOption = Annotated[
    str, typed("--decode", "PLAN", "devices apart that generate, like tp=4 (with --prefill)")
]
PrefillWorkers = Annotated[str, typed("--prefill-workers", "N", "workers that read prompts  [default: 1]")]
DecodeWorkers = Annotated[str, typed("--decode-workers", "N", "workers that generate  [default: 1]")]
CapOption = Annotated[str, typed("--power-cap", "W", "limit of each device's power")]
EvictionOption = Annotated[
    str,
    typed(
        "--eviction",
        "HOW",
        "of requests without room: recompute (read again), swap (to the host) or none (let in with all)",
        complete=one_of("recompute", "swap", "none"),
    ),
]
TiersOption = Annotated[
    str,
    typed(
        "--kv-tiers",
        "NAMES",
        "where caches go that a device has no room for, like host,disk  [default: nowhere]",
        complete=names_of("kv-tiers"),
    ),
]
PrioritiesFlag = Annotated[bool, flag("--priorities", "requests with the lowest priority number first")]
SkewOption = Annotated[str, typed("--skew", "X", "exponent of the experts' popularity (1); 0: uniform")]
TtftOption = Annotated[str, typed("--ttft", "TIME", "limit on a request's time to first token")]
TpotOption = Annotated[str, typed("--tpot", "TIME", "limit on a request's mean time between tokens")]
LatencyOption = Annotated[str, typed("--latency", "TIME", "limit on the time to a request's last token")]
ShareOption = Annotated[
    str, typed("--share", "SHARE", "of requests that must keep all limits  [default: 95%]")
]
FindRate = Annotated[bool, flag("--find-rate", "the largest rate at which the share keeps the limits")]
RatesOption = Annotated[str, typed("--rates", "LIST", "latency over load: rates like 2,4,8, or auto")]
FleetFlag = Annotated[
    bool,
    flag("--fleet", "how many such systems keep the limits; with --or the best of several kinds"),
]
OrSystems = Annotated[
    list[str] | None,
    typed("--or", "SYSTEM[:PLAN]", "another system, for --fleet and --cost; as often as needed"),
]
GoalOption = Annotated[
    str, typed("--goal", "GOAL", "of --fleet: cheapest or smallest", complete=one_of("cheapest", "smallest"))
]
CostFlag = Annotated[
    bool,
    flag("--cost", "frontier of USD/Mtoken against TPOT (or --against) over rates and systems"),
]
AgainstOption = Annotated[
    str, typed("--against", "LATENCY", "ttft, tpot or latency", complete=one_of("ttft", "tpot", "latency"))
]
CapsOption = Annotated[
    str, typed("--caps", "LIST", "compare power caps of a device, like 400,500 [W], and fixed clocks")
]
RequestsFile = Annotated[
    Path | None, typed("--requests", "FILE", "write every request, .csv, .parquet or .json")
]
PictureFile = Annotated[
    Path | None,
    typed("--picture", "FILE", "draw the answer (.svg, .png, .pdf): latency CDF, load curve, frontier"),
]
HtmlFile = Annotated[
    Path | None, typed("--html", "FILE", "write a page: timeline of requests and batches, CDF")
]
PerfettoFile = Annotated[
    Path | None, typed("--perfetto", "FILE", "write a trace of requests for ui.perfetto.dev")
]
LaunchFlag = Annotated[bool, flag("--launch", "also the command that starts the deployment")]
