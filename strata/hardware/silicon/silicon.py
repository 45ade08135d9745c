"""How a chip is made, from `data/floorplans/`: technology, floorplan and network; what that makes of a chip's
die, and what it costs.

Nothing here reads chips: `area_of` and `cost_of` take one, so that a chip may be finished by them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strata.arrays import Number, namespace, register_pytree
from strata.errors import Infeasible, MissingQuantity, require
from strata.hardware.dram.stack import connected
from strata.hardware.noc import Noc, router_area
from strata.hardware.silicon.area import Area, Floorplan, area_parts
from strata.hardware.silicon.cost import Cost, chip_cost
from strata.hardware.silicon.energy import leakage_power, sram_energy, vertical_energy, wire_energy
from strata.hardware.technology import bonding, packaging, technology
from strata.params import part, quantity, text

if TYPE_CHECKING:
    from strata.hardware.chip import Chip

# bytes a clock of one bank of local memory: the 64-bit accesses that energies of SRAM are published for
BANK_PORT = 8.0
ZERO_CELSIUS = 273.15
MADE_OF: dict[str, Callable[[str], Any]] = {
    "technology": technology,
    "bonding": bonding,
    "packaging": packaging,
}


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
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
        "DRAM: as whole stacks where it stands beside the logic, as thinned dies with vias where it is bonded here",
    )
    known_good: Number = quantity(
        "1", "share of layers tested good before bonding that are good", positive=True
    )
    repairable: Number = quantity("1", "share of a logic die in which a defect is repaired or switched off")
    spare_cores: Number = quantity("1", "cores of a die that are built and not sold, so that some may be bad")
    floorplan: Floorplan | None = part(Floorplan, "areas of the parts of the logic die", optional=True)
    noc: Noc | None = part(Noc, "network between cores and vaults", optional=True)


def check_silicon(made: Silicon, where: str) -> None:
    """Refuse shares above 1 and names of processes, joints and packages that are not there."""
    for name, known in MADE_OF.items():
        known(getattr(made, name))
    shares = {"known_good": made.known_good, "repairable": made.repairable}
    if made.floorplan is not None:
        shares["floorplan.utilisation"] = made.floorplan.utilisation
    for name, value in shares.items():
        high = float(value.max()) if hasattr(value, "max") else float(value)
        require(high <= 1, f"{where}: a share is at most 1", **{name: high})


def area_of(owner: Chip, made: Silicon, cores: Number | None = None) -> Area:
    """The parts of a chip's logic die, and the cores that fit it.

    `cores` fixes their number: `unused` is then what is left, negative where they do not fit.

    >>> from strata.hardware.chip import chip
    >>> float(area_of(chip("stack-ref"), chip("stack-ref").silicon).cores)
    8.0
    """
    plan = made.floorplan
    if plan is None:
        raise MissingQuantity(f"chip {owner.name} has no [floorplan] in data/floorplans/{owner.name}.toml")
    stack = owner.stack
    layers = 0.0 if stack is None else stack.layers
    connected = layers if stack is None or stack.connected_layers is None else stack.connected_layers
    channels, width = (0.0, 0.0) if stack is None else (stack.channels_per_layer, stack.channel_width)
    compute, die = owner.compute, owner.package.die_area / made.dies
    return area_parts(
        plan,
        die,
        capacity=compute.sram_capacity,
        width=compute.sram_bandwidth / compute.clock,
        cache=owner.cache.capacity / made.dies,
        layers=layers,
        connected=connected,
        channels=channels,
        channel_width=width,
        router=_router(made.noc, channels),
        cores=cores,
    )


def _router(noc: Noc | None, channels: Number) -> Number:
    if noc is None:
        return 0.0
    return router_area(noc, channels if noc.vaults is None else noc.vaults)


def usable_cores(found: Area, made: Silicon) -> Number:
    r"""Cores of a chip that are sold: those that fit its dies, less the spare ones.

    .. math:: N = n_d \max(0, N_{fit} - N_{spare})

    >>> from strata.hardware.chip import chip
    >>> float(usable_cores(area_of(chip("h100"), chip("h100").silicon), chip("h100").silicon))
    132.0
    """
    xp = namespace(found.cores, made.spare_cores)
    return made.dies * xp.maximum(found.cores - made.spare_cores, 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class Compared:
    """An energy by geometry and process beside the one a chip states [J/B]; leakage [W]. None: the chip
    states none.
    """

    name: str
    geometry: Number
    stated: Number | None
    what: str


def energies_of(owner: Chip, made: Silicon) -> tuple[Compared, ...]:
    """What geometry and process make of a chip's energies, beside what it states: how far its numbers can be
    believed.

    Local memory is cut into banks with a port of 8 bytes each, as many as its width needs; wires go along the
    side of a die.

    >>> from strata.hardware.chip import chip
    >>> [(e.name, round(float(e.geometry) * 1e12, 2)) for e in energies_of(chip("stack-ref"), chip("stack-ref").silicon)[:3]]  # pJ/B
    [('local memory', 0.65), ('across the die', 6.4), ('up the stack', 1.0)]
    """
    process, compute, energy = technology(made.technology), owner.compute, owner.energy
    banks = compute.sram_bandwidth / compute.clock / BANK_PORT
    side = (owner.package.die_area / made.dies) ** 0.5
    found = [
        Compared(
            "local memory",
            sram_energy(process, compute.sram_capacity / banks, BANK_PORT),
            energy.sram,
            "a bank; stated with its crossbar",
        ),
        Compared(
            "across the die",
            wire_energy(process, side),
            None if made.noc is None else made.noc.hop_energy,
            "wires; stated: a hop of the network",
        ),
    ]
    if owner.stack is not None:
        joints = vertical_energy(bonding(made.bonding), connected(owner.stack))
        found.append(Compared("up the stack", joints, energy.memory, "joints; stated: DRAM with them"))
    share = 1.0 if owner.heat is None else owner.heat.leakage_share
    what = f"at {float(process.reference_temperature) - ZERO_CELSIUS:.0f} degC; stated: {'static power' if owner.heat is None else 'its leaking share'}"
    return (
        *found,
        Compared(
            "leakage", leakage_power(process, owner.package.die_area), energy.static_power * share, what
        ),
    )


def cost_of(owner: Chip, made: Silicon) -> Cost:
    """What one packaged chip costs to make, without margin, masks and design.

    >>> from strata.hardware.chip import chip
    >>> 100 < float(cost_of(chip("stack-ref"), chip("stack-ref").silicon).made) < 300
    True
    """
    return chip_cost(
        technology(made.technology),
        bonding(made.bonding),
        packaging(made.packaging),
        die_area=owner.package.die_area,
        dies=made.dies,
        memory=owner.memory.capacity,
        memory_price=made.memory_price,
        layers=0.0 if owner.stack is None else owner.stack.layers,
        beside=made.beside,
        beside_area=made.beside_area,
        known_good=made.known_good,
        repairable=made.repairable,
    )


def price_of(owner: Chip, markup: Number) -> Number | None:
    """What a chip is bought for [USD]: as stated, else what it costs to make times the usual markup; None
    where nothing says how it is made.
    """
    if owner.package.price is not None or owner.silicon is None:
        return owner.package.price
    return markup * cost_of(owner, owner.silicon).made


def why_no_core(found: Area) -> Infeasible | None:
    """Why not one core fits a die, with what would help; None where one does (or where arrays hold several
    answers).
    """
    if getattr(found.cores, "size", 1) != 1 or float(found.cores) >= 1.0:
        return None
    if float(found.edge_used) > float(found.edge):
        return Infeasible(
            "interfaces on the edge of the die",
            float(found.edge_used),
            float(found.edge),
            "m",
            ("a larger die", "fewer interfaces"),
        )
    need = sum(float(found.parts[p]) for p in ("cache", "vertical", "interfaces", "fixed")) + float(
        found.core
    )
    levers = (
        "a larger die",
        "fewer connected layers",
        "a finer via pitch",
        "a smaller cache",
        "less local memory",
    )
    return Infeasible(
        "parts of the logic die and one core", need, float(found.die - found.parts["gaps"]), "m2", levers
    )
