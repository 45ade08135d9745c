"""A system: chips joined by a fabric. `8xh200`, `4x8xh100`, `64xh200` and `64of72xgb200` name one, as does a
TOML file.

Parts after a plus stand in for the chip's own: `1024xdfmodel-sn30+dfmodel-hbm3+dfmodel-nvlink4`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strata.arrays import Number, register_pytree
from strata.errors import UnknownName, require
from strata.hardware.chip import Chip, chip
from strata.hardware.fabric import Fabric, as_fabric, devices_of, fabric, sized
from strata.hardware.linear_parts import system_parts
from strata.hardware.money import Economics, economics
from strata.hardware.part_of_domain import domain_size, sizes_of, used_part
from strata.params import Param, by_name, dashed, find, meant, names, read_record, text
from strata.records import readable

_NAME = re.compile(r"(\d+)x(?:(\d+)x)?([A-Za-z./].*)$")
_PART = re.compile(r"(?:(\d+)x)?(\d+)of(\d+)x([A-Za-z./].*)$")
_COUNTED = re.compile(r"(?:(\d+)-?x-?)?(.+?)(?:(?:-x-?|x)(\d+))?")


@register_pytree
@readable("name", "devices")
@dataclass(frozen=True, eq=False)
class System:
    """Chips of one kind on a fabric."""

    name: str
    chip: Chip
    fabric: Fabric
    economics: Economics | None = None  # what it costs to own, where that is not the usual

    @property
    def devices(self) -> Number:
        return devices_of(self.fabric)


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemFile:
    """What a system's TOML says: which chip, which fabric, and the sizes of its dimensions."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    chip: str = text("a chip's name or TOML path")
    fabric: str = text("a fabric's name or TOML path; left out for the chip's usual one", default="")
    sizes: dict[str, Number] | None = by_name(
        "1", "size of each dimension by its name; left out where the fabric has them", optional=True
    )


def economics_of(known: System) -> Economics:
    """The assumptions behind money that a system carries, else the usual ones."""
    return economics() if known.economics is None else known.economics


def as_system(given: System | str) -> System:
    """The system that is given, or the one of a name."""
    return system(given) if isinstance(given, str) else given


def system(what: str | Chip, on: Fabric | str | None = None, /, **changes: Any) -> System:
    """A system from its name, or from a chip and a fabric; keywords replace quantities of the chip. A system
    named may stand `on` another fabric: its chips, joined by that.

    >>> s = system("64xh200")
    >>> float(s.devices), [d.size for d in s.fabric.dimension]
    (64.0, [8.0, 8.0])

    >>> [d.name for d in system("8xh200", "nvl72").fabric.dimension]
    ['nvlink', 'infiniband']

    A job may use part of a domain; `64xgb200` says the same, and 128 are 64 of each of two racks:

    >>> named = [system(name) for name in ("64of72xgb200", "2x64of72xgb200", "128xgb200")]
    >>> [[d.size for d in s.fabric.dimension] for s in named]
    [[64.0, 1.0], [64.0, 2.0], [64.0, 2.0]]

    A memory, links, a fabric and a shape may be named after the chip (`strata.hardware.linear_parts`):

    >>> s = system("1024xdfmodel-h100+dfmodel-hbm3+dfmodel-dragonfly+32x32+dfmodel-nvlink4")
    >>> s.chip.memory.bandwidth / 1e9, [(d.kind, d.size, d.bandwidth / 1e9) for d in s.fabric.dimension]
    (3072.0, [('full', 32.0, 13950.0), ('full', 32.0, 13950.0)])
    """
    if isinstance(what, Chip):
        require(not changes, "change a chip's numbers where it is made: chip(name, field=value)")
        joined = sized(usual_fabric(what), (1.0,)) if on is None else as_fabric(on)
        require(
            all(d.size is not None for d in joined.dimension),
            f"fabric {joined.name} needs sizes; use strata.hardware.sized(fabric, (8, 4))",
        )
        count = devices_of(joined)
        several = f"{count:g}x" if isinstance(count, float) else ""
        return System(f"{several}{what.name} on {joined.name}", what, joined)
    counted = (_NAME.match(what) or _PART.match(what)) is not None and not Path(what).exists()
    if meant("system", what) or (what.endswith(".toml") and not counted):
        stated, _, _ = read_record(SystemFile, "system", what)
        folder = find("system", what).parent
        base = chip(_beside(folder, stated.chip), **changes)
        joined = fabric(_beside(folder, stated.fabric)) if stated.fabric else usual_fabric(base)
        if stated.sizes:
            joined = _resized(joined, stated.sizes, stated.name)
        made = replace(system(base, joined), name=stated.name)
        return made if on is None else _moved(made, as_fabric(on))
    return _from_name(what, changes, None if on is None else as_fabric(on))


