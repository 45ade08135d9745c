"""Records of a fit at other values of its quantities: chips, transports or engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.hardware.chip import chip
from strata.hardware.transport import transport
from strata.mapping.engine import engine
from strata.params import leaf_paths, override, value_at
from strata.validation.fit.table import Quantity
from strata.validation.readers.catalogue import Catalogue

READ: dict[str, Callable[[str], Any]] = {"chip": chip, "transport": transport, "engine": engine}
SMALLEST = 1e-12  # of a value or a prediction, so that it has a logarithm


@dataclass(frozen=True, eq=False, kw_only=True)
class Versions:
    """Records of a kind and the quantities of them that move, one value for all that have it. `here`: values
    to go on from, where a fit has moved already; `before`: those that what rows do not tell goes back to.
    """

    kind: str
    records: tuple[Any, ...]
    quantities: Sequence[Quantity]
    catalogue: Catalogue = field(default_factory=Catalogue)
    here: tuple[float, ...] = ()
    before: tuple[float, ...] = ()

    @cached_property
    def own(self) -> Array:
        """The values of the records themselves, or before any fit; none zero."""
        return np.array(self.before or [max(float(self._value(q)), SMALLEST) for q in self.quantities])

    @property
    def start(self) -> Array:
        """The values to go on from."""
        return np.array(self.here) if self.here else self.own

    @property
    def ends(self) -> tuple[Array, Array]:
        """The lowest and the highest value that each quantity may take."""
        low, high = (np.array([getattr(q, end) for q in self.quantities], float) for end in ("low", "high"))
        return low, high

    def changed(self, values: Mapping[str, float]) -> tuple[Any, ...]:
        """The records with other values of their quantities."""
        return tuple(
            override(one, {p: float(v) for p, v in values.items() if p in paths}, self.kind)[0]
            for one, paths in zip(self.records, self.paths, strict=True)
        )

    def at(self, values: Iterable[float]) -> Catalogue:
        """What prices rows at some values."""
        pairs = zip(self.quantities, values, strict=True)
        records = self.changed({quantity.path: float(value) for quantity, value in pairs})
        name = f"{self.kind}s"
        held: Mapping[str, Any] = getattr(self.catalogue, name)
        others: dict[str, Any] = {name: {**held, **{one.name: one for one in records}}}
        return replace(self.catalogue, **others)

    def _value(self, quantity: Quantity) -> Any:
        places = zip(self.records, self.paths, strict=True)
        return value_at(next(one for one, paths in places if quantity.path in paths), quantity.path)

    @cached_property
    def paths(self) -> list[set[str]]:
        """The quantities that each record has."""
        own = {q.path for q in self.quantities}
        every = [own & set(leaf_paths(one)) for one in self.records]
        pairs = zip(self.records, every, strict=True)
        return [{path for path in paths if value_at(one, path) is not None} for one, paths in pairs]
