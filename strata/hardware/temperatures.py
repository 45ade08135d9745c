"""heat(): how warm a chip and the DRAM on it become, layer by layer, and what binds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadFile, BadValue, require
from strata.base.reading import csv_file
from strata.base.records import Infeasible
from strata.base.units import finite_array
from strata.hardware.chip import Chip, as_chip, sustained_memory
from strata.hardware.thermal.cooling import (
    CELLS,
    Cooling,
    assembly,
    check_cooling,
    cooling,
    dram_die,
    power_map,
)
from strata.hardware.thermal.grid import convection_resistance, slab_resistance
from strata.hardware.thermal.solve import Field, History, steady, transient
from strata.params import override

EVEN = 0.25  # share of the middle quarter when power is even
LEVERS = (
    "less power: a lower clock or fewer accesses",
    "fewer layers",
    "a better bond or interface",
    "a cooler or faster coolant",
    "a larger die",
)


@dataclass(frozen=True, kw_only=True)
class Die:
    """One die: its power [W] and temperatures [K]."""

    name: str
    power: float
    hottest: float
    mean: float
    coolest: float
    limit: float


@dataclass(frozen=True)
class Passage:
    """A part of the way heat takes from the lowest die to the coolant."""

    name: str
    resistance: float  # K/W straight through
    power: float  # W that pass it
    rise: float  # K


@dataclass(frozen=True, eq=False, kw_only=True)
class Temperatures:
    """Steady temperatures of a chip, and how they come about."""

    chip: Chip
    cooling: Cooling
    field: Field
    dies: tuple[Die, ...]  # from the coolant down
    path: tuple[Passage, ...]  # from the coolant down; the last is what is not straight through
    history: History | None = None

    @property
    def power(self) -> float:
        return sum(d.power for d in self.dies)

    @property
    def binding(self) -> Die:
        """The die that is nearest to its limit, or farthest above it, for the rise it has."""
        return max(
            self.dies, key=lambda d: (d.hottest - self.cooling.ambient) / (d.limit - self.cooling.ambient)
        )

    @property
    def highest_power(self) -> float:
        """Power at which a die reaches its limit, shared out as it is now [W]."""
        ambient = float(self.cooling.ambient)
        rise = self.binding.hottest - ambient
        return self.power * (self.binding.limit - ambient) / rise if rise > 0 else float("inf")

    @property
    def infeasible(self) -> Infeasible | None:
        die = self.binding
        if die.hottest <= die.limit:
            return None
        return Infeasible(f"temperature of {die.name}", die.hottest, die.limit, "K", LEVERS)


def heat(
    chip: Chip | str,
    power: float | None = None,
    dram_power: float | None = None,
    *,
    layers: int | None = None,
    map: str | Any = "",
    cooled: Cooling | str | None = None,
    cells: int = 32,
    duration: float | None = None,
    steps: int = 100,
    **changes: Any,
) -> Temperatures:
    """Steady temperatures of a chip at a power of its logic and of each DRAM layer [W].

    Left out, DRAM has the power of its sustained bandwidth and logic the rest of the chip's limit. `map` is
    how the power lies on the logic die: "uniform", "hotspot" (the cooling's share in the middle, as when left
    out), or a square of numbers or a CSV file of one. `duration` [s] adds temperatures in time, after the
    power is switched on. Changes go to the cooling: bond_thickness="5 um".

    >>> found = heat("stack-ref", power=60.0, dram_power=5.0, cooled="liquid", cells=8)
    >>> found.binding.name, found.power, found.infeasible is None
    ('dram0', 80.0, True)
    """
    known = as_chip(chip)
    chosen, count = _cooling(known, cooled, changes), _layers(known, layers)
    on_logic, on_layer = _powers(known, power, dram_power, count)
    shares, area = _shares(map, chosen), float(known.package.die_area)
    # The map belongs to the die in which the heat arises.
    powers: dict[str, Any] = {"logic": shares * on_logic} | {dram_die(i): on_layer for i in range(count)}
    stack = assembly(chosen, count, area, cells)
    found = steady(stack, powers)
    if found.infeasible is not None:
        raise BadValue(str(found.infeasible))
    order = [layer.name for layer in reversed(stack.layers) if layer.name in powers]
    dies = tuple(_die(name, float(np.sum(powers[name])), found, chosen) for name in order)
    # a hundred steps of it cost as much as a few solutions
    coarse = assembly(chosen, count, area, min(cells, CELLS))
    history = None if duration is None else transient(coarse, powers, duration, steps)
    return Temperatures(
        chip=known, cooling=chosen, field=found, dies=dies, path=_path(found, dies), history=history
    )


def _cooling(chip: Chip, cooled: Cooling | str | None, changes: dict[str, Any]) -> Cooling:
    """The cooling that was asked for, else the chip's own, else a cold plate; with changes."""
    asked = chip.cooling if cooled is None else cooled
    asked = "liquid" if asked is None else asked
    changed: Cooling
    changed, _ = override(cooling(asked) if isinstance(asked, str) else asked, changes, "cooling")
    check_cooling(changed)
    return changed


