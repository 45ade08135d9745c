"""Fields by path: what `chip.PATH`, `fabric.DIMENSION.FIELD`, `engine.FIELD`, `model.FIELD`, `batch`, `input`
and `output` name, with their units and values. Whoever sets, varies, searches or scales a field finds it
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from strata.base.arrays import is_leaf
from strata.base.errors import BadValue, UnknownName
from strata.base.units import finite_number, parse
from strata.hardware.chip import Chip, names_a_file
from strata.hardware.fabric import Fabric
from strata.hardware.system import System
from strata.mapping.plan import Plan, layout_degrees
from strata.params import leaf_paths, override, value_at, word_paths
from strata.software.engine import Engine

SIZES = ("batch", "input", "output")  # of a workload, by their bare names
OWNERS = ("chip", "fabric", "engine", "model")  # records whose fields are named OWNER.PATH
ECONOMICS = "economics"  # what is set for all points: prices, lifetime, powers of hosts
PLAN = "plan"  # degrees of a plan or layout are named plan.DEGREE
Record = TypeVar("Record", Fabric, Engine)
PLAN_FIELDS = tuple(f.name for f in fields(Plan))


def split_field(name: str) -> tuple[str, str]:
    """The owner of a field, and its path there.

    >>> split_field("chip.memory.bandwidth"), split_field("batch")
    (('chip', 'memory.bandwidth'), ('batch', ''))
    """
    owner, _, path = name.partition(".")
    return owner, path


def twice_named(names: Sequence[str]) -> str | None:
    """The first name that stands there twice.

    >>> twice_named(["tp", "pp", "tp"]), twice_named(["tp"])
    ('tp', None)
    """
    return next((name for name in names if names.count(name) > 1), None)


def by_owner(changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Changes of fields, sorted into one table for each owner; sizes of a workload are left out.

    >>> by_owner({"chip.memory.bandwidth": 4e12, "batch": 8.0})["chip"]
    {'memory.bandwidth': 4000000000000.0}
    """
    tables: dict[str, dict[str, Any]] = {owner: {} for owner in (*OWNERS, ECONOMICS, PLAN)}
    for name, value in changes.items():
        owner, path = split_field(name)
        if owner in tables and path:
            tables[owner][path] = value
    return tables


def parse_changes(items: Iterable[str]) -> dict[str, dict[str, str]]:
    """What `--set PATH=VALUE` changes, by owner.

    >>> parse_changes(["chip.memory.bandwidth=6 TB/s", "model.kv=fp8"])["model"]
    {'kv': 'fp8'}
    """
    changes: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        owner, path = split_field(name.strip())
        if not equals or not path or not value.strip():
            raise BadValue(
                "--set takes PATH=VALUE, like chip.memory.bandwidth='6 TB/s' or model.kv=fp8,"
                f" but got '{item}'"
            )
        if owner not in (*OWNERS, ECONOMICS):
            known = "chip.PATH, fabric.PATH, engine.PATH, model.FIELD, economics.FIELD"
            raise UnknownName("thing to change with --set", owner, (*OWNERS, ECONOMICS), known)
        changes[f"{owner}.{path}"] = value.strip()
    return by_owner(changes)


def parse_setting(text: str) -> tuple[str, str]:
    """The path and the value of a number that is set.

    >>> parse_setting("budget.power=500 W")
    ('budget.power', '500 W')
    """
    path, equals, value = text.partition("=")
    if not equals or not value.strip():
        raise BadValue(f"a change is written like budget.power=500 W, but got (change='{text}')")
    return path.strip(), value.strip()


def fabric_path(fabric: Fabric, path: str) -> str | None:
    """The whole path of a fabric's quantity: `latency` is the innermost dimension's, `infiniband.latency` and
    `1.latency` that one's; None where the fabric has no such dimension.
    """
    head, _, rest = path.partition(".")
    if not rest:
        return f"dimension.0.{path}"
    if head == "dimension":
        return path
    for i, dimension in enumerate(fabric.dimension):
        if head in (str(i), dimension.name):
            return f"dimension.{i}.{rest}"
    return None


RECIPE = "recipe."


def chip_path(chip: Chip, path: str) -> str:
    """The whole path of a chip's field: `budget.power` and `technology.logic.clock` are those of its recipe.

    >>> from strata.hardware.chip import chip
    >>> chip_path(chip("deepflow-v100"), "budget.power"), chip_path(chip("h200"), "memory.bandwidth")
    ('recipe.budget.power', 'memory.bandwidth')
    """
    if chip.recipe is None:
        return path
    from strata.hardware.generate.recipe import PARTS

    return f"{RECIPE}{path}" if path.partition(".")[0] in PARTS else path


def path_in_recipe(chip: Chip, path: str) -> str:
    """The whole path of a number of a chip's recipe from what a user calls it; "" where it is none."""
    if chip.recipe is None:
        return ""
    from strata.hardware.generate.recipe import recipe_path

    inside = recipe_path(chip, path)
    return f"{RECIPE}{inside}" if inside else ""


