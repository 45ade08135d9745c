"""How kernels read and write DRAM: the stream each presents, and the time it takes of chips whose memory is
described by its banks.

A chip without such a description keeps its measured share of the peak; nothing here touches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strata.arrays import Number, namespace
from strata.hardware.chip import Chip
from strata.hardware.dram.channel import Bus, Dram, bus_of, in_flight_bound, visit
from strata.hardware.dram.stack import (
    PORT_PASSES,
    channel_in_stack,
    dram_of,
    stack_banks,
    stack_channels,
    whole_waves,
)
from strata.hardware.noc import Noc, access_latency, access_limit, local_share
from strata.pricing.kernels.product import Product

if TYPE_CHECKING:
    from strata.pricing.kernels.device import Device

SIDE = 128.0  # rows or columns of an operand's tile that a core holds
BUFFERED = 0.5  # of a core's memory is being filled while the other half is worked on
PAGE = 16.0  # tokens of a page of a key and value cache, as serving frameworks cut it (vLLM's default)


def bytes_in_flight(chip: Chip) -> Number:
    """Bytes all cores together have asked for at a time [B]: half of their memories is being filled."""
    return chip.compute.cores * chip.compute.sram_capacity * BUFFERED


@dataclass(frozen=True, eq=False, slots=True)
class RequestStream:
    """What a kernel asks of DRAM: `run` bytes in a row, of which `read_share` are read; `packed` as in
    `Stream`.

    `even`: reads and writes take turns in that share however much is moved; else whole waves of each are what
    is read and written.
    """

    run: Number
    read_share: Number
    packed: bool = False
    even: bool = False


def read_fraction(read: Number, written: Number) -> Number:
    """Share of bytes that are read; 0 where none is moved."""
    moved = read + written
    return read / namespace(moved).where(moved > 0.0, moved, 1.0)


def noc_of(chip: Chip) -> Noc | None:
    """The network between the cores and the vaults above them, where a chip's making describes one.

    Elsewhere what crosses the die is part of the chip's own figures of latency, cache bandwidth and energy.
    """
    return None if chip.silicon is None or chip.stack is None else chip.silicon.noc


def product_stream(chip: Chip, product: Product) -> RequestStream:
    r"""The stream of a product: weights along their depth, as far as a core's buffer reaches.

    .. math:: l = \min\left(k w, \frac{w \, M / 2}{\min(m, 128) a + \min(n, 128) w}\right), \quad
        p = \frac{m k a + k n w}{m k a + k n w + m n o}

    A core of memory M fills half of it with a tile's rows and columns of bytes a and w an element, as deep as
    fits: few rows leave the weights long runs, many cut them short. Results of o bytes are written.

    >>> from strata.hardware.chip import chip
    >>> ref, two = chip("stack-ref"), {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> gemv, gemm = (product_stream(ref, Product(m=m, n=8192.0, k=8192.0, **two)) for m in (1.0, 4096.0))
    >>> [(round(float(s.run)), round(float(s.read_share), 3)) for s in (gemv, gemm)]
    [(1016, 1.0), (512, 0.75)]
    """
    m, n, k = product.m, product.n, product.k
    a, w = product.input_bytes, product.weight_bytes
    xp = namespace(m, n, k, chip.compute.sram_capacity)
    depth = BUFFERED * chip.compute.sram_capacity / (xp.minimum(m, SIDE) * a + xp.minimum(n, SIDE) * w)
    reads = read_fraction(k * (m * a + n * w), m * n * product.output_bytes)
    return RequestStream(xp.minimum(k, depth) * w, reads, packed=True)


def kv_cache_stream(width: Number, size: Number, read: Number, written: Number) -> RequestStream:
    """The stream of attention over a paged cache: one head's keys or values of a page lie together.

    >>> kv_cache_stream(128.0, 2.0, 1e9, 1e6).run
    4096.0
    """
    return RequestStream(PAGE * width * size, read_fraction(read, written))


def sequential_stream(device: Device, read_share: Number) -> RequestStream:
    """The stream of a kernel that walks tensors from end to end: whole rows of the banks."""
    return RequestStream(0.0 if device.banks is None else device.banks.bus.dram.row, read_share, even=True)


@dataclass(frozen=True, eq=False, slots=True)
class Banks:
    """A chip's DRAM as all its kernels find it: one channel's bus, how many there are, bytes of a wave, and
    what bounds any stream [B/s].

    Streams of fixed run and read share, of which a model has many, are worked out once: their bandwidths are
    `known`.
    """

    bus: Bus
    channels: Number
    wave: Number
    ceiling: Number
    known: dict[tuple[Number, Number, bool], Number] = field(default_factory=dict)

    def bandwidth(self, stream: RequestStream) -> Number:
        """What a stream gets of all channels [B/s], below the ceiling."""
        key = (stream.run, stream.read_share, stream.packed)
        fixed = stream.even and isinstance(stream.run, float) and isinstance(stream.read_share, float)
        if fixed and key in self.known:
            return self.known[key]
        delivered = visit(self.bus, *key).bandwidth * self.channels
        delivered = namespace(delivered, self.ceiling).minimum(delivered, self.ceiling)
        if fixed:
            self.known[key] = delivered
        return delivered


def stream_ceilings(chip: Chip, channel: Dram) -> dict[str, Number]:
    """What bounds every stream of a chip to its stack, whatever the banks give [B/s]: bytes in flight, ports
    of local memories, the network between cores and vaults.

    >>> from strata.hardware.chip import chip
    >>> ref = chip("stack-ref")
    >>> {k: round(float(v) / 1e12, 2) for k, v in stream_ceilings(ref, dram_of(ref.stack)).items()}
    {'buffer': 6.94, 'sram': 1.87, 'network': 18.74}
    """
    cores, noc = chip.compute.cores, noc_of(chip)
    latency = chip.memory.latency
    if noc is not None:  # what the network inside the chip adds to a load on average
        latency = latency + access_latency(noc, cores, local_share(noc, cores))
    found = {
        "buffer": in_flight_bound(channel.timing, bytes_in_flight(chip), latency),
        "sram": cores * chip.compute.sram_bandwidth / PORT_PASSES,
    }
    if noc is not None:
        found["network"] = access_limit(noc, cores, local_share(noc, cores))
    return found


def banks_of(chip: Chip) -> Banks | None:
    r"""A chip's DRAM by its banks; None where it is not described by them.

    .. math:: B \le \min\left(\frac{o}{\lambda}, \frac{p S}{2}, \frac{R}{1 - l}\right)

    is the ceiling of every stream: o bytes that p cores have asked for, over the latency λ of a load across
    the network; ports S of their local memories, through which a byte goes twice; remote traffic R of all but
    the local share l (`access_bandwidth`).

    >>> from strata.hardware.chip import chip
    >>> banks_of(chip("h200")) is None, round(float(banks_of(chip("stack-ref")).ceiling / 1e12), 2)
    (True, 1.87)
    """
    dram = None if chip.stack is None else dram_of(chip.stack)
    if chip.stack is None or dram is None:
        return None
    channel, channels = channel_in_stack(chip.stack, dram), stack_channels(chip.stack)
    ceiling: Number = float("inf")
    for bound in stream_ceilings(chip, channel).values():
        ceiling = namespace(ceiling, bound).minimum(ceiling, bound)
    return Banks(
        bus_of(channel, stack_banks(chip.stack, dram)),
        channels,
        dram.burst * chip.stack.channels_per_layer,
        ceiling,
    )


def dram_bandwidth(device: Device, efficiency: Number, requests: Callable[[], RequestStream]) -> Number:
    r"""DRAM bandwidth a kernel gets [B/s]: a measured share of the peak, or what banks leave of it for its
    stream.

    .. math:: B = \begin{cases} B_{peak} \, \eta & \text{no banks described} \\
        \min(n C \, B_1(\text{stream}), B_{max}) & \text{else} \end{cases}

    channels n C of `sustained_channel` each, below the ceiling of all streams (`banks_of`).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> h200 = device(chip("h200"))
    >>> dram_bandwidth(h200, 0.5, lambda: sequential_stream(h200, 0.5)) / h200.chip.memory.bandwidth
    0.5
    """
    if device.banks is None:
        return device.chip.memory.bandwidth * efficiency
    return device.banks.bandwidth(requests())


def dram_time(
    device: Device, moved: Number, efficiency: Number, requests: Callable[[], RequestStream]
) -> Number:
    """Time DRAM needs for the bytes of a kernel [s]; a stack moves whole waves, of reads and of writes."""
    banks = device.banks
    if banks is None:
        return moved / (device.chip.memory.bandwidth * efficiency)
    stream = requests()
    read = whole_waves(banks.wave, moved * stream.read_share)
    total = read + whole_waves(banks.wave, moved * (1.0 - stream.read_share))
    if not stream.even:
        stream = RequestStream(
            stream.run, read / namespace(total).where(total > 0.0, total, 1.0), stream.packed
        )
    return total / banks.bandwidth(stream)
