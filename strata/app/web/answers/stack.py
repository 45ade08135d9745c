"""Stack: DRAM on logic as it is built, what bounds its bandwidth, and how warm a load makes each die."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from strata.app.render.heat import temperatures_dict
from strata.app.render.prediction import finite, step_bound
from strata.app.render.silicon import area_dict
from strata.app.render.tables import floats, picked
from strata.app.web.answers import Count, Name, NameOrNone, Text, WebQuestion, answers
from strata.app.web.answers.what_if import work_asked
from strata.base.errors import MissingQuantity
from strata.base.units import show
from strata.hardware.chip import Chip
from strata.hardware.chip import chip as make_chip
from strata.hardware.making import area, cost_of
from strata.hardware.silicon.floorplan import connections_that_fit
from strata.hardware.technology import bonding
from strata.hardware.temperatures import Temperatures, heat
from strata.hardware.thermal.cooling import CELLS, assembly
from strata.mapping.plan import division_text
from strata.params import names, stated
from strata.pricing.power_limits import bandwidth_bounds, dissipated, sustained_bandwidth
from strata.result import Result
from strata.search.what_if import Question

MOST_LAYERS = 16  # of the page's slider: what published stacks have, and what its maps are drawn for
BOUND_WORDS = {
    "peak": "data bonds: connected layers x channels x width x rate",
    "interface": "bursts back to back, less refresh",
    "turnaround": "the bus turned from reads to writes and back",
    "banks": "rows opened and closed, banks side by side",
    "activation": "at most four rows in a window of tFAW",
    "look-ahead": "what the controller sees ahead of the banks",
    "buffer": "bytes that all cores have asked for, over the latency of a load",
    "sram": "ports of the cores' local memories, passed twice",
    "network": "network on the chip, for what is not in a core's own vault",
}


class StackDesign(WebQuestion):
    """A chip with its stack as the page's sliders have it; None and "" are the chip's own."""

    chip: Name = "stack-ref"
    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)] | None = None
    bonding: NameOrNone = ""
    via_um: Annotated[float, Field(ge=2, le=60)] | None = None
    bond_um: Annotated[float, Field(ge=0.5, le=60)] | None = None
    cooling: NameOrNone = ""
    arrangement: Literal["", "logic_bottom", "logic_top"] = ""
    ambient_C: Annotated[float, Field(ge=5, le=70)] | None = None


class StackLoad(StackDesign):
    """The same with a load: so many devices of it run a model."""

    devices: Annotated[int, Field(ge=1, le=4096)] = 256
    model: Name = "deepseek-v3"
    phase: Literal["decode", "prefill"] = "decode"
    batch: Count = 4
    input: Count = 1024
    output: Count = 1024
    plan: Text = ""


@answers("stack-chips")
def stacked_names(_: dict[str, Any]) -> dict[str, Any]:
    """Chips whose package is described."""
    known = {name: make_chip(name) for name in sorted(names("floorplans"))}
    listed = [{"name": n, "title": c.title, "stacked": c.stack is not None} for n, c in known.items()]
    listed.sort(key=lambda entry: not entry["stacked"])
    return {"chips": listed, "cooling": list(names("cooling")), "bonding": list(names("bonding"))}


def changes_of(design: dict[str, Any]) -> dict[str, str]:
    """The fields of a chip that a design sets."""
    said = {
        "stack.layers": design["layers"],
        "silicon.bonding": design["bonding"],
        "silicon.floorplan.via_pitch": design["via_um"] and f"{design['via_um']:g} um",
        "cooling_file": design["cooling"],
        "cooling.bond_thickness": design["bond_um"] and f"{design['bond_um']:g} um",
        "cooling.arrangement": design["arrangement"],
        "cooling.ambient": design["ambient_C"] and f"{design['ambient_C']:g} degC",
    }
    return {path: str(value) for path, value in said.items() if value}


@answers("stack", StackDesign)
def built(design: dict[str, Any]) -> dict[str, Any]:
    """A stack as it is built, and its bounds."""
    chip = make_chip(design["chip"], **changes_of(design))
    if chip.silicon is None:
        raise MissingQuantity(f"nothing says how chip '{chip.name}' is made: its package cannot be drawn")
    silicon = chip.silicon
    joint = bonding(silicon.bonding)
    each = float(chip.package.die_area) / float(silicon.dies)
    bounds = bandwidth_bounds(chip)
    told = {
        **picked(chip, "name title"),
        "stacked": chip.stack is not None,
        "process": chip.package.process,
        "side_m": each**0.5,
        **floats(silicon, "dies beside beside_m2=beside_area"),
        "memory_kind": chip.memory.kind,
        **floats(chip.memory, "capacity peak=bandwidth"),
        "sustained": finite(sustained_bandwidth(chip)),
        "bounds": [{"name": n, "value": finite(v), "words": BOUND_WORDS[n]} for n, v in bounds.items()],
        **floats(chip, "energy=energy.memory cores=compute.cores"),
        "bonding": picked(joint, "name title") | floats(joint, "pitch"),
        "cost": finite(cost_of(chip, silicon).made),
        "area": area_dict(chip, silicon, area(chip)) if silicon.floorplan is not None else None,
        "numbers": sources_of(chip),
    }
    return told if chip.stack is None or chip.cooling is None else told | stack_parts(chip)


def stack_parts(chip: Chip) -> dict[str, Any]:
    """Sheets of a stack from the board up, with what passes between them."""
    assert chip.stack is not None and chip.cooling is not None and chip.silicon is not None
    layers = int(chip.stack.layers)
    sheets: dict[str, dict[str, Any]] = {}
    for sheet in assembly(chip.cooling, layers, float(chip.package.die_area)).layers:
        name = sheet.name.removesuffix(" bulk")
        first = {"name": name, "side": sheet.side, "thickness": 0.0, "conductivity": sheet.conductivity}
        known = sheets.setdefault(name, first)
        known["thickness"] += sheet.thickness
    joint = bonding(chip.silicon.bonding)
    data = 8.0 * float(chip.stack.channels_per_layer * chip.stack.channel_width)
    plan = chip.silicon.floorplan
    return {
        "layers": layers,
        "sheets": list(sheets.values()),
        **picked(chip.cooling, "arrangement cooling=title"),
        **floats(chip.cooling, "ambient"),
        "limits": floats(chip.cooling, "dram=dram_limit logic=logic_limit"),
        "data_bonds": data,
        "bonds_fit": float(connections_that_fit(chip.package.die_area, joint.pitch)),
        "via_pitch": None if plan is None else plan.via_pitch,
        **floats(chip, "bond_thickness=cooling.bond_thickness transfer_rate=stack.transfer_rate"),
        "channels": float(chip.stack.channels_per_layer),
    }


def sources_of(chip: Chip) -> dict[str, Any]:
    """Numbers of stack, cooling and package with their sources, by path."""
    parts = ("stack.", "cooling.", "memory.", "package.", "energy.memory", "silicon.")
    numbers = {path: p for path, p in stated(chip).items() if path.startswith(parts)}
    return {k: {"text": show(float(p.value), p.unit), **picked(p, "source mark")} for k, p in numbers.items()}


@answers("stack-load", StackLoad)
def loaded(design: dict[str, Any]) -> dict[str, Any]:
    """Time and temperatures of a stack under a load."""
    system, work = f"{design['devices']}x{design['chip']}", work_asked(design)
    asked = Question(system=system, model=design["model"], plan=design["plan"], work=work)
    result, _ = asked.answer([f"chip.{path}={value}" for path, value in changes_of(design).items()])
    chip = result.system.chip
    told = {
        "layers": None if chip.stack is None else int(chip.stack.layers),
        "fits": bool(result.fits),
        "why": "; ".join(str(why) for why in result.infeasible),
        "plan": division_text(result.plan),
        "sustained": finite(sustained_bandwidth(chip)),
        **floats(chip, "peak=memory.bandwidth cores=compute.cores"),
        "title": f"{result.model.name} {design['phase']}, batch {design['batch']}",
    }
    if not result.fits:
        return told
    metrics = result.metrics
    time = metrics.ttft if design["phase"] == "prefill" else metrics.tpot
    told |= {"time": finite(time), **floats(metrics, "tokens_per_s power=device_power clock")}
    told |= {"binds": step_bound(result), **floats(metrics, "energy=energy_per_token cost=cost_per_mtoken")}
    return told | ({"heat": temperature_maps(step_heat(result))} if chip.heat is not None else {})


def step_heat(result: Result) -> Temperatures:
    """Temperatures at the powers of a result's hottest step, on the cells that predictions use."""
    chip, step = result.system.chip, max(result.steps, key=lambda s: float(s.price.energy / s.time))
    logic, connected, idle = (float(power) for power in dissipated(chip, step))
    assert chip.stack is not None
    return heat(chip, logic, (connected + idle) / float(chip.stack.layers), cells=CELLS)


def temperature_maps(found: Temperatures) -> dict[str, Any]:
    """What `strata heat` tells, with the temperatures of each die's cells [K]."""
    told = temperatures_dict(found)
    for die in told["dies"]:
        die["cells_K"] = np.round(found.field.of(die["name"])[0], 3).tolist()
    return told | {"margin_K": min(die["limit_K"] - die["max_K"] for die in told["dies"])}
