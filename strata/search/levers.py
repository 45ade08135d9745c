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
RATES = ("chip.compute.matrix_rate.*", "chip.compute.vector_rate", "chip.compute.special_rate")


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


LEVERS = (
    Lever(
        resource="matrix rate",
        bounds=("compute",),
        ways=(("chip.recipe.template.macs",), ("chip.compute.matrix_rate.*",)),
    ),
    Lever(
        resource="vector and special rates",
        bounds=("compute",),
        ways=(
            ("chip.recipe.template.vector_lanes", "chip.recipe.template.special_lanes"),
            ("chip.compute.vector_rate", "chip.compute.special_rate"),
        ),
    ),
    Lever(
        resource="clock of the cores",
        bounds=("compute", "cache"),
        ways=(
            ("chip.recipe.technology.logic.clock", "chip.recipe.template.max_clock"),
            (
                *("chip.compute.max_clock", "chip.compute.clock", *RATES, "chip.compute.sram_bandwidth"),
                *("chip.cache.bandwidth", "chip.cache.over_memory", "chip.cache.core_bandwidth"),
                "chip.levels.*.bandwidth",
            ),
        ),
    ),
    Lever(
        resource="cores, on a larger die",
        bounds=("compute", "cache"),
        ways=(("chip.compute.cores", *RATES, "chip.package.die_area"),),
        counted=True,
    ),
    Lever(
        resource="die area",
        bounds=("compute", "cache"),
        ways=(("chip.recipe.budget.die_area", "chip.recipe.budget.node_area"), ("chip.package.die_area",)),
    ),
    Lever(
        resource="cache bandwidth",
        bounds=("cache",),
        ways=(
            ("chip.recipe.technology.memories.*.port_width",),
            ("chip.cache.over_memory", "chip.cache.core_bandwidth"),
            ("chip.cache.bandwidth", "chip.cache.core_bandwidth"),
        ),
    ),
    # of rows of few tokens, read and added up one after another, too: their time is credited to the cores
    Lever(
        resource="cache latency (less)",
        bounds=("cache", "compute"),
        ways=(("chip.cache.latency",),),
        less=True,
    ),
    Lever(
        resource="bandwidth of other memories on the chip",
        bounds=("cache",),
        ways=(("chip.compute.sram_bandwidth", "chip.levels.*.bandwidth"),),
    ),
    Lever(
        resource="DRAM bandwidth",
        bounds=("memory",),
        ways=(("chip.recipe.device.pin_rate",), ("chip.stack.transfer_rate",), ("chip.memory.bandwidth",)),
    ),
    Lever(
        resource="DRAM channels",
        bounds=("memory",),
        ways=(("chip.recipe.device.pins",), ("chip.stack.channels_per_layer",)),
        counted=True,
    ),
    Lever(
        resource="DRAM bank timings (less)",
        bounds=("memory",),
        ways=(("chip.stack.dram.timing.*",),),
        less=True,
    ),
    Lever(resource="DRAM latency (less)", bounds=("memory",), ways=(("chip.memory.latency",),), less=True),
    Lever(
        resource="network bandwidth",
        bounds=("network",),
        ways=(("chip.recipe.links.*.lane_rate",), ("fabric.dimension.*.bandwidth",)),
    ),
    Lever(
        resource="network latency (less)",
        bounds=("network",),
        ways=(("chip.recipe.links.*.latency",), ("fabric.dimension.*.latency",)),
        less=True,
    ),
    Lever(
        resource="starts of collectives (less)",
        bounds=("network",),
        ways=(
            (
                "fabric.dimension.*.transport_model.*.start.*",
                *(
                    f"fabric.dimension.*.transport_model.*.{name}"
                    for name in ("peer", "peer.*", "second.*", "expert.*")
                ),
            ),
        ),
        less=True,
    ),
    # of a loop over few tokens, too, whose time is credited to the cores or their cache
    Lever(
        resource="fixed times of kernels (less)",
        bounds=("overhead", "compute", "cache"),
        ways=(FIXED_TIMES,),
        less=True,
    ),
    Lever(
        resource="kernel launch (less)", bounds=("overhead",), ways=(("chip.overhead.launch",),), less=True
    ),
    Lever(
        resource="host time of the engine (less)",
        bounds=("host",),
        ways=(("engine.host_step", "engine.step_gap", "engine.sequence_gap"),),
        less=True,
    ),
    Lever(
        resource="power limit",
        bounds=("throttling",),
        ways=(("chip.recipe.budget.power",), ("chip.energy.power_limit",)),
    ),
    # where power makes a chip's rates, thrift is speed
    Lever(
        resource="energy of a DRAM access (less)",
        bounds=("memory", "throttling"),
        ways=(("chip.recipe.device.access_energy",), ("chip.energy.memory_array",), ("chip.energy.memory",)),
        less=True,
    ),
    Lever(
        resource="energy of operations (less)",
        bounds=("compute", "throttling"),
        ways=(
            ("chip.recipe.technology.logic.mac_energy.*", "chip.recipe.technology.logic.vector_energy"),
            ("chip.energy.matrix.*", "chip.energy.vector"),
        ),
        less=True,
    ),
    Lever(
        resource="energy of memories on the chip (less)",
        bounds=("cache", "throttling"),
        ways=(
            ("chip.recipe.technology.memories.*.read_energy",),
            ("chip.energy.cache", "chip.energy.sram", "chip.levels.*.energy"),
        ),
        less=True,
    ),
    Lever(resource="cooling", bounds=("throttling",), ways=(("chip.cooling.transfer",),)),
    Lever(
        resource="thermal resistance (less)",
        bounds=("throttling",),
        ways=(("chip.cooling.sink_resistance",),),
        less=True,
    ),
)


def stated_owners(owners: FieldOwners) -> FieldOwners:
    """The same records with the chip as it was stated, so that values are those that may be moved."""
    return replace(owners, chip=restated(owners.chip))


def own_networks(system: System) -> bool:
    """Whether a system is joined by networks that its chip was generated with."""
    made = system.chip.networks
    return made is not None and made.name == system.fabric.name


def quantities_behind(lever: Lever, owners: FieldOwners, system: System) -> dict[str, dict[str, float]]:
    """What a lever moves in this design: by pattern, the names of stated quantities with their values; {}
    where the design has no such resource.
    """
    bare = stated_owners(owners)
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
