"""Upgrades of a technology and what each is worth, also as runs of a study: a file of recipes and work, a
file of spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import require
from strata.base.reading import known_keys
from strata.params import read_toml
from upgrades.recipes import PARTS, MadeSystem, SystemRecipe, made_system
from upgrades.spans import Draws, SpanTable, read_spans, spearman
from upgrades.work import UpgradeWork, plans_by_size, spent_by, upgrade_work

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

    def figures(self, work: str, gain: str) -> dict[str, Array]:
        """By upgrade: median, tenth (`low`) and ninetieth (`high`) hundredth, `best` and `pays`."""
        quantiles = np.quantile(self.gains[work][gain], [0.5, 0.1, 0.9], axis=1)
        named = dict(zip(("median", "low", "high"), quantiles, strict=True))
        return named | {"best": self.best(work, gain), "pays": self.pays(work, gain)}

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


UPGRADE_KEYS = ("upgrades", "spans", "samples", "seed")


def read_recipes(
    path: Path,
) -> tuple[SystemRecipe, list[SystemRecipe], list[UpgradeWork], dict[str, dict[str, float]]]:
    """The base, its upgrades, the work and the mixes of a file; files it names are looked for beside it."""
    table = read_toml(path)
    for key in ("base", "upgrade", "work"):
        require(key in table, f"{path.name} needs [base], [[upgrade]] and [[work]]", missing=key)
    stated = _beside(table["base"], path.parent)
    empty = SystemRecipe(name="base", title="", parts={})
    base = empty.with_(stated)
    missing = [role for role in PARTS if role not in base.parts]
    require(not missing, f"{path.name}: the base names {', '.join(PARTS)}", missing=", ".join(missing))
    upgrades = [base.with_(_beside(upgrade, path.parent)) for upgrade in table["upgrade"]]
    works = [upgrade_work(**work) for work in table["work"]]
    return base, upgrades, works, table.get("mix", {})


def _beside(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {k: str(folder / v) if k in PARTS and str(v).endswith(".toml") else v for k, v in entry.items()}


def run_upgrades(
    entry: dict[str, Any], where: str, folder: Path, runs: Any = None, known: Any = None
) -> dict[str, Any]:
    """What a claim may ask of a run of upgrades.

    Each upgrade is a number by its name. `WORK_GAIN` (like `serve_dollar`) are gains over the base by upgrade
    and sample; with `_median`, `_low`, `_high` (10 and 90 %), `_best` and `_pays` (shares of samples) they
    are by upgrade. `base_...` are quantities of the base at its stated numbers.
    """
    known_keys(entry, ("name", *UPGRADE_KEYS), where)
    base, upgrades, works, mixes = read_recipes(folder / entry["upgrades"])
    found = upgrade_values(
        base,
        upgrades,
        works,
        spans=read_spans(folder / entry["spans"]),
        samples=int(entry.get("samples", 256)),
        seed=int(entry.get("seed", 0)),
        mixes=mixes,
    )
    told: dict[str, Any] = {upgrade.name: i for i, upgrade in enumerate(upgrades)}
    told |= {"labels": [u.title for u in upgrades], "order": np.arange(len(upgrades)), "axes": ["order"]}
    for work in found.works:
        for gain in GAINS:
            name = f"{work}_{gain}"
            told |= {name: found.gains[work][gain]}
            told |= {f"{name}_{figure}": v for figure, v in found.figures(work, gain).items()}
    return told | _base(found.stated[base.name]) | {"summary": upgrades_summary(found)}


def _base(made: MadeSystem) -> dict[str, float]:
    chip = made.generation.chip
    rates = {f"base_{k}": float(v) for k, v in chip.compute.matrix_rate.items()}
    return rates | {
        "base_bandwidth": float(chip.memory.bandwidth),
        "base_capacity": float(chip.memory.capacity),
        "base_link": float(made.fabric.dimension[0].bandwidth),
        "base_price": float(chip.package.price or 0.0),
    }


def upgrades_summary(found: UpgradeValues) -> dict[str, Any]:
    """Gains of every upgrade on every work as numbers of two or three digits, and the numbers that move each
    lead most.
    """
    table: dict[str, Any] = {"samples": found.draws.samples, "numbers": len(found.draws.drawn)}
    for work in found.works:
        for gain in GAINS:
            figures = found.figures(work, gain)
            table[f"{work}_{gain}"] = {
                upgrade.name: {figure: _short(values[i]) for figure, values in figures.items()}
                for i, upgrade in enumerate(found.upgrades)
            }
            table[f"{work}_{gain}_moved_by"] = {n: _short(r) for n, r in found.movers(work, gain)}
    return table


def _short(value: Any) -> float:
    return round(float(value), 3)
