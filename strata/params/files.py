"""Data files: where they are, what they say with their bases underneath, and what is kept of them.

What was read is kept until a file changes: `remembered` notes every file and folder that a function looks at,
and asks the file system before it gives an answer again.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from strata.base.errors import BadFile, UnknownName
from strata.base.reading import table_of, text_of, toml_file
from strata.base.shipped import paper_data
from strata.params.declare import Writer, inherited, pruned

KINDS = {
    "chip": "chips",
    "fabric": "fabrics",
    "system": "systems",
    "engine": "engines",
    "transport": "transports",
    "memory": "memories",
    "space": "spaces",
    "technologies": "technology",
    "device": "devices",
    "link": "links",
    "template": "templates",
    "budget": "budgets",
    "recipe": "recipes",
}
DATA = Path(__file__).parent.parent / "data"
MOST_KEPT = 512  # answers of one function
# Two changes within a tick of the file system's clock look like one: what is younger is not kept.
YOUNG = 100_000_000  # ns

Function = TypeVar("Function", bound=Callable[..., Any])
Stamp = tuple[int, int, int] | None  # time of the last change [ns], size, number of the file; None: no file


# ------------------------------------------------------------------------------------------ what is kept


class _Reading(threading.local):
    """Files that functions now at work have looked at, innermost last."""

    def __init__(self) -> None:
        self.files: list[dict[str, Stamp]] = []
        self.unfitted = False


_reading = _Reading()


@contextmanager
def unfitted() -> Iterator[None]:
    """Records are read as their own files have them, without what `strata calibrate` found."""
    before, _reading.unfitted = _reading.unfitted, True
    try:
        yield
    finally:
        _reading.unfitted = before


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _note(path: Path) -> None:
    """Say that the answer now worked out depends on a file or a folder."""
    if _reading.files:
        _reading.files[-1].setdefault(str(path), _stamp(str(path)))


def remembered(function: Function) -> Function:
    """A function of names that reads files: worked out once, and again where a file it looked at has changed.

    What it returns is shared, and must not be changed.
    """
    known: dict[tuple[Any, ...], tuple[Any, dict[str, Stamp]]] = {}

    @wraps(function)
    def remembering(*given: Any) -> Any:
        key = (_reading.unfitted, *given)
        answer, files = known.get(key, (None, None))
        if files is None or any(_stamp(path) != stamp for path, stamp in files.items()):
            _reading.files.append({})
            try:
                answer = function(*given)
            finally:
                files = _reading.files.pop()
            youngest = max((stamp[0] for stamp in files.values() if stamp is not None), default=0)
            if time.time_ns() - youngest > YOUNG:
                if len(known) >= MOST_KEPT:
                    known.clear()
                known[key] = answer, files
        if _reading.files:
            _reading.files[-1].update(files)
        return answer

    return cast(Function, remembering)


# ------------------------------------------------------------------------------------------ where they are


def data_folder(kind: str) -> Path:
    """The core's folder of shipped files of a kind."""
    return DATA / KINDS.get(kind, kind)


def data_folders(kind: str) -> list[Path]:
    """Every folder of shipped files of a kind: the core's, then those of papers."""
    return [base / KINDS.get(kind, kind) for base in (DATA, *paper_data())]


def shipped_file(kind: str, name: str, ending: str = ".toml") -> Path:
    """Where a shipped file lies: with the core's, or with the first paper that has it."""
    paths = [folder / f"{name}{ending}" for folder in data_folders(kind)]
    return next((path for path in paths if _exists(path)), paths[0])


def names(kind: str, papers: bool = True) -> list[str]:
    """Every shipped name of a kind (chip, fabric, engine, models …), with or without those of papers."""
    return list(_names(kind, papers))


@remembered
def _names(kind: str, papers: bool = True) -> tuple[str, ...]:
    folders = data_folders(kind) if papers else [data_folder(kind)]
    for folder in folders:
        _note(folder)
    files = (path for folder in folders for path in folder.glob("*.*"))
    return tuple(sorted({path.stem for path in files if path.suffix in (".toml", ".json")}))


