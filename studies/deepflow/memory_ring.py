"""Ring collectives whose every step passes local memory, as DeepFlow times them.

A step's part of the buffer crosses a link, is written to memory and read from it again; an all-reduce or
reduce-scatter adds parts up in kernels of their own, an all-gather puts the buffer together in one at the
end. DeepFlow's program times this memory at the speed of registers, since it takes any single number of bytes
as traffic of level 0; with a rank's DRAM, which is what holds such buffers, the same forms are right.
"""

from __future__ import annotations

from dataclasses import replace

from deepflow.products import max_rate
from strata.base.arrays import Number, namespace
from strata.base.errors import BadValue
from strata.hardware.fabric import DIRECT, Dimension, Fabric, RingMemory
from strata.hardware.hierarchy import memory_levels
from strata.mapping.place import GroupLayout
from strata.pricing.kernels.device import Device
from strata.pricing.network.algorithms import device_links, group_bandwidth, partner_bandwidth
from strata.pricing.network.transport_times import AlgorithmTimes

PASSES = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0}
MEMORY_RING = "memory-ring"  # as data has it
ACCESSES = 3.0  # of each byte by a kernel that adds two buffers into a third, or puts one together
ELEMENT = 2.0  # bytes of a number that is added up, where nobody says: 16 bits


def memory_step(sent: Number, bandwidth: Number, latency: Number, memory: RingMemory) -> Number:
    r"""Time of one step of such a ring, or of a message to a neighbour [s].

    .. math:: t = \frac{s}{\beta} + \alpha + \frac{2 s}{b} + a

    bytes s sent; bandwidth β [B/s] and latency α [s] of the link; bandwidth b [B/s] and latency a [s] of
    local memory, which is written and read.

    Ardalani, Pal & Gupta, DeepFlow (2023), its program at commit 566c192.

    >>> hbm = RingMemory(bandwidth=1e12, latency=1e-7, launch=9e-6, rate=1e13, element=2.0)
    >>> round(memory_step(1e6, 50e9, 5e-6, hbm) * 1e6, 3)
    27.1
    """
    return sent / bandwidth + latency + 2.0 * sent / memory.bandwidth + memory.latency


def adding_time(part: Number, memory: RingMemory) -> Number:
    r"""Time of the kernel that adds one part of a buffer to another [s].

    .. math:: t = \max\Big(\frac{3 n}{b} + a, \frac{n}{e\, r}\Big) + t_0

    part n [B] of numbers of e bytes; two are read and one is written at b [B/s] with latency a [s]; r
    additions a second; launch t_0 [s].

    >>> hbm = RingMemory(bandwidth=1e12, latency=1e-7, launch=9e-6, rate=1e13, element=2.0)
    >>> round(float(adding_time(1e6, hbm)) * 1e6, 3)
    12.1
    """
    moved = ACCESSES * part / memory.bandwidth + memory.latency
    added = part / (memory.element * memory.rate)
    return namespace(moved, added).maximum(moved, added) + memory.launch


def memory_ring(
    pattern: str, payload: Number, ranks: Number, bandwidth: Number, latency: Number, memory: RingMemory
) -> Number:
    r"""Time of a ring all-reduce, reduce-scatter or all-gather whose steps pass local memory [s].

    .. math:: T = (p-1) \left( f\, t_{step}\Big(\frac{n}{p}\Big) + t_{add}\Big(\frac{n}{p}\Big) \right)
              \quad \text{or} \quad T = (p-1)\, t_{step}\Big(\frac{n}{p}\Big) + \frac{3 n}{b} + a + t_0

    payload n, the whole buffer [B]; ranks p; f = 2 passes of an all-reduce, 1 of a reduce-scatter; the second
    form for an all-gather, whose last kernel puts the buffer together. Nothing where there is one rank.

    Ardalani, Pal & Gupta, DeepFlow (2023), its program at commit 566c192.

    >>> registers = RingMemory(bandwidth=103.021e12, latency=0.0, launch=9e-6, rate=106e12, element=2.0)
    >>> round(float(memory_ring("all_reduce", 2**27, 8.0, 51.605e9, 5e-6, registers)) * 1e3, 3)
    4.692
    """
    part, steps = payload / ranks, ranks - 1.0
    each = memory_step(part, bandwidth, latency, memory)
    if pattern == "all_gather":
        time = steps * each + ACCESSES * payload / memory.bandwidth + memory.latency + memory.launch
    else:
        time = steps * (PASSES[pattern] * each + adding_time(part, memory))
    return namespace(payload, ranks, time).where(ranks > 1, time, 0.0)


