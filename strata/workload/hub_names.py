"""Which config a model's name means: shipped names, aliases, names as on the Hugging Face Hub, and files."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from strata.errors import BadFile, BadValue, UnknownName
from strata.params import data_folder, names, read_toml
from strata.precision import BYTES
from strata.workload.config_keys import one_line

DATE = re.compile(r"\d{4}|\d{6}|v\d+(\.\d+)*")


def find_config(name: str | Path | dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The config of a model and what to call it: a shipped name, a path, or the dict itself."""
    if isinstance(name, dict):
        return name, _label(name.get("_name_or_path") or name.get("model_type") or "model")
    if not isinstance(name, str | Path) or not str(name).strip():
        raise BadValue(f"a model is a name, a path of a config.json or its dict, but got {name!r:.60}")
    path = _file(name)
    if path is not None:
        return read_json(path), _label(path.parent.name if path.name == "config.json" else path.stem)
    shipped, stored = hub_name(str(name))
    config = read_json(data_folder("models") / f"{shipped}.json")
    if stored:
        config = {**config, "quantization_config": None, "_strata": {**config["_strata"], **stored}}
    return config, shipped


def _label(said: Any) -> str:
    """What to call a model: one line."""
    return one_line(said) or "model"


def _file(name: str | Path) -> Path | None:
    """The file that a name means, where it is one."""
    path = Path(name)
    try:
        folder = path.is_dir()
        path = path / "config.json" if folder else path
        there = path.is_file()
    except (OSError, ValueError):  # no name of a file at all
        folder = there = False
    if there:
        return path
    if folder:
        raise BadFile(f"no model file at {_label(path)}")
    if str(name).endswith(".json"):
        raise BadFile(f"no model file at {_label(name)}")
    return None


@lru_cache(maxsize=1)
def _spoken() -> tuple[dict[str, str], dict[str, Any]]:
    """Every shipped name and alias in lower case with the file it means; and what words of names mean."""
    known: dict[str, str] = {}
    for shipped in names("models"):
        facts = read_json(data_folder("models") / f"{shipped}.json").get("_strata", {})
        known |= {str(alias).lower(): shipped for alias in facts.get("aliases", [])}
        known[shipped.lower()] = shipped
    return known, read_toml(data_folder("configs") / "names.toml")


def hub_name(name: str) -> tuple[str, dict[str, Any]]:
    """The shipped model that a name means, and the format that its ending says its weights are stored in.

    Owner, case and endings such as -Instruct, -it, -Base or a date do not matter; -FP8, -NVFP4 or -AWQ says
    the format.

    >>> hub_name("meta-llama/Llama-3.1-70B-Instruct")
    ('llama-3.1-70b', {})
    >>> hub_name("Qwen/Qwen3-235B-A22B-FP8")
    ('qwen3-235b-a22b', {'weights': 'fp8_block', 'weight_only': False})
    """
    wanted = name.strip().lower()
    if wanted in names("models"):
        return wanted, {}
    known, words = _spoken()
    owner, _, bare = wanted.rpartition("/")
    said, format = _format(bare, words)
    exact = next((known[k] for k in (wanted, bare, said) if k in known), None)
    found = {exact} if exact else _same(said, words)
    if len(found) == 1:
        shipped = found.pop()
        return shipped, _stored(format, owner or _publisher(shipped), words)
    if found:
        raise BadValue(f"'{_label(name)}' may mean {', '.join(sorted(found))}; say which")
    raise UnknownName("model", _label(name), names("models"), "strata list models")


def _format(bare: str, words: dict[str, Any]) -> tuple[str, str]:
    """A name without the words that say a format, and the first of those words."""
    first, *rest = bare.split("-")
    said = [p for p in rest if words["formats"].get(p) in BYTES]
    return "-".join([first, *(p for p in rest if p not in said)]), said[0] if said else ""


def _stored(format: str, owner: str, words: dict[str, Any]) -> dict[str, Any]:
    """How weights are stored, by the word of a name that says so and who stored them."""
    if not format:
        return {}
    weights = words["owners"].get(owner, "fp8_block") if format == "fp8" else words["formats"][format]
    return {"weights": weights, "weight_only": format in words["weight_only"]["formats"]}


def _publisher(shipped: str) -> str:
    """Who published a model: the owner in the first of its names that has one."""
    owners = (name.rpartition("/")[0] for name, file in _spoken()[0].items() if file == shipped)
    return next((owner for owner in owners if owner), "")


@lru_cache(maxsize=1)
def _plain_names() -> dict[str, set[str]]:
    known, words = _spoken()
    found: dict[str, set[str]] = {}
    for spoken, shipped in known.items():
        bare = _format(spoken.rpartition("/")[2], words)[0]
        found.setdefault(_plain(bare, words, dates=False), set()).add(shipped)
    return found


def _plain(bare: str, words: dict[str, Any], dates: bool) -> str:
    """A name without words that change no size."""
    first, *rest = re.split(r"[-_]", bare)
    head = [] if first in words["same"] and rest else [first]
    kept = [w for w in rest if w not in words["same"] and not (dates and DATE.fullmatch(w))]
    return "-".join([*head, *kept])


def _same(bare: str, words: dict[str, Any]) -> set[str]:
    """Shipped models whose name is this one but for words that change no size, and then for a date."""
    for dates in (False, True):
        plain = _plain(bare, words, dates)
        found = _plain_names().get(plain, set())
        if found:
            return {plain} if plain in found else set(found)
    return set()


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadFile(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path.name} is not JSON: {_label(error)}") from None
    if not isinstance(config, dict):
        raise BadFile(f"{path.name} must hold an object, as Hugging Face's config.json does")
    return config
