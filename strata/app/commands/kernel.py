"""`strata kernel`: one kernel on one chip, or a table of them where a size is a list."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

from strata.app.commands.options import FORM, AnswerForm, flag, flat_command, option, typed
from strata.app.terminal import names_of, one_of, precision_names, set_items
from strata.base.errors import BadValue
from strata.base.units import typed_quantity, whole
from strata.pricing.kernel_kinds import KINDS
from strata.pricing.kernel_request import ALWAYS, OPTIONS, SIZES

kernels = typer.Typer(
    name="kernel",
    help="One kernel on one chip: its time and bounds, what binds it, what it moves, its clock and power. "
    "A size may be a list (1,16,256): every combination is shown.",
    short_help="One kernel on one chip.",
    epilog="Example: strata kernel gemm --chip h200 --m 4096 --n 4096 --k 4096 --precision fp8",
    no_args_is_help=True,
    rich_markup_mode=None,
)
PRECISION = "precision of the arithmetic and the weights (strata list precisions)"
MOST = 1000  # rows of a table of kernels
KernelChip = Annotated[str, typed("--chip -c NAME", "chip name, or a TOML path", names_of("chip"))]
ChipChanges = Annotated[
    list[str] | None,
    typed("--set PATH=VALUE", "change a number of the chip, as often as needed: memory.bandwidth='6 TB/s'"),
]


def register_kernel(app: typer.Typer) -> None:
    """Give an app the commands of all kernels."""
    for kind, known in KINDS.items():
        chip = "h100" if "fabric" in known.options else "h200"
        epilog = f"Example: strata kernel {kind} --chip {chip} {known.example}".rstrip()
        kernels.command(kind, short_help=known.title.split(":")[0].rstrip("."), epilog=epilog)(
            flat_command(_command(kind))
        )
    app.add_typer(kernels)


def answer_kernel(
    kind: str,
    chip: KernelChip,
    given: dict[str, Any],
    *,
    precision: str = "",
    set: ChipChanges = None,
    form: AnswerForm = FORM,
) -> None:
    """Price every combination of the sizes and print it."""
    import numpy as np

    from strata.app.render.accuracy import with_interval
    from strata.app.render.operations import kernel_card, kernel_dicts, kernels_table
    from strata.app.render.prediction import dimmed
    from strata.hardware.chip import chip as make_chip
    from strata.pricing.kernel import kernel
    from strata.validation.accuracy.trust import trust_kernel

    lists = {name: _size_values(name, given[name]) for name in KINDS[kind].sizes if given[name]}
    options = {name: _option_value(name, given[OPTIONS[name].off or name]) for name in _options(kind)}
    rows = list(itertools.product(*lists.values()))
    if len(rows) > MOST:
        raise BadValue(f"a table of kernels has at most {MOST} rows, but the lists make {len(rows)}")
    hardware = make_chip(chip, **set_items(set, "chip", "memory.bandwidth='6 TB/s'"))
    columns = dict(zip(lists, np.array(rows).T, strict=True))
    told = {name: value for name, value in options.items() if value != ""}
    priced = kernel(hardware, kind, precision=precision, **columns, **told)
    dicts = kernel_dicts(priced, len(rows))
    trusted = trust_kernel(hardware, kind, priced.price.time)
    varied = [name for name in lists if len(lists[name]) > 1]
    once = not options["repeated"]
    shown = kernel_card(dicts[0], once) if len(dicts) == 1 else kernels_table(dicts, varied, once)
    each = with_interval(dicts, trusted)
    form.answer(each[0] if len(each) == 1 else each, [shown, *dimmed([trusted.text])])


def _options(kind: str) -> tuple[str, ...]:
    return (*KINDS[kind].options, *ALWAYS)


def _size_values(name: str, text: str) -> list[float]:
    """A size or a list of sizes, as typed."""
    typed_as, unit = "--" + name.replace("_", "-"), SIZES[name].unit
    read = (
        (lambda item: typed_quantity(item, unit, typed_as)) if unit else (lambda item: whole(item, typed_as))
    )
    return [read(item) for item in text.split(",")]


def _option_value(name: str, value: Any) -> Any:
    """An option as the API takes it, "" where it is not given."""
    form = OPTIONS[name].form
    if form == "flag":
        return not value if OPTIONS[name].off else value
    if form in ("word", "format") or not value:
        return value
    return typed_quantity(value, form, f"--{name}")


def _command(kind: str) -> Callable[..., None]:
    """The command of a kind of kernel: its sizes and options, declared in `kernel_request`."""
    known = KINDS[kind]
    every = signature(answer_kernel, eval_str=True).parameters
    sizes = [_size_parameter(name, known.usual) for name in known.sizes]
    options = [_option_parameter(kind, name) for name in _options(kind)]
    meaning = f"{PRECISION}  [default: {known.precision}]"
    precision = _parameter("precision", str, option("", "FORMAT", meaning, precision_names))
    own = {parameter.name for parameter in (*sizes, *options)}

    def command(chip: str, **typed: Any) -> None:
        given = {name: typed.pop(name) for name in own}
        answer_kernel(kind, chip, given, **typed)

    rest = [p for p in every.values() if p.kind is p.KEYWORD_ONLY and p.name != "precision"]
    chip_first = every["chip"].replace(kind=Parameter.KEYWORD_ONLY)
    typed_command: Any = command
    typed_command.__signature__ = Signature([chip_first, *sizes, precision, *options, *rest])
    command.__doc__, command.__annotations__ = known.title, {}
    return command


def _parameter(name: str, kind: type, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _size_parameter(name: str, usual: Mapping[str, Any]) -> Parameter:
    size, needed = SIZES[name], name not in usual
    default = "" if needed or not usual[name] else f"  [default: {usual[name]:g}]"
    metavar = size.unit.replace("1", "X") or "N"
    return _parameter(name, str, option(... if needed else "", metavar, size.meaning + default))


def _option_parameter(kind: str, name: str) -> Parameter:
    one = OPTIONS[name]
    if one.form == "flag":
        typed_as = one.off or name
        return _parameter(typed_as, bool, flag("--" + typed_as.replace("_", "-"), one.meaning))
    if one.form == "format":
        return _parameter(name, str, option("", "FORMAT", one.meaning, precision_names))
    words = {"op": KINDS[kind].ops, "phase": tuple(filter(None, KINDS[kind].phases))}.get(name, ())
    meaning = f"{one.meaning}: {', '.join(words)}" if words else one.meaning
    metavar = name.upper() if one.form == "word" else one.form
    return _parameter(name, str, option("", metavar, meaning, one_of(*words) if words else None))
