"""Ops of a mixture of experts: products over routed rows, and rows on their way to experts and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, TypeGuard

from strata.arrays import Number, field_names
from strata.precision import bytes_of
from strata.workload.graph import Extent, Op, axes_of, total
from strata.workload.ops import Gather, Vector, joined_extent
from strata.workload.routing import Routing

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
