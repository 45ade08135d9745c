"""Fabrics: networks between chips as composed dimensions, innermost first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from strata.arrays import Number, register_pytree
from strata.errors import require
from strata.params import Sources, build, find, load_table, override, part, quantity, text

KINDS = ("switch", "ring", "chain", "full")


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Dimension:
    """One direction of a fabric: `size` devices (or groups of devices) joined in one way."""

    name: str = text("what it is, like nvlink or infiniband")
    kind: str = text("switch, ring (a torus is several), chain (a mesh is several) or full (each to each)", choices=KINDS)
    size: Number = quantity("1", "members; left out where the system's name gives it", optional=True, minimum=1)
    bandwidth: Number = quantity("B/s", "peak of one device into this dimension, one direction, all its links together", positive=True)
    efficiency: Number = quantity("1", "sustained fraction of the peak for long messages", positive=True)
    latency: Number = quantity("s", "one step: software, wire and switch, to the first byte")
    energy: Number = quantity("J/B", "energy of one byte over one hop")
    reduction: Number = quantity("1", "1 where the switch adds up an all-reduce itself, else 0", optional=True)
    price: Number = quantity("USD", "links, switches and adapters of this dimension for one device", optional=True)


@register_pytree
@dataclass(frozen=True, eq=False)
class Host:
    """What stands beside each device: its share of processors, adapters, chassis."""

    power: Number = quantity("W", "power beside the device, for one device")
    price: Number = quantity("USD", "price beside the device, for one device", optional=True)


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Fabric:
    """Dimensions from the innermost (fastest) to the outermost, and the host beside each device."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    note: str = text("what a reader of these numbers should know", default="")
    dimension: tuple[Dimension, ...] = part(Dimension, "dimensions, innermost first", many=True)
    host: Host | None = part(Host, "beside each device", optional=True)
    sources: Sources = field(default_factory=Sources)


def fabric(name: str, **changes: Any) -> Fabric:
    """A fabric by name or TOML path; `bandwidth=` and the like change the one dimension there is, or `"0.bandwidth"`.

    >>> [d.kind for d in fabric("hgx-h200").dimension]
    ['switch', 'switch']
    """
    where = find("fabric", name).name
    made, params = build(Fabric, load_table("fabric", name), where)
    made, given = override(made, {_full_path(made, k): v for k, v in changes.items()}, "fabric")
    return replace(made, sources=Sources(params).updated(given))


def _full_path(made: Fabric, name: str) -> str:
    """`bandwidth` means the innermost dimension; `1.bandwidth` and `infiniband.bandwidth` name another one."""
    head, _, rest = name.replace("__", ".").partition(".")
    if not rest:
        return f"dimension.0.{head}" if hasattr(made.dimension[0], head) else head
    for i, dimension in enumerate(made.dimension):
        if head in (str(i), dimension.name):
            return f"dimension.{i}.{rest}"
    return name


def sized(made: Fabric, sizes: tuple[Number, ...]) -> Fabric:
    """The fabric with its dimensions' sizes given, innermost first; outer dimensions not named become 1."""
    require(len(sizes) <= len(made.dimension), f"fabric {made.name} has {len(made.dimension)} dimensions", sizes=sizes)
    full = (*sizes, *([1.0] * (len(made.dimension) - len(sizes))))
    return replace(made, dimension=tuple(replace(d, size=s) for d, s in zip(made.dimension, full, strict=True)))


def devices_of(made: Fabric) -> Number:
    """Devices a fabric joins: the product of its dimensions' sizes."""
    total: Number = 1.0
    for dimension in made.dimension:
        total = total * dimension.size
    return total


def sustained_link(dimension: Dimension) -> Number:
    """Bandwidth one device sustains into a dimension, one direction [B/s]."""
    return dimension.bandwidth * dimension.efficiency
