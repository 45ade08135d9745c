"""The network inside a chip, from cores to vaults: how far, how fast, how much energy, and where it is built.

A vault is a column of DRAM channels above a core's part of the die. A core reads its own vault without the
network; other vaults, and data shared between cores, cross it. Built into the logic die the network takes
area from cores; built into the stack it takes bonds, and every crossing goes up and down.
"""

from __future__ import annotations

from strata.base.arrays import Number, namespace
from strata.params import positive, quantity, record, text

BITS = 8.0  # of a byte
TOPOLOGIES = ("crossbar", "mesh", "ring")
PLACEMENTS = ("logic", "dram")


@record
class Noc:
    """Links and routers between the cores of a die and their vaults."""

    topology: str = text("how cores are joined", choices=TOPOLOGIES)
    placement: str = text("where it is built: in the logic die, or in the DRAM stack", choices=PLACEMENTS)
    width: Number = positive(
        "B", "bytes a link moves each clock, one direction", more="faster at equal cores"
    )
    link_clock: Number = positive("Hz", "clock of the network")
    hop_latency: Number = quantity("s", "one router and one link")
    hop_energy: Number = quantity("J/B", "byte over one router and one link")
    wire_pitch: Number = positive(
        "m", "distance between wires of a switch, both directions on their own layers"
    )
    bond_pitch: Number = positive("m", "distance between bonds to a network in the stack")
    bond_latency: Number = quantity("s", "up to a network in the stack, or down again")
    bond_energy: Number = quantity("J/B", "byte up to a network in the stack, or down again")
    local: Number | None = quantity(
        "1",
        "share of DRAM traffic that a core finds in its own vault; left out: any vault is as likely, one "
        "part in as many as there are cores",
    )
    vaults: Number | None = quantity(
        "1",
        "vaults, or slices of a shared cache, that cores reach; left out: the channels of a layer",
        minimum=1,
    )


def link_bandwidth(noc: Noc) -> Number:
    r"""Bandwidth of one link, one direction [B/s].

    .. math:: b = w f

    >>> from strata.hardware.chip import chip
    >>> round(link_bandwidth(chip("stack-ref").silicon.noc) / 1e9, 2)
    234.24
    """
    return noc.width * noc.link_clock


def noc_hops(noc: Noc, nodes: Number) -> Number:
    r"""Hops to another node at random; 0 where there is one node.

    .. math::
        h_{crossbar} = 1, \quad h_{ring} = \frac{\lfloor p^2 / 4 \rfloor}{p - 1}, \quad
        h_{mesh} = \max\left(1, \frac{2}{3} \sqrt{p}\right)

    p nodes, the mesh square: 2 (k^2 - 1) / (3 k) over all pairs of k x k nodes, without those of a node with
    itself.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), ch. 3 and 5.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> given = chip("stack-ref").silicon.noc
    >>> made = [replace(given, topology=t) for t in ("crossbar", "ring", "mesh")]
    >>> [round(float(noc_hops(noc, 16.0)), 4) for noc in made]
    [1.0, 4.2667, 2.6667]
    """
    xp = namespace(nodes)
    others = xp.maximum(nodes - 1.0, 1.0)
    several = xp.where(nodes > 1.0, 1.0, 0.0)
    if noc.topology == "crossbar":
        return several
    return several * (
        xp.floor(nodes * nodes / 4.0) / others
        if noc.topology == "ring"
        else xp.maximum(2.0 / 3.0 * nodes**0.5, 1.0)
    )


def noc_bisection(noc: Noc, nodes: Number) -> Number:
    r"""Bandwidth between two halves of the nodes, one direction [B/s].

    .. math:: B_{crossbar} = \frac{p}{2} b, \quad B_{ring} = 2 b, \quad B_{mesh} = \sqrt{p} \, b

    links of bandwidth b; p nodes. One node has no halves: 0.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), ch. 3.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> given = chip("stack-ref").silicon.noc
    >>> made = [replace(given, topology=t) for t in ("crossbar", "ring", "mesh")]
    >>> [float(noc_bisection(noc, 16.0)) / 1e9 for noc in made]
    [1873.92, 468.48, 936.96]
    """
    xp = namespace(nodes, noc.width)
    links = {"crossbar": nodes / 2.0, "ring": 2.0 + 0.0 * nodes, "mesh": nodes**0.5}[noc.topology]
    return xp.where(nodes > 1.0, links, 0.0) * link_bandwidth(noc)


