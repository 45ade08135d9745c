"""Technologies, memory devices, links, bonds and packages: every number, what follows from them, and two of
a kind side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from strata.app.render.figures import note, picture
from strata.app.render.roofline_picture import shared_area
from strata.app.render.tables import table
from strata.base.arrays import Number
from strata.base.drawing import COLOURS, GREY
from strata.base.errors import StrataError, UnknownName
from strata.base.units import show
from strata.hardware.components import LinkPhy, MemoryDevice, link_phy, memory_device
from strata.hardware.technology import (
    Technology,
    area_lanes,
    bonding,
    device_bandwidth,
    device_edge_bandwidth,
    edge_bandwidth,
    edge_lanes,
    packaging,
    technology,
)
from strata.params import names, stated, value_at

# Units people quote such numbers in, with their factor to SI and a prefix for the number where it needs one.
QUOTED = {
    "m2": ((1e-12, "um2"), (1e-6, "mm2")),
    "m2/B": ((1e-12, "um2/B"),),
    "1/m": ((1e3, "1/mm"),),
    "1/m2": ((1e4, "1/cm2"), (1e12, "M/mm2")),
    "W/m2": ((1e6, "W/mm2"),),
    "J/B/m": ((1e-9, "pJ/B/mm"),),
    "B/s/m": ((1e12, "GB/s/mm"),),
    "B/s/m2": ((1e15, "GB/s/mm2"),),
    "USD/B": ((1e-9, "USD/GB"),),
    "USD/m2": ((1e6, "USD/mm2"),),
}
# Kinds of parts, in the order in which two names are looked up, with their folders.
PARTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "technology": ("technology", technology),
    "device": ("devices", memory_device),
    "link": ("links", link_phy),
    "bonding": ("bonding", bonding),
    "packaging": ("packaging", packaging),
}
SPANS = {"die": COLOURS[2], "package": COLOURS[0], "board": COLOURS[1]}
MOUNTS = {"on top": COLOURS[2], "beside": COLOURS[0], "board": COLOURS[1]}
FORMAT = "bf16"


def quoted(value: Number, unit: str) -> str:
    """A number in the unit people quote it in.

    >>> quoted(1.96e-9, "m2"), quoted(2.56e5, "1/m"), quoted(2e-8, "USD/B"), quoted(4.8e12, "B/s")
    ('1,960 um2', '256 1/mm', '20 USD/GB', '4.8 TB/s')
    """
    if unit not in QUOTED:
        return show(value, unit)
    # the coarsest unit that leaves a tenth or more in front of it, the finest where none does
    scale, name = next((q for q in reversed(QUOTED[unit]) if float(value) >= 0.1 * q[0]), QUOTED[unit][0])
    number = float(f"{float(value) / scale:.3g}")
    return f"{number:,g} {name}" if number < 1e6 else f"{number:,.0f} {name}"


def part_numbers(record: Any) -> dict[str, dict[str, Any]]:
    """Every number of a part with unit and source, memories of a die by their names, and what follows."""
    known = {_by_name(record, k): (p.value, p.unit, p.source, p.assumed) for k, p in stated(record).items()}
    known |= {
        k: (value, unit, f"follows: {why}", False) for k, (value, unit, why) in _follows(record).items()
    }
    return {
        path: {"value": value, "unit": unit, "shown": quoted(value, unit), "source": source, "assumed": mark}
        for path, (value, unit, source, mark) in known.items()
    }


def _by_name(record: Any, path: str) -> str:
    """`on_chip.0.area` as `on_chip.registers.area`."""
    first, _, rest = path.partition(".")
    index, _, last = rest.partition(".")
    return f"{first}.{value_at(record, f'{first}.{index}').name}.{last}" if index.isdecimal() else path


def _follows(record: Any) -> dict[str, tuple[Number, str, str]]:
    if isinstance(record, MemoryDevice):
        return {
            "bandwidth": (device_bandwidth(record), "B/s", "pins times their rate"),
            "edge_bandwidth": (device_edge_bandwidth(record), "B/s/m", "pins an edge times their rate"),
        }
    if isinstance(record, LinkPhy) and (record.lanes_per_edge is not None or record.bonding):
        why = f"bumps of {record.bonding} and wires of {record.packaging}"
        lanes: dict[str, Any] = {"lanes_per_edge": (edge_lanes(record), "1/m", why)}
        times, area = "times their rate, one way", area_lanes(record) * record.lane_rate
        return ({} if record.lanes_per_edge is not None else lanes) | {
            "edge_bandwidth": (edge_bandwidth(record), "B/s/m", f"lanes an edge {times}"),
            "area_bandwidth": (area, "B/s/m2", f"lanes an area {times}"),
        }
    return {}


def part_differences(first: str, second: str) -> tuple[str, list[dict[str, Any]]]:
    """The kind of two parts, and each of their numbers side by side with the ratio, second over first."""
    kind = kind_of_parts(first, second)
    left, right = (part_numbers(PARTS[kind][1](name)) for name in (first, second))
    rows = []
    for path in dict.fromkeys([*left, *right]):
        a, b = (side.get(path, {}).get("value") for side in (left, right))
        unit = (left.get(path) or right[path])["unit"]
        ratio = float(b) / float(a) if a and b is not None else None
        rows.append({"path": path, "first": a, "second": b, "unit": unit, "ratio": ratio})
    return kind, rows


def kind_of_parts(first: str, second: str) -> str:
    """The kind that two names, or TOML paths, both are of."""
    fits = [kind for kind in PARTS if all(_is(kind, name) for name in (first, second))]
    if fits:
        return fits[0]
    known = {name: kind for kind, (folder, _) in reversed(PARTS.items()) for name in names(folder)}
    listed = "strata list technologies, devices, links, bonding or packaging; or a result saved by --json"
    for name in (first, second):
        if not name.endswith(".toml") and name.lower() not in known:
            raise UnknownName("technology, device, link, bonding or packaging", name, known, listed)
    of = [known.get(name.lower(), "part") for name in (first, second)]
    raise StrataError(f"{first} is a {of[0]} and {second} is a {of[1]}: two of one kind can be compared")


def _is(kind: str, name: str) -> bool:
    folder, read = PARTS[kind]
    if not name.endswith(".toml"):
        return name.lower() in names(folder)
    try:
        read(name)
    except StrataError:
        return False
    return True


def parts_table(kind: str, rows: list[dict[str, Any]], first: str, second: str) -> Any:
    """Two parts side by side."""
    cells = []
    for row in rows:
        sides = ("-" if row[s] is None else quoted(row[s], row["unit"]) for s in ("first", "second"))
        cells.append((row["path"], *sides, "" if row["ratio"] is None else f"{row['ratio']:.3g}"))
    title = f"{kind} {first} and {second}: {second} over {first} in the last column"
    return table(title, ["quantity~", f">{first}", f">{second}", ">ratio"], cells)


def draw_nodes(path: Path) -> Path:
    """Area and energy of a multiply-add and of memory over the nodes that state a process and logic, each
    relative to the first of them.
    """
    known = [technology(name) for name in names("technology")]
    whole = [n for n in known if n.process is not None and n.logic is not None and n.on_chip]
    nodes = sorted(
        whole, key=lambda n: float(n.logic.gate_density or 0.0) if n.logic else 0.0
    )  # oldest first
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
    with picture(path, (8.4, 3.4), 1, 2) as (_, (left, right)):
        _trends(left, [n.name for n in nodes], areas, "um2", "Area")
        _trends(right, [n.name for n in nodes], energies, "pJ", "Energy")
    return path


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
        look = {"va": "center", "fontsize": 7.5, "color": colour, "annotation_clip": False}
        end, beside = (len(labels) - 1, relative[-1]), (len(labels) - 0.75, 10.0 ** places[name])
        axes.annotate(f"{name}\n{first} to {last} {unit}", end, xytext=beside, **look)
    axes.set(yscale="log", title=f"{title}, relative to {labels[0]}")
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
    links, devices = map(link_phy, names("links")), map(memory_device, names("devices"))
    parts = [(edge_bandwidth(p), p.lane_energy, p.name, SPANS[p.span], "o") for p in links]
    parts += [(device_edge_bandwidth(p), p.access_energy, p.name, MOUNTS[p.mount], "s") for p in devices]
    spots = [(float(rate) / 1e12, float(joules) * 1e12 / 8.0, *look) for rate, joules, *look in parts]
    with picture(path, (8.4, 5.2)) as (figure, axes):
        axes.set(xscale="log", yscale="log")
        for x, y, _, colour, marker in spots:
            axes.plot(x, y, marker=marker, color=colour, markersize=5, linestyle="none")
        axes.set(xlabel="GB/s over a mm of die edge, one way", ylabel="pJ a bit, both ends")
        axes.set_title("Links (circles) and memories (squares): what a bit costs, what an edge carries")
        axes.margins(x=0.12, y=0.08)
        figure.draw_without_rendering()
        _label(figure, axes, spots)
        _legend(axes)
    return path


def _label(figure: Any, axes: Any, spots: Sequence[Any]) -> None:
    """Names beside their marks, moved until none lies on another."""
    points = figure.dpi / 72.0
    right = axes.get_window_extent().x1 / points
    marks = [tuple(axes.transData.transform((x, y)) / points) for x, y, *_ in spots]
    taken: list[Any] = [(x - 3.5, y - 3.5, x + 3.5, y + 3.5) for x, y in marks]
    choices = [(side, float(step)) for step in (0, 8, -8, 16, -16, 24, -24, 32, -32) for side in (1.0, -1.0)]
    for (px, py), (x, y, name, colour, _) in zip(marks, spots, strict=True):
        wide, high = 4.1 * len(name) + 2.0, 8.0
        for side, up in choices:
            low = px + 6.0 if side > 0 else px - 6.0 - wide
            box = (low, py + up - high / 2.0, low + wide, py + up + high / 2.0)
            if box[2] < right and not any(shared_area(box, other) for other in taken):
                break
        taken.append(box)
        look = {"ha": "left" if side > 0 else "right", "va": "center", "fontsize": 7.5, "color": colour}
        arrow = {"arrowstyle": "-", "color": "#bbb", "linewidth": 0.5} if up else None
        note(axes, name, (x, y), (6.0 * side, up), arrowprops=arrow, **look)


def _legend(axes: Any) -> None:
    meaning = {"on the die": COLOURS[2], "in the package": COLOURS[0], "on the board or further": COLOURS[1]}
    meaning |= {"lower and to the right is better": GREY}
    for at, (words, colour) in enumerate(meaning.items()):
        place = 0.97 - 0.045 * at
        axes.text(0.99, place, words, color=colour, ha="right", fontsize=8, transform=axes.transAxes)
