"""area(): what fits a chip's logic die, part by part, and why no core does where none fits."""

from __future__ import annotations

from typing import Any

from strata.arrays import Number
from strata.errors import Infeasible
from strata.hardware.chip import Chip, as_chip
from strata.hardware.silicon.floorplan import Area
from strata.hardware.silicon.manufacturing import Silicon, area_of, made_of

LEVERS = (
    "a larger die",
    "fewer connected layers",
    "a finer via pitch",
    "a smaller cache",
    "less local memory",
)


def area(chip: str | Chip, /, *, cores: Number | None = None, **changes: Any) -> Area:
    """The parts of a chip's logic die and the cores that fit; keywords change the chip and how it is made.

    `cores` fixes their number: `unused` is then what is left, negative where they do not fit.

    >>> float(area("stack-ref").cores), [float(area("stack-ref", layers=n).cores) for n in (2, 6, 12)]
    (8.0, [9.0, 7.0, 3.0])
    """
    known = as_chip(chip, **changes)
    return area_of(known, made_of(known), cores)


def area_as_stated(chip: Chip, silicon: Silicon) -> Area:
    """The parts of a logic die with the cores it states and spare ones; `unused` < 0 where they do not fit.

    >>> from strata.hardware.chip import chip
    >>> many = chip("stack-ref", compute__cores=16)
    >>> stated = area_as_stated(many, many.silicon)
    >>> float(stated.cores), float(stated.parts["unused"]) < 0
    (16.0, True)
    """
    return area_of(chip, silicon, chip.compute.cores / silicon.dies + silicon.spare_cores)


def why_not_built(fit: Area, stated: Area) -> Infeasible | None:
    """Why a die cannot be built as stated: not one core fits, or fewer than it states."""
    if none := why_no_core(fit):
        return none
    if float(stated.cores) <= float(fit.cores):
        return None
    room = float(stated.die - stated.parts["gaps"])
    return Infeasible(
        f"a logic die of {float(stated.cores):g} cores, of which {float(fit.cores):g} fit",
        room - float(stated.parts["unused"]),
        room,
        "m2",
        LEVERS,
    )


def why_no_core(area: Area) -> Infeasible | None:
    """Why not one core fits a die, with what would help; None where one does, or for several answers."""
    if getattr(area.cores, "size", 1) != 1 or float(area.cores) >= 1.0:
        return None
    if float(area.edge_used) > float(area.edge):
        return Infeasible(
            "interfaces on the edge of the die",
            float(area.edge_used),
            float(area.edge),
            "m",
            ("a larger die", "fewer interfaces"),
        )
    fixed = sum(float(area.parts[p]) for p in ("cache", "vertical", "interfaces", "fixed"))
    room = float(area.die - area.parts["gaps"])
    return Infeasible("parts of the logic die and one core", fixed + float(area.core), room, "m2", LEVERS)
