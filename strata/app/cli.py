"""The `strata` command. Every command is also a line of Python; this file only parses words and prints answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from strata.errors import StrataError

app = typer.Typer(
    name="strata",
    help="Predict and optimise AI systems that do not exist yet.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Option("--model", "-m", help="model name, or path of a Hugging Face config.json")]
Where = Annotated[str, typer.Option("--system", "-s", help="system, like 8xh200, 4x8xh100, or a TOML path")]
Batch = Annotated[float, typer.Option(help="sequences at once over the whole system")]
Input = Annotated[float, typer.Option("--input", help="prompt tokens of a sequence (training: sequence length)")]
Output = Annotated[float, typer.Option("--output", help="tokens generated for a sequence")]
Phase = Annotated[str, typer.Option(help="serve, prefill, decode or train")]
PlanText = Annotated[str, typer.Option("--plan", "-p", help="like tp=8,ep=8; left out: the best legal plan")]
EngineName = Annotated[str, typer.Option("--engine", help="ideal, vllm, sglang, trtllm, megatron, or a TOML path")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="change a number: chip.memory.bandwidth='6 TB/s', fabric.latency='1 us', model.kv=fp8")
]
Weights = Annotated[str, typer.Option(help="precision of the weights, like fp8; left out: as published")]
Cache = Annotated[str, typer.Option("--kv", help="precision of the KV cache")]
Json = Annotated[bool, typer.Option("--json", help="print JSON for machines")]


def console(stderr: bool = False) -> Any:
    from rich.console import Console

    return Console(stderr=stderr, width=None if sys.stdout.isatty() else 140, soft_wrap=False)


@app.command()
def predict(
    model: Name,
    system: Where,
    batch: Batch = 1.0,
    input: Input = 1024.0,
    output: Output = 1024.0,
    phase: Phase = "serve",
    plan: PlanText = "",
    engine: EngineName = "ideal",
    weights: Weights = "",
    kv: Cache = "",
    set: Changes = None,
    explain: Annotated[bool, typer.Option("--explain", help="say where time and memory go and what would help")] = False,
    json: Json = False,
    trace: Annotated[Path | None, typer.Option(help="write the step as a trace for ui.perfetto.dev")] = None,
    report: Annotated[Path | None, typer.Option(help="write an HTML report")] = None,
) -> None:
    """Predict a model on a system: latency, throughput, energy, memory and cost."""
    from strata.app.ask import ask
    from strata.app.present import as_dict, explanation, headline, ops_of, print_json

    asked = ask(
        model, system, batch=batch, input=input, output=output, phase=phase, plan=plan, engine=engine, weights=weights, kv=kv, changes=set or []
    )
    result, out = asked.result, console()
    if json:
        data = {**as_dict(result), "plan_choice": asked.choice, "interval": asked.interval}
        if explain and result.fits:
            data["ops"] = ops_of(result)
        print_json(out, data)
    if not result.fits:
        console(stderr=True).print(f"does not fit: {result.infeasible[0]}", soft_wrap=True, highlight=False)
        raise typer.Exit(2)
    if not json:
        out.print(headline(result))
        for line in asked.lines:
            out.print(line, style="dim", highlight=False)
        if explain:
            out.print()
            out.print(explanation(result))
    if trace:
        console(stderr=True).print(f"trace: {result.timeline.to_perfetto(trace)} (open it at ui.perfetto.dev)", highlight=False)
    if report:
        from strata.app.report import prediction_report

        console(stderr=True).print(f"report: {prediction_report(result, report)}", highlight=False)


@app.command()
def plan(
    model: Name,
    system: Where,
    batch: Annotated[str, typer.Option(help="sequences at once; a list like 1,8,64 is searched")] = "1,2,4,8,16,32,64,128,256,512,1024",
    input: Input = 1024.0,
    output: Output = 1024.0,
    phase: Phase = "serve",
    engine: EngineName = "ideal",
    weights: Weights = "",
    kv: Cache = "",
    set: Changes = None,
    ttft: Annotated[str, typer.Option(help="limit on time to first token, like 2s")] = "",
    tpot: Annotated[str, typer.Option(help="limit on time per output token, like 40ms")] = "",
    top: Annotated[int, typer.Option(help="how many to show")] = 8,
    json: Json = False,
) -> None:
    """The best plans of a model on a system under limits on latency, out of every legal one."""
    from strata.app.ask import rank_plans
    from strata.app.present import print_json

    ranking = rank_plans(
        model,
        system,
        batch=batch,
        input=input,
        output=output,
        phase=phase,
        engine=engine,
        weights=weights,
        kv=kv,
        changes=set or [],
        ttft=ttft,
        tpot=tpot,
        top=top,
    )
    if json:
        print_json(console(), ranking.as_dict())
    if not ranking.choices:
        console(stderr=True).print(ranking.why_none, soft_wrap=True, highlight=False)
        raise typer.Exit(2)
    if not json:
        console().print(ranking.table())


@app.command()
def sweep(
    model: Name,
    system: Where,
    vary: Annotated[list[str], typer.Option(help="an axis: batch=1,8,64 or chip.memory.bandwidth='2:8:7 TB/s' or plan.tp=1,2,4,8")],
    batch: Batch = 1.0,
    input: Input = 1024.0,
    output: Output = 1024.0,
    phase: Phase = "serve",
    plan: PlanText = "",
    engine: EngineName = "ideal",
    weights: Weights = "",
    kv: Cache = "",
    set: Changes = None,
    metric: Annotated[str, typer.Option(help="what to show")] = "tokens_per_s",
    json: Json = False,
    report: Annotated[Path | None, typer.Option(help="write an HTML report with pictures")] = None,
) -> None:
    """Vary up to three things at once, each on its own axis, and see what they do."""
    from strata.app.present import print_json
    from strata.app.sweep import run_sweep

    swept = run_sweep(
        model,
        system,
        vary,
        batch=batch,
        input=input,
        output=output,
        phase=phase,
        plan=plan,
        engine=engine,
        weights=weights,
        kv=kv,
        changes=set or [],
        metric=metric,
    )
    if json:
        print_json(console(), swept.as_dict())
    else:
        console().print(swept.table())
    if report:
        from strata.app.report import sweep_report

        console(stderr=True).print(f"report: {sweep_report(swept, report)}", highlight=False)


@app.command("list")
def list_names(
    kind: Annotated[str, typer.Argument(help="chips, models, systems, fabrics, engines or precisions; left out: all")] = "", json: Json = False
) -> None:
    """What there is: chips, models, fabrics, systems, engines, precisions."""
    from strata.app.catalogue import catalogue, catalogue_table
    from strata.app.present import print_json

    found = catalogue(kind)
    if json:
        print_json(console(), found)
    else:
        console().print(catalogue_table(found))


@app.command("show")
def show_item(
    kind: Annotated[str, typer.Argument(help="chip, model, fabric, system, engine or economics")],
    name: Annotated[str, typer.Argument(help="its name or path")],
    json: Json = False,
) -> None:
    """Every number of a thing, with its source."""
    from strata.app.catalogue import describe, description_table
    from strata.app.present import print_json

    described = describe(kind, name)
    if json:
        print_json(console(), described)
    else:
        console().print(description_table(described))


@app.command()
def schema(kind: Annotated[str, typer.Argument(help="chip, fabric, system, engine or model")]) -> None:
    """The JSON schema of a data file, for editors and for writing your own."""
    from strata.app.catalogue import file_schema
    from strata.app.present import print_json

    print_json(console(), file_schema(kind))


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(help="a result saved with --json")],
    second: Annotated[Path, typer.Argument(help="another one")],
    json: Json = False,
) -> None:
    """Two saved results, line by line: what was asked differently and what came out differently."""
    from strata.app.compare import compare_files, comparison_table
    from strata.app.present import print_json

    rows = compare_files(first, second)
    if json:
        print_json(console(), rows)
    else:
        console().print(comparison_table(rows, first.name, second.name))


@app.command()
def validate(
    data: Annotated[Path | None, typer.Option(help="folder of measurements; left out: the project's validation/")] = None,
    json: Json = False,
    report: Annotated[Path | None, typer.Option(help="write an HTML page with predicted against measured")] = None,
) -> None:
    """Predictions against measurements, file by file and group by group."""
    from strata.app.accuracy import accuracy_table, default_folder
    from strata.app.present import print_json
    from strata.validation import validate as run

    outcome = run(data or default_folder(), keep_points=report is not None)
    points = outcome.pop("points", None)
    if json:
        print_json(console(), outcome)
    else:
        console().print(accuracy_table(outcome))
    if report:
        from strata.app.report import accuracy_report

        console(stderr=True).print(f"report: {accuracy_report(outcome, points or [], report)}", highlight=False)


def main() -> None:
    """Run the command; what a user got wrong is one line on stderr and exit code 2."""
    try:
        app()
    except StrataError as error:
        sys.stderr.write(f"strata: {error}\n")
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
