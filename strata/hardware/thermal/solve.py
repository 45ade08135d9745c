"""The equations of heat between the cells of a stack, and their solution: steady temperatures, and those in
time.

In a block of layers, conduction along x and y has the same form in every layer, so that eigenvectors of one
dimension (a cosine transform where cells are equal) turn the block into one tridiagonal system for each pair
of modes. A stack of one side is solved by that at once; for several sides it is the preconditioner of
conjugate gradients on the sparse system. Conductivities do not depend on temperature, so temperatures are
linear in powers; `strata.hardware.thermal.compact` makes of that what a search needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import UnknownName, require
from strata.base.records import Infeasible
from strata.hardware.thermal.grid import Assembly, LayerBlock, edges, layer_blocks, strip_shares

# K over the coolant; beyond it solder, polymers and constant conductivities no longer hold
LARGEST_RISE = 700.0


class Factored:
    """A block ready for many right-hand sides: every mode's tridiagonal system eliminated once."""

    def __init__(self, block: LayerBlock, shift: float):
        self.block = block
        pivots = block.diagonals(shift)
        for i, g in enumerate(block.vertical):
            pivots[i + 1] -= g * g / pivots[i]
        self.pivots = pivots

    def solve(self, heat: Array) -> Array:
        """Temperatures [k, slices, n, n] of heat put into every cell [k, slices, n, n]."""
        vectors, link = self.block.modes[1], self.block.vertical
        x: Array = vectors.T @ heat @ vectors
        for i, g in enumerate(link):
            x[:, i + 1] += g / self.pivots[i] * x[:, i]
        x[:, -1] /= self.pivots[-1]
        for i in range(len(link) - 1, -1, -1):
            x[:, i] = (x[:, i] + link[i] * x[:, i + 1]) / self.pivots[i]
        return vectors @ x @ vectors.T


