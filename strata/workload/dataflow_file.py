"""Files of dataflow programs, TOML or JSON: read into a `Dataflow`, written back, and their schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from strata.base.arrays import Number, has_axes
from strata.base.errors import BadFile, BadValue, UnknownName
from strata.base.reading import flag_of, text_of
from strata.base.units import finite_number
from strata.params.records import as_toml
from strata.workload.dataflow import LAYER, Dataflow, DataflowKernel, in_order
from strata.workload.dataflow_kinds import UNITS, UserKind
from strata.workload.tasks import forward

WORDS = ("output", "precision", "stream", "items", "item", "title", "source")
TABLES = ("sizes", "inputs", "kernel", "kinds", "layout", "sources")
KERNEL_WORDS = tuple(f.name for f in fields(DataflowKernel) if f.name != "settings")
KIND_WORDS = tuple(f.name for f in fields(UserKind))
LAYERS = LAYER + "s"


def read_dataflow(name: str, table: Mapping[str, Any]) -> Dataflow:
    """A program from the table of its file.

    >>> kernel = {"name": "y", "kind": "gemm", "reads": "x", "weight": "rows columns", "writes": "n columns"}
    >>> table = {"sizes": {"rows": 8, "columns": "2*rows", "n": "batch"}, "inputs": {"x": "n rows"}}
    >>> made = read_dataflow("small", table | {"kernel": [kernel]})
    >>> float(made.trace(forward(4.0)).flop())
    1024.0
    """
    table = dict(table)
    table.pop("_strata", None)
    _known(table, (*WORDS, LAYERS, *TABLES), f"key of program {name}")
    _check_tables(table, name)
    cites = table.pop("sources", {})
    for key in cites:
        text_of(cites, key, f"{name}: [sources]")
    sizes, derived, cited = dict[str, Number](), dict[str, str](), dict[str, str]()
    for key, given in {**table.get("sizes", {}), LAYERS: table.get(LAYERS, 1.0)}.items():
        value, source = given, ""
        if isinstance(given, Mapping):
            _known(given, ("value", "source"), f"key of size {key} of program {name}")
            value, source = given.get("value"), text_of(given, "source", f"{name}: size {key}")
        if source:
            cited[key] = _cited(source, cites, name)
        if isinstance(value, str):
            derived[key] = value
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise BadFile(f"{name}: size {key} is a number or an expression, but got {value!r}")
        else:
            sizes[key] = finite_number(value, f"{name}: size {key}")
    if LAYERS in derived:
        raise BadFile(f"{name}: {LAYERS} is a number, but got '{derived[LAYERS]}'")
    made = Dataflow(
        name=name,
        layers=sizes.pop(LAYERS),
        sizes=sizes,
        derived=tuple(derived.items()),
        inputs=tuple((key, _axes(axes, f"{name}: input {key}")) for key, axes in _inputs(table, name)),
        kernels=tuple(_kernel(one, name) for one in table.get("kernel", [])),
        kinds=tuple(_kind(one, name) for one in table.get("kinds", [])),
        layouts=tuple((d, tuple(_divided(d, told, name))) for d, told in table.get("layout", {}).items()),
        cited=tuple(cited.items()),
        **{key: _cited(_word(table[key], f"{name}: {key}"), cites, name) for key in WORDS if key in table},
    )
    return checked_program(made)


def checked_program(program: Dataflow) -> Dataflow:
    """The program itself, after its kernels, axes and layouts were looked at; what is wrong is one line."""
    known = program.sized(forward(1.0))  # the workload's batch may be an axis, too
    names = {kernel.name for kernel in in_order(program)}
    if not names:
        raise BadValue(f"{program.name} has no kernels")
    for dimension, pairs in program.layouts:
        for kernel, axis in pairs:
            if kernel not in ("*", LAYER, *names):
                raise UnknownName(f"kernel in layout {dimension} of {program.name}", kernel, names)
            if axis not in known:
                raise UnknownName(
                    f"axis in layout {dimension} of {program.name}", axis, known, ", ".join(known)
                )
    stream = program.stream
    if stream and stream not in known:
        raise UnknownName(f"stream of {program.name}", stream, known, ", ".join(known))
    program.trace(forward(1.0))
    return program


def _inputs(table: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    given = table.get("inputs", {})
    if not given:
        raise BadFile(
            f'{name}: [inputs] names tensors from outside with their axes, like x = "tokens hidden"'
        )
    yield from given.items()


def _check_tables(table: Mapping[str, Any], name: str) -> None:
    """Tables are tables, kernels and kinds lists of them."""
    for key in ("sizes", "inputs", "layout", "sources"):
        if not isinstance(table.get(key, {}), Mapping):
            raise BadFile(f"{name}: [{key}] is a table, but got {table[key]!r}")
    for key in ("kernel", "kinds"):
        given = table.get(key, [])
        if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
            raise BadFile(f"{name}: kernels and kinds are lists, each a table under [[{key}]]")


def _known(table: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in table:
        if key not in known:
            raise UnknownName(what, key, known, ", ".join(known))


def _word(value: Any, what: str) -> str:
    if isinstance(value, list):
        return " ".join(_word(each, what) for each in value)
    if not isinstance(value, str):
        raise BadFile(f"{what} is text, but got {value!r}")
    return value


def _axes(value: Any, what: str) -> tuple[str, ...]:
    return tuple(_word(value, what).split())


def _cited(source: str, cites: Mapping[str, str], name: str) -> str:
    if not source.startswith("@"):
        return source
    key, _, detail = source[1:].partition(":")
    if key not in cites:
        raise BadFile(
            f"{name}: source '@{key}' is not under [sources]; there: {', '.join(cites) or 'nothing'}"
        )
    return f"{cites[key]}{',' if detail else ''}{detail}"


def _kernel(table: Mapping[str, Any], program: str) -> DataflowKernel:
    said = f"{program}: kernel {table.get('name', '(without a name)')}"
    for needed in ("name", "kind", "reads"):
        if needed not in table:
            near = [key for key in table if key not in KERNEL_WORDS]
            more = f"; '{near[0]}' is none of {', '.join(KERNEL_WORDS)}" if near else ""
            raise BadFile(f"{said} has no {needed}{more}")
    reads = table["reads"]
    listed = reads if isinstance(reads, list) else [part.strip() for part in _word(reads, said).split(",")]
    settings = tuple(
        (key, _setting(v, f"{said}: {key}")) for key, v in table.items() if key not in KERNEL_WORDS
    )
    return DataflowKernel(
        name=_word(table["name"], said),
        kind=_word(table["kind"], said),
        reads=tuple(_word(one, said) for one in listed if one),
        writes=_axes(table.get("writes", ""), said),
        weight=_axes(table.get("weight", ""), said),
        settings=settings,
        format=_word(table.get("format", ""), said),
        backward=flag_of(table, "backward", said),
    )


def _setting(value: Any, what: str) -> Any:
    value = value.get("value") if isinstance(value, Mapping) else value
    if not isinstance(value, str | int | float):
        raise BadFile(f"{what} is a number or text, but got {value!r}")
    return value if isinstance(value, str) else finite_number(value, what)


def _kind(table: Mapping[str, Any], program: str) -> UserKind:
    _known(table, KIND_WORDS, f"key of a kind of {program}")
    if "name" not in table:
        raise BadFile(f"{program}: one of [[kinds]] has no name")
    made = {
        key: value if isinstance(value, str) else f"{_setting(value, f'{program}: {key} of a kind')!r}"
        for key, value in table.items()
    }
    kind = UserKind(**made)
    if kind.unit not in UNITS:
        raise UnknownName(f"unit of kind {kind.name}", kind.unit, UNITS, ", ".join(UNITS))
    return kind


def _divided(dimension: str, told: Any, name: str) -> Iterator[tuple[str, str]]:
    if not isinstance(told, Mapping):
        raise BadFile(f'{name}: [layout.{dimension}] says kernel = "axis", or "*" = "axis" for all')
    for kernel, axes in told.items():
        for axis in _axes(axes, f"{name}: layout {dimension}"):
            yield kernel, axis


# ------------------------------------------------------------------------------------------ written back


def dataflow_table(program: Dataflow) -> dict[str, Any]:
    """The table of a program's file: reading it gives the program again."""
    cited = dict(program.cited)

    def number(key: str, value: Any) -> Any:
        if has_axes(value):
            raise BadValue(f"a file holds one program, but size {key} of {program.name} is an array")
        short = int(value) if float(value).is_integer() else float(value)
        return {"value": short, "source": cited[key]} if key in cited else short

    table: dict[str, Any] = {"kind": "dataflow"}
    table |= {key: getattr(program, key) for key in ("title", "source") if getattr(program, key)}
    plain = Dataflow()
    table |= {
        key: getattr(program, key) for key in WORDS[:-2] if getattr(program, key) != getattr(plain, key)
    }
    if float(program.layers) != 1.0 or LAYERS in cited:
        table[LAYERS] = number(LAYERS, program.layers)
    table["sizes"] = {key: number(key, value) for key, value in program.sizes.items()}
    table["sizes"] |= {
        key: {"value": text, "source": cited[key]} if key in cited else text for key, text in program.derived
    }
    table["inputs"] = {key: " ".join(axes) for key, axes in program.inputs}
    if program.layouts:
        table["layout"] = {name: _layout_table(pairs) for name, pairs in program.layouts}
    if program.kinds:
        usual = UserKind(name="")
        table["kinds"] = [
            {key: getattr(kind, key) for key in KIND_WORDS if getattr(kind, key) != getattr(usual, key)}
            for kind in program.kinds
        ]
    table["kernel"] = [_kernel_table(kernel) for kernel in program.kernels]
    return table


