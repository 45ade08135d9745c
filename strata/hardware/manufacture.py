"""What fits a chip's die and what the chip costs to make, by its name: `area` and `cost`."""

from __future__ import annotations

from typing import Any

from strata.arrays import Number
from strata.errors import MissingQuantity, require
from strata.hardware.area import Area
from strata.hardware.chip import Chip, chip
from strata.hardware.cost import Cost
from strata.hardware.silicon import Silicon, area_of, cost_of
from strata.params import names


def area(what: str | Chip, *, cores: Number | None = None, **changes: Any) -> Area:
    """The parts of a chip's logic die, and the cores that fit it; keywords replace quantities of the chip and of how it is made.

    `cores` fixes their number: `unused` is then what is left, negative where they do not fit.

    >>> float(area("stack-ref").cores), [float(area("stack-ref", layers=n).cores) for n in (2, 6, 12)]
    (8.0, [9.0, 7.0, 3.0])
    """
    owner = _owner(what, changes)
    return area_of(owner, made_of(owner), cores)


def cost(what: str | Chip, **changes: Any) -> Cost:
    """What one packaged chip costs to make, without margin, masks and design.

    >>> found = cost("stack-ref")
    >>> round(float(sum(found.parts.values()) / found.made), 12)
    1.0
    """
    owner = _owner(what, changes)
    return cost_of(owner, made_of(owner))


def made_of(owner: Chip) -> Silicon:
    """How a chip is made, or one line where nothing says so."""
    if owner.silicon is None:
        raise MissingQuantity(f"nothing says how chip '{owner.name}' is made; name a floorplan with made_by: {', '.join(names('floorplans'))}")
    return owner.silicon


def _owner(what: str | Chip, changes: dict[str, Any]) -> Chip:
    if isinstance(what, Chip):
        require(not changes, "change a chip's numbers where it is made: chip(name, field=value)")
        return what
    return chip(what, **changes)
