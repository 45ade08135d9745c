"""How kernels read and write DRAM: the stream each presents, and the time it takes of chips whose memory is described by its banks.

A chip without such a description keeps its measured share of the peak; nothing here touches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from strata.arrays import Number, namespace
from strata.hardware.chip import Chip
from strata.hardware.dram import Stream
from strata.hardware.noc import Noc, access_bandwidth, access_latency, local_share
from strata.hardware.stack import dram_of, stack_sustained, whole_waves

SIDE = 128.0  # rows or columns of an operand's tile that a core holds
BUFFERED = 0.5  # of a core's memory is being filled while the other half is worked on
PAGE = 16.0  # tokens of a page of a key and value cache, as serving frameworks cut it (vLLM's default)


def in_flight(chip: Chip) -> Number:
    """Bytes all cores together have asked for at a time [B]: the half of their memories that is being filled."""
    return chip.compute.cores * chip.compute.sram_capacity * BUFFERED


def _stream(chip: Chip, run: Number, read: Number, written: Number, packed: bool = False) -> Stream:
    moved = read + written
    share = read / namespace(moved).where(moved > 0.0, moved, 1.0)
    return Stream(run=run, read_share=share, outstanding=in_flight(chip), latency=chip.memory.latency + crossing_time(chip), packed=packed)


def network_of(chip: Chip) -> Noc | None:
    """The network between the cores and the vaults above them, where a chip's making describes one.

    Elsewhere what crosses the die is part of the chip's own figures of latency, cache bandwidth and energy.
    """
    return None if chip.silicon is None or chip.stack is None else chip.silicon.noc


def crossing_time(chip: Chip) -> Number:
    """What the network inside the chip adds to a load of DRAM on average [s]."""
    noc = network_of(chip)
    return 0.0 if noc is None else access_latency(noc, chip.compute.cores, local_share(noc, chip.compute.cores))


def product_stream(chip: Chip, m: Number, n: Number, k: Number, a: Number, w: Number, o: Number) -> Stream:
    r"""The stream of a product: weights along their depth, as far as a core's buffer reaches.

    .. math:: l = \min\left(k w, \frac{w \, M / 2}{\min(m, 128) a + \min(n, 128) w}\right), \quad p = \frac{m k a + k n w}{m k a + k n w + m n o}

    A core of memory M fills half of it with a tile's rows and columns of bytes a and w an element, as deep as fits: few rows leave
    the weights long runs, many cut them short. Results of o bytes are written.

    >>> from strata.hardware.chip import chip
    >>> ref = chip("stack-ref")
    >>> gemv, gemm = (product_stream(ref, m, 8192.0, 8192.0, 2.0, 2.0, 2.0) for m in (1.0, 4096.0))
    >>> round(float(gemv.run)), float(gemm.run), round(float(gemv.read_share), 3), round(float(gemm.read_share), 3)
    (1016, 512.0, 1.0, 0.75)
    """
    xp = namespace(m, n, k, chip.compute.sram_capacity)
    depth = BUFFERED * chip.compute.sram_capacity / (xp.minimum(m, SIDE) * a + xp.minimum(n, SIDE) * w)
    return _stream(chip, xp.minimum(k, depth) * w, k * (m * a + n * w), m * n * o, packed=True)


def cache_stream(chip: Chip, width: Number, size: Number, read: Number, written: Number) -> Stream:
    """The stream of attention over a paged cache: one head's keys or values of a page lie together.

    >>> from strata.hardware.chip import chip
    >>> cache_stream(chip("stack-ref"), 128.0, 2.0, 1e9, 1e6).run
    4096.0
    """
    return _stream(chip, PAGE * width * size, read, written)


def row_stream(chip: Chip, row: Number, read: Number, written: Number) -> Stream:
    """The stream of rows gathered by expert, each at an address of its own."""
    return _stream(chip, row, read, written)


def long_stream(chip: Chip, read: Number, written: Number) -> Stream:
    """The stream of a kernel that walks tensors from end to end: whole rows of the banks."""
    found = None if chip.stack is None else dram_of(chip.stack)
    return _stream(chip, 0.0 if found is None else found.row, read, written)


def has_banks(chip: Chip) -> bool:
    """Whether a chip's memory is described by its banks."""
    return chip.stack is not None and dram_of(chip.stack) is not None


def dram_bandwidth(chip: Chip, efficiency: Number, stream: Callable[[], Stream], hot: Number = 0.0) -> Number:
    r"""DRAM bandwidth a kernel gets [B/s]: a measured share of the peak, or what banks leave of it for its stream.

    .. math:: B = \begin{cases} B_{peak} \, \eta & \text{no banks described} \\ B(\text{stream}) & \text{else (stack\_sustained)} \end{cases}

    What crosses the network inside the chip is bounded by that, too (`access_bandwidth`).

    >>> from strata.hardware.chip import chip
    >>> h200 = chip("h200")
    >>> dram_bandwidth(h200, 0.5, lambda: long_stream(h200, 1.0, 1.0)) / h200.memory.bandwidth
    0.5
    """
    if not has_banks(chip):
        return chip.memory.bandwidth * efficiency
    return _from_banks(chip, stream(), hot)


def _from_banks(chip: Chip, stream: Stream, hot: Number) -> Number:
    assert chip.stack is not None
    found = stack_sustained(chip.stack, stream, hot, chip.compute.cores * chip.compute.sram_bandwidth).bandwidth
    noc, cores = network_of(chip), chip.compute.cores
    return found if noc is None else access_bandwidth(noc, cores, found, local_share(noc, cores))


def dram_time(chip: Chip, moved: Number, efficiency: Number, stream: Callable[[], Stream], hot: Number = 0.0) -> Number:
    """Time DRAM needs for the bytes of a kernel [s]; a stack moves whole waves, of reads and of writes."""
    if chip.stack is None or not has_banks(chip):
        return moved / (chip.memory.bandwidth * efficiency)
    asked = stream()
    read = whole_waves(chip.stack, moved * asked.read_share)
    total = read + whole_waves(chip.stack, moved * (1.0 - asked.read_share))
    share = read / namespace(total).where(total > 0.0, total, 1.0)
    return total / _from_banks(chip, replace(asked, read_share=share), hot)
