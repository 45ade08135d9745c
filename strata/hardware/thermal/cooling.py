"""How a stack of dies is built up and cooled: the numbers, and the layers they make."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from strata.arrays import Number, register_pytree
from strata.errors import UnknownName, require
from strata.hardware.thermal.grid import Array, Assembly, Layer
from strata.params import build, find, load_table, names, override, quantity, text

ARRANGEMENTS = ("logic_bottom", "logic_top")
CELLS = 16  # across a die, for the temperatures of a search
BLOCKS = 4  # blocks of the logic die's power map along a side


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Cooling:
    """Dies, what is between them, what is above them up to the coolant, and the temperatures they may have."""

    title: str = text("what this is", default="")
    arrangement: str = text(
        "logic_bottom: the logic die next to the board, its heat passes the DRAM; logic_top: next to the coolant",
        choices=ARRANGEMENTS,
    )
    logic_thickness: Number = quantity("m", "silicon of the logic die", positive=True)
    dram_thickness: Number = quantity("m", "silicon of one DRAM die", positive=True)
    source_depth: Number = quantity(
        "m",
        "depth of the face of a die in which its heat arises, on the side away from the coolant",
        positive=True,
    )
    silicon_conductivity: Number = quantity("W/m/K", "conductivity of the dies", positive=True)
    bond_thickness: Number = quantity(
        "m", "what lies between the silicon of two dies: wires, dielectric, bond", positive=True
    )
    bond_conductivity: Number = quantity(
        "W/m/K", "its conductivity upwards, vias and pads included", positive=True
    )
    interface_thickness: Number = quantity("m", "thermal interface material on the stack", positive=True)
    interface_conductivity: Number = quantity("W/m/K", "its conductivity", positive=True)
    lid_thickness: Number = quantity("m", "lid, spreader or base of a cold plate", positive=True)
    lid_conductivity: Number = quantity("W/m/K", "its conductivity, and the sink's", positive=True)
    lid_side: Number = quantity("m", "its side; left out: that of the dies", optional=True, positive=True)
    sink_thickness: Number = quantity(
        "m", "base of a sink on the lid; left out: none", optional=True, positive=True
    )
    sink_side: Number = quantity("m", "its side", optional=True, positive=True)
    transfer: Number = quantity(
        "W/m2/K",
        "heat transfer coefficient on the topmost face, fins counted in",
        optional=True,
        positive=True,
    )
    sink_resistance: Number = quantity(
        "K/W",
        "resistance from the topmost face to the coolant, in place of the coefficient",
        optional=True,
        positive=True,
    )
    ambient: Number = quantity("K", "temperature of the coolant", positive=True)
    hot_share: Number = quantity(
        "1", "share of the logic die's power in the middle quarter of its area; 0.25 is even"
    )
    logic_limit: Number = quantity("K", "highest temperature of logic", positive=True)
    dram_limit: Number = quantity("K", "highest temperature of DRAM", positive=True)
    refresh_limit: Number = quantity(
        "K", "temperature of DRAM above which it is refreshed twice as often", positive=True
    )
    leakage_share: Number = quantity(
        "1", "leakage of logic, as a share of static power at the temperature of the next line"
    )
    leakage_temperature: Number = quantity("K", "temperature at which static power is stated", positive=True)
    leakage_doubling: Number = quantity("K", "rise of temperature that doubles leakage", positive=True)
    silicon_capacity: Number = quantity(
        "J/m3/K", "heat capacity of silicon, for temperatures in time", positive=True
    )
    bond_capacity: Number = quantity("J/m3/K", "heat capacity of bond and interface", positive=True)
    lid_capacity: Number = quantity("J/m3/K", "heat capacity of lid and sink", positive=True)
    height: Number = quantity(
        "m", "height a package has for dies, lid and sink; left out: any", optional=True, positive=True
    )


# Temperatures are linear in these; all other quantities shape the resistances.
OUTSIDE = (
    "ambient",
    "logic_limit",
    "dram_limit",
    "refresh_limit",
    "leakage_share",
    "leakage_temperature",
    "leakage_doubling",
    "silicon_capacity",
    "bond_capacity",
    "lid_capacity",
)
SHAPING = tuple(f.name for f in fields(Cooling) if "unit" in f.metadata and f.name not in OUTSIDE)


def cooling(name: str, **changes: Any) -> Cooling:
    """A way of cooling by name or TOML path, with some quantities replaced.

    >>> cooling("liquid", ambient="40 degC").ambient
    313.15
    """
    if not name.endswith(".toml") and name.lower() not in names("cooling"):
        raise UnknownName("cooling", name, names("cooling"), ", ".join(names("cooling")))
    made, _ = build(Cooling, load_table("cooling", name), find("cooling", name).name)
    made, _ = override(made, changes, "cooling")
    check(made)
    return made


def check(made: Cooling) -> None:
    """Refuse a record whose numbers contradict each other; one line each."""
    two = (made.transfer is None) == (made.sink_resistance is None)
    require(
        not two,
        "cooling needs either transfer or sink_resistance",
        transfer=made.transfer,
        sink_resistance=made.sink_resistance,
    )
    half = (made.sink_thickness is None) != (made.sink_side is None)
    require(
        not half,
        "a sink has a thickness and a side",
        sink_thickness=made.sink_thickness,
        sink_side=made.sink_side,
    )
    require(
        _most(made.hot_share) <= 1, "cooling.hot_share is a share and at most 1", hot_share=made.hot_share
    )
    require(
        _most(made.leakage_share) <= 1,
        "cooling.leakage_share is a share and at most 1",
        leakage_share=made.leakage_share,
    )
    thin = bool(
        np.all(
            np.less(made.source_depth, made.dram_thickness) & np.less(made.source_depth, made.logic_thickness)
        )
    )
    require(thin, "cooling.source_depth must be less than a die is thick", source_depth=made.source_depth)
    warm = bool(np.all(np.less(made.ambient, made.dram_limit) & np.less(made.ambient, made.logic_limit)))
    require(warm, "the coolant must be cooler than logic and DRAM may be", ambient=made.ambient)


def _most(value: Number) -> float:
    return float(np.max(value))


def power_map(hot_share: float) -> Array:
    """Shares of the logic die's power in equal blocks, row by row: the middle quarter of the area has
    `hot_share` of it.

    >>> power_map(0.4)[1].round(3).tolist(), float(power_map(0.4).sum().round(9))
    ([0.05, 0.1, 0.1, 0.05], 1.0)
    """
    middle = slice(BLOCKS // 4, BLOCKS - BLOCKS // 4)
    made = np.full((BLOCKS, BLOCKS), (1.0 - hot_share) / (0.75 * BLOCKS**2))
    made[middle, middle] = hot_share / (0.25 * BLOCKS**2)
    return made


def dram(index: int) -> str:
    """Name of a DRAM die: 0 lies on the logic die."""
    return f"dram{index}"


def thickness(made: Cooling, layers: int) -> float:
    """Thickness of dies, bonds, interface, lid and sink [m].

    >>> round(thickness(cooling("liquid"), 4) * 1e3, 3)
    2.282
    """
    sink = 0.0 if made.sink_thickness is None else made.sink_thickness
    stack = made.logic_thickness + layers * (made.dram_thickness + made.bond_thickness)
    return float(stack + made.interface_thickness + made.lid_thickness + sink)


def assembly(made: Cooling, layers: int, area: float, cells: int = CELLS) -> Assembly:
    """The layers of a stack of so many DRAM dies on a logic die of some area [m2], from the board to the
    coolant.

    >>> [layer.name for layer in assembly(cooling("liquid"), 1, 1e-4).layers]
    ['logic', 'logic bulk', 'bond0', 'dram0', 'dram0 bulk', 'interface', 'lid']
    """
    require(layers >= 0 and area > 0, "a stack has dies of some area", layers=layers, area=area)
    side = float(area) ** 0.5
    order = ["logic", *(dram(i) for i in range(layers))]
    if made.arrangement == "logic_top":
        order.reverse()
    built: list[Layer] = []
    for i, name in enumerate(order):
        thickness = made.logic_thickness if name == "logic" else made.dram_thickness
        if i:
            built.append(
                Layer(
                    f"bond{i - 1}",
                    side,
                    made.bond_thickness,
                    made.bond_conductivity,
                    capacity=made.bond_capacity,
                )
            )
        built.append(
            Layer(name, side, made.source_depth, made.silicon_conductivity, capacity=made.silicon_capacity)
        )
        built.append(
            Layer(
                f"{name} bulk",
                side,
                thickness - made.source_depth,
                made.silicon_conductivity,
                capacity=made.silicon_capacity,
            )
        )
    built.append(
        Layer(
            "interface",
            side,
            made.interface_thickness,
            made.interface_conductivity,
            capacity=made.bond_capacity,
        )
    )
    top = side if made.lid_side is None else made.lid_side
    require(
        top >= side * (1 - 1e-9),
        "cooling.lid_side must be at least the side of the dies [m]",
        lid_side=f"{top:.4g}",
        die_side=f"{side:.4g}",
    )
    built.append(
        Layer("lid", top, made.lid_thickness, made.lid_conductivity, capacity=made.lid_capacity, slices=2)
    )
    if made.sink_side is not None:
        require(
            made.sink_side >= top * (1 - 1e-9),
            "cooling.sink_side must be at least that of the lid [m]",
            sink_side=made.sink_side,
            lid_side=top,
        )
        top = made.sink_side
        built.append(
            Layer(
                "sink", top, made.sink_thickness, made.lid_conductivity, capacity=made.lid_capacity, slices=4
            )
        )
    transfer = made.transfer if made.transfer is not None else 1.0 / (made.sink_resistance * top * top)
    return Assembly(tuple(built), transfer, made.ambient, cells, made.height)
