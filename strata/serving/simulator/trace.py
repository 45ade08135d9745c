"""Recorded requests from a CSV or JSONL file, read as they are wanted, and written back."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, cast

from strata.base.errors import BadFile, UnknownName, require
from strata.serving.simulator.arrivals import Lengths
from strata.serving.simulator.scheduling import Request
from strata.serving.simulator.trace_rows import UNITS, RowFault, RowReader, TraceRow, trace_reader

TABLES, LINES = (".csv",), (".jsonl", ".ndjson")
FAULTS = ("refuse", "skip")
KINSHIP = ("prefix", "session", "turn", "priority", "model", "keep")
WRITTEN = ("arrival_s", "input_tokens", "output_tokens", *KINSHIP)
SHOWN = 5  # kinds of skipped rows that are told
KEPT = 100_000  # lengths taken from a trace as a distribution


class TraceLoad:
    """Requests of a file: one a row, in order of arrival, with the clock at 0 when the first arrives.

    The file is read once to check every row and then as requests are wanted; where rows are not in order,
    they are sorted by an index of 16 bytes a row, which `notes` tells. Rows of a session with a time to think
    follow the end of the turn before. `context`: the most tokens of prompt and answer; `bad`: whether a
    faulty row is the end ("refuse") or left out and counted ("skip"); `speed`: times the recorded rate.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        context: float = inf,
        unit: str = "",
        speed: float = 1.0,
        count: int | None = None,
        bad: str = "refuse",
        from_first: bool = True,
    ) -> None:
        if bad not in FAULTS:
            raise UnknownName("way with faulty rows", bad, FAULTS)
        if unit and unit not in UNITS:
            raise UnknownName("unit of time", unit, UNITS)
        require(0 < speed < inf, "a trace is replayed at a positive speed", speed=speed)
        require(count is None or count >= 1, "at least one row of a trace is read", count=count)
        self.path, self.context, self.unit, self.speed = str(path), context, unit, speed
        self.count, self.bad = count, bad
        self.notes: list[str] = []
        self.rows = 0  # good ones
        self.input_tokens = self.output_tokens = 0
        self._index: array[int] | None = None  # offsets of rows that arrive by themselves, in order
        self._turns: dict[str, list[tuple[int, int]]] = {}  # of a session: turns that follow another, offsets
        self._chains: dict[str, tuple[tuple[tuple[Any, int], ...], int, int]] = {}
        self._rest: dict[str, list[int]] = {}
        self._chained = False
        self._turn_reader: RowReader | None = None
        try:
            self._check()
        except (OSError, EOFError, zlib.error) as fault:
            raise BadFile(f"{self.path}: {getattr(fault, 'strerror', None) or fault}") from None
        if not from_first:
            self.start = 0.0

    # -- the file

    @property
    def _by_lines(self) -> bool:
        return Path(self.path.removesuffix(".gz")).suffix.lower() in LINES

    def _open(self) -> BinaryIO:
        try:
            if self.path.endswith(".gz"):
                return cast("BinaryIO", gzip.open(self.path, "rb"))
            return open(self.path, "rb")
        except (OSError, ValueError) as fault:
            raise BadFile(f"{self.path}: {getattr(fault, 'strerror', None) or fault}") from None

    def _reader(self, file: BinaryIO) -> RowReader:
        first = file.readline().decode("utf-8", "replace").lstrip("\ufeff")
        if not first.strip():
            raise BadFile(f"{self.path} is empty")
        if self._by_lines:
            file.seek(0)
        return trace_reader(self.path, first, self._by_lines, self.unit, self.context)

    def _scan(self, file: BinaryIO, reader: RowReader) -> Iterator[tuple[int, TraceRow]]:
        """Offsets and rows, faulty ones as `bad` says."""
        number = 0
        faults: Counter[str] = Counter()
        first_fault: dict[str, str] = {}
        at = file.tell()
        found = 0
        for line in file:
            offset, at = at, at + len(line)
            try:
                row = reader.read(line.decode("utf-8", "replace").lstrip("\ufeff"))
                if row is None:
                    continue
                number += 1
                found += 1
                yield offset, row
            except RowFault as fault:
                number += 1
                column = f", column '{fault.column}'" if fault.column else ""
                said = f"row {number}{column}: {fault.said}"
                if self.bad == "refuse":
                    raise BadFile(f"{self.path} {said}") from None
                faults[fault.column] += 1
                first_fault.setdefault(fault.column, said)
            if self.count is not None and found >= self.count:
                break
        self._faults = [f"{n} rows left out, first {first_fault[c]}" for c, n in faults.most_common(SHOWN)]

    def _check(self) -> None:
        """Read every row once: what it has, whether it is in order, which rows follow others."""
        first, before, earlier, follows = inf, -inf, 0, False
        with self._open() as file:
            reader = self._reader(file)
            for _, row in self._scan(file, reader):
                self.rows += 1
                self.input_tokens += row.input
                self.output_tokens += row.output
                if row.think is not None and row.session is not None:
                    follows = True
                if row.arrival is not None:
                    first = min(first, row.arrival)
                    earlier += row.arrival < before
                    before = max(before, row.arrival)
        self.notes += self._faults
        if not self.rows:
            raise BadFile(f"{self.path} has no row that can be served")
        self.start = 0.0 if first == inf else first
        self.end = (max(before, self.start) - self.start) / self.speed  # the last arrival that is told [s]
        if earlier:
            self.notes.append(f"{earlier} rows arrive before the row above them: sorted by arrival")
        if earlier or follows:
            self._make_index()

    def _make_index(self) -> None:
        times: array[float] = array("d")
        offsets: array[int] = array("q")
        firsts: dict[str, tuple[int, float, int]] = {}
        with self._open() as file:
            for offset, row in self._scan(file, self._reader(file)):
                session = row.session
                follows = row.think is not None and session is not None
                if follows:
                    self._turns.setdefault(session, []).append((row.turn, offset))
                    firsts.setdefault(session, (row.turn, row.arrival or 0.0, offset))
                    continue
                assert row.arrival is not None, "only turns of a session may come without a time"
                if session is not None and session not in firsts:
                    firsts[session] = (row.turn, row.arrival, -1)
                times.append(row.arrival)
                offsets.append(offset)
        for session, turns in self._turns.items():
            turns.sort(reverse=True)  # the next last
            if firsts[session][2] >= 0:  # its first turn has a time to think too: it opens the session
                offset = turns.pop()[1]
                times.append(self.start if firsts[session][1] == 0.0 else firsts[session][1])
                offsets.append(offset)
        order = sorted(range(len(times)), key=times.__getitem__)
        self._index = array("q", [offsets[i] for i in order])

    # -- the load

    def arrivals(self) -> Iterator[Request]:
        self._chains = {}
        self._rest = {s: [offset for _, offset in turns] for s, turns in self._turns.items()}
        with self._open() as file:
            reader = self._reader(file)
            if self._index is None:
                rows: Iterable[TraceRow] = (row for _, row in self._scan(file, reader))
            else:
                rows = (self._at(file, reader, offset) for offset in self._index)
            for i, row in enumerate(rows):
                arrival = self.start if row.arrival is None else row.arrival
                self._chained = not reader.names_beginnings
                yield self._request(i, row, (arrival - self.start) / self.speed)

    @staticmethod
    def _at(file: BinaryIO, reader: RowReader, offset: int) -> TraceRow:
        file.seek(offset)
        row = reader.read(file.readline().decode("utf-8", "replace"))
        assert row is not None
        return row

    def _request(self, key: Any, row: TraceRow, arrival: float) -> Request:
        prefix, keep = row.prefix, row.keep
        if row.session is not None and self._chained:
            prefix, keep = self._chain(row)
        same = {name: getattr(row, name) for name in ("priority", "session", "turn", "model")}
        return Request(key, arrival, row.input, row.output, prefix=prefix, keep=keep, **same)

    def _chain(self, row: TraceRow) -> tuple[tuple[tuple[Any, int], ...], Any]:
        """Beginnings of a turn whose row names none: all that was said before, where its prompt is longer."""
        chain, said, seen = self._chains.get(row.session, ((), 0, 0))
        chain = chain if row.input > said else ()
        keep = (row.session, seen)  # not by its turn, which rows need not tell
        said = row.input + row.output - 1
        self._chains[row.session] = (*chain, (keep, said)), said, seen + 1
        return chain, keep

    def after(self, request: Request, now: float) -> Iterable[Request]:
        rest = self._rest.get(request.session) if self._rest else None
        if not rest:
            return ()
        with self._open() as file:
            reader = self._turn_reader = self._turn_reader or self._reader(file)
            row = self._at(file, reader, rest.pop())
        return (self._request((request.session, row.turn), row, now + (row.think or 0.0)),)


