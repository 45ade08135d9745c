"""Memories and links that stand for a technology by their bandwidth, for any chip and any fabric."""

from __future__ import annotations

from dataclasses import dataclass, field

from strata.base.arrays import Number, register_pytree
from strata.base.records import readable
from strata.params import Sources, names, quantity, remembered, sourced_record, text

MEMORIES, LINKS = "linear-memories", "linear-links"


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


def linear_part(name: str) -> tuple[dict[str, Number], LinearLink | None] | None:
    """What a part of a system's name stands for: quantities of the chip, or a link; None where it is no part
    of ours.

    >>> linear_part("dfmodel-hbm3")[0]["memory.bandwidth"] / 1e9, linear_part("dfmodel-nvlink4")[1].name
    (3072.0, 'dfmodel-nvlink4')
    """
    if name in names(LINKS):
        return {}, linear_link(name)
    if name not in names(MEMORIES):
        return None
    memory = linear_memory(name)
    return {
        "memory.bandwidth": memory.bandwidth,
        "memory.capacity": memory.capacity,
        "energy.memory": memory.energy,
    }, None
