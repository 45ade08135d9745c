"""Which config a model's name means: shipped names, their aliases, and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from strata.errors import BadFile, UnknownName
from strata.params import data_folder, names


def find_config(name: str | Path | dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The config of a model and what to call it: a shipped name, a path, or the dict itself."""
    if isinstance(name, dict):
        return name, str(name.get("_name_or_path") or name.get("model_type", "model"))
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" or path.exists():
        if not path.exists():
            raise BadFile(f"no model file at {path}")
        return _read_json(path), path.parent.name if path.name == "config.json" else path.stem
    wanted = str(name).lower()
    if wanted not in names("models"):
        wanted = _alias(wanted)
    return _read_json(data_folder("models") / f"{wanted}.json"), wanted


def _alias(wanted: str) -> str:
    known = [n for n in names("models") if n != "README"]
    for candidate in known:
        if wanted in _read_json(data_folder("models") / f"{candidate}.json").get("_strata", {}).get(
            "aliases", []
        ):
            return candidate
    raise UnknownName("model", wanted, known, "strata list models")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"{path.name} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise BadFile(f"{path.name} must hold an object, as Hugging Face's config.json does")
    return config
