"""Runs of collectives: their rows, checked as tests of them print them, and as measured files: inside a node
as `ops/nccl.csv`, between nodes as `network/multinode.csv`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.errors import BadFile, BadValue
from strata.base.units import finite_number
from strata.validation.readers.comparison import rows_by_key
from strata.validation.readers.tables import BadRows, Table, read_table

# The collectives that logs are read of, as the programs' names spell them.
OPS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
WIDTHS = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16"), 2),
    **dict.fromkeys(("float", "int32", "uint32", "int"), 4),
    **dict.fromkeys(("double", "int64", "uint64"), 8),
}
TIME_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}  # microseconds
SIZE_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}  # as their options count
NOT_TOLD = "N/A"
# What a table's numbers may be off by, as they are printed: two decimals of a bandwidth, four digits of a
# time.
LAST_DIGIT, ROUNDED = 0.0051, 0.01
TELLING = 1.0  # GB/s from which two decimals tell a ratio of bandwidths to a percent

_NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][-+]?\d+)?")


@dataclass(frozen=True, kw_only=True)
class LoggedRow:
    """One size: its line in the log, bytes of the whole buffer, format, and the lower of both times."""

    line: int
    bytes: int
    dtype: str
    time_us: float


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """One run of one collective."""

    log: str
    op: str
    gpu: str
    nodes: int
    gpus: int
    fabric: str
    links: str
    library: str
    setting: str
    rows: tuple[LoggedRow, ...]
    empty: int = 0  # rows of no bytes: sizes below one element a rank
    left_out: Mapping[int, str] = field(default_factory=dict)  # lines that could not be taken, and why


IN_NODE, BETWEEN_NODES = "ops/nccl.csv", "network/multinode.csv"
# Columns of both files by what they hold of a run and its rows.
_COLUMNS = {
    IN_NODE: {
        "gpu": "system",
        "library": "nccl_version",
        "op": "op_name",
        "dtype": "nccl_dtype",
        "gpus": "num_gpus",
        "elements": "message_elements",
        "bytes": "message_bytes",
        "time": "latency_ms",
    },
    BETWEEN_NODES: {
        "gpu": "gpu",
        "nodes": "nodes",
        "gpus": "gpus",
        "per_node": "gpus_per_node",
        "fabric": "fabric",
        "links": "links",
        "op": "op",
        "library": "nccl",
        "setting": "setting",
        "dtype": "dtype",
        "bytes": "bytes",
        "time": "time_us",
    },
}
_OF_ROWS = ("elements", "per_node", "bytes", "time")
COLLECTIVE_COLUMNS = {name: tuple(columns.values()) for name, columns in _COLUMNS.items()}


def file_of_run(run: LoggedRun) -> str:
    """The measured file that a run belongs to."""
    return IN_NODE if run.nodes == 1 else BETWEEN_NODES


def _unit(columns: Mapping[str, str]) -> float:
    """Microseconds of the unit of a file's times."""
    return TIME_UNITS[columns["time"].rsplit("_", 1)[-1]]


