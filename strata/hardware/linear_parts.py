"""Memories and links that stand for a technology by their bandwidth, for any chip and any fabric."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

from strata.arrays import Number, register_pytree
from strata.errors import UnknownName, require
from strata.hardware.fabric import Fabric, fabric, sized
from strata.hardware.topology import links_of
from strata.params import Sources, names, quantity, remembered, sourced_record, text
from strata.records import readable

MEMORIES, LINKS = "linear-memories", "linear-links"
_SHAPE = re.compile(r"\d+(x\d+)+$")


@register_pytree
@readable("name", "title")
@dataclass(frozen=True, eq=False, kw_only=True)
class LinearMemory:
    """DRAM of a chip as a technology: what it delivers and holds, and what a byte of its bandwidth draws."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    kind: str = text("kind of DRAM, like HBM3")
    bandwidth: Number = quantity("B/s", "peak bandwidth of one chip", positive=True, more="faster")
    capacity: Number = quantity("B", "capacity of one chip", positive=True)
    energy: Number = quantity("J/B", "byte moved; power for each B/s where it is drawn at full bandwidth")
    sources: Sources = field(default_factory=Sources)


@register_pytree
@readable("name", "title")
@dataclass(frozen=True, eq=False, kw_only=True)
class LinearLink:
    """A link between two chips as a technology: its bandwidth and what a byte of it draws."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    bandwidth: Number = quantity("B/s", "peak of one link, one direction", positive=True, more="faster")
    energy: Number = quantity("J/B", "byte moved; power for each B/s where it is drawn at full bandwidth")
    sources: Sources = field(default_factory=Sources)


@remembered
def linear_memory(name: str) -> LinearMemory:
    """A memory technology by name or TOML path.

    >>> linear_memory("dfmodel-hbm3").bandwidth / 1e9
    3072.0
    """
    return sourced_record(LinearMemory, MEMORIES, name)


@remembered
def linear_link(name: str) -> LinearLink:
    """A link technology by name or TOML path.

    >>> linear_link("dfmodel-nvlink4").bandwidth / 1e9
    450.0
    """
    return sourced_record(LinearLink, LINKS, name)


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemParts:
    """What a system's name puts in place of its chip's own memory and fabric."""

    memory: LinearMemory | None = None
    links: tuple[LinearLink, ...] = ()  # of the dimensions, innermost first, the last of all outer ones
    fabric: Fabric | None = None
    shape: tuple[float, ...] = ()

    def chip_changes(self) -> dict[str, Any]:
        """Quantities of the chip that its memory replaces."""
        if self.memory is None:
            return {}
        told = self.memory
        return {
            "memory.bandwidth": told.bandwidth,
            "memory.capacity": told.capacity,
            "energy.memory": told.energy,
        }

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
    """Parts by name: a memory, links, a fabric, or a shape like 32x32.

    >>> found = system_parts(["dfmodel-hbm3", "32x32", "dfmodel-nvlink4"])
    >>> found.memory.name, found.shape, [link.name for link in found.links]
    ('dfmodel-hbm3', (32.0, 32.0), ['dfmodel-nvlink4'])
    """
    memory, links, joined, shape = None, [], None, tuple[float, ...]()
    memories, wires, fabrics = names(MEMORIES), names(LINKS), names("fabric")
    for name in said:
        if _SHAPE.match(name):
            shape = tuple(float(size) for size in name.split("x"))
        elif name in memories:
            memory = linear_memory(name)
        elif name in wires:
            links.append(linear_link(name))
        elif name in fabrics or name.endswith(".toml"):
            joined = fabric(name)
        else:
            known = [*memories, *wires, *fabrics]
            raise UnknownName("part of a system", name, known, "a memory, a link, a fabric, or 32x32")
    return SystemParts(memory=memory, links=tuple(links), fabric=joined, shape=shape)
