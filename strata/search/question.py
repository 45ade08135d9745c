"""From words to questions: the system, model, engine and workload that text names, with what is changed of
them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from strata.errors import BadValue, UnknownName, require
from strata.hardware.system import System
from strata.hardware.system import system as make_system
from strata.mapping.engine import Engine
from strata.mapping.engine import engine as make_engine
from strata.params import override
from strata.workload.model import Model
from strata.workload.model import model as make_model
from strata.workload.routing import Routing, read_routing
from strata.workload.tasks import PHASES, Workload, decode, prefill, serve, train


def make_workload(
    phase: str, batch: Any, input: float, output: float, *, routing: Routing | None = None
) -> Workload:
    """A workload from the sizes people state; decode takes the context in the middle of the generation."""
    require(phase in PHASES, "phase must be one of " + ", ".join(PHASES), phase=phase)
    if phase == "prefill":
        return prefill(batch, input, routing=routing)
    if phase == "decode":
        return decode(batch, input + output / 2, routing=routing)
    return train(batch, input) if phase == "train" else serve(batch, input, output, routing=routing)


def routing_of(path: str, model: Model) -> Routing | None:
    """The routing in a file, for a model that has experts; None without a file."""
    if not path:
        return None
    require(model.has_experts, f"{model.name} has no experts to route to", routing=path)
    return read_routing(path, model.experts)


def question(
    model: str, system: str, engine: str, weights: str, kv: str, changes: list[str]
) -> tuple[System, Model, Engine]:
    """System, model and engine with `--set` changes applied."""
    given = changes_of(changes)
    wanted: dict[str, Any] = {k: model_value(k, v) for k, v in given["model"].items()}
    wanted |= {"weights": weights} if weights else {}
    wanted |= {"kv": kv} if kv else {}
    made = build_system(system, given["chip"], given["fabric"])
    return made, make_model(model, **wanted), make_engine(engine, **given["engine"])


def changes_of(changes: list[str]) -> dict[str, dict[str, str]]:
    """`--set` items by what they change: chip, fabric, engine or model."""
    given: dict[str, dict[str, str]] = {"chip": {}, "fabric": {}, "engine": {}, "model": {}}
    for item in changes:
        path, equals, value = item.partition("=")
        owner, _, name = path.strip().partition(".")
        if not equals or not name or not value.strip():
            raise BadValue(
                f"--set takes PATH=VALUE, like chip.memory.bandwidth='6 TB/s' or model.kv=fp8, but got '{item}'"
            )
        if owner not in given:
            raise UnknownName(
                "thing to change with --set", owner, given, "chip.PATH, fabric.PATH, engine.PATH, model.FIELD"
            )
        given[owner][name] = value.strip()
    return given


def build_system(name: str, chip: dict[str, Any], fabric: dict[str, Any]) -> System:
    """A system with quantities of its chip and fabric replaced by text with units, numbers or arrays."""
    made = make_system(name, **chip)
    if not fabric:
        return made
    changed, noted = override(made.fabric, {dimension_path(made, k): v for k, v in fabric.items()}, "fabric")
    return replace(made, fabric=replace(changed, sources=made.fabric.sources.updated(noted)))


def dimension_path(system: System, name: str) -> str:
    """The whole path of a fabric's quantity: `latency` is the innermost dimension's, `infiniband.latency`
    that one's.
    """
    head, _, rest = name.partition(".")
    for i, dimension in enumerate(system.fabric.dimension):
        if rest and head in (str(i), dimension.name):
            return f"dimension.{i}.{rest}"
    return f"dimension.0.{name}" if not rest else name


def model_value(name: str, text: str) -> Any:
    """The value of a model's field from text, by what the field holds; what it may be is checked where models
    are made.
    """
    held = next((f.default for f in fields(Model) if f.name == name), None)
    if isinstance(held, bool):
        return {"true": True, "false": False}.get(text, text)
    if isinstance(held, str):
        return text
    try:
        return float(text)
    except ValueError:
        return text
