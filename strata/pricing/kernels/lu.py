"""LU factorisation in blocks: columns one after the other, and products that bring the rest up to date."""

from __future__ import annotations

import math

from strata.arrays import Number, ceil_div, is_traced, namespace
from strata.precision import bytes_of
from strata.pricing.kernels.device import Device, kernel_price
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.unaligned import PORT_TRIPS
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import Price, total_price
from strata.workload.scan_ops import LuFactor

# Bytes of a column that the threads of one block hold, a word of 4 B each: 512 threads, as the panel kernels
# of cuSOLVER have. What is longer takes more words a thread, then more cores.
GROUP = 2048.0
SECTOR = 32.0  # bytes of the least access of a GPU's DRAM (CUDA C++ Best Practices Guide, coalesced access)
SWAP_TRIPS = 4.0  # a swap reads and writes an element of two rows, which lie a column apart
NODES = 24  # blocks priced one by one; of more blocks, so many evenly spread ones stand for all


def column_steps(order: Number, element: Number, device: Device) -> Number:
    r"""Time of all columns of the panels, one after the other [s].

    .. math:: T_p = n t_c + t_x \int_0^n \left[\log_2 \frac{m b}{g}\right]_+ dm
        = n t_c + t_x \frac{g}{b} \left(X \log_2 X - \frac{X - 1}{\ln 2}\right), \quad
        X = \max\left(\frac{n b}{g}, 1\right)

    n columns of m = n ... 1 elements of b bytes. A column is a search for its largest element, a swap of two
    rows, a division and an update of the panel by one row and one column, in time t_c while a group of
    threads holds it (g bytes); every doubling beyond adds a level to the tree in which they agree, t_x.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h200", **{"overhead.column": "1.6 us", "overhead.pivot": "0.4 us"}))
    >>> [round(float(column_steps(n, 4.0, d)) * 1e6) for n in (512.0, 1024.0)]  # 1024 (1.6 + 0.4 x 0.279)
    [819, 1753]
    """
    overhead = device.chip.overhead
    xp = namespace(order, element)
    groups = xp.maximum(order * element / GROUP, 1.0)
    levels = GROUP / element * (groups * xp.log(groups) - (groups - 1.0)) / math.log(2.0)
    return order * overhead.column + levels * overhead.pivot


def _solved(columns: Number, width: Number, element: Number, device: Device) -> Number:
    """Time to solve for `columns` columns with a triangle of `width` rows [s]: every multiply-add brings an
    element through the core's port to local memory, in and out.
    """
    port = device.cores * device.chip.compute.sram_bandwidth
    return 0.5 * PORT_TRIPS * element * width * width * columns / port


def _block_prices(
    op: LuFactor, rows: Number, element: Number, device: Device
) -> tuple[Price, Price, Price, Number]:
    """A block of columns with so many rows left, without its columns: the product for one panel of it, the
    product for what lies right of it, the solves of both with the swaps of rows; and how many panels follow
    another.
    """
    order, name, floor = op.order.size, op.precision, device.chip.overhead.kernel
    xp = namespace(rows, op.block, op.panel, device.cores)
    width = xp.minimum(op.block, rows)
    rest = rows - width
    panels = xp.maximum(width / op.panel - 1.0, 0.0)
    inside = matmul(rows, xp.maximum(0.5 * width, 1.0), op.panel, device, name, name, resident=True)
    right = xp.maximum(rest, 1.0)
    update = matmul(right, right, op.block, device, name, name, resident=True)
    there = 1.0 * (rest > 0.0)
    swapped = width * order * SWAP_TRIPS * xp.maximum(element, SECTOR)
    swaps = vector_kernel(0.5 * swapped, 0.5 * swapped, 0.0, 0.0, device)
    flop = width * width * rest
    solves = kernel_price(
        device,
        compute=_solved(rest, width, element, device),
        cache=0.0,
        memory=0.0,
        moved=width * rest * element,
        dram=0.0,
        flop=flop,
        joule=flop * device.matrix(name, name).energy,
        lower=0.0,
        floor=(panels + there) * floor,
    )
    return inside, update.times(there), solves + swaps, panels


def price_lu(op: LuFactor, device: Device) -> Price:
    r"""Price of a factorisation, right-looking: columns of panels, then solves, swaps and products block by
    block.

    .. math::
        T = b \left( T_p + \sum_{i=0}^{\lceil n/w \rceil - 1} \left( \left(\tfrac{w}{p} - 1\right)
        T_g(m_i, \tfrac{w}{2}, p) + T_s + \frac{4 \max(b_e, 32) n w}{B}
        + T_g(m_i - w, m_i - w, w) \right) \right), \quad m_i = n - i w

    `column_steps` T_p; blocks of w columns in panels of p; products T_g (`matmul`); triangular solves T_s:
    w^2 (m_i - w) / 2 multiply-adds, each with an element of b_e bytes through the port of local memory in and
    out; rows swapped over all n columns, each element an access of at least 32 B at DRAM's bandwidth B of
    streams. Blocks are added up one by one; of more than `NODES` of them, as many midpoints.

    Golub & Van Loan, Matrix Computations (2013), sec. 3.2.11 (blocks) and 3.4 (pivots). Shapes of the kernels
    from a profile of cuSOLVER on an H200 at orders 1536 to 20480.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> d, no = device(chip("h200")), {"name": "lu", "module": "lu", "inputs": ("a",), "output": "f"}
    >>> lu = {n: price_lu(LuFactor(order=Extent(n), precision="fp64", **no), d) for n in (1024.0, 2048.0)}
    >>> assert 2 * lu[1024.0].time < lu[2048.0].time < 3 * lu[1024.0].time  # columns, not arithmetic
    """
    order, element = op.order.size, bytes_of(op.precision)
    xp = namespace(order, op.block)
    blocks = ceil_div(order, op.block)
    nodes = xp.minimum(blocks, float(NODES))
    apart = blocks / nodes
    columns = column_steps(order, element, device)
    parts: list[tuple[Number, Price]] = [
        (
            1.0,
            kernel_price(
                device,
                compute=columns,
                cache=0.0,
                memory=0.0,
                moved=0.0,
                dram=0.0,
                flop=0.0,
                joule=0.0,
                lower=0.0,
                floor=0.0,
            ),
        )
    ]
    whole = max_nodes(blocks)
    for i in range(whole):
        count = apart * (i < nodes)
        rows = xp.maximum(order - op.block * ((i + 0.5) * apart - 0.5), 1.0)
        inside, update, solves, panels = _block_prices(op, rows, element, device)
        parts += [(count * panels, inside), (count, update), (count, solves)]
    flop = op.flop() / op.batch.size
    lower = flop / device.matrix(op.precision, op.precision).peak
    return total_price(parts).replaced(flop=flop, lower=lower).times(op.batch.size)


def column_major(order: Number, precision: str, device: Device) -> Price:
    """Price of a matrix copied, columns for rows, as libraries want it: neighbours in a row lie a column
    apart in the copy, each an access of its own.
    """
    element = bytes_of(precision)
    size = namespace(element).maximum(element, SECTOR)
    return vector_kernel(order * order * element, order * order * size, 0.0, 0.0, device)


def max_nodes(blocks: Number) -> int:
    """Blocks that must be priced: all up to `NODES`; a traced number of blocks takes as many as it may
    have.
    """
    return NODES if is_traced(blocks) else int(min(float(namespace(blocks).max(blocks)), NODES))
