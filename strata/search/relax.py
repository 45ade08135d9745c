"""Chips and links that are better than every one of a box: what bounds are priced with.

Rates, bandwidths and capacity are those of the best corner of a box, energies, power at rest, price and area
those of the cheapest one. Axes that may be relaxed so are those of fields of which more is `faster`, as their
schema says (`strata.params.MORE_IS`; tests/test_laws.py); all others are enumerated. Some fields are relaxed
only `coarse`ly, where many designs are to be ruled out at once: local memory (DRAM then gives every kernel
the most that any stream gets), and the rates that variants of a core set.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.base.arrays import Number
from strata.base.expression import mentions
from strata.case import Case
from strata.hardware.chip import Chip
from strata.hardware.fabric import Dimension, Fabric, Host
from strata.hardware.money import Economics, always_on, fabric_price
from strata.hardware.thermal.compact import leakage
from strata.pricing.kernels.traffic import banks_of
from strata.search.plans import plain_dimension
from strata.search.points import built_parts, field_choices, set_choices, tied_values
from strata.search.scenario import FieldValues, assemble_case
from strata.search.space import Space


@dataclass(frozen=True, eq=False, kw_only=True)
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
    """Axes whose numbers may be relaxed: more is never slower; prices of links may follow them."""
    found = []
    for i, axis in enumerate(space.axes):
        more = {more_is(space, f) for f in axis.fields}
        if axis.ordered and "faster" in more and more <= {"faster", "dearer"}:
            found.append(i)
    return tuple(found)


@lru_cache(maxsize=32)
def coarse_axes(space: Space) -> tuple[int, ...]:
    """Axes that are relaxed where a look is coarse: never slower, either, where the number of cores stays."""
    coarse = {"faster at equal cores", "fewer cores"}
    return tuple(
        i
        for i, a in enumerate(space.axes)
        if a.kind in ("number", "variant") and a.fields and all(more_is(space, f) in coarse for f in a.fields)
    )


def topology_axis(space: Space) -> int | None:
    """The axis that chooses a fabric by its name."""
    return next((i for i, a in enumerate(space.axes) if a.fields == ("fabric",)), None)


@lru_cache(maxsize=256)
def more_is(space: Space, field: str) -> str:
    """What the schema says that more of a field does; "" where it says nothing."""
    meta = space.scenario.metadata(field)
    return "" if meta is None else str(meta.get("more", ""))


def case_at_corner(space: Space, boxes: Boxes, which: np.ndarray, side: str) -> Case:
    """The case of boxes that share every word, at one corner: `cheap` the least of everything, `dear` the
    most; `rich` the most with its cores, `poor` the least with its cores.

    Ties are linear in each axis, so that their least and most lie on corners; the rich corner takes the least
    power at rest. A corner that cannot be built is refused (`built_corners`).
    """
    axes, blurred = relaxed_axes(space), coarse_axes(space) if boxes.coarse else ()
    digits, end = boxes.low if side in ("cheap", "poor") else boxes.high, min if side == "poor" else max
    values = FieldValues()
    for i in range(len(space.axes)):
        if i in blurred:
            values.numbers |= {
                f: np.full(len(which), end(choices))
                for f, choices in field_choices(space, i).items()
                if more_is(space, f) != "fewer cores"
            }
        else:
            chosen = digits[which, axes.index(i)] if i in axes else boxes.fixed[which, i]
            set_choices(values, space, i, chosen)
    least, most = _tie_range(space, boxes, which)
    values.numbers |= most if side == "dear" else least
    if side in ("rich", "poor"):
        values.numbers["chip.compute.cores"] = boxes.cores[which]
    return assemble_case(space.scenario, values, None, checked=False)


def built_corners(
    space: Space, boxes: Boxes, which: np.ndarray, sides: Sequence[str]
) -> Iterator[tuple[np.ndarray, tuple[Case, ...]]]:
    """Boxes that share every word in groups whose corners can be built, with their cases; others are out."""
    return built_parts(lambda some: tuple(case_at_corner(space, boxes, some, s) for s in sides), which)


def _tie_range(space: Space, boxes: Boxes, which: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """The least and the most of every tied field over boxes, from all corners of the axes it names."""
    axes = relaxed_axes(space)
    fixed = {
        a.name: np.array(a.values, float)[boxes.fixed[which, i]]
        for i, a in enumerate(space.axes)
        if a.ordered and i not in axes
    }
    ends = {
        space.axes[i].name: [space.axes[i].values_at(side[which, k]) for side in (boxes.low, boxes.high)]
        for k, i in enumerate(axes)
    }
    used = [name for name in ends if any(mentions(t.value, name) for t in space.ties)]
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    base = fixed | {name: pair[0] for name, pair in ends.items()}
    for chosen in itertools.product((0, 1), repeat=len(used)):
        corner = {name: ends[name][side] for name, side in zip(used, chosen, strict=True)}
        tied = tied_values(space, base | corner)
        low = {k: np.minimum(low.get(k, v), v) for k, v in tied.items()}
        high = {k: np.maximum(high.get(k, v), v) for k, v in tied.items()}
    return low, high


def dominating_chip(rich: Chip, cheap: Chip, boxes: Boxes, warm: bool) -> Chip:
    """A chip better than every one of a box.

    `warm`: all chips of the box have one geometry, and so one way for heat to leave; else power alone limits
    it, and what leaks is what leaks at the coolant's temperature. Energy of a byte, power at rest and layers
    are the cheapest corner's.
    """
    energy, heat = replace(rich.energy, memory=cheap.energy.memory), rich.heat
    if warm:
        heat = None if heat is None else replace(heat, refresh_limit=1e9)
    else:
        energy, heat = replace(energy, static_power=least_idle_power(cheap), layer_power=0.0), None
    chip = replace(rich, energy=energy, heat=heat, cores_fit=None)
    return _with_most_bandwidth(chip) if boxes.coarse else chip


def least_idle_power(chip: Chip) -> Number:
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
    """A chip whose DRAM gives every kernel its peak, below what cores can take."""
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
def dominating_fabric(space: Space) -> Fabric:
    """A network no topology of a space beats: one switch between all devices, with all links a device has
    anywhere, the quickest hop, the lowest price, and the least beside a device.

    Of each fabric the bandwidths of all its dimensions add up, each at the most its axis allows.
    """
    scenario, topology = space.scenario, topology_axis(space)
    names = [""] if topology is None else [str(v) for v in space.axes[topology].values]
    every = [scenario.fabric_named(name) for name in names]
    totals = [
        sum(
            max(float(d.bandwidth), _reached(space, (str(i), d.name), "bandwidth", d.bandwidth, max))
            for i, d in enumerate(one.dimension)
        )
        for one in every
    ]
    switch = replace(
        best_switch(every, max(totals), float(scenario.base_system.devices)),
        price=min(_least_price(space, one) for one in every),
    )
    return replace(every[0], dimension=(switch,), host=_least_host(every, scenario.economics))


def best_switch(fabrics: Sequence[Fabric], bandwidth: float, devices: float) -> Dimension:
    """One switch between all devices that no way through these fabrics beats: the quickest hop and the least
    energy of a dimension, and addition inside it where any of them adds up.

    >>> from strata.hardware.fabric import fabric
    >>> best = best_switch([fabric("hgx-h200")], 500e9, 16.0)
    >>> float(best.reduction), float(best.latency) * 1e6
    (1.0, 1.25)
    """
    every = [d for one in fabrics for d in one.dimension]
    adds = [float(np.max(d.reduction)) for d in every if d.reduction is not None]
    return plain_dimension(
        every[0],
        kind="switch",
        size=devices,
        bandwidth=bandwidth,
        latency=min(float(d.latency) for d in every),
        energy=min(float(d.energy or 0.0) for d in every),
        reduction=max(adds, default=None),
    )


def _least_price(space: Space, one: Fabric) -> float:
    """The lowest price of a fabric's links that its axes allow, without hosts [USD]."""
    cheapest = []
    for i, d in enumerate(one.dimension):
        least: dict[str, Any] = {
            name: _reached(space, (str(i), d.name), name, value, min)
            for name in ("bandwidth", "price")
            if (value := getattr(d, name)) is not None
        }
        cheapest.append(replace(d, **least))
    return float(fabric_price(replace(one, dimension=tuple(cheapest), host=None), space.scenario.economics))


def _least_host(every: list[Fabric], money: Economics) -> Host | None:
    """What stands beside a device at least, whatever the fabric: always on, cooled, supplied and paid for."""
    hosts = [one.host for one in every if one.host is not None]
    if len(hosts) < len(every):
        return None
    coolest = min(hosts, key=lambda h: float(money.host.cooling[h.cooling]) if h.cooling else -1.0)
    return replace(
        coolest,
        power=min(float(always_on(h, money.host)) for h in hosts),
        price=min(float(h.price or 0.0) for h in hosts),
    )


def _reached(space: Space, called: tuple[str, str], field: str, usual: Any, end: Any) -> float:
    """The most or the least of a dimension's field that an axis sets by place or name; else as it is."""
    for axis in space.axes:
        if axis.ordered and any(
            f.split(".")[1:] in ([c, field] for c in called) and f.startswith("fabric.") for f in axis.fields
        ):
            return float(end(axis.values)) * (float(usual) if axis.kind == "times" else 1.0)
    return float(usual)
