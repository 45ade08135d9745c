"""From text to inputs: the system, model, engine and workload that text names, with some fields changed, also
relative to what a design states ("x2", "+10%").
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from strata.base.batch import as_float64_box, take
from strata.base.errors import BadValue, UnknownName, require
from strata.base.units import finite_number
from strata.case import Case
from strata.hardware.derive import DERIVED, derivation_of, is_derived, restated
from strata.hardware.money import economics
from strata.hardware.system import System, as_system
from strata.hardware.system import system as make_system
from strata.mapping.layout import Layout
from strata.mapping.plan import Plan, divides_itself, division, usual_division
from strata.params import called, leaf_paths, value_at
from strata.search.fields import (
    ECONOMICS,
    RECIPE,
    FieldOwners,
    changed_fabric,
    fabric_path,
    parse_changes,
    path_in_recipe,
)
from strata.software.engine import Engine, as_engine
from strata.software.engine import engine as make_engine
from strata.workload.expert_ops import Routing, read_routing
from strata.workload.lora import ALL_MODULES, Lora
from strata.workload.model import Model
from strata.workload.program import program as make_program
from strata.workload.tasks import FORWARD, PHASES, Workload, decode, forward, prefill, serve, train

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_TIMES = re.compile(rf"[x×]\s*([-+]?{_NUMBER})")
_PERCENT = re.compile(rf"([-+]\s*{_NUMBER})\s*%")


def make_workload(
    phase: str, batch: Any, input: float, output: float, *, routing: Routing | None = None, **tuned: Any
) -> Workload:
    """A workload from the sizes people state; decode takes the context in the middle of the generation.
    `tuned`: what a training step does not train (`fine_tuning`).
    """
    known = (*PHASES, FORWARD)
    require(phase in known, "phase must be one of " + ", ".join(known), phase=phase)
    if phase == FORWARD:
        return forward(batch)
    if phase == "prefill":
        return prefill(batch, input, routing=routing)
    if phase == "decode":
        return decode(batch, input + output / 2, routing=routing)
    if phase == "train":
        return train(batch, input, **tuned)
    return serve(batch, input, output, routing=routing)


def fine_tuning(phase: str, lora: str = "", frozen: str = "") -> dict[str, Any]:
    """What a training step does not train, as typed: the rank of adapters with their modules, or the modules
    that are frozen.

    >>> fine_tuning("train", "16:attention,ffn.down")["adapters"].modules
    ('attention', 'ffn.down')
    >>> fine_tuning("train", frozen="embedding")
    {'frozen': ('embedding',)}
    """
    if not (lora or frozen):
        return {}
    require(phase == "train", "adapters and frozen modules are of training: give --phase train", phase=phase)
    found: dict[str, Any] = {"frozen": _listed(frozen)} if frozen else {}
    if lora:
        rank, _, modules = lora.partition(":")
        found["adapters"] = Lora(rank=finite_number(rank, "--lora"), modules=_listed(modules) or ALL_MODULES)
    return found


def _listed(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def phase_of(program: Any, phase: str) -> str:
    """The phase asked for; a program that is no language model is passed through once, or trained.

    >>> phase_of(make_program("fft-1024"), "serve"), phase_of(make_program("llama-3-8b"), "serve")
    ('forward', 'serve')
    """
    if isinstance(program, Model):
        require(
            phase != FORWARD, f"{program.name} is a language model: its phase is one of {', '.join(PHASES)}"
        )
        return phase
    if phase in ("serve", FORWARD):
        return FORWARD
    require(
        phase == "train", f"{program.name} is no language model: its phase is forward or train", phase=phase
    )
    return phase


def routing_from_file(path: str, model: Model) -> Routing | None:
    """The routing in a file, for a model that has experts; None without a file."""
    if not path:
        return None
    require(getattr(model, "has_experts", False), f"{model.name} has no experts to route to", routing=path)
    return read_routing(path, model.experts)


def named_inputs(
    model: str, system: str, engine: str, weights: str, kv: str, changes: Iterable[str], fabric: str = ""
) -> tuple[System, Any, Engine]:
    """System, program and engine with `--set` changes; chips on another fabric where one is named."""
    tables = set_tables(model, system, engine, changes, fabric)
    wanted = {k: model_value(k, v) for k, v in tables["model"].items()}
    wanted |= {k: v for k, v in (("weights", weights), ("kv", kv)) if v}
    return (
        changed_system(system, tables["chip"], tables["fabric"], fabric, tables["economics"]),
        make_program(model, **wanted),
        make_engine(engine, **tables["engine"]),
    )


def served_inputs(
    model: str, system: str, engine: str, weights: str, kv: str, changes: Iterable[str]
) -> tuple[System, Model, Engine]:
    """The same of a model that serves requests."""
    hardware, program, software = named_inputs(model, system, engine, weights, kv, changes)
    require(isinstance(program, Model), f"{model} is no language model: it serves no requests")
    return hardware, program, software


def usual_plan(system: Any, program: Any, workload: Workload, engine: Any = "ideal") -> Plan | Layout:
    """What `strata predict` takes where no plan is typed: the program's own division, else the best legal
    plan, or the one that comes nearest where none fits; of a box the best in its middle.

    >>> usual_plan("8xh200", "llama-3-70b", decode(64, 2048))
    plan('tp=8')
    """
    from strata.search.plan_for import plan_for

    code = make_program(program) if isinstance(program, str) else program
    point = Case(
        system=as_system(system),
        program=code,
        workload=workload,
        plan=Plan(),
        engine=as_engine(engine),
        economics=economics(),
    )
    door, shape = as_float64_box(point)
    if shape:
        door = take(door, tuple(n // 2 for n in shape), len(shape))
    told = usual_division(code, door.system.devices)
    if told or divides_itself(code) or door.system.devices == 1:
        return division(code, told)
    ranking = plan_for(door.system, door.program, door.workload, door.engine, top=1, at_once=True)
    return ranking.nearest.case.plan


def changed_system(
    name: str,
    chip: Mapping[str, Any],
    fabric: Mapping[str, Any],
    on: str = "",
    money: Mapping[str, Any] | None = None,
) -> System:
    """A system, its chips on another fabric where one is named, with quantities of chip, fabric and what it
    costs to own replaced by text with units, numbers or arrays.
    """
    system = make_system(name, on or None, **chip)
    if money:
        system = replace(system, economics=economics(**money))
    return replace(system, fabric=changed_fabric(system.fabric, fabric)) if fabric else system


def model_value(name: str, text: str) -> Any:
    """A model's field from text, by what the field holds; it is checked where models are made."""
    default = next((f.default for f in fields(Model) if f.name == name), None)
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text, text)
    if isinstance(default, str):
        return text
    try:
        return float(text)
    except ValueError:
        return text


