"""The `strata` command. Every command is also a line of Python; this file only parses words and prints
answers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from strata.app import area as area_command
from strata.app import collective as collective_command
from strata.app import dram as dram_command
from strata.app import evidence
from strata.app import fabric as fabric_command
from strata.app import heat as heat_command
from strata.app import search as search_command
from strata.app import serving as serving_command
from strata.app import study as study_command
from strata.app.kernel import kernels
from strata.app.words import (
    choices,
    complain,
    items,
    metrics,
    names_of,
    precisions,
    print_json,
    put,
    systems,
    usage,
    whole,
)
from strata.errors import BadValue, StrataError

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # looking for plugins costs every start 10 ms

app = typer.Typer(
    name="strata",
    help="Predict and optimise AI systems that do not exist yet.",
    epilog="Start with: strata predict --model llama-3-70b --system 8xh200 --batch 64 --explain",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120, "help_option_names": ["--help", "-h"]},
)
app.add_typer(kernels)
KINDS = ("chip", "model", "fabric", "system", "transport", "packets", "memory", "engine", "economics")

Name = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="model name, or path of a Hugging Face config.json",
        autocompletion=names_of("models"),
    ),
]
Where = Annotated[
    str,
    typer.Option(
        "--system",
        "-s",
        metavar="NAME",
        help="system, like 8xh200, 4x8xh100, or a TOML path",
        autocompletion=systems,
    ),
]
Batch = Annotated[
    str, typer.Option("--batch", "-b", metavar="N", help="sequences at once over the whole system")
]
Input = Annotated[
    str, typer.Option("--input", "-i", metavar="N", help="prompt tokens of a sequence (train: its length)")
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="N",
        help="tokens generated for a sequence (decode: its context is input + output/2)",
    ),
]
Phase = Annotated[
    str,
    typer.Option(
        metavar="PHASE",
        help="serve (read prompts, then generate), prefill, decode (one step) or train (one step)",
        autocompletion=choices("serve", "prefill", "decode", "train"),
    ),
]
PlanText = Annotated[
    str,
    typer.Option(
        "--plan",
        "-p",
        metavar="PLAN",
        help="parallel degrees, like tp=8,ep=8 (tp cp dp pp ep moe_tp zero order ...)  [default: the best legal plan]",
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="software: ideal, vllm, sglang, trtllm, megatron, or a TOML path",
        autocompletion=names_of("engine"),
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="change a number, as often as needed: chip.memory.bandwidth='6 TB/s', fabric.latency='1 us', model.kv=fp8",
    ),
]
Weights = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="precision of the weights, like fp8  [default: as published]",
        autocompletion=precisions,
    ),
]
Cache = Annotated[
    str,
    typer.Option(
        "--kv", metavar="FORMAT", help="precision of the KV cache  [default: bf16]", autocompletion=precisions
    ),
]
RoutingFile = Annotated[
    str,
    typer.Option(
        "--routing",
        metavar="FILE",
        help="picks of each expert, a line for each layer (CSV or JSON)  [default: even]",
    ),
]
Overlap = Annotated[
    str,
    typer.Option(
        "--overlap",
        metavar="HOW",
        help="communication beside computation: none, tiles or dual_batch  [default: the engine's]",
        autocompletion=choices("none", "tiles", "dual_batch"),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print JSON for machines")]


def say(*parts: Any) -> None:
    """Print tables and text on stdout; without a terminal 140 columns wide and without blanks at line ends."""
    from rich.console import Console

    if sys.stdout.isatty():
        screen = Console(highlight=False, markup=False)
        for part in parts:
            screen.print(part, soft_wrap=bool(getattr(part, "no_wrap", False)))
        return
    plain = Console(width=140, highlight=False, markup=False, color_system=None, force_terminal=False)
    with plain.capture() as captured:
        for part in parts:
            plain.print(part, soft_wrap=bool(getattr(part, "no_wrap", False)))
    put("\n".join(line.rstrip() for line in captured.get().splitlines()))


def wrote(what: str, path: Path, hint: str = "") -> None:
    sys.stderr.write(f"{what}: {path}{hint}\n")


def version(wanted: bool) -> None:
    if wanted:
        from strata import __version__

        put(f"strata {__version__}")
        raise typer.Exit()


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Predict and optimise AI systems that do not exist yet."""


def overlapping(changes: list[str] | None, overlap: str) -> list[str]:
    """`--set` items with the engine's overlap among them, where it is told."""
    return [*(changes or []), *([f"engine.overlap={overlap}"] if overlap else [])]


def sizes(batch: str, input: str, output: str) -> dict[str, float]:
    return {
        "batch": whole(batch, "--batch"),
        "input": whole(input, "--input"),
        "output": whole(output, "--output"),
    }


