"""What there is: names with titles, for lists to choose from; and a first question that warms a worker."""

from __future__ import annotations

from typing import Any

from strata.app.render.catalogue import catalogue
from strata.app.web.questions import answers

CHOSEN = (
    "models",
    "programs",
    "chips",
    "systems",
    "fabrics",
    "engines",
    "technologies",
    "templates",
    "budgets",
)


@answers("catalogue", "Names and titles of what is shipped")
def shipped_names(_: dict[str, Any]) -> dict[str, Any]:
    """Names and titles by kind, and precisions."""
    return {kind: catalogue(kind)[kind] for kind in (*CHOSEN, "precisions")}


def warm(_: dict[str, Any]) -> dict[str, Any]:
    """Ask what the start page asks, so that a worker has read its modules and data before anybody waits."""
    from strata.app.web.answers.what_if import predicted

    predicted({})
    return {}
