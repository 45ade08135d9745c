"""Levers: what a designer can move to shorten what binds a step, and the quantities behind each.

What is moved is what a chip was described by (a transfer rate, a pin rate, a stated bandwidth), never what
follows from it: which one that is depends on the chip's own description, and the rest follows anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.hardware.chip import changed_chip
from strata.hardware.derive import is_derived, restated
from strata.hardware.fabric import Fabric, sized
from strata.hardware.system import System
from strata.params import GIVEN, value_at
from strata.search.fields import FieldOwners, by_owner, changed_engine, changed_fabric, split_field

FIXED_TIMES = (
    "chip.overhead.kernel",
    *(
        f"chip.overhead.{name}"
        for name in (
            *("stream", "cold", "grouped", "attention", "tile", "query_block", "merge", "column", "pivot"),
            *("quantise.*", "step.*", "split.*"),
        )
    ),
    *(
        f"chip.{part}.{name}"
        for part in ("paged", "latent")
        for name in ("query_block", "ramp", "merge", "prompt", "floor.*")
    ),
    *(f"chip.experts.{name}" for name in ("tile", "sort", "floor.*")),
)
RATES = "chip.compute.matrix_rate.* chip.compute.vector_rate chip.compute.special_rate"


@dataclass(frozen=True, kw_only=True)
class Lever:
    """Something to have more of, or less: which rows of a step's time it shortens, and the quantities that
    may stand behind it.

    `ways` are tried in turn: the first whose first pattern names quantities that this design states is
    taken, with what its other patterns name of them.
    """

    resource: str
    bounds: tuple[str, ...]
    ways: tuple[tuple[str, ...], ...]
    less: bool = False
    counted: bool = False  # whole numbers: one more at least


def _lever(
    resource: str, bounds: str, *ways: str | tuple[str, ...], less: bool = False, counted: bool = False
) -> Lever:
    """A lever with its bounds, and the patterns of each way, as words with blanks between."""
    patterns = tuple(tuple(way.split()) if isinstance(way, str) else way for way in ways)
    return Lever(resource=resource, bounds=tuple(bounds.split()), ways=patterns, less=less, counted=counted)


LEVERS = (
    _lever("matrix rate", "compute", "chip.recipe.template.macs", "chip.compute.matrix_rate.*"),
    _lever(
        "vector and special rates",
        "compute",
        "chip.recipe.template.vector_lanes chip.recipe.template.special_lanes",
        "chip.compute.vector_rate chip.compute.special_rate",
    ),
    _lever(
        "clock of the cores",
        "compute cache",
        "chip.recipe.technology.logic.clock chip.recipe.template.max_clock",
        f"chip.compute.max_clock chip.compute.clock {RATES} chip.compute.sram_bandwidth chip.cache.bandwidth "
        "chip.cache.over_memory chip.cache.core_bandwidth chip.levels.*.bandwidth",
    ),
    _lever(
        "cores, on a larger die",
        "compute cache",
        f"chip.compute.cores {RATES} chip.package.die_area",
        counted=True,
    ),
    _lever(
        "die area",
        "compute cache",
        "chip.recipe.budget.die_area chip.recipe.budget.node_area",
        "chip.package.die_area",
    ),
    _lever(
        "cache bandwidth",
        "cache",
        "chip.recipe.technology.memories.*.port_width",
        "chip.cache.over_memory chip.cache.core_bandwidth",
        "chip.cache.bandwidth chip.cache.core_bandwidth",
    ),
    # of rows of few tokens, read and added up one after another, too: their time is credited to the cores
    _lever("cache latency (less)", "cache compute", "chip.cache.latency", less=True),
    _lever(
        "bandwidth of other memories on the chip",
        "cache",
        "chip.compute.sram_bandwidth chip.levels.*.bandwidth",
    ),
    _lever(
        "DRAM bandwidth",
        "memory",
        "chip.recipe.device.pin_rate",
        "chip.stack.transfer_rate",
        "chip.memory.bandwidth",
    ),
    _lever(
        "DRAM channels", "memory", "chip.recipe.device.pins", "chip.stack.channels_per_layer", counted=True
    ),
    _lever("DRAM bank timings (less)", "memory", "chip.stack.dram.timing.*", less=True),
    _lever("DRAM latency (less)", "memory", "chip.memory.latency", less=True),
    _lever("network bandwidth", "network", "chip.recipe.links.*.lane_rate", "fabric.dimension.*.bandwidth"),
    _lever(
        "network latency (less)",
        "network",
        "chip.recipe.links.*.latency",
        "fabric.dimension.*.latency",
        less=True,
    ),
    _lever(
        "starts of collectives (less)",
        "network",
        tuple(
            f"fabric.dimension.*.transport_model.*.{name}"
            for name in ("start.*", "peer", "peer.*", "second.*", "expert.*")
        ),
        less=True,
    ),
    # of a loop over few tokens, too, whose time is credited to the cores or their cache
    _lever("fixed times of kernels (less)", "overhead compute cache", FIXED_TIMES, less=True),
    _lever("kernel launch (less)", "overhead", "chip.overhead.launch", less=True),
    _lever(
        "host time of the engine (less)",
        "host",
        "engine.host_step engine.step_gap engine.sequence_gap",
        less=True,
    ),
    _lever("power limit", "throttling", "chip.recipe.budget.power", "chip.energy.power_limit"),
    # where power makes a chip's rates, thrift is speed
    _lever(
        "energy of a DRAM access (less)",
        "memory throttling",
        "chip.recipe.device.access_energy",
        "chip.energy.memory_array",
        "chip.energy.memory",
        less=True,
    ),
    _lever(
        "energy of operations (less)",
        "compute throttling",
        "chip.recipe.technology.logic.mac_energy.* chip.recipe.technology.logic.vector_energy",
        "chip.energy.matrix.* chip.energy.vector",
        less=True,
    ),
    _lever(
        "energy of memories on the chip (less)",
        "cache throttling",
        "chip.recipe.technology.memories.*.read_energy",
        "chip.energy.cache chip.energy.sram chip.levels.*.energy",
        less=True,
    ),
    _lever("cooling", "throttling", "chip.cooling.transfer"),
    _lever("thermal resistance (less)", "throttling", "chip.cooling.sink_resistance", less=True),
)


def own_networks(system: System) -> bool:
    """Whether a system is joined by networks that its chip was generated with."""
    made = system.chip.networks
    return made is not None and made.name == system.fabric.name


def quantities_behind(lever: Lever, owners: FieldOwners, system: System) -> dict[str, dict[str, float]]:
    """What a lever moves in this design: by pattern, the names of stated quantities with their values; {}
    where the design has no such resource.
    """
    bare = replace(owners, chip=restated(owners.chip))  # as stated: values are those that may be moved
    for way in lever.ways:
        found = {pattern: _stated(pattern, bare, owners, system) for pattern in way}
        if found[way[0]]:
            return {pattern: held for pattern, held in found.items() if held}
    return {}


def _stated(pattern: str, bare: FieldOwners, owners: FieldOwners, system: System) -> dict[str, float]:
    """Quantities of a pattern that this design states and that are not nothing."""
    found = {}
    for name in bare.matching(pattern):
        owner, path = split_field(name)
        if owner == "chip" and is_derived(owners.chip, path):
            continue
        if path.startswith("recipe.links.") and not own_networks(system):
            continue
        if owner == "fabric" and own_networks(system):
            continue
        record, whole = bare.resolve(name)
        value = value_at(record, whole) if whole is not None else None
        if value is not None and np.all(np.asarray(value, float) > 0.0):
            found[name] = float(np.asarray(value))
    return found


def moved(lever: Lever, held: Mapping[str, float], more: float) -> dict[str, float]:
    """The quantities behind a lever with so much more of each (or as much less)."""
    if lever.less:
        return {name: value / (1.0 + more) for name, value in held.items()}
    if not lever.counted:
        return {name: value * (1.0 + more) for name, value in held.items()}
    count = next(iter(held.values()))
    share = max(count + 1.0, float(round(count * (1.0 + more)))) / count
    return {name: value * share for name, value in held.items()}


def moved_design(owners: FieldOwners, system: System, changes: Mapping[str, Any]) -> tuple[System, Any]:
    """A system and an engine with stated quantities changed, and all that follows from them."""
    tables = by_owner(changes)
    chip, fabric = system.chip, system.fabric
    if tables["chip"]:
        chip = changed_chip(chip, tables["chip"])
        if own_networks(system):
            fabric = _joined_again(chip.networks, fabric)
    fabric = changed_fabric(fabric, tables["fabric"])
    return replace(system, chip=chip, fabric=fabric), changed_engine(owners.engine, tables["engine"])


def _joined_again(made: Fabric | None, before: Fabric) -> Fabric:
    """A generated chip's networks in the sizes of the fabric before, with what a caller gave that one."""
    assert made is not None
    given = {
        path: value_at(before, path)
        for path, param in before.sources.items()
        if param.source == GIVEN and not path.endswith(".size")
    }
    return changed_fabric(sized(made, tuple(d.size for d in before.dimension)), given)
