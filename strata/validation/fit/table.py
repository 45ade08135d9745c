"""The table of every fitted number (data/fits.toml): what it is a quantity of, its range, and the rows that
tell it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from strata.base.errors import UnknownName
from strata.base.reading import toml_file
from strata.params import data_folder
from strata.validation.readers.tables import matches


@dataclass(frozen=True)
class Quantity:
    """A number that may be fitted, the range it must stay in, and the format whose rows tell it, if it
    belongs to one. In SI, with its unit, once its record is known.
    """

    path: str
    low: str | float
    high: str | float
    format: str = ""
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class FitSearch:
    """How least squares go about it: data/fits.toml says what each number means. With `slopes`, predictions
    are straight lines in logarithms, their slopes taken with that step `rounds` times at most, each from
    where the one before ended; a number moves by `loose` as lightly as one row errs by `robust`. `digits` of
    a value: more are noise. `one_in`: of long files of served runs only one row in so many is read.
    """

    tries: tuple[tuple[float, ...], ...]
    robust: float
    evaluations: int
    loss: str = "soft_l1"
    slopes: float = 0.0
    one_in: int = 1
    rounds: int = 1
    loose: float = 1.0
    digits: int = 3


@dataclass(frozen=True, kw_only=True)
class FitGroup:
    """Quantities that are fitted together: files, columns and values of the rows that count, a condition of
    them, metrics that do not count (as groups of points begin), and those that do beside a file's own
    figures. `unseen`: further files that judge what is carried to other chips; `neutral`: values at which
    numbers change nothing. `solved`: energies, by linear equations; `together`: one value for all records;
    `again`: what groups before it told moves again.
    """

    name: str
    kind: str
    records: tuple[str, ...]
    files: tuple[str, ...]
    quantities: tuple[Quantity, ...]
    search: FitSearch
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    where: str = ""
    skips: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    least: int = 12  # fitted rows below which quantities would only remember them
    unseen: tuple[str, ...] = ()
    neutral: dict[str, float] = field(default_factory=dict)
    solved: bool = False
    together: bool = False
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class FitTable:
    """All groups in the order of fitting, and what goes with them."""

    groups: tuple[FitGroup, ...]
    records: dict[str, tuple[str, ...]]
    siblings: dict[str, dict[str, Any]]
    carried: dict[str, dict[str, str]]
    left_out: dict[str, dict[str, Any]]
    columns: dict[str, tuple[str, ...]]
    formats: dict[str, str]
    seen: tuple[str, ...]  # files that some number was fitted or chosen by

    def group(self, name: str) -> FitGroup:
        known = {group.name: group for group in self.groups}
        if name not in known:
            raise UnknownName("family of kernels", name, known, ", ".join(known))
        return known[name]

    @property
    def fitted_records(self) -> list[str]:
        """Everything that has a number in the table."""
        own = [name for names in self.records.values() for name in names]
        return list(dict.fromkeys([*own, *(name for group in self.groups for name in group.records)]))

    def of_kind(self, kind: str) -> list[FitGroup]:
        """Groups of a kind of record."""
        return [group for group in self.groups if group.kind == kind]


@lru_cache(maxsize=1)
def fit_table() -> FitTable:
    """The table as it is shipped.

    >>> table = fit_table()
    >>> table.group("transforms").quantities[0].path, table.siblings["h100"]["of"]
    ('compute.fft_efficiency', 'h200')
    """
    read = toml_file(data_folder("fits.toml"), "table of fits")
    searches = {
        name: FitSearch(**{**one, "tries": tuple(map(tuple, one["tries"]))})
        for name, one in read["search"].items()
    }
    records = {kind: tuple(every) for kind, every in read["records"].items()}
    groups = tuple(_group(entry, searches, records) for entry in read["group"])
    by_hand = [file for entry in read["by_hand"] for file in entry["files"]]
    return FitTable(
        groups=groups,
        records=records,
        siblings=read["sibling"],
        carried=read["carried"],
        left_out=read["left_out"],
        columns={kind: tuple(every) for kind, every in read["columns"].items()},
        formats=read["formats"],
        seen=tuple(dict.fromkeys([file for group in groups for file in group.files] + by_hand)),
    )


def _group(entry: dict[str, Any], searches: dict[str, FitSearch], records: dict[str, Any]) -> FitGroup:
    quantities = tuple(
        Quantity(path, bounds[0], bounds[1], "".join(bounds[2:]))
        for path, bounds in entry["quantities"].items()
    )
    kind = entry.get("kind", "chip")
    plain = {k: v for k, v in entry.items() if k not in ("quantities", "search", "rows", "kind")}
    lists = {k: tuple(v) for k, v in plain.items() if isinstance(v, list)}
    return FitGroup(
        **{"records": records.get(kind, ()), **plain, **lists},
        kind=kind,
        quantities=quantities,
        search=searches[entry.get("search", "kernels")],
        rows={column: tuple(values) for column, values in entry.get("rows", {}).items()},
    )


def is_fitted(file: str) -> bool:
    """Whether some number was fitted or chosen by a file's rows, of which the held-out third judges then.
    Numbers of serving engines were chosen with all rows in sight: families left out judge those.

    >>> is_fitted("h200/gemm.csv"), is_fitted("h200/decoder.csv")
    (True, False)
    """
    return matches(file, *fitted_files())


@lru_cache(maxsize=1)
def fitted_files() -> tuple[str, ...]:
    """Patterns of the files that some fit has looked at two thirds of."""
    table = fit_table()
    served = {f for group in table.groups if group.search.one_in > 1 for f in group.files}
    return tuple(file for file in table.seen if file not in served)
