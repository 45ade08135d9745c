"""Which architectures are read and which are refused, by the `model_type` of a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from strata.adapters.huggingface.keys import ConfigKeys, one_line
from strata.errors import BadFile, UnknownName, nearest
from strata.params import data_folder, read_toml


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
def refused_keys() -> dict[str, str]:
    """Keys that change the layers themselves, and how."""
    return dict(_family_table()["keys"])


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
    for key in sorted(keys.raw.keys() & refused_keys().keys() - set(families()[kind].reads)):
        if keys.raw[key] not in (None, False, 0, 1, [], {}, ""):
            raise NotModelled(f"{keys.label}: '{key}' is not modelled: {refused_keys()[key]}")
    return families()[kind]


def _by_class(keys: ConfigKeys) -> str:
    """The model_type that the class of the weights says, where none is stated: LlamaForCausalLM, llama."""
    listed = keys.raw.get("architectures")
    if not (isinstance(listed, list) and listed and isinstance(listed[0], str)):
        return ""
    wanted = one_line(listed[0]).split("For")[0].removesuffix("LMHeadModel").removesuffix("Model").lower()
    plain = {name.replace("_", ""): name for name in (*families(), *refusals())}
    return plain.get(wanted, wanted)
