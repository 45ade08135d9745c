"""validate(): every known file below a folder, or those asked for, predicted row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.errors import LONGEST_LIST, BadFile, StrataError, UnknownName
from strata.validation.accuracy.arena import published_entries, rival_entries
from strata.validation.accuracy.compare import SHOWN_FAILURES, file_entry, statistics
from strata.validation.accuracy.headline import HELD_OUT, how_seen, stored_table
from strata.validation.measured.own import own_place, own_points
from strata.validation.measured.reader import INPUTS, Reader, data_files, reader_of
from strata.validation.readers.comparison import ComparedPoints, held_out
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import BadRows, Table, matches, read_table


def fits(name: str, *patterns: str) -> bool:
    """Whether a name is one of some, inside a folder of them, or matches a pattern.

    >>> [fits("h200/gemm.csv", p) for p in ("h200/gemm.csv", "h200", "h200/*", "gemm.csv", "h100/*")]
    [True, True, True, True, False]
    """
    last = name.rsplit("/", 1)[-1]
    return any(
        fnmatchcase(name, p) or name.startswith(f"{p.rstrip('/')}/") or fnmatchcase(last, p) for p in patterns
    )


def select_rows(folder: Path, names: Sequence[str], only: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The files that patterns name, in order, each with the patterns of its groups that count: none of a
    whole file. A pattern that names nothing is refused, before any work where the folder tells the groups
    of its files (`accuracy.json`).
    """
    if not only:
        return dict.fromkeys(names, ())
    selected: dict[str, tuple[str, ...]] = {name: () for name in names if fits(name, *only)}
    whole, known = set(selected), {one["file"]: one["groups"] for one in stored_table(folder)["files"]}
    for pattern in (p for p in only if not any(fits(name, p) for name in names)):
        hits = [name for name in names if not known or any(fits(g, pattern) for g in known.get(name, ()))]
        if pattern.endswith((".csv", ".json")) or not hits:
            unknown_rows(pattern, names, [group for groups in known.values() for group in groups])
        selected |= {name: (*selected.get(name, ()), pattern) for name in hits if name not in whole}
    return {name: selected[name] for name in names if name in selected}


def _of_groups(points: ComparedPoints, patterns: Sequence[str]) -> ComparedPoints:
    """The points of some groups, which are their file's own figures then."""
    if not patterns:
        return points
    kept = np.array([fits(str(group), *patterns) for group in points.group], bool)
    lines = set(points.line[kept].tolist())
    why = {line: reason for line, reason in points.why.items() if line in lines}
    some = replace(points.keep(kept), why=why, later=())
    return some if some.headline.any() else replace(some, headline=np.ones(len(some), bool))


def unknown_rows(pattern: str, names: Iterable[str], groups: Iterable[str]) -> None:
    """Refuse a pattern that names nothing, with the nearest names."""
    every = [*names, *groups]
    folders = sorted({f"{name.split('/')[0]}/*" for name in every if "/" in name})
    known = list(dict.fromkeys([*folders, *every]))
    all_of_them = "names of files, like h200/gemm.csv or h200/*, and of groups, like tpot/*"
    raise UnknownName("file or group of measurements", pattern, known, all_of_them)


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
    """Predict every row of every known file below a folder, or of one file of a user's, and compare;
    `keep_points` adds "points", a list of all of them, for plots. `only` takes some: files, folders or groups
    of rows, by name or pattern (`h200/*`, `tpot/*`).

    `unseen` is for the project's own data: of files that chips are fitted to, only the held-out third is
    compared. `one_in`: of long files of served runs only one row in so many.

    Fractions, not percent. `not_yet` names groups of rows of read files whose physics is not modelled
    yet, `unknown` files no reader fits, and `unread` files (row 0) and rows that cannot be read,
    with the reason; the others are compared all the same. `progress` is called before each file and at the
    end.
    """
    folder, catalogue = Path(folder), Catalogue(one_in=one_in)
    own = folder.is_file()
    if own:
        folder, name = own_place(folder)
        readers: dict[str, Reader | None] = {name: own_points}
    else:
        readers = {name: reader_of(name, catalogue, folder) for name in data_files(folder)}
    selected = select_rows(folder, list(readers), only)
    unknown = [n for n, some in selected.items() if readers[n] is None and not some and n not in INPUTS]
    outcome: dict[str, Any] = {"files": [], "not_yet": [], "unknown": unknown, "unread": []}
    kept: list[dict[str, Any]] = []
    rivals: list[dict[str, Any]] = []
    for name, reader in _watched(folder, {n: readers[n] for n in selected}, outcome["files"], progress):
        points, why = _read(folder, name, reader, catalogue)[1:]
        outcome["unread"] += [{"file": name, "row": row, "why": said} for row, said in sorted(why.items())]
        if own and 0 in why:
            raise BadFile(why[0], longest=LONGEST_LIST)
        if points is None:
            outcome["files"].append(_failed(name, why))
            continue
        seen = how_seen(name) if unseen else ""
        shown = _of_groups(held_out(points) if seen == HELD_OUT else points, selected[name])
        if len(shown) or not (shown.later or selected[name]):
            outcome["files"].append(file_entry(name, shown) | ({"seen": seen} if unseen else {}))
        outcome["not_yet"] += [f"{name} {group}" for group in shown.later]
        rivals += rival_entries(name, shown)
        kept += _plain_points(name, shown) if keep_points else []
    groups = [group for entry in outcome["files"] for group in entry["groups"]]
    for pattern in {pattern for some in selected.values() for pattern in some}:
        if not any(fits(group, pattern) for group in groups):
            unknown_rows(pattern, readers, groups)
    rivals += [] if own else published_entries(folder, outcome["files"])
    return outcome | ({"arena": rivals} if rivals else {}) | ({"points": kept} if keep_points else {})


def _watched(
    folder: Path,
    readers: Mapping[str, Reader | None],
    done: list[dict[str, Any]],
    progress: Callable[[Watched], None] | None,
) -> Iterator[tuple[str, Reader]]:
    """The files that are read, each with its reader, and a word on how far it is before each."""
    read = [(name, reader) for name, reader in readers.items() if reader is not None]
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
                if error.others is not None:
                    return table, error.others, why | error.why
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
    columns = (points.line, points.group, points.measured, points.predicted, points.headline, points.command)
    return [
        {
            "file": name,
            "row": int(line),
            "group": str(group),
            "measured": float(measured),
            "predicted": float(predicted),
            "headline": bool(headline),
            "command": str(command),
            "families": {key: str(values[i]) for key, values in points.families.items()},
        }
        for i, (line, group, measured, predicted, headline, command) in enumerate(zip(*columns, strict=True))
    ]
