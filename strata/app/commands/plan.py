"""`strata plan`, `strata compare`: the best plans under limits on latency; systems side by side."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from typer.core import TyperCommand

from strata.app.commands import options
from strata.app.commands.options import command, drawing, option, typed, with_price
from strata.app.terminal import names_of, status_line, system_names, wrote
from strata.base.errors import BadValue, UnknownName, require
from strata.base.units import whole
from strata.software.engine import USUAL_SERVER, usual_engine

if TYPE_CHECKING:
    from strata.search.compare import Comparison

USUAL_BATCHES = tuple(2.0**n for n in range(11))  # of steps whose batch is not told, to begin with
UNTYPED = ("weights", "kv", "routing", "lora", "frozen", "speculative")
USUAL = {"phase": "serve", **dict.fromkeys(UNTYPED, "")}  # not worth repeating

BatchList = Annotated[
    str,
    typed(
        "--batch -b N,N,...",
        "sequences at once; every one of a list is tried  [default: the most that keep the limits]",
    ),
]
SEVERAL = ("--model", "-m", "--system", "-s", "--engine", "--plan", "-p")  # options that take several values
ENGINE = option(
    None,
    "NAME ...",
    f"software: vllm,trtllm or others, or TOML paths  [default: {USUAL_SERVER} where requests are served]",
    names_of("engine"),
)
MODEL = option(
    ...,
    "--model -m NAME ...",
    "models by name or Hugging Face config.json, several with blanks or commas between",
    names_of("models"),
)
PLAN = option(
    None,
    "--plan -p PLAN ...",
    "parallel degrees, like tp=8 tp=4,dp=2, with blanks between; best: found for each  [default]",
)
PRICE = option(
    None,
    "NAME=USD/h,...",
    "price of a device-hour as rented, by chip or system, like h200=2.5,b200=4, or one for all  "
    "[default: bought, hosted and powered]",
)


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
    form: options.AnswerForm = options.FORM,
    report: options.ReportFile = None,
) -> None:
    """The best of every legal plan under limits on latency, with the largest batch that keeps them."""
    from strata.app.render.prediction import dimmed
    from strata.app.render.ranking import hint_text, ranking_dict, ranking_interval, ranking_table
    from strata.search.inputs import named_inputs, phase_of
    from strata.search.plan_for import plan_for
    from strata.search.served_options import drafting_of

    engine = engine or usual_engine(phase)
    batches, size = _typed_batches(batch), options.typed_sizes("1", input, output)
    limits = options.typed_limits(ttft, tpot, share, goal)
    changes = with_price(options.with_overlap(set, overlap), price)
    hardware, served, software = named_inputs(model, system, engine, weights, kv, changes)
    kind, fine_tuned = phase_of(served, phase), (routing, lora, frozen)
    tried = _usual_batches(kind, batches, size, hardware, served)
    work = _typed_work(served, kind, tried, size, fine_tuned)
    limits |= {"top": int(whole(top, "--top")), "where": where, "quick": quick}
    limits["largest"] = kind in ("prefill", "decode") and batches is None
    limits["drafting"] = drafting_of(speculative, served, kind)
    with status_line("pricing plans") as heard:
        ranking = plan_for(hardware, served, work, software, **limits, heard=heard)
    interval, lines = ranking_interval(ranking)
    words = {"model": model, "system": system}
    words |= {name: f"{size[name]:g}" for name in ("input", "output")}
    words |= {"phase": phase, "engine": engine, "weights": weights, "kv": kv}
    words |= dict(zip(UNTYPED[2:], (*fine_tuned, speculative), strict=True))
    hint = partial(hint_text, ranking, _as_typed(words, changes))
    told = partial(ranking_dict, ranking, interval)
    shown = lambda: [ranking_table(ranking), *dimmed(lines), hint()]  # noqa: E731
    form.answer(told, shown, "plans", why_none=ranking.why_none)
    if report is not None:
        from strata.app.render.prediction_report import plan_report

        wrote("report", plan_report(ranking, report, lines))


def _typed_batches(text: str) -> Any:
    import numpy as np

    return np.array([whole(b, "--batch") for b in text.split(",")]) if text else None


def _as_typed(words: dict[str, str], changes: list[str]) -> str:
    """Options that are not as usual, to be repeated."""
    typed = [f"--{k} {quote(v)}" for k, v in words.items() if USUAL.get(k) != v]
    return " ".join([*typed, *(f"--set {quote(c)}" for c in changes)])


def _usual_batches(phase: str, batches: Any, size: dict[str, float], system: Any, program: Any) -> Any:
    """Batches as typed; of a language model that is trained, where none is, the usual one of the devices."""
    import numpy as np

    from strata.training.run import usual_batch
    from strata.workload.model import Model

    if batches is not None or phase != "train" or not isinstance(program, Model):
        return batches
    return np.array([usual_batch(float(system.devices), size["input"])])


def _typed_work(
    served: Any, phase: str, batches: Any, size: dict[str, float], typed: tuple[str, str, str] = ("", "", "")
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
    model: list[str] = MODEL,
    system: list[str] = option(
        ..., "--system -s NAME ...", "systems, like 8xh200 8xb200, or TOML paths", system_names
    ),
    engine: list[str] | None = ENGINE,
    plan: list[str] | None = PLAN,
    input: options.InputTokens = "1024",
    output: options.OutputTokens = "1024",
    batch: BatchList = "",
    phase: options.PhaseName = "serve",
    ttft: options.TtftLimit = "",
    tpot: options.TpotLimit = "",
    share: options.ShareOption = "",
    goal: options.GoalName = "throughput",
    against: str = option(
        "",
        "NAME",
        "the row all are compared with: a system, model, engine or plan  [default: the first that fits]",
    ),
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    set: options.SetItems = None,
    price: list[str] | None = PRICE,
    speculative: options.DraftText = "",
    quick: options.QuickFlag = False,
    form: options.AnswerForm = options.FORM,
    svg: Path | None = drawing("draw throughput, cost and latency (.svg, .png or .pdf)"),
    report: options.PicturesReport = None,
) -> None:
    """Systems x models x engines x plans under limits on latency: the best plan and batch of each, what it
    costs, how far to trust it, and why it differs from the first.
    """
    from strata.search.compare import compare
    from strata.search.inputs import named_inputs
    from strata.search.served_options import drafting_of
    from strata.workload.tasks import PHASES

    systems = _listed(system, "--system")
    prices = typed_prices(price, systems)

    def inputs(system: str, model: str, engine: str) -> Any:
        return named_inputs(model, system, engine, weights, kv, with_price(set, prices.get(system, "")))

    limits = options.typed_limits(ttft, tpot, share, goal) | {"against": against}
    engines = _listed(engine or [usual_engine(phase)], "--engine")
    largest = phase in ("prefill", "decode") and not batch
    models = _listed(model, "--model")
    require(phase in PHASES, "phase must be one of " + ", ".join(PHASES), phase=phase)
    size = options.typed_sizes("1", input, output)
    work = _typed_work(None, phase, _typed_batches(batch), size)
    drafting = (lambda one: drafting_of(speculative, one, phase)) if speculative else None
    more: dict[str, Any] = {"largest": largest, "inputs": inputs, "quick": quick, "drafting": drafting}
    plans = [text.strip() for text in plan or ["best"]]
    with status_line(f"comparing {', '.join(systems)}") as now:
        more["heard"] = lambda row: now(f"compared {row.system.name} of {', '.join(systems)}")
        found = compare(systems, models, work, engines, plans, **limits, **more)
    tell_comparison(found, form, svg, report)


def tell_comparison(
    found: Comparison, form: options.AnswerForm, svg: Path | None, report: Path | None
) -> None:
    """Print a comparison and write its files."""
    from strata.app.render import compare as render
    from strata.validation.accuracy.compared import trust_compared

    both = (found, trust_compared(found))
    rows = lambda _: render.compared_rows(*both)  # noqa: E731
    form.answer(render.compared_dict, render.compared_parts, rows, of=both)
    options.write("picture", svg, render.draw_compared, *both)
    options.write("report", report, render.comparison_report, *both)
    if found.against is None:
        more = len(found.rows) - 1
        others = f" (and {more} more row{'s' * (more > 1)} without an answer)" if more else ""
        raise BadValue(f"{found.rows[0].why_none}{others}")


def _listed(items: list[str], option: str) -> list[str]:
    """Names of an option, with commas between them or told several times."""
    found = [name.strip() for item in items for name in item.split(",") if name.strip()]
    require(bool(found), f"{option} needs a name")
    return list(dict.fromkeys(found))


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
