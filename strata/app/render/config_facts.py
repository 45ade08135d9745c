"""What `strata show model` and predictions say of a config: keys that were not read, parts
that are not timed, kinds of layers.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from strata.adapters.huggingface.config import reading
from strata.adapters.huggingface.names import find_config
from strata.errors import StrataError
from strata.result import Result
from strata.units import show
from strata.workload.model import Model


def mixer_numbers(record: Model, config: str) -> dict[str, tuple[Any, str, str]]:
    """Sizes of the layers that keep a state, and the bytes of one sequence's states in all of them."""
    mixer = record.mixer
    if mixer is None:
        return {}
    layers = sum((record.pattern.total(0, kind) for kind in ("linear", "parallel")), 0.0)
    held = float(layers * mixer.state_bytes(record.activations))
    found: dict[str, tuple[Any, str, str]] = {
        "state of a sequence": (held, show(held, "B"), "counted: Mixer.state_bytes of all layers")
    }
    for f in fields(mixer):
        value = getattr(mixer, f.name)
        if value not in (0.0, False, ""):
            shown = f"{value:g}" if isinstance(value, float) else str(value).lower()
            found[f"mixer.{f.name}"] = (value, shown, config)
    return found


def layer_kinds(period: tuple[tuple[str, str], ...]) -> str:
    """Kinds of layers in order, those of one kind in a row counted.

    >>> layer_kinds((("linear", "moe"),) * 3 + (("full", "moe"),))
    '3 x linear/moe full/moe'
    """
    runs: list[list[Any]] = []
    for kind in ("/".join(k) for k in period):
        if runs and runs[-1][1] == kind:
            runs[-1][0] += 1
        else:
            runs.append([1, kind])
    return " ".join(f"{count} x {kind}" if count > 1 else kind for count, kind in runs)


NOT_TIMED = "counted from vision_config; in memory, not timed"


def config_facts(name: str) -> tuple[dict[str, Any], dict[str, tuple[float, str, str]]]:
    """Family, unread keys and simplifications of a model's config; and the numbers of its vision tower."""
    config, label = find_config(name)
    read = reading(config, label)
    numbers = {}
    if read.model.vision_tower:
        count, work = float(read.model.tower_parameters), float(read.model.tower_flop)
        numbers["tower_parameters"] = (count, f"{count:,.0f}", NOT_TIMED)
        if work:
            numbers["tower_flop"] = (work, f"{show(work, 'FLOP')} an image", NOT_TIMED)
    facts = {"family": read.family, "unread": list(read.unread), "simplified": read.note}
    return facts, numbers


def _tower_note(model: Any) -> list[str]:
    """One line where a vision tower lies in memory and its images are not timed."""
    if not getattr(model, "vision_tower", False):
        return []
    work = float(model.tower_flop)
    each = f"; {show(work, 'FLOP')} an image" if work else ""
    return [f"images are not timed{each}; text alone: --set model.vision_tower=false"]


def unread_text(described: dict[str, Any]) -> str:
    """The line on keys that were not read, where there are any."""
    unread = described.get("unread") or []
    return "not read from the config: " + ", ".join(unread) if unread else ""


def config_notes(name: str, result: Result) -> list[str]:
    """Lines where keys of a model's config that look like sizes were not read, and of its vision tower."""
    try:
        said = reading(*find_config(name)).warning
    except StrataError:  # a program that is no model
        said = ""
    return [*([said] if said else []), *_tower_note(result.program)]
