"""A generated chip for machines and for people: components, budgets, what more would buy; a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.app.render.figures import colour_of, picture
from strata.app.render.prediction import finite_parts
from strata.app.render.tables import floats, picked, rows_table, table
from strata.app.terminal import titled
from strata.base.units import show
from strata.hardware.generate.recipe import Generation
from strata.hardware.generate.report import LOSS, REST
from strata.hardware.generate.template import CORE, MEMORY

UNITS = {"area": "m2", "power": "W", "edge": "m", "streaming": "W"}
SHOWN = {"die_area": "die area", "node_area": "package area", "perimeter": "die edge"}


def generation_dict(found: Generation) -> dict[str, Any]:
    """A generated chip for machines, in SI units."""
    made = found.made
    core, running, built = made.running.core, made.running.memory, made.built.memory
    levels = zip(made.template.levels, made.built.levels, made.running.levels, strict=True)
    nets = zip(made.template.networks or (), made.links, made.running.networks, strict=True)
    return {
        "name": found.chip.name,
        "fits": bool(found.fits),
        "infeasible": [str(why) for why in found.infeasible],
        "matrix_FLOP_per_s": finite_parts(found.chip.compute.matrix_rate),
        "vector_FLOP_per_s": float(found.chip.compute.vector_rate),
        **floats(core, "compute_units=units bundles voltage_V=point.voltage clock_Hz=clock"),
        "levels": [
            picked(level, "name scope")
            | floats(held, "banks capacity_B=capacity")
            | floats(run, "bandwidth_B_per_s=bandwidth")
            for level, held, run in levels
        ],
        "memory": {
            "device": made.device.name,
            **floats(built, "devices pins capacity_B=capacity"),
            **floats(running, "bandwidth_B_per_s=bandwidth voltage_V=point.voltage"),
        },
        "networks": [
            {"name": net.name, "link": link.name}
            | floats(run, "lanes bandwidth_B_per_s=bandwidth voltage_V=point.voltage")
            for net, link, run in nets
        ],
        "use": {f"{name}_{UNITS[name]}": parts for name, parts in found.use.items()},
        "binds": found.binds,
        **floats(made, "cost_USD=cost"),
        "worth_of_one_percent": found.worth(),
    }


def generation_tables(found: Generation) -> list[Any]:
    """A generated chip for people."""
    made = found.made
    said = f"{show(made.running.core.rate, 'FLOP/s')} {made.template.format}"
    if made.cost is not None:
        said += f", costs about {float(made.cost):,.0f} USD to make"
    own = "power: of a large product; memory and networks reach their bandwidth in turn"
    own = "power: all at once" if made.budget.split == "stated" else own
    title = f"{found.chip.name}: {made.template.title}, {made.technology.title}; {said}"
    return [titled(title, _components(found), own), "", _worth(found)]


def _components(found: Generation) -> Any:
    area, power, none = found.use["area"], found.use["power"], [""] * 5
    rows = []
    for cells in _rows(found):
        rows.append([*cells, *(_part(use, cells[0]) for use in (area, power)), found.binds[cells[0]]])
    rows.append(["leakage", *none, "", _part(power, REST), "of the die around them"])
    rows += [[LOSS, *none, "", _part(power, LOSS), "lost on the way"]] if LOSS in power else []
    rows.append(["left over", *none, _left(area), _left(power), ""])
    rows.append(["budget", *none, f"{float(area['total']) * 1e6:,.0f} mm2", show(power["total"], "W"), ""])
    head = "<component|>count|>capacity|>bandwidth|>voltage|>clock|>area|>power|<what binds"
    return rows_table(head, rows)


def _rows(found: Generation) -> list[list[str]]:
    """Name, count, capacity, bandwidth, voltage and clock of each component."""
    made = found.made
    core, memory, devices = made.running.core, made.running.memory, made.built.memory
    count = f"{float(core.units):,.0f} in {float(core.bundles):,.0f} bundles"
    rows = [[CORE, count, "", "", show(core.point.voltage, "V"), show(core.clock, "Hz")]]
    for level, built, run in zip(made.template.levels, made.built.levels, made.running.levels, strict=True):
        sizes = show(built.capacity, "B"), show(run.bandwidth, "B/s")
        rows.append([level.name, f"{float(built.banks):,.0f} banks", *sizes, "", ""])
    count = f"{float(devices.devices):,.0f} x {made.device.name}"
    sizes = show(devices.capacity, "B"), show(memory.bandwidth, "B/s")
    point = memory.point
    rows.append([MEMORY, count, *sizes, show(point.voltage, "V"), show(memory.pin_rate * 8, "Hz")])
    nets = zip(made.template.networks or (), made.links, made.running.networks, strict=True)
    for net, link, lanes in nets:
        speed = show(lanes.bandwidth, "B/s"), show(lanes.point.voltage, "V"), show(lanes.lane_rate * 8, "Hz")
        rows.append([net.name, f"{float(lanes.lanes):,.0f} x {link.name}", "", *speed])
    return rows


def _part(parts: dict[str, Any], name: str) -> str:
    return f"{100.0 * float(parts[name]) / float(parts['total']):.1f} %" if name in parts else ""


def _left(parts: dict[str, Any]) -> str:
    spent = sum(float(value) for name, value in parts.items() if name != "total")
    return _part(parts | {"": float(parts["total"]) - spent}, "")


def _worth(found: Generation) -> Any:
    """What one more percent of each budget buys, in percent."""
    worth = found.worth()
    shown = [key for key in next(iter(worth.values())) if any(abs(row[key]) > 5e-5 for row in worth.values())]
    rows = []
    for name, row in worth.items():
        cells = (f"{100.0 * row[k]:+.2f} %" if abs(row[k]) > 5e-5 else "-" for k in shown)
        rows.append((SHOWN.get(name, name), *cells))
    head = ["<1 % more", *(f">{key}" for key in shown)]
    return table("what one more percent of a budget buys", head, rows)


def draw_generation(found: Generation, path: Path) -> Path:
    """Two bars by component: the area of the die and the power of a large product."""
    with picture(path, (7.2, 2.6)) as (_, axes):
        names = [*(name for name in found.use["area"] if name != "total"), LOSS, REST]
        for place, (key, unit, scale) in enumerate((("power", "W", 1.0), ("area", "mm2", 1e6))):
            parts, start = found.use[key], 0.0
            total = float(parts["total"])
            for i, name in enumerate(names):
                wide = float(parts.get(name, 0.0)) / total
                colour = "#d9dde2" if name == REST else colour_of(i)
                label = None if place else "leakage of the rest" if name == REST else name
                axes.barh(place, wide, 0.6, left=start, color=colour, label=label)
                if wide > 0.045:
                    said = f"{wide * total * scale:.0f}"
                    axes.text(start + wide / 2, place, said, ha="center", va="center", fontsize=8)
                start += wide
            unused = None if place else "left over"
            axes.barh(place, 1.0 - start, 0.6, left=start, color="#f1f3f5", label=unused)
            axes.text(1.01, place, f"{total * scale:,.0f} {unit}", va="center", fontsize=8)
        axes.set_yticks([0, 1], ["power", "area"])
        axes.set_xlim(0.0, 1.12)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25 %", "50 %", "75 %", "100 %"])
        rate = show(found.made.running.core.rate, "FLOP/s")
        axes.set(title=f"{found.chip.name}: {rate} {found.made.template.format}")
        axes.grid(axis="y", visible=False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4, frameon=False, fontsize=8)
    return path
