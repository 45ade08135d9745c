"""Temperatures of a chip for machines, for people, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.tables import cells_of, floats, picked, table
from strata.base.arrays import Array, Number
from strata.base.drawing import DARK, GREY, Canvas, Point
from strata.base.units import show
from strata.hardware.temperatures import Temperatures
from strata.hardware.thermal.grid import Layer

SHOWN_TIMES = 8  # rows of temperatures in time
RAMP = ("#fffade", "#fcd480", "#f59652", "#da523e", "#a01e3c", "#540e34")  # cool to hot: yellow to wine
OVER = "#b03030"  # of what is above its limit
LEFT, TOP, WIDE, LABELS = 24.0, 84.0, 420.0, 196.0  # of the section, and the room for its labels
SIDE, GAP, ACROSS = 112.0, 18.0, 4  # of a map, between maps, and maps in a row
TALL = 430.0  # of the section at most
FOOT = 70.0
# Heights of layers, not to scale: bonds would be hairs and the sink would be all.
HEIGHTS = {"sink": 64.0, "lid": 44.0, "interface": 12.0, "bond": 6.0, "logic": 26.0, "dram": 20.0}


def temperatures_dict(temperatures: Temperatures) -> dict[str, Any]:
    """Temperatures for machines, in SI units."""
    die, why = temperatures.binding, temperatures.infeasible
    of_die = "name power_W=power max_K=hottest mean_K=mean min_K=coolest limit_K=limit"
    of_path = "name resistance_K_per_W=resistance power_W=power rise_K=rise"
    told: dict[str, Any] = {
        **picked(temperatures, "chip=chip.name cooling=cooling.title arrangement=cooling.arrangement"),
        **picked(temperatures, "power_W=power heat_out_W=field.heat_out"),
        **floats(temperatures, "ambient_K=cooling.ambient"),
        "fits": why is None,
        "why": None if why is None else str(why),
        "binding": die.name,
        "highest_power_W": temperatures.highest_power,
        "dies": [picked(d, of_die) for d in temperatures.dies],
        "path": [picked(p, of_path) for p in temperatures.path],
    }
    if temperatures.history is not None:
        shown = {d.name: temperatures.history.hottest[d.name] for d in temperatures.dies}
        told["history"] = {"time_s": temperatures.history.times, "max_K": shown}
    return told


def temperature_rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Temperatures as rows, one a die, or one a moment where they were followed over time."""
    if "history" not in told:
        return [{"chip": told["chip"], "cooling": told["cooling"], **die} for die in told["dies"]]
    dies = told["history"]["max_K"]
    rows = []
    for i, time in enumerate(told["history"]["time_s"]):
        rows.append({"chip": told["chip"], "time_s": time, "max_K": {die: dies[die][i] for die in dies}})
    return rows


def temperatures_tables(temperatures: Temperatures) -> list[Any]:
    """Temperatures for people."""
    cooling, die, why = temperatures.cooling, temperatures.binding, temperatures.infeasible
    dies = []
    for d in temperatures.dies:
        degrees = (celsius(t) for t in (d.hottest, d.mean, d.coolest, d.limit))
        dies.append((*cells_of(d, "name power:W"), *degrees, f"{d.limit - d.hottest:.1f} K"))
    styles = ["bold" if d is die else "" for d in temperatures.dies]
    path = temperatures.path
    way = ((p.name, f"{p.resistance:.4f} K/W", show(p.power, "W"), f"{p.rise:.1f} K") for p in path)
    arrangement = cooling.arrangement.replace("_", " ")
    title = f"{temperatures.chip.name}: {show(temperatures.power, 'W')}, coolant {celsius(cooling.ambient)}, "
    title += f"{arrangement}\n{cooling.title}"
    said = f"{die.name} binds: it reaches {celsius(die.limit)} at {show(temperatures.highest_power, 'W')} "
    said += "shared out like this" + ("" if why is None else f"\ntoo hot: {why}")
    below = "from the coolant down; the last line is what is not straight through: "
    below += "spreading into the lid, and uneven power"
    return [
        table(title, "<die|>power|>hottest|>mean|>coolest|>limit|>left", dies, "", styles),
        table("", "<way to the coolant|>resistance|>power|>rise", way, below),
        *_in_time(temperatures),
        said,
    ]


