"""`strata measure`: kernels, power and collectives timed on the GPUs at hand."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from strata.app.commands.options import JsonFlag, command, flag, option
from strata.app.terminal import names_of, print_json, progress_bar, say, wrote
from strata.errors import BadValue, StrataError, require

if TYPE_CHECKING:
    from strata.measure.collectives import MeasuredCollective
    from strata.measure.measure import MeasuredKernel

COLLECTIVES_KIND = "collectives"


@command(
    "measure", "Time kernels, power and collectives on the GPUs at hand.", "strata measure --out mine --quick"
)
def measure_command(
    out: Path = option(..., "DIR", "folder to write to; rows that are there already are kept"),
    only: list[str] | None = option(
        None,
        "KIND",
        "gemm, stream, attention, grouped_gemm or power; several as gemm,stream; or collectives, under "
        "torchrun",
        flags="--only --what",
    ),
    quick: bool = flag("--quick", "few shapes and short readings: about a minute instead of ten"),
    chip: str = option(
        "",
        "NAME",
        "the chip this is, or its TOML; it names the folder  [default: from the GPU's name]",
        names_of("chip"),
    ),
    op: list[str] | None = option(
        None, "OP", "collectives: all_reduce, all_gather, reduce_scatter, all_to_all  [default: all]"
    ),
    sizes: str = option(
        "", "BYTES", "collectives: whole buffers, 1M,4M or powers of two as 1K:1G  [default: 1K:1G]"
    ),
    dtype: str = option("bfloat16", "FORMAT", "collectives: bfloat16, half or float"),
    fabric: str = option("", "NAME", "collectives: what joins the nodes: infiniband, roce, efa ..."),
    links: str = option("", "TEXT", "collectives: adapters of a node, as '8x400G'"),
    json: JsonFlag = False,
) -> None:
    """Time kernels on the GPU at hand (PyTorch, CUDA graphs), or collectives of all ranks of torchrun, and
    write the files that calibrate and validate read.
    """
    from strata.app.render.accuracy import measured_dict, measured_tables
    from strata.measure.measure import chosen_kinds

    words = [word.strip() for text in only or [] for word in text.split(",") if word.strip()]
    if COLLECTIVES_KIND in words:
        require(set(words) == {COLLECTIVES_KIND}, "collectives are measured by themselves, under torchrun")
        asked = {"dtype": dtype, "fabric": fabric, "links": links, "quick": quick}
        _on_rank_0(lambda: _collectives(out, op or [], sizes, chip, json, asked))
        return
    said = {"--op": op, "--sizes": sizes, "--fabric": fabric, "--links": links}
    told = [name for name, value in said.items() if value]
    require(not told, f"{', '.join(told)} says something of collectives: --what collectives")
    kinds = chosen_kinds(words)
    folder, done = _measured(out, kinds, quick, chip)
    if json:
        print_json(measured_dict(folder, done))
    else:
        say(*measured_tables(folder, done))
    wrote("measurements", folder, f" (next: strata calibrate {chip or folder.name} --data {out})")


def _measured(out: Path, kinds: list[str], quick: bool, chip: str = "") -> tuple[Path, list[MeasuredKernel]]:
    """Measure the GPU at hand with a bar that says how far it is; the folder of its files, and what became of
    each kernel.
    """
    from strata.hardware.chip import chip as read_chip
    from strata.measure.gpu import torch_gpu
    from strata.measure.measure import folder_name, measure

    gpu = torch_gpu()
    folder = out / (read_chip(chip).name if chip else folder_name(gpu.name, gpu.cores))
    done: list[MeasuredKernel] = []
    with _bar() as bar:
        tasks = {kind: bar.add_task(kind, total=None) for kind in kinds}
        for one in measure(gpu, folder, kinds=kinds, quick=quick):
            bar.update(tasks[one.kind], completed=one.place, total=one.total)
            done.append(one)
    return folder, done


def _bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    counted = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return progress_bar(TextColumn("{task.description}"), *counted)


# ------------------------------------------------------------------------------------- collectives


def _on_rank_0(work: Any) -> None:
    """Every rank works; what is wrong on all of them is said once."""
    try:
        work()
    except StrataError:
        if os.environ.get("RANK", "0") != "0":
            raise typer.Exit(2) from None
        raise


def _collectives(out: Path, op: list[str], sizes: str, chip: str, json: bool, asked: dict[str, Any]) -> None:
    from dataclasses import replace

    from strata.app.render.accuracy import measured_collectives
    from strata.hardware.chip import chip as read_chip
    from strata.measure import collectives
    from strata.validation.readers.collective_files import BETWEEN_NODES, IN_NODE

    wanted, buffers = collectives.chosen_ops(op), collectives.collective_sizes(sizes, asked["quick"])
    named = read_chip(chip).name if chip else ""
    if out.exists() and not out.is_dir():
        raise BadValue(f"--out is a folder, but got '{out}'")
    group = collectives.torch_group()
    try:
        if named:
            group.facts = replace(group.facts, gpu=named)
        found = collectives.measure_collectives(group, out, ops=wanted, sizes=buffers, **asked)
        first = group.facts.rank == 0
        done = _watched(found) if first else list(found)
    finally:
        group.close()
    if first:
        path = out / (IN_NODE if group.facts.nodes == 1 else BETWEEN_NODES)
        told, shown = measured_collectives(group.facts, done)
        if json:
            print_json(told)
        else:
            say(*shown)
        wrote("measurements", path, f" (next: strata calibrate --log {path} -o fitted)")


def _watched(found: Iterable[MeasuredCollective]) -> list[MeasuredCollective]:
    done: list[MeasuredCollective] = []
    with _bar() as bar:
        task = bar.add_task(COLLECTIVES_KIND, total=None)
        for one in found:
            bar.update(task, description=one.op, completed=one.place, total=one.total)
            done.append(one)
    return done
