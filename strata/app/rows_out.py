"""Answers for machines: the units of their numbers, found by the keys above each, told in one table; and
tables of plain values in CSV or Parquet files, with units in the names of columns.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from strata.app.terminal import plain_json, wrote
from strata.base.errors import BadFile, BadValue
from strata.base.shipped import extra_package

KINDS_OF_TABLE = (".csv", ".parquet")
Rows = list[dict[str, Any]]
# Parts of an answer whose names say nothing in a column's name, and parts that are no columns.
_PLAIN, _LEFT_OUT = ("question", "metrics", "design", "numbers"), ("units", "inputs")
ONE = "1"
# How a key says its unit, longer ends first: `time_s`, `memory_B`, `bandwidth_B_per_s`, `price_USD`.
_ENDS = (
    "J_per_B", "K_per_W", "B_per_s", "FLOP_per_s", "flop_per_s", "m2", "USD", "Hz", "s", "B", "J", "W", "K",
    "V", "m",
)  # fmt: skip
_RATE = re.compile(r"\w+_per_s(_per_\w+)?")
# Keys that say no unit by themselves, in any answer; `a.b` is key b inside a, `a.*` every key inside a.
KEYS = {
    "s": "bound closed_form cpu_seconds dimensions.algorithms gradients guess interval.high "
    "interval.low ops.lower ops.time partitions.compute partitions.memory partitions.network "
    "queued read_time reads seconds send send_time stage step time ttft_p95 verify waits",
    "B": "bytes memory output_bytes payload sent_bytes sram traffic weight_bytes",
    "1/s": "goodput most_rate rate reader_rate tokens_per_s_without writer_rate",
    "FLOP": "flop",
    "FLOP/s": "flop_per_s",
    "J": "energy_per_mtoken",
    "day": "days",
    "MWh": "mwh",
    "m2": "design.die_area design.node_area stated_design.die_area stated_design.node_area",
    "as the claim says": "claims.ours claims.paper",
    "as the goal says": "best methods",
    # counts, shares, ratios, sizes
    ONE: "acceptance active after alone banks batch before best_window bias bounded branches bubble "
    "bundles candidates clients compared.loss compared.partitions compute_units considered context cores "
    "cores_sold cores_stated count degrees design devices devices.* diameter die_yield dies empty epochs "
    "evaluations failed feasible fitted gain gap held_out high_factor hops group in_flight index input "
    "lanes layers layouts_fused links longest loss low_factor mape mean_hops median memory_share mesh "
    "microbatches minibatch more most_clients networks networks_used nodes numbers out out_by_reason "
    "output oversubscription p90 package_yield parameters partitions partitions.passes partitions.tiles "
    "partitions.times passes pays pins points prompt ranks ratio read_share readers reason reduction "
    "refined refresh_leaves response rollout_devices rounds row rows samples sequences share shared_hops "
    "shared_unicast_hops sharing size sizes skew slots solved speedup spread stacking_yield stages "
    "stated_design stride tiles times tokens trace training_devices upgrades utilisation variation "
    "verified vias weighted window worst worth_of_one_percent worth_of_one_percent.* writers within_15 "
    "within_30 "
    "arena.left_out arena.ours arena.our_median error open predictions failures_per_month goodput_lost "
    "goodput_share hfu length micro_batch plans steps",
}
_UNITS = {key: unit for unit, keys in KEYS.items() for key in keys.split()}


def keep_table(table: Path | None, told: Any, rows: str | Callable[[Any], Rows] = "") -> None:
    """Write the rows of an answer, where a file is asked for: its entries, those under a key, or as told."""
    if table is not None:
        data = with_units(plain_json(told))
        wrote("table", write_rows(table, *named_rows(data, rows)))


def named_rows(told: Any, rows: str | Callable[[Any], Rows] = "") -> tuple[Rows, dict[str, str]]:
    """The rows of an answer and the unit of each column.

    >>> named_rows({"chip": "a", "dies": [{"name": "logic", "max_K": 350.0, "parts_W": {"io": 2.0}}]}, "dies")
    ([{'chip': 'a', 'name': 'logic', 'max_K': 350.0, 'parts_W.io': 2.0}], {'max_K': 'K', 'parts_W.io': 'W'})
    """
    entries, before = (rows(told), {}) if callable(rows) else _entries(told, rows)
    units: dict[str, str] = told.get("units", {}) if isinstance(told, dict) else {}
    paths = [_flat(entry) for entry in entries]
    names = _column_names(list(dict.fromkeys(keys for flat in paths for keys in flat)))
    found = [before | {names[keys]: value for keys, value in flat.items()} for flat in paths]
    own = [with_units(entry).get("units", {}) for entry in entries[:1]]
    known = [table for table in (units, *own) if isinstance(table, dict)]
    columns = {}
    for keys, name in names.items():
        if any(isinstance(flat.get(keys), str | bool) for flat in paths):
            continue
        inside = (rows, *keys) if isinstance(rows, str) and rows else keys
        stated = (u for table in known if (u := unit_read(inside, table)))
        if unit := next(stated, None) or (unit_under(inside) or ("", ""))[1]:
            columns[name] = unit
    return found, {} if any("unit" in entry for entry in entries) else columns


def _entries(told: Any, key: str) -> tuple[Rows, dict[str, Any]]:
    """The entries of an answer that are rows, and what all of them have in common: names of the answer."""
    if isinstance(told, list):
        return [entry for entry in told if isinstance(entry, dict)], {}
    under = told.get(key) if key else None
    if not under:
        return [told], {}
    if isinstance(under, dict):
        under = [{"name": name, **one} for name, one in under.items()]
    taken = {k for entry in under for k in entry}
    taken |= {"title", "note", "why", "proof", "paper"}  # sentences
    return under, {k: v for k, v in told.items() if isinstance(v, str) and k not in taken}


def _flat(node: dict[str, Any], keys: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Plain values of an entry by their keys; a list of them is one text, lists of entries are left out."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in node.items():
        if isinstance(value, dict):
            found |= {} if key in _LEFT_OUT else _flat(value, (*keys, key))
        elif not isinstance(value, list):
            found[*keys, key] = value
        elif not any(isinstance(item, dict | list) for item in value):
            found[*keys, key] = ", ".join(str(item) for item in value)
    return found


def _column_names(paths: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A name for each column: its keys, without those that say nothing, as long as no two are the same."""
    short = {keys: ".".join(k for k in keys if k not in _PLAIN) or keys[-1] for keys in paths}
    given = list(short.values())
    return {keys: name if given.count(name) == 1 else ".".join(keys) for keys, name in short.items()}


