"""Mappings of programs on the command line: partitions, layouts, the proof, and what others lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strata.app.terminal import plain_table, titled
from strata.hardware.system import System
from strata.optimise.fuse import FusedPartition
from strata.optimise.joint import ProgramMapping
from strata.optimise.mappings.joint_compare import ComparedMapping
from strata.optimise.mappings.joint_problem import MappedBlock
from strata.units import show


def partition_rows(found: ProgramMapping) -> list[tuple[MappedBlock, int, FusedPartition]]:
    """Partitions of all blocks with their numbers."""
    assert found.best is not None
    blocks = found.best.layer.blocks
    every = [(block, partition) for block in blocks for partition in block.fusion.partitions]
    return [(block, number, partition) for number, (block, partition) in enumerate(every, 1)]


def map_notes(found: ProgramMapping, system: System, layouts: str) -> list[str]:
    """What a reader should know of how this was found."""
    said = []
    if found.given and layouts != "given":
        said.append(
            f"layouts are those of the plan {found.given} (routed experts and uneven divisions are not "
            "searched; --plan names another); partitions are proved best under them"
        )
    if system.chip.execution != "dataflow":
        said.append(
            f"{system.chip.name} runs kernels one by one: a fused partition is what one kernel "
            "with its tensors kept on the chip could reach"
        )
    return said


def map_dict(
    found: ProgramMapping, others: Sequence[ComparedMapping], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """A mapping for machines, in SI units."""
    best = found.best
    assert best is not None
    return {
        "step": best.step,
        "bound": found.bound,
        "gap": found.gap,
        "optimal": found.optimal,
        "proof": found.proof,
        "stopped": found.stopped,
        "seconds": found.seconds,
        "mesh": best.candidate.mesh,
        "microbatches": best.candidate.microbatches,
        "stage": best.stage,
        "send": best.send,
        "gradients": best.gradients,
        "memory": best.memory,
        "plan": found.given,
        "notes": list(notes),
        "layouts": {module: list(axes) for module, axes in best.layer.options.items()},
        "partitions": partition_dicts(found),
        "collectives": [
            {"tensor": op.output, "pattern": op.pattern, "group": op.group, "payload": float(op.payload)}
            for op in found.collectives
        ],
        "compared": [
            {"name": c.name, "time": c.time, "loss": c.loss, "partitions": c.partitions, "reason": c.reason}
            for c in others
        ],
        "candidates": found.candidates,
        "bounded": found.bounded,
        "nodes": found.nodes,
        "layouts_fused": found.layouts,
        "space": None
        if found.space is None
        else {
            "candidates": found.space.candidates,
            "layouts": str(found.space.layouts),
            "fusions": str(found.space.fusions),
            "mappings": str(found.space.mappings),
            "counts": found.space.counts,
        },
    }


def partition_dicts(found: ProgramMapping) -> list[dict[str, Any]]:
    """Partitions for machines."""
    return [
        {
            "block": block.block,
            "times": block.times,
            "kernels": list(p.kernels),
            "tiles": p.tiles,
            "time": p.time,
            "compute": p.compute,
            "memory": p.memory,
            "network": p.network,
            "sram": p.sram,
            "traffic": p.traffic,
            "passes": p.passes,
            "binds": p.binds,
        }
        for block, _, p in partition_rows(found)
    ]


def map_tables(
    found: ProgramMapping, others: Sequence[ComparedMapping], title: str, notes: Sequence[str] = ()
) -> list[Any]:
    """What `strata map` prints."""
    parts: list[Any] = [*headline(found, title), *notes, "", titled("Partitions", partition_table(found)), ""]
    layouts = layout_lines(found)
    parts += [*layouts, ""] if layouts else []
    assert found.best is not None
    several = found.best.candidate.microbatches > 1 or found.best.candidate.stages > 1
    what = " (all layers, one micro-batch)" if several else ""
    parts.append(titled(f"Other mappings of the same layouts{what}", losses_table(others)))
    if found.space is not None:
        parts += ["", f"space: {big(found.space.mappings)} mappings ({found.space.counts})"]
    return parts


def headline(found: ProgramMapping, title: str) -> list[str]:
    """The step, its parts and its proof."""
    best = found.best
    assert best is not None
    degrees = ",".join(f"{d}={n:g}" for d, n in best.candidate.mesh.items() if n > 1)
    mesh = found.given or degrees or "one device"
    lines = [f"{title}: {mesh}, {counted(best.candidate.microbatches, 'micro-batch', 'micro-batches')}"]
    parts = [f"stage {show(best.stage, 's')}"]
    parts += [f"hand-over {show(best.send, 's')}"] if best.send else []
    parts += [f"gradients {show(best.gradients, 's')}"] if best.gradients else []
    lines.append(f"step {show(best.step, 's')} ({', '.join(parts)}), {show(best.memory, 'B')} a device")
    stopped = "; the search ended early" if found.stopped and not found.optimal else ""
    lines.append(
        f"no mapping is below {show(found.bound, 's')}: {found.proof}{stopped}, {found.seconds:.1f} s"
    )
    return lines


def counted(number: float, one: str, more: str) -> str:
    """A number with its noun.

    >>> counted(1.0, "tile", "tiles"), counted(8.0, "tile", "tiles")
    ('1 tile', '8 tiles')
    """
    return f"{number:g} {one if number == 1 else more}"


def partition_table(found: ProgramMapping) -> Any:
    table = plain_table()
    for heading in ("", "block", "kernels"):
        table.add_column(heading, overflow="fold")
    for heading in ("tiles", "compute", "memory", "network", "time", "SRAM"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bound by")
    last = ""
    for block, number, p in partition_rows(found):
        times = f" x {block.times:g}" if block.times != 1 else ""
        name = "" if block.block == last else block.block + times
        last = block.block
        sizes = (show(v, "s") if v else "" for v in (p.compute, p.memory, p.network, p.time))
        table.add_row(
            str(number), name, " ".join(p.kernels), str(p.tiles), *sizes, show(p.sram, "B"), p.binds
        )
    return table


def layout_lines(found: ProgramMapping) -> list[str]:
    """Modules by what is divided, dimension by dimension."""
    best = found.best
    assert best is not None
    dimensions = [d for d, n in best.candidate.inner.items() if n > 1 and not found.given]
    lines = [f"layouts: those of {found.given}"] if found.given else []
    for place, dimension in enumerate(dimensions):
        by_axis: dict[str, list[str]] = {}
        for module, axes in best.layer.options.items():
            by_axis.setdefault(axes[place] or "whole", []).append(module)
        said = "; ".join(f"{axis}: {', '.join(modules)}" for axis, modules in by_axis.items())
        lines.append(f"layouts on {dimension}: {said}")
    sent = [f"{op.output} {op.pattern.replace('_', '-')}" for op in found.collectives]
    return [*lines, f"collectives: {', '.join(sent)}"] if sent else lines


def losses_table(others: Sequence[ComparedMapping]) -> Any:
    table = plain_table("mapping", ">partitions", ">time", ">slower by")
    for each in others:
        if each.reason:
            table.add_row(each.name, "", "does not fit", each.reason)
            continue
        loss = "" if each.loss == 0 else f"{each.loss:.2%}" if each.loss < 1 else f"{1 + each.loss:.2f} x"
        table.add_row(each.name, str(each.partitions), show(each.time, "s"), loss)
    return table


def big(number: int) -> str:
    """A large integer in few digits.

    >>> big(120), big(12345678901234567890)
    ('120', '1.23e19')
    """
    text = str(number)
    return text if len(text) < 7 else f"{text[0]}.{text[1:3]}e{len(text) - 1}"
