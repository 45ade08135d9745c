"""Technology: from a node and budgets to a chip, what binds it, and what a model does on it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from strata.app.render.generation import generation_dict
from strata.app.render.prediction import finite, step_bound
from strata.app.render.tables import floats, picked
from strata.app.web.answers import Count, Name, NameOrNone, WebQuestion, answers
from strata.app.web.answers.what_if import work_asked
from strata.base.precision import rate_of
from strata.base.units import show
from strata.evaluate import evaluate
from strata.hardware.chip import Chip
from strata.hardware.chip import chip as make_chip
from strata.hardware.generate.budget import die_edge
from strata.hardware.generate.recipe import Generation, generation
from strata.hardware.hierarchy import memory_levels
from strata.hardware.system import System
from strata.hardware.system import system as make_system
from strata.mapping.plan import division_text, usual_division
from strata.params import names
from strata.pricing.power_limits import made_cost
from strata.result import Result
from strata.search.plan_for import plan_for
from strata.workload.program import program as make_program

FORMATS = ("bf16", "fp16")  # of the headline peak, the first that a chip has


class ChipBudget(WebQuestion):
    """What a chip is generated from; None and "" are the budget's own."""

    technology: Name = "n5"
    budget: Name = "h100"
    template: Name = "gpu"
    device: NameOrNone = ""
    die_mm2: Annotated[float, Field(ge=10, le=100_000)] | None = None
    package_mm2: Annotated[float, Field(ge=10, le=200_000)] | None = None
    power_W: Annotated[float, Field(ge=1, le=100_000)] | None = None
    edge_mm: Annotated[float, Field(ge=1, le=10_000)] | None = None
    devices: Annotated[int, Field(ge=1, le=64)] | None = None
    against: NameOrNone = "h100"


class ChipAtWork(ChipBudget):
    """The same with a model to run on so many of them."""

    count: Annotated[int, Field(ge=1, le=64)] = 8
    model: Name = "llama-3-70b"
    phase: Literal["decode", "prefill", "serve"] = "decode"
    batch: Count = 64
    input: Count = 1024
    output: Count = 1024


@answers("technology-names")
def part_names(_: dict[str, Any]) -> dict[str, Any]:
    """Nodes, budgets, templates, memories."""
    kinds = {"technologies": "technology", "budgets": "budget", "templates": "template", "devices": "device"}
    return {shown: list(names(kind)) for shown, kind in kinds.items()} | {"chips": list(names("chip"))}


def made_chip(asked: dict[str, Any]) -> Generation:
    """The generation that a question asks for."""
    said = {
        "budget.die_area": (asked["die_mm2"], "mm2"),
        "budget.node_area": (asked["package_mm2"], "mm2"),
        "budget.power": (asked["power_W"], "W"),
        "budget.perimeter": (asked["edge_mm"], "mm"),
        "budget.devices": (asked["devices"], ""),
    }
    changes: dict[str, Any] = {k: f"{v:g} {unit}".strip() for k, (v, unit) in said.items() if v is not None}
    recipe = (asked["technology"], asked["budget"], asked["template"])
    return generation(*recipe, device=asked["device"] or None, **changes)


@answers("technology", ChipBudget)
def generated(asked: dict[str, Any]) -> dict[str, Any]:
    """The chip that a node and budgets make."""
    found = made_chip(asked)
    made, budget = found.made, found.made.budget
    other = make_chip(asked["against"]) if asked["against"] else None
    return generation_dict(found) | {
        "title": f"{made.template.title}, {made.technology.title}",
        "dies": 1.0 if budget.dies is None else float(budget.dies),
        **floats(made.device, "device_m2=area"),
        "device_mount": made.device.mount,
        "budget": {
            **picked(budget, "name title"),
            "die_mm2": float(budget.die_area) * 1e6,
            "package_mm2": float(budget.node_area) * 1e6,
            "power_W": float(budget.power),
            "edge_mm": float(die_edge(budget)) * 1e3,
            **floats(budget, "devices"),
        },
        "sources": {k: f"{show(float(p.value), p.unit)}: {p.source}" for k, p in budget.sources.items()},
        "this": offered(found.chip) | floats(made, "cost"),
        "that": None if other is None else {"name": other.name, "title": other.title} | offered(other),
    }


def sram_of(chip: Chip) -> float | None:
    """Memory on the die [B], all levels; chips whose local memory is their cache state it as both.

    >>> [round(sram_of(make_chip(name)) / 1e6) for name in ("h100", "wse-2")]
    [122, 40000]
    """
    levels = [float(level.capacity) for level in memory_levels(chip)[:-1]]
    local = float(chip.compute.cores * chip.compute.sram_capacity)
    twice = abs(local - float(chip.cache.capacity)) <= 0.05 * local
    return finite(sum(levels) - (local if twice else 0.0))


def offered(chip: Chip) -> dict[str, Any]:
    """What a chip has, in the numbers that data sheets compare."""
    formats = chip.compute.matrix_rate
    name = next((f for f in (*FORMATS, *formats) if f in formats), "")
    return {
        "format": name,
        "peak": rate_of(formats, name) if name else None,
        **floats(chip.memory, "bandwidth capacity"),
        "sram": sram_of(chip),
        **floats(chip, "power=energy.power_limit area=package.die_area"),
        "cost": made_cost(chip),
    }


@answers("technology-predict", ChipAtWork)
def at_work(asked: dict[str, Any]) -> dict[str, Any]:
    """A model on generated chips beside a named one."""
    found = made_chip(asked)
    if found.infeasible:
        return {"why": f"cannot be built: {found.infeasible[0]}"}
    against = asked["against"] or "h100"
    theirs = make_system(f"{asked['count']}x{against}")
    ours = System(f"{asked['count']}x{found.chip.name}", found.chip, theirs.fabric, theirs.economics)
    return {
        "fabric": theirs.fabric.name,
        "this": work_of(ours, asked),
        "that": work_of(theirs, asked) | {"name": against},
    }


def work_of(system: System, asked: dict[str, Any]) -> dict[str, Any]:
    """The best plan's answer on a system."""
    program = make_program(asked["model"])
    work = work_asked(asked)(program)
    plan = usual_division(program, system.devices)
    result: Result = (
        evaluate(system, program, work, plan, "ideal")
        if plan
        else plan_for(system, program, work, top=1, at_once=True).nearest
    )
    if not result.fits:
        return {"fits": False, "why": "; ".join(str(why) for why in result.infeasible)}
    names = {name: name for name in ("tokens_per_s", "tpot", "ttft")}
    names |= {"power": "device_power", "energy": "energy_per_token"}
    values = {name: getattr(result.metrics, metric, None) for name, metric in names.items()}
    return {"fits": True, "plan": division_text(result.plan), "binds": step_bound(result), **values}