def find(kind: str, name: str | Path) -> Path:
    """The file of a shipped name, however it is spelled, or of a user's path, which ends in .toml."""
    if str(name).endswith(".toml"):
        path = Path(name)
        if not os.path.exists(path):
            raise BadFile(f"no {kind} file at {path}")
        return path
    wanted = str(name).lower()
    known = wanted in names(kind, papers=False) or wanted in names(kind)  # most often the core's own
    shipped = wanted if known else meant(kind, wanted)
    if not shipped:
        raise UnknownName(kind, str(name), names(kind), f"strata list {KINDS.get(kind, kind)}")
    return shipped_file(kind, shipped)


def table_named(kind: str, name: str, over: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a file that another file names, under what that says itself."""
    known = names(kind)
    if not name.endswith(".toml") and name not in known:
        raise UnknownName(kind, name, known, ", ".join(known))
    return merged(load_table(kind, name), dict(over))


def dashed(name: str) -> str:
    """A name in lower case with dashes between its words.

    >>> dashed("H100 NVL"), dashed("SGLang (Dynamo)"), dashed("gpt3-175b"), dashed("llama-3.1-8b")
    ('h100-nvl', 'sglang-dynamo', 'gpt3-175b', 'llama-3.1-8b')
    """
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def plain_name(name: str, drop: Iterable[str] = ()) -> str:
    """What names are compared by: one word, without those that change nothing, which may hang on a number.

    >>> plain_name("GPT OSS 120B"), [plain_name(n, ["amd", "sxm"]) for n in ("AMD MI300X", "B200SXM")]
    ('gptoss120b', ['mi300x', 'b200'])
    """
    words, hanging = dashed(name).split("-"), rf"(?<=\d)(?:{'|'.join(drop)})$"
    return "".join(re.sub(hanging, "", word) for word in words if word not in drop) or "".join(words)


def meant(kind: str, name: str) -> str:
    """The shipped name that a name means, however spelled, by files and `configs/names.toml`; "" where none.

    >>> [meant("chip", n) for n in ("H100 NVL", "NVIDIA H100-SXM-80GB", "b200_sxm", "h20o")]
    ['h100-nvl', 'h100', 'b200', '']
    """
    spoken, same = _spoken(kind)
    return spoken.get(plain_name(name)) or spoken.get(plain_name(name, same)) or ""


@remembered
def _spoken(kind: str) -> tuple[dict[str, str], list[str]]:
    """Shipped names by what they and their other names are compared by, and words that change nothing."""
    words = read_toml(data_folder("configs") / "names.toml")
    every = dict(words["aliases"].get(kind, {}))
    every |= {alias: shipped for shipped in _names(kind) for alias in _aliases(kind, shipped)}
    every |= {shipped: shipped for shipped in _names(kind)}
    same = words["same"].get(kind, [])
    spoken = {plain_name(name, drop): shipped for drop in (same, ()) for name, shipped in every.items()}
    return spoken, same


def _aliases(kind: str, shipped: str) -> list[str]:
    """Other names that a shipped file gives itself, without owners."""
    path = shipped_file(kind, shipped)
    if _exists(path):
        return str(read_toml(path).get("aliases", "")).split()
    _note(path := path.with_suffix(".json"))
    facts = json.loads(path.read_text(encoding="utf-8")).get("_strata", {})
    return [str(alias).rpartition("/")[2] for alias in facts.get("aliases", [])]


# ------------------------------------------------------------------------------------------ what they say


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a file, the caller's own to change."""
    return cast(dict[str, Any], pickle.loads(_parsed(path)))


@remembered
def _parsed(path: Path) -> bytes:
    """A file's table, packed: unpacking is faster than copying, and much faster than parsing again."""
    _note(path)
    return pickle.dumps(toml_file(path))


def _exists(path: Path) -> bool:
    _note(path)
    return path.exists()


# Kinds whose files may be written in a few lines over another one: what is taken from there says so.
INHERITING = ("chip", "fabric")


def fitted_file(path: Path) -> Path:
    """Where fitted numbers of a shipped file lie."""
    return data_folder("calibration") / path.parent.name / path.name


def stating_file(kind: str, name: str, number: str) -> Path:
    """The shipped file that states a number of a record: its own, or the first below it that does.

    >>> stating_file("engine", "vllm", "frontend_latency").name
    'server.toml'
    """
    path = find(kind, name)
    stated = table = read_toml(path)
    for key in number.split("."):
        stated = stated.get(key, {})
    return path if stated or "base" not in table else stating_file(kind, table["base"], number)


def load_table(
    kind: str, name: str | Path, _above: tuple[str, ...] = (), written: Writer | None = None
) -> dict[str, Any]:
    """A file's table over its ``base`` (or ``like``), citations written out; `written` is done to each."""
    path = find(kind, name)
    table = read_toml(path) if written is None else written(read_toml(path), path.name)
    if str(path) in _above:
        circle = " -> ".join(Path(p).stem for p in (*_above, str(path)))
        raise BadFile(f"{path.name}: base files form a circle: {circle}")
    sources = table_of(table, "sources", path.name)
    for key in sources:
        text_of(sources, key, f"{path.name}: [sources]")
    table.pop("sources", None)
    table = _cite(table, sources, path.name)
    if path.parent in data_folders(kind) and not _reading.unfitted and _exists(fitted := fitted_file(path)):
        # what `strata calibrate` found, over what the datasheet and we assumed
        table = merged(table, read_toml(fitted))
    base = _base_of(table, kind, path.name)
    if base:
        beside = path.parent / base
        below = load_table(kind, beside if base.endswith(".toml") else base, (*_above, str(path)), written)
        if kind in INHERITING:
            table = {"name": path.stem, **table}
            below = inherited(below, str(below.get("name", base)))
            below = {k: v for k, v in below.items() if k not in ("aliases", "note")}
            below["title"] = table["name"]
        table = merged(below, table)
    elif kind == "chip" and _exists(defaults := data_folder("kinds") / f"{table.get('kind', '')}.toml"):
        # what is assumed of a chip of its kind until it is measured
        table = merged(read_toml(defaults), table)
    return pruned(table)


def _base_of(table: dict[str, Any], kind: str, file: str) -> str:
    """The file a table starts from, taken out of it; "" where it starts from nothing."""
    base = table.pop("base", "")
    if kind in INHERITING and "like" in table:
        if base:
            raise BadFile(f"{file}: like and base say the same; write one of them")
        base = table.pop("like")
    if not isinstance(base, str):
        raise BadFile(f"{file}: base is the name of a {kind} or a TOML path, but got {base!r}")
    return base


def _cite(value: Any, sources: Mapping[str, str], file: str) -> Any:
    if isinstance(value, dict):
        new = {k: _cite(v, sources, file) for k, v in value.items()}
        source = new.get("source")
        if isinstance(source, str) and source.startswith("@"):
            key, _, detail = source[1:].partition(":")
            if key not in sources:
                there = ", ".join(sources) or "nothing"
                raise BadFile(f"{file}: source '@{key}' is not under [sources]; there: {there}")
            new["source"] = f"{sources[key]}{',' if detail else ''}{detail}"
        return new
    return [_cite(v, sources, file) for v in value] if isinstance(value, list) else value


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """One table over another: tables inside are merged too, a quantity is replaced whole."""
    both = dict(below)
    for key, value in above.items():
        inner = isinstance(value, dict) and isinstance(both.get(key), dict) and "value" not in value
        both[key] = merged(both[key], value) if inner else value
    return both


def check_shipped(kind: str, name: str, called: str = "", more: str = "") -> None:
    """Refuse a name that is neither a shipped one nor a TOML path; all are listed, or `more` is said."""
    if not name.endswith(".toml") and name.lower() not in names(kind):
        raise UnknownName(called or kind, name, names(kind), more or ", ".join(names(kind)))
