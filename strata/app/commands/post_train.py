"""`strata post-train`: reinforcement-learning post-training, rollouts and training together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.commands import options
from strata.app.commands.options import command, flag, option, picture, with_price
from strata.app.rows_out import answer
from strata.app.terminal import (
    names_of,
    one_of,
    typed_number,
    wrote,
)
from strata.errors import BadValue, require
from strata.mapping.engine import USUAL_SERVER
from strata.units import whole

if TYPE_CHECKING:
    from strata.training.post_training import PostTraining


RECIPE = option(
    "grpo",
    "NAME",
    "what an iteration does: grpo, ppo, deepseek-r1, or a TOML path",
    names_of("recipe"),
    flags="--recipe -r",
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
    batch: str = option("", "N", "prompts of an iteration  [default: the recipe's]", flags="--batch -b"),
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
    svg: Path | None = picture("write a picture: phases on a time line"),
    json: options.JsonFlag = False,
    table: options.TableFile = None,
) -> None:
    """Reinforcement-learning post-training (PPO, GRPO): rollouts, scoring, training and weight transfer on
    one pool of devices or on two, with the best plans and the best split.
    """
    from strata.search.inputs import named_inputs
    from strata.training.post_training import post_training
    from strata.training.post_training_recipe import post_training_recipe
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
    _tell(post_training(*asked, *plans, software, training_engine, **how), json, table, svg)


def _tell(found: PostTraining, json: bool, table: Path | None, svg: Path | None) -> None:
    """The answer, in the ways that are asked for; what does not fit is one line."""
    from strata.app.render.post_training import post_training_dict, post_training_rows, post_training_tables

    if json or not found.why_none:
        told, shown = (lambda: post_training_dict(found)), (lambda: post_training_tables(found))
        answer(told, shown, json, table, post_training_rows)
    if found.why_none:
        raise BadValue(found.why_none)
    if svg is not None:
        from strata.app.render.post_training import draw_post_training

        wrote("picture", draw_post_training(found, svg))
