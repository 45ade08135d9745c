"""The fields an axis can name, and how values of them become a system, a plan and a workload.

`chip.PATH`, `fabric.DIMENSION.FIELD`, `engine.FIELD`, `model.FIELD`, `batch`, `input`, `output`; `fabric` by
its name; `plan` as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from strata.errors import BadValue, UnknownName, require
from strata.hardware.chip import NAMED, Chip, finished, read_chip
from strata.hardware.fabric import Fabric, fabric
from strata.hardware.system import System
from strata.hardware.system import system as make_system
from strata.mapping.engine import Engine
from strata.mapping.engine import engine as make_engine
from strata.mapping.place import in_every_order
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan_layout import active_groups
from strata.mapping.plans import taken
from strata.params import leaf_paths, names, override, value_at, word_paths
from strata.search.plans import candidates
from strata.search.question import dimension_path, make_workload
from strata.units import parse
from strata.workload.model import Model
from strata.workload.model import model as make_model
from strata.workload.tasks import Workload

SIZES = ("batch", "input", "output")
PLAN_FIELDS = tuple(f.name for f in fields(Plan))
_OWNERS = ("chip", "fabric", "engine", "model")


@dataclass(frozen=True)
class Question:
    """What a space is asked for: a model on a system, a phase and its lengths."""

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

    @classmethod
    def read(cls, table: dict[str, Any], where: str) -> Question:
        entries = [f.name for f in fields(cls)]
        for key in table:
            if key not in entries:
                raise UnknownName(f"entry of the question of {where}", key, entries, ", ".join(entries))
        require("model" in table and "system" in table, f"{where}: [question] names a model and a system")
        made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
        return cls(**made)

    @cached_property
    def base(self) -> System:
        """The system as its file has it."""
        return make_system(self.system)

    @cached_property
    def spoken(self) -> Model:
        changes = {k: v for k, v in (("weights", self.weights), ("kv", self.kv)) if v}
        return make_model(self.model, **changes)

    @cached_property
    def software(self) -> Engine:
        return make_engine(self.engine)

    @cached_property
    def blank(self) -> Any:
        """The system's chip as read, for quick changes of it; None where it does not come from a shipped
        file.
        """
        name = self.base.chip.name
        return read_chip(name) if name in names("chip") and self.system.endswith(name) else None

    @lru_cache(maxsize=16)  # noqa: B019  (questions are few)
    def on(self, name: str) -> Fabric:
        """A fabric an axis names, of the system's devices; "" is the system's own."""
        made = self.base.fabric if not name else fabric(name)
        count = 1.0
        for d in made.dimension:
            require(d.size is not None, f"fabric {name} of a space needs sizes of its own")
            count *= float(d.size)
        require(
            count == float(self.base.devices),
            "a fabric of a space joins the system's devices",
            fabric=name,
            devices=count,
        )
        return made

    def unit(self, name: str) -> str | None:
        """The unit of a field; None where it holds a word."""
        owner, _, path = name.partition(".")
        if owner in SIZES:
            return "1"
        if name == "fabric" or owner == "model":
            return None
        if owner == "fabric":
            return next(unit for f in self._fabrics() if (unit := _unit(f, path)) is not None)
        return _unit(self.base.chip if owner == "chip" else self.software, path)

    def _fabrics(self) -> list[Fabric]:
        return [self.on(name) for name in (self.fabrics or ("",))]


def _unit(record: Any, path: str) -> str | None:
    full = dimension_of(record, path) if isinstance(record, Fabric) else path
    return None if full is None else leaf_paths(record).get(full, {}).get("unit")


def dimension_of(made: Fabric, path: str) -> str | None:
    """The whole path of a fabric's quantity, or None where it has no such dimension."""
    head, _, rest = path.partition(".")
    if not any(head in (str(i), d.name) for i, d in enumerate(made.dimension)):
        return None
    return dimension_path(System("", None, made), f"{head}.{rest}")  # type: ignore[arg-type]


def known_field(name: str, question: Question, where: str) -> str:
    """The whole name of a field; an unknown one is refused with the nearest."""
    if name in (*SIZES, "fabric"):
        return name
    owner, _, path = name.partition(".")
    if owner == "chip":
        found = {**leaf_paths(question.base.chip), **word_paths(question.base.chip)}
    elif owner == "engine":
        found = {**leaf_paths(question.software), **word_paths(question.software)}
    elif owner == "model":
        found = {f.name: {} for f in fields(Model)}
    elif owner == "fabric":
        made = question._fabrics()
        every = [
            f"fabric.{d.name}.{p}"
            for f in made
            for d in f.dimension
            for p in ("bandwidth", "latency", "efficiency", "energy", "price")
        ]
        if any(dimension_of(f, path) in leaf_paths(f) for f in made):
            return name
        raise UnknownName(f"field of {where}", name, every, ", ".join(dict.fromkeys(every)))
    else:
        raise UnknownName(
            f"field of {where}",
            name,
            (*_OWNERS, *SIZES),
            "chip.PATH, fabric.DIMENSION.FIELD, engine.FIELD, model.FIELD, batch, input, output",
        )
    if path not in found:
        raise UnknownName(
            f"field of {where}", name, [f"{owner}.{p}" for p in found], f"strata schema {owner}"
        )
    return name