def rows_of_run(run: LoggedRun) -> list[dict[str, str]]:
    """The rows of a run, in the columns of its file."""
    columns = _COLUMNS[file_of_run(run)]
    facts = vars(run) | {"per_node": run.gpus // run.nodes}
    if run.nodes == 1:
        facts["op"] = run.op.replace("all_to_all", "alltoall")
    rows = []
    for row in run.rows:
        cells = facts | vars(row) | {"elements": row.bytes // WIDTHS[row.dtype]}
        cells["time"] = f"{row.time_us / _unit(columns):.6g}"
        rows.append({column: str(cells[fact]) for fact, column in columns.items()})
    return rows


def texts_of_runs(runs: Sequence[LoggedRun]) -> dict[str, str]:
    """Runs as the text of the measured files that they belong to, by name."""
    texts = {}
    for name in dict.fromkeys(map(file_of_run, runs)):
        text = io.StringIO()
        writer = csv.DictWriter(text, COLLECTIVE_COLUMNS[name], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for run in runs if file_of_run(run) == name for row in rows_of_run(run))
        texts[name] = text.getvalue()
    return texts


def tables_of_runs(runs: Sequence[LoggedRun]) -> list[Table]:
    """Runs as the tables of the measured files that they belong to."""
    tables = []
    for name, columns in COLLECTIVE_COLUMNS.items():
        rows = [row for run in runs if file_of_run(run) == name for row in rows_of_run(run)]
        cells = {column: np.array([row[column] for row in rows], dtype=object) for column in columns}
        tables += [Table(name, Path(), cells, np.arange(2, len(rows) + 2))] if rows else []
    return tables


def runs_of_csv(path: Path) -> list[LoggedRun]:
    """The runs of a file that `strata measure` wrote, one for each collective, format and setting."""
    table = read_table(path.parent, path.name)
    if table.bad:
        raise BadRows(path.name, table.bad)
    columns = next((c for c in _COLUMNS.values() if {*c.values()} == {*table.columns}), None)
    if columns is None:
        raise BadFile(f"{path} has other columns than those of collectives")
    told = {fact: table.text(column) for fact, column in columns.items() if fact not in _OF_ROWS}
    sizes, times = table.number(columns["bytes"]), table.number(columns["time"]) * _unit(columns)
    runs = []
    for key, rows in rows_by_key(list(told.values()), len(table)):
        facts: dict[str, Any] = {"nodes": "1", "fabric": "", "links": "", "setting": "default"}
        facts |= dict(zip(told, map(str, key), strict=True))
        line, dtype = int(table.lines[rows[0]]), facts.pop("dtype")
        op = facts.pop("op").replace("alltoall", "all_to_all")
        try:
            gpus, nodes = (_whole(facts.pop(name), name) for name in ("gpus", "nodes"))
        except BadValue as error:
            raise BadFile(f"{path.name} line {line}: {error}") from None
        good = (sizes[rows] >= 1) & (sizes[rows] % 1 == 0) & (times[rows] > 0)
        if op not in OPS.values() or dtype not in WIDTHS or nodes < 1 or gpus % nodes or not good.all():
            raise BadFile(
                f"{path.name} line {table.lines[rows[good.argmin()]]}: not bytes and time, above 0, of a "
                f"collective of GPUs spread evenly on nodes: ({op}, {dtype}, gpus={gpus}, nodes={nodes})"
            )
        logged = tuple(
            LoggedRow(line=int(table.lines[i]), bytes=int(sizes[i]), dtype=dtype, time_us=float(times[i]))
            for i in rows
        )
        runs.append(LoggedRun(log=path.name, op=op, nodes=nodes, gpus=gpus, rows=logged, **facts))
    return runs


# ------------------------------------------------------------------------------------------- rows


def is_number(word: str) -> bool:
    """Whether a word is a number as tables have it."""
    return word.isascii() and _NUMBER.fullmatch(word) is not None


def logged_row(
    line: int, words: list[str], columns: tuple[str, ...], scale: float, op: str, gpus: int
) -> LoggedRow:
    """One row, checked against itself; the lower of its times, which are in units of `scale` microseconds.

    >>> columns = tuple("size count type redop root time algbw busbw #wrong".split())
    >>> row = "1048576 262144 float sum -1 100.0 10.49 18.35 0".split()
    >>> logged_row(9, row, columns, 1.0, "all_reduce", 8)
    LoggedRow(line=9, bytes=1048576, dtype='float', time_us=100.0)
    """
    if len(words) != len(columns):
        raise BadValue(f"the row of size {words[0]} has {len(words)} of {len(columns)} columns: cut off")
    said, count, dtype = (words[columns.index(name)] for name in ("size", "count", "type"))
    if dtype not in WIDTHS:
        raise BadValue(f"type '{dtype}' of size {said} is unknown")
    size = _bytes(said, _whole(count, "count") * WIDTHS[dtype], gpus)
    begins = [i for i, column in enumerate(columns) if column == "time"]
    times = []
    for at, end in zip(begins, [*begins[1:], len(columns)], strict=True):
        told = dict(zip(columns[at:end], words[at:end], strict=True))
        if told["time"] != NOT_TOLD:
            took = _number(told["time"], "time", 0.0) * scale
            _check(size, took, told, op, gpus)
            times.append(took)
    if not times:
        raise BadValue(f"the row of size {said} has no time")
    return LoggedRow(line=line, bytes=size, dtype=dtype, time_us=min(times))


def _bytes(said: str, counted: int, gpus: int) -> int:
    """Bytes of the whole buffer: what is said, if elements agree with it, of one rank or of all."""
    size = _whole(said.rstrip("BKMGT"), "size") * SIZE_UNITS[said[len(said.rstrip("BKMGT")) :][:1]]
    near = [n for n in (counted, counted * gpus) if abs(n - size) <= (0 if said.isdigit() else 0.05 * size)]
    if not near:
        raise BadValue(
            f"size {said} does not agree with {counted} bytes of elements, of one rank or of {gpus}"
        )
    return near[0]


def _check(size: int, took: float, told: Mapping[str, str], op: str, gpus: int) -> None:
    """Refuse numbers that contradict each other, and results that were wrong."""
    if told.get("#wrong", "0") not in ("0", NOT_TOLD):
        raise BadValue(f"size {size} came out wrong in {told['#wrong']} elements")
    if "algbw" not in told or "busbw" not in told:
        return
    algorithm, bus = (_number(told[word], word) for word in ("algbw", "busbw"))
    rate = size / took * 1e-3  # GB/s
    if abs(rate - algorithm) > LAST_DIGIT + ROUNDED * rate:
        raise BadValue(f"size {size} in {took:g} us is {rate:.2f} GB/s, but algbw is {told['algbw']}")
    factor = (2.0 if op == "all_reduce" else 1.0) * (gpus - 1) / gpus
    if algorithm >= TELLING and abs(bus / algorithm - factor) > 2 * LAST_DIGIT / algorithm + ROUNDED:
        raise BadValue(
            f"busbw / algbw of size {size} is {bus / algorithm:.2f}, but {op} over {gpus} ranks has "
            f"{factor:.2f}: another collective, or other ranks"
        )


def _number(said: str, what: str, above: float = float("-inf")) -> float:
    if not is_number(said):
        raise BadValue(f"{what} must be a number, but got '{said}'")
    value = finite_number(said)
    if value <= above:
        raise BadValue(f"{what} must be above {above:g}, but got {said}")
    return value


def _whole(said: str, what: str) -> int:
    if not (said.isascii() and said.isdigit() and len(said) < 16):
        raise BadValue(f"{what} must be a whole number, but got '{said[:40]}'")
    return int(said)
