"""generate(): a chip from technology, budgets and a template. After DeepFlow's architecture generator, with
what it lacks: highest voltages, ports, leakage, units left out where power is short.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from strata.arrays import Number
from strata.errors import BadValue, Infeasible, require
from strata.hardware.chip import Chip
from strata.hardware.components import LinkPhy, MemoryDevice
from strata.hardware.fabric import Fabric
from strata.hardware.generate.budget import Budget
from strata.hardware.generate.chip_of import chip_of, fabric_of
from strata.hardware.generate.made import Made
from strata.hardware.generate.recipe import changed_recipe, recipe
from strata.hardware.generate.report import binding, fits_budgets, not_fitting, used, worth_of_more
from strata.hardware.generate.template import Template
from strata.hardware.technology import Technology
from strata.params import Sources
from strata.params.written import as_toml, record_table


@dataclass(frozen=True, eq=False, kw_only=True)
class Generation:
    """A generated chip with its counts, what it uses of each budget, and what binds it."""

    made: Made
    chip: Chip
    fits: Number  # 1 where everything needed is there and every budget is kept, else 0

    @cached_property
    def fabric(self) -> Fabric | None:
        """The fabric that its networks make, sizes open."""
        return fabric_of(self.made)

    @cached_property
    def use(self) -> dict[str, dict[str, Number]]:
        """What each component uses of area [m2], power [W] and edge [m], with the budgets' totals."""
        return used(self.made)

    @cached_property
    def binds(self) -> dict[str, str]:
        """What keeps each component from more; of a single chip."""
        return binding(self.made)

    @cached_property
    def infeasible(self) -> tuple[Infeasible, ...]:
        """Why it cannot be built, with what would help; of a single chip."""
        return not_fitting(self.made)

    def worth(self, by: float = 0.01) -> dict[str, dict[str, float]]:
        """What a little more of each budget buys: relative gain of each result, by budget."""
        return worth_of_more(self.made, by)


def generate(
    technology: str | Technology,
    budget: str | Budget,
    template: str | Template,
    *,
    device: str | MemoryDevice | None = None,
    links: Mapping[str, str | LinkPhy] | None = None,
    **changes: Any,
) -> Chip:
    """The chip that a technology, a budget and a template make; refused in one line where a single one cannot
    be built.

    >>> v100 = generate("deepflow-v100", "deepflow-v100", "deepflow-2021")
    >>> round(float(v100.compute.matrix_rate["fp16"]) / 1e12)
    125
    """
    found = generation(technology, budget, template, device=device, links=links, **changes)
    if getattr(found.fits, "ndim", 0) == 0 and isinstance(found.fits, (float, int)) and found.infeasible:
        raise BadValue(f"cannot be built: {found.infeasible[0]}")
    return found.chip


def generation(
    technology: str | Technology,
    budget: str | Budget,
    template: str | Template,
    *,
    device: str | MemoryDevice | None = None,
    links: Mapping[str, str | LinkPhy] | None = None,
    **changes: Any,
) -> Generation:
    """A generated chip with the whole account of it; changes replace quantities of budget, template,
    technology or device by name or path.

    >>> made = generation("deepflow-v100", "deepflow-v100", "deepflow-2021").made
    >>> made.running.core.units, made.built.memory.devices, made.built.levels[2].banks
    (643.0, 4.0, 192.0)
    """
    given, _ = changed_recipe(recipe(technology, budget, template, device=device, links=links), changes)
    made = given.made()
    fits = fits_budgets(made)
    return Generation(made=made, chip=chip_of(made, fits), fits=fits)


def write_chip(found: Generation, path: Path) -> list[Path]:
    """Write a chip's file and, where it has networks of its own, their fabric beside it."""
    require(path.suffix == ".toml", "a chip's file ends in .toml", out=str(path))
    chip, joined = found.chip, found.fabric
    written = [path]
    if joined is not None:
        beside = path.with_name(f"{path.stem}-fabric.toml")
        table = record_table(replace(joined, name=beside.stem), Sources())
        for dimension in table["dimension"]:
            for number in dimension.values():
                if isinstance(number, dict):
                    number["source"] = "derived: lanes that fit, at the voltage that the power allows"
        beside.write_text(as_toml(table), encoding="utf-8")
        written.append(beside)
        chip = replace(chip, fabric=beside.name)
    path.write_text(as_toml(record_table(replace(chip, name=path.stem), chip.sources)), encoding="utf-8")
    return written
