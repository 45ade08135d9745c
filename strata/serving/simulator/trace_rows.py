"""Rows of recorded requests as people publish them: which column is which, and what a row says."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from math import isfinite
from typing import Any, NamedTuple

from strata.base.errors import BadFile

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
BLOCK = 512  # tokens of a named block of Mooncake's traces
SMALL_BLOCK = 16  # and of Alibaba's (Bailian)

# Names of columns, letters and digits only. Arrival times may end in their unit. Beside plain names: Azure's
# (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT's (Timestamp, Request tokens, Response tokens, Session
# ID), Mooncake's and Bailian's (timestamp, input_length, output_length, hash_ids, chat_id), Vidur's
# (arrived_at, num_prefill_tokens, num_decode_tokens).
NAMES: dict[str, tuple[str, ...]] = {
    "arrival": ("arrival", "arrivaltime", "arrivedat", "timestamp", "time", "ts"),
    "input": (
        *("input", "inputtokens", "inputlength", "inputlen", "numinputtokens", "inputtoks", "isl"),
        *("prompttokens", "promptlength", "promptlen", "numprefilltokens", "requesttokens", "contexttokens"),
    ),
    "output": (
        *("output", "outputtokens", "outputlength", "outputlen", "numoutputtokens", "outputtoks", "osl"),
        *("generatedtokens", "responsetokens", "completiontokens", "numdecodetokens"),
    ),
    "prefix": ("prefix", "prefixid"),
    "prefix_tokens": ("prefixtokens", "prefixlength", "prefixlen", "sharedprefixtokens"),
    "hash_ids": ("hashids", "blockhashes", "blockids"),
    "session": ("session", "sessionid", "conversation", "conversationid"),
    "turn": ("turn", "turnid", "round"),
    "priority": ("priority",),
    "model": ("model", "modelname", "adapter", "lora"),
    "think": ("think", "thinktime", "delay"),
    "keep": ("keep",),
    "chat": ("chatid",),
    "parent": ("parentchatid",),
}
TIMED = ("arrival", "think")
NEEDED = ("input", "output")


class TraceRow(NamedTuple):
    """What one row says; times in seconds, as its clock has them."""

    arrival: float | None  # none: it follows the turn before
    input: int
    output: int
    prefix: tuple[tuple[Any, int], ...] = ()
    session: Any = None
    turn: int = 0
    priority: float = 0.0
    model: str = ""
    think: float | None = None
    keep: Any = None


class RowFault(Exception):
    """What is wrong with a row, in one line, and the column it is in."""

    def __init__(self, column: str, said: str) -> None:
        super().__init__(said)
        self.column, self.said = column, said


def trace_columns(names: list[str]) -> dict[str, tuple[Any, str]]:
    """The column of each quantity, and the unit that its name ends in ("" for none).

    >>> trace_columns(["TIMESTAMP", "ContextTokens"])["input"], trace_columns(["arrival_ms"])
    (('ContextTokens', ''), {'arrival': ('arrival_ms', 'ms')})
    """
    found: dict[str, tuple[Any, str]] = {}
    for name in names:
        plain = "".join(c for c in name.lower() if c.isalnum())
        for quantity, known in NAMES.items():
            if quantity in found:
                continue
            ends = [
                u for u in UNITS if quantity in TIMED and plain.removesuffix(u) in known and plain.endswith(u)
            ]
            if plain in known:
                found[quantity] = (name, "")
            elif ends:
                found[quantity] = (name, max(ends, key=len))
    return found


class RowReader:
    """Reads rows of a file with these columns. `unit`: of times whose column does not say it."""

    def __init__(self, names: list[str], lines: bool, unit: str, context: float) -> None:
        self.context, self.lines, self.unit = context, lines, unit
        self._place = {name: i for i, name in enumerate(names)}
        self._find(names)

    def _find(self, names: list[str]) -> None:
        """Which column is which."""
        self.columns = at = trace_columns(names)
        # Mooncake's clock counts milliseconds, Bailian's (which names chats) seconds
        mooncake = self.lines and "chat" not in at and at.get("arrival", ("",))[0] == "timestamp"
        mooncake = mooncake and at.get("input", ("",))[0] == "input_length"
        self.block = SMALL_BLOCK if "chat" in at else BLOCK
        usual = self.unit or ("ms" if mooncake else "s")
        self.scale = {q: UNITS[at[q][1] or usual] for q in TIMED if q in at}
        if at.get("think", ("",))[0] == "delay" and not self.unit:
            self.scale["think"] = UNITS["ms"]  # of multi-turn rows beside Mooncake's clock

    @property
    def names_beginnings(self) -> bool:
        """Whether rows say themselves what their prompts share with others."""
        return any(q in self.columns for q in ("prefix", "hash_ids", "keep"))

    def missing(self) -> list[str]:
        """Quantities without a column that a trace needs."""
        need = [q for q in NEEDED if q not in self.columns]
        return need if "arrival" in self.columns or "think" in self.columns else ["arrival", *need]

    def _get(self, row: Any, quantity: str) -> Any:
        if quantity not in self.columns:
            return None
        name = self.columns[quantity][0]
        if self.lines:
            return row.get(name)
        place = self._place[name]
        return row[place] if place < len(row) and row[place] != "" else None

    def read(self, line: str) -> TraceRow | None:
        """A line of the file; none where it is empty."""
        if not line.strip():
            return None
        row = self._split(line)
        read, written = self._length(row, "input"), self._length(row, "output")
        arrival, think = self._time(row, "arrival"), self._time(row, "think")
        session, turn = self._get(row, "session"), self._get(row, "turn")
        if arrival is None and (think is None or session is None):
            raise RowFault(self._named("arrival"), "no time of arrival")
        if read + written > self.context:
            said = f"{read} + {written} tokens pass the context of {self.context:g}"
            raise RowFault(self._named("input"), said)
        priority, model = self._get(row, "priority"), self._get(row, "model")
        keep = self._get(row, "keep")
        return TraceRow(
            arrival,
            read,
            written,
            self._prefix(row, read),
            session=None if session is None else str(session),
            turn=0 if turn is None else int(self._number("turn", turn)),
            priority=0.0 if priority is None else self._number("priority", priority),
            model="" if model is None else str(model),
            think=think,
            keep=None if keep is None else str(keep),
        )

    def _split(self, line: str) -> Any:
        if not self.lines:
            try:
                return next(csv.reader([line]))
            except csv.Error as fault:
                raise RowFault("", f"not a row of a table: {fault}") from None
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise RowFault("", "not JSON") from None
        if not isinstance(row, dict):
            raise RowFault("", "not a JSON object")
        if not row.keys() <= self._place.keys():  # a quantity that rows before did not have
            self._place |= dict.fromkeys(row, 0)
            self._find(list(self._place))
        return row

    def _named(self, quantity: str) -> str:
        return str(self.columns.get(quantity, (quantity,))[0])

    def _number(self, quantity: str, value: Any) -> float:
        try:
            number = float(value) if not isinstance(value, bool) else float("nan")
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not isfinite(number):
            raise RowFault(self._named(quantity), f"a number is needed, but got '{value}'")
        return number

    def _length(self, row: Any, quantity: str) -> int:
        value = self._get(row, quantity)
        if value is None:
            raise RowFault(self._named(quantity), "no number of tokens")
        number = self._number(quantity, value)
        if number < 1 or number != int(number):
            said = f"a whole number of at least 1 token is needed, but got {value}"
            raise RowFault(self._named(quantity), said)
        return int(number)

    def _time(self, row: Any, quantity: str) -> float | None:
        value = self._get(row, quantity)
        if value is None:
            return None
        dated = quantity == "arrival" and isinstance(value, str) and ("-" in value[1:] and ":" in value)
        if dated:
            return self._date(value)
        number = self._number(quantity, value) * self.scale[quantity]
        if number < 0:
            raise RowFault(self._named(quantity), f"a time is not negative, but got {value}")
        return number

    def _date(self, value: str) -> float:
        try:
            found = datetime.fromisoformat(value.strip())
        except ValueError:
            raise RowFault(
                self._named("arrival"), f"a date or a number is needed, but got '{value}'"
            ) from None
        return found.replace(tzinfo=found.tzinfo or UTC).timestamp()

    def _prefix(self, row: Any, read: int) -> tuple[tuple[Any, int], ...]:
        """Named beginnings of a prompt: hashes of blocks, `name:tokens;...`, or a name and its tokens."""
        hashes = self._get(row, "hash_ids")
        if hashes is not None:
            if isinstance(hashes, str):
                hashes = hashes.strip("[] ").replace(",", " ").split()
            if not isinstance(hashes, list):
                raise RowFault(self._named("hash_ids"), f"a list of blocks is needed, but got {hashes}")
            size = self.block
            return tuple(
                [(str(h), min(size * (i + 1), read)) for i, h in enumerate(hashes) if size * i < read]
            )
        told = self._get(row, "prefix")
        if told is None:
            return ()
        tokens = self._get(row, "prefix_tokens")
        if tokens is not None:
            pairs = [(str(told), int(self._number("prefix_tokens", tokens)))]
        else:
            pairs = [self._pair(part) for part in str(told).split(";")]
        sizes = [0, *[n for _, n in pairs]]
        if sizes != sorted(sizes) or sizes[-1] > read:
            said = f"beginnings grow and are not longer than the prompt of {read}, but got '{told}'"
            raise RowFault(self._named("prefix"), said)
        return tuple([(name, n) for name, n in pairs if n > 0])

    def _pair(self, part: str) -> tuple[str, int]:
        name, _, tokens = part.rpartition(":")
        if not name or not tokens.strip().isdigit():
            said = f"a beginning is told as 'name:tokens', but got '{part}'"
            raise RowFault(self._named("prefix"), said)
        return name, int(tokens)


def trace_reader(path: str, first: str, lines: bool, unit: str, context: float) -> RowReader:
    """The reader of a file by its first line: a header, or a JSON object."""
    if lines:
        try:
            names = list(json.loads(first)) if first.strip() else []
        except (ValueError, TypeError):
            raise BadFile(f"{path} row 1: not JSON") from None
    else:
        names = [n.strip() for n in next(csv.reader([first]), [])]
    reader = RowReader(names, lines, unit, context)
    lacks = reader.missing()
    if lacks:
        told = ", ".join(f"{q} (such as {', '.join(NAMES[q][:3])})" for q in lacks)
        raise BadFile(f"{path} has no column for {told}; its columns: {', '.join(names) or 'none'}")
    return reader
