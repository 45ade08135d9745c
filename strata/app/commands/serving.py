"""`strata serving`, `strata launch`, `strata speculate`: a model under load, as a command, with drafts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app import terminal
from strata.app.commands import options
from strata.app.commands.options import command, drawing, flag, option, typed_counts, with_price
from strata.app.rows_out import keep_table
from strata.base.drawing import PICTURE_KINDS
from strata.base.errors import BadValue, require
from strata.base.units import parse, typed_quantity, whole
from strata.software.engine import USUAL_SERVER

if TYPE_CHECKING:
    from strata.serving.under_load import UnderLoad
    from strata.workload.model import Model

ROUTING = option(
    "", "FILE", "picks of each expert, a line for each layer (CSV or JSON)  [default: by --skew]"
)
DISAGGREGATED = flag("--disaggregated", "also devices apart for reading prompts and for generating")
PREFILL_DEVICES = option("", "N", "devices that read, with --disaggregated  [default: the best number]")
PICTURE = option(None, "--frontier FILE", "write throughput against interactivity, .html, .svg, .png or .pdf")
PLAN = option("", "--plan -p PLAN", "parallel degrees, like tp=8  [default: the best on --system]")
ENGINE = option(
    USUAL_SERVER, "NAMES", "vllm, sglang, trtllm, or several: vllm,sglang", terminal.names_of("engine")
)
MOST = 64  # windows or acceptances of a table
COUNTING = option(
    "independent",
    "NAME",
    "tokens of a round: independent (a guess counts if all before it do), proportional (K a + 1)",
    terminal.one_of("independent", "proportional"),
)
TARGET = option(
    ...,
    "NAME",
    "model that decodes: name, or path of a Hugging Face config.json",
    terminal.names_of("models"),
)
SYSTEM = option(
    ..., "--system -s NAME", "system of both, like 16xsn40l, or a TOML path", terminal.system_names
)


@command(
    "serving",
    "A model under load: rates, queues, pools, guesses.",
    "strata serving -m llama-3-70b -s 8xh200 -i 2048 -o 512 --ttft 1s --tpot 30ms --frontier frontier.html",
)
def serving_command(
    model: options.ModelName,
    system: options.SystemName,
    input: str = option("1024", "--input -i N", "prompt tokens of a request"),
    output: str = option("1024", "--output -o N", "tokens generated for a request"),
    rate: str = option("", "N/s", "requests that arrive each second, at random: what they see"),
    clients: str = option("", "N", "clients that each wait for their answer: what they see"),
    ttft: options.TtftLimit = "",
    tpot: options.TpotLimit = "",
    share: options.ShareOption = "",
    goal: options.GoalName = "throughput",
    plan: options.PlanText = "",
    engine: options.EngineName = USUAL_SERVER,
    chunk: str = option("", "N", "prompt tokens a step reads at most  [default: the engine's]"),
    sequences: str = option("", "N", "requests at once at most  [default: the engine's]"),
    variation: str = option("0", "X", "squared coefficient of variation of prompt lengths"),
    skew: str = option("", "X", "exponent of the experts' popularity: 0 is uniform"),
    routing: str = ROUTING,
    disaggregated: bool = DISAGGREGATED,
    prefill_devices: str = PREFILL_DEVICES,
    speculative: options.DraftText = "",
    picture: Path | None = PICTURE,
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    set: options.SetItems = None,
    price: options.DevicePrice = "",
    quick: options.QuickFlag = False,
    form: options.AnswerForm = options.FORM,
    report: options.PicturesReport = None,
) -> None:
    """A model under load: the best plans with as many requests at once as keep limits on latency, loads."""
    from strata.app.render.serving import under_load_dict, under_load_rows, under_load_tables
    from strata.search.inputs import served_inputs
    from strata.search.served_options import typed_draft
    from strata.serving.requests import Requests
    from strata.serving.under_load import serve_under_load

    drawn = picture is None or picture.suffix.lower() in (".html", *PICTURE_KINDS)
    require(drawn, f"--frontier writes .html, {', '.join(PICTURE_KINDS)}", file=str(picture))
    require(not (rate and clients), "--rate and --clients are two kinds of load; give one")
    hardware, served, software = served_inputs(model, system, engine, weights, kv, with_price(set, price))
    sizes = (whole(input, "--input"), whole(output, "--output"), _amount(variation, "--variation"))
    requests = Requests(*sizes, **_typed_routing(served, routing, skew))
    load: dict[str, Any] = {"rate": _per_second(rate), "clients": _optional(clients, "--clients")}
    load |= {"chunk": _optional(chunk, "--chunk"), "sequences": _optional(sequences, "--sequences")}
    apart = int(whole(prefill_devices, "--prefill-devices")) if prefill_devices else 0
    pools: dict[str, Any] = {"disaggregated": disaggregated} | ({"prefill_devices": apart} if apart else {})
    load |= {**pools, **options.typed_limits(ttft, tpot, share, goal), "quick": quick}
    load |= {**typed_draft(speculative, served), "with_frontier": picture is not None or report is not None}
    with terminal.status_line("pricing plans") as heard:
        found = serve_under_load(hardware, served, requests, plan or None, software, **load, heard=heard)
    told = (under_load_dict, under_load_tables, under_load_rows)
    form.answer(*told, of=[found], why_none=found.why_none)
    _write_pages(found, picture, report)


def _write_pages(found: UnderLoad, picture: Path | None, report: Path | None) -> None:
    """The picture and the page that were asked for."""
    if picture is not None and found.frontier is not None:
        from strata.app.render.serving_report import frontier_picture

        terminal.wrote("frontier", frontier_picture(found.frontier, found.question, picture))
    if report is not None:
        from strata.app.render.serving_report import serving_report

        terminal.wrote("report", serving_report(found, report))


def _typed_routing(model: Model, routing: str, skew: str) -> dict[str, Any]:
    """How experts are picked: as a file says, or by a skew."""
    from strata.search.inputs import routing_from_file

    routed = routing_from_file(routing, model)
    require(routed is None or not skew, "--skew and --routing both say how experts are picked; give one")
    require(model.has_experts or not skew, f"{model.name} has no experts to pick", skew=skew)
    return {"routing": routed} | ({"skew": _amount(skew, "--skew")} if skew else {})


def _optional(text: str, option: str) -> float | None:
    return whole(text, option) if text else None


def _per_second(text: str) -> float | None:
    """Requests a second, as typed: 10 or 10/s or 600/h."""
    if not text:
        return None
    value = typed_quantity(text, "Hz", "--rate")
    require(value > 0, "--rate must be positive", rate=text)
    return value


def _amount(text: str, option: str) -> float:
    """A number that is not negative, as typed."""
    value = parse(text, "1", option)
    require(value >= 0, f"{option} must not be negative", given=text)
    return value


@command(
    "launch",
    "A plan as the command that starts vLLM, SGLang or TensorRT-LLM.",
    "strata launch -m llama-3-70b --plan tp=8 --engine vllm,sglang,trtllm --kv fp8",
)
def launched_command(
    model: options.ModelName,
    plan: str = PLAN,
    system: str = option("", "--system -s NAME", "system whose best plan it is", terminal.system_names),
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
    form: options.AnswerForm = options.FORM,
) -> None:
    """The command that starts a deployment, with flags of the version that the engine's file names."""
    from strata.adapters.launchers.commands import LIMITS, devices_per_machine, launch_command, launched_plan
    from strata.mapping.plan import plan as make_plan
    from strata.search.inputs import served_inputs

    require(role in ("both", "prefill", "decode"), "--role is prefill or decode", role=role)
    if not plan and not system:
        raise BadValue("launch needs --plan, or --system to find the best plan on it")
    guess, _, window = draft.partition(":")
    require(not draft or bool(window), "--draft is written like mtp:3 or llama-3.2-1b:4", given=draft)
    ahead = int(whole(window, "--draft")) if window else 0
    machine = int(whole(per_node, "--per-node")) if per_node else 0
    how: dict[str, Any] = {"checkpoint": checkpoint, "role": role, "draft": guess, "window": ahead}
    how |= {"context": int(whole(context, "--context")) if context else 0}
    how |= {"prefix_caching": not no_prefix_caching}
    limits = {"sequences": sequences, "tokens": tokens}
    changes = [f"engine.{LIMITS[k]}={whole(v, f'--{k}'):.0f}" for k, v in limits.items() if v]
    found = []
    for name in engine.split(","):
        named = (model, system or "1xh200", name.strip(), weights, kv, [*(set or []), *changes])
        hardware, served, software = served_inputs(*named)
        chosen = make_plan(plan) if plan else launched_plan(hardware, served, software, ahead)
        if system and float(chosen.devices) > float(hardware.devices):
            raise BadValue(f"plan {plan} has {float(chosen.devices):g} devices, more than {hardware.name}")
        nodes = machine or (devices_per_machine(hardware) if system else 0)
        found.append(launch_command(served, chosen, software, per_node=nodes, **how))
    told = [{**one.to_dict(), "units": {"servers": "1", "nodes": "1"}} for one in found]
    if form.json:
        terminal.print_json(told, units=False)
    else:
        terminal.put_line("\n\n".join(one.text for one in found))
    keep_table(form.table, told)


