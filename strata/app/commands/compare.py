"""`strata compare`: systems, models, engines and plans side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer.core import TyperCommand

from strata.app.commands import options
from strata.app.commands.options import command, picture, typed, with_price
from strata.app.commands.plan import USUAL_BATCHES, BatchList
from strata.app.rows_out import answer
from strata.app.terminal import names_of, status_line, system_names, wrote
from strata.errors import BadValue, UnknownName, require
from strata.mapping.engine import USUAL_SERVER, usual_engine
from strata.units import typed_time, whole

if TYPE_CHECKING:
    from strata.search.compare import Comparison

SEVERAL = ("--model", "-m", "--system", "-s", "--engine", "--plan", "-p")  # options that take several values

ModelNames = Annotated[
    list[str],
    typed(
        "--model -m",
        "NAME ...",
        "models by name or Hugging Face config.json, several with blanks or commas between",
        names_of("models"),
    ),
]
SystemNames = Annotated[
    list[str],
    typed("--system -s", "NAME ...", "systems, like 8xh200 8xb200, or TOML paths", system_names),
]
EngineNames = Annotated[
    list[str] | None,
    typed(
        "--engine",
        "NAME ...",
        "software: vllm,trtllm or others, or TOML paths  "
        f"[default: {USUAL_SERVER} where requests are served]",
        names_of("engine"),
    ),
]
PlanTexts = Annotated[
    list[str] | None,
    typed(
        "--plan -p",
        "PLAN ...",
        "parallel degrees, like tp=8 tp=4,dp=2, with blanks between; best: found for each  [default]",
    ),
]
Prices = Annotated[
    list[str] | None,
    typed(
        "--price",
        "NAME=USD/h,...",
        "price of a device-hour as rented, by chip or system, like h200=2.5,b200=4, or one for all  "
        "[default: bought, hosted and powered]",
    ),
]
AgainstName = Annotated[
    str,
    typed(
        "",
        "NAME",
        "the row all are compared with: a system, model, engine or plan  [default: the first that fits]",
    ),
]
SvgFile = Annotated[Path | None, picture("draw throughput, cost and latency (.svg, .png or .pdf)")]


class SeveralValues(TyperCommand):
    """A command some of whose options take all values that follow: `--system 8xh200 8xb200`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeated_options(args, SEVERAL))


def repeated_options(words: list[str], several: tuple[str, ...]) -> list[str]:
    """A command line with each option before every one of its values.

    >>> repeated_options(["--system", "8xh200", "8xb200", "--json"], ("--system",))
    ['--system', '8xh200', '--system', '8xb200', '--json']
    """
    found: list[str] = []
    option, values = "", 0
    for word in words:
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            option, values = (name if name in several else ""), int(bool(equals))
            found.append(word)
            continue
        found += [option, word] if option and values else [word]
        values += 1
    return found


@command(
    "compare",
    "Systems, models, engines and plans side by side, and why they differ.",
    "strata compare -m llama-3.1-70b -s 8xh200 8xb200 8xmi325x --engine vllm --ttft 2s --tpot 50ms",
    cls=SeveralValues,
)
def compare_command(
    model: ModelNames,
    system: SystemNames,
    engine: EngineNames = None,
    plan: PlanTexts = None,
    input: options.InputTokens = "1024",
    output: options.OutputTokens = "1024",
    batch: BatchList = "",
    phase: options.PhaseName = "serve",
    ttft: options.TtftLimit = "",
    tpot: options.TpotLimit = "",
    share: options.ShareOption = "",
    goal: options.GoalName = "throughput",
    against: AgainstName = "",
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    set: options.SetItems = None,
    price: Prices = None,
    speculative: options.DraftText = "",
    quick: options.QuickFlag = False,
    json: options.JsonFlag = False,
    table: options.TableFile = None,
    svg: SvgFile = None,
    report: options.PicturesReport = None,
) -> None:
    """Systems x models x engines x plans under limits on latency: the best plan and batch of each, what it
    costs, how far to trust it, and why it differs from the first.
    """
    from strata.app.commands.serving import typed_share
    from strata.search.compare import compare
    from strata.search.inputs import named_inputs
    from strata.serving.served_options import drafting_of

    systems = _listed(system, "--system")
    prices = typed_prices(price, systems)

    def inputs(system: str, model: str, engine: str) -> Any:
        return named_inputs(model, system, engine, weights, kv, with_price(set, prices.get(system, "")))

    limits: dict[str, Any] = {"ttft": typed_time(ttft, "--ttft"), "tpot": typed_time(tpot, "--tpot")}
    limits |= {"share": typed_share(share), "goal": goal, "against": against}
    engines = _listed(engine or [usual_engine(phase)], "--engine")
    largest = phase in ("prefill", "decode") and not batch
    models, work = _listed(model, "--model"), _typed_work(phase, batch, input, output)
    drafting = (lambda one: drafting_of(speculative, one, phase)) if speculative else None
    more: dict[str, Any] = {"largest": largest, "inputs": inputs, "quick": quick, "drafting": drafting}
    plans = [text.strip() for text in plan or ["best"]]
    with status_line(f"comparing {', '.join(systems)}") as now:
        more["heard"] = lambda row: now(f"compared {row.system.name} of {', '.join(systems)}")
        found = compare(systems, models, work, engines, plans, **limits, **more)
    tell_comparison(found, json, table, svg, report)


