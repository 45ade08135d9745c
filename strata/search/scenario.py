"""What a space of designs is asked for, and how values of its fields become a case to evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from strata.base.errors import BadValue, StrataError, UnknownName, require
from strata.base.reading import flag_of, number_of, text_of, texts_of
from strata.case import Case
from strata.hardware.chip import Chip, finished, names_a_file, read_chip
from strata.hardware.fabric import Fabric, fabric, sized
from strata.hardware.money import Economics, economics
from strata.hardware.system import System
from strata.hardware.system import system as make_system
from strata.mapping.place import in_every_order
from strata.mapping.plan import ORDERS, Plan, division, plan_text
from strata.mapping.plan import plan as make_plan
from strata.mapping.plan_layout import active_groups
from strata.mapping.plans import candidate_plans, taken
from strata.params import names, override, value_at
from strata.search.fields import (
    OWNERS,
    PLAN,
    PLAN_FIELDS,
    SIZES,
    FieldOwners,
    by_owner,
    changed_engine,
    fabric_path,
    split_field,
)
from strata.search.inputs import make_workload, phase_of
from strata.software.engine import Engine
from strata.software.engine import engine as make_engine
from strata.workload.model import Model
from strata.workload.program import program as make_program
from strata.workload.tasks import Workload

_LINK_FIELDS = ("bandwidth", "latency", "efficiency", "energy", "price")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A model on a system, a phase and its lengths: what every design of a space is evaluated for."""

    model: str
    system: str
    engine: str = "ideal"
    phase: str = "decode"
    batch: float = 1.0
    input: float = 1024.0
    output: float = 1024.0
    fabrics: tuple[str, ...] = ()  # names of fabrics an axis may choose from; () leaves the system's own
    weights: str = ""
    kv: str = ""
    plan: str = ""  # degrees of a plan or layout where no axis chooses them

    @classmethod
    def read(cls, table: dict[str, Any], where: str) -> Scenario:
        """The scenario of a space's file, its table [question]."""
        entries = [f.name for f in fields(cls)]
        for key in table:
            if key not in entries:
                raise UnknownName(f"entry of the question of {where}", key, entries, ", ".join(entries))
        require("model" in table and "system" in table, f"{where}: [question] names a model and a system")
        at, read = f"{where}: [question]", dict[str, Any]()
        for f in fields(cls):
            if f.name not in table:
                continue
            if f.name == "fabrics":
                read[f.name] = tuple(texts_of(table, f.name, at))
            elif isinstance(f.default, float):
                read[f.name] = number_of(table, f.name, at)
            else:
                read[f.name] = text_of(table, f.name, at, "" if f.default == "" else None)
        return cls(**read)

    @cached_property
    def base_system(self) -> System:
        """The system as its file has it."""
        return make_system(self.system)

    @cached_property
    def base_model(self) -> Any:
        return make_program(self.model, **self._formats)

    @cached_property
    def base_engine(self) -> Engine:
        return make_engine(self.engine)

    @cached_property
    def economics(self) -> Economics:
        return economics()

    @property
    def _formats(self) -> dict[str, str]:
        return {k: v for k, v in (("weights", self.weights), ("kv", self.kv)) if v}

    @cached_property
    def chip_file(self) -> Any:
        """The chip as read, for quick changes of it; None where it comes from no shipped file."""
        name = self.base_system.chip.name
        return read_chip(name) if name in names("chip") and self.system.endswith(name) else None

    @lru_cache(maxsize=16)  # noqa: B019  (scenarios are few)
    def fabric_named(self, name: str) -> Fabric:
        """A fabric an axis names, of the system's devices; "" is the system's own."""
        chosen = self.base_system.fabric if not name else fabric(name)
        count = 1.0
        for d in chosen.dimension:
            require(d.size is not None, f"fabric {name} of a space needs sizes of its own")
            count *= float(d.size)
        require(
            count == float(self.base_system.devices),
            "a fabric of a space joins the system's devices",
            fabric=name,
            devices=count,
        )
        return chosen

    @cached_property
    def owners(self) -> tuple[FieldOwners, ...]:
        """The records fields are looked up in, once for each fabric there may be."""
        own = FieldOwners.of(self.base_system, self.base_model, self.base_engine)
        return tuple(replace(own, fabric=self.fabric_named(name)) for name in (self.fabrics or ("",)))

    def metadata(self, name: str) -> Any:
        """What the schema says of a quantity in the first fabric that has it; None for words."""
        return next((meta for o in self.owners if (meta := o.metadata(name)) is not None), None)

    def unit(self, name: str) -> str | None:
        """The unit of a field; None where it holds a word."""
        if name in SIZES:
            return "1"
        meta = self.metadata(name)
        return None if meta is None else meta["unit"]

    def base_value(self, name: str) -> Any:
        """What a field is before any axis changes it."""
        if name in SIZES:
            return getattr(self, name)
        if name == "fabric":
            return self.base_system.fabric.name
        owner, path = split_field(name)
        if owner == PLAN:
            told = division(self.base_model, self.plan)
            return getattr(told, path) if isinstance(told, Plan) else told.mesh.get(path, 1.0)
        return self.owners[0].value(name)


