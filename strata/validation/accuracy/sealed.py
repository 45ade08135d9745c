"""Sealed predictions: written before a result is public, hashed in a chain, and scored when it is."""

from __future__ import annotations

import hashlib
import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from strata import __version__
from strata.base.errors import BadFile, BadValue, UnknownName
from strata.base.reading import json_file, toml_file
from strata.base.units import parse
from strata.params import leaf_paths, value_at
from strata.validation.accuracy.trust import trust_served
from strata.validation.measured.spec import StrictTable
from strata.validation.questions.question import QuestionKind, question
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

RESULTS = "results.csv"  # beside the seals: seal, entry, measured with its unit, source, date


class Entry(StrictTable):
    """One question whose answer is not public: `like` is the measured quantity that its interval rests on."""

    name: str
    question: str
    metric: str
    ask: dict[str, str | float]
    why: str
    source: str
    like: str = ""


class Seal(StrictTable):
    """The TOML of a seal."""

    title: str
    entry: list[Entry] = Field(min_length=1)


def read_seal(path: Path) -> Seal:
    """The questions of a seal, checked."""
    return Seal.checked(toml_file(path, "TOML of a seal"), path.name)


def digest(content: dict[str, Any]) -> str:
    """SHA-256 of a seal: of all that it says but its own hash."""
    told = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(told, sort_keys=True, allow_nan=False).encode()).hexdigest()


def chain(folder: Path) -> list[dict[str, Any]]:
    """Every seal of a folder, the first one first; refused where one was changed or taken out."""
    seals = {path.stem: json_file(path) for path in sorted(folder.glob("*.json"))}
    for name, content in seals.items():
        if content.get("seal") != name or content.get("sha256") != digest(content):
            raise BadFile(f"{name}.json was changed after it was sealed: its hash is not that of its content")
    following = {content["previous"]: content for content in seals.values()}
    ordered: list[dict[str, Any]] = []
    while (last := ordered[-1]["sha256"] if ordered else "") in following:
        ordered.append(following[last])
    if len(ordered) != len(seals):
        lost = [name for name, content in seals.items() if content not in ordered]
        raise BadFile(
            f"the seal before {', '.join(lost)} is missing: seals are kept, each with all before it"
        )
    return ordered


def write_seal(folder: Path, name: str) -> tuple[Path, dict[str, Any]]:
    """Predict the questions of NAME.toml in a folder and seal the answers as NAME.json, once."""
    questions, target = folder / f"{name}.toml", folder / f"{name}.json"
    if not questions.is_file():
        known = [path.stem for path in folder.glob("*.toml")]
        raise UnknownName(f"TOML of questions in {folder}", name, known, ", ".join(known))
    before = chain(folder)
    if target.exists():
        raise BadValue(
            f"{target.name} is sealed and stays as it is; write other questions under another name"
        )
    asked, catalogue = read_seal(questions), Catalogue()
    entries = [_sealed(entry, catalogue) for entry in asked.entry]
    names = [entry["name"] for entry in entries]
    if len(set(names)) != len(names):
        raise BadFile(f"{questions.name} has two entries of one name")
    content: dict[str, Any] = {
        "seal": name,
        "title": asked.title,
        "version": __version__,
        "sealed": date.today().isoformat(),
        "previous": before[-1]["sha256"] if before else "",
        "chips": {key: value for entry in entries for key, value in entry.pop("chips").items()},
        "entries": entries,
    }
    content = json.loads(json.dumps(content, allow_nan=False))
    content["sha256"] = digest(content)
    target.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return target, content


def _sealed(entry: Entry, catalogue: Catalogue) -> dict[str, Any]:
    """An entry with its resolved inputs, prediction and interval."""
    asked = question(entry.question)
    given = asked.defaults | {name: _value(asked, name, value) for name, value in entry.ask.items()}
    lacking = [name for name, one in asked.arguments.items() if one.needed and name not in given]
    if lacking:
        raise BadFile(f"{entry.name}: {asked.name} needs {', '.join(lacking)}")
    arrays = {
        name: np.array([value]) if isinstance(value, float) and not asked.arguments[name].alike else value
        for name, value in given.items()
    }
    value = float(np.ravel(asked.answer(asked.ask(arrays, catalogue), entry.metric))[0])
    if not np.isfinite(value) or value <= 0:
        raise BadValue(f"{entry.name}: the prediction is not a positive number, but {value}")
    unit = asked.answers.get(entry.metric, "SI")
    interval, chips = _interval(entry, given, value, unit, catalogue)
    return {
        "name": entry.name,
        "question": entry.question,
        "inputs": {name: one for name, one in given.items() if one == one and one not in (None, "")},
        "command": asked.command(given) if asked.command is not None else "",
        "metric": entry.metric,
        "unit": unit,
        "predicted": value,
        "interval": interval,
        "why": entry.why,
        "source": entry.source,
        "chips": chips,
    }


def _value(asked: QuestionKind, name: str, value: str | float) -> str | float:
    unit = asked.argument(name, "a seal").unit
    return str(value) if unit is None else float(parse(value, unit))


def _interval(
    entry: Entry, given: dict[str, Any], value: float, unit: str, catalogue: Catalogue
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Where like cases were measured (None where none was), and the numbers of the chip."""
    name = str(given.get("system") or given.get("chip") or "")
    system = catalogue.system(name)
    chip = system.chip
    numbers = {path: value_at(chip, path) for path in leaf_paths(chip)}
    record = {chip.name: {path: float(n) for path, n in numbers.items() if isinstance(n, int | float)}}
    if not entry.like:
        return None, record
    engine = str(given.get("engine") or "ideal").split("@")[0]
    model = catalogue.model(str(given["model"]))
    interval = trust_served(system, model, engine, entry.metric, value, entry.like).to_dict()
    return None if interval is None else interval | {"unit": unit}, record


def scored_seals(folder: Path) -> dict[str, Any]:
    """Seals of a folder, and their predictions for which a result was added, beside it."""
    seals = chain(folder)
    sealed = {(seal["seal"], one["name"]): (seal, one) for seal in seals for one in seal["entries"]}
    entries = []
    table = read_table(folder, RESULTS)
    columns = [table.text(name) for name in ("seal", "entry", "measured", "source", "date")]
    for line, name, entry, cell, source, day in zip(table.lines.tolist(), *columns, strict=True):
        if (name, entry) not in sealed:
            known = [f"{one[0]} {one[1]}" for one in sealed]
            raise UnknownName(f"sealed prediction (line {line} of {RESULTS})", f"{name} {entry}", known)
        seal, one = sealed[name, entry]
        if day <= seal["sealed"]:
            raise BadValue(f"{RESULTS} line {line}: a result of {day} was public when {name} was sealed")
        measured = float(parse(cell, one["unit"]))
        ends = one["interval"]
        entries.append(
            {
                "seal": name,
                "entry": entry,
                "metric": one["metric"],
                "predicted": one["predicted"],
                "measured": measured,
                "error": one["predicted"] / measured - 1.0,
                "inside": None if ends is None else ends["low"] <= measured <= ends["high"],
                "unit": one["unit"],
                "source": source,
                "date": day,
            }
        )
    done = {(one["seal"], one["entry"]) for one in entries}
    heads = [{key: seal[key] for key in ("seal", "title", "version", "sealed", "sha256")} for seal in seals]
    return {"seals": heads, "predictions": len(sealed), "open": len(sealed) - len(done), "entries": entries}
