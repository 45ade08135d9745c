"""validate(): every known file below a folder, or those asked for, predicted row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from strata.errors import StrataError, UnknownName
from strata.validation.accuracy.compare import SHOWN_FAILURES, file_entry, statistics
from strata.validation.fit.files import is_fitted
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, held_out
from strata.validation.readers.registry import Reader, data_files, matches, not_read, reader_of
from strata.validation.readers.tables import BadRows, Table, read_table


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Files that are compared whole, and patterns of groups whose rows are compared, of which files."""

    whole: frozenset[str]
    groups: tuple[str, ...] = ()
    searched: frozenset[str] = frozenset()

    def names(self, every: Iterable[str]) -> list[str]:
        """The files to read, in order."""
        return [name for name in every if name in self.whole or name in self.searched]

    def rows(self, name: str, points: ComparedPoints) -> ComparedPoints:
        """The chosen points of a file; they are its own figures where only some groups are."""
        if name in self.whole:
            return points
        kept = np.array([fits(str(group), self.groups) for group in points.group], bool)
        lines = set(points.line[kept].tolist())
        why = {line: reason for line, reason in points.why.items() if line in lines}
        chosen = replace(points.keep(kept), why=why, later=())
        return replace(chosen, headline=np.ones(len(chosen), bool)) if not chosen.headline.any() else chosen


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of some, inside a folder of them, or matches a pattern.

    >>> [fits("h200/gemm.csv", (p,)) for p in ("h200/gemm.csv", "h200", "h200/*", "gemm.csv", "h100/*")]
    [True, True, True, True, False]
    """
    last = name.rsplit("/", 1)[-1]
    return any(
        fnmatchcase(name, p) or name.startswith(f"{p.rstrip('/')}/") or fnmatchcase(last, p) for p in patterns
    )


def select_rows(folder: Path, names: Sequence[str], only: Sequence[str]) -> Selection:
    """The files and groups that patterns name; everything where there are none. A pattern that names nothing
    is refused, before any work where the folder tells the groups of its files (`accuracy.json`).
    """
    if not only:
        return Selection(whole=frozenset(names))
    whole = frozenset(name for name in names if fits(name, only))
    groups = tuple(p for p in only if not any(fits(name, (p,)) for name in names))
    told = _told_groups(folder)
    searched = set(names) if groups and told is None else set()
    for pattern in groups:
        hits = [name for name, held in (told or {}).items() if any(fits(g, (pattern,)) for g in held)]
        if pattern.endswith((".csv", ".json")) or (told is not None and not hits):
            unknown_rows(pattern, names, [g for held in (told or {}).values() for g in held])
        searched |= {name for name in hits if name in names}
    return Selection(whole=whole, groups=groups, searched=frozenset(searched))


def unknown_rows(pattern: str, names: Iterable[str], groups: Iterable[str]) -> None:
    """Refuse a pattern that names nothing, with the nearest names."""
    every = [*names, *groups]
    folders = sorted({f"{name.split('/')[0]}/*" for name in every if "/" in name})
    known = list(dict.fromkeys([*folders, *every]))
    all_of_them = "names of files, like h200/gemm.csv or h200/*, and of groups, like tpot/*"
    raise UnknownName("file or group of measurements", pattern, known, all_of_them)


def _told_groups(folder: Path) -> dict[str, list[str]] | None:
    """Groups of files as the folder's table of accuracy has them; None where it has none."""
    try:
        table: Any = json.loads((folder / "accuracy.json").read_text(encoding="utf-8"))
        return {entry["file"]: list(entry["groups"]) for entry in table["files"]}
    except (OSError, ValueError, LookupError, TypeError):
        return None


def compared_files(
    folder: Path | str, catalogue: Catalogue | None = None, *only: str
) -> Iterator[tuple[Table, ComparedPoints]]:
    """Every known file below a folder, or those of some patterns, with its measured and predicted points, for
    plots and residuals.
    """
    names = catalogue or Catalogue()
    for name in data_files(Path(folder)):
        reader = reader_of(name, names)
        if reader is not None and (not only or matches(name, *only)):
            table = read_table(Path(folder), name)
            yield table, reader(table, names)


@dataclass(frozen=True)
class Watched:
    """How far a validation is: files and rows done, and bytes of files out of all."""

    name: str
    files: int
    of_files: int
    rows: int
    size: int
    of_size: int


