"""`strata train`, `strata post-train`: runs of training, and reinforcement learning."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.commands import options
from strata.app.commands.options import command, drawing, flag, option, with_price
from strata.app.terminal import names_of, one_of, typed_number, wrote
from strata.base.errors import BadValue, require
from strata.base.units import typed_time, whole
from strata.software.engine import USUAL_SERVER

if TYPE_CHECKING:
    from strata.adapters.post_training.run import PostTraining
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
RECIPE = option(
    "grpo",
    "--recipe -r NAME",
    "what an iteration does: grpo, ppo, deepseek-r1, or a TOML path",
    names_of("recipe"),
)
KEEP = option(
    "",
    "yes|no",
    "whether what a phase does not need stays on its devices, or moves to the hosts' memory  "
    "[default: the quicker]",
    one_of("yes", "no"),
)
POOLS = option(
    "",
    "one|two",
    "one pool of devices for all phases, or two: one samples, one trains  [default: both are tried]",
    one_of("one", "two"),
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
    batch: str = option("", "--batch -b N", "sequences of a step  [default: about 4M tokens a step]"),
    length: str = option("4096", "--length -l N", "tokens of a sequence"),
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
    svg: Path | None = drawing("draw the run (and its scaling)"),
    form: options.AnswerForm = options.FORM,
    report: options.PicturesReport = None,
) -> None:
    """Train a model on so many tokens: days, money, energy and goodput, under a plan or the best of all."""
    from strata.app.render.training import scaling_lines, train_dict, train_page
    from strata.search.inputs import fine_tuning, named_inputs
    from strata.training.run import train_run
    from strata.training.scaling import KINDS_OF_SCALING, scaling_curve

    stated, changes = _stated(reliability, with_price(set, price))
    hardware, trained, software = named_inputs(model, system, engine, weights, "", changes, fabric)
    size = {"batch": whole(batch, "--batch") if batch else None, "length": whole(length, "--length")}
    told: dict[str, Any] = {"engine": software, "reliability": stated, "where": where, **size}
    told |= fine_tuning("train", lora, frozen)
    counts = [int(whole(n, "--scale")) for n in scale.split(",")] if scale else []
    if timeline is not None and timeline.suffix.lower() not in (".html", ".json", ".svg"):
        raise BadValue(f"a timeline is a .html page, a .json trace or a .svg picture, but got '{timeline}'")
    every = typed_time(checkpoint_every, "--checkpoint-every") if checkpoint_every else None
    run = train_run(
        hardware, trained, tokens, plan=plan, interval=every, goal=goal, top=int(whole(top, "--top")), **told
    )
    curve = partial(scaling_curve, hardware, trained, tokens, counts, **told)
    curves = [curve(kind=kind) for kind in KINDS_OF_SCALING] if counts else []
    scaling = (part for curve in curves for part in ("", *scaling_lines(curve)))
    form.answer(lambda: train_dict(run, curves), lambda: [*train_page(run), *scaling], _rows)
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


def _rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The plans as rows of a table; of a run under one plan the run itself."""
    own = {k: answer[k] for k in ("plan", "tokens_per_s_per_device", "mfu", "days")}
    return answer["search"]["plans"] if "search" in answer else [own]


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


@command(
    "post-train",
    "Reinforcement learning: rollouts, scoring, training.",
    "strata post-train -m qwen3-32b -s 64xh100 --recipe grpo --svg iteration.svg",
)
def post_train_command(
    model: options.ModelName,
    system: options.SystemName,
    recipe: str = RECIPE,
    rollout_plan: str = option(
        "", "PLAN", "parallel degrees that sample, like tp=4,dp=8  [default: the best]"
    ),
    training_plan: str = option(
        "", "PLAN", "parallel degrees that train, like tp=4,pp=4,dp=2,zero=1  [default: the best]"
    ),
    rollout_engine: str = option(
        USUAL_SERVER, "NAME", "software that samples: vllm, sglang, trtllm", names_of("engine")
    ),
    training_engine: str = option(
        "megatron", "NAME", "software that trains: megatron, pytorch", names_of("engine")
    ),
    pools: str = POOLS,
    asynchronous: bool = flag("--async", "two pools, one step off policy: both work at the same time"),
    rollout_devices: str = option("", "N", "devices that sample, of two pools  [default: the best split]"),
    keep: str = KEEP,
    partial: bool = flag("--partial", "responses that are not done go on in the next iteration"),
    batch: str = option("", "--batch -b N", "prompts of an iteration  [default: the recipe's]"),
    group: str = option("", "N", "responses sampled for each prompt"),
    prompt: str = option("", "N", "tokens of a prompt"),
    response: str = option("", "N", "tokens of a response, on average"),
    longest: str = option("", "N", "tokens at which a response is cut off"),
    spread: str = option("", "X", "standard deviation of the logarithm of lengths; 0: all alike"),
    minibatch: str = option("", "N", "samples of one optimiser step"),
    epochs: str = option("", "N", "times each sample is trained on"),
    kv: options.CacheFormat = "",
    set: options.SetItems = None,
    price: options.DevicePrice = "",
    svg: Path | None = drawing("write a picture: phases on a time line"),
    form: options.AnswerForm = options.FORM,
) -> None:
    """Reinforcement-learning post-training (PPO, GRPO): rollouts, scoring, training and weight transfer on
    one pool of devices or on two, with the best plans and the best split.
    """
    from strata.adapters.post_training.recipe import post_training_recipe
    from strata.adapters.post_training.run import post_training
    from strata.search.inputs import named_inputs
    from strata.workload.model import Model

    require(keep in ("", "yes", "no"), "--keep is yes or no", keep=keep)
    typed = {"batch": batch, "group": group, "prompt": prompt, "response": response, "longest": longest}
    typed |= {"minibatch": minibatch, "epochs": epochs}
    changes: dict[str, Any] = {k: whole(v, f"--{k}") for k, v in typed.items() if v}
    changes |= {"spread": typed_number(spread, "--spread")} if spread else {}
    hardware, learner, software = named_inputs(model, system, rollout_engine, "", kv, with_price(set, price))
    require(isinstance(learner, Model), "post-training is of a language model", model=model)
    asked = (hardware, learner, post_training_recipe(recipe, **changes))
    how: dict[str, Any] = {"pools": pools, "asynchronous": asynchronous, "partial": partial}
    how |= {"keep": {"yes": True, "no": False}.get(keep)}
    how |= {"rollout_devices": int(whole(rollout_devices, "--rollout-devices")) if rollout_devices else None}
    plans = (rollout_plan or None, training_plan or None)
    _tell(post_training(*asked, *plans, software, training_engine, **how), form, svg)


def _tell(found: PostTraining, form: options.AnswerForm, svg: Path | None) -> None:
    """The answer, in the ways that are asked for; what does not fit is one line."""
    from strata.app.render import post_training as render

    if form.json or not found.why_none:
        told = (render.post_training_dict, render.post_training_tables, render.post_training_rows)
        form.answer(*told, of=[found])
    if found.why_none:
        raise BadValue(found.why_none)
    options.write("picture", svg, render.draw_post_training, found)
