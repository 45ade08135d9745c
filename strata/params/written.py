"""Records as the text of a data file: each number with its unit and source, so that reading it gives the
record again.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from strata.arrays import has_axes
from strata.errors import BadValue
from strata.params.declare import Sources
from strata.params.records import in_file

NO_SOURCE = "assumed: stated by the caller"


def record_table(record: Any, sources: Sources, prefix: str = "") -> dict[str, Any]:
    """The table of a record's file: words, quantities with their sources, parts.

    >>> from strata.hardware.generate.budget import budget
    >>> h100 = budget("h100")
    >>> record_table(h100, h100.sources)["power"]["value"]
    '700.0 W'
    """
    table: dict[str, Any] = {}
    for f in fields(record):
        value, meta, path = getattr(record, f.name), f.metadata, prefix + f.name
        if not in_file(meta) or value is None or (meta.get("text") and not value):
            continue
        if "part" in meta and is_dataclass(value):
            table[f.name] = record_table(value, sources, path + ".")
        elif "part" in meta:
            table[f.name] = [record_table(each, sources, f"{path}.{i}.") for i, each in enumerate(value)]
        elif meta.get("text"):
            table[f.name] = value
        elif meta.get("table"):
            table[f.name] = {k: _written(v, meta["unit"], sources, f"{path}.{k}") for k, v in value.items()}
        else:
            table[f.name] = _written(value, meta["unit"], sources, path)
    return table


def _written(value: Any, unit: str, sources: Sources, path: str) -> dict[str, Any]:
    if has_axes(value):
        raise BadValue(f"a file holds one record, but {path} is an array of {value.size}")
    number, known = float(value), sources.get(path)
    source = known.source if known else NO_SOURCE
    return {"value": number if unit == "1" else f"{number!r} {unit}", "source": source}


def as_toml(table: dict[str, Any]) -> str:
    """A table as TOML, each quantity on a line of its own."""
    import tomlkit

    return tomlkit.dumps(_ordered(tomlkit, table, tomlkit.document()))


def _ordered(tomlkit: Any, table: dict[str, Any], into: Any) -> Any:
    """Words and quantities first, then tables and lists of tables."""
    later = {}
    for key, value in table.items():
        if isinstance(value, dict) and "value" not in value:
            later[key] = _ordered(tomlkit, value, tomlkit.table())
        elif isinstance(value, list):
            later[key] = tomlkit.aot()
            for each in value:
                later[key].append(_ordered(tomlkit, each, tomlkit.table()))
        elif isinstance(value, dict):
            inline = tomlkit.inline_table()
            inline.update(value)
            into.add(key, inline)
        else:
            into.add(key, value)
    for key, value in later.items():
        into.add(key, value)
    return into
