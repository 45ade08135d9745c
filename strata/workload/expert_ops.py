"""Ops of a mixture of experts: products over routed rows, and rows on their way to experts and back. Routing
as it was seen: popularity of experts from a file, in the few numbers that prices need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeGuard

import numpy as np

from strata.base.arrays import Number, field_names, register_pytree
from strata.base.errors import BadFile, require
from strata.base.precision import bytes_of
from strata.base.reading import csv_file, json_file
from strata.base.units import finite_array, finite_number
from strata.workload.graph import Extent, Op, axes_of, total
from strata.workload.ops import Gather, Vector, joined_extent

SHARED_EXPERT = "shared_expert"
ROUTER = "router"  # work on each token that decides where it goes: on whichever rank holds the token
EXPERT_ROWS = "expert_rows"  # element-wise work on the rows that were sent to experts


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ExpertMatMul(Op):
    """One product of the routed experts: each of `tokens` goes to `top_k` of `experts`, each k x n."""

    kind: ClassVar[str] = "experts"
    category: ClassVar[str] = "experts"
    multiplies: ClassVar[bool] = True
    routed: ClassVar[bool] = True

    tokens: Extent
    top_k: Number
    experts: Extent
    all_experts: Number
    n: tuple[Extent, ...]
    k: Extent
    skew: Number
    weight: str
    activation: str
    bias: bool = False
    routing: Routing | None = None  # popularity from a trace, in place of the skew
    redundant_experts: Number = 0.0  # copies of popular experts beside all experts
    ranks: Number = 1.0  # parts the experts are dealt out to
    groups: Number = 1.0  # equal parts of the experts that the router picks from
    top_groups: Number = 1.0  # parts that the picks of one token may lie in
    generates: bool = False  # of a step that only generates
    weighted_bias: bool = False  # its bias is added to results times each row's routing weight

    @property
    def slots(self) -> Number:
        """Experts of the layer with their redundant copies."""
        return self.all_experts + self.redundant_experts

    def flop(self) -> Number:
        share = self.experts.size / self.slots
        return 2.0 * self.tokens.size * self.top_k * share * total(self.n) * self.k.size

    def weight_elements(self) -> Number:
        return self.experts.size * total(self.n) * (self.k.size + (1.0 if self.bias else 0.0))

    def weight_bytes(self) -> Number:
        return self.weight_elements() * bytes_of(self.weight)

    def output_bytes(self) -> Number:
        routed = self.tokens.size * self.top_k * self.experts.size / self.slots
        return routed * total(self.n) * bytes_of(self.activation)

    def operand_axes(self, place: int) -> tuple[str, ...]:
        return axes_of(self.experts, self.k)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.experts, *self.n)

    def contracted_axes(self) -> tuple[str, ...]:
        return axes_of(self.k)

    def gradient(self) -> tuple[Op, ...]:
        """Both gradients of a grouped product move the same operands through the same shapes, transposed."""
        back = f"d_{self.output}"
        dgrad = self.turned(name=f"{self.name}_dgrad", n=(self.k,), k=joined_extent(self.n), bias=False)
        if self.frozen:
            return (dgrad,)
        wgrad = replace(
            dgrad,
            name=f"{self.name}_wgrad",
            inputs=(back, f"forward:{self.inputs[0]}"),
            output=f"d_{self.name}_weight@{self.name}",
            weight_gradient=True,
            weighted_bias=False,
        )
        return dgrad, wgrad


def is_expert_product(op: Op) -> TypeGuard[ExpertMatMul]:
    return op.kind == ExpertMatMul.kind


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Dispatch(Gather):
    """Rows of tokens on their way to the experts they picked: `top_k` copies of `width` elements for each
    token.
    """

    route: ClassVar[str] = "dispatch"

    top_k: Number
    width: Number
    token: Number  # elements of one token, before it is sent or after its results are added up

    def partial_bytes(self) -> Number:
        """Bytes of the rows that were sent: each pick of a token has `writes` elements."""
        return self.output_bytes()

    def gradient(self) -> tuple[Op, ...]:
        return (_routed_back(self, Combine),)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Combine(Gather):
    """Results of a token's experts brought back and added up."""

    route: ClassVar[str] = "combine"

    top_k: Number
    width: Number
    token: Number  # as of a Dispatch

    def gradient(self) -> tuple[Op, ...]:
        return (_routed_back(self, Dispatch),)


