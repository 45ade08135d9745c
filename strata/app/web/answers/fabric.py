"""Fabric: how devices are joined, which rank of a plan each one is, what a collective puts on the links."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from strata.app.render.fabric import caption, panels_of, shape_text, topology_dict
from strata.app.render.operations import collective_dicts
from strata.app.render.prediction import finite
from strata.app.render.tables import picked
from strata.app.web.answers import Count, Name, NameOrNone, Text, WebQuestion, answers
from strata.app.web.answers.what_if import work_asked
from strata.base.errors import BadValue, require
from strata.base.units import show
from strata.hardware.fabric import check_group
from strata.hardware.system import System
from strata.hardware.system import system as make_system
from strata.hardware.topology import topology
from strata.mapping.place import rank_numbers
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.pricing.network.collective_cost import CollectiveCost, group_collective
from strata.pricing.network.link_loads import LevelLoads, collective_loads, load_schedules
from strata.search.what_if import Question
from strata.workload.graph import is_collective

MOST_DRAWN = 512  # devices that are drawn and numbered one by one
MOST_LOADED = 4096  # devices whose links are counted
AXES = {
    "tp": "tensor parallel: heads, columns of products, vocabulary",
    "cp": "context parallel: tokens of a sequence",
    "ep": "expert parallel: experts of a mixture",
    "dp": "data parallel: sequences",
    "pp": "pipeline parallel: layers",
}
CURVE = np.geomspace(8.0, 8e9, 55)  # bytes, as `strata collective --svg` draws them


class JoinedDevices(WebQuestion):
    """A system, its chips on another fabric where one is named, and a plan on it."""

    system: Name = "8x8xh200"
    fabric: NameOrNone = ""
    plan: Text = ""


class StepOn(JoinedDevices):
    """The same with a model, to see which collectives its step has."""

    model: Name = "llama-3-70b"
    phase: Literal["prefill", "decode", "train"] = "decode"
    batch: Count = 64
    input: Count = 1024
    engine: Name = "ideal"


class OneCollective(JoinedDevices):
    """One collective of a group of the plan; `bytes` is the whole buffer of a rank."""

    group: Name = "tp"
    pattern: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"] = (
        "all_reduce"
    )
    bytes: Annotated[float, Field(ge=1.0, le=1e15, allow_inf_nan=False)] = 64e6
    engine: Name = "ideal"
    schedule: NameOrNone = ""


def _placed(question: dict[str, Any]) -> tuple[System, Plan]:
    """The system and the plan on it; without one, the innermost dimension is tensor parallel."""
    hardware = make_system(question["system"], question["fabric"] or None)
    devices = float(np.max(hardware.devices))
    require(devices <= 1e6, "the page looks at up to a million devices", devices=int(devices))
    if question["plan"]:
        chosen = make_plan(question["plan"])
        check_group(hardware.fabric, chosen.devices)
        return hardware, chosen
    sizes = [float(d.size) for d in hardware.fabric.dimension if float(d.size) > 1]
    inner = next((s for s in sizes if s <= 16), 1.0) if sizes else 1.0
    return hardware, make_plan(tp=inner, dp=devices // inner)


@answers("fabric", JoinedDevices)
def joined(question: dict[str, Any]) -> dict[str, Any]:
    """How a fabric is wired, and where a plan's ranks lie."""
    hardware, chosen = _placed(question)
    wired = topology(hardware.fabric)
    told = topology_dict(wired)
    devices = int(float(np.max(hardware.devices)))
    levels = list(panels_of(wired))
    blocks = [int(np.prod([float(wired.fabric.dimension[i].size) for i in level])) for level in levels]
    axes = [name for name in AXES if name == "ep" or float(getattr(chosen, name)) > 1]
    every = chosen.group_ranks(chosen.active())
    axes = [name for name in axes if float(every[name][1]) > 1]
    belows = [int(np.prod(blocks[:place], dtype=int)) for place in range(len(levels))]
    return {
        "title": f"{hardware.name}: {shape_text(wired)}",
        "fabric": told["fabric"],
        "fabric_title": told["title"],
        "note": told["note"],
        "plan": plan_text(chosen),
        "devices": devices,
        "used": int(float(chosen.devices)),
        "drawn": devices <= MOST_DRAWN,
        **{name: told[name] for name in ("dimensions", "whole")},
        "panels": [
            {"dimensions": level, "below": below, "caption": [t for t, _ in caption(wired, level, below)]}
            for level, below in zip(levels, belows, strict=True)
        ],
        "axes": [{"axis": name, "size": float(every[name][1]), "says": AXES[name]} for name in axes],
        "groups": {name: float(size) for name, (_, size, _) in every.items() if float(size) > 1},
        "ranks": {
            name: picked(rank_numbers(chosen, devices, name), "number group size")
            for name in (axes if devices <= MOST_DRAWN else ())
        },
    }


