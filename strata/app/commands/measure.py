"""`strata measure`: kernels timed on the GPU at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strata.app.terminal import (
    names_of,
    say,
    wrote,
)

if TYPE_CHECKING:
    from strata.validation.measure.measure import MeasuredKernel


def register_measure(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        "measure",
        short_help="Time kernels on the GPU at hand.",
        epilog="Example: strata measure --out mine --quick",
    )(measure_command)


def measure_command(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="folder to write to; rows that are there already are kept")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="gemm, stream, attention, grouped_gemm or power; several as gemm,stream"
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="few shapes and short readings: about a minute instead of ten")
    ] = False,
    chip: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="the chip this is, or its TOML; it names the folder  [default: from the GPU's name]",
            autocompletion=names_of("chip"),
        ),
    ] = "",
) -> None:
    """Time kernels on the GPU at hand (PyTorch, CUDA graphs) and write the files that calibrate and validate
    read.
    """
    from strata.app.render.accuracy import measured_tables
    from strata.validation.measure.measure import chosen_kinds

    kinds = chosen_kinds(only or [])
    folder, done = _measured(out, kinds, quick, chip)
    say(*measured_tables(folder, done))
    wrote("measurements", folder, f" (next: strata calibrate {chip or folder.name} --data {out})")


def _measured(out: Path, kinds: list[str], quick: bool, chip: str = "") -> tuple[Path, list[MeasuredKernel]]:
    """Measure the GPU at hand with a bar that says how far it is; the folder of its files, and what became of
    each kernel.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from strata.hardware.chip import chip as read_chip
    from strata.params import names
    from strata.validation.measure.gpu import torch_gpu
    from strata.validation.measure.measure import folder_name, measure

    gpu = torch_gpu()
    known = {name: float(read_chip(name).compute.cores) for name in names("chip")}
    folder = out / (read_chip(chip).name if chip else folder_name(gpu.name, gpu.cores, known))
    done: list[MeasuredKernel] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {kind: bar.add_task(kind, total=None) for kind in kinds}
        for one in measure(gpu, folder, kinds=kinds, quick=quick):
            bar.update(tasks[one.kind], completed=one.place, total=one.total)
            done.append(one)
    return folder, done
