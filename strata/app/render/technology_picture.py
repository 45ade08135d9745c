"""Pictures of technology: arithmetic and memory cells over nodes, and links and memories by energy and reach
of an edge.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from strata.drawing import COLOURS, GREY, STYLE, pyplot_of, save
from strata.hardware.components import link_phy, memory_device
from strata.hardware.lanes import device_edge_bandwidth, edge_bandwidth
from strata.hardware.technology import Technology, technology
from strata.params import names, value_at

SPANS = {"die": COLOURS[2], "package": COLOURS[0], "board": COLOURS[1]}
MOUNTS = {"on top": COLOURS[2], "beside": COLOURS[0], "board": COLOURS[1]}
FORMAT = "bf16"


def draw_nodes(path: Path) -> Path:
    """Area and energy of a multiply-add and of memory over the nodes that state a process and logic, each
    relative to the first of them.
    """
    nodes = process_nodes()
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
        names_of_nodes = [n.name for n in nodes]
        areas = {
            f"{FORMAT} multiply-add": _values(nodes, f"logic.mac_area.{FORMAT}", 1e12),
            "SRAM cell of a bit": _values(nodes, "process.sram_cell", 1e12),
            "crosspoint of the cache": [_cache(n).port_area * 1e12 for n in nodes],
        }
        energies = {
            f"{FORMAT} multiply-add": _values(nodes, f"logic.mac_energy.{FORMAT}", 1e12),
            "byte of a cache, with its way": [_cache(n).read_energy * 1e12 for n in nodes],
            "byte over a mm of wire": _values(nodes, "process.wire_energy", 1e9),
        }
        _trends(left, names_of_nodes, areas, "um2", "Area")
        _trends(right, names_of_nodes, energies, "pJ", "Energy")
        return save(pyplot, figure, path)


def process_nodes() -> list[Technology]:
    """Technologies of foundries, oldest first: those with a process, logic and a cache."""
    known = [technology(name) for name in names("technology")]
    whole = [n for n in known if n.process is not None and n.logic is not None and n.on_chip]
    return sorted(whole, key=lambda n: float(n.logic.gate_density or 0.0) if n.logic else 0.0)


def _values(nodes: list[Technology], path: str, scale: float) -> list[float]:
    return [float(value_at(node, path)) * scale for node in nodes]


def _cache(node: Technology) -> Any:
    """The densest memory of a die that has a crossbar of its own."""
    return min((m for m in node.on_chip if m.kind == "SRAM"), key=lambda m: float(m.area))


def _trends(axes: Any, labels: list[str], series: dict[str, list[float]], unit: str, title: str) -> None:
    ends = {name: math.log10(values[-1] / values[0]) for name, values in series.items()}
    places = _apart(ends, 0.11 * -min(ends.values()))
    for colour, (name, values) in zip(COLOURS, series.items(), strict=False):
        relative = [v / values[0] for v in values]
        axes.plot(labels, relative, color=colour, marker="o", markersize=3.5, linewidth=1.4)
        first, last = (f"{float(f'{v:.3g}'):,g}" for v in (values[0], values[-1]))
        axes.annotate(
            f"{name}\n{first} to {last} {unit}",
            (len(labels) - 1, relative[-1]),
            xytext=(len(labels) - 0.75, 10.0 ** places[name]),
            va="center",
            fontsize=7.5,
            color=colour,
            annotation_clip=False,
        )
    axes.set_yscale("log")
    axes.set_title(f"{title}, relative to {labels[0]}")
    axes.margins(x=0.03)
    axes.set_yticks([1.0, 0.5, 0.2, 0.1], ["1", "1/2", "1/5", "1/10"])
    axes.minorticks_off()


def _apart(places: dict[str, float], gap: float) -> dict[str, float]:
    """Places moved up until a gap lies between any two."""
    found: dict[str, float] = {}
    last = -math.inf
    for name, place in sorted(places.items(), key=lambda item: item[1]):
        last = found[name] = max(place, last + gap)
    return found


def draw_reach(path: Path) -> Path:
    """Every link and memory device: energy of a bit against what a length of die edge carries one way."""
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(8.4, 5.2), layout="constrained")
        spots: list[tuple[float, float, str, str, str]] = []
        for name in names("links"):
            link = link_phy(name)
            x, y = float(edge_bandwidth(link)) / 1e12, float(link.lane_energy) * 1e12 / 8.0
            spots.append((x, y, name, SPANS[link.span], "o"))
        for name in names("devices"):
            device = memory_device(name)
            x, y = float(device_edge_bandwidth(device)) / 1e12, float(device.access_energy) * 1e12 / 8.0
            spots.append((x, y, name, MOUNTS[device.mount], "s"))
        axes.set_xscale("log")
        axes.set_yscale("log")
        for x, y, _, colour, marker in spots:
            axes.plot(x, y, marker=marker, color=colour, markersize=5, linestyle="none")
        axes.set_xlabel("GB/s over a mm of die edge, one way")
        axes.set_ylabel("pJ a bit, both ends")
        axes.set_title("Links (circles) and memories (squares): what a bit costs, what an edge carries")
        axes.margins(x=0.12, y=0.08)
        figure.draw_without_rendering()
        _label(figure, axes, spots)
        _legend(axes)
        return save(pyplot, figure, path)


def _label(figure: Any, axes: Any, spots: list[tuple[float, float, str, str, str]]) -> None:
    """Names beside their marks, moved until none lies on another."""
    taken: list[tuple[float, float, float, float]] = []
    points = figure.dpi / 72.0
    right = axes.get_window_extent().x1 / points
    marks = [tuple(axes.transData.transform((x, y)) / points) for x, y, *_ in spots]
    taken += [(x - 3.5, y - 3.5, x + 3.5, y + 3.5) for x, y in marks]
    for (px, py), (x, y, name, colour, _) in zip(marks, spots, strict=True):
        wide, high = 4.1 * len(name) + 2.0, 8.0
        choices = [
            (side, float(step)) for step in (0, 8, -8, 16, -16, 24, -24, 32, -32) for side in (1.0, -1.0)
        ]
        for side, up in choices:
            low = px + 6.0 if side > 0 else px - 6.0 - wide
            box = (low, py + up - high / 2.0, low + wide, py + up + high / 2.0)
            if box[2] < right and not any(_overlap(box, other) for other in taken):
                break
        taken.append(box)
        axes.annotate(
            name,
            (x, y),
            xytext=(6.0 * side, up),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=7.5,
            color=colour,
            arrowprops={"arrowstyle": "-", "color": "#bbb", "linewidth": 0.5} if up else None,
        )


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _legend(axes: Any) -> None:
    for at, (said, colour) in enumerate(
        (("on the die", COLOURS[2]), ("in the package", COLOURS[0]), ("on the board or further", COLOURS[1]))
    ):
        axes.text(
            0.99, 0.97 - 0.045 * at, said, color=colour, ha="right", fontsize=8, transform=axes.transAxes
        )
    axes.text(
        0.99, 0.97 - 0.135, "lower and to the right is better", color=GREY, ha="right", fontsize=8,
        transform=axes.transAxes,
    )  # fmt: skip