def quantity_rows(told: Any, keys: tuple[str, ...] = (), units: dict[str, str] | None = None) -> Rows:
    """An answer with parts in parts as rows, one for each value: its keys, the value and its unit.

    >>> quantity_rows({"use": {"power_W": {"core": 1.5}}, "units": {"power_W": "W"}})
    [{'quantity': 'use.power_W.core', 'value': 1.5, 'unit': 'W'}]
    """
    known: dict[str, str] = told.get("units", {}) if units is None else units
    found: Rows = []
    for key, value in told.items():
        path = (*keys, key)
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            value = {str(one.get("name", i)): one for i, one in enumerate(value)}
        if key in _LEFT_OUT:
            continue
        if isinstance(value, dict):
            found += quantity_rows(value, path, known)
        elif not isinstance(value, list):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            unit = unit_read(path, known) if number else None
            found.append({"quantity": ".".join(path), "value": value, "unit": unit})
    return found


def check_table(path: Path | None) -> Path | None:
    """The file a table is to go into, refused before any work where it cannot: by its ending, for want of a
    package, because it is a folder.
    """
    if path is None:
        return None
    if path.suffix.lower() not in KINDS_OF_TABLE:
        raise BadValue(
            f"--table writes CSV or Parquet: a name that ends in .csv or .parquet, but got '{path}'"
        )
    if path.suffix.lower() == ".parquet":
        extra_package("pyarrow.parquet", "a Parquet file", "search")
    if path.is_dir():
        raise BadFile(f"{path} is a folder, no file for a table")
    return path


def write_rows(path: Path, rows: Rows, units: dict[str, str] | None = None) -> Path:
    """Write rows into a file, CSV or Parquet by its ending; a column with a unit is called `name [unit]`.

    Numbers are in SI units and keep every digit; what is not there, or not finite, is empty. The folder need
    not be there yet.
    """
    check_table(path)
    columns = columns_of_rows(rows, units or {})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".parquet":
            _write_parquet(path, columns)
        else:
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows(zip(*map(_as_text, columns.values()), strict=True))
    except OSError as error:
        said = str(error.strerror or error).lower()
        raise BadFile(f"{path} cannot be written: {said}") from None
    return path


def columns_of_rows(rows: Rows, units: dict[str, str]) -> dict[str, list[Any]]:
    """Columns by name, each of one type: numbers, yes or no, or text where they are mixed.

    >>> columns_of_rows([{"tpot": 0.02, "plan": "tp=8"}, {"tpot": None, "plan": 1.0}], {"tpot": "s"})
    {'tpot [s]': [0.02, None], 'plan': ['tp=8', '1.0']}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    told = {name: f"{name} [{unit}]" if (unit := units.get(name, ONE)) != ONE else name for name in names}
    return {told[name]: _of_one_type([_finite(row.get(name)) for row in rows]) for name in names}


def _finite(value: Any) -> Any:
    """A value as a file holds it."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(plain_json(value), default=str)


def _of_one_type(values: list[Any]) -> list[Any]:
    kinds = {type(v) for v in values if v is not None}
    if kinds == {int, float}:
        return [v if v is None else float(v) for v in values]
    return [v if v is None else str(v) for v in values] if len(kinds) > 1 else values


def _as_text(values: list[Any]) -> list[str]:
    return ["" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in values]