def checked_field(name: str, scenario: Scenario, where: str) -> str:
    """The name of a field that is there; an unknown one is refused with the nearest."""
    if name in (*SIZES, "fabric"):
        return name
    owner, _ = split_field(name)
    if owner in (PLAN, "fabric") and scenario.metadata(name) is not None:
        return name
    if owner not in OWNERS:
        raise UnknownName(
            f"field of {where}",
            name,
            (*OWNERS, *SIZES),
            "chip.PATH, fabric.DIMENSION.FIELD, engine.FIELD, model.FIELD, batch, input, output",
        )
    if owner == "fabric":
        every = [
            f"fabric.{d.name}.{p}" for o in scenario.owners for d in o.fabric.dimension for p in _LINK_FIELDS
        ]
        raise UnknownName(f"field of {where}", name, every, ", ".join(dict.fromkeys(every)))
    known = scenario.owners[0].words(owner)
    if scenario.owners[0].resolve(name)[1] not in known:
        raise UnknownName(
            f"field of {where}", name, [f"{owner}.{p}" for p in known], f"strata schema {owner}"
        )
    return name


def plans_of_scenario(scenario: Scenario, options: dict[str, Any]) -> Plan:
    """Every legal plan of a scenario's system; with `orders`, each way that one lies on its fabrics."""
    for key in options:
        if key not in ("orders", "where"):
            raise UnknownName("entry of a plan axis", key, ("orders", "where"), "orders, where")
    program = scenario.base_model
    if not isinstance(program, Model):
        raise BadValue(f"{program.name} is no language model: its axes are degrees, like plan.dp, not plans")
    where, orders = text_of(options, "where", "a plan axis", ""), flag_of(options, "orders", "a plan axis")
    work = Workload(scenario.phase, 1.0, 1.0, 1.0)
    every = candidate_plans(scenario.base_system, scenario.base_model, work, scenario.base_engine, where)
    if not orders:
        return every
    keys = []
    for name in scenario.fabrics or ("",):
        rows, which = in_every_order(every, scenario.fabric_named(name), active_groups(every))
        keys.append(which * len(ORDERS) + np.asarray(rows.order, int))
    plan, order = np.divmod(np.unique(np.concatenate(keys)), len(ORDERS))
    return replace(taken(every, plan), order=order.astype(float))


