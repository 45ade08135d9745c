"""Streaming ops as PyTorch runs them one by one: how its kernels cut the work, which fused kernels of an
engine do differently.

Shapes of kernels are from PyTorch's sources (aten/src/ATen/native/cuda: vectorized_elementwise_kernel,
layer_norm_kernel.cu, PersistentSoftmax.cuh and SoftMax.cu), as seen by its profiler in version 2.11.
"""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.errors import UnknownName
from strata.precision import bytes_of
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.traffic import RequestStream, read_fraction
from strata.pricing.kernels.vector import EXPOSED, SLOT_FLOP, RowSchedule, scattered_rows, vector_kernel
from strata.pricing.price import Price

# Issue slots of a vector lane for one element: conversions, address work and checks counted in, of which the
# definitions know nothing. Rates of long runs on an H200 (132 x 128 lanes at 1.98 GHz) outside the validation
# files: gelu 8.0e11 elements/s (both branches of erf run where neighbours differ), softmax 3.3e11 while a row
# stays in registers (element by element, each with a check), 5.6e11 for longer rows (eight at a time). An add
# or a norm is far from this bound.
SLOTS = {"copy": 2.0, "add": 3.0, "gelu": 42.0, "rms_norm": 20.0, "softmax": 61.0}
SOFTMAX_IN_REGISTERS = 101.0
# Rows of a table added up by bag: a thread for each element of a result, with its own index work (divisions
# of 64 bits), and that of each row it adds. Fitted to 138 kernels on an H200 outside the validation files
# (widths 96 to 512, 2 to 60 rows a bag, fp32 and bf16): mean error 6 %; 5 to 11 % of a precision, a width, a
# number of bags or of rows a bag that is left out.
BAG_SLOTS, BAG_ROW_SLOTS = 335.0, 51.0
BLOCK = 1024.0  # elements of a block of an element-wise kernel: 128 threads of eight, 16 blocks on a core
NORM_LOAD = 512.0  # elements of a row that a norm's block loads at once: 128 threads of four
ROW_THREADS = 1024.0  # of a softmax block, one row each; two blocks fit on a core
OWN_RESULTS = ("copy", "add")  # whose results are written to buffers that are given
ENDLESS = 1e18  # bytes: no cache keeps so many
IN_REGISTERS = 9.0  # elements a softmax thread keeps in registers at most
CROWDED = 6.0  # elements above which their registers leave room for one block on a core instead of two


def eager_rows(op: str, rows: Number, columns: Number) -> tuple[Number, RowSchedule]:
    """Issue slots for each element, and how the kernel of an op walks its rows.

    >>> slots, walked = eager_rows("softmax", 64.0, 8192.0)
    >>> float(slots), float(walked.per_core)
    (101.0, 1.0)
    """
    if op not in SLOTS:
        raise UnknownName("streaming op", op, SLOTS, ", ".join(SLOTS))
    xp = namespace(rows, columns)
    if op == "rms_norm":  # one pass for the sum of squares, one to scale; each load waits for the one before
        loads = xp.ceil(columns / NORM_LOAD)
        return SLOTS[op], RowSchedule(rows, 2.0 * loads + 1.0, loads, 16.0, reread=rows * columns * 2.0)
    if op == "softmax":  # loads fly together; the maximum and the sum of a row meet in shared memory
        each = columns / ROW_THREADS
        blocks = xp.where((each > CROWDED) & (each <= IN_REGISTERS), 1.0, 2.0)
        slots = xp.where(each <= IN_REGISTERS, SOFTMAX_IN_REGISTERS, SLOTS[op])
        return slots, RowSchedule(rows, 2.0, 1.0, blocks)
    return SLOTS[op], RowSchedule(xp.ceil(rows * columns / BLOCK), 0.0, 0.0, 16.0)


def eager_kernel(
    op: str, rows: Number, columns: Number, moved: tuple[Number, Number], device: Device, *, footprint: Number
) -> Price:
    """Price of a streaming op over 16-bit rows as PyTorch runs it, with `moved` bytes read and written;
    `footprint`: bytes touched between two uses.
    """
    slots, walked = eager_rows(op, rows, columns)
    flop = rows * columns * slots * SLOT_FLOP
    return vector_kernel(*moved, flop, 0.0, device, resident=True, rows=walked, footprint=footprint)


def touched_between_uses(op: str, read: Number, written: Number, turns: Number) -> Number:
    """Bytes touched between two uses of an op's operands [B] where so many sets of buffers take turns, no end
    of them where 0. Results of ops but copies and sums fall into the memory that the last one left.

    >>> float(touched_between_uses("add", 2e6, 1e6, 32.0)), float(touched_between_uses("gelu", 2e6, 2e6, 1.0))
    (96000000.0, 4000000.0)
    """
    both = read + written
    xp = namespace(both, turns)
    turned = turns * (both if op in OWN_RESULTS else read)
    return xp.where(turns > 0.0, xp.maximum(turned, both), ENDLESS)


def bag_kernel(bags: Number, per_bag: Number, width: Number, precision: str, device: Device) -> Price:
    r"""Price of an embedding bag: rows of a table at random addresses, added up bag by bag.

    .. math:: T = T_0 + \max(T_c + \epsilon \min(T_c, T_m), T_m), \quad
        T_c = \frac{2 g w (335 + 51 d)}{R_v}, \quad T_m = \frac{b g w (d + 1)}{B}

    g bags of d rows of w elements of b bytes; issue slots of a thread for an element of a result and for each
    row, at two operations a slot of the vector rate R_v; bandwidth B of streams, of which the share ε shows
    beside the slots; floor T_0 of a stream from DRAM.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h200"))
    >>> narrow, wide = (bag_kernel(65536.0, 100.0, 128.0, p, d).time for p in ("bf16", "fp32"))
    >>> assert narrow < wide < 1.3 * narrow  # twice the bytes, the same instructions
    """
    chip, size = device.chip, bags * width * bytes_of(precision)
    moved, flop = size * (per_bag + 1.0), bags * width * SLOT_FLOP * (BAG_SLOTS + BAG_ROW_SLOTS * per_bag)
    rate, floor = chip.memory.stream_efficiency, chip.overhead.stream + chip.overhead.cold

    def requests() -> RequestStream:
        return RequestStream(width * bytes_of(precision), read_fraction(per_bag, 1.0), even=True)

    return scattered_rows(device, moved, flop, rate, requests, floor=floor, exposed=EXPOSED)