@command(
    "speculate",
    "Speculative decoding: drafts, windows, acceptances.",
    "strata speculate --target llama-3.1-405b --draft llama-3.1-8b --system 16xsn40l "
    "--window 1:8 --acceptance 0.6,0.8",
)
def speculate_command(
    target: str = TARGET,
    draft: str = option(..., "NAME,...", "models that guess, one table each", terminal.names_of("models")),
    system: str = SYSTEM,
    window: str = option("1:8", "K", "tokens a guess is deep: 4, a list 2,4,8 or a range 1:8"),
    acceptance: str = option(
        "0.6,0.8", "SHARE,...", "chance that the target agrees with one more guess: 0.8, or a list 0.6,0.8"
    ),
    tree: bool = flag("--tree", "guess trees of two branches; --branches for others"),
    branches: str = option("", "N", "alternatives at each level of a guess  [default: 1, a sequence]"),
    counting: str = COUNTING,
    batch: str = option("1", "--batch -b N", "sequences at once"),
    context: str = option("2048", "N", "tokens of a sequence so far"),
    plan: str = option("", "--plan -p PLAN", "of the target, like tp=16  [default: its quickest that fits]"),
    draft_plan: str = option("", "PLAN", "of the drafts  [default: the quickest of each]"),
    engine: options.EngineName = USUAL_SERVER,
    set: list[str] | None = option(
        None, "PATH=VALUE", "change a number of chip, fabric or engine, as often as needed"
    ),
    svg: Path | None = drawing("write a heat map of tokens/s over window and acceptance, by draft"),
    form: options.AnswerForm = options.FORM,
) -> None:
    """A small model guesses tokens, the target verifies all of them in one step: tokens/s by window and
    acceptance, the speed-up, the best window, and which draft is best.
    """
    from strata.app.render import serving as render
    from strata.search.inputs import named_inputs
    from strata.serving.drafts import compare_drafts
    from strata.workload.model import Model

    require(not (tree and branches), "--tree is --branches 2; give one of them")
    names = [name.strip() for name in draft.split(",") if name.strip()]
    require(bool(names), "--draft names at least one model", given=draft)
    hardware, large, software = named_inputs(target, system, engine, "", "", set or [])
    require(isinstance(large, Model), "--target is a language model that decodes", target=target)
    how: dict[str, Any] = {"batch": whole(batch, "--batch"), "context": whole(context, "--context")}
    how["window"] = typed_counts(window, "--window", MOST, f"is a range like 1:8, at most {MOST} long")
    how["acceptance"] = typed_acceptances(acceptance)
    how["branches"] = 2.0 if tree else whole(branches, "--branches") if branches else 1.0
    how |= {"plan": plan or None, "draft_plan": draft_plan or None, "counting": counting}
    found = compare_drafts(large, names, hardware, engine=software, **how)
    of = [found]
    form.answer(render.draft_comparison_dict, render.draft_comparison_tables, render.draft_rows, of)
    options.write("picture", svg, render.draw_comparison, found)


def typed_acceptances(text: str) -> list[float]:
    """Acceptances as typed, each from 0 to 1.

    >>> typed_acceptances("0.6,0.8")
    [0.6, 0.8]
    """
    values = [terminal.typed_number(item.strip(), "--acceptance") for item in text.split(",")]
    wrong = [v for v in values if not 0.0 <= v <= 1.0]
    require(not wrong, "--acceptance must lie between 0 and 1", acceptance=text)
    return values
