"""`strata train`: a run of so many tokens: days, money, energy, goodput, and the best plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.commands import options
from strata.app.commands.options import command, option, picture, with_price
from strata.app.rows_out import keep_table
from strata.app.terminal import (
    names_of,
    one_of,
    print_json,
    say,
    wrote,
)
from strata.errors import BadValue
from strata.units import typed_time, whole

if TYPE_CHECKING:
    from strata.training.reliability import Reliability
    from strata.training.run import TrainRun
    from strata.training.scaling import ScalingCurve


GOAL = option(
    "throughput",
    "GOAL",
    "what the best plan is: throughput, cheapest (USD/token) or efficient (J/token)",
    one_of("throughput", "cheapest", "efficient"),
)
RELIABILITY = option(
    "default",
    "NAME",
    "failures, checkpoints and stragglers as stated: a name or a TOML path",
    names_of("reliability"),
)


@command(
    "train",
    "A run of training: days, money, energy, and the best plan.",
    "strata train --model llama-3-70b --system 512xh100 --tokens 2T",
)
def train_command(
    model: options.ModelName,
    system: options.SystemName,
    tokens: str = option(..., "N", "tokens to train on, like 2T or 300B"),
    batch: str = option(
        "", "N", "sequences of a step  [default: about 4M tokens a step]", flags="--batch -b"
    ),
    length: str = option("4096", "N", "tokens of a sequence", flags="--length -l"),
    plan: options.PlanText = "",
    engine: options.EngineName = "megatron",
    weights: options.WeightFormat = "",
    set: options.SetItems = None,
    fabric: options.FabricName = "",
    goal: str = GOAL,
    where: str = option("", "CONDITION", "only plans like this: '(tp == 8) & (cp == 1)'"),
    top: str = option("5", "N", "how many plans to show"),
    price: options.DevicePrice = "",
    lora: options.LoraAdapters = "",
    frozen: options.FrozenModules = "",
    reliability: str = RELIABILITY,
    checkpoint_every: str = option("", "TIME", "like 1800s  [default: the best interval]"),
    scale: str = option("", "N,N,...", "device counts: the best plan of each, strong and weak"),
    timeline: Path | None = option(
        None,
        "FILE",
        "the step by stage, as a page (.html), a trace for ui.perfetto.dev (.json) or a picture (.svg)",
    ),
    svg: Path | None = picture("draw the run (and its scaling)"),
    json: options.JsonFlag = False,
    table: options.TableFile = None,
    report: options.PicturesReport = None,
) -> None:
    """Train a model on so many tokens: days, money, energy and goodput, under a plan or the best of all."""
    from strata.app.render.training import scaling_lines, train_dict, train_page
    from strata.search.inputs import fine_tuning, named_inputs
    from strata.training.run import train_run

    stated, changes = _stated(reliability, with_price(set, price))
    hardware, trained, software = named_inputs(model, system, engine, weights, "", changes, fabric)
    size = {"batch": whole(batch, "--batch") if batch else None, "length": whole(length, "--length")}
    told: dict[str, Any] = {"engine": software, "reliability": stated, "where": where, **size}
    told |= fine_tuning("train", lora, frozen)
    counts = [int(whole(n, "--scale")) for n in scale.split(",")] if scale else []
    _check_timeline(timeline)
    every = typed_time(checkpoint_every, "--checkpoint-every") if checkpoint_every else None
    run = train_run(
        hardware, trained, tokens, plan=plan, interval=every, goal=goal, top=int(whole(top, "--top")), **told
    )
    curves = _curves(hardware, trained, tokens, counts, told) if counts else []
    answer = train_dict(run, curves) if json or table else {}
    if json:
        print_json(answer)
    keep_table(table, _rows(answer), "plans")
    if not json:
        say(*train_page(run), *(part for curve in curves for part in ("", *scaling_lines(curve))))
    _write_pictures(run, curves, timeline, svg)
    if report is not None:
        from strata.app.render.training_report import train_report

        wrote("report", train_report(run, curves, report))


def _stated(name: str, changes: list[str]) -> tuple[Reliability, list[str]]:
    """The reliability with its `--set` items, and the items that are of something else."""
    from strata.app.terminal import set_items
    from strata.training.reliability import reliability

    own = [item for item in changes if item.startswith("reliability.")]
    return reliability(name, **set_items(own, "reliability", "reliability.restart='300 s'")), [
        item for item in changes if item not in own
    ]


def _curves(
    system: Any, model: Any, tokens: str, counts: list[int], told: dict[str, Any]
) -> list[ScalingCurve]:
    from strata.training.scaling import KINDS_OF_SCALING, scaling_curve

    return [scaling_curve(system, model, tokens, counts, kind=kind, **told) for kind in KINDS_OF_SCALING]


def _rows(answer: dict[str, Any]) -> dict[str, Any]:
    """The plans as rows of a table; of a run under one plan the run itself."""
    if not answer:
        return {}
    own = {k: answer[k] for k in ("plan", "tokens_per_s_per_device", "mfu", "days")}
    return {"plans": answer["search"]["plans"] if "search" in answer else [own]}


def _check_timeline(path: Path | None) -> None:
    if path is not None and path.suffix.lower() not in (".html", ".json", ".svg"):
        raise BadValue(f"a timeline is a .html page, a .json trace or a .svg picture, but got '{path}'")


def _write_pictures(
    run: TrainRun, curves: list[ScalingCurve], timeline: Path | None, svg: Path | None
) -> None:
    """The timeline and the picture that were asked for."""
    if timeline is not None:
        from strata.simulate.step import simulate_step

        kind = timeline.suffix.lower()
        # a page can be looked into closely, a picture not
        made = simulate_step(run.result, detail="stage" if kind == ".svg" else "auto")
        timeline.parent.mkdir(parents=True, exist_ok=True)
        write = {".html": made.to_html, ".svg": made.to_svg, ".json": made.to_perfetto}[kind]
        wrote("timeline", write(timeline), " (open it at https://ui.perfetto.dev)" if kind == ".json" else "")
    if svg is not None:
        from strata.app.render.training_report import draw_run

        wrote("picture", draw_run(run, curves, svg))
