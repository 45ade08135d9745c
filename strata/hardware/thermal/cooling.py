"""How a stack of dies is built up and cooled: the numbers, and the layers they make."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number
from strata.base.errors import require
from strata.hardware.thermal.grid import Assembly, Layer
from strata.params import check_shipped, override, positive, quantity, read_record, record, text

ARRANGEMENTS = ("logic_bottom", "logic_top")
CELLS = 16  # across a die, for the temperatures of a search
BLOCKS = 4  # blocks of the logic die's power map along a side


@record
class Cooling:
    """Dies, what is between them and above them up to the coolant, and the temperatures they may have."""

    title: str = text("what this is", default="")
    arrangement: str = text(
        "logic_bottom: the logic die next to the board, its heat passes the DRAM; logic_top: next to the "
        "coolant",
        choices=ARRANGEMENTS,
    )
    logic_thickness: Number = positive("m", "silicon of the logic die")
    dram_thickness: Number = positive("m", "silicon of one DRAM die")
    source_depth: Number = quantity(
        "m", "depth of the face of a die in which its heat arises, on the side away from the coolant; 0: all"
    )
    silicon_conductivity: Number = positive("W/m/K", "conductivity of the dies")
    bond_thickness: Number = positive(
        "m", "what lies between the silicon of two dies: wires, dielectric, bond"
    )
    bond_conductivity: Number = positive("W/m/K", "its conductivity upwards, vias and pads included")
    interface_thickness: Number = positive("m", "thermal interface material on the stack")
    interface_conductivity: Number = positive("W/m/K", "its conductivity")
    lid_thickness: Number = positive("m", "lid, spreader or base of a cold plate")
    lid_conductivity: Number = positive("W/m/K", "its conductivity, and the sink's")
    lid_side: Number | None = positive("m", "its side; left out: that of the dies")
    sink_thickness: Number | None = positive("m", "base of a sink on the lid; left out: none")
    sink_side: Number | None = positive("m", "its side")
    transfer: Number | None = positive(
        "W/m2/K", "heat transfer coefficient on the topmost face, fins counted in"
    )
    sink_resistance: Number | None = positive(
        "K/W", "resistance from the topmost face to the coolant, in place of the coefficient"
    )
    ambient: Number = positive("K", "temperature of the coolant")
    hot_share: Number = quantity(
        "1", "share of the logic die's power in the middle quarter of its area; 0.25 is even"
    )
    logic_limit: Number = positive("K", "highest temperature of logic")
    dram_limit: Number = positive("K", "highest temperature of DRAM")
    refresh_limit: Number = positive("K", "temperature of DRAM above which it is refreshed twice as often")
    leakage_share: Number = quantity(
        "1", "leakage of logic, as a share of static power at the temperature of the next line"
    )
    leakage_temperature: Number = positive("K", "temperature at which static power is stated")
    leakage_doubling: Number = positive("K", "rise of temperature that doubles leakage")
    silicon_capacity: Number = positive("J/m3/K", "heat capacity of silicon, for temperatures in time")
    bond_capacity: Number = positive("J/m3/K", "heat capacity of bond and interface")
    lid_capacity: Number = positive("J/m3/K", "heat capacity of lid and sink")
    height: Number | None = positive("m", "height a package has for dies, lid and sink; left out: any")


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


def cooling(name: str, /, **changes: Any) -> Cooling:
    """A way of cooling by name or TOML path, with some quantities replaced.

    >>> cooling("liquid", ambient="40 degC").ambient
    313.15
    """
    check_shipped("cooling", name)
    stated, _, _ = read_record(Cooling, "cooling", name)
    changed: Cooling = override(stated, changes, "cooling")[0]
    check_cooling(changed)
    return changed


def check_cooling(cooling: Cooling) -> None:
    """Refuse a record whose numbers contradict each other; one line each."""
    require(
        (cooling.transfer is None) != (cooling.sink_resistance is None),
        "cooling needs either transfer or sink_resistance",
        transfer=cooling.transfer,
        sink_resistance=cooling.sink_resistance,
    )
    require(
        (cooling.sink_thickness is None) == (cooling.sink_side is None),
        "a sink has a thickness and a side",
        sink_thickness=cooling.sink_thickness,
        sink_side=cooling.sink_side,
    )
    for name in ("hot_share", "leakage_share"):
        share = getattr(cooling, name)
        least = float(np.max(share)) <= 1
        require(least, f"cooling.{name} is a share and at most 1", **{name: share})
    thinnest = np.minimum(cooling.dram_thickness, cooling.logic_thickness)
    require(
        bool(np.all(np.less(cooling.source_depth, thinnest))),
        "cooling.source_depth must be less than a die is thick",
        source_depth=cooling.source_depth,
    )
    coolest = np.minimum(cooling.dram_limit, cooling.logic_limit)
    require(
        bool(np.all(np.less(cooling.ambient, coolest))),
        "the coolant must be cooler than logic and DRAM may be",
        ambient=cooling.ambient,
    )


def check_sides(cooling: Cooling, side: Number) -> None:
    """Refuse a lid that is smaller than the dies, and a sink that is smaller than the lid [m]."""
    top = side if cooling.lid_side is None else cooling.lid_side
    _check_on_top("cooling.lid_side must be at least the side of the dies [m]", lid_side=top, die_side=side)
    if cooling.sink_side is not None:
        _check_on_top(
            "cooling.sink_side must be at least that of the lid [m]",
            sink_side=cooling.sink_side,
            lid_side=top,
        )


def _check_on_top(relation: str, **sides: Number) -> None:
    """What lies above has at least the side of what is below it; of many, the first that has not is named."""
    above, below = np.broadcast_arrays(*sides.values())
    small = ~np.ravel(above >= below * (1 - 1e-9))
    if small.any():
        first = int(np.argmax(small))
        shown = zip(sides, (above.ravel()[first], below.ravel()[first]), strict=True)
        require(False, relation, **{name: f"{value:.4g}" for name, value in shown})


def power_map(hot_share: float) -> Array:
    """Shares of the logic die's power in equal blocks; the middle quarter of the area has `hot_share`.

    >>> power_map(0.4)[1].round(3).tolist(), float(power_map(0.4).sum().round(9))
    ([0.05, 0.1, 0.1, 0.05], 1.0)
    """
    middle = slice(BLOCKS // 4, BLOCKS - BLOCKS // 4)
    shares = np.full((BLOCKS, BLOCKS), (1.0 - hot_share) / (0.75 * BLOCKS**2))
    shares[middle, middle] = hot_share / (0.25 * BLOCKS**2)
    return shares


def dram_die(index: int) -> str:
    """Name of a DRAM die: 0 lies on the logic die."""
    return f"dram{index}"


def stack_thickness(cooling: Cooling, layers: int) -> float:
    """Thickness of dies, bonds, interface, lid and sink [m].

    >>> round(stack_thickness(cooling("liquid"), 4) * 1e3, 3)
    2.282
    """
    sink = 0.0 if cooling.sink_thickness is None else cooling.sink_thickness
    stack = cooling.logic_thickness + layers * (cooling.dram_thickness + cooling.bond_thickness)
    return float(stack + cooling.interface_thickness + cooling.lid_thickness + sink)


MOST_LAYERS = 128  # of DRAM in a stack: each is a sheet of cells of its own


def assembly(cooling: Cooling, layers: int, area: float, cells: int = CELLS, lid_slices: int = 2) -> Assembly:
    """Layers of DRAM dies on a logic die of some area [m2], from the board to the coolant.

    >>> [layer.name for layer in assembly(cooling("liquid"), 1, 1e-4).layers]
    ['logic', 'logic bulk', 'bond0', 'dram0', 'dram0 bulk', 'interface', 'lid']
    """
    require(layers >= 0 and area > 0, "a stack has dies of some area", layers=layers, area=area)
    require(layers <= MOST_LAYERS, f"heat is solved for at most {MOST_LAYERS} DRAM layers", layers=layers)
    side = float(area) ** 0.5
    check_sides(cooling, side)
    order = ["logic", *(dram_die(i) for i in range(layers))]
    if cooling.arrangement == "logic_top":
        order.reverse()
    built: list[Layer] = []
    for i, name in enumerate(order):
        if i:
            built.append(_bond(cooling, f"bond{i - 1}", side))
        built += _die(cooling, name, side)
    thickness, conductivity = cooling.interface_thickness, cooling.interface_conductivity
    built.append(_layer("interface", side, thickness, conductivity, cooling.bond_capacity))
    metal, capacity = cooling.lid_conductivity, cooling.lid_capacity
    top = side if cooling.lid_side is None else cooling.lid_side
    built.append(_layer("lid", top, cooling.lid_thickness, metal, capacity, slices=lid_slices))
    if cooling.sink_side is not None and cooling.sink_thickness is not None:
        top = cooling.sink_side
        built.append(_layer("sink", top, cooling.sink_thickness, metal, capacity, slices=4))
    transfer = cooling.transfer
    if transfer is None:
        assert cooling.sink_resistance is not None  # `check_cooling`: one of the two is stated
        transfer = 1.0 / (cooling.sink_resistance * top * top)
    height = None if cooling.height is None else float(cooling.height)
    return Assembly(tuple(built), float(transfer), float(cooling.ambient), cells, height)


def _layer(
    name: str, side: Number, thickness: Number, conductivity: Number, capacity: Number, slices: int = 1
) -> Layer:
    """A layer of one stack, whose numbers are single ones."""
    return Layer(
        name, float(side), float(thickness), float(conductivity), capacity=float(capacity), slices=slices
    )


def _bond(cooling: Cooling, name: str, side: float) -> Layer:
    return _layer(name, side, cooling.bond_thickness, cooling.bond_conductivity, cooling.bond_capacity)


def _die(cooling: Cooling, name: str, side: float) -> list[Layer]:
    """A die: the face in which its heat arises, and the silicon behind it."""
    whole = cooling.logic_thickness if name == "logic" else cooling.dram_thickness
    k, capacity, depth = cooling.silicon_conductivity, cooling.silicon_capacity, cooling.source_depth
    if not depth:
        return [_layer(name, side, whole, k, capacity)]
    return [_layer(name, side, depth, k, capacity), _layer(f"{name} bulk", side, whole - depth, k, capacity)]
