"""Upgrades as runs of a study: a file of recipes and work, a file of spans, what each upgrade is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.errors import UnknownName, require
from strata.params import read_toml
from strata.search.recipes import PARTS, MadeSystem, SystemRecipe
from strata.search.spans import read_spans
from strata.search.upgrade_work import UpgradeWork, upgrade_work
from strata.search.upgrades import GAINS, UpgradeValues, upgrade_values

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


def run_upgrades(entry: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """What a claim may ask of a run of upgrades.

    Each upgrade is a number by its name. `WORK_GAIN` (like `serve_dollar`) are gains over the base by upgrade
    and sample; with `_median`, `_low`, `_high` (10 and 90 %), `_best` and `_pays` (shares of samples) they
    are by upgrade. `base_...` are quantities of the base at its stated numbers.
    """
    for key in entry:
        if key not in ("name", *UPGRADE_KEYS):
            raise UnknownName(f"key of {where}", key, UPGRADE_KEYS, ", ".join(UPGRADE_KEYS))
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
            median, low, high = found.quantiles(work, gain)
            name = f"{work}_{gain}"
            told |= {name: found.gains[work][gain], f"{name}_median": median, f"{name}_low": low}
            told |= {f"{name}_high": high, f"{name}_best": found.best(work, gain)}
            told |= {f"{name}_pays": found.pays(work, gain)}
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
            rows = zip(
                found.upgrades,
                *found.quantiles(work, gain),
                found.best(work, gain),
                found.pays(work, gain),
                strict=True,
            )
            table[f"{work}_{gain}"] = {
                upgrade.name: dict(
                    zip(("median", "low", "high", "best", "pays"), map(_short, numbers), strict=True)
                )
                for upgrade, *numbers in rows
            }
            table[f"{work}_{gain}_moved_by"] = {n: _short(r) for n, r in found.movers(work, gain)}
    return table


def _short(value: Any) -> float:
    return round(float(value), 3)
