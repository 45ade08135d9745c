"""`strata kernel` for kernels of other programs: factorisations, transforms, prefix sums, sorts, bags."""

from __future__ import annotations

from typing import Annotated

import typer

from strata.app.commands.kernel import (
    EXAMPLE,
    ArithmeticFormat,
    ChipChanges,
    KernelChip,
    Once,
    Resident,
    answer_kernel,
    kernels,
    size_option,
)
from strata.app.commands.options import JsonFlag, TableFile


def register_kernel(app: typer.Typer) -> None:
    """Give an app the commands of all kernels."""
    app.add_typer(kernels)


@kernels.command(
    "lu",
    short_help="An LU factorisation.",
    epilog=EXAMPLE.format("lu --chip h200 --order 1024,8192 --precision fp64"),
)
def lu_command(
    chip: KernelChip,
    order: Annotated[str, size_option("rows and columns of a matrix")],
    batch: Annotated[str, size_option("matrices, one after the other")] = "1",
    precision: ArithmeticFormat = "fp32",
    set: ChipChanges = None,
    once: Once = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """P A = L U of a square matrix with partial pivoting, in blocks."""
    sizes = {"order": order, "batch": batch}
    answer_kernel(chip, "lu", sizes, {"precision": precision}, changes=set, once=once, json=json, table=table)


@kernels.command(
    "fft",
    short_help="Fourier transforms of lines.",
    epilog=EXAMPLE.format("fft --chip h200 --points 4096 --lines 1024,32768"),
)
def fft_command(
    chip: KernelChip,
    points: Annotated[str, size_option("complex points of a line")],
    lines: Annotated[str, size_option("lines at once")] = "1",
    precision: ArithmeticFormat = "fp32",
    set: ChipChanges = None,
    resident: Resident = False,
    once: Once = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Complex transforms along one axis; the precision is that of a real or imaginary part."""
    sizes, options = {"points": points, "lines": lines}, {"precision": precision}
    answer_kernel(
        chip, "fft", sizes, options, changes=set, once=once, json=json, table=table, resident=resident
    )


@kernels.command(
    "scan",
    short_help="Prefix sums along an axis.",
    epilog=EXAMPLE.format("scan --chip h200 --length 8192 --inner 1,1024,8192"),
)
def scan_command(
    chip: KernelChip,
    length: Annotated[str, size_option("elements along the axis")],
    outer: Annotated[str, size_option("lines whose elements follow those of other lines")] = "1",
    inner: Annotated[str, size_option("neighbours in memory along other axes: 1 is the last axis")] = "1",
    precision: ArithmeticFormat = "fp32",
    set: ChipChanges = None,
    resident: Resident = False,
    once: Once = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Prefix sums along the middle axis of [outer, length, inner]."""
    sizes, options = {"length": length, "outer": outer, "inner": inner}, {"precision": precision}
    answer_kernel(
        chip, "scan", sizes, options, changes=set, once=once, json=json, table=table, resident=resident
    )


@kernels.command(
    "sort",
    short_help="A radix sort.",
    epilog=EXAMPLE.format("sort --chip h200 --length 1000000,100000000"),
)
def sort_command(
    chip: KernelChip,
    length: Annotated[str, size_option("keys of a line, each with an index of 8 bytes")],
    lines: Annotated[str, size_option("lines, each sorted by itself")] = "1",
    precision: ArithmeticFormat = "fp32",
    set: ChipChanges = None,
    resident: Resident = False,
    once: Once = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Keys and their indices brought into order, digit by digit."""
    sizes, options = {"length": length, "lines": lines}, {"precision": precision}
    answer_kernel(
        chip, "sort", sizes, options, changes=set, once=once, json=json, table=table, resident=resident
    )


@kernels.command(
    "embedding_bag",
    short_help="Rows of a table added up by bag.",
    epilog=EXAMPLE.format("embedding_bag --chip h200 --bags 65536 --per-bag 1,20,100 --width 128"),
)
def embedding_bag_command(
    chip: KernelChip,
    bags: Annotated[str, size_option("bags: rows of the result")],
    per_bag: Annotated[str, size_option("rows of the table added up for a bag")],
    width: Annotated[str, size_option("elements of a row")],
    precision: ArithmeticFormat = "fp32",
    set: ChipChanges = None,
    once: Once = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Rows at random addresses of a table, added up bag by bag, as PyTorch does it."""
    sizes = {"bags": bags, "per_bag": per_bag, "width": width}
    answer_kernel(
        chip, "embedding_bag", sizes, {"precision": precision}, changes=set, once=once, json=json, table=table
    )
