"""Chips and links that are better than every one of a box: what bounds are priced with.

Rates, bandwidths and capacity are those of the best corner of a box, energies, power at rest, price and area
those of the cheapest one. Axes that may be relaxed so are those whose fields are listed here; all others are
enumerated. Some fields are relaxed only `coarse`ly, where many designs are to be ruled out at once: local
memory (DRAM then gives every kernel the most that any stream gets), and the rates that variants of a core
set.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.arrays import Number
from strata.hardware.chip import Chip
from strata.hardware.fabric import Fabric
from strata.hardware.thermal.compact import leakage
from strata.mapping.plan import Plan
from strata.pricing.kernels.dram_access import banks_of
from strata.search.expression import mentions
from strata.search.fields import assembled
from strata.search.points import Fields, field_choices, tied
from strata.search.space import Axis, Space

# More of these is never slower with power and heat off (tests/test_laws.py); each may take area, power at
# rest and energy a byte.
MORE = (
    "chip.stack.layers",
    "chip.stack.connected_layers",
    "chip.compute.sram_bandwidth",
    "chip.energy.power_limit",
    "chip.memory.bandwidth",
    "chip.memory.capacity",
)
MORE_OF_LINKS = ("bandwidth", "efficiency")
ASIDE = ("price",)  # fields of links that may follow the same axis without touching time
# More of these is never slower either, where the number of cores stays.
COARSELY = (
    "chip.compute.sram_capacity",
    "chip.compute.vector_rate",
    "chip.compute.special_rate",
    "chip.cache.capacity",
    "chip.cache.over_memory",
    "chip.cache.core_bandwidth",
    "chip.silicon.noc.width",
    *(f"chip.compute.matrix_rate.{p}" for p in ("bf16", "fp8", "int8")),
)
# that touch nothing but cores
AREAS = (
    "chip.silicon.floorplan.core_area",
    "chip.silicon.floorplan.cache_area",
    "chip.silicon.floorplan.sram_area",
)


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of a space, and rows of plans in them.

    fixed [K, axes]: digits of axes that are not relaxed (0 where they are); low, high [K, relaxed axes]:
    digits of those that are; cores [K]. Row l asks for plan `plans[l]` in box `owner[l]`. `coarse`: variants
    of cores and their memory are relaxed too; `nearest`: every topology and order, by the best links there
    are.
    """

    fixed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    cores: np.ndarray
    owner: np.ndarray
    plans: np.ndarray
    coarse: bool = False
    nearest: bool = False


@lru_cache(maxsize=32)
def relaxed_axes(space: Space) -> tuple[int, ...]:
    """Axes whose numbers may be relaxed: those of which more is never slower."""
    return tuple(
        i
        for i, a in enumerate(space.axes)
        if a.ordered and all(_more(f) or _aside(f) for f in a.fields) and any(map(_more, a.fields))
    )


@lru_cache(maxsize=32)
def coarse_axes(space: Space) -> tuple[int, ...]:
    """Axes that are relaxed where a look is coarse."""
    known = (*COARSELY, *AREAS)
    return tuple(
        i
        for i, a in enumerate(space.axes)
        if a.kind in ("number", "variant") and a.fields and all(f in known for f in a.fields)
    )


def topology_axis(space: Space) -> int | None:
    """The axis that chooses a fabric by its name."""
    return next((i for i, a in enumerate(space.axes) if a.fields == ("fabric",)), None)


def _more(field: str) -> bool:
    return field in MORE or (field.startswith("fabric.") and field.rsplit(".", 1)[-1] in MORE_OF_LINKS)


def _aside(field: str) -> bool:
    return field.startswith("fabric.") and field.rsplit(".", 1)[-1] in ASIDE


def corner(space: Space, boxes: Boxes, which: np.ndarray, side: str) -> tuple[Any, ...]:
    """Inputs of boxes that share every word, at one corner: `cheap` the least of everything, `dear` the most,
    `rich` the most with its cores.

    Ties are linear in each axis, so that their least and most lie on corners; the rich corner takes the least
    power at rest.
    """
    axes, blurred = relaxed_axes(space), coarse_axes(space) if boxes.coarse else ()
    digits = boxes.low if side == "cheap" else boxes.high
    made = Fields()
    for i in range(len(space.axes)):
        if i in blurred:
            made.numbers |= {
                f: np.full(len(which), max(choices))
                for f, choices in field_choices(space, i).items()
                if f not in AREAS
            }
        else:
            made.put(space, i, digits[which, axes.index(i)] if i in axes else boxes.fixed[which, i])
    least, most = _tie_range(space, boxes, which)
    made.numbers |= most if side == "dear" else least
    if side == "rich":
        made.numbers["chip.compute.cores"] = boxes.cores[which]
    return assembled(space.question, made.words, made.numbers, made.times, Plan())


