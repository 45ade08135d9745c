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
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    Forecast,
    compare_metric,
    group_names,
    join_metrics,
)
from strata.validation.readers.tables import Table

Stack = dict[str, Any]  # a record of the file
# W/m/K, so much that a layer has one temperature from face to face; its inverse lets no heat through
THROUGH = 1e6
NEEDED = (
    "arrangement",
    "dram_layers",
    "logic_power_w",
    "dram_power_w_per_layer",
    "ambient_k",
    "temperatures",
)


def _stacks(table: Table) -> list[Stack]:
    """Rows as numbers, lists and words."""

    def value(cell: str) -> Any:
        try:
            return json.loads(cell)
        except json.JSONDecodeError:
            return cell

    return [{name: value(cells[i]) for name, cells in table.columns.items()} for i in range(len(table))]


def _dies(stack: Stack) -> list[str]:
    """Names of the dies from the board up."""
    names = ["logic", *(f"dram{i}" for i in range(stack["dram_layers"]))]
    return names if stack["arrangement"] == "logic_bottom" else names[::-1]


def lidded(stack: Stack) -> Assembly:
    """A stack as 3D-ICE has it: heat in the lowest part of each die, everything of one side, convection on
    the lid.
    """
    side, micro, silicon = stack["side_um"] * 1e-6, 1e-6, stack["silicon_k"]
    layers: list[Layer] = []
    for i, name in enumerate(_dies(stack)):
        if i:
            layers.append(Layer(f"bond{i}", side, stack["bond_um"] * micro, stack["bond_k"]))
        thickness = stack["silicon_logic_um" if name == "logic" else "silicon_dram_um"] - stack["source_um"]
        layers += [
            Layer(name, side, stack["source_um"] * micro, silicon),
            Layer(f"{name} bulk", side, thickness * micro, silicon),
        ]
    layers += [
        Layer("tim", side, stack["tim_um"] * micro, stack["tim_k"]),
        Layer("lid", side, stack["lid_um"] * micro, stack["lid_k"]),
    ]
    return Assembly(tuple(layers), stack["htc_w_per_m2k"], stack["ambient_k"], stack["grid"])


def packaged(stack: Stack) -> Assembly:
    """A stack under a spreader and a sink larger than itself, cooled on the sink's top; a die is one layer,
    as in HotSpot.
    """
    side = stack["side_m"]
    layers: list[Layer] = []
    for i, name in enumerate(_dies(stack)):
        if i:
            layers.append(Layer(f"bond{i}", side, stack["bond_m"], stack["bond_k"]))
        layers.append(
            Layer(
                name,
                side,
                stack["silicon_logic_m" if name == "logic" else "silicon_dram_m"],
                stack["silicon_k"],
            )
        )
    layers.append(Layer("tim", side, stack["tim_m"], stack["tim_k"]))
    layers.append(
        Layer("spreader", stack["spreader_side_m"], stack["spreader_m"], stack["copper_k"], slices=2)
    )
    layers.append(Layer("sink", stack["sink_side_m"], stack["sink_m"], stack["copper_k"], slices=4))
    return Assembly(
        tuple(layers),
        1.0 / (stack["r_convec_k_per_w"] * stack["sink_side_m"] ** 2),
        stack["ambient_k"],
        stack["grid"],
    )


def as_hotspot(stack: Stack) -> Assembly:
    """The same with every layer as HotSpot has it: one node at the lower face, where heat spreads through the
    whole thickness, and the resistance of the whole thickness above it.
    """
    layers: list[Layer] = []
    for layer in packaged(stack).layers:
        layers.append(replace(layer, conductivity=THROUGH, lateral=layer.conductivity, slices=1))
        layers.append(
            replace(layer, name=f"{layer.name} above", lateral=layer.conductivity / THROUGH, slices=1)
        )
    return replace(packaged(stack), layers=tuple(layers))


def rises(stack: Stack, build: Callable[[Stack], Assembly]) -> dict[str, float]:
    """Rise of each die's hottest cell over the coolant [K]."""
    blocks = np.array(stack["logic_power_w"], float)
    side = round(len(blocks) ** 0.5)
    powers = {"logic": blocks.reshape(side, side)} | {
        name: stack["dram_power_w_per_layer"] for name in _dies(stack) if name != "logic"
    }
    solved = steady(build(stack), powers)
    return {name: solved.hottest(name) - stack["ambient_k"] for name in powers}


def _compared(
    table: Table, build: Callable[[Stack], Assembly], name: str, headline: bool = True
) -> ComparedPoints:
    for column in NEEDED:
        table.text(column)
    stacks = _stacks(table)
    rows = table.keep(np.repeat(np.arange(len(stacks)), [len(s["temperatures"]) for s in stacks]))
    measured: list[float] = []
    predicted: list[float] = []
    dies: list[str] = []
    why: dict[int, str] = {}
    for stack in stacks:
        try:
            solved = rises(stack, build)
        except (StrataError, KeyError) as error:
            solved = {}
            reason = f"the record has no {error}" if isinstance(error, KeyError) else str(error)
            why |= {len(measured) + i: reason for i in range(len(stack["temperatures"]))}
        for layer in stack["temperatures"]:
            measured.append(layer["max_k"] - stack["ambient_k"])
            predicted.append(solved.get(layer["layer"], np.nan))
            dies.append("logic" if layer["layer"] == "logic" else "dram")
    forecasts = Forecast(np.array([predicted]), why)
    group = group_names(name, rows.text("arrangement"), np.array(dies, dtype=object), count=len(rows))
    return compare_metric(rows, np.array(measured), forecasts, group, headline=headline)


def stacks_3dice(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Stacks under a lid of their own size."""
    return _compared(table, lidded, "lid")


def stacks_hotspot(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Stacks under spreader and sink: with layers of one node as HotSpot has them (the headline), and with
    spreader and sink resolved.
    """
    return join_metrics(
        [
            _compared(table, as_hotspot, "one node"),
            _compared(table, packaged, "resolved", headline=False),
        ]
    )
