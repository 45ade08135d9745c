"""A chip in ten lines: words a data sheet uses, plain numbers under one source, the rest like another chip.

.. code-block:: toml

    like = "h200"
    source = "Vendor's brief, June 2026, page 2"
    bf16 = "1.8 PFLOP/s"
    fp8 = "3.6 PFLOP/s"
    memory_bandwidth = "8 TB/s"
    memory_capacity = "192 GiB"
    power = "1000 W"
    link_bandwidth = "900 GB/s"

Every number that is not stated says whom it is inherited from (`strata show chip`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strata.base.errors import LONGEST_LIST, BadFile, BadValue
from strata.base.precision import ARITHMETIC, BYTES
from strata.base.reading import table_of
from strata.base.units import parse
from strata.hardware.derive import DERIVATIONS, lacking_rows
from strata.params import (
    all_missing,
    find,
    load_table,
    merged,
    missing_paths,
    read_toml,
    spelled_out,
    unit_at,
)

# Words of a data sheet, and the quantity of a chip that each is.
WORDS = {
    "cores": "compute.cores",
    "clock": "compute.clock",
    "vector": "compute.vector_rate",
    "memory_bandwidth": "memory.bandwidth",
    "memory_capacity": "memory.capacity",
    "memory_kind": "memory.kind",
    "cache_capacity": "cache.capacity",
    "cache_bandwidth": "cache.bandwidth",
    "power": "energy.power_limit",
    "tdp": "energy.power_limit",
    "idle_power": "energy.static_power",
    "process": "package.process",
    "die_area": "package.die_area",
    "price": "package.price",
}
SHORT_FORM = (
    'a file with like = "h200" (or base) needs only what differs, plain numbers under one source; words of a '
    f"data sheet stand for quantities: {', '.join(f'{word} is {path}' for word, path in WORDS.items())}, and "
    "names of formats (fp8) are dense matrix rates"
)
EXAMPLE = {
    "like": "h200",
    "source": "Vendor's brief, June 2026, page 2",
    "fp8": "3.6 PFLOP/s",
    "memory_bandwidth": "8 TB/s",
    "power": "1000 W",
}
# A plain number without a unit is SI: one so far from the chip it is like lacks its unit.
FAR = 1e4


def long_form(table: dict[str, Any]) -> dict[str, Any]:
    """A chip's table with words of data sheets as quantities; names of formats are matrix rates.

    >>> long_form({"name": "x", "fp8": "2 PFLOP/s", "power": "700 W"})
    {'name': 'x', 'compute': {'matrix_rate': {'fp8': '2 PFLOP/s'}}, 'energy': {'power_limit': '700 W'}}
    """
    made: dict[str, Any] = {}
    for key, value in table.items():
        path = f"compute.matrix_rate.{key}" if key in BYTES else WORDS.get(key, key)
        held: Any = value
        for name in reversed(path.split(".")) if path != key else (key,):
            held = {name: held}
        made = merged(made, held)
    return made


def written_chip(record: type) -> Any:
    """What is done to each file of a chip that is read: words of data sheets, plain numbers."""
    return lambda table, file: spelled_out(record, long_form(table), file)


def chip_table(record: type, name: str) -> tuple[dict[str, Any], str]:
    """The table of a chip, over that of the chip it is like; and that chip's name, "" where there is none."""
    path = find("chip", name)
    table, own = load_table("chip", name, written=written_chip(record)), read_toml(path)
    like = own.get("like", own.get("base"))
    if not like:
        return table, ""
    below = load_table(
        "chip", path.parent / like if like.endswith(".toml") else like, (), written_chip(record)
    )
    _check_units(own, below, record, path.name)
    name = str(below.get("name", like))
    return with_new_formats(table, name), name