def number_at(value: Any, unit: str, what: str) -> float:
    """A number in SI from text with a unit or a plain number."""
    return float(parse(value, unit, what)) if isinstance(value, str) and not _plain(value) else float(value)


def _plain(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def plan_rows(question: Question, how: dict[str, Any]) -> Plan:
    """Every legal plan of a question's system, in each order that lies differently on any of its fabrics
    where `orders` asks for them.
    """
    for key in how:
        if key not in ("orders", "where"):
            raise UnknownName("entry of a plan axis", key, ("orders", "where"), "orders, where")
    work = Workload(question.phase, 1.0, 1.0, 1.0)
    every = candidates(question.base, question.spoken, work, question.software, how.get("where", ""))
    if not how.get("orders", False):
        return every
    seen: set[tuple[int, float]] = set()
    for name in question.fabrics or ("",):
        rows, which = in_every_order(every, question.on(name), active_groups(every))
        seen |= set(zip(which.tolist(), rows.order.tolist(), strict=True))
    order = sorted(seen)
    many = taken(every, np.array([i for i, _ in order]))
    return replace(many, order=np.array([o for _, o in order]))


def plan_values(rows: Plan) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Plans as choices of an axis: their fields as rows of numbers, and how they are typed."""
    count = len(rows.tp)
    full = np.stack(
        [np.broadcast_to(np.asarray(getattr(rows, f), float), (count,)) for f in PLAN_FIELDS], axis=1
    )
    listed = tuple(map(tuple, full.tolist()))
    return listed, tuple(plan_text(Plan(*row)) for row in listed)


def assembled(
    question: Question, words: dict[str, str], numbers: dict[str, Any], times: dict[str, Any], plan: Plan
) -> tuple[Any, ...]:
    """System, model, workload, plan and engine of points that share their words; numbers are arrays over the
    points.

    `times` multiplies what a field is. Fields of dimensions that the chosen fabric does not have are left
    out.
    """
    joined = question.on(words.get("fabric", ""))
    changes: dict[str, dict[str, Any]] = {owner: {} for owner in _OWNERS}
    size: dict[str, Any] = {k: numbers.get(k, getattr(question, k)) for k in SIZES}
    for name, value in {**words, **numbers}.items():
        owner, _, path = name.partition(".")
        if name not in (*SIZES, "fabric"):
            changes[owner][path] = value
    for name, value in times.items():
        owner, _, path = name.partition(".")
        record: Any = {"chip": question.base.chip, "fabric": joined, "engine": question.software}[owner]
        full = dimension_of(joined, path) if owner == "fabric" else path
        if full is not None:
            changes[owner][path] = value * value_at(record, full)
    spans = {
        full: value
        for path, value in changes["fabric"].items()
        if (full := dimension_of(joined, path)) is not None
    }
    if spans:
        joined, _ = override(joined, spans, "fabric")
    chip = _chip(question, changes["chip"])
    what = replace_model(question, changes["model"])
    by = _engine(question, changes["engine"])
    work = make_workload(question.phase, size["batch"], size["input"], size["output"])
    return System(question.base.name, chip, joined), what, work, plan, by


def _chip(question: Question, changes: dict[str, Any]) -> Chip:
    if not changes:
        return question.base.chip
    if question.blank is None or any(key in changes for key in NAMED):
        return make_system(question.system, **changes).chip
    made, params, where = question.blank
    return finished(made, params, where, changes)


def _engine(question: Question, changes: dict[str, Any]) -> Engine:
    if not changes:
        return question.software
    made, given = override(question.software, changes, "engine")
    return replace(made, sources=question.software.sources.updated(given))


def replace_model(question: Question, changes: dict[str, Any]) -> Model:
    """The question's model with words changed, like weights or kv."""
    if not changes:
        return question.spoken
    kept = {k: v for k, v in (("weights", question.weights), ("kv", question.kv)) if v}
    try:
        return make_model(question.model, **{**kept, **changes})
    except TypeError as error:
        raise BadValue(f"a model cannot be changed so: {error}") from None
