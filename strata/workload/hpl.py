"""HPL: a dense linear system solved by LU factorisation with blocks of columns on a grid of processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.base.arrays import SCALARS, Number, namespace
from strata.base.records import readable
from strata.params import record
from strata.workload.graph import Block, BlockSequence, Extent, Graph, Op, Tensor, checked
from strata.workload.ops import RowOps
from strata.workload.protocol import Program
from strata.workload.tasks import Workload

NODES = 8  # sizes of the trailing matrix that stand for all iterations


def iteration_nodes(count: Number, nodes: int) -> tuple[tuple[Number, Number], ...]:
    r"""Places among 0, 1, ..., count - 1 and weights that stand for a sum over all of them.

    .. math:: \sum_{i=0}^{N-1} f(i) \approx \sum_j w_j f(i_j), \qquad
              J_{jj} = \frac{N-1}{2}, \quad J_{j,j+1}^2 = \frac{j^2 (N^2 - j^2)}{4 (4 j^2 - 1)}

    Gauss quadrature of a discrete sum: places are eigenvalues of J, the Jacobi matrix of Gram's polynomials,
    weights N times the squared first entries of its eigenvectors. Places are then rounded, so that what is
    left of a matrix is whole blocks, and weights moved as little as makes quadratic functions exact again
    (operations of LU are quadratic in i). With as many nodes as numbers, each is itself.

    Golub & Welsch, Math. Comp. 23 (1969); Gram's polynomials: Abramowitz & Stegun, 22.17.

    >>> made = iteration_nodes(512.0, 8)
    >>> round(sum(w * i**2 for i, w in made) / sum(i**2 for i in range(512)), 12), made[0][0]
    (1.0, 10.0)
    """
    xp: Any = np if namespace(count) is SCALARS else namespace(count)
    total = xp.asarray(count)[..., None] * 1.0
    step = np.arange(1.0, nodes)
    beside = xp.sqrt(xp.maximum(step**2 * (total**2 - step**2) / (4.0 * (4.0 * step**2 - 1.0)), 0.0))
    above, below = np.eye(nodes)[:-1], np.eye(nodes)[1:]  # rows j and j + 1 of the band beside the diagonal
    band = xp.einsum("...j,jr,jc->...rc", beside, above, below)
    centre = (total - 1.0)[..., None] / 2.0 * np.eye(nodes)
    found, vectors = xp.linalg.eigh(band + xp.swapaxes(band, -1, -2) + centre)
    weights, places = total * vectors[..., 0, :] ** 2, xp.floor(found + 0.5)
    power = np.arange(3.0)[:, None]
    scaled, exact = (places / total)[..., None, :] ** power, (found / total)[..., None, :] ** power
    lost = ((exact - scaled) * weights[..., None, :]).sum(-1)[..., None]
    heavy = scaled * weights[..., None, :]
    solved = xp.linalg.pinv(xp.einsum("...ri,...si->...rs", heavy, scaled)) @ lost
    weights = weights + (xp.swapaxes(heavy, -1, -2) @ solved)[..., 0]
    if namespace(count) is SCALARS:
        return tuple((float(i), float(w)) for i, w in zip(places, weights, strict=True))
    return tuple((places[..., j], weights[..., j]) for j in range(nodes))


@readable()
@record
class Hpl(Program):
    """LU of a matrix in blocks of columns: each iteration factors a panel, solves for rows of U, and updates
    the rest.

    Axes: `rows` and `columns` of what is left of the matrix, dealt out block-cyclically on p x q processes,
    so that every rank has its share to the end, and `panel`, the columns of a block. A panel is worked on in
    parts by the q ranks of a row and gathered there; rows of U likewise by the p ranks of a column: HPL's
    long broadcast and its spread-roll exchange. Its choice of one pivot after the other and the sending
    of single rows are left out, as is the solution of the triangular system. Dongarra, Luszczek &
    Petitet, The LINPACK Benchmark: Past, Present and Future (2003), sec. 4.

    With look-ahead, as HPL runs by default, what is sent hides behind the update of the iteration before.
    Iterations are counted at `NODES` sizes (`iteration_nodes`): operations exactly, times to
    1 % where there are 16 or more.
    """

    name: str = "hpl"
    order: Number = 65536.0  # rows and columns of the matrix
    block: Number = 1024.0  # columns of a panel
    iterations: Number | None = None  # run from the first on; all, order / block of them, where left out
    lookahead: bool = True  # the next panel is made and sent while the rest is updated
    precision: str = "fp64"

    @property
    def units(self) -> dict[str, Number]:
        return {"rows": self.order, "columns": self.order, "panel": self.block}

    mesh_dimensions = ("p", "q")

    def layout_text(self) -> str:
        return "p=2,q=4 (a grid of 2 x 4 processes)"

    def layout(self, p: Number = 1.0, q: Number = 1.0) -> dict[str, Any]:
        """The mesh and axes of a grid of processes: panels are divided over the ranks that they are sent
        along.
        """
        return {
            "mesh": {"p": p, "q": q},
            "axes": {"rows": "p", "columns": "q"},
            "factor": {"panel": "q"},
            "solve": {"panel": "p"},
        }

    def trace(self, work: Workload) -> Graph:
        count = self.order / self.block if self.iterations is None else self.iterations
        nodes = tuple((w, self._ops(self.order - i * self.block)) for i, w in iteration_nodes(count, NODES))
        matrix = Tensor(
            "matrix", (Extent(self.order, 1.0, "rows"), Extent(self.order, 1.0, "columns")), self.precision
        )
        block = Block(
            name="iteration",
            role="update",
            ops=nodes[0][1],
            nodes=nodes,
            repeats=work.batch,
            entry=matrix,
            ahead=self.lookahead,
        )
        graph = Graph(
            blocks=(block,),
            sequence=BlockSequence(first=("iteration",)),
            items=work.batch,
            item="system",
            inputs=("column_block", "row_block"),
            formats=((self.precision, self.precision),),
            units=self.units,
        )
        return checked(graph)

    def _ops(self, side: Number) -> tuple[Op, ...]:
        r"""One iteration where `side` rows and columns are left.

        .. math:: \left(s B^2 - \tfrac{B^3}{3}\right) + B^2 (s - B) + 2 B (s - B)^2
                  = \tfrac{2}{3} \left(s^3 - (s - B)^3\right)

        Panel, rows of U, update: together 2/3 n^3 over all iterations.
        """
        xp, width = namespace(side, self.block), self.block
        rest = xp.maximum(side - width, 1e-9)  # the last iteration leaves nothing
        panel, rows, columns = (
            Extent(width, 1.0, "panel"), Extent(rest, 1.0, "rows"), Extent(rest, 1.0, "columns")
        )  # fmt: skip
        formats, left = (self.precision, self.precision), Extent(side, 1.0, "rows")
        inner = Extent(width / 2.0 * (1.0 - width / (3.0 * side)))
        factor = RowOps("factor", left, *formats).product(
            "factor", "column_block", "l", panel, inner, stored=False
        )
        solve = RowOps("solve", panel, *formats).product(
            "solve", "row_block", "u", columns, Extent(width / 2.0), stored=False
        )
        update = RowOps("update", rows, *formats).product(
            "update", ("l", "u"), "trailing", columns, panel, stored=False
        )
        return factor, solve, update
