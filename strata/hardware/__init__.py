"""What is built: technology, chips, stacks, fabrics and systems. As `st.hardware`: its public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.base.lazy import load_on_first_use

if TYPE_CHECKING:
    from strata.hardware.chip import Chip, chip
    from strata.hardware.fabric import Fabric, fabric, sized
    from strata.hardware.generate.recipe import Recipe
    from strata.hardware.making import area, cost
    from strata.hardware.money import Economics, economics
    from strata.hardware.silicon.floorplan import Silicon
    from strata.hardware.system import System, system
    from strata.hardware.temperatures import Temperatures, heat
    from strata.hardware.topology import Topology, topology

__all__ = [
    "Chip",
    "Economics",
    "Fabric",
    "Recipe",
    "Silicon",
    "System",
    "Temperatures",
    "Topology",
    "area",
    "chip",
    "cost",
    "economics",
    "fabric",
    "heat",
    "sized",
    "system",
    "topology",
]
load_on_first_use(__name__)