def validate(
    folder: Path | str,
    *,
    keep_points: bool = False,
    unseen: bool = False,
    only: Sequence[str] = (),
    one_in: int = 1,
    progress: Callable[[Watched], None] | None = None,
) -> dict[str, Any]:
    """Predict every row of every known file and compare; `keep_points` adds "points", a list of all of them,
    for plots. `only` takes some: files, folders or groups of rows, by name or pattern (`h200/*`, `tpot/*`).

    `unseen` is for the project's own data: of files that chips are fitted to, only the held-out third is
    compared. `one_in`: of long files of served runs only one row in so many.

    Fractions, not percent. `not_yet` names groups of rows of read files whose physics is not modelled
    yet, `unknown` files no reader fits, and `unread` files (row 0) and rows that cannot be read,
    with the reason; the others are compared all the same. `progress` is called before each file and at the
    end.
    """
    every, catalogue = data_files(Path(folder)), Catalogue(one_in=one_in)
    selected = select_rows(Path(folder), every, only)
    names = selected.names(every)
    files: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []
    rows_later: list[str] = []
    unread: list[dict[str, Any]] = []
    for name, reader in _watched(Path(folder), names, catalogue, files, progress):
        table, points, why = _read(Path(folder), name, reader, catalogue)
        unread += [{"file": name, "row": row, "why": said} for row, said in sorted(why.items())]
        if table is None or points is None:
            files.append(_failed(name, why))
            continue
        shown = selected.rows(name, held_out(points) if unseen and is_fitted(name) else points)
        if name in selected.whole or len(shown):
            files.append(file_entry(name, shown))
            rows_later += [f"{name} {group}" for group in shown.later]
        if keep_points:
            kept += _plain_points(name, shown)
    for pattern in selected.groups:
        found = [group for entry in files for group in entry["groups"]]
        if not any(fits(group, (pattern,)) for group in found):
            unknown_rows(pattern, every, found)
    unknown = not_read([name for name in names if name in selected.whole], catalogue)
    outcome: dict[str, Any] = {"files": files, "not_yet": rows_later, "unknown": unknown}
    outcome["unread"] = unread
    if unseen:
        outcome["held_out"] = [name for name in names if is_fitted(name)]
    return outcome | {"points": kept} if keep_points else outcome


def _watched(
    folder: Path,
    names: list[str],
    catalogue: Catalogue,
    done: list[dict[str, Any]],
    progress: Callable[[Watched], None] | None,
) -> Iterator[tuple[str, Reader]]:
    """The files that are read, each with its reader, and a word on how far it is before each."""
    read = [(name, reader) for name in names if (reader := reader_of(name, catalogue)) is not None]
    sizes = [(folder / name).stat().st_size for name, _ in read]
    for i, (name, reader) in enumerate([*read, ("", None)]):
        if progress is not None:
            rows = sum(entry["points"] for entry in done)
            progress(Watched(name, i, len(read), rows, sum(sizes[:i]), sum(sizes)))
        if reader is not None:
            yield name, reader


# What a reader meets where a file is not what it should be.
_UNREADABLE = (StrataError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


def _read(
    folder: Path, name: str, reader: Reader, catalogue: Catalogue
) -> tuple[Table | None, ComparedPoints | None, dict[int, str]]:
    """A file and its points, and the rows left out because they cannot be read; row 0 is the whole file."""
    why: dict[int, str] = {}
    try:
        table = read_table(folder, name)
        why.update(table.bad)
        while True:
            try:
                points = reader(table, catalogue)
                break
            except BadRows as error:
                kept = ~np.isin(table.lines, list(error.why))
                if kept.all() or not kept.any():
                    raise
                why.update(error.why)
                table = table.keep(kept)
    except BadRows as error:
        return None, None, why | error.why
    except _UNREADABLE as error:
        said = str(error) if isinstance(error, StrataError) else f"{type(error).__name__}: {error}"
        return None, None, {0: said}
    return table, points, why


def _failed(name: str, why: dict[int, str]) -> dict[str, Any]:
    """The entry of a file none of whose rows can be read."""
    nothing = statistics(np.zeros(0), np.zeros(0))
    failures = [{"row": row, "why": said} for row, said in sorted(why.items())[:SHOWN_FAILURES]]
    return {"file": name, **nothing, "failed": len(why), "groups": {}, "failures": failures}


def _plain_points(name: str, points: ComparedPoints) -> list[dict[str, Any]]:
    """Points as plain JSON types."""
    rows = zip(points.line, points.group, points.measured, points.predicted, points.headline, strict=True)
    return [
        {
            "file": name,
            "row": int(line),
            "group": str(group),
            "measured": float(measured),
            "predicted": float(predicted),
            "headline": bool(headline),
        }
        for line, group, measured, predicted, headline in rows
    ]
