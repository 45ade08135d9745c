"""Parts of a fabric: one dimension of it, and the host beside each device."""

from __future__ import annotations

from strata.arrays import Number
from strata.hardware.transport import Transport
from strata.params import choice, part, positive, quantity, record, text
from strata.shipped import paper_offers

MEDIA = ("package", "board", "host", "optical", "network")
COOLINGS = ("air", "liquid")
KINDS = ("switch", "ring", "chain", "full", "dragonfly")
DIRECT = ("switch", "full", "dragonfly")  # any two members are one step apart
TAPERED = ("switch", "dragonfly")  # these may be oversubscribed: links above a device's own are shared
COLLECTIVES = ("", *paper_offers("collectives"))  # the usual algorithms, or a model of a paper
ONE_RING = "one ring"


@record
class RingMemory:
    """What a ring whose every step passes local memory finds at each rank."""

    bandwidth: Number = positive("B/s", "of the memory that steps are written to and read from")
    latency: Number = quantity("s", "of one access to it")
    launch: Number = quantity("s", "start of a kernel that adds up, or that puts a gathered buffer together")
    rate: Number = positive("FLOP/s", "additions a second while adding up")
    element: Number = positive("B", "one number of the buffer")


@record
class GroupDivisor:
    """What a link's bandwidth is divided by in rings of groups up to a size."""

    ranks: Number = quantity("1", "largest group that it holds for", minimum=1)
    divisor: Number = positive("1", "what the bandwidth is divided by")


@record
class Dimension:
    """One direction of a fabric: `size` devices (or groups of devices) joined in one way."""

    name: str = text("what it is, like nvlink or infiniband")
    kind: str = text(
        "switch, ring (a torus is several), chain (a mesh is several), full (each to each) or dragonfly "
        "(groups each to each, shared links)",
        choices=KINDS,
    )
    size: Number = quantity(
        "1", "members; left out where the system's name gives it", optional=True, minimum=1
    )
    bandwidth: Number = positive(
        "B/s", "peak of one device into this dimension, one direction, all its links together", more="faster"
    )
    efficiency: Number = positive("1", "sustained fraction of the peak for long messages", more="faster")
    latency: Number = quantity("s", "one step: software, wire and switch, to the first byte")
    energy: Number = quantity("J/B", "energy of one byte over one hop")
    reduction: Number | None = quantity("1", "1 where the switch adds up an all-reduce itself, else 0")
    medium: str = choice(
        "what its links lie on, for the price list: package, board (backplanes, racks), host (ports of "
        "the processor), optical, network (switches, adapters and cables of their own)",
        "",
        *MEDIA,
    )
    price: Number | None = quantity(
        "USD",
        "links, switches and adapters of this dimension for one device, in place of the price list's",
        more="dearer",
    )
    links: Number | None = positive(
        "1", "links of one device into this dimension that make up its bandwidth; may be a share"
    )
    wrap: Number | None = quantity(
        "1",
        "of a ring that is used in slices: members whose multiples have its closing link, as 16 of a 16 x 16 "
        "pod; a slice of others is a chain. Every slice closes when left out",
        minimum=1,
    )
    transport: str = text(
        "a transport's name or TOML path: what the software that sends costs; ideal when left out", default=""
    )
    transport_model: Transport | None = part(Transport, "the transport's quantities, from its file")
    oversubscription: Number | None = quantity(
        "1",
        "bandwidth of the devices over that of the links above them: 2 where a leaf has half as many "
        "uplinks; 1 when left out",
        minimum=1,
    )
    shares_links_of: str = text(
        "inner dimension whose links its traffic leaves a device by, as a spine's does by the leaf's; its "
        "own when left out",
        default="",
    )
    collectives: str = choice(
        "memory-ring where sums, gathers and scatters are rings whose every step passes local memory, with "
        "kernels of their own that add up; as its transport sends, or ideal, when left out",
        *COLLECTIVES,
    )
    crossing: str = choice(
        "one ring where a group that reaches into this dimension runs over it alone, links of inner "
        "dimensions left idle; dimension by dimension when left out",
        "",
        ONE_RING,
    )
    ring_memory: RingMemory | None = part(
        RingMemory, "what such rings find at a rank; the chip's own when left out"
    )
    divisors: tuple[GroupDivisor, ...] | None = part(
        GroupDivisor,
        "divisions of a link's bandwidth by the size of such a ring's group, smallest first, the last for "
        "all larger ones: there only to repeat a program that has them; none when left out",
        many=True,
    )


@record
class Host:
    """What stands beside each device: its share of processors, adapters, chassis. How much power that is
    follows from one rule (`strata.hardware.money.host_power`), unless stated.
    """

    processors: Number | None = quantity("1", "processors beside one device; may be a share")
    machine: Number | None = positive(
        "1", "devices of one machine; left out: those of the innermost dimension"
    )
    adapters: Number | None = quantity("1", "network adapters beside one device")
    switch_chips: Number | None = quantity(
        "1", "switch chips of its node or rack for one device; may be a share"
    )
    cooling: str = choice(
        "how it is cooled: air or liquid; where left out, fans and supplies count in its power", "", *COOLINGS
    )
    power: Number | None = quantity("W", "power beside one device that is always on, in place of the rule's")
    price: Number | None = quantity("USD", "price beside the device, for one device")
    link: Number | None = positive("B/s", "sustained rate between a device and its host's memory, one way")
    stream_rate: Number | None = positive(
        "B/s", "rate at which processors stream the host's memory for one device"
    )
