"""A system: chips joined by a fabric. `8xh200`, `4x8xh100`, `64xh200` and `64of72xgb200` name one, as does a
TOML file.

Parts after a plus stand in for the chip's own: `1024xdfmodel-sn30+dfmodel-hbm3+dfmodel-nvlink4`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Number, register_pytree
from strata.base.errors import UnknownName, require
from strata.base.records import readable
from strata.base.shipped import needed_model, paper_offers
from strata.hardware.chip import Chip, chip
from strata.hardware.fabric import Fabric, as_fabric, devices_of, fabric, sized
from strata.hardware.money import Economics, economics
from strata.hardware.part_of_domain import domain_size, equal_part, sizes_of, used_part
from strata.hardware.topology import links_of
from strata.params import Param, by_name, dashed, find, meant, names, read_record, text

_NAME = re.compile(r"(\d+)x(?:(\d+)x)?([A-Za-z./].*)$")
_PART = re.compile(r"(?:(\d+)x)?(\d+)of(\d+)x([A-Za-z./].*)$")
_SHAPE = re.compile(r"\d+(x\d+)+$")
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

    A memory, links, a fabric and a shape may be named after the chip:

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


def systems(
    chip_name: str,
    devices: Number,
    domain: Number | None = None,
    on: Fabric | None = None,
    rate: Number | None = None,
    named: Callable[[str], System] = system,
) -> System:
    """Systems of one chip whose device counts may be an array: sizes of the fabric are arrays then.

    `domain`: devices of each scale-up domain that a job may use, of which it takes the largest equal part;
    unless given, whole nodes or as few equal parts of them as there can be. `on`: another fabric of as many
    dimensions than the chip's usual one; `rate`: of a device between domains [B/s].

    >>> [d.size.tolist() for d in systems("gb200", np.array([8.0, 256.0])).fabric.dimension]
    [[8.0, 64.0], [1.0, 4.0]]
    >>> [float(d.size) for d in systems("h100", 16.0, domain=4.0).fabric.dimension]
    [4.0, 4.0]
    """

    def one(count: float, most: float) -> System:
        inside = 0 if domain is None else equal_part(count, most)
        return named(f"{count / inside:.0f}x{inside}x{chip_name}" if inside else f"{count:.0f}x{chip_name}")

    counts, most = np.broadcast_arrays(np.asarray(devices, float), 0.0 if domain is None else domain)
    pairs, place = np.unique(np.stack([counts.ravel(), most.ravel()]), axis=1, return_inverse=True)
    every = [one(*pair) for pair in pairs.T]
    sizes = np.array([[float(d.size) for d in each.fabric.dimension] for each in every])
    several = sizes[place.ravel()].reshape(*counts.shape, -1)
    joined = sized(on or every[0].fabric, tuple(several[..., i][()] for i in range(several.shape[-1])))
    if rate is not None:
        *inner, outer = joined.dimension
        joined = replace(joined, dimension=(*inner, replace(outer, bandwidth=rate)))
    return System(f"{chip_name} systems", every[0].chip, joined)


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemParts:
    """What a system's name puts in place of its chip's own numbers and fabric."""

    chip: dict[str, Number]
    links: tuple[Any, ...] = ()  # of the dimensions, innermost first, the last of all outer ones
    fabric: Fabric | None = None
    shape: tuple[float, ...] = ()

    def joined(self, known: Fabric, devices: int) -> Fabric:
        """A fabric, its sizes as the shape has them, with these links in place of its own."""
        require(
            not self.shape or math.prod(self.shape) == devices,
            f"a shape has as many devices as the system, {devices}",
            shape="x".join(f"{s:g}" for s in self.shape),
        )
        shaped = sized(known, self.shape) if self.shape else known
        made = []
        for place, (old, new) in enumerate(zip(known.dimension, shaped.dimension, strict=True)):
            link = self.links[min(place, len(self.links) - 1)] if self.links else None
            if link is None and (old.size is None or not self.shape):
                made.append(new)
                continue
            each = old.bandwidth / links_of(old) if link is None else link.bandwidth
            energy = old.energy if link is None else link.energy
            price = None if old.price is None else old.price * each * links_of(old) / old.bandwidth
            made.append(replace(new, bandwidth=each * links_of(new), energy=energy, price=price))
        return replace(shaped, dimension=tuple(made))


def system_parts(said: list[str]) -> SystemParts:
    """Parts by name: a fabric, a shape like 32x32, or what papers add: memories and links.

    >>> found = system_parts(["dfmodel-hbm3", "32x32", "dfmodel-nvlink4"])
    >>> found.chip["memory.bandwidth"] / 1e9, found.shape, [link.name for link in found.links]
    (3072.0, (32.0, 32.0), ['dfmodel-nvlink4'])
    """
    changes, links, joined, shape = dict[str, Number](), list[Any](), None, tuple[float, ...]()
    for name in said:
        if _SHAPE.match(name):
            shape = tuple(float(size) for size in name.split("x"))
            continue
        if name in names("fabric") or name.endswith(".toml"):
            joined = fabric(name)
            continue
        offered = [needed_model("system parts", paper)(name) for paper in paper_offers("system parts")]
        if not any(offered):
            known = [*names("fabric"), *names("linear-memories"), *names("linear-links")]
            raise UnknownName("part of a system", name, known, "a memory, a link, a fabric, or 32x32")
        ours, link = next(part for part in offered if part)
        changes |= ours
        links += [link] if link else []
    return SystemParts(chip=changes, links=tuple(links), fabric=joined, shape=shape)


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
    base = chip(chip_name, **{**parts.chip, **changes})
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