def is_trace(path: str) -> bool:
    """Whether a text is the path of a trace by its name."""
    return Path(path.removesuffix(".gz")).suffix.lower() in (*TABLES, *LINES)


def trace_lengths(path: str | Path, context: float = inf) -> tuple[Lengths, Lengths]:
    """Lengths of prompts and answers of a trace, as a distribution of pairs: at most its first rows."""
    load = TraceLoad(path, context=context, count=KEPT)
    pairs = [(r.input, r.output) for r in load.arrivals()]
    return (
        Lengths(shape="empirical", values=tuple(i for i, _ in pairs), paired=True),
        Lengths(shape="empirical", values=tuple(o for _, o in pairs), paired=True),
    )


def write_trace(path: str | Path, requests: Iterable[Request]) -> int:
    """Write requests to a CSV or JSONL file as they come; how many there were."""
    lines = Path(path).suffix.lower() in LINES
    if not lines and Path(path).suffix.lower() not in TABLES:
        raise UnknownName("kind of trace", Path(path).suffix or str(path), (*TABLES, *LINES))
    count = 0
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            if not lines:
                table.writerow(WRITTEN)
            for request in requests:
                row = _written(request)
                if lines:
                    kept = {k: v for k, v in zip(WRITTEN, row, strict=True) if v != ""}
                    file.write(json.dumps(kept) + "\n")
                else:
                    table.writerow(row)
                count += 1
    except (OSError, ValueError) as fault:
        raise BadFile(f"{path}: {getattr(fault, 'strerror', None) or fault}") from None
    return count


def _written(r: Request) -> list[Any]:
    prefix = ";".join([f"{_name(key)}:{tokens}" for key, tokens in r.prefix])
    session = "" if r.session is None else _name(r.session)
    keep = "" if r.keep is None else _name(r.keep)
    turn, priority = r.turn or "", r.priority or ""
    return [r.arrival, r.input, r.output, prefix, session, turn, priority, r.model, keep]


def _name(key: Any) -> str:
    """A key of a beginning as a word."""
    joined = "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
    return joined.replace(";", ",").replace(":", "=")
