"""Some of the measured files, or groups of their rows, by name or pattern."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from strata.errors import UnknownName
from strata.validation.readers.comparison import ComparedPoints


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