def relative_factor(text: Any, what: str = "a relative change") -> float | None:
    """What a relative change multiplies by; None where the text is an absolute value.

    >>> [relative_factor(t) for t in ("x2", "x 0.5", "-20%", "6 TB/s", "20%")]
    [2.0, 0.5, 0.8, None, None]
    >>> relative_factor("-100%", "chip.memory.bandwidth")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: chip.memory.bandwidth: a factor must be positive and finite, but got '-100%'
    """
    if not isinstance(text, str):
        return None
    times, percent = _TIMES.fullmatch(text.strip()), _PERCENT.fullmatch(text.strip())
    if times is None and percent is None:
        return None
    if times is not None:
        factor = float(times[1])
    else:
        factor = 1.0 + float(percent[1].replace(" ", "")) / 100.0  # type: ignore[index]
    if not (factor > 0.0 and math.isfinite(factor)):
        raise BadValue(f"{what}: a factor must be positive and finite, but got '{text}'")
    return factor


def absolute_changes(
    tables: Mapping[str, Mapping[str, Any]], owners: FieldOwners, system: System
) -> dict[str, dict[str, Any]]:
    """Changes by owner with the relative ones worked out: so many times what the design states now.

    A quantity that follows from others cannot be moved by itself: the error says which one to set instead.
    """
    found: dict[str, dict[str, Any]] = {}
    for owner, table in tables.items():
        found[owner] = {}
        for path, value in table.items():
            factor = relative_factor(value, f"{owner}.{path}")
            if factor is not None:
                value = _number_at(owner, path, str(value), owners, system) * factor
            found[owner][path] = value
    return found