def _layers(chip: Chip, layers: int | None) -> int:
    """Layers of DRAM on the die: those asked for, or the chip's."""
    count = layers if layers is not None else int(chip.stack.layers) if chip.stack is not None else 0
    require(count >= 0, "layers of DRAM are a whole number, not negative", layers=count)
    return count


def _powers(chip: Chip, power: float | None, dram_power: float | None, layers: int) -> tuple[float, float]:
    """Power of logic and of each layer [W]."""
    whole = float(chip.energy.memory * sustained_memory(chip))
    each = dram_power if dram_power is not None else whole / max(layers, 1)
    for name, value in (("power", power), ("dram_power", each)):
        require(
            value is None or 0 <= value < float("inf"),
            f"{name} must be finite and not negative",
            **{name: value},
        )
    beside = each * layers if layers else whole  # DRAM that is not on the die has its part of the limit, too
    return (max(float(chip.energy.power_limit) - beside, 0.0) if power is None else power), each


def _shares(map: str | Any, cooling: Cooling) -> Array:
    """Shares of the logic die's power in equal blocks."""
    if isinstance(map, str) and map in ("", "hotspot", "uniform"):
        return power_map(EVEN if map == "uniform" else float(cooling.hot_share))
    given = read_map(Path(map)) if isinstance(map, (str, Path)) else finite_array(map, "a power map")
    square = given.ndim == 2 and given.shape[0] == given.shape[1]
    require(square, "a power map is a square of numbers", shape=given.shape)
    require(
        bool(np.all(np.isfinite(given) & (given >= 0)) and given.sum() > 0),
        "a power map has finite numbers, none negative, not all zero",
    )
    return given / given.sum()


def read_map(path: Path) -> Array:
    """A square of numbers from a CSV file, first row first."""
    rows = csv_file(path)
    try:
        return np.array([[float(cell) for cell in row] for _, row in rows], float)
    except ValueError:
        raise BadFile(f"{path.name} must hold a square of numbers, as many in a row as rows") from None


def _die(name: str, power: float, found: Field, cooling: Cooling) -> Die:
    return Die(
        name=name,
        power=power,
        hottest=found.hottest(name),
        mean=found.mean(name),
        coolest=found.coolest(name),
        limit=float(cooling.logic_limit if name == "logic" else cooling.dram_limit),
    )


def _path(found: Field, dies: tuple[Die, ...]) -> tuple[Passage, ...]:
    """Resistances straight through, each with the power that passes it; layers of one kind together."""
    stack, powers = found.problem.assembly, {d.name: d.power for d in dies}
    passing = 0.0
    by_kind: dict[str, tuple[float, float, float]] = {}
    for layer in stack.layers:
        passing += powers.get(layer.name, 0.0)
        resistance = float(slab_resistance(layer.thickness, layer.conductivity, layer.side**2))
        word = layer.name.split(" ")[0]
        kind = "silicon" if word in powers else word.rstrip("0123456789")
        before = by_kind.get(kind, (0.0, 0.0, 0.0))
        by_kind[kind] = (before[0] + resistance, max(before[1], passing), before[2] + resistance * passing)
    passages = [Passage(name, *numbers) for name, numbers in reversed(by_kind.items())]
    to_coolant = float(convection_resistance(stack.transfer, stack.layers[-1].side ** 2))
    passages.insert(0, Passage("coolant", to_coolant, passing, to_coolant * passing))
    most = max(d.hottest for d in dies) - stack.ambient
    left = most - sum(p.rise for p in passages)
    return (*passages, Passage("spreading and hot spots", left / passing if passing else 0.0, passing, left))