def _routed_back(op: Dispatch | Combine, kind: type[Dispatch] | type[Combine]) -> Op:
    """The gradient of a routed op goes the other way with as many rows: those of a dispatch come back and are
    added up for each token, those of a combine go out, one for each pick.
    """
    (back,) = Vector.gradient(op)
    rows = op.writes / op.top_k if kind is Combine else op.writes
    moved = (
        {"reads": op.writes, "writes": op.reads} if kind is Dispatch else {"reads": op.reads, "writes": rows}
    )
    return kind(**{name: getattr(back, name) for name in field_names(kind)} | moved)


def is_routed(op: Op) -> TypeGuard[Dispatch | Combine]:
    """Whether it moves rows between the ranks of tokens and those of experts."""
    return bool(op.route)


GROUPS = 8  # equal groups of experts, from the least popular to the most


@register_pytree
@dataclass(frozen=True, eq=False)
class Routing:
    """How unevenly experts are asked for, averaged over the layers of a trace.

    `shares`: popularity of each of eight equal groups of experts, least popular first, 1 on average. `ranks`
    and `busiest`: for so many ranks that hold neighbouring experts, the picks of the busiest one over the
    mean.
    """

    shares: tuple[Number, ...]
    ranks: tuple[Number, ...]
    busiest: tuple[Number, ...]


def routing(counts: np.ndarray | list[list[float]]) -> Routing:
    """Routing from picks (or popularity) of each expert, one row for each layer; layers count alike.

    >>> seen = routing([[1.0] * 8 + [3.0] * 8])
    >>> seen.shares[0], seen.shares[-1], dict(zip(seen.ranks, seen.busiest, strict=True))[2.0]
    (0.5, 1.5, 1.5)
    """
    table = np.atleast_2d(finite_array(counts, "picks of experts"))
    require(
        table.ndim == 2 and table.shape[1] > 1,
        "routing has one row for each layer and one column for each expert",
        shape=table.shape,
    )
    require(
        bool(np.all(np.isfinite(table)) and np.all(table >= 0)),
        "picks of experts must be numbers that are not negative",
    )
    sums = table.sum(axis=1)
    require(bool(np.all(sums > 0)), "every layer of a routing needs picks", layer=int(np.argmin(sums)))
    popular = table / sums[:, None] * table.shape[1]
    experts = table.shape[1]
    # Group edges fall between experts or inside one: the sum up to an edge is linear between experts.
    ordered = np.concatenate([np.zeros((len(table), 1)), np.cumsum(np.sort(popular, axis=1), axis=1)], axis=1)
    edges = np.linspace(0.0, experts, GROUPS + 1)
    reached = np.array([np.interp(edges, np.arange(experts + 1.0), row) for row in ordered])
    shares = np.diff(reached, axis=1).mean(axis=0) / (experts / GROUPS)
    ranks = [d for d in range(1, experts + 1) if experts % d == 0]
    most = [popular.reshape(len(table), d, -1).mean(axis=2).max(axis=1).mean() for d in ranks]
    return Routing(tuple(map(float, shares)), tuple(map(float, ranks)), tuple(map(float, most)))


def read_routing(path: str | Path, experts: Number | None = None) -> Routing:
    """Routing from a file: CSV with one line of picks a layer (a heading is skipped), or JSON with a list of
    such lists.

    A JSON object may hold them as `counts`; a flat list is one layer.
    """
    where = Path(path)
    if not where.is_file():
        raise BadFile(
            f"no routing file {path}: CSV with one line of picks for each layer, or JSON with a list of lists"
        )
    try:
        rows = _json_rows(where) if where.suffix == ".json" else _csv_rows(where)
    except BadFile:
        raise
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise BadFile(f"{path}: a routing has one row of numbers for each layer ({error})") from None
    require(
        len(rows) > 0 and len({len(r) for r in rows}) == 1,
        f"{path}: every layer names the same experts",
        columns=sorted({len(r) for r in rows}),
    )
    if experts is not None:
        require(
            len(rows[0]) == int(float(experts)),
            f"{path}: one number for each of the model's experts",
            experts=int(float(experts)),
            got=len(rows[0]),
        )
    return routing(np.array(rows))


def _json_rows(where: Path) -> list[list[float]]:
    found = json_file(where)
    listed = found["counts"] if isinstance(found, dict) else found
    if not (isinstance(listed, list) and listed):
        raise ValueError("it has no rows")
    listed = listed if isinstance(listed[0], list) else [listed]
    return [[float(x) for x in row] for row in listed]


def _csv_rows(where: Path) -> list[list[float]]:
    lines = [row for _, row in csv_file(where)]
    if lines and not _numeric(lines[0][0]):
        lines = lines[1:]
    return [[finite_number(x) for x in line] for line in lines]


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
