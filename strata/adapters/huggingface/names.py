"""Which config a model's name means, and which architectures are read and which refused, by `model_type`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from strata.adapters.huggingface.keys import ConfigKeys, one_line
from strata.base.errors import BadFile, BadValue, UnknownName, nearest
from strata.base.precision import BYTES
from strata.params import dashed, data_folder, meant, names, read_toml


@dataclass(frozen=True, kw_only=True)
class ConfigFamily:
    """What a family's sizes alone do not say; data/configs/families.toml explains each field."""

    name: str
    has: tuple[str, ...] = ()
    no_flags: tuple[str, ...] = ()
    tied: bool = False
    gated: bool = True
    window: str = "none"
    attention: str = ""  # compressed; else by the sizes that are stated
    index_format: str = "fp8"  # of keys that sparse attention scores
    reads: tuple[str, ...] = ()  # keys that change the layers of others, which this family has
    wide_ffn: bool = False
    same_expert: bool = False  # the shared expert is as wide as a routed one
    same_width: tuple[str, ...] = ()  # keys that must say the model's own width
    mixer: str = ""  # kind of the layers that keep a state
    layers: str = ""  # how a config says which those are, where not by layer_types
    inner_norms: bool = False
    shared_is_dense: bool = False  # without experts the shared feed-forward is the only one
    note: str = ""
    by_key: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    true: tuple[str, ...] = ()  # flags that are set unless stated
    defaults: Mapping[str, int] = field(default_factory=dict)


class NotModelled(BadFile):
    """An architecture that is refused by name, with what would be needed."""


@lru_cache(maxsize=1)
def _family_table() -> dict[str, Any]:
    return read_toml(data_folder("configs") / "families.toml")


@lru_cache(maxsize=1)
def families() -> dict[str, ConfigFamily]:
    """Every architecture that is read, by model_type."""
    table = _family_table()
    common = table["by_key"]["all"]
    return {name: _family(name, table["family"], common) for name in table["family"]}


def _family(name: str, entries: Mapping[str, Any], common: Mapping[str, list[str]]) -> ConfigFamily:
    entry: dict[str, Any] = dict(entries[name])
    while "same_as" in entry:
        entry = {**entries[entry.pop("same_as")], **entry}
    by_key = {**common, **entry.pop("by_key", {})}
    made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    made["true"] = tuple(k for k, on in entry.get("true", {}).items() if on)
    made["defaults"] = {k: v["value"] for k, v in entry.get("defaults", {}).items()}
    return ConfigFamily(name=name, by_key={k: tuple(v) for k, v in by_key.items()}, **made)


@lru_cache(maxsize=1)
def refusals() -> dict[str, str]:
    """Why each architecture that is known and not modelled is refused, by model_type."""
    table = read_toml(data_folder("configs") / "refused.toml")
    return {kind: table["reasons"][why] for why, kinds in table["model_type"].items() for kind in kinds}


@lru_cache(maxsize=1)
def wrappers() -> frozenset[str]:
    """Model types that hold a text decoder beside other parts."""
    return frozenset(_family_table()["wrappers"]["model_type"])


def family_of(keys: ConfigKeys) -> ConfigFamily:
    """The family of a config; one that is not modelled is refused by name.

    `_strata.as` names the family to read a config as, on the user's own word.
    """
    facts = keys.raw.get("_strata")
    told = facts.get("as") if isinstance(facts, Mapping) else None
    if told is not None:
        if not isinstance(told, str) or told not in families():
            raise UnknownName("family of models", one_line(told), families(), "docs/models.md")
        return families()[told]
    inside = f"{keys.outer}_text"  # a decoder that says no model_type of its own
    kind = one_line(keys.told.get("model_type", "")) or (inside if inside in families() else _by_class(keys))
    for name in (keys.outer, kind):
        if name and name not in families() and name not in wrappers() and name in refusals():
            raise NotModelled(f"{keys.label}: '{name}' is not modelled: {refusals()[name]}")
    if "_class_name" in keys.raw:
        raise NotModelled(f"{keys.label}: a pipeline of diffusers is not modelled: {refusals()['unet']}")
    if keys.flag("is_encoder_decoder") or keys.raw.get("is_encoder_decoder") is True:
        raise NotModelled(f"{keys.label}: '{kind}' is not modelled: {refusals()['t5']}")
    if kind not in families():
        close = nearest(kind, families()) if kind else []
        near = f"; nearest: {', '.join(close)}" if close else ""
        said = f"model_type '{kind}' is not known" if kind else "config.json has no 'model_type'"
        raise NotModelled(
            f"{keys.label}: {said}{near}; needed: an entry in data/configs/families.toml, or "
            '"_strata": {"as": FAMILY} where its layers are those of a known family'
        )
    if keys.outer and keys.outer != kind and keys.outer not in wrappers():
        raise NotModelled(
            f"{keys.label}: model_type '{keys.outer}' around '{kind}' is not known; needed: what it "
            "adds to the decoder"
        )
    changing = _family_table()["keys"]  # the layers themselves, and how
    for key in sorted(keys.raw.keys() & changing.keys() - set(families()[kind].reads)):
        if keys.raw[key] not in (None, False, 0, 1, [], {}, ""):
            raise NotModelled(f"{keys.label}: '{key}' is not modelled: {changing[key]}")
    return families()[kind]


def _by_class(keys: ConfigKeys) -> str:
    """The model_type that the class of the weights says, where none is stated: LlamaForCausalLM, llama."""
    listed = keys.raw.get("architectures")
    if not (isinstance(listed, list) and listed and isinstance(listed[0], str)):
        return ""
    wanted = one_line(listed[0]).split("For")[0].removesuffix("LMHeadModel").removesuffix("Model").lower()
    plain = {name.replace("_", ""): name for name in (*families(), *refusals())}
    return plain.get(wanted, wanted)


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