def with_new_formats(table: dict[str, Any], like: str) -> dict[str, Any]:
    """Formats that the chip underneath lacks: efficiency of the next wider one, energy at its power."""
    where = f"a chip like {like}"
    compute, energy = dict(table_of(table, "compute", where)), dict(table_of(table, "energy", where))
    rates = table_of(compute, "matrix_rate", where)
    efficiency = dict(table_of(compute, "matrix_efficiency", where))
    joules = dict(table_of(energy, "matrix", where))
    for name in sorted((r for r in rates if r in BYTES), key=lambda r: -BYTES[r]):
        wider = _wider(name, [r for r in rates if r in efficiency and r in joules])
        if wider is None:
            continue
        if name not in efficiency:
            value = _stated_value(efficiency[wider], f"compute.matrix_efficiency.{wider}")
            told = f"assumed: as {wider} on {like}; no figure for {name}"
            efficiency[name] = {"value": value, "source": told}
        if name not in joules and ARITHMETIC.get(name) not in joules:
            ratio = _rate(rates[wider]) / _rate(rates[name])
            each = parse(_stated_value(joules[wider], "energy.matrix"), "J/FLOP", f"energy.matrix.{wider}")
            told = f"assumed: {wider} of {like} x {ratio:.3g}, so that products at either peak draw the same"
            joules[name] = {"value": f"{each * ratio!r} J/FLOP", "source": f"{told} power"}
    compute["matrix_efficiency"], energy["matrix"] = efficiency, joules
    return {**table, "compute": compute, "energy": energy}


def _rate(entry: Any) -> float:
    return parse(_stated_value(entry, "compute.matrix_rate"), "FLOP/s", "compute.matrix_rate")


def _stated_value(entry: Any, what: str) -> Any:
    """The value of an entry with its source."""
    if not isinstance(entry, Mapping) or "value" not in entry:
        raise BadFile(f"{what} is a number with its unit, but got {entry!r}")
    return entry["value"]


def _wider(name: str, known: list[str]) -> str | None:
    """The narrowest of known formats that is no narrower than this one, else the narrowest there is."""
    others = sorted((k for k in known if k != name and k in BYTES), key=BYTES.__getitem__)
    return next((k for k in others if BYTES[k] >= BYTES[name]), others[-1] if others else None)


def check_complete(record: type, table: Mapping[str, Any], file: str) -> None:
    """Refuse a chip that lacks quantities, and name all of them."""
    required = list(missing_paths(record, table))
    rows = lacking_rows(DERIVATIONS, lambda path: _at(table, path) is not None)
    lacking = [*required, *(row.path for row in rows)]
    compute = table.get("compute")
    if isinstance(compute, Mapping) and isinstance(rates := compute.get("matrix_rate"), Mapping):
        known = compute.get("matrix_efficiency")
        if isinstance(known, Mapping):
            lacking += [f"compute.matrix_efficiency.{p}" for p in rates if p not in known and p in BYTES]
    unknown = [key for key in table if key not in record.__dataclass_fields__]  # type: ignore[attr-defined]
    if required and not unknown:
        hint = '; like = "h200" (or another chip) takes what is not stated from there, and says so'
        raise BadFile(f"{file}: {all_missing(lacking)}{hint if len(lacking) > 3 else ''}", LONGEST_LIST)


def _check_units(table: Mapping[str, Any], below: Mapping[str, Any], record: type, file: str) -> None:
    """Refuse plain numbers without a unit that lie far from those of the chip that this one is like."""
    for path, value in _plain(long_form(dict(table))):
        there = _at(below, path)
        unit = unit_at(record, path)
        if unit in (None, "1") or not isinstance(there, Mapping) or "value" not in there:
            continue  # where the other has a table of them, its record says what is wrong
        usual = parse(there["value"], unit, path)
        if value > 0 and usual > 0 and not 1 / FAR < value / usual < FAR:
            raise BadValue(
                f"{file}: {path} = {value:g} is read in SI, {value:g} {unit}, but {below.get('name')} has "
                f'{there["value"]}; write the unit, like "{there["value"]}"'
            )


def _plain(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for key, value in table.items():
        if isinstance(value, Mapping) and "value" not in value:
            found += _plain(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append((prefix + key, float(value)))
    return found


def _at(table: Mapping[str, Any], path: str) -> Any:
    node: Any = table
    for name in path.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node
