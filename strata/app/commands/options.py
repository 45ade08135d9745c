"""Options that several commands take, each written down once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.app.terminal import names_of, one_of, precision_names, system_names, whole, wrote

if TYPE_CHECKING:
    from strata.result import Result


def typed(flag: str, metavar: str, help: str, *, short: str = "", complete: Any = None) -> Any:
    """An option that takes a value: its flag, what stands for the value, what it is for, and the words that
    complete it.
    """
    names = (flag, short) if short else (flag,)
    return typer.Option(*names, metavar=metavar, help=help, autocompletion=complete)


ModelName = Annotated[
    str,
    typed(
        "--model",
        "NAME",
        "model or program: a name, or path of a config.json, program, .onnx model or .et trace",
        short="-m",
        complete=names_of("models", "programs"),
    ),
]


SystemName = Annotated[
    str,
    typed(
        "--system",
        "NAME",
        "system, like 8xh200, 4x8xh100, or a TOML path",
        short="-s",
        complete=system_names,
    ),
]


BatchSize = Annotated[
    str, typer.Option("--batch", "-b", metavar="N", help="sequences at once over the whole system")
]


InputTokens = Annotated[
    str, typer.Option("--input", "-i", metavar="N", help="prompt tokens of a sequence (train: its length)")
]


OutputTokens = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="N",
        help="tokens generated for a sequence (decode: its context is input + output/2)",
    ),
]


PhaseName = Annotated[
    str,
    typer.Option(
        metavar="PHASE",
        help="serve (read prompts, then generate), prefill, decode (one step) or train (one step)",
        autocompletion=one_of("serve", "prefill", "decode", "train"),
    ),
]


PlanText = Annotated[
    str,
    typer.Option(
        "--plan",
        "-p",
        metavar="PLAN",
        help="parallel degrees, like tp=8,ep=8 (tp cp dp pp ep moe_tp zero order ...), or kernel "
        "parallelism, like RC-4-2-d8-p2  [default: the best legal plan]",
    ),
]


EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="software: ideal, vllm, sglang, trtllm, megatron, or a TOML path",
        autocompletion=names_of("engine"),
    ),
]


SetItems = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="change a number, as often as needed: chip.memory.bandwidth='6 TB/s' or =x2 or =+10%, "
        "fabric.latency='1 us', model.kv=fp8, economics.electricity='0.12 USD/kWh'",
    ),
]


FabricName = Annotated[
    str,
    typer.Option(
        "--fabric",
        metavar="NAME",
        help="join the system's chips by another fabric, by name or TOML path  [default: the system's]",
        autocompletion=names_of("fabric"),
    ),
]


DevicePrice = Annotated[
    str,
    typer.Option(
        "--price",
        metavar="USD/h",
        help="price of a device-hour as rented, like '2.5 USD/h'  [default: bought, hosted and powered]",
    ),
]


WeightFormat = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="precision of the weights, like fp8  [default: as published]",
        autocompletion=precision_names,
    ),
]


CacheFormat = Annotated[
    str,
    typer.Option(
        "--kv",
        metavar="FORMAT",
        help="precision of the KV cache  [default: bf16]",
        autocompletion=precision_names,
    ),
]


RoutingFile = Annotated[
    str,
    typer.Option(
        "--routing",
        metavar="FILE",
        help="picks of each expert, a line for each layer (CSV or JSON)  [default: even]",
    ),
]


LoraAdapters = Annotated[
    str,
    typer.Option(
        "--lora",
        metavar="RANK[:MODULES]",
        help="train only low-rank adapters, like 16 or 16:attention,ffn.down (--phase train)",
    ),
]


FrozenModules = Annotated[
    str,
    typer.Option(
        "--frozen",
        metavar="NAMES",
        help="modules that are not trained, like embedding,attention (--phase train)",
    ),
]


OverlapMode = Annotated[
    str,
    typer.Option(
        "--overlap",
        metavar="HOW",
        help="communication beside computation: none, tiles or dual_batch  [default: the engine's]",
        autocompletion=one_of("none", "tiles", "dual_batch"),
    ),
]


def picture_file(path: Path | None) -> Path | None:
    """The file of a picture (.svg, .png or .pdf), its name checked before there is any work to lose."""
    if path is None:
        return None
    from strata.drawing import check_picture

    return check_picture(path)


JsonFlag = Annotated[bool, typer.Option("--json", help="print JSON for machines")]


def _table_file(path: Path | None) -> Path | None:
    if path is None:
        return None
    from strata.app.rows_out import check_table

    return check_table(path)


TableFile = Annotated[
    Path | None,
    typer.Option(
        "--table",
        metavar="FILE",
        help="write the rows to a file, by its ending .csv or .parquet; columns are in SI units",
        callback=_table_file,
    ),
]


ChakraPrefix = Annotated[
    Path | None,
    typer.Option(
        "--chakra",
        metavar="PREFIX",
        help="write the step as Chakra traces for ASTRA-sim: PREFIX.0.et, ... and PREFIX.groups.json",
    ),
]
ReportFile = Annotated[Path | None, typer.Option("--report", metavar="FILE", help="write an HTML report")]
PicturesReport = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="write an HTML report with pictures")
]
ChipName = Annotated[
    str, typer.Argument(metavar="CHIP", help="chip name, or a TOML path", autocompletion=names_of("chip"))
]
MeasuredFolder = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="folder of measurements  [default: the project's validation/]"
    ),
]


def typed_sizes(batch: str, input: str, output: str) -> dict[str, float]:
    return {
        "batch": whole(batch, "--batch"),
        "input": whole(input, "--input"),
        "output": whole(output, "--output"),
    }


def with_price(changes: list[str] | None, price: str) -> list[str]:
    """`--set` items with the price of a device-hour among them, where it is told.

    >>> with_price(None, "3.6 USD/h"), with_price(["model.kv=fp8"], "")
    (['economics.rent=3.6 USD/h'], ['model.kv=fp8'])
    """
    from strata.hardware.money import HOUR, device_hour_price

    rent = [f"economics.rent={device_hour_price(price) * HOUR:.12g} USD/h"] if price else []
    return [*(changes or []), *rent]


def with_overlap(changes: list[str] | None, overlap: str) -> list[str]:
    """`--set` items with the engine's overlap among them, where it is told."""
    return [*(changes or []), *([f"engine.overlap={overlap}"] if overlap else [])]


GoalName = Annotated[
    str,
    typer.Option(
        "--goal",
        metavar="GOAL",
        help="what is best: throughput (tokens/s), cheapest (USD/Mtoken), fastest (time of a request) or "
        "efficient (tokens a joule)",
        autocompletion=one_of("throughput", "cheapest", "fastest", "efficient"),
    ),
]


ShareOption = Annotated[
    str,
    typer.Option(
        "--share",
        metavar="SHARE",
        help="of requests that keep the limit on TTFT, like 95%  [default: their mean does]",
    ),
]


def write_chakra(result: Result, prefix: Path) -> None:
    """Write the step of a result as Chakra traces, and say so."""
    from strata.simulate.chakra_out import chakra_traces

    traces = chakra_traces(result)
    first = traces.write(prefix)[0]
    wrote("Chakra traces", first, f" and so on: {traces.ranks:,} ranks, {traces.nodes:,} nodes")
