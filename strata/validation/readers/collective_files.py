"""Runs of collectives as measured files: inside a node as `ops/nccl.csv`, between nodes as
`network/multinode.csv`.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from strata.errors import BadFile
from strata.validation.readers.collectives import PATTERNS
from strata.validation.readers.nccl_logs import OPS, LoggedRun
from strata.validation.readers.nccl_rows import WIDTHS, LoggedRow
from strata.validation.readers.tables import Table, read_table

IN_NODE, BETWEEN_NODES = "ops/nccl.csv", "network/multinode.csv"
COLLECTIVE_COLUMNS = {
    IN_NODE: (
        "system",
        "nccl_version",
        "op_name",
        "nccl_dtype",
        "num_gpus",
        "message_elements",
        "message_bytes",
        "latency_ms",
    ),
    BETWEEN_NODES: (
        "gpu",
        "nodes",
        "gpus",
        "gpus_per_node",
        "fabric",
        "links",
        "op",
        "nccl",
        "setting",
        "dtype",
        "bytes",
        "time_us",
    ),
}
# What the file of one node calls a collective.
IN_NODE_NAMES = {pattern: name for name, pattern in PATTERNS.items()}


def file_of_run(run: LoggedRun) -> str:
    """The measured file that a run belongs to."""
    return IN_NODE if run.nodes == 1 else BETWEEN_NODES


def rows_of_run(run: LoggedRun) -> list[dict[str, str]]:
    """The rows of a run, in the columns of its file."""
    return [_in_node(run, row) if run.nodes == 1 else _between_nodes(run, row) for row in run.rows]


def _in_node(run: LoggedRun, row: LoggedRow) -> dict[str, str]:
    return {
        "system": run.gpu,
        "nccl_version": run.library,
        "op_name": IN_NODE_NAMES[run.op],
        "nccl_dtype": row.dtype,
        "num_gpus": str(run.gpus),
        "message_elements": str(row.bytes // WIDTHS[row.dtype]),
        "message_bytes": str(row.bytes),
        "latency_ms": f"{row.time_us * 1e-3:.6g}",
    }


def _between_nodes(run: LoggedRun, row: LoggedRow) -> dict[str, str]:
    return {
        "gpu": run.gpu,
        "nodes": str(run.nodes),
        "gpus": str(run.gpus),
        "gpus_per_node": str(run.gpus // run.nodes),
        "fabric": run.fabric,
        "links": run.links,
        "op": run.op,
        "nccl": run.library,
        "setting": run.setting,
        "dtype": row.dtype,
        "bytes": str(row.bytes),
        "time_us": f"{row.time_us:.6g}",
    }


def write_runs(runs: Sequence[LoggedRun], folder: Path) -> dict[str, int]:
    """Write runs into a folder of measured files, over what was there: rows of each file."""
    written: dict[str, int] = {}
    for name in dict.fromkeys(file_of_run(run) for run in runs):
        rows = [row for run in runs if file_of_run(run) == name for row in rows_of_run(run)]
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLLECTIVE_COLUMNS[name], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            raise BadFile(f"{path} cannot be written: {str(error.strerror or error).lower()}") from None
        written[name] = len(rows)
    return written


def is_collective_csv(path: Path) -> bool:
    """Whether a file is one that `strata measure` wrote: its first line has the columns of such a file."""
    try:
        with path.open("rb") as file:
            first = file.readline(4096).decode("utf-8", "replace").strip().lstrip("\ufeff")
    except OSError:
        return False
    return tuple(first.split(",")) in COLLECTIVE_COLUMNS.values()


def runs_of_csv(path: Path) -> list[LoggedRun]:
    """The runs of a file that `strata measure` wrote, one for each collective, format and setting."""
    table = read_table(path.parent, path.name)
    if table.bad:
        line, why = min(table.bad.items())
        raise BadFile(f"{path.name} line {line}: {why}")
    one_node = "message_bytes" in table.columns
    if one_node:
        facts = {"gpu": "system", "gpus": "num_gpus", "op": "op_name", "library": "nccl_version"}
        sizes, times, dtype = table.number("message_bytes"), table.number("latency_ms") * 1e3, "nccl_dtype"
    else:
        own = ("gpu", "nodes", "gpus", "fabric", "links", "op", "setting")
        facts = {**{name: name for name in own}, "library": "nccl"}
        sizes, times, dtype = table.number("bytes"), table.number("time_us"), "dtype"
    told_by = (*facts.values(), dtype)
    keys = list(zip(*(table.text(column) for column in told_by), strict=True))
    runs = []
    for key in dict.fromkeys(keys):
        told = dict(zip(facts, map(str, key[:-1]), strict=True))
        rows = tuple(
            _row(table, i, float(sizes[i]), str(table.text(dtype)[i]), float(times[i]))
            for i, other in enumerate(keys)
            if other == key
        )
        runs.append(_run_of_row(told, rows, path.name, rows[0].line))
    return runs


def _row(table: Table, i: int, size: float, dtype: str, time: float) -> LoggedRow:
    line = int(table.lines[i])
    if not (size >= 1 and size == size // 1 and time > 0 and dtype in WIDTHS):
        raise BadFile(
            f"{table.name} line {line}: bytes and time must be above 0 and the format one of "
            f"{', '.join(WIDTHS)}, but got ({size:g}, {time:g} us, '{dtype}')"
        )
    return LoggedRow(line=line, bytes=int(size), dtype=dtype, time_us=time)


def _run_of_row(told: dict[str, str], rows: tuple[LoggedRow, ...], name: str, line: int) -> LoggedRun:
    op = PATTERNS.get(told["op"], told["op"])
    gpus, nodes = told["gpus"], told.get("nodes", "1")
    counted = all(n.isascii() and n.isdigit() and 0 < len(n) < 10 for n in (gpus, nodes))
    if op not in OPS.values() or not counted or int(nodes) < 1 or int(gpus) % int(nodes):
        raise BadFile(
            f"{name} line {line}: not a collective of GPUs spread evenly on nodes: "
            f"({told['op']}, gpus={gpus}, nodes={nodes})"
        )
    return LoggedRun(
        log=name,
        op=op,
        gpu=told["gpu"],
        nodes=int(nodes),
        gpus=int(gpus),
        fabric=told.get("fabric", ""),
        links=told.get("links", ""),
        library=told["library"],
        setting=told.get("setting", "default"),
        rows=rows,
    )
