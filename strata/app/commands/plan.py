"""`strata plan`: the best plans of a model on a system under limits on latency."""

from __future__ import annotations

from shlex import quote
from typing import Annotated, Any

import typer

from strata.app.commands.options import (
    CacheFormat,
    EngineName,
    InputTokens,
    JsonFlag,
    ModelName,
    OutputTokens,
    OverlapMode,
    PhaseName,
    RoutingFile,
    SetItems,
    SystemName,
    WeightFormat,
    typed_sizes,
    with_overlap,
)
from strata.app.terminal import print_json, say, typed_time, whole
from strata.errors import BadValue

USUAL = {"phase": "serve", "engine": "ideal", "weights": "", "kv": "", "routing": ""}  # not worth repeating


def register_plan(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        "plan",
        short_help="The best plans under limits on latency.",
        epilog="Example: strata plan -m llama-3.1-405b -s 64xh200 --ttft 2s --tpot 40ms",
    )(plan_command)


def plan_command(
    model: ModelName,
    system: SystemName,
    batch: Annotated[
        str,
        typer.Option(
            "--batch", "-b", metavar="N,N,...", help="sequences at once; every one of a list is tried"
        ),
    ] = "1,2,4,8,16,32,64,128,256,512,1024",
    input: InputTokens = "1024",
    output: OutputTokens = "1024",
    phase: PhaseName = "serve",
    engine: EngineName = "ideal",
    weights: WeightFormat = "",
    kv: CacheFormat = "",
    set: SetItems = None,
    ttft: Annotated[str, typer.Option(metavar="TIME", help="limit on time to first token, like 2s")] = "",
    tpot: Annotated[str, typer.Option(metavar="TIME", help="limit on time per output token, like 40ms")] = "",
    top: Annotated[str, typer.Option(metavar="N", help="how many to show")] = "8",
    where: Annotated[
        str, typer.Option(metavar="CONDITION", help="only plans like this: '(ep == 1) & (cp == 1)'")
    ] = "",
    routing: RoutingFile = "",
    overlap: OverlapMode = "",
    json: JsonFlag = False,
) -> None:
    """The best plans of a model on a system under limits on latency, out of every legal one."""
    import numpy as np

    from strata.app.render.accuracy import interval_of
    from strata.app.render.prediction import dimmed
    from strata.app.render.ranking import hint_text, ranking_dict, ranking_table
    from strata.search.inputs import make_workload, named_inputs, phase_of, routing_from_file
    from strata.search.plan_for import plan_for

    batches = np.array([whole(b, "--batch") for b in batch.split(",")])
    size = typed_sizes("1", input, output)
    limits: dict[str, Any] = {"ttft": typed_time(ttft, "--ttft"), "tpot": typed_time(tpot, "--tpot")}
    count, changes = int(whole(top, "--top")), with_overlap(set, overlap)
    hardware, served, software = named_inputs(model, system, engine, weights, kv, changes)
    routed = routing_from_file(routing, served)
    work = make_workload(phase_of(served, phase), batches, size["input"], size["output"], routing=routed)
    ranking = plan_for(hardware, served, work, software, **limits, top=count, where=where)
    interval, lines = (None, []) if ranking.why_none else interval_of(ranking.nearest)
    if json:
        print_json({**ranking_dict(ranking), "interval": interval})
    if ranking.why_none:
        raise BadValue(ranking.why_none)
    if not json:
        options = {
            "model": model, "system": system, "input": f"{size['input']:g}", "output": f"{size['output']:g}",
            "phase": phase, "engine": engine, "weights": weights, "kv": kv, "routing": routing,
        }  # fmt: skip
        typed = [f"--{k} {quote(v)}" for k, v in options.items() if USUAL.get(k) != v]
        typed += [f"--set {quote(c)}" for c in changes]
        say(ranking_table(ranking), *dimmed(lines), hint_text(ranking, " ".join(typed)))
