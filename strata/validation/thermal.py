"""Temperatures of stacks that other solvers computed: each layer's hottest cell, as its rise over the
coolant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from strata.errors import StrataError
from strata.hardware.thermal.grid import Assembly, Layer
from strata.hardware.thermal.solve import steady
from strata.validation.datasets import Array, Forecast, Points, Table, joined, labels, points

Case = dict[str, Any]
# W/m/K, so much that a layer has one temperature from face to face; its inverse lets no heat through
THROUGH = 1e6


def _cases(table: Table) -> list[Case]:
    """Rows as numbers, lists and words."""

    def value(cell: str) -> Any:
        try:
            return json.loads(cell)
        except json.JSONDecodeError:
            return cell

    return [{name: value(cells[i]) for name, cells in table.columns.items()} for i in range(len(table))]


def _dies(case: Case) -> list[str]:
    """Names of the dies from the board up."""
    names = ["logic", *(f"dram{i}" for i in range(case["dram_layers"]))]
    return names if case["arrangement"] == "logic_bottom" else names[::-1]


def lidded(case: Case) -> Assembly:
    """A stack as 3D-ICE has it: heat in the lowest part of each die, everything of one side, convection on
    the lid.
    """
    side, micro, silicon = case["side_um"] * 1e-6, 1e-6, case["silicon_k"]
    layers: list[Layer] = []
    for i, name in enumerate(_dies(case)):
        if i:
            layers.append(Layer(f"bond{i}", side, case["bond_um"] * micro, case["bond_k"]))
        thickness = case["silicon_logic_um" if name == "logic" else "silicon_dram_um"] - case["source_um"]
        layers += [
            Layer(name, side, case["source_um"] * micro, silicon),
            Layer(f"{name} bulk", side, thickness * micro, silicon),
        ]
    layers += [
        Layer("tim", side, case["tim_um"] * micro, case["tim_k"]),
        Layer("lid", side, case["lid_um"] * micro, case["lid_k"]),
    ]
    return Assembly(tuple(layers), case["htc_w_per_m2k"], case["ambient_k"], case["grid"])


def packaged(case: Case) -> Assembly:
    """A stack under a spreader and a sink larger than itself, cooled on the sink's top; a die is one layer,
    as in HotSpot.
    """
    side = case["side_m"]
    layers: list[Layer] = []
    for i, name in enumerate(_dies(case)):
        if i:
            layers.append(Layer(f"bond{i}", side, case["bond_m"], case["bond_k"]))
        layers.append(
            Layer(
                name,
                side,
                case["silicon_logic_m" if name == "logic" else "silicon_dram_m"],
                case["silicon_k"],
            )
        )
    layers.append(Layer("tim", side, case["tim_m"], case["tim_k"]))
    layers.append(Layer("spreader", case["spreader_side_m"], case["spreader_m"], case["copper_k"], slices=2))
    layers.append(Layer("sink", case["sink_side_m"], case["sink_m"], case["copper_k"], slices=4))
    return Assembly(
        tuple(layers),
        1.0 / (case["r_convec_k_per_w"] * case["sink_side_m"] ** 2),
        case["ambient_k"],
        case["grid"],
    )


def as_hotspot(case: Case) -> Assembly:
    """The same with every layer as HotSpot has it: one node at the lower face, where heat spreads through the
    whole thickness, and the resistance of the whole thickness above it.
    """
    layers: list[Layer] = []
    for layer in packaged(case).layers:
        layers.append(replace(layer, conductivity=THROUGH, lateral=layer.conductivity, slices=1))
        layers.append(
            replace(layer, name=f"{layer.name} above", lateral=layer.conductivity / THROUGH, slices=1)
        )
    return replace(packaged(case), layers=tuple(layers))


def rises(case: Case, build: Callable[[Case], Assembly]) -> dict[str, float]:
    """Rise of each die's hottest cell over the coolant [K]."""
    blocks = np.array(case["logic_power_w"], float)
    side = round(len(blocks) ** 0.5)
    powers = {"logic": blocks.reshape(side, side)} | {
        name: case["dram_power_w_per_layer"] for name in _dies(case) if name != "logic"
    }
    found = steady(build(case), powers)
    return {name: found.hottest(name) - case["ambient_k"] for name in powers}


def _read(table: Table, build: Callable[[Case], Assembly], name: str, headline: bool = True) -> Points:
    needed = (
        "arrangement",
        "dram_layers",
        "logic_power_w",
        "dram_power_w_per_layer",
        "ambient_k",
        "temperatures",
    )
    for column in needed:
        table.text(column)
    cases = _cases(table)
    which = np.repeat(np.arange(len(cases)), [len(c["temperatures"]) for c in cases])
    measured: list[float] = []
    predicted: list[float] = []
    said: list[str] = []
    why: dict[int, str] = {}
    for case in cases:
        try:
            made = rises(case, build)
        except (StrataError, KeyError) as error:
            made = {}
            said_why = f"the record has no {error}" if isinstance(error, KeyError) else str(error)
            why |= {len(measured) + i: said_why for i in range(len(case["temperatures"]))}
        for layer in case["temperatures"]:
            measured.append(layer["max_k"] - case["ambient_k"])
            predicted.append(made.get(layer["layer"], np.nan))
            said.append("logic" if layer["layer"] == "logic" else "dram")
    spread = table.keep(which)
    forecast = Forecast(np.array([predicted]), why)
    group: Array = labels(name, spread.text("arrangement"), np.array(said, dtype=object), count=len(spread))
    return points(spread, np.array(measured), forecast, group, headline=headline)


def stacks_3dice(table: Table) -> Points:
    """Stacks under a lid of their own size."""
    return _read(table, lidded, "lid")


def stacks_hotspot(table: Table) -> Points:
    """Stacks under spreader and sink: with layers of one node as HotSpot has them (the headline), and with
    spreader and sink resolved.
    """
    return joined([_read(table, as_hotspot, "one node"), _read(table, packaged, "resolved", headline=False)])
