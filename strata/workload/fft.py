"""Fast Fourier transforms of a grid, one dimension after the other, or of one long line; and the op that
transforms one dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from strata.base.arrays import Number, namespace
from strata.base.precision import bytes_of
from strata.base.records import readable
from strata.params import record
from strata.workload.graph import Block, BlockSequence, Extent, Graph, Op, Tensor, axes_of, checked, volume
from strata.workload.ops import RowOps
from strata.workload.protocol import Program
from strata.workload.tasks import Workload

AXES = ("x", "y", "z")
BUTTERFLY_FLOP = 5.0  # real operations a point and stage, of a complex radix-2 transform


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FftLines(Op):
    """Complex transforms of `points` along one axis, for every line of the other axes of a grid."""

    kind: ClassVar[str] = "fft"
    category: ClassVar[str] = "vector"

    points: Extent
    lines: tuple[Extent, ...]  # a product
    precision: str  # of a real or imaginary part

    def elements(self) -> Number:
        return volume((self.points, *self.lines))

    def flop(self) -> Number:
        r"""Operations of all lines.

        .. math:: F = 5 N \log_2 n

        N points of the grid in lines of n. Van Loan, Computational Frameworks for the FFT (1992), sec. 1.4.

        >>> no = {"name": "", "module": "", "inputs": (), "output": ""}
        >>> op = FftLines(points=Extent(8.0), lines=(), precision="fp32", **no)
        >>> float(op.flop())
        120.0
        """
        stages = namespace(self.points.size).log(self.points.size) / namespace(self.points.size).log(2.0)
        return BUTTERFLY_FLOP * self.elements() * stages

    def output_bytes(self) -> Number:
        return 2.0 * self.elements() * bytes_of(self.precision)

    def indivisible_axes(self) -> tuple[str, ...]:
        return axes_of(self.points)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.points, *self.lines)

    def gradient(self) -> tuple[Op, ...]:
        """The gradient of a linear transform is the transposed one: the same work."""
        return (self.turned(),)


@readable()
@record
class Fft(Program):
    """Transforms of grids of two or three dimensions; each dimension is a module of its own.

    In pencils each transform finds its own axis whole and the others divided: between two of them the layout
    turns, which is an all-to-all.
    """

    name: str = "fft"
    points: Number = 512.0  # along each axis
    axes: tuple[str, ...] = AXES  # of the grid
    precision: str = "fp32"

    @property
    def units(self) -> dict[str, Number]:
        return dict.fromkeys(self.axes, self.points)

    mesh_dimensions = ("p", "q")

    def layout_text(self) -> str:
        return "p=2,q=4 (pencils), or p=8 (slabs)"

    def layout(self, p: Number = 1.0, q: Number = 1.0) -> dict[str, Any]:
        """The mesh and axes of pencils: each transform has its own axis whole, and the others on p and q in
        turn.
        """
        first, second, *rest = self.axes
        turns: dict[str, dict[str, str]] = {first: {second: "p"}, second: {first: "p"}}
        for (
            axis
        ) in rest:  # the third axis takes q while the first two are transformed, and gives it to the second
            turns[first][axis] = turns[second][axis] = "q"
            turns[axis] = {first: "p", second: "q"}
        return {"mesh": {"p": p, "q": q}, **turns}

    def trace(self, work: Workload) -> Graph:
        axes = self.axes
        grid = {axis: Extent(self.points, 1.0, axis) for axis in axes}
        batch = Extent(work.batch, 1.0, "grids")
        ops = [
            FftLines(
                name=f"fft_{axis}",
                module=axis,
                inputs=(f"grid_{i}" if i else "grid",),
                output=f"grid_{i + 1}",
                points=grid[axis],
                lines=(batch, *(grid[a] for a in axes if a != axis)),
                precision=self.precision,
            )
            for i, axis in enumerate(axes)
        ]
        entry = Tensor("grid", (batch, *grid.values(), Extent(2.0)), self.precision)
        graph = Graph(
            blocks=(Block(name="transform", role=axes[0], ops=tuple(ops), entry=entry),),
            sequence=BlockSequence(first=("transform",)),
            items=work.batch,
            item="grid",
            units=self.units,
        )
        return checked(graph)


@readable()
@record
class LongFft(Program):
    """A transform of one line too long for one memory: as a matrix, first its columns, then its rows.

    The four-step algorithm takes point j = n2 x + y as entry (x, y) of n1 rows and n2 columns, about as many,
    transforms along x, multiplies by twiddle factors on the way (counted with neither step: it is done while
    a line is written), and transforms along y. Each step has its own axis whole: the layout turns between
    them, which is an all-to-all. `ordered` takes and gives the line in order (six-step): a rank's part is
    then a run of the line, so that the layout turns at both ends too, and the result is written once more.

    Bailey, FFTs in External or Hierarchical Memory, J. Supercomput. 4 (1990).
    """

    name: str = "fft-1d"
    points: Number = 2.0**30
    precision: str = "fp32"
    ordered: bool = False

    def sides(self) -> tuple[Number, Number]:
        """Rows and columns of the matrix, their product the length: powers of two next to its root.

        >>> LongFft(points=2.0**27).sides()
        (8192.0, 16384.0)
        """
        xp = namespace(self.points)
        rows = 2.0 ** xp.floor(xp.log(self.points) / xp.log(4.0) + 1e-9)
        return rows, self.points / rows

    @property
    def units(self) -> dict[str, Number]:
        rows, columns = self.sides()
        return {"x": rows, "y": columns}

    mesh_dimensions = ("p",)

    def layout_text(self) -> str:
        return "p=8 (each step with its own axis whole)"

    def layout(self, p: Number = 1.0) -> dict[str, Any]:
        """The mesh and axes of a line in p runs."""
        return {"mesh": {"p": p}, "x": {"y": "p"}, "y": {"x": "p"}, "line": {"x": "p"}, "result": {"y": "p"}}

    def trace(self, work: Workload) -> Graph:
        rows, columns = self.sides()
        x, y, batch = Extent(rows, 1.0, "x"), Extent(columns, 1.0, "y"), Extent(work.batch, 1.0, "lines")
        steps = (("x", "line", "half", x, y), ("y", "half", "whole", y, x))
        ops: list[Op] = [
            FftLines(
                name=f"fft_{axis}", module=axis, inputs=(source,), output=made, points=along,
                lines=(batch, other), precision=self.precision,
            )
            for axis, source, made, along, other in steps
        ]  # fmt: skip
        if self.ordered:
            reals = Extent(columns, 2.0 * work.batch, "y")  # complex, of every line
            make = RowOps("result", x, self.precision, self.precision)
            ops.append(make.vector("order", "whole", "result", reals))
        entry = Tensor("line", (batch, x, y, Extent(2.0)), self.precision)
        role = "line" if self.ordered else "x"
        graph = Graph(
            blocks=(Block(name="transform", role=role, ops=tuple(ops), entry=entry),),
            sequence=BlockSequence(first=("transform",)),
            items=work.batch,
            item="line",
            units=self.units,
        )
        return checked(graph)
