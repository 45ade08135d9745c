"""A study on disk: a manifest, a Parquet part for each round, and the state of samplers that save one. Whole
files only.

Every file is written under another name, flushed to the disk and renamed. Killed at any moment, a study has
its finished rounds and at most a leftover that nobody reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np

from strata.base.errors import BadFile, BadValue
from strata.base.shipped import extra_package
from strata.search.goal import GOAL_METRICS, POINT_METRICS
from strata.search.points import Evaluated
from strata.search.space import Space

PARTS, STATES, LEFTOVER = "parts", "state", ".partial"
KEPT_STATES = 2
CHECKSUM = b"strata_columns"  # of a part, in its metadata
# of a manifest, besides hashes: what makes it this study and no other
FIXED = ("goal", "sampler", "seed", "budget", "version")


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """A file that is there whole or not at all; one that cannot be written is named."""
    partial = path.with_name(path.name + LEFTOVER)
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _settled(path.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise BadFile(f"{path} cannot be written: {_said(error)}") from None


def _said(error: Exception) -> str:
    """What went wrong with a file, in a line."""
    return getattr(error, "strerror", None) or " ".join(str(error).split())[:120] or type(error).__name__


def _settled(folder: Path) -> None:
    """The folder's names flushed to the disk, where a system has that."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _arrow() -> Any:
    """pyarrow with its Parquet files."""
    extra_package("pyarrow.parquet", "a study on disk", "search")
    return import_module("pyarrow")


def canonical_json(node: Any) -> str:
    """JSON text that equal things have in common."""
    return json.dumps(node, sort_keys=True, separators=(",", ":"))