class Problem:
    """The discrete equations of an assembly: conduction matrix, heat capacities, places of the layers."""

    def __init__(self, assembly: Assembly):
        self.assembly = assembly
        self.edges = edges(assembly)
        self.blocks, self.places = layer_blocks(assembly, self.edges)
        self.size = self.blocks[-1].start + self.blocks[-1].size
        self._factored: dict[float, list[Factored]] = {}

    @cached_property
    def matrix(self) -> Any:
        """Conduction [W/K], positive definite: matrix @ (T - ambient) is the heat that leaves each cell."""
        from scipy import sparse  # a tenth of a second that every start would pay

        low, high, g = (np.concatenate(part) for part in zip(*self.links, strict=True))
        b = self.blocks[-1]
        own: Array = np.bincount(low, g, self.size) + np.bincount(high, g, self.size)
        own[b.start + b.size - len(b.widths) ** 2 :] += b.top * np.outer(b.widths, b.widths).ravel()
        every = np.arange(self.size)
        rows, columns = np.concatenate([every, low, high]), np.concatenate([every, high, low])
        return sparse.csr_matrix((np.concatenate([own, -g, -g]), (rows, columns)), (self.size, self.size))

    @property
    def links(self) -> list[tuple[Array, Array, Array]]:
        """Pairs of cells that exchange heat, and their conductances [W/K]: neighbours along both sides, above
        each other, and over the faces between blocks.
        """
        made = list(self.contacts)
        for b in self.blocks:
            cell = b.start + np.arange(b.size).reshape(b.shape)
            aside = (b.thickness * b.lateral)[:, None, None] * (2.0 / (b.widths[1:] + b.widths[:-1]))
            across = aside * b.widths[:, None]
            made.append((cell[:, :, :-1].ravel(), cell[:, :, 1:].ravel(), across.ravel()))
            made.append((cell[:, :-1].ravel(), cell[:, 1:].ravel(), across.swapaxes(1, 2).ravel()))
            upward = np.multiply.outer(b.vertical, np.outer(b.widths, b.widths))
            made.append((cell[:-1].ravel(), cell[1:].ravel(), upward.ravel()))
        return made

    @cached_property
    def contacts(self) -> list[tuple[Array, Array, Array]]:
        """For each face between two blocks: unknowns below, unknowns above, and their conductances [W/K]."""
        made = []
        for lower, upper in zip(self.blocks, self.blocks[1:], strict=False):
            n, m = len(lower.widths), len(upper.widths)
            low = lower.start + lower.size - n * n + np.arange(n * n)
            inside = lower.first - upper.first + np.arange(n)
            high = upper.start + (inside[:, None] * m + inside[None, :]).ravel()
            made.append((low, high, lower.top * np.outer(lower.widths, lower.widths).ravel()))
        return made

    @cached_property
    def capacities(self) -> Array:
        """Heat capacity of every cell [J/K]."""
        return np.concatenate(
            [
                np.multiply.outer(b.capacity * b.thickness, np.outer(b.widths, b.widths)).ravel()
                for b in self.blocks
            ]
        )

    def factored(self, shift: float) -> list[Factored]:
        if shift not in self._factored:
            self._factored = {shift: [Factored(b, shift) for b in self.blocks]}
        return self._factored[shift]

    # ------------------------------------------------------------------------------------------------ solving

    def _nearly(self, heat: Array, shift: float) -> Array:
        """Temperatures by one sweep up and one down: exact for one block, the preconditioner for several.

        A block's spreading of heat sideways is left out where the block above it is solved; all heat that
        goes up is in.
        """
        made = np.empty_like(heat)
        solvers, gained = self.factored(shift), heat.copy()
        count = len(heat)

        def part(values: Array, b: LayerBlock) -> Array:
            return values[:, b.start : b.start + b.size].reshape(count, *b.shape)

        for s, contact in zip(solvers, [*self.contacts, None], strict=True):
            part(made, s.block)[:] = s.solve(part(gained, s.block))
            if contact is not None:
                low, high, g = contact
                gained[:, high] += g * made[:, low]
        for s, (low, high, g) in zip(solvers[-2::-1], self.contacts[::-1], strict=True):
            gained[:, low] += g * made[:, high]
            part(made, s.block)[:] = s.solve(part(gained, s.block))
        return made

    def solve(
        self, heat: Array, shift: float = 0.0, start: Array | None = None, tolerance: float = 1e-13
    ) -> Array:
        """Rise [k, cells] where (matrix + shift x capacities) rise = heat; several blocks by iteration."""
        if len(self.blocks) == 1:
            return self._nearly(heat, shift)

        def times(x: Array) -> Array:
            product: Array = (self.matrix @ x.T).T
            return product + shift * self.capacities * x if shift else product

        def dot(a: Array, b: Array) -> Array:
            return np.einsum("kn,kn->k", a, b)[:, None]

        first = self._nearly(heat, shift)
        x = first if start is None else start
        residual = heat - times(x)
        z = self._nearly(residual, shift)
        direction, rz = z, dot(residual, z)
        enough = tolerance**2 * np.maximum(dot(heat, first), 1e-300)
        for _ in range(200):
            if np.all(rz <= enough):
                break
            pushed = times(direction)
            step = rz / np.maximum(dot(direction, pushed), 1e-300)
            x = x + step * direction
            residual = residual - step * pushed
            z = self._nearly(residual, shift)
            before, rz = rz, dot(residual, z)
            direction = z + rz / np.maximum(before, 1e-300) * direction
        return x

    # ------------------------------------------------------------------------------- heat in and out

    def heat_in(self, powers: Mapping[str, Any]) -> Array:
        """Heat put into every cell [W] by powers of layers: even, or a square map of a layer's blocks."""
        made = np.zeros(self.size)
        for name, power in powers.items():
            if name not in self.places:
                raise UnknownName(
                    "layer", name, list(self.places), "the layers of this stack: " + ", ".join(self.places)
                )
            b, slices = self.places[name]
            given = np.atleast_2d(np.asarray(power, float))
            require(
                given.ndim == 2 and given.shape[0] == given.shape[1],
                f"a power map is a square of numbers, for layer {name}",
                shape=given.shape,
            )
            require(
                bool(np.all(np.isfinite(given) & (given >= 0))),
                f"powers of layer {name} must be finite and not negative",
                least=np.min(given),
            )
            share = strip_shares(self.edges[b.first : b.first + len(b.widths) + 1], len(given))
            count = slices.stop - slices.start
            cells = (share.T @ given @ share) / count
            block = made[b.start : b.start + b.size].reshape(b.shape)
            block[slices] += cells
        return made

    def heat_out(self, rise: Array) -> Array:
        """Heat that leaves by the top face [W]."""
        b = self.blocks[-1]
        last = rise[..., b.start + b.size - len(b.widths) ** 2 : b.start + b.size]
        return b.top * last @ np.outer(b.widths, b.widths).ravel()

    def field(self, rise: Array, name: str) -> Array:
        """A layer's part of a solution [..., slices, y, x]."""
        b, slices = self.places[name]
        inside: Array = rise[..., b.start : b.start + b.size].reshape(*rise.shape[:-1], *b.shape)[
            ..., slices, :, :
        ]
        return inside


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
        """Why these temperatures mean nothing, where materials do not keep their properties."""
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

    >>> from strata.hardware.thermal.grid import Layer
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
    """Temperatures after powers are switched on, or follow a function of time; from the coolant's or a state.

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
