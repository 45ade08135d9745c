"""Element-wise ops of attention over compressed keys: windows made one entry, keys that all heads share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from strata.arrays import Number, field_names
from strata.precision import bytes_of
from strata.workload.graph import Extent, Op, axes_of, total
from strata.workload.ops import Vector


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WindowPool(Vector):
    """Windows of tokens made one entry each, by weights of their own; the tokens of an open window are kept
    for the next step.
    """

    sequences: Extent
    window: Number  # tokens that are kept

    def state_bytes(self) -> Number:
        kept = self.sequences.size * self.window * total(self.n)
        return 0.0 if self.backward else kept * bytes_of(self.precision)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SharedRotation(Vector):
    """Queries of all heads turned, with the keys that they share, which are its operands after the first: the
    gradient of those is a sum over heads.
    """

    def gradient(self) -> tuple[Op, ...]:
        (made,) = Vector.gradient(self)
        back = Vector(**{name: getattr(made, name) for name in field_names(Vector)})
        heads, keys = self.n
        shared = replace(
            back,
            name=f"{self.name}_shared",
            inputs=(back.output,),
            output=f"{back.output}_shared",
            n=(keys,),
            reads=1.0,
            writes=1.0,
            flop_per_element=1.0,
            looked_up=axes_of(heads),
            beside=(heads,),
        )
        return back, shared

    def gradient_place(self, place: int, gradients: tuple[Op, ...]) -> Op:
        return gradients[min(place, 1)]