def _number_at(owner: str, path: str, text: str, owners: FieldOwners, system: System) -> float:
    """The number that a relative change starts from."""
    name = f"{owner}.{path}"
    if owner == "model":
        held = getattr(owners.model, path, None)
        known = [f.name for f in fields(owners.model)]
        known += ["layers"] if isinstance(owners.model, Model) else []
        if path not in known:
            raise UnknownName("model field", path, known, ", ".join(known))
        if isinstance(held, bool | str) or not isinstance(held, int | float):
            raise BadValue(f"{name} is no number ({held!r}), so that it cannot be changed by '{text}'")
        return float(held)
    record: Any = system.economics or economics() if owner == ECONOMICS else getattr(owners, owner)
    path, hits = called_quantity(owner, path, record)
    if not hits:
        raise UnknownName(f"{owner} quantity", path, leaf_paths(record), f"strata schema {owner}")
    if len(hits) > 1:
        raise BadValue(f"'{path}' names several {owner} quantities: {', '.join(hits)}; write the whole path")
    whole = hits[0]
    if owner == "chip":
        if is_derived(record, whole):
            raise BadValue(_follows(whole, text, owners, system))
        record = restated(record)
    value = value_at(record, whole)
    if value is None:
        raise BadValue(f"{name} is not stated of {record.name}, so that it cannot be changed by '{text}'")
    return float(np.asarray(value))


def called_quantity(owner: str, path: str, record: Any) -> tuple[str, list[str]]:
    """What a user calls a quantity, a fabric's dimensions and a chip's recipe followed, and whole paths that
    it may mean.
    """
    if owner == "fabric":
        path = fabric_path(record, path) or path
    if owner == "chip":
        path = path_in_recipe(record, path) or path
    return path, list(called(path, leaf_paths(record)))


def _follows(path: str, text: str, owners: FieldOwners, system: System) -> str:
    """Why a derived quantity cannot be set, and what to set instead."""
    from strata.search.levers import LEVERS, quantities_behind

    chip = owners.chip
    row = derivation_of(chip, path)
    instead = [f"chip.{row.instead}"] if row is not None and row.instead else []
    for lever in LEVERS:
        if not instead and FieldOwners.covers((way[0] for way in lever.ways), f"chip.{path}"):
            behind = quantities_behind(lever, owners, system)
            instead = [name.replace(RECIPE, "") for held in behind.values() for name in held][:1]
            instead += ["chip.budget.power"] if chip.recipe is not None else []
    told = f"; set {' or '.join(f'{name}={text}' for name in instead)} instead" if instead else ""
    source = chip.sources[path].source.removeprefix(DERIVED)
    return f"chip.{path} of {chip.name} follows from its other numbers ({source}){told}"


def set_tables(
    model: str, system: str, engine: str, changes: Iterable[str], fabric: str = ""
) -> dict[str, dict[str, Any]]:
    """What `--set` changes by owner, relative changes worked out.

    >>> set_tables("llama-3-8b", "8xh200", "ideal", ["chip.memory.bandwidth=x2"])["chip"]
    {'memory.bandwidth': 9600000000000.0}
    """
    tables: dict[str, dict[str, Any]] = {owner: dict(t) for owner, t in parse_changes(changes).items()}
    every = ((f"{owner}.{path}", value) for owner, table in tables.items() for path, value in table.items())
    if all(relative_factor(value, name) is None for name, value in every):
        return tables
    base = make_system(system, fabric or None)
    return absolute_changes(tables, FieldOwners.of(base, make_program(model), make_engine(engine)), base)
