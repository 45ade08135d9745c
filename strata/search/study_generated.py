"""The chip that an entry of a study generates."""

from __future__ import annotations

from typing import Any

from strata.errors import require
from strata.hardware.chip import Chip
from strata.hardware.generate.recipe import generate


def recipe_of(entry: dict[str, Any], where: str) -> tuple[Any, Any, Any]:
    """Technology, budget and template of an entry's `generate`."""
    recipe = entry["generate"]
    for key in ("technology", "budget", "template"):
        require(key in recipe, f"{where}: generate has technology, budget and template", missing=key)
    return recipe["technology"], recipe["budget"], recipe["template"]


def generated_chip(entry: dict[str, Any], where: str) -> Chip:
    """The chip of an entry's `generate` (technology, budget and template) and `device`, with numbers `set` as
    by `strata generate --set`.
    """
    changes = dict(item.split("=", 1) for item in entry.get("set", []))
    return generate(*recipe_of(entry, where), device=entry.get("device"), **changes)