class Store:
    """The folder of one study."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self.manifest_path = self.folder / "manifest.json"

    @property
    def manifest(self) -> dict[str, Any]:
        try:
            found = json.loads(self.manifest_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BadFile(f"no study in {self.folder}: it has no manifest.json") from None
        except (ValueError, RecursionError) as error:
            raise BadFile(f"{self.manifest_path} is not JSON: {_said(error)}") from None
        except OSError as error:
            raise BadFile(f"{self.manifest_path} cannot be read: {_said(error)}") from None
        if not (
            isinstance(found, dict) and all(isinstance(found.get(k, {}), dict) for k in ("space", "files"))
        ):
            raise BadFile(f"{self.manifest_path} is no manifest of a study: space and files must be tables")
        return found

    def _blank(self) -> bool:
        """Whether a start that failed left this folder: nothing in it but places for what never came."""
        own = (self.manifest_path.name, PARTS, STATES)
        return not (self.rounds() or self._states()) and all(
            p.name in own or p.name.startswith(".") or p.suffix == LEFTOVER for p in self.folder.iterdir()
        )

    def begin(self, manifest: Mapping[str, Any], resume: bool) -> None:
        """Start a study here, or take up the same one again; another one is refused and stays as it is."""
        try:
            self._begin(manifest, resume)
        except OSError as error:
            raise BadFile(f"{error.filename or self.folder} cannot be written: {_said(error)}") from None

    def _begin(self, manifest: Mapping[str, Any], resume: bool) -> None:
        if self.folder.exists() and self._blank():  # of a start that failed: nothing is lost with it
            self.manifest_path.unlink(missing_ok=True)
        if self.manifest_path.exists():
            self._same(manifest)
            if not resume:
                raise BadValue(
                    f"{self.folder} has this study already; go on with it by --resume, or give another folder"
                )
        elif self.folder.exists() and not self._blank():
            raise BadValue(f"{self.folder} is not empty and has no study; give another folder")
        for place in (self.folder, self.folder / PARTS, self.folder / STATES):
            place.mkdir(parents=True, exist_ok=True)
            for left in place.glob(f"*{LEFTOVER}"):
                left.unlink()
        if not self.manifest_path.exists():
            write_atomically(self.manifest_path, lambda f: f.write(json.dumps(manifest, indent=1).encode()))

    def _same(self, manifest: Mapping[str, Any]) -> None:
        before, now = _identity(self.manifest), _identity(manifest)
        changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if changed:
            said = "; ".join(
                f"{key} was {before.get(key, 'not there')}, now {now.get(key, 'not there')}"
                for key in changed
            )
            raise BadValue(
                f"the study in {self.folder} was started with something else, nothing was changed: {said};"
                " give another folder"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """This process alone writes here; the lock goes with the process, however it ends."""
        try:
            import fcntl
        except ImportError:  # not on every system; there two writers are the user's to avoid
            yield
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            opened = (self.folder / ".lock").open("w")
        except OSError as error:
            raise BadFile(f"{error.filename or self.folder} cannot be written: {_said(error)}") from None
        with opened as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BadValue(
                    f"another search is writing to {self.folder}; wait for it or give another folder"
                ) from None
            yield

    def rounds(self) -> list[int]:
        """Rounds that have a part, in order."""
        return sorted(int(p.stem) for p in (self.folder / PARTS).glob("*.parquet") if p.stem.isdecimal())

    def part(self, number: int) -> Path:
        return self.folder / PARTS / f"{number:05d}.parquet"

    def write(self, number: int, space: Space, evaluated: Evaluated) -> None:
        """The points of a round: index, axes, metrics, reason."""
        pyarrow = _arrow()
        table = pyarrow.table(columns_of(space, number, evaluated))
        table = table.replace_schema_metadata({CHECKSUM: _checksum(table)})
        write_atomically(
            self.part(number),
            lambda f: pyarrow.parquet.write_table(table, f, compression="zstd", write_page_checksum=True),
        )

    def read(self, number: int, space: Space) -> Evaluated:
        """The points of a stored round, as they were evaluated; a part that is not whole is refused."""
        pyarrow = _arrow()
        try:
            table = pyarrow.parquet.read_table(
                self.part(number), partitioning=None, page_checksum_verification=True
            )
            if (table.schema.metadata or {}).get(CHECKSUM) != _checksum(table):
                raise ValueError("its columns are not those that were written")
            found = {name: table.column(name).to_numpy().astype(float) for name in POINT_METRICS}
            index, reason = (table.column(k).to_numpy().astype(np.int64) for k in ("index", "reason"))
            if not np.all((index >= 0) & (index < space.size)):
                raise ValueError("it holds points that the space does not have")
        except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise BadFile(
                f"{self.part(number)} cannot be read ({_said(error)}); resume the study, and it is done again"
            ) from None
        return Evaluated(space.digits(index), found, reason)

    def read_rounds(self, numbers: Iterable[int], space: Space) -> Iterator[Evaluated]:
        """Stored rounds in order, up to the first that is missing or not whole."""
        for number in numbers:
            try:
                yield self.read(number, space)
            except BadFile:
                return

    def save(self, number: int, state: Mapping[str, np.ndarray]) -> None:
        """A sampler's state after a round; the latest few are kept."""
        arrays: dict[str, Any] = dict(state)
        write_atomically(
            self.folder / STATES / f"{number:05d}.npz", lambda f: np.savez_compressed(f, **arrays)
        )
        for old in self._states()[:-KEPT_STATES]:
            old.unlink()

    def saved(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """States that can be read, each with the round it was saved after; the latest first."""
        for path in reversed(self._states()):
            with suppress(OSError, EOFError, ValueError, KeyError, BadZipFile, zlib.error):
                with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                    found = dict(file)
                yield int(path.stem), found

    def forget(self, after: int) -> None:
        """No rounds nor states after a round: they are done again."""
        for path in (*(self.part(number) for number in self.rounds()), *self._states()):
            if int(path.stem) > after:
                path.unlink()

    def _states(self) -> list[Path]:
        return sorted(
            (p for p in (self.folder / STATES).glob("*.npz") if p.stem.isdecimal()), key=lambda p: int(p.stem)
        )


def _checksum(table: Any) -> bytes:
    """A hash of a part's columns, names and values: those of pages do not tell one column from another."""
    found = hashlib.sha256()
    for name in table.column_names:
        values = table.column(name).to_numpy()
        held = values.tobytes() if values.dtype != object else "\0".join(map(str, values)).encode()
        found.update(f"{name} {len(held)} ".encode() + held)
    return found.hexdigest().encode()


def axis_columns(space: Space) -> dict[str, str]:
    """The column of each axis: its name, with words before it while a metric or another axis has the same."""
    own = {*GOAL_METRICS, "index", "round", "reason"}
    taken = own | {axis.name for axis in space.axes}
    found: dict[str, str] = {}
    for axis in space.axes:
        column = axis.name
        while column in own or (column != axis.name and column in taken):
            column = f"axis_{column}"
        found[axis.name] = column
        taken.add(column)
    return found


def columns_of(space: Space, number: int, evaluated: Evaluated) -> dict[str, np.ndarray]:
    """The rows of a round, column by column."""
    values = space.values(evaluated.digits)
    columns = {
        "index": space.index(evaluated.digits),
        "round": np.full(len(evaluated.reason), number, np.int32),
    }
    columns |= {column: np.asarray(values[name]) for name, column in axis_columns(space).items()}
    columns |= {name: np.asarray(v, float) for name, v in evaluated.columns.items()}
    return columns | {"reason": np.asarray(evaluated.reason, np.int64)}


def fingerprint(record: Any) -> str:
    """A short hash of all numbers and words that a record holds; where they come from is not among them.

    >>> fingerprint({"a": 1.0, "b": ("x", None)}) == fingerprint({"b": ("x", None), "a": 1})
    True
    """
    return hashlib.sha256(canonical_json(_plain(record)).encode()).hexdigest()[:12]


def _plain(node: Any) -> Any:
    if is_dataclass(node):
        return {f.name: _plain(getattr(node, f.name)) for f in fields(node) if f.name != "sources"}
    if isinstance(node, Mapping):
        return {str(k): _plain(v) for k, v in node.items()}
    if isinstance(node, (tuple, list)):
        return [_plain(v) for v in node]
    if isinstance(node, np.ndarray):
        return _plain(node.tolist())
    return node if node is None or isinstance(node, str) else float(node)


def _identity(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What makes a study this one and no other, each in a few words; spaces by their hash."""
    told = {key: canonical_json(manifest.get(key)) for key in FIXED}
    space = manifest.get("space", {})
    hashes = {f"hash of {name}": str(value) for name, value in manifest.get("files", {}).items()}
    return told | {"space": f"{space.get('name')} {space.get('hash')}"} | hashes
