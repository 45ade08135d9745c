"""Programs: anything that a workload turns into a graph, by name or file; language models are one kind of
them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import is_leaf
from strata.base.errors import BadFile, BadValue, UnknownName, require
from strata.base.reading import json_file, text_of
from strata.base.units import finite_array, finite_number
from strata.params import merged, names, read_toml, shipped_file
from strata.workload.model import ADAPTERS, adapter, model

# Kinds beside language models, which a file says: the module of each, loaded where one is asked for, and its
# class there.
PROGRAMS = {
    "dataflow": ("dataflow", "Dataflow"),
    "dlrm": ("dlrm", "Dlrm"),
    "fft": ("fft", "Fft"),
    "fft-1d": ("fft", "LongFft"),
    "gemm": ("mlp", "Gemm"),
    "hpl": ("hpl", "Hpl"),
    "lstm": ("lstm", "Lstm"),
    "mlp": ("mlp", "Mlp"),
}


TRUTH = {"true": True, "false": False}


def program(name: str | Path, /, **changes: Any) -> Any:
    """A program by shipped name or file: a language model, one of `PROGRAMS`, an ONNX model, or a Chakra
    execution trace (.et); keywords replace fields (of an ONNX model: sizes of its open dimensions,
    `precision`).

    >>> program("fft-1024", points=512).points, program("llama-3-8b").layers
    (512.0, 32.0)
    """
    ending = next((e for e in ADAPTERS if e != ".json" and str(name).endswith(e)), "")
    if ending:
        return adapter(ending)(name, **changes)
    path = program_path(name)
    if path is None:
        return model(name, **changes)
    table = program_table(path)
    kind = text_of(table, "kind", path.name)
    del table["kind"]
    if kind not in PROGRAMS:
        raise UnknownName(f"kind of program in {path.name}", kind, PROGRAMS, ", ".join(PROGRAMS))
    if kind == "dataflow":
        from strata.workload.dataflow_file import read_dataflow

        made = read_dataflow(path.stem, table)
        return made.with_changes(**changes) if changes else made
    table.pop("_strata", None)
    module, record = PROGRAMS[kind]
    made = getattr(import_module(f"strata.workload.{module}"), record)(name=path.stem)
    for key, value in table.items():  # boxes of sizes are for calls; a file describes one program
        listed = isinstance(getattr(made, key, ()), tuple)
        several = isinstance(value, list) and not (listed and not any(isinstance(v, list) for v in value))
        what = "a list of numbers" if listed else "a number"
        require(not several, f"{key} of {made.name} is {what}", got=value)
    return with_fields(made, {**table, **changes})


def program_path(name: str | Path) -> Path | None:
    """The file of a program by shipped name or path; None where the name is that of a language model."""
    path = Path(name)
    if path.suffix == ".toml" and not path.exists():
        raise BadFile(f"no program file at {path}")
    if path.suffix in (".toml", ".json") and path.exists():
        if "kind" in program_table(path):
            return path
        if path.suffix == ".toml":
            raise BadFile(f"{path.name} says no kind of program: kind = one of {', '.join(PROGRAMS)}")
        return None
    if str(name) not in names("programs"):
        return None
    both = (shipped_file("programs", str(name), ending) for ending in (".toml", ".json"))
    return next(path for path in both if path.exists())


def program_table(path: Path) -> dict[str, Any]:
    """The table of a program's file, over that of the program it names as its `base`."""
    if path.suffix == ".toml":
        table = read_toml(path)
        return _over_base(table, path) if "base" in table else table
    table = json_file(path)
    if not isinstance(table, dict):
        raise BadFile(f"{path.name} must hold an object: of a program, or Hugging Face's config.json")
    return table


def _over_base(table: dict[str, Any], path: Path) -> dict[str, Any]:
    base = str(table.pop("base"))
    beside = path.parent / (base if base.endswith(".toml") else f"{base}.toml")
    below = beside if beside.exists() else shipped_file("programs", base)
    if not below.exists() or below == path:
        raise UnknownName(f"base of {path.name}", base, names("programs"))
    return merged(program_table(below), table)


def with_fields(record: Any, changes: dict[str, Any]) -> Any:
    """A program with fields replaced: numbers as floats, lists as tuples of them, words as they are."""
    known = [f.name for f in fields(record) if f.name != "name"]
    made: dict[str, Any] = {}
    for key, value in changes.items():
        if key not in known:
            raise UnknownName(f"field of {record.name}", key, known, ", ".join(known))
        made[key] = _field(value, getattr(record, key), f"{key} of {record.name}")
    return replace(record, **made)


def _field(value: Any, usual: Any, what: str) -> Any:
    """The value of a program's field, by what the field holds."""
    if isinstance(usual, bool):
        value = TRUTH.get(value.lower(), value) if isinstance(value, str) else value
        require(isinstance(value, bool), f"{what} is true or false", got=value)
        return value
    if isinstance(usual, str):
        require(isinstance(value, str), f"{what} is a word", got=value)
        return value
    if value is None:
        require(usual is None, f"{what} is a number")
        return value
    if isinstance(value, list | tuple) and isinstance(usual, tuple):
        words = bool(usual) and isinstance(usual[0], str)
        require(
            all(isinstance(v, str) == words for v in value),
            f"{what} has {'words' if words else 'numbers'}",
            got=value,
        )
        return tuple(v if words else _size(v, what) for v in value)
    require(not isinstance(usual, tuple), f"{what} is a list", got=value)
    return _size(value, what)


def _size(value: Any, what: str) -> Any:
    """A number that is not negative, or an array of them."""
    if isinstance(value, list | np.ndarray):
        value = finite_array(value, what)
        require(bool(np.all(value >= 0)), f"{what} must not be negative")
        return value
    if isinstance(value, bool | str | dict | tuple) or not is_leaf(value):
        raise BadValue(f"{what} is a number, but got {value!r}")
    if isinstance(value, int | float):
        require(finite_number(value, what) >= 0, f"{what} must not be negative", got=value)
    return value * 1.0
