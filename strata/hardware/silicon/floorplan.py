"""How a chip is made, from `data/floorplans/`, and what fits its die: cores with their memories, the network
between them, interfaces at the edge, and where vertical connections land.

Every layer of a stack brings vias through the logic die: supply for each layer, signals and a controller for
each connected one. What they take is no longer there for cores, so deeper stacks have fewer. What a chip's
file leaves out may follow from how it is made (`strata.hardware.derive`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strata.base.arrays import Number, floor_div, highest, namespace
from strata.base.errors import MissingQuantity, require
from strata.hardware.noc import BITS, Noc
from strata.hardware.technology import bonding, packaging, technology
from strata.params import names, part, positive, quantity, record, text

if TYPE_CHECKING:
    from strata.hardware.chip import Chip

PORTS = {"mesh": 5.0, "ring": 3.0}  # of a router: its neighbours and its core


@record
class Floorplan:
    """Areas of the parts of a logic die. Its budget is `package.die_area`."""

    utilisation: Number = positive(
        "1",
        "share of the die that parts may fill; the rest is power grid, clock, decoupling, seal ring, gaps",
    )
    core_area: Number = positive(
        "m2", "one core without its local memory, that memory's port, and its router", more="fewer cores"
    )
    sram_area: Number = quantity(
        "m2/B", "local memory of a core, with its banks' periphery", more="fewer cores"
    )
    port_area: Number = quantity(
        "m2/B",
        "each byte a clock that a core's local memory delivers: sense amplifiers, crossbar and operand wires",
    )
    cache_area: Number = quantity("m2/B", "shared cache, with tags and slice control", more="fewer cores")
    fixed_area: Number = quantity(
        "m2", "what no other part counts: host interface, schedulers, copy engines, clocks, sensors, fuses"
    )
    link_edge: Number = quantity("m", "edge of the die taken by links to other devices and the host")
    memory_edge: Number = quantity(
        "m", "edge of the die taken by interfaces to DRAM beside it; 0 where DRAM is stacked on the die"
    )
    phy_depth: Number = quantity("m", "how deep interfaces reach into the die from its edge")
    via_pitch: Number | None = positive("m", "side of the square of logic a via takes, keep-out included")
    channel_signals: Number | None = quantity(
        "1", "vias of a channel beside its data: commands, addresses, strobes, check bits, spares"
    )
    controller_area: Number | None = quantity("m2", "controller of one channel of a connected layer")
    layer_vias: Number | None = quantity(
        "1", "supply, ground, clock and test vias of a layer, connected or not"
    )


def core_area(floorplan: Floorplan, capacity: Number, width: Number, router: Number = 0.0) -> Number:
    r"""Area of one core [m2].

    .. math:: a = a_0 + c \, a_s + w \, a_p + a_r

    Bare core a_0 [m2]; local memory of c bytes at a_s [m2/B]; its port of w bytes a clock at a_p [m2/B];
    router a_r [m2]. Linear in capacity and width: banks are added, not made larger.

    DeepFlow (2023), sec. on micro-architecture generation, has memory area linear in bits and in links
    likewise.

    >>> from strata.hardware.chip import chip
    >>> floorplan = chip("stack-ref").silicon.floorplan
    >>> round(float(core_area(floorplan, 2**18, 256.0)) * 1e6, 3)  # mm2
    3.195
    """
    return floorplan.core_area + capacity * floorplan.sram_area + width * floorplan.port_area + router


def landing_area(
    floorplan: Floorplan, layers: Number, connected: Number, channels: Number, channel_width: Number
) -> Number:
    r"""Logic area under the vertical connections of a stack [m2].

    .. math:: A = N p^2 + n \, C \, a_c

    N vias (`vias_of`), p being the side of a via's square with its keep-out; a controller of area a_c for
    each of C channels of n connected layers. Signals of upper layers pass through lower ones, so each
    connected layer takes its own vias through the logic die. Nothing where the floorplan has no vias.

    Reproduces how core counts fall with layers in DeepStack (arXiv 2604.04750), sec. 3 of our study.

    >>> from strata.hardware.chip import chip
    >>> floorplan = chip("stack-ref").silicon.floorplan
    >>> [round(float(landing_area(floorplan, 8.0, n, 16.0, 32.0)) * 1e6, 2) for n in (4.0, 8.0)]  # mm2
    [10.38, 16.06]
    """
    if floorplan.via_pitch is None:
        return 0.0 * (layers + connected)
    lanes = namespace(layers, connected).minimum(connected, layers) * channels
    vias = vias_of(floorplan, layers, connected, channels, channel_width)
    return vias * floorplan.via_pitch**2 + lanes * _given(floorplan.controller_area)


def _given(value: Number | None) -> Number:
    """An optional quantity, 0 where it was left out."""
    return 0.0 if value is None else value


def connections_that_fit(area: Number, pitch: Number) -> Number:
    r"""Bonds or bumps that fit an area.

    .. math:: N = \left\lfloor \frac{A}{p^2} \right\rfloor

    area A [m2]; pitch p [m], on a square grid.

    >>> float(connections_that_fit(100e-6, 9e-6)), float(connections_that_fit(100e-6, 40e-6))
    (1234567.0, 62500.0)
    """
    return floor_div(area, pitch**2)


def vias_of(
    floorplan: Floorplan, layers: Number, connected: Number, channels: Number, channel_width: Number
) -> Number:
    r"""Vias of a stack through the logic die.

    .. math:: N = m \, v + n \, C \, (8 w + k)

    layers m with v supply vias each; connected layers n <= m of C channels with 8 w data vias (w bytes a
    transfer) and k further signals. 0 where the floorplan has no vias.

    >>> from strata.hardware.chip import chip
    >>> floorplan = chip("stack-ref").silicon.floorplan
    >>> float(vias_of(floorplan, 4.0, 4.0, 16.0, 32.0))
    32480.0
    """
    lanes = namespace(layers, connected).minimum(connected, layers) * channels
    signals = BITS * channel_width + _given(floorplan.channel_signals)
    return layers * _given(floorplan.layer_vias) + lanes * signals


def edge_of(die: Number) -> Number:
    r"""Length of a square die's edge [m]: what interfaces to the outside share.

    .. math:: E = 4 \sqrt{A}

    DeepFlow (2023), our study, sec. 2.1: the die is square.

    >>> round(edge_of(100e-6) * 1e3, 6)  # mm
    40.0
    """
    return 4.0 * die**0.5


def phy_area(floorplan: Floorplan) -> Number:
    r"""Area of the interfaces along the edge [m2].

    .. math:: A = (e_l + e_m) \, d

    edge of links e_l and of DRAM e_m; depth d.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> floorplan = chip("stack-ref").silicon.floorplan
    >>> floorplan = replace(floorplan, link_edge=0.03, memory_edge=0.048, phy_depth=1e-3)
    >>> round(phy_area(floorplan) * 1e6, 6)  # mm2
    78.0
    """
    return (floorplan.link_edge + floorplan.memory_edge) * floorplan.phy_depth


def cores_that_fit(floorplan: Floorplan, die: Number, others: Number, each: Number) -> Number:
    r"""Whole cores on a die, 0 where its other parts leave no room.

    .. math::
        N = \max\left(0, \left\lfloor \frac{u A - A_o}{a} \right\rfloor\right)
        \quad (0 \text{ where } e_l + e_m > 4 \sqrt{A})

    die A [m2] filled up to the share u; other parts A_o; one core a. Interfaces must find room on the edge,
    too.

    >>> from strata.hardware.chip import chip
    >>> floorplan = chip("stack-ref").silicon.floorplan
    >>> [float(cores_that_fit(floorplan, die, 60e-6, 3e-6)) for die in (100e-6, 50e-6)]
    [8.0, 0.0]
    """
    room = floorplan.utilisation * die - others
    edge = edge_of(die) - floorplan.link_edge - floorplan.memory_edge
    xp = namespace(room, each, edge)
    return xp.where(edge >= -1e-12, floor_div(xp.maximum(room, 0.0), each), 0.0)


@record
class Area:
    """A die and its parts [m2], which add up to it; `unused` < 0 where fixed parts alone do not fit."""

    die: Number
    cores: Number  # whole cores that fit
    core: Number  # area of one core, its memory, port and router included
    parts: dict[str, Number]
    vias: Number  # of the stack, through the die
    edge: Number  # length of the die's edge [m]
    edge_used: Number  # of it, taken by interfaces [m]


def area_parts(
    floorplan: Floorplan,
    die: Number,
    *,
    capacity: Number,
    width: Number,
    cache: Number,
    layers: Number = 0.0,
    connected: Number = 0.0,
    channels: Number = 0.0,
    channel_width: Number = 0.0,
    router: Number = 0.0,
    cores: Number | None = None,
) -> Area:
    r"""A die divided into parts that add up to it [m2].

    .. math:: A = N a + A_{cache} + A_{vertical} + A_{interfaces} + A_{fixed} + (1 - u) A + A_{unused}

    N cores (those that fit, unless given) of local memory `capacity` [B] and port `width` [B a clock], each
    with its router; shared cache [B]; a stack's layers, connected layers, channels a layer and their width
    [B].

    >>> from strata.hardware.chip import chip
    >>> floorplan = chip("stack-ref").silicon.floorplan
    >>> stack = {"layers": 4.0, "connected": 4.0, "channels": 16.0, "channel_width": 32.0}
    >>> found = area_parts(floorplan, 1e-4, capacity=2**18, width=256.0, cache=6e6, **stack)
    >>> float(found.cores), round(float(sum(found.parts.values())) * 1e6, 9)
    (8.0, 100.0)
    """
    each = core_area(floorplan, capacity, width, router)
    taken = {
        "cache": cache * floorplan.cache_area,
        "vertical": landing_area(floorplan, layers, connected, channels, channel_width),
        "interfaces": phy_area(floorplan),
        "fixed": floorplan.fixed_area,
    }
    others = sum(taken.values(), 0.0)
    count = cores_that_fit(floorplan, die, others, each) if cores is None else cores
    per_core = {
        "core logic": floorplan.core_area,
        "local memory": capacity * floorplan.sram_area,
        "memory ports": width * floorplan.port_area,
        "network": router,
    }
    gaps = (1.0 - floorplan.utilisation) * die
    parts = {name: count * share for name, share in per_core.items()} | taken | {"gaps": gaps}
    parts["unused"] = die - gaps - others - count * each
    bored = floorplan.via_pitch is not None
    vias = vias_of(floorplan, layers, connected, channels, channel_width) if bored else 0.0 * layers
    return Area(
        die=die,
        cores=count,
        core=each,
        parts=parts,
        vias=vias,
        edge=edge_of(die),
        edge_used=floorplan.link_edge + floorplan.memory_edge,
    )


def router_area(noc: Noc, vaults: Number) -> Number:
    r"""Logic area the network takes at each core [m2].

    .. math:: a = n_x (8 w \, g)^2 \quad \text{or, in the stack,} \quad a = 2 \cdot 8 w \, p^2

    n_x crosspoints of 8 w wires at pitch g: 25 and 9 of a mesh's and a ring's router of 5 and 3 ports, one
    for each vault of a full crossbar. Wires set the size of wide switches; their buffers, some KiB, are part
    of the core. A network in the stack leaves 8 w bonds in each direction, at their pitch p.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), ch. 22: wire-limited switch
    area.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> noc = replace(chip("stack-ref").silicon.noc, topology="mesh", local=None)
    >>> round(float(router_area(noc, 16.0)) * 1e6, 4)  # mm2
    0.2621
    """
    wires = BITS * noc.width
    if noc.placement == "dram":
        return 2.0 * wires * noc.bond_pitch**2 + 0.0 * vaults
    ports = PORTS.get(noc.topology)
    crosspoints = vaults if ports is None else ports**2 + 0.0 * vaults
    return crosspoints * (wires * noc.wire_pitch) ** 2


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
        high = float(highest(value))
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
