"""Heat through a stack of layers: steady temperatures, and temperatures in time.

`strata.hardware.thermal.grid` has the equations. Conductivities do not depend on temperature, so temperatures
are linear in powers; `strata.hardware.thermal.compact` makes of that what a search needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Number
from strata.errors import Infeasible, require
from strata.hardware.thermal.grid import Array, Assembly, Layer, Problem

__all__ = [
    "Assembly",
    "Field",
    "History",
    "Layer",
    "convection_resistance",
    "slab_resistance",
    "steady",
    "transient",
]
# K over the coolant; beyond it solder, polymers and constant conductivities no longer hold
LARGEST_RISE = 700.0


@dataclass(frozen=True, eq=False)
class Field:
    """Temperatures of every cell of an assembly."""

    problem: Problem
    rise: Array  # [cells] K over the coolant
    power: float  # W put in

    def of(self, name: str) -> Array:
        """Temperatures of a layer's cells [slices, y, x] in kelvin."""
        return self.problem.assembly.ambient + self.problem.field(self.rise, name)

    def hottest(self, name: str) -> float:
        return float(self.of(name).max())

    def coolest(self, name: str) -> float:
        return float(self.of(name).min())

    def mean(self, name: str) -> float:
        """Mean temperature of a layer, every cell by its area."""
        widths = self.problem.places[name][0].widths
        area = np.outer(widths, widths)
        return float((self.of(name).mean(axis=0) * area).sum() / area.sum())

    @property
    def heat_out(self) -> float:
        """Heat that leaves by the top face [W]; in a steady state all that was put in."""
        return float(self.problem.heat_out(self.rise))

    @property
    def infeasible(self) -> Infeasible | None:
        """Why these temperatures mean nothing, where they leave the range in which materials keep their
        properties.
        """
        ambient, most = self.problem.assembly.ambient, float(np.max(self.rise))
        if most <= LARGEST_RISE:
            return None
        levers = (
            "less power",
            "a larger heat transfer coefficient",
            "thinner or better conducting layers",
            "a larger lid or sink",
        )
        return Infeasible(
            "temperature that the materials hold", ambient + most, ambient + LARGEST_RISE, "K", levers
        )


def steady(assembly: Assembly, powers: Mapping[str, Any]) -> Field:
    """Temperatures when powers have lasted for ever.

    >>> one = Assembly((Layer("die", 0.01, 1e-3, 100.0),), 1e4, 300.0, cells=4)
    >>> found = steady(one, {"die": 20.0})
    >>> round(found.hottest("die"), 6), round(found.heat_out, 9)
    (321.0, 20.0)
    """
    problem = Problem(assembly)
    heat = problem.heat_in(powers)
    return Field(problem, problem.solve(heat[None])[0], float(heat.sum()))


@dataclass(frozen=True, eq=False)
class History:
    """Temperatures in time: hottest cell of each layer at each time, and the last state."""

    times: Array  # [steps + 1] s
    hottest: dict[str, Array]  # K
    last: Field


def transient(
    assembly: Assembly,
    powers: Mapping[str, Any] | Callable[[float], Mapping[str, Any]],
    duration: float,
    steps: int,
    start: Field | None = None,
    implicit: float = 1.0,
) -> History:
    """Temperatures after powers are switched on, or follow a function of time; from the coolant's temperature
    or a given state.

    `implicit` 1 is backward Euler: first order, never overshoots; 0.5 is Crank-Nicolson: second order.
    """
    require(
        duration > 0 and steps >= 1,
        "time needs a duration and at least one step",
        duration=duration,
        steps=steps,
    )
    require(
        0.5 <= implicit <= 1.0,
        "implicit must be between 0.5 (Crank-Nicolson) and 1 (backward Euler) to be stable",
        implicit=implicit,
    )
    problem, step = Problem(assembly) if start is None else start.problem, duration / steps
    shift = 1.0 / (implicit * step)
    rise = np.zeros(problem.size) if start is None else start.rise
    names = list(problem.places)
    hottest = {name: [float(problem.field(rise, name).max())] for name in names}
    heat = problem.heat_in(powers(0.0) if callable(powers) else powers)
    for i in range(steps):
        before = heat
        heat = problem.heat_in(powers((i + 1) * step)) if callable(powers) else heat
        mixed = heat + (1.0 - implicit) / implicit * before
        known = mixed + shift * problem.capacities * rise
        if implicit < 1.0:
            known = known - (1.0 - implicit) / implicit * (problem.matrix @ rise)
        rise = problem.solve(known[None], shift, rise[None])[0]
        for name in names:
            hottest[name].append(float(problem.field(rise, name).max()))
    found = {name: assembly.ambient + np.array(values) for name, values in hottest.items()}
    return History(np.linspace(0.0, duration, steps + 1), found, Field(problem, rise, float(heat.sum())))


def slab_resistance(thickness: Number, conductivity: Number, area: Number) -> Number:
    r"""Resistance of a slab to heat that flows straight through it [K/W].

    .. math:: R = \frac{t}{k A}

    thickness t [m]; conductivity k [W/m/K]; area A [m2]. No heat sideways.

    Fourier's law; Incropera et al., Fundamentals of Heat and Mass Transfer, sec. 3.1.

    >>> round(slab_resistance(50e-6, 4.0, 1e-4), 6)
    0.125
    """
    return thickness / (conductivity * area)


def convection_resistance(transfer: Number, area: Number) -> Number:
    r"""Resistance between a face and its coolant [K/W].

    .. math:: R = \frac{1}{h A}

    heat transfer coefficient h [W/m2/K]; area A [m2].

    Newton's law of cooling; Incropera et al., Fundamentals of Heat and Mass Transfer, sec. 3.1.

    >>> convection_resistance(1e4, 1e-4)
    1.0
    """
    return 1.0 / (transfer * area)
