"""How a chip is made, from `data/floorplans/`: process, joints, package, floorplan and network; and the die
that makes.

Nothing here reads chips: what a chip's file leaves out may follow from how it is made
(`strata.hardware.derive`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strata.arrays import Number, namespace
from strata.errors import MissingQuantity, require
from strata.hardware.noc import Noc, router_area
from strata.hardware.silicon.floorplan import Area, Floorplan, area_parts
from strata.hardware.technology import bonding, packaging, technology
from strata.params import names, part, positive, quantity, record, text

if TYPE_CHECKING:
    from strata.hardware.chip import Chip

# Files that a record of silicon names.
NAMES: dict[str, Callable[[str], Any]] = {
    "technology": technology,
    "bonding": bonding,
    "packaging": packaging,
}


@record
class Silicon:
    """How a chip is made: process, joints, package and floorplan."""

    name: str = text("the chip it belongs to")
    note: str = text("what a reader of these numbers should know", default="")
    technology: str = text("process of the logic die: a file of technology/")
    bonding: str = text("how dies are joined: a file of bonding/")
    packaging: str = text("what they are put into: a file of packaging/")
    dies: Number = quantity("1", "logic dies of a chip", minimum=1)
    beside: Number = quantity("1", "stacks of DRAM beside the logic; 0 where it is stacked on top")
    beside_area: Number = quantity("m2", "area of one such stack")
    memory_price: Number = quantity(
        "USD/B",
        "DRAM: as whole stacks where it stands beside the logic, as thinned dies with vias where it is "
        "bonded here",
    )
    known_good: Number = positive("1", "share of layers tested good before bonding that are good")
    repairable: Number = quantity("1", "share of a logic die in which a defect is repaired or switched off")
    spare_cores: Number = quantity("1", "cores of a die that are built and not sold, so that some may be bad")
    floorplan: Floorplan | None = part(Floorplan, "areas of the parts of the logic die")
    noc: Noc | None = part(Noc, "network between cores and vaults")


def check_silicon(silicon: Silicon, file: str) -> None:
    """Refuse shares above 1 and names of processes, joints and packages that are not there."""
    for name, read in NAMES.items():
        read(getattr(silicon, name))
    shares = {"known_good": silicon.known_good, "repairable": silicon.repairable}
    if silicon.floorplan is not None:
        shares["floorplan.utilisation"] = silicon.floorplan.utilisation
    for name, value in shares.items():
        high = float(value.max()) if hasattr(value, "max") else float(value)
        require(high <= 1, f"{file}: a share is at most 1", **{name: high})


def made_of(chip: Chip) -> Silicon:
    """How a chip is made, or one line where nothing says so."""
    if chip.silicon is None:
        raise MissingQuantity(
            f"nothing says how chip '{chip.name}' is made; name a floorplan with floorplan_file: "
            f"{', '.join(names('floorplans'))}"
        )
    return chip.silicon


def area_of(chip: Chip, silicon: Silicon, cores: Number | None = None) -> Area:
    """The parts of a chip's logic die, and the cores that fit it.

    `cores` fixes their number: `unused` is then what is left, negative where they do not fit.

    >>> from strata.hardware.chip import chip
    >>> float(area_of(chip("stack-ref"), chip("stack-ref").silicon).cores)
    8.0
    """
    if silicon.floorplan is None:
        raise MissingQuantity(f"chip {chip.name} has no [floorplan] in data/floorplans/{chip.name}.toml")
    stack, compute = chip.stack, chip.compute
    layers = 0.0 if stack is None else stack.layers
    connected = layers if stack is None or stack.connected_layers is None else stack.connected_layers
    channels, width = (0.0, 0.0) if stack is None else (stack.channels_per_layer, stack.channel_width)
    return area_parts(
        silicon.floorplan,
        chip.package.die_area / silicon.dies,
        capacity=compute.sram_capacity,
        width=compute.sram_bandwidth / compute.clock,
        cache=chip.cache.capacity / silicon.dies,
        layers=layers,
        connected=connected,
        channels=channels,
        channel_width=width,
        router=_router(silicon.noc, channels),
        cores=cores,
    )


def _router(noc: Noc | None, channels: Number) -> Number:
    if noc is None:
        return 0.0
    return router_area(noc, channels if noc.vaults is None else noc.vaults)


def usable_cores(area: Area, silicon: Silicon) -> Number:
    r"""Cores of a chip that are sold: those that fit its dies, less the spare ones.

    .. math:: N = n_d \max(0, N_{fit} - N_{spare})

    >>> from strata.hardware.chip import chip
    >>> float(usable_cores(area_of(chip("h100"), chip("h100").silicon), chip("h100").silicon))
    132.0
    """
    xp = namespace(area.cores, silicon.spare_cores)
    return silicon.dies * xp.maximum(area.cores - silicon.spare_cores, 0.0)
