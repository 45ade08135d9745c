"""`strata codesign`: the best chip for a program under a budget, with its strategy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.commands.options import FORM, AnswerForm, command, drawing, flag, option
from strata.app.rows_out import quantity_rows
from strata.app.terminal import names_of, wrote
from strata.base.units import whole

if TYPE_CHECKING:
    from deepflow.design.ledger import Ledger


def _methods(incomplete: str) -> list[str]:
    from deepflow.design.methods import METHODS

    return [n for n in METHODS if n.startswith(incomplete)]


@command(
    "codesign",
    "The best chip for a program under a budget, with its strategy.",
    "strata codesign --technology deepflow-v100 --template deepflow-2021-capped "
    "--budget deepflow-v100 --program lstm-lm-v100 --system 4 --strategy d4 --batch 256",
)
def codesign_command(
    technology: str = option(..., "NAME", "node or library, or a TOML path", names_of("technologies")),
    budget: str = option(..., "NAME", "area, power and their split", names_of("budget")),
    program: str = option(..., "--program --model NAME", "what runs: a program or a model"),
    template: str = option("gpu", "NAME", "units, levels of memory and networks", names_of("template")),
    system: str = option("1", "N or NxM", "packages, or packages x devices of each"),
    strategy: list[str] | None = option(
        None, "TEXT", "how it is divided, like d4 or tp=8; several: the best is chosen"
    ),
    phase: str = option("train", "PHASE", "train, prefill, decode or forward"),
    batch: float = option(1.0, "N", "sequences of a step"),
    input: float = option(1024.0, "N", "tokens of a sequence"),
    output: float = option(1024.0, "N", "tokens generated"),
    free: str = option(
        "area,power,perimeter,die_area,devices,strategy",
        "THING,...",
        "what may change: area, power, perimeter, die_area, devices, strategy",
    ),
    method: str = option("gradient", "NAME", "how it is searched", _methods),
    evaluations: int = option(4000, "N", "designs to evaluate"),
    spend: str = option("all", "all|stated", "shares use the whole budget, or what stated ones do"),
    compare: bool = flag("--compare", "run the other methods too, with as many evaluations"),
    seed: int = option(0, "N", "of what is drawn at random"),
    svg: Path | None = drawing("write a picture: how the search went, the split"),
    form: AnswerForm = FORM,
) -> None:
    """The shares of area, power and edge, the die, the memory stacks and the strategy that make a step
    quickest: what changed against the stated split, what binds, and what more of each budget would buy.
    """
    from deepflow.codesign import COMPARED, codesign
    from deepflow.codesign_report import codesign_dict, codesign_tables, draw_codesign
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
    form.answer(lambda: codesign_dict(found), lambda: codesign_tables(found), quantity_rows)
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