def _tie_range(space: Space, boxes: Boxes, which: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """The least and the most of every tied field over boxes, from all corners of the axes it names."""
    axes = relaxed_axes(space)
    fixed = {
        a.name: np.array(a.values, float)[boxes.fixed[which, i]]
        for i, a in enumerate(space.axes)
        if a.ordered and i not in axes
    }
    ends = {
        space.axes[i].name: [_numbers(space.axes[i])[side[which, k]] for side in (boxes.low, boxes.high)]
        for k, i in enumerate(axes)
    }
    used = [name for name in ends if any(mentions(t.value, name) for t in space.ties)]
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    base = fixed | {name: pair[0] for name, pair in ends.items()}
    for chosen in itertools.product((0, 1), repeat=len(used)):
        found = tied(space, base | {name: ends[name][side] for name, side in zip(used, chosen, strict=True)})
        low = {k: np.minimum(low.get(k, v), v) for k, v in found.items()}
        high = {k: np.maximum(high.get(k, v), v) for k, v in found.items()}
    return low, high


def _numbers(axis: Axis) -> np.ndarray:
    return np.array(axis.values, float)


def better_chip(rich: Chip, cheap: Chip, boxes: Boxes, warm: bool) -> Chip:
    """A chip better than every one of a box.

    `warm`: all chips of the box have one geometry, and so one way for heat to leave; else power alone limits
    it, and what leaks is what leaks at the coolant's temperature. Energy of a byte, power at rest and layers
    are the cheapest corner's.
    """
    energy, heat = replace(rich.energy, memory=cheap.energy.memory), rich.heat
    if warm:
        heat = None if heat is None else replace(heat, refresh_limit=1e9)
    else:
        energy, heat = replace(energy, static_power=least_at_rest(cheap), layer_power=0.0), None
    made = replace(rich, energy=energy, heat=heat, cores_fit=None)
    return _with_most_bandwidth(made) if boxes.coarse else made


def least_at_rest(chip: Chip) -> Number:
    """Power of a chip at rest as long as it is as cold as its coolant [W]: no load makes it less."""
    static, heat = chip.energy.static_power, chip.heat
    if heat is not None:
        leaks = leakage(
            static * heat.leakage_share, heat.ambient, heat.leakage_temperature, heat.leakage_doubling
        )
        static = static * (1.0 - heat.leakage_share) + leaks
    each = chip.energy.layer_power
    return static if each is None or chip.stack is None else static + chip.stack.layers * each


def _with_most_bandwidth(chip: Chip) -> Chip:
    """A chip whose DRAM gives every kernel the most that any stream gets: its peak, below what cores can
    take.
    """
    banks = banks_of(chip)
    if banks is None or chip.stack is None:
        return chip
    most = np.minimum(chip.memory.bandwidth, banks.ceiling)
    memory = replace(
        chip.memory,
        bandwidth=most,
        efficiency=1.0,
        stream_efficiency=1.0,
        attention_efficiency=1.0,
        grouped_efficiency=1.0,
    )
    served = {name: replace(getattr(chip, name), memory_efficiency=1.0) for name in ("paged", "latent")}
    experts = replace(chip.experts, memory_efficiency=1.0, gather_efficiency=1.0)
    return replace(
        chip, memory=memory, stack=replace(chip.stack, memory="", dram=None), experts=experts, **served
    )


@lru_cache(maxsize=8)
def best_links(space: Space) -> Fabric:
    """A network no topology of a space beats: one switch between all devices, with all links a device has
    anywhere, the quickest hop.

    Of each fabric the bandwidths of all its dimensions add up, each at the most its axis allows.
    """
    question, where = space.question, topology_axis(space)
    names = [""] if where is None else [str(v) for v in space.axes[where].values]
    bandwidth, latency, energy = 0.0, np.inf, np.inf
    for name in names:
        total = 0.0
        for i, d in enumerate(question.on(name).dimension):
            total += max(float(d.bandwidth), _most(space, (str(i), d.name), float(d.bandwidth)))
            latency, energy = min(latency, float(d.latency)), min(energy, float(d.energy or 0.0))
        bandwidth = max(bandwidth, total)
    made = question.on(names[0])
    one = replace(
        made.dimension[0],
        kind="switch",
        size=float(question.base.devices),
        bandwidth=bandwidth,
        efficiency=1.0,
        latency=latency,
        energy=energy,
        reduction=None,
        transport_model=None,
        transport="",
        oversubscription=None,
        links=None,
        shares_links_of="",
    )
    return replace(made, dimension=(one,))


def _most(space: Space, called: tuple[str, str], usual: float) -> float:
    """The most bandwidth that an axis gives a dimension, by its place or name; what it has where no axis
    does.
    """
    for axis in space.axes:
        if axis.ordered and any(
            f.split(".")[1:] in ([c, "bandwidth"] for c in called) and f.startswith("fabric.")
            for f in axis.fields
        ):
            return max(axis.values) * (usual if axis.kind == "times" else 1.0)
    return usual