@app.command(
    short_help="Predict a model on a system.",
    epilog="Example: strata predict -m deepseek-v3 -s 8xb200 --batch 64 --input 1024 --output 1024 --explain",
)
def predict(
    model: Name,
    system: Where,
    batch: Batch = "1",
    input: Input = "1024",
    output: Output = "1024",
    phase: Phase = "serve",
    plan: PlanText = "",
    engine: EngineName = "ideal",
    weights: Weights = "",
    kv: Cache = "",
    set: Changes = None,
    routing: RoutingFile = "",
    overlap: Overlap = "",
    explain: Annotated[
        bool, typer.Option("--explain", help="say where time and memory go and what would help")
    ] = False,
    json: Json = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the step as a trace for ui.perfetto.dev")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="write an HTML report")] = None,
) -> None:
    """Predict a model on a system: latency, throughput, energy, memory and cost, with what binds them."""
    from strata.app.ask import ask, why_out
    from strata.app.present import as_dict, explanation, headline, notes, ops_of

    size = sizes(batch, input, output)
    changes = overlapping(set, overlap)
    asked = ask(
        model,
        system,
        **size,
        phase=phase,
        plan=plan,
        engine=engine,
        weights=weights,
        kv=kv,
        changes=changes,
        routing=routing,
    )
    result = asked.result
    if json:
        data = {**as_dict(result), "plan_choice": asked.choice, "interval": asked.interval}
        if explain and result.fits:
            data["ops"] = ops_of(result)
        print_json(data)
    if not result.fits:
        raise BadValue(why_out(result))
    if not json:
        say(headline(result), *notes(asked.lines), *(["", explanation(result)] if explain else []))
    if trace:
        trace.parent.mkdir(parents=True, exist_ok=True)
        wrote("trace", result.timeline.to_perfetto(trace), " (open it at https://ui.perfetto.dev)")
    if report:
        from strata.app.report import prediction_report

        wrote("report", prediction_report(result, report, asked.lines))


@app.command(
    short_help="The best plans under limits on latency.",
    epilog="Example: strata plan -m llama-3.1-405b -s 64xh200 --ttft 2s --tpot 40ms",
)
def plan(
    model: Name,
    system: Where,
    batch: Annotated[
        str,
        typer.Option(
            "--batch", "-b", metavar="N,N,...", help="sequences at once; every one of a list is tried"
        ),
    ] = "1,2,4,8,16,32,64,128,256,512,1024",
    input: Input = "1024",
    output: Output = "1024",
    phase: Phase = "serve",
    engine: EngineName = "ideal",
    weights: Weights = "",
    kv: Cache = "",
    set: Changes = None,
    ttft: Annotated[str, typer.Option(metavar="TIME", help="limit on time to first token, like 2s")] = "",
    tpot: Annotated[str, typer.Option(metavar="TIME", help="limit on time per output token, like 40ms")] = "",
    top: Annotated[str, typer.Option(metavar="N", help="how many to show")] = "8",
    where: Annotated[
        str, typer.Option(metavar="CONDITION", help="only plans like this: '(ep == 1) & (cp == 1)'")
    ] = "",
    routing: RoutingFile = "",
    overlap: Overlap = "",
    json: Json = False,
) -> None:
    """The best plans of a model on a system under limits on latency, out of every legal one."""
    from strata.app.ask import rank_plans

    listed = [whole(b, "--batch") for b in batch.split(",")]
    rest = sizes("1", input, output)
    ranking = rank_plans(
        model,
        system,
        batches=listed,
        input=rest["input"],
        output=rest["output"],
        phase=phase,
        engine=engine,
        weights=weights,
        kv=kv,
        changes=overlapping(set, overlap),
        ttft=ttft,
        tpot=tpot,
        top=int(whole(top, "--top")),
        where=where,
        routing=routing,
    )
    if json:
        print_json(ranking.as_dict())
    if not ranking.choices:
        raise BadValue(ranking.why_none)
    if not json:
        say(ranking.table(), ranking.hint())


