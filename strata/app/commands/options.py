"""Options that several commands take, each written down once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from strata.app.rows_out import Rows, check_table, keep_table
from strata.app.terminal import names_of, one_of, precision_names, print_json, say, system_names, wrote
from strata.base.errors import BadValue, require
from strata.base.units import parse, typed_time, whole

if TYPE_CHECKING:
    from strata.result import Result

Command = TypeVar("Command", bound=Callable[..., None])
QuickFlag = Annotated[
    bool, typer.Option("--quick", help="requests in closed form alone; else the best plans are simulated")
]
NoPrefixFlag = Annotated[
    bool, typer.Option("--no-prefix-caching", help="prompts that begin alike share nothing")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="print JSON for machines")]
ChipName = Annotated[
    str, typer.Argument(metavar="CHIP", help="chip name, or a TOML path", autocompletion=names_of("chip"))
]


def _declared(name: str) -> tuple[list[str], str]:
    """The flags of an option, none where it is called as its parameter, and what stands for its value:
    `--batch -b N`.
    """
    words = name.split()
    flags = [word for word in words if word.startswith("-")]
    return flags, " ".join(words[len(flags) :])


def typed(name: str, help: str, complete: Any = None, *, check: Any = None) -> Any:
    """An option of several commands that takes a value: its flags and what stands for the value, what it is
    for, the words that complete it, and what looks at the value first.
    """
    flags, metavar = _declared(name)
    return typer.Option(*flags, metavar=metavar, help=help, autocompletion=complete, callback=check)


def option(default: Any, name: str, help: str, complete: Any = None, **more: Any) -> Any:
    """An option of one command as the default of its parameter, told as `typed` tells it; `...`: it must be
    given. `more` is typer's, or `check`.
    """
    flags, metavar = _declared(name)
    more = {"callback": more.pop("check", None), "metavar": metavar, **more}
    return typer.Option(default, *flags, help=help, autocompletion=complete, **more)


def argument(default: Any, metavar: str, help: str, complete: Any = None) -> Any:
    """A word that stands by itself, as the default of its parameter."""
    return typer.Argument(default, metavar=metavar, help=help, autocompletion=complete)


def flag(name: str, help: str) -> Any:
    """An option of one command that takes no value, as the default of its parameter."""
    return typer.Option(False, name, help=help)


def command(name: str, short_help: str, example: str, **more: Any) -> Callable[[Command], Command]:
    """Make a function a command: its name, what it is for, and an example; `more` is typer's."""

    def named(function: Command) -> Command:
        about = {"short_help": short_help, "epilog": f"Example: {example}"}
        function.__dict__["command"] = {"name": name, **about, **more}
        return function

    return named


def flat_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command with the fields of each record of options among its parameters as options of its own."""
    every = signature(function, eval_str=True).parameters.values()
    records: dict[str, Any] = {p.name: p.annotation for p in every if is_dataclass(p.annotation)}

    @wraps(function)
    def flat(**typed: Any) -> None:
        for name, record in records.items():
            typed[name] = record(**{f.name: typed.pop(f.name) for f in fields(record)})
        function(**typed)

    own = {p.name: [p] for p in every}
    own |= {n: list(signature(r, eval_str=True).parameters.values()) for n, r in records.items()}
    parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for several in own.values() for p in several]
    flat.__dict__["__signature__"] = Signature(parameters)
    flat.__annotations__ = {}
    return flat


def write(what: str, path: Path | None, draw: Callable[..., Path], *of: Any) -> None:
    """Write a file where one is asked for: what it is, and what writes it of what was found."""
    if path is not None:
        wrote(what, draw(*of, path))


def picture_file(path: Path | None) -> Path | None:
    """The file of a picture (.svg, .png or .pdf), its name checked before there is any work to lose."""
    if path is None:
        return None
    from strata.base.drawing import check_picture

    return check_picture(path)


def drawing(help: str) -> Any:
    """The option of a picture's file, and what it shows, as the default of its parameter."""
    return option(None, "--svg --picture FILE", help, check=picture_file)


