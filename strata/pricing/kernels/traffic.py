"""What kernels move: the stream each presents to DRAM, and its time on chips whose memory is described by its
banks; and the product of two matrices, with the traffic that follows where tiles of results are worked on.

A chip without a description of its banks keeps its measured share of the peak. Results of a product stay
where they are added up, in the innermost memory, for as long as its depth lasts; operands stream past them.
What a level has to deliver then depends on the tile of results that is worked on above it: of one matrix
unit, of one core, or of all cores together, a wave of tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strata.base.arrays import Number, ceil_div, namespace
from strata.base.precision import bytes_of
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

if TYPE_CHECKING:
    from strata.pricing.kernels.device import Device, MatrixRate

OPERAND_SIDE = 128.0  # rows or columns of an operand's tile that a core holds
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
    depth = (
        BUFFERED
        * chip.compute.sram_capacity
        / (xp.minimum(m, OPERAND_SIDE) * a + xp.minimum(n, OPERAND_SIDE) * w)
    )
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


ACCUMULATOR = 4.0  # bytes of a partial sum
# of results that a core finishes at a time, the largest a library ships
TILE_ROWS, TILE_COLUMNS = 128.0, 256.0
HELD = 0.5  # part of a memory that holds a block; the rest takes in the next one and the streams meanwhile


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Product:
    """`batch` products out[m, n] = in[m, k] weight[k, n], with bytes of an element of each matrix.

    >>> one = Product(m=4.0, n=6.0, k=8.0, input_bytes=1.0, weight_bytes=0.5, output_bytes=2.0)
    >>> one.flop, one.weights, one.activations
    (384.0, 24.0, 80.0)
    """

    m: Number
    n: Number
    k: Number
    input_bytes: Number
    weight_bytes: Number
    output_bytes: Number
    batch: Number = 1.0
    # 1 where weights lie in rows of n that are no whole 16 bytes, so that they are copied element by element
    unaligned: Number = 0.0

    @classmethod
    def of(
        cls, m: Number, n: Number, k: Number, unit: MatrixRate, weight: str, stored: str, **more: Number
    ) -> Product:
        """A product on such units, of weights in one format; activations are stored in another."""
        widths = {"input_bytes": unit.activation, "weight_bytes": bytes_of(weight)}
        return cls(m=m, n=n, k=k, **{**widths, "output_bytes": bytes_of(stored), **more})

    @property
    def flop(self) -> Number:
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def weights(self) -> Number:
        """Bytes of all weights."""
        return self.batch * self.k * self.n * self.weight_bytes

    @property
    def activations(self) -> Number:
        """Bytes of all inputs and results."""
        return self.batch * self.m * (self.k * self.input_bytes + self.n * self.output_bytes)


def product_bound(flop: Number, dram: Number, unit: MatrixRate, device: Device) -> Number:
    """No chip with these peaks does a product faster [s]."""
    return namespace(flop, dram, unit.peak).maximum(flop / unit.peak, dram / device.chip.memory.bandwidth)


def tile_traffic(product: Product, down: Number, across: Number) -> Number:
    r"""Bytes into tiles of results from the memory they are filled from [B]: operands once for every tile
    that needs them, results once.

    .. math:: b = b_p (m k a \, c + k n w \, r + m n o)

    r tiles along the rows m, c along the columns n; a, w, o bytes of an activation, weight and result.

    >>> one = Product(m=4.0, n=6.0, k=8.0, input_bytes=1.0, weight_bytes=1.0, output_bytes=1.0)
    >>> tile_traffic(one, 2.0, 3.0)  # 3 x 32 activations, 2 x 48 weights, 24 results
    216.0
    """
    operands = product.k * (
        product.m * product.input_bytes * across + product.n * product.weight_bytes * down
    )
    return product.batch * (operands + product.m * product.n * product.output_bytes)


def wave_traffic(product: Product, results: Number, capacity: Number) -> Number:
    r"""Bytes into a shared memory of C bytes from the one below it [B], when all cores together work on S
    results at a time.

    .. math::
        h = \sqrt{S w / a} \le m, \quad v = S / h \le n, \quad
        b = b_p \left(m k a \left[\frac{n}{v}\right]_{(h a + v w) k > C/2}
            + k n w \left[\frac{m}{h}\right]_{(h a + n w) k > C/2} + m n o\right)

    A wave of h x v results reads h rows of activations and v columns of weights; as square as their bytes
    allow is least. Waves follow each other along a band of h rows. A band's activations are read again for
    the next wave unless what a wave reads stays in half of the memory, the weights for the next band unless
    what a band reads does (brackets without that are 1): memory that replaces what was used longest ago keeps
    what all that passes between two uses leaves room for. Bands of columns likewise; the better of the two.

    >>> two = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> large = Product(m=16384.0, n=4096.0, k=4096.0, **two)
    >>> round(wave_traffic(large, 108 * 128 * 128.0, 40 * 2.0**20) / 1e9, 2)  # an A100 counts 1.01 GB
    0.96
    >>> wave_traffic(large, 108 * 128 * 128.0, 1e9) == large.weights + large.activations  # all of it fits
    True
    """
    m, n, k, a, w = product.m, product.n, product.k, product.input_bytes, product.weight_bytes
    xp, kept = namespace(m, n, k, results, capacity), HELD * capacity
    high = xp.minimum(xp.sqrt(results * w / a), m)
    wide = xp.minimum(results / high, n)
    high = xp.minimum(results / wide, m)
    stays = (high * a + wide * w) * k <= kept
    across, down = xp.maximum(n / wide, 1.0), xp.maximum(m / high, 1.0)
    weights_stay = (high * a + n * w) * k <= kept
    inputs_stay = (m * a + wide * w) * k <= kept
    by_rows = tile_traffic(product, xp.where(weights_stay, 1.0, down), xp.where(stays, 1.0, across))
    by_columns = tile_traffic(product, xp.where(stays, 1.0, down), xp.where(inputs_stay, 1.0, across))
    return xp.minimum(by_rows, by_columns)


def tile_waves(m: Number, n: Number, batch: Number, cores: Number) -> Number:
    r"""Waves in which a product's results come: the pieces that communication can take it in.

    .. math:: w = \left\lceil \frac{b \lceil m/128 \rceil \lceil n/256 \rceil}{p} \right\rceil

    b products of m x n results on p cores. A product of one wave ends everywhere at once: nothing can be sent
    before.

    >>> float(tile_waves(8192.0, 4096.0, 1.0, 132.0)), float(tile_waves(64.0, 8192.0, 1.0, 132.0))
    (8.0, 1.0)
    """
    return ceil_div(batch * ceil_div(m, TILE_ROWS) * ceil_div(n, TILE_COLUMNS), cores)


PIECE = 16.0  # bytes that one load of a thread brings at most; rows must be whole pieces of it
SMALL_SIDE = 64.0  # rows and columns of tiles of kernels whose copies do not run ahead
DEPTH = 32.0  # of a step of their main loop
WORD = 4.0  # bytes of a word of local memory: what one element occupies of its port
PORT_TRIPS = 2.0  # an element passes the port on its way into registers and out of them
# Trips to DRAM in turn that a step waits for, and tiles that share a core, from two products with a vector at
# a locked clock (validation/a100/gemm_ncu.csv): 16 tiles on 108 cores take 1.17 us a step, three on a core
# 1.66 us. cuDNN's recurrent products on a V100, whose copies go through registers too, wait for four.
TRIPS = 2.7
TILES_HELD = 5.0


def row_is_whole(elements: Number, element_bytes: Number) -> Number:
    """1 where a row of so many elements is whole pieces of 16 bytes, else 0.

    >>> float(row_is_whole(8.0, 2.0)), float(row_is_whole(1.0, 2.0))
    (1.0, 0.0)
    """
    row = elements * element_bytes
    return 1.0 * (ceil_div(row, PIECE) * PIECE == row)


def unaligned_time(product: Product, device: Device) -> Number:
    r"""Time on the cores of a product whose copies do not run ahead of its main loop [s].

    .. math::
        T = \left\lceil \frac{k}{32} \right\rceil \left( \left\lceil \frac{t}{5 p} \right\rceil 2.7 L
        + \left\lceil \frac{t}{p} \right\rceil \frac{2 \cdot 4 \, (64 + 64) \, 32}{s} \right), \quad
        t = b \left\lceil \frac{m}{64} \right\rceil \left\lceil \frac{n}{64} \right\rceil

    t tiles on p cores, five of which share one and wait for their loads together; latency L of DRAM; every
    element of a tile's operands occupies a word of a core's port s to local memory, in and out.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> vector = {"n": 1.0, "input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> a100 = device(chip("a100-80"))
    >>> few, more = (Product(m=m, k=4096.0, **vector) for m in (1024.0, 16384.0))
    >>> [round(float(unaligned_time(p, a100)) * 1e6) for p in (few, more)]  # as deep, so nearly as long
    [138, 184]
    """
    tiles = product.batch * ceil_div(product.m, SMALL_SIDE) * ceil_div(product.n, SMALL_SIDE)
    per_core = ceil_div(tiles, device.cores)
    port = PORT_TRIPS * WORD * 2.0 * SMALL_SIDE * DEPTH / device.chip.compute.sram_bandwidth
    wait = ceil_div(per_core, TILES_HELD) * TRIPS * device.chip.memory.latency
    return ceil_div(product.k, DEPTH) * (wait + per_core * port)
