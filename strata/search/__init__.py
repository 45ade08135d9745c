"""Looking for better points: plans, sweeps, spaces and samplers. As `st.search`: its public names."""

from typing import TYPE_CHECKING

from strata.base.lazy import load_on_first_use

if TYPE_CHECKING:
    from strata.search.compare import Comparison, compare
    from strata.search.compared_rows import ComparedRow
    from strata.search.goal import Goal, goal
    from strata.search.outcome import SearchOutcome
    from strata.search.plan_for import PlanRanking, plan_for
    from strata.search.plans import best_plans, best_strategies, price_strategies
    from strata.search.power_caps import PowerCaps, power_caps
    from strata.search.run import Search, search
    from strata.search.sensitivity import sensitivity
    from strata.search.space import Space, space
    from strata.search.sweep import sweep
    from strata.search.swept import Sweep
    from strata.search.what_if import WhatIf, what_if

__all__ = [
    "ComparedRow",
    "Comparison",
    "Goal",
    "PlanRanking",
    "PowerCaps",
    "Search",
    "SearchOutcome",
    "Space",
    "Sweep",
    "WhatIf",
    "best_plans",
    "best_strategies",
    "compare",
    "goal",
    "plan_for",
    "power_caps",
    "price_strategies",
    "search",
    "sensitivity",
    "space",
    "sweep",
    "what_if",
]
load_on_first_use(__name__)
