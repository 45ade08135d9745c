"""Studies: a published finding, what we get, and whether it holds; one folder each, as data.

A study's `study.toml` names runs (sweeps of models on systems, quantities of chips), claims over
them as short expressions, and pictures. A study needs no code, so anyone can write one; kinds of runs of its
own are Python in its folder, or in a paper's (`strata.base.shipped`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strata.base import reading
from strata.base.errors import BadFile, BadValue, StrataError, UnknownName, require
from strata.base.expression import Names, calculate
from strata.base.shipped import is_packed, needed_model, paper_offers, plugged, shipped_folder
from strata.hardware.chip import Chip, chip
from strata.params import leaf_paths, read_toml, value_at
from strata.pricing.metrics import METRICS
from strata.pricing.power_limits import READINGS
from strata.search.sweep import sweep
from strata.search.sweep_axes import SweepAxis, parse_axis

SWEEP_SETTINGS = ("phase", "plan", "engine", "weights", "kv", "metric", "where", "orders")
SWEEP_KEYS = ("name", "model", "system", "vary", "batch", "input", "output", "set", *SWEEP_SETTINGS)
CHIP_KEYS = ("name", "chip", "vary", "set", "let")
SEARCHED = ("design", "best", "bound", "size")  # what is written down of a search


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study as its folder tells it."""

    name: str
    folder: Path
    table: dict[str, Any]

    @property
    def title(self) -> str:
        return str(self.table["title"])


