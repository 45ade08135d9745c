"""The discrete equations of heat in a stack of layers: finite volumes, and their solution.

Layers lie on each other from the board to the coolant, each a square of its own side and at least as large as
the one below: dies, bond, thermal interface, lid, sink. Heat enters in some layers, by a map of powers, and
leaves by convection on the top face; all other faces are adiabatic.

Layers of one side form a block. In a block, conduction along x and y has the same form in every layer, so
that eigenvectors of one dimension (a cosine transform where cells are equal) turn the block into one
tridiagonal system for each pair of modes. A stack of one side is solved by that at once; for several sides it
is the preconditioner of conjugate gradients on the sparse system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from strata.errors import BadValue, UnknownName, require
from strata.units import show

Array = np.ndarray[Any, Any]
GROWTH = 1.3  # of cell widths outside the smallest layer, from one to the next


@dataclass(frozen=True)
class Layer:
    """A slab of one material. Heat capacity matters in time only; several slices resolve a thick layer."""

    name: str
    side: float  # m
    thickness: float  # m
    conductivity: float  # W/m/K, upwards
    lateral: float | None = None  # W/m/K along the layer; left out: as upwards
    capacity: float = 1.63e6  # J/m3/K; silicon's
    slices: int = 1


@dataclass(frozen=True)
class Assembly:
    """Layers from the board to the coolant, and what cools them."""

    layers: tuple[Layer, ...]
    transfer: float  # W/m2/K on the top face
    ambient: float  # K, of the coolant
    cells: int = 32  # across the smallest layer
    height: float | None = None  # m the package has room for; left out: any

    def __post_init__(self) -> None:
        require(len(self.layers) > 0, "a stack needs at least one layer")
        for layer in self.layers:
            numbers = {
                "thickness": layer.thickness,
                "conductivity": layer.conductivity,
                "side": layer.side,
                "capacity": layer.capacity,
            }
            if layer.lateral is not None:
                numbers["lateral"] = layer.lateral
            for name, value in numbers.items():
                require(
                    0 < value < float("inf"),
                    f"{name} of layer {layer.name} must be positive",
                    **{name: value},
                )
            require(layer.slices >= 1, f"layer {layer.name} needs at least one slice", slices=layer.slices)
        for below, above in zip(self.layers, self.layers[1:], strict=False):
            fits = below.side <= above.side * (1 + 1e-9)
            require(
                fits,
                f"{above.name} must be at least as large as {below.name} below it",
                **{above.name: above.side, below.name: below.side},
            )
        names = [layer.name for layer in self.layers]
        require(
            len(set(names)) == len(names), "layers of a stack need names of their own", names=", ".join(names)
        )
        require(
            0 < self.transfer < float("inf"),
            "heat leaves by convection: its coefficient must be positive",
            transfer=self.transfer,
        )
        require(0 < self.ambient < float("inf"), "ambient is an absolute temperature", ambient=self.ambient)
        require(self.cells >= 1, "a grid has at least one cell", cells=self.cells)
        if self.height is not None and self.thickness > self.height:
            raise BadValue(
                f"the stack is {show(self.thickness, 'm')} thick, but its package has room for {show(self.height, 'm')}; levers: fewer or thinner layers, "
                "a thinner lid or sink, a higher package"
            )

    @property
    def thickness(self) -> float:
        return sum(layer.thickness for layer in self.layers)


def edges(assembly: Assembly) -> Array:
    """Edges of the cells along one side [m], the centre at 0: equal cells in the smallest layer, growing ones
    outside.

    >>> wide = Assembly((Layer("die", 2e-3, 1e-4, 130.0), Layer("lid", 4e-3, 1e-3, 400.0)), 1e4, 300.0, cells=2)
    >>> (edges(wide) * 1e3).round(3).tolist()
    [-2.0, -1.0, 0.0, 1.0, 2.0]
    """
    sides = _sides(assembly)
    half = sides[0] / 2
    inner = np.linspace(-half, half, assembly.cells + 1)
    width = sides[0] / assembly.cells
    outer: list[float] = []
    for side in sides[1:]:
        pad, last = side / 2 - half, width
        # As many growing cells as the ring needs, stretched so that they end on its edge.
        count = max(1, int(np.ceil(np.log1p(pad / last * (GROWTH - 1)) / np.log(GROWTH) - 0.5)))
        steps = last * GROWTH ** np.arange(count)
        steps *= pad / steps.sum()
        outer += (half + np.cumsum(steps)).tolist()
        half, width = side / 2, float(steps[-1])
    ring = np.array(outer)
    return np.concatenate([-ring[::-1], inner, ring])


def _sides(assembly: Assembly) -> list[float]:
    """The distinct sides, smallest first; those equal but for rounding are one."""
    found: list[float] = []
    for layer in assembly.layers:
        if not found or layer.side > found[-1] * (1 + 1e-9):
            found.append(layer.side)
    return found


@dataclass(frozen=True, eq=False)
class Block:
    """Layers of one side: slices from below, cells of one dimension, and the conductances between them for
    unit area.
    """

    first: int  # its first cell among all edges' cells
    widths: Array  # [n] m
    thickness: Array  # [slices] m
    lateral: Array  # [slices] W/m/K
    capacity: Array  # [slices] J/m3/K
    half: Array  # [slices] m2K/W from a slice's middle to its faces
    top: float  # W/m2/K from the last slice's middle to what is above it
    start: int  # of its unknowns

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.thickness), len(self.widths), len(self.widths)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @cached_property
    def vertical(self) -> Array:
        """Conductance between neighbouring slices [W/m2/K]."""
        made: Array = 1.0 / (self.half[1:] + self.half[:-1])
        return made

    @cached_property
    def stiffness(self) -> Array:
        """Conduction between neighbouring cells of one dimension, for unit conductivity and section: a matrix
        [1/m].
        """
        link = 2.0 / (self.widths[1:] + self.widths[:-1])
        made = np.diag(np.append(link, 0.0) + np.append(0.0, link)) - np.diag(link, 1) - np.diag(link, -1)
        return made

    @cached_property
    def modes(self) -> tuple[Array, Array]:
        """Eigenvalues [1/m2] and eigenvectors of conduction along one dimension, of unit length when weighted
        by widths.
        """
        scale = self.widths**-0.5
        values, vectors = np.linalg.eigh(scale[:, None] * self.stiffness * scale)
        values[0] = 0.0  # a uniform temperature moves no heat
        return values, scale[:, None] * vectors

    def diagonals(self, shift: float) -> Array:
        """Diagonal of the tridiagonal system of every pair of modes [slices, n, n], with heat capacity times
        `shift` [1/s].
        """
        values = self.modes[0]
        upward = (
            np.append(0.0, self.vertical)
            + np.append(self.vertical, self.top)
            + shift * self.capacity * self.thickness
        )
        made: Array = upward[:, None, None] + (self.thickness * self.lateral)[:, None, None] * (
            values[:, None] + values[None, :]
        )
        return made


class Factored:
    """A block ready to be solved for many right-hand sides: forward elimination of every mode's tridiagonal
    system, done once.
    """

    def __init__(self, block: Block, shift: float):
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
        solved: Array = vectors @ x @ vectors.T
        return solved


class Problem:
    """The discrete equations of an assembly: conduction matrix, heat capacities, and where each layer's cells
    are.
    """

    def __init__(self, assembly: Assembly):
        self.assembly = assembly
        self.edges = edges(assembly)
        self.blocks, self.places = _blocks(assembly, self.edges)
        self.size = self.blocks[-1].start + self.blocks[-1].size
        self._factored: dict[float, list[Factored]] = {}

    @cached_property
    def matrix(self) -> Any:
        """Conduction [W/K], symmetric and positive definite: matrix @ (T - ambient) is the heat that leaves
        each cell.
        """
        from scipy import sparse  # a tenth of a second that every start would pay

        parts = []
        for b in self.blocks:
            mass, stiff = sparse.diags(b.widths), sparse.csr_matrix(b.stiffness)
            along = sparse.kron(mass, stiff) + sparse.kron(stiff, mass)
            g = np.append(0.0, b.vertical) + np.append(b.vertical, b.top if b is self.blocks[-1] else 0.0)
            upward = sparse.diags([g, -b.vertical, -b.vertical], [0, 1, -1])
            parts.append(
                sparse.kron(sparse.diags(b.thickness * b.lateral), along)
                + sparse.kron(upward, sparse.kron(mass, mass))
            )
        whole = sparse.block_diag(parts, format="csr")
        for low, high, g in self.contacts:
            rows, columns = np.concatenate([low, high, low, high]), np.concatenate([low, high, high, low])
            whole = (
                whole
                + sparse.coo_matrix((np.concatenate([g, g, -g, -g]), (rows, columns)), whole.shape).tocsr()
            )
        return whole

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

        def part(values: Array, b: Block) -> Array:
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
        """Rise [k, cells] where (matrix + shift x capacities) rise = heat [k, cells]; conjugate gradients
        where there are several blocks.
        """
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

    # -------------------------------------------------------------------------------------------- heat in and
    # out

    def heat_in(self, powers: Mapping[str, Any]) -> Array:
        """Heat put into every cell [W] by powers of layers: a number spread evenly, or a square map of the
        layer's blocks [W each].
        """
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
            share = _overlap(self.edges[b.first : b.first + len(b.widths) + 1], len(given))
            count = slices.stop - slices.start
            cells = (share.T @ given @ share) / count
            block = made[b.start : b.start + b.size].reshape(b.shape)
            block[slices] += cells
        return made

    def heat_out(self, rise: Array) -> Array:
        """Heat that leaves by the top face [W]."""
        b = self.blocks[-1]
        last = rise[..., b.start + b.size - len(b.widths) ** 2 : b.start + b.size]
        out: Array = b.top * last @ np.outer(b.widths, b.widths).ravel()
        return out

    def field(self, rise: Array, name: str) -> Array:
        """A layer's part of a solution [..., slices, y, x]."""
        b, slices = self.places[name]
        inside: Array = rise[..., b.start : b.start + b.size].reshape(*rise.shape[:-1], *b.shape)[
            ..., slices, :, :
        ]
        return inside