ModelName = Annotated[
    str,
    typed(
        "--model -m NAME",
        "model or program: a name, or path of a config.json, program, .onnx model or .et trace",
        names_of("models", "programs"),
    ),
]
SystemName = Annotated[
    str, typed("--system -s NAME", "system, like 8xh200, 4x8xh100, or a TOML path", system_names)
]
BatchSize = Annotated[str, typed("--batch -b N", "sequences at once over the whole system")]
InputTokens = Annotated[str, typed("--input -i N", "prompt tokens of a sequence (train: its length)")]
OutputTokens = Annotated[
    str, typed("--output -o N", "tokens generated for a sequence (decode: its context is input + output/2)")
]
PhaseName = Annotated[
    str,
    typed(
        "PHASE",
        "serve (read prompts, then generate), prefill, decode (one step) or train (one step)",
        one_of("serve", "prefill", "decode", "train"),
    ),
]
PlanText = Annotated[
    str,
    typed(
        "--plan -p PLAN",
        "parallel degrees, like tp=8,ep=8 (tp cp dp pp ep moe_tp zero order ...), or kernel "
        "parallelism, like RC-4-2-d8-p2  [default: the best legal plan]",
    ),
]
EngineName = Annotated[
    str,
    typed(
        "--engine NAME", "software: ideal, vllm, sglang, trtllm, megatron, or a TOML path", names_of("engine")
    ),
]
SetItems = Annotated[
    list[str] | None,
    typed(
        "--set PATH=VALUE",
        "change a number, as often as needed: chip.memory.bandwidth='6 TB/s' or =x2 or =+10%, "
        "fabric.latency='1 us', model.kv=fp8, economics.electricity='0.12 USD/kWh'",
    ),
]
FabricName = Annotated[
    str,
    typed(
        "--fabric NAME",
        "join the system's chips by another fabric, by name or TOML path  [default: the system's]",
        names_of("fabric"),
    ),
]
DraftText = Annotated[
    str,
    typed(
        "--speculative GUESS",
        "draft=NAME (or mtp: the model's own module),acceptance=0.7 and, if told, window=3 (serving: or "
        "best), branches=1, plan=tp=8",
        complete=one_of("draft=", "draft=mtp,acceptance="),
    ),
]
DevicePrice = Annotated[
    str,
    typed(
        "--price USD/h",
        "price of a device-hour as rented, like '2.5 USD/h'  [default: bought, hosted and powered]",
    ),
]
RankSequences = Annotated[
    str, typed("--sequences N", "sequences of a rank at once at most  [default: the engine's]")
]
StepTokens = Annotated[str, typed("--tokens N", "tokens of a step at most  [default: the engine's]")]
WeightFormat = Annotated[
    str, typed("FORMAT", "precision of the weights, like fp8  [default: as published]", precision_names)
]
CacheFormat = Annotated[
    str, typed("--kv FORMAT", "precision of the KV cache  [default: bf16]", precision_names)
]
RoutingFile = Annotated[
    str, typed("--routing FILE", "picks of each expert, a line for each layer (CSV or JSON)  [default: even]")
]
LoraAdapters = Annotated[
    str,
    typed(
        "--lora RANK[:MODULES]",
        "train only low-rank adapters, like 16 or 16:attention,ffn.down (--phase train)",
    ),
]
FrozenModules = Annotated[
    str, typed("--frozen NAMES", "modules that are not trained, like embedding,attention (--phase train)")
]
OverlapMode = Annotated[
    str,
    typed(
        "--overlap HOW",
        "communication beside computation: none, tiles or dual_batch  [default: the engine's]",
        one_of("none", "tiles", "dual_batch"),
    ),
]

TableFile = Annotated[
    Path | None,
    typed(
        "--table FILE",
        "write the rows to a file, by its ending .csv or .parquet; columns are in SI units",
        check=check_table,
    ),
]
ChakraPrefix = Annotated[
    Path | None,
    typed(
        "--chakra PREFIX",
        "write the step as Chakra traces for ASTRA-sim: PREFIX.0.et, ... and PREFIX.groups.json",
    ),
]
ReportFile = Annotated[Path | None, typed("--report FILE", "write an HTML report")]
PicturesReport = Annotated[Path | None, typed("--report FILE", "write an HTML report with pictures")]
MeasuredFolder = Annotated[
    Path | None, typed("--data DIR", "folder of measurements  [default: the project's validation/]")
]


@dataclass(frozen=True, kw_only=True)
class AnswerForm:
    """How an answer is told: as tables for people or as JSON, and its rows in a file where asked."""

    json: JsonFlag = False
    table: TableFile = None

    def answer(
        self,
        told: Any,
        shown: Any,
        rows: str | Callable[[Any], Rows] = "",
        of: Sequence[Any] = (),
        *,
        why_none: str = "",
    ) -> None:
        """Give an answer, of what was found: what machines are told, what people are shown, and which of it
        are rows; each as it is, or as a function makes it. Where there is none machines are told what is
        known, and why.
        """
        data = (told(*of) if callable(told) else told) if self.json or self.table else None
        if self.json:
            print_json(data)
        require(not why_none, why_none)
        if not self.json and (parts := list(shown(*of) if callable(shown) else shown)):
            say(*parts)
        keep_table(self.table, data, rows)