@dataclass(frozen=True, kw_only=True)
class StudyOutcome:
    """What a study found: each claim with its verdict, and the numbers of its runs."""

    study: Study
    claims: list[dict[str, Any]]
    runs: dict[str, dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        told = {
            "study": self.study.name,
            "title": self.study.title,
            "paper": self.study.table["paper"],
            "claims": self.claims,
        }
        searched = {
            name: dict(run["kept"]) if "kept" in run else {k: run[k] for k in SEARCHED}
            for name, run in self.runs.items()
            if "design" in run or "kept" in run
        }
        for run in searched.values():  # a sampler without proof has no bound
            run["bound"] = None if run["bound"] is None or np.isnan(run["bound"]) else run["bound"]
        upgraded = {name: run["summary"] for name, run in self.runs.items() if "summary" in run}
        told |= {"searches": searched} if searched else {}
        return told | ({"upgrades": upgraded} if upgraded else {})


def studies_folder() -> Path:
    """The project's folder of studies."""
    return shipped_folder("studies")


def study_names() -> list[str]:
    """Names of the studies there are."""
    return sorted(p.parent.name for p in studies_folder().glob("*/study.toml"))


def study(name: str | Path) -> Study:
    """A study by its name, or by the path of its folder."""
    folder = Path(name)
    if not (folder / "study.toml").is_file():
        known = study_names()
        if str(name) not in known:
            raise UnknownName("study", str(name), known, "strata study")
        folder = studies_folder() / str(name)
    table = study_table(folder)
    return Study(name=folder.resolve().name, folder=folder, table=table)


def run_study(
    which: str | Path | Study, quick: bool = False, progress: Callable[[str, int, int], None] | None = None
) -> StudyOutcome:
    """Run a study and judge its claims; `quick` evaluates the designs that its searches found before instead
    of searching again. `progress` is told each run before it starts: its name, how many are
    done, of how many.

    A claim has an `id`, what the paper `says`, its number `paper`, the expression `ours` over the runs, and
    `holds`, a condition that may use `ours` and `paper`; a `note` explains.
    """
    named = which if isinstance(which, Study) else study(which)
    runs: dict[str, dict[str, Any]] = {}
    known = ((stored_result(named) or {}).get("searches", {})) if quick else {}
    for done, entry in enumerate(named.table["run"]):
        if progress is not None:
            progress(entry["name"], done, len(named.table["run"]))
        name, where = entry["name"], f"{named.name}: run {entry['name']}"
        runs[name] = _run(entry, where, named, runs, known.get(name))
    values = {name: Names(f"run {name}", found) for name, found in runs.items()}
    claims = [judge_claim(claim, values, named.name) for claim in named.table["claim"]]
    return StudyOutcome(study=named, claims=claims, runs=runs)


def _run(
    entry: dict[str, Any], where: str, named: Study, runs: dict[str, dict[str, Any]], known: Any
) -> dict[str, Any]:
    """What a run finds; a key that it misses, or cannot use, is said with the run."""
    try:
        return _run_of_its_kind(entry, where, named, runs, known)
    except StrataError:
        raise
    except KeyError as error:
        raise BadFile(f"{where}: missing key {error}") from error
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise BadFile(f"{where} has a value of a wrong kind: {error}") from error


def _run_of_its_kind(
    entry: dict[str, Any], where: str, named: Study, runs: dict[str, dict[str, Any]], known: Any
) -> dict[str, Any]:
    if "space" in entry:
        from strata.search.study_search import run_search

        return run_search(entry, where, runs, known)
    offers = paper_offers("study runs", named.folder)
    for key in entry:
        if key in offers:
            return dict(plugged(*offers[key])(entry, where, named.folder, runs, known))
    return run_entry(entry, where)


def judge_claim(claim: dict[str, Any], runs: dict[str, Any], where: str) -> dict[str, Any]:
    """One claim with its verdict."""
    check_claim(claim, where)
    at = f"{where}: claim {claim['id']}"
    ours = calculate(claim["ours"], runs, at)
    holds = bool(np.all(calculate(claim["holds"], {**runs, "ours": ours, "paper": claim.get("paper")}, at)))
    return {
        "id": claim["id"],
        "says": claim["says"],
        "paper": claim.get("paper"),
        "ours": plain_numbers(ours),
        "holds": holds,
        "note": claim.get("note", ""),
    }


def plain_numbers(value: Any) -> Any:
    """Numbers and lists as JSON has them, to six digits."""
    if isinstance(value, (str, bool, np.bool_)):
        return bool(value) if not isinstance(value, str) else value
    try:
        listed = np.asarray(value, float)
    except OverflowError:  # an integer that no float holds
        raise BadValue("a claim's number must be below 1.8e308, but got a longer one") from None
    except (TypeError, ValueError):
        raise BadValue(f"a claim's value is a number, a list of numbers or text, but got {value!r}") from None
    require(bool(np.all(np.isfinite(listed))), "a claim's number must be finite", ours=str(value)[:60])
    rounded = np.vectorize(lambda x: float(f"{x:.6g}"))(listed) if listed.size else listed
    return rounded.tolist()


def run_entry(entry: dict[str, Any], where: str) -> dict[str, Any]:
    """The quantities of one run, by name: its axes, and what was found over them."""
    if "file" in entry:
        from strata.validation.accuracy.study_errors import run_measured

        return run_measured(entry, where, shipped_folder("validation"))
    if "generate" in entry:
        return dict(needed_model("study sweeps", "generate")(entry, where))
    if "model" in entry:
        return _sweep(entry, where)
    if "chip" in entry:
        return _chip(entry, where)
    raise BadValue(
        f"{where} must have a model and a system, a chip, a file of measurements, a space, generate, or "
        f"one of {', '.join(paper_offers('study runs'))}"
    )


def _sweep(entry: dict[str, Any], where: str) -> dict[str, Any]:
    reading.known_keys(entry, SWEEP_KEYS, where)
    settings: dict[str, Any] = {"metric": "tokens_per_s"}
    settings |= {key: entry[key] for key in SWEEP_SETTINGS if key in entry}
    settings |= {key: float(entry[key]) for key in ("batch", "input", "output") if key in entry}
    changes = list(entry.get("set", []))
    swept = sweep(entry["system"], entry["model"], list(entry["vary"]), changes=changes, **settings)
    values = {k: swept.metric_values(k) for k in METRICS}
    values |= {"fits": swept.fits, "reason": swept.of(lambda r: r.reason)}
    values |= {"bound_by": swept.of(lambda r: r.bound_by)}
    values |= {"plans": np.array([swept.plan_of(i) for i in np.ndindex(*swept.shape)]).reshape(swept.shape)}
    values |= {"overlap": swept.of(lambda r: np.asarray(r.summary.overlap, float))}
    levels = dict.fromkeys(level for g in swept.groups for level in g.result.summary.energy)
    # a chip without such a part of the energy of a step spends none
    values |= {level: swept.of(lambda r, k=level: r.summary.energy.get(k, 0.0)) for level in levels}
    return values | {_short(a): a.values for a in swept.axes} | {"axes": [_short(a) for a in swept.axes]}


def _short(axis: SweepAxis) -> str:
    return axis.name.rsplit(".", 1)[-1]


def _chip(entry: dict[str, Any], where: str) -> dict[str, Any]:
    """Quantities of a chip as some of them vary, by the end of their paths, and what follows from them."""
    reading.known_keys(entry, CHIP_KEYS, where)
    base = chip(entry["chip"])
    units = {path: meta["unit"] for path, meta in leaf_paths(base).items()}
    axes = [parse_axis(text, units, {}) for text in entry["vary"]]
    shaped = {
        a.name: a.values.reshape([-1 if i == j else 1 for j in range(len(axes))]) for i, a in enumerate(axes)
    }
    given = dict(item.split("=", 1) for item in entry.get("set", []))
    # A quantity that follows another axis, like connected layers that are half of all layers.
    shorts = {_short(a): shaped[a.name] for a in axes}
    followed = {path: calculate(text, shorts, where) for path, text in entry.get("let", {}).items()}
    varied = chip(entry["chip"], **given, **shaped, **followed)
    shape = np.broadcast_shapes(*(v.shape for v in shaped.values()))
    own = {_short(a): a.values for a in axes} | {"axes": [_short(a) for a in axes]}
    return chip_readings(varied, shape) | own


def chip_readings(chip: Chip, shape: tuple[int, ...]) -> dict[str, Any]:
    """Everything a claim may ask of a chip, over a box."""
    values = {path.replace(".", "_"): value_at(chip, path) for path in leaf_paths(chip)}
    values |= {name: read(chip) for name, read in READINGS.items()}
    return {
        name: np.broadcast_to(np.asarray(value, float), shape)
        for name, value in values.items()
        if value is not None
    }


def stored_result(named: Study) -> dict[str, Any] | None:
    """What a study found when it was last written down, or None."""
    path = named.folder / "result.json"
    if not path.exists():
        return None
    found = reading.json_file(path)
    require(isinstance(found, dict), f"{path} must hold an object, as strata study --write leaves it")
    return dict(found)


def store_result(outcome: StudyOutcome) -> Path:
    """Keep what a study found in its folder, unless that belongs to the installed package."""
    require(
        not is_packed(outcome.study.folder),
        "a study of the installed package is read only: copy its folder and give the copy's path",
        study=outcome.study.name,
    )
    path = outcome.study.folder / "result.json"
    path.write_text(json.dumps(outcome.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


RUN_TEXTS = ("name", "model", "system", "phase", "plan", "engine", "weights", "kv", "metric", "where", "chip")
RUN_NUMBERS = ("batch", "input", "output", "devices")
# Runs that read their keys in their own way.
OWN_KINDS = ("space", "technology", "upgrades", "published", "file")


def study_table(folder: Path) -> dict[str, Any]:
    """The table of a study's file."""
    table, at = read_toml(folder / "study.toml"), f"{folder.name}/study.toml"
    for key in ("title", "paper", "run", "claim"):
        require(key in table, f"{at} needs title, paper, [[run]] and [[claim]]", missing=key)
    for key in ("title", "paper"):
        reading.text_of(table, key, at)
    kinds = (*OWN_KINDS, *paper_offers("study runs", folder))
    for entry in reading.tables_of(table, "run", at):
        require("name" in entry, f"{folder.name}: every run has a name", run=str(entry)[:60])
        where = f"{at}: run {reading.text_of(entry, 'name', at)}"
        if not any(key in entry for key in kinds):
            _check_run(entry, where)
    for claim in reading.tables_of(table, "claim", at):
        check_claim(claim, at)
    for key in ("run", "claim"):
        require(bool(table[key]), f"{at} has at least one [[{key}]]")
    return table


def _check_run(entry: dict[str, Any], where: str) -> None:
    """Keys of sweeps of models and chips hold what they should."""
    for key in RUN_TEXTS:
        if key in entry:
            reading.text_of(entry, key, where, "")
    for key in RUN_NUMBERS:
        if key in entry:
            reading.number_of(entry, key, where)
    for key in ("vary", "set"):
        if key in entry:
            reading.texts_of(entry, key, where)
    for key in ("orders", "gains"):
        reading.flag_of(entry, key, where)
    for key, text in reading.table_of(entry, "let", where).items():
        if not isinstance(text, int | float):
            reading.text_of({key: text}, key, f"{where}: let")


def check_claim(claim: dict[str, Any], where: str) -> None:
    """A claim has its texts."""
    for key in ("id", "says", "ours", "holds"):
        about = {"claim": claim.get("id", "?"), "missing": key}
        require(key in claim, f"{where}: every claim has id, says, ours and holds", **about)
        reading.text_of(claim, key, f"{where}: claim {claim.get('id', '?')}")
    reading.text_of(claim, "note", f"{where}: claim {claim['id']}", "")