def remote_bandwidth(noc: Noc, nodes: Number) -> Number:
    r"""Most bytes a second that all nodes together draw from one another's vaults, at random [B/s].

    .. math:: R = \min\left(p \, b, \; \frac{4 (p - 1)}{p} B\right)

    each node's link b; of traffic between different nodes a share of p / (4 (p - 1)) crosses the middle in
    one direction, where the bisection B is. Unlimited where there is one node: nothing is remote.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), sec. 3.3: throughput bounded
    by the bisection.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> noc = replace(chip("stack-ref").silicon.noc, topology="mesh", local=None)
    >>> round(float(remote_bandwidth(noc, 16.0)) / 1e9), round(float(remote_bandwidth(noc, 64.0)) / 1e9)
    (3514, 7379)
    """
    xp = namespace(nodes, noc.width)
    crossing = 4.0 * (nodes - 1.0) / nodes * noc_bisection(noc, nodes)
    return xp.where(nodes > 1.0, xp.minimum(nodes * link_bandwidth(noc), crossing), xp.inf)


def local_share(noc: Noc, nodes: Number) -> Number:
    r"""Share of DRAM traffic that stays in a core's own vault.

    .. math:: \lambda = 1 / p

    with addresses interleaved over the vaults of p nodes; as stated where data is placed beside the core that
    reads it.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> noc = replace(chip("stack-ref").silicon.noc, topology="mesh", local=None)
    >>> local_share(noc, 8.0)
    0.125
    """
    return 1.0 / nodes if noc.local is None else noc.local + 0.0 * nodes


def access_bandwidth(noc: Noc, nodes: Number, vaults: Number, local: Number) -> Number:
    r"""Bytes a second that the cores draw from all vaults [B/s].

    .. math:: T = \min\left(V, \frac{R}{1 - \lambda}\right)

    vaults together V; remote traffic at most R (`remote_bandwidth`), which is all but the local share λ. All
    local: V.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> noc = replace(chip("stack-ref").silicon.noc, topology="mesh", local=None)
    >>> [round(float(access_bandwidth(noc, 16.0, 6e12, share)) / 1e9) for share in (0.0, 0.4, 1.0)]
    [3514, 5856, 6000]
    """
    limit = access_limit(noc, nodes, local)
    return namespace(vaults, limit).minimum(vaults, limit)


def access_limit(noc: Noc, nodes: Number, local: Number) -> Number:
    """Most that the network lets cores draw from vaults [B/s]; infinite where all is local."""
    away = 1.0 - local
    xp = namespace(nodes, local, noc.width)
    return xp.where(away > 0.0, remote_bandwidth(noc, nodes) / xp.where(away > 0.0, away, 1.0), xp.inf)


def access_latency(noc: Noc, nodes: Number, local: Number) -> Number:
    r"""What the network adds to a load on average [s].

    .. math:: t = (1 - \lambda) \, 2 (h \, t_h + t_b)

    request and answer go h mean hops of t_h each; a network in the stack adds the way up and down t_b. λ is
    the local share.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> noc = replace(chip("stack-ref").silicon.noc, topology="mesh", local=None)
    >>> round(float(access_latency(noc, 16.0, 0.0)) * 1e9, 3), float(access_latency(noc, 16.0, 1.0))  # ns
    (26.667, 0.0)
    """
    hops = noc_hops(noc, nodes)
    return (1.0 - local) * 2.0 * (hops * noc.hop_latency + _up_and_down(noc, nodes) * noc.bond_latency)


def access_energy(noc: Noc, nodes: Number, local: Number) -> Number:
    r"""Energy the network adds to a byte on average [J/B].

    .. math:: e = (1 - \lambda) (h \, e_h + e_b)

    h mean hops of e_h each; a network in the stack adds the way up and down e_b. λ is the local share.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> noc = replace(chip("stack-ref").silicon.noc, topology="mesh", local=None)
    >>> round(float(access_energy(noc, 16.0, 0.5)) * 1e12, 4)  # pJ/B
    5.3333
    """
    hops = noc_hops(noc, nodes)
    return (1.0 - local) * (hops * noc.hop_energy + _up_and_down(noc, nodes) * noc.bond_energy)


def _up_and_down(noc: Noc, nodes: Number) -> Number:
    return (2.0 if noc.placement == "dram" else 0.0) * namespace(nodes).where(nodes > 1.0, 1.0, 0.0)


def multicast_hops(noc: Noc, nodes: Number, receivers: Number) -> Number:
    r"""Links one word crosses to reach several neighbouring nodes when routers copy it.

    .. math:: H = \min(h \, r, \; h + r - 1)

    h mean hops to the first of r receivers, then one more link for each; r unicasts take h r. Receivers lie
    side by side, which is how tiles of a product share an operand; scattered ones need more links, at most h
    r.

    >>> from dataclasses import replace
    >>> from strata.hardware.chip import chip
    >>> noc = replace(chip("stack-ref").silicon.noc, topology="mesh", local=None)
    >>> [round(float(multicast_hops(noc, 16.0, r)), 3) for r in (1.0, 4.0, 8.0)]
    [2.667, 5.667, 9.667]
    """
    hops = noc_hops(noc, nodes)
    xp = namespace(hops, receivers)
    return xp.minimum(hops * receivers, hops + receivers - 1.0)
