"""Which config a model's name means: shipped names, aliases, names as on the Hugging Face Hub, and files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from strata.adapters.huggingface.keys import one_line
from strata.errors import BadFile, BadValue, UnknownName
from strata.params import dashed, data_folder, meant, names, read_toml
from strata.precision import BYTES

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


def hub_name(name: str) -> tuple[str, dict[str, Any]]:
    """The shipped model that a name means, and the format that its ending says its weights are stored in.

    Owner, case, spaces or dashes, and endings such as -Instruct, -it, -Base or a date do not matter; -FP8,
    -NVFP4 or -AWQ says the format.

    >>> hub_name("meta-llama/Llama-3.1-70B-Instruct")
    ('llama-3.1-70b', {})
    >>> hub_name("Qwen/Qwen3-235B-A22B-FP8")
    ('qwen3-235b-a22b', {'weights': 'fp8_block', 'weight_only': False})
    """
    wanted = name.strip().lower()
    if wanted in names("models"):
        return wanted, {}
    owner, _, bare = wanted.rpartition("/")
    words = read_toml(data_folder("configs") / "names.toml")
    sized, format = _format(dashed(bare), words)
    undated = "-".join(word for word in sized.split("-") if not DATE.fullmatch(word))
    shipped = next(filter(None, (meant("models", spoken) for spoken in (bare, sized, undated))), "")
    if not shipped:
        raise UnknownName("model", _label(name), names("models"), "strata list models")
    return shipped, _stored(format, owner or _publisher(shipped), words)


def _format(bare: str, words: dict[str, Any]) -> tuple[str, str]:
    """A name without the words that say a format, and the first of those words."""
    first, *rest = bare.split("-")
    formats = [word for word in rest if words["formats"].get(word) in BYTES]
    return "-".join([first, *(word for word in rest if word not in formats)]), formats[0] if formats else ""


def _stored(format: str, owner: str, words: dict[str, Any]) -> dict[str, Any]:
    """How weights are stored, by the word of a name that says so and who stored them."""
    if not format:
        return {}
    weights = words["owners"].get(owner, "fp8_block") if format == "fp8" else words["formats"][format]
    return {"weights": weights, "weight_only": format in words["weight_only"]["formats"]}


def _publisher(shipped: str) -> str:
    """Who published a model: the owner in the first of its names that has one."""
    aliases = read_json(data_folder("models") / f"{shipped}.json")["_strata"].get("aliases", [])
    return next((alias.rpartition("/")[0] for alias in aliases if "/" in alias), "")


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