def _write_parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    parquet = extra_package("pyarrow.parquet", "a Parquet file", "search")
    pyarrow = extra_package("pyarrow", "a Parquet file", "search")
    arrays = {name: pyarrow.array(values, from_pandas=False) for name, values in columns.items()}
    try:
        with path.open("wb") as file:
            parquet.write_table(pyarrow.table(arrays), file)
    except pyarrow.ArrowException as error:
        raise BadFile(f"{path} cannot be written: {str(error).splitlines()[0]}") from None


def rate_unit(name: str, unit: str) -> str:
    """The unit of a metric; of a count a second its second, which its name says.

    >>> rate_unit("tokens_per_s", "1"), rate_unit("mfu", "1"), rate_unit("power", "W")
    ('1/s', '1', 'W')
    """
    return "1/s" if unit == ONE and _RATE.fullmatch(name) else unit


def key_unit(key: str, above: str = "") -> tuple[str, str] | None:
    """The unit of numbers under a key, and the name it is told under: that of the key inside the one above,
    of a metric, or of how the key ends. None where the key says none.

    >>> key_unit("tpot"), key_unit("bandwidth_B_per_s"), key_unit("die_area", "design"), key_unit("h200")
    (('tpot', 's'), ('bandwidth_B_per_s', 'B/s'), ('design.die_area', 'm2'), None)
    """
    from strata.pricing.metrics import METRICS
    from strata.search.goal import GOAL_METRICS

    for name in (f"{above}.{key}", f"{above}.*"):
        if above and name in _UNITS:
            return f"{above}.{key}", _UNITS[name]
    if (ended := _ending(key)) is not None:
        return key, ended
    if (declared := METRICS.get(key) or GOAL_METRICS.get(key)) is not None:
        return key, rate_unit(key, declared.unit)
    if key in _UNITS:
        return key, _UNITS[key]
    return (key, "1/s") if _RATE.fullmatch(key) else None


def _ending(key: str) -> str | None:
    """The unit that a key ends with; a count a second has none (`tokens_per_s`)."""
    end = next((end for end in _ENDS if key.endswith(f"_{end}")), None)
    if end is None or (end == "s" and key.endswith("_per_s")):
        return None
    return end.replace("_per_", "/").replace("flop", "FLOP")


def numbers_in(node: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The keys above each number of an answer, once; what states its unit beside it is left out."""
    if isinstance(node, dict):
        for key, value in node.items():
            table = key == "units" and isinstance(value, dict)
            if not (table or ("unit" in node and not isinstance(value, dict))):
                yield from numbers_in(value, (*keys, str(key)))
    elif isinstance(node, list):
        seen: set[tuple[str, ...]] = set()
        for value in node:
            for found in numbers_in(value, keys):
                if found not in seen:
                    seen.add(found)
                    yield found
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield keys


def unit_under(keys: tuple[str, ...]) -> tuple[str, str] | None:
    """The unit of a number, and the name it is told under: of the nearest key above it that says one; names
    of parts below a key that ends with a unit say none.

    >>> unit_under(("resources_s", "memory")), unit_under(("interval", "tpot", "high"))
    (('resources_s', 's'), ('tpot', 's'))
    """
    for i in reversed(range(len(keys))):
        if (ended := _ending(keys[i])) is not None:
            return keys[i], ended
    for i in reversed(range(len(keys))):
        if (found := key_unit(keys[i], keys[i - 1] if i else "")) is not None:
            return found
    return None


def unit_read(keys: tuple[str, ...], units: dict[str, str]) -> str | None:
    """The unit of a number as a reader of `units` finds it: under `a.b`, the key inside the one above it, or
    under its key; else under the nearest key above.

    >>> unit_read(("parts", "tpot", "high"), {"tpot": "s"})
    's'
    """
    for i in reversed(range(len(keys))):
        for name in ((f"{keys[i - 1]}.{keys[i]}",) if i else ()) + (keys[i],):
            if name in units:
                return units[name]
    return None


def with_units(told: Any) -> Any:
    """An answer with `units`, a table of the units of all its numbers: a number's unit stands under its key,
    or the nearest key above it that is in the table (`a.b`: key b inside a), or beside it as `unit`.

    >>> with_units({"time_s": 1.0, "memory": 3.0, "resources_s": {"memory": 2.0}})["units"]
    {'time_s': 's', 'memory': 'B', 'resources_s': 's', 'resources_s.memory': 's'}
    """
    if isinstance(told, list):
        return [with_units(entry) for entry in told]
    if not isinstance(told, dict) or not isinstance(told.get("units", {}), dict):
        return told
    units = {name: rate_unit(name, unit) for name, unit in told.get("units", {}).items()}
    found = [(keys, one) for keys in dict.fromkeys(numbers_in(told)) if (one := unit_under(keys))]
    for _, (name, unit) in found:
        units.setdefault(name, unit)
    for keys, (_, unit) in found:
        if unit_read(keys, units) != unit:
            units[".".join(keys[-2:])] = unit
    return {**told, "units": units} if units else told
