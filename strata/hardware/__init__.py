"""What is built: technology, chips, stacks, fabrics and systems. As `st.hardware`: its public names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from strata.calls import checked_names, if_function
from strata.hardware.chip import Chip, chip
from strata.hardware.fabric import Fabric, fabric, sized
from strata.hardware.money import Economics, economics
from strata.hardware.system import System, system
from strata.hardware.topology import Topology, topology

if TYPE_CHECKING:
    from strata.hardware.generate.recipe import Recipe
    from strata.hardware.silicon.area import area
    from strata.hardware.silicon.cost import cost
    from strata.hardware.silicon.manufacturing import Silicon
    from strata.hardware.thermal.report import Temperatures, heat

# What is loaded when it is first asked for: reports need solvers, few chips are generated.
_LAZY = {
    "Recipe": "strata.hardware.generate.recipe",
    "area": "strata.hardware.silicon.area",
    "cost": "strata.hardware.silicon.cost",
    "Silicon": "strata.hardware.silicon.manufacturing",
    "Temperatures": "strata.hardware.thermal.report",
    "heat": "strata.hardware.thermal.report",
}
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


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return if_function(getattr(import_module(_LAZY[name]), name))


checked_names(globals(), __all__)


def __dir__() -> list[str]:
    return __all__
