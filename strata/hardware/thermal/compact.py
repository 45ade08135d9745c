"""Temperatures at the speed of a search: the exact linear reduction of a stack, and what heat feeds back.

Temperatures are linear in powers: every cell is the coolant plus a sum of resistances times powers. Powers
are never negative, so the hottest cell of a layer is one of the few whose resistances lie on the upper convex
hull. `reduce` solves a geometry once and keeps those cells; `heat_of` does it for each distinct geometry of a
batch and hands the rows out; `hottest` is a maximum of a few sums. `UnsolvedHeat` is a batch whose geometries
are known and checked, and not solved yet.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number, namespace, repeated
from strata.base.errors import require
from strata.hardware.dram.stack import Stack, connected_layers
from strata.hardware.thermal.cooling import (
    CELLS,
    OUTSIDE,
    SHAPING,
    Cooling,
    assembly,
    check_cooling,
    check_sides,
    dram_die,
    power_map,
    stack_thickness,
)
from strata.hardware.thermal.solve import Problem
from strata.params import record

SOURCES = ("logic", "connected DRAM", "idle DRAM")
MOST_GEOMETRIES = 2000  # distinct ones in a batch; each is a solution of its own
LN2 = math.log(2.0)
SETTLED = 1e-11  # K of a step after which Newton's method has nothing left to gain
NO_ROOM = 1e6  # K/W of a stack that its package has no room for
Row = tuple[Number, Number, Number]
Geometry = tuple[Cooling, int, float, int | None]  # cooling, layers, area [m2], connected layers


# ------------------------------------------------------------------------------------------ one geometry


@dataclass(frozen=True, eq=False)
class Reduction:
    """Cells that can be hottest: resistances [cells, sources] to logic, connected and idle DRAM [K/W]."""

    rows: dict[str, Array]  # by die
    dram: Array  # of all DRAM

    @property
    def logic(self) -> Array:
        return self.rows["logic"]


def reduce(
    cooling: Cooling, layers: int, area: float, connected: int | None = None, cells: int = CELLS
) -> Reduction:
    """The reduction of one stack of plain numbers; a watt of DRAM is even over the layers of its kind.

    Connected layers are those next to the logic die.
    """
    connected = layers if connected is None else connected
    require(
        0 <= connected <= layers,
        "connected layers are some of the layers",
        connected=connected,
        layers=layers,
    )
    return _reduced(_key(cooling), layers, float(area), connected, cells)


@lru_cache(maxsize=2 * MOST_GEOMETRIES)
def _reduced(key: tuple[Any, ...], layers: int, area: float, connected: int, cells: int) -> Reduction:
    found = _responses(key, layers, area, cells)
    share = np.zeros((1 + layers, len(SOURCES)))
    share[0, 0] = 1.0
    share[1 : 1 + connected, 1] = 1.0 / max(connected, 1)
    share[1 + connected :, 2] = 1.0 / max(layers - connected, 1)
    rows = {name: upper_hull(cell @ share) for name, cell in found.items()}
    dies = [of for name, of in rows.items() if name != "logic"]
    return Reduction(rows, upper_hull(np.concatenate(dies)) if dies else np.zeros((1, len(SOURCES))))


def _key(cooling: Cooling) -> tuple[Any, ...]:
    shaping = (getattr(cooling, name) for name in SHAPING)
    return (cooling.arrangement, *(None if value is None else float(value) for value in shaping))


@lru_cache(maxsize=64)
def _responses(key: tuple[Any, ...], layers: int, area: float, cells: int) -> dict[str, Array]:
    """Rise of every cell of every die for a watt in each die: {die: [cells, 1 + layers]}."""
    shaping: dict[str, Any] = dict(zip(SHAPING, key[1:], strict=True))
    # Temperatures over the coolant do not depend on the rest; 1 stands for any of it.
    cooling = Cooling(arrangement=key[0], **shaping, **dict.fromkeys(OUTSIDE, 1.0))  # type: ignore[arg-type]
    problem = Problem(assembly(cooling, layers, area, cells))
    dies = ["logic", *(dram_die(i) for i in range(layers))]
    watts: dict[str, Any] = {"logic": power_map(float(cooling.hot_share))} | dict.fromkeys(dies[1:], 1.0)
    powers = [{name: watt} for name, watt in watts.items()]
    rise = problem.solve(np.array([problem.heat_in(p) for p in powers]))
    return {name: problem.field(rise, name).reshape(len(dies), -1).T for name in dies}


def upper_hull(points: Array) -> Array:
    """The points that can have the largest product with a vector that has no negative component.

    >>> upper_hull(np.array([[1.0, 0.0], [0.0, 1.0], [0.4, 0.4], [0.7, 0.7]])).tolist()
    [[0.7, 0.7], [1.0, 0.0], [0.0, 1.0]]
    """
    kept: list[Array] = []
    slack = 1e-10 * float(np.max(points, initial=0.0))
    # no point is hotter in every way than one before it
    rest = points[np.argsort(-points.sum(axis=1), kind="stable")]
    while len(rest):
        kept.append(rest[0])
        rest = rest[1:][np.any(rest[1:] > rest[0] + slack, axis=1)]
    corners = np.array(kept)
    return corners if len(corners) <= 2 else _outermost(corners)


def _outermost(points: Array) -> Array:
    """Those of a set without dominated points that no mixture of the others is as hot as."""
    from scipy.spatial import ConvexHull, QhullError

    axes = np.flatnonzero(np.ptp(points, axis=0) > 1e-12 * np.max(points))
    inside = points[:, axes]
    # With their shadows on every plane the points fill space, and what is not on the upper side is no corner.
    shadows = np.concatenate(
        [np.where(np.arange(len(axes)) == i, 0.0, inside) for i in range(len(axes))]
        + [np.zeros((1, len(axes)))]
    )
    try:
        corners = (
            ConvexHull(np.concatenate([inside, shadows]) / np.max(inside, axis=0)).vertices
            if len(axes) > 1
            else np.arange(len(points))
        )
    except QhullError:
        return points
    return points[np.sort(corners[corners < len(points)])]


# ---------------------------------------------------------------------------------------------- batches


@record
class ThermalModel:
    """Resistances of the cells that can be hottest, limits, and how leakage follows temperature."""

    logic: tuple[Row, ...]  # K/W to powers of logic, connected DRAM, idle DRAM
    dram: tuple[Row, ...]
    ambient: Number
    logic_limit: Number
    dram_limit: Number
    refresh_limit: Number
    leakage_share: Number
    leakage_temperature: Number
    leakage_doubling: Number


# What a thermal model takes over from its cooling as it is.
TAKEN = tuple(f.name for f in fields(ThermalModel) if f.name not in ("logic", "dram"))


def tabulate(geometries: Sequence[Geometry], cells: int = CELLS) -> tuple[Array, Array]:
    """Rows of many geometries: logic and DRAM, each [rows, sources, geometries].

    Geometries with fewer rows than others repeat their first, which changes no maximum.
    """
    found = [reduce(*geometry, cells) for geometry in geometries]

    def padded(rows: list[Array]) -> Array:
        most = max(len(r) for r in rows)
        return np.stack([np.concatenate([r, np.repeat(r[:1], most - len(r), axis=0)]) for r in rows], axis=-1)

    return padded([f.logic for f in found]), padded([f.dram for f in found])


def heat_of(stack: Stack, cooling: Cooling, area: Number, cells: int = CELLS) -> ThermalModel:
    """Heat of a stack whose quantities may be arrays: each distinct geometry is solved once.

    >>> from strata.hardware.chip import chip
    >>> stack = chip("stack-ref", layers=np.array([1.0, 8.0])).stack
    >>> heat = heat_of(stack, chip("stack-ref").cooling, 1e-4)
    >>> junction(heat, 60.0, 20.0, 0.0)[0].round(1).tolist()
    [346.7, 354.7]
    """
    return unsolved_heat(stack, cooling, area, cells).solve()


@dataclass(frozen=True, eq=False, kw_only=True)
class UnsolvedHeat:
    """The distinct geometries of a batch of stacks, and which of them each point has."""

    cooling: Cooling
    geometries: tuple[Geometry, ...]
    room: Array  # [geometries] whether it fits its package
    index: Array  # [points] its geometry
    shape: tuple[int, ...]
    cells: int

    def solve(self) -> ThermalModel:
        """Resistances of every geometry, handed out to the points; endless without room in its package."""
        fitting = [g for g, fits in zip(self.geometries, self.room, strict=True) if fits]
        logic, dram = (self._rows(table) for table in tabulate(fitting, self.cells))
        taken = {name: getattr(self.cooling, name) for name in TAKEN}
        return ThermalModel(logic=logic, dram=dram, **taken)

    def _rows(self, table: Array) -> tuple[Row, ...]:
        whole = np.full((*table.shape[:2], len(self.geometries)), NO_ROOM)
        whole[..., self.room] = table
        if not self.shape:
            return tuple((float(a[0]), float(b[0]), float(c[0])) for a, b, c in whole)
        points = whole[..., self.index].reshape(*table.shape[:2], *self.shape)
        return tuple((logic, connected, idle) for logic, connected, idle in points)


def unsolved_heat(stack: Stack, cooling: Cooling, area: Number, cells: int = CELLS) -> UnsolvedHeat:
    """The geometries of a stack whose quantities may be arrays, each refused here if it cannot be built."""
    check_cooling(cooling)
    varied = {"layers": stack.layers, "connected": connected_layers(stack), "area": area}
    varied |= {name: value for name in SHAPING if (value := getattr(cooling, name)) is not None}
    arrays = {name: np.asarray(value, float) for name, value in varied.items()}
    for name in ("layers", "connected"):
        whole = bool(np.all(arrays[name] % 1 == 0))
        require(whole, f"{name} of a stack are whole numbers", **{name: varied[name]})
    check_sides(cooling, arrays["area"] ** 0.5)
    shape = np.broadcast_shapes(*(a.shape for a in arrays.values()))
    index, points = _distinct({name: np.broadcast_to(a, shape).ravel() for name, a in arrays.items()})
    geometries: list[Geometry] = []
    for point in points:
        layers, joined, side = int(point.pop("layers")), int(point.pop("connected")), point.pop("area")
        geometries.append((replace(cooling, **point), layers, side, joined))
    room = np.array([g[0].height is None or stack_thickness(*g[:2]) <= g[0].height for g in geometries])
    if not room.any():
        assembly(*geometries[0][:3], cells)  # says how much it is too thick
    return UnsolvedHeat(
        cooling=cooling, geometries=tuple(geometries), room=room, index=index, shape=shape, cells=cells
    )


def _distinct(columns: dict[str, Array]) -> tuple[Array, list[dict[str, Any]]]:
    """Which of the distinct points each point is, and those points."""
    count = len(next(iter(columns.values())))
    code = np.zeros(count, int)
    for values in columns.values():
        if np.ptp(values) > 0:
            _, own = np.unique(values, return_inverse=True)
            _, code = np.unique(code * (own.max() + 1) + own, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    require(
        len(first) <= MOST_GEOMETRIES,
        f"at most {MOST_GEOMETRIES} distinct stacks can be solved at once; round their sizes",
        distinct=len(first),
    )
    return code, [{name: float(values[i]) for name, values in columns.items()} for i in first]


# -------------------------------------------------------------------------------------------- equations


def hottest(ambient: Number, rows: Sequence[Row], powers: Sequence[Number]) -> Number:
    r"""Temperature of the hottest cell [K].

    .. math:: T = T_0 + \max_i \sum_k R_{ik} P_k

    coolant T0 [K]; resistances R [K/W] of the cells that can be hottest; powers P [W], none negative.
    Constant conductivities; equals the finite-volume solution on the same grid.

    Superposition: conduction is linear in its sources (Incropera et al., Fundamentals of Heat and Mass
    Transfer, sec. 4.1).

    >>> hottest(300.0, ((0.5, 0.2, 0.1), (0.4, 0.4, 0.1)), (10.0, 20.0, 0.0))
    312.0
    """
    xp = namespace(ambient, *powers, *(r for row in rows for r in row))
    rises = (row[0] * powers[0] + row[1] * powers[1] + row[2] * powers[2] for row in rows)
    return ambient + functools.reduce(xp.maximum, rises)


def junction(heat: ThermalModel, logic: Number, connected: Number, idle: Number) -> tuple[Number, Number]:
    """Temperatures of the hottest cell of logic and of all DRAM [K] at powers [W] of logic, of connected and
    of idle DRAM layers in all.

    >>> from strata.hardware.chip import chip
    >>> heat = replace(
    ...     chip("stack-ref").heat, logic=((0.5, 0.4, 0.4),), dram=((0.4, 0.5, 0.5),), ambient=308.0,
    ...     logic_limit=378.0, leakage_temperature=358.0, leakage_doubling=25.0)
    >>> junction(heat, 60.0, 20.0, 0.0)
    (346.0, 342.0)
    """
    powers = (logic, connected, idle)
    return hottest(heat.ambient, heat.logic, powers), hottest(heat.ambient, heat.dram, powers)


def leakage(power: Number, temperature: Number, reference: Number, doubling: Number) -> Number:
    r"""Leakage at a temperature [W].

    .. math:: P = P_0 \, 2^{(T - T_0) / \Delta}

    leakage P0 [W] at a temperature T0 [K]; rise Δ [K] that doubles it. Near enough between 20 and 120 °C.

    Subthreshold current against temperature: Roy, Mukhopadhyay and Mahmoodi-Meimand, Proc. IEEE 91 (2003),
    sec. II.

    >>> leakage(10.0, 383.0, 358.0, 25.0)
    20.0
    """
    return power * namespace(temperature, reference, doubling).exp(
        (temperature - reference) * (LN2 / doubling)
    )


def settled_temperature(
    heat: ThermalModel, logic: Number, leaking: Number, connected: Number, idle: Number, steps: int = 16
) -> tuple[Number, Number]:
    r"""Temperature of logic [K] at which its leakage feeds the heat that keeps it there, and that leakage
    [W].

    .. math:: T = T_0 + \max_i \left( R_i P + R_{i,logic} P_0 \, 2^{(T - T_r) / \Delta} \right)

    power of logic without leakage, leakage P0 at the temperature Tr at which it is stated, powers of
    connected and of idle DRAM [W]. The right side is convex in T, so Newton's method from below rises to the
    lowest solution and never passes it. There is one at or below the limit of logic if and only if the right
    side at the limit is not above it; where it is above, the temperature is infinite and the leakage that of
    the limit.

    Liao, He and Lepak, IEEE Trans. CAD 24 (2005): leakage and temperature have to be solved together.

    >>> from strata.hardware.chip import chip
    >>> heat = replace(
    ...     chip("stack-ref").heat, logic=((0.5, 0.4, 0.4),), dram=((0.4, 0.5, 0.5),), ambient=308.0,
    ...     logic_limit=378.0, leakage_temperature=358.0, leakage_doubling=25.0)
    >>> temperature, leaks = settled_temperature(heat, 60.0, 12.0, 20.0, 0.0)
    >>> round(temperature, 2), round(leaks, 2), round(308 + 0.5 * (60 + leaks) + 0.4 * 20, 2)
    (350.93, 9.86, 350.93)
    """
    xp = namespace(heat.ambient, logic, leaking, connected, idle, *(r for row in heat.logic for r in row))

    # Rise of each cell without leakage [K], and what a watt of leakage adds to it.
    rises = [(row[0] * logic + row[1] * connected + row[2] * idle, row[0]) for row in heat.logic]
    least = rises[0][1]
    for _, own in rises[1:]:
        least = xp.minimum(least, own)

    def leaks(t: Number) -> Number:
        return leakage(leaking, t, heat.leakage_temperature, heat.leakage_doubling)

    def warmed(own: Number) -> Number:
        found = rises[0][0] + rises[0][1] * own
        for rise, each in rises[1:]:
            found = xp.maximum(found, rise + each * own)
        return heat.ambient + found

    def next_one(t: Number) -> Number:
        own = leaks(t)
        # The row that is hottest here has the slope; a step by a smaller slope stays below the solution too.
        slope = own * (least * (LN2 / heat.leakage_doubling))
        return xp.minimum(t + (warmed(own) - t) / xp.maximum(1.0 - slope, 0.02), heat.logic_limit)

    limit = heat.logic_limit
    holds = warmed(leaks(limit)) <= limit
    settled = repeated(steps, next_one, xp.minimum(warmed(0.0), limit), SETTLED)
    return xp.where(holds, settled, float("inf")), leaks(xp.where(holds, settled, limit))