FORM = AnswerForm()


@dataclass(frozen=True, kw_only=True)
class AskedCase:
    """A model on a system: sizes, phase, plan, software, formats, and numbers that are changed."""

    model: ModelName
    system: SystemName
    batch: BatchSize = "1"
    input: InputTokens = "1024"
    output: OutputTokens = "1024"
    phase: PhaseName = "serve"
    plan: PlanText = ""
    engine: EngineName = "ideal"
    weights: WeightFormat = ""
    kv: CacheFormat = ""
    set: SetItems = None


@dataclass(frozen=True, kw_only=True)
class TrainedCase(AskedCase):
    """The same, of a step of training unless told otherwise."""

    phase: PhaseName = "train"


def typed_counts(text: str, option: str, most: int, limited: str) -> list[float]:
    """Counts as typed: one, a list, or every whole number from one to another; `limited` says which ranges
    may be.

    >>> typed_counts("1:4", "--layers", 100, ""), typed_counts("2,8", "--layers", 100, "")
    ([1.0, 2.0, 3.0, 4.0], [2.0, 8.0])
    """
    first, between, last = text.partition(":")
    if not between:
        return [whole(item.strip(), option) for item in text.split(",")] if text else []
    low, high = whole(first.strip(), option), whole(last.strip(), option)
    if not low <= high < low + most:
        raise BadValue(f"{option} {limited}, but got '{text}'")
    return [low + i for i in range(int(high - low) + 1)]


def typed_sizes(batch: str, input: str, output: str) -> dict[str, float]:
    return {
        "batch": whole(batch, "--batch"),
        "input": whole(input, "--input"),
        "output": whole(output, "--output"),
    }


def typed_limits(ttft: str, tpot: str, share: str, goal: str) -> dict[str, Any]:
    """Limits on latency and what is best, as typed; the share of requests is 95% or 0.95."""
    limits: dict[str, Any] = {"ttft": typed_time(ttft, "--ttft"), "tpot": typed_time(tpot, "--tpot")}
    kept = parse(share, "1", "--share") if share else None
    require(kept is None or 0.5 <= kept < 1.0, "--share lies between 50% and 100%", given=share)
    return limits | {"share": kept, "goal": goal}


def with_price(changes: list[str] | None, price: str, said: str = "--price") -> list[str]:
    """`--set` items with the price of a device-hour among them, where it is told; `said`: where.

    >>> with_price(None, "3.6 USD/h"), with_price(["model.kv=fp8"], "")
    (['economics.rent=3.6 USD/h'], ['model.kv=fp8'])
    """
    from strata.hardware.money import HOUR, device_hour_price

    rent = [f"economics.rent={device_hour_price(price, said) * HOUR:.12g} USD/h"] if price else []
    return [*(changes or []), *rent]


def with_overlap(changes: list[str] | None, overlap: str) -> list[str]:
    """`--set` items with the engine's overlap among them, where it is told."""
    return [*(changes or []), *([f"engine.overlap={overlap}"] if overlap else [])]


GoalName = Annotated[
    str,
    typed(
        "--goal GOAL",
        "what is best: throughput (tokens/s), cheapest (USD/Mtoken), fastest (time of a request) or "
        "efficient (tokens a joule)",
        one_of("throughput", "cheapest", "fastest", "efficient"),
    ),
]
TtftLimit = Annotated[str, typed("TIME", "limit on the mean time to first token, waiting included, like 2s")]
TpotLimit = Annotated[str, typed("TIME", "limit on the mean time per output token, like 40ms")]
ShareOption = Annotated[
    str,
    typed("--share SHARE", "of requests that keep the limit on TTFT, like 95%  [default: their mean does]"),
]


def write_chakra(result: Result, prefix: Path) -> None:
    """Write the step of a result as Chakra traces, and say so."""
    from strata.adapters.chakra.out import chakra_traces

    traces = chakra_traces(result)
    first = traces.write(prefix)[0]
    wrote("Chakra traces", first, f" and so on: {traces.ranks:,} ranks, {traces.nodes:,} nodes")