@app.command(
    short_help="Vary up to three things at once.",
    epilog="Example: strata sweep -m llama-3-70b -s 8xh200 --vary batch=1,8,64 --vary chip.memory.bandwidth='2:8:4 TB/s'",
)
def sweep(
    model: Name,
    system: Where,
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="AXIS",
            help="an axis: batch=1,8,64 or chip.memory.bandwidth='2:8:7 TB/s' (from:to:count) or plan.tp=1,2,4,8",
        ),
    ],
    batch: Batch = "1",
    input: Input = "1024",
    output: Output = "1024",
    phase: Phase = "serve",
    plan: Annotated[
        str,
        typer.Option(
            "--plan",
            "-p",
            metavar="PLAN",
            help="parallel degrees, like tp=8,ep=8; best: for each point  [default: the best in the middle]",
        ),
    ] = "",
    engine: EngineName = "ideal",
    weights: Weights = "",
    kv: Cache = "",
    set: Changes = None,
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="what to show; --json has all of them", autocompletion=metrics)
    ] = "tokens_per_s",
    json: Json = False,
    where: Annotated[
        str,
        typer.Option(
            metavar="CONDITION", help="with --plan best: only plans like this, '(ep == 1) & (cp == 1)'"
        ),
    ] = "",
    orders: Annotated[
        bool, typer.Option("--orders", help="with --plan best: every order of each plan on the fabric")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write an HTML report with pictures")
    ] = None,
) -> None:
    """Vary up to three things at once, each on its own axis, and see what they do."""
    from strata.app.sweep import remarks, sweep_table
    from strata.search.sweep import run_sweep

    size = sizes(batch, input, output)
    swept = run_sweep(
        model,
        system,
        vary,
        **size,
        phase=phase,
        plan=plan,
        engine=engine,
        weights=weights,
        kv=kv,
        changes=set or [],
        metric=metric,
        where=where,
        orders=orders,
    )
    if json:
        print_json(swept.as_dict())
    else:
        say(sweep_table(swept), *remarks(swept))
    if report:
        from strata.app.report import sweep_report

        wrote("report", sweep_report(swept, report))


@app.command(
    "list", short_help="Names of chips, models, fabrics, engines ...", epilog="Example: strata list chips"
)
def list_names(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[KIND]",
            help="chips, models, systems, fabrics, transports, packets, memories, engines or precisions; left out: all",
            autocompletion=choices(
                "chips",
                "models",
                "systems",
                "fabrics",
                "transports",
                "packets",
                "memories",
                "engines",
                "precisions",
            ),
        ),
    ] = "",
    json: Json = False,
) -> None:
    """What there is: chips, models, systems, fabrics, transports, packet networks, memories, engines,
    precisions.
    """
    from strata.app.catalogue import catalogue, catalogue_table

    found = catalogue(kind)
    if json:
        print_json(found)
    else:
        say(catalogue_table(found))


@app.command(
    "show", short_help="Every number of a thing, with its source.", epilog="Example: strata show chip h200"
)
def show_item(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help=", ".join(KINDS), autocompletion=choices(*KINDS))
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="its name or path", autocompletion=items)],
    json: Json = False,
) -> None:
    """Every number of a thing, with its source; assumed ones are marked with *."""
    from strata.app.catalogue import describe, description_table

    described = describe(kind, name)
    if json:
        print_json(described)
    else:
        say(description_table(described))


@app.command(
    short_help="The JSON schema of a data file.", epilog="Example: strata schema chip > chip.schema.json"
)
def schema(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help=", ".join(KINDS), autocompletion=choices(*KINDS))
    ],
) -> None:
    """The JSON schema of a data file, for editors and for writing your own."""
    from strata.app.catalogue import file_schema

    print_json(file_schema(kind))


@app.command(
    short_help="Two saved results, line by line.",
    epilog="Example: strata diff a.json b.json (each saved with strata predict ... --json)",
)
def diff(
    first: Annotated[Path, typer.Argument(metavar="FILE", help="a result saved with --json")],
    second: Annotated[Path, typer.Argument(metavar="FILE", help="another one")],
    json: Json = False,
) -> None:
    """Two saved results, line by line: what was asked differently and what came out differently."""
    from strata.app.compare import compare_files, comparison_table

    rows = compare_files(first, second)
    if json:
        print_json(rows)
    else:
        say(comparison_table(rows, first.name, second.name))


serving_command.add_to(app)
fabric_command.add_to(app)
collective_command.add_to(app)
heat_command.add_to(app)
dram_command.add_to(app)
area_command.add_to(app)
evidence.add_to(app)
search_command.add_to(app)
study_command.add_to(app)


def main() -> None:
    """Run the command; what a user got wrong is one line on stderr and exit code 2, Ctrl-C one line and 130."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """The exit code of a command line."""
    try:
        code = app(words, prog_name="strata", standalone_mode=False)
    except StrataError as error:
        complain(str(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as error:
        complain(
            f"cannot use {error.filename}: {str(error.strerror).lower()}" if error.filename else str(error)
        )
        return 2
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            put(error.format_message())
            return 0
        complain(usage(error))
        return 2
    if code == 130:
        complain("stopped by Ctrl-C")
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
