"""upgrade_values(): what one better part of a generated system is worth for a dollar and for a watt, with the
spans of assumed numbers carried through.

A recipe names the parts a system is made of; an upgrade replaces one of them. Every number is drawn within
its span, the same for all recipes, as one axis of generate and evaluate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from strata.arrays import Array
from strata.errors import require
from strata.search.recipes import MadeSystem, SystemRecipe, made_system
from strata.search.spans import Draws, SpanTable, spearman
from strata.search.upgrade_work import UpgradeWork, plans_by_size, spent_by

GAINS = ("speed", "dollar", "watt")


@dataclass(frozen=True, eq=False, kw_only=True)
class UpgradeValues:
    """What upgrades are worth: for each workload and each of `GAINS`, time, dollars and joules of a token of
    the base over those of an upgrade, by upgrade and sample.
    """

    base: SystemRecipe
    upgrades: tuple[SystemRecipe, ...]
    works: tuple[str, ...]
    gains: dict[str, dict[str, Array]]
    stated: dict[str, MadeSystem]  # at stated numbers, by name
    draws: Draws

    def quantiles(self, work: str, gain: str) -> Array:
        """Median, and the tenth and ninetieth hundredth, by upgrade."""
        found: Array = np.quantile(self.gains[work][gain], [0.5, 0.1, 0.9], axis=1)
        return found

    def best(self, work: str, gain: str) -> Array:
        """Share of samples in which each upgrade gains the most."""
        first = np.argmax(self.gains[work][gain], axis=0)
        return np.bincount(first, minlength=len(self.upgrades)) / first.size

    def pays(self, work: str, gain: str) -> Array:
        """Share of samples in which each upgrade gains at all."""
        found: Array = np.mean(self.gains[work][gain] > 1.0, axis=1)
        return found

    def movers(self, work: str, gain: str, count: int = 5) -> list[tuple[str, float]]:
        """The numbers that move the lead of the best upgrade over the next one of another kind most, by rank
        correlation.
        """
        values = np.maximum(self.gains[work][gain], 1e-3)
        order = [int(i) for i in np.argsort(-np.median(values, axis=1))]
        first = self.upgrades[order[0]]
        other = next(
            i for i in [*order[1:], order[0]] if self.upgrades[i].kind != first.kind or i == order[0]
        )
        lead = np.log(values[order[0]]) - np.log(values[other])
        found = [(name, spearman(u, lead)) for name, u in self.draws.drawn.items()]
        return sorted(found, key=lambda pair: -abs(pair[1]))[:count]


def upgrade_values(
    base: SystemRecipe,
    upgrades: Sequence[SystemRecipe],
    works: Sequence[UpgradeWork],
    *,
    spans: SpanTable,
    samples: int = 256,
    seed: int = 0,
    mixes: Mapping[str, Mapping[str, float]] | None = None,
) -> UpgradeValues:
    """Gains of each upgrade over the base on each workload, and on mixes of them (tokens by workload), in
    speed, for a dollar and for a watt.

    Dollars are those of owning and running the system for the time of a token, watts those of its devices and
    hosts. Each sample takes the quickest of a few plans; all recipes see the same draws. Samples in which the
    base cannot be built, or does not do all the work, are left out.
    """
    draws = Draws(samples=samples, seed=seed)
    recipes = (base, *upgrades)
    stated = {recipe.name: made_system(recipe) for recipe in recipes}
    sampled = [made_system(recipe, base, spans, draws) for recipe in recipes]
    spent: dict[str, dict[str, Array]] = {}
    for work in works:
        chosen = plans_by_size(work, list(stated.values()))
        rows = [spent_by(made, work, chosen[made.recipe.packages], samples).best() for made in sampled]
        spent[work.name] = {gain: np.stack([getattr(row, gain) for row in rows]) for gain in GAINS}
    for name, tokens in (mixes or {}).items():
        spent[name] = {
            gain: np.sum([n * spent[work][gain] for work, n in tokens.items()], axis=0) for gain in GAINS
        }
    works_out = np.all([np.isfinite(of["speed"][0]) for of in spent.values()], axis=0)
    require(
        bool(2 * works_out.sum() > samples),
        "the base cannot be built or does not do the work in half of the samples: take narrower spans",
        out=f"{int(samples - works_out.sum())} of {samples}",
    )
    return UpgradeValues(
        base=base,
        upgrades=tuple(upgrades),
        works=tuple(spent),
        gains={
            work: {gain: v[0, works_out] / v[1:, works_out] for gain, v in of.items()}
            for work, of in spent.items()
        },
        stated=stated,
        draws=draws.kept(works_out),
    )
