"""Logs of nccl-tests and rccl-tests, as they are printed, as rows of measured files; lines around the tables
(ranks, hosts, GPUs, versions, networks) say what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strata.base.errors import BadFile, BadValue, UnknownName
from strata.base.reading import file_text
from strata.validation.readers.collective_files import (
    OPS,
    TIME_UNITS,
    LoggedRow,
    LoggedRun,
    is_number,
    logged_row,
)
from strata.validation.readers.labels import Catalogue, chip_called

_PREFIX = re.compile(
    r"^\s*(?:\[[^\]\n]{1,80}\]<std(?:out|err)>:|\d{4}-\d\d-\d\d[T ][\d:.,]+Z?|\d{1,6}:(?=\s))\s?"
)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(
    r"#\s*Rank\s+(\d{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+"
    r"\[([^\]]*)\]\s*(.*?)\s*$"
)
_PROGRAM = re.compile(r"\b([a-z_]+?)_perf(?:_mpi)?\b")
_VERSION = re.compile(r"\b[NR]CCL version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")
_LIBRARY = re.compile(r"\bnccl-library=(\d{4,6})\b")
_SET = re.compile(r"\b(NCCL_(?:ALGO|PROTO)) set by environment to (\S+)")
_NETWORKS = (
    ("efa", re.compile(r"NET/OFI .*\befa\b", re.I)),
    ("slingshot", re.compile(r"NET/OFI .*\bcxi\b", re.I)),
    ("roce", re.compile(r"NET/\w+ ?: Using .*/RoCE\b")),
    ("infiniband", re.compile(r"NET/\w+ ?: Using .*/IB\b")),
)


@dataclass(frozen=True, kw_only=True)
class ToldRun:
    """What a user says of logs beside what they say themselves; empty or 0 where nothing is said."""

    op: str = ""
    gpu: str = ""
    nodes: int = 0
    gpus: int = 0
    fabric: str = ""
    links: str = ""
    units: str = ""  # of times, where the line of units is missing
    partial: bool = False  # take the whole rows of a log that was cut off


@dataclass
class _Segment:
    """What was seen of one run while a log is read."""

    begins: int
    ranks: dict[int, tuple[str, str, str]] = field(default_factory=dict)  # host, bus, GPU
    first_rank: int = 0
    op: str = ""
    columns: tuple[str, ...] = ()
    units: str = ""
    header: int = 0
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    odd: dict[int, str] = field(default_factory=dict)
    ended: bool = False

    @property
    def last(self) -> int:
        """The line of its last row."""
        return self.rows[-1][0] if self.rows else self.header


@dataclass
class _Around:
    """What a log says of all its runs."""

    library: str = ""
    network: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    def note(self, line: str) -> None:
        if found := _VERSION.search(line):
            self.library = found[1]
        elif found := _LIBRARY.search(line):
            code = int(found[1])
            self.library = f"{code // 10000}.{code // 100 % 100}.{code % 100}"
        if found := _SET.search(line):
            self.settings[found[1]] = found[2].rstrip(".,;")
        if not self.network and "NET/" in line:
            self.network = next((name for name, form in _NETWORKS if form.search(line)), "")


def read_logs(paths: Sequence[Path | str], told: ToldRun | None = None) -> list[LoggedRun]:
    """The runs of some logs, file by file."""
    texts = ((file_text(path, "log", "a text log"), Path(path).name) for path in paths)
    return [run for text, name in texts for run in log_runs(text, name, told)]


def log_runs(text: str, name: str, told: ToldRun | None = None) -> list[LoggedRun]:
    """The runs that a log tells of: one, or several where programs ran one after another."""
    around, told = _Around(), told or ToldRun()
    segments = list(_segments(text, name, around))
    cut = next((s for s in segments if s.ranks and not s.columns), None)
    if cut and not told.partial:
        raise BadFile(
            f"{name} line {cut.first_rank + len(cut.ranks) - 1}: the log is cut off before its table: no "
            "line '# size count type ... time algbw busbw' follows"
        )
    tables = [s for s in segments if s.columns]
    if not tables:
        raise BadFile(
            f"{name} is no log of nccl-tests or rccl-tests: it has no line of columns "
            "'# size count type ... time algbw busbw'"
        )
    return [_run(segment, name, around, told) for segment in tables]


# ------------------------------------------------------------------------------------------- lines


def plain_line(line: str) -> str:
    """A line as its program printed it: without colours, and without what launchers write before it.

    >>> plain_line("[1,0]<stdout>:\\x1b[32m#  Rank  0\\x1b[0m"), plain_line(" 0:   8    2  float")
    ('#  Rank  0', '  8    2  float')
    """
    line = _COLOUR.sub("", line)
    return _PREFIX.sub("", line).rstrip()


def _segments(text: str, name: str, around: _Around) -> Iterator[_Segment]:
    now = _Segment(begins=1)
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        line = plain_line(raw)
        words = line.lstrip("# ").split()
        begins = line.startswith("# nThread") or "Collective test starting" in line
        program = _PROGRAM.search(line)
        columns = line.startswith("#") and {"size", "count", "type", "time"} <= set(words)
        again = now.ended and (columns or (program and "concluded" not in line))
        if now.columns and (begins or again):
            yield now
            now = _Segment(begins=number)
        if program and not now.columns:
            now.op = program[1]
        around.note(line)
        if found := _RANK.match(line):
            rank = int(found[1])
            if rank in now.ranks:
                raise BadFile(
                    f"{name} line {number}: rank {rank} is told twice: without MPI in the build every "
                    "process runs by itself; build with MPI=1 and run again"
                )
            now.ranks[rank] = (found[2], found[3], found[4])
            now.first_rank = now.first_rank or number
        elif columns:
            now.columns, now.header = tuple(words), number
        elif line.startswith("#") and now.columns and not now.rows and "(" in line:
            now.units = line
        elif "Avg bus bandwidth" in line or "Out of bounds values" in line:
            now.ended = True
        elif now.columns and not now.ended and not line.startswith("#"):
            _note_row(now, number, line)
    yield now


def _note_row(now: _Segment, number: int, line: str) -> None:
    """A line below the columns: a row, what the library says meanwhile, or a row that cannot be read."""
    words = line.split()
    if not words or " NCCL " in line:
        return
    if re.fullmatch(r"\d+[BKMGT]?", words[0]):
        now.rows.append((number, words))
    elif sum(is_number(word) for word in words) >= 4:
        now.odd[number] = f"it begins with '{words[0]}', no size"


# ------------------------------------------------------------------------------------------- runs


def _run(segment: _Segment, name: str, around: _Around, told: ToldRun) -> LoggedRun:
    op = logged_op(told.op or segment.op or _op_of_file(name), name)
    gpus, nodes = _ranks(segment, name, told)
    fabric = _fabric(segment, name, nodes, around, told)
    rows, bad = _rows(segment, name, op, gpus, told)
    if bad and not told.partial:
        raise BadFile(f"{name} {_named(bad)}; --partial leaves such rows out")
    if not segment.ended and not told.partial:
        raise BadFile(
            f"{name} line {segment.last}: the log is cut off after {len(segment.rows)} rows: no line "
            "'# Avg bus bandwidth' follows; --partial takes the whole rows"
        )
    good = tuple(row for row in rows if row.bytes)
    if not good:
        raise BadFile(f"{name} line {segment.header}: no row below its columns could be taken")
    return LoggedRun(
        log=name,
        op=op,
        gpu=_gpu(segment, name, told),
        nodes=nodes,
        gpus=gpus,
        fabric=fabric,
        links=told.links,
        library=around.library,
        setting=" ".join(f"{k}={v}" for k, v in around.settings.items()) or "default",
        rows=good,
        empty=len(rows) - len(good),
        left_out=bad,
    )


def _named(bad: Mapping[int, str]) -> str:
    """Rows that could not be read: the first with its reason, the others by their lines."""
    (line, why), *rest = sorted(bad.items())
    others = ", ".join(str(n) for n, _ in rest[:12]) + (" ..." if len(rest) > 12 else "")
    return f"line {line}: {why}" + (f" (and {len(rest)} more rows: lines {others})" if rest else "")


def logged_op(said: str, name: str) -> str:
    """The collective that a program's name, or a user's word, means.

    >>> logged_op("alltoall", "my.log"), logged_op("all_reduce_perf", "my.log")
    ('all_to_all', 'all_reduce')
    """
    key = re.sub(r"_perf(_mpi)?$", "", said.strip().lower()).replace("_", "").replace("-", "")
    if not key:
        raise BadFile(
            f"{name} does not say which collective it is of: give --op, one of {', '.join(OPS.values())}"
        )
    if key not in OPS:
        raise BadFile(f"{name} is of '{said}'; what is priced is {', '.join(OPS.values())}")
    return OPS[key]


def _op_of_file(name: str) -> str:
    plain = re.sub(r"[^a-z]", "", name.lower())
    return next((op for word, op in OPS.items() if word in plain), "")


def _ranks(segment: _Segment, name: str, told: ToldRun) -> tuple[int, int]:
    """GPUs and nodes of a run, as its ranks tell them, or the user where they do not."""
    if not segment.ranks:
        if not (told.gpus and told.nodes):
            raise BadFile(
                f"{name} line {segment.header}: no lines '# Rank ... on HOST device' stand before the table: "
                "give --gpus and --nodes"
            )
        return _even(told.gpus, told.nodes, name, segment.header)
    gpus = len(segment.ranks)
    hosts = [host for host, _, _ in segment.ranks.values()]
    places = [(host, bus) for host, bus, _ in segment.ranks.values()]
    nodes, alone = len(set(hosts)), len(set(places)) == gpus
    counts = sorted({hosts.count(host) for host in set(hosts)})
    wrong = ""
    if missing := sorted({*range(gpus)} - {*segment.ranks}):
        wrong = f"rank {missing[0]} of {max(segment.ranks) + 1} is not told"
    elif told.gpus and told.gpus != gpus:
        wrong = f"it has {gpus} ranks, but --gpus {told.gpus} was told"
    elif not alone and not told.nodes:
        host, bus = next(place for place in places if places.count(place) > 1)
        wrong = f"GPU {bus} of {host} has two ranks: if nodes share that name, give --nodes"
    elif told.nodes and told.nodes != nodes and alone:
        where = f"one host, {hosts[0]}" if nodes == 1 else f"{nodes} hosts"
        wrong = f"its {gpus} ranks run on {where}, but --nodes {told.nodes} was told"
    elif len(counts) > 1:
        wrong = f"hosts have {' and '.join(map(str, counts))} ranks: not the same"
    if wrong:
        raise BadFile(f"{name} lines {segment.first_rank}-{segment.first_rank + gpus - 1}: {wrong}")
    return _even(gpus, told.nodes or nodes, name, segment.header)


def _even(gpus: int, nodes: int, name: str, line: int) -> tuple[int, int]:
    if gpus < 2:
        raise BadFile(
            f"{name} line {line}: one rank makes no collective; without MPI in the build every process "
            "runs by itself"
        )
    if nodes < 1 or gpus % nodes:
        raise BadFile(f"{name} line {line}: {gpus} GPUs do not lie evenly on {nodes} nodes")
    return gpus, nodes


def _fabric(segment: _Segment, name: str, nodes: int, around: _Around, told: ToldRun) -> str:
    if nodes == 1:
        if told.fabric or told.links:
            raise BadFile(
                f"{name} lines {segment.header}-{segment.last}: its ranks run on one node, but --fabric and "
                "--links say what joins several"
            )
        return ""
    if not (told.fabric or around.network):
        raise BadFile(
            f"{name}: it ran on {nodes} nodes and does not say what joins them: "
            "give --fabric, as infiniband, roce, efa, slingshot"
        )
    return told.fabric or around.network


def _gpu(segment: _Segment, name: str, told: ToldRun) -> str:
    if told.gpu:
        return told.gpu
    found = {gpu for _, _, gpu in segment.ranks.values()}
    if len(found) > 1:
        raise BadFile(f"{name} line {segment.first_rank}: it mixes GPUs: {', '.join(sorted(found)[:4])}")
    if not found or "" in found:
        raise BadFile(
            f"{name} does not name its GPUs: give the chip, as `strata calibrate h100 --log {name}`"
        )
    return chip_of_gpu(found.pop(), name)


def chip_of_gpu(said: str, where: str = "log") -> str:
    """The shipped chip that a driver's name of a GPU means; a name of its own where there is none.

    >>> [chip_of_gpu(g) for g in ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "AMD Instinct MI300X")]
    ['h100', 'a100-80', 'mi300x']
    >>> chip_of_gpu("NVIDIA H100 PCIe"), chip_of_gpu("NVIDIA A10G")
    ('h100-pcie', 'nvidia-a10g')
    """
    words = re.findall(r"[a-z0-9]+", said.lower())
    if any(re.fullmatch(r"gfx[0-9a-f]+", w) for w in words):
        raise BadFile(
            f"{where} names its GPUs '{said}', which several chips are: give the chip, as "
            "`strata calibrate mi300x --log ...`"
        )
    try:
        return chip_called(Catalogue(), said)
    except UnknownName:
        return "-".join(words)


def _rows(
    segment: _Segment, name: str, op: str, gpus: int, told: ToldRun
) -> tuple[list[LoggedRow], dict[int, str]]:
    """The rows of a run, and lines that cannot be taken."""
    units = [*re.findall(r"\(([^)]*)\)", segment.units), told.units]  # below the columns, or as told
    scale = next((TIME_UNITS[unit] for unit in units if unit in TIME_UNITS), None)
    if scale is None:
        raise BadFile(
            f"{name} line {segment.header}: no line of units, '(B) (elements) (us) (GB/s)', follows the "
            f"columns, so that rows {segment.header + 1}-{segment.last} have none: give --units, one of "
            f"{', '.join(TIME_UNITS)}"
        )
    rows, bad = [], dict(segment.odd)
    for line, words in segment.rows:
        try:
            rows.append(logged_row(line, words, segment.columns, scale, op, gpus))
        except BadValue as error:
            bad[line] = str(error)
    return rows, bad