def _overlap(lines: Array, count: int) -> Array:
    """Share of each of `count` equal strips that lies in each cell between the lines: [strips, cells]; rows
    add up to 1.
    """
    strips = np.linspace(lines[0], lines[-1], count + 1)
    low = np.maximum(strips[:-1, None], lines[None, :-1])
    high = np.minimum(strips[1:, None], lines[None, 1:])
    shares: Array = np.maximum(high - low, 0.0) / (strips[1] - strips[0])
    return shares


def _blocks(assembly: Assembly, lines: Array) -> tuple[list[Block], dict[str, tuple[Block, slice]]]:
    """Layers of one side as blocks, from below, and where each layer lies: its block and slices."""
    sides = _sides(assembly)
    groups = [
        list(g)
        for _, g in groupby(
            assembly.layers, key=lambda layer: int(np.searchsorted(sides, layer.side * (1 - 1e-9)))
        )
    ]
    blocks: list[Block] = []
    places: dict[str, tuple[Block, slice]] = {}
    start = 0
    for group, above in zip(groups, [*groups[1:], []], strict=True):
        edge = group[0].side / 2 * (1 + 1e-6)
        inside = np.flatnonzero((lines[:-1] >= -edge) & (lines[1:] <= edge))
        sliced = [layer for layer in group for _ in range(layer.slices)]
        cut = np.array([layer.thickness / layer.slices for layer in sliced])
        half = cut / 2 / np.array([layer.conductivity for layer in sliced])
        lateral = np.array(
            [layer.conductivity if layer.lateral is None else layer.lateral for layer in sliced]
        )
        beyond = (
            above[0].thickness / above[0].slices / 2 / above[0].conductivity
            if above
            else 1.0 / assembly.transfer
        )
        capacity = np.array([layer.capacity for layer in sliced])
        blocks.append(
            Block(
                int(inside[0]),
                np.diff(lines)[inside],
                cut,
                lateral,
                capacity,
                half,
                1.0 / (half[-1] + beyond),
                start,
            )
        )
        start += blocks[-1].size
        at = 0
        for layer in group:
            places[layer.name] = (blocks[-1], slice(at, at + layer.slices))
            at += layer.slices
    return blocks, places
