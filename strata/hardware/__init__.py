"""What is built: technology, chips, stacks, fabrics and systems. As `st.hardware`: its public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.lazy import load_on_first_use

if TYPE_CHECKING:
    from strata.hardware.chip import Chip, chip
    from strata.hardware.fabric import Fabric, fabric, sized
    from strata.hardware.generate.recipe import Recipe
    from strata.hardware.money import Economics, economics
    from strata.hardware.silicon.area import area
    from strata.hardware.silicon.cost import cost
    from strata.hardware.silicon.manufacturing import Silicon
    from strata.hardware.system import System, system
    from strata.hardware.thermal.report import Temperatures, heat
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
