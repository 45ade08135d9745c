"""One rank's part of an op: every extent divided as its axis lies."""

from __future__ import annotations

from typing import Any

from strata.arrays import field_names
from strata.mapping.layout import Sharding
from strata.workload.graph import Extent, Op


def divide(op: Op, sharding: Sharding, known: dict[tuple[int, str], Extent]) -> Op:
    """The op of one rank: every extent divided as its axis lies; extents that ops share stay shared."""
    kind: type[Any] = type(op)
    values: dict[str, Any] = {}
    for name in field_names(kind):
        value = getattr(op, name)
        if value.__class__ is Extent:
            value = _local(value, op.module, sharding, known)
        elif value.__class__ is tuple and value and value[0].__class__ is Extent:
            value = tuple([_local(e, op.module, sharding, known) for e in value])
        values[name] = value
    made: Op = kind(**values)
    return made


def _local(extent: Extent, module: str, sharding: Sharding, known: dict[tuple[int, str], Extent]) -> Extent:
    if not extent.axis:
        return extent
    key = (id(extent), module if module in sharding.modules else "")
    made = known.get(key)
    if made is None:
        made = known[key] = sharding.axis(module, extent.axis).local(extent)
    return made
