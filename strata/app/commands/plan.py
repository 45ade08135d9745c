"""`strata plan`: the best plans of a model on a system under limits on latency."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from strata.app.commands import options
from strata.app.commands.options import command, option, typed, typed_sizes, with_overlap, with_price
from strata.app.rows_out import keep_table
from strata.app.terminal import print_json, say, status_line, wrote
from strata.errors import require
from strata.mapping.engine import usual_engine
from strata.units import typed_time, whole

if TYPE_CHECKING:
    from strata.search.plan_for import PlanRanking

USUAL_BATCHES = tuple(2.0**n for n in range(11))  # of steps whose batch is not told, to begin with
UNTYPED = ("weights", "kv", "routing", "lora", "frozen", "speculative")
USUAL = {"phase": "serve", **dict.fromkeys(UNTYPED, "")}  # not worth repeating


BatchList = Annotated[
    str,
    typed(
        "--batch -b",
        "N,N,...",
        "sequences at once; every one of a list is tried  [default: the most that keep the limits]",
    ),
]


@command(
    "plan",
    "The best plans under limits on latency.",
    "strata plan -m llama-3.1-405b -s 64xh200 --ttft 2s --tpot 40ms",
)
def plan_command(
    model: options.ModelName,
    system: options.SystemName,
    batch: BatchList = "",
    input: options.InputTokens = "1024",
    output: options.OutputTokens = "1024",
    phase: options.PhaseName = "serve",
    engine: options.EngineName = "",
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    set: options.SetItems = None,
    goal: options.GoalName = "throughput",
    ttft: options.TtftLimit = "",
    tpot: options.TpotLimit = "",
    share: options.ShareOption = "",
    top: str = option("8", "N", "how many to show"),
    where: str = option("", "CONDITION", "only plans like this: '(ep == 1) & (cp == 1)'"),
    routing: options.RoutingFile = "",
    lora: options.LoraAdapters = "",
    frozen: options.FrozenModules = "",
    overlap: options.OverlapMode = "",
    speculative: options.DraftText = "",
    price: options.DevicePrice = "",
    quick: options.QuickFlag = False,
    json: options.JsonFlag = False,
    table: options.TableFile = None,
    report: options.ReportFile = None,
) -> None:
    """The best of every legal plan under limits on latency, with the largest batch that keeps them."""
    from strata.app.commands.serving import typed_share
    from strata.app.render.prediction import dimmed
    from strata.app.render.ranking import hint_text, ranking_table
    from strata.search.inputs import named_inputs, phase_of
    from strata.search.plan_for import plan_for
    from strata.serving.served_options import drafting_of

    engine = engine or usual_engine(phase)
    batches, size = _typed_batches(batch), typed_sizes("1", input, output)
    limits: dict[str, Any] = {"ttft": typed_time(ttft, "--ttft"), "tpot": typed_time(tpot, "--tpot")}
    changes = with_price(with_overlap(set, overlap), price)
    hardware, served, software = named_inputs(model, system, engine, weights, kv, changes)
    kind, fine_tuned = phase_of(served, phase), (routing, lora, frozen)
    tried = _usual_batches(kind, batches, size, hardware, served)
    work = _typed_work(served, kind, tried, size, fine_tuned)
    limits |= {"share": typed_share(share), "goal": goal, "top": int(whole(top, "--top")), "where": where}
    limits["largest"] = kind in ("prefill", "decode") and batches is None
    limits |= {"drafting": drafting_of(speculative, served, kind), "quick": quick}
    with status_line("pricing plans") as heard:
        ranking = plan_for(hardware, served, work, software, **limits, heard=heard)
    lines = _told(ranking, json, table)
    if not json:
        words = {"model": model, "system": system}
        words |= {name: f"{size[name]:g}" for name in ("input", "output")}
        words |= {"phase": phase, "engine": engine, "weights": weights, "kv": kv}
        words |= dict(zip(UNTYPED[2:], (*fine_tuned, speculative), strict=True))
        say(ranking_table(ranking), *dimmed(lines), hint_text(ranking, _as_typed(words, changes)))
    _write_report(ranking, report, lines)


def _told(ranking: PlanRanking, json: bool, table: Path | None) -> list[str]:
    """What machines are told; lines of the interval for people. What is served says its own in its table."""
    from strata.app.render.accuracy import interval_of
    from strata.app.render.ranking import ranking_dict

    none = ranking.why_none or ranking.served is not None
    interval, lines = (None, []) if none else interval_of(ranking.nearest)
    told = ranking_dict(ranking) if json or table else {}
    if json:
        print_json(told | ({} if interval is None else {"interval": interval}))
    require(not ranking.why_none, ranking.why_none)
    keep_table(table, told, "plans")
    return lines


def _write_report(ranking: PlanRanking, path: Path | None, lines: list[str]) -> None:
    if path is None:
        return
    from strata.app.render.prediction_report import plan_report

    wrote("report", plan_report(ranking, path, lines))


def _typed_batches(text: str) -> Any:
    import numpy as np

    return np.array([whole(b, "--batch") for b in text.split(",")]) if text else None


def _as_typed(words: dict[str, str], changes: list[str]) -> str:
    """Options that are not as usual, to be repeated."""
    typed = [f"--{k} {quote(v)}" for k, v in words.items() if USUAL.get(k) != v]
    return " ".join([*typed, *(f"--set {quote(c)}" for c in changes)])


def _usual_batches(phase: str, batches: Any, size: dict[str, float], system: Any, program: Any) -> Any:
    """Batches as typed; of a language model that is trained, where none is, the usual one of the devices."""
    if batches is not None or phase != "train" or not hasattr(program, "pattern"):
        return batches
    import numpy as np

    from strata.training.run import usual_batch

    return np.array([usual_batch(float(system.devices), size["input"])])


def _typed_work(
    served: Any, phase: str, batches: Any, size: dict[str, float], typed: tuple[str, str, str]
) -> Any:
    """What is asked for: requests whose number at once is to be found, or batches of a phase; typed: a file
    of routing, adapters, frozen modules.
    """
    import numpy as np

    from strata.search.inputs import fine_tuning, make_workload, routing_from_file
    from strata.serving.requests import Requests

    told = {"routing": routing_from_file(typed[0], served), **fine_tuning(phase, *typed[1:])}
    if phase == "serve" and batches is None:
        return Requests(size["input"], size["output"], routing=told["routing"])
    tried = np.array(USUAL_BATCHES) if batches is None else batches
    return make_workload(phase, tried, size["input"], size["output"], **told)