def tell_comparison(
    found: Comparison, json: bool, table: Path | None, svg: Path | None, report: Path | None
) -> None:
    """Print a comparison and write its files."""
    from strata.app.render.compare import compared_dict, compared_parts, compared_rows
    from strata.validation.accuracy.compared import trust_compared

    trusted = trust_compared(found)
    answer(
        lambda: compared_dict(found, trusted),
        lambda: compared_parts(found, trusted),
        json,
        table,
        lambda _: compared_rows(found, trusted),
    )
    if svg is not None:
        from strata.app.render.compare import draw_compared

        wrote("picture", draw_compared(found, trusted, svg))
    if report is not None:
        from strata.app.render.compare import comparison_report

        wrote("report", comparison_report(found, trusted, report))
    if found.against is None:
        more = len(found.rows) - 1
        others = f" (and {more} more row{'s' * (more > 1)} without an answer)" if more else ""
        raise BadValue(f"{found.rows[0].why_none}{others}")


def _listed(items: list[str], option: str) -> list[str]:
    """Names of an option, with commas between them or told several times."""
    found = [name.strip() for item in items for name in item.split(",") if name.strip()]
    require(bool(found), f"{option} needs a name")
    return list(dict.fromkeys(found))


def _typed_work(phase: str, batch: str, input: str, output: str) -> Any:
    """Requests whose number at once is to be found, or batches of a phase."""
    import numpy as np

    from strata.search.inputs import make_workload
    from strata.serving.requests import Requests
    from strata.workload.tasks import PHASES

    require(phase in PHASES, "phase must be one of " + ", ".join(PHASES), phase=phase)
    sizes = whole(input, "--input"), whole(output, "--output")
    if phase == "serve" and not batch:
        return Requests(*sizes)
    told = np.array([whole(b, "--batch") for b in batch.split(",")] if batch else USUAL_BATCHES)
    return make_workload(phase, told, *sizes)


def typed_prices(items: list[str] | None, systems: list[str]) -> dict[str, str]:
    """The price of a device-hour of each system, as typed: one for all, or by chip or system.

    >>> typed_prices(["h200=2.5,8xb200=4 USD/h"], ["8xh200", "8xb200"])
    {'8xh200': '2.5', '8xb200': '4 USD/h'}
    """
    from strata.hardware.system import system as make_system

    found: dict[str, str] = {}
    for item in (part.strip() for text in items or [] for part in text.split(",")):
        name, equals, value = (part.strip() for part in item.rpartition("="))
        if not value or (equals and not name):
            raise BadValue(f"--price is written like h200=2.5,b200=4 or 2.5, but got '{item}'")
        chips = {system: make_system(system).chip.name for system in systems} if equals else {}
        matched = [one for one in systems if not equals or name in (one, chips[one])]
        if not matched:
            known = list(dict.fromkeys([*chips.values(), *systems]))
            raise UnknownName("chip or system of this comparison", name, known, ", ".join(known))
        found |= dict.fromkeys(matched, value)
    return found