def counted_chip(name: str) -> tuple[str, int]:
    """The shipped chip that a name says, and how many of them, before or after it; 0 where it does not say.
    ("", 0) where it names no chip.

    >>> [counted_chip(n) for n in ("B200SXMx8", "8x H100-SXM-80GB", "H100 NVL", "2xEPYC")]
    [('b200', 8), ('h100', 8), ('h100-nvl', 0), ('', 0)]
    """
    match = _COUNTED.fullmatch(dashed(name))
    chip_name = meant("chip", match[2]) if match else ""
    return chip_name, int(match[1] or match[3] or 0) if match and chip_name else 0


def _moved(before: System, joined: Fabric) -> System:
    """The chips of a system, as many of them, on another fabric."""
    sizes = sizes_of(int(float(before.devices)), None, joined, before.name)
    return System(f"{before.name} on {joined.name}", before.chip, used_part(joined, sizes))


def usual_fabric(base: Chip, folder: Path = Path()) -> Fabric:
    """What joins systems of a chip: its own networks where its file says so, else the fabric it names.

    >>> [d.name for d in usual_fabric(chip("deepflow-v100")).dimension]
    ['inter']
    """
    if base.networks is not None:
        return base.networks
    usual = fabric(_beside(folder, base.fabric))
    if base.link_bandwidth is None:
        return usual
    source = base.sources.get("link_bandwidth")
    told = Param(base.link_bandwidth, "B/s", source.source if source else "stated by the chip")
    inner = replace(usual.dimension[0], bandwidth=base.link_bandwidth)
    return replace(
        usual,
        dimension=(inner, *usual.dimension[1:]),
        sources=usual.sources.updated({"dimension.0.bandwidth": told}),
    )


def _resized(joined: Fabric, sizes: dict[str, Number], owner: str) -> Fabric:
    """A fabric with some dimensions' sizes given by name; those it leaves open and nobody names are 1."""
    known = [d.name for d in joined.dimension]
    for name in sizes:
        if name not in known:
            raise UnknownName(
                f"dimension of fabric {joined.name}", name, known, f"{', '.join(known)} (system {owner})"
            )
    return used_part(joined, tuple(float(sizes.get(d.name, d.size or 1.0)) for d in joined.dimension))


def _beside(folder: Path, name: str) -> str:
    """A file named in a system's file is looked for beside it."""
    return str(folder / name) if name.endswith(".toml") and not Path(name).is_absolute() else name


def _from_name(name: str, changes: dict[str, Any], on: Fabric | None = None) -> System:
    name = name if name.endswith(".toml") else name.lower()
    part_of = _PART.match(name)
    match = _NAME.match(f"{part_of[1] or 1}x{part_of[2]}x{part_of[4]}" if part_of else name)
    if not match:
        chip_name, several = counted_chip(name)
        if chip_name:
            return _from_name(f"{several or 1}x{chip_name}", changes, on)
        raise UnknownName(
            "system",
            name,
            [*names("system"), *(f"8x{c}" for c in names("chip"))],
            "strata list systems, or COUNTxCHIP like 8xh200",
        )
    outer, inner = int(match.group(1)), match.group(2)
    chip_name, *said = match.group(3).split("+")
    parts = system_parts(said)
    base = chip(chip_name, **{**parts.chip_changes(), **changes})
    beside = Path(chip_name).parent if chip_name.endswith(".toml") else Path()
    joined = usual_fabric(base, beside) if parts.fabric is None else parts.fabric
    if on is not None:
        require(parts.fabric is None and not parts.shape, "a system has one fabric", system=name, on=on.name)
        joined, name = on, f"{name} on {on.name}"
    if part_of:
        require(
            int(part_of[3]) == domain_size(joined),
            f"a domain of fabric {joined.name} has {domain_size(joined)} devices",
            system=name,
        )
    if not parts.shape:
        joined = used_part(joined, sizes_of(outer, int(inner) if inner else None, joined, name))
    return System(name.lower(), base, parts.joined(joined, outer * int(inner or 1)))