@answers("fabric/step", StepOn)
def step_collectives(question: dict[str, Any]) -> dict[str, Any]:
    """Collectives of a model's step under a plan."""
    _, chosen = _placed(question)
    named = {key: question[key] for key in ("system", "model", "engine", "fabric")}
    asked = Question(**named, plan=plan_text(chosen), work=work_asked(question | {"output": 1.0}))
    result, _ = asked.answer([])
    rows: dict[tuple[str, str, float], dict[str, Any]] = {}
    step = result.steps[-1]
    for priced in step.blocks:
        for op, price in priced.ops:
            size = finite(price.time)
            if not is_collective(op) or not size:
                continue
            often = float(priced.block.count) * float(op.steps)
            key = (op.group, op.pattern, float(op.payload))
            first = {"count": 0.0, "time": 0.0, "ops": [], "exchange": op.exchange is not None}
            row = rows.setdefault(key, dict(zip(("group", "pattern", "bytes"), key, strict=True)) | first)
            row["count"] += often
            row["time"] += size * float(priced.block.count)
            row["ops"] = list(dict.fromkeys([*row["ops"], op.name]))[:6]
    listed = sorted(rows.values(), key=lambda row: -row["time"])
    gradients = float(result.summary.memory.get("gradients", 0.0))
    summed = gradients > 0 and float(chosen.zero) < 2 and chosen.dp * chosen.cp > 1
    if question["phase"] == "train" and summed:
        pattern = "reduce_scatter" if chosen.zero else "all_reduce"
        row = {"group": "dp_cp", "pattern": pattern, "bytes": gradients, "count": 1.0, "time": None}
        listed.append(row | {"ops": ["gradients a device holds"], "exchange": False})
    return {
        "collectives": listed[:24],
        "step": finite(step.time),
        "fits": bool(result.fits),
        "broken": [i.what for i in result.infeasible],
    }


@answers("fabric/collective", OneCollective)
def collective_told(question: dict[str, Any]) -> dict[str, Any]:
    """One collective of a plan's group: time, bandwidth over bytes, and the load of every link."""
    hardware, chosen = _placed(question)
    asked = (hardware, chosen, question["group"], question["pattern"])
    one = group_collective(*asked, bytes=np.array([question["bytes"]]), engine=question["engine"])
    curve = group_collective(*asked, bytes=CURVE, engine=question["engine"])
    ways = [np.broadcast_to(np.asarray(way, str), CURVE.shape) for way in curve.algorithms]
    dimensions = [d.name for d in one.fabric.dimension]
    return {
        "cost": collective_dicts(one, 1)[0],
        "dimensions": dimensions,
        "curve": {
            "bytes": CURVE,
            **picked(curve, "bus=bus_bandwidth time lower", lambda v: np.broadcast_to(v, CURVE.shape)),
            "ways": [
                ", ".join(f"{name} {way}" for name, way in zip(dimensions, chosen_ways, strict=True) if way)
                for chosen_ways in zip(*ways, strict=True)
            ],
        },
        "loads": _loads(one, chosen, question),
    }


def _loads(one: CollectiveCost, chosen: Plan, question: dict[str, Any]) -> dict[str, Any]:
    """Bytes and busy time of links, by dimension; one line where there are too many."""
    devices = int(np.prod([float(d.size) for d in one.fabric.dimension]))
    if devices > MOST_LOADED:
        return {"why": f"links are counted on up to {MOST_LOADED:,} devices"}
    members = rank_numbers(chosen, devices, question["group"]).members()
    if question["pattern"] == "send":
        return {"why": "a send is one message to a neighbour: it loads the links between the two alone"}
    schedules = load_schedules(question["pattern"], members[0], one.fabric)
    if question["schedule"] and question["schedule"] not in schedules:
        raise BadValue(f"the schedule is one of {', '.join(schedules)}, but got {question['schedule']}")
    asked = (question["pattern"], members, question["bytes"], question["schedule"])
    try:
        name, found = collective_loads(one.fabric, *asked)
    except BadValue as error:
        return {"why": str(error), "schedules": schedules}
    levels = [_level(d.name, level) for d, level in zip(one.fabric.dimension, found, strict=True)]
    busiest = max(levels, key=lambda level: level["busy"])
    left_out = () if devices <= MOST_DRAWN else ("bytes",)
    place = f"{show(busiest['most'], 'B')} {busiest['way']} at device {busiest['device']}"
    return {
        "schedule": name,
        "schedules": schedules,
        "groups": len(members),
        "levels": [{k: v for k, v in level.items() if k not in left_out} for level in levels],
        "busiest": {k: busiest[k] for k in ("name", "way", "device", "most", "busy")},
        "says": f"{busiest['name']}: {place}, busy for {show(busiest['busy'], 's')}",
    }


def _level(name: str, loads: LevelLoads) -> dict[str, Any]:
    """Loads of one dimension, and its busiest link."""
    way, most = max(loads.bytes.items(), key=lambda one: float(one[1].max(initial=0)))
    used = np.concatenate([carried[carried > 0] for carried in loads.bytes.values()] or [np.zeros(0)])
    return {
        "name": name,
        **picked(loads.level, "kind bandwidth"),
        "way": way,
        "device": int(np.argmax(most)),
        "most": float(most.max(initial=0.0)),
        "mean": float(used.mean()) if used.size else 0.0,
        "links": int(used.size),
        "busy": float(most.max(initial=0.0)) / loads.level.bandwidth,
        "bytes": {way: [round(float(b), 1) for b in carried] for way, carried in loads.bytes.items()},
    }
