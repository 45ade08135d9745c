"""Technologies, memory devices, links, bonds and packages: every number, what follows from them, and two of
a kind side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strata.app.terminal import plain_table, titled
from strata.arrays import Number
from strata.errors import StrataError, UnknownName
from strata.hardware.components import LinkPhy, MemoryDevice, link_phy, memory_device
from strata.hardware.lanes import (
    area_lanes,
    device_bandwidth,
    device_edge_bandwidth,
    edge_bandwidth,
    edge_lanes,
)
from strata.hardware.technology import bonding, packaging, technology
from strata.params import names, stated, value_at
from strata.units import show

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


# Kinds of parts, in the order in which two names are looked up, with their folders.
PARTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "technology": ("technology", technology),
    "device": ("devices", memory_device),
    "link": ("links", link_phy),
    "bonding": ("bonding", bonding),
    "packaging": ("packaging", packaging),
}


def part_numbers(record: Any) -> dict[str, dict[str, Any]]:
    """Every number of a part with unit and source, memories of a die by their names, and what follows."""
    numbers = {
        _by_name(record, path): _number(p.value, p.unit, p.source, p.assumed)
        for path, p in stated(record).items()
    }
    for path, (value, unit, why) in _follows(record).items():
        numbers[path] = _number(value, unit, f"follows: {why}", False)
    return numbers


def _number(value: Number, unit: str, source: str, assumed: bool) -> dict[str, Any]:
    return {
        "value": value,
        "unit": unit,
        "shown": quoted(value, unit),
        "source": source,
        "assumed": assumed,
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
        lanes = edge_lanes(record)
        found: dict[str, tuple[Number, str, str]] = {
            "edge_bandwidth": (edge_bandwidth(record), "B/s/m", "lanes an edge times their rate, one way"),
            "area_bandwidth": (
                area_lanes(record) * record.lane_rate,
                "B/s/m2",
                "lanes an area times their rate, one way",
            ),
        }
        if record.lanes_per_edge is None:
            why = f"bumps of {record.bonding} and wires of {record.packaging}"
            found = {"lanes_per_edge": (lanes, "1/m", why), **found}
        return found
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
    for name in (first, second):
        if not name.endswith(".toml") and name.lower() not in known:
            listed = (
                "strata list technologies, devices, links, bonding or packaging; or a result saved by --json"
            )
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
    table = plain_table()
    table.add_column("quantity", overflow="fold")
    table.add_column(first, justify="right", no_wrap=True)
    table.add_column(second, justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    for row in rows:
        sides = ("-" if row[s] is None else quoted(row[s], row["unit"]) for s in ("first", "second"))
        table.add_row(row["path"], *sides, "" if row["ratio"] is None else f"{row['ratio']:.3g}")
    return titled(f"{kind} {first} and {second}: {second} over {first} in the last column", table)