def _in_time(temperatures: Temperatures) -> list[Any]:
    """A few of the temperatures after power is switched on."""
    history = temperatures.history
    if history is None:
        return []
    memory, last = [d.name for d in temperatures.dies if d.name != "logic"], len(history.times) - 1
    rows = []
    for i in sorted({round(last / 2**k) for k in range(SHOWN_TIMES)}):
        warmest = [celsius(max(history.hottest[n][i] for n in memory))] if memory else []
        rows.append((show(history.times[i], "s"), celsius(history.hottest["logic"][i]), *warmest))
    head = ">after|>logic" + ("|>hottest DRAM" if memory else "")
    return [table("", head, rows, "power switched on at the coolant's temperature")]


def celsius(kelvin: Number) -> str:
    """A temperature in degrees Celsius.

    >>> celsius(358.15)
    '85.0 °C'
    """
    return f"{kelvin - 273.15:.1f} °C"


class HeatCanvas(Canvas):
    """A canvas with one scale of colours for temperatures [K]."""

    def __init__(self, width: float, height: float, scale: Point) -> None:
        super().__init__(width, height)
        from matplotlib.colors import LinearSegmentedColormap

        self.scale = scale
        self.ramp = LinearSegmentedColormap.from_list("heat", RAMP)

    def field(self, kelvin: Array, corner: Point, size: Point) -> None:
        """Temperatures in a rectangle."""
        self.image(kelvin, self.scale, corner, size, self.ramp)


