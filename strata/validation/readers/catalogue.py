"""What the names in measured files mean: a catalogue is handed to every reader, and a fit hands in one with
its own versions of some records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strata.errors import UnknownName
from strata.hardware.chip import Chip, chip
from strata.hardware.fabric import Fabric, fabric
from strata.hardware.system import System, system
from strata.hardware.transport import Transport, transport
from strata.mapping.engine import Engine, engine
from strata.workload.model import Model, model


@dataclass(frozen=True, eq=False, kw_only=True)
class Catalogue:
    """Chips, systems, engines, models and transports by the names data sets give them.

    Records are read from the shipped files, each once for a catalogue and those made from it. `chips`,
    `engines` and `transports` hold, by their own names, versions priced in place of the shipped ones; such a
    chip need not be shipped at all. `one_in`: of long files of served runs only one row in so many is read.
    """

    chips: Mapping[str, Chip] = field(default_factory=dict)
    engines: Mapping[str, Engine] = field(default_factory=dict)
    transports: Mapping[str, Transport] = field(default_factory=dict)
    one_in: int = 1
    _read: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)

    def with_chip(self, version: Chip) -> Catalogue:
        """The same with another version of a chip."""
        return replace(self, chips={**self.chips, version.name: version})

    def with_transport(self, version: Transport) -> Catalogue:
        """The same with another version of a transport, wherever a fabric uses it."""
        return replace(self, transports={**self.transports, version.name: version})

    def chip(self, name: str) -> Chip:
        """A chip by any of its names.

        >>> catalogue = Catalogue()
        >>> catalogue.chip("H200_SXM").name
        'h200'
        >>> from dataclasses import replace
        >>> other = replace(catalogue.chip("h200"), title="a trial")
        >>> catalogue.with_chip(other).chip("h200_sxm").title
        'a trial'
        """
        wanted = name.strip().lower()
        for version in self.chips.values():
            if version.name.lower() == wanted:
                return version
        shipped = self._once(chip, wanted)
        return self.chips.get(shipped.name, shipped)

    def has_chip(self, name: str) -> bool:
        """Whether there is such a chip."""
        try:
            return bool(self.chip(name).name)
        except UnknownName:
            return False

    def system(self, name: str) -> System:
        """A system by name, with the catalogue's versions of its chip and of its fabric's transports."""
        shipped: System = self._once(system, name.strip().lower())
        if not self.chips and not self.transports:
            return shipped
        return replace(
            shipped,
            chip=self.chips.get(shipped.chip.name, shipped.chip),
            fabric=self._with_transports(shipped.fabric),
        )

    def usual_fabric(self, chip_name: str) -> Fabric:
        """The fabric that joins chips of this name unless one says otherwise."""
        return self.fabric(self.chip(chip_name).fabric)

    def fabric(self, name: str) -> Fabric:
        """A fabric by name, with the catalogue's versions of its transports."""
        return self._with_transports(self._once(fabric, name))

    def transport(self, name: str) -> Transport:
        """A transport by name."""
        version: Transport = self.transports.get(name) or self._once(transport, name)
        return version

    def engine(self, name: str) -> Engine:
        """An engine by name, as of the version or date after an @ (`vllm@0.11`); the newest without."""
        version: Engine = self.engines.get(name) or self._once(engine, name)
        return version

    def model(self, name: str, **changes: Any) -> Model:
        """A model by the name a data set gives it."""
        named: Model = self._once(model, name.strip().lower(), **changes)
        return named

    def _with_transports(self, joined: Fabric) -> Fabric:
        if not any(d.transport in self.transports for d in joined.dimension):
            return joined
        dimension = tuple(
            replace(d, transport_model=self.transports[d.transport]) if d.transport in self.transports else d
            for d in joined.dimension
        )
        return replace(joined, dimension=dimension)

    def _once(self, read: Callable[..., Any], name: str, **changes: Any) -> Any:
        key = (read.__name__, name, *sorted(changes.items()))
        if key not in self._read:
            self._read[key] = read(name, **changes)
        return self._read[key]
