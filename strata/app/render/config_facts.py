"""What `strata show model` and predictions say of a config: keys that were not read, parts that are not
timed.
"""

from __future__ import annotations

from typing import Any

from strata.errors import StrataError
from strata.units import show
from strata.workload.config import reading
from strata.workload.hub_names import find_config
from strata.workload.vision import read_tower

NOT_TIMED = "counted from vision_config; neither timed nor in the memory of a prediction"


def config_facts(name: str) -> tuple[dict[str, Any], dict[str, tuple[float, str, str]]]:
    """Family, unread keys and simplifications of a model's config; and the numbers of its vision tower."""
    config, label = find_config(name)
    read = reading(config, label)
    tower, numbers = read_tower(config, label), {}
    if tower is not None:
        count, work = tower.parameters, tower.flop
        numbers["vision.parameters"] = (count, f"{count:,.0f}", NOT_TIMED)
        if work:
            numbers["vision.flop_of_an_image"] = (work, show(work, "FLOP"), NOT_TIMED)
    facts = {"family": read.family, "unread": list(read.unread), "simplified": read.note}
    return facts, numbers


def unread_text(described: dict[str, Any]) -> str:
    """The line on keys that were not read, where there are any."""
    unread = described.get("unread") or []
    return "not read from the config: " + ", ".join(unread) if unread else ""


def config_warning(name: str) -> list[str]:
    """One line where keys of a model's config that look like sizes were not read."""
    try:
        said = reading(*find_config(name)).warning
    except StrataError:  # a program that is no model
        return []
    return [said] if said else []