def divided_bandwidth(bandwidth: Number, ranks: Number, dimension: Dimension) -> Number:
    """A link's bandwidth after what the dimension divides it by for groups of so many ranks.

    DeepFlow's program divides by 2 up to 4 ranks, by 5 up to 8 and by 4 beyond, a fix for one machine of
    eight V100 that stayed in.

    >>> from strata.hardware.generate.template import template
    >>> inter = template("deepflow-2021-dgx1").networks[-1]
    >>> link = Dimension(name="inter", kind="switch", bandwidth=1.0, efficiency=1.0, latency=0.0, energy=0.0,
    ...     divisors=inter.divisors)
    >>> [float(divided_bandwidth(1.0, ranks, link)) for ranks in (2.0, 8.0, 64.0)]
    [0.5, 0.2, 0.25]
    """
    if not dimension.divisors:
        return bandwidth
    *smaller, last = dimension.divisors
    divisor = last.divisor
    for one in reversed(smaller):
        divisor = namespace(ranks, divisor).where(ranks <= one.ranks, one.divisor, divisor)
    return bandwidth / divisor


def memory_ring_times(
    pattern: str, payload: Number, layout: GroupLayout, dimension: Dimension
) -> AlgorithmTimes | None:
    """The one algorithm of a dimension whose collectives are such rings; None of other patterns.

    A rank sends to one neighbour only: along a ring or chain over one of its two links, and where each pair
    has a link of its own over that one.
    """
    if pattern not in (*PASSES, "send"):
        return None
    memory, wait = dimension.ring_memory, dimension.latency
    if memory is None:
        raise BadValue(
            f"rings through memory on {dimension.name} need ring_memory, or a system whose chip has it"
        )
    if dimension.kind in DIRECT:
        link = partner_bandwidth(layout, dimension, 1.0)
    else:
        link = group_bandwidth(layout, dimension) / device_links(dimension)
        wait = wait * layout.stride
    link = divided_bandwidth(link, layout.size, dimension)
    if pattern == "send":
        return {"send through memory": memory_step(payload, link, wait, memory)}
    return {"memory ring": memory_ring(pattern, payload, layout.size, link, wait, memory)}


def with_ring_memory(fabric: Fabric, device: Device) -> Fabric:
    """A fabric whose rings pass the memory of a device, where it has such rings and does not state theirs."""
    if all(d.collectives != MEMORY_RING or d.ring_memory is not None for d in fabric.dimension):
        return fabric
    own = _device_memory(device)
    return replace(
        fabric,
        dimension=tuple(
            replace(d, ring_memory=own) if d.collectives == MEMORY_RING and d.ring_memory is None else d
            for d in fabric.dimension
        ),
    )


def _device_memory(device: Device) -> RingMemory:
    """What rings find at a device: its DRAM; its registers where its kernels are timed as those of the
    DeepFlow program, which takes any single number of bytes as traffic of level 0.
    """
    chip = device.chip
    if chip.kernel_model == "deepflow-2021":
        first = memory_levels(chip)[0]
        return RingMemory(
            bandwidth=first.bandwidth * first.efficiency,
            latency=first.latency,
            launch=chip.overhead.kernel,
            rate=max_rate(chip.compute.matrix_rate, chip.compute.matrix_efficiency),
            element=ELEMENT,
        )
    return RingMemory(
        bandwidth=device.bandwidth,
        latency=chip.memory.latency,
        launch=chip.overhead.stream,
        rate=chip.compute.vector_rate * device.boost,
        element=ELEMENT,
    )
