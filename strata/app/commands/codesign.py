"""`strata codesign`: the best chip for a program under a budget, with its strategy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.app.commands.options import JsonFlag, TableFile, picture_file
from strata.app.rows_out import answer, quantity_rows
from strata.app.terminal import names_of, whole, wrote

if TYPE_CHECKING:
    from strata.optimise.design.ledger import Ledger


def register_codesign(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        "codesign",
        short_help="The best chip for a program under a budget, with its strategy.",
        epilog="Example: strata codesign --technology deepflow-v100 --template deepflow-2021-capped "
        "--budget deepflow-v100 --program lstm-lm-v100 --system 4 --strategy d4 --batch 256",
    )(codesign_command)


def _methods(incomplete: str) -> list[str]:
    from strata.optimise.design.methods import METHODS

    return [n for n in METHODS if n.startswith(incomplete)]


CodesignTechnology = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="node or library, or a TOML path", autocompletion=names_of("technologies")
    ),
]
CodesignBudget = Annotated[
    str,
    typer.Option(metavar="NAME", help="area, power and their split", autocompletion=names_of("budget")),
]
CodesignProgram = Annotated[
    str,
    typer.Option("--program", "--model", metavar="NAME", help="what runs: a program or a model"),
]
CodesignTemplate = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="units, levels of memory and networks", autocompletion=names_of("template")
    ),
]
CodesignSystem = Annotated[
    str, typer.Option(metavar="N or NxM", help="packages, or packages x devices of each")
]
CodesignStrategy = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="how it is divided, like d4 or tp=8; several: the best is chosen"),
]
CodesignPhase = Annotated[str, typer.Option(metavar="PHASE", help="train, prefill, decode or forward")]
CodesignBatch = Annotated[float, typer.Option(metavar="N", help="sequences of a step")]
CodesignInput = Annotated[float, typer.Option(metavar="N", help="tokens of a sequence")]
CodesignOutput = Annotated[float, typer.Option(metavar="N", help="tokens generated")]
CodesignFree = Annotated[
    str,
    typer.Option(
        metavar="THING,...", help="what may change: area, power, perimeter, die_area, devices, strategy"
    ),
]
CodesignMethod = Annotated[
    str, typer.Option(metavar="NAME", help="how it is searched", autocompletion=_methods)
]
CodesignEvaluations = Annotated[int, typer.Option(metavar="N", help="designs to evaluate")]
CodesignSpend = Annotated[
    str, typer.Option(metavar="all|stated", help="shares use the whole budget, or what stated ones do")
]
CodesignCompare = Annotated[
    bool, typer.Option("--compare", help="run the other methods too, with as many evaluations")
]
CodesignSeed = Annotated[int, typer.Option(metavar="N", help="of what is drawn at random")]
CodesignSvg = Annotated[
    Path | None,
    typer.Option(
        "--svg",
        "--picture",
        metavar="FILE",
        help="write a picture: how the search went, the split",
        callback=picture_file,
    ),
]


def codesign_command(
    technology: CodesignTechnology,
    budget: CodesignBudget,
    program: CodesignProgram,
    template: CodesignTemplate = "gpu",
    system: CodesignSystem = "1",
    strategy: CodesignStrategy = None,
    phase: CodesignPhase = "train",
    batch: CodesignBatch = 1.0,
    input: CodesignInput = 1024.0,
    output: CodesignOutput = 1024.0,
    free: CodesignFree = "area,power,perimeter,die_area,devices,strategy",
    method: CodesignMethod = "gradient",
    evaluations: CodesignEvaluations = 4000,
    spend: CodesignSpend = "all",
    compare: CodesignCompare = False,
    seed: CodesignSeed = 0,
    svg: CodesignSvg = None,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """The shares of area, power and edge, the die, the memory stacks and the strategy that make a step
    quickest: what changed against the stated split, what binds, and what more of each budget would buy.
    """
    from strata.app.render.codesign import codesign_dict, codesign_tables, draw_codesign
    from strata.optimise.codesign import COMPARED, codesign
    from strata.search.inputs import make_workload, phase_of
    from strata.workload.program import program as make_program

    code = make_program(program)
    sizes = [whole(v, f"--{k}") for k, v in (("batch", batch), ("input", input), ("output", output))]
    work = make_workload(phase_of(code, phase), *sizes)
    found = codesign(
        technology,
        template,
        budget,
        code,
        work,
        system,
        strategies=strategy or "",
        free=[item.strip() for item in free.split(",") if item.strip()],
        method=method,
        evaluations=int(whole(evaluations, "--evaluations")),
        compare=COMPARED if compare else (),
        spend=spend,
        seed=seed,
        on_progress=_progress() if sys.stderr.isatty() else None,
    )
    answer(lambda: codesign_dict(found), lambda: codesign_tables(found), json, table, quantity_rows)
    if svg is not None:
        wrote("picture", draw_codesign(found, svg))


def _progress() -> Any:
    """A line that is written over: evaluations, the best so far."""

    def tell(ledger: Ledger) -> None:
        best = f"{ledger.value:.6g}"
        sys.stderr.write(f"\r{ledger.used:,} of {ledger.budget:,} designs, best {best} ")
        sys.stderr.flush()
        if ledger.left <= 0:
            sys.stderr.write("\n")

    return tell
