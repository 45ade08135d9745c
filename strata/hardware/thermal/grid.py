"""Layers between board and coolant, and the finite volumes they are cut into.

Layers lie on each other from the board to the coolant, each a square of its own side and at least as large as
the one below: dies, bond, thermal interface, lid, sink. Heat enters in some layers, by a map of powers, and
leaves by convection on the top face; all other faces are adiabatic. Layers of one side form a block;
`strata.hardware.thermal.solve` has the equations between the cells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from strata.base.arrays import Array, Number
from strata.base.errors import BadValue, require
from strata.base.units import show

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
            _check_layer(layer)
        for below, above in zip(self.layers, self.layers[1:], strict=False):
            require(
                below.side <= above.side * (1 + 1e-9),
                f"{above.name} must be at least as large as {below.name} below it",
                **{above.name: above.side, below.name: below.side},
            )
        names = [layer.name for layer in self.layers]
        alone = len(set(names)) == len(names)
        require(alone, "layers of a stack need names of their own", names=", ".join(names))
        require(
            0 < self.transfer < float("inf"),
            "heat leaves by convection: its coefficient must be positive",
            transfer=self.transfer,
        )
        require(0 < self.ambient < float("inf"), "ambient is an absolute temperature", ambient=self.ambient)
        require(self.cells >= 1, "a grid has at least one cell", cells=self.cells)
        if self.height is not None and self.thickness > self.height:
            raise BadValue(
                f"the stack is {show(self.thickness, 'm')} thick, but its package has room for "
                f"{show(self.height, 'm')}; levers: fewer or thinner layers, a thinner lid or sink, "
                "a higher package"
            )

    @property
    def thickness(self) -> float:
        return sum(layer.thickness for layer in self.layers)


# W/m/K, so much that a layer has one temperature from face to face; its inverse lets no heat through
_THROUGH = 1e6


def as_single_nodes(assembly: Assembly) -> Assembly:
    """An assembly whose layers are one node each at their lower face, where heat spreads through the whole
    thickness, with the resistance of the whole thickness above it.

    HotSpot's grid model (Huang et al., HotSpot: a compact thermal modeling methodology, IEEE TVLSI
    14 (2006)).

    >>> layers = (Layer("die", 2e-3, 1e-4, 130.0), Layer("lid", 4e-3, 1e-3, 400.0, slices=2))
    >>> [layer.name for layer in as_single_nodes(Assembly(layers, 1e4, 300.0)).layers]
    ['die', 'die above', 'lid', 'lid above']
    """
    nodes: list[Layer] = []
    for layer in assembly.layers:
        aside = layer.conductivity
        nodes.append(replace(layer, conductivity=_THROUGH, lateral=aside, slices=1))
        nodes.append(replace(layer, name=f"{layer.name} above", lateral=aside / _THROUGH, slices=1))
    return replace(assembly, layers=tuple(nodes), height=None)


def _check_layer(layer: Layer) -> None:
    for name in ("thickness", "conductivity", "side", "capacity", "lateral"):
        value = getattr(layer, name)
        if value is not None:
            positive = 0 < value < float("inf")
            require(positive, f"{name} of layer {layer.name} must be positive", **{name: value})
    require(layer.slices >= 1, f"layer {layer.name} needs at least one slice", slices=layer.slices)


def edges(assembly: Assembly) -> Array:
    """Edges of the cells along one side [m], the centre at 0: equal in the smallest layer, growing outside.

    >>> layers = (Layer("die", 2e-3, 1e-4, 130.0), Layer("lid", 4e-3, 1e-3, 400.0))
    >>> wide = Assembly(layers, 1e4, 300.0, cells=2)
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


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerBlock:
    """Layers of one side: slices from below, cells of one dimension, and conductances for unit area."""

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
        return 1.0 / (self.half[1:] + self.half[:-1])

    @cached_property
    def stiffness(self) -> Array:
        """Conduction between neighbours of one dimension, for unit conductivity and section [1/m]."""
        link = 2.0 / (self.widths[1:] + self.widths[:-1])
        made = np.diag(np.append(link, 0.0) + np.append(0.0, link)) - np.diag(link, 1) - np.diag(link, -1)
        return made

    @cached_property
    def modes(self) -> tuple[Array, Array]:
        """Eigenvalues [1/m2] and eigenvectors of conduction in one dimension, of unit weighted length."""
        scale = self.widths**-0.5
        values, vectors = np.linalg.eigh(scale[:, None] * self.stiffness * scale)
        values[0] = 0.0  # a uniform temperature moves no heat
        return values, scale[:, None] * vectors

    def diagonals(self, shift: float) -> Array:
        """Diagonal of every pair of modes' system [slices, n, n], with heat capacity times `shift` [1/s]."""
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


def strip_shares(lines: Array, count: int) -> Array:
    """Share of each of `count` equal strips that lies in each cell between the lines: [strips, cells]; rows
    add up to 1.
    """
    strips = np.linspace(lines[0], lines[-1], count + 1)
    low = np.maximum(strips[:-1, None], lines[None, :-1])
    high = np.minimum(strips[1:, None], lines[None, 1:])
    return np.maximum(high - low, 0.0) / (strips[1] - strips[0])


Places = dict[str, tuple[LayerBlock, slice]]  # of each layer: its block, and its slices there


def layer_blocks(assembly: Assembly, lines: Array) -> tuple[list[LayerBlock], Places]:
    """Layers of one side as blocks, from below, and where each layer lies: its block and slices."""
    sides = _sides(assembly)
    groups = [
        list(g)
        for _, g in groupby(
            assembly.layers, key=lambda layer: int(np.searchsorted(sides, layer.side * (1 - 1e-9)))
        )
    ]
    blocks: list[LayerBlock] = []
    places: Places = {}
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
        blocks.append(
            LayerBlock(
                first=int(inside[0]),
                widths=np.diff(lines)[inside],
                thickness=cut,
                lateral=lateral,
                capacity=np.array([layer.capacity for layer in sliced]),
                half=half,
                top=1.0 / (half[-1] + beyond),
                start=start,
            )
        )
        start += blocks[-1].size
        at = 0
        for layer in group:
            places[layer.name] = (blocks[-1], slice(at, at + layer.slices))
            at += layer.slices
    return blocks, places


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