def draw_temperatures(temperatures: Temperatures, path: Path) -> Path:
    """A stack's temperatures as SVG."""
    dies, cooling, binding = temperatures.dies, temperatures.cooling, temperatures.binding
    layers = temperatures.field.problem.assembly.layers
    low = min(temperatures.field.coolest(layer.name) for layer in layers)
    high = max(d.hottest for d in dies)
    right = LEFT + WIDE + LABELS
    below = TOP + max(sum(drawn_heights(temperatures)), -(-len(dies) // ACROSS) * (SIDE + 40))
    scale = (low, high if high > low + 1e-9 else low + 1.0)
    canvas = HeatCanvas(right + ACROSS * (SIDE + GAP) + 6, below + FOOT, scale)
    cooled = cooling.title.split(",")[0] or "its cooling"
    title = f"{temperatures.chip.name}: {show(temperatures.power, 'W')} under {cooled}"
    canvas.text((LEFT, 28), title, 15, DARK, bold=True)
    facts = f"{binding.name} binds: {celsius(binding.hottest)} of {celsius(binding.limit)} · "
    facts += f"coolant {celsius(float(cooling.ambient))} · "
    facts += f"{show(temperatures.highest_power, 'W')} reach the limit"
    canvas.text((LEFT, 48), facts, 12, GREY if temperatures.infeasible is None else OVER)
    canvas.text((LEFT, TOP - 10), "section through the hottest point; heights not to scale", 11, GREY)
    said = "each die from above, from the coolant down; o: its hottest point"
    canvas.text((right, TOP - 10), said, 11, GREY)
    draw_section(canvas, temperatures)
    for i, die in enumerate(dies):
        corner = right + (i % ACROSS) * (SIDE + GAP), TOP + (i // ACROSS) * (SIDE + 40)
        draw_die(canvas, temperatures, die.name, corner)
    draw_scale(canvas, temperatures, (LEFT, below + FOOT - 34))
    return canvas.save(path)


def _kind(layer: Layer) -> str:
    return layer.name.removesuffix(" bulk").rstrip("0123456789")


def drawn_layers(temperatures: Temperatures) -> list[Layer]:
    """Layers from the coolant down; a die is drawn once, with the temperatures of its hot face."""
    layers = reversed(temperatures.field.problem.assembly.layers)
    return [layer for layer in layers if not layer.name.endswith(" bulk")]


def drawn_heights(temperatures: Temperatures) -> list[float]:
    """How high each of these layers is drawn."""
    heights = [HEIGHTS.get(_kind(layer), 16.0) for layer in drawn_layers(temperatures)]
    shrink = min(1.0, TALL / sum(heights))
    return [h * shrink for h in heights]


def draw_section(canvas: HeatCanvas, temperatures: Temperatures) -> None:
    """Layers on each other, each as wide as it is against the widest, coloured by temperatures along x."""
    field = temperatures.field
    edges, places = field.problem.edges, field.problem.places
    hot = max(temperatures.dies, key=lambda d: d.hottest).name
    peak = np.unravel_index(np.argmax(field.of(hot)), field.of(hot).shape)
    row = places[hot][0].first + int(peak[1])
    y, widest = TOP, edges[-1] - edges[0]
    thick = {name.removesuffix(" bulk"): 0.0 for name in places}
    for layer in field.problem.assembly.layers:
        thick[layer.name.removesuffix(" bulk")] += layer.thickness
    named: set[str] = set()
    for layer, height in zip(drawn_layers(temperatures), drawn_heights(temperatures), strict=True):
        own, kind = places[layer.name][0], _kind(layer)
        across = field.of(layer.name)[::-1, row - own.first, :]  # the top slice first
        wide = WIDE * layer.side / widest
        corner, size = (LEFT + (WIDE - wide) / 2, y), (wide, height)
        canvas.field(even(across, edges[own.first : own.first + len(own.widths) + 1]), corner, size)
        canvas.box(corner, size, fill="none", edge="#fff", width=0.8)
        # Bonds are all alike: the first is named, and nothing that is too thin for its letters.
        first = kind not in named and (height >= 9.5 or kind == "bond")
        if first or (kind == "dram" and height >= 11.0):
            middle, name = y + height / 2, "bonds" if kind == "bond" else layer.name
            said = f"{name}, {show(thick[layer.name], 'm')}: {celsius(field.hottest(layer.name))}"
            start = (corner[0] + wide + 3, middle)
            canvas.line(start, (LEFT + WIDE + 6, middle), GREY, width=0.6, alpha=0.6)
            canvas.text((LEFT + WIDE + 10, middle + 3.5), said, 10.5, DARK)
        named.add(kind)
        y += height
    canvas.text((LEFT + WIDE / 2, y + 14), "board", 10.5, GREY, centred=True)


def draw_die(canvas: HeatCanvas, temperatures: Temperatures, name: str, corner: Point) -> None:
    """One die from above, with its hottest point."""
    kelvin = temperatures.field.of(name)[0]
    x, y = corner
    binds = temperatures.binding.name == name
    canvas.field(kelvin, corner, (SIDE, SIDE))
    edge, width = (DARK, 2.0) if binds else ("#d8d8d8", 1.0)
    canvas.box(corner, (SIDE, SIDE), fill="none", edge=edge, width=width)
    row, column = np.unravel_index(np.argmax(kelvin), kelvin.shape)
    spot = x + (column + 0.5) / kelvin.shape[1] * SIDE, y + (row + 0.5) / kelvin.shape[0] * SIDE
    canvas.circle(spot, 4.0, fill="none", edge="#fff", width=1.6)
    die = next(d for d in temperatures.dies if d.name == name)
    canvas.text((x, y + SIDE + 14), f"{name}, {show(die.power, 'W')}", 11, DARK, bold=binds)
    said = f"{die.coolest - 273.15:.1f} to {celsius(die.hottest)}"
    canvas.text((x, y + SIDE + 27), said, 10.5, OVER if die.hottest > die.limit else GREY)


def draw_scale(canvas: HeatCanvas, temperatures: Temperatures, corner: Point) -> None:
    """The scale of colours, with the limits that lie on it."""
    (x, y), (low, high) = corner, canvas.scale
    canvas.field(np.linspace(low, high, 128)[None], corner, (WIDE, 12.0))
    for kelvin in np.linspace(low, high, 5):
        place = x + (kelvin - low) / (high - low) * WIDE
        canvas.text((place, y + 26), celsius(float(kelvin)), 10, GREY, centred=True)
    cooling = temperatures.cooling
    limits = {"DRAM limit": float(cooling.dram_limit), "logic limit": float(cooling.logic_limit)}
    for said, limit in limits.items():
        if low < limit < high:
            place = x + (limit - low) / (high - low) * WIDE
            canvas.line((place, y - 5), (place, y + 14), DARK, width=1.4, alpha=1.0)
            canvas.text((place, y - 8), said, 10, DARK, centred=True)


def even(values: Array, edges: Array, count: int = 96) -> Array:
    """Cells of unequal width as equal ones, between cell middles by straight lines.

    >>> even(np.array([[1.0, 3.0]]), np.array([0.0, 1.0, 3.0]), count=3).round(2).tolist()
    [[1.0, 2.33, 3.0]]
    """
    middles = (edges[1:] + edges[:-1]) / 2
    pixels = np.linspace(edges[0], edges[-1], 2 * count + 1)[1::2]
    return np.array([np.interp(pixels, middles, row) for row in values])
