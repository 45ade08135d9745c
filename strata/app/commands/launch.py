"""`strata launch`: a deployment as the command that starts it."""

from __future__ import annotations

from strata.app.commands import options
from strata.app.commands.options import command, option
from strata.app.rows_out import keep_table
from strata.app.terminal import (
    names_of,
    print_json,
    put_line,
    system_names,
)
from strata.errors import BadValue, require
from strata.mapping.engine import USUAL_SERVER
from strata.units import whole

PLAN = option("", "PLAN", "parallel degrees, like tp=8  [default: the best on --system]", flags="--plan -p")
ENGINE = option(USUAL_SERVER, "NAMES", "vllm, sglang, trtllm, or several: vllm,sglang", names_of("engine"))


@command(
    "launch",
    "A plan as the command that starts vLLM, SGLang or TensorRT-LLM.",
    "strata launch -m llama-3-70b --plan tp=8 --engine vllm,sglang,trtllm --kv fp8",
)
def launched_command(
    model: options.ModelName,
    plan: str = PLAN,
    system: str = option("", "NAME", "system whose best plan it is", system_names, flags="--system -s"),
    engine: str = ENGINE,
    checkpoint: str = option("", "PATH", "weights  [default: where the model was published]"),
    context: str = option("", "N", "longest prompt and answer  [default: the model's]"),
    sequences: options.RankSequences = "",
    tokens: options.StepTokens = "",
    no_prefix_caching: options.NoPrefixFlag = False,
    role: str = option("both", "ROLE", "of a disaggregated service: prefill or decode"),
    draft: str = option("", "NAME:N", "a draft model that guesses N tokens ahead, or mtp:N"),
    per_node: str = option("", "N", "devices of a machine  [default: as --system has them, else all]"),
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    set: options.SetItems = None,
    json: options.JsonFlag = False,
    table: options.TableFile = None,
) -> None:
    """The command that starts a deployment, with flags of the version that the engine's file names."""
    from strata.mapping.plan import plan as make_plan
    from strata.search.inputs import served_inputs
    from strata.serving.launch import LIMITS, devices_per_machine, launch_command, launched_plan

    require(role in ("both", "prefill", "decode"), "--role is prefill or decode", role=role)
    if not plan and not system:
        raise BadValue("launch needs --plan, or --system to find the best plan on it")
    guess, _, window = draft.partition(":")
    require(not draft or bool(window), "--draft is written like mtp:3 or llama-3.2-1b:4", given=draft)
    ahead = int(whole(window, "--draft")) if window else 0
    machine = int(whole(per_node, "--per-node")) if per_node else 0
    limits = {"sequences": sequences, "tokens": tokens}
    changes = [f"engine.{LIMITS[k]}={whole(v, f'--{k}'):.0f}" for k, v in limits.items() if v]
    found = []
    for name in engine.split(","):
        named = (model, system or "1xh200", name.strip(), weights, kv, [*(set or []), *changes])
        hardware, served, software = served_inputs(*named)
        chosen = make_plan(plan) if plan else launched_plan(hardware, served, software, ahead)
        if system and float(chosen.devices) > float(hardware.devices):
            raise BadValue(f"plan {plan} has {float(chosen.devices):g} devices, more than {hardware.name}")
        found.append(
            launch_command(
                served,
                chosen,
                software,
                checkpoint=checkpoint,
                context=int(whole(context, "--context")) if context else 0,
                prefix_caching=not no_prefix_caching,
                role=role,
                draft=guess,
                window=ahead,
                per_node=machine or (devices_per_machine(hardware) if system else 0),
            )
        )
    told = [{**one.to_dict(), "units": {"servers": "1", "nodes": "1"}} for one in found]
    if json:
        print_json(told, units=False)
    else:
        put_line("\n\n".join(one.text for one in found))
    keep_table(table, told)