def _layout_table(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for kernel, axis in pairs:
        found[kernel] = f"{found[kernel]} {axis}" if kernel in found else axis
    return found


def _kernel_table(kernel: DataflowKernel) -> dict[str, Any]:
    table: dict[str, Any] = {"name": kernel.name, "kind": kernel.kind, "reads": ", ".join(kernel.reads)}
    table |= {key: " ".join(getattr(kernel, key)) for key in ("weight", "writes") if getattr(kernel, key)}
    table |= {"format": kernel.format} if kernel.format else {}
    table |= {"backward": True} if kernel.backward else {}
    return table | dict(kernel.settings)


def dataflow_toml(program: Dataflow) -> str:
    """A program as the text of its file."""
    return as_toml(dataflow_table(program))


def dataflow_schema() -> dict[str, Any]:
    """The JSON schema of a program's file."""
    text, number = {"type": "string"}, {"type": "number", "exclusiveMinimum": 0}
    sourced = {
        "type": "object",
        "required": ["value", "source"],
        "properties": {"value": {"anyOf": [number, text]}, "source": text},
    }
    size = {"anyOf": [number, text, sourced]}
    words = {"anyOf": [text, {"type": "array", "items": text}]}
    kernel: dict[str, Any] = {key: text for key in KERNEL_WORDS}
    kernel |= {"reads": words, "backward": {"type": "boolean"}}
    return {
        "title": "Program (kind = dataflow)",
        "type": "object",
        "required": ["kind", "sizes", "inputs", "kernel"],
        "additionalProperties": False,
        "properties": {
            "kind": {"const": "dataflow"},
            **{key: words for key in WORDS},
            LAYERS: size,
            "sizes": {"type": "object", "additionalProperties": size},
            "inputs": {"type": "object", "additionalProperties": text},
            "kernel": {
                "type": "array",
                "items": {"type": "object", "required": ["name", "kind", "reads"], "properties": kernel},
            },
            "kinds": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "additionalProperties": False,
                    "properties": {key: text for key in KIND_WORDS} | {"unit": {"enum": list(UNITS)}},
                },
            },
            "layout": {
                "type": "object",
                "additionalProperties": {"type": "object", "additionalProperties": words},
            },
            "sources": {"type": "object", "additionalProperties": text},
        },
    }
