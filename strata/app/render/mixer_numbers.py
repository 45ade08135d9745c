"""What `strata show model` says of layers that keep a state, and of the order of layers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

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
