"""Looking for better points: plans, sweeps, spaces and samplers. As `st.search`: its public names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strata.search.goal import Goal, goal
    from strata.search.outcome import SearchOutcome
    from strata.search.plan_for import PlanRanking, plan_for
    from strata.search.plans import best_plans
    from strata.search.run import Search, search
    from strata.search.sensitivity import sensitivity
    from strata.search.space import Space, space
    from strata.search.sweep import Sweep, sweep

_HOME = {
    "Goal": "strata.search.goal",
    "goal": "strata.search.goal",
    "SearchOutcome": "strata.search.outcome",
    "PlanRanking": "strata.search.plan_for",
    "plan_for": "strata.search.plan_for",
    "best_plans": "strata.search.plans",
    "Search": "strata.search.run",
    "search": "strata.search.run",
    "sensitivity": "strata.search.sensitivity",
    "Space": "strata.search.space",
    "space": "strata.search.space",
    "Sweep": "strata.search.sweep",
    "sweep": "strata.search.sweep",
}
__all__ = [
    "Goal",
    "PlanRanking",
    "Search",
    "SearchOutcome",
    "Space",
    "Sweep",
    "best_plans",
    "goal",
    "plan_for",
    "search",
    "sensitivity",
    "space",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
