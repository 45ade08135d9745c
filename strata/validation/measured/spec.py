"""The TOML of a measured file: which question its rows ask, which column is which argument, and what was
measured.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from strata.base.errors import BadFile
from strata.base.reading import toml_file
from strata.base.units import parse
from strata.params import data_folder
from strata.validation.readers.tables import matches

Formula = Annotated[
    str, BeforeValidator(lambda value: f"{value:g}" if isinstance(value, float) else str(value))
]


class StrictTable(BaseModel):
    """A table of a TOML: no key that nobody reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def checked(cls, table: dict[str, Any], name: str) -> Self:
        """The table of a file, checked; what is wrong is one line."""
        try:
            return cls.model_validate(table)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden" and cls is MeasuredSpec:
                known = ", ".join(cls.model_fields)
                raise BadFile(
                    f"{name}: no key '{place}' in the TOML of a measured file; there are: {known}"
                ) from None
            raise BadFile(f"{name}: {place}: {first['msg'].lower()}") from None


class Given(StrictTable):
    """A condition of the runs that the file does not tell: a number with its unit and source."""

    value: str | float
    source: str
    unit: str = "1"

    @property
    def number(self) -> float:
        return parse(self.value, self.unit)


class Stated(StrictTable):
    """Arguments of some rows, later entries over earlier ones: `rows` is a condition; empty: all."""

    ask: dict[str, Formula]
    source: str
    rows: str = ""


class MeasuredMetric(StrictTable):
    """A number that was measured, and the answer, or formula of answers, that predicts it.

    `measured` and `rows` are formulas over columns, `group` is a template. `like` is a template of the kind
    of quantity that intervals are kept by, of the rows that `like_rows` says; `rivals` are columns with
    other predictors' values, in the same unit. `ask` are arguments that it alone is asked with.
    """

    answer: str
    measured: Formula
    ask: dict[str, Formula] = Field(default_factory=dict)
    unit: str = "1"
    group: str
    headline: bool | str = True
    rate: bool = False
    rows: str = ""
    like: str = ""
    like_rows: str = ""
    rivals: dict[str, Formula] = Field(default_factory=dict)


class RowFamily(StrictTable):
    """Templates of what a row is of: families that are left out whole."""

    chip: str = ""
    model: str = ""
    engine: str = ""
    network: str = ""


class Elsewhere(StrictTable):
    """Another file of the folder that has some of the rows too: `same` are formulas over columns here, and
    the columns there that hold the same numbers, `within` a relative difference. `of` are the files here
    whose rows it has, all where none is named.
    """

    file: str
    of: list[str] = Field(default_factory=list)
    same: dict[str, str]
    within: float = 1e-4


class MeasuredSpec(StrictTable):
    """A kind of measured file.

    `files` are names below the data folder. `columns` are names for columns whose header is none. `text` are
    columns that formulas take as words, all others are numbers; those that are `optional` too are empty in
    files that leave them out. `codes` say what cells of a column are called
    here. An argument that is a number is a formula over columns and `given` names; one that is a text is a
    template, a text with {formulas} in braces. `derive` are further columns, formulas over all rows of the
    file or templates. `check` are conditions of all rows, each by what is wrong where it does not hold; rows
    that `elsewhere` has too do not count here. `keep` is a condition of rows that count, `later` of rows
    that nobody prices yet; of rows alike in `fastest` columns the one with the least first metric counts;
    `unfold` is a column of lists, each item of which is a row. `rank` is a template of rows that are ranked
    together, `rank_once` where rows that ask the same, as several vendors submit them, count once: between
    them there is no order to predict.
    """

    title: str
    question: str
    files: list[str] = Field(default_factory=list)
    source: str = ""
    text: list[str] = Field(default_factory=list)
    optional: list[str] = Field(default_factory=list)
    columns: dict[str, str] = Field(default_factory=dict)
    codes: dict[str, dict[str, str]] = Field(default_factory=dict)
    given: dict[str, Given] = Field(default_factory=dict)
    derive: dict[str, Formula] = Field(default_factory=dict)
    check: dict[str, str] = Field(default_factory=dict)
    elsewhere: Elsewhere | None = None
    ask: dict[str, Formula] = Field(default_factory=dict)
    stated: list[Stated] = Field(default_factory=list)
    keep: str = ""
    later: str = ""
    fastest: list[str] = Field(default_factory=list)
    unfold: str = ""
    rank: str = ""
    rank_once: bool = False
    family: RowFamily = RowFamily()
    metric: list[MeasuredMetric]


def read_spec(path: Path) -> MeasuredSpec:
    """The TOML at a path, checked; what is wrong is one line."""
    return MeasuredSpec.checked(toml_file(path, "TOML of a measured file"), path.name)


@lru_cache(maxsize=1)
def shipped_specs() -> dict[str, MeasuredSpec]:
    """Specs of known files by the patterns of their names; a name without a pattern goes before one with."""
    specs = [read_spec(path) for path in sorted(data_folder("measured").rglob("*.toml"))]
    every = {pattern: spec for spec in specs for pattern in spec.files}
    return dict(sorted(every.items(), key=lambda pair: "*" in pair[0]))


def spec_of(folder: Path | None, name: str, has_chip: Any = None) -> MeasuredSpec | None:
    """The spec of a file: its own TOML beside it, else that shipped for files of its name. A pattern that
    begins with */ is of folders that are named after a chip.
    """
    beside = (folder / name).with_suffix(".toml") if folder is not None else None
    if beside is not None and beside.is_file() and not name.endswith(".toml"):
        return read_spec(beside)
    for pattern, spec in shipped_specs().items():
        if matches(name, pattern) and (
            not pattern.startswith("*/") or has_chip is None or has_chip(name.split("/", maxsplit=1)[0])
        ):
            return spec
    return None
