"""`strata serving`: a model under load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from strata.app.commands import options
from strata.app.commands.options import command, flag, typed, with_price
from strata.app.rows_out import keep_table
from strata.app.terminal import (
    print_json,
    say,
    status_line,
    wrote,
)
from strata.drawing import PICTURE_KINDS
from strata.errors import require
from strata.mapping.engine import USUAL_SERVER
from strata.units import parse, typed_quantity, typed_time, whole

if TYPE_CHECKING:
    from strata.serving.under_load import UnderLoad
    from strata.workload.model import Model


InputOption = Annotated[str, typed("--input -i", "N", "prompt tokens of a request")]
OutputOption = Annotated[str, typed("--output -o", "N", "tokens generated for a request")]
RateOption = Annotated[str, typed("", "N/s", "requests that arrive each second, at random: what they see")]
ClientsOption = Annotated[str, typed("", "N", "clients that each wait for their answer: what they see")]
ChunkOption = Annotated[str, typed("", "N", "prompt tokens a step reads at most  [default: the engine's]")]
SequencesOption = Annotated[str, typed("", "N", "requests at once at most  [default: the engine's]")]
VariationOption = Annotated[str, typed("", "X", "squared coefficient of variation of prompt lengths")]
SkewOption = Annotated[str, typed("", "X", "exponent of the experts' popularity: 0 is uniform")]
RoutingOption = Annotated[
    str, typed("", "FILE", "picks of each expert, a line for each layer (CSV or JSON)  [default: by --skew]")
]
DisaggregatedFlag = Annotated[
    bool, flag("--disaggregated", "also devices apart for reading prompts and for generating")
]
PrefillDevices = Annotated[
    str, typed("", "N", "devices that read, with --disaggregated  [default: the best number]")
]
FrontierFile = Annotated[
    Path | None,
    typed("--frontier", "FILE", "write throughput against interactivity, .html, .svg, .png or .pdf"),
]


@command(
    "serving",
    "A model under load: rates, queues, pools, guesses.",
    "strata serving -m llama-3-70b -s 8xh200 -i 2048 -o 512 --ttft 1s --tpot 30ms --frontier frontier.html",
)
def serving_command(
    model: options.ModelName,
    system: options.SystemName,
    input: InputOption = "1024",
    output: OutputOption = "1024",
    rate: RateOption = "",
    clients: ClientsOption = "",
    ttft: options.TtftLimit = "",
    tpot: options.TpotLimit = "",
    share: options.ShareOption = "",
    goal: options.GoalName = "throughput",
    plan: options.PlanText = "",
    engine: options.EngineName = USUAL_SERVER,
    chunk: ChunkOption = "",
    sequences: SequencesOption = "",
    variation: VariationOption = "0",
    skew: SkewOption = "",
    routing: RoutingOption = "",
    disaggregated: DisaggregatedFlag = False,
    prefill_devices: PrefillDevices = "",
    speculative: options.DraftText = "",
    picture: FrontierFile = None,
    weights: options.WeightFormat = "",
    kv: options.CacheFormat = "",
    set: options.SetItems = None,
    price: options.DevicePrice = "",
    quick: options.QuickFlag = False,
    json: options.JsonFlag = False,
    table: options.TableFile = None,
    report: options.PicturesReport = None,
) -> None:
    """A model under load: the best plans with as many requests at once as keep limits on latency, loads."""
    from strata.app.render.serving import under_load_dict, under_load_rows, under_load_tables
    from strata.search.inputs import served_inputs
    from strata.serving.requests import Requests
    from strata.serving.served_options import typed_draft
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
    load |= {"ttft": typed_time(ttft, "--ttft"), "tpot": typed_time(tpot, "--tpot"), **pools}
    load |= {"share": typed_share(share), "goal": goal, "quick": quick}
    load |= {**typed_draft(speculative, served), "with_frontier": picture is not None or report is not None}
    with status_line("pricing plans") as heard:
        found = serve_under_load(hardware, served, requests, plan or None, software, **load, heard=heard)
    if json:
        print_json(under_load_dict(found))
    require(not found.why_none, found.why_none)
    if not json:
        say(*under_load_tables(found))
    keep_table(table, under_load_dict(found) if table else None, under_load_rows)
    _write_pages(found, picture, report)


def _write_pages(found: UnderLoad, picture: Path | None, report: Path | None) -> None:
    """The picture and the page that were asked for."""
    if picture is not None and found.frontier is not None:
        from strata.app.render.serving_report import frontier_picture

        wrote("frontier", frontier_picture(found.frontier, found.question, picture))
    if report is not None:
        from strata.app.render.serving_report import serving_report

        wrote("report", serving_report(found, report))


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


def typed_share(text: str) -> float | None:
    """A share of requests, as typed: 95% or 0.95."""
    value = parse(text, "1", "--share") if text else None
    require(value is None or 0.5 <= value < 1.0, "--share lies between 50% and 100%", given=text)
    return value


def _amount(text: str, option: str) -> float:
    """A number that is not negative, as typed."""
    value = parse(text, "1", option)
    require(value >= 0, f"{option} must not be negative", given=text)
    return value
