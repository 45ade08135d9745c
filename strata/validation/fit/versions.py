"""Records of a fit at other values of its quantities: chips, transports or engines, and the kernel library
that engines call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.hardware.chip import chip
from strata.hardware.transport import transport
from strata.mapping.engine import Engine, engine
from strata.mapping.kernel_library import kernel_library
from strata.params import leaf_paths, override, value_at
from strata.validation.fit.table import OF_LIBRARY, OF_RECORD, Quantity
from strata.validation.readers.catalogue import Catalogue

READ: dict[str, Callable[[str], Any]] = {"chip": chip, "transport": transport, "engine": engine}
PLATFORMS = ("", "rocm")  # on which a library may have a file of its own
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
        """The records with other values of their own quantities."""
        return tuple(
            override(one, {p: float(v) for p, v in values.items() if p in paths}, self.kind)[0]
            for one, paths in zip(self.records, self.paths, strict=True)
        )

    def at(self, values: Iterable[float]) -> Catalogue:
        """What prices rows at some values."""
        by_place: dict[str, dict[str, float]] = {OF_RECORD: {}, OF_LIBRARY: {}}
        for quantity, value in zip(self.quantities, values, strict=True):
            by_place[quantity.of][quantity.path] = float(value)
        records = self.changed(by_place[OF_RECORD])
        if by_place[OF_LIBRARY]:
            records = tuple(self._calling(one, by_place[OF_LIBRARY]) for one in records)
        known = {one.name: one for one in records}
        name = f"{self.kind}s"
        held: Mapping[str, Any] = getattr(self.catalogue, name)
        others: dict[str, Any] = {name: {**held, **known}}
        return replace(self.catalogue, **others)

    def _value(self, quantity: Quantity) -> Any:
        if quantity.of == OF_LIBRARY:
            return value_at(kernel_library(self.records[0].kernels), quantity.path)
        places = zip(self.records, self.paths, strict=True)
        return value_at(next(one for one, paths in places if quantity.path in paths), quantity.path)

    @cached_property
    def paths(self) -> list[set[str]]:
        """The quantities that each record has."""
        own = {q.path for q in self.quantities if q.of == OF_RECORD}
        every = [own & set(leaf_paths(one)) for one in self.records]
        pairs = zip(self.records, every, strict=True)
        return [{path for path in paths if value_at(one, path) is not None} for one, paths in pairs]

    @cached_property
    def _folder(self) -> Any:
        return TemporaryDirectory()

    def _calling(self, one: Engine, values: Mapping[str, float]) -> Engine:
        """An engine whose kernel library has other numbers, on every platform by the same factors."""
        factors = {
            path: value / float(value_at(kernel_library(one.kernels), path)) for path, value in values.items()
        }
        stem = Path(self._folder.name) / f"{one.name}-{abs(hash(tuple(values.items())))}"
        for platform in PLATFORMS:
            library = kernel_library(one.kernels, platform)
            lines = [f'base = "{library.name}"', 'name = "changed"']
            for path, factor in factors.items():
                value = float(value_at(library, path)) * factor
                lines.append(f'{path} = {{ value = {value!r}, source = "changed in a fit" }}')
            stem.with_name(f"{stem.name}{'-' if platform else ''}{platform}.toml").write_text(
                "\n".join(lines)
            )
        return replace(one, kernels=f"{stem}.toml")