def si_number(value: Any, unit: str, what: str) -> float:
    """A number in SI from text with a unit or a plain number.

    >>> si_number("2 ms", "s", "latency"), si_number("0.5", "s", "latency")
    (0.002, 0.5)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadValue(f"{what} is a number, or text with a unit, but got {value!r}")
    try:
        float(value)
    except (ValueError, OverflowError):
        return float(parse(value, unit, what))
    return finite_number(value, what)


@dataclass(frozen=True, eq=False, kw_only=True)
class FieldOwners:
    """The records whose fields can be named."""

    chip: Chip
    fabric: Fabric
    engine: Engine
    model: Any  # a language model, or another program

    @classmethod
    def of(cls, system: System, model: Any, engine: Engine) -> FieldOwners:
        return cls(chip=system.chip, fabric=system.fabric, engine=engine, model=model)

    def resolve(self, name: str) -> tuple[Any, str | None]:
        """The record of a field and its whole path there; None where this fabric has no such dimension."""
        owner, path = split_field(name)
        record = getattr(self, owner)
        if owner == "chip":
            return record, chip_path(record, path)
        return record, fabric_path(record, path) if owner == "fabric" else path

    def regenerates(self, name: str) -> bool:
        """Whether a change of a field makes a generated chip anew."""
        owner, path = split_field(name)
        made = owner == "chip" and self.chip.recipe is not None
        return made and (names_a_file(path) or bool(path_in_recipe(self.chip, path)))

    def metadata(self, name: str) -> Mapping[str, Any] | None:
        """What the schema says of a quantity (unit, doc, more); None for words and unknown fields."""
        owner, path = split_field(name)
        if owner in (PLAN, "model"):
            return {"unit": "1"} if path in self._numbers(owner) else None
        if owner not in OWNERS:
            return None
        record, whole = self.resolve(name)
        return None if whole is None else leaf_paths(record).get(whole)

    def value(self, name: str) -> Any:
        """What a field is."""
        record, path = self.resolve(name)
        if path is None:
            raise UnknownName("field", name, self.units(), "strata schema fabric")
        return value_at(record, path)

    def units(self) -> dict[str, str]:
        """Every quantity by its whole name, with its unit."""
        found = {
            f"{owner}.{path}": meta["unit"]
            for owner in ("chip", "fabric", "engine")
            for path, meta in leaf_paths(getattr(self, owner)).items()
        }
        own = {f"{owner}.{path}": "1" for owner in ("model", PLAN) for path in self._numbers(owner)}
        return found | own

    def _numbers(self, owner: str) -> tuple[str, ...]:
        """Sizes of a program that is no language model, degrees of its layout; models are chosen by words."""
        degrees = layout_degrees(self.model)
        if owner == PLAN or not degrees:
            return degrees
        return tuple(f.name for f in fields(self.model) if is_leaf(getattr(self.model, f.name)))

    def words(self, owner: str) -> dict[str, Mapping[str, Any]]:
        """Fields of an owner that an axis may choose: its quantities and its words."""
        record = getattr(self, owner)
        if owner == "model":
            return {f.name: {} for f in fields(self.model)}
        return {**leaf_paths(record), **word_paths(record)}

    def short_names(self) -> dict[str, str]:
        """The whole name of every short one: dimensions by name or place, the last word of a chip's path
        where it is the only one.
        """
        units: dict[str, str] = self.units()
        short: dict[str, str] = {}
        for name in units:
            owner, path = split_field(name)
            if owner == "fabric" and path.startswith("dimension."):
                _, i, field, *_ = [*path.split("."), ""]
                called = [self.fabric.dimension[int(i)].name, i]
                names = [f"{c}.{field}" for c in called] + ([field] if i == "0" else [])
                short |= {f"fabric.{n}": f"fabric.{fabric_path(self.fabric, n)}" for n in names}
            elif owner == "chip":
                last = path.rsplit(".", 1)[-1]
                if sum(n.startswith("chip.") and n.endswith(f".{last}") for n in units) == 1:
                    short[f"chip.{last}"] = name
                if path.startswith(RECIPE):
                    short[f"chip.{path.removeprefix(RECIPE)}"] = name
        return short

    def matching(self, pattern: str) -> list[str]:
        """Whole names of the quantities that match a pattern like `fabric.dimension.*.bandwidth`."""
        return [name for name in self.units() if fnmatchcase(name, pattern)]

    @staticmethod
    def covers(patterns: Iterable[str], name: str) -> bool:
        """Whether one of some patterns names a quantity."""
        return any(fnmatchcase(name, pattern) for pattern in patterns)


def changed_fabric(fabric: Fabric, changes: Mapping[str, Any]) -> Fabric:
    """A fabric with quantities replaced by text with units, numbers or arrays, and their sources noted."""
    return _changed(fabric, {fabric_path(fabric, p) or p: value for p, value in changes.items()}, "fabric")


def changed_engine(engine: Engine, changes: Mapping[str, Any]) -> Engine:
    """An engine with quantities or words replaced, and their sources noted."""
    return _changed(engine, changes, "engine")


def _changed(record: Record, changes: Mapping[str, Any], kind: str) -> Record:
    if not changes:
        return record
    changed, noted = override(record, changes, kind)
    return replace(changed, sources=record.sources.updated(noted))