class PlanLabels(Sequence[str]):
    """How the plans of an axis are typed, written when asked for: there may be tens of thousands."""

    def __init__(self, rows: np.ndarray):
        self._rows = rows  # [plans, fields]
        self._text: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(self[k] for k in range(*at.indices(len(self))))
        k = range(len(self))[int(at)]
        if k not in self._text:
            self._text[k] = plan_text(Plan(*self._rows[k].tolist()))
        return self._text[k]

    def index(self, text: str, *_: int) -> int:
        """The place of a plan as it is typed."""
        for k in self._rows_meant(text):
            if self[k] == text:
                return int(k)
        raise ValueError(f"{text!r} is no plan of this axis")

    def __contains__(self, text: object) -> bool:
        try:
            return self.index(str(text)) >= 0
        except ValueError:
            return False

    def _rows_meant(self, text: str) -> np.ndarray:
        """Rows with the degrees a text names, whatever their order."""
        try:
            meant = make_plan(text)
        except StrataError:
            return np.empty(0, int)
        names = [n for n in PLAN_FIELDS if n != "order"]
        wanted = np.array([float(getattr(meant, n)) for n in names])
        columns = [PLAN_FIELDS.index(n) for n in names]
        return np.flatnonzero((self._rows[:, columns] == wanted).all(axis=1))

    def __getstate__(self) -> np.ndarray:
        return self._rows

    def __setstate__(self, rows: np.ndarray) -> None:
        self._rows, self._text = rows, {}


def plan_choices(plans: Plan) -> tuple[np.ndarray, PlanLabels]:
    """Plans as choices of an axis: their fields as rows of numbers, and how they are typed."""
    count = np.size(plans.tp)
    rows = np.stack(
        [np.broadcast_to(np.asarray(getattr(plans, f), float), (count,)) for f in PLAN_FIELDS], axis=1
    )
    return rows, PlanLabels(rows)


@dataclass(eq=False, kw_only=True)
class FieldValues:
    """What axes make of fields: words that points share, numbers over them, multiples of what is."""

    words: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    times: dict[str, Any] = field(default_factory=dict)


def assemble_case(scenario: Scenario, values: FieldValues, plan: Plan | None, checked: bool = True) -> Case:
    """The case of points that share their words; numbers are arrays over the points.

    Fields of dimensions that the chosen fabric does not have are left out. Unchecked, parts of a chip may
    contradict each other.
    """
    links = scenario.fabric_named(values.words.get("fabric", ""))
    owners = replace(scenario.owners[0], fabric=links)
    worded = {k: v for k, v in values.words.items() if names_a_file(split_field(k)[1])}
    if worded and values.times:
        owners = replace(owners, chip=_changed_chip(scenario, by_owner(worded)["chip"]))
    changes = {**values.words, **values.numbers}
    for name, times in values.times.items():
        record, path = owners.resolve(name)
        if path is not None:
            changes[name] = times * value_at(record, path)
    size = {k: values.numbers.get(k, getattr(scenario, k)) for k in SIZES}
    tables = by_owner(changes)
    chip = _changed_chip(scenario, tables["chip"], checked)
    links = _own_links(scenario, chip, links)
    paths = {p: v for path, v in tables["fabric"].items() if (p := fabric_path(links, path)) is not None}
    if paths:
        links, _ = override(links, paths, "fabric")
    program = _changed_model(scenario, tables["model"])
    return Case(
        system=System(scenario.base_system.name, chip, links),
        program=program,
        workload=make_workload(phase_of(program, scenario.phase), **size),
        plan=division(program, plan or scenario.plan, **tables[PLAN]),
        engine=changed_engine(scenario.base_engine, tables["engine"]),
        economics=scenario.economics,
    )


def _changed_chip(scenario: Scenario, changes: dict[str, Any], checked: bool = True) -> Chip:
    if not changes:
        return scenario.base_system.chip
    if scenario.chip_file is None or any(names_a_file(key) for key in changes):
        return make_system(scenario.system, **changes).chip
    chip, params, where = scenario.chip_file
    return finished(chip, params, where, changes, checked)


def _own_links(scenario: Scenario, chip: Chip, links: Fabric) -> Fabric:
    """The networks of a generated chip, sized as the system's, where they join it; else its links."""
    before = scenario.base_system
    own = before.chip.networks is not None and links.name == before.chip.networks.name
    if not own or chip.networks is None:
        return links
    return sized(chip.networks, tuple(d.size for d in before.fabric.dimension))


def _changed_model(scenario: Scenario, changes: dict[str, Any]) -> Any:
    """The scenario's model with words changed, like weights or kv."""
    if not changes:
        return scenario.base_model
    try:
        return make_program(scenario.model, **{**scenario._formats, **changes})
    except TypeError as error:
        raise BadValue(f"a model cannot be changed so: {error}") from None
