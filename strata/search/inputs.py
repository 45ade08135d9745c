"""From text to inputs: the system, model, engine and workload that text names, with some fields changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from strata.batch import as_float64_box, take
from strata.case import Case
from strata.errors import require
from strata.hardware.money import economics
from strata.hardware.system import System, as_system
from strata.hardware.system import system as make_system
from strata.mapping.engine import Engine, as_engine
from strata.mapping.engine import engine as make_engine
from strata.mapping.layout import Layout
from strata.mapping.plan import Plan, divides_itself, division, usual_division
from strata.search.fields import changed_fabric
from strata.search.relative import set_tables
from strata.units import finite_number
from strata.workload.lora import ALL_MODULES, Lora
from strata.workload.model import Model
from strata.workload.program import program as make_program
from strata.workload.routing import Routing, read_routing
from strata.workload.tasks import FORWARD, PHASES, Workload, decode, forward, prefill, serve, train


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
    """System, program and engine with `--set` changes applied; the system's chips on another fabric, where
    one is named.
    """
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
    """The value of a model's field from text, by what the field holds; what it may be is checked where models
    are made.
    """
    default = next((f.default for f in fields(Model) if f.name == name), None)
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text, text)
    if isinstance(default, str):
        return text
    try:
        return float(text)
    except ValueError:
        return text
