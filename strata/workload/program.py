"""Programs: anything that a workload turns into a graph, by name or file; language models are one kind of
them.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from strata.arrays import Number
from strata.errors import BadFile, UnknownName, require
from strata.params import data_folder, merged, names, read_toml
from strata.workload.graph import Graph
from strata.workload.model import model
from strata.workload.tasks import Workload


class Program(Protocol):
    """Anything that a workload turns into a graph: a language model, an FFT, a recommender, your own."""

    @property
    def name(self) -> str: ...

    @property
    def units(self) -> dict[str, Number]:
        """Indivisible units of the axes that layouts divide."""
        ...

    def trace(self, work: Workload) -> Graph:
        """The graph of one step, undivided."""
        ...


# Kinds beside language models, which a file says: the module of each, loaded where one is asked for, and its
# class there.
PROGRAMS = {
    "dataflow": ("dataflow", "Dataflow"),
    "dlrm": ("dlrm", "Dlrm"),
    "fft": ("fft", "Fft"),
    "fft-1d": ("fft", "LongFft"),
    "gemm": ("gemm", "Gemm"),
    "hpl": ("hpl", "Hpl"),
    "lstm": ("lstm", "Lstm"),
    "mlp": ("mlp", "Mlp"),
}


TRUTH = {"true": True, "false": False}


def program(name: str | Path, **changes: Any) -> Any:
    """A program by shipped name or file: a language model, one of `PROGRAMS`, or an ONNX model; keywords
    replace fields (of an ONNX model: sizes of its open dimensions, `precision`).

    >>> program("fft-1024", points=512).points, program("llama-3-8b").layers
    (512.0, 32.0)
    """
    if Path(name).suffix == ".onnx":
        from strata.workload.onnx_graph import onnx_changes

        return onnx_changes(name, changes)
    path = program_path(name)
    if path is None:
        return model(name, **changes)
    table = program_table(path)
    kind = table.pop("kind")
    if kind not in PROGRAMS:
        raise UnknownName(f"kind of program in {path.name}", kind, PROGRAMS, ", ".join(PROGRAMS))
    if kind == "dataflow":
        from strata.workload.dataflow_file import read_dataflow

        made = read_dataflow(path.stem, table)
        return made.with_changes(**changes) if changes else made
    table.pop("_strata", None)
    module, record = PROGRAMS[kind]
    made = getattr(import_module(f"strata.workload.{module}"), record)(name=path.stem)
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
    both = (data_folder("programs") / f"{name}{ending}" for ending in (".toml", ".json"))
    return next(path for path in both if path.exists())


def program_table(path: Path) -> dict[str, Any]:
    """The table of a program's file, over that of the program it names as its `base`."""
    if path.suffix == ".toml":
        table = read_toml(path)
        return _over_base(table, path) if "base" in table else table
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"{path.name} is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise BadFile(f"{path.name} must hold an object: of a program, or Hugging Face's config.json")
    return table


def _over_base(table: dict[str, Any], path: Path) -> dict[str, Any]:
    base = str(table.pop("base"))
    beside = path.parent / (base if base.endswith(".toml") else f"{base}.toml")
    below = beside if beside.exists() else data_folder("programs") / f"{base}.toml"
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
        if isinstance(getattr(record, key), bool) and isinstance(value, str):
            require(value.lower() in TRUTH, f"{key} of {record.name} is true or false", **{key: value})
            made[key] = TRUTH[value.lower()]
        elif isinstance(value, list | tuple):
            made[key] = tuple(v if isinstance(v, str) else v * 1.0 for v in value)
        else:
            made[key] = value if isinstance(value, str | bool) or value is None else value * 1.0
    return replace(record, **made)
